//! The replay of a graph, as it was recorded or with changes: each thread and each stream has a clock.

use super::graph::{Awaited, CallNode, Graph, NONE, OpNode};
use roofgap_trace::{Ns, ProcessId, Trace};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;

/// Costs that can be owed at once: what does not fit into the time of a short call is taken off the time after it.
const MOST_OWED: Ns = 4;

/// Changes of the calls of a graph, and of their operations.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Calls to replay, by their positions.
    pub calls: Range<usize>,
    /// Operations of these calls.
    pub ops: Range<usize>,
    /// CPU time before each call, and time of the call if it waits for nothing, ns.
    pub before_ns: Vec<Ns>,
    pub own_ns: Vec<Ns>,
    /// The call waits for what it waited for.
    pub waits: Vec<bool>,
    /// The call is not made, and its operations do not run.
    pub gone: Vec<bool>,
    /// Call that launches each operation, time of the operation, ns, and whether it runs.
    pub call_of_op: Vec<u32>,
    pub op_ns: Vec<Ns>,
    pub op_gone: Vec<bool>,
    /// Operations that became nodes of a graph after another one, with the time after that.
    pub nodes: FxHashMap<u32, Ns>,
    /// Operations that became asynchronous: their launch has the usual latency.
    pub usual: FxHashMap<u32, ()>,
    /// Operations that run on a stream of their own.
    pub aside: FxHashMap<u32, ()>,
    /// Cost of each recorded event that is taken off, ns.
    pub cost_ns: Ns,
    /// Nothing waits for what was launched before: with a change that is over sooner, too.
    pub is_steady: bool,
    pub before: Arc<Before>,
}

/// What was launched before the calls of a plan, which goes on as recorded.
#[derive(Debug, Default)]
pub struct Before {
    /// End of the last call of each thread.
    clocks: Vec<Option<Ns>>,
    /// End of the last operation of each stream, and of all of each process.
    streams: Vec<Option<Ns>>,
    processes: Vec<Ns>,
}

impl Before {
    fn of(graph: &Graph<'_>, calls: usize, ops: usize) -> Self {
        let mut before = Self {
            clocks: vec![None; graph.clocks],
            streams: vec![None; graph.streams],
            processes: vec![Ns::MIN; graph.trace.processes.len().max(1)],
        };
        for op in &graph.ops[..ops] {
            let end = graph.op_end(op);
            before.streams[op.stream as usize] = Some(end);
            let process = graph.trace.ops.process[op.row as usize].index();
            before.processes.get_mut(process).into_iter().for_each(|latest| *latest = end.max(*latest));
        }
        for call in &graph.calls[..calls] {
            before.clocks[call.clock as usize] = Some(call.end);
        }
        before
    }
}

/// Times of a replay, by position from the first of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    pub calls: Vec<(Ns, Ns)>,
    pub ops: Vec<(Ns, Ns)>,
}

impl Plan {
    /// Returns a plan that changes nothing.
    pub fn of(graph: &Graph<'_>, calls: Range<usize>) -> Self {
        let ops = graph.ops_of(calls.start).start..graph.ops_of(calls.end).start;
        let own = &graph.calls[calls.clone()];
        let nodes = &graph.ops[ops.clone()];
        Self {
            before_ns: own.iter().map(|call| call.before_ns).collect(),
            own_ns: own.iter().map(|call| call.own_ns).collect(),
            waits: own.iter().map(|call| call.awaited != Awaited::Nothing).collect(),
            gone: vec![false; own.len()],
            call_of_op: nodes.iter().map(|op| op.call).collect(),
            op_ns: nodes.iter().map(|op| graph.op_end(op) - graph.op_start(op)).collect(),
            op_gone: vec![false; nodes.len()],
            nodes: FxHashMap::default(),
            usual: FxHashMap::default(),
            aside: FxHashMap::default(),
            cost_ns: 0,
            is_steady: false,
            before: Arc::new(Before::of(graph, calls.start, ops.start)),
            calls,
            ops,
        }
    }
}

/// The clock of a thread: its time, and the cost that is not taken off yet.
#[derive(Debug, Clone, Copy)]
struct Clock {
    at: Ns,
    owed: Ns,
}

