#![doc = include_str!("../README.md")]

pub mod compare;
pub mod export;
pub mod page;
pub mod telemetry;

mod bundle;
mod derivation;
mod document;

/// Results as JSON.
pub mod json {
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
}

/// Renderers: each walks the sections of a document.
mod render {
    pub mod html;
    pub mod markdown;
    pub mod screen;
    pub mod text;
}

pub use bundle::{Bundle, Context, PhaseLine, ReportFile, files};
pub use derivation::{Derivation, DerivationRow, derivations};
pub use document::headline::{headline, main_stage};
pub use document::incident::incident_text;
pub use document::selection::{KernelOrder, NameFilter, Selection};
pub use document::serving::requests_text;
pub use document::trial::tried_text;
pub use export::ExportError;
pub use render::screen::{Screen, Tone, columns};
pub use render::{markdown, text};
pub use roofgap_base::numbers::{count, size, time, times};
