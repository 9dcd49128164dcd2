//! The result of `roofgap try` and `roofgap tune`, `roofgap.try/1`, field by field as in `try.json` and `tune.json`.
//!
//! A trial measures changes of a workload against the workload as it was, in blocks of one run each. Ratios are time before
//! divided by time after: 2 is twice as fast.

use super::Knob;
use roofgap_base::numbers::{significant, time};

/// Schema of [`Trials`].
pub const TRY_SCHEMA: &str = "roofgap.try/1";

results! {
    /// All trials of one run, `try.json`, or its search, `tune.json`.
    #[derive(Default)]
    pub struct Trials {
        /// Name of the schema.
        #[cfg_attr(feature = "schema", schemars(extend("const" = TRY_SCHEMA)))]
        pub schema: String,
        /// Id of the run whose findings are tried.
        pub run_id: String,
        /// Trials, the oldest first.
        pub trials: Vec<Trial>,
    }
}

impl Trials {
    /// Returns the trial that a report shows: the latest.
    pub fn latest(&self) -> Option<&Trial> {
        self.trials.last()
    }
}

results! {
    /// One call of `roofgap try`, or a search of `roofgap tune`.
    #[derive(Default)]
    pub struct Trial {
        /// Version of roofgap.
        pub roofgap_version: String,
        /// Start time (RFC 3339, UTC).
        pub started: String,
        /// End time; null while it runs, and where it was killed.
        pub finished: Option<String>,
        /// State.
        pub state: TrialState,
        /// Reason for a state other than `done`, or for work that was left out.
        pub reason: Option<String>,
        /// Last lines of the log, where the workload to compare with failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub log_tail: Option<String>,
        /// Time budget, ns.
        pub budget_ns: i64,
        /// Time spent, ns.
        pub spent_ns: i64,
        /// Fewest pairs of runs that decide.
        pub repeats: u32,
        /// The unchanged workload.
        pub base: BaseRuns,
        /// Changed workloads, in the order of measurement.
        pub rows: Vec<TrialRow>,
        /// The workload with every change that is kept; null where nothing is.
        pub winner: Option<Winner>,
        /// Remarks for the reader, such as gains above their bounds.
        #[serde(default)]
        pub notes: Vec<String>,
        /// The rules and the evidence of a search; left out for `roofgap try`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub search: Option<Search>,
        /// Every run in the order in which it ended. All rows follow from them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub runs: Vec<TrialRun>,
    }
}

impl Trial {
    /// Returns the row that measures the winner against the unchanged workload.
    pub fn winner_row(&self) -> Option<&TrialRow> {
        self.rows.get(self.winner.as_ref()?.row?)
    }
}

