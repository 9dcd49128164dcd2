//! The gain that findings predict for a change.

use roofgap_analyze::{Knob, MeasuredTime, OutputEffect};

use super::plan::{Candidate, StageShare};
use super::sample::DECODE;

/// Returns the largest ratio of time before to time after that the findings of some changes predict for a time; `None` where
/// they say nothing of it.
///
/// The bound of a stage is the sum of the bounds of its findings, of which each counts once. A change may affect stages that its
/// findings say nothing of. In the bound of a whole run these count as if they took no time afterwards.
pub fn bound_ratio(
    of: &MeasuredTime,
    changes: &[&Candidate],
    stages: &[StageShare],
    before: &[(MeasuredTime, f64)],
    closed_loop: bool,
) -> Option<f64> {
    // The findings bound the work that was recorded.
    let is_other_work = |knob: &Knob| knob.adds_work() || knob.output == OutputEffect::Changes;
    if changes.iter().any(|change| is_other_work(&change.knob)) {
        return None;
    }
    let share = match of {
        MeasuredTime::Stage(stage) => stage_share(stage, changes),
        // The steps of an engine follow one another, so that their sum is the time of all tokens.
        MeasuredTime::Token if closed_loop => whole_share(analysed(stages), changes),
        MeasuredTime::Token => stage_share(DECODE, changes),
        MeasuredTime::Run => {
            let measured = before.iter().filter_map(|(of, ns)| match of {
                MeasuredTime::Stage(name) => Some((name.as_str(), *ns)),
                _ => None,
            });
            // A program may time its calls of an engine, whose steps have stages of their own.
            whole_share(measured, changes).or_else(|| whole_share(analysed(stages), changes))
        }
        MeasuredTime::Ttft | MeasuredTime::Itl | MeasuredTime::Request | MeasuredTime::Process => None,
    }?;
    let left = 1.0 - share;
    // Saving all of a time bounds nothing.
    (left > 0.0).then(|| 1.0 / left)
}

fn analysed(stages: &[StageShare]) -> impl Iterator<Item = (&str, f64)> {
    stages.iter().map(|stage| (stage.name.as_str(), stage.elapsed_ns as f64))
}

/// Returns the largest share of all stages that can be saved, 0 to 1; `None` where no finding speaks of any of them.
fn whole_share<'a>(stages: impl Iterator<Item = (&'a str, f64)>, changes: &[&Candidate]) -> Option<f64> {
    let (mut left, mut all, mut known) = (0.0, 0.0, false);
    for (name, ns) in stages {
        let share = stage_share(name, changes);
        known |= share.is_some();
        left += (1.0 - share.unwrap_or(1.0)) * ns;
        all += ns;
    }
    (known && all > 0.0).then(|| 1.0 - left / all)
}

/// Returns the share of a stage that the findings can save, 0 to 1; `None` where no finding speaks of the stage.
fn stage_share(stage: &str, changes: &[&Candidate]) -> Option<f64> {
    let mut ids: Vec<&str> = Vec::new();
    let mut pct = 0.0;
    for finding in changes.iter().flat_map(|change| &change.findings) {
        if finding.stage.as_deref() == Some(stage) && !ids.contains(&finding.id.as_str()) {
            ids.push(&finding.id);
            pct += finding.bound_pct;
        }
    }
    (!ids.is_empty()).then(|| (pct / 100.0).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::plan::TriedFinding;
    use roofgap_analyze::KnobChange;

    fn candidate(findings: &[(&str, &str, f64)]) -> Candidate {
        let finding = |(id, stage, bound_pct): &(&str, &str, f64)| TriedFinding {
            id: (*id).to_owned(),
            stage: Some((*stage).to_owned()),
            bound_ns: 0,
            bound_pct: *bound_pct,
        };
        Candidate {
            knob: Knob {
                id: "k".to_owned(),
                title: String::new(),
                changes: Vec::new(),
                output: OutputEffect::None,
                applies: String::new(),
            },
            findings: findings.iter().map(finding).collect(),
        }
    }

    fn stage(name: &str) -> MeasuredTime {
        MeasuredTime::Stage(name.to_owned())
    }

    #[test]
    fn findings_of_a_stage_add_up_to_its_time_at_most() {
        let a = candidate(&[("launch-bound", "decode", 50.0), ("small-kernels", "decode", 25.0)]);
        let b = candidate(&[("launch-bound", "decode", 50.0)]);
        let of = |of: &MeasuredTime, changes: &[&Candidate]| bound_ratio(of, changes, &[], &[], false);
        assert_eq!(of(&stage("decode"), &[&a]), Some(4.0));
        assert_eq!(of(&MeasuredTime::Token, &[&a]), Some(4.0));
        // The same finding of two changes counts once.
        assert_eq!(of(&stage("decode"), &[&a, &b]), Some(4.0));
        assert_eq!(of(&stage("prefill"), &[&a]), None);
        assert_eq!(of(&MeasuredTime::Process, &[&a]), None);
        let all = candidate(&[("x", "decode", 60.0), ("y", "decode", 60.0)]);
        assert_eq!(of(&stage("decode"), &[&all]), None);
    }

    #[test]
    fn a_whole_run_has_the_bounds_of_its_stages_and_none_of_the_others() {
        let before = [(MeasuredTime::Run, 400.0), (stage("prefill"), 100.0), (stage("decode"), 300.0)];
        let of = |change: &Candidate| bound_ratio(&MeasuredTime::Run, &[change], &[], &before, false);
        let decode = ("a", "decode", 50.0);
        // Prefill may become free, so that 150 of 400 are left.
        assert_eq!(of(&candidate(&[decode])), Some(400.0 / 150.0));
        let both = candidate(&[decode, ("b", "prefill", 50.0)]);
        assert_eq!(of(&both), Some(2.0));
        assert_eq!(of(&candidate(&[("a", "mixed", 50.0)])), None);
    }

    #[test]
    fn other_work_has_no_bound() {
        let mut change = candidate(&[("small-kernels", "decode", 50.0)]);
        let of = |change: &Candidate| bound_ratio(&stage("decode"), &[change], &[], &[], false);
        assert_eq!(of(&change), Some(2.0));
        change.knob.changes =
            vec![KnobChange::Setting { key: "workload.batch".to_owned(), value: "4".to_owned() }];
        assert_eq!(of(&change), None);
        let mut format = candidate(&[("memory-at-roof", "decode", 50.0)]);
        format.knob.output = OutputEffect::Rounding;
        assert_eq!(of(&format), Some(2.0));
        format.knob.output = OutputEffect::Changes;
        assert_eq!(of(&format), None);
    }

    #[test]
    fn the_tokens_of_an_engine_are_bounded_by_its_steps() {
        let share = |name: &str, elapsed_ns| StageShare { name: name.to_owned(), elapsed_ns };
        let stages = [share("decode", 300), share("mixed", 100)];
        let change = candidate(&[("a", "decode", 50.0), ("b", "mixed", 50.0)]);
        let calls = [(stage("generate"), 1_000.0)];
        let of = |of: &MeasuredTime, closed_loop| bound_ratio(of, &[&change], &stages, &calls, closed_loop);
        assert_eq!(of(&MeasuredTime::Token, true), Some(2.0));
        assert_eq!(of(&MeasuredTime::Run, false), Some(2.0));
    }
}
