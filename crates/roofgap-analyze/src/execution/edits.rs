//! Edits: changes of a program, and what they do to the calls and operations of its graph.

use super::graph::{Awaited, Graph, NONE};
use super::replay::Plan;
use super::window::Window;
use crate::gpu::{CopyLinks, UserLimits};
use crate::names::{Family, family, on_cuda_cores};
use crate::result::CopyKind;
use crate::timeline::{LONG_WORK_NS, copy_kind};
use roofgap_base::stats::median;
use roofgap_trace::{CallClass, MemoryKind, NameId, Ns, OpKind};
use rustc_hash::FxHashMap;
use std::fmt;
use std::str::FromStr;

/// CPU time of the launch of a graph, ns, and time from one of its nodes to the next. Measured on an H200: 5 us, and 0.26 to 0.64 us.
const GRAPH_LAUNCH_NS: Ns = 5_000;
const NODE_GAP_NS: Ns = 450;

/// CPU time of a call of compiled code, ns. Measured on an H200: 50 to 75 us.
const COMPILED_CALL_NS: Ns = 62_500;

/// Part of the rate of the link that copies from pinned memory reach. Measured on an H200: 55 of 63 GB/s.
const PINNED: f64 = 0.87;

/// Families of kernels that a compiler can fold into one another.
pub const LIGHT: [Family; 6] = [
    Family::Elementwise,
    Family::CopyLayout,
    Family::Reduction,
    Family::Norm,
    Family::Softmax,
    Family::Quantization,
];

/// A change of a program, which a replay can try.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// The launches of a step become launches of CUDA graphs, one between two waits.
    Graph,
    /// The CPU does not wait for the GPU in steps, and does not read what it waits for.
    NoWait,
    /// Host calls, and the CPU time between them, take so many times as long.
    Host(f64),
    /// Work of the CPU of a millisecond and more between calls goes, or moves to another thread.
    NoOtherWork,
    /// The CPU works before the first launch of a step as long as between others.
    EarlyStart,
    /// Kernels whose name holds a text take so many times as long.
    Kernels(String, f64),
    /// Matrix products on the CUDA cores take so many times as long.
    Products(f64),
    /// Copies between host and device run beside the kernels, from pinned memory.
    OverlapCopies,
    /// Memory is neither allocated nor freed in steps.
    NoAllocations,
    /// Chains of light kernels become one kernel each.
    Fuse,
    /// The kernels between the two products of attention go.
    FuseAttention,
}

impl Edit {
    /// Tells whether it gives kernels a time that nobody has measured.
    pub fn is_modelled(&self) -> bool {
        matches!(self, Self::Kernels(..) | Self::Products(_) | Self::Fuse | Self::FuseAttention)
    }
}

/// A text that is no edit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown edit '{0}'; edits are {EDITS}")]
pub struct UnknownEdit(String);

/// The edits, as they are written.
pub const EDITS: &str = "graph, no-wait, host=FACTOR, no-other-work, early-start, kernel:NAME=SPEEDUPx, products=SPEEDUPx, overlap-copies, no-allocations, fuse, fuse-attention";

impl FromStr for Edit {
    type Err = UnknownEdit;

    fn from_str(text: &str) -> Result<Self, UnknownEdit> {
        let unknown = || UnknownEdit(text.to_owned());
        // Larger ones would overflow the times of a capture.
        let factor = |text: &str| text.parse::<f64>().ok().filter(|factor| (0.0..=1e3).contains(factor));
        let speedup = |text: &str| factor(text.strip_suffix('x')?).filter(|times| *times >= 1e-3);
        match text {
            "graph" => Ok(Self::Graph),
            "no-wait" => Ok(Self::NoWait),
            "no-other-work" => Ok(Self::NoOtherWork),
            "early-start" => Ok(Self::EarlyStart),
            "overlap-copies" => Ok(Self::OverlapCopies),
            "no-allocations" => Ok(Self::NoAllocations),
            "fuse" => Ok(Self::Fuse),
            "fuse-attention" => Ok(Self::FuseAttention),
            _ => match text.rsplit_once('=') {
                Some(("host", times)) => factor(times).map(Self::Host),
                Some(("products", times)) => speedup(times).map(|times| Self::Products(1.0 / times)),
                Some((kernel, times)) => kernel.strip_prefix("kernel:").and_then(|name| {
                    let times = speedup(times)?;
                    (!name.is_empty()).then(|| Self::Kernels(name.to_owned(), 1.0 / times))
                }),
                None => None,
            }
            .ok_or_else(unknown),
        }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Graph => out.write_str("graph"),
            Self::NoWait => out.write_str("no-wait"),
            Self::Host(factor) => write!(out, "host={factor}"),
            Self::NoOtherWork => out.write_str("no-other-work"),
            Self::EarlyStart => out.write_str("early-start"),
            Self::Kernels(name, factor) => write!(out, "kernel:{name}={}x", (100.0 / factor).round() / 100.0),
            Self::Products(factor) => write!(out, "products={}x", (100.0 / factor).round() / 100.0),
            Self::OverlapCopies => out.write_str("overlap-copies"),
            Self::NoAllocations => out.write_str("no-allocations"),
            Self::Fuse => out.write_str("fuse"),
            Self::FuseAttention => out.write_str("fuse-attention"),
        }
    }
}