impl Clock {
    /// Takes owed cost off a time.
    fn shorter(&mut self, ns: Ns) -> Ns {
        let taken = self.owed.min(ns.max(0));
        self.owed -= taken;
        ns - taken
    }
}

/// The state of a replay.
struct Replayer<'a> {
    graph: &'a Graph<'a>,
    plan: &'a Plan,
    clocks: Vec<Option<Clock>>,
    /// End of the last operation of each stream, and of all of each process; `None` before the first.
    streams: Vec<Option<Ns>>,
    processes: Vec<Ns>,
    /// End of the last operation aside, by stream.
    aside: FxHashMap<u32, Ns>,
    times: Times,
}

/// Replays the calls of a plan.
pub fn replay(graph: &Graph<'_>, plan: &Plan) -> Times {
    let mut replayer = Replayer::new(graph, plan);
    // The operations of a call in their order; those that another call launches now come with that one.
    let mut moved: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (op, call) in (plan.ops.start..).zip(&plan.call_of_op) {
        if graph.ops[op].call != *call {
            moved.entry(*call).or_default().push(op as u32);
        }
    }
    for call in plan.calls.clone() {
        replayer.call(call, moved.get(&(call as u32)).map_or(&[], Vec::as_slice));
    }
    replayer.times
}

impl<'a> Replayer<'a> {
    fn new(graph: &'a Graph<'a>, plan: &'a Plan) -> Self {
        let before = &*plan.before;
        let clock = |at: &Option<Ns>| at.map(|at| Clock { at, owed: 0 });
        Self {
            graph,
            plan,
            clocks: before.clocks.iter().map(clock).collect(),
            streams: if plan.is_steady { vec![None; graph.streams] } else { before.streams.clone() },
            processes: if plan.is_steady {
                vec![Ns::MIN; before.processes.len()]
            } else {
                before.processes.clone()
            },
            aside: FxHashMap::default(),
            times: Times {
                calls: Vec::with_capacity(plan.calls.len()),
                ops: vec![(Ns::MIN, Ns::MIN); plan.ops.len()],
            },
        }
    }

    fn call(&mut self, at: usize, moved: &[u32]) {
        let (graph, plan, local) = (self.graph, self.plan, at - self.plan.calls.start);
        let call = &graph.calls[at];
        let clock = self.clocks[call.clock as usize];
        let mut clock = clock.unwrap_or(Clock { at: Ns::MIN, owed: 0 });
        let most = MOST_OWED * plan.cost_ns;
        clock.owed = (clock.owed + plan.cost_ns * Ns::from(call.operators)).min(most);
        let before = clock.shorter(plan.before_ns[local]);
        let start = match call.follows {
            NONE if clock.at == Ns::MIN => call.start,
            NONE => clock.at + before,
            other => clock.at.max(self.call_end(other) + before),
        };
        let mut end = start;
        if plan.gone[local] {
            self.times.calls.push((start, start));
            clock.at = start;
            self.clocks[call.clock as usize] = Some(clock);
            return;
        }
        if call.row != NONE {
            clock.owed = (clock.owed + plan.cost_ns).min(most);
        }
        let own = graph.ops_of(at);
        let launched = (own.start as u32..own.end as u32)
            .filter(|op| plan.call_of_op[*op as usize - plan.ops.start] == at as u32);
        let is_inside = |op: &u32| graph.ops[*op as usize].inside && !plan.usual.contains_key(op);
        launched.clone().filter(is_inside).for_each(|op| self.op(op, (start, start)));
        let returned = plan.waits[local].then(|| self.awaited(call)).flatten();
        // What a call does that did not have to wait, it does after the wait.
        let own = if returned.is_some() && call.waited() { call.tail_ns } else { plan.own_ns[local] };
        end = returned.map_or(end, |awaited| end.max(awaited)) + clock.shorter(own);
        self.times.calls.push((start, end));
        clock.at = end;
        self.clocks[call.clock as usize] = Some(clock);
        launched.filter(|op| !is_inside(op)).for_each(|op| self.op(op, (start, end)));
        moved.iter().for_each(|op| self.op(*op, (start, end)));
    }

    fn call_end(&self, call: u32) -> Ns {
        let local = (call as usize).checked_sub(self.plan.calls.start);
        local.map_or_else(|| self.graph.calls[call as usize].end, |local| self.times.calls[local].1)
    }

