//! The changes to try, and what trying them costs.

use std::path::{Path, PathBuf};

use roofgap_analyze::{Analysis, Finding, Knob, KnobChange, OutputEffect};
use roofgap_runs::run_dir::folder::{RunState, run_state};
use serde::Serialize;

use super::props::TrialProps;
use crate::error::Error;
use crate::run::phases::preflight;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::open::Overrides;
use roofgap_runs::open::run::Run;
use roofgap_runs::run_dir::layout::job_of_node;
use roofgap_runs::run_dir::{Layout, PhaseName, SessionRecord};

/// Schema of the plan.
pub const SCHEMA: &str = "roofgap.try-plan/1";

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
    /// Wall time of the winner under the profilers, ns, as if changes made no difference.
    pub watched_ns: Option<u64>,
    /// Time budget, ns.
    pub budget_ns: u64,
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
        let mut ids: Vec<String> = Vec::new();
        for finding in &self.findings {
            if !ids.contains(&finding.id) {
                ids.push(finding.id.clone());
            }
        }
        ids
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
}

/// Elapsed time of a stage in the analysis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StageShare {
    /// Stage name.
    pub name: String,
    /// Elapsed time, ns.
    pub elapsed_ns: i64,
}

/// Plans a trial.
///
/// # Errors
/// Fails when the run is not readable or in progress, its program cannot run here, or there is nothing of what is asked for to try.
pub fn plan(props: &TrialProps) -> Result<TrialPlan, Error> {
    let path = &props.run.path;
    if run_state(path) == RunState::UnderWay {
        let path = path.display();
        return Err(Error::new(format!("{path} is in progress; try its findings when it has ended")));
    }
    if sessions_of_job(path) > 1 {
        return Err(Error::new(
            "the program of the run needs several sessions, one on each node, and `try` starts one",
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
    let analysis = run.load(&Overrides::default()).analysis;
    let mut candidates = candidates(&analysis, props)?;
    candidates.extend(props.env.iter().map(|(name, value)| variable(name, value)));
    if candidates.is_empty() {
        return Err(Error::new(
            "no finding of the run has a change of this workload to try; --env NAME=VALUE tries an environment variable",
        ));
    }
    let first_runs = u64::from(props.repeats) * (candidates.len() as u64 + 1);
    let run_ns = wall_ns(&run.record, &[PhaseName::Baseline]);
    let stages = analysis
        .stages
        .iter()
        .map(|stage| StageShare { name: stage.name.clone(), elapsed_ns: stage.elapsed_ns() });
    Ok(TrialPlan {
        schema: SCHEMA,
        run_id: props.run.id.clone(),
        path: path.clone(),
        stages: stages.collect(),
        repeats: props.repeats,
        first_runs,
        run_ns,
        first_ns: run_ns.map(|ns| ns.saturating_mul(first_runs)),
        watched_ns: wall_ns(&run.record, PhaseName::ALL),
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

/// Sums the wall times of phases; `None` where none ran.
fn wall_ns(record: &SessionRecord, phases: &[PhaseName]) -> Option<u64> {
    let wall = |name: &PhaseName| record.phase(*name)?.wall_ns;
    phases.iter().filter_map(wall).reduce(u64::saturating_add)
}

/// Collects the chosen changes: those of the findings that are named, and those named themselves. A change of several findings is
/// tried once.
fn candidates(analysis: &Analysis, props: &TrialProps) -> Result<Vec<Candidate>, Error> {
    let with_knobs = || {
        let mut ids: Vec<String> = Vec::new();
        for finding in analysis.findings.iter().filter(|finding| !finding.knobs.is_empty()) {
            if !ids.contains(&finding.id) {
                ids.push(finding.id.clone());
            }
        }
        ids
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
    } else if props.findings.is_empty() && props.env.is_empty() {
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
        candidate.findings = analysis
            .findings
            .iter()
            .filter(carries_out)
            .map(|finding| TriedFinding {
                id: finding.id.clone(),
                stage: finding.stage.clone(),
                bound_ns: finding.bound_ns,
                bound_pct: finding.bound_pct,
            })
            .collect();
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
