//! The document `session.json`: what a session did, phase by phase.

use std::path::Path;

use roofgap_base::error::Error;
use roofgap_base::file::read_document;
use roofgap_collect::child::Outcome;
use roofgap_collect::command::{CommandLine, word_text};
use serde::{Deserialize, Serialize};

use super::phases::PhaseName;
use roofgap_base::exit::Exit;

/// Schema of the document.
pub const SCHEMA: &str = "roofgap.session/1";

/// Record of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Id of the run.
    pub run_id: String,
    /// roofgap version.
    pub roofgap_version: String,
    /// Command line of the session.
    pub command_line: Vec<String>,
    /// Command line that repeats the run.
    pub repeat_command: String,
    /// `deep` or `light`.
    pub mode: String,
    /// Workload kind: `embedded`, `hf`, `hydra` or `command`.
    pub workload: String,
    /// Start time (RFC 3339, UTC).
    pub started: String,
    /// End time; absent while the session runs and after a kill.
    pub finished: Option<String>,
    /// State of the session.
    pub state: SessionState,
    /// Exit status; absent while the session runs.
    pub exit_status: Option<u8>,
    /// Requested results that are missing, each with the reason.
    pub missing: Vec<String>,
    /// Phases in order.
    pub phases: Vec<PhaseRecord>,
}

/// State of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Running, or killed before it ended.
    #[serde(rename = "under_way", alias = "running")]
    Running,
    /// Every requested result is present.
    Done,
    /// A requested result is missing.
    Partial,
    /// The program failed, or the session could not continue.
    Failed,
    /// Interrupted by the user.
    Interrupted,
}

impl SessionState {
    /// Maps an exit status to the state.
    pub fn of(exit: Exit) -> Self {
        match exit {
            Exit::Done => SessionState::Done,
            Exit::Partial => SessionState::Partial,
            Exit::Interrupted => SessionState::Interrupted,
            Exit::Bug | Exit::Usage | Exit::ProgramFailed | Exit::GateBroken => SessionState::Failed,
        }
    }
}

/// Status of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum PhaseStatus {
    /// Not started.
    Pending,
    /// Running, or killed while running.
    Running,
    /// Output is present and not empty.
    Ok,
    /// Skipped.
    Skipped {
        /// Reason.
        why: String,
    },
    /// Attempted without usable output.
    Failed {
        /// Reason.
        why: String,
        /// Last lines of the log of the failed command.
        log_tail: Option<String>,
    },
}

impl PhaseStatus {
    /// Creates a skipped status.
    pub fn skipped(why: impl Into<String>) -> Self {
        PhaseStatus::Skipped { why: why.into() }
    }

    /// Creates a failed status.
    pub fn failed(why: impl Into<String>, log_tail: Option<&str>) -> Self {
        let log_tail = log_tail.map(str::trim_end).filter(|tail| !tail.is_empty()).map(str::to_owned);
        PhaseStatus::Failed { why: why.into(), log_tail }
    }

    /// Returns the reason for a skipped or failed phase.
    pub fn why(&self) -> Option<&str> {
        match self {
            PhaseStatus::Skipped { why } | PhaseStatus::Failed { why, .. } => Some(why),
            _ => None,
        }
    }

    /// Returns the status as one word.
    pub fn word(&self) -> &'static str {
        match self {
            PhaseStatus::Pending => "pending",
            PhaseStatus::Running => "running",
            PhaseStatus::Ok => "ok",
            PhaseStatus::Skipped { .. } => "skipped",
            PhaseStatus::Failed { .. } => "failed",
        }
    }
}

/// Record of a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// Phase.
    pub name: PhaseName,
    /// Status.
    #[serde(flatten)]
    pub status: PhaseStatus,
    /// True when the session requests the phase. Only requested phases can be missing.
    #[serde(rename = "asked")]
    pub requested: bool,
    /// Tool, where several could be used: `nsys`, `native`, ...
    pub tool: Option<String>,
    /// Start time (RFC 3339, UTC).
    pub started: Option<String>,
    /// End time.
    pub finished: Option<String>,
    /// Wall time, ns.
    pub wall_ns: Option<u64>,
    /// Commands in order.
    pub commands: Vec<CommandRecord>,
    /// Output files.
    pub outputs: Vec<OutputFile>,
    /// Notes.
    pub notes: Vec<String>,
}

