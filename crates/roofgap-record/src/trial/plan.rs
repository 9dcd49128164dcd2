//! The changes to try, what trying them costs, and the gain that findings predict.

use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_analyze::findings::most_pct;
use roofgap_analyze::{Analysis, Finding, Knob, KnobChange, MeanTime, MeasuredTime, OutputEffect, Stage};
use roofgap_base::error::Error;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::config::{ConfigProps, compose};
use roofgap_runs::open::Overrides;
use roofgap_runs::open::run::Run;
use roofgap_runs::run_dir::folder::{RunState, run_state};
use roofgap_runs::run_dir::layout::job_of_node;
use roofgap_runs::run_dir::{Layout, PhaseName, RunRef};
use serde::Serialize;

use crate::distinct;
use crate::run::ProfileProps;
use crate::run::phases::preflight;

/// Schema of the plan.
pub const SCHEMA: &str = "roofgap.try-plan/1";

/// Stage that generates tokens.
pub const DECODE: &str = "decode";

/// Input of a trial.
#[derive(Debug, Clone)]
pub struct TrialProps {
    /// Run whose workload is changed.
    pub run: RunRef,
    /// Session of the unchanged workload: the configuration of the run, and this program.
    pub session: ProfileProps,
    /// Ids of findings, or of single changes; empty for the first finding that has a change to try.
    pub changes: Vec<String>,
    /// Environment variables of the program to try, each a change of its own.
    pub env: Vec<(String, String)>,
    /// Time budget.
    pub budget: Duration,
    /// Fewest pairs of runs that decide.
    pub repeats: u32,
    /// Keep changes that may change the output.
    pub accept_changed_output: bool,
}

impl TrialProps {
    /// Makes the session of the workload with changes.
    pub(super) fn session_with(&self, overrides: Vec<String>) -> Result<ProfileProps, Error> {
        let config = Some(Layout::of(&self.run.path).config());
        let composed = compose(&ConfigProps { config, overrides, ..ConfigProps::default() })?;
        Ok(ProfileProps { composed, ..self.session.clone() })
    }
}

/// The plan of a trial.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialPlan {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// Id of the run.
    pub run_id: String,
    /// Run directory.
    pub path: PathBuf,
    /// Changes to try.
    pub candidates: Vec<Candidate>,
    /// Elapsed time of the stages in the analysis.
    pub stages: Vec<StageShare>,
    /// Fewest pairs of runs that decide.
    pub repeats: u32,
    /// Runs that measure each change alone.
    pub first_runs: u64,
    /// Wall time of the unchanged workload, ns; `None` where the run has no baseline.
    pub run_ns: Option<u64>,
    /// Wall time of the first runs, ns, as if changes made no difference.
    pub first_ns: Option<u64>,
    /// Time budget, ns.
    pub budget_ns: u64,
}

/// A change to try.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The change.
    pub knob: Knob,
    /// Findings whose action it is.
    pub findings: Vec<TriedFinding>,
}

impl Candidate {
    /// Returns the ids of the findings, each once: a finding may be in several stages.
    pub fn finding_ids(&self) -> Vec<String> {
        distinct(self.findings.iter().map(|finding| finding.id.clone()))
    }
}

/// A finding whose action is tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TriedFinding {
    /// Id.
    pub id: String,
    /// Stage name.
    pub stage: Option<String>,
    /// Upper bound on the saving, ns.
    pub bound_ns: i64,
    /// Upper bound on the saving, % of the stage's time.
    pub bound_pct: f64,
    /// Upper bound on the saving of all findings of the stage together, % of its time: what the roof of its model leaves.
    pub most_pct: f64,
}

/// Elapsed time of a stage in the analysis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StageShare {
    /// Stage name.
    pub name: String,
    /// Elapsed time, ns.
    pub elapsed_ns: i64,
}

/// Opens the run of a trial, if its program can be run again.
fn open_to_repeat(props: &TrialProps) -> Result<Run, Error> {
    let path = &props.run.path;
    if run_state(path) == RunState::UnderWay {
        let path = path.display();
        return Err(Error::new(format!("{path} is in progress; try its changes when it has ended")));
    }
    if sessions_of_job(path) > 1 {
        return Err(Error::new(
            "the program of the run needs several sessions, one on each node, and a trial starts one",
        ));
    }
    let run = Run::open(path)?;
    let workload = &run.config.workload;
    let started = !matches!(workload.kind, WorkloadKind::Command | WorkloadKind::Server);
    if !started && workload.program.is_empty() {
        return Err(Error::new(
            "the run does not say how its program was started, so it cannot be run again",
        ));
    }
    preflight::check(&props.session).map_err(|error| {
        Error::new(format!(
            "the workload of the run cannot run: {error}; relative paths of its config.yaml count from the current folder"
        ))
    })?;
    Ok(run)
}

