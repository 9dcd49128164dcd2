//! Summaries of runs: one line for a list, one page for a single run.

use std::path::{Path, PathBuf};

use crate::run_dir::folder::{RunState, read_json, run_state};
use serde::{Deserialize, Serialize};

use super::artifacts::files;
use crate::run_dir::environment::Environment;
use crate::run_dir::phases::is_packed_recording;
use crate::run_dir::{Layout, PhaseRecord, PhaseStatus, RunRef, SessionRecord, SessionState, locate};
use roofgap_analyze::Incident;
use roofgap_base::error::Error;

/// Summary of a run for a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    /// Id.
    pub run_id: String,
    /// Folder.
    pub path: PathBuf,
    /// Status: `done`, `partial`, `failed`, `interrupted`, `under_way`, `abandoned` or `unreadable`.
    pub status: String,
    /// Exit status.
    pub exit_status: Option<u8>,
    /// Start time (RFC 3339, UTC).
    pub started: Option<String>,
    /// End time (RFC 3339, UTC).
    pub finished: Option<String>,
    /// `deep` or `light`.
    pub mode: Option<String>,
    /// Workload kind.
    pub workload: Option<String>,
    /// Model, as named by the program.
    pub model: Option<String>,
    /// GPUs, or the processor of the program.
    pub devices: Vec<String>,
    /// Stages.
    pub stages: Vec<StageLine>,
    /// Disk usage, bytes.
    pub bytes: u64,
    /// True where recordings are compressed.
    pub compressed: bool,
    /// Time, trigger and cause of the moment that the run was kept for.
    pub incident: Option<String>,
    /// Error from reading the run.
    pub problem: Option<String>,
}

/// Mean times of one instance of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StageLine {
    /// Name.
    pub name: String,
    /// Wall time, ns.
    pub wall_ns: i64,
    /// GPU busy time, ns.
    pub busy_ns: Option<i64>,
}

/// Details of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunDetails {
    /// Summary.
    #[serde(flatten)]
    pub summary: RunSummary,
    /// roofgap version.
    pub roofgap_version: Option<String>,
    /// Command that repeats the run.
    pub repeat_command: Option<String>,
    /// Requested results that are missing.
    pub missing: Vec<String>,
    /// Phases.
    pub phases: Vec<PhaseSummary>,
    /// Titles of the first findings.
    pub findings: Vec<String>,
    /// Number of files.
    pub files: usize,
}

/// Summary of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PhaseSummary {
    /// Name.
    pub name: &'static str,
    /// Status: that of the record, `killed` or `not reached` where the session was killed.
    pub status: &'static str,
    /// Reason, where the status is not ok.
    pub why: Option<String>,
    /// Tool.
    pub tool: Option<String>,
    /// Wall time, ns.
    pub wall_ns: Option<u64>,
}

/// Status of a run whose session was killed.
const ABANDONED: &str = "abandoned";

/// Lists the runs below `base`, oldest first.
pub fn list(base: &Path) -> Result<Vec<RunSummary>, Error> {
    locate::all(base)?.iter().map(|run| Ok(summary(run)?.0)).collect()
}

/// Shows one run.
pub fn show(run: &RunRef) -> Result<RunDetails, Error> {
    let (summary, record, metrics, files) = summary(run)?;
    let killed = summary.status == ABANDONED;
    let phase = |phase: &PhaseRecord| PhaseSummary {
        name: phase.name.as_str(),
        status: match &phase.status {
            PhaseStatus::Running if killed => "killed",
            PhaseStatus::Pending if killed => "not reached",
            status => status.word(),
        },
        why: phase.status.why().map(str::to_owned),
        tool: phase.tool.clone(),
        wall_ns: phase.wall_ns,
    };
    Ok(RunDetails {
        summary,
        phases: record.iter().flat_map(|record| &record.phases).map(phase).collect(),
        roofgap_version: record.as_ref().map(|record| record.roofgap_version.clone()),
        repeat_command: record.as_ref().map(|record| record.repeat_command.clone()),
        missing: record.map(|record| record.missing).unwrap_or_default(),
        findings: metrics.findings.into_iter().take(5).map(|finding| finding.title).collect(),
        files,
    })
}

