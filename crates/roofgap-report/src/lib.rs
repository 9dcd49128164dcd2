#![doc = include_str!("../README.md")]

pub mod compare;
pub mod export;
pub mod json;
pub mod page;
pub mod telemetry;

mod bundle;
mod derivation;
mod document;

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
pub use document::selection::{KernelOrder, NameFilter, Selection};
pub use document::serving::requests_text;
pub use export::ExportError;
pub use render::screen::{Screen, Tone, columns};
pub use render::{markdown, text};
pub use roofgap_base::numbers::{count, size, time, times};
