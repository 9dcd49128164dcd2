//! Captures of the native collector (`.rgcap`): CUPTI and NVTX from inside the program, one file per process.

use crate::ReadError;
use roofgap_base::file::Unpacked;
use roofgap_wire::{Reader, WireError};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

mod annotations;
mod demangle;
mod identity;
mod place;
mod reader;
mod samples;

pub(crate) use demangle::demangle;
pub use place::{CaptureRank, host, rank, write_without_host};
pub(crate) use reader::FORMAT;
pub use reader::{frames, kernel_names};
pub use roofgap_wire::older_segment;

#[cfg(test)]
mod tests;

/// Returns true for the name of a capture or of its older segment, also of a compressed one.
#[must_use]
pub fn is_capture(name: &str) -> bool {
    let plain = name.strip_suffix(".gz").unwrap_or(name);
    plain.strip_suffix(".old").unwrap_or(plain).ends_with(".rgcap")
}

/// Finds the older segment of a capture; `None` without one. Each of the two may be compressed.
#[must_use]
pub fn find_older(capture: &Path) -> Option<PathBuf> {
    let older = older_segment(&plain(capture));
    let packed = older.with_added_extension("gz");
    [older, packed].into_iter().find(|path| path.is_file())
}

/// Returns the path of a capture without the extension of a compressed one.
fn plain(capture: &Path) -> PathBuf {
    match capture.extension() {
        Some(extension) if extension == "gz" => capture.with_extension(""),
        _ => capture.to_owned(),
    }
}

/// Opens a capture, plain or compressed.
fn open(path: &Path) -> Result<Reader<Box<dyn Read>>, ReadError> {
    Reader::open(content(path)?).map_err(|error| failed(path, error))
}

/// Opens the uncompressed bytes of a capture.
fn content(path: &Path) -> Result<Box<dyn Read>, ReadError> {
    let content = Unpacked::open(path).map_err(|error| ReadError::io(path, error))?;
    Ok(Box::new(BufReader::with_capacity(1 << 18, content)))
}

/// Describes an error of the wire format in a file.
fn failed(path: &Path, error: WireError) -> ReadError {
    match error {
        WireError::Io(source) => ReadError::io(path, source),
        WireError::Version { .. } => ReadError::Unsupported {
            path: path.to_path_buf(),
            what: error.to_string(),
            remedy: "read it with the roofgap that recorded it".into(),
        },
        WireError::NotACapture => ReadError::Unrecognised {
            path: path.to_path_buf(),
            expected: "a native capture".into(),
            found: "another format".into(),
        },
        _ => ReadError::damaged(path, "native capture", error),
    }
}