fn summary(run: &RunRef) -> Result<(RunSummary, Option<SessionRecord>, Metrics, usize), Error> {
    let layout = Layout::of(&run.path);
    let files = files(&run.path)?;
    let metrics: Metrics = read_json(&layout.metrics()).unwrap_or_default();
    let (record, problem) = match SessionRecord::read(&run.path) {
        Ok(record) => (Some(record), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let status = status(&run.path, record.as_ref());
    let stage = |stage: &StageTotal| {
        let instances = i64::try_from(stage.instances.max(1)).unwrap_or(1);
        StageLine {
            name: stage.name.clone(),
            wall_ns: stage.wall_ns / instances,
            busy_ns: stage.busy_ns.map(|ns| ns / instances),
        }
    };
    let incident = read_json::<Incident>(&layout.incident()).ok();
    let told = |moment: &Incident| format!("{}: {}; {}", moment.at, moment.what, moment.spoken_cause());
    let summary = RunSummary {
        run_id: run.id.clone(),
        path: run.path.clone(),
        status: status.to_owned(),
        exit_status: record.as_ref().and_then(|record| record.exit_status),
        started: record.as_ref().map(|record| record.started.clone()),
        finished: record.as_ref().and_then(|record| record.finished.clone()),
        mode: record.as_ref().map(|record| record.mode.clone()),
        workload: record.as_ref().map(|record| record.workload.clone()),
        model: metrics.workload.as_ref().and_then(|workload| workload.model.clone()),
        devices: devices(&layout, &metrics),
        stages: metrics.stages.iter().map(stage).collect(),
        bytes: files.iter().map(|file| file.own_bytes).sum(),
        incident: incident.as_ref().map(told),
        compressed: files.iter().any(|file| is_packed_recording(&file.path)),
        problem,
    };
    Ok((summary, record, metrics, files.len()))
}

/// Returns the status of a run as one word, the same in every answer.
pub(super) fn status(folder: &Path, record: Option<&SessionRecord>) -> &'static str {
    match (run_state(folder), record.map(|record| record.state)) {
        (RunState::UnderWay, _) => "under_way",
        // Killed before its first record.
        (_, None) if !folder.join("session.json").exists() => ABANDONED,
        (_, None) => "unreadable",
        (RunState::Abandoned, _) | (_, Some(SessionState::Running)) => ABANDONED,
        (_, Some(SessionState::Done)) => "done",
        (_, Some(SessionState::Partial)) => "partial",
        (_, Some(SessionState::Failed)) => "failed",
        (_, Some(SessionState::Interrupted)) => "interrupted",
    }
}

/// Names the GPUs of the trace, else the device of the program, else the GPUs of the machine.
fn devices(layout: &Layout, metrics: &Metrics) -> Vec<String> {
    let traced: Vec<String> = metrics.devices.iter().filter_map(|device| device.name.clone()).collect();
    if !traced.is_empty() {
        return traced;
    }
    if let Some(device) = metrics.workload.as_ref().and_then(|workload| workload.device.clone()) {
        return vec![device];
    }
    Environment::read(layout).gpu_names()
}

/// The part of `metrics.json` that a summary needs. Missing keys are skipped; an unreadable document is empty.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Metrics {
    devices: Vec<DeviceName>,
    stages: Vec<StageTotal>,
    findings: Vec<FindingTitle>,
    workload: Option<WorkloadNames>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeviceName {
    name: Option<String>,
}

/// Times over all instances of a stage, ns.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StageTotal {
    name: String,
    wall_ns: i64,
    busy_ns: Option<i64>,
    instances: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FindingTitle {
    title: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkloadNames {
    model: Option<String>,
    device: Option<String>,
}
