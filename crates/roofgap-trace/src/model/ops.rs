//! GPU operations.

use super::limits::MOST_BYTES;
use super::order::{Order, by_start, columns};
use super::{Collective, DeviceId, NameId, Ns, ProcessId};
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

/// Kind of a GPU operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum OpKind {
    /// A kernel, launched by itself or as a node of a graph.
    #[default]
    Kernel,
    /// A memory copy.
    Copy,
    /// A memory set.
    Set,
    /// A whole graph, where the tool recorded graphs and not their nodes.
    Graph,
}

impl OpKind {
    /// Returns the word in exports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Copy => "memcpy",
            Self::Set => "memset",
            Self::Graph => "graph",
        }
    }

    /// Returns the name of a copy of one of CUPTI's kinds.
    pub(crate) fn copy_name(kind: i64) -> &'static str {
        static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| include_str!("copies.txt").lines().collect());
        let at = usize::try_from(kind).ok().and_then(|kind| kind.checked_sub(1));
        at.and_then(|at| NAMES.get(at)).copied().unwrap_or("[CUDA memcpy]")
    }
}

/// Kind of memory of a copy, as far as the tool records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MemoryKind {
    /// Not said.
    #[default]
    Unknown,
    /// Host memory that the system may page out.
    Pageable,
    /// Host memory held in place.
    Pinned,
    /// Memory of a device, arrays included.
    Device,
    /// Managed memory.
    Managed,
}

id!(
    /// A position in `GpuOps::shapes`.
    ShapeId, u32
);

/// Launch configuration of a kernel. Equal launches share one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LaunchShape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Registers a thread.
    pub registers: u32,
    /// Static shared memory of a block, bytes.
    pub static_shared: u32,
    /// Dynamic shared memory of a block, bytes.
    pub dynamic_shared: u32,
}

impl LaunchShape {
    /// Largest number of blocks of a grid. A GPU that ends one each nanosecond runs it for a day and a half.
    pub(crate) const MOST_BLOCKS: u64 = 1 << 47;
    /// Largest number of threads of a block, above that of any GPU.
    pub(crate) const MOST_THREADS: u64 = 1 << 16;

    /// Tells whether a GPU can launch it, so that the product of blocks and threads cannot overflow.
    fn is_possible(&self) -> bool {
        is_within(self.grid, Self::MOST_BLOCKS) && is_within(self.block, Self::MOST_THREADS)
    }
}

/// Tells whether the product of dimensions is at most `most`.
pub(crate) fn is_within(dimensions: [u32; 3], most: u64) -> bool {
    dimensions.iter().map(|side| u128::from(*side)).product::<u128>() <= u128::from(most)
}

/// One operation, as a row to push or to look at.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GpuOp {
    /// Kind.
    pub kind: OpKind,
    /// First moment on the device.
    pub start: Ns,
    /// Last moment on the device.
    pub end: Ns,
    /// Kernel name, or what was copied or set.
    pub name: NameId,
    /// The device it ran on.
    pub device: DeviceId,
    /// The stream, as the tool numbers it.
    pub stream: u32,
    /// The process that launched it.
    pub process: ProcessId,
    /// Ties it to its launch call within the process; 0 is none.
    pub correlation: u32,
    /// Launch shape of a kernel.
    pub shape: ShapeId,
    /// Bytes of a copy or a set.
    pub bytes: u64,
    /// Node of a graph, or the id of a whole graph; 0 is none.
    pub graph_node: u64,
    /// Source and target memory of a copy.
    pub memory: (MemoryKind, MemoryKind),
}

/// GPU operations in columns, in the order of their start.
#[derive(Debug, Clone, Default)]
pub struct GpuOps {
    /// First moments.
    pub start: Vec<Ns>,
    /// Last moments.
    pub end: Vec<Ns>,
    /// Kinds.
    pub kind: Vec<OpKind>,
    /// Names.
    pub name: Vec<NameId>,
    /// Devices.
    pub device: Vec<DeviceId>,
    /// Streams.
    pub stream: Vec<u32>,
    /// Launching processes.
    pub process: Vec<ProcessId>,
    /// Correlation ids; 0 is none.
    pub correlation: Vec<u32>,
    /// Launch shapes.
    pub shape: Vec<ShapeId>,
    /// Graph nodes, and ids of whole graphs, up to the last row that has one; see [`GpuOps::graph_node`].
    pub graph_node: Vec<u64>,
    /// Bytes and memory kinds of copies and sets, by row: few rows have them.
    pub transfers: FxHashMap<u32, Transfer>,
    /// Collectives of communication kernels, by row, where the framework describes them.
    pub collectives: FxHashMap<u32, Collective>,
    /// The distinct launch shapes; the first stands for "none".
    pub shapes: Vec<LaunchShape>,
    shape_ids: FxHashMap<LaunchShape, ShapeId>,
}

