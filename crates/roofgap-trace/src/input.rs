//! Which reader takes a file, told by its content and never by its name.

use crate::{ReadError, Trace, nsys};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The formats that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// An export of Nsight Systems.
    NsysSqlite,
}

/// Everything that the inputs of one command held.
#[derive(Debug, Default)]
pub struct Input {
    /// The timeline; empty if no input was one.
    pub trace: Trace,
}

/// Reads all inputs into one.
pub fn read(paths: &[PathBuf]) -> Result<Input, ReadError> {
    let mut input = Input::default();
    for path in paths {
        match sniff(path)? {
            Format::NsysSqlite => nsys::read(path, &mut input.trace)?,
        }
    }
    input.trace.sort();
    Ok(input)
}

/// Tells the format of a file by its first bytes.
pub fn sniff(path: &Path) -> Result<Format, ReadError> {
    let mut file = File::open(path).map_err(|e| ReadError::io(path, e))?;
    let mut head = vec![0u8; 4096];
    let n = file.read(&mut head).map_err(|e| ReadError::io(path, e))?;
    head.truncate(n);
    if head.starts_with(b"SQLite format 3\0") {
        return Ok(Format::NsysSqlite);
    }
    Err(ReadError::Unrecognised {
        path: path.to_path_buf(),
        expected: "a capture".into(),
        found: "something else".into(),
    })
}
