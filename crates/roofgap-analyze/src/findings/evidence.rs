//! Evidence of a stage that the analysis does not keep: launch shapes, waits, copies, chains of small kernels, overlap.

use crate::names::Family;
use roofgap_trace::{Ns, OpKind};

/// The evidence of one stage.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StageEvidence {
    /// The stage.
    pub stage: String,
    /// Kernels by name and launch shape, most time first.
    pub shapes: Vec<ShapeUse>,
    /// Copies between host and device.
    pub host_copies: CopyUse,
    /// Calls that wait for the device.
    pub syncs: SyncUse,
    /// Runs of kernels that only move and combine elements.
    pub chains: ChainUse,
    /// Streams with work.
    pub streams: u64,
    /// Launches of whole graphs.
    pub graph_launches: u64,
    /// Devices with work, in the order of their numbers.
    pub devices: Vec<DeviceUse>,
    /// Time in which at least one device computed; `None` on a single device.
    pub any_device_ns: Option<Ns>,
    /// Kernels that talk to other devices, where there are any.
    pub communication: Option<CommunicationUse>,
    /// Longest gap in which the GPU waited for a launch; `None` where there is none.
    pub longest_launch_gap: Option<LaunchGap>,
}

/// A gap in which the GPU waited for a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchGap {
    /// Its time, ns.
    pub ns: Ns,
    /// Kind of the operation that ended it.
    pub kind: OpKind,
    /// Name of that operation.
    pub name: String,
}

/// Computation on one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// Device number.
    pub number: u32,
    /// Time in which a kernel ran that does not talk to other devices.
    pub compute_ns: Ns,
}

/// Launches of one kernel in one shape.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShapeUse {
    /// The kernel as the tool gave it.
    pub name: String,
    /// Kernel family.
    pub family: Family,
    /// Multiprocessors of its device.
    pub sms: Option<u32>,
    /// Compute capability of its device.
    pub compute_capability: Option<(u32, u32)>,
    /// Blocks.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Shared memory of a block, bytes.
    pub shared_bytes: u32,
    /// Launches.
    pub calls: u64,
    /// Sum of durations.
    pub total_ns: Ns,
    /// Longest duration; the mean where single launches are not known.
    pub longest_ns: Ns,
    /// Of the sum, time in which another kernel ran on the device too.
    pub shared_ns: Ns,
}

/// Copies between host and device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyUse {
    /// Number of operations.
    pub count: u64,
    /// Number of copies from or to pageable memory.
    pub pageable: u64,
    /// Number of copies from the device to the host.
    pub to_host: u64,
    /// Bytes.
    pub bytes: u64,
    /// Sum of their durations on the device.
    pub ns: Ns,
    /// Of that, time in which the device ran nothing else.
    pub exposed_ns: Ns,
}

/// Calls that wait for the device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyncUse {
    /// Inside the stage.
    pub count: u64,
    /// Inside its steps, where it has steps; else all but one for each instance, which ends it.
    pub inside: u64,
    /// Time spent in them.
    pub ns: Ns,
    /// The call that occurs most.
    pub most_common: Option<String>,
}

/// Runs of three kernels or more on one stream that only move and combine elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChainUse {
    /// Runs.
    pub count: u64,
    /// Kernels in them.
    pub kernels: u64,
    /// Sum of their durations.
    pub ns: Ns,
    /// Sum without the longest kernel of each run, ns.
    pub beyond_longest_ns: Ns,
    /// Kernels of the longest run.
    pub longest: u64,
}

/// Kernels that talk to other devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommunicationUse {
    /// Number of operations.
    pub count: u64,
    /// Time in which at least one ran, summed over devices.
    pub ns: Ns,
    /// Of that, time in which the device ran nothing else.
    pub exposed_ns: Ns,
    /// Of that, as much as computation of the device without communication beside it can hide.
    pub hideable_ns: Ns,
}
