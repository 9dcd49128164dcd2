//! Command lines of nsys, as values.
//!
//! - [`mod@profile`]: what is recorded, and how
//! - [`convert`]: exporting to SQLite, and the summaries of `nsys stats`

pub mod convert;
pub mod profile;

pub use convert::{KernelSummary, export, kernel_summary, stats};
pub use profile::{CaptureEnd, Gate, GraphTrace, Profile};
