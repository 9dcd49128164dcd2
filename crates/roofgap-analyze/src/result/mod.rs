//! The result of an analysis, `roofgap.analysis/1`, field by field as in the JSON.
//!
//! Times are integer nanoseconds, sizes are bytes, percentages run from 0 to 100. A value that was not measured is `None`.

mod capture;
mod coverage;
mod gpu_work;
mod job;
mod knob;
mod layers;
mod per_run;
mod reason;
mod roof;
mod serving;
mod stage;
mod tables;
mod trial;
mod utilisation;

pub use capture::{
    DeviceInfo, EngineInfo, KernelOrigin, LossInfo, LossMessage, RangeInfo, SourceInfo, Totals, WorkloadInfo,
};
pub use coverage::{Coverage, Estimate, StageCoverage};
pub use gpu_work::{CommunicationRow, CopyKind, CopyRow, GraphRow, RankActivity, RankInfo};
pub use job::{
    ExpertBalance, ExpertTime, Job, MatchedCollectives, MatchedTransfers, OtherProcess, StageUtilisation,
    Straggler,
};
pub use knob::{Knob, KnobChange, OutputEffect};
pub use layers::{LayerRow, LayerSpread};
pub use per_run::PerRun;
pub use reason::{About, Reason};
pub use roof::{RoofDistance, RoofSource};
pub use serving::{BatchRow, JoinedLatency, LatencyPart, Serving, ServingSlice, Stalls};
pub use stage::{
    ColdStart, CpuSteps, ForeignWork, Idle, LaunchAfter, Note, Outside, PhaseCounts, Stage, StageKind,
    StageOrigin, Steps,
};
pub use tables::{CacheRates, CounterRow, Finding, Kernel, NcuRule, Operator, Overhead, Profiler};
pub use trial::{
    BaseRuns, Direction, MeanTime, MeasuredTime, OutputCheck, TRY_SCHEMA, TimeChange, Trial, TrialRow,
    TrialState, TrialVerdict, Trials, Winner,
};
pub use utilisation::{Mbu, Mfu, Term, Whole};

pub use roofgap_trace::account::{GaugeStats, Percentiles, RequestFailure, RequestStats};

use roofgap_trace::account::Stage1Figures;
use serde::{Deserialize, Serialize};

/// The name of the schema.
pub const SCHEMA: &str = "roofgap.analysis/1";

/// The analysis of one run or capture.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Analysis {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Input files.
    pub sources: Vec<SourceInfo>,
    /// GPUs.
    pub devices: Vec<DeviceInfo>,
    /// Sums over the whole trace.
    pub totals: Totals,
    /// Stages, in the order of their first instance.
    pub stages: Vec<Stage>,
    /// Kernels of the whole trace, by total time.
    pub kernels: Vec<Kernel>,
    /// Framework operators, or ranges where there are none, by their own GPU time.
    pub operators: Vec<Operator>,
    /// Kernels by stage and layer of the model, by kernel time; empty where the capture names no modules.
    #[serde(default)]
    pub layers: Vec<LayerRow>,
    /// Hardware counters by kernel and launch shape.
    pub counters: Vec<CounterRow>,
    /// Results of ncu's own rules, suggestions first.
    #[serde(default)]
    pub ncu_rules: Vec<NcuRule>,
    /// Findings, largest possible saving first.
    pub findings: Vec<Finding>,
    /// Profiler overhead.
    pub overhead: Vec<Overhead>,
    /// Losses of data on the way from the program to the analysis.
    pub losses: Vec<LossInfo>,
    /// Sum of the stages whose work is known.
    #[serde(default)]
    pub whole: Option<Whole>,
    /// Range names, by time.
    #[serde(default)]
    pub ranges: Vec<RangeInfo>,
    /// The workload, from the program's own account.
    #[serde(default)]
    pub workload: Option<WorkloadInfo>,
    /// Numbers of one run; `None` where the capture does not consist of runs.
    #[serde(default)]
    pub per_run: Option<PerRun>,
    /// Serving engine, where its step names were found.
    #[serde(default)]
    pub engine: Option<EngineInfo>,
    /// Requests that a load generator sent to the server, without a profiler where such a run was made.
    #[serde(default)]
    pub requests: Option<RequestStats>,
    /// Steps of the engine together, and the latency of requests joined with them; `None` without engine steps.
    #[serde(default)]
    pub serving: Option<Serving>,
    /// Copies by device, direction and kind of host memory, by total time.
    #[serde(default)]
    pub copies: Vec<CopyRow>,
    /// Graphs that were recorded as one operation, by total time.
    #[serde(default)]
    pub graphs: Vec<GraphRow>,
    /// Communication kernels by device, collective and group, by total time.
    #[serde(default)]
    pub communication: Vec<CommunicationRow>,
    /// Ranks of a distributed job.
    #[serde(default)]
    pub ranks: Vec<RankInfo>,
    /// The ranks together; `None` where fewer than two were given.
    #[serde(default)]
    pub job: Option<Job>,
    /// Figures of the Stage 1 runner that ran the model.
    #[serde(default)]
    pub stage1: Option<Stage1Figures>,
    /// The recorded part; `None` where everything was recorded.
    #[serde(default)]
    pub coverage: Option<Coverage>,
    /// Reasons for values that are null or empty.
    #[serde(default)]
    pub reasons: Vec<Reason>,
}

impl Analysis {
    /// Returns the first reason about a part of the analysis.
    pub fn reason(&self, about: &About) -> Option<&str> {
        let reason = self.reasons.iter().find(|reason| reason.about == *about);
        reason.map(|reason| reason.why.as_str())
    }

    /// Returns the overhead of the profiler that recorded the timeline. Other profilers run separately, so that their overhead is
    /// not in the times shown.
    pub fn timeline_overhead(&self) -> impl Iterator<Item = &Overhead> {
        let mut recorders = self.sources.iter().filter_map(|source| Profiler::of_timeline(&source.format));
        let recorder = recorders.next();
        self.overhead.iter().filter(move |overhead| Some(overhead.tool) == recorder)
    }
}