results! {
    /// The rules of a search, and the evidence that others can check.
    #[derive(Default)]
    pub struct Search {
        /// Quantity to improve.
        pub goal: Goal,
        /// Largest times that a kept change may have.
        #[serde(default)]
        pub limits: Vec<MeanTime>,
        /// Most memory that a kept change may use, bytes.
        pub max_memory_bytes: Option<u64>,
        /// Smallest gain worth a proof, as a ratio.
        pub least_ratio: f64,
        /// Keeps changes that may change the output.
        pub accept_changed_output: bool,
        /// Seed of the order of runs.
        pub seed: u64,
        /// Share of false wins over the whole search, whenever it stops.
        pub false_wins: f64,
        /// Number of proofs that were begun. Proof k spends `false_wins` / (k (k + 1)).
        pub proofs: u64,
        /// Typical factor between two runs of the unchanged workload: e to the standard deviation of the logarithms.
        pub noise_ratio: Option<f64>,
        /// Largest gain that the roof of the model leaves, as a ratio; null where it is not known.
        pub roof_ratio: Option<f64>,
        /// Time that decides in the baseline of the run that is tuned, ns; null where it has none.
        pub baseline_ns: Option<i64>,
        /// Changes to try, with the number of runs before each was known: 0 for those of the start.
        pub candidates: Vec<SearchCandidate>,
        /// Takes changes that others propose, such as agents.
        #[serde(default)]
        pub accepts_proposals: bool,
        /// Files that the search depends on.
        pub files: Vec<HashedFile>,
        /// Command that repeats the search.
        pub command: String,
    }

    /// A change that a search may try.
    pub struct SearchCandidate {
        /// The change.
        pub knob: Knob,
        /// Origin: `finding`, `catalogue`, `space` or `proposal`.
        pub origin: String,
        /// Number of runs before it was known.
        pub after_runs: u64,
        /// Largest gain that the findings predict, as a ratio; null where they say nothing.
        pub bound_ratio: Option<f64>,
        /// Mean gain in earlier trials, as a ratio. It orders the changes and decides nothing.
        pub prior_ratio: Option<f64>,
    }

    /// A file and its hash.
    #[derive(Eq, Default)]
    pub struct HashedFile {
        /// Path.
        pub path: String,
        /// SHA-256 of the content.
        pub sha256: String,
    }

    /// One run of the workload without a profiler.
    #[derive(Default)]
    pub struct TrialRun {
        /// Ids of its knobs; none for the unchanged workload.
        pub knobs: Vec<String>,
        /// Time that it took, start and end included, ns.
        pub took_ns: i64,
        /// Measurements; null where it failed.
        pub sample: Option<Sample>,
        /// Reason why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub failure: Option<Failure>,
    }

    /// Measurements of one run.
    #[derive(Default)]
    pub struct Sample {
        /// Times, ns. The first decides.
        pub times: Vec<(MeasuredTime, f64)>,
        /// Hash of the generated tokens.
        pub token_hash: Option<String>,
        /// Peak memory of the device, bytes.
        pub device_memory_bytes: Option<u64>,
        /// Generated tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub output_tokens: Option<u64>,
        /// Requests that were answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub requests: Option<u64>,
        /// Lines of the log that report an error.
        #[serde(default)]
        pub log_errors: u64,
        /// Median clock of the multiprocessors while the GPUs worked, MHz.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub sm_mhz: Option<f64>,
    }

    /// Failure of a run.
    #[derive(Eq, Default)]
    pub struct Failure {
        /// Reason.
        pub why: String,
        /// Last lines of the log.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub log_tail: Option<String>,
    }
}

impl Sample {
    /// Returns a time, ns.
    pub fn time(&self, of: &MeasuredTime) -> Option<f64> {
        let found = self.times.iter().find(|(known, _)| known == of);
        found.map(|(_, ns)| *ns)
    }
}

impl Failure {
    /// Creates a failure without a log.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), log_tail: None }
    }
}

words! {
    /// Quantity that a search improves.
    #[derive(Default)]
    pub enum Goal {
        /// Tokens per second.
        #[default]
        Throughput = "throughput",
        /// Time per output token.
        Tpot = "tpot",
        /// Time to first token.
        Ttft = "ttft",
        /// Requests per second that meet the limits.
        Goodput = "goodput",
        /// Energy per token.
        Joules = "joules",
    }
}

impl Goal {
    /// Lists the measurements that the goal is about; the first that a program has decides.
    pub fn decides(self) -> Vec<MeasuredTime> {
        let stage = |name: &str| MeasuredTime::Stage(name.to_owned());
        match self {
            Self::Throughput => {
                vec![MeasuredTime::Run, MeasuredTime::Token, MeasuredTime::Request, MeasuredTime::Process]
            }
            Self::Tpot => vec![MeasuredTime::Itl, MeasuredTime::Token],
            Self::Ttft => vec![MeasuredTime::Ttft, stage("prefill")],
            Self::Goodput => vec![MeasuredTime::GoodRequest],
            Self::Joules => vec![MeasuredTime::Energy],
        }
    }
}

