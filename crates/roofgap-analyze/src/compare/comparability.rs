//! The sides of a comparison, the differences that make them incomparable, and the basis on which they compare: the whole,
//! one instance, or a step and a token.

use super::comparison::Weight::{Caution, Incomparable};
use super::comparison::{Basis, Comparison, Difference, KernelChange, MatchedBy, StageChange, Weight};
use super::metric::METRICS;
use crate::numbers::count;
use crate::result::{Analysis, KernelOrigin, PhaseCounts, Stage, WorkloadInfo};
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

/// A fact of a stage that both sides have: its name, the weight and meaning of a difference, the value to compare and the one
/// to show.
type StageFact =
    (&'static str, Weight, &'static str, fn(&Stage) -> Option<String>, fn(&Stage) -> Option<String>);

const HARDWARE: &str = "times of different hardware do not compare";
const MODEL: &str = "a different model does different work";
const TOKENS: &str = "a different number of tokens is a different amount of work";

const FACTS: &[Fact] = &[
    ("gpu", Incomparable, true, HARDWARE, |side| known(gpus(side.analysis))),
    ("model", Incomparable, true, MODEL, |side| side.workload()?.model.clone()),
    ("dtype", Incomparable, true, "a different number format does different work", |side| {
        side.workload()?.dtype.clone()
    }),
    ("parameters", Incomparable, false, MODEL, |side| number(side.workload()?.parameters)),
    ("prompt_tokens", Incomparable, true, TOKENS, |side| number(side.workload()?.prompt_tokens)),
    ("generated_tokens", Incomparable, true, TOKENS, |side| number(side.workload()?.generated_tokens)),
    ("batch", Incomparable, true, TOKENS, |side| number(side.workload()?.batch)),
    ("vision_tokens", Incomparable, false, TOKENS, |side| number(side.workload()?.vision_tokens)),
    ("device", Incomparable, false, HARDWARE, |side| side.workload()?.device.clone()),
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
        |stage| Some(format!("{} in {} instances", stage.steps.as_ref()?.count, stage.instances)),
    ),
    (
        "coverage",
        Incomparable,
        "one side was recorded in part: its numbers are those of the recorded steps",
        |stage| Some(stage.coverage.is_some().to_string()),
        |stage| match &stage.coverage {
            Some(part) => Some(format!("{} of {}", part.recorded, part.all)),
            None => Some("all".to_owned()),
        },
    ),
    ("from", Caution, "one is timed by a profiler, the other by the program", origin, origin),
];

/// The work of a stage.
const WORK: &[StageFact] = &[
    ("tokens", Incomparable, TOKENS, tokens, tokens),
    ("requests", Caution, "steps of a different batch take a different time", requests, requests),
    ("instances", Caution, "totals do not compare, values of one instance do", instances, instances),
];

fn origin(stage: &Stage) -> Option<String> {
    Some(stage.from.to_string())
}

fn tokens(stage: &Stage) -> Option<String> {
    counted(stage.tokens?)
}

fn requests(stage: &Stage) -> Option<String> {
    counted(stage.requests?)
}

fn instances(stage: &Stage) -> Option<String> {
    number(Some(stage.instances))
}

/// Lists the differences of two sides, and the facts that neither side gives.
pub fn differences(base: Side<'_>, head: Side<'_>) -> (Vec<Difference>, Vec<String>) {
    let (mut found, mut unchecked) = (Vec::new(), Vec::new());
    for &(what, weight, is_named, meaning, of) in FACTS {
        let (base, head) = (of(base), of(head));
        if is_named && base.is_none() && head.is_none() {
            unchecked.push(what.to_owned());
        }
        if base != head {
            let (weight, meaning) = match (&base, &head) {
                (Some(_), Some(_)) => (weight, meaning),
                _ => (Caution, "only one side gives it: not checked"),
            };
            found.push(Difference { what: what.to_owned(), weight, base, head, meaning: meaning.to_owned() });
        }
    }
    found.extend(stage_differences(base, head, RECORDING));
    found.extend(measured_launches(base, head));
    found.extend(stage_differences(base, head, WORK));
    (found, unchecked)
}

