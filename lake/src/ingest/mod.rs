//! Adds runs and captures to a lake, each atomically and at most once.
//!
//! - `key`: the key of an input;
//! - `rows`: the rows of a run.

mod key;
mod rows;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use roofgap_collect::child::Cancel;
use roofgap_collect::tool::Search;
use roofgap_runs::open::{Exporter, Opened, Overrides, is_run, open_inputs};
use roofgap_runs::run_dir::environment::Environment;
use roofgap_runs::run_dir::{Layout, SessionRecord};
use roofgap_trace::{Sniffed, SourceFormat};

use crate::LakeError;
use crate::layout::{self, Partition, Place, key_mark, key_place, partition_value, run_file};
use crate::store::Store;
use crate::tables::rows::{ErrorRow, RunRow};
use crate::tables::{Micros, Record as _, TABLES, batch};
use key::{key, key_of_path};
use rows::{Given, Rows, rows};

/// Inputs to add, and what the user states about them.
#[derive(Debug, Clone, Default, Args)]
pub struct AddProps {
    /// Run directories, captures, and folders to search for both
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Project
    #[arg(long, default_value = "default")]
    pub project: String,
    /// Host of the runs; by default that of the capture
    #[arg(long)]
    pub host: Option<String>,
    /// Date of the runs, YYYY-MM-DD; by default the start of the run, else the modification time of the input
    #[arg(long)]
    pub date: Option<String>,
    /// Label of the runs, KEY=VALUE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,
    /// Also add every single kernel, copy and memset
    #[arg(long)]
    pub events: bool,
    /// Read each folder as one input: the captures in it are the ranks of one job
    #[arg(long)]
    pub join: bool,
    /// Inputs to load at the same time
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
    /// nsys to export reports with
    #[arg(long)]
    pub nsys: Option<PathBuf>,
}

/// Parses labels, as `KEY=VALUE`.
fn labels(texts: &[String]) -> Result<BTreeMap<String, String>, LakeError> {
    let label = |text: &String| {
        let parts = text.split_once('=').filter(|(key, _)| !key.is_empty() && !text.contains(','));
        let wrong = || LakeError::Usage(format!("--label {text:?}: write KEY=VALUE, without a comma"));
        let (key, value) = parts.ok_or_else(wrong)?;
        Ok((key.to_owned(), value.to_owned()))
    };
    texts.iter().map(label).collect()
}

/// The result of one input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The input.
    pub source: PathBuf,
    /// Key.
    pub key: String,
    /// Outcome.
    pub outcome: Outcome,
}

/// The outcome of one input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Its rows were written.
    Added,
    /// Its key is in the lake.
    Present,
    /// It cannot be read; the error is in the table `errors`.
    Unreadable(String),
}

/// Adds inputs to a lake. `each` is called after each of them, in the order in which they end.
pub fn add(store: &Store, props: &AddProps, each: &(dyn Fn(&Added) + Sync)) -> Result<Vec<Added>, LakeError> {
    let labels = labels(&props.label)?;
    partition_value("--project", &props.project)?;
    if let Some(host) = &props.host {
        partition_value("--host", host)?;
    }
    if let Some(date) = &props.date {
        layout::date("--date", date)?;
    }
    let inputs = inputs(&props.paths, props.join);
    if inputs.is_empty() {
        let paths: Vec<String> = props.paths.iter().map(|path| path.display().to_string()).collect();
        return Err(LakeError::Usage(format!("no run directory and no timeline in {}", paths.join(", "))));
    }
    let turns = Turns::default();
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<Added, LakeError>)>> = Mutex::new(Vec::new());
    let work = || {
        while let Some((at, input)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            inputs.get(at).map(|input| (at, input))
        } {
            let added = add_one(store, input, props, &labels, &turns);
            if let Ok(added) = &added {
                each(added);
            } else {
                // The lake itself fails: no further input can be added.
                next.store(inputs.len(), Ordering::Relaxed);
            }
            if let Ok(mut done) = done.lock() {
                done.push((at, added));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..props.jobs.clamp(1, inputs.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, added)| added).collect()
}

/// Lets inputs with one key be added one after another.
#[derive(Default)]
struct Turns(Mutex<HashMap<String, Arc<Mutex<()>>>>);

impl Turns {
    fn of(&self, key: &str) -> Arc<Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(key.to_owned()).or_default())
    }
}

