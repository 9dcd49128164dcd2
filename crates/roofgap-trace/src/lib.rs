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
//! Each format is a folder with a `READER` constant, listed in `input.rs`. Cargo features select readers: `nsys`, `kineto`,
//! `native` and `summary-csv`, all on by default. The readers of Nsight Compute and of workload accounts are always there,
//! because their types are part of [`Input`].

pub mod account;
#[cfg(feature = "native")]
pub mod native;
pub mod ncu;
#[cfg(feature = "nsys")]
pub mod sqlite;

mod annotated;
#[cfg(any(feature = "kineto", feature = "summary-csv"))]
#[cfg_attr(not(feature = "kineto"), allow(dead_code))]
mod decimal;
mod error;
mod input;
#[cfg(feature = "kineto")]
mod kineto;
#[cfg(any(feature = "nsys", feature = "native"))]
mod launcher;
mod model;
#[cfg(feature = "nsys")]
mod nsys;
mod reader;
#[cfg(feature = "summary-csv")]
mod summary_csv;
mod temporary;

pub use error::ReadError;
pub use input::{detect, read, read_each};
#[cfg(feature = "kineto")]
pub use kineto::frames;
pub use model::*;
pub use reader::Input;