/// Applies edits to the plan of a window.
pub struct Editor<'a> {
    graph: &'a Graph<'a>,
    window: &'a Window,
    pub plan: Plan,
    families: FxHashMap<NameId, Family>,
    /// Usual time of a launch call, ns.
    launch_ns: Ns,
}

impl<'a> Editor<'a> {
    pub fn new(graph: &'a Graph<'a>, window: &'a Window, plan: Plan) -> Self {
        let launches =
            graph.calls[plan.calls.clone()].iter().filter(|call| graph.class(call) == CallClass::Launch);
        let launch_ns = median(&mut launches.map(|call| call.own_ns).collect::<Vec<_>>()).unwrap_or(0);
        Self { graph, window, plan, families: FxHashMap::default(), launch_ns }
    }

    /// Applies one edit, and tells whether it changes anything.
    pub fn apply(&mut self, edit: &Edit) -> bool {
        match edit {
            Edit::Graph => self.graphs(),
            Edit::NoWait => self.no_waits(),
            Edit::Host(factor) => self.scale_host(*factor),
            Edit::NoOtherWork => self.no_other_work(),
            Edit::EarlyStart => self.start_early(),
            Edit::Kernels(name, factor) => self.scale_kernels(|kernel| kernel.contains(name), *factor),
            Edit::Products(factor) => self.scale_kernels(on_cuda_cores, *factor),
            Edit::OverlapCopies => self.overlap_copies(),
            Edit::NoAllocations => self.no_allocations(),
            Edit::Fuse => self.fuse(false),
            Edit::FuseAttention => self.fuse(true),
        }
    }

    /// Iterates over the calls of the window that are made: position in the plan, and in the graph.
    fn calls(&self) -> Vec<(usize, usize)> {
        let made = |(local, _): &(usize, usize)| !self.plan.gone[*local];
        self.plan.calls.clone().enumerate().filter(made).collect()
    }

    /// Tells whether the thread is held back by a call.
    fn waits(&self, local: usize, call: usize) -> bool {
        self.plan.waits[local] && self.graph.calls[call].waited()
    }

    /// Drops a call with its operations, and the CPU time before it. Long work is not for the call, and stays.
    fn drop_call(&mut self, local: usize) {
        self.plan.gone[local] = true;
        if self.plan.before_ns[local] < LONG_WORK_NS {
            self.plan.before_ns[local] = 0;
        }
    }

    fn graphs(&mut self) -> bool {
        let graph = self.graph;
        // Pieces of each thread: calls that become one launch, until something that a graph cannot hold.
        let mut open: FxHashMap<u32, Vec<(usize, usize)>> = FxHashMap::default();
        let mut pieces = Vec::new();
        let mut step = self.window.starts.iter().copied().peekable();
        for (local, at) in self.calls() {
            let call = &graph.calls[at];
            let mut begins = false;
            while step.next_if(|start| *start <= call.start).is_some() {
                begins = true;
            }
            if begins {
                pieces.extend(open.drain().map(|(_, piece)| piece));
            }
            let piece = open.entry(call.clock).or_default();
            let is_long = self.plan.before_ns[local] >= LONG_WORK_NS && call.follows == NONE;
            let stays = self.waits(local, at)
                || matches!(graph.class(call), CallClass::Sync | CallClass::GraphLaunch);
            if is_long || stays {
                pieces.push(std::mem::take(piece));
            }
            if !stays {
                piece.push((local, at));
            }
        }
        pieces.extend(open.into_values());
        let mut changed = false;
        for piece in pieces {
            let launches = |(_, at): &&(usize, usize)| !graph.ops_of(*at).is_empty();
            let Some(&(first, first_at)) = piece.iter().find(launches) else { continue };
            if piece.iter().filter(launches).count() < 2 {
                continue;
            }
            changed = true;
            self.plan.own_ns[first] = GRAPH_LAUNCH_NS.min(self.plan.own_ns[first]);
            let mut is_first = true;
            for (local, at) in piece {
                let launching = !graph.ops_of(at).is_empty();
                for op in graph.ops_of(at) {
                    let own = op - self.plan.ops.start;
                    self.plan.call_of_op[own] = first_at as u32;
                    if !is_first {
                        self.plan.nodes.insert(op as u32, NODE_GAP_NS);
                    }
                    is_first = false;
                }
                // What is done before the first launch stays.
                if local > first || launching && local != first {
                    self.drop_call(local);
                }
            }
        }
        changed
    }

