//! The timeline without its profiler: calls and operations as a graph of what waits for what, replayed with every recorded event
//! shorter by its cost.
//!
//! The calls of a process follow one another, and the CPU time between them stays. An operation starts after its launch and after the
//! operation before it. A call that waits returns when what it waits for has ended. Without a cost the replay returns the recorded times.

mod correct;
#[cfg(test)]
mod tests;

pub use correct::{Uncorrected, correct};

use crate::attribution::NO_CALL;
use crate::timeline::LAUNCH_LATENCY_NS;
use roofgap_base::stats::median;
use roofgap_trace::{CallClass, Ns, ProcessId, Trace};
use rustc_hash::FxHashMap;

/// Time from one operation to the next that was queued, ns, where a trace shows none.
const QUEUED_GAP_NS: Ns = 1_000;

/// Costs that can be owed at once: what does not fit into the time of a short call is taken off the time after it.
const MOST_OWED: Ns = 4;

/// Stands for "no operation".
const NO_OP: u32 = u32::MAX;

/// The kinds of events, in their order at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EventKind {
    CallEnd,
    Operator,
    CallStart,
    OpStart,
    /// End of a call that takes no time.
    EmptyCallEnd,
}

/// A moment of the timeline: its time, kind, row and process.
type Event = (Ns, EventKind, u32, ProcessId);

/// The launch of an operation and what it starts after.
#[derive(Debug, Clone, Copy)]
struct Start {
    call: u32,
    /// The operation starts a time after the end of the call, not after its start.
    after_call: bool,
    latency_ns: Ns,
    /// Operation before it.
    before: u32,
    gap_ns: Ns,
    /// It follows another operation of the same graph launch.
    is_node: bool,
}

/// A timeline to replay.
pub struct Replay<'a> {
    trace: &'a Trace,
    events: Vec<Event>,
    starts: Vec<Start>,
    /// Operation that a call waits for, by call.
    waits_for: Vec<u32>,
}

/// The clock of a process: recorded and replayed time of its last event, and the cost that is not taken off yet.
#[derive(Debug, Clone, Copy, Default)]
struct Clock {
    recorded: Ns,
    replayed: Ns,
    cost: Ns,
}

/// The times of a replay.
#[derive(Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Start of each operation.
    ops: Vec<Ns>,
    /// Start and end of each call.
    calls: Vec<(Ns, Ns)>,
    /// Recorded and replayed time of the events of each process.
    clocks: Vec<Vec<(Ns, Ns)>>,
}

impl<'a> Replay<'a> {
    /// Builds the graph of a trace. `call_of_op` has the launch of each operation.
    pub fn of(trace: &'a Trace, call_of_op: &[u32]) -> Self {
        let (ops, calls) = (&trace.ops, &trace.calls);
        let mut events: Vec<Event> = Vec::new();
        for (call, row) in (0..calls.len()).zip(0..) {
            let (start, end, process) = (calls.start[call], calls.end[call], calls.process[call]);
            let kind = if end > start { EventKind::CallEnd } else { EventKind::EmptyCallEnd };
            events.extend([(start, EventKind::CallStart, row, process), (end, kind, row, process)]);
        }
        for ((start, process), row) in ops.start.iter().zip(&ops.process).zip(0..) {
            events.push((*start, EventKind::OpStart, row, *process));
        }
        for ((start, thread), row) in trace.cpu_ops.start.iter().zip(&trace.cpu_ops.thread).zip(0..) {
            if let Some(thread) = trace.threads.get(thread.index()) {
                events.push((*start, EventKind::Operator, row, thread.process));
            }
        }
        events.sort_unstable();
        let ended = Ended::of(trace);
        let starts = starts(trace, call_of_op, &ended);
        let copies = call_of_op.iter().map(|call| *call as usize).zip(0u32..);
        let copies = copies.filter(|(call, _)| calls.class.get(*call) == Some(&CallClass::Copy));
        let waits = (0..calls.len()).filter(|call| calls.class[*call] == CallClass::Sync);
        let waits = waits.filter_map(|call| Some((call, ended.last(calls.process[call], calls.end[call])?)));
        let mut waits_for = vec![NO_OP; calls.len()];
        for (call, op) in copies.chain(waits) {
            // An operation that starts at the end of a call is replayed after it.
            let (start, end) = (ops.start[op as usize], ops.end[op as usize]);
            if end <= calls.end[call] && start < calls.end[call] {
                waits_for[call] = op;
            }
        }
        Self { trace, events, starts, waits_for }
    }

