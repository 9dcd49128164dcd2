//! The result of an analysis, `roofgap.analysis/1`, field by field as in the JSON.
//!
//! Times are integer nanoseconds, sizes are bytes, percentages run from 0 to 100. A value that was not measured is null (`None`).

/// Declares types of the JSON: each can be cloned, compared, written and read, and has a schema. Other traits are derived as usual.
macro_rules! results {
    ($($(#[$meta:meta])* pub $kind:ident $name:ident $(<$parameter:ident>)? { $($fields:tt)* })*) => {$(
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        $(#[$meta])*
        pub $kind $name $(<$parameter>)? { $($fields)* }
    )*};
}

/// Declares an enum of the JSON by the name of each value.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$about:meta])* $value:ident = $word:literal,)* }) => {
        $crate::result::results! {
            #[derive(Copy, Eq)]
            $(#[$meta])*
            pub enum $name { $($(#[$about])* #[serde(rename = $word)] $value,)* }
        }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$value,)*];

            /// Returns the name in the JSON.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word,)* }
            }

            /// Returns the value of a name in the JSON.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == name)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.pad(self.as_str())
            }
        }
    };
}

mod capture;
mod finding;
mod gpu_work;
mod incident;
mod job;
mod serving;
mod stage;
mod trial;
mod vitals;

pub(crate) use {results, words};

pub use capture::*;
pub use finding::*;
pub use gpu_work::*;
pub use incident::*;
pub use job::*;
pub use serving::*;
pub use stage::*;
pub use trial::*;
pub use vitals::*;

pub use roofgap_trace::account::{GaugeStats, Percentiles, RequestFailure, RequestStats};

use roofgap_trace::account::Stage1Figures;
use std::fmt;

/// The name of the schema.
pub const SCHEMA: &str = "roofgap.analysis/1";

results! {
    /// The analysis of one run or capture.
    #[derive(Default)]
    #[non_exhaustive]
    pub struct Analysis {
        /// Name of the schema.
        #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
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
        /// Findings: one for each cause of a stage, by what it is likely to save; then those that are part of another.
        pub findings: Vec<Finding>,
        /// Edges of the graph that predictions are replayed on; null without calls.
        #[serde(default)]
        pub execution: Option<EdgeCounts>,
        /// Profiler overhead.
        pub overhead: Vec<Overhead>,
        /// The other recording of the program; left out where there is one recording.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub agreement: Option<Agreement>,
        /// Losses of data on the way from the program to the analysis.
        pub losses: Vec<LossInfo>,
        /// Sum of the stages whose work is known.
        #[serde(default)]
        pub whole: Option<Whole>,
        /// Range names, by time; operators that torch's `emit_nvtx` numbers count as one name.
        #[serde(default)]
        pub ranges: Vec<RangeInfo>,
        /// The workload, from the program's own account.
        #[serde(default)]
        pub workload: Option<WorkloadInfo>,
        /// Numbers of one run; null where the capture does not consist of runs.
        #[serde(default)]
        pub per_run: Option<PerRun>,
        /// Serving engine, where its step names were found.
        #[serde(default)]
        pub engine: Option<EngineInfo>,
        /// Parts of the start, from the start of the first process to the first step; they add up. Empty where the program does not tell.
        #[serde(default)]
        pub startup: Vec<StartPart>,
        /// Requests that a load generator sent to the server, without a profiler where such a run was made.
        #[serde(default)]
        pub requests: Option<RequestStats>,
        /// Steps of the engine together, and the latency of requests joined with them; null without engine steps.
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
        /// The moment that the recording was kept for; left out for any other recording.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub incident: Option<Incident>,
        /// Ranks of a distributed job.
        #[serde(default)]
        pub ranks: Vec<RankInfo>,
        /// The ranks together; null where fewer than two were given.
        #[serde(default)]
        pub job: Option<Job>,
        /// Figures of the Stage 1 runner that ran the model, as it wrote them.
        #[serde(default)]
        pub stage1: Option<Stage1Figures>,
        /// The recorded part; null where everything was recorded.
        #[serde(default)]
        pub coverage: Option<Coverage>,
        /// Power, clocks and energy of the GPUs; left out where they were not sampled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub vitals: Option<Vitals>,
        /// Reasons for values that are null or empty.
        #[serde(default)]
        pub reasons: Vec<Reason>,
    }
}

