//! The result: `roofgap.analysis/1`, field by field what the JSON holds.
//!
//! Times are integer nanoseconds, bytes are bytes, percentages run from 0 to 100. What was not measured is `None`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name of this schema.
pub const SCHEMA: &str = "roofgap.analysis/1";

/// Everything that is known about a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Analysis {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The files it was made from.
    pub sources: Vec<SourceInfo>,
    /// The GPUs.
    pub devices: Vec<DeviceInfo>,
    /// The whole trace.
    pub totals: Totals,
    /// Stage by stage, in the order of their first instance.
    pub stages: Vec<Stage>,
    /// Kernels of the whole trace, by total time.
    pub kernels: Vec<Kernel>,
    /// Operators of the framework, or ranges where there are none, by own GPU time.
    pub operators: Vec<Operator>,
    /// What the counters measured.
    pub counters: Vec<CounterRow>,
    /// What to do, most to gain first.
    pub findings: Vec<Finding>,
    /// The price of watching.
    pub overhead: Vec<Overhead>,
    /// What was lost on the way.
    pub losses: Vec<LossInfo>,
    /// All stages whose work is known, together.
    #[serde(default)]
    pub whole: Option<Whole>,
    /// Every range name that occurs, by time.
    #[serde(default)]
    pub ranges: Vec<RangeInfo>,
    /// What the program said about itself.
    #[serde(default)]
    pub workload: Option<WorkloadInfo>,
    /// What is null or empty, and why.
    #[serde(default)]
    pub reasons: Vec<Reason>,
}

/// All stages whose work is known, together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Whole {
    /// Sum of their wall times.
    pub wall_ns: i64,
    /// Sum of their busy times.
    pub busy_ns: Option<i64>,
    /// Model FLOPs utilisation.
    pub mfu: Option<Mfu>,
    /// Memory bandwidth utilisation.
    pub mbu: Option<Mbu>,
}

/// An input file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SourceInfo {
    /// As the user named it.
    pub path: String,
    /// What it was read as.
    pub format: String,
    /// Version of the tool that made it.
    pub tool_version: Option<String>,
    /// Version of its schema.
    pub schema_version: Option<String>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// The number by which kernels refer to it.
    pub id: u32,
    /// Marketing name.
    pub name: Option<String>,
    /// Such as "9.0".
    pub compute_capability: Option<String>,
    /// Multiprocessors.
    pub sms: Option<u32>,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Memory bandwidth, as the device itself reports it.
    pub bandwidth_bytes_per_s: Option<u64>,
}

/// The whole trace in numbers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Kernels that ran.
    pub kernel_count: u64,
    /// Sum of kernel durations.
    pub kernel_ns: i64,
    /// Union of all GPU operations, summed over devices; `None` where only totals are known.
    pub busy_ns: Option<i64>,
    /// Sum of copies.
    pub memcpy_ns: Option<i64>,
    /// Sum of memory sets.
    pub memset_ns: Option<i64>,
    /// GPU operations without a launch record.
    pub unattributed_count: u64,
}

