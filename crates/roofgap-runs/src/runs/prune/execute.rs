//! Executes a plan file by file. Every file is readable at every moment.

use std::path::PathBuf;

use crate::run_dir::folder::{RunState, run_state};
use roofgap_collect::child::Cancel;
use serde::Serialize;

use super::gzip;
use super::plan::{Action, PrunePlan, PruneStep, RunPlan};
use crate::run_dir::layout::stored;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;

/// Result of pruning.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PruneOutcome {
    /// Pruned files.
    pub done: Vec<PrunedFile>,
    /// Files that are unchanged because of an error.
    pub failed: Vec<FailedFile>,
    /// Disk space saved, bytes.
    pub saved_bytes: u64,
    /// True where the user interrupted it.
    pub interrupted: bool,
}

impl PruneOutcome {
    /// Returns the exit status.
    pub fn exit(&self) -> Exit {
        if self.interrupted {
            Exit::Interrupted
        } else if self.failed.is_empty() {
            Exit::Done
        } else {
            Exit::Partial
        }
    }
}

/// A pruned file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PrunedFile {
    /// Id of the run.
    pub run_id: String,
    /// Path below the folder of the run.
    pub path: PathBuf,
    /// Action.
    pub action: Action,
    /// Disk space saved, bytes.
    pub saved_bytes: u64,
}

/// A file that is unchanged because of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedFile {
    /// Id of the run.
    pub run_id: String,
    /// Path below the folder of the run.
    pub path: PathBuf,
    /// Reason.
    pub why: String,
}

/// Executes a plan. An error on one file does not affect the others.
pub fn execute(
    plan: &PrunePlan,
    cancel: &Cancel,
    progress: &mut dyn FnMut(&str, &PruneStep),
) -> PruneOutcome {
    let mut outcome = PruneOutcome::default();
    for run in &plan.runs {
        for step in &run.steps {
            if cancel.is_requested() {
                outcome.interrupted = true;
                return outcome;
            }
            progress(&run.run_id, step);
            match execute_step(run, step) {
                Ok(saved_bytes) => {
                    outcome.saved_bytes += saved_bytes;
                    outcome.done.push(PrunedFile {
                        run_id: run.run_id.clone(),
                        path: step.path.clone(),
                        action: step.action,
                        saved_bytes,
                    });
                }
                Err(error) => outcome.failed.push(FailedFile {
                    run_id: run.run_id.clone(),
                    path: step.path.clone(),
                    why: error.to_string(),
                }),
            }
        }
    }
    outcome
}

/// Executes one step and returns the bytes saved. Everything is checked again, because time has passed since the plan.
fn execute_step(run: &RunPlan, step: &PruneStep) -> Result<u64, Error> {
    if run_state(&run.path) == RunState::UnderWay {
        return Err(Error::new("the run is in progress"));
    }
    let path = run.path.join(&step.path);
    let facts = std::fs::symlink_metadata(&path).map_err(Error::of)?;
    let folder = path.parent().unwrap_or(&path).canonicalize().map_err(Error::of)?;
    if !facts.is_file() || !folder.starts_with(run.path.canonicalize().map_err(Error::of)?) {
        return Err(Error::new("it is a link, or a folder above it is"));
    }
    let size = facts.len();
    if size != step.bytes {
        return Err(Error::new(format!(
            "it has {size} bytes instead of {}: another process is writing it",
            step.bytes
        )));
    }
    match step.action {
        Action::Compress => {
            let packed = gzip::pack(&path).map_err(Error::of)?;
            Ok(size.saturating_sub(packed))
        }
        Action::Delete => {
            if let Some(from) = &step.made_from
                && stored(run.path.join(from)).is_none()
            {
                let path = from.display();
                return Err(Error::new(format!("{path}, from which it can be regenerated, is missing")));
            }
            std::fs::remove_file(&path).map_err(Error::of)?;
            Ok(size)
        }
    }
}
