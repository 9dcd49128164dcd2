//! Results as JSON.

use serde::Serialize;

/// JSON Schema of the analysis.
pub const SCHEMA: &str = include_str!("../schema/analysis-1.schema.json");

/// JSON Schema of `try.json`.
pub const TRY_SCHEMA: &str = include_str!("../schema/try-1.schema.json");

/// Renders an analysis or a comparison as indented JSON with a final newline.
pub fn pretty(result: &impl Serialize) -> String {
    // Plain data always serializes; a number that is not finite becomes null.
    let mut text = serde_json::to_string_pretty(result).unwrap_or_default();
    text.push('\n');
    text
}
