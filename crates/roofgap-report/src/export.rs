//! Writing an export whole: under a temporary name, then renamed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why an export was not made.
#[derive(Debug, Error)]
pub enum ExportError {
    /// There is nothing that the format could hold.
    #[error("no {what} to write to {}: {why}", path.display())]
    Nothing {
        /// What the format holds.
        what: &'static str,
        /// The file or folder asked for.
        path: PathBuf,
        /// What is there instead.
        why: &'static str,
    },
    /// The file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A name that cannot be part of a path.
    #[error("{name:?} cannot name a run; use letters, digits, dots, dashes and underscores")]
    RunName {
        /// The name.
        name: String,
    },
}

impl ExportError {
    /// An error of the system about a file.
    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        Self::Write {
            path: path.to_path_buf(),
            source,
        }
    }
}

/// Writes a file whole: what was there before stays until the new one is complete.
pub(crate) fn whole(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), ExportError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let written = File::create(&part).and_then(|file| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        fill(&mut out)?;
        out.flush()
    });
    written.and_then(|()| fs::rename(&part, path)).map_err(|e| {
        // The first error is the one to tell.
        let _ = fs::remove_file(&part);
        ExportError::write(path, e)
    })
}
