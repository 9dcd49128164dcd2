//! The sentences above the tables.

use crate::render::screen::Tone;
use roofgap_analyze::compare::{
    Basis, Change, Comparison, Difference, GateOutcome, GateVerdict, Judgement, StageChange, Weight,
};
use roofgap_base::numbers::time;

/// States the conclusion; before it, that the two are not comparable as a whole.
pub fn headline(comparison: &Comparison) -> String {
    let by = match comparison.basis {
        Basis::Whole => return conclusion(comparison),
        Basis::Instance => "by instance",
        Basis::StepAndToken => "by step and token",
    };
    let because = comparison.not_whole_because();
    let because: Vec<&str> = because.iter().map(|difference| difference.what.as_str()).collect();
    let conclusion = conclusion(comparison);
    format!("not comparable as a whole (different {}); {by}: {conclusion}", because.join(", "))
}

/// Returns the tone of the conclusion; `None` for a mixed or a neutral one.
pub fn tone(comparison: &Comparison) -> Option<Tone> {
    let any = |wanted: Judgement| {
        let mut stages = comparison.stages.iter();
        stages.any(|stage| judgement(stage) == Some(wanted))
    };
    match (comparison.verdict(), any(Judgement::Worse), any(Judgement::Better)) {
        (GateVerdict::Broken, ..) => Some(Tone::Bad),
        (GateVerdict::NotMeasured, ..) => Some(Tone::Notice),
        (GateVerdict::Held, true, false) => Some(Tone::Bad),
        (GateVerdict::Held, false, true) => Some(Tone::Good),
        (GateVerdict::Held, ..) => None,
    }
}

fn conclusion(comparison: &Comparison) -> String {
    let broken: Vec<String> = comparison
        .gates
        .iter()
        .filter(|gate| gate.outcome == GateOutcome::Broken)
        .map(|gate| format!("{}.{}", gate.stage.as_deref().unwrap_or("total"), gate.metric))
        .collect();
    match comparison.verdict() {
        GateVerdict::Broken => format!("the gate is broken: {}", distinct(broken).join(", ")),
        GateVerdict::NotMeasured => "a gate was not measured".to_owned(),
        GateVerdict::Held => {
            let of = |wanted: Judgement| -> Vec<String> {
                let stages = comparison.stages.iter().filter(|stage| judgement(stage) == Some(wanted));
                stages.map(|stage| stage.name.clone()).collect()
            };
            let (worse, better) = (of(Judgement::Worse), of(Judgement::Better));
            let mut parts = Vec::new();
            if !worse.is_empty() {
                parts.push(format!("worse: {}", worse.join(", ")));
            }
            if !better.is_empty() {
                parts.push(format!("better: {}", better.join(", ")));
            }
            if parts.is_empty() {
                let other = comparison.stages.iter().any(StageChange::has_changed);
                parts.push(if other {
                    "no change of stage times beyond the noise".to_owned()
                } else if comparison.stages.is_empty() {
                    total(comparison)
                } else {
                    "no change beyond the noise".to_owned()
                });
            }
            parts.join("; ")
        }
    }
}

fn distinct(mut names: Vec<String>) -> Vec<String> {
    let mut seen = Vec::new();
    names.retain(|name| {
        let new = !seen.contains(name);
        if new {
            seen.push(name.clone());
        }
        new
    });
    names
}

fn total(comparison: &Comparison) -> String {
    let kernels = &comparison.totals.kernel_ns;
    match kernels.judgement {
        Judgement::Unknown if kernels.base.is_some() && kernels.head.is_some() => {
            "no stage on both sides; the kernels compare by call".to_owned()
        }
        Judgement::Unknown => match unmeasured_side(kernels) {
            Some(side) => {
                format!("no stage on both sides, and the {side} has no kernels: nothing to compare")
            }
            None => "no stage and no kernel on either side: nothing to compare".to_owned(),
        },
        _ => format!("no stage on both sides; kernel time of the whole trace: {}", words(kernels)),
    }
}