impl PhaseRecord {
    /// Creates the record of a phase that has not started.
    pub fn pending(name: PhaseName) -> Self {
        PhaseRecord {
            name,
            status: PhaseStatus::Pending,
            requested: true,
            tool: None,
            started: None,
            finished: None,
            wall_ns: None,
            commands: Vec::new(),
            outputs: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Record of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// Program and arguments. One that is not UTF-8 is `bytes:` and its bytes in URL encoding.
    pub argv: Vec<String>,
    /// Environment variables set, or removed where null.
    pub env: std::collections::BTreeMap<String, Option<String>>,
    /// Working directory, where it is not the current one.
    pub cwd: Option<String>,
    /// The command in shell syntax.
    pub shell: String,
    /// Exit status, signal, times, resource usage and logs. Absent while the command runs.
    pub outcome: Option<serde_json::Value>,
    /// Error that prevented the command from starting.
    pub error: Option<String>,
}

impl CommandRecord {
    /// Creates the record of a command that starts now.
    pub fn begun(line: &CommandLine) -> Self {
        let text = |value: &std::ffi::OsString| word_text(value);
        CommandRecord {
            argv: line.argv(),
            env: line.env.iter().map(|(name, value)| (name.clone(), value.as_ref().map(text))).collect(),
            cwd: line.cwd.as_ref().map(|folder| folder.display().to_string()),
            shell: line.to_string(),
            outcome: None,
            error: None,
        }
    }

    /// Adds the outcome.
    pub fn ended(&mut self, outcome: &Outcome) {
        // An outcome is made of plain values, so this cannot fail; if it did, absence says so.
        self.outcome = serde_json::to_value(outcome).ok();
    }
}

/// An output file of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Path below the run directory.
    pub path: String,
    /// Size, bytes.
    pub bytes: u64,
}

impl OutputFile {
    /// Describes the file at `path`; `None` where it is missing or empty.
    pub fn of(run_dir: &Path, path: &Path) -> Option<Self> {
        let facts = std::fs::metadata(path).ok().filter(|facts| facts.is_file() && facts.len() > 0)?;
        let below = path.strip_prefix(run_dir).unwrap_or(path);
        Some(OutputFile { path: below.display().to_string(), bytes: facts.len() })
    }
}

impl SessionRecord {
    /// Returns the record of a phase.
    pub fn phase(&self, name: PhaseName) -> Option<&PhaseRecord> {
        self.phases.iter().find(|phase| phase.name == name)
    }

    /// Reads the record of a run.
    pub fn read(run_dir: &Path) -> Result<Self, Error> {
        let path = run_dir.join("session.json");
        let bytes = read_document(&path).map_err(|source| {
            Error::new(format!("cannot read {}: {source}; not a run directory?", path.display()))
        })?;
        serde_json::from_slice(&bytes).map_err(|source| Error::io("parse", &path)(source.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_stands_beside_the_name_of_its_phase() {
        let mut phase = PhaseRecord::pending(PhaseName::Counters);
        phase.status = PhaseStatus::failed("no permission", Some("==ERROR== ERR_NVGPUCTRPERM\n"));
        let json = serde_json::to_value(&phase).unwrap();
        assert_eq!(json["name"], "counters");
        assert_eq!(json["status"], "failed");
        assert_eq!(json["why"], "no permission");
        assert_eq!(json["log_tail"], "==ERROR== ERR_NVGPUCTRPERM");
        assert_eq!(serde_json::from_value::<PhaseRecord>(json).unwrap(), phase);
    }

    #[test]
    fn an_empty_file_is_no_output() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        assert_eq!(OutputFile::of(folder.path(), &path), None);
        std::fs::write(&path, "").unwrap();
        assert_eq!(OutputFile::of(folder.path(), &path), None);
        std::fs::write(&path, "1").unwrap();
        assert_eq!(OutputFile::of(folder.path(), &path), Some(OutputFile { path: "x".to_owned(), bytes: 1 }));
    }
}
