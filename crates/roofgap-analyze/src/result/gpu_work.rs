//! Kernels, layers, operators and counters; copies and whole graphs; the distance to the roof.

use crate::names::Family;
use std::fmt;

results! {
    /// The launches of one kernel on one device.
    #[derive(Default)]
    pub struct Kernel {
        /// Demangled name as the tool gave it.
        pub name: String,
        /// Short name for tables.
        pub short_name: String,
        /// Kind of work.
        pub family: Family,
        /// Device number; null where only totals are known.
        pub device: Option<u32>,
        /// Total time, ns.
        pub total_ns: i64,
        /// Number of launches.
        pub calls: u64,
        /// Mean time of a launch, ns.
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
        /// Operators of its launches and their work, by the shapes of their inputs, longest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub shapes: Vec<KernelShape>,
    }

    /// The launches of a kernel by one operator with known shapes.
    pub struct KernelShape {
        /// Operator name.
        pub operator: String,
        /// Shapes of the inputs, as the profiler writes them.
        pub dims: String,
        /// Types of the inputs, as the profiler writes them.
        pub types: String,
        /// Format of the peak.
        pub dtype: String,
        /// Number of launches.
        pub calls: u64,
        /// Their time, ns.
        pub total_ns: i64,
        /// Floating-point operations of a launch.
        pub flops: f64,
        /// Bytes of a launch, with every input and output moved once.
        pub bytes: f64,
        /// Time of a launch at the roof, ns; null where a peak is not known.
        pub roof_ns: Option<f64>,
    }

    /// The kernels of the layers of one kind in one stage.
    #[derive(Default)]
    pub struct LayerRow {
        /// Stage name.
        pub stage: String,
        /// Module name, with `*` for the numbers in which the layers of the kind differ; null for kernels outside every named module.
        pub layer: Option<String>,
        /// Block of the model that the module is a part of, such as `attention` or `routed experts`; null where its name does not tell.
        #[serde(default)]
        pub block: Option<String>,
        /// Number of layers of the kind; null for kernels outside every named module.
        pub layers: Option<u64>,
        /// Kernel time, ns. A kernel counts for the innermost module around it.
        pub kernel_ns: i64,
        /// Number of kernels.
        pub kernel_count: u64,
        /// Number of times the layers ran; null for kernels outside every named module.
        pub calls: Option<u64>,
        /// Kernel time, % of the kernel time of the stage.
        pub share_pct: f64,
        /// Kernel time of the single layers; null for a layer that is alone of its kind.
        pub spread: Option<LayerSpread>,
    }

    /// Kernel time of the single layers of a kind.
    #[derive(Default)]
    pub struct LayerSpread {
        /// Shortest, ns.
        pub min_ns: i64,
        /// Median, ns.
        pub median_ns: i64,
        /// Longest, ns.
        pub max_ns: i64,
        /// Name of the layer with the longest time.
        pub longest: String,
    }

    /// A framework operator.
    #[derive(Default)]
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

    /// The origin of a row of counters.
    #[derive(Copy, Eq, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum CounterSource {
        /// ncu replayed the launch.
        #[default]
        Ncu,
        /// Samples of the whole device while the program ran, divided between the kernels by least squares.
        Sampled,
    }

    /// Counters of a kernel by the samples of a device, as intervals of 95 %.
    #[derive(Default)]
    pub struct SampledInterval {
        /// Lower and upper end of `dram_bytes`; null where DRAM was not sampled.
        pub dram_bytes: Option<[f64; 2]>,
        /// Active cycles of the tensor pipe, %, and the ends of its interval: value, low, high; null where it was not sampled.
        pub tensor_pct: Option<[f64; 3]>,
        /// Active cycles of the multiprocessors, %, and the ends of its interval; null where they were not sampled.
        pub sm_active_pct: Option<[f64; 3]>,
        /// Other kernels from which the samples do not tell it apart; its values are null then, and `reason` has those of all together.
        pub together_with: Vec<String>,
    }

    /// Hardware counters of one kernel and launch shape in one stage.
    #[derive(Default)]
    pub struct CounterRow {
        /// Stage name; null where neither counters nor timeline tell it.
        pub stage: Option<String>,
        /// Kernel name in the timeline, else in the counters.
        pub kernel: String,
        /// Grid, blocks.
        pub grid: [u32; 3],
        /// Block, threads.
        pub block: [u32; 3],
        /// Origin.
        #[serde(default)]
        pub source: CounterSource,
        /// Number of measured launches.
        pub samples: u64,
        /// Mean duration, ns: under ncu, or in the timeline where the counters were sampled.
        pub duration_ns: Option<i64>,
        /// `duration_ns` divided by the median of the same kernel and shape in the timeline; null where the counters were sampled.
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
        /// Intervals of sampled counters; left out for those of ncu.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub sampled: Option<SampledInterval>,
    }

    /// Rates of the caches, as ncu's hierarchical roofline charts define them.
    #[derive(Copy, Default)]
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
    #[derive(Default)]
    pub struct NcuRule {
        /// Kernel name in the counters.
        pub kernel: String,
        /// Number of measured launches with this result.
        pub launches: u64,
        /// Identifier of the rule.
        pub rule: String,
        /// Identifier of the section.
        pub section: String,
        /// Kind of the result: `optimization`, `warning` or `info`.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["optimization", "warning", "info"])))]
        pub kind: String,
        /// Largest estimated saving, %; null without an estimate.
        pub speedup_pct: Option<f64>,
        /// Base of the estimate: `kernel` (its duration) or `part` (the part that the rule is about).
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["kernel", "part", null])))]
        pub speedup_of: Option<String>,
        /// Text of the rule.
        pub text: String,
    }
}

