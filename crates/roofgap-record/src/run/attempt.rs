//! The failure of an attempt to run a phase.

use roofgap_base::exit::Exit;
use roofgap_collect::child::Outcome;
use roofgap_runs::run_dir::PhaseStatus;

/// Failure of an attempt to run a phase: the reason, and the last lines of the log of the failed command.
///
/// It is built from any error by `?`, so it is not an error type itself.
#[derive(Debug)]
pub struct AttemptError {
    pub why: String,
    pub log_tail: Option<String>,
    /// True where nothing was attempted.
    pub skipped: bool,
    /// Exit status of a session that cannot continue.
    pub exit: Option<Exit>,
}

impl AttemptError {
    /// Creates a failure without a log.
    pub fn new(why: impl Into<String>) -> Self {
        AttemptError { why: why.into(), log_tail: None, skipped: false, exit: None }
    }

    /// Creates a failure with the log of a command.
    pub fn after(why: impl Into<String>, outcome: &Outcome) -> Self {
        AttemptError { log_tail: Some(outcome.output_tail().to_owned()), ..Self::new(why) }
    }

    /// Creates the reason of a phase that attempted nothing.
    pub fn skipped(why: impl Into<String>) -> Self {
        AttemptError { skipped: true, ..Self::new(why) }
    }

    /// Ends the session.
    pub fn ending(self, exit: Exit) -> Self {
        AttemptError { exit: Some(exit), ..self }
    }

    /// Converts the failure to the status of the phase.
    pub fn status(&self) -> PhaseStatus {
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
