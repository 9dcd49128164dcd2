//! Input, events and outcome of a trial.

use std::path::PathBuf;
use std::time::Duration;

use roofgap_analyze::{Trial, TrialRow};

use crate::run::{Event, ProfileProps};
use roofgap_base::exit::Exit;
use roofgap_runs::run_dir::RunRef;

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
}

/// Progress of a trial.
#[derive(Debug)]
pub enum TrialEvent<'a> {
    /// A run of a workload starts.
    RunBegins {
        /// Ids of its knobs, or `base`.
        label: &'a str,
        /// Number of the pair, from 1.
        pair: usize,
    },
    /// A run is in progress; sent several times a second.
    Tick {
        /// Ids of its knobs, or `base`.
        label: &'a str,
        /// Number of the pair, from 1.
        pair: usize,
        /// Time since the program started.
        elapsed: Duration,
    },
    /// A run ended well.
    RunEnds {
        /// Ids of its knobs, or `base`.
        label: &'a str,
        /// Number of the pair, from 1.
        pair: usize,
        /// Time that decides, ns, with its name.
        time: (&'a str, i64),
    },
    /// A run failed.
    RunFails {
        /// Ids of its knobs, or `base`.
        label: &'a str,
        /// Reason.
        why: &'a str,
    },
    /// A changed workload has its verdict.
    RowEnds(&'a TrialRow),
    /// The winner runs under the profilers.
    Watched(Event<'a>),
}

/// Result of a trial.
#[derive(Debug, Clone)]
pub struct TrialOutcome {
    /// The trial, as on disk.
    pub trial: Trial,
    /// `try.json`.
    pub path: PathBuf,
    /// Exit status.
    pub exit: Exit,
}