results! {
    /// State of a trial.
    #[derive(Copy, Eq, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum TrialState {
        /// Running, or killed before it ended.
        #[default]
        #[serde(rename = "under_way")]
        Running,
        /// Ended, within its budget or at the end of it.
        Done,
        /// Interrupted by the user; the rows are what was measured until then.
        Interrupted,
        /// The workload that changes are compared with failed.
        Failed,
    }

    /// Runs of the unchanged workload.
    #[derive(Default)]
    pub struct BaseRuns {
        /// Number of runs.
        pub runs: u64,
        /// Hash of the output where all runs have the same.
        pub token_hash: Option<String>,
        /// True where two runs or more have the same output, false where outputs differ; null where it is not known.
        pub deterministic: Option<bool>,
        /// Peak memory: of tensors on the device, or of the process where the device is the CPU, bytes.
        pub device_memory_bytes: Option<u64>,
        /// Mean times.
        pub times: Vec<MeanTime>,
        /// Reason for times of the whole process, where the program reports no stages.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub times_reason: Option<String>,
    }

    /// Mean of a time over runs.
    #[derive(Eq, Default)]
    pub struct MeanTime {
        /// Measured quantity.
        pub of: MeasuredTime,
        /// Mean, ns.
        pub mean_ns: i64,
    }

    /// A time that is compared.
    #[derive(Eq, PartialOrd, Ord, Hash, Default)]
    #[serde(tag = "kind", content = "name", rename_all = "snake_case")]
    pub enum MeasuredTime {
        /// All stages of one sequence.
        #[default]
        Run,
        /// Wall time of a stage per sequence.
        Stage(String),
        /// Time per generated token, all sequences together.
        Token,
        /// Mean time to first token of the requests.
        Ttft,
        /// Mean time between tokens of the requests.
        Itl,
        /// Mean time of a request.
        Request,
        /// Time per request that meets the limits.
        GoodRequest,
        /// Energy per token; nanojoules stand for nanoseconds.
        Energy,
        /// Wall time of the process, start-up included.
        Process,
    }
}

impl MeasuredTime {
    /// Returns the name for people.
    pub fn name(&self) -> &str {
        match self {
            Self::Run => "whole run",
            Self::Stage(name) => name,
            Self::Token => "time per token",
            Self::Ttft => "time to first token",
            Self::Itl => "time between tokens",
            Self::Request => "time of a request",
            Self::GoodRequest => "time per good request",
            Self::Energy => "energy per token",
            Self::Process => "process",
        }
    }

    /// Formats a value for people: a time, or joules.
    pub fn amount(&self, ns: i64) -> String {
        match self {
            Self::Energy => format!("{} J", significant(ns as f64 / 1e9)),
            _ => time(ns),
        }
    }
}

results! {
    /// A changed workload against the one it changes.
    pub struct TrialRow {
        /// The change; null for several together, or for the unchanged workload against itself.
        pub knob: Option<Knob>,
        /// Ids of the knobs that both sides have.
        pub on_top_of: Vec<String>,
        /// Ids of all knobs of the changed side.
        pub knobs: Vec<String>,
        /// Ids of the findings whose action it is.
        pub findings: Vec<String>,
        /// Result.
        pub verdict: TrialVerdict,
        /// Reason for the verdict where the times alone do not say it.
        pub reason: Option<String>,
        /// Last lines of the log of a failed run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub log_tail: Option<String>,
        /// Number of runs of the changed workload that ended well.
        pub runs: u64,
        /// Compared times. The first decides.
        pub times: Vec<TimeChange>,
        /// Output of the changed workload.
        pub output: OutputCheck,
        /// Peak memory: of tensors on the device, or of the process where the device is the CPU, bytes.
        pub device_memory_bytes: Option<u64>,
        /// Mean clocks of the multiprocessors while the GPUs worked, before and after the change, MHz; left out where they were not sampled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub clocks_mhz: Option<(f64, f64)>,
        /// Command that runs the workload with all knobs of this row.
        pub command: String,
    }
}

