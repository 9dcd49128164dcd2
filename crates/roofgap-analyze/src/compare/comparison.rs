//! The result: `roofgap.comparison/1`, field by field what the JSON holds.
//!
//! Stages are given by instance (one run of the stage), so that runs with another number of repeats compare. Times are
//! integer nanoseconds, percentages run from 0 to 100, and a change is head less base: a positive time is a loss.

use crate::names::Family;
use crate::result::{results, words};
use roofgap_base::exit::Exit;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The name of this schema.
pub const COMPARISON_SCHEMA: &str = "roofgap.comparison/1";

results! {
    /// The basis of a comparison. A later one holds for more differences between the sides.
    #[derive(Copy, Eq, PartialOrd, Ord, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum Basis {
        /// Both sides did the same work.
        #[default]
        Whole,
        /// Both did the same work a different number of times: values of one instance compare.
        Instance,
        /// The work differs in model or tokens: values of a step and of a token compare.
        StepAndToken,
        /// Nothing compares: only one side ran on a GPU, or the stage is the whole trace of another program.
        Nothing,
    }

    /// Two runs side by side.
    #[derive(Default)]
    pub struct Comparison {
        /// Always [`COMPARISON_SCHEMA`].
        pub schema: String,
        /// Base.
        pub base: SideInfo,
        /// Head.
        pub head: SideInfo,
        /// Basis on which the two compare as a whole.
        #[serde(default)]
        pub basis: Basis,
        /// In what the two are not the same thing, worst first.
        pub differences: Vec<Difference>,
        /// Facts that were not checked because neither side gives them.
        pub unchecked: Vec<String>,
        /// Stages that both have.
        pub stages: Vec<StageChange>,
        /// Stages of the base that the head has not.
        pub stages_gone: Vec<String>,
        /// Stages of the head that the base has not.
        pub stages_added: Vec<String>,
        /// The whole trace as a stage: its kernel time, the time in which the GPU worked, and its kernels.
        pub total: StageChange,
        /// Results of the gates.
        pub gates: Vec<GateResult>,
    }

    /// Facts of one side.
    #[derive(Default)]
    pub struct SideInfo {
        /// A run id or the name of a file.
        pub title: String,
        /// The files it was made from.
        pub sources: Vec<String>,
        /// Names of its GPUs.
        pub gpus: Vec<String>,
        /// The model.
        pub model: Option<String>,
        /// `deep` or `light`.
        pub mode: Option<String>,
    }

    /// The effect of a difference between the sides.
    #[derive(Copy, Eq, PartialOrd, Ord)]
    #[serde(rename_all = "snake_case")]
    pub enum Weight {
        /// The two did not do the same work, or not on the same hardware: times do not compare.
        Incomparable,
        /// Times compare with care.
        Caution,
    }

    /// The subject of a difference.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "snake_case")]
    pub enum About {
        /// The program, its hardware or its graphs.
        Program,
        /// The recording: where it differs, so does the overhead of the profiler in the times of the CPU.
        Recording,
        /// The amount of work, or a fact that only one side gives.
        Work,
    }

    /// Something in which the two sides are not the same.
    #[derive(Eq)]
    pub struct Difference {
        /// Fact: `gpu`, `model`, `prompt_tokens`, ...
        pub what: String,
        /// Effect on the comparison.
        pub weight: Weight,
        /// Subject.
        pub about: About,
        /// Basis on which the two still compare.
        pub basis: Basis,
        /// On the base; `None` where it does not say.
        pub base: Option<String>,
        /// On the head.
        pub head: Option<String>,
        /// Meaning for the numbers.
        pub meaning: String,
    }
}

words! {
    /// The judgement of a change.
    #[derive(Default)]
    pub enum Judgement {
        /// Within the noise, and less than a factor of two.
        Same = "same",
        /// Beyond the noise, for the better.
        Better = "better",
        /// Beyond the noise, for the worse.
        Worse = "worse",
        /// Neither: beyond the noise by outlier steps alone, or a part of a time that changed by a factor of two and less than the noise
        /// of the whole.
        Unclear = "unclear",
        /// Not measured on both sides, or not comparable.
        #[default]
        Unknown = "unknown",
    }
}

results! {
    /// A number on both sides.
    #[derive(Copy, Default)]
    pub struct Change {
        /// On the base; `None` where it was not measured.
        #[serde(serialize_with = "short")]
        pub base: Option<f64>,
        /// On the head.
        #[serde(serialize_with = "short")]
        pub head: Option<f64>,
        /// Head less base.
        #[serde(serialize_with = "short")]
        pub delta: Option<f64>,
        /// That in percent of the base.
        pub delta_pct: Option<f64>,
        /// Noise.
        #[serde(serialize_with = "short")]
        pub noise: Option<f64>,
        /// Judgement.
        pub judgement: Judgement,
    }
}

impl Change {
    /// Tells whether at least one side has it.
    pub fn is_on_a_side(&self) -> bool {
        self.base.is_some() || self.head.is_some()
    }
}

