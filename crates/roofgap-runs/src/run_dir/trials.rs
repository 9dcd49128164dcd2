//! Reads `try.json`.

use std::io::ErrorKind;
use std::path::PathBuf;

use roofgap_analyze::{TRY_SCHEMA, Trials};
use roofgap_base::file::read_document;

use super::Layout;

/// Error from reading `try.json`.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum TrialsError {
    /// The file is not readable.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The file does not follow the schema.
    #[error("cannot parse {}: {source}", path.display())]
    Malformed { path: PathBuf, source: serde_json::Error },
    /// The file has another schema.
    #[error("{} has schema {found:?}, expected {TRY_SCHEMA:?}", path.display())]
    Schema { path: PathBuf, found: String },
}

/// Reads the trials of a run; `None` where there are none.
///
/// # Errors
/// Fails when the file is not readable or has another schema.
pub fn read(layout: &Layout) -> Result<Option<Trials>, TrialsError> {
    let path = layout.trials();
    let bytes = match read_document(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(TrialsError::Read { path, source }),
    };
    match serde_json::from_slice::<Trials>(&bytes) {
        Ok(trials) if trials.schema == TRY_SCHEMA => Ok(Some(trials)),
        Ok(trials) => Err(TrialsError::Schema { path, found: trials.schema }),
        Err(source) => Err(TrialsError::Malformed { path, source }),
    }
}