/// Names the side on which a number was not measured, where the other has it.
pub fn unmeasured_side(change: &Change<i64>) -> Option<&'static str> {
    match (change.base, change.head) {
        (Some(_), None) => Some("head"),
        (None, Some(_)) => Some("base"),
        _ => None,
    }
}

/// Judges a stage by its wall time or, if that did not change, by its GPU time; where the sides did different work, by the time of
/// a step or, if that did not change, of a token.
fn judgement(stage: &StageChange) -> Option<Judgement> {
    let by_instance = [&stage.wall_ns, &stage.unwatched_ns, &stage.busy_ns, &stage.kernel_ns];
    let by_work = [&stage.step_ns, &stage.token_ns];
    let changes: &[&Change<i64>] = match stage.basis {
        Basis::StepAndToken => &by_work,
        _ => &by_instance,
    };
    let judgements = changes.iter().map(|change| change.judgement);
    judgements.into_iter().find(|judgement| matches!(judgement, Judgement::Worse | Judgement::Better))
}

/// Describes a change: `71.6 ms to 78.8 ms, +10.0 %, worse`.
fn words(change: &Change<i64>) -> String {
    let (base, head, delta) = match (change.base, change.head, change.delta) {
        (Some(base), Some(head), Some(delta)) => (base, head, delta),
        (Some(base), ..) => return format!("{} on the base, not measured on the head", time(base)),
        (_, Some(head), _) => return format!("{} on the head, not measured on the base", time(head)),
        _ => return "measured on neither side".to_owned(),
    };
    let pct = change.delta_pct.map(|pct| format!(", {pct:+.1} %")).unwrap_or_default();
    let judgement = match change.judgement {
        Judgement::Worse => "worse",
        Judgement::Better => "better",
        _ if delta == 0 => "the same",
        _ => "within the noise",
    };
    format!("{} to {}{pct}, {judgement}", time(base), time(head))
}

/// Describes the change of a stage.
pub fn stage(stage: &StageChange) -> String {
    if stage.basis == Basis::StepAndToken {
        return different_work(stage);
    }
    let mut text = format!("wall {}", words(&stage.wall_ns));
    if stage.busy_ns.base.is_some() || stage.busy_ns.head.is_some() {
        text.push_str(&format!("; GPU busy {}", words(&stage.busy_ns)));
    }
    text.push('.');
    let still = stage.wall_ns.judgement == Judgement::Same;
    match stage.busy_ns.judgement {
        Judgement::Worse if still => {
            text.push_str(" The GPU is busy for longer; less idle time hides that.");
        }
        Judgement::Better if still => {
            text.push_str(
                " The GPU is busy for less time and idle for longer: something else limits this stage.",
            );
        }
        _ => {}
    }
    text
}

/// Describes the change of a stage in which the sides did different work.
fn different_work(stage: &StageChange) -> String {
    let known = |change: &Change<i64>| change.base.is_some() && change.head.is_some();
    let values = [("step", &stage.step_ns), ("time per token", &stage.token_ns)];
    let known = values.iter().filter(|(_, change)| known(change));
    let parts: Vec<String> = known.map(|(name, change)| format!("{name} {}", words(change))).collect();
    if parts.is_empty() {
        return "the sides did different work, and the time of a step or a token is not known on both."
            .to_owned();
    }
    format!("{}. Values of the whole stage do not compare.", parts.join("; "))
}

/// Describes a difference of the two sides.
pub fn difference(difference: &Difference) -> String {
    let value = |side: &Option<String>| side.clone().unwrap_or_else(|| "unknown".to_owned());
    format!(
        "{}: {} against {}; {}",
        difference.what,
        value(&difference.base),
        value(&difference.head),
        difference.meaning
    )
}

/// Warns that the two sides are not comparable at all. The headline names differences in the work.
pub fn alarm(comparison: &Comparison) -> Option<String> {
    let of_work = comparison.not_whole_because();
    let what: Vec<&str> = comparison
        .differences
        .iter()
        .filter(|difference| difference.weight == Weight::Incomparable)
        .filter(|difference| !of_work.contains(difference))
        .map(|difference| difference.what.as_str())
        .collect();
    (!what.is_empty()).then(|| format!("NOT COMPARABLE: different {}", what.join(", ")))
}