    /// Returns the times of an operation; the least ones for one that does not run, or that steady steps do not wait for.
    fn op_times(&self, op: u32) -> (Ns, Ns) {
        let node = &self.graph.ops[op as usize];
        let local = (op as usize).checked_sub(self.plan.ops.start);
        let recorded = || match self.plan.is_steady {
            true => (Ns::MIN, Ns::MIN),
            false => (self.graph.op_start(node), self.graph.op_end(node)),
        };
        local.map_or_else(recorded, |local| self.times.ops[local])
    }

    /// Returns the time of what a call waits for.
    fn awaited(&self, call: &CallNode) -> Option<Ns> {
        let ns = match call.awaited {
            Awaited::Nothing => return None,
            Awaited::Process(process) => *self.processes.get(process as usize)?,
            Awaited::Stream(stream) => (*self.streams.get(stream as usize)?)?,
            Awaited::Op(op) => self.op_times(op).1,
            Awaited::Started(op) => self.op_times(op).0,
        };
        (ns > Ns::MIN).then_some(ns)
    }

    fn op(&mut self, op: u32, (start, end): (Ns, Ns)) {
        let (graph, plan) = (self.graph, self.plan);
        let local = op as usize - plan.ops.start;
        let moved = plan.call_of_op[local] != graph.ops[op as usize].call;
        let node = &graph.ops[op as usize];
        let aside = plan.aside.contains_key(&op);
        let last =
            if aside { self.aside.get(&node.stream).copied() } else { self.streams[node.stream as usize] };
        if plan.op_gone[local] || plan.gone[plan.call_of_op[local] as usize - plan.calls.start] {
            let at = last.unwrap_or(start);
            self.times.ops[local] = (at, at);
            return;
        }
        let is_usual = moved || aside || plan.usual.contains_key(&op);
        let begin = match plan.nodes.get(&op) {
            Some(gap) => last.map_or(start, |last| last.max(start) + gap),
            None => self.begin((node, aside), (start, end), last, is_usual),
        };
        let done = begin + plan.op_ns[local];
        self.times.ops[local] = (begin, done);
        match aside {
            true => drop(self.aside.insert(node.stream, done)),
            false => self.streams[node.stream as usize] = Some(last.map_or(done, |last| last.max(done))),
        }
        let process = graph.trace.ops.process[node.row as usize].index();
        self.processes.get_mut(process).into_iter().for_each(|latest| *latest = done.max(*latest));
    }

    /// Returns the start of an operation: what held it back holds it back as long as recorded, the rest as long as usual.
    fn begin(
        &self,
        (node, aside): (&OpNode, bool),
        (start, end): (Ns, Ns),
        last: Option<Ns>,
        is_usual: bool,
    ) -> Ns {
        let graph = self.graph;
        let call = &graph.calls[node.call as usize];
        let shorter = |ns: Ns| if node.is_node { ns - self.plan.cost_ns.min(ns.max(0)) } else { ns };
        let (launched, latency) = match (is_usual, node.inside) {
            (false, true) => (start, node.latency),
            (false, false) => (end, node.latency),
            (true, _) => (end, (graph.latency_ns, graph.latency_ns)),
        };
        let gap = if is_usual { (node.gap.1, node.gap.1) } else { node.gap };
        // Work aside is prepared a step earlier: nothing waits for it, and it waits for nothing.
        let waits = !aside && !self.plan.aside.contains_key(&node.other);
        let other = (node.other != NONE && waits).then(|| self.op_times(node.other).1);
        // What it starts after, the time of that, and the lag.
        let causes = [
            (node.other != NONE, other.filter(|end| *end > Ns::MIN), node.other_gap),
            (call.row != NONE || is_usual || node.before == NONE, Some(launched), latency),
            (node.before != NONE, last, (shorter(gap.0), shorter(gap.1))),
        ];
        let causes = causes.iter().filter(|cause| cause.0);
        // Where what held it back is no more, the others have their usual lags.
        let binding = causes.clone().map(|(_, _, (lag, least))| lag - least).min().unwrap_or(0);
        let mut found = false;
        let times = causes.filter_map(|(_, at, (lag, least))| {
            let binds = !found && lag - least == binding;
            found |= binds;
            Some((*at)? + if binds { *lag } else { *least })
        });
        times.max().unwrap_or(start)
    }
}

