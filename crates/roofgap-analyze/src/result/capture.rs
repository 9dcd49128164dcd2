//! The capture: files, devices, sums, losses, profiler overhead, ranges, the workload and the engine.

use roofgap_trace::SourceFormat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// An input file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceInfo {
    /// Path as the user gave it.
    pub path: String,
    /// Format it was read as.
    pub format: String,
    /// Version of the tool that made it.
    pub tool_version: Option<String>,
    /// Version of the schema of the file.
    pub schema_version: Option<String>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// Number of kernels.
    pub kernel_count: u64,
    /// Total kernel time, ns.
    pub kernel_ns: i64,
    /// Time with at least one GPU operation, summed over devices, ns; null where only totals are known.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LossInfo {
    /// Stable id.
    pub id: String,
    /// Severity: `info`, `warning` or `error`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["info", "warning", "error"])))]
    pub severity: String,
    /// Number of rows.
    pub count: u64,
    /// Effect on the numbers.
    pub meaning: String,
    /// Texts of the recording tool, those on the GPU first, then the most frequent; left out without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<LossMessage>,
}

/// A text of the recording tool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LossMessage {
    /// The text, on one line.
    pub text: String,
    /// Number of times that it occurs.
    pub count: u64,
}

/// Sums over the ranges of one name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RangeInfo {
    /// NVTX domain; empty is the default domain.
    pub domain: String,
    /// Range name.
    pub name: String,
    /// Style of the ranges: `push_pop` or `start_end`.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Origin of the weights: `random` or `local`.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EngineInfo {
    /// Engine name.
    pub name: String,
    /// Version; null without an account of the program that has it.
    pub version: Option<String>,
    /// Number of parts by kind of parallelism (`tensor`, `pipeline`, `data`, `expert`); null without such an account.
    #[serde(default)]
    pub parallelism: Option<BTreeMap<String, u64>>,
    /// Evidence: `range` (NVTX), `annotation` (PyTorch profiler), `frames` (Python frames) or `account` (the program's own account,
    /// without named steps).
    pub told_by: String,
    /// Evidence that tells prefill from decode; null where the names of the steps do.
    #[serde(default)]
    pub phases_told_by: Option<String>,
}

/// The overhead of one profiler on one stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Overhead {
    /// Profiler.
    pub tool: Profiler,
    /// Stage name.
    pub stage: String,
    /// Time under the profiler divided by time without it.
    pub ratio: f64,
    /// Ends of the 95 % confidence interval of `ratio`; left out for a comparison of two runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// Number of pairs of windows of one process, with the profiler and without; left out for a comparison of two runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<u64>,
}

impl Overhead {
    /// Returns the ratio that is sure: the lower end of the confidence interval where there is one.
    pub fn sure_ratio(&self) -> f64 {
        self.interval.map_or(self.ratio, |(low, _)| low)
    }
}

/// A profiler whose overhead is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Profiler {
    /// Nsight Systems.
    Nsys,
    /// The native collector.
    Native,
    /// torch.profiler.
    #[serde(rename = "torch.profiler")]
    Torch,
    /// Nsight Compute.
    Ncu,
}

impl Profiler {
    /// Returns the profiler that writes timelines of a format; `None` for a file that is no timeline.
    pub(super) fn of_timeline(format: &str) -> Option<Self> {
        let facts = SourceFormat::named(format)?.facts();
        let mut profilers = [Self::Nsys, Self::Native, Self::Torch].into_iter();
        profilers.find(|profiler| facts.is_timeline && profiler.as_str() == facts.profiler)
    }

    /// Returns the name in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nsys => "nsys",
            Self::Native => "native",
            Self::Torch => "torch.profiler",
            Self::Ncu => "ncu",
        }
    }
}

impl fmt::Display for Profiler {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}