/// One stage of the program.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// The ranges that make it, as `domain@name`.
    pub ranges: Vec<String>,
    /// How often it occurred.
    pub instances: u64,
    /// Sum of its ranges on the CPU.
    pub wall_ns: i64,
    /// First start to last end on the GPU, summed over instances; `None` without GPU work.
    pub projected_ns: Option<i64>,
    /// Sum of kernel durations.
    pub kernel_ns: Option<i64>,
    /// Union of its GPU operations, summed over devices.
    pub busy_ns: Option<i64>,
    /// Kernels.
    pub kernel_count: u64,
    /// Kernels, copies, sets and whole graphs.
    pub gpu_op_count: u64,
    /// Calls that put work on the GPU.
    pub launch_count: u64,
    /// GPUs that worked for it.
    #[serde(default)]
    pub device_count: u64,
    /// GPUs that worked for one instance, on average: fewer where each process has its own.
    #[serde(default)]
    pub devices_per_instance: f64,
    /// Sum of its copies; `None` where only totals are known.
    #[serde(default)]
    pub memcpy_ns: Option<i64>,
    /// From the end of its ranges on the CPU to the end of its work on the GPU, summed over instances: not 0 where a range is closed
    /// before the GPU has finished.
    #[serde(default)]
    pub late_ns: i64,
    /// Before its first operation, time in which the GPU still worked for something else, summed over instances and devices.
    #[serde(default)]
    pub queued_ns: i64,
    /// Why the GPU was idle between its first and its last operation: on each device by itself, and once where instances overlap.
    pub idle: Option<Idle>,
    /// Of `idle.launch_ns`, what waits and copies before the launch left behind.
    #[serde(default)]
    pub launch_after: LaunchAfter,
    /// Its steps (tokens of decode).
    pub steps: Option<Steps>,
    /// Its kernels, by total time.
    pub kernels: Vec<Kernel>,
    /// Parts of it worth naming.
    pub notes: Vec<Note>,
    /// Model FLOPs utilisation.
    pub mfu: Option<Mfu>,
    /// Memory bandwidth utilisation.
    pub mbu: Option<Mbu>,
    /// Where its times come from: `timeline` or `workload` (the program's own account).
    #[serde(default)]
    pub from: String,
}

impl Stage {
    /// How long it took until all of it was done: its ranges, and what the GPU still did for it after they had closed.
    pub fn elapsed_ns(&self) -> i64 {
        self.wall_ns.saturating_add(self.late_ns.max(0))
    }

    /// Whether its ranges close so long before its GPU work is done that it is worth a word.
    pub fn closes_early(&self) -> bool {
        self.late_ns > self.wall_ns / 20
    }

    /// Part of that time in which its GPUs were busy, 0 to 1, on the average of its devices.
    pub fn busy_share(&self) -> Option<f64> {
        let busy = self.busy_ns.or(self.kernel_ns)?;
        let elapsed = self.elapsed_ns();
        (elapsed > 0).then(|| self.each_device(busy) as f64 / elapsed as f64)
    }

    /// Idle time by what to cure: gaps that a wait or a copy left behind count with it, not with the launches.
    pub fn causes(&self) -> Option<Idle> {
        let (idle, after) = (self.idle?, self.launch_after);
        Some(Idle {
            launch_ns: idle.launch_ns - after.sync_ns - after.copy_ns,
            sync_ns: idle.sync_ns + after.sync_ns,
            copy_ns: idle.copy_ns + after.copy_ns,
            other_ns: idle.other_ns,
        })
    }

    /// The share of one device in what was summed over the devices of each instance, as its wall time is over the instances.
    pub fn each_device(&self, ns: i64) -> i64 {
        if self.devices_per_instance > 1.0 {
            (ns as f64 / self.devices_per_instance) as i64
        } else {
            ns
        }
    }
}

/// Gaps in which the CPU was late because it had waited: it could have launched instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LaunchAfter {
    /// For the device.
    pub sync_ns: i64,
    /// In a copy.
    pub copy_ns: i64,
}

/// Idle time of the GPU by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Idle {
    /// The CPU had not launched the next operation yet.
    pub launch_ns: i64,
    /// The launching thread was waiting for the device.
    pub sync_ns: i64,
    /// The launching thread was in a copy call.
    pub copy_ns: i64,
    /// Launched and not started, or the device was busy with something else.
    pub other_ns: i64,
}

impl Idle {
    /// All of it.
    pub fn total_ns(&self) -> i64 {
        self.launch_ns + self.sync_ns + self.copy_ns + self.other_ns
    }
}

