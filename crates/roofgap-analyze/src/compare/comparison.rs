//! The result: `roofgap.comparison/1`, field by field what the JSON holds.
//!
//! Stages are given by instance (one run of the stage), so that runs with another number of repeats compare. Times are
//! integer nanoseconds, percentages run from 0 to 100, and a change is head less base: a positive time is a loss.

use crate::names::Family;
use crate::result::{results, words};

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
        /// The whole trace.
        pub totals: TotalsChange,
        /// Kernels of the whole trace, largest change first; empty where a side has none.
        pub kernels: Vec<KernelChange>,
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

    /// Something in which the two sides are not the same.
    #[derive(Eq)]
    pub struct Difference {
        /// Fact: `gpu`, `model`, `prompt_tokens`, ...
        pub what: String,
        /// Effect on the comparison.
        pub weight: Weight,
        /// On the base; `None` where it does not say.
        pub base: Option<String>,
        /// On the head.
        pub head: Option<String>,
        /// Meaning for the numbers.
        pub meaning: String,
    }

    /// The judgement of a change.
    #[derive(Copy, Eq, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum Judgement {
        /// Within the noise, and less than a factor of two.
        Same,
        /// Beyond the noise, for the better.
        Better,
        /// Beyond the noise, for the worse.
        Worse,
        /// Neither: beyond the noise by outlier steps alone, or a part of a time that changed by a factor of two and less than the noise
        /// of the whole.
        Unclear,
        /// Not measured on both sides, or not comparable.
        #[default]
        Unknown,
    }
}

impl Judgement {
    /// Returns the word for people; `None` where it is unknown.
    pub fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Same => Some("same"),
            Self::Better => Some("better"),
            Self::Worse => Some("worse"),
            Self::Unclear => Some("unclear"),
            Self::Unknown => None,
        }
    }
}

results! {
    /// A number on both sides.
    #[derive(Default)]
    pub struct Change<T> {
        /// On the base; `None` where it was not measured.
        pub base: Option<T>,
        /// On the head.
        pub head: Option<T>,
        /// Head less base.
        pub delta: Option<T>,
        /// That in percent of the base.
        pub delta_pct: Option<f64>,
        /// Noise.
        pub noise: Option<T>,
        /// Judgement.
        pub judgement: Judgement,
    }
}

impl<T: Copy> Change<T> {
    /// Converts the values.
    pub fn map<U>(&self, convert: impl Fn(T) -> U) -> Change<U> {
        let [base, head, delta, noise] =
            [self.base, self.head, self.delta, self.noise].map(|value| value.map(&convert));
        Change { base, head, delta, delta_pct: self.delta_pct, noise, judgement: self.judgement }
    }

    /// Tells whether at least one side has it.
    pub fn is_on_a_side(&self) -> bool {
        self.base.is_some() || self.head.is_some()
    }

    /// Tells whether both sides have it.
    pub fn is_on_both_sides(&self) -> bool {
        self.base.is_some() && self.head.is_some()
    }
}