impl Analysis {
    /// Returns the stage of a name.
    pub fn stage(&self, name: &str) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.name == name)
    }

    /// Returns the first reason about a part of the analysis.
    pub fn reason(&self, about: &About) -> Option<&str> {
        let reason = self.reasons.iter().find(|reason| reason.about == *about);
        reason.map(|reason| reason.why.as_str())
    }

    /// Returns the profiler that recorded the timeline.
    pub(crate) fn recorder(&self) -> Option<Profiler> {
        self.sources.iter().find_map(|source| Profiler::of_timeline(&source.format))
    }

    /// Returns the overhead of the profiler that recorded the timeline. Other profilers run separately, so that their overhead is
    /// not in the times shown.
    pub fn timeline_overhead(&self) -> impl Iterator<Item = &Overhead> {
        let recorder = self.recorder();
        self.overhead.iter().filter(move |overhead| Some(overhead.tool) == recorder)
    }
}

results! {
    /// A reason for a value that is null or empty.
    pub struct Reason {
        /// The part of the analysis, as a path into the JSON such as `stages.decode.mfu`.
        pub about: About,
        /// The reason, as a sentence without a full stop.
        pub why: String,
    }
}

/// Why a number is not known, as the sentence of a [`Reason`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotKnown(String);

impl From<String> for NotKnown {
    fn from(why: String) -> Self {
        Self(why)
    }
}

impl From<&str> for NotKnown {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}

impl From<NotKnown> for String {
    fn from(why: NotKnown) -> Self {
        why.0
    }
}

impl Reason {
    /// Gives a reason for a part of the analysis.
    pub fn new(about: About, why: impl Into<String>) -> Self {
        Self { about, why: why.into() }
    }
}

results! {
    /// The part of an analysis that a reason is about.
    #[derive(Eq)]
    #[serde(from = "String", into = "String")]
    #[non_exhaustive]
    pub enum About {
        /// `sources`
        Sources,
        /// `stages`
        Stages,
        /// `stages.NAME`
        Stage(String),
        /// `stages.NAME.mfu`
        StageMfu(String),
        /// `stages.NAME.mbu`
        StageMbu(String),
        /// `stages.NAME.tokens_per_s`
        StageTokens(String),
        /// `kernels`
        Kernels,
        /// `operators`
        Operators,
        /// `counters`
        Counters,
        /// `overhead`
        Overhead,
        /// Any other path.
        Other(String),
    }
}

impl fmt::Display for About {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sources => out.write_str("sources"),
            Self::Stages => out.write_str("stages"),
            Self::Stage(name) => write!(out, "stages.{name}"),
            Self::StageMfu(name) => write!(out, "stages.{name}.mfu"),
            Self::StageMbu(name) => write!(out, "stages.{name}.mbu"),
            Self::StageTokens(name) => write!(out, "stages.{name}.tokens_per_s"),
            Self::Kernels => out.write_str("kernels"),
            Self::Operators => out.write_str("operators"),
            Self::Counters => out.write_str("counters"),
            Self::Overhead => out.write_str("overhead"),
            Self::Other(path) => out.write_str(path),
        }
    }
}

impl From<About> for String {
    fn from(about: About) -> Self {
        about.to_string()
    }
}

impl From<String> for About {
    fn from(path: String) -> Self {
        match path.as_str() {
            "sources" => Self::Sources,
            "stages" => Self::Stages,
            "kernels" => Self::Kernels,
            "operators" => Self::Operators,
            "counters" => Self::Counters,
            "overhead" => Self::Overhead,
            _ => match path.strip_prefix("stages.") {
                Some(stage) => match stage.rsplit_once('.') {
                    Some((name, "mfu")) => Self::StageMfu(name.to_owned()),
                    Some((name, "mbu")) => Self::StageMbu(name.to_owned()),
                    Some((name, "tokens_per_s")) => Self::StageTokens(name.to_owned()),
                    _ => Self::Stage(stage.to_owned()),
                },
                None => Self::Other(path),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_a_round_trip() {
        for path in [
            "sources",
            "stages",
            "stages.decode",
            "stages.a.b.mfu",
            "stages.decode.mbu",
            "stages.decode.tokens_per_s",
            "kernels",
            "requests",
        ] {
            assert_eq!(About::from(path.to_owned()).to_string(), path);
        }
        assert_eq!(About::from("stages.a.b.mfu".to_owned()), About::StageMfu("a.b".into()));
    }
}
