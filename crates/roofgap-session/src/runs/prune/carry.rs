//! Carrying a plan out. Each file is a step of its own, and each step leaves everything readable at every moment.

use std::path::{Path, PathBuf};

use roofgap_collect::child::Cancel;
use roofgap_collect::rundir::{RunState, run_state};
use serde::Serialize;

use super::gzip;
use super::plan::{Action, Deed, PrunePlan, RunPlan};
use crate::exit::Exit;

/// What was done.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PruneOutcome {
    /// Files done, with the room that each won.
    pub done: Vec<Done>,
    /// Files that stay as they were, and why.
    pub failed: Vec<Left>,
    /// Room won.
    pub won_bytes: u64,
    /// Whether the user ended it before it was through.
    pub interrupted: bool,
}

impl PruneOutcome {
    /// How to end.
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

/// A file that was dealt with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Done {
    /// The run.
    pub run_id: String,
    /// Path below its folder.
    pub path: PathBuf,
    /// What was done.
    pub action: Action,
    /// Room won.
    pub won_bytes: u64,
}

/// A file that stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Left {
    /// The run.
    pub run_id: String,
    /// Path below its folder.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// Carries a plan out. A file that cannot be dealt with does not keep the others from it.
pub fn carry_out(plan: &PrunePlan, cancel: &Cancel, progress: &mut dyn FnMut(&str, &Deed)) -> PruneOutcome {
    let mut outcome = PruneOutcome::default();
    for run in &plan.runs {
        for deed in &run.deeds {
            if cancel.is_requested() {
                outcome.interrupted = true;
                return outcome;
            }
            progress(&run.run_id, deed);
            match one(run, deed) {
                Ok(won_bytes) => {
                    outcome.won_bytes += won_bytes;
                    outcome.done.push(Done {
                        run_id: run.run_id.clone(),
                        path: deed.path.clone(),
                        action: deed.action,
                        won_bytes,
                    });
                }
                Err(why) => outcome.failed.push(Left {
                    run_id: run.run_id.clone(),
                    path: deed.path.clone(),
                    why,
                }),
            }
        }
    }
    outcome
}

/// Does one deed; time has passed since it was planned, so everything is looked at again.
fn one(run: &RunPlan, deed: &Deed) -> Result<u64, String> {
    if run_state(&run.path) == RunState::UnderWay {
        return Err("the run is under way".to_owned());
    }
    let path = run.path.join(&deed.path);
    let size = std::fs::symlink_metadata(&path)
        .map_err(|error| error.to_string())?
        .len();
    if size != deed.bytes {
        return Err(format!(
            "it has {size} bytes and had {}: something is writing it",
            deed.bytes
        ));
    }
    match deed.action {
        Action::Compress => {
            let packed = gzip::pack(&path).map_err(|error| error.to_string())?;
            Ok(size.saturating_sub(packed))
        }
        Action::Drop => {
            if let Some(from) = &deed.made_from
                && !is_there(&run.path.join(from))
            {
                return Err(format!(
                    "{}, from which it could be made again, is gone",
                    from.display()
                ));
            }
            std::fs::remove_file(&path).map_err(|error| error.to_string())?;
            Ok(size)
        }
    }
}

/// Whether a file is there and holds something, plain or compressed.
fn is_there(path: &Path) -> bool {
    let holds = |path: &Path| std::fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.len() > 0);
    holds(path) || holds(&gzip::packed_name(path))
}