/// Steps of a stage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Steps {
    /// How many.
    pub count: u64,
    /// Mean length on the CPU.
    pub mean_ns: i64,
    /// Median.
    pub p50_ns: i64,
    /// 90th percentile.
    pub p90_ns: i64,
    /// 99th percentile.
    pub p99_ns: i64,
    /// Launches in a step, on average.
    pub launches_per_step: Option<f64>,
    /// Length of each step, in order.
    #[serde(default)]
    pub each_ns: Vec<i64>,
}

/// A part of a stage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Note {
    /// Its name.
    pub name: String,
    /// How often.
    pub instances: u64,
    /// Sum of its ranges on the CPU.
    pub wall_ns: i64,
    /// Sum of kernel durations.
    pub kernel_ns: Option<i64>,
    /// Kernels.
    pub kernel_count: u64,
}

/// A kernel on a device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Kernel {
    /// As the tool gave it.
    pub name: String,
    /// For tables.
    pub short_name: String,
    /// What kind of work it does.
    pub family: String,
    /// The device's number; `None` where only totals are known.
    pub device: Option<u32>,
    /// Sum of durations.
    pub total_ns: i64,
    /// How often it ran.
    pub calls: u64,
    /// Mean.
    pub mean_ns: i64,
    /// Median.
    pub median_ns: Option<i64>,
    /// Shortest.
    pub min_ns: Option<i64>,
    /// Longest.
    pub max_ns: Option<i64>,
    /// What the counters say of it: the row of its most common launch shape.
    pub counters: Option<CounterRow>,
}

/// An operator of the framework.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Operator {
    /// Its name.
    pub name: String,
    /// How often it ran.
    pub calls: u64,
    /// CPU time without what it called.
    pub self_cpu_ns: i64,
    /// GPU time of what it launched itself.
    pub self_gpu_ns: Option<i64>,
    /// CPU time with what it called.
    pub total_cpu_ns: i64,
    /// GPU time of all that was launched inside it.
    pub total_gpu_ns: Option<i64>,
}

/// What the counters measured of one kernel and launch shape in one stage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CounterRow {
    /// The stage, where the counters or the timeline tell it.
    pub stage: Option<String>,
    /// Kernel name as the timeline has it, else as the counters have it.
    pub kernel: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Launches measured.
    pub samples: u64,
    /// Duration under the counters, mean of the samples.
    pub duration_ns: Option<i64>,
    /// That over the timeline's median of the same kernel and shape.
    pub timeline_ratio: Option<f64>,
    /// Compute throughput, % of peak.
    pub sm_pct: Option<f64>,
    /// Memory throughput, % of peak.
    pub memory_pct: Option<f64>,
    /// DRAM throughput, % of peak.
    pub dram_pct: Option<f64>,
    /// L2 throughput, % of peak.
    pub l2_pct: Option<f64>,
    /// L1 throughput, % of peak.
    pub l1_pct: Option<f64>,
    /// Achieved occupancy.
    pub occupancy_pct: Option<f64>,
    /// Bytes to and from DRAM.
    pub dram_bytes: Option<u64>,
    /// Floating-point operations executed.
    pub flops: Option<u64>,
    /// FLOPs a byte of DRAM traffic.
    pub intensity: Option<f64>,
    /// FLOPs a second.
    pub achieved_flops_per_s: Option<f64>,
    /// What holds it back.
    pub bound: Option<String>,
    /// The rule and its inputs, or why there is no verdict.
    pub reason: String,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Finding {
    /// Stable name of the rule.
    pub id: String,
    /// The stage it is about.
    pub stage: Option<String>,
    /// One line.
    pub title: String,
    /// The numbers it stands on.
    pub evidence: BTreeMap<String, serde_json::Value>,
    /// The most that fixing it can save.
    pub bound_ns: i64,
    /// The same as % of the stage's wall time.
    pub bound_pct: f64,
    /// What to do.
    pub action: String,
}

/// The price of one tool on one stage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Overhead {
    /// The tool.
    pub tool: String,
    /// The stage.
    pub stage: String,
    /// Watched time over unwatched time.
    pub ratio: f64,
}