    /// Lets a call return as soon as if it had waited for nothing, and its operations run when they can.
    fn no_wait(&mut self, local: usize, at: usize) {
        self.plan.waits[local] = false;
        self.plan.usual.extend(self.graph.ops_of(at).map(|op| (op as u32, ())));
    }

    /// Drops the waits of steps, with the copies to the host that they wait for: nobody reads the values.
    fn no_waits(&mut self) -> bool {
        let graph = self.graph;
        let mut changed = false;
        for (local, at) in self.calls() {
            let call = &graph.calls[at];
            if graph.class(call) != CallClass::Sync {
                continue;
            }
            changed = true;
            let awaited = match call.awaited {
                _ if !self.waits(local, at) => None,
                Awaited::Op(op) if self.plan.ops.contains(&(op as usize)) => Some(op as usize),
                Awaited::Stream(_) | Awaited::Process(_) => graph.ops_of(at).start.checked_sub(1),
                _ => None,
            };
            let read = awaited.filter(|op| self.host_copy(*op) == Some(CopyKind::DeviceToHost));
            let copy =
                read.map(|op| graph.ops[op].call as usize).filter(|call| self.plan.calls.contains(call));
            if let Some(copy) = copy {
                self.drop_call(copy - self.plan.calls.start);
            }
            self.drop_call(local);
        }
        changed
    }

    /// Returns the direction of a copy between host and device; `None` for another operation.
    fn host_copy(&self, op: usize) -> Option<CopyKind> {
        let trace = self.graph.trace;
        let row = self.graph.ops[op].row as usize;
        let kind = || copy_kind(trace.names.get(trace.ops.name[row]));
        let is_copy = trace.ops.kind[row] == OpKind::Copy;
        is_copy.then(kind).filter(|kind| matches!(kind, CopyKind::HostToDevice | CopyKind::DeviceToHost))
    }

    fn scale_host(&mut self, factor: f64) -> bool {
        let scaled = |ns: &mut Ns| *ns = (*ns as f64 * factor).round() as Ns;
        for (local, _) in self.calls() {
            scaled(&mut self.plan.before_ns[local]);
            scaled(&mut self.plan.own_ns[local]);
        }
        factor != 1.0
    }

    fn no_other_work(&mut self) -> bool {
        let mut changed = false;
        for (local, at) in self.calls() {
            if self.plan.before_ns[local] >= LONG_WORK_NS && self.graph.calls[at].follows == NONE {
                self.plan.before_ns[local] = 0;
                changed = true;
            }
        }
        changed
    }

    /// Shortens the CPU time before the first launch of each step to the usual one.
    fn start_early(&mut self) -> bool {
        let usual = median(&mut self.plan.before_ns.clone()).unwrap_or(0);
        let calls = &self.graph.calls;
        let mut changed = false;
        for start in self.window.starts.iter().copied() {
            let first = self.plan.calls.clone().find(|at| calls[*at].start >= start);
            if let Some(before) = first.and_then(|at| self.plan.before_ns.get_mut(at - self.plan.calls.start))
            {
                changed |= *before > usual;
                *before = usual.min(*before);
            }
        }
        changed
    }

    fn scale_kernels(&mut self, chosen: impl Fn(&str) -> bool, factor: f64) -> bool {
        let (graph, names) = (self.graph, &self.graph.trace.names);
        let mut known: FxHashMap<NameId, bool> = FxHashMap::default();
        let mut changed = false;
        for (local, op) in self.plan.ops.clone().enumerate() {
            let row = graph.ops[op].row as usize;
            let id = graph.trace.ops.name[row];
            let matches = graph.trace.ops.kind[row] == OpKind::Kernel
                && *known.entry(id).or_insert_with(|| chosen(names.get(id)));
            if matches {
                self.plan.op_ns[local] = (self.plan.op_ns[local] as f64 * factor).round() as Ns;
                changed = true;
            }
        }
        changed
    }

