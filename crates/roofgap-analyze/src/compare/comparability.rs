//! The sides of a comparison, the differences that make them incomparable, and the basis on which they compare: the whole,
//! one instance, or a step and a token.

use super::comparison::Weight::{Caution, Incomparable};
use super::comparison::{
    Basis, Comparison, Difference, Judgement, KernelChange, KernelSide, MatchedBy, StageChange, Weight,
};
use super::kernels::whole_graphs;
use super::noise::is_doubled;
use super::stage::{Kind, METRICS, StageSide};
use crate::numbers::count;
use crate::result::{Analysis, KernelOrigin, PhaseCounts, Stage, StageKind, WorkloadInfo};
use crate::timeline::Grouped;
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
    pub(super) fn workload(self) -> Option<&'a WorkloadInfo> {
        self.analysis.workload.as_ref()
    }

    pub(super) fn of_stage(self, stage: &'a Stage) -> StageSide<'a> {
        let repeats = self.facts.unwatched.get(&stage.name).map_or(&[][..], Vec::as_slice);
        StageSide { stage, repeats, step_ns: None }
    }
}

/// A fact in which two sides may differ.
struct Fact {
    name: &'static str,
    weight: Weight,
    about: About,
    /// The basis that is left where it differs.
    basis: Basis,
    /// Named where neither side gives it.
    is_named: bool,
    meaning: &'static str,
    value: Value,
}

/// The subject of a fact.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    /// The program, its hardware or its graphs.
    Program,
    /// The recording: where it differs, so does the overhead of the profiler in the times of the CPU.
    Recording,
    Work,
}

