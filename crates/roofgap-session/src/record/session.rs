//! The document `session.json`.

use std::path::Path;

use roofgap_collect::child::Outcome;
use roofgap_collect::command::CommandLine;
use serde::{Deserialize, Serialize};

use crate::exit::Exit;

/// The schema of the document.
pub const SCHEMA: &str = "roofgap.session/1";

/// A whole session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Name of the run.
    pub run_id: String,
    /// Version of roofgap that made it.
    pub roofgap_version: String,
    /// The command line that asked for it.
    pub command_line: Vec<String>,
    /// What to type to have it again.
    pub repeat_command: String,
    /// `deep` or `light`.
    pub mode: String,
    /// What was profiled: `embedded`, `hf`, `hydra` or `command`.
    pub workload: String,
    /// When it began (RFC 3339, UTC).
    pub started: String,
    /// When it ended; absent while it runs and after a kill.
    pub finished: Option<String>,
    /// Where it stands.
    pub state: SessionState,
    /// Its exit status, once it has one.
    pub exit_status: Option<u8>,
    /// What was asked for and could not be had.
    pub missing: Vec<String>,
    /// The phases in order.
    pub phases: Vec<PhaseRecord>,
}

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Under way, or killed before it could say anything else.
    Running,
    /// All that was asked for is there.
    Done,
    /// Something that was asked for is missing.
    Partial,
    /// The program failed, or the session could not go on.
    Failed,
    /// Ended by the user.
    Interrupted,
}

impl SessionState {
    /// The state that goes with an exit status.
    pub fn of(exit: Exit) -> Self {
        match exit {
            Exit::Done => SessionState::Done,
            Exit::Partial => SessionState::Partial,
            Exit::Interrupted => SessionState::Interrupted,
            Exit::Bug | Exit::Usage | Exit::ProgramFailed | Exit::GateBroken => SessionState::Failed,
        }
    }
}

/// The phases, in the order they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseName {
    /// Tools, GPU, permission, room, program.
    Preflight,
    /// The program unwatched.
    Baseline,
    /// What ran when.
    Timeline,
    /// Operators of the framework.
    Operators,
    /// The plan for the counters.
    Select,
    /// What limits the kernels of the plan.
    Counters,
    /// All of it joined.
    Analyze,
    /// The files for people.
    Report,
}

impl PhaseName {
    /// All of them, in order.
    pub const ALL: [PhaseName; 8] = [
        PhaseName::Preflight,
        PhaseName::Baseline,
        PhaseName::Timeline,
        PhaseName::Operators,
        PhaseName::Select,
        PhaseName::Counters,
        PhaseName::Analyze,
        PhaseName::Report,
    ];

    /// Its name as in `session.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            PhaseName::Preflight => "preflight",
            PhaseName::Baseline => "baseline",
            PhaseName::Timeline => "timeline",
            PhaseName::Operators => "operators",
            PhaseName::Select => "select",
            PhaseName::Counters => "counters",
            PhaseName::Analyze => "analyze",
            PhaseName::Report => "report",
        }
    }
}

impl std::fmt::Display for PhaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What came of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum PhaseStatus {
    /// Not reached.
    Pending,
    /// Under way, or cut short by a kill.
    Running,
    /// Its output is there and holds something.
    Ok,
    /// It was left out.
    Skipped {
        /// Why.
        why: String,
    },
    /// It was tried and gave nothing usable.
    Failed {
        /// Why.
        why: String,
        /// The end of the log of what failed.
        log_tail: Option<String>,
    },
}

impl PhaseStatus {
    /// Left out, and why.
    pub fn skipped(why: impl Into<String>) -> Self {
        PhaseStatus::Skipped { why: why.into() }
    }

    /// Failed, and why.
    pub fn failed(why: impl Into<String>, log_tail: Option<&str>) -> Self {
        let log_tail = log_tail
            .map(str::trim_end)
            .filter(|tail| !tail.is_empty())
            .map(str::to_owned);
        PhaseStatus::Failed {
            why: why.into(),
            log_tail,
        }
    }

