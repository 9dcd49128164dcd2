//! The graph of a recording: CPU time between calls, calls, and GPU operations, each with what it starts after.
//!
//! An operation starts after its launch, after the operation before it on its stream, and after the event that its stream waits for. One of
//! these held it back: the one whose lag is closest to the usual lag of its kind. The others may have had any lag. A call that waits returns
//! after what it waits for. A call of a thread follows the call before it, or that of a thread that worked meanwhile.

use crate::attribution::NO_CALL;
use crate::timeline::LAUNCH_LATENCY_NS;
use roofgap_base::stats::{median, percentile};
use roofgap_trace::{CallClass, MemoryKind, NameId, Ns, OpKind, ProcessId, ThreadId, Trace, Wait, WaitKind};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Stands for "none" among positions of calls and operations.
pub const NONE: u32 = u32::MAX;

/// Time from one operation to the next that was queued, ns, where a trace shows none.
const QUEUED_GAP_NS: Ns = 1_000;

/// Launches that CUDA queues before a launch call blocks. On an H200 calls blocked from 975 on.
const QUEUE: usize = 1_024;

/// Part of the lags of a kind that are shorter than the lag of one that nothing else held back.
const USUAL: f64 = 0.25;

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Awaited {
    /// Nothing.
    #[default]
    Nothing,
    /// All that its process has launched.
    Process(u32),
    /// All that was launched on a stream.
    Stream(u32),
    /// The end of an operation.
    Op(u32),
    /// The start of an operation: the queue of launches is full.
    Started(u32),
}

/// A call that is in no other call of its thread, or an operation whose launch was not recorded.
#[derive(Debug, Clone, Copy)]
pub struct CallNode {
    /// Row in `Trace::calls`; [`NONE`] for an operation without a launch.
    pub row: u32,
    /// Clock that it moves: its thread, or the stream of an operation without a launch.
    pub clock: u32,
    pub start: Ns,
    pub end: Ns,
    /// CPU time before it on its thread, ns; that since the call that it follows.
    pub before_ns: Ns,
    /// Call of another thread that it follows, or [`NONE`].
    pub follows: u32,
    /// Operators of a framework that begin in the time before it.
    pub operators: u32,
    /// Position of its first operation; the operations of calls follow each other.
    pub first_op: u32,
    pub awaited: Awaited,
    /// Recorded end of what it waits for, ns.
    pub awaited_ns: Ns,
    /// Time of the call if it had waited for nothing, and, of one that waited, from the end of what it waited for to its return, ns.
    pub own_ns: Ns,
    pub tail_ns: Ns,
}

impl CallNode {
    /// Tells whether the call was held back by what it waits for.
    pub fn waited(&self) -> bool {
        self.awaited != Awaited::Nothing && self.awaited_ns > self.start
    }
}

/// A GPU operation, and the lags to what it starts after.
#[derive(Debug, Clone, Copy)]
pub struct OpNode {
    /// Row in `Trace::ops`.
    pub row: u32,
    /// Position of its call.
    pub call: u32,
    /// Position of its stream.
    pub stream: u32,
    /// It starts a time after the start of the call, not after its end.
    pub inside: bool,
    /// It follows another operation of the same graph launch.
    pub is_node: bool,
    /// Time since the call, ns, and the least such time.
    pub latency: (Ns, Ns),
    /// Operation before it on its stream, or [`NONE`], with the time since then.
    pub before: u32,
    pub gap: (Ns, Ns),
    /// Operation of another stream that it starts after, or [`NONE`], with the time since then.
    pub other: u32,
    pub other_gap: (Ns, Ns),
}

/// The graph of a trace.
#[derive(Debug)]
pub struct Graph<'a> {
    pub trace: &'a Trace,
    /// Calls in the order of their start.
    pub calls: Vec<CallNode>,
    /// Operations in the order of their launch.
    pub ops: Vec<OpNode>,
    /// Number of clocks, streams and processes.
    pub clocks: usize,
    pub streams: usize,
    /// Device of each stream.
    pub device_of_stream: Vec<u32>,
    /// Usual lags.
    pub latency_ns: Ns,
    pub gap_ns: Ns,
    /// Edges between streams, and between operations and calls that wait, as recorded and as inferred.
    pub recorded: u64,
    pub inferred: u64,
}

