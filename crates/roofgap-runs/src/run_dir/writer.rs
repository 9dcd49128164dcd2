//! Keeps `session.json` on disk while a session runs.

use std::time::{Duration, Instant};

use crate::run_dir::folder::RunDir;
use roofgap_base::clock;
use roofgap_collect::child::{ChildError, Outcome};
use roofgap_collect::command::CommandLine;

use super::phases::PhaseName;
use super::record::{CommandRecord, OutputFile, PhaseRecord, PhaseStatus, SessionRecord, SessionState};
use roofgap_base::exit::Exit;

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
