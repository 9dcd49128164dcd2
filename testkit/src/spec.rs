//! Specification of a capture.

/// Recording of graph launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Graphs {
    /// No graphs.
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
    /// Number of kernels.
    pub kernels: u64,
    /// Number of processes. Each counts its correlation ids from 1.
    pub processes: u32,
    /// Number of GPUs.
    pub devices: u32,
    /// Number of streams per process and device.
    pub streams: u32,
    /// Method by which one decode step in four launches its work.
    pub graphs: Graphs,
    /// Number of kernels without a launch record; at most one per request.
    pub orphans: u64,
    /// True to write rows in random order.
    pub shuffled: bool,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Spec {
    /// Creates a specification of one process, device and stream, for benchmarks.
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

    /// Creates a specification with everything that makes attribution hard.
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
