//! The basis on which two sides compare: the whole, one instance, or a step and a token.

use super::comparability::Side;
use super::comparison::{Change, Comparison, Difference, Judgement, StageChange, Weight};
use crate::result::{KernelOrigin, PhaseCounts, Stage};
use serde::{Deserialize, Serialize};

/// The basis of a comparison. A later one holds for more differences between the sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Both sides did the same work.
    #[default]
    Whole,
    /// Both did the same work a different number of times: values of one instance compare.
    Instance,
    /// The work differs in model or tokens: values of a step and of a token compare.
    StepAndToken,
}

/// Facts of the workload that change the work.
const WORK: [&str; 6] = [
    "model",
    "parameters",
    "prompt_tokens",
    "generated_tokens",
    "batch",
    "vision_tokens",
];

/// Lists the differences in the instances and tokens of the stages that both sides have, and in the launches that ncu measured.
pub(super) fn stage_differences(base: Side<'_>, head: Side<'_>) -> Vec<Difference> {
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
    let measured = [base, head]
        .iter()
        .any(|totals| totals.from == KernelOrigin::Counters);
    (measured && base.kernel_count != head.kernel_count).then(|| Difference {
        what: "launches".to_owned(),
        weight: Weight::Caution,
        base: Some(base.kernel_count.to_string()),
        head: Some(head.kernel_count.to_string()),
        meaning: "ncu measures a selection of launches: totals do not compare, means of a kernel do"
            .to_owned(),
    })
}

fn counted(counts: PhaseCounts) -> Option<String> {
    let phase = |name: &str, count: Option<u64>| {
        let count = count.filter(|count| *count > 0)?;
        Some(format!("{count} {name}"))
    };
    let phases = [
        phase("context", counts.context),
        phase("generation", counts.generation),
    ];
    let known: Vec<String> = phases.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// Returns the basis for one stage.
pub(super) fn of_stage(differences: &[Difference], stage: &str) -> Basis {
    of(differences, |what| {
        let own = what.strip_prefix(stage).and_then(|rest| rest.strip_prefix('.'));
        own.unwrap_or(what)
    })
}

/// Returns the basis for the two sides as a whole.
pub(super) fn of_all(differences: &[Difference]) -> Basis {
    of(differences, |what| what.rsplit('.').next().unwrap_or(what))
}

fn of<'a>(differences: &'a [Difference], subject: impl Fn(&'a str) -> &'a str) -> Basis {
    let basis = |difference: &'a Difference| match subject(&difference.what) {
        "instances" | "launches" => Basis::Instance,
        "tokens" | "steps" => Basis::StepAndToken,
        what if WORK.contains(&what) && difference.weight == Weight::Incomparable => Basis::StepAndToken,
        _ => Basis::Whole,
    };
    differences.iter().map(basis).max().unwrap_or_default()
}

/// Withdraws the judgement of values of a whole instance where the sides did different work.
pub(super) fn withdraw(stage: &mut StageChange) {
    if stage.basis != Basis::StepAndToken {
        return;
    }
    for change in [
        &mut stage.wall_ns,
        &mut stage.unwatched_ns,
        &mut stage.busy_ns,
        &mut stage.kernel_ns,
        &mut stage.idle_ns,
        &mut stage.idle_launch_ns,
        &mut stage.idle_sync_ns,
        &mut stage.idle_copy_ns,
        &mut stage.idle_other_ns,
    ] {
        unjudged(change);
    }
    unjudged(&mut stage.launches);
}

/// Withdraws the judgement of a value that does not compare.
pub(super) fn unjudged<T>(change: &mut Change<T>) {
    change.judgement = Judgement::Unknown;
}

impl Comparison {
    /// Lists the facts for which the two sides are not comparable as a whole.
    pub fn not_whole_because(&self) -> Vec<&Difference> {
        let counts = |difference: &&Difference| of_all(std::slice::from_ref(*difference)) != Basis::Whole;
        self.differences.iter().filter(counts).collect()
    }
}
