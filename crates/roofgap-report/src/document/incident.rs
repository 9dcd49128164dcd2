//! The moment that a recording was kept for, and the steps that took longer than their work explains.

use super::table::Table;
use super::{Block, Document, Item, Section, maybe};
use crate::render::screen::Screen;
use crate::render::text;
use roofgap_analyze::{Incident, IncidentProcess, Spike};
use roofgap_base::numbers::{counted, size, time};

/// Explains the table.
const MEANING: &str = "Steps that took more than twice the time that their tokens or kernels explain. A cause has at least half of the \
     time beyond that; what usual steps have of the same does not count.";

/// Most functions of a stack.
const DEEPEST: usize = 12;

impl Document<'_> {
    /// Describes the moment that the recording was kept for.
    pub(super) fn incident(&self) -> Section {
        Section::new("incident", "Incident").with(self.analysis.incident.iter().flat_map(blocks))
    }

    /// Tabulates the slow steps with their causes.
    pub(super) fn spikes(&self) -> Section {
        let stages = self.analysis.stages.iter();
        let rows: Vec<(&str, &Spike)> =
            stages.flat_map(|stage| stage.spikes.iter().map(|spike| (&stage.name[..], spike))).collect();
        let table = Table::of(&rows)
            .text("stage", |row| row.0)
            .number("step", |row| Some(row.1.step.to_string()))
            .number("at", |row| row.1.start_ns.map(time))
            .number("time", |row| Some(time(row.1.time_ns)))
            .number("expected", |row| Some(time(row.1.expected_ns)))
            .text("cause", |row| row.1.cause.as_str())
            .number("seen for", |row| (row.1.evidence_ns > 0).then(|| time(row.1.evidence_ns)))
            .text("in", |row| row.1.what.as_deref().or(row.1.missing.as_deref()).unwrap_or_default())
            .build();
        self.tabled("spikes", "Slow steps", MEANING, table, self.most(32)).inner()
    }
}

/// Renders an incident for a terminal.
pub fn incident_text(incident: &Incident, screen: Screen) -> String {
    text::blocks(&blocks(incident), screen)
}

fn blocks(incident: &Incident) -> Vec<Block> {
    let mut lines = vec![
        Block::Line(format!("{}: {} ({})", incident.at, incident.what, incident.trigger)),
        Block::Line(format!("Cause: {}.", incident.spoken_cause())),
    ];
    lines.push(Block::Note(format!("Kept within {} ms of the trigger.", incident.dump_ms)));
    lines.push(Block::List(incident.processes.iter().map(process).collect()));
    lines.extend(Block::list(incident.notes.iter().cloned()));
    lines
}

fn process(process: &IncidentProcess) -> Item {
    let threads = process.threads.iter().flat_map(|thread| {
        let waits = maybe(thread.waits_in.as_deref(), |place| format!(" in {place}"));
        let first = format!("thread {} {}: {}{waits}", thread.tid, thread.name, thread.state);
        let stack = thread.stack.iter().take(DEEPEST).map(|function| format!("  {function}"));
        [first].into_iter().chain(stack).collect::<Vec<String>>()
    });
    let memory = maybe(process.resident_bytes, |bytes| format!("{} of memory, ", size(bytes)));
    let count = counted(process.threads.len() as u64, "thread");
    Item {
        text: format!("process {} ({}): {memory}{count}", process.pid, process.name),
        lines: threads.collect(),
        ..Item::default()
    }
}
