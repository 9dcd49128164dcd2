//! Why something about runs cannot be done.

use std::io;
use std::path::{Path, PathBuf};

use crate::exit::Exit;

/// Why something about runs cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// A file or folder could not be read or written.
    #[error("could not {what} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There are no runs.
    #[error("no runs in {}; `roofgap profile` makes one, artifacts.stage2_dir says where they are", base.display())]
    None {
        /// Where they were looked for.
        base: PathBuf,
    },
    /// No run has that name.
    #[error("no run {wanted:?} in {}; the last ones are {last}", base.display())]
    Unknown {
        /// What was asked for.
        wanted: String,
        /// Where.
        base: PathBuf,
        /// Names of some that are there.
        last: String,
    },
    /// Several runs have that name.
    #[error("{wanted:?} is the beginning of {count} runs: {some}; write more of it")]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// How many begin so.
        count: usize,
        /// Names of some of them.
        some: String,
    },
    /// A run is being written.
    #[error("the run {run} is still under way; wait for its end")]
    UnderWay {
        /// Its name.
        run: String,
    },
    /// A run has no analysis.
    #[error("the run in {} has no metrics.json; `roofgap report {}` writes it", path.display(), path.display())]
    NoMetrics {
        /// Its folder.
        path: PathBuf,
    },
    /// A document is not what is expected.
    #[error("cannot understand {}: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A capture could not be read.
    #[error(transparent)]
    Read(#[from] roofgap_trace::ReadError),
    /// Something private is still in a file after it was scrubbed.
    #[error("{} still holds {what} after scrubbing; nothing was packed", path.display())]
    NotClean {
        /// The file.
        path: PathBuf,
        /// Of what kind, never the thing itself.
        what: String,
    },
}

impl RunsError {
    /// How to end.
    pub fn exit(&self) -> Exit {
        match self {
            RunsError::NotClean { .. } => Exit::Partial,
            _ => Exit::Usage,
        }
    }

    /// A function that wraps what the system said.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RunsError + use<> {
        let path = path.to_owned();
        move |source| RunsError::Io { what, path, source }
    }
}
