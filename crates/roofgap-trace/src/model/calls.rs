//! CPU activity: CUDA API calls, operators of a framework, and NVTX ranges and marks of the program.

use super::order::{Order, by_start, columns};
use super::{Collective, NameId, Ns, ProcessId, ThreadId};
use roofgap_wire::MEMORY_CALLS;
use rustc_hash::FxHashMap;

/// Class of a CUDA API call, as the analysis needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallClass {
    /// Launches a kernel.
    Launch,
    /// Launches a graph.
    GraphLaunch,
    /// Starts or performs a copy.
    Copy,
    /// Starts a memory set.
    Set,
    /// Waits for the device.
    Sync,
    /// Takes or returns memory.
    Memory,
    /// Anything else.
    Other,
}

impl CallClass {
    /// Every class, in order.
    pub const ALL: [Self; 7] =
        [Self::Launch, Self::GraphLaunch, Self::Copy, Self::Set, Self::Sync, Self::Memory, Self::Other];

    /// Returns the class of a runtime or driver function by its name, with or without a version suffix.
    ///
    /// ```
    /// use roofgap_trace::CallClass;
    /// assert_eq!(CallClass::from_name("cudaLaunchKernel_v7000"), CallClass::Launch);
    /// assert_eq!(CallClass::from_name("__cudaLaunchKernel_v13000"), CallClass::Launch);
    /// assert_eq!(CallClass::from_name("cuStreamSynchronize"), CallClass::Sync);
    /// assert_eq!(CallClass::from_name("cudaGraphLaunch_v10000"), CallClass::GraphLaunch);
    /// assert_eq!(CallClass::from_name("hipExtModuleLaunchKernel"), CallClass::Launch);
    /// assert_eq!(CallClass::from_name("cudaGetDevice"), CallClass::Other);
    /// ```
    pub fn from_name(name: &str) -> Self {
        // Launches by the runtime carry two underscores in new versions.
        let name = name.trim_start_matches('_');
        // Traces of AMD devices call the same functions by another name.
        let base = ["cuda", "cu", "hipExtModule", "hipModule", "hipExt", "hip"]
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix))
            .unwrap_or(name);
        if base.starts_with("GraphLaunch") {
            Self::GraphLaunch
        } else if base.starts_with("Launch") && !base.starts_with("LaunchHostFunc") {
            Self::Launch
        } else if base.starts_with("Memcpy") {
            Self::Copy
        } else if base.starts_with("Memset") {
            Self::Set
        } else if base.contains("Synchronize") {
            Self::Sync
        } else if MEMORY_CALLS.iter().any(|begin| base.starts_with(begin)) {
            Self::Memory
        } else {
            Self::Other
        }
    }
}

/// One call, as a row to push or to look at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Call {
    /// When it was entered.
    pub start: Ns,
    /// When it returned.
    pub end: Ns,
    /// The function.
    pub name: NameId,
    /// Class.
    pub class: CallClass,
    /// The process.
    pub process: ProcessId,
    /// The thread.
    pub thread: ThreadId,
    /// Ties it to the operations it launched; 0 is none.
    pub correlation: u32,
}

/// Calls in columns, in the order of their start.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    /// When entered.
    pub start: Vec<Ns>,
    /// When returned.
    pub end: Vec<Ns>,
    /// Functions.
    pub name: Vec<NameId>,
    /// Classes.
    pub class: Vec<CallClass>,
    /// Processes.
    pub process: Vec<ProcessId>,
    /// Threads.
    pub thread: Vec<ThreadId>,
    /// Correlation ids; 0 is none.
    pub correlation: Vec<u32>,
}

columns!(Calls: Call, pub push, take; start, end, name, class, process, thread, correlation);

impl Calls {
    /// Puts the rows in the order of (start, end, thread, correlation).
    pub fn sort(&mut self) {
        let key = |i: usize| (self.end[i], self.thread[i], self.correlation[i]);
        let Some(order) = by_start(&self.start, |a, b| key(a).cmp(&key(b))) else {
            return;
        };
        self.take(&order);
    }
}

/// Operators of a framework (PyTorch), in columns, in the order of their start.
#[derive(Debug, Clone, Default)]
pub struct CpuOps {
    /// When entered.
    pub start: Vec<Ns>,
    /// When left.
    pub end: Vec<Ns>,
    /// Operator names.
    pub name: Vec<NameId>,
    /// Threads.
    pub thread: Vec<ThreadId>,
}

struct CpuOp {
    start: Ns,
    end: Ns,
    name: NameId,
    thread: ThreadId,
}

columns!(CpuOps: CpuOp, push_columns, take; start, end, name, thread);

impl CpuOps {
    /// Appends a row.
    pub fn push(&mut self, start: Ns, end: Ns, name: NameId, thread: ThreadId) {
        self.push_columns(CpuOp { start, end, name, thread });
    }