impl Overhead {
    /// Whether the tool recorded the timeline whose times are shown; others run apart, and theirs are not.
    pub fn is_of_the_timeline(&self) -> bool {
        matches!(self.tool.as_str(), "nsys" | "native")
    }
}

/// A declared loss.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LossInfo {
    /// Stable name.
    pub id: String,
    /// `info`, `warning` or `error`.
    pub severity: String,
    /// Rows.
    pub count: u64,
    /// What it means for the numbers.
    pub meaning: String,
}

/// A range name that occurs in the trace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RangeInfo {
    /// Domain; empty is the default domain.
    pub domain: String,
    /// Name.
    pub name: String,
    /// `push_pop` or `start_end`.
    pub style: String,
    /// How often.
    pub instances: u64,
    /// Sum on the CPU.
    pub wall_ns: i64,
    /// First start to last end on the GPU, summed over instances with GPU work.
    pub projected_ns: i64,
    /// Kernels launched inside.
    pub kernel_count: u64,
    /// Sum of their durations.
    pub kernel_ns: i64,
    /// Kernels, copies, sets and graphs launched inside.
    pub gpu_op_count: u64,
    /// Calls inside that put work on the GPU.
    pub launch_count: u64,
}

/// What the program said about itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkloadInfo {
    /// Model name.
    pub model: Option<String>,
    /// Revision of the weights.
    pub revision: Option<String>,
    /// Parameters.
    pub parameters: Option<u64>,
    /// Parameters used for one token.
    pub active_parameters: Option<u64>,
    /// Number format of the weights.
    pub dtype: Option<String>,
    /// `random` or `local`.
    pub weights: Option<String>,
    /// Tokens of the prompt, vision tokens included.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated in a repeat.
    pub generated_tokens: Option<u64>,
    /// Sequences at once.
    pub batch: Option<u64>,
    /// Tokens that stand for an image.
    pub vision_tokens: Option<u64>,
    /// Where it ran.
    pub device: Option<String>,
    /// Hash of the output tokens.
    pub token_hash: Option<String>,
}

/// Why something is null or empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reason {
    /// What is missing, as a path into the JSON such as `stages.decode.mfu`.
    pub about: String,
    /// Why.
    pub why: String,
}

impl Reason {
    /// Explains a missing part.
    pub fn new(about: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            about: about.into(),
            why: why.into(),
        }
    }
}

/// A term of a sum of work, so that a person can check it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Term {
    /// What it is.
    pub name: String,
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes that must move.
    pub bytes: f64,
    /// The formula with its numbers.
    pub how: String,
}

/// Model FLOPs utilisation of a stage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Mfu {
    /// Model FLOPs of all instances.
    pub flops: f64,
    /// Dense peak.
    pub peak_flops_per_s: f64,
    /// The number format of that peak.
    pub dtype: String,
    /// Where the peak comes from.
    pub peak_source: String,
    /// Over wall time.
    pub by_wall_pct: f64,
    /// Over busy time.
    pub by_busy_pct: Option<f64>,
    /// What the FLOPs are made of.
    pub terms: Vec<Term>,
    /// What was assumed.
    pub assumptions: Vec<String>,
}

/// Memory bandwidth utilisation of a stage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Mbu {
    /// Bytes that must move, all instances.
    pub bytes: f64,
    /// Memory bandwidth.
    pub bandwidth_bytes_per_s: f64,
    /// Where the bandwidth comes from.
    pub bandwidth_source: String,
    /// Over wall time.
    pub by_wall_pct: f64,
    /// Over busy time.
    pub by_busy_pct: Option<f64>,
    /// The least a decode step can take at that bandwidth.
    pub floor_step_ns: Option<i64>,
    /// What a step took.
    pub step_ns: Option<i64>,
    /// What the bytes are made of.
    pub terms: Vec<Term>,
    /// What was assumed.
    pub assumptions: Vec<String>,
}
