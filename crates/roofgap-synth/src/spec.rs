//! Specification of a capture.

/// Recording of graph launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Graphs {
    /// The program uses none.
    #[default]
    None,
    /// Every kernel of a graph is recorded (`--cuda-graph-trace=node`).
    Nodes,
    /// A launch is recorded as one operation (`--cuda-graph-trace=graph`).
    Whole,
}

/// Specification of a capture.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Kernels in the capture, exactly.
    pub kernels: u64,
    /// Processes; all of them count their correlation ids from 1.
    pub processes: u32,
    /// GPUs.
    pub devices: u32,
    /// Streams of a process on a device.
    pub streams: u32,
    /// Method by which one decode step in four launches its work.
    pub graphs: Graphs,
    /// Kernels without a launch record, of the whole number; at most one a request.
    pub orphans: u64,
    /// True to write rows in random order.
    pub shuffled: bool,
    /// Another seed gives another capture.
    pub seed: u64,
}

impl Spec {
    /// One process, one device, one stream: what a benchmark reads.
    pub fn simple(kernels: u64) -> Self {
        Self {
            kernels,
            processes: 1,
            devices: 1,
            streams: 1,
            graphs: Graphs::None,
            orphans: 0,
            shuffled: false,
            seed: 1,
        }
    }

    /// Everything that makes attribution hard at once.
    pub fn tangled(kernels: u64) -> Self {
        Self {
            kernels,
            processes: 3,
            devices: 2,
            streams: 3,
            graphs: Graphs::Nodes,
            orphans: kernels / 1000,
            shuffled: true,
            seed: 2,
        }
    }
}
