//! Plans the steps of pruning without touching a file.

use std::path::{Path, PathBuf};

use crate::run_dir::folder::{RunState, run_state};
use serde::Serialize;

use super::super::artifacts::is_temporary;
use super::super::files::{FoundFile, files};
use super::gzip;
use crate::run_dir::phases::{file_rule, is_unpacked_recording};
use crate::run_dir::{RunRef, locate};
use roofgap_base::error::Error;

/// Settings of pruning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneProps {
    /// Folder of the runs.
    pub base: PathBuf,
    /// Number of latest runs to keep uncompressed (`retention.keep`).
    pub keep: usize,
    /// Maximum size of a run, bytes (`retention.max_run_bytes`).
    pub max_run_bytes: u64,
}

/// The plan for all runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PrunePlan {
    /// Plans by run, oldest first.
    pub runs: Vec<RunPlan>,
    /// Disk usage of all runs, bytes.
    pub bytes: u64,
    /// Expected saving, bytes. Compression is estimated from samples.
    pub saves_bytes: u64,
}

/// The plan for one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunPlan {
    /// Id of the run.
    pub run_id: String,
    /// Folder.
    pub path: PathBuf,
    /// Disk usage, bytes.
    pub bytes: u64,
    /// Expected saving, bytes.
    pub saves_bytes: u64,
    /// Reason to leave the run unchanged.
    pub left_alone: Option<String>,
    /// Steps in order.
    pub steps: Vec<PruneStep>,
    /// Bytes over the limit after all steps, in files that cannot be regenerated.
    pub over_cap_bytes: u64,
}

/// Action on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Compress; every reader accepts the compressed file.
    Compress,
    /// Delete.
    Delete,
}

/// One step: an action on a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PruneStep {
    /// Action.
    pub action: Action,
    /// Path below the folder of the run.
    pub path: PathBuf,
    /// Size, bytes.
    pub bytes: u64,
    /// Expected saving, bytes.
    pub saves_bytes: u64,
    /// Reason, and for a deleted file the way to regenerate it.
    pub why: String,
    /// Source to regenerate it from, which must exist when it is deleted.
    pub made_from: Option<PathBuf>,
}

/// Minimum size to compress, bytes.
const SMALL: u64 = 4 << 10;

/// Maximum compressed share; above it a file is not compressed.
const NOT_WORTH: f64 = 0.9;

/// Age above which an unfinished file is a leftover, s.
const LEFT_BEHIND_S: u64 = 3600;

/// Plans the steps for all runs.
pub fn plan(props: &PruneProps) -> Result<PrunePlan, Error> {
    let mut runs = locate::all(&props.base)?;
    // Any folder may be named like a date; a run has a record, or the marker of its writer.
    runs.retain(|run| locate::is_run(&run.path) || run_state(&run.path) == RunState::UnderWay);
    let states: Vec<RunState> = runs.iter().map(|run| run_state(&run.path)).collect();
    let ended = states.iter().filter(|state| **state != RunState::UnderWay).count();
    let mut older = ended.saturating_sub(props.keep);
    let mut plans = Vec::new();
    for (run, state) in runs.iter().zip(states) {
        if state == RunState::UnderWay {
            plans.push(left_alone(run, "the run is in progress")?);
            continue;
        }
        let old = older > 0;
        older = older.saturating_sub(1);
        plans.push(of_run(run, old, props.max_run_bytes)?);
    }
    Ok(PrunePlan {
        bytes: plans.iter().map(|plan| plan.bytes).sum(),
        saves_bytes: plans.iter().map(|plan| plan.saves_bytes).sum(),
        runs: plans,
    })
}

fn left_alone(run: &RunRef, why: &str) -> Result<RunPlan, Error> {
    Ok(RunPlan {
        run_id: run.id.clone(),
        path: run.path.clone(),
        bytes: files(&run.path)?.iter().map(|file| file.own_bytes).sum(),
        saves_bytes: 0,
        left_alone: Some(why.to_owned()),
        steps: Vec::new(),
        over_cap_bytes: 0,
    })
}

