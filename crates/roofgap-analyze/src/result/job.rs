//! Communication, and the ranks of a distributed job.

use super::Idle;

results! {
    /// The communication kernels of one collective and group on one device, or the calls of one that runs on the CPU.
    #[derive(Default)]
    pub struct CommunicationRow {
        /// Rank that was recorded; null where unknown.
        pub rank: Option<u32>,
        /// Device number; null where unknown, or on the CPU.
        pub device: Option<u32>,
        /// Processor that runs it: `gpu` (kernels) or `cpu` (a backend such as gloo, by the ranges of its calls).
        #[serde(default = "on_gpu")]
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["gpu", "cpu"])))]
        pub on: String,
        /// Collective, such as `all_reduce`; the name of the kernel where it is none of the known ones.
        pub collective: String,
        /// Process group; null where unknown.
        pub group: Option<String>,
        /// Number of ranks in the group; null where unknown.
        pub group_size: Option<u32>,
        /// Number of kernels; on the CPU, of calls.
        pub calls: u64,
        /// Number of calls without a time: on the CPU, those that return before the collective ends.
        /// `total_ns` and `exposed_ns` are of the others.
        #[serde(default)]
        pub untimed_calls: u64,
        /// Recorded message sizes as nccl-tests counts them (the larger of input and output of the rank), summed, bytes; null without any.
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
        /// Link to other GPUs of the node, such as `NVLink`; null where unknown, or on the CPU.
        #[serde(default)]
        pub link: Option<String>,
        /// Peak of the link in one direction, bytes per second.
        #[serde(default)]
        pub peak_bytes_per_s: Option<f64>,
        /// `bus_bandwidth_bytes_per_s` in % of the peak; above 100 % where the switch reduces.
        #[serde(default)]
        pub peak_pct: Option<f64>,
    }
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

results! {
    /// A rank of a distributed job.
    #[derive(Default)]
    pub struct RankInfo {
        /// Rank.
        pub rank: u32,
        /// Number of ranks of the job; null where unknown.
        pub world_size: Option<u32>,
        /// Host name; null where unknown.
        pub host: Option<String>,
        /// Numbers of the devices that it used.
        pub devices: Vec<u32>,
        /// Evidence of the rank: `trace` or `file_name`.
        #[serde(default)]
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["trace", "file_name"])))]
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
        /// Time with at least one GPU operation, summed over devices, ns; null where only totals are known.
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
        /// Idle time by cause, summed over stages; null without stages on the GPU.
        #[serde(default)]
        pub idle: Option<Idle>,
        /// Clock of the rank minus the clock of `clock_reference`, ns; null where no collective tells it.
        #[serde(default)]
        pub clock_offset_ns: Option<i64>,
        /// Largest error of `clock_offset_ns`, by the ends of matched collectives, ns.
        #[serde(default)]
        pub clock_error_ns: Option<i64>,
        /// Rank whose clock is the reference.
        #[serde(default)]
        pub clock_reference: Option<u32>,
        /// Exposed time in matched collectives before the last of their ranks arrived, ns; null without matched collectives.
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
        /// Activity of the devices over time; null for a rank given alone.
        #[serde(default)]
        pub activity: Option<RankActivity>,
    }

    /// Activity of the devices of a rank in parts of equal length.
    #[derive(Eq, Default)]
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