fn add_one(
    store: &Store,
    input: &Path,
    props: &AddProps,
    labels: &BTreeMap<String, String>,
    turns: &Turns,
) -> Result<Added, LakeError> {
    let added = |key: &str, outcome| Added { source: input.to_owned(), key: key.to_owned(), outcome };
    let unreadable = |key: &str, why: String| {
        record_error(store, input, props, key, &why)?;
        Ok(added(key, Outcome::Unreadable(why)))
    };
    let key = match key(input, &props.project, labels) {
        Ok(key) => key,
        Err(error) => {
            let why = format!("cannot read {}: {error}", input.display());
            return unreadable(&key_of_path(input, &props.project), why);
        }
    };
    let turn = turns.of(&key);
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    if store.exists(&key_mark(&key))? {
        return Ok(added(&key, Outcome::Present));
    }
    let exporter = Exporter::new(Search::from_env(props.nsys.clone()), Cancel::new());
    let opened = match open_inputs(&[input.to_owned()], &Overrides::default(), &exporter) {
        Ok(opened) => opened,
        Err(error) => return unreadable(&key, error.to_string()),
    };
    let facts = Facts::of(input);
    let (partition, date_from) = partition(input, &facts, Some(&opened), props);
    let place = place(store, &key, Place { partition, date_from: date_from.to_owned() })?;
    let rows = rows(
        &opened,
        &facts,
        &Given {
            key: key.as_str().into(),
            source: input.display().to_string(),
            date_from: &place.date_from,
            labels,
            events: props.events,
        },
    );
    write(store, &place.partition, &key, rows)?;
    store.put(&key_mark(&key), Vec::new())?;
    Ok(added(&key, Outcome::Added))
}

/// Returns the place of a run: that of the first writer. A copy of the input may have another date, and two partitions would count it twice.
fn place(store: &Store, key: &str, own: Place) -> Result<Place, LakeError> {
    let path = key_place(key);
    if store.put_new(&path, own.text())? {
        return Ok(own);
    }
    Ok(Place::parse(&store.read(&path)?).unwrap_or(own))
}

/// Writes the rows of a run, those of `runs` last: the run is in the lake from then on.
fn write(store: &Store, partition: &Partition, key: &str, mut rows: Rows) -> Result<(), LakeError> {
    let runs = RunRow::TABLE;
    let others = TABLES.iter().filter(|table| table.name != runs.name);
    for table in others.chain([&runs]) {
        let Some(cells) = rows.0.remove(table.name) else {
            continue;
        };
        let path = run_file(table, partition, key);
        store.put(&path, batch::file(table, cells, None, &path)?)?;
    }
    Ok(())
}

/// Writes a row about an input that cannot be read.
fn record_error(
    store: &Store,
    input: &Path,
    props: &AddProps,
    key: &str,
    why: &str,
) -> Result<(), LakeError> {
    let (partition, _) = partition(input, &Facts::of(input), None, props);
    let mut rows = Rows::default();
    rows.push(ErrorRow {
        run_key: key.into(),
        source: input.display().to_string().into(),
        error: why.into(),
        roofgap_version: env!("CARGO_PKG_VERSION").into(),
    });
    write(store, &partition, key, rows)
}

/// Lists the inputs below the paths, without duplicates, in order. A path that is no folder is an input as it is. In folders, run
/// directories and timelines are inputs. With `join`, a folder that was named is one input, whose captures are ranks of one job.
fn inputs(paths: &[PathBuf], join: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() && !is_run(path) && !join {
            search(path, &mut found);
        } else {
            found.push(path.clone());
        }
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|path| seen.insert(path.clone()));
    found
}

fn search(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        // Reading it as an input reports the error.
        found.push(folder.to_owned());
        return;
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in &paths {
        // A link to a folder may lead back up.
        let is_folder = path.is_dir() && !path.is_symlink();
        if path.is_dir() && is_run(path) {
            found.push(path.clone());
        } else if is_folder {
            search(path, found);
        } else if is_input(path) {
            found.push(path.clone());
        }
    }
}