/// Plans a trial.
///
/// # Errors
/// Fails when the run is not readable or in progress, its program cannot run here, or there is nothing of what is asked for to try.
pub fn plan(props: &TrialProps) -> Result<TrialPlan, Error> {
    let run = open_to_repeat(props)?;
    let analysis = run.open_recordings(&Overrides::default()).analysis;
    let candidates = candidates(&analysis, props)?;
    if candidates.is_empty() {
        return Err(Error::new(
            "no finding of the run has a change of this workload to try; --env NAME=VALUE tries an environment variable",
        ));
    }
    let share = |stage: &Stage| StageShare { name: stage.name.clone(), elapsed_ns: stage.elapsed_ns() };
    let first_runs = 2 * u64::from(props.repeats) * candidates.len() as u64;
    let run_ns = run.record.phase(PhaseName::Baseline).and_then(|phase| phase.wall_ns);
    Ok(TrialPlan {
        schema: SCHEMA,
        run_id: props.run.id.clone(),
        path: props.run.path.clone(),
        stages: analysis.stages.iter().map(share).collect(),
        repeats: props.repeats,
        first_runs,
        run_ns,
        first_ns: run_ns.map(|ns| ns.saturating_mul(first_runs)),
        budget_ns: u64::try_from(props.budget.as_nanos()).unwrap_or(u64::MAX),
        candidates,
    })
}

/// Counts the sessions of a job, given its folder or that of one of its nodes; 0 for any other run.
fn sessions_of_job(run: &Path) -> usize {
    let full = std::fs::canonicalize(run).unwrap_or_else(|_| run.to_owned());
    let above = job_of_node(&full).map_or(0, |job| Layout::of(job).node_runs().len());
    above.max(Layout::of(&full).node_runs().len())
}

/// Collects the chosen changes: those of the findings that are named, those named themselves, and environment variables. A change of several
/// findings is tried once.
fn candidates(analysis: &Analysis, props: &TrialProps) -> Result<Vec<Candidate>, Error> {
    let with_changes = analysis.findings.iter().filter(|finding| !finding.knobs.is_empty());
    let with_changes = distinct(with_changes.map(|finding| finding.id.clone()));
    for wanted in &props.changes {
        let knobs = analysis.findings.iter().flat_map(|finding| &finding.knobs);
        if !with_changes.contains(wanted) && !knobs.into_iter().any(|knob| knob.id == *wanted) {
            let known = if with_changes.is_empty() { "none".to_owned() } else { with_changes.join(", ") };
            return Err(Error::new(format!(
                "the run has no finding {wanted:?} with a change to try, and no such change; findings with one: {known}"
            )));
        }
    }
    let chosen = match (props.changes.as_slice(), props.env.as_slice()) {
        ([], []) => with_changes.get(..1).unwrap_or_default(),
        (named, _) => named,
    };
    let mut candidates: Vec<Candidate> = Vec::new();
    for finding in &analysis.findings {
        let is_chosen = |knob: &&Knob| chosen.contains(&finding.id) || chosen.contains(&knob.id);
        for knob in finding.knobs.iter().filter(is_chosen) {
            if !candidates.iter().any(|known| known.knob.changes == knob.changes) {
                candidates.push(Candidate { knob: knob.clone(), findings: carried_out(analysis, knob) });
            }
        }
    }
    candidates.extend(props.env.iter().map(|(name, value)| variable(name, value)));
    Ok(candidates)
}

