//! Errors of the commands on runs.

use std::io;
use std::path::{Path, PathBuf};

use crate::run_dir::LocateError;
use roofgap_base::exit::Exit;

/// Error of a command on runs.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// A file or folder operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// No run was found.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// The run is in progress.
    #[error("the run {run} is in progress; wait until it ends")]
    InProgress { run: String },
    /// The folder of a merge holds something else.
    #[error("{} holds files that no merge wrote; name an empty or a new folder", path.display())]
    NotEmpty { path: PathBuf },
    /// A file still holds private data after scrubbing.
    #[error("{} still holds {what} after scrubbing; no archive was written", path.display())]
    NotClean { path: PathBuf, what: String },
}

impl RunsError {
    /// Returns the exit status.
    pub fn exit(&self) -> Exit {
        match self {
            RunsError::NotClean { .. } => Exit::Partial,
            _ => Exit::Usage,
        }
    }

    /// Returns a function that wraps a system error.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RunsError + use<> {
        let path = path.to_owned();
        move |source| RunsError::Io { action, path, source }
    }
}