impl Times {
    /// Returns the trace with the times of a replay of all of it: operations, calls and ranges. The rest has no times, or is left out.
    pub fn trace(&self, graph: &Graph<'_>) -> Trace {
        let mut new = graph.trace.clone();
        (new.cpu_ops, new.stacks, new.modules) = Default::default();
        new.ranges.collectives.clear();
        for (node, (start, end)) in graph.ops.iter().zip(&self.ops) {
            (new.ops.start[node.row as usize], new.ops.end[node.row as usize]) = (*start, *end);
        }
        let clocks = Clocks::of(graph, self);
        for call in 0..new.calls.len() {
            let thread = new.calls.thread[call].index();
            let (start, end) = (&mut new.calls.start[call], &mut new.calls.end[call]);
            clocks.shift(thread, [start, end]);
        }
        for (node, (start, end)) in graph.calls.iter().zip(&self.calls).filter(|(node, _)| node.row != NONE) {
            (new.calls.start[node.row as usize], new.calls.end[node.row as usize]) = (*start, *end);
        }
        for range in &mut new.ranges.rows {
            let (first, last) = (range.thread.index(), range.end_thread.index());
            clocks.shift(clocks.of_thread(first, range.process), [&mut range.start]);
            clocks.shift(clocks.of_thread(last, range.process), [&mut range.end]);
            range.end = range.end.max(range.start);
        }
        for link in &mut new.backward {
            clocks.shift(link.thread.index(), [&mut link.start, &mut link.end]);
            clocks.shift(link.forward_thread.index(), [&mut link.forward_start, &mut link.forward_end]);
        }
        for recorded in &mut new.recorded {
            for (start, end) in recorded.windows.iter_mut().chain([&mut recorded.span]) {
                clocks.shift(clocks.of_thread(usize::MAX, recorded.process), [start, end]);
            }
        }
        new.sort();
        new
    }
}

/// Recorded and replayed times of the moments of each thread.
pub struct Clocks {
    of_thread: Vec<Vec<(Ns, Ns)>>,
    /// Thread of each process that makes most calls.
    main: Vec<usize>,
}

impl Clocks {
    /// Collects them from a replay of a whole graph.
    pub fn of(graph: &Graph<'_>, times: &Times) -> Self {
        let mut of_thread = vec![Vec::new(); graph.trace.threads.len()];
        for (call, (start, end)) in graph.calls.iter().zip(&times.calls).filter(|(call, _)| call.row != NONE)
        {
            of_thread[call.clock as usize].extend([(call.start, *start), (call.end, *end)]);
        }
        let threads = graph.trace.threads.iter().enumerate();
        let mut main = vec![usize::MAX; graph.trace.processes.len()];
        for (thread, row) in threads {
            let calls = |at: usize| of_thread.get(at).map_or(0, Vec::len);
            if let Some(main) = main.get_mut(row.process.index())
                && calls(thread) > calls(*main)
            {
                *main = thread;
            }
        }
        Self { of_thread, main }
    }

    /// Returns a thread, or the main one of its process if it makes no calls.
    pub fn of_thread(&self, thread: usize, process: ProcessId) -> usize {
        let calls = self.of_thread.get(thread).is_some_and(|clock| !clock.is_empty());
        if calls { thread } else { self.main.get(process.index()).copied().unwrap_or(usize::MAX) }
    }

    /// Returns the replayed time of a recorded moment of a thread.
    pub fn at(&self, thread: usize, moment: Ns) -> Ns {
        let clock = self.of_thread.get(thread).map_or(&[][..], Vec::as_slice);
        let after = clock.partition_point(|(recorded, _)| *recorded <= moment);
        let next = clock.get(after).map_or(Ns::MAX, |(_, replayed)| *replayed);
        match after.checked_sub(1).and_then(|at| clock.get(at)) {
            Some((recorded, replayed)) => (replayed + moment - recorded).min(next),
            None => moment,
        }
    }

    fn shift<const N: usize>(&self, thread: usize, times: [&mut Ns; N]) {
        times.into_iter().for_each(|time| *time = self.at(thread, *time));
    }
}
