//! A distributed job of which several ranks were given.

use serde::{Deserialize, Serialize};

/// The ranks of a job together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Job {
    /// Number of ranks of the job; `None` where no capture tells it.
    pub world_size: Option<u32>,
    /// Rank that the rest of the analysis is about.
    pub shown_rank: u32,
    /// Ranks of the job without a capture.
    pub missing: Vec<u32>,
    /// Largest error of the clock of a rank, ns; `None` without matched collectives.
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
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ExpertBalance {
    /// Stage; `None` outside of stages.
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
    /// Exposed time in the collectives before their last rank arrived, summed over ranks, ns; `None` where the clocks are not known.
    pub waited_ns: Option<i64>,
    /// Time that even experts would save at most, ns; `None` where the clocks are not known.
    pub bound_ns: Option<i64>,
    /// Time of the experts on each rank.
    pub ranks: Vec<ExpertTime>,
}

/// Time of the experts of a mixture on one rank.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExpertTime {
    /// Rank.
    pub rank: u32,
    /// Time of the kernels of experts, ns.
    pub experts_ns: i64,
    /// Number of sections in which the rank was the slowest.
    pub slowest_count: u64,
}

/// The transfers from one rank to another, matched across the two.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MatchedTransfers {
    /// Rank that sends.
    pub from: u32,
    /// Rank that receives.
    pub to: u32,
    /// Process group; `None` where unknown.
    pub group: Option<String>,
    /// Number of transfers.
    pub count: u64,
    /// Evidence that they belong together: `sequence` (numbers) or `order`.
    pub matched_by: String,
    /// Message sizes, summed, bytes; `None` if not recorded.
    pub bytes: Option<u64>,
    /// Time of the receives, summed, ns.
    pub receive_ns: i64,
    /// Exposed time of the receiver before the sender arrived, summed, ns; `None` where the clocks of the two are not known.
    pub receiver_waited_ns: Option<i64>,
    /// Exposed time of the sender before the receiver arrived, summed, ns; `None` where the clocks of the two are not known.
    pub sender_waited_ns: Option<i64>,
}

/// MFU and MBU of one stage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StageUtilisation {
    /// Stage.
    pub stage: String,
    /// Model FLOPs utilisation over wall time, %; `None` where unknown.
    pub mfu_pct: Option<f64>,
    /// Memory bandwidth utilisation over wall time, %; `None` where unknown.
    pub mbu_pct: Option<f64>,
}

/// A process that did GPU work and tells no rank.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MatchedCollectives {
    /// Process group; `None` where unknown.
    pub group: Option<String>,
    /// Collective, such as `all_reduce`.
    pub collective: String,
    /// Ranks in which they were found.
    pub ranks: Vec<u32>,
    /// Number of collectives.
    pub count: u64,
    /// Evidence that the kernels of the ranks belong together: `sequence` (numbers) or `order`.
    pub matched_by: String,
    /// Message size of one rank, summed, bytes; `None` if not recorded.
    pub bytes: Option<u64>,
    /// Shortest duration over ranks, summed, ns.
    pub latency_ns: i64,
    /// Mean spread of the starts, ns; `None` where it is not above the error of the clocks.
    pub skew_mean_ns: Option<i64>,
    /// Largest spread of the starts, ns; `None` where it is not above the error of the clocks.
    pub skew_max_ns: Option<i64>,
    /// Exposed time before the last rank arrived, summed over ranks, ns.
    pub waited_ns: i64,
    /// Rank that arrived last most often; `None` where no skew is above the error of the clocks.
    pub last_rank: Option<u32>,
    /// Number of collectives in which that rank arrived last.
    pub last_count: u64,
}

/// A rank for which others wait in a stage.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Straggler {
    /// Rank.
    pub rank: u32,
    /// Stage of its collectives; `None` outside of stages.
    pub stage: Option<String>,
    /// Number of matched collectives in which it arrived last.
    pub last_count: u64,
    /// Number of matched collectives of the stage that it takes part in.
    pub collective_count: u64,
    /// Exposed time that the other ranks (their median) waited for it, ns.
    pub waited_for_ns: i64,
    /// Kernel other than communication with the largest `kernel_excess_ns`; `None` where none takes longer.
    pub kernel: Option<String>,
    /// Time of that kernel in the stage above the median of the other ranks, ns.
    pub kernel_excess_ns: Option<i64>,
    /// Idle time in the stage above the median of the other ranks, ns; negative below it.
    pub idle_excess_ns: Option<i64>,
}
