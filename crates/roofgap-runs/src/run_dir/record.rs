//! The document `session.json`: what a session did, phase by phase.
//! [`RecordWriter`] keeps it on disk while a session runs; [`read_trial`] reads `try.json` beside it.

use super::Layout;
use super::phases::PhaseName;
use crate::run_dir::folder::{RunDir, read_json};
use roofgap_analyze::{TRY_SCHEMA, Trial};
use roofgap_base::clock;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::read_document;
use roofgap_collect::child::{ChildError, Outcome};
use roofgap_collect::command::{CommandLine, word_text};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

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
            Exit::Done => Self::Done,
            Exit::Partial => Self::Partial,
            Exit::Interrupted => Self::Interrupted,
            Exit::Bug | Exit::Usage | Exit::ProgramFailed | Exit::GateBroken => Self::Failed,
        }
    }
}

/// Status of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum PhaseStatus {
    /// Not started.
    #[default]
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
        Self::Skipped { why: why.into() }
    }

    /// Creates a failed status.
    pub fn failed(why: impl Into<String>, log_tail: Option<&str>) -> Self {
        let log_tail = log_tail.map(str::trim_end).filter(|tail| !tail.is_empty()).map(str::to_owned);
        Self::Failed { why: why.into(), log_tail }
    }

    /// Returns the reason for a skipped or failed phase.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Skipped { why } | Self::Failed { why, .. } => Some(why),
            _ => None,
        }
    }

    /// Returns the status as one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Ok => "ok",
            Self::Skipped { .. } => "skipped",
            Self::Failed { .. } => "failed",
        }
    }
}

/// Record of a phase.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
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
        Self { name, requested: true, ..Self::default() }
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
        Self {
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
        Some(Self { path: below.display().to_string(), bytes: facts.len() })
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

/// Writer of the record of a running session. Each step is on disk before the next one starts, so that a kill leaves a
/// complete document of what was done.
#[derive(Debug)]
pub struct RecordWriter<'a> {
    record: SessionRecord,
    run_dir: &'a RunDir,
    phase_began: Option<Instant>,
    write_error: Option<String>,
}

impl<'a> RecordWriter<'a> {
    /// Writes the first version of the record.
    pub fn begin(run_dir: &'a RunDir, mut record: SessionRecord) -> Self {
        record.phases = PhaseName::ALL.iter().copied().map(PhaseRecord::pending).collect();
        let mut writer = RecordWriter { record, run_dir, phase_began: None, write_error: None };
        writer.write();
        writer
    }

    /// Returns the current record.
    pub fn record(&self) -> &SessionRecord {
        &self.record
    }

    /// Returns the first error from writing the record, such as a full disk. The session continues; its result is partial.
    pub fn write_error(&self) -> Option<&str> {
        self.write_error.as_deref()
    }

    /// Records the start of a phase.
    pub fn phase_begins(&mut self, name: PhaseName) {
        self.phase_began = Some(Instant::now());
        self.change(name, |phase| {
            phase.status = PhaseStatus::Running;
            phase.started = Some(clock::now().to_string());
        });
        self.write();
    }

    /// Records the end of a phase.
    pub fn phase_ends(&mut self, name: PhaseName, status: PhaseStatus) {
        let wall = self.phase_began.take().map(|began| began.elapsed());
        self.change(name, |phase| {
            phase.status = status;
            if phase.started.is_some() {
                phase.finished = Some(clock::now().to_string());
                phase.wall_ns = wall.map(ns);
            }
        });
        self.write();
    }

    /// Records whether the session requests a phase.
    pub fn requested(&mut self, name: PhaseName, requested: bool) {
        self.change(name, |phase| phase.requested = requested);
    }

    /// Records the tool of a phase.
    pub fn tool(&mut self, name: PhaseName, tool: &str) {
        self.change(name, |phase| phase.tool = Some(tool.to_owned()));
    }

    /// Adds a note.
    pub fn note(&mut self, name: PhaseName, note: impl Into<String>) {
        let note = note.into();
        self.change(name, |phase| phase.notes.push(note));
    }

    /// Adds an output file; returns false where it is missing or empty.
    pub fn output(&mut self, name: PhaseName, path: &std::path::Path) -> bool {
        let Some(file) = OutputFile::of(self.run_dir.path(), path) else {
            return false;
        };
        self.change(name, |phase| {
            phase.outputs.retain(|known| known.path != file.path);
            phase.outputs.push(file);
        });
        true
    }

    /// Records the start of a command.
    pub fn command_begins(&mut self, name: PhaseName, line: &CommandLine) {
        self.change(name, |phase| phase.commands.push(CommandRecord::begun(line)));
        self.write();
    }

    /// Records the end of the last command of a phase, or the error that prevented its start.
    pub fn command_ends(&mut self, name: PhaseName, outcome: Result<&Outcome, &ChildError>) {
        self.change(name, |phase| {
            if let Some(command) = phase.commands.last_mut() {
                match outcome {
                    Ok(outcome) => command.ended(outcome),
                    Err(error) => command.error = Some(error.to_string()),
                }
            }
        });
        self.write();
    }

    /// Records the end of the session.
    pub fn session_ends(&mut self, exit: Exit, missing: Vec<String>) {
        self.record.missing = missing;
        self.record.state = SessionState::of(exit);
        self.record.exit_status = Some(exit.code());
        self.record.finished = Some(clock::now().to_string());
        self.write();
    }

    /// Returns the final record.
    pub fn into_record(self) -> SessionRecord {
        self.record
    }

    fn change(&mut self, name: PhaseName, change: impl FnOnce(&mut PhaseRecord)) {
        if let Some(phase) = self.record.phases.iter_mut().find(|phase| phase.name == name) {
            change(phase);
        }
    }

    fn write(&mut self) {
        if let Err(error) = self.run_dir.write_json("session.json", &self.record)
            && self.write_error.is_none()
        {
            self.write_error = Some(error.to_string());
        }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads the trial of a run, `try.json`; `None` where there is none.
///
/// # Errors
/// Fails when the file is not readable or has another schema.
pub fn read_trial(layout: &Layout) -> Result<Option<Trial>, Error> {
    /// The first field, which other schemas have, too.
    #[derive(Deserialize)]
    struct Schema {
        schema: String,
    }
    let path = layout.trial();
    if !path.exists() {
        return Ok(None);
    }
    let Schema { schema } = read_json(&path)?;
    if schema != TRY_SCHEMA {
        let path = path.display();
        return Err(Error::new(format!("{path} has schema {schema:?}, expected {TRY_SCHEMA:?}")));
    }
    read_json(&path).map(Some)
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
