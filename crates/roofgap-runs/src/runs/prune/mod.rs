//! Frees disk space: compresses old runs and drops the files of large runs that can be regenerated. Reports are kept.
//!
//! [`plan`] plans the steps without touching a file; [`execute`] executes them file by file, so that a kill loses nothing: every file is
//! readable at every moment. A compressed file is written beside the original, read back and renamed, and only then the original is deleted.

use super::artifacts::{FoundFile, files, is_temporary};
use crate::run_dir::folder::{RunState, run_state};
use crate::run_dir::layout::stored;
use crate::run_dir::phases::{FileSource, file_rule, is_unpacked_recording};
use crate::run_dir::{RunRef, locate};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::{copy_hashed, write_atomic_with};
use roofgap_collect::child::Cancel;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

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

/// Age above which an unfinished file is a leftover.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);

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
            plans.push(RunPlan {
                left_alone: Some("the run is in progress".to_owned()),
                ..RunPlan::of(run, &files(&run.path)?)
            });
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

impl RunPlan {
    /// Plans nothing for a run with these files.
    fn of(run: &RunRef, listed: &[FoundFile]) -> Self {
        Self {
            run_id: run.id.clone(),
            path: run.path.clone(),
            bytes: listed.iter().map(|file| file.own_bytes).sum(),
            saves_bytes: 0,
            left_alone: None,
            steps: Vec::new(),
            over_cap_bytes: 0,
        }
    }
}

impl PruneStep {
    /// Plans to delete a file.
    fn delete(file: &FoundFile, why: String, made_from: Option<PathBuf>) -> Self {
        Self {
            action: Action::Delete,
            path: file.path.clone(),
            bytes: file.bytes,
            saves_bytes: file.own_bytes,
            why,
            made_from,
        }
    }
}

/// Plans the steps for one run; `old` for a run that is not among the latest.
pub fn of_run(run: &RunRef, old: bool, cap: u64) -> Result<RunPlan, Error> {
    let listed = files(&run.path)?;
    let plan = RunPlan::of(run, &listed);
    let is_old = |file: &FoundFile| file.modified?.elapsed().ok().filter(|age| *age > LEFT_BEHIND);
    let is_left_behind = |file: &&FoundFile| is_temporary(&file.path) && is_old(file).is_some();
    let unfinished = || "unfinished, left by a killed process".to_owned();
    let left_behind = listed.iter().filter(is_left_behind);
    let mut steps: Vec<PruneStep> =
        left_behind.map(|file| PruneStep::delete(file, unfinished(), None)).collect();
    let saves = |steps: &[PruneStep]| steps.iter().map(|step| step.saves_bytes).sum::<u64>();
    let over = |steps: &[PruneStep]| plan.bytes.saturating_sub(saves(steps)).saturating_sub(cap);
    if old || over(&steps) > 0 {
        let why = if old {
            "older than the runs that are kept uncompressed"
        } else {
            "the run exceeds retention.max_run_bytes"
        };
        steps.extend(listed.iter().filter_map(|file| compress_step(&run.path, file, why)));
    }
    for (file, made_from, source) in regenerable(&listed) {
        if over(&steps) == 0 {
            break;
        }
        // Compression was not enough; the file is deleted.
        steps.retain(|step| step.path != file.path);
        let why = format!("the run exceeds retention.max_run_bytes; {}", source.how);
        steps.push(PruneStep::delete(file, why, Some(made_from)));
    }
    let idle = if old { "nothing left to compress" } else { "one of the latest runs" };
    Ok(RunPlan {
        saves_bytes: saves(&steps),
        left_alone: steps.is_empty().then(|| idle.to_owned()),
        over_cap_bytes: over(&steps),
        steps,
        ..plan
    })
}

/// Plans to compress a file, where that saves enough.
fn compress_step(root: &Path, file: &FoundFile, why: &str) -> Option<PruneStep> {
    if file.bytes < SMALL || !is_unpacked_recording(&file.path) || is_temporary(&file.path) {
        return None;
    }
    let share = estimate_packed(&root.join(&file.path), file.bytes).ok()?;
    (share <= NOT_WORTH).then(|| PruneStep {
        action: Action::Compress,
        saves_bytes: (file.own_bytes as f64 * (1.0 - share)) as u64,
        ..PruneStep::delete(file, why.to_owned(), None)
    })
}

