//! The failures a user may meet, each with its exit status.

use roofgap_session::load::LoadError;
use std::path::PathBuf;
use thiserror::Error;

/// Exit status of wrong usage, configuration or input.
pub(crate) const USAGE: u8 = 2;
/// Exit status of something done in part.
pub(crate) const PARTIAL: u8 = 3;
/// Exit status of an interrupt.
const INTERRUPTED: u8 = 130;
/// Exit status of a bug.
const BUG: u8 = 1;

/// Why a command failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// An input could not be analysed.
    #[error(transparent)]
    Input(#[from] LoadError),
    /// The configuration could not be composed.
    #[error(transparent)]
    Config(#[from] roofgap_session::config::ConfigError),
    /// A session could not begin.
    #[error(transparent)]
    Session(#[from] roofgap_session::run::SessionError),
    /// A run was not found.
    #[error(transparent)]
    Locate(#[from] roofgap_session::run_dir::LocateError),
    /// Something about runs could not be done.
    #[error(transparent)]
    Runs(#[from] roofgap_session::runs::RunsError),
    /// A gate could not be understood.
    #[error(transparent)]
    Gate(#[from] roofgap_analyze::compare::GateError),
    /// A timeline could not be exported.
    #[error(transparent)]
    Export(#[from] roofgap_report::ExportError),
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// The answer could not be printed.
    #[error("cannot write to standard output: {0}")]
    Print(std::io::Error),
    /// What was asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The embedded model failed.
    #[cfg(feature = "embedded")]
    #[error(transparent)]
    Workload(#[from] roofgap_workload::WorkloadError),
    /// Something that should not happen.
    #[error("this is a bug: {0}")]
    Bug(String),
}

impl Failure {
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Bug(_) | Self::Print(_) => BUG,
            Self::Runs(error) => error.exit().code(),
            Self::Input(LoadError::Interrupted { .. }) => INTERRUPTED,
            _ => USAGE,
        }
    }
}
