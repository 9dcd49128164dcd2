//! Errors of a run of the embedded model.

use std::path::PathBuf;

/// Why the embedded model did not run, or did not leave its account.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A property is outside what the model can run with.
    #[error("{property} is {value}: {rule}")]
    Property {
        /// The property as a user would name it.
        property: &'static str,
        /// The value found.
        value: String,
        /// Accepted values.
        rule: String,
    },
    /// The threads could not be started.
    #[error("could not start {threads} worker threads for the embedded model: {source}")]
    Threads {
        /// Number of threads requested.
        threads: usize,
        /// Cause.
        source: rayon::ThreadPoolBuildError,
    },
    /// The thread that runs the model could not be started or ended early.
    #[error("the thread that runs the embedded model {how}")]
    Worker {
        /// Failure.
        how: String,
    },
    /// The account could not be written.
    #[error(
        "could not write the workload account {}: {source}; is the folder there and writable?",
        path.display()
    )]
    WriteAccount {
        /// Path of the account.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
}
