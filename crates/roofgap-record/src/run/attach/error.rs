//! Errors of watching a program and of capturing a window of it.

use std::path::PathBuf;

use roofgap_base::error::Error;
use roofgap_collect::watch::WatchError;

use crate::run::native::NativeUnavailable;
use roofgap_base::exit::Exit;
use roofgap_runs::config::ConfigError;

/// Error that prevents watching a program, or a capture.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The binary has no native collector.
    #[error(transparent)]
    Native(#[from] NativeUnavailable),
    /// The program cannot be registered, or is not watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// A file for the program cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// The run directory is not writable.
    #[error(transparent)]
    RunDir(#[from] Error),
    /// The configuration of the run cannot be composed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The program cannot start.
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: std::io::Error },
    /// Requests cannot be added to a run.
    #[error("cannot add the requests of {}: {why}", path.display())]
    Requests { path: PathBuf, why: String },
    /// No process has loaded the collector.
    #[error(
        "process {pid} has not loaded the collector: it has used neither CUDA nor NVTX yet, or it was started without the environment \
         of `roofgap watch`"
    )]
    NotLoaded { pid: i32 },
    /// The window is too long.
    #[error("a window of {seconds} s is too long; the longest is {longest} s")]
    LongWindow { seconds: u64, longest: u64 },
    /// Another capture is under way.
    #[error("process {pid} is being captured already; wait until that capture has ended")]
    Busy { pid: i32 },
    /// No process can be recorded.
    #[error("process {pid} cannot be recorded: {why}")]
    Refused { pid: i32, why: String },
}

impl AttachError {
    /// Returns the exit status.
    pub fn exit(&self) -> Exit {
        match self {
            Self::NotLoaded { .. } | Self::Busy { .. } | Self::Refused { .. } => Exit::Partial,
            _ => Exit::Usage,
        }
    }
}

impl From<AttachError> for Error {
    fn from(error: AttachError) -> Self {
        let exit = error.exit();
        Error::of(error).with_exit(exit)
    }
}