results! {
    /// A stage on both sides, by instance.
    #[derive(Default)]
    pub struct StageChange {
        /// Name.
        pub name: String,
        /// Number of instances on the base and on the head.
        pub instances: [u64; 2],
        /// Steps of an instance on the base and on the head.
        pub steps: [Option<f64>; 2],
        /// Basis on which the stage compares.
        #[serde(default)]
        pub basis: Basis,
        /// Source of the noise of wall and idle times.
        pub wall_noise_from: String,
        /// Steps far from all others, which are part of the wall time and not of its noise; left out without any.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub outliers: Vec<Outlier>,
        /// Time on the CPU.
        pub wall_ns: Change<i64>,
        /// Time of a step, mean of those that are no outliers.
        pub step_ns: Change<i64>,
        /// Time per token, all sequences together.
        #[serde(default)]
        pub token_ns: Change<i64>,
        /// Time without any tool watching, median of the repeats.
        pub unwatched_ns: Change<i64>,
        /// Time in which the GPU worked.
        pub busy_ns: Change<i64>,
        /// Sum of kernel durations.
        pub kernel_ns: Change<i64>,
        /// All idle time between its first and last GPU operation.
        pub idle_ns: Change<i64>,
        /// Idle because the CPU had not launched yet.
        pub idle_launch_ns: Change<i64>,
        /// Idle while the launching thread waited for the device.
        pub idle_sync_ns: Change<i64>,
        /// Idle while the launching thread was in a copy call.
        pub idle_copy_ns: Change<i64>,
        /// Idle for another reason.
        pub idle_other_ns: Change<i64>,
        /// Launches of an instance.
        pub launches: Change<f64>,
        /// Launches of a step.
        pub launches_per_step: Change<f64>,
        /// Model FLOPs utilisation by wall time.
        pub mfu_pct: Change<f64>,
        /// Memory bandwidth utilisation by wall time.
        pub mbu_pct: Change<f64>,
        /// Memory bandwidth utilisation by wall time, by sampled counters.
        #[serde(default)]
        pub mbu_measured_pct: Change<f64>,
        /// Parts that add up to the change of the wall time.
        pub explanation: Explanation,
        /// Kernels, largest change first; empty where they were not measured on both sides.
        pub kernels: Vec<KernelChange>,
        /// Functions of the launching threads, largest change first; left out where a side has no stacks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub functions: Vec<FunctionChange>,
    }

    /// A function of the CPU whose time keeps the GPU idle.
    pub struct FunctionChange {
        /// Function.
        pub function: String,
        /// File, or library of a native function; null where unknown.
        pub file: Option<String>,
        /// Idle time of the GPU in the function itself, by step or instance.
        pub idle_ns: Change<i64>,
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

    /// The parts whose sum is the change of a stage's wall time, exactly.
    #[derive(Default)]
    pub struct Explanation {
        /// The change to explain.
        pub wall_delta_ns: i64,
        /// The parts, largest first. Their `delta_ns` add up to `wall_delta_ns`.
        pub parts: Vec<Part>,
        /// Reason for missing parts.
        pub why_not: Option<String>,
    }

    /// Of what kind a part is.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "snake_case")]
    pub enum PartKind {
        /// A kernel.
        Kernel,
        /// Copies, sets and whole graphs, less the time in which operations ran at once.
        OtherGpuWork,
        /// Idle: the CPU had not launched yet.
        IdleLaunch,
        /// Idle: the launching thread waited for the device.
        IdleSync,
        /// Idle: the launching thread was in a copy call.
        IdleCopy,
        /// Idle for another reason.
        IdleOther,
        /// The CPU before the first and after the last GPU operation.
        OutsideGpu,
        /// A named part of a stage that has no GPU work.
        Note,
        /// The rest: several devices at once, rounding, or all of it where nothing finer is known.
        Rest,
    }

    /// A part of a change.
    #[derive(Eq)]
    pub struct Part {
        /// Kind.
        pub kind: PartKind,
        /// The kernel or note; a few words for the others.
        pub name: String,
        /// Head less base.
        pub delta_ns: i64,
        /// True if the change is larger than the noise of the part.
        pub beyond_noise: bool,
    }

    /// The whole trace on both sides.
    #[derive(Default)]
    pub struct TotalsChange {
        /// Sum of kernel durations.
        pub kernel_ns: Change<i64>,
        /// Union of all GPU operations.
        pub busy_ns: Change<i64>,
        /// Kernels that ran.
        pub kernel_count: Change<f64>,
    }

    /// The way in which two kernels were matched.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "snake_case")]
    pub enum MatchedBy {
        /// The same name.
        Name,
        /// Another name, the same family and a like place: it changed its name.
        FamilyAndPlace,
        /// It is on one side only.
        Nothing,
    }

    /// The change of a kernel.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "snake_case")]
    pub enum KernelStatus {
        /// Within the noise.
        Same,
        /// A call takes less time.
        Faster,
        /// A call takes more time.
        Slower,
        /// It is called more often.
        MoreCalls,
        /// It is called less often.
        FewerCalls,
        /// Only the head has it.
        Added,
        /// Only the base has it.
        Gone,
        /// It is missing or called less often on the side that recorded its CUDA graphs whole, without their kernels.
        InGraph,
    }
}

impl KernelStatus {
    /// Tells whether the kernel itself changed.
    pub fn is_change(self) -> bool {
        !matches!(self, Self::Same | Self::InGraph)
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
        /// Way in which the two were matched.
        pub matched_by: MatchedBy,
        /// Reason to match two names.
        pub match_reason: Option<String>,
        /// On the base.
        pub base: Option<KernelSide>,
        /// On the head.
        pub head: Option<KernelSide>,
        /// Head less base.
        pub delta_ns: i64,
        /// The part of it that comes from another number of calls.
        pub from_calls_ns: i64,
        /// The part of it that comes from another length of a call.
        pub from_length_ns: i64,
        /// Noise of the total.
        pub noise_ns: i64,
        /// Change.
        pub status: KernelStatus,
    }

    /// The outcome of a gate.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "snake_case")]
    pub enum GateOutcome {
        /// Within its limit.
        Held,
        /// Over its limit, but within the noise.
        WithinNoise,
        /// Over its limit and beyond the noise.
        Broken,
        /// The number was not measured on both sides.
        NotMeasured,
    }

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

    /// The outcome of all gates.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "snake_case")]
    pub enum GateVerdict {
        /// All held, or there was none.
        Held,
        /// At least one broke.
        Broken,
        /// None broke, and a number that at least one of them compares is missing.
        NotMeasured,
    }
}

impl Comparison {
    /// Returns the outcome of all gates: 0, 5 or 3 as an exit status.
    pub fn verdict(&self) -> GateVerdict {
        let any = |outcome| self.gates.iter().any(|gate| gate.outcome == outcome);
        if any(GateOutcome::Broken) {
            GateVerdict::Broken
        } else if any(GateOutcome::NotMeasured) {
            GateVerdict::NotMeasured
        } else {
            GateVerdict::Held
        }
    }

    /// Tells whether the sides are incomparable.
    pub fn is_incomparable(&self) -> bool {
        self.differences.iter().any(|difference| difference.weight == Weight::Incomparable)
    }
}

impl StageChange {
    /// Tells whether any change is beyond the noise.
    pub fn has_changed(&self) -> bool {
        let times = [
            &self.wall_ns,
            &self.step_ns,
            &self.token_ns,
            &self.unwatched_ns,
            &self.busy_ns,
            &self.kernel_ns,
            &self.idle_ns,
        ];
        let real = |judgement| matches!(judgement, Judgement::Better | Judgement::Worse);
        times.iter().any(|change| real(change.judgement))
            || real(self.launches.judgement)
            || self.kernels.iter().any(|kernel| kernel.status.is_change())
    }
}

impl From<GateVerdict> for roofgap_base::exit::Exit {
    fn from(verdict: GateVerdict) -> Self {
        match verdict {
            GateVerdict::Held => Self::Done,
            GateVerdict::Broken => Self::GateBroken,
            GateVerdict::NotMeasured => Self::Partial,
        }
    }
}

/// A number of a stage.
#[derive(Debug)]
pub struct Metric {
    /// Field of a stage in the JSON; the ending is the unit.
    pub field: &'static str,
    /// Label of its row in a table.
    pub label: &'static str,
    /// Direction that is better.
    pub better: Better,
    /// True if it compares although the sides did different work.
    pub of_any_work: bool,
    /// Clock that profilers distort.
    pub(super) clock: Clock,
    of: fn(&StageChange) -> Change<f64>,
    judgement: fn(&mut StageChange) -> &mut Judgement,
}

/// The direction that is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

/// The clock of a number: recordings that differ distort the times of the CPU more than those of the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// Times and rates on the CPU.
    Cpu,
    /// Times on the GPU.
    Gpu,
    /// Counts, and times without a profiler.
    None,
}

