//! An analysis as bytes. Every exporter is pure: data in, bytes out, the same for the same input.

pub mod bundle;
pub mod chrome;
pub mod compare;
pub mod html;
pub mod json;
pub mod markdown;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod runs;
pub mod text;

mod export;
mod number;
mod table;

pub use bundle::{Bundle, Context, PhaseLine, ReportFile, files};
pub use export::ExportError;
