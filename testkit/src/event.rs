//! Events as a profiler records them.

/// A kernel that ran.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kernel {
    /// Start, ns.
    pub start: i64,
    /// End, ns.
    pub end: i64,
    /// Graph node id; 0 for none.
    pub node: u64,
    /// Correlation id within the process.
    pub correlation: u32,
    /// Number of the kernel in the program.
    pub number: u32,
    /// Position among the kernel names.
    pub name: u16,
    /// Process, counted from 0.
    pub process: u16,
    /// Device, counted from 0.
    pub device: u16,
    /// Stream, as CUDA numbers it.
    pub stream: u16,
}

/// Direction of a copy, or another kind of operation that is not a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferKind {
    /// Copy from host to device.
    ToDevice,
    /// Copy from device to host.
    ToHost,
    /// Memory set.
    Set,
    /// Graph launch recorded as a whole.
    Graph,
}

/// A GPU operation that is not a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// Kind.
    pub kind: TransferKind,
    /// Start, ns.
    pub start: i64,
    /// End, ns.
    pub end: i64,
    /// Amount, bytes; 0 for a graph.
    pub bytes: u64,
    /// Correlation id of the call.
    pub correlation: u32,
    /// Process, counted from 0.
    pub process: u16,
    /// Device, counted from 0.
    pub device: u16,
    /// Stream.
    pub stream: u16,
}

/// Kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// Launches a kernel.
    Launch,
    /// Launches a kernel through the driver.
    DriverLaunch,
    /// Launches a graph.
    GraphLaunch,
    /// Starts a copy.
    Copy,
    /// Starts a set.
    Set,
    /// Waits for the device.
    Synchronize,
    /// Queries a state.
    Query,
}

impl CallKind {
    /// Returns the function name of nsys.
    pub(crate) fn versioned(self) -> &'static str {
        match self {
            Self::Launch => "cudaLaunchKernel_v7000",
            Self::DriverLaunch => "cuLaunchKernelEx",
            Self::GraphLaunch => "cudaGraphLaunch_v10000",
            Self::Copy => "cudaMemcpyAsync_v3020",
            Self::Set => "cudaMemsetAsync_v3020",
            Self::Synchronize => "cudaStreamSynchronize_v3020",
            Self::Query => "cudaStreamIsCapturing_v10000",
        }
    }

    /// Returns the function name of Kineto.
    pub(crate) fn name(self) -> &'static str {
        let versioned = self.versioned();
        versioned.split_once("_v").map_or(versioned, |(name, _)| name)
    }

    /// All kinds in order of declaration.
    pub(crate) const ALL: [Self; 7] = [
        Self::Launch,
        Self::DriverLaunch,
        Self::GraphLaunch,
        Self::Copy,
        Self::Set,
        Self::Synchronize,
        Self::Query,
    ];
}

/// A CUDA API call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Call {
    /// Start, ns.
    pub start: i64,
    /// End, ns.
    pub end: i64,
    /// Kind.
    pub kind: CallKind,
    /// Correlation id.
    pub correlation: u32,
    /// Process, counted from 0.
    pub process: u16,
    /// Thread of the process, counted from 0.
    pub thread: u16,
}

/// An NVTX range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Start, ns.
    pub start: i64,
    /// End, ns.
    pub end: i64,
    /// True for domain `LLM` with a registered name, false for the default domain.
    pub llm: bool,
    /// Name.
    pub name: &'static str,
    /// Span of its kernels on the first stream of the first device, ns; Kineto shows the range there too.
    pub gpu: Option<(i64, i64)>,
    /// Process, counted from 0.
    pub process: u16,
    /// Thread of the process, counted from 0.
    pub thread: u16,
}

/// All events of a program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Events {
    /// Kernels.
    pub kernels: Vec<Kernel>,
    /// Copies.
    pub copies: Vec<Transfer>,
    /// Sets.
    pub sets: Vec<Transfer>,
    /// Graph launches recorded as a whole.
    pub graphs: Vec<Transfer>,
    /// Calls.
    pub calls: Vec<Call>,
    /// Ranges.
    pub ranges: Vec<Range>,
}