/// Amount and memory kinds of a copy or set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transfer {
    /// Amount, bytes.
    pub bytes: u64,
    /// Source and target memory.
    pub memory: (MemoryKind, MemoryKind),
}

columns!(GpuOps: GpuOp, push_columns, take_columns; start, end, kind, name, device, stream, process, correlation, shape);

impl GpuOps {
    /// Returns the id of a launch shape, and adds it if it is new.
    pub fn intern_shape(&mut self, shape: LaunchShape) -> ShapeId {
        if self.shapes.is_empty() {
            self.shapes.push(LaunchShape::default());
            self.shape_ids.insert(LaunchShape::default(), ShapeId(0));
        }
        let next = ShapeId(self.shapes.len() as u32);
        let id = *self.shape_ids.entry(shape).or_insert(next);
        if id == next {
            self.shapes.push(shape);
        }
        id
    }

    /// Returns the launch shape of a row; zeros if it has none.
    pub fn shape_of(&self, row: usize) -> LaunchShape {
        self.shape.get(row).and_then(|id| self.shapes.get(id.index())).copied().unwrap_or_default()
    }

    /// Appends a row.
    pub fn push(&mut self, op: GpuOp) {
        if op.bytes != 0 || op.memory != Default::default() {
            let row = self.start.len() as u32;
            self.transfers.insert(row, Transfer { bytes: op.bytes, memory: op.memory });
        }
        if op.graph_node != 0 {
            self.graph_node.resize(self.start.len(), 0);
            self.graph_node.push(op.graph_node);
        }
        self.push_columns(op);
    }

    /// Returns the graph node of a row, or the id of a whole graph; 0 is none.
    #[inline]
    pub fn graph_node(&self, row: usize) -> u64 {
        self.graph_node.get(row).copied().unwrap_or(0)
    }

    /// Returns the duration of a row, ns.
    #[inline]
    pub fn duration(&self, row: usize) -> Ns {
        self.end[row] - self.start[row]
    }

    /// Puts the rows in the order of (start, end, device, stream, correlation), so that equal inputs in another row order give
    /// equal traces.
    pub fn sort(&mut self) {
        let key = |i: usize| (self.end[i], self.device[i], self.stream[i], self.correlation[i], self.name[i]);
        let Some(order) = by_start(&self.start, |a, b| key(a).cmp(&key(b))) else {
            return;
        };
        self.take(&order);
    }

    /// Takes away launch shapes and sizes that cannot be; returns the number of rows that had one.
    pub(super) fn limit_values(&mut self) -> u64 {
        let impossible: Vec<bool> = self.shapes.iter().map(|shape| !shape.is_possible()).collect();
        let mut lost = 0;
        if impossible.contains(&true) {
            let has_one = |id: &&ShapeId| impossible.get(id.index()).copied().unwrap_or(false);
            lost += self.shape.iter().filter(has_one).count();
            for shape in self.shapes.iter_mut().filter(|shape| !shape.is_possible()) {
                *shape = LaunchShape::default();
            }
        }
        for transfer in self.transfers.values_mut().filter(|transfer| transfer.bytes > MOST_BYTES) {
            transfer.bytes = 0;
            lost += 1;
        }
        lost += self.collectives.values_mut().map(Collective::limit_values).filter(|lost| *lost).count();
        lost as u64
    }

    /// Keeps the given rows, in the given order.
    pub(crate) fn keep_rows(&mut self, rows: Vec<u32>) {
        self.take(&Order::All(rows));
    }

    /// Keeps the rows of `order`, in that order.
    pub(super) fn take(&mut self, order: &Order) {
        // Most traces have no graph node at all.
        if !self.graph_node.is_empty() {
            self.graph_node.resize(self.start.len(), 0);
            order.apply(&mut self.graph_node);
        }
        self.take_columns(order);
        self.transfers = order.renumber(&self.transfers);
        self.collectives = order.renumber(&self.collectives);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graph_nodes_stay_with_their_rows() {
        let mut ops = GpuOps::default();
        for (start, graph_node) in [(30, 0), (20, 7), (40, 0), (10, 9), (50, 0)] {
            ops.push(GpuOp {
                kind: OpKind::Kernel,
                start,
                end: start + 1,
                name: NameId(0),
                device: DeviceId(0),
                stream: 0,
                process: ProcessId(0),
                correlation: 0,
                shape: ShapeId(0),
                bytes: 0,
                graph_node,
                memory: Default::default(),
            });
        }
        let nodes = |ops: &GpuOps| (0..ops.len()).map(|row| ops.graph_node(row)).collect::<Vec<_>>();
        assert_eq!(nodes(&ops), [0, 7, 0, 9, 0]);
        ops.sort();
        assert_eq!((ops.start.as_slice(), nodes(&ops)), (&[10, 20, 30, 40, 50][..], vec![9, 7, 0, 0, 0]));
        ops.keep_rows(vec![4, 1]);
        assert_eq!(nodes(&ops), [0, 7]);
    }
}
