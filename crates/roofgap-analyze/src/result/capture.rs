//! The capture: files, devices, sums, losses, ranges and the workload.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An input file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SourceInfo {
    /// Path as the user gave it.
    pub path: String,
    /// Format it was read as.
    pub format: String,
    /// Version of the tool that made it.
    pub tool_version: Option<String>,
    /// Version of the schema.
    pub schema_version: Option<String>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Device number, as in `kernels[].device`.
    pub id: u32,
    /// Marketing name.
    pub name: Option<String>,
    /// Compute capability, such as "9.0".
    pub compute_capability: Option<String>,
    /// Number of multiprocessors.
    pub sms: Option<u32>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Memory bandwidth as the device reports it, bytes per second.
    pub bandwidth_bytes_per_s: Option<u64>,
}

/// The origin of the kernels of an analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelOrigin {
    /// A recorded timeline.
    #[default]
    Timeline,
    /// The totals of a summary table.
    Summary,
    /// Single launches that ncu measured.
    Counters,
}

/// Sums over the whole trace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Number of kernels.
    pub kernel_count: u64,
    /// Total kernel time, ns.
    pub kernel_ns: i64,
    /// Time with at least one GPU operation, summed over devices, ns; `None` where only totals are known.
    pub busy_ns: Option<i64>,
    /// Total copy time, ns.
    pub memcpy_ns: Option<i64>,
    /// Total memset time, ns.
    pub memset_ns: Option<i64>,
    /// Number of GPU operations without a launch record.
    pub unattributed_count: u64,
    /// Origin of the kernels.
    #[serde(default)]
    pub from: KernelOrigin,
}

/// A loss of data.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LossInfo {
    /// Stable id.
    pub id: String,
    /// `info`, `warning` or `error`.
    pub severity: String,
    /// Number of rows.
    pub count: u64,
    /// Effect on the numbers.
    pub meaning: String,
    /// Texts of the recording tool, those on the GPU first, then the most frequent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<LossMessage>,
}

/// A text of the recording tool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LossMessage {
    /// The text, on one line.
    pub text: String,
    /// Number of times that it occurs.
    pub count: u64,
}

/// Sums over the ranges of one name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RangeInfo {
    /// NVTX domain; empty is the default domain.
    pub domain: String,
    /// Range name.
    pub name: String,
    /// `push_pop` or `start_end`.
    pub style: String,
    /// Number of ranges.
    pub instances: u64,
    /// Total CPU time, ns.
    pub wall_ns: i64,
    /// First start to last end of its GPU work, summed over ranges, ns.
    pub projected_ns: i64,
    /// Number of kernels launched inside.
    pub kernel_count: u64,
    /// Total time of those kernels, ns.
    pub kernel_ns: i64,
    /// Number of kernels, copies, memsets and graphs launched inside.
    pub gpu_op_count: u64,
    /// Number of calls inside that launched GPU work.
    pub launch_count: u64,
}

/// The workload, from the program's own account.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkloadInfo {
    /// Model name.
    pub model: Option<String>,
    /// Revision of the weights.
    pub revision: Option<String>,
    /// Number of parameters.
    pub parameters: Option<u64>,
    /// Number of parameters used for one token.
    pub active_parameters: Option<u64>,
    /// Number format of the weights.
    pub dtype: Option<String>,
    /// `random` or `local`.
    pub weights: Option<String>,
    /// Prompt tokens, vision tokens included.
    pub prompt_tokens: Option<u64>,
    /// Generated tokens of one repeat.
    pub generated_tokens: Option<u64>,
    /// Batch size, sequences.
    pub batch: Option<u64>,
    /// Image tokens of the prompt.
    pub vision_tokens: Option<u64>,
    /// Device name.
    pub device: Option<String>,
    /// Hash of the output tokens.
    pub token_hash: Option<String>,
}

/// A serving engine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EngineInfo {
    /// Engine name.
    pub name: String,
    /// Version; `None` without an account of the program that has it.
    pub version: Option<String>,
    /// Number of parts by kind of parallelism (`tensor`, `pipeline`, `data`, `expert`); `None` without such an account.
    #[serde(default)]
    pub parallelism: Option<BTreeMap<String, u64>>,
    /// Evidence: `range` (NVTX), `annotation` (PyTorch profiler), `frames` (Python frames) or `account` (the program's own account,
    /// without named steps).
    pub told_by: String,
    /// Evidence that tells prefill from decode; `None` where the names of the steps do.
    #[serde(default)]
    pub phases_told_by: Option<String>,
}
