//! Adds runs and captures to a lake, each atomically and at most once.
//!
//! - `find`: inputs in folders;
//! - `key`: the key of an input;
//! - `facts`: origin of a run: date, host, commit, driver;
//! - `rows`: the rows of a run;
//! - `kernels`: kernels by stage, name and launch shape, and single events.

mod facts;
mod find;
mod kernels;
mod key;
mod rows;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use roofgap_collect::child::Cancel;
use roofgap_collect::tool::Search;
use roofgap_runs::open::{Exporter, Overrides, open_inputs};

use crate::error::LakeError;
use crate::layout::{self, Partition, Place, key_mark, key_place, run_file};
use crate::store::Store;
use crate::tables::record::Record as _;
use crate::tables::rows::{ErrorRow, RunRow};
use crate::tables::{TABLES, batch};
use facts::{Facts, partition};
use find::inputs;
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
    layout::partition_value("--project", &props.project)?;
    if let Some(host) = &props.host {
        layout::partition_value("--host", host)?;
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
    let key = match key(input, &props.project, labels) {
        Ok(key) => key,
        Err(error) => {
            let key = key_of_path(input, &props.project);
            let why = format!("cannot read {}: {error}", input.display());
            record_error(store, input, props, &key, &why)?;
            return Ok(added(&key, Outcome::Unreadable(why)));
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
        Err(error) => {
            let why = error.to_string();
            record_error(store, input, props, &key, &why)?;
            return Ok(added(&key, Outcome::Unreadable(why)));
        }
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