/// Lists the differences of the stages that both sides have.
fn stage_differences(base: Side<'_>, head: Side<'_>, facts: &[StageFact]) -> Vec<Difference> {
    let mut found = Vec::new();
    for stage in &base.analysis.stages {
        let Some(other) = head.analysis.stages.iter().find(|other| other.name == stage.name) else {
            continue;
        };
        for (what, weight, meaning, compared, shown) in facts {
            let (base, head) = (compared(stage), compared(other));
            if base.is_some() && head.is_some() && base != head {
                found.push(Difference {
                    what: format!("{}.{what}", stage.name),
                    weight: *weight,
                    base: shown(stage),
                    head: shown(other),
                    meaning: (*meaning).to_owned(),
                });
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
    let mut names: Vec<(String, usize)> = Vec::new();
    for name in analysis.devices.iter().filter_map(|device| device.name.clone()) {
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => names.push((name, 1)),
        }
    }
    let counted = |(name, count): (String, usize)| match count {
        1 => name,
        count => format!("{count} x {name}"),
    };
    names.into_iter().map(counted).collect()
}

/// Returns the format of the timeline.
fn timeline(analysis: &Analysis) -> Option<String> {
    let source = analysis.sources.iter().find(|s| !s.format.starts_with("ncu"))?;
    Some(source.format.clone())
}

/// Compares the numbers of launches where a side has nothing but launches that ncu measured.
fn measured_launches(base: Side<'_>, head: Side<'_>) -> Option<Difference> {
    let (base, head) = (&base.analysis.totals, &head.analysis.totals);
    let measured = [base, head].iter().any(|totals| totals.from == KernelOrigin::Counters);
    (measured && base.kernel_count != head.kernel_count).then(|| Difference {
        what: "launches".to_owned(),
        weight: Caution,
        base: Some(base.kernel_count.to_string()),
        head: Some(head.kernel_count.to_string()),
        meaning: "ncu measures a selection of launches: totals do not compare, means of a kernel do"
            .to_owned(),
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
    (other > common / 2.0).then(|| Difference {
        what: "launches".to_owned(),
        weight: Incomparable,
        base: Some(count(base.kernel_count)),
        head: Some(count(head.kernel_count)),
        meaning: "the same kernels ran a different number of times: the whole traces cover different work"
            .to_owned(),
    })
}

fn counted(counts: PhaseCounts) -> Option<String> {
    let phase = |name: &str, count: Option<u64>| {
        let count = count.filter(|count| *count > 0)?;
        Some(format!("{count} {name}"))
    };
    let phases = [phase("context", counts.context), phase("generation", counts.generation)];
    let known: Vec<String> = phases.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// Facts of the workload that change the work.
const WORKLOAD: &[&str] =
    &["model", "parameters", "prompt_tokens", "generated_tokens", "batch", "vision_tokens"];

/// Returns the basis for one stage.
pub fn stage_basis(differences: &[Difference], stage: &str) -> Basis {
    basis(differences, |what| {
        let own = what.strip_prefix(stage).and_then(|rest| rest.strip_prefix('.'));
        own.unwrap_or(what)
    })
}

/// Returns the basis for the two sides as a whole.
pub fn whole_basis(differences: &[Difference]) -> Basis {
    basis(differences, |what| what.rsplit('.').next().unwrap_or(what))
}

fn basis<'a>(differences: &'a [Difference], subject: impl Fn(&'a str) -> &'a str) -> Basis {
    let of = |difference: &'a Difference| match subject(&difference.what) {
        "instances" | "launches" => Basis::Instance,
        "tokens" | "steps" => Basis::StepAndToken,
        what if WORKLOAD.contains(&what) && difference.weight == Incomparable => Basis::StepAndToken,
        _ => Basis::Whole,
    };
    differences.iter().map(of).max().unwrap_or_default()
}

/// Withdraws the judgement of values of a whole instance where the sides did different work.
pub fn withdraw(stage: &mut StageChange) {
    if stage.basis != Basis::StepAndToken {
        return;
    }
    METRICS.iter().filter(|metric| !metric.of_any_work).for_each(|metric| metric.withdraw(stage));
}

impl Comparison {
    /// Lists the facts for which the two sides are not comparable as a whole.
    pub fn not_whole_because(&self) -> Vec<&Difference> {
        let counts =
            |difference: &&Difference| whole_basis(std::slice::from_ref(*difference)) != Basis::Whole;
        self.differences.iter().filter(counts).collect()
    }
}
