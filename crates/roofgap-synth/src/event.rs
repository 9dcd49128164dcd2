//! Events as a profiler records them.

/// A kernel that ran.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kernel {
    /// First moment on the device, ns.
    pub start: i64,
    /// Last moment on the device, ns.
    pub end: i64,
    /// Node of a graph; 0 is none.
    pub node: u64,
    /// Ties it to its launch within its process.
    pub correlation: u32,
    /// Counts the kernels of the program.
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

/// A memory copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Copy {
    /// First moment, ns.
    pub start: i64,
    /// Last moment, ns.
    pub end: i64,
    /// Amount, bytes.
    pub bytes: u64,
    /// True from host to device, false from device to host.
    pub to_device: bool,
    /// Ties it to its call.
    pub correlation: u32,
    /// Process, counted from 0.
    pub process: u16,
    /// Device, counted from 0.
    pub device: u16,
    /// Stream.
    pub stream: u16,
}

/// A memory set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Set {
    /// First moment, ns.
    pub start: i64,
    /// Last moment, ns.
    pub end: i64,
    /// Amount, bytes.
    pub bytes: u64,
    /// Ties it to its call.
    pub correlation: u32,
    /// Process, counted from 0.
    pub process: u16,
    /// Device, counted from 0.
    pub device: u16,
    /// Stream.
    pub stream: u16,
}

/// A whole graph that ran.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Graph {
    /// First moment, ns.
    pub start: i64,
    /// Last moment, ns.
    pub end: i64,
    /// Ties it to its call.
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
    /// Asks something.
    Query,
}

impl CallKind {
    /// The function, as nsys names it.
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

    /// The function, as Kineto names it.
    pub(crate) fn name(self) -> &'static str {
        let versioned = self.versioned();
        versioned.split_once("_v").map_or(versioned, |(name, _)| name)
    }

    /// Every kind, in the order of their declaration.
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

/// A call into CUDA.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Call {
    /// When it was entered, ns.
    pub start: i64,
    /// When it returned, ns.
    pub end: i64,
    /// Kind.
    pub kind: CallKind,
    /// Ties it to what it launched.
    pub correlation: u32,
    /// Process, counted from 0.
    pub process: u16,
    /// Thread of the process, counted from 0.
    pub thread: u16,
}

/// A range that the program named.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// When it was pushed, ns.
    pub start: i64,
    /// When it was popped, ns.
    pub end: i64,
    /// True for domain `LLM` with a registered name, false for the default domain.
    pub llm: bool,
    /// Name.
    pub name: &'static str,
    /// When the kernels launched inside it ran on the first device's first stream, ns; Kineto shows it there too.
    pub gpu: Option<(i64, i64)>,
    /// Process, counted from 0.
    pub process: u16,
    /// Thread of the process, counted from 0.
    pub thread: u16,
}

/// All that happened.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Events {
    /// Kernels.
    pub kernels: Vec<Kernel>,
    /// Copies.
    pub copies: Vec<Copy>,
    /// Sets.
    pub sets: Vec<Set>,
    /// Graph launches recorded as a whole.
    pub graphs: Vec<Graph>,
    /// Calls.
    pub calls: Vec<Call>,
    /// Ranges.
    pub ranges: Vec<Range>,
}
