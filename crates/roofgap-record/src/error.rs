//! The error of recording, and the failure of an attempt within a session.

use std::fmt;

use roofgap_base::exit::Exit;
use roofgap_collect::child::Outcome;
use roofgap_runs::run_dir::PhaseStatus;

/// Error that prevents a session, a capture, a load or a trial.
#[derive(Debug)]
pub struct Error {
    inner: Box<dyn std::error::Error + Send + Sync>,
    exit: Exit,
}

impl Error {
    /// Creates an error of how the command was called.
    pub fn new(message: impl Into<String>) -> Self {
        Error { inner: message.into().into(), exit: Exit::Usage }
    }

    /// Replaces the exit status.
    #[must_use]
    pub fn exiting(self, exit: Exit) -> Self {
        Error { exit, ..self }
    }

    /// Returns the exit status.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns the error that it was made of, where it is an `E`.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.inner.downcast_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(out)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source()
    }
}

macro_rules! from {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Error { inner: error.into(), exit: Exit::Usage }
            }
        })*
    };
}

from! {
    roofgap_analyze::StageError,
    roofgap_collect::child::ChildError,
    roofgap_collect::watch::ControlError,
    roofgap_collect::watch::WatchError,
    roofgap_runs::config::ConfigError,
    roofgap_runs::config::model::ModelError,
    roofgap_runs::open::LoadError,
    roofgap_runs::run_dir::LocateError,
    roofgap_runs::run_dir::folder::RunDirError,
    roofgap_runs::runs::RunsError,
}

/// Failure of an attempt to run a phase: the reason, and the last lines of the log of the failed command.
///
/// It is built from any error by `?`, so it is not an error type itself.
#[derive(Debug)]
pub(crate) struct AttemptError {
    pub(crate) why: String,
    pub(crate) log_tail: Option<String>,
    /// True where nothing was attempted.
    pub(crate) skipped: bool,
    /// Exit status of a session that cannot continue.
    pub(crate) exit: Option<Exit>,
}

impl AttemptError {
    /// Creates a failure without a log.
    pub(crate) fn new(why: impl Into<String>) -> Self {
        AttemptError { why: why.into(), log_tail: None, skipped: false, exit: None }
    }

    /// Creates a failure with the log of a command.
    pub(crate) fn after(why: impl Into<String>, outcome: &Outcome) -> Self {
        AttemptError { log_tail: Some(outcome.output_tail().to_owned()), ..Self::new(why) }
    }

    /// Creates the reason of a phase that attempted nothing.
    pub(crate) fn skipped(why: impl Into<String>) -> Self {
        AttemptError { skipped: true, ..Self::new(why) }
    }

    /// Ends the session.
    pub(crate) fn ending(self, exit: Exit) -> Self {
        AttemptError { exit: Some(exit), ..self }
    }

    /// Converts the failure to the status of the phase.
    pub(crate) fn status(&self) -> PhaseStatus {
        match self.skipped {
            true => PhaseStatus::skipped(&self.why),
            false => PhaseStatus::failed(&self.why, self.log_tail.as_deref()),
        }
    }
}

impl<E: std::error::Error> From<E> for AttemptError {
    fn from(error: E) -> Self {
        AttemptError::new(error.to_string())
    }
}
