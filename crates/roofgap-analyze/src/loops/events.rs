//! The sequence in which loops are looked for: what a program asked of the GPU, and where it waited, in the order of its calls.

use crate::attribution::NO_CALL;
use crate::result::CopyKind;
use crate::timeline::copy_kind;
use roofgap_trace::{CallClass, NameId, Ns, OpKind, ProcessId, ThreadId, Trace};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::ops::Range;

/// One launch with all its operations, one copy or one wait.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Event {
    /// Time of the call, ns; where launches are not known, that of the operation.
    pub start: Ns,
    pub end: Ns,
    /// Time of its operations, and the end of the last one; 0 without any.
    pub gpu_ns: Ns,
    pub gpu_end: Ns,
    pub operations: u32,
    pub thread: ThreadId,
    pub is_wait: bool,
    /// A kernel or a graph runs.
    pub computes: bool,
    /// Data goes to or from the host.
    pub is_exchange: bool,
    /// The graph that it launches, by its first node; 0 for none.
    pub graph: u64,
    /// Calls that take memory or load code since the event before, less those that give it back.
    pub taken: i32,
}

/// The events of the process that launches most.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub all: Vec<Event>,
    /// What each is, as a small number.
    pub tokens: Vec<u32>,
    /// The same without what grows with the input: grids, sizes of copies.
    pub coarse: Vec<u32>,
}

/// Operations of one call.
#[derive(Clone, Copy, Default)]
struct Launched {
    first: u32,
    operations: u32,
    gpu_ns: Ns,
    gpu_end: Ns,
    computes: bool,
}

/// Small numbers for what events are.
#[derive(Default)]
struct Tokens {
    numbers: FxHashMap<u64, u32>,
}

impl Tokens {
    fn number(&mut self, what: impl Hash) -> u32 {
        let mut hasher = FxHasher::default();
        what.hash(&mut hasher);
        let next = self.numbers.len() as u32;
        *self.numbers.entry(hasher.finish()).or_insert(next)
    }
}

/// Returns 1 for a call that takes memory or loads code, -1 for one that gives it back.
fn taken(name: &str) -> i32 {
    let has = |words: &[&str]| i32::from(words.iter().any(|word| name.contains(word)));
    match name.contains("Async") {
        true => 0,
        false => has(&["Malloc", "MemAlloc", "HostAlloc", "LoadData"]) - has(&["Free", "Unload"]),
    }
}

impl Events {
    /// Collects them. Where most operations have no launch, the operations stand for their calls.
    pub(super) fn of(trace: &Trace, call_of_op: &[u32]) -> Self {
        let linked = call_of_op.iter().filter(|call| **call != NO_CALL).count();
        let mut events = Self::default();
        let mut tokens = Tokens::default();
        if 2 * linked < trace.ops.len() {
            events.add_operations(trace, &mut tokens);
        } else {
            events.add_calls(trace, call_of_op, &mut tokens);
        }
        events
    }

    /// Tells whether the start of the program was recorded: it takes memory or loads code before it launches anything.
    pub(super) fn has_start(&self) -> bool {
        self.all.first().is_some_and(|first| first.taken > 0)
    }

    fn push(&mut self, event: Event, (token, coarse): (u32, u32)) {
        self.all.push(event);
        self.tokens.push(token);
        self.coarse.push(coarse);
    }

    fn add_operations(&mut self, trace: &Trace, tokens: &mut Tokens) {
        let ops = &trace.ops;
        let Some(busiest) = most(ops.process.iter().copied()) else { return };
        for op in (0..ops.len()).filter(|op| ops.process[*op] == busiest) {
            let launched = Launched {
                first: op as u32,
                operations: 1,
                gpu_ns: ops.duration(op),
                gpu_end: ops.end[op],
                computes: computes(ops.kind[op]),
            };
            let event = Event { start: ops.start[op], end: ops.end[op], ..of_work(trace, launched) };
            self.push(event, token(trace, launched, tokens));
        }
    }

