//! What pruning would do, and how much it wins.

use std::path::{Path, PathBuf};

use roofgap_collect::rundir::{RunState, run_state};
use serde::Serialize;

use super::super::artifacts::{Found, files, is_temporary};
use super::super::error::RunsError;
use super::super::place::{self, RunPlace};
use super::gzip;

/// What pruning is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneProps {
    /// The folder of the runs.
    pub base: PathBuf,
    /// How many of the last runs are kept as they are (`retention.keep`).
    pub keep: usize,
    /// The most one run may take (`retention.max_run_bytes`).
    pub max_run_bytes: u64,
}

/// What would be done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PrunePlan {
    /// Run by run, oldest first.
    pub runs: Vec<RunPlan>,
    /// Room that all runs take now.
    pub bytes: u64,
    /// Room that would be won; compression is estimated from pieces of the files.
    pub wins_bytes: u64,
}

/// What would be done to one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunPlan {
    /// Its name.
    pub run_id: String,
    /// Its folder.
    pub path: PathBuf,
    /// Room that it takes now.
    pub bytes: u64,
    /// Room that would be won.
    pub wins_bytes: u64,
    /// Why it is left alone, where it is.
    pub left_alone: Option<String>,
    /// What would be done, in this order.
    pub deeds: Vec<Deed>,
    /// What it would still take beyond the cap, all of which cannot be made again.
    pub over_cap_bytes: u64,
}

/// What happens to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is compressed; everything that reads it reads it so too.
    Compress,
    /// It goes.
    Drop,
}

/// What would be done to one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deed {
    /// What.
    pub action: Action,
    /// Path below the run's folder.
    pub path: PathBuf,
    /// Its size now.
    pub bytes: u64,
    /// Room that would be won.
    pub wins_bytes: u64,
    /// Why, and for what goes, how it can be had again.
    pub why: String,
    /// What it can be made from again; it goes only while that is there.
    pub made_from: Option<PathBuf>,
}

/// What is not worth compressing.
const SMALL: u64 = 4 << 10;

/// Compressed to more than this share, a file stays as it is.
const NOT_WORTH: f64 = 0.9;

/// A file that was being written and is older than this was left by a kill.
const LEFT_BEHIND_S: u64 = 3600;

/// Plans, without touching anything.
pub fn plan(props: &PruneProps) -> Result<PrunePlan, RunsError> {
    let runs = place::all(&props.base)?;
    let states: Vec<RunState> = runs.iter().map(|run| run_state(&run.path)).collect();
    let ended = states
        .iter()
        .filter(|state| **state != RunState::UnderWay)
        .count();
    let mut older = ended.saturating_sub(props.keep);
    let mut plans = Vec::new();
    for (run, state) in runs.iter().zip(states) {
        if state == RunState::UnderWay {
            plans.push(left_alone(run, "it is under way")?);
            continue;
        }
        let old = older > 0;
        older = older.saturating_sub(1);
        plans.push(of_run(run, old, props.max_run_bytes)?);
    }
    Ok(PrunePlan {
        bytes: plans.iter().map(|plan| plan.bytes).sum(),
        wins_bytes: plans.iter().map(|plan| plan.wins_bytes).sum(),
        runs: plans,
    })
}

fn left_alone(run: &RunPlace, why: &str) -> Result<RunPlan, RunsError> {
    Ok(RunPlan {
        run_id: run.id.clone(),
        path: run.path.clone(),
        bytes: files(&run.path)?.iter().map(|file| file.own_bytes).sum(),
        wins_bytes: 0,
        left_alone: Some(why.to_owned()),
        deeds: Vec::new(),
        over_cap_bytes: 0,
    })
}

fn of_run(run: &RunPlace, old: bool, cap: u64) -> Result<RunPlan, RunsError> {
    let found = files(&run.path)?;
    let bytes: u64 = found.iter().map(|file| file.own_bytes).sum();
    let mut deeds: Vec<Deed> = found.iter().filter_map(left_behind).collect();
    let over = |deeds: &[Deed]| {
        let wins: u64 = deeds.iter().map(|deed| deed.wins_bytes).sum();
        bytes.saturating_sub(wins).saturating_sub(cap)
    };
    if old || over(&deeds) > 0 {
        let why = if old {
            "older than the runs that are kept whole"
        } else {
            "the run is larger than a run may be"
        };
        deeds.extend(found.iter().filter_map(|file| compress(&run.path, file, why)));
    }
    for (file, made_from, how) in again(&found) {
        if over(&deeds) == 0 {
            break;
        }
        // What would be compressed and still is too much goes whole.
        let planned = deeds.iter().position(|deed| deed.path == file.path);
        if let Some(at) = planned {
            deeds.remove(at);
        }
        deeds.push(Deed {
            action: Action::Drop,
            path: file.path.clone(),
            bytes: file.bytes,
            wins_bytes: file.own_bytes,
            why: format!("the run is larger than a run may be; {how}"),
            made_from: Some(made_from),
        });
    }
    let wins_bytes = deeds.iter().map(|deed| deed.wins_bytes).sum();
    Ok(RunPlan {
        run_id: run.id.clone(),
        path: run.path.clone(),
        bytes,
        wins_bytes,
        left_alone: deeds.is_empty().then(|| {
            if old {
                "nothing in it is left to compress".to_owned()
            } else {
                "it is one of those kept whole".to_owned()
            }
        }),
        over_cap_bytes: over(&deeds),
        deeds,
    })
}