/// What was seen while calls are visited in their order.
struct Builder<'a> {
    trace: &'a Trace,
    waits: FxHashMap<(ProcessId, u32), &'a Wait>,
    /// Calls that record an event for a stream that a wait names.
    records: FxHashMap<(ProcessId, u32), u32>,
    stream_ids: FxHashMap<(ProcessId, u32, u32), u32>,
    device_of_stream: Vec<u32>,
    /// Last operation of each stream, and what it has to wait for next.
    last_op: Vec<u32>,
    pending: FxHashMap<u32, u32>,
    /// Last operation of each stream when an event was recorded, by the call.
    at_record: FxHashMap<(ProcessId, u32), u32>,
    /// Latest end of the operations of each process.
    process_end: Vec<Ns>,
    position_of_op: Vec<u32>,
    /// Ends of the operations by position.
    end_of_position: Vec<Ns>,
    ended: Ended,
}

/// The last calls of the two threads of a process that called last.
#[derive(Debug, Clone, Copy)]
struct Turn {
    clock: u32,
    call: u32,
    end: Ns,
    /// Start of the first call since another thread called.
    since: Ns,
}

impl<'a> Graph<'a> {
    /// Builds the graph of a trace. `call_of_op` has the launch of each operation.
    pub fn new(trace: &'a Trace, call_of_op: &[u32]) -> Self {
        let (mut calls, of_call) = outermost(trace, call_of_op);
        let mut builder = Builder::new(trace);
        let threads = trace.threads.len();
        let mut graph_ops: Vec<OpNode> = Vec::with_capacity(trace.ops.len());
        let mut last: Vec<Option<u32>> = vec![None; threads];
        let mut turns: Vec<[Option<Turn>; 2]> = vec![[None; 2]; trace.processes.len().max(1)];
        let mut operators = OperatorStarts::new(trace);
        let (mut recorded, mut inferred) = (0, 0);
        for at in 0..calls.len() {
            let mut call = calls[at];
            let process = builder.process_of(&call, of_call.rows(at));
            if call.row == NONE {
                let op = of_call.rows(at).first().copied().unwrap_or_default();
                call.clock = (threads + builder.stream_of_op(op as usize) as usize) as u32;
            } else {
                let thread = call.clock as usize;
                let before = last.get(thread).copied().flatten();
                let ended = before.map(|before| calls[before as usize].end);
                call.before_ns = ended.map_or(0, |ended| call.start - ended);
                call.operators = operators.until(call.clock, call.start);
                if let Some(turns) = turns.get_mut(process.index()) {
                    if let Some(turn) = other_turn(turns, &call, ended) {
                        call.follows = turn.call;
                        call.before_ns = call.start - turn.end;
                    }
                    add_turn(turns, &call, at as u32);
                }
                if let Some(slot) = last.get_mut(thread) {
                    *slot = Some(at as u32);
                }
            }
            builder.visit_record(&call, process);
            call.first_op = graph_ops.len() as u32;
            for row in of_call.rows(at) {
                let node =
                    builder.op(&call, at as u32, *row, &graph_ops, &mut (&mut recorded, &mut inferred));
                graph_ops.push(node);
            }
            let own = &graph_ops[call.first_op as usize..];
            if let Some(is_recorded) = builder.wait(&mut call, process, own) {
                *if is_recorded { &mut recorded } else { &mut inferred } += 1;
            }
            calls[at] = call;
        }
        let streams = builder.last_op.len();
        let mut graph = Self {
            trace,
            calls,
            ops: graph_ops,
            clocks: threads + streams,
            streams,
            device_of_stream: builder.device_of_stream,
            latency_ns: LAUNCH_LATENCY_NS,
            gap_ns: QUEUED_GAP_NS,
            recorded,
            inferred,
        };
        graph.add_full_queues();
        graph.add_usual_lags();
        graph.add_own_times();
        graph
    }