/// Tells whether a file is a timeline, or should be one by its name. The export of a report may be beside it.
fn is_input(path: &Path) -> bool {
    let hidden = path.file_name().unwrap_or_default().to_string_lossy().starts_with('.');
    let is_export = |export: PathBuf| export != path && export.is_file();
    let is_exported = || ["sqlite", "sqlite.gz"].iter().any(|end| is_export(path.with_extension(end)));
    match Sniffed::in_folder(path).filter(|_| !hidden) {
        Some(Ok(file)) if file.format == SourceFormat::NsysReport => !is_exported(),
        Some(Ok(file)) => file.format.is_timeline(),
        // One that cannot be read is an error, not another kind of file.
        Some(Err(_)) => true,
        None => false,
    }
}

/// Facts about a run beside its analysis.
#[derive(Debug, Default)]
struct Facts {
    kind: &'static str,
    run_id: Option<String>,
    started_at: Option<Micros>,
    commit: Option<String>,
    dirty: Option<bool>,
    driver: Option<String>,
    /// GPUs of the machine.
    gpus: Vec<String>,
    cuda: Option<String>,
    workload: Option<String>,
    exit_status: Option<u8>,
}

impl Facts {
    /// Reads the facts of a run directory; a capture has none.
    fn of(input: &Path) -> Self {
        if !is_run(input) {
            return Self { kind: "capture", ..Self::default() };
        }
        let environment = Environment::read(&Layout::of(input));
        let record = SessionRecord::read(input).ok();
        let record = record.as_ref();
        Self {
            kind: "run",
            run_id: record.map(|record| record.run_id.clone()),
            started_at: record.and_then(|record| moment(&record.started)),
            driver: environment.driver(),
            gpus: environment.gpu_names(),
            cuda: environment.package("nvidia-cuda-runtime"),
            workload: record.map(|record| record.workload.clone()),
            exit_status: record.and_then(|record| record.exit_status),
            dirty: environment.workload_revision.as_ref().map(|revision| revision.modified),
            commit: environment.workload_revision.map(|revision| revision.commit),
        }
    }
}

/// Returns the partition of an input and the origin of its date. `opened` is `None` for one that cannot be read.
fn partition(
    input: &Path,
    facts: &Facts,
    opened: Option<&Opened>,
    stated: &AddProps,
) -> (Partition, &'static str) {
    let started = facts.started_at.and_then(|at| Timestamp::from_microsecond(at.0).ok());
    let (date, from) = match (&stated.date, started) {
        (Some(date), _) => (date.clone(), "flag"),
        (None, Some(started)) => (day(started), "run"),
        (None, None) => (day(modified(input)), "file"),
    };
    let host = stated.host.clone().or_else(|| host(opened?));
    let partition = Partition {
        date,
        project: stated.project.clone(),
        host: host.unwrap_or_else(|| "unknown".to_owned()),
    };
    (partition, from)
}

/// Returns the host of a capture, as part of a path; `None` where it tells none or several.
fn host(opened: &Opened) -> Option<String> {
    let ranks = &opened.analysis.ranks;
    let mut hosts: Vec<&str> = ranks.iter().filter_map(|rank| rank.host.as_deref()).collect();
    hosts.extend(opened.trace.host.as_deref());
    hosts.sort_unstable();
    hosts.dedup();
    let [host] = hosts.as_slice() else {
        return None;
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let clean: String = host.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    partition_value("host", &clean).ok()
}

fn moment(text: &str) -> Option<Micros> {
    let at: Timestamp = text.parse().ok()?;
    Some(Micros(at.as_microsecond()))
}

fn modified(path: &Path) -> Timestamp {
    let modified = std::fs::metadata(path).and_then(|facts| facts.modified());
    let at = modified.unwrap_or(SystemTime::UNIX_EPOCH);
    Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).date().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_with_its_export_is_one_input() {
        let folder = tempfile::tempdir().unwrap();
        let report = b"NVIDIA Tegra Profiler Report 2025.1";
        let files: [(&str, &[u8]); 5] = [
            ("a.nsys-rep", report),
            ("a.sqlite", b""),
            ("b.nsys-rep", report),
            ("b.sqlite.gz", b""),
            ("c.nsys-rep", report),
        ];
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let found = inputs(&[folder.path().to_owned()], false);
        let names: Vec<_> = found.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names, ["a.sqlite", "b.sqlite.gz", "c.nsys-rep"]);
    }
}
