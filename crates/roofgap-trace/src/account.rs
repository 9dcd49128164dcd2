//! Reads the workload account of a profiled program.

use crate::{Format, ReadError, input};
use std::path::Path;

pub use roofgap_wire::account::{
    Account, AccountError, DeviceFacts, EngineFacts, GaugeStats, MeasuredPeak, ModelFacts, NoteTime,
    OperatorTime, Percentiles, Repeat, RequestFailure, RequestStats, RequestTimes, SCHEMA, Stage1Figures,
    Stage1Mfu, Stage1Operator, Stage1Time, StageTime, Statistic, TokenCounts, traceparent,
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
