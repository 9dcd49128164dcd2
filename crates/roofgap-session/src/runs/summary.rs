//! One run in a line, and in a page.

use std::path::{Path, PathBuf};

use roofgap_collect::rundir::{RunState, run_state};
use serde::Serialize;

use super::artifacts::files;
use super::error::RunsError;
use super::facts::{self, Environment, Metrics};
use super::place::{self, RunPlace};
use crate::record::{SessionRecord, SessionState};

/// One run in a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    /// Its name.
    pub run_id: String,
    /// Its folder.
    pub path: PathBuf,
    /// What came of it: `done`, `partial`, `failed`, `interrupted`, `under_way`, `abandoned` or `unreadable`.
    pub status: String,
    /// Its exit status.
    pub exit_status: Option<u8>,
    /// When it began.
    pub started: Option<String>,
    /// When it ended.
    pub finished: Option<String>,
    /// `deep` or `light`.
    pub mode: Option<String>,
    /// What was profiled.
    pub workload: Option<String>,
    /// The model, as far as the program said.
    pub model: Option<String>,
    /// The GPUs, or the processor it ran on.
    pub devices: Vec<String>,
    /// Its stages.
    pub stages: Vec<StageLine>,
    /// Room on the disk.
    pub bytes: u64,
    /// Whether its traces are compressed.
    pub compressed: bool,
    /// What is wrong with it.
    pub problem: Option<String>,
}

/// A stage in a line, one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StageLine {
    /// Its name.
    pub name: String,
    /// Time on the CPU.
    pub wall_ns: i64,
    /// Time in which the GPU worked.
    pub busy_ns: Option<i64>,
}

/// One run in a page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunDetails {
    /// The line.
    #[serde(flatten)]
    pub summary: RunSummary,
    /// Version that made it.
    pub roofgap_version: Option<String>,
    /// How to have it again.
    pub repeat_command: Option<String>,
    /// What was asked for and is missing.
    pub missing: Vec<String>,
    /// Its phases.
    pub phases: Vec<PhaseSummary>,
    /// What to do first.
    pub findings: Vec<String>,
    /// How many files there are.
    pub files: usize,
}

/// A phase in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PhaseSummary {
    /// Its name.
    pub name: &'static str,
    /// What came of it.
    pub status: &'static str,
    /// Why, where it is not ok.
    pub why: Option<String>,
    /// What did the work.
    pub tool: Option<String>,
    /// How long it took.
    pub wall_ns: Option<u64>,
}

/// Every run below `base`, oldest first.
pub fn list(base: &Path) -> Result<Vec<RunSummary>, RunsError> {
    place::all(base)?.iter().map(|run| Ok(summary(run)?.0)).collect()
}

/// One run.
pub fn show(run: &RunPlace) -> Result<RunDetails, RunsError> {
    let (summary, record, metrics, files) = summary(run)?;
    let phase = |phase: &crate::record::PhaseRecord| PhaseSummary {
        name: phase.name.as_str(),
        status: phase.status.word(),
        why: phase.status.why().map(str::to_owned),
        tool: phase.tool.clone(),
        wall_ns: phase.wall_ns,
    };
    Ok(RunDetails {
        summary,
        roofgap_version: record.as_ref().map(|record| record.roofgap_version.clone()),
        repeat_command: record.as_ref().map(|record| record.repeat_command.clone()),
        missing: record
            .as_ref()
            .map(|record| record.missing.clone())
            .unwrap_or_default(),
        phases: record
            .iter()
            .flat_map(|record| &record.phases)
            .map(phase)
            .collect(),
        findings: metrics
            .findings
            .into_iter()
            .take(5)
            .map(|finding| finding.title)
            .collect(),
        files,
    })
}

fn summary(run: &RunPlace) -> Result<(RunSummary, Option<SessionRecord>, Metrics, usize), RunsError> {
    let files = files(&run.path)?;
    let metrics: Metrics = facts::read(&run.path.join("metrics.json"));
    let (record, problem) = match SessionRecord::read(&run.path) {
        Ok(record) => (Some(record), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let status = match (run_state(&run.path), record.as_ref().map(|record| record.state)) {
        (RunState::UnderWay, _) => "under_way",
        (_, None) => "unreadable",
        (RunState::Abandoned, _) | (_, Some(SessionState::Running)) => "abandoned",
        (_, Some(SessionState::Done)) => "done",
        (_, Some(SessionState::Partial)) => "partial",
        (_, Some(SessionState::Failed)) => "failed",
        (_, Some(SessionState::Interrupted)) => "interrupted",
    };
    let stage = |stage: &facts::StageTime| {
        let instances = i64::try_from(stage.instances.max(1)).unwrap_or(1);
        StageLine {
            name: stage.name.clone(),
            wall_ns: stage.wall_ns / instances,
            busy_ns: stage.busy_ns.map(|ns| ns / instances),
        }
    };
    let summary = RunSummary {
        run_id: run.id.clone(),
        path: run.path.clone(),
        status: status.to_owned(),
        exit_status: record.as_ref().and_then(|record| record.exit_status),
        started: record.as_ref().map(|record| record.started.clone()),
        finished: record.as_ref().and_then(|record| record.finished.clone()),
        mode: record.as_ref().map(|record| record.mode.clone()),
        workload: record.as_ref().map(|record| record.workload.clone()),
        model: metrics
            .workload
            .as_ref()
            .and_then(|workload| workload.model.clone()),
        devices: devices(run, &metrics),
        stages: metrics.stages.iter().map(stage).collect(),
        bytes: files.iter().map(|file| file.own_bytes).sum(),
        compressed: files.iter().any(|file| super::prune::is_packed_trace(&file.path)),
        problem,
    };
    Ok((summary, record, metrics, files.len()))
}

/// GPUs of the trace, else what the program says it ran on, else the GPUs of the machine.
fn devices(run: &RunPlace, metrics: &Metrics) -> Vec<String> {
    let names =
        |list: &[facts::Named]| -> Vec<String> { list.iter().filter_map(|d| d.name.clone()).collect() };
    let traced = names(&metrics.devices);
    if !traced.is_empty() {
        return traced;
    }
    if let Some(device) = metrics
        .workload
        .as_ref()
        .and_then(|workload| workload.device.clone())
    {
        return vec![device];
    }
    let environment: Environment = facts::read(&run.path.join("env.json"));
    environment.gpus.map(|gpus| names(&gpus.gpus)).unwrap_or_default()
}
