//! The sides of a comparison, the differences that make them incomparable, and the basis on which they compare: the whole,
//! one instance, or a step and a token.

use super::comparison::Weight::{Caution, Incomparable};
use super::comparison::{
    Basis, Clock, Comparison, Difference, KernelChange, KernelSide, METRICS, MatchedBy, StageChange, Weight,
};
use super::kernels::whole_graphs;

use super::noise::is_doubled;
use crate::numbers::count;
use crate::result::{Analysis, GraphRow, KernelOrigin, PhaseCounts, Stage, StageKind, WorkloadInfo};
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
    fn workload(self) -> Option<&'a WorkloadInfo> {
        self.analysis.workload.as_ref()
    }
}

/// A fact of a side: its name, the weight of a difference, whether to name it where neither side gives it, the meaning of a
/// difference, and the value.
type Fact = (&'static str, Weight, bool, &'static str, fn(Side<'_>) -> Option<String>);

/// A fact of a stage that both sides have: its name, the weight and meaning of a difference, the value to compare, and the one
/// to show where it is another.
type StageFact = (&'static str, Weight, &'static str, StageValue, Option<StageValue>);
type StageValue = fn(&Stage) -> Option<String>;

const HARDWARE: &str = "times of different hardware do not compare";
const MODEL: &str = "a different model does different work";
const TOKENS: &str = "a different number of tokens is a different amount of work";

const FACTS: &[Fact] = &[
    ("gpu", Incomparable, true, HARDWARE, |side| hardware(side)),
    ("model", Incomparable, true, MODEL, |side| side.workload()?.model.clone()),
    ("dtype", Incomparable, true, "a different number format does different work", |side| {
        side.workload()?.dtype.clone()
    }),
    ("parameters", Incomparable, false, MODEL, |side| number(side.workload()?.parameters)),
    ("prompt_tokens", Incomparable, true, TOKENS, |side| number(side.workload()?.prompt_tokens)),
    ("generated_tokens", Incomparable, true, TOKENS, |side| number(side.workload()?.generated_tokens)),
    ("batch", Incomparable, true, TOKENS, |side| number(side.workload()?.batch)),
    ("vision_tokens", Incomparable, false, TOKENS, |side| number(side.workload()?.vision_tokens)),
    ("mode", Incomparable, true, "deep and light runs have different profiler overhead", |side| {
        side.facts.mode.clone()
    }),
    (
        "timeline",
        Caution,
        true,
        "profilers have different overhead: wall and idle times do not compare, kernel times do",
        |side| timeline(side.analysis),
    ),
    (
        "graphs",
        Caution,
        false,
        "the kernels of graphs that were recorded whole are not in the capture: kernels and their time do not compare",
        |side| graphs(side.analysis),
    ),
    ("revision", Caution, false, "different weights may generate different tokens", |side| {
        side.workload()?.revision.clone()
    }),
    ("weights", Caution, false, "random weights may route and generate differently", |side| {
        side.workload()?.weights.clone()
    }),
    ("workload", Caution, false, "the program was started differently", |side| side.facts.workload.clone()),
    (
        "output",
        Caution,
        false,
        "the same input gave different tokens: the change may alter results",
        |side| side.workload()?.token_hash.clone(),
    ),
];

/// The recording of a stage.
const RECORDING: &[StageFact] = &[
    (
        "steps",
        Incomparable,
        "the stage has a different number of steps: compare by step",
        |stage| Some((stage.steps.as_ref()?.count as f64 / stage.instances.max(1) as f64).to_string()),
        Some(|stage| Some(format!("{} in {} instances", stage.steps.as_ref()?.count, stage.instances))),
    ),
    (
        "coverage",
        Incomparable,
        "one side was recorded in part: its numbers are those of the recorded steps",
        |stage| Some(stage.coverage.is_some().to_string()),
        Some(|stage| match &stage.coverage {
            Some(part) => Some(format!("{} of {}", part.recorded, part.all)),
            None => Some("all".to_owned()),
        }),
    ),
    (
        "from",
        Caution,
        "one is timed by a profiler, the other by the program",
        |stage| Some(stage.from.to_string()),
        None,
    ),
];

/// The work of a stage.
const WORK: &[StageFact] = &[
    ("tokens", Incomparable, TOKENS, |stage| by_phase(stage.tokens?), None),
    (
        "requests",
        Caution,
        "steps of a different batch take a different time",
        |stage| by_phase(stage.requests?),
        None,
    ),
    (
        "instances",
        Caution,
        "totals do not compare, values of one instance do",
        |stage| number(Some(stage.instances)),
        None,
    ),
];

/// Lists the differences of two sides, and the facts that neither side gives.
pub fn differences(base: Side<'_>, head: Side<'_>) -> (Vec<Difference>, Vec<String>) {
    let (mut found, mut unchecked) = (Vec::new(), Vec::new());
    let graph_rows: (&[GraphRow], &[GraphRow]) = (&base.analysis.graphs, &head.analysis.graphs);
    for &(what, weight, is_named, meaning, of) in FACTS {
        let (base, head) = (of(base), of(head));
        if is_named && base.is_none() && head.is_none() {
            unchecked.push(what.to_owned());
        }
        if base != head && (what != "graphs" || whole_graphs(graph_rows.0, graph_rows.1).is_some()) {
            let (weight, meaning) = match (&base, &head) {
                (Some(_), Some(_)) => (weight, meaning),
                _ => (Caution, "only one side gives it: not checked"),
            };
            found.push(Difference::new(what, weight, [base, head], meaning));
        }
    }
    found.extend(gpu_work(base, head));
    found.extend(clocks(base, head));
    found.extend(stage_differences(base, head, RECORDING));
    found.extend(measured_launches(base, head));
    found.extend(stage_differences(base, head, WORK));
    (found, unchecked)
}

/// Least ratio of the clocks of two sides that may be the cause of a difference.
pub const OTHER_CLOCK: f64 = 1.03;

/// Compares the clocks of the stages that both sides have; returns the largest difference.
fn clocks(base: Side<'_>, head: Side<'_>) -> Option<Difference> {
    let clock = |stage: &Stage| stage.vitals.as_ref()?.sm_mhz.filter(|mhz| *mhz > 0.0);
    let pairs = base.analysis.stages.iter().filter_map(|stage| {
        let other = head.analysis.stage(&stage.name)?;
        Some((&stage.name, [clock(stage)?, clock(other)?]))
    });
    let ratio = |[base, head]: [f64; 2]| (base / head).max(head / base);
    let (name, mhz) = pairs.max_by(|a, b| ratio(a.1).total_cmp(&ratio(b.1)))?;
    let meaning = "the multiprocessors ran at another clock: a difference in time may be that of the clock";
    let shown = mhz.map(|mhz| Some(format!("{mhz:.0} MHz")));
    (ratio(mhz) >= OTHER_CLOCK).then(|| Difference::new(&format!("{name}.clock"), Caution, shown, meaning))
}

/// Lists the differences of the stages that both sides have.
fn stage_differences(base: Side<'_>, head: Side<'_>, facts: &[StageFact]) -> Vec<Difference> {
    let mut found = Vec::new();
    for stage in &base.analysis.stages {
        let Some(other) = head.analysis.stage(&stage.name) else {
            continue;
        };
        for (what, weight, meaning, compared, shown) in facts {
            let (base, head) = (compared(stage), compared(other));
            let shown = shown.unwrap_or(*compared);
            if base.is_some() && head.is_some() && base != head {
                let what = format!("{}.{what}", stage.name);
                found.push(Difference::new(&what, *weight, [shown(stage), shown(other)], *meaning));
            }
        }
    }
    found
}

fn number(value: Option<u64>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn known(list: Vec<String>) -> Option<String> {
    (!list.is_empty()).then(|| list.join(", "))
}

/// Returns the names of the GPUs, equal ones counted.
pub fn gpus(analysis: &Analysis) -> Vec<String> {
    let mut names: Grouped<&str, (&str, usize)> = Grouped::default();
    for name in analysis.devices.iter().filter_map(|device| device.name.as_deref()) {
        names.entry(name, || (name, 0)).1 += 1;
    }
    let counted = |(name, count): (&str, usize)| match count {
        1 => name.to_owned(),
        count => format!("{count} x {name}"),
    };
    names.items.into_iter().map(counted).collect()
}

/// Names the hardware: the GPUs, or the device of the program's own account.
fn hardware(side: Side<'_>) -> Option<String> {
    known(gpus(side.analysis)).or_else(|| side.workload()?.device.clone())
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

/// Says how many launches of CUDA graphs were recorded whole; `None` without GPU work.
fn graphs(analysis: &Analysis) -> Option<String> {
    let launches: u64 = analysis.graphs.iter().map(|graph| graph.launches).sum();
    analysis.totals.busy_ns.map(|_| match launches {
        0 => "none recorded whole".to_owned(),
        launches => format!("{} launches recorded whole", count(launches)),
    })
}

/// Compares the processors: where only one side has GPU work, and nothing says that the other ran on the same GPU, it may have run on
/// the CPU.
fn gpu_work(base: Side<'_>, head: Side<'_>) -> Option<Difference> {
    let has_work = |side: Side<'_>| {
        let of_stage = |stage: &Stage| stage.busy_ns.is_some() || stage.kernel_ns.is_some();
        let analysis = side.analysis;
        analysis.totals.busy_ns.is_some()
            || !analysis.kernels.is_empty()
            || analysis.stages.iter().any(of_stage)
    };
    let (on_base, on_head) = (has_work(base), has_work(head));
    let without = if on_base { head } else { base };
    let is_told = hardware(without).is_some() || timeline(without.analysis).is_some();
    let word = |has_work: bool| Some(if has_work { "recorded" } else { "none" }.to_owned());
    (on_base != on_head && is_told && hardware(base) != hardware(head)).then(|| {
        let meaning = "one side ran on the CPU, or its GPU work was not recorded: no time compares";
        Difference::new(GPU_WORK, Incomparable, [on_base, on_head].map(word), meaning)
    })
}

/// The fact that only one side has GPU work.
const GPU_WORK: &str = "gpu_work";

/// Compares the numbers of launches where a side has nothing but launches that ncu measured.
fn measured_launches(base: Side<'_>, head: Side<'_>) -> Option<Difference> {
    let (base, head) = (&base.analysis.totals, &head.analysis.totals);
    let measured = [base, head].iter().any(|totals| totals.from == KernelOrigin::Counters);
    (measured && base.kernel_count != head.kernel_count).then(|| {
        let counts = [base, head].map(|totals| Some(totals.kernel_count.to_string()));
        let meaning = "ncu measures a selection of launches: totals do not compare, means of a kernel do";
        Difference::new("launches", Caution, counts, meaning)
    })
}

/// The fact that the two sides have few kernels in common.
const COMMON_KERNELS: &str = "common kernels";

/// Share of the kernel time of a side, in %, below which the kernels that both sides have say nothing about the rest.
const FEW_COMMON_PCT: f64 = 25.0;

/// Compares the programs by their kernels, where the model of a side is unknown: kernels that both sides have, also under a similar
/// name, take little of the time of two different models.
pub fn common_kernels(base: Side<'_>, head: Side<'_>, kernels: &[KernelChange]) -> Option<Difference> {
    let model = |side: Side<'_>| side.workload()?.model.clone();
    let is_same = model(base).is_some() && model(base) == model(head);
    if is_same || kernels.is_empty() || whole_graphs(&base.analysis.graphs, &head.analysis.graphs).is_some() {
        return None;
    }
    let common_pct = |of: fn(&KernelChange) -> Option<&KernelSide>| {
        let time = |kernel: &KernelChange| of(kernel).map_or(0.0, |side| side.total_ns as f64);
        let common = kernels.iter().filter(|kernel| kernel.matched_by != MatchedBy::Nothing);
        100.0 * common.map(time).sum::<f64>() / kernels.iter().map(time).sum::<f64>().max(1.0)
    };
    let pct = [common_pct(|kernel| kernel.base.as_ref()), common_pct(|kernel| kernel.head.as_ref())];
    let word = |pct: f64| Some(format!("{pct:.0} % of the time"));
    let is_few = pct.iter().any(|pct| *pct < FEW_COMMON_PCT);
    // Models share libraries, and differ in how often a step runs their kernels.
    let steps = |side: Side<'_>| -> u64 {
        side.analysis.stages.iter().filter_map(|stage| stage.steps.as_ref()).map(|steps| steps.count).sum()
    };
    let is_other = steps(base) > 0 && steps(base) == steps(head) && run_otherwise(kernels);
    let seen = if is_few {
        "few kernels are on both sides"
    } else {
        "a step runs the same kernels a different number of times"
    };
    (is_few || is_other).then(|| {
        let meaning = format!("{seen}: these may be different models or programs");
        Difference::new(COMMON_KERNELS, Caution, pct.map(word), meaning)
    })
}

/// Difference of calls, of the larger number, from which on a kernel does different work.
const OTHER_CALLS: f64 = 0.1;

/// Compares the work that two timelines cover. A change of the program replaces kernels and leaves the others their calls; where
/// those that take most of the common time run a different number of times, one side covers more of the run, such as a warm-up.
pub fn covered_work(base: Side<'_>, head: Side<'_>, kernels: &[KernelChange]) -> Option<Difference> {
    let (base, head) = (&base.analysis.totals, &head.analysis.totals);
    if [base, head].iter().any(|totals| totals.from == KernelOrigin::Counters) {
        return None;
    }
    run_otherwise(kernels).then(|| {
        let counts = [base, head].map(|totals| Some(count(totals.kernel_count)));
        let meaning =
            "the same kernels ran a different number of times: the whole traces cover different work";
        Difference::new("launches", Incomparable, counts, meaning)
    })
}

/// Tells whether the kernels that take most of the common time run a different number of times.
fn run_otherwise(kernels: &[KernelChange]) -> bool {
    let (mut common, mut other) = (0.0, 0.0);
    for kernel in kernels {
        let (Some(b), Some(h), MatchedBy::Name) = (&kernel.base, &kernel.head, kernel.matched_by) else {
            continue;
        };
        let time = b.total_ns as f64 + h.total_ns as f64;
        common += time;
        if (b.calls - h.calls).abs() > OTHER_CALLS * b.calls.max(h.calls) {
            other += time;
        }
    }
    other > common / 2.0
}

fn by_phase(counts: PhaseCounts) -> Option<String> {
    let phase = |name: &str, count: Option<u64>| {
        let count = count.filter(|count| *count > 0)?;
        Some(format!("{count} {name}"))
    };
    let phases = [phase("context", counts.context), phase("generation", counts.generation)];
    known(phases.into_iter().flatten().collect())
}

/// Facts of the workload that change the work.
const WORKLOAD: &[&str] =
    &["model", "parameters", "prompt_tokens", "generated_tokens", "batch", "vision_tokens"];

/// Returns the basis for one stage. Where whole traces cover different work, so does the stage of a whole trace.
pub fn stage_basis(differences: &[Difference], stage: &Stage) -> Basis {
    let own = basis(differences, |what| {
        let own = what.strip_prefix(stage.name.as_str()).and_then(|rest| rest.strip_prefix('.'));
        own.unwrap_or(what)
    });
    let any = |what: &str, weight| differences.iter().any(|d| d.what == what && d.weight == weight);
    let is_other_work = stage.kind == StageKind::Whole && any("launches", Incomparable);
    match (is_other_work, any(COMMON_KERNELS, Caution)) {
        (true, true) => Basis::Nothing,
        (true, false) => own.max(Basis::StepAndToken),
        (false, _) => own,
    }
}

/// Returns the basis for the two sides as a whole.
pub fn whole_basis(differences: &[Difference]) -> Basis {
    basis(differences, |what| what.rsplit('.').next().unwrap_or(what))
}

fn basis<'a>(differences: &'a [Difference], subject: impl Fn(&'a str) -> &'a str) -> Basis {
    let of = |difference: &'a Difference| match subject(&difference.what) {
        GPU_WORK => Basis::Nothing,
        "instances" | "launches" => Basis::Instance,
        "tokens" | "steps" => Basis::StepAndToken,
        what if WORKLOAD.contains(&what) && difference.weight == Incomparable => Basis::StepAndToken,
        _ => Basis::Whole,
    };
    differences.iter().map(of).max().unwrap_or_default()
}

/// Facts of a recording: where they differ, so does the overhead of the profiler in the times of the CPU.
const OF_RECORDING: &[&str] = &["timeline", "mode", "from"];

/// Withdraws the judgements of a stage for which its numbers do not compare. Times of different recordings compare beyond a factor of
/// two, which is more than the usual overhead of a profiler.
pub fn withdraw(stage: &mut StageChange, differences: &[Difference], whole_graphs: bool) {
    let of_recording = differences.iter().any(|difference| is_of_recording(difference, Some(&stage.name)));
    for metric in METRICS {
        let change = metric.of(stage);
        let is_close = change.base.zip(change.head).is_none_or(|(base, head)| !is_doubled(base, head));
        let distorted = match metric.clock {
            Clock::Cpu => of_recording || whole_graphs,
            Clock::Gpu => whole_graphs,
            Clock::None => false,
        };
        let of_other_work = match stage.basis {
            Basis::Nothing => true,
            Basis::StepAndToken => !metric.of_any_work,
            Basis::Whole | Basis::Instance => false,
        };
        if of_other_work || (distorted && (is_close || metric.field == "kernel_ns")) {
            metric.withdraw(stage);
        }
    }
}

/// Tells whether a difference known of both sides is one of their recordings; `stage` is the one whose differences count.
fn is_of_recording(difference: &Difference, stage: Option<&str>) -> bool {
    let what = match (difference.what.rsplit_once('.'), stage) {
        (Some((own, what)), Some(stage)) if own == stage => what,
        (Some(_), _) => return false,
        (None, _) => difference.what.as_str(),
    };
    OF_RECORDING.contains(&what) && difference.base.is_some() && difference.head.is_some()
}

/// Facts of the hardware and of the model, as opposed to the amount of work.
const OF_PROGRAM: &[&str] = &["gpu", GPU_WORK, "model", "parameters", "dtype", COMMON_KERNELS];

impl Difference {
    fn new(what: &str, weight: Weight, sides: [Option<String>; 2], meaning: impl Into<String>) -> Self {
        let [base, head] = sides;
        Self { what: what.to_owned(), weight, base, head, meaning: meaning.into() }
    }

    /// Tells whether the two sides are different programs, different hardware or different recordings.
    pub fn is_fundamental(&self) -> bool {
        let is_known = self.base.is_some() && self.head.is_some();
        is_known
            && (OF_PROGRAM.contains(&self.what.as_str())
                || self.what == "graphs"
                || is_of_recording(self, None))
    }
}

impl Comparison {
    /// Lists the facts for which the two sides are not comparable as a whole.
    pub fn not_whole_because(&self) -> Vec<&Difference> {
        let counts =
            |difference: &&Difference| whole_basis(std::slice::from_ref(*difference)) != Basis::Whole;
        self.differences.iter().filter(counts).collect()
    }

    /// Names the differences for which a stage, or the whole, does not compare.
    pub(super) fn because(&self, stage: Option<&str>) -> String {
        let own = |what: &str| match (what.rsplit_once('.'), stage) {
            (Some((of, _)), Some(stage)) => of == stage,
            _ => true,
        };
        let not_whole = self.not_whole_because().into_iter().map(|difference| difference.what.as_str());
        let mut what: Vec<&str> = not_whole.filter(|what| own(what)).collect();
        if what.is_empty() {
            let fundamental =
                self.differences.iter().filter(|d| d.is_fundamental() || is_of_recording(d, stage));
            what = fundamental.map(|difference| difference.what.as_str()).collect();
        }
        format!("different {}", what.join(", "))
    }
}