    fn add_calls(&mut self, trace: &Trace, call_of_op: &[u32], tokens: &mut Tokens) {
        let (ops, calls) = (&trace.ops, &trace.calls);
        let mut launched = vec![Launched::default(); calls.len()];
        for (op, call) in call_of_op.iter().enumerate() {
            if let Some(sum) = launched.get_mut(*call as usize) {
                if sum.operations == 0 {
                    sum.first = op as u32;
                }
                sum.operations += 1;
                sum.computes |= computes(ops.kind[op]);
                sum.gpu_ns += ops.duration(op);
                sum.gpu_end = sum.gpu_end.max(ops.end[op]);
            }
        }
        // A record of calls alone has no operations; the names of its calls say what they launch.
        let alone = ops.is_empty();
        let launches = |call: usize| {
            launched[call].operations > 0
                || alone
                    && !matches!(calls.class[call], CallClass::Sync | CallClass::Memory | CallClass::Other)
        };
        let launching = (0..calls.len()).filter(|call| launches(*call));
        let Some(busiest) = most(launching.map(|call| calls.process[call])) else { return };
        let mut kinds: FxHashMap<NameId, (i32, u32)> = FxHashMap::default();
        let mut held = 0;
        for call in (0..calls.len()).filter(|call| calls.process[*call] == busiest) {
            let name = calls.name[call];
            let (takes, wait) = *kinds.entry(name).or_insert_with(|| {
                let name = trace.names.get(name);
                (taken(name), tokens.number(("call", name.split("_v").next())))
            });
            held += takes;
            let is_wait = calls.class[call] == CallClass::Sync;
            if !is_wait && !launches(call) {
                continue;
            }
            let known = if launched[call].operations > 0 {
                token(trace, launched[call], tokens)
            } else {
                (wait, wait)
            };
            let mut event = of_work(trace, launched[call]);
            (event.start, event.end) = (calls.start[call], calls.end[call]);
            (event.thread, event.is_wait) = (calls.thread[call], is_wait && event.operations == 0);
            event.computes |=
                alone && matches!(calls.class[call], CallClass::Launch | CallClass::GraphLaunch);
            event.is_exchange |= alone && calls.class[call] == CallClass::Copy;
            event.taken = std::mem::take(&mut held);
            self.push(event, known);
        }
    }
}

fn computes(kind: OpKind) -> bool {
    matches!(kind, OpKind::Kernel | OpKind::Graph)
}

fn of_work(trace: &Trace, launched: Launched) -> Event {
    let first = launched.first as usize;
    let copies = |name: &NameId| {
        matches!(copy_kind(trace.names.get(*name)), CopyKind::HostToDevice | CopyKind::DeviceToHost)
    };
    let is_exchange = match trace.ops.kind.get(first) {
        Some(OpKind::Copy) => trace.ops.name.get(first).is_some_and(copies),
        _ => false,
    };
    let graph = match launched.operations {
        0 => 0,
        _ => trace.ops.graph_node(first),
    };
    Event {
        gpu_ns: launched.gpu_ns,
        gpu_end: launched.gpu_end,
        operations: launched.operations,
        computes: launched.computes,
        is_exchange: is_exchange && launched.operations > 0,
        graph,
        ..Event::default()
    }
}

/// Returns what a launch is, with and without what grows with the input.
fn token(trace: &Trace, launched: Launched, tokens: &mut Tokens) -> (u32, u32) {
    let (ops, op) = (&trace.ops, launched.first as usize);
    let (kind, name, graph) = (ops.kind[op], ops.name[op], launched.operations > 1);
    let one = (kind, name, graph.then_some(launched.operations));
    match kind {
        OpKind::Kernel => {
            let shape = ops.shape_of(op);
            (tokens.number((one, shape.block, shape.grid)), tokens.number((one, shape.block)))
        }
        OpKind::Copy => {
            let bytes = ops.transfers.get(&(op as u32)).map_or(0, |transfer| transfer.bytes);
            (tokens.number((one, u64::BITS - bytes.leading_zeros())), tokens.number(one))
        }
        OpKind::Set | OpKind::Graph => {
            let number = tokens.number((kind, graph.then_some(launched.operations)));
            (number, number)
        }
    }
}

/// Returns the process that occurs most.
fn most(processes: impl Iterator<Item = ProcessId>) -> Option<ProcessId> {
    let mut counts: FxHashMap<ProcessId, u64> = FxHashMap::default();
    processes.for_each(|process| *counts.entry(process).or_default() += 1);
    counts.into_iter().max_by_key(|(process, count)| (*count, std::cmp::Reverse(*process))).map(|(id, _)| id)
}

/// Running sums of operations and of GPU time.
pub(super) struct Sums(Vec<(u64, Ns)>);

impl Events {
    pub(super) fn sums(&self) -> Sums {
        let mut sums = vec![(0, 0)];
        let (mut operations, mut gpu_ns) = (0, 0);
        for event in &self.all {
            operations += u64::from(event.operations.max(u32::from(!event.is_wait)));
            gpu_ns += event.gpu_ns;
            sums.push((operations, gpu_ns));
        }
        Sums(sums)
    }
}

impl Sums {
    /// Returns the parts of all operations and of the GPU time in ranges of events.
    pub(super) fn parts(&self, ranges: impl Iterator<Item = Range<usize>>) -> (f64, f64) {
        let (mut operations, mut gpu_ns) = (0, 0);
        for range in ranges {
            let ((from, begun), (to, ended)) = (self.0[range.start], self.0[range.end]);
            (operations, gpu_ns) = (operations + to - from, gpu_ns + ended - begun);
        }
        let (all, all_ns) = self.0.last().copied().unwrap_or_default();
        (operations as f64 / all.max(1) as f64, gpu_ns as f64 / all_ns.max(1) as f64)
    }

    pub(super) fn is_worth(&self, ranges: impl Iterator<Item = Range<usize>>, least: Ns) -> bool {
        let (operations, gpu) = self.parts(ranges);
        operations.max(gpu) * least as f64 >= 1.0
    }
}