    fn overlap_copies(&mut self) -> bool {
        let graph = self.graph;
        let mut changed = false;
        for (local, at) in self.calls() {
            let copies: Vec<usize> = graph.ops_of(at).filter(|op| self.host_copy(*op).is_some()).collect();
            if !copies.is_empty() {
                changed = true;
                self.no_wait(local, at);
                for op in &copies {
                    self.pin(local, *op);
                }
                self.plan.aside.extend(copies.into_iter().map(|op| (op as u32, ())));
            }
        }
        changed
    }

    /// Copies from pinned memory: the call returns like a launch, and the copy takes the rate of the link.
    fn pin(&mut self, local: usize, op: usize) {
        let (graph, trace) = (self.graph, self.graph.trace);
        let row = graph.ops[op].row;
        let Some(transfer) = trace.ops.transfers.get(&row) else { return };
        if ![transfer.memory.0, transfer.memory.1].contains(&MemoryKind::Pageable) {
            return;
        }
        self.plan.own_ns[local] = self.plan.own_ns[local].min(self.launch_ns);
        let device = trace.devices.get(trace.ops.device[row as usize].index());
        let links = device.map(|device| CopyLinks::on_device(device, UserLimits::default()));
        let link = self.host_copy(op).zip(links).and_then(|(kind, links)| links.peak(kind));
        if let Some(link) = link {
            let ns = (transfer.bytes as f64 * 1e9 / (PINNED * link.bytes_per_s)) as Ns;
            let own = &mut self.plan.op_ns[op - self.plan.ops.start];
            *own = ns.min(*own);
        }
    }

    fn no_allocations(&mut self) -> bool {
        let is_memory = |at: usize| self.graph.class(&self.graph.calls[at]) == CallClass::Memory;
        let list: Vec<_> = self.calls().into_iter().filter(|(_, at)| is_memory(*at)).collect();
        list.iter().for_each(|(local, _)| self.drop_call(*local));
        !list.is_empty()
    }

    fn family(&mut self, op: usize) -> Option<Family> {
        let trace = self.graph.trace;
        let row = self.graph.ops[op].row as usize;
        let id = trace.ops.name[row];
        let is_kernel = trace.ops.kind[row] == OpKind::Kernel;
        is_kernel.then(|| *self.families.entry(id).or_insert_with(|| family(trace.names.get(id))))
    }

    /// Folds chains of light kernels that follow one another on a stream into their longest; for attention, the chains around a softmax
    /// between two products into those.
    fn fuse(&mut self, attention: bool) -> bool {
        let mut chains: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        let mut done: Vec<Vec<usize>> = Vec::new();
        for op in self.plan.ops.clone() {
            let stream = self.graph.ops[op].stream;
            // Copies and sets between kernels do not part them.
            let Some(family) = self.family(op) else { continue };
            let chain = chains.entry(stream).or_default();
            if LIGHT.contains(&family) {
                chain.push(op);
                continue;
            }
            let chain = std::mem::take(chain);
            // A product ends the chain of attention.
            if !attention || matches!(family, Family::Gemm | Family::Gemv) {
                done.push(chain);
            }
        }
        if !attention {
            done.extend(chains.into_values());
        }
        let mut changed = false;
        for chain in done {
            let has_softmax = chain.iter().any(|op| self.family(*op) == Some(Family::Softmax));
            if attention != has_softmax || chain.len() < 2 && !attention {
                continue;
            }
            let longest = match attention {
                true => None,
                false => chain.iter().copied().max_by_key(|op| self.plan.op_ns[op - self.plan.ops.start]),
            };
            for op in chain.into_iter().filter(|op| Some(*op) != longest) {
                changed = true;
                self.plan.op_gone[op - self.plan.ops.start] = true;
                let call = self.graph.ops[op].call as usize;
                // A call of one operation goes with it; a graph only loses a node.
                if self.graph.ops_of(call).len() == 1 && self.window.calls.contains(&call) {
                    self.drop_call(call - self.plan.calls.start);
                }
            }
        }
        if changed && !attention {
            self.add_compiled_calls();
        }
        changed
    }

    /// Adds the CPU time of compiled code to the first call of each step.
    fn add_compiled_calls(&mut self) {
        let calls = &self.graph.calls;
        for start in self.window.starts.iter().copied() {
            let first = self.plan.calls.clone().find(|at| calls[*at].start >= start);
            if let Some(before) = first.and_then(|at| self.plan.before_ns.get_mut(at - self.plan.calls.start))
            {
                *before += COMPILED_CALL_NS;
            }
        }
    }
}
