//! The times in which a device ran nothing, each with its cause.

use super::NO_CALL;
use super::idle::{NearWaits, Waits};
use crate::result::{Idle, LaunchAfter};
use crate::stages::StageIndex;
use roofgap_trace::{DeviceId, Ns, ProcessId, Trace};

/// The cause of idle time, as in [`Idle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdleCause {
    /// The CPU had not launched the next operation yet.
    Launch,
    /// The launching thread was waiting for the device.
    Sync,
    /// The launching thread was in a copy call.
    Copy,
    /// Launched and not started, or without a known launch.
    Other,
}

impl IdleCause {
    /// Every cause, in the order of the reports.
    pub const ALL: [Self; 4] = [Self::Launch, Self::Sync, Self::Copy, Self::Other];
}

/// A part of a gap of a device with one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdlePart {
    /// Device that ran nothing.
    pub device: DeviceId,
    /// Process that launched the operation after the gap.
    pub process: ProcessId,
    /// Start, ns on the clock of the trace.
    pub start: Ns,
    /// End, ns on the clock of the trace.
    pub end: Ns,
    /// Cause.
    pub cause: IdleCause,
}

/// Lists the time in which each device ran nothing between its first and its last operation, in the order of the operations that
/// ended it. The launch of that operation decides on the cause, by the rule of the stages' idle time. The parts of a gap with
/// several causes follow each other: waits, then copies, then the launch. Time that was not recorded is left out.
pub fn idle_parts(trace: &Trace, index: &StageIndex) -> Vec<IdlePart> {
    let ops = &trace.ops;
    let waits = Waits::of(trace);
    let mut devices: Vec<(Option<Ns>, NearWaits)> = vec![Default::default(); trace.devices.len().max(1)];
    let mut parts = Vec::new();
    for op in 0..ops.len() {
        let (start, end, device, process) = (ops.start[op], ops.end[op], ops.device[op], ops.process[op]);
        let Some((covered, near)) = devices.get_mut(device.index()) else {
            continue;
        };
        let until = covered.unwrap_or(start);
        *covered = Some(until.max(end));
        if start <= until || !recorded(trace, process, until, start) {
            continue;
        }
        let call = index.launches().call_of_op.get(op).copied();
        let (mut idle, mut after) = (Idle::default(), LaunchAfter::default());
        let sums = (&mut idle, &mut after);
        // No other work ran meanwhile: all operations of the device are looked at.
        waits.split(trace, (until, start), 0, call.unwrap_or(NO_CALL), near, sums);
        let mut from = until;
        for (cause, ns) in [
            (IdleCause::Sync, idle.sync_ns),
            (IdleCause::Copy, idle.copy_ns),
            (IdleCause::Launch, idle.launch_ns),
            (IdleCause::Other, idle.other_ns),
        ] {
            if ns > 0 {
                parts.push(IdlePart { device, process, start: from, end: from + ns, cause });
                from += ns;
            }
        }
    }
    parts
}

/// Tells whether all work that a process launched in a span of time is in the trace.
fn recorded(trace: &Trace, process: ProcessId, start: Ns, end: Ns) -> bool {
    let windows = trace.recorded.iter().find(|windows| windows.process == process);
    windows.is_none_or(|windows| windows.window_of(start, end).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, analyze};
    use roofgap_trace::RecordedWindows;

    fn fixture() -> Trace {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/h200/llama4.sqlite.gz");
        roofgap_trace::read(&[path.into()]).unwrap().trace
    }

    #[test]
    fn parts_inside_a_stage_add_up_to_its_idle_time() {
        let trace = fixture();
        let analyzed = analyze(&trace, &Options::default());
        let parts = idle_parts(&trace, &analyzed.stages);
        for (at, stage) in analyzed.analysis.stages.iter().enumerate() {
            let own = (0..trace.ops.len()).filter(|op| analyzed.stages.holds(at, *op));
            let (first, last) = own.fold((Ns::MAX, Ns::MIN), |(first, last), op| {
                (first.min(trace.ops.start[op]), last.max(trace.ops.end[op]))
            });
            let sum = |cause| {
                let inside =
                    |part: &&IdlePart| part.start >= first && part.end <= last && part.cause == cause;
                let parts = parts.iter().filter(inside);
                parts.map(|part| part.end - part.start).sum::<Ns>()
            };
            let idle = stage.idle.unwrap();
            assert!(idle.launch_ns > 0);
            assert_eq!(
                IdleCause::ALL.map(sum),
                [idle.launch_ns, idle.sync_ns, idle.copy_ns, idle.other_ns],
                "{}",
                stage.name
            );
        }
    }

    #[test]
    fn time_that_was_not_recorded_is_not_idle() {
        let mut trace = fixture();
        let analyzed = analyze(&trace, &Options::default());
        let before = idle_parts(&trace, &analyzed.stages);
        let longest = *before.iter().max_by_key(|part| part.end - part.start).unwrap();
        let (first, last) = trace.span().unwrap();
        trace.recorded = vec![RecordedWindows {
            process: longest.process,
            windows: vec![(first, longest.start + 1), (longest.end - 1, last)],
            span: (first, last),
        }];
        let after = idle_parts(&trace, &analyzed.stages);
        assert!(before.contains(&longest) && !after.contains(&longest));
        assert!(after.len() < before.len() && !after.is_empty());
    }
}
