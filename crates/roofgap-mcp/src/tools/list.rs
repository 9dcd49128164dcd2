//! `list`: the runs and captures that the other tools can read.

use super::{Page, State};
use roofgap_base::error::Error;
use roofgap_runs::open::is_run;
use roofgap_runs::runs::{self, RunSummary};
use roofgap_trace::Sniffed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Depth to which the folders are searched for captures.
const DEPTH: usize = 4;
/// Files and folders that a search looks at.
const MOST_ENTRIES: usize = 20_000;
/// Devices and stages of a run that an answer names.
const MOST_PARTS: usize = 8;

/// Request for a list.
#[derive(Deserialize, JsonSchema)]
pub struct ListRequest {
    /// Text that the name of a run or capture, or the incident of a run, must contain, such as 2026-11-18T14:03.
    pub filter: Option<String>,
    #[serde(flatten)]
    pub page: Page,
}

/// Runs and captures.
#[derive(Serialize, JsonSchema)]
pub struct ListAnswer {
    /// Runs, newest first.
    pub runs: Vec<RunRow>,
    /// Number of runs that match.
    pub run_count: usize,
    /// Captures by path.
    pub captures: Vec<CaptureRow>,
    /// Number of captures that match.
    pub capture_count: usize,
    /// Folders that were searched.
    pub folders: Vec<String>,
    /// True if the search ended early because the folders have too many files.
    pub search_cut_short: bool,
}

/// A run.
#[derive(Serialize, JsonSchema)]
pub struct RunRow {
    /// Name for the parameter `input`.
    pub input: String,
    /// Summary, as in `roofgap runs list --format json`: status, times, model, devices, stages with the mean time of an instance,
    /// and for `roofgap watch --record` the incident.
    #[serde(flatten)]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub summary: RunSummary,
}

/// A capture.
#[derive(Serialize, JsonSchema)]
pub struct CaptureRow {
    /// Name for the parameter `input`.
    pub input: String,
    /// Format, detected from content.
    pub format: String,
    /// Size, bytes.
    pub bytes: u64,
}

/// Lists the runs and captures of the folders.
pub fn answer(state: &State, request: &ListRequest) -> Result<ListAnswer, Error> {
    let roots = &state.roots;
    let filter = request.filter.as_deref().unwrap_or_default();
    let mut runs = runs::list(roots.runs())?;
    runs.reverse();
    runs.retain(|run| {
        run.run_id.contains(filter) || run.incident.as_ref().is_some_and(|told| told.contains(filter))
    });
    let mut search = Search::default();
    for folder in roots.folders() {
        search.add(folder, DEPTH);
    }
    search.captures.sort_by(|a, b| a.path.cmp(&b.path));
    search.captures.dedup_by(|a, b| a.path == b.path);
    search.captures.retain(|file| file.path.to_string_lossy().contains(filter));
    let capture = |file: &Sniffed| CaptureRow {
        input: roots.name_of(&file.path),
        format: file.format.into(),
        bytes: fs::metadata(&file.path).map_or(0, |facts| facts.len()),
    };
    let row = |run: &RunSummary| {
        let mut summary = run.clone();
        summary.devices.truncate(MOST_PARTS);
        summary.stages.truncate(MOST_PARTS);
        RunRow { input: run.run_id.clone(), summary }
    };
    Ok(ListAnswer {
        run_count: runs.len(),
        runs: request.page.select(&runs).iter().map(row).collect(),
        capture_count: search.captures.len(),
        captures: request.page.select(&search.captures).iter().map(capture).collect(),
        folders: roots.folders().iter().map(|folder| folder.display().to_string()).collect(),
        search_cut_short: search.entries > MOST_ENTRIES,
    })
}

/// Search for captures. Runs, hidden folders and links are left out.
#[derive(Debug, Default)]
struct Search {
    captures: Vec<Sniffed>,
    entries: usize,
}

impl Search {
    fn add(&mut self, folder: &Path, depth: usize) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return;
            }
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !hidden && depth > 0 && !is_run(&path) => {
                    self.add(&path, depth - 1);
                }
                Ok(kind) if kind.is_file() => {
                    self.captures.extend(Sniffed::in_folder(&path).and_then(Result::ok))
                }
                _ => {}
            }
        }
    }
}
