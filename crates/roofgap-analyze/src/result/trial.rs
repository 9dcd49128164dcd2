//! The result of `roofgap try`, `roofgap.try/2`, field by field as in `try.json`.
//!
//! A trial measures changes of a workload against the workload as it was, in pairs of runs. Ratios are time before
//! divided by time after: 2 is twice as fast.

use super::Knob;

/// Schema of [`Trial`].
pub const TRY_SCHEMA: &str = "roofgap.try/2";

results! {
    /// One call of `roofgap try`.
    #[derive(Default)]
    pub struct Trial {
        /// Name of the schema.
        #[cfg_attr(feature = "schema", schemars(extend("const" = TRY_SCHEMA)))]
        pub schema: String,
        /// Id of the run whose workload is changed.
        pub run_id: String,
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
        /// Last lines of the log, where the unchanged workload failed.
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
        /// Changed workloads, in the order of measurement: each change alone, then those that help together.
        pub rows: Vec<TrialRow>,
        /// The workload with every change that is kept; null where nothing is.
        pub winner: Option<Winner>,
        /// Remarks for the reader, such as gains above their bounds.
        #[serde(default)]
        pub notes: Vec<String>,
    }
}

impl Trial {
    /// Returns the row that measures the winner against the unchanged workload.
    pub fn winner_row(&self) -> Option<&TrialRow> {
        self.rows.get(self.winner.as_ref()?.row)
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
        /// The unchanged workload failed.
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
            Self::Process => "process",
        }
    }
}

results! {
    /// A changed workload against the unchanged one.
    pub struct TrialRow {
        /// The change; null for several together.
        pub knob: Option<Knob>,
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
        /// It does not do the same work; the reason says why.
        Refused,
        /// The changed workload failed.
        Failed,
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
        /// Ends of the 95 % confidence interval of `ratio`; null with fewer than two pairs.
        pub interval: Option<(f64, f64)>,
        /// Largest ratio that the findings predict: the time divided by the time without the bounds of all tried findings of the
        /// change; null where they have no bound on it.
        pub bound_ratio: Option<f64>,
        /// True where the ratio can be within its bound, false where the whole interval is above; null without a bound.
        pub within_bound: Option<bool>,
    }
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
    pub struct Winner {
        /// Ids of the knobs, the largest gain first.
        pub knobs: Vec<String>,
        /// Index of the row that measures it against the unchanged workload.
        pub row: usize,
        /// Command that profiles the workload with these changes.
        pub command: String,
    }
}
