//! Rows of kernels, operators, counters, findings and overhead.

use super::{Knob, RoofDistance};
use crate::names::Family;
use roofgap_trace::SourceFormat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The launches of one kernel on one device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Kernel {
    /// Demangled name as the tool gave it.
    pub name: String,
    /// Short name for tables.
    pub short_name: String,
    /// Kind of work.
    pub family: Family,
    /// Device number; `None` where only totals are known.
    pub device: Option<u32>,
    /// Total time, ns.
    pub total_ns: i64,
    /// Number of launches.
    pub calls: u64,
    /// Mean, ns.
    pub mean_ns: i64,
    /// Median, ns.
    pub median_ns: Option<i64>,
    /// Shortest, ns.
    pub min_ns: Option<i64>,
    /// Longest, ns.
    pub max_ns: Option<i64>,
    /// Counters of the launch shape with the most time.
    pub counters: Option<CounterRow>,
    /// Distance to the roof.
    #[serde(flatten)]
    pub roof: RoofDistance,
}

/// A framework operator.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Operator {
    /// Operator name.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// CPU time without nested operators, ns.
    pub self_cpu_ns: i64,
    /// GPU time of its own launches, ns.
    pub self_gpu_ns: Option<i64>,
    /// CPU time with nested operators, ns.
    pub total_cpu_ns: i64,
    /// GPU time of all launches inside it, ns.
    pub total_gpu_ns: Option<i64>,
}

/// Hardware counters of one kernel and launch shape in one stage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CounterRow {
    /// Stage name; `None` where neither counters nor timeline tell it.
    pub stage: Option<String>,
    /// Kernel name in the timeline, else in the counters.
    pub kernel: String,
    /// Grid, blocks.
    pub grid: [u32; 3],
    /// Block, threads.
    pub block: [u32; 3],
    /// Number of measured launches.
    pub samples: u64,
    /// Mean duration under ncu, ns.
    pub duration_ns: Option<i64>,
    /// `duration_ns` divided by the median of the same kernel and shape in the timeline.
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
    /// Achieved occupancy, %.
    pub occupancy_pct: Option<f64>,
    /// DRAM traffic, bytes.
    pub dram_bytes: Option<u64>,
    /// Executed floating-point operations.
    pub flops: Option<u64>,
    /// FLOPs per byte of DRAM traffic.
    pub intensity: Option<f64>,
    /// FLOPs per second.
    pub achieved_flops_per_s: Option<f64>,
    /// Limiting resource.
    pub bound: Option<String>,
    /// Rule and inputs of the verdict, or the reason for none.
    pub reason: String,
    /// Traffic of the caches; left out where it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caches: Option<CacheRates>,
}

/// Rates of the caches, as ncu's hierarchical roofline charts define them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CacheRates {
    /// Traffic of the L1 caches, bytes per second.
    pub l1_bytes_per_s: Option<f64>,
    /// Peak of the L1 caches at the measured clock, bytes per second.
    pub l1_peak_bytes_per_s: Option<f64>,
    /// Traffic from the L2 cache, bytes per second.
    pub l2_bytes_per_s: Option<f64>,
    /// Peak of the L2 cache at the measured clock, bytes per second.
    pub l2_peak_bytes_per_s: Option<f64>,
}

/// The result of one of ncu's own rules for a kernel.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NcuRule {
    /// Kernel name in the counters.
    pub kernel: String,
    /// Number of measured launches with this result.
    pub launches: u64,
    /// Identifier of the rule.
    pub rule: String,
    /// Identifier of the section.
    pub section: String,
    /// `optimization`, `warning` or `info`.
    pub kind: String,
    /// Largest estimated saving, %; `None` without an estimate.
    pub speedup_pct: Option<f64>,
    /// Base of the estimate: `kernel` (its duration) or `part` (the part that the rule is about).
    pub speedup_of: Option<String>,
    /// Text of the rule.
    pub text: String,
}

/// A finding: evidence, an upper bound on the saving, and an action.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// Stable id of the rule.
    pub id: String,
    /// Stage name.
    pub stage: Option<String>,
    /// Title of one line.
    pub title: String,
    /// Evidence in numbers.
    pub evidence: BTreeMap<String, serde_json::Value>,
    /// Upper bound on the saving, ns.
    pub bound_ns: i64,
    /// Upper bound on the saving, % of the stage's time.
    pub bound_pct: f64,
    /// Action to take.
    pub action: String,
    /// Changes of the workload that carry out the action; empty where no such change is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knobs: Vec<Knob>,
}

/// The overhead of one profiler on one stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Profiler.
    pub tool: Profiler,
    /// Stage name.
    pub stage: String,
    /// Time under the profiler divided by time without it.
    pub ratio: f64,
    /// Ends of the 95 % confidence interval of `ratio`; `None` for a comparison of two runs, which has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// Number of pairs of windows of one process, with the profiler and without; `None` for a comparison of two runs.
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
