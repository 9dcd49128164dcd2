//! Why an input could not be read.

use std::path::{Path, PathBuf};

impl From<ReadError> for roofgap_base::error::Error {
    fn from(error: ReadError) -> Self {
        Self::of(error)
    }
}

/// A failure to read an input: which file, what was expected, what was found.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// No reader knows the content.
    #[error("{}: not a capture: expected {expected}, found {found}", path.display())]
    Unrecognised {
        /// The file.
        path: PathBuf,
        /// Accepted formats.
        expected: String,
        /// Description of the content.
        found: String,
    },
    /// The format is known, the content is not sound.
    #[error("{}: damaged or incomplete {format}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The format it claims to be.
        format: &'static str,
        /// Description of the damage.
        what: String,
    },
    /// A report of nsys has a part in a form that is not read here; nsys can export it.
    #[error("{}: an nsys report with {what}; export it with `nsys export --type=sqlite` and give the .sqlite", path.display())]
    UnknownReport {
        /// The file.
        path: PathBuf,
        /// The part.
        what: String,
    },
    /// The input needs something that is not here.
    #[error("{}: {what}; {remedy}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Obstacle.
        what: String,
        /// Remedy.
        remedy: &'static str,
    },
}

impl ReadError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), source }
    }

    /// Describes a failure to read content, which may be unpacked on the way.
    pub(crate) fn content(path: &Path, packed: bool, source: std::io::Error) -> Self {
        if packed { Self::damaged(path, "gzip file", source) } else { Self::io(path, source) }
    }

    pub(crate) fn unsupported(path: &Path, what: impl Into<String>, remedy: &'static str) -> Self {
        Self::Unsupported { path: path.to_path_buf(), what: what.into(), remedy }
    }

    pub(crate) fn damaged(path: &Path, format: &'static str, what: impl ToString) -> Self {
        Self::Damaged { path: path.to_path_buf(), format, what: what.to_string() }
    }

    /// Replaces the path by the one that the user named.
    pub(crate) fn about(mut self, named: &Path) -> Self {
        match &mut self {
            Self::Io { path, .. }
            | Self::Unrecognised { path, .. }
            | Self::Damaged { path, .. }
            | Self::UnknownReport { path, .. }
            | Self::Unsupported { path, .. } => *path = named.to_path_buf(),
        }
        self
    }
}
