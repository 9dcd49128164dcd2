//! Adds up the expected results, event by event, from the stage, step and note of each launch.

use crate::expected::{Expected, ExpectedKernel, ExpectedNote, ExpectedStage};
use crate::names;
use std::collections::BTreeMap;

/// A counted stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StageKind {
    Prefill,
    Decode,
}

/// Position of a launch in the program.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LaunchContext {
    /// Stage; `None` in warm-ups.
    pub(crate) stage: Option<StageKind>,
    /// True inside a step of the stage.
    pub(crate) step: bool,
    /// Note within the stage.
    pub(crate) note: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Kernel { name: u16 },
    Copy,
    Set,
    Graph,
}

#[derive(Debug, Default)]
struct StageTally {
    sums: ExpectedStage,
    /// First start and last end of the open instance, ns, by process.
    open: BTreeMap<u16, (i64, i64)>,
    /// Busy intervals by device.
    busy: BTreeMap<u16, Vec<(i64, i64)>>,
    steps: Vec<(i64, i64)>,
    notes: Vec<ExpectedNote>,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    expected: Expected,
    stages: BTreeMap<StageKind, StageTally>,
    busy: BTreeMap<u16, Vec<(i64, i64)>>,
    kernels: BTreeMap<(u16, u16), (u64, i64)>,
}

impl Tally {
    /// Adds an operation.
    pub(crate) fn operation(
        &mut self,
        context: LaunchContext,
        process: u16,
        device: u16,
        work: Work,
        start: i64,
        end: i64,
    ) {
        let length = end - start;
        self.busy.entry(device).or_default().push((start, end));
        match work {
            Work::Kernel { name } => {
                let sum = self.kernels.entry((name, device)).or_default();
                *sum = (sum.0 + 1, sum.1 + length);
                self.expected.totals.kernel_count += 1;
                self.expected.totals.kernel_ns += length;
            }
            Work::Copy => self.expected.totals.memcpy_ns += length,
            Work::Set => self.expected.totals.memset_ns += length,
            Work::Graph => {}
        }
        let Some(stage) = context.stage else { return };
        let stage = self.stages.entry(stage).or_default();
        stage.sums.gpu_op_count += 1;
        stage.busy.entry(device).or_default().push((start, end));
        let span = stage.open.entry(process).or_insert((start, end));
        *span = (span.0.min(start), span.1.max(end));
        if !matches!(work, Work::Kernel { .. }) {
            return;
        }
        stage.sums.kernel_count += 1;
        stage.sums.kernel_ns += length;
        if let Some(note) = context.note {
            let note = note_of(&mut stage.notes, note);
            note.kernel_count += 1;
            note.kernel_ns += length;
        }
    }

    /// Adds a call that launched operations.
    pub(crate) fn launch(&mut self, context: LaunchContext) {
        if let Some(stage) = context.stage {
            let stage = self.stages.entry(stage).or_default();
            stage.sums.launch_count += 1;
            stage.sums.step_launches += u64::from(context.step);
        }
    }

    /// Adds an operation without a launch.
    pub(crate) fn orphan(&mut self) {
        self.expected.totals.unattributed_count += 1;
    }

    /// Ends an instance of a stage.
    pub(crate) fn close_stage(&mut self, stage: StageKind, process: u16, start: i64, end: i64) {
        let stage = self.stages.entry(stage).or_default();
        stage.sums.instances += 1;
        stage.sums.wall_ns += end - start;
        if let Some((first, last)) = stage.open.remove(&process) {
            stage.sums.projected_ns += last - first;
        }
    }

    /// Ends a step.
    pub(crate) fn close_step(&mut self, stage: StageKind, start: i64, end: i64) {
        self.stages.entry(stage).or_default().steps.push((start, end));
    }

    /// Ends a note.
    pub(crate) fn close_note(&mut self, stage: StageKind, name: &'static str, start: i64, end: i64) {
        let note = note_of(&mut self.stages.entry(stage).or_default().notes, name);
        note.instances += 1;
        note.wall_ns += end - start;
    }

    pub(crate) fn finish(self) -> Expected {
        let mut expected = self.expected;
        expected.totals.busy_ns = self.busy.into_values().map(covered).sum();
        for (kind, tally) in self.stages {
            let mut steps = tally.steps;
            steps.sort_unstable();
            let mut notes = tally.notes;
            notes.sort_by(|a, b| a.name.cmp(&b.name));
            expected.stages.push(ExpectedStage {
                name: match kind {
                    StageKind::Prefill => "prefill".into(),
                    StageKind::Decode => "decode".into(),
                },
                busy_ns: tally.busy.into_values().map(covered).sum(),
                steps_ns: steps.iter().map(|(start, end)| end - start).collect(),
                notes,
                ..tally.sums
            });
        }
        expected.kernels = self
            .kernels
            .into_iter()
            .map(|((name, device), (calls, total_ns))| ExpectedKernel {
                name: names::kernel(name).to_owned(),
                device: u32::from(device),
                calls,
                total_ns,
            })
            .collect();
        expected
            .kernels
            .sort_by(|a, b| (b.total_ns, &a.name, a.device).cmp(&(a.total_ns, &b.name, b.device)));
        expected
    }
}

fn note_of<'a>(notes: &'a mut Vec<ExpectedNote>, name: &str) -> &'a mut ExpectedNote {
    let at = notes.iter().position(|n| n.name == name).unwrap_or_else(|| {
        notes.push(ExpectedNote { name: name.to_owned(), ..ExpectedNote::default() });
        notes.len() - 1
    });
    &mut notes[at]
}

/// Computes the time covered by intervals.
fn covered(mut intervals: Vec<(i64, i64)>) -> i64 {
    intervals.sort_unstable();
    let mut sum = 0;
    let mut until = i64::MIN;
    for (start, end) in intervals {
        if end > until {
            sum += end - start.max(until);
            until = end;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::covered;

    #[test]
    fn what_overlaps_is_counted_once() {
        assert_eq!(covered(vec![]), 0);
        assert_eq!(covered(vec![(5, 9), (0, 3), (2, 6), (20, 21), (6, 7)]), 10);
    }
}