    /// Why it is not ok, where there is a reason.
    pub fn why(&self) -> Option<&str> {
        match self {
            PhaseStatus::Skipped { why } | PhaseStatus::Failed { why, .. } => Some(why),
            _ => None,
        }
    }

    /// The word for it.
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

/// One phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// Which.
    pub name: PhaseName,
    /// What came of it.
    #[serde(flatten)]
    pub status: PhaseStatus,
    /// Whether it was asked for: what was not asked for is never missing.
    pub asked: bool,
    /// What did the work, where there was a choice: `nsys`, `native`, ...
    pub tool: Option<String>,
    /// When it began (RFC 3339, UTC).
    pub started: Option<String>,
    /// When it ended.
    pub finished: Option<String>,
    /// How long it took.
    pub wall_ns: Option<u64>,
    /// What was run, in order.
    pub commands: Vec<CommandRecord>,
    /// What it left, by path below the run directory.
    pub outputs: Vec<OutputFile>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

impl PhaseRecord {
    /// A phase that has not been reached.
    pub fn pending(name: PhaseName) -> Self {
        PhaseRecord {
            name,
            status: PhaseStatus::Pending,
            asked: true,
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

/// A command that was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables set, or removed where null.
    pub env: std::collections::BTreeMap<String, Option<String>>,
    /// Its folder, where it is not the current one.
    pub cwd: Option<String>,
    /// The same for a shell.
    pub shell: String,
    /// What came of it: exit status, signal, times, usage, logs. Absent while it runs.
    pub outcome: Option<serde_json::Value>,
    /// Why it could not be run.
    pub error: Option<String>,
}

impl CommandRecord {
    /// A command about to run.
    pub fn begun(line: &CommandLine) -> Self {
        let text = |value: &std::ffi::OsString| value.to_string_lossy().into_owned();
        CommandRecord {
            argv: line.argv(),
            env: line
                .env
                .iter()
                .map(|(name, value)| (name.clone(), value.as_ref().map(text)))
                .collect(),
            cwd: line.cwd.as_ref().map(|folder| folder.display().to_string()),
            shell: line.to_string(),
            outcome: None,
            error: None,
        }
    }

    /// Note what came of it.
    pub fn ended(&mut self, outcome: &Outcome) {
        // An outcome is made of plain values, so this cannot fail; if it did, absence says so.
        self.outcome = serde_json::to_value(outcome).ok();
    }
}

/// A file that a phase left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Path below the run directory.
    pub path: String,
    /// Its size.
    pub bytes: u64,
}

impl OutputFile {
    /// The file at `path`, if it is there and not empty.
    pub fn of(run_dir: &Path, path: &Path) -> Option<Self> {
        let facts = std::fs::metadata(path)
            .ok()
            .filter(|facts| facts.is_file() && facts.len() > 0)?;
        let below = path.strip_prefix(run_dir).unwrap_or(path);
        Some(OutputFile {
            path: below.display().to_string(),
            bytes: facts.len(),
        })
    }
}

impl SessionRecord {
    /// A phase.
    pub fn phase(&self, name: PhaseName) -> Option<&PhaseRecord> {
        self.phases.iter().find(|phase| phase.name == name)
    }

    /// Read the record of a run.
    pub fn read(run_dir: &Path) -> Result<Self, RecordError> {
        let path = run_dir.join("session.json");
        let bytes = std::fs::read(&path).map_err(|source| RecordError::Read {
            path: path.clone(),
            source,
        })?;
        serde_json::from_slice(&bytes).map_err(|source| RecordError::Malformed { path, source })
    }
}

/// Why the record of a run cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It cannot be read.
    #[error("cannot read {}: {source}; is this the directory of a run?", path.display())]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not what is expected.
    #[error("cannot understand {}: {source}", path.display())]
    Malformed {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
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
        assert_eq!(
            OutputFile::of(folder.path(), &path),
            Some(OutputFile {
                path: "x".to_owned(),
                bytes: 1
            })
        );
    }
}