    /// Puts the rows in the order of (thread, start, longest first), which is the order of nesting.
    pub fn sort(&mut self) {
        let key = |i: usize| (self.thread[i], self.start[i], std::cmp::Reverse(self.end[i]));
        if (1..self.len()).all(|i| key(i - 1) <= key(i)) {
            return;
        }
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_by_key(|&i| key(i as usize));
        self.take(&Order::All(order));
    }
}

/// A backward operator and its forward operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackwardLink {
    /// The thread that ran the backward operator.
    pub thread: ThreadId,
    /// When it was entered.
    pub start: Ns,
    /// When it was left.
    pub end: Ns,
    /// The thread that ran the forward operator.
    pub forward_thread: ThreadId,
    /// When that was entered.
    pub forward_start: Ns,
    /// When that was left.
    pub forward_end: Ns,
}

/// A matrix product, attention, convolution or lookup of rows with the shapes of its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapedOperator {
    /// Thread that called it.
    pub thread: ThreadId,
    /// Start on the CPU.
    pub start: Ns,
    /// End on the CPU.
    pub end: Ns,
    /// Operator name.
    pub name: NameId,
    /// Shapes of the inputs as the profiler writes them, such as `[[8, 4096], [4096, 4096]]`.
    pub dims: NameId,
    /// Types of the inputs as the profiler writes them, such as `["c10::BFloat16", "c10::BFloat16"]`.
    pub types: NameId,
    /// Inputs that are no tensors as the profiler writes them, such as `["", "", "[1, 1]", "False"]`; empty where it does not.
    pub values: NameId,
}

/// Style of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RangeStyle {
    /// Pushed and popped on one thread.
    PushPop,
    /// Started and ended by handle, maybe on two threads.
    StartEnd,
}

/// One range of time that the program named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// When it was opened.
    pub start: Ns,
    /// When it was closed, or the end of the capture if it never was.
    pub end: Ns,
    /// Domain; the empty string is the default domain.
    pub domain: NameId,
    /// Name.
    pub name: NameId,
    /// The process.
    pub process: ProcessId,
    /// The thread that opened it.
    pub thread: ThreadId,
    /// The thread that closed it.
    pub end_thread: ThreadId,
    /// Style.
    pub style: RangeStyle,
    /// True if the range was still open when the capture ended.
    pub open: bool,
}

/// A moment that the program named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Ns,
    /// Domain; the empty string is the default domain.
    pub domain: NameId,
    /// Name.
    pub name: NameId,
    /// The thread.
    pub thread: ThreadId,
}

/// The collective that a range of the program performs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeCollective {
    /// Row of the range.
    pub row: u32,
    /// The collective.
    pub collective: Collective,
    /// True for a collective that runs on the CPU, without a kernel.
    pub on_host: bool,
    /// True if the range ends when the collective has ended.
    pub waits: bool,
}

/// All ranges, in the order of (start, longest first).
#[derive(Debug, Clone, Default)]
pub struct Ranges {
    /// The ranges.
    pub rows: Vec<Range>,
    /// The marks.
    pub marks: Vec<Mark>,
    /// Collectives of ranges, in the order of their rows.
    pub collectives: Vec<RangeCollective>,
}

impl Ranges {
    /// Puts ranges in the order of (start, longest first, thread) and marks in the order of time.
    pub fn sort(&mut self) {
        self.rows.sort_by_key(|r| (r.start, std::cmp::Reverse(r.end), r.thread));
        self.marks.sort_by_key(|m| (m.at, m.thread));
    }
}

/// The nodes of CUDA graphs, each with the names of the ranges around its creation.
#[derive(Debug, Clone, Default)]
pub struct GraphNodes {
    stacks: Vec<Vec<NameId>>,
    ids: FxHashMap<Vec<NameId>, u32>,
    of_node: FxHashMap<(ProcessId, u64), u32>,
}

impl GraphNodes {
    /// Most ranges around a node. Ranges inside that many are left out, so that ranges that stay open do not make the cost quadratic.
    pub(crate) const DEEPEST: usize = 128;

    /// Adds a node with the names of the ranges around its creation, outermost first.
    pub fn insert(&mut self, process: ProcessId, node: u64, ranges: &[NameId]) {
        let id = match self.ids.get(ranges) {
            Some(id) => *id,
            None => {
                let id = self.stacks.len() as u32;
                self.stacks.push(ranges.to_vec());
                self.ids.insert(ranges.to_vec(), id);
                id
            }
        };
        self.of_node.insert((process, node), id);
    }

    /// Returns the number of the stack of ranges around the creation of a node; `None` for a node whose creation was not recorded.
    pub fn stack_of(&self, process: ProcessId, node: u64) -> Option<usize> {
        self.of_node.get(&(process, node)).map(|id| *id as usize)
    }

    /// Returns the distinct stacks of range names, each outermost first.
    pub fn stacks(&self) -> &[Vec<NameId>] {
        &self.stacks
    }

    /// Returns true if no creation of a node was recorded.
    pub fn is_empty(&self) -> bool {
        self.of_node.is_empty()
    }
}
