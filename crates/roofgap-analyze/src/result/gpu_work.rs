//! GPU work other than kernels by name: copies, whole graphs and communication; ranks of a distributed job.

use super::{Idle, StageUtilisation};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyKind {
    /// From host memory to the device.
    HostToDevice,
    /// From the device to host memory.
    DeviceToHost,
    /// Within the memory of a device.
    DeviceToDevice,
    /// Between two devices.
    PeerToPeer,
    /// Within host memory.
    HostToHost,
    /// Pages of managed memory that migrate to the device.
    ManagedToDevice,
    /// Pages of managed memory that migrate to the host.
    ManagedToHost,
    /// Pages of managed memory that migrate between devices.
    ManagedToPeer,
    /// Not recorded.
    #[default]
    #[serde(other)]
    Unknown,
}

impl CopyKind {
    /// Returns the name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostToDevice => "host to device",
            Self::DeviceToHost => "device to host",
            Self::DeviceToDevice => "device to device",
            Self::PeerToPeer => "peer to peer",
            Self::HostToHost => "host to host",
            Self::ManagedToDevice => "managed, to device",
            Self::ManagedToHost => "managed, to host",
            Self::ManagedToPeer => "managed, to another device",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for CopyKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

/// The copies of one kind on one device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CopyRow {
    /// Device number.
    pub device: Option<u32>,
    /// Direction.
    pub kind: CopyKind,
    /// Amount of the copies whose size is recorded, bytes; `None` without any.
    pub bytes: Option<u64>,
    /// Total time, ns.
    pub total_ns: i64,
    /// Number of copies.
    pub calls: u64,
    /// `bytes` divided by the time of those copies, bytes per second.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// True for pinned host memory, false for pageable; `None` without host memory or where unknown.
    pub pinned: Option<bool>,
    /// Part of `total_ns` in which the device also ran a kernel or a graph, ns.
    pub overlapped_ns: i64,
    /// Link of the copies, such as "PCIe 5.0 x16"; `None` where unknown.
    pub link: Option<String>,
    /// Peak of the link for such copies, bytes per second.
    pub peak_bytes_per_s: Option<f64>,
    /// `bandwidth_bytes_per_s` in % of the peak; `None` above 100 %, where a cache served the copies.
    pub peak_pct: Option<f64>,
}

/// The launches of one graph that was recorded as one operation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GraphRow {
    /// Device number.
    pub device: Option<u32>,
    /// Graph id as the tool numbers it; `None` where unknown.
    pub graph: Option<u64>,
    /// Number of launches.
    pub launches: u64,
    /// Total time, ns.
    pub total_ns: i64,
}

/// The communication kernels of one collective and group on one device, or the calls of one that runs on the CPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CommunicationRow {
    /// Rank that was recorded; `None` where unknown.
    pub rank: Option<u32>,
    /// Device number; `None` where unknown, or on the CPU.
    pub device: Option<u32>,
    /// Processor that runs it: `gpu` (kernels) or `cpu` (a backend such as gloo, by the ranges of its calls).
    #[serde(default = "on_gpu")]
    pub on: String,
    /// Collective, such as `all_reduce`; the name of the kernel where it is none of the known ones.
    pub collective: String,
    /// Process group; `None` where unknown.
    pub group: Option<String>,
    /// Number of ranks in the group; `None` where unknown.
    pub group_size: Option<u32>,
    /// Number of kernels; on the CPU, of calls.
    pub calls: u64,
    /// Number of calls without a time: on the CPU, those that return before the collective ends.
    #[serde(default)]
    pub untimed_calls: u64,
    /// Recorded message sizes as nccl-tests counts them (the larger of input and output of the rank), summed, bytes; `None` without any.
    pub bytes: Option<u64>,
    /// Total kernel time, ns; on the CPU, time of the calls that return at its end.
    pub total_ns: i64,
    /// Part of `total_ns` in which the device ran no kernel but communication, ns; on the CPU, in which no device computed.
    pub exposed_ns: i64,
    /// Bus bandwidth by the formulas of nccl-tests, bytes per second; time that a rank waits for another counts.
    pub bus_bandwidth_bytes_per_s: Option<f64>,
    /// Algorithm bandwidth, message size over time, bytes per second; time that a rank waits for another counts.
    #[serde(default)]
    pub algorithm_bandwidth_bytes_per_s: Option<f64>,
    /// Link to other GPUs of the node, such as `NVLink`; `None` where unknown, or on the CPU.
    #[serde(default)]
    pub link: Option<String>,
    /// Peak of the link in one direction, bytes per second.
    #[serde(default)]
    pub peak_bytes_per_s: Option<f64>,
    /// `bus_bandwidth_bytes_per_s` in % of the peak; above 100 % where the switch reduces.
    #[serde(default)]
    pub peak_pct: Option<f64>,
}