    /// Returns the operations of a call, by their positions.
    pub fn ops_of(&self, call: usize) -> Range<usize> {
        let end = self.calls.get(call + 1).map_or(self.ops.len(), |next| next.first_op as usize);
        self.calls.get(call).map_or(end, |own| own.first_op as usize)..end
    }

    /// Returns the calls that start in a span of time, by their positions.
    pub fn calls_in(&self, (from, to): (Ns, Ns)) -> Range<usize> {
        let at = |moment| self.calls.partition_point(|call| call.start < moment);
        at(from)..at(to).max(at(from))
    }

    /// Returns the class of a call.
    pub fn class(&self, call: &CallNode) -> CallClass {
        self.trace.calls.class.get(call.row as usize).copied().unwrap_or(CallClass::Launch)
    }

    pub fn op_start(&self, op: &OpNode) -> Ns {
        self.trace.ops.start[op.row as usize]
    }

    pub fn op_end(&self, op: &OpNode) -> Ns {
        self.trace.ops.end[op.row as usize]
    }

    /// Lets launch calls that block because the queue of launches is full wait for the launch that began last meanwhile.
    fn add_full_queues(&mut self) {
        let mut of_process: FxHashMap<ProcessId, Vec<usize>> = FxHashMap::default();
        for at in (0..self.calls.len()).filter(|at| !self.ops_of(*at).is_empty()) {
            if let Some(process) = self.trace.calls.process.get(self.calls[at].row as usize) {
                of_process.entry(*process).or_default().push(at);
            }
        }
        for launching in of_process.into_values() {
            let first = |at: &usize| {
                (self.op_start(&self.ops[self.ops_of(*at).start]), self.ops_of(*at).start as u32)
            };
            let mut starts: Vec<(Ns, u32)> = launching.iter().map(first).collect();
            starts.sort_unstable();
            let begun = |at: usize| starts.partition_point(|(start, _)| *start <= self.calls[at].end);
            let ahead: Vec<usize> =
                (1..).zip(&launching).map(|(count, at)| count - begun(*at).min(count)).collect();
            let most = ahead.iter().copied().max().unwrap_or(0);
            if 8 * most < 7 * QUEUE || most > QUEUE {
                continue;
            }
            let is_full = |ahead: usize| ahead + 2 >= most;
            let full = launching.iter().zip(&ahead).filter(|(_, ahead)| is_full(**ahead)).map(|(at, _)| *at);
            let last = |at: usize| Some((at, starts.get(begun(at).checked_sub(1)?).copied()?));
            let full: Vec<_> = full.filter_map(last).collect();
            for (at, (start, op)) in full {
                let call = &mut self.calls[at];
                if call.awaited == Awaited::Nothing && start > call.start && op < call.first_op {
                    (call.awaited, call.awaited_ns) = (Awaited::Started(op), start);
                }
            }
        }
    }

    /// Sets the least lags: what held an operation back had the lag that is usual, the rest takes as long as usual at most.
    fn add_usual_lags(&mut self) {
        let (mut latencies, mut gaps): (FxHashMap<_, Vec<Ns>>, FxHashMap<_, Vec<Ns>>) = Default::default();
        for op in &self.ops {
            let call = &self.calls[op.call as usize];
            let kind = self.trace.ops.kind[op.row as usize];
            let before = self.ops.get(op.before as usize).map(|before| self.op_end(before));
            if before.is_none_or(|end| end < call.start) && call.row != NONE {
                latencies.entry((kind, op.inside)).or_default().push(op.latency.0);
            } else if before.is_some_and(|end| end > call.end.saturating_add(LAUNCH_LATENCY_NS))
                && !op.is_node
            {
                gaps.entry(kind).or_default().push(op.gap.0);
            }
        }
        let usual = |mut list: Vec<Ns>| {
            list.sort_unstable();
            percentile(&list, USUAL).unwrap_or(0).max(0)
        };
        let latencies: FxHashMap<_, Ns> =
            latencies.into_iter().map(|(key, list)| (key, usual(list))).collect();
        let gaps: FxHashMap<_, Ns> = gaps.into_iter().map(|(key, list)| (key, usual(list))).collect();
        self.latency_ns = latencies.get(&(OpKind::Kernel, false)).copied().unwrap_or(LAUNCH_LATENCY_NS);
        self.gap_ns = gaps.get(&OpKind::Kernel).copied().unwrap_or(QUEUED_GAP_NS);
        for op in &mut self.ops {
            let kind = self.trace.ops.kind[op.row as usize];
            op.latency.1 =
                op.latency.0.min(latencies.get(&(kind, op.inside)).copied().unwrap_or(self.latency_ns));
            let gap = gaps.get(&kind).copied().unwrap_or(self.gap_ns);
            op.gap.1 = op.gap.0.min(gap);
            op.other_gap.1 = op.other_gap.0.min(gap);
        }
    }

