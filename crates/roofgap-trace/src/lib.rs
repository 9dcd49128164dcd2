//! Readers of profiler captures, and the event model that they fill.
//!
//! [`read`] detects the format of each file from its content and returns an [`Input`]: a [`Trace`] with the timeline, the
//! counter sets of Nsight Compute, and the workload account of the program. Rows that were dropped or not understood are
//! counted in [`Trace::losses`].
//!
//! ```
//! let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/h200/llama4.sqlite.gz");
//! let input = roofgap_trace::read(&[path.into()])?;
//! let trace = &input.trace;
//!
//! assert_eq!(trace.sources[0].format, roofgap_trace::SourceFormat::NsysSqlite);
//! let busiest = (0..trace.ops.len()).max_by_key(|&row| trace.ops.duration(row));
//! let name = busiest.map(|row| trace.names.get(trace.ops.name[row]));
//! assert!(name.is_some_and(|name| !name.is_empty()));
//! # Ok::<(), roofgap_trace::ReadError>(())
//! ```
//!
//! [`Sniffed::of`] answers what a file is. Each format is a folder with a row of facts, a [`Format`], listed in `format.rs`.

pub mod account;
pub mod native;
pub mod ncu;
pub mod sqlite;
pub mod vitals;

mod annotated;
mod decimal;
mod error;
mod format;
mod input;
mod kineto;
mod model;
mod nsys;
mod perfetto;
mod protobuf;
mod stats;

pub use error::ReadError;
pub use format::{Format, SourceFormat};
pub use input::{Input, Sniffed, read, read_each, read_files};
pub use kineto::frames;
pub use model::*;
pub use nsys::REPORT_MAGIC;
