//! The sides of a comparison, and the differences that make them incomparable.

use super::comparison::{Difference, KernelChange, MatchedBy, Weight};
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

/// Lists the differences of two sides, and the facts that neither side gives.
pub fn differences(base: Side<'_>, head: Side<'_>) -> (Vec<Difference>, Vec<String>) {
    let mut found = Found::default();
    found.hold(
        "gpu",
        Weight::Incomparable,
        "times of different hardware do not compare",
        (known(gpus(base.analysis)), known(gpus(head.analysis))),
    );
    let word = |get: fn(&WorkloadInfo) -> Option<String>| {
        let of = |side: &Side<'_>| side.analysis.workload.as_ref().and_then(get);
        (of(&base), of(&head))
    };
    let model = "a different model does different work";
    let tokens = "a different number of tokens is a different amount of work";
    found.hold("model", Weight::Incomparable, model, word(|w| w.model.clone()));
    found.hold(
        "dtype",
        Weight::Incomparable,
        "a different number format does different work",
        word(|w| w.dtype.clone()),
    );
    found.quiet("parameters", Weight::Incomparable, model, word(|w| number(w.parameters)));
    found.hold("prompt_tokens", Weight::Incomparable, tokens, word(|w| number(w.prompt_tokens)));
    found.hold("generated_tokens", Weight::Incomparable, tokens, word(|w| number(w.generated_tokens)));
    found.hold("batch", Weight::Incomparable, tokens, word(|w| number(w.batch)));
    found.quiet("vision_tokens", Weight::Incomparable, tokens, word(|w| number(w.vision_tokens)));
    found.quiet(
        "device",
        Weight::Incomparable,
        "times of different hardware do not compare",
        word(|w| w.device.clone()),
    );
    found.hold(
        "mode",
        Weight::Incomparable,
        "deep and light runs have different profiler overhead",
        (base.facts.mode.clone(), head.facts.mode.clone()),
    );
    found.hold(
        "timeline",
        Weight::Caution,
        "profilers have different overhead: wall and idle times do not compare, kernel times do",
        (timeline(base.analysis), timeline(head.analysis)),
    );
    found.quiet(
        "revision",
        Weight::Caution,
        "different weights may generate different tokens",
        word(|w| w.revision.clone()),
    );
    found.quiet(
        "weights",
        Weight::Caution,
        "random weights may route and generate differently",
        word(|w| w.weights.clone()),
    );
    found.quiet(
        "workload",
        Weight::Caution,
        "the program was started differently",
        (base.facts.workload.clone(), head.facts.workload.clone()),
    );
    found.quiet(
        "output",
        Weight::Caution,
        "the same input gave different tokens: the change may alter results",
        word(|w| w.token_hash.clone()),
    );
    for stage in &base.analysis.stages {
        let Some(other) = head.analysis.stages.iter().find(|s| s.name == stage.name) else {
            continue;
        };
        let per_instance = |s: &crate::result::Stage| {
            let steps = s.steps.as_ref()?;
            Some(format!("{} in {} instances", steps.count, s.instances))
        };
        let rate = |s: &crate::result::Stage| {
            s.steps.as_ref().map(|steps| steps.count as f64 / s.instances.max(1) as f64)
        };
        if let (Some(b), Some(h)) = (rate(stage), rate(other))
            && b != h
        {
            found.list.push(Difference {
                what: format!("{}.steps", stage.name),
                weight: Weight::Incomparable,
                base: per_instance(stage),
                head: per_instance(other),
                meaning: "the stage has a different number of steps: compare by step".into(),
            });
        }
        if stage.coverage.is_some() != other.coverage.is_some() {
            let part = |s: &crate::result::Stage| match &s.coverage {
                Some(part) => format!("{} of {}", part.recorded, part.all),
                None => "all".to_owned(),
            };
            found.list.push(Difference {
                what: format!("{}.coverage", stage.name),
                weight: Weight::Incomparable,
                base: Some(part(stage)),
                head: Some(part(other)),
                meaning: "one side was recorded in part: its numbers are those of the recorded steps".into(),
            });
        }
        if stage.from != other.from {
            found.list.push(Difference {
                what: format!("{}.from", stage.name),
                weight: Weight::Caution,
                base: Some(stage.from.to_string()),
                head: Some(other.from.to_string()),
                meaning: "one is timed by a profiler, the other by the program".into(),
            });
        }
    }
    found.list.extend(stage_differences(base, head));
    (found.list, found.unchecked)
}

#[derive(Default)]
struct Found {
    list: Vec<Difference>,
    unchecked: Vec<String>,
}

impl Found {
    /// Adds a difference, or the fact as unchecked where neither side gives it.
    fn hold(&mut self, what: &str, weight: Weight, meaning: &str, sides: (Option<String>, Option<String>)) {
        if sides == (None, None) {
            self.unchecked.push(what.to_owned());
        }
        self.quiet(what, weight, meaning, sides);
    }

    /// Adds a difference where there is one.
    fn quiet(&mut self, what: &str, weight: Weight, meaning: &str, sides: (Option<String>, Option<String>)) {
        let (base, head) = sides;
        if base == head {
            return;
        }
        let (weight, meaning) = if base.is_some() && head.is_some() {
            (weight, meaning.to_owned())
        } else {
            (Weight::Caution, "only one side gives it: not checked".to_owned())
        };
        self.list.push(Difference { what: what.to_owned(), weight, base, head, meaning });
    }
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

/// Lists the differences in the instances and tokens of the stages that both sides have, and in the launches that ncu measured.
fn stage_differences(base: Side<'_>, head: Side<'_>) -> Vec<Difference> {
    let mut list: Vec<Difference> = measured_launches(base, head).into_iter().collect();
    for stage in &base.analysis.stages {
        let Some(other) = head.analysis.stages.iter().find(|s| s.name == stage.name) else {
            continue;
        };
        let mut add = |what: &str, weight, show: &dyn Fn(&Stage) -> Option<String>, meaning: &str| {
            let (base, head) = (show(stage), show(other));
            if base != head && base.is_some() && head.is_some() {
                list.push(Difference {
                    what: format!("{}.{what}", stage.name),
                    weight,
                    base,
                    head,
                    meaning: meaning.to_owned(),
                });
            }
        };
        let counts = |of: fn(&Stage) -> Option<PhaseCounts>| move |stage: &Stage| of(stage).and_then(counted);
        add(
            "tokens",
            Weight::Incomparable,
            &counts(|stage| stage.tokens),
            "a different number of tokens is a different amount of work",
        );
        add(
            "requests",
            Weight::Caution,
            &counts(|stage| stage.requests),
            "steps of a different batch take a different time",
        );
        add(
            "instances",
            Weight::Caution,
            &|stage| Some(stage.instances.to_string()),
            "totals do not compare, values of one instance do",
        );
    }
    list
}

/// Compares the numbers of launches where a side has nothing but launches that ncu measured.
fn measured_launches(base: Side<'_>, head: Side<'_>) -> Option<Difference> {
    let (base, head) = (&base.analysis.totals, &head.analysis.totals);
    let measured = [base, head].iter().any(|totals| totals.from == KernelOrigin::Counters);
    (measured && base.kernel_count != head.kernel_count).then(|| Difference {
        what: "launches".to_owned(),
        weight: Weight::Caution,
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
        weight: Weight::Incomparable,
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
