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

/// Reads the workload account of a profiled program.
pub mod account {
    use crate::{Format, ReadError, input};
    use std::path::Path;

    pub use roofgap_wire::account::{
        Account, AccountError, DeviceFacts, EngineFacts, GaugeStats, MeasuredPeak, ModelFacts, ModuleFacts,
        NoteTime, OperatorTime, Percentiles, Repeat, RequestFailure, RequestStats, RequestTimes, SCHEMA,
        Stage1Figures, Stage1Mfu, Stage1Operator, Stage1Time, StageTime, Statistic, TokenCounts, WeightFacts,
        traceparent,
    };

    pub(crate) const FORMAT: Format = Format {
        name: "workload-account",
        endings: &[".json"],
        detect: |head| memchr::memmem::find(&head.bytes, SCHEMA.as_bytes()).is_some().into(),
        read: |file, input| {
            input.account = Some(read(&file.path)?);
            Ok(())
        },
        ..Format::DEFAULT
    };

    const NAME: &str = "workload account";

    /// Size limit of an account, bytes.
    const MOST_BYTES: u64 = 256 << 20;

    /// Reads an account, which may be compressed with gzip.
    ///
    /// # Errors
    /// Fails when the file is not readable, too large, or not an account.
    pub fn read(path: &Path) -> Result<Account, ReadError> {
        if !std::fs::metadata(path).map_err(|error| ReadError::io(path, error))?.is_file() {
            return Err(ReadError::damaged(path, NAME, "not a regular file"));
        }
        let text = input::load(path, NAME, MOST_BYTES)?;
        Account::from_json(&text).map_err(|error| ReadError::damaged(path, NAME, error))
    }

    #[cfg(test)]
    mod tests {
        #[cfg(unix)]
        #[test]
        fn a_device_is_not_read() {
            let error = super::read("/dev/zero".as_ref()).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
    }
}