    /// Sets the time that waiting calls take by themselves: that of calls of the same function that waited for nothing, and the usual time
    /// from the end of the work to the return.
    fn add_own_times(&mut self) {
        let name = |call: &CallNode| self.trace.calls.name.get(call.row as usize).copied();
        let mut own: FxHashMap<Option<NameId>, (Vec<Ns>, Vec<Ns>)> = FxHashMap::default();
        for call in self.calls.iter().filter(|call| call.row != NONE) {
            let (alone, tails) = own.entry(name(call)).or_default();
            match call.waited() {
                true => tails.push(call.end - call.awaited_ns),
                false => alone.push(call.end - call.start),
            }
        }
        let own: FxHashMap<_, (Option<Ns>, Option<Ns>)> = own
            .into_iter()
            .map(|(name, (mut alone, mut tails))| (name, (median(&mut alone), median(&mut tails))))
            .collect();
        let times: Vec<_> =
            self.calls.iter().map(|call| own.get(&name(call)).copied().unwrap_or_default()).collect();
        for (call, (alone, tail)) in self.calls.iter_mut().zip(times) {
            let all = (call.end - call.start).max(0);
            (call.own_ns, call.tail_ns) = match call.waited() {
                true => (alone.or(tail).unwrap_or(0).clamp(0, all), call.end - call.awaited_ns),
                false => (all, 0),
            };
        }
    }
}

/// Operations by the outermost call that launched them.
struct OpsOfCalls {
    rows: Vec<u32>,
    starts: Vec<u32>,
}

impl OpsOfCalls {
    fn rows(&self, call: usize) -> &[u32] {
        let range = self.starts.get(call).zip(self.starts.get(call + 1));
        range.and_then(|(from, to)| self.rows.get(*from as usize..*to as usize)).unwrap_or_default()
    }
}

/// Returns the calls that are in no other call of their thread, with the operations without a launch among them, in the order of their
/// start, and the operations of each.
fn outermost(trace: &Trace, call_of_op: &[u32]) -> (Vec<CallNode>, OpsOfCalls) {
    let (ops, calls) = (&trace.ops, &trace.calls);
    let node = |row: u32, clock: u32, start: Ns, end: Ns| CallNode {
        row,
        clock,
        start,
        end,
        before_ns: 0,
        follows: NONE,
        operators: 0,
        first_op: 0,
        awaited: Awaited::Nothing,
        awaited_ns: Ns::MIN,
        own_ns: 0,
        tail_ns: 0,
    };
    // The outermost call of each thread, by the row of the node or of the call that it is in.
    let mut open: Vec<Option<(Ns, u32)>> = vec![None; trace.threads.len()];
    let mut outer_of: Vec<u32> = Vec::with_capacity(calls.len());
    let mut list: Vec<(CallNode, u32)> = Vec::with_capacity(calls.len());
    for row in 0..calls.len() {
        let (start, end, thread) = (calls.start[row], calls.end[row], calls.thread[row].index());
        let around = open.get(thread).copied().flatten().filter(|(until, _)| end <= *until && start < *until);
        let outer = around.map_or(row as u32, |(_, outer)| outer);
        outer_of.push(outer);
        if around.is_none() && thread < open.len() {
            list.push((node(row as u32, thread as u32, start, end), NONE));
            open[thread] = Some((end, row as u32));
        }
    }
    for op in 0..ops.len() {
        if call_of_op.get(op).is_none_or(|call| *call == NO_CALL) {
            list.push((node(NONE, 0, ops.start[op], ops.start[op]), op as u32));
        }
    }
    list.sort_by_key(|(call, _)| call.start);
    let mut position = vec![NONE; calls.len()];
    let mut of_op = vec![NONE; ops.len()];
    for (at, (call, op)) in (0u32..).zip(&list) {
        match position.get_mut(call.row as usize) {
            Some(slot) => *slot = at,
            None => of_op[*op as usize] = at,
        }
    }
    for (op, call) in call_of_op.iter().enumerate().filter(|(_, call)| **call != NO_CALL) {
        let outer = outer_of.get(*call as usize).and_then(|outer| position.get(*outer as usize));
        of_op[op] = outer.copied().unwrap_or(NONE);
    }
    let mut starts = vec![0u32; list.len() + 1];
    of_op.iter().filter(|at| **at != NONE).for_each(|at| starts[*at as usize + 1] += 1);
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let mut next = starts.clone();
    let mut rows = vec![0u32; starts.last().copied().unwrap_or(0) as usize];
    for (op, at) in (0u32..).zip(of_op).filter(|(_, at)| *at != NONE) {
        let slot = &mut next[at as usize];
        rows[*slot as usize] = op;
        *slot += 1;
    }
    (list.into_iter().map(|(call, _)| call).collect(), OpsOfCalls { rows, starts })
}

