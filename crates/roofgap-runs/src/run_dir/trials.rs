//! Reads `try.json`.

use std::io::ErrorKind;

use roofgap_analyze::{TRY_SCHEMA, Trials};
use roofgap_base::error::Error;
use roofgap_base::file::read_document;

use super::Layout;

/// Reads the trials of a run; `None` where there are none.
///
/// # Errors
/// Fails when the file is not readable or has another schema.
pub fn read(layout: &Layout) -> Result<Option<Trials>, Error> {
    let path = layout.trials();
    let bytes = match read_document(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::io("read", &path)(source)),
    };
    match serde_json::from_slice::<Trials>(&bytes) {
        Ok(trials) if trials.schema == TRY_SCHEMA => Ok(Some(trials)),
        Ok(trials) => {
            let (path, found) = (path.display(), trials.schema);
            Err(Error::new(format!("{path} has schema {found:?}, expected {TRY_SCHEMA:?}")))
        }
        Err(source) => Err(Error::io("parse", &path)(source.into())),
    }
}
