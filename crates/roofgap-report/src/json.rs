//! The analysis as JSON.

use roofgap_analyze::Analysis;

/// The JSON Schema of the analysis.
pub const SCHEMA: &str = include_str!("../schema/analysis-1.schema.json");

/// The analysis as indented JSON with a newline at the end.
pub fn pretty(analysis: &Analysis) -> String {
    // Serialising plain data to a string cannot fail; a number that is not finite becomes null.
    let mut text = serde_json::to_string_pretty(analysis).unwrap_or_default();
    text.push('\n');
    text
}