/// A file that was never finished.
fn left_behind(file: &Found) -> Option<Deed> {
    (is_temporary(&file.path) && file.age_s > LEFT_BEHIND_S).then(|| Deed {
        action: Action::Drop,
        path: file.path.clone(),
        bytes: file.bytes,
        wins_bytes: file.own_bytes,
        why: "left half written by something that was killed".to_owned(),
        made_from: None,
    })
}

/// Compressing a file, where that is worth something.
fn compress(root: &Path, file: &Found, why: &str) -> Option<Deed> {
    if file.bytes < SMALL || !is_trace(&file.path) || is_temporary(&file.path) {
        return None;
    }
    let share = gzip::estimate(&root.join(&file.path), file.bytes).ok()?;
    (share <= NOT_WORTH).then(|| Deed {
        action: Action::Compress,
        path: file.path.clone(),
        bytes: file.bytes,
        wins_bytes: (file.own_bytes as f64 * (1.0 - share)) as u64,
        why: why.to_owned(),
        made_from: None,
    })
}

/// Endings of what the tools recorded.
const TRACES: [&str; 6] = [".sqlite", ".rgcap", ".nsys-rep", ".ncu-rep", ".csv", ".log"];

/// Whether a file is what a tool recorded, and no report for people.
fn is_trace(path: &Path) -> bool {
    let name = path.to_string_lossy();
    TRACES.iter().any(|ending| name.ends_with(ending)) || name == "torch/trace.json"
}

/// Whether a file is a compressed trace.
pub(in super::super) fn is_packed_trace(path: &Path) -> bool {
    let name = path.to_string_lossy();
    // torch writes its trace compressed to begin with.
    name.strip_suffix(".gz")
        .is_some_and(|plain| plain != "torch/trace.json" && is_trace(Path::new(plain)))
}

/// What can be made again: the file, from what, and how; what is missed least first.
fn again(found: &[Found]) -> Vec<(&Found, PathBuf, &'static str)> {
    let there = |plain: &str| {
        let is = |file: &&Found| {
            let name = file.name();
            file.bytes > 0 && (name == plain || name.strip_suffix(".gz") == Some(plain))
        };
        found.iter().find(is).map(|file| file.path.clone())
    };
    let nsys = there("nsys/run.nsys-rep");
    let ncu = there("ncu/plan.ncu-rep");
    let mut list: Vec<(u8, &Found, PathBuf, &'static str)> = Vec::new();
    for file in found {
        let name = file.name();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let from_nsys = nsys.clone().filter(|from| *from != file.path);
        let from_ncu = ncu.clone().filter(|from| *from != file.path);
        let entry = if plain.starts_with("nsys/") && plain.ends_with(".qdstrm") {
            from_nsys.map(|from| (0, from, "the report of nsys was made from it"))
        } else if plain.starts_with("nsys/summary_") && plain.ends_with(".csv") {
            from_nsys.map(|from| (1, from, "`nsys stats` makes it again"))
        } else if plain.starts_with("ncu/") && plain.ends_with(".ncu-rep") {
            from_ncu.map(|from| (2, from, "it is a part of the report of the whole plan"))
        } else if plain.starts_with("ncu/") && plain.ends_with(".csv") {
            from_ncu.map(|from| (3, from, "`ncu --import` makes it again"))
        } else if plain == "nsys/run.sqlite" {
            from_nsys.map(|from| (4, from, "`nsys export` makes it again"))
        } else {
            None
        };
        if let Some((rank, from, how)) = entry
            && file.own_bytes > 0
        {
            list.push((rank, file, from, how));
        }
    }
    list.sort_by_key(|(rank, file, ..)| (*rank, std::cmp::Reverse(file.own_bytes)));
    list.into_iter()
        .map(|(_, file, from, how)| (file, from, how))
        .collect()
}