/// The value of a fact.
enum Value {
    Side(fn(Side<'_>) -> Option<String>),
    /// One of each stage that both sides have.
    Stage(fn(&Stage) -> Option<String>),
    /// Of sides that differ.
    Both(fn([Side<'_>; 2], &[KernelChange]) -> Option<Values>),
}

/// The values of both sides.
type Values = [Option<String>; 2];

const HARDWARE: &str = "times of different hardware do not compare";
const MODEL: &str = "a different model does different work";
const TOKENS: &str = "a different number of tokens is a different amount of work";

const fn fact(
    name: &'static str,
    (weight, about, basis): (Weight, About, Basis),
    is_named: bool,
    meaning: &'static str,
    value: Value,
) -> Fact {
    Fact { name, weight, about, basis, is_named, meaning, value }
}

static FACTS: &[Fact] = {
    use About::{Program, Recording, Work};
    use Basis::{Instance, Nothing, StepAndToken, Whole};
    use Value::{Both, Side, Stage};
    const PROGRAM: (Weight, About, Basis) = (Incomparable, Program, Whole);
    const MODEL_SIZE: (Weight, About, Basis) = (Incomparable, Program, StepAndToken);
    const AMOUNT: (Weight, About, Basis) = (Incomparable, Work, StepAndToken);
    const OTHER: (Weight, About, Basis) = (Caution, Work, Whole);
    const RECORDED: (Weight, About, Basis) = (Caution, Recording, Whole);
    &[
        fact("gpu", PROGRAM, true, HARDWARE, Side(|side| hardware(side))),
        fact("model", MODEL_SIZE, true, MODEL, Side(|side| side.workload()?.model.clone())),
        fact(
            "dtype",
            PROGRAM,
            true,
            "a different number format does different work",
            Side(|side| side.workload()?.dtype.clone()),
        ),
        fact("parameters", MODEL_SIZE, false, MODEL, Side(|side| number(side.workload()?.parameters))),
        fact("prompt_tokens", AMOUNT, true, TOKENS, Side(|side| number(side.workload()?.prompt_tokens))),
        fact(
            "generated_tokens",
            AMOUNT,
            true,
            TOKENS,
            Side(|side| number(side.workload()?.generated_tokens)),
        ),
        fact("batch", AMOUNT, true, TOKENS, Side(|side| number(side.workload()?.batch))),
        fact("vision_tokens", AMOUNT, false, TOKENS, Side(|side| number(side.workload()?.vision_tokens))),
        fact(
            "mode",
            (Incomparable, Recording, Whole),
            true,
            "deep and light runs have different profiler overhead",
            Side(|side| side.facts.mode.clone()),
        ),
        fact(
            "timeline",
            RECORDED,
            true,
            "profilers have different overhead: wall and idle times do not compare, kernel times do",
            Side(|side| timeline(side.analysis)),
        ),
        fact(
            "graphs",
            (Caution, Program, Whole),
            false,
            "the kernels of graphs that were recorded whole are not in the capture: kernels and their time do not compare",
            Both(graphs),
        ),
        fact(
            "revision",
            OTHER,
            false,
            "different weights may generate different tokens",
            Side(|side| side.workload()?.revision.clone()),
        ),
        fact(
            "weights",
            OTHER,
            false,
            "random weights may route and generate differently",
            Side(|side| side.workload()?.weights.clone()),
        ),
        fact(
            "workload",
            OTHER,
            false,
            "the program was started differently",
            Side(|side| side.facts.workload.clone()),
        ),
        fact(
            "output",
            OTHER,
            false,
            "the same input gave different tokens: the change may alter results",
            Side(|side| side.workload()?.token_hash.clone()),
        ),
        fact(
            "gpu_work",
            (Incomparable, Program, Nothing),
            false,
            "one side ran on the CPU, or its GPU work was not recorded: no time compares",
            Both(gpu_work),
        ),
        fact(
            "steps",
            AMOUNT,
            false,
            "the stage has a different number of steps: compare by step",
            Stage(|stage| {
                Some((stage.steps.as_ref()?.count as f64 / stage.instances.max(1) as f64).to_string())
            }),
        ),
        fact(
            "coverage",
            (Incomparable, Work, Whole),
            false,
            "one side was recorded in part: its numbers are those of the recorded steps",
            Stage(|stage| Some(if stage.coverage.is_some() { "a part" } else { "all" }.to_owned())),
        ),
        fact(
            "from",
            RECORDED,
            false,
            "one is timed by a profiler, the other by the program",
            Stage(|stage| Some(stage.from.to_string())),
        ),
        fact(
            "launches",
            (Caution, Work, Instance),
            false,
            "ncu measures a selection of launches: totals do not compare, means of a kernel do",
            Both(measured_launches),
        ),
        fact("tokens", AMOUNT, false, TOKENS, Stage(|stage| by_phase(stage.tokens?))),
        fact(
            "requests",
            OTHER,
            false,
            "steps of a different batch take a different time",
            Stage(|stage| by_phase(stage.requests?)),
        ),
        fact(
            "instances",
            (Caution, Work, Instance),
            false,
            "totals do not compare, values of one instance do",
            Stage(|stage| number(Some(stage.instances))),
        ),
        fact(
            "launches",
            (Incomparable, Work, Instance),
            false,
            "the same kernels ran a different number of times: the whole traces cover different work",
            Both(covered_work),
        ),
        fact(
            COMMON_KERNELS,
            (Caution, Program, Whole),
            false,
            "few kernels are on both sides, or a step runs them a different number of times: these may be different models or programs",
            Both(common_kernels),
        ),
    ]
};

/// Lists the differences of two sides, worst first, and the facts that neither side gives.
pub fn differences(
    base: Side<'_>,
    head: Side<'_>,
    kernels: &[KernelChange],
) -> (Vec<Difference>, Vec<String>) {
    let (mut list, mut unchecked) = (Vec::new(), Vec::new());
    let pairs = base.analysis.stages.iter();
    let pairs: Vec<(&Stage, &Stage)> =
        pairs.filter_map(|stage| Some((stage, head.analysis.stage(&stage.name)?))).collect();
    for fact in FACTS {
        match fact.value {
            Value::Side(value) => {
                let sides = [base, head].map(value);
                if fact.is_named && sides == [None, None] {
                    unchecked.push(fact.name.to_owned());
                }
                list.extend((sides[0] != sides[1]).then(|| fact.difference(fact.name.to_owned(), sides)));
            }
            Value::Stage(value) => {
                for (stage, other) in &pairs {
                    let sides = [value(stage), value(other)];
                    if sides[0] != sides[1] && sides.iter().all(Option::is_some) {
                        list.push(fact.difference(format!("{}.{}", stage.name, fact.name), sides));
                    }
                }
            }
            Value::Both(values) => {
                let sides = values([base, head], kernels);
                list.extend(sides.map(|sides| fact.difference(fact.name.to_owned(), sides)));
            }
        }
    }
    list.extend(clocks(&pairs));
    list.sort_by_key(|difference| difference.weight);
    (list, unchecked)
}

impl Fact {
    fn difference(&self, what: String, [base, head]: Values) -> Difference {
        let (weight, meaning) = match (&base, &head) {
            (Some(_), Some(_)) => (self.weight, self.meaning),
            _ => (Caution, "only one side gives it: not checked"),
        };
        Difference { what, weight, base, head, meaning: meaning.to_owned() }
    }
}

/// Least ratio of the clocks of two sides that may be the cause of a difference.
pub const OTHER_CLOCK: f64 = 1.03;

/// Compares the clocks of the stages that both sides have; returns the largest difference.
fn clocks(pairs: &[(&Stage, &Stage)]) -> Option<Difference> {
    let clock = |stage: &Stage| stage.vitals.as_ref()?.sm_mhz.filter(|mhz| *mhz > 0.0);
    let clocks = pairs.iter().filter_map(|(stage, other)| Some((&stage.name, clock(stage)?, clock(other)?)));
    let ratio = |base: f64, head: f64| (base / head).max(head / base);
    let (name, base, head) = clocks.max_by(|a, b| ratio(a.1, a.2).total_cmp(&ratio(b.1, b.2)))?;
    let meaning = "the multiprocessors ran at another clock: a difference in time may be that of the clock";
    (ratio(base, head) >= OTHER_CLOCK).then(|| Difference {
        what: format!("{name}.clock"),
        weight: Caution,
        base: Some(format!("{base:.0} MHz")),
        head: Some(format!("{head:.0} MHz")),
        meaning: meaning.to_owned(),
    })
}

fn number(value: Option<u64>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn known(list: &[String]) -> Option<String> {
    (!list.is_empty()).then(|| list.join(", "))
}

/// Returns the names of the GPUs, equal ones counted.
pub fn gpus(analysis: &Analysis) -> Vec<String> {
    let mut counts: Grouped<&str, usize> = Grouped::default();
    for name in analysis.devices.iter().filter_map(|device| device.name.as_deref()) {
        *counts.entry(name, || 0) += 1;
    }
    let counted = |(name, count): (&str, usize)| match count {
        1 => name.to_owned(),
        count => format!("{count} x {name}"),
    };
    counts.keys.into_iter().zip(counts.items).map(counted).collect()
}

/// Names the hardware: the GPUs, or the device of the program's own account.
fn hardware(side: Side<'_>) -> Option<String> {
    known(&gpus(side.analysis)).or_else(|| side.workload()?.device.clone())
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
fn graphs(sides: [Side<'_>; 2], _: &[KernelChange]) -> Option<Values> {
    let [base, head] = sides.map(|side| &side.analysis.graphs);
    whole_graphs(base, head)?;
    let values = sides.map(|Side { analysis, .. }| {
        let launches: u64 = analysis.graphs.iter().map(|graph| graph.launches).sum();
        analysis.totals.busy_ns.map(|_| match launches {
            0 => "none recorded whole".to_owned(),
            launches => format!("{} launches recorded whole", count(launches)),
        })
    });
    (values[0] != values[1]).then_some(values)
}

/// Compares the processors: where only one side has GPU work, and nothing says that the other ran on the same GPU, it may have run on
/// the CPU.
fn gpu_work(sides: [Side<'_>; 2], _: &[KernelChange]) -> Option<Values> {
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
    (has_work[0] != has_work[1] && is_told && hardware(base) != hardware(head)).then(|| has_work.map(word))
}

fn launches(sides: [Side<'_>; 2]) -> Values {
    sides.map(|side| Some(count(side.analysis.totals.kernel_count)))
}

/// Tells whether a side has nothing but launches that ncu measured.
fn has_counters_alone(sides: [Side<'_>; 2]) -> bool {
    sides.iter().any(|side| side.analysis.totals.from == KernelOrigin::Counters)
}

/// Compares the numbers of launches that ncu measured.
fn measured_launches(sides: [Side<'_>; 2], _: &[KernelChange]) -> Option<Values> {
    Some(launches(sides)).filter(|[base, head]| has_counters_alone(sides) && base != head)
}

/// Compares the work that two timelines cover. A change of the program replaces kernels and leaves the others their calls; where
/// those that take most of the common time run a different number of times, one side covers more of the run, such as a warm-up.
fn covered_work(sides: [Side<'_>; 2], kernels: &[KernelChange]) -> Option<Values> {
    (!has_counters_alone(sides) && run_otherwise(kernels)).then(|| launches(sides))
}

/// The fact that the two sides have few kernels in common.
const COMMON_KERNELS: &str = "common kernels";

/// Share of the kernel time of a side, in %, below which the kernels that both sides have say nothing about the rest.
const FEW_COMMON_PCT: f64 = 25.0;

/// Compares the programs by their kernels, where the model of a side is unknown: kernels that both sides have, also under a similar
/// name, take little of the time of two different models. Models that share libraries differ in how often a step runs their kernels.
fn common_kernels(sides: [Side<'_>; 2], kernels: &[KernelChange]) -> Option<Values> {
    let [base, head] = sides.map(|side| side.workload().and_then(|workload| workload.model.as_ref()));
    let is_same = base.is_some() && base == head;
    let [base, head] = sides.map(|side| side.analysis);
    if is_same || kernels.is_empty() || whole_graphs(&base.graphs, &head.graphs).is_some() {
        return None;
    }
    let common_pct = |of: fn(&KernelChange) -> &Option<KernelSide>| {
        let time = |kernel: &KernelChange| of(kernel).as_ref().map_or(0.0, |side| side.total_ns as f64);
        let common = kernels.iter().filter(|kernel| kernel.matched_by != MatchedBy::Nothing);
        100.0 * common.map(time).sum::<f64>() / kernels.iter().map(time).sum::<f64>().max(1.0)
    };
    let pct = [common_pct(|kernel| &kernel.base), common_pct(|kernel| &kernel.head)];
    let is_few = pct.iter().any(|pct| *pct < FEW_COMMON_PCT);
    let [base, head] = [base, head].map(|analysis| {
        let steps = analysis.stages.iter().filter_map(|stage| stage.steps.as_ref());
        steps.map(|steps| steps.count).sum::<u64>()
    });
    (is_few || base > 0 && base == head && run_otherwise(kernels))
        .then(|| pct.map(|pct| Some(format!("{pct:.0} % of the time"))))
}

/// Difference of calls, of the larger number, from which on a kernel does different work.
const OTHER_CALLS: f64 = 0.1;

/// Tells whether the kernels that take most of the common time run a different number of times.
fn run_otherwise(kernels: &[KernelChange]) -> bool {
    let (mut common, mut other) = (0.0, 0.0);
    for kernel in kernels {
        if let (Some(b), Some(h), MatchedBy::Name) = (&kernel.base, &kernel.head, kernel.matched_by) {
            let time = b.total_ns as f64 + h.total_ns as f64;
            common += time;
            if (b.calls - h.calls).abs() > OTHER_CALLS * b.calls.max(h.calls) {
                other += time;
            }
        }
    }
    other > common / 2.0
}

fn by_phase(counts: PhaseCounts) -> Option<String> {
    let phases = [("context", counts.context), ("generation", counts.generation)];
    let phases = phases.into_iter().filter_map(|(name, count)| Some((name, count.filter(|n| *n > 0)?)));
    known(&phases.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>())
}

/// Returns the basis for a stage, or for the two sides as a whole.
pub fn basis(differences: &[Difference], stage: Option<&str>) -> Basis {
    let concerned = differences.iter().filter(|difference| stage.is_none() || difference.concerns(stage));
    concerned.filter_map(Difference::fact).map(|fact| fact.basis).max().unwrap_or_default()
}

/// Judges on what basis a stage compares, and withdraws the judgements of the numbers that do not. Times of different recordings
/// compare beyond a factor of two, which is more than the usual overhead of a profiler.
pub fn withdraw(change: &mut StageChange, differences: &[Difference], base: &Stage, head: &Stage) {
    let stage = Some(change.name.as_str());
    let any = |what: &str, weight| differences.iter().any(|d| d.what == what && d.weight == weight);
    // Where whole traces cover different work, so does the stage of a whole trace.
    let least = match base.kind == StageKind::Whole && any("launches", Incomparable) {
        true if any(COMMON_KERNELS, Caution) => Basis::Nothing,
        true => Basis::StepAndToken,
        false => Basis::Whole,
    };
    change.basis = basis(differences, stage).max(least);
    let is_of_recording =
        |d: &Difference| d.concerns(stage) && d.fact().is_some_and(|fact| fact.about == About::Recording);
    let of_recording = differences.iter().any(is_of_recording);
    let whole_graphs = whole_graphs(&base.graphs, &head.graphs).is_some();
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
            Basis::Whole | Basis::Instance => false,
        };
        if of_other_work || (distorted && (is_close || metric.field == "kernel_ns")) {
            number.judgement = Judgement::Unknown;
        }
    }
}

impl Difference {
    /// Returns the fact where both sides give it.
    fn fact(&self) -> Option<&'static Fact> {
        let name = self.what.rsplit('.').next()?;
        let is_known = self.base.is_some() && self.head.is_some();
        FACTS.iter().find(|fact| is_known && fact.name == name)
    }

    /// Tells whether it is one of the whole or of the stage.
    fn concerns(&self, stage: Option<&str>) -> bool {
        self.what.rsplit_once('.').is_none_or(|(owner, _)| stage == Some(owner))
    }

    fn is_fundamental_to(&self, stage: Option<&str>) -> bool {
        self.concerns(stage) && self.fact().is_some_and(|fact| fact.about != About::Work)
    }

    /// Tells whether the two sides are different programs, different hardware or different recordings.
    pub fn is_fundamental(&self) -> bool {
        self.is_fundamental_to(None)
    }
}

impl Comparison {
    /// Lists the facts for which the two sides are not comparable as a whole.
    pub fn not_whole_because(&self) -> Vec<&Difference> {
        let is_cause =
            |difference: &&Difference| difference.fact().is_some_and(|fact| fact.basis != Basis::Whole);
        self.differences.iter().filter(is_cause).collect()
    }

    /// Names the differences for which a stage, or the whole, does not compare.
    pub(super) fn because(&self, stage: Option<&str>) -> String {
        let mut causes = self.not_whole_because();
        causes.retain(|difference| stage.is_none() || difference.concerns(stage));
        if causes.is_empty() {
            causes = self.differences.iter().filter(|d| d.is_fundamental_to(stage)).collect();
        }
        let causes: Vec<&str> = causes.iter().map(|difference| difference.what.as_str()).collect();
        format!("different {}", causes.join(", "))
    }
}