results! {
    /// The ranks of a job together.
    #[derive(Default)]
    pub struct Job {
        /// Number of ranks of the job; null where no capture tells it.
        pub world_size: Option<u32>,
        /// Rank that the rest of the analysis is about.
        pub shown_rank: u32,
        /// Ranks of the job without a capture.
        pub missing: Vec<u32>,
        /// Largest error of the clock of a rank, ns; null without matched collectives.
        pub clock_error_ns: Option<i64>,
        /// Collectives matched across ranks, most exposed wait first.
        pub collectives: Vec<MatchedCollectives>,
        /// Ranks for which others wait, most time first.
        pub stragglers: Vec<Straggler>,
        /// Balance of the experts of a mixture over the ranks, by stage; empty without kernels of experts.
        #[serde(default)]
        pub experts: Vec<ExpertBalance>,
        /// Sends and receives matched across ranks, most exposed wait first.
        #[serde(default)]
        pub transfers: Vec<MatchedTransfers>,
        /// MFU and MBU of each stage over all ranks.
        #[serde(default)]
        pub utilisation: Vec<StageUtilisation>,
        /// Processes of the job that did GPU work and tell no rank.
        #[serde(default)]
        pub other_processes: Vec<OtherProcess>,
    }

    /// Time of the experts of a mixture over the ranks in one stage. A section is a matched collective and the kernels of experts since the
    /// collective before it: grouped products and fused experts, by their names.
    #[derive(Default)]
    pub struct ExpertBalance {
        /// Stage; null outside of stages.
        pub stage: Option<String>,
        /// Number of sections: one or more for each layer of experts and step.
        pub sections: u64,
        /// Rank that was the slowest most often.
        pub slowest_rank: u32,
        /// Number of sections in which that rank was the slowest.
        pub slowest_count: u64,
        /// Time of the experts on the slowest rank of each section, summed, ns.
        pub slowest_ns: i64,
        /// Time of the experts, mean of the ranks, summed, ns.
        pub mean_ns: i64,
        /// `slowest_ns` divided by `mean_ns`.
        pub imbalance: f64,
        /// Exposed time in the collectives before their last rank arrived, summed over ranks, ns; null where the clocks are not known.
        pub waited_ns: Option<i64>,
        /// Time that even experts would save at most, ns; null where the clocks are not known.
        pub bound_ns: Option<i64>,
        /// Time of the experts on each rank.
        pub ranks: Vec<ExpertTime>,
    }

    /// Time of the experts of a mixture on one rank.
    #[derive(Eq, Default)]
    pub struct ExpertTime {
        /// Rank.
        pub rank: u32,
        /// Time of the kernels of experts, ns.
        pub experts_ns: i64,
        /// Number of sections in which the rank was the slowest.
        pub slowest_count: u64,
    }

    /// The transfers from one rank to another, matched across the two.
    #[derive(Eq, Default)]
    pub struct MatchedTransfers {
        /// Rank that sends.
        pub from: u32,
        /// Rank that receives.
        pub to: u32,
        /// Process group; null where unknown.
        pub group: Option<String>,
        /// Number of transfers.
        pub count: u64,
        /// Evidence that they belong together: `sequence` (numbers) or `order`.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["sequence", "order"])))]
        pub matched_by: String,
        /// Message sizes, summed, bytes; null if not recorded.
        pub bytes: Option<u64>,
        /// Time of the receives, summed, ns.
        pub receive_ns: i64,
        /// Exposed time of the receiver before the sender arrived, summed, ns; null where the clocks of the two are not known.
        pub receiver_waited_ns: Option<i64>,
        /// Exposed time of the sender before the receiver arrived, summed, ns; null where the clocks of the two are not known.
        pub sender_waited_ns: Option<i64>,
    }

    /// MFU and MBU of one stage.
    #[derive(Default)]
    pub struct StageUtilisation {
        /// Stage.
        pub stage: String,
        /// Model FLOPs utilisation over wall time, %; null where unknown.
        pub mfu_pct: Option<f64>,
        /// Memory bandwidth utilisation over wall time, %; null where unknown.
        pub mbu_pct: Option<f64>,
    }

    /// A process that did GPU work and tells no rank.
    #[derive(Eq, Default)]
    pub struct OtherProcess {
        /// Process id.
        pub pid: u32,
        /// Name; empty where unknown.
        pub name: String,
        /// Capture of the process.
        pub source: String,
        /// Number of kernels.
        pub kernel_count: u64,
        /// Total kernel time, ns.
        pub kernel_ns: i64,
    }

    /// The collectives of one kind and group, matched across ranks.
    #[derive(Eq, Default)]
    pub struct MatchedCollectives {
        /// Process group; null where unknown.
        pub group: Option<String>,
        /// Collective, such as `all_reduce`.
        pub collective: String,
        /// Ranks in which they were found.
        pub ranks: Vec<u32>,
        /// Number of collectives.
        pub count: u64,
        /// Evidence that the kernels of the ranks belong together: `sequence` (numbers) or `order`.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["sequence", "order"])))]
        pub matched_by: String,
        /// Message size of one rank, summed, bytes; null if not recorded.
        pub bytes: Option<u64>,
        /// Shortest duration over ranks, summed, ns.
        pub latency_ns: i64,
        /// Mean spread of the starts, ns; null where it is not above the error of the clocks.
        pub skew_mean_ns: Option<i64>,
        /// Largest spread of the starts, ns; null where it is not above the error of the clocks.
        pub skew_max_ns: Option<i64>,
        /// Exposed time before the last rank arrived, summed over ranks, ns.
        pub waited_ns: i64,
        /// Rank that arrived last most often; null where no skew is above the error of the clocks.
        pub last_rank: Option<u32>,
        /// Number of collectives in which that rank arrived last.
        pub last_count: u64,
    }

    /// A rank for which others wait in a stage.
    #[derive(Eq, Default)]
    pub struct Straggler {
        /// Rank.
        pub rank: u32,
        /// Stage of its collectives; null outside of stages.
        pub stage: Option<String>,
        /// Number of matched collectives in which it arrived last.
        pub last_count: u64,
        /// Number of matched collectives of the stage that it takes part in.
        pub collective_count: u64,
        /// Exposed time that the other ranks (their median) waited for it, ns.
        pub waited_for_ns: i64,
        /// Kernel other than communication with the largest `kernel_excess_ns`; null where none takes longer.
        pub kernel: Option<String>,
        /// Time of that kernel in the stage above the median of the other ranks, ns.
        pub kernel_excess_ns: Option<i64>,
        /// Idle time in the stage above the median of the other ranks, ns; negative below it.
        pub idle_excess_ns: Option<i64>,
    }
}
