//! The basis on which two sides compare: the whole, one instance, or a step and a token.

use super::comparison::{Basis, Change, Comparison, Difference, Judgement, StageChange, Weight};

/// Facts of the workload that change the work.
const WORK: [&str; 6] =
    ["model", "parameters", "prompt_tokens", "generated_tokens", "batch", "vision_tokens"];

/// Returns the basis for one stage.
pub fn of_stage(differences: &[Difference], stage: &str) -> Basis {
    of(differences, |what| {
        let own = what.strip_prefix(stage).and_then(|rest| rest.strip_prefix('.'));
        own.unwrap_or(what)
    })
}

/// Returns the basis for the two sides as a whole.
pub fn of_all(differences: &[Difference]) -> Basis {
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
pub fn withdraw(stage: &mut StageChange) {
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
pub fn unjudged<T>(change: &mut Change<T>) {
    change.judgement = Judgement::Unknown;
}

impl Comparison {
    /// Lists the facts for which the two sides are not comparable as a whole.
    pub fn not_whole_because(&self) -> Vec<&Difference> {
        let counts = |difference: &&Difference| of_all(std::slice::from_ref(*difference)) != Basis::Whole;
        self.differences.iter().filter(counts).collect()
    }
}
