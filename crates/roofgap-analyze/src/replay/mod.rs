//! The timeline without its profiler: calls and operations as a graph of what waits for what, replayed with every recorded event
//! shorter by its cost.
//!
//! The calls of a process follow one another, and the CPU time between them stays. An operation starts after its launch and after the
//! operation before it. A call that waits returns when what it waits for has ended. Without a cost the replay returns the recorded times.
//!
//! The cost of a recorded event is fitted to the time of a stage without the profiler.

#[cfg(test)]
mod tests;
pub mod unprofiled;

use crate::attribution::NO_CALL;
use crate::result::{Corrected, CostSource, Overhead, Stage};
use crate::stages::{Span, StageIndex};
use crate::timeline::LAUNCH_LATENCY_NS;
use crate::verdict::verdict;
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
enum ReplayEventKind {
    CallEnd,
    Operator,
    CallStart,
    OpStart,
    /// End of a call that takes no time.
    EmptyCallEnd,
}

/// A moment of the timeline: its time, kind, row and process.
type ReplayEvent = (Ns, ReplayEventKind, u32, ProcessId);

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
    events: Vec<ReplayEvent>,
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
    pub fn new(trace: &'a Trace, call_of_op: &[u32]) -> Self {
        let (ops, calls) = (&trace.ops, &trace.calls);
        let mut events: Vec<ReplayEvent> = Vec::new();
        for (call, row) in (0..calls.len()).zip(0..) {
            let (start, end, process) = (calls.start[call], calls.end[call], calls.process[call]);
            let kind = if end > start { ReplayEventKind::CallEnd } else { ReplayEventKind::EmptyCallEnd };
            events.extend([(start, ReplayEventKind::CallStart, row, process), (end, kind, row, process)]);
        }
        for ((start, process), row) in ops.start.iter().zip(&ops.process).zip(0..) {
            events.push((*start, ReplayEventKind::OpStart, row, *process));
        }
        for ((start, thread), row) in trace.cpu_ops.start.iter().zip(&trace.cpu_ops.thread).zip(0..) {
            if let Some(thread) = trace.threads.get(thread.index()) {
                events.push((*start, ReplayEventKind::Operator, row, thread.process));
            }
        }
        events.sort_unstable();
        let ended = Ended::new(trace);
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
            if kind == ReplayEventKind::OpStart {
                let start = &self.starts[row];
                let gap =
                    if start.is_node { start.gap_ns - cost.min(start.gap_ns.max(0)) } else { start.gap_ns };
                let after = (start.before != NO_OP).then(|| end_of(&new, start.before as usize) + gap);
                let call = new.calls.get(start.call as usize);
                let call = call.map(|call| if start.after_call { call.1 } else { call.0 } + start.latency_ns);
                new.ops[row] = after.max(call).unwrap_or(at);
                continue;
            }
            let Some(slot) = now.get_mut(process.index()) else { continue };
            let clock = slot.get_or_insert(Clock { recorded: at, replayed: at, cost: 0 });
            let returns = matches!(kind, ReplayEventKind::CallEnd | ReplayEventKind::EmptyCallEnd);
            let op = if returns { self.waits_for[row] } else { NO_OP } as usize;
            let until = (op < ops.len()).then(|| (ops.end[op], end_of(&new, op)));
            clock.advance(at, until);
            match kind {
                _ if returns => new.calls[row].1 = clock.replayed,
                ReplayEventKind::CallStart => new.calls[row].0 = clock.replayed,
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
        let costs = |kind: ReplayEventKind, row: u32| match kind {
            ReplayEventKind::OpStart => self.starts[row as usize].is_node,
            kind => matches!(kind, ReplayEventKind::CallStart | ReplayEventKind::Operator),
        };
        let events = self.events[at(from)..at(to.max(from))].iter();
        events.filter(|(_, kind, row, event_process)| *event_process == process && costs(*kind, *row)).count()
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
    fn new(trace: &Trace) -> Self {
        let ops = trace.ops.process.iter().zip(&trace.ops.end).zip(0..);
        let mut list: Vec<_> = ops.map(|((process, end), op)| (*process, *end, op)).collect();
        list.sort_unstable();
        Self(list)
    }

    /// Returns the operation of a process that ended last before a moment.
    fn last(&self, process: ProcessId, moment: Ns) -> Option<u32> {
        let after = self.0.partition_point(|(op_process, end, _)| (*op_process, *end) <= (process, moment));
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
            let process =
                trace.threads.get(link.thread.index()).map(|backward| backward.process).unwrap_or_default();
            let (backward, forward) =
                ([&mut link.start, &mut link.end], [&mut link.forward_start, &mut link.forward_end]);
            self.shift(process, backward);
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

/// Part by which the times of two processes of one program differ without a reason, while the CPU sets the pace and while the GPU does. Measured:
/// `docs/h200.md`.
const PROCESSES: (f64, f64) = (0.10, 0.01);

fn between_processes(busy: f64) -> f64 {
    let busy = busy.clamp(0.0, 1.0);
    PROCESSES.0 * (1.0 - busy) + PROCESSES.1 * busy
}

/// Part of the difference between two single runs that may be chance.
const SINGLE_RUNS: f64 = 0.25;

/// Factor from the spread of values to half of the 95 % confidence interval of their median, times the root of their number.
const MEDIAN_INTERVAL: f64 = 1.96 * 1.2533;

/// Part of a time to which a cost is fitted.
const CLOSE: f64 = 5e-4;

/// Cost of an event above that of any profiler, ns.
const MOST_COST_NS: Ns = 1 << 18;

/// A reason why a stage has no time without its profiler.
#[derive(Debug, thiserror::Error)]
pub enum Uncorrected {
    /// No unprofiled time is known.
    #[error(
        "no run without the profiler was measured, as `roofgap profile` does; --unprofiled STAGE=TIME states its time"
    )]
    NoBaseline,
    /// Steps that were not recorded are part of the profiled time.
    #[error("recorded in part: a run without the profiler does not tell what a recorded step costs")]
    InPart,
    /// The stage has no repeated GPU work.
    #[error("no steps or instances with GPU work")]
    NoSteps,
    /// The recorded events explain only so much of the ratio.
    #[error("{0:.2} times as long under the profiler, of which the recorded calls explain {1:.2} times")]
    Unexplained(f64, f64),
}

/// Returns a stage, by its number in the index, as it is without the profiler. `measure` measures the stages of a replayed trace.
pub fn correct(
    replay: &Replay<'_>,
    index: &StageIndex,
    (at, stage): (usize, &Stage),
    overhead: Option<&Overhead>,
    measure: impl Fn(&Trace) -> Vec<Stage>,
) -> Result<Corrected, Uncorrected> {
    let overhead = overhead.filter(|overhead| overhead.ratio.is_finite() && overhead.ratio > 0.0);
    let overhead = overhead.ok_or(Uncorrected::NoBaseline)?;
    if stage.coverage.is_some() && overhead.pairs.is_none() {
        return Err(Uncorrected::InPart);
    }
    let fit = Fit::new(replay, index, at);
    let ratio = overhead.ratio.max(1.0);
    let (low, high) = interval(overhead);
    let (cost_ns, most) = fit.cost(ratio);
    if most * (1.0 + between_processes(stage.busy_share().unwrap_or_default())) < low {
        return Err(Uncorrected::Unexplained(ratio, most));
    }
    let new = match cost_ns {
        0 => Some(stage.clone()),
        cost => measure(&replay.run(cost).trace(replay.trace))
            .into_iter()
            .find(|replayed| replayed.name == stage.name),
    };
    let mut new = new.ok_or(Uncorrected::NoSteps)?;
    new = new.warm.take().map_or(new, |warm| *warm);
    new.communication = stage.communication;
    let steady = new.steady.as_ref().ok_or(Uncorrected::NoSteps)?;
    let busy = new.busy_share().ok_or(Uncorrected::NoSteps)?;
    let step = steady.time_ns as f64;
    let spread = MEDIAN_INTERVAL * steady.spread_ns as f64 / (steady.count as f64).sqrt();
    let error = |of_ratio: f64| (between_processes(busy).hypot(of_ratio) * step).hypot(spread).round() as Ns;
    Ok(Corrected {
        tool: overhead.tool,
        step_ns: steady.time_ns,
        low_ns: (steady.time_ns - error(1.0 - ratio / high)).max(0),
        high_ns: steady.time_ns + error(ratio / low - 1.0),
        busy_pct: 100.0 * busy.min(1.0),
        idle_pct: 100.0 * (1.0 - busy).max(0.0),
        launch_ns: new.idle.map_or(0, |idle| idle.launch_ns),
        limit: verdict(&new).label,
        calls: (fit.events() as f64 / steady.count as f64).round() as u64,
        cost_per_call_ns: cost_ns,
        source: match overhead.pairs {
            _ if overhead.stated => CostSource::Stated,
            Some(_) => CostSource::Pairs,
            None => CostSource::Baseline,
        },
    })
}

/// Returns the ends of the interval of a ratio of times. One of two single runs has none, and may be chance in part.
fn interval(overhead: &Overhead) -> (f64, f64) {
    let beyond = SINGLE_RUNS * (overhead.ratio - 1.0).abs();
    let (low, high) = overhead.interval.unwrap_or((overhead.ratio - beyond, overhead.ratio + beyond));
    // A profiler makes nothing faster; where the unprofiled run was slower, it counts as chance.
    (low.min(overhead.ratio), high.max(1.0))
}

/// The time of a stage on the CPU, to which a cost is fitted.
struct Fit<'a> {
    replay: &'a Replay<'a>,
    /// Process and span of each instance; of steps of an engine, to the beginning of the next.
    spans: Vec<(ProcessId, Ns, Ns)>,
}