    /// Replays the timeline. Each call and each operator of a framework takes `cost` off the time after its start, and each
    /// operation of a graph after the first starts so much earlier.
    pub fn run(&self, cost: Ns) -> Replayed {
        let (ops, calls) = (&self.trace.ops, &self.trace.calls);
        let mut new = Replayed {
            ops: ops.start.clone(),
            calls: calls.start.iter().copied().zip(calls.end.iter().copied()).collect(),
            clocks: vec![Vec::new(); self.trace.processes.len()],
        };
        let mut now: Vec<Option<Clock>> = vec![None; self.trace.processes.len()];
        let end_of = |new: &Replayed, op: usize| new.ops[op] + ops.duration(op);
        for &(at, kind, row, process) in &self.events {
            let row = row as usize;
            if kind == EventKind::OpStart {
                let own = &self.starts[row];
                let gap = if own.is_node { own.gap_ns - cost.min(own.gap_ns.max(0)) } else { own.gap_ns };
                let after = (own.before != NO_OP).then(|| end_of(&new, own.before as usize) + gap);
                let call = new.calls.get(own.call as usize);
                let call = call.map(|call| if own.after_call { call.1 } else { call.0 } + own.latency_ns);
                new.ops[row] = after.max(call).unwrap_or(at);
                continue;
            }
            let Some(slot) = now.get_mut(process.index()) else { continue };
            let clock = slot.get_or_insert(Clock { recorded: at, replayed: at, cost: 0 });
            let returns = matches!(kind, EventKind::CallEnd | EventKind::EmptyCallEnd);
            let op = if returns { self.waits_for[row] } else { NO_OP } as usize;
            let until = (op < ops.len()).then(|| (ops.end[op], end_of(&new, op)));
            clock.advance(at, until);
            match kind {
                _ if returns => new.calls[row].1 = clock.replayed,
                EventKind::CallStart => new.calls[row].0 = clock.replayed,
                _ => {}
            }
            if !returns {
                clock.cost = (clock.cost + cost).min(MOST_OWED * cost);
            }
            new.clocks[process.index()].push((at, clock.replayed));
        }
        new
    }

    /// Counts the events of a process in a span of time that have a cost.
    fn costly(&self, process: ProcessId, (from, to): (Ns, Ns)) -> usize {
        let at = |moment: Ns| self.events.partition_point(|event| event.0 < moment);
        let costs = |kind: EventKind, row: u32| match kind {
            EventKind::OpStart => self.starts[row as usize].is_node,
            kind => matches!(kind, EventKind::CallStart | EventKind::Operator),
        };
        let events = self.events[at(from)..at(to.max(from))].iter();
        events.filter(|(_, kind, row, own)| *own == process && costs(*kind, *row)).count()
    }
}

impl Clock {
    /// Goes on to a recorded moment. `until` is the recorded and the replayed end of what the process waits for before that.
    fn advance(&mut self, at: Ns, until: Option<(Ns, Ns)>) {
        let (ended, ends) = until.unwrap_or((self.recorded, self.replayed));
        let rest = at - self.recorded.max(ended);
        let taken = self.cost.min(rest);
        *self =
            Self { recorded: at, replayed: self.replayed.max(ends) + rest - taken, cost: self.cost - taken };
    }
}

/// The ends of the operations of all processes, in order.
struct Ended(Vec<(ProcessId, Ns, u32)>);

impl Ended {
    fn of(trace: &Trace) -> Self {
        let ops = trace.ops.process.iter().zip(&trace.ops.end).zip(0..);
        let mut list: Vec<_> = ops.map(|((process, end), op)| (*process, *end, op)).collect();
        list.sort_unstable();
        Self(list)
    }

    /// Returns the operation of a process that ended last before a moment.
    fn last(&self, process: ProcessId, moment: Ns) -> Option<u32> {
        let after = self.0.partition_point(|(own, end, _)| (*own, *end) <= (process, moment));
        self.0.get(after.checked_sub(1)?).filter(|last| last.0 == process).map(|last| last.2)
    }
}