/// Returns the last call of another thread that worked for most of the time since the last call of this one.
fn other_turn(turns: &[Option<Turn>; 2], call: &CallNode, ended: Option<Ns>) -> Option<Turn> {
    let other = turns.iter().flatten().find(|turn| turn.clock != call.clock)?;
    let Some(ended) = ended else { return Some(*other).filter(|other| other.end <= call.start) };
    let worked = other.end - other.since.max(ended);
    (other.end <= call.start && 2 * worked > call.start - ended).then_some(*other)
}

fn add_turn(turns: &mut [Option<Turn>; 2], call: &CallNode, at: u32) {
    let own = turns[0].filter(|turn| turn.clock == call.clock);
    let since = own.map_or(call.start, |turn| turn.since);
    let turn = Some(Turn { clock: call.clock, call: at, end: call.end, since });
    *turns = if own.is_some() { [turn, turns[1]] } else { [turn, turns[0]] };
}

/// Starts of operators by thread, counted up to a moment.
struct OperatorStarts {
    starts: Vec<Vec<Ns>>,
    next: Vec<usize>,
}

impl OperatorStarts {
    fn new(trace: &Trace) -> Self {
        let mut starts = vec![Vec::new(); trace.threads.len()];
        for (start, thread) in trace.cpu_ops.start.iter().zip(&trace.cpu_ops.thread) {
            if let Some(list) = starts.get_mut(ThreadId::index(*thread)) {
                list.push(*start);
            }
        }
        starts.iter_mut().for_each(|list| list.sort_unstable());
        Self { next: vec![0; starts.len()], starts }
    }

    /// Counts the starts of a thread since the last question about it.
    fn until(&mut self, thread: u32, moment: Ns) -> u32 {
        let Some((list, next)) = self.starts.get(thread as usize).zip(self.next.get_mut(thread as usize))
        else {
            return 0;
        };
        let count = list[*next..].partition_point(|start| *start < moment);
        *next += count;
        count as u32
    }
}

impl<'a> Builder<'a> {
    fn new(trace: &'a Trace) -> Self {
        let waits = trace.waits.iter().map(|wait| ((wait.process, wait.correlation), wait)).collect();
        let records = trace.waits.iter().filter_map(|wait| {
            let event = wait.event.filter(|event| event.correlation != 0)?;
            Some(((wait.process, event.correlation), event.stream))
        });
        Self {
            trace,
            waits,
            records: records.collect(),
            stream_ids: FxHashMap::default(),
            device_of_stream: Vec::new(),
            last_op: Vec::new(),
            pending: FxHashMap::default(),
            at_record: FxHashMap::default(),
            process_end: vec![Ns::MIN; trace.processes.len().max(1)],
            position_of_op: vec![NONE; trace.ops.len()],
            end_of_position: Vec::with_capacity(trace.ops.len()),
            ended: Ended::new(trace),
        }
    }

