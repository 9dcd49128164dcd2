//! The sides of a comparison, the differences that make them incomparable, and the basis on which they compare: the whole,
//! one instance, or a step and a token.

use super::comparison::Weight::{Caution, Incomparable};
use super::comparison::{About, Basis, Comparison, Difference, Judgement, KernelChange, StageChange, Weight};
use super::gate::TOTAL;
use super::noise::is_doubled;
use super::stage::{Kind, METRICS, StageSide, has_whole_graphs};
use crate::numbers::{count, decimal};
use crate::result::{Analysis, KernelOrigin, PhaseCounts, Stage, StageKind};
use roofgap_trace::LossKind;
use std::collections::BTreeMap;

/// Facts of a side beside its analysis.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SideFacts {
    /// Run id or file name.
    pub title: String,
    /// Mode of a run: `deep` or `light`.
    pub mode: Option<String>,
    /// Workload of a run.
    pub workload: Option<String>,
    /// Wall times without a profiler by stage, one per repeat, ns.
    pub unwatched: BTreeMap<String, Vec<i64>>,
}

/// One side of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// Analysis.
    pub analysis: &'a Analysis,
    /// Other facts.
    pub facts: &'a SideFacts,
}

impl<'a> Side<'a> {
    pub(super) fn of_stage(self, stage: &'a Stage) -> StageSide<'a> {
        let repeats = self.facts.unwatched.get(&stage.name).map_or(&[][..], Vec::as_slice);
        StageSide::new(stage, repeats)
    }
}

/// The weight of a difference, its subject, the basis that is left, and the meaning.
type Effect = (Weight, About, Basis, &'static str);

/// The effect of a difference that only asks for care.
const fn caution(meaning: &'static str) -> Effect {
    (Caution, About::Work, Basis::Whole, meaning)
}

const PROGRAM: Effect = (
    Incomparable,
    About::Program,
    Basis::Whole,
    "times of different hardware or number formats do not compare",
);
const MODEL: Effect =
    (Incomparable, About::Program, Basis::StepAndToken, "a different model does different work");
const AMOUNT: Effect = (
    Incomparable,
    About::Work,
    Basis::StepAndToken,
    "a different number of tokens or steps is a different amount of work",
);
const RECORDED: Effect = (
    Caution,
    About::Recording,
    Basis::Whole,
    "profilers have different overhead: wall and idle times do not compare, kernel times do",
);
const MODE: Effect = (
    Incomparable,
    About::Recording,
    Basis::Whole,
    "deep and light runs have different profiler overhead: wall and idle times do not compare",
);
const PART: Effect = (
    Incomparable,
    About::Work,
    Basis::Whole,
    "one side was recorded in part: its numbers are those of the recorded steps",
);
const FROM: Effect = (
    Caution,
    About::Recording,
    Basis::Whole,
    "the program timed one side: wall and idle times do not compare",
);
const OUTPUT: Effect = caution("the programs generated different tokens");
const SELECTION: Effect =
    (Caution, About::Work, Basis::Instance, "ncu measured different launches: totals do not compare");
const REPEATED: Effect =
    (Caution, About::Work, Basis::Instance, "totals do not compare, values of one instance do");
const OTHER_WORK: Effect = (
    Incomparable,
    About::Work,
    Basis::Instance,
    "the same kernels ran a different number of times: the whole traces cover different work",
);
const NO_GPU_WORK: Effect = (
    Incomparable,
    About::Program,
    Basis::Nothing,
    "one side ran on the CPU, or its GPU work was not recorded: no time compares",
);
const ONE_SIDED: Effect = caution("GPU work was recorded on one side only and does not compare");
const GRAPHS: Effect = (
    Caution,
    About::Program,
    Basis::Whole,
    "the kernels of graphs that were recorded whole are not in the capture: kernels and their time do not compare",
);
const FEW_COMMON: Effect = (
    Caution,
    About::Program,
    Basis::Whole,
    "few kernels are on both sides, or a step runs them a different number of times: these may be different models or programs",
);
const OTHER: Effect = caution("the sides may do different work");
const CLOCK: Effect = caution("a difference in time may be that of the clock");
const UNKNOWN: Effect = caution("only one side gives it: not checked");

/// A fact: its name, the effect where it differs, and its value.
type Fact = (&'static str, Effect, Option<String>);

/// Lists the facts of a side.
fn facts_of_side(side: Side<'_>) -> Vec<Fact> {
    let work = side.analysis.workload.clone().unwrap_or_default();
    vec![
        ("gpu", PROGRAM, hardware(side)),
        ("model", MODEL, work.model),
        ("dtype", PROGRAM, work.dtype),
        ("parameters", MODEL, number(work.parameters)),
        ("prompt_tokens", AMOUNT, number(work.prompt_tokens)),
        ("generated_tokens", AMOUNT, number(work.generated_tokens)),
        ("batch", AMOUNT, number(work.batch)),
        ("vision_tokens", AMOUNT, number(work.vision_tokens)),
        ("mode", MODE, side.facts.mode.clone()),
        ("timeline", RECORDED, timeline(side.analysis)),
        ("revision", OTHER, work.revision),
        ("weights", OTHER, work.weights),
        ("workload", OTHER, side.facts.workload.clone()),
        ("output", OUTPUT, work.token_hash),
    ]
}

/// Lists the facts of a stage.
fn facts_of_stage(stage: &Stage) -> Vec<Fact> {
    let each = |count: u64| decimal(count as f64 / stage.instances.max(1) as f64, 2);
    let coverage = if stage.coverage.is_some() { "a part" } else { "all" };
    vec![
        ("steps", AMOUNT, stage.steps.as_ref().map(|steps| each(steps.count))),
        ("coverage", PART, Some(coverage.to_owned())),
        ("from", FROM, Some(stage.from.to_string())),
        ("tokens", AMOUNT, stage.tokens.and_then(by_phase)),
        ("requests", OTHER, stage.requests.and_then(by_phase)),
        ("instances", REPEATED, number(Some(stage.instances))),
    ]
}

/// The fact that the same kernels ran a different number of times.
const LAUNCHES: &str = "launches";

/// The fact that the two sides have few kernels in common.
const COMMON_KERNELS: &str = "common kernels";

/// Least ratio of the clocks of two sides that may be the cause of a difference.
pub const OTHER_CLOCK: f64 = 1.03;

/// Lists the differences of two sides, worst first, and the facts that neither side gives.
pub fn differences(sides: [Side<'_>; 2], kernels: &[KernelChange]) -> (Vec<Difference>, Vec<String>) {
    let (mut list, mut unchecked) = (Vec::new(), Vec::new());
    let mut add = |what: String, effect: Effect, [base, head]: Values| {
        let is_known = base.is_some() && head.is_some();
        let (weight, about, basis, meaning) = if is_known { effect } else { UNKNOWN };
        list.push(Difference { what, weight, about, basis, base, head, meaning: meaning.to_owned() });
    };
    let [base, head] = sides;
    // Few programs give these two, and others stand for them.
    let expected = |name| !["parameters", "vision_tokens"].contains(&name);
    for ((name, effect, old), (.., new)) in facts_of_side(base).into_iter().zip(facts_of_side(head)) {
        if old != new {
            add(name.to_owned(), effect, [old, new]);
        } else if old.is_none() && ![OTHER, OUTPUT].contains(&effect) && expected(name) {
            unchecked.push(name.to_owned());
        }
    }
    let launches = sides.map(|side| Some(count(side.analysis.totals.kernel_count)));
    // ncu measures a selection of launches.
    let is_selection = sides.iter().any(|side| side.analysis.totals.from == KernelOrigin::Counters);
    let (cover, is_other) = match is_selection {
        true => (SELECTION, launches[0] != launches[1]),
        false => (OTHER_WORK, run_otherwise(kernels)),
    };
    let (gpu, work) = gpu_work(sides);
    for (name, effect, values) in [
        ("graphs", GRAPHS, graphs(sides)),
        ("gpu_work", gpu, work),
        (LAUNCHES, cover, is_other.then_some(launches)),
        (COMMON_KERNELS, FEW_COMMON, common_kernels(sides, kernels)),
    ] {
        values.into_iter().for_each(|values| add(name.to_owned(), effect, values));
    }
    let mut clocks = Vec::new();
    for stage in &base.analysis.stages {
        let Some(other) = head.analysis.stage(&stage.name) else { continue };
        let facts = facts_of_stage(stage).into_iter().zip(facts_of_stage(other));
        for ((name, effect, old), (.., new)) in facts {
            if old.is_some() && new.is_some() && old != new {
                add(format!("{}.{name}", stage.name), effect, [old, new]);
            }
        }
        let clock = |stage: &Stage| stage.vitals.as_ref()?.sm_mhz.filter(|mhz| *mhz > 0.0);
        if let (Some(old), Some(new)) = (clock(stage), clock(other)) {
            clocks.push(((old / new).max(new / old), &stage.name, [old, new]));
        }
    }
    let largest = clocks.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((_, name, values)) = largest.filter(|(ratio, ..)| *ratio >= OTHER_CLOCK) {
        add(format!("{name}.clock"), CLOCK, values.map(|mhz| Some(format!("{mhz:.0} MHz"))));
    }
    list.sort_by_key(|difference| difference.weight);
    (list, unchecked)
}

/// The values of both sides.
type Values = [Option<String>; 2];

fn number(value: Option<u64>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn by_phase(counts: PhaseCounts) -> Option<String> {
    let phases = [("context", counts.context), ("generation", counts.generation)];
    let phases = phases.into_iter().filter_map(|(name, count)| Some((name, count.filter(|n| *n > 0)?)));
    known(phases.map(|(name, count)| format!("{count} {name}")).collect())
}

fn known(list: Vec<String>) -> Option<String> {
    (!list.is_empty()).then(|| list.join(", "))
}

/// Returns the names of the GPUs, equal ones counted.
pub fn gpus(analysis: &Analysis) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in analysis.devices.iter().filter_map(|device| device.name.as_deref()) {
        *counts.entry(name).or_default() += 1;
    }
    let counted = |(name, count): (&str, usize)| match count {
        1 => name.to_owned(),
        count => format!("{count} x {name}"),
    };
    counts.into_iter().map(counted).collect()
}

/// Names the hardware: the GPUs, or the device of the program's own account.
fn hardware(side: Side<'_>) -> Option<String> {
    known(gpus(side.analysis)).or_else(|| side.analysis.workload.as_ref()?.device.clone())
}

/// Options of a profiler that make the program slower, by the loss that declares them.
const OPTIONS: [(LossKind, &str); 3] = [
    (LossKind::StacksRecorded, "stacks"),
    (LossKind::ShapesRecorded, "shapes"),
    (LossKind::AllocationsRecorded, "allocations"),
];

/// Returns the format of the timeline, and what else its profiler recorded.
fn timeline(analysis: &Analysis) -> Option<String> {
    let source = analysis.sources.iter().find(|s| !s.format.starts_with("ncu"))?;
    let is_on = |kind: &LossKind| analysis.losses.iter().any(|loss| loss.id == kind.id());
    let options: Vec<&str> = OPTIONS.iter().filter(|(kind, _)| is_on(kind)).map(|(_, name)| *name).collect();
    // A report says what its export says.
    let format = if source.format == "nsys-rep" { "nsys-sqlite" } else { source.format.as_str() };
    Some(match options.is_empty() {
        true => format.to_owned(),
        false => format!("{format} with {}", options.join(", ")),
    })
}

/// Says how many launches of CUDA graphs were recorded whole, where only one side has any; `None` without GPU work.
fn graphs(sides: [Side<'_>; 2]) -> Option<Values> {
    let has_any = sides.map(|side| !side.analysis.graphs.is_empty());
    (has_any[0] != has_any[1]).then(|| {
        sides.map(|Side { analysis, .. }| {
            let launches = analysis.graphs.iter().map(|graph| graph.launches).sum();
            analysis.totals.busy_ns.map(|_| format!("{} launches recorded whole", count(launches)))
        })
    })
}

/// Compares the processors: where only one side has GPU work, and nothing says that the other ran on the same GPU, it may have run on
/// the CPU.
fn gpu_work(sides: [Side<'_>; 2]) -> (Effect, Option<Values>) {
    let has_work = sides.map(|Side { analysis, .. }| {
        let in_stage = |stage: &Stage| stage.busy_ns.is_some() || stage.kernel_ns.is_some();
        analysis.totals.busy_ns.is_some()
            || !analysis.kernels.is_empty()
            || analysis.stages.iter().any(in_stage)
    });
    let [base, head] = sides;
    let without = if has_work[0] { head } else { base };
    let is_told = hardware(without).is_some() || timeline(without.analysis).is_some();
    let word = |has_work: bool| Some(if has_work { "recorded" } else { "none" }.to_owned());
    let is_other = is_told && hardware(base) != hardware(head);
    let effect = if is_other { NO_GPU_WORK } else { ONE_SIDED };
    (effect, (has_work[0] != has_work[1]).then(|| has_work.map(word)))
}

/// Share of the kernel time of a side, in %, below which the kernels that both sides have say nothing about the rest.
const FEW_COMMON_PCT: f64 = 25.0;

/// Compares the programs by their kernels, where the model of a side is unknown: kernels that both sides have, also under a similar
/// name, take little of the time of two different models.
fn common_kernels(sides: [Side<'_>; 2], kernels: &[KernelChange]) -> Option<Values> {
    let [base, head] = sides.map(|side| side.analysis);
    let model = |side: &Analysis| side.workload.as_ref()?.model.clone();
    let is_same = model(base).is_some() && model(base) == model(head);
    if is_same || kernels.is_empty() {
        return None;
    }
    let pct = [0, 1].map(|side| {
        let time = |kernel: &KernelChange| {
            [&kernel.base, &kernel.head][side].as_ref().map_or(0.0, |own| own.total_ns as f64)
        };
        let common = kernels.iter().filter(|kernel| kernel.base.is_some() && kernel.head.is_some());
        100.0 * common.map(time).sum::<f64>() / kernels.iter().map(time).sum::<f64>().max(1.0)
    });
    let is_few = pct.iter().any(|pct| *pct < FEW_COMMON_PCT);
    // Models share libraries, and differ in how often a step runs their kernels.
    let [base, head] = [base, head].map(|side| {
        let steps = side.stages.iter().filter_map(|stage| stage.steps.as_ref());
        steps.map(|steps| steps.count).sum::<u64>()
    });
    let is_other = base > 0 && base == head && run_otherwise(kernels);
    (is_few || is_other).then(|| pct.map(|pct| Some(format!("{pct:.0} % of the time"))))
}

/// Difference of calls, of the larger number, from which on a kernel does different work.
const OTHER_CALLS: f64 = 0.1;

/// Tells whether the kernels that take most of the common time run a different number of times.
fn run_otherwise(kernels: &[KernelChange]) -> bool {
    let (mut common, mut other) = (0.0, 0.0);
    for kernel in kernels {
        if let (Some(b), Some(h), false) = (&kernel.base, &kernel.head, kernel.renamed) {
            let time = b.total_ns as f64 + h.total_ns as f64;
            common += time;
            if (b.calls - h.calls).abs() > OTHER_CALLS * b.calls.max(h.calls) {
                other += time;
            }
        }
    }
    other > common / 2.0
}

/// Judges on what basis a stage compares, or the whole trace, and withdraws the judgements of the numbers that do not. Times of
/// different recordings compare beyond a factor of two, which is more than the usual overhead of a profiler.
pub fn withdraw(change: &mut StageChange, differences: &[Difference], [base, head]: [&Stage; 2]) {
    let concerned: Vec<&Difference> = differences.iter().filter(|own| own.concerns(&change.name)).collect();
    let any = |what: &str, weight| differences.iter().any(|d| d.what == what && d.weight == weight);
    // Where whole traces cover different work, so does the stage of a whole trace.
    let least = match base.kind == StageKind::Whole && any(LAUNCHES, Incomparable) {
        true if any(COMMON_KERNELS, Caution) => Basis::Nothing,
        true => Basis::StepAndToken,
        false => Basis::Whole,
    };
    change.basis = concerned.iter().map(|own| own.basis).fold(least, Basis::max);
    let of_recording = concerned.iter().any(|own| own.about == About::Recording);
    let whole_graphs = has_whole_graphs(base, head);
    for metric in METRICS {
        let Some(number) = change.numbers.get_mut(metric.field) else { continue };
        let is_close = number.base.zip(number.head).is_none_or(|(base, head)| !is_doubled(base, head));
        let distorted = match metric.kind {
            Kind::Wall | Kind::Step | Kind::IdleTime | Kind::Rate => of_recording || whole_graphs,
            Kind::Gpu => whole_graphs,
            Kind::Unprofiled | Kind::Count => false,
        };
        let of_other_work = match change.basis {
            Basis::Nothing => true,
            Basis::StepAndToken => !metric.of_any_work,
            Basis::Instance => change.name == TOTAL,
            Basis::Whole => false,
        };
        if of_other_work || (distorted && (is_close || metric.field == "kernel_ns")) {
            number.judgement = Judgement::Unknown;
        }
    }
}

impl Difference {
    /// Tells whether it is one of the stage or of all. It takes every one to compare the whole trace.
    fn concerns(&self, stage: &str) -> bool {
        stage == TOTAL || self.what.rsplit_once('.').is_none_or(|(owner, _)| owner == stage)
    }

    /// Tells whether it is a reason not to compare as usual: another amount of work, basis, program, hardware or recording.
    fn is_cause(&self) -> bool {
        self.about != About::Work || self.basis != Basis::Whole || self.weight == Weight::Incomparable
    }
}

impl Comparison {
    /// Says in what the models of the two sides differ, or seem to; `None` where nothing says so.
    pub(super) fn other_model(&self) -> Option<String> {
        let meanings = [MODEL.3, FEW_COMMON.3];
        let own = self.differences.iter().find(|own| meanings.contains(&own.meaning.as_str()))?;
        let [base, head] = [&own.base, &own.head].map(|side| side.as_deref().unwrap_or("unknown"));
        Some(format!("{} {base} against {head}, {}", own.what, own.meaning))
    }

    /// Names the differences for which a stage, or `total`, does not compare; empty without any.
    pub fn because(&self, stage: &str) -> String {
        let causes = self.differences.iter().filter(|own| own.concerns(stage) && own.is_cause());
        let names: Vec<&str> = causes.map(|own| own.what.as_str()).collect();
        if names.is_empty() { String::new() } else { format!("different {}", names.join(", ")) }
    }
}
