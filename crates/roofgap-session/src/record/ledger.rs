//! Keeping `session.json` on disk while a session runs.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use roofgap_collect::child::Outcome;
use roofgap_collect::command::CommandLine;
use roofgap_collect::rundir::RunDir;

use super::session::{
    CommandRecord, OutputFile, PhaseName, PhaseRecord, PhaseStatus, SessionRecord, SessionState,
};
use crate::exit::Exit;

/// The record of a session under way. Every change is on disk before the next step begins, so that a kill at any moment
/// leaves a document that says what was done and what was under way.
#[derive(Debug)]
pub struct Ledger<'a> {
    record: SessionRecord,
    run_dir: &'a RunDir,
    phase_began: Option<Instant>,
    write_error: Option<String>,
}

impl<'a> Ledger<'a> {
    /// Begin a record, and write it.
    pub fn begin(run_dir: &'a RunDir, mut record: SessionRecord) -> Self {
        record.phases = PhaseName::ALL.map(PhaseRecord::pending).to_vec();
        let mut ledger = Ledger {
            record,
            run_dir,
            phase_began: None,
            write_error: None,
        };
        ledger.write();
        ledger
    }

    /// The record as it stands.
    pub fn record(&self) -> &SessionRecord {
        &self.record
    }

    /// The first failure to write the record: a full disk, for one. The session goes on; its result is partial.
    pub fn write_error(&self) -> Option<&str> {
        self.write_error.as_deref()
    }

    /// A phase begins.
    pub fn phase_begins(&mut self, name: PhaseName) {
        self.phase_began = Some(Instant::now());
        self.change(name, |phase| {
            phase.status = PhaseStatus::Running;
            phase.started = Some(Timestamp::now().to_string());
        });
        self.write();
    }

    /// A phase ends.
    pub fn phase_ends(&mut self, name: PhaseName, status: PhaseStatus) {
        let wall = self.phase_began.take().map(|began| began.elapsed());
        self.change(name, |phase| {
            phase.status = status;
            if phase.started.is_some() {
                phase.finished = Some(Timestamp::now().to_string());
                phase.wall_ns = wall.map(ns);
            }
        });
        self.write();
    }

    /// Whether a phase was asked for.
    pub fn asked(&mut self, name: PhaseName, asked: bool) {
        self.change(name, |phase| phase.asked = asked);
    }

    /// What did the work of a phase.
    pub fn tool(&mut self, name: PhaseName, tool: &str) {
        self.change(name, |phase| phase.tool = Some(tool.to_owned()));
    }

    /// A remark.
    pub fn note(&mut self, name: PhaseName, note: impl Into<String>) {
        let note = note.into();
        self.change(name, |phase| phase.notes.push(note));
    }

    /// A file that a phase left; false if it is not there or empty.
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

    /// A command begins.
    pub fn command_begins(&mut self, name: PhaseName, line: &CommandLine) {
        self.change(name, |phase| phase.commands.push(CommandRecord::begun(line)));
        self.write();
    }

    /// The last command of a phase ended, or could not be run.
    pub fn command_ends(&mut self, name: PhaseName, outcome: Result<&Outcome, String>) {
        self.change(name, |phase| {
            if let Some(command) = phase.commands.last_mut() {
                match outcome {
                    Ok(outcome) => command.ended(outcome),
                    Err(error) => command.error = Some(error),
                }
            }
        });
        self.write();
    }

    /// The session ends.
    pub fn session_ends(&mut self, exit: Exit, missing: Vec<String>) {
        self.record.missing = missing;
        self.record.state = SessionState::of(exit);
        self.record.exit_status = Some(exit.code());
        self.record.finished = Some(Timestamp::now().to_string());
        self.write();
    }

    /// Give the record away.
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
