//! Input, events and result of a session.

use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_collect::command::CommandLine;
use serde::Serialize;

use super::native::{NativeLibrary, NativeUnavailable};
use roofgap_base::exit::Exit;
use roofgap_runs::config::Composed;
use roofgap_runs::run_dir::{PhaseName, PhaseStatus, SessionRecord};

/// Input of a session.
#[derive(Debug, Clone)]
pub struct ProfileProps {
    /// Configuration.
    pub composed: Composed,
    /// Command line as typed, program name first.
    pub command_line: Vec<String>,
    /// Path of this binary, which runs the embedded model.
    pub executable: PathBuf,
    /// Version of this binary.
    pub version: String,
    /// Folders of the `PATH`.
    pub search_path: Vec<PathBuf>,
    /// Native collector.
    pub native: Result<NativeLibrary, NativeUnavailable>,
}

/// Progress of a session.
#[derive(Debug)]
pub enum Event<'a> {
    /// The run directory was created.
    Started {
        /// Id of the run.
        run_id: &'a str,
        /// Run directory.
        path: &'a Path,
    },
    /// A phase starts.
    PhaseBegins(PhaseName),
    /// A command of a phase starts.
    CommandBegins {
        /// Phase.
        phase: PhaseName,
        /// Command.
        line: &'a CommandLine,
    },
    /// A command is running; sent several times a second.
    Tick {
        /// Phase.
        phase: PhaseName,
        /// Time since the command started.
        elapsed: Duration,
        /// True once the command was told to stop.
        stopping: bool,
    },
    /// A warning for the user.
    Warning(&'a str),
    /// The program failed under a profiler that still wrote its output.
    ProgramFailed {
        /// Phase.
        phase: PhaseName,
        /// Reason, with the status or signal.
        why: &'a str,
        /// Last lines of the log.
        log_tail: &'a str,
    },
    /// A phase ended.
    PhaseEnds {
        /// Phase.
        phase: PhaseName,
        /// Status.
        status: &'a PhaseStatus,
    },
}

/// The run of a job, as a session that ended left it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct JobOutcome {
    /// Run of the job.
    pub path: PathBuf,
    /// Sessions of the job.
    pub nodes: usize,
    /// Sessions that have not ended, which leave the reports of the job to the last of them.
    pub under_way: Vec<String>,
    /// Problems of the run of the job.
    pub problems: Vec<String>,
}

/// Result of a session.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Run directory.
    pub run_dir: PathBuf,
    /// Exit status.
    pub exit: Exit,
    /// Record, as on disk.
    pub record: SessionRecord,
    /// Run of the job that the session belongs to.
    pub job: Option<JobOutcome>,
}
