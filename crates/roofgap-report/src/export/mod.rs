//! The timeline and its numbers for other programs: Perfetto, Parquet, speedscope and flame graphs.
//!
//! - `timeline`: a trace for Perfetto; `parquet`: single events as tables; `stacks`: GPU time by ranges and operators
//! - `free_lines`: items that overlap, on lines

pub mod free_lines;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod stacks;
pub mod timeline;

use roofgap_base::file::write_atomic_with;
use roofgap_trace::OpKind;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// An export that failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The inputs have no data for the format.
    #[error("no {what} to write to {}: {why}", path.display())]
    Nothing {
        /// Content of the format.
        what: &'static str,
        /// Requested file or folder.
        path: PathBuf,
        /// Content of the inputs.
        why: &'static str,
    },
    /// Writing failed.
    #[error("cannot write {}", path.display())]
    Write {
        /// File or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The run name cannot be part of a path.
    #[error("invalid run name {name:?}; use letters, digits, dots, dashes and underscores")]
    RunName {
        /// Rejected name.
        name: String,
    },
}

/// Names the kind of a GPU operation.
pub(crate) fn op_word(kind: OpKind) -> &'static str {
    match kind {
        OpKind::Kernel => "kernel",
        OpKind::Copy => "memcpy",
        OpKind::Set => "memset",
        OpKind::Graph => "graph",
    }
}

impl ExportError {
    /// Creates an error about writing a file or folder.
    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_path_buf(), source }
    }
}

/// Writes a file whole: the old one stays until the new one is complete. A device, such as `/dev/null`, is written to and stays what
/// it is.
pub fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
) -> Result<(), ExportError> {
    let fill_whole = |file: &mut File| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        fill(&mut out)?;
        out.flush()
    };
    let is_device = fs::metadata(path).is_ok_and(|facts| facts.file_type().is_char_device());
    let written = if is_device {
        File::options().write(true).open(path).and_then(|mut device| fill_whole(&mut device))
    } else {
        write_atomic_with(path, fill_whole)
    };
    written.map_err(|e| ExportError::write(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("nothing");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        write_whole(&link, |out| out.write_all(b"x")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
