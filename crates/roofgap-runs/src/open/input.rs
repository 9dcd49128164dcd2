//! Reads capture files. The format is detected from content.

use std::path::PathBuf;

use roofgap_trace::Input;

use super::error::LoadError;
use super::nsys_report::{Export, Exporter};

/// Reads captures; nsys reports are exported first.
pub fn read(paths: &[PathBuf], exporter: &Exporter) -> Result<Input, LoadError> {
    let exports = paths.iter().map(|path| Export::of(path, exporter)).collect::<Result<Vec<_>, _>>()?;
    let files: Vec<PathBuf> = paths
        .iter()
        .zip(&exports)
        .map(|(path, export)| export.as_ref().map_or(path, |export| &export.sqlite).clone())
        .collect();
    let mut input = roofgap_trace::read(&files)?;
    for export in exports.iter().flatten() {
        export.restore_name(&mut input.trace);
    }
    Ok(input)
}

/// Reads recordings of a session. An unreadable file is reported in `unreadable` and costs only itself.
pub fn read_each(paths: &[PathBuf], unreadable: &mut Vec<String>) -> Input {
    let (input, errors) = roofgap_trace::read_each(paths);
    unreadable.extend(errors.iter().map(ToString::to_string));
    input
}
