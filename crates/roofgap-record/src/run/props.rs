//! Input, events and result of a session, and the result as JSON.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_analyze::Analysis;
use roofgap_collect::command::CommandLine;
use roofgap_collect::tool::ToolError;
use serde::Serialize;

use super::tools::NativeLibrary;
use roofgap_base::exit::Exit;
use roofgap_runs::config::Composed;
use roofgap_runs::run_dir::layout::has_content;
use roofgap_runs::run_dir::{PhaseName, PhaseStatus, SessionRecord, SessionState};

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
    /// Native collector, or the reason why there is none.
    pub native: Result<NativeLibrary, ToolError>,
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
    PhaseBegins {
        /// Phase.
        phase: PhaseName,
        /// Time that it can be expected to take.
        expected: Option<String>,
    },
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

/// The run of several nodes, as a session that ended left it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SharedRunOutcome {
    /// Run directory.
    pub path: PathBuf,
    /// Number of sessions.
    pub nodes: usize,
    /// Sessions that have not ended, which leave the reports to the last of them.
    pub under_way: Vec<String>,
    /// Problems of the run.
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
    /// Analysis of what was recorded.
    pub analysis: Option<Analysis>,
    /// Run of several nodes that the session belongs to.
    pub shared_run: Option<SharedRunOutcome>,
}

/// Schema of the answer.
const ANSWER_SCHEMA: &str = "roofgap.profile/1";

/// Names of the files of an answer, and their paths in the run directory.
const FILES: [(&str, &str); 10] = [
    ("session", "session.json"),
    ("environment", "env.json"),
    ("config", "config.yaml"),
    ("inputs", "inputs.yaml"),
    ("analysis", "metrics.json"),
    ("summary", "stakeholder_summary.md"),
    ("report", "report.md"),
    ("page", "report.html"),
    ("kernels", "kernels.md"),
    ("operators", "operators.md"),
];

/// The result of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfileAnswer {
    /// Schema of the answer.
    pub schema: &'static str,
    /// Id of the run.
    pub run_id: String,
    /// Run directory.
    pub path: PathBuf,
    /// State of the session: `done`, `partial`, `failed` or `interrupted`.
    pub state: SessionState,
    /// Exit status.
    pub exit_status: u8,
    /// Requested results that are missing, each with the reason.
    pub missing: Vec<String>,
    /// Files that were written, by name.
    pub files: BTreeMap<&'static str, PathBuf>,
    /// Run of several nodes that the session belongs to.
    #[serde(rename = "job", skip_serializing_if = "Option::is_none")]
    pub shared_run: Option<SharedRunOutcome>,
}

impl ProfileAnswer {
    /// Builds the answer of a session.
    pub fn of(outcome: &Outcome) -> Self {
        let files = FILES
            .into_iter()
            .map(|(name, file)| (name, outcome.run_dir.join(file)))
            .filter(|(_, path)| has_content(path));
        Self {
            schema: ANSWER_SCHEMA,
            run_id: outcome.record.run_id.clone(),
            path: outcome.run_dir.clone(),
            state: outcome.record.state,
            exit_status: outcome.exit.code(),
            missing: outcome.record.missing.clone(),
            files: files.collect(),
            shared_run: outcome.shared_run.clone(),
        }
    }
}