/// Returns the processor of older analyses.
fn on_gpu() -> String {
    "gpu".to_owned()
}

impl CommunicationRow {
    /// Tells whether the time of at least one call was measured.
    pub fn is_timed(&self) -> bool {
        self.untimed_calls < self.calls
    }

    /// Returns the time hidden behind computation, ns.
    pub fn hidden_ns(&self) -> i64 {
        self.total_ns - self.exposed_ns
    }
}

/// A rank of a distributed job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RankInfo {
    /// Rank.
    pub rank: u32,
    /// Number of ranks of the job; `None` where unknown.
    pub world_size: Option<u32>,
    /// Host name; `None` where unknown.
    pub host: Option<String>,
    /// Numbers of the devices that it used.
    pub devices: Vec<u32>,
    /// Evidence of the rank: `trace` or `file_name`.
    #[serde(default)]
    pub told_by: String,
    /// Files of the rank.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Number of kernels.
    #[serde(default)]
    pub kernel_count: u64,
    /// Total kernel time, ns.
    #[serde(default)]
    pub kernel_ns: i64,
    /// Time with at least one GPU operation, summed over devices, ns; `None` where only totals are known.
    #[serde(default)]
    pub busy_ns: Option<i64>,
    /// Total time of communication kernels, and of calls that communicate on the CPU and return at its end, ns.
    #[serde(default)]
    pub communication_ns: i64,
    /// Number of calls that communicate on the CPU and have no time, because they return before the end.
    #[serde(default)]
    pub untimed_calls: u64,
    /// Part of `communication_ns` in which the device ran no kernel but communication, ns.
    #[serde(default)]
    pub exposed_ns: i64,
    /// Idle time by cause, summed over stages; `None` without stages on the GPU.
    #[serde(default)]
    pub idle: Option<Idle>,
    /// Clock of the rank minus the clock of `clock_reference`, ns; `None` where no collective tells it.
    #[serde(default)]
    pub clock_offset_ns: Option<i64>,
    /// Largest error of `clock_offset_ns`, by the ends of matched collectives, ns.
    #[serde(default)]
    pub clock_error_ns: Option<i64>,
    /// Rank whose clock is the reference.
    #[serde(default)]
    pub clock_reference: Option<u32>,
    /// Exposed time in matched collectives before the last of their ranks arrived, ns; `None` without matched collectives.
    #[serde(default)]
    pub waited_ns: Option<i64>,
    /// Number of matched collectives in which it arrived last.
    #[serde(default)]
    pub last_count: Option<u64>,
    /// Exposed time that the other ranks (their median) waited for it, ns.
    #[serde(default)]
    pub waited_for_ns: Option<i64>,
    /// MFU and MBU of each stage by the rank's share of the model; a stage for which neither is known has no row.
    #[serde(default)]
    pub utilisation: Vec<StageUtilisation>,
    /// Activity of the devices over time; `None` for a rank given alone.
    #[serde(default)]
    pub activity: Option<RankActivity>,
}

/// Activity of the devices of a rank in parts of equal length.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RankActivity {
    /// First moment of the first part, in the clock of the rank, ns.
    pub begin_ns: i64,
    /// Length of a part, ns.
    pub part_ns: i64,
    /// Busy time of each part in % of its length and of the devices, without communication.
    pub compute_pct: Vec<u8>,
    /// Time of each part in communication kernels that no computation hides, in the same units.
    pub exposed_pct: Vec<u8>,
}

impl RankInfo {
    /// Returns the communication time hidden behind computation, ns; `None` where no communication was timed.
    pub fn hidden_ns(&self) -> Option<i64> {
        Some(self.communication_ns - self.measured_exposed_ns()?)
    }

    /// Returns the communication time that no computation hides, ns; `None` where no communication was timed.
    pub fn measured_exposed_ns(&self) -> Option<i64> {
        (self.communication_ns > 0 || self.untimed_calls == 0).then_some(self.exposed_ns)
    }
}