    fn process_of(&self, call: &CallNode, ops: &[u32]) -> ProcessId {
        let of_op = || Some(self.trace.ops.process[*ops.first()? as usize]);
        self.trace.calls.process.get(call.row as usize).copied().or_else(of_op).unwrap_or_default()
    }

    /// Returns the position of a stream. Its number is that of one device.
    fn stream(&mut self, process: ProcessId, device: u32, stream: u32) -> u32 {
        let next = self.last_op.len() as u32;
        let position = *self.stream_ids.entry((process, device, stream)).or_insert(next);
        if position == next {
            self.last_op.push(NONE);
            self.device_of_stream.push(device);
        }
        position
    }

    fn stream_of_op(&mut self, op: usize) -> u32 {
        let ops = &self.trace.ops;
        self.stream(ops.process[op], ops.device[op].index() as u32, ops.stream[op])
    }

    /// Returns the position of the stream of a number that has work; its device is that of the wait, or any.
    fn known_stream(&self, process: ProcessId, wait: &Wait, stream: u32) -> Option<u32> {
        let of_device = |device: u32| self.stream_ids.get(&(process, device, stream)).copied();
        match wait.device {
            Some(device) => of_device(device.index() as u32),
            None => (0..self.trace.devices.len().max(1) as u32).find_map(of_device),
        }
    }

    /// Takes note of the work before an event, and of the event that a stream waits for.
    fn visit_record(&mut self, call: &CallNode, process: ProcessId) {
        let Some(correlation) = self.trace.calls.correlation.get(call.row as usize) else { return };
        let key = (process, *correlation);
        if let Some(stream) = self.records.get(&key).copied() {
            let devices = 0..self.trace.devices.len().max(1) as u32;
            let known = devices.filter_map(|device| self.stream_ids.get(&(process, device, stream)));
            let last = known.map(|at| self.last_op[*at as usize]).filter(|op| *op != NONE).max();
            self.at_record.insert(key, last.unwrap_or(NONE));
        }
        let Some(wait) = self.waits.get(&key).filter(|wait| wait.kind == WaitKind::StreamForEvent) else {
            return;
        };
        let event = wait.event.and_then(|event| self.at_record.get(&(process, event.correlation)).copied());
        let event = event.filter(|op| *op != NONE);
        if let (Some(op), Some(stream)) = (event, wait.stream) {
            let device = wait.device.map_or(0, |device| device.index() as u32);
            let waiting = self.known_stream(process, wait, stream);
            let waiting = waiting.unwrap_or_else(|| self.stream(process, device, stream));
            let pending = self.pending.entry(waiting).or_insert(op);
            *pending = (*pending).max(op);
        }
    }

    fn op(
        &mut self,
        call: &CallNode,
        at: u32,
        row: u32,
        nodes: &[OpNode],
        (recorded, inferred): &mut (&mut u64, &mut u64),
    ) -> OpNode {
        let (trace, op) = (self.trace, row as usize);
        let (start, process) = (trace.ops.start[op], trace.ops.process[op]);
        let stream = self.stream_of_op(op);
        let before = self.last_op[stream as usize];
        let end_of = |op: u32| nodes.get(op as usize).map(|node| trace.ops.end[node.row as usize]);
        let inside = call.start == call.end || start < call.end;
        let launched = if inside { call.start } else { call.end };
        let mut other = self.pending.remove(&stream).unwrap_or(NONE);
        if other != NONE {
            **recorded += 1;
        } else {
            let known = end_of(before).map_or(launched, |end| end.max(launched));
            if start - known > LAUNCH_LATENCY_NS {
                let last = self.ended.last(process, start).map(|op| self.position_of_op[op as usize]);
                other = last.filter(|last| *last != NONE && end_of(*last) > Some(known)).unwrap_or(NONE);
                **inferred += u64::from(other != NONE);
            }
        }
        let is_node = call.row != NONE
            && trace.calls.class[call.row as usize] == CallClass::GraphLaunch
            && nodes.last().is_some_and(|last| last.call == at);
        let position = nodes.len() as u32;
        (self.position_of_op[op], self.last_op[stream as usize]) = (position, position);
        self.end_of_position.push(trace.ops.end[op]);
        let latest = self.process_end.get_mut(process.index());
        latest.into_iter().for_each(|latest| *latest = (*latest).max(trace.ops.end[op]));
        let lag = |op: u32| end_of(op).map_or(0, |end| start - end);
        OpNode {
            row,
            call: at,
            stream,
            inside,
            is_node,
            latency: (start - launched, 0),
            before,
            gap: (lag(before), 0),
            other,
            other_gap: (lag(other), 0),
        }
    }