/// Writes a whole number without a fraction.
fn short<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) if value.fract() == 0.0 => serializer.serialize_i64(*value as i64),
        value => value.serialize(serializer),
    }
}

/// Numbers on both sides by field of the JSON.
pub type Numbers = BTreeMap<String, Change>;

results! {
    /// A stage on both sides, by instance.
    #[derive(Default)]
    pub struct StageChange {
        /// Name.
        pub name: String,
        /// Number of instances on the base and on the head.
        pub instances: [u64; 2],
        /// Basis on which the stage compares.
        #[serde(default)]
        pub basis: Basis,
        /// Source of the noise of wall and idle times.
        pub wall_noise_from: String,
        /// Steps far from all others, which are part of the wall time and not of its noise; left out without any.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub outliers: Vec<Outlier>,
        /// Values of [`METRICS`](super::METRICS).
        #[serde(flatten)]
        pub numbers: Numbers,
        /// Parts whose sum is the change of the wall time, exactly; largest first.
        pub parts: Vec<Part>,
        /// Kernels, largest change first; empty where they do not compare: they were not measured on both sides, or one side recorded its
        /// CUDA graphs whole, without their kernels.
        pub kernels: Vec<KernelChange>,
    }
}

words! {
    /// A side of a comparison.
    pub enum SideName {
        /// Before.
        Base = "base",
        /// After.
        Head = "head",
    }
}

results! {
    /// A step that took much longer than the others of its stage.
    #[derive(Eq)]
    pub struct Outlier {
        /// Side.
        pub side: SideName,
        /// Number of the step, from 1.
        pub step: u64,
        /// Time of the step, ns.
        pub ns: i64,
        /// Part of that time above the usual one, ns.
        pub excess_ns: i64,
    }

    /// A part of a change.
    #[derive(Eq)]
    pub struct Part {
        /// A few words; the name of a note.
        pub name: String,
        /// Head less base.
        pub delta_ns: i64,
        /// True if the change is larger than the noise of the part.
        pub beyond_noise: bool,
    }
}

words! {
    /// The change of a kernel.
    pub enum KernelStatus {
        /// Within the noise.
        Same = "same",
        /// A call takes less time.
        Faster = "faster",
        /// A call takes more time.
        Slower = "slower",
        /// It is called more often.
        MoreCalls = "more_calls",
        /// It is called less often.
        FewerCalls = "fewer_calls",
        /// Only the head has it.
        Added = "added",
        /// Only the base has it.
        Gone = "gone",
    }
}

results! {
    /// A kernel on one side.
    #[derive(Default)]
    pub struct KernelSide {
        /// As the tool gave it.
        pub name: String,
        /// Sum of durations.
        pub total_ns: i64,
        /// Number of launches.
        pub calls: f64,
        /// Mean.
        pub mean_ns: i64,
    }

    /// A kernel on both sides, all devices together.
    pub struct KernelChange {
        /// For tables; that of the head where there is one.
        pub short_name: String,
        /// Kind of work.
        pub family: Family,
        /// True for two names that are taken for one kernel.
        pub renamed: bool,
        /// On the base.
        pub base: Option<KernelSide>,
        /// On the head.
        pub head: Option<KernelSide>,
        /// Head less base.
        pub delta_ns: i64,
        /// Noise of the total.
        pub noise_ns: i64,
        /// Change.
        pub status: KernelStatus,
    }
}

words! {
    /// The outcome of a gate.
    pub enum GateOutcome {
        /// Within its limit.
        Held = "held",
        /// Over its limit, but within the noise.
        WithinNoise = "within_noise",
        /// Over its limit and beyond the noise.
        Broken = "broken",
        /// The number was not measured on both sides.
        NotMeasured = "not_measured",
    }
}

results! {
    /// A gate held against one number.
    pub struct GateResult {
        /// The gate as it was asked for.
        pub gate: String,
        /// The stage; `None` for the whole trace.
        pub stage: Option<String>,
        /// The number, such as `wall`.
        pub metric: String,
        /// Change for the worse, % of the base; below 0 is better.
        pub worse_pct: Option<f64>,
        /// Outcome.
        pub outcome: GateOutcome,
        /// In words.
        pub why: String,
    }
}

impl Comparison {
    /// Returns the exit status that the gates come to.
    pub fn verdict(&self) -> Exit {
        let any = |outcome| self.gates.iter().any(|gate| gate.outcome == outcome);
        if any(GateOutcome::Broken) {
            Exit::GateBroken
        } else if any(GateOutcome::NotMeasured) {
            Exit::Partial
        } else {
            Exit::Done
        }
    }

    /// Tells whether the sides are incomparable.
    pub fn is_incomparable(&self) -> bool {
        self.differences.iter().any(|difference| difference.weight == Weight::Incomparable)
    }
}

impl StageChange {
    /// Returns a number by its field.
    pub fn number(&self, field: &str) -> Change {
        self.numbers.get(field).copied().unwrap_or_default()
    }
}