/// Lists the files that can be regenerated, with source and command, least useful first.
fn regenerable<'a>(listed: &'a [FoundFile]) -> Vec<(&'a FoundFile, PathBuf, FileSource)> {
    let stored = |plain: &str| {
        let is = |file: &&FoundFile| {
            let name = file.name();
            file.bytes > 0 && (name == plain || name.strip_suffix(".gz") == Some(plain))
        };
        listed.iter().find(is).map(|file| file.path.clone())
    };
    let sourced = |file: &'a FoundFile| {
        let source = file_rule(&file.path)?.source?;
        Some((file, stored(source.path).filter(|from| *from != file.path)?, source))
    };
    let mut list: Vec<(&FoundFile, PathBuf, FileSource)> =
        listed.iter().filter(|file| file.own_bytes > 0).filter_map(sourced).collect();
    list.sort_by_key(|(file, _, source)| (source.order, std::cmp::Reverse(file.own_bytes)));
    list
}

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
fn execute_step(run: &RunPlan, step: &PruneStep) -> io::Result<u64> {
    if run_state(&run.path) == RunState::UnderWay {
        return Err(io::Error::other("the run is in progress"));
    }
    let path = run.path.join(&step.path);
    let facts = fs::symlink_metadata(&path)?;
    let folder = path.parent().unwrap_or(&path).canonicalize()?;
    if !facts.is_file() || !folder.starts_with(run.path.canonicalize()?) {
        return Err(io::Error::other("it is a link, or a folder above it is"));
    }
    let size = facts.len();
    if size != step.bytes {
        let expected = step.bytes;
        let why = format!("it has {size} bytes instead of {expected}: another process is writing it");
        return Err(io::Error::other(why));
    }
    match step.action {
        Action::Compress => {
            let packed = pack(&path)?;
            Ok(size.saturating_sub(packed))
        }
        Action::Delete => {
            if let Some(from) = &step.made_from
                && stored(run.path.join(from)).is_none()
            {
                let path = from.display();
                return Err(io::Error::other(format!(
                    "{path}, from which it can be regenerated, is missing"
                )));
            }
            fs::remove_file(&path)?;
            Ok(size)
        }
    }
}

/// Compresses a file in place and returns its new size, bytes.
pub fn pack(path: &Path) -> io::Result<u64> {
    pack_through(path, |file| file)
}

/// Compresses a file through a wrapper of the output file.
pub fn pack_through<W: Write>(path: &Path, wrap: impl FnOnce(File) -> W) -> io::Result<u64> {
    let target = path.with_added_extension("gz");
    let size = write_atomic_with(&target, |file| compress(path, file, wrap))?;
    sync_folder(&target)?;
    // The compressed file is complete and has its final name.
    fs::remove_file(path)?;
    sync_folder(path)?;
    Ok(size)
}

/// Compresses a file and checks that the result reads back the same.
fn compress<W: Write>(path: &Path, file: &mut File, wrap: impl FnOnce(File) -> W) -> io::Result<u64> {
    let output = BufWriter::with_capacity(1 << 17, wrap(file.try_clone()?));
    let mut encoder = GzEncoder::new(output, Compression::new(6));
    let original = copy_hashed(&mut File::open(path)?, &mut encoder)?;
    let output = encoder.finish()?.into_inner();
    output.map_err(|error| error.into_error())?.flush()?;
    file.sync_all()?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(0))?;
    let mut back = GzDecoder::new(BufReader::new(file));
    if copy_hashed(&mut back, &mut io::sink())? != original {
        return Err(io::Error::other("the compressed file does not read back the same"));
    }
    Ok(size)
}

/// Syncs a folder, so that a rename survives a power cut.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Estimates the compressed share of a file from up to three samples.
pub fn estimate_packed(path: &Path, size: u64) -> io::Result<f64> {
    const PIECE: u64 = 1 << 20;
    let mut file = File::open(path)?;
    let places = if size <= 3 * PIECE {
        vec![(0, size)]
    } else {
        vec![(0, PIECE), (size / 2, PIECE), (size - PIECE, PIECE)]
    };
    let (mut plain, mut packed) = (0u64, 0u64);
    for (at, length) in places {
        file.seek(SeekFrom::Start(at))?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
        plain += io::copy(&mut (&mut file).take(length), &mut encoder)?;
        packed += encoder.finish()?.len() as u64;
    }
    Ok(if plain == 0 { 1.0 } else { packed as f64 / plain as f64 })
}

#[cfg(test)]
mod tests;
