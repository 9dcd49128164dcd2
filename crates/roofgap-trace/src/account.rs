//! Reads the workload account of a profiled program.

use crate::{Format, ReadError};
use roofgap_base::file::Unpacked;
use std::io::Read;
use std::path::Path;

pub use roofgap_wire::account::{
    Account, AccountError, DeviceFacts, EngineFacts, GaugeStats, MeasuredPeak, ModelFacts, NoteTime,
    OperatorTime, PairedOverhead, Percentiles, Repeat, RequestFailure, RequestStats, RequestTimes, SCHEMA,
    Stage1Figures, Stage1Mfu, Stage1Operator, Stage1Time, StageTime, Statistic, TokenCounts,
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

/// Size limit of an account, bytes.
const MOST_BYTES: u64 = 256 << 20;

/// Reads an account, which may be compressed with gzip.
///
/// # Errors
/// Fails when the file is not readable, too large, or not an account.
pub fn read(path: &Path) -> Result<Account, ReadError> {
    let io = |error| ReadError::io(path, error);
    let damaged = |what: String| ReadError::damaged(path, "workload account", what);
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(damaged("not a regular file".into()));
    }
    let content = Unpacked::open(path).map_err(io)?;
    let packed = content.is_packed();
    let mut text = Vec::new();
    let read = content.take(MOST_BYTES + 1).read_to_end(&mut text);
    read.map_err(|error| ReadError::content(path, packed, error))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(damaged(format!("longer than {} MiB", MOST_BYTES >> 20)));
    }
    Account::from_json(&text).map_err(|error| damaged(error.to_string()))
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
