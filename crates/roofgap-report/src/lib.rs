//! An analysis as bytes. Every exporter is pure: data in, bytes out, the same for the same input.

pub mod bundle;
pub mod compare;
pub mod html;
pub mod json;
pub mod markdown;
pub mod text;

mod number;
mod table;

pub use bundle::{Bundle, Context, PhaseLine, ReportFile, files};
