//! Reads the workload account of a profiled program.

use crate::reader::{Detected, Reader};
use crate::{ReadError, SourceFormat};
use std::path::Path;

pub use roofgap_wire::account::{
    Account, AccountError, DeviceFacts, EngineFacts, GaugeStats, MeasuredPeak, ModelFacts, NoteTime,
    OperatorTime, PairedOverhead, Percentiles, Repeat, RequestFailure, RequestStats, RequestTimes, SCHEMA,
    Stage1Figures, Stage1Mfu, Stage1Operator, Stage1Time, StageTime, Statistic, TokenCounts,
};

pub(crate) const READER: Reader = Reader {
    detect: |head| {
        let found = memchr::memmem::find(&head.bytes, SCHEMA.as_bytes()).is_some();
        Detected::when(found, SourceFormat::WorkloadAccount)
    },
    takes_gzip: false,
    read: |path, _, input| {
        input.account = Some(read(path)?);
        Ok(())
    },
};

/// Size limit of an account, bytes.
const MOST_BYTES: u64 = 256 << 20;

/// Reads an account.
///
/// # Errors
/// Fails when the file is not readable, too large, or not an account.
pub fn read(path: &Path) -> Result<Account, ReadError> {
    let kind = std::fs::metadata(path).map_err(|e| ReadError::io(path, e))?;
    if !kind.is_file() {
        return Err(ReadError::damaged(path, "workload account", "not a regular file"));
    }
    let length = kind.len();
    if length > MOST_BYTES {
        return Err(ReadError::damaged(path, "workload account", format!("{length} bytes long")));
    }
    let text = std::fs::read(path).map_err(|e| ReadError::io(path, e))?;
    Account::from_json(&text).map_err(|e| ReadError::damaged(path, "workload account", e))
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
