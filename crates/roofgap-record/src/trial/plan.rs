//! The changes to try, what trying them costs, and the gain that findings predict.

use std::path::{Path, PathBuf};

use roofgap_analyze::findings::most_pct;
use roofgap_analyze::knobs::catalogue;
use roofgap_analyze::{
    Analysis, Finding, Goal, Knob, KnobChange, MeasuredTime, OutputEffect, SearchCandidate,
};
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::open::Overrides;
use roofgap_runs::open::run::Run;
use roofgap_runs::run_dir::folder::{RunState, run_state};
use roofgap_runs::run_dir::layout::job_of_node;
use roofgap_runs::run_dir::{Layout, PhaseName, SessionRecord};
use roofgap_trace::account;
use serde::Serialize;

use super::TrialProps;
use super::sample::{DECODE, decide_by, sample_of};
use crate::distinct;
use crate::run::phases::preflight;
use roofgap_base::error::Error;

/// Schema of the plan.
pub const SCHEMA: &str = "roofgap.try-plan/1";

/// The plan of a trial.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
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
    /// Wall time of the winner under the profilers, ns, as if changes made no difference.
    pub watched_ns: Option<u64>,
    /// Time budget, ns.
    pub budget_ns: u64,
    /// Time that decides in the baseline of the run, ns.
    #[serde(skip)]
    pub baseline_ns: Option<i64>,
    /// Largest gain that the roofs of the stages leave, as a ratio.
    #[serde(skip)]
    pub roof_ratio: Option<f64>,
    /// Changes of a search, the most promising first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<SearchCandidate>,
}

impl TrialPlan {
    /// Returns the number of changes to run in turn: all, or as many as the budget has time for, and at least one. With fewer at
    /// once, a short budget decides some changes instead of none.
    pub fn at_once(&self) -> usize {
        let all = self.candidates.len().max(1);
        let Some(pair) = self.run_ns.map(|run| run.saturating_mul(u64::from(self.repeats))) else {
            return all;
        };
        let sides = self.budget_ns.checked_div(pair).unwrap_or(u64::MAX);
        usize::try_from(sides.saturating_sub(1)).map_or(all, |fit| fit.clamp(1, all))
    }
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
    let path = &props.run.path;
    let run = open_to_repeat(props)?;
    let analysis = run.open_recordings(&Overrides::default()).analysis;
    let mut candidates = candidates(&analysis, props)?;
    candidates.extend(props.env.iter().map(|(name, value)| variable(name, value)));
    let stages = analysis
        .stages
        .iter()
        .map(|stage| StageShare { name: stage.name.clone(), elapsed_ns: stage.elapsed_ns() });
    let stages: Vec<StageShare> = stages.collect();
    let search = match &props.search {
        Some(search) => {
            let facts = roofgap_runs::open::run::workload_facts(&run.config);
            let catalogue = facts.map(|facts| catalogue(&analysis, &facts)).unwrap_or_default();
            search.candidates(&mut candidates, catalogue, &stages, path)
        }
        None => Vec::new(),
    };
    if candidates.is_empty() {
        let other = if props.search.is_some() {
            "--space FILE names changes"
        } else {
            "--env NAME=VALUE tries an environment variable"
        };
        return Err(Error::new(format!(
            "no finding of the run has a change of this workload to try; {other}"
        )));
    }
    let first_runs = u64::from(props.repeats) * (candidates.len() as u64 + 1);
    let run_ns = wall_ns(&run.record, &[PhaseName::Baseline]);
    let account = account::read(&Layout::of(path).baseline_account()).ok();
    let baseline = run_ns.and_then(|ns| sample_of(account.as_ref(), ns, &run.config).ok());
    let mut baseline_ns = None;
    if let (Some(mut sample), Some(search)) = (baseline, &props.search) {
        match decide_by(&mut sample, search.goal) {
            Ok(()) => baseline_ns = sample.times.first().map(|(_, ns)| ns.round() as i64),
            // Only runs of the search have these.
            Err(_) if matches!(search.goal, Goal::Goodput | Goal::Joules) => {}
            Err(failure) => return Err(Error::new(failure.why)),
        }
    }
    Ok(TrialPlan {
        schema: SCHEMA,
        run_id: props.run.id.clone(),
        path: path.clone(),
        // The roof is that of the recorded work.
        roof_ratio: match &props.search {
            Some(props) if !search.iter().any(|one| is_other_work(&one.knob)) => {
                roof_ratio(&analysis, props.goal)
            }
            _ => None,
        },
        baseline_ns,
        search,
        stages,
        repeats: props.repeats,
        first_runs,
        run_ns,
        first_ns: run_ns.map(|ns| ns.saturating_mul(first_runs)),
        watched_ns: wall_ns(&run.record, PhaseName::ALL),
        budget_ns: u64::try_from(props.budget.as_nanos()).unwrap_or(u64::MAX),
        candidates,
    })
}

