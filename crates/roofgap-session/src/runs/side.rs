//! A run or a capture as one side of a comparison.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use roofgap_analyze::compare::{GateVerdict, SideFacts};
use roofgap_analyze::{Analysis, Options};

use super::error::RunsError;
use super::place::{RunPlace, resolve};
use crate::exit::Exit;
use crate::record::SessionRecord;
use crate::session::bundle::account_at;
use crate::session::layout::Layout;

/// One side of a comparison, read.
#[derive(Debug, Clone)]
pub struct LoadedSide {
    /// Its numbers.
    pub analysis: Analysis,
    /// What else is known of it.
    pub facts: SideFacts,
}

/// How a comparison ends.
pub fn gate_exit(verdict: GateVerdict) -> Exit {
    match verdict {
        GateVerdict::Held => Exit::Done,
        GateVerdict::Broken => Exit::GateBroken,
        GateVerdict::NotMeasured => Exit::Partial,
    }
}

/// Reads what a user named: a run (id, prefix, path, `latest`), a folder or file with an analysis, or a capture, which is
/// analysed with `options`.
pub fn load_side(base: &Path, wanted: &str, options: &Options) -> Result<LoadedSide, RunsError> {
    let path = PathBuf::from(wanted);
    if path.is_dir() && !path.join("session.json").is_file() && path.join("metrics.json").is_file() {
        return analysed(&path.join("metrics.json"), wanted);
    }
    if path.is_file() {
        return file(&path, wanted, options);
    }
    run(&resolve(base, wanted)?)
}

/// A run by its analysis and its own record.
fn run(place: &RunPlace) -> Result<LoadedSide, RunsError> {
    let metrics = place.path.join("metrics.json");
    if !metrics.is_file() {
        return Err(RunsError::NoMetrics {
            path: place.path.clone(),
        });
    }
    let mut side = analysed(&metrics, &place.id)?;
    if let Ok(record) = SessionRecord::read(&place.path) {
        side.facts.mode = Some(record.mode);
        side.facts.workload = Some(record.workload);
    }
    side.facts.unwatched = unwatched(Layout::of(&place.path).baseline_account());
    Ok(side)
}

/// Wall times of each stage of each repeat of an unwatched run.
fn unwatched(path: PathBuf) -> BTreeMap<String, Vec<i64>> {
    let mut times: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    if let Some(account) = account_at(path) {
        for stage in account
            .repeats
            .iter()
            .filter(|repeat| !repeat.warmup)
            .flat_map(|repeat| &repeat.stages)
        {
            times.entry(stage.name.clone()).or_default().push(stage.wall_ns);
        }
    }
    times
}

/// An analysis as it was written.
fn analysed(path: &Path, title: &str) -> Result<LoadedSide, RunsError> {
    let bytes = std::fs::read(path).map_err(RunsError::io("read", path))?;
    let malformed = |why: String| RunsError::Malformed {
        path: path.to_owned(),
        why,
    };
    let analysis: Analysis = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
    if analysis.schema != roofgap_analyze::SCHEMA {
        let why = format!(
            "schema {:?} where {:?} was expected",
            analysis.schema,
            roofgap_analyze::SCHEMA
        );
        return Err(malformed(why));
    }
    Ok(LoadedSide {
        analysis,
        facts: SideFacts {
            title: title.to_owned(),
            ..SideFacts::default()
        },
    })
}

/// A file: an analysis, or a capture to be analysed.
fn file(path: &Path, title: &str, options: &Options) -> Result<LoadedSide, RunsError> {
    let start = first_bytes(path);
    if start.contains(roofgap_analyze::SCHEMA) {
        return analysed(path, title);
    }
    let input = roofgap_trace::read(&[path.to_owned()])?;
    let mut options = options.clone();
    options.counters.extend(input.counters);
    options.account = input.account.or(options.account);
    Ok(LoadedSide {
        analysis: roofgap_analyze::analyze(&input.trace, &options).analysis,
        facts: SideFacts {
            title: title.to_owned(),
            ..SideFacts::default()
        },
    })
}

/// The beginning of a file, where an analysis names its schema.
fn first_bytes(path: &Path) -> String {
    use std::io::Read;
    let mut start = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        // What cannot be read here is reported by the reader.
        let _ = file.take(256).read_to_end(&mut start);
    }
    String::from_utf8_lossy(&start).into_owned()
}
