//! Command lines of nsys, as values.
//!
//! - `profile`: `nsys profile`, recording a program
//! - `export`: `nsys export` to SQLite and `nsys stats` to CSV

mod export;
mod profile;

pub use export::{KernelSummary, export, kernel_summary, stats};
pub use profile::{CaptureEnd, CaptureRange, GraphTrace, NsysProfile};