macro_rules! metrics {
    ($($field:ident $label:literal $better:ident $of_any_work:literal $clock:ident,)*) => {
        &[$(Metric {
            field: stringify!($field),
            label: $label,
            better: Better::$better,
            of_any_work: $of_any_work,
            clock: Clock::$clock,
            of: |stage| stage.$field.map(|value| value as f64),
            judgement: |stage| &mut stage.$field.judgement,
        },)*]
    };
}

/// All metrics, in the order of tables.
pub static METRICS: &[Metric] = metrics![
    wall_ns "wall ms" Lower false Cpu,
    unwatched_ns "unprofiled ms" Lower false None,
    step_ns "step ms" Lower true Cpu,
    busy_ns "GPU busy ms" Lower false Gpu,
    kernel_ns "kernels ms" Lower false Gpu,
    idle_ns "idle ms" Lower false Cpu,
    idle_launch_ns "  not launched yet" Lower false Cpu,
    idle_sync_ns "  waiting for the device" Lower false Cpu,
    idle_copy_ns "  in a copy call" Lower false Cpu,
    idle_other_ns "  other" Lower false Cpu,
    token_ns "per token µs" Lower true Cpu,
    launches "launches" Lower false None,
    launches_per_step "launches per step" Lower true None,
    mfu_pct "MFU %" Higher true Cpu,
    mbu_pct "MBU %" Higher true Cpu,
    mbu_measured_pct "measured MBU %" Higher true Cpu,
];

impl Metric {
    /// Returns the name in a gate: the field without its unit.
    pub fn name(&self) -> &'static str {
        let unit = |ending| self.field.strip_suffix(ending);
        unit("_ns").or_else(|| unit("_pct")).unwrap_or(self.field)
    }

    /// Returns the unit: `ns`, `%` or `count`.
    pub fn unit(&self) -> &'static str {
        match self.field.strip_prefix(self.name()) {
            Some("_ns") => "ns",
            Some("_pct") => "%",
            _ => "count",
        }
    }

    /// Tells whether it is a time.
    pub fn is_time(&self) -> bool {
        self.unit() == "ns"
    }

    /// Reads a name, or the JSON field (`wall_ns`, `mfu_pct`).
    pub(super) fn parse(text: &str) -> Option<&'static Self> {
        let plain = text.replace('.', "_");
        METRICS.iter().find(|metric| [metric.name(), metric.field].contains(&plain.as_str()))
    }

    /// Returns the number of a stage.
    pub fn of(&self, stage: &StageChange) -> Change<f64> {
        (self.of)(stage)
    }

    /// Returns the number of the whole trace; `None` where it is not known of one.
    pub(super) fn of_totals(&self, totals: &TotalsChange) -> Option<Change<f64>> {
        let change = match self.name() {
            "busy" => &totals.busy_ns,
            "kernel" => &totals.kernel_ns,
            _ => return None,
        };
        Some(change.map(|ns| ns as f64))
    }

    /// Withdraws the judgement of the number of a stage.
    pub(super) fn withdraw(&self, stage: &mut StageChange) {
        *(self.judgement)(stage) = Judgement::Unknown;
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.field == other.field
    }
}