words! {
    /// Origin of the work that a roof is computed from.
    pub enum RoofSource {
        /// FLOPs and DRAM bytes that ncu measured.
        Counters = "counters",
        /// FLOPs and bytes of the recorded shapes of operators. Every operand counts as DRAM traffic, also one that is in a cache.
        Modelled = "modelled",
        /// DRAM bytes and activity of the tensor pipe that were sampled while the program ran.
        Sampled = "sampled",
        /// Several of these.
        Mixed = "mixed",
    }
}

results! {
    /// The distance to the roof: the time that the work would take at the peaks of the device, beside the time it took.
    ///
    /// The roof of a launch is the greater of its floating-point operations at the dense peak of their type and its DRAM bytes at the
    /// bandwidth of the device. A launch that is faster than that counts as one at the roof: ncu empties the caches, so that it may
    /// count more bytes than the launch moves in the program. Launches whose work was measured count together by launch shape, by
    /// their mean.
    #[derive(Copy, Default)]
    pub struct RoofDistance {
        /// Time at the roof, % of the time of the launches whose work is known; null where none is.
        #[serde(default)]
        pub roof_pct: Option<f64>,
        /// Time beyond the roof of the launches whose work is known, ns.
        #[serde(default)]
        pub above_roof_ns: Option<i64>,
        /// Time of the launches whose work is known, ns.
        #[serde(default)]
        pub roof_covered_ns: Option<i64>,
        /// Origin of the work.
        #[serde(default)]
        pub roof_source: Option<RoofSource>,
    }
}

impl RoofDistance {
    /// Returns the distance of a part of the launches, by its time and that of all, ns.
    pub(crate) fn part(self, ns: i64, all: i64) -> Self {
        let share = if all > 0 { ns as f64 / all as f64 } else { 1.0 };
        let of = |ns: Option<i64>| ns.map(|ns| (ns as f64 * share).round() as i64);
        Self { above_roof_ns: of(self.above_roof_ns), roof_covered_ns: of(self.roof_covered_ns), ..self }
    }
}

results! {
    /// The direction of a copy.
    #[derive(Copy, Eq, Hash, PartialOrd, Ord, Default)]
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

results! {
    /// The copies of one kind on one device.
    #[derive(Default)]
    pub struct CopyRow {
        /// Device number.
        pub device: Option<u32>,
        /// Direction.
        pub kind: CopyKind,
        /// Amount of the copies whose size is recorded, bytes; null without any.
        pub bytes: Option<u64>,
        /// Total time, ns.
        pub total_ns: i64,
        /// Number of copies.
        pub calls: u64,
        /// `bytes` divided by the time of those copies, bytes per second.
        pub bandwidth_bytes_per_s: Option<f64>,
        /// True for pinned host memory, false for pageable; null without host memory or where unknown.
        pub pinned: Option<bool>,
        /// Part of `total_ns` in which the device also ran a kernel or a graph, ns.
        pub overlapped_ns: i64,
        /// Link of the copies, such as "PCIe 5.0 x16"; null where unknown.
        pub link: Option<String>,
        /// Peak of the link for such copies, bytes per second.
        pub peak_bytes_per_s: Option<f64>,
        /// `bandwidth_bytes_per_s` in % of the peak; null above 100 %, where a cache served the copies.
        pub peak_pct: Option<f64>,
    }

    /// The launches of one graph that was recorded as one operation.
    #[derive(Eq, Default)]
    pub struct GraphRow {
        /// Device number.
        pub device: Option<u32>,
        /// Graph id as the tool numbers it; null where unknown.
        pub graph: Option<u64>,
        /// Number of launches.
        pub launches: u64,
        /// Total time, ns.
        pub total_ns: i64,
    }
}

impl GraphRow {
    /// Returns the launches of some graphs, and their time, ns.
    pub(crate) fn sum(rows: &[Self]) -> (u64, i64) {
        rows.iter().fold((0, 0), |(launches, ns), row| (launches + row.launches, ns + row.total_ns))
    }
}