/// Returns the largest gain that the roofs of the stages of a goal leave; `None` where no stage has a roof, or the goal is not the time of
/// the GPU.
fn roof_ratio(analysis: &Analysis, goal: Goal) -> Option<f64> {
    let only = (goal == Goal::Tpot).then_some(DECODE);
    let stages = analysis.stages.iter().filter(|stage| only.is_none_or(|name| stage.name == name));
    let (mut whole, mut least) = (0.0, 0.0);
    for stage in stages {
        let elapsed = stage.elapsed_ns() as f64;
        whole += elapsed;
        least += elapsed * (1.0 - most_pct(stage) / 100.0).clamp(0.0, 1.0);
    }
    (least > 0.0 && matches!(goal, Goal::Throughput | Goal::Tpot)).then(|| whole / least)
}

/// Counts the sessions of a job, given its folder or that of one of its nodes; 0 for any other run.
fn sessions_of_job(run: &Path) -> usize {
    let full = std::fs::canonicalize(run).unwrap_or_else(|_| run.to_owned());
    let above = job_of_node(&full).map_or(0, |job| Layout::of(job).node_runs().len());
    above.max(Layout::of(&full).node_runs().len())
}

/// Sums the wall times of phases; `None` where none ran.
fn wall_ns(record: &SessionRecord, phases: &[PhaseName]) -> Option<u64> {
    let wall = |name: &PhaseName| record.phase(*name)?.wall_ns;
    phases.iter().filter_map(wall).reduce(u64::saturating_add)
}

/// Collects the chosen changes: those of the findings that are named, and those named themselves. A change of several findings is
/// tried once.
fn candidates(analysis: &Analysis, props: &TrialProps) -> Result<Vec<Candidate>, Error> {
    let with_knobs = || {
        let findings = analysis.findings.iter().filter(|finding| !finding.knobs.is_empty());
        distinct(findings.map(|finding| finding.id.clone()))
    };
    let is_knob = |wanted: &String| {
        let mut knobs = analysis.findings.iter().flat_map(|finding| &finding.knobs);
        knobs.any(|knob| knob.id == *wanted)
    };
    for wanted in props.findings.iter().filter(|wanted| !is_knob(wanted)) {
        let mut named = analysis.findings.iter().filter(|finding| finding.id == *wanted);
        let Some(first) = named.next() else {
            return Err(Error::new(format!("the run has no finding {wanted:?}; {}", known(&with_knobs()))));
        };
        if first.knobs.is_empty() && named.all(|finding| finding.knobs.is_empty()) {
            return Err(Error::new(format!(
                "no change of this workload is known that carries out the action of {wanted:?}; {}",
                known(&with_knobs())
            )));
        }
    }
    let chosen: Vec<String> = if props.all {
        with_knobs()
    } else if props.findings.is_empty() && props.env.is_empty() && props.search.is_none() {
        with_knobs().into_iter().take(1).collect()
    } else {
        props.findings.clone()
    };
    let mut candidates: Vec<Candidate> = Vec::new();
    for finding in &analysis.findings {
        let of_finding = chosen.contains(&finding.id);
        let is_chosen = |knob: &&Knob| of_finding || chosen.contains(&knob.id);
        for knob in finding.knobs.iter().filter(is_chosen) {
            if !candidates.iter().any(|known| known.knob.changes == knob.changes) {
                candidates.push(Candidate { knob: knob.clone(), findings: Vec::new() });
            }
        }
    }
    // A change counts for every finding whose action it is, chosen or not: its gain is bounded by all of them together.
    for candidate in &mut candidates {
        let carries_out =
            |finding: &&Finding| finding.knobs.iter().any(|knob| knob.changes == candidate.knob.changes);
        let carried: Vec<&Finding> = analysis.findings.iter().filter(carries_out).collect();
        // A finding that is part of another saves the same time.
        let covers = |first: &Finding, part: &Finding| {
            first.stage == part.stage && part.part_of.as_ref() == Some(&first.id)
        };
        let counts = |finding: &&&Finding| !carried.iter().any(|first| covers(first, finding));
        let stage =
            |name: &Option<String>| analysis.stages.iter().find(|stage| Some(&stage.name) == name.as_ref());
        let tried = |finding: &&Finding| TriedFinding {
            id: finding.id.clone(),
            stage: finding.stage.clone(),
            bound_ns: finding.bound_ns,
            bound_pct: finding.bound_pct,
            most_pct: stage(&finding.stage).map_or(100.0, most_pct),
        };
        candidate.findings = carried.iter().filter(counts).map(tried).collect();
    }
    Ok(candidates)
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

/// Names the findings that have a change to try.
fn known(findings: &[String]) -> String {
    if findings.is_empty() {
        "none of its findings has a change to try".to_owned()
    } else {
        format!("findings with a change to try: {}", findings.join(", "))
    }
}

/// Tells whether a change makes a workload do other work than was recorded.
pub fn is_other_work(knob: &Knob) -> bool {
    knob.adds_work() || knob.output == OutputEffect::Changes
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
    before: &[(MeasuredTime, f64)],
    closed_loop: bool,
) -> Option<f64> {
    // The findings bound the work that was recorded.
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
mod bounds_tests {
    use super::*;
    use crate::trial::plan::TriedFinding;
    use roofgap_analyze::KnobChange;

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
