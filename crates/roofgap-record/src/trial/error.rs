//! Errors that prevent a trial.

use std::path::PathBuf;

use crate::run::ProgramError;
use roofgap_base::error::Error;
use roofgap_runs::config::ConfigError;
use roofgap_runs::open::LoadError;
use roofgap_runs::run_dir::LocateError;

/// Error that prevents a trial, or its record.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The run is not readable.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The runs cannot be listed.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// The configuration of the run is not usable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The program of the run cannot run here.
    #[error(
        "the workload of the run cannot run: {0}; relative paths of its config.yaml count from the current folder"
    )]
    Program(#[from] ProgramError),
    /// The run has no finding of this id.
    #[error("the run has no finding {finding:?}; {}", known(findings))]
    NoFinding { finding: String, findings: Vec<String> },
    /// A finding has no change to try.
    #[error(
        "no change of this workload is known that carries out the action of {finding:?}; {}",
        known(findings)
    )]
    NoKnob { finding: String, findings: Vec<String> },
    /// No finding has a change to try.
    #[error(
        "no finding of the run has a change of this workload to try; --env NAME=VALUE tries an environment variable"
    )]
    Nothing,
    /// The run recorded a program that it did not start.
    #[error("the run does not say how its program was started, so it cannot be run again")]
    NoProgram,
    /// The run has several sessions.
    #[error("the program of the run needs several sessions, one on each node, and `try` starts one")]
    SeveralNodes,
    /// The run is still recorded.
    #[error("{} is in progress; try its findings when it has ended", .0.display())]
    InProgress(PathBuf),
    /// Another trial of the run is in progress.
    #[error("another trial of {} is in progress", .0.display())]
    Busy(PathBuf),
    /// The record of earlier trials is not readable.
    #[error("{0}; rename it to start a new record")]
    Trials(#[from] Error),
    /// A file of the trial cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

impl From<TrialError> for Error {
    fn from(error: TrialError) -> Self {
        Error::of(error)
    }
}

/// Names the findings that have a change to try.
fn known(findings: &[String]) -> String {
    if findings.is_empty() {
        "none of its findings has a change to try".to_owned()
    } else {
        format!("findings with a change to try: {}", findings.join(", "))
    }
}
