//! CPU activity: CUDA API calls and framework operators.

use super::order::{Order, by_start, columns};
use super::{NameId, Ns, ProcessId, ThreadId};
use roofgap_wire::MEMORY_CALLS;

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

/// A matrix product or an attention with the shapes of its inputs.
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
}