impl TrialRow {
    /// Returns the compared time that decides.
    pub fn deciding(&self) -> Option<&TimeChange> {
        self.times.first()
    }

    /// Returns true for a finished comparison with the unchanged workload.
    pub fn is_comparison(&self) -> bool {
        use TrialVerdict::{Dropped, Failed, Refused, Skipped, Unfinished};
        let ended = !matches!(self.verdict, Unfinished | Refused | Failed | Dropped | Skipped);
        self.on_top_of.is_empty() && !self.knobs.is_empty() && ended
    }
}

results! {
    /// Result of a changed workload.
    #[derive(Copy, Eq, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum TrialVerdict {
        /// Too few pairs to decide.
        #[default]
        Unfinished,
        /// Faster, and part of the winner.
        Kept,
        /// Faster, but not kept; the reason says why.
        Faster,
        /// No measurable change.
        Same,
        /// Slower.
        Slower,
        /// It does not do the same work within its limits; the reason says why.
        Refused,
        /// The changed workload failed.
        Failed,
        /// Left a search before a proof; the reason says why.
        Dropped,
        /// Never ran; the reason says why.
        Skipped,
    }
}

impl TrialVerdict {
    /// Returns the result for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unfinished => "unfinished",
            Self::Kept => "kept",
            Self::Faster => "faster, not kept",
            Self::Same => "no measurable change",
            Self::Slower => "slower",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
            Self::Skipped => "not run",
        }
    }
}

results! {
    /// A time before and after a change.
    pub struct TimeChange {
        /// Measured quantity.
        pub of: MeasuredTime,
        /// Times before the change, ns, one a pair.
        pub before_ns: Vec<i64>,
        /// Times after the change, ns, in the same order.
        pub after_ns: Vec<i64>,
        /// Time before divided by time after: geometric mean over pairs.
        pub ratio: Option<f64>,
        /// Ends of the 95 % confidence interval of `ratio`; null with fewer than two pairs. In a search the ends hold whenever it
        /// stops, for all proofs together, and are null before a proof.
        pub interval: Option<(f64, f64)>,
        /// Largest ratio that the findings predict: the time divided by the time without the bounds of all tried findings of the
        /// change; null where they have no bound on it.
        pub bound_ratio: Option<f64>,
        /// True where the ratio can be within its bound, false where the whole interval is above; null without a bound.
        pub within_bound: Option<bool>,
    }
}

impl TimeChange {
    /// Returns the measured direction; `None` with fewer than two pairs.
    pub fn direction(&self) -> Option<Direction> {
        let (low, high) = self.interval?;
        Some(if low > 1.0 {
            Direction::Faster
        } else if high < 1.0 {
            Direction::Slower
        } else {
            Direction::Same
        })
    }
}

/// Direction of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The interval is above 1.
    Faster,
    /// The interval contains 1.
    Same,
    /// The interval is below 1.
    Slower,
}

results! {
    /// Comparison of the output with that of the unchanged workload.
    #[derive(Eq)]
    #[serde(tag = "tokens", rename_all = "snake_case")]
    pub enum OutputCheck {
        /// All runs have the tokens of the unchanged workload.
        Identical,
        /// A run has other tokens.
        Different,
        /// Not compared.
        NotKnown {
            /// Reason why it was not compared.
            why: String,
        },
    }

    /// The workload with every change that is kept.
    #[derive(Default)]
    pub struct Winner {
        /// Ids of the knobs, in the order in which they were kept.
        pub knobs: Vec<String>,
        /// Index of the row that measures it against the unchanged workload; null where the budget was spent before.
        pub row: Option<usize>,
        /// Command that profiles the workload with these changes.
        pub command: String,
        /// Run directory of the winner under the profilers.
        pub watched_run: Option<String>,
        /// Reason why there is no watched run, or for what it misses.
        pub watched_reason: Option<String>,
        /// Command that compares the run with the watched run.
        pub compare_command: Option<String>,
    }
}