/// Lists the findings whose action a change is, chosen or not: its gain is bounded by all of them together.
fn carried_out(analysis: &Analysis, knob: &Knob) -> Vec<TriedFinding> {
    let has_change = |finding: &&Finding| finding.knobs.iter().any(|known| known.changes == knob.changes);
    let carried: Vec<&Finding> = analysis.findings.iter().filter(has_change).collect();
    // A finding that is part of another saves the same time.
    let is_part = |part: &&&Finding| {
        let mut others = carried.iter();
        others.any(|whole| whole.stage == part.stage && part.part_of.as_ref() == Some(&whole.id))
    };
    let tried = |finding: &&Finding| {
        let mut stages = analysis.stages.iter();
        let stage = stages.find(|stage| Some(&stage.name) == finding.stage.as_ref());
        TriedFinding {
            id: finding.id.clone(),
            stage: finding.stage.clone(),
            bound_ns: finding.bound_ns,
            bound_pct: finding.bound_pct,
            most_pct: stage.map_or(100.0, most_pct),
        }
    };
    carried.iter().filter(|finding| !is_part(finding)).map(tried).collect()
}

/// Makes a change of an environment variable, which no finding asks for.
fn variable(name: &str, value: &str) -> Candidate {
    Candidate {
        knob: Knob {
            id: format!("env.{name}"),
            title: format!("set {name}={value}"),
            changes: vec![KnobChange::Environment { name: name.to_owned(), value: value.to_owned() }],
            output: OutputEffect::None,
            applies: "given by the user".to_owned(),
        },
        findings: Vec::new(),
    }
}

/// Returns the largest ratio of time before to time after that the findings of some changes predict for a time; `None` where
/// they say nothing of it.
///
/// The bound of a stage is the sum of the bounds of its findings, of which each counts once. A change may affect stages that its
/// findings say nothing of. In the bound of a whole run these count as if they took no time afterwards.
pub fn bound_ratio(
    of: &MeasuredTime,
    changes: &[&Candidate],
    stages: &[StageShare],
    before: &[MeanTime],
    closed_loop: bool,
) -> Option<f64> {
    // The findings bound the work that was recorded.
    let is_other = |knob: &Knob| knob.adds_work() || knob.output == OutputEffect::Changes;
    if changes.iter().any(|change| is_other(&change.knob)) {
        return None;
    }
    let share = match of {
        MeasuredTime::Stage(stage) => stage_share(stage, changes),
        // The steps of an engine follow one another, so that their sum is the time of all tokens.
        MeasuredTime::Token if closed_loop => whole_share(analysed(stages), changes),
        MeasuredTime::Token => stage_share(DECODE, changes),
        MeasuredTime::Run => {
            let measured = before.iter().filter_map(|mean| match &mean.of {
                MeasuredTime::Stage(name) => Some((name.as_str(), mean.mean_ns as f64)),
                _ => None,
            });
            // A program may time its calls of an engine, whose steps have stages of their own.
            whole_share(measured, changes).or_else(|| whole_share(analysed(stages), changes))
        }
        _ => None,
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
    let (mut pct, mut most) = (0.0, 100.0_f64);
    for finding in changes.iter().flat_map(|change| &change.findings) {
        if finding.stage.as_deref() == Some(stage) && !ids.contains(&finding.id.as_str()) {
            ids.push(&finding.id);
            pct += finding.bound_pct;
            most = most.min(finding.most_pct);
        }
    }
    (!ids.is_empty()).then(|| (pct.min(most) / 100.0).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(findings: &[(&str, &str, f64)]) -> Candidate {
        let finding = |(id, stage, bound_pct): &(&str, &str, f64)| TriedFinding {
            id: (*id).to_owned(),
            stage: Some((*stage).to_owned()),
            bound_ns: 0,
            bound_pct: *bound_pct,
            most_pct: 100.0,
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
        let mut all = candidate(&[("x", "decode", 60.0), ("y", "decode", 60.0)]);
        assert_eq!(of(&stage("decode"), &[&all]), None);
        // The roof of the model leaves a fifth of the time.
        all.findings[0].most_pct = 80.0;
        assert_eq!(of(&stage("decode"), &[&all]).map(f64::round), Some(5.0));
    }

    #[test]
    fn a_whole_run_has_the_bounds_of_its_stages_and_none_of_the_others() {
        let mean = |of, mean_ns| MeanTime { of, mean_ns };
        let before = [mean(MeasuredTime::Run, 400), mean(stage("prefill"), 100), mean(stage("decode"), 300)];
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
        let calls = [MeanTime { of: stage("generate"), mean_ns: 1_000 }];
        let of = |of: &MeasuredTime, closed_loop| bound_ratio(of, &[&change], &stages, &calls, closed_loop);
        assert_eq!(of(&MeasuredTime::Token, true), Some(2.0));
        assert_eq!(of(&MeasuredTime::Run, false), Some(2.0));
    }
}
