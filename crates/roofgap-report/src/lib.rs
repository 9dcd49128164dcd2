#![doc = include_str!("../README.md")]

pub mod chrome;
pub mod compare;
pub mod html;
pub mod json;
pub mod markdown;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod speedscope;
pub mod stacks;
pub mod telemetry;
pub mod text;

mod bundle;
mod export;
mod files;
mod free_lines;
mod view;

pub use bundle::{Bundle, Context, PhaseLine};
pub use export::ExportError;
pub use files::{ReportFile, files};
pub use view::headline::{headline, main_stage};
pub use view::numbers::{count, size, time, times};
pub use view::requests::requests_text;
pub use view::screen::{Screen, Tone};
pub use view::selection::{KernelOrder, NameFilter, Selection};
pub use view::table::columns;