/// Finds what each operation starts after: its launch, and the operation before it on its stream, or one on another stream that ended
/// shortly before where neither explains its start.
fn starts(trace: &Trace, call_of_op: &[u32], ended: &Ended) -> Vec<Start> {
    let (ops, calls) = (&trace.ops, &trace.calls);
    let mut streams = FxHashMap::default();
    let (mut latencies, mut gaps) = (Vec::new(), Vec::new());
    let mut starts: Vec<Start> = Vec::with_capacity(ops.len());
    for op in 0..ops.len() {
        let (start, process) = (ops.start[op], ops.process[op]);
        let stream = (process, ops.device[op], ops.stream[op]);
        let mut before = streams.insert(stream, op as u32).unwrap_or(NO_OP);
        let call = call_of_op.get(op).copied().unwrap_or(NO_CALL);
        let times = calls.start.get(call as usize).zip(calls.end.get(call as usize));
        let after_call = times.is_some_and(|(begun, end)| begun < end && *end <= start);
        let launched = times.map(|(begun, end)| if after_call { *end } else { *begun });
        let end_of = |op: u32| ops.end.get(op as usize).copied();
        let known = end_of(before).max(launched);
        if known.is_none_or(|known| start - known > LAUNCH_LATENCY_NS) {
            let other = ended.last(process, start).filter(|other| (*other as usize) < op);
            before = other.filter(|other| end_of(*other) > known).unwrap_or(before);
        }
        let same_call = call != NO_CALL && call_of_op.get(before as usize) == Some(&call);
        let is_node = same_call && calls.class[call as usize] == CallClass::GraphLaunch;
        let latency_ns = launched.map_or(0, |launched| start - launched);
        let gap_ns = end_of(before).map_or(0, |end| start - end);
        if after_call && end_of(before) < launched {
            latencies.push(latency_ns);
        } else if launched.is_some_and(|at| end_of(before) > Some(at + LAUNCH_LATENCY_NS)) {
            gaps.push(gap_ns.max(0));
        }
        starts.push(Start { call, after_call, latency_ns, before, gap_ns, is_node });
    }
    // Only the later of the two is seen: the one that takes about as long as usual. The other takes as long as usual at most.
    let latency = median(&mut latencies).unwrap_or(LAUNCH_LATENCY_NS);
    let gap = median(&mut gaps).unwrap_or(QUEUED_GAP_NS);
    for start in starts.iter_mut().filter(|start| start.call != NO_CALL && start.before != NO_OP) {
        match !start.is_node && start.latency_ns - latency <= start.gap_ns - gap {
            true => start.gap_ns = start.gap_ns.min(gap),
            false => start.latency_ns = start.latency_ns.min(latency),
        }
    }
    starts
}

impl Replayed {
    /// Returns the replayed time of a recorded moment of a process.
    fn at(&self, process: ProcessId, moment: Ns) -> Ns {
        let clock = self.clocks.get(process.index()).map_or(&[][..], Vec::as_slice);
        let after = clock.partition_point(|(recorded, _)| *recorded <= moment);
        let next = clock.get(after).map_or(Ns::MAX, |(_, replayed)| *replayed);
        match after.checked_sub(1).and_then(|at| clock.get(at)) {
            Some((recorded, replayed)) => (replayed + moment - recorded).min(next),
            None => moment,
        }
    }

    fn shift(&self, process: ProcessId, times: [&mut Ns; 2]) {
        times.into_iter().for_each(|time| *time = self.at(process, *time));
    }

    /// Returns the trace with the times of the replay: operations, calls and ranges. The rest has no times, or is left out.
    fn trace(self, trace: &Trace) -> Trace {
        let mut new = trace.clone();
        (new.cpu_ops, new.stacks, new.modules) = Default::default();
        new.ranges.collectives.clear();
        for (op, start) in self.ops.iter().enumerate() {
            (new.ops.start[op], new.ops.end[op]) = (*start, start + trace.ops.duration(op));
        }
        for (call, times) in self.calls.iter().enumerate() {
            (new.calls.start[call], new.calls.end[call]) = *times;
        }
        for range in &mut new.ranges.rows {
            self.shift(range.process, [&mut range.start, &mut range.end]);
        }
        for link in &mut new.backward {
            let process = trace.threads.get(link.thread.index()).map(|own| own.process).unwrap_or_default();
            let (own, forward) =
                ([&mut link.start, &mut link.end], [&mut link.forward_start, &mut link.forward_end]);
            self.shift(process, own);
            self.shift(process, forward);
        }
        for recorded in &mut new.recorded {
            for (start, end) in recorded.windows.iter_mut().chain([&mut recorded.span]) {
                self.shift(recorded.process, [start, end]);
            }
        }
        new.sort();
        new
    }
}
