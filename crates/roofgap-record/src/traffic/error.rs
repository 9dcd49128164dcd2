//! Failures to send load.

use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::child::ChildError;
use std::path::PathBuf;

/// Failure to send load. Requests that fail are counted, not errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The prompt file cannot be read.
    #[error("cannot read the prompts in {path}: {why}")]
    Prompts {
        /// Path of the file.
        path: PathBuf,
        /// Cause, with the line where it is known.
        why: String,
    },
    /// More requests than prompts that fit into memory.
    #[error("more than {most} requests with those of the warm-up; send fewer (load.requests, load.warmup)")]
    TooManyRequests {
        /// Most requests.
        most: u64,
    },
    /// Nothing answers at the address.
    #[error("no server answers at {url}: {why}")]
    NoServer {
        /// Address of the server.
        url: String,
        /// Cause.
        why: String,
    },
    /// The server names no model.
    #[error("{url} names no model: {why}; name it with --model (load.model)")]
    NoModel {
        /// Address of the server.
        url: String,
        /// Cause.
        why: String,
    },
    /// The server did not become ready in time.
    #[error("the server at {url} was not ready after {seconds} s: {last}")]
    NotReady {
        /// Address of the server.
        url: String,
        /// Time limit, seconds.
        seconds: u64,
        /// Last answer.
        last: String,
    },
    /// The server ended before it was ready or under load.
    #[error("the server {how} {when}\n{tail}")]
    ServerEnded {
        /// Part of the run.
        when: &'static str,
        /// Exit status or signal.
        how: String,
        /// Last lines of its output.
        tail: String,
    },
    /// Every request failed.
    #[error("all {requests} requests failed; most often: {why}")]
    AllFailed {
        /// Number of requests.
        requests: u64,
        /// Most frequent failure.
        why: String,
    },
    /// The server cannot be started or stopped.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The run was cancelled.
    #[error("interrupted")]
    Cancelled,
    /// A thread that sends requests ended early.
    #[error("a sending thread ended early")]
    Thread,
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        let exit = match error {
            LoadError::Cancelled => Exit::Interrupted,
            LoadError::Prompts { .. } | LoadError::TooManyRequests { .. } | LoadError::NoModel { .. } => {
                Exit::Usage
            }
            _ => Exit::ProgramFailed,
        };
        Error::of(error).with_exit(exit)
    }
}