/// Plans the steps for one run; `old` for a run that is not among the latest.
pub fn of_run(run: &RunRef, old: bool, cap: u64) -> Result<RunPlan, Error> {
    let found = files(&run.path)?;
    let bytes: u64 = found.iter().map(|file| file.own_bytes).sum();
    let mut steps: Vec<PruneStep> = found.iter().filter_map(left_behind).collect();
    let over = |steps: &[PruneStep]| {
        let wins: u64 = steps.iter().map(|step| step.saves_bytes).sum();
        bytes.saturating_sub(wins).saturating_sub(cap)
    };
    if old || over(&steps) > 0 {
        let why = if old {
            "older than the runs that are kept uncompressed"
        } else {
            "the run exceeds retention.max_run_bytes"
        };
        steps.extend(found.iter().filter_map(|file| compress(&run.path, file, why)));
    }
    for (file, made_from, how) in regenerable(&found) {
        if over(&steps) == 0 {
            break;
        }
        // Compression was not enough; the file is deleted.
        let planned = steps.iter().position(|step| step.path == file.path);
        if let Some(at) = planned {
            steps.remove(at);
        }
        steps.push(PruneStep {
            action: Action::Delete,
            path: file.path.clone(),
            bytes: file.bytes,
            saves_bytes: file.own_bytes,
            why: format!("the run exceeds retention.max_run_bytes; {how}"),
            made_from: Some(made_from),
        });
    }
    let saves_bytes = steps.iter().map(|step| step.saves_bytes).sum();
    Ok(RunPlan {
        run_id: run.id.clone(),
        path: run.path.clone(),
        bytes,
        saves_bytes,
        left_alone: steps.is_empty().then(|| {
            if old { "nothing left to compress".to_owned() } else { "one of the latest runs".to_owned() }
        }),
        over_cap_bytes: over(&steps),
        steps,
    })
}

/// Plans to delete an unfinished file.
fn left_behind(file: &FoundFile) -> Option<PruneStep> {
    (is_temporary(&file.path) && file.age_s > LEFT_BEHIND_S).then(|| PruneStep {
        action: Action::Delete,
        path: file.path.clone(),
        bytes: file.bytes,
        saves_bytes: file.own_bytes,
        why: "unfinished, left by a killed process".to_owned(),
        made_from: None,
    })
}

/// Plans to compress a file, where that saves enough.
fn compress(root: &Path, file: &FoundFile, why: &str) -> Option<PruneStep> {
    if file.bytes < SMALL || !is_unpacked_recording(&file.path) || is_temporary(&file.path) {
        return None;
    }
    let share = gzip::estimate(&root.join(&file.path), file.bytes).ok()?;
    (share <= NOT_WORTH).then(|| PruneStep {
        action: Action::Compress,
        path: file.path.clone(),
        bytes: file.bytes,
        saves_bytes: (file.own_bytes as f64 * (1.0 - share)) as u64,
        why: why.to_owned(),
        made_from: None,
    })
}

/// Lists the files that can be regenerated, with source and command, least useful first.
fn regenerable(found: &[FoundFile]) -> Vec<(&FoundFile, PathBuf, &'static str)> {
    let stored = |plain: &str| {
        let is = |file: &&FoundFile| {
            let name = file.name();
            file.bytes > 0 && (name == plain || name.strip_suffix(".gz") == Some(plain))
        };
        found.iter().find(is).map(|file| file.path.clone())
    };
    let mut list: Vec<(u8, &FoundFile, PathBuf, &'static str)> = Vec::new();
    for file in found.iter().filter(|file| file.own_bytes > 0) {
        if let Some(source) = file_rule(&file.path).and_then(|rule| rule.source)
            && let Some(from) = stored(source.path).filter(|from| *from != file.path)
        {
            list.push((source.order, file, from, source.how));
        }
    }
    list.sort_by_key(|(order, file, ..)| (*order, std::cmp::Reverse(file.own_bytes)));
    list.into_iter().map(|(_, file, from, how)| (file, from, how)).collect()
}
