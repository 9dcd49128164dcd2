//! `roofgap try` and `roofgap tune`: apply changes to a workload, measure each in pairs of runs, and keep what helps. A trial estimates
//! the changes of findings; a search races candidates for a goal, and proves what it keeps.
//!
//! - [`mod@plan`]: the changes to try, what trying them costs, and the gain that findings predict;
//! - `sample`: a workload with changes, and one run of it without a profiler;
//! - `judge`: a row from its pairs of runs;
//! - `round`: interleaved runs, the state of a trial, and `try.json` on disk;
//! - [`search`]: the candidates of a search, its races and proofs, and checking its result;
//! - [`mod@run`]: the whole trial: each change alone, then the best together, then the winner under the profilers;
//! - [`text`]: predicted against measured gains of all runs; everything for people.

pub mod plan;
pub mod run;
pub mod search;
pub mod text;

mod judge;
mod round;
mod sample;
#[cfg(test)]
mod tests;

pub use plan::{TrialPlan, plan};
pub use run::run;
pub use search::{SearchProps, verify};
pub use text::{History, collect_history};

use std::path::PathBuf;
use std::time::Duration;

use roofgap_analyze::Trial;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_runs::config::{ConfigProps, compose};
use roofgap_runs::run_dir::{Layout, RunRef};

use crate::run::{Event, ProfileProps};

/// Input of a trial.
#[derive(Debug, Clone)]
pub struct TrialProps {
    /// Run whose findings are tried.
    pub run: RunRef,
    /// Session of the unchanged workload: the configuration of the run, and this program.
    pub session: ProfileProps,
    /// Ids of findings, or of single changes; empty for the first finding that has a change to try.
    pub findings: Vec<String>,
    /// Try every finding.
    pub all: bool,
    /// Environment variables of the program to try, each a change of its own.
    pub env: Vec<(String, String)>,
    /// Time budget.
    pub budget: Duration,
    /// Fewest pairs of runs that decide.
    pub repeats: u32,
    /// Keep changes that may change the output.
    pub accept_changed_output: bool,
    /// Search for a goal instead of a trial of findings.
    pub search: Option<SearchProps>,
}

impl TrialProps {
    /// Makes the session of the workload with changes.
    fn session_with(&self, overrides: Vec<String>) -> Result<ProfileProps, Error> {
        let config = Some(Layout::of(&self.run.path).config());
        let composed = compose(&ConfigProps { config, overrides, ..ConfigProps::default() })?;
        Ok(ProfileProps { composed, ..self.session.clone() })
    }
}

/// Progress of a trial.
#[derive(Debug)]
pub enum TrialEvent<'a> {
    /// What is in progress, until the next event; sent several times a second.
    Status(&'a str),
    /// A run or a changed workload has ended.
    Line(&'a str),
    /// The winner runs under the profilers.
    Watched(Event<'a>),
}

/// Result of a trial.
#[derive(Debug, Clone)]
pub struct TrialOutcome {
    /// The trial, as on disk.
    pub trial: Trial,
    /// `try.json` or `tune.json`.
    pub path: PathBuf,
    /// Exit status.
    pub exit: Exit,
}
