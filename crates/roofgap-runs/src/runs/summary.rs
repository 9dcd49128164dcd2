//! Summaries of runs: one line for a list, one page for a single run.

use std::path::{Path, PathBuf};

use crate::run_dir::folder::{RunState, read_json, run_state};
use serde::Serialize;
use serde_json::Value;

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
        findings: listed(&metrics, "findings")
            .take(5)
            .filter_map(|finding| text(&finding["title"]))
            .collect(),
        files,
    })
}

/// Summarises a run. Of `metrics.json`, missing keys are skipped, and an unreadable document is empty.
fn summary(run: &RunRef) -> Result<(RunSummary, Option<SessionRecord>, Value, usize), Error> {
    let layout = Layout::of(&run.path);
    let files = files(&run.path)?;
    let metrics: Value = read_json(&layout.metrics()).unwrap_or_default();
    let (record, problem) = match SessionRecord::read(&run.path) {
        Ok(record) => (Some(record), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let status = status(&run.path, record.as_ref());
    let stage = |stage: &Value| {
        let instances = stage["instances"].as_i64().unwrap_or(1).max(1);
        let mean = |total: &str| Some(stage[total].as_i64()? / instances);
        StageLine {
            name: text(&stage["name"]).unwrap_or_default(),
            wall_ns: mean("wall_ns").unwrap_or(0),
            busy_ns: mean("busy_ns"),
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
        model: text(&metrics["workload"]["model"]),
        devices: devices(&layout, &metrics),
        stages: listed(&metrics, "stages").map(stage).collect(),
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
fn devices(layout: &Layout, metrics: &Value) -> Vec<String> {
    let traced: Vec<String> = listed(metrics, "devices").filter_map(|device| text(&device["name"])).collect();
    match text(&metrics["workload"]["device"]) {
        _ if !traced.is_empty() => traced,
        Some(device) => vec![device],
        None => Environment::read(layout).gpu_names(),
    }
}

/// Lists the entries of a document under a name; none where it has no such list.
fn listed<'a>(document: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    document[name].as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