    /// Finds what a call waits for; whether the tool recorded it, or `None` where the call waits for nothing.
    fn wait(&self, call: &mut CallNode, process: ProcessId, own: &[OpNode]) -> Option<bool> {
        let trace = self.trace;
        let class = trace.calls.class.get(call.row as usize)?;
        let correlation = trace.calls.correlation[call.row as usize];
        let ended = |op: &OpNode| trace.ops.end[op.row as usize];
        let first_own = call.first_op;
        let wait = self.waits.get(&(process, correlation)).filter(|_| correlation != 0);
        let all = (Awaited::Process(process.index() as u32), *self.process_end.get(process.index())?);
        let of_op = |op: u32, end: Ns| (Awaited::Op(op), end);
        let (found, is_recorded) = match (wait.map(|wait| (wait.kind, *wait)), class) {
            (Some((WaitKind::Device, _)), _) => (Some(all), true),
            (Some((WaitKind::Stream, wait)), _) => {
                let stream = wait.stream.and_then(|stream| self.known_stream(process, wait, stream));
                let last = stream
                    .map(|stream| (stream, self.last_op[stream as usize]))
                    .filter(|last| last.1 != NONE);
                (last.map(|(stream, last)| (Awaited::Stream(stream), self.end_at(last))), true)
            }
            (Some((WaitKind::Event, wait)), _) => {
                let event = wait.event.and_then(|event| self.at_record.get(&(process, event.correlation)));
                (event.filter(|op| **op != NONE).map(|op| of_op(*op, self.end_at(*op))), true)
            }
            (None, CallClass::Sync) => {
                let last = self.ended.last(process, call.end).map(|op| self.position_of_op[op as usize]);
                let last = last.filter(|op| *op != NONE).map(|op| of_op(op, self.end_at(op)));
                (last.filter(|(_, end)| *end > call.start), false)
            }
            (_, CallClass::Copy) => {
                let pageable = |op: &OpNode| {
                    let memory = trace.ops.transfers.get(&op.row).map(|transfer| transfer.memory);
                    memory.is_none_or(|(from, to)| ![from, to].contains(&MemoryKind::Pinned))
                };
                let position = |at: usize| first_own + at as u32;
                let last = (0..own.len()).rev().find(|at| own[*at].inside && pageable(&own[*at]));
                (last.map(|at| of_op(position(at), ended(&own[at]))), false)
            }
            (_, CallClass::Memory) => {
                (Some(all).filter(|(_, end)| *end > call.start || self.frees(call)), false)
            }
            _ => (None, false),
        };
        let (awaited, end) = found.filter(|(_, end)| *end <= call.end)?;
        (call.awaited, call.awaited_ns) = (awaited, end);
        Some(is_recorded)
    }

    /// Tells whether a call gives memory back, which waits for all work.
    fn frees(&self, call: &CallNode) -> bool {
        let name =
            self.trace.calls.name.get(call.row as usize).map_or("", |name| self.trace.names.get(*name));
        name.contains("Free") && !["Async", "Host"].iter().any(|other| name.contains(other))
    }

    /// Returns the recorded end of the operation at a position.
    fn end_at(&self, position: u32) -> Ns {
        self.end_of_position.get(position as usize).copied().unwrap_or(Ns::MIN)
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
        let after = self.0.partition_point(|(own, end, _)| (*own, *end) <= (process, moment));
        self.0.get(after.checked_sub(1)?).filter(|last| last.0 == process).map(|last| last.2)
    }
}
