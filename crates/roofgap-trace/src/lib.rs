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
//! Each format is a folder with a `READER` constant, listed in `input.rs`.

pub mod account;
pub mod native;
pub mod ncu;
pub mod sqlite;

mod annotated;
mod decimal;
mod error;
mod gzip;
mod input;
mod kineto;
mod launcher;
mod model;
mod nsys;
mod reader;
mod summary_csv;
mod temporary;

pub use error::ReadError;
pub use gzip::Unpacked;
pub use input::{detect, read, read_each};
pub use kineto::frames;
pub use model::*;
pub use reader::Input;