impl<'a> Fit<'a> {
    fn new(replay: &'a Replay<'a>, index: &StageIndex, stage: usize) -> Self {
        let trace = replay.trace;
        // A span without a range is of the process that launches first.
        let first = trace.calls.process.first().copied().unwrap_or_default();
        let process = |span: &Span| span.range_in(trace).map_or(first, |range| range.process);
        let engine = index.engine_spans();
        let span = |span: &Span| {
            let after = engine.partition_point(|other| other.start <= span.start);
            let next = engine.get(after).filter(|next| process(next) == process(span));
            let end = if engine.is_empty() { Some(span.end) } else { next.map(|next| next.start) };
            Some((process(span), span.start, end?))
        };
        Self { replay, spans: index.spans(index.warm(stage)).instances.iter().filter_map(span).collect() }
    }

    fn events(&self) -> usize {
        self.spans.iter().map(|(process, from, to)| self.replay.costly(*process, (*from, *to))).sum()
    }

    fn time(&self, new: &Replayed) -> Ns {
        self.spans.iter().map(|(process, from, to)| new.at(*process, *to) - new.at(*process, *from)).sum()
    }

    /// Returns the cost of an event at which the stage takes as long as without the profiler, ns, and the largest ratio that any cost
    /// explains. Where none explains the ratio, it is the least cost that explains as much.
    fn cost(&self, ratio: f64) -> (Ns, f64) {
        let all: Ns = self.spans.iter().map(|(_, from, to)| to - from).sum();
        let explained = |cost: Ns| all.max(1) as f64 / self.time(&self.replay.run(cost)).max(1) as f64;
        let most = explained(MOST_COST_NS);
        let aim = ratio.min(most) * (1.0 - CLOSE);
        if aim <= 1.0 {
            return (0, most);
        }
        // An event saves about its cost. Every replay reads the whole trace, so few are better.
        let least = (all as f64 * (1.0 - 1.0 / aim) / self.events().max(1) as f64) as Ns;
        let mut high = least.clamp(1, MOST_COST_NS);
        let mut low = high - (high >> 4) - 1;
        while high < MOST_COST_NS && explained(high) < aim {
            (low, high) = (high, (high + (high >> 2) + 1).min(MOST_COST_NS));
        }
        while low > 0 && explained(low) >= aim {
            (low, high) = (low - (low >> 2) - 1, low);
        }
        while high - low > (high >> 10).max(1) {
            let middle = low.midpoint(high);
            if explained(middle) < aim { low = middle } else { high = middle }
        }
        (high, most)
    }
}
