//! Loads one side of a comparison.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use roofgap_analyze::Analysis;
use roofgap_analyze::compare::SideFacts;
use roofgap_base::file::read_document;

use super::accounts::account_at;
use super::{Exporter, LoadError, Loaded, Overrides, load, load_captures};
use crate::run_dir::{Layout, LocateError, RunRef, SessionRecord, locate};

/// One side of a comparison.
#[derive(Debug, Clone)]
pub struct LoadedSide {
    /// Analysis.
    pub analysis: Analysis,
    /// Title, mode, workload and baseline times.
    pub facts: SideFacts,
}

impl LoadedSide {
    fn new(analysis: Analysis, title: &str) -> Self {
        LoadedSide { analysis, facts: SideFacts { title: title.to_owned(), ..SideFacts::default() } }
    }
}

/// Loads a run (id, prefix, path, `latest`), a folder or file with an analysis, or a capture, which is analysed.
pub fn load_side(
    base: &Path,
    wanted: &str,
    overrides: &Overrides,
    exporter: &Exporter,
) -> Result<LoadedSide, LoadError> {
    let path = PathBuf::from(wanted);
    let metrics = path.join("metrics.json");
    if path.is_dir() && !locate::is_run(&path) && metrics.is_file() {
        return Ok(LoadedSide::new(read_analysis(&metrics)?, wanted));
    }
    if path.is_file() {
        let analysis = if names_schema(&path) {
            read_analysis(&path)?
        } else {
            load_captures(&[path], overrides, exporter)?.analysis
        };
        return Ok(LoadedSide::new(analysis, wanted));
    }
    let run = locate::resolve(base, wanted).map_err(|source| match source {
        LocateError::Unknown { .. } | LocateError::Empty { .. } if wanted != "latest" => {
            LoadError::Neither { wanted: wanted.to_owned(), source }
        }
        source => source.into(),
    })?;
    load_run(&run)
}

/// Loads the captures of a side with their timeline, and finds the page of a run; `None` for one that has only an analysis.
pub fn load_timeline(
    base: &Path,
    wanted: &str,
    overrides: &Overrides,
    exporter: &Exporter,
) -> Option<(Loaded, Option<PathBuf>)> {
    let path = PathBuf::from(wanted);
    let path = if path.is_file() { path } else { locate::resolve(base, wanted).ok()?.path };
    let page = path.join("report.html");
    Some((load(&[path], overrides, exporter).ok()?, page.is_file().then_some(page)))
}

/// Loads the analysis of a run as it was written, with the facts of its record.
fn load_run(run: &RunRef) -> Result<LoadedSide, LoadError> {
    let layout = Layout::of(&run.path);
    if !layout.metrics().is_file() {
        return Err(LoadError::NoMetrics { path: run.path.clone() });
    }
    let mut side = LoadedSide::new(read_analysis(&layout.metrics())?, &run.id);
    if let Ok(record) = SessionRecord::read(&run.path) {
        side.facts.mode = Some(record.mode);
        side.facts.workload = Some(record.workload);
    }
    side.facts.unwatched = baseline_times(&layout);
    Ok(side)
}

/// Collects the wall time of each stage in each repeat of the baseline run, ns.
fn baseline_times(layout: &Layout) -> BTreeMap<String, Vec<i64>> {
    let mut times: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    if let Some(account) = account_at(layout.baseline_account()) {
        let measured = account.repeats.iter().filter(|repeat| !repeat.warmup);
        for stage in measured.flat_map(|repeat| &repeat.stages) {
            times.entry(stage.name.clone()).or_default().push(stage.wall_ns);
        }
    }
    times
}

/// Reads an analysis as it was written.
fn read_analysis(path: &Path) -> Result<Analysis, LoadError> {
    let bytes =
        read_document(path).map_err(|source| LoadError::Analysis { path: path.to_owned(), source })?;
    let malformed = |why: String| LoadError::Malformed { path: path.to_owned(), why };
    let analysis: Analysis = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
    if analysis.schema != roofgap_analyze::SCHEMA {
        return Err(malformed(format!(
            "schema {:?}, expected {:?}",
            analysis.schema,
            roofgap_analyze::SCHEMA
        )));
    }
    Ok(analysis)
}

/// Returns true where the first bytes of a file name the schema of an analysis. Read errors are left to the reader.
fn names_schema(path: &Path) -> bool {
    let mut start = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.take(256).read_to_end(&mut start);
    }
    String::from_utf8_lossy(&start).contains(roofgap_analyze::SCHEMA)
}
