//! Checks the files of a lake: schema, keys, rows, duplicates and leftovers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use arrow::array::{Array as _, RecordBatch};
use arrow::util::display::array_value_to_string;
use parquet::file::metadata::ParquetMetaData;

use crate::LakeError;
use crate::compact;
use crate::layout::key_mark;
use crate::listing::{Folder, Listing};
use crate::store::Store;
use crate::tables::batch::SCHEMA_ENTRY;
use crate::tables::rows::{ErrorRow, RunRow};
use crate::tables::{Record as _, SCHEMA, TABLES, Table};

/// A problem of a lake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path below the lake.
    pub path: String,
    /// Kind.
    pub kind: ProblemKind,
    /// Details.
    pub why: String,
}

/// The kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// The file is not readable, or not what its name and footer say. Answers are wrong or fail.
    Damaged,
    /// A run is in two partitions or two merged files, so that answers count it twice.
    Duplicate,
    /// The file does not belong to the lake; other engines may read it.
    Foreign,
    /// Rows of a run that is not in `runs`: an `add` runs now, or was killed. Adding the run again completes it.
    Orphan,
    /// A merged file has the rows too: a `compact` runs now, or was killed. The next `compact` removes the file.
    Leftover,
    /// A temporary file: a command runs now, or was killed. Without one running it can be removed.
    Temporary,
}

impl ProblemKind {
    /// Tells whether answers are affected.
    pub fn is_damage(self) -> bool {
        matches!(self, Self::Damaged | Self::Duplicate | Self::Foreign)
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Damaged => "damaged",
            Self::Duplicate => "duplicate",
            Self::Foreign => "foreign",
            Self::Orphan => "orphan",
            Self::Leftover => "leftover",
            Self::Temporary => "temporary",
        })
    }
}

/// The result of a check.
#[derive(Debug, Default)]
pub struct Checked {
    /// Number of files.
    pub files: usize,
    /// Rows of each table that count.
    pub rows: BTreeMap<&'static str, u64>,
    /// Problems, by path.
    pub problems: Vec<Problem>,
}

impl Checked {
    fn found(&mut self, path: &str, kind: ProblemKind, why: impl Into<String>) {
        self.problems.push(Problem { path: path.to_owned(), kind, why: why.into() });
    }

    /// Tells whether answers are affected.
    pub fn is_damaged(&self) -> bool {
        self.problems.iter().any(|problem| problem.kind.is_damage())
    }
}

/// Checks a lake. `quick` reads footers only, not the rows.
pub fn check(store: &Store, quick: bool) -> Result<Checked, LakeError> {
    let mut checked = Checked::default();
    let listing = Listing::read(store, true)?;
    for table in &TABLES {
        for (partition, folder) in listing.folders(table) {
            let runs = listing.runs(partition);
            check_folder(store, table, folder, &runs, quick, &mut checked)?;
        }
    }
    duplicates(&listing, &mut checked);
    for (_, folder) in listing.folders(&RunRow::TABLE) {
        for key in folder.single.keys() {
            if !store.exists(&key_mark(key))? {
                let why =
                    "no mark in _keys: an `add` runs now, or was killed; adding the run again writes it";
                checked.found(&key_mark(key), ProblemKind::Orphan, why);
            }
        }
    }
    checked.problems.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
    Ok(checked)
}

fn check_folder(
    store: &Store,
    table: &Table,
    folder: &Folder,
    runs: &HashSet<&str>,
    quick: bool,
    checked: &mut Checked,
) -> Result<(), LakeError> {
    for path in &folder.foreign {
        checked.found(path, ProblemKind::Foreign, "not a file of a lake");
    }
    for path in &folder.temporary {
        checked.found(path, ProblemKind::Temporary, "a file that was not finished");
    }
    for (key, path) in &folder.single {
        let rows = check_file(store, table, path, &HashSet::from([key.clone()]), quick, checked)?;
        if folder.merged_has(key) {
            checked.found(path, ProblemKind::Leftover, "a merged file has its rows");
        } else if table.name != ErrorRow::TABLE.name && !runs.contains(key.as_str()) {
            checked.found(path, ProblemKind::Orphan, "the run is not in the table runs");
        } else {
            *checked.rows.entry(table.name).or_default() += rows;
        }
    }
    overlaps(folder, checked);
    let current: HashSet<&str> = folder.current().map(|merged| merged.path.as_str()).collect();
    for merged in &folder.merged {
        let rows = check_file(store, table, &merged.path, &merged.keys, quick, checked)?;
        if current.contains(merged.path.as_str()) {
            *checked.rows.entry(table.name).or_default() += rows;
        } else {
            checked.found(&merged.path, ProblemKind::Leftover, "another merged file has its rows");
        }
    }
    Ok(())
}

/// Checks one file and returns its rows.
fn check_file(
    store: &Store,
    table: &Table,
    path: &str,
    keys: &HashSet<String>,
    quick: bool,
    checked: &mut Checked,
) -> Result<u64, LakeError> {
    let footer = match store.footer(path) {
        // `compact` replaced it meanwhile.
        Err(error) if error.is_gone() => return Ok(0),
        footer => footer,
    };
    checked.files += 1;
    let footer = match footer {
        Ok(footer) => footer,
        Err(LakeError::Parquet { source, .. }) => {
            checked.found(path, ProblemKind::Damaged, source.to_string());
            return Ok(0);
        }
        Err(error) => return Err(error),
    };
    let rows = u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0);
    let mut why = footer_problem(table, &footer);
    if rows == 0 {
        why = why.or_else(|| Some("the file has no rows".to_owned()));
    }
    if table.name == RunRow::TABLE.name && rows != keys.len() as u64 {
        why = why.or_else(|| Some(format!("{rows} rows for {} runs", keys.len())));
    }
    if why.is_none() && !quick {
        why = match compact::read(store, table, path) {
            Ok(batches) => batches.iter().find_map(|batch| foreign_key(batch, keys)),
            Err(error) if error.is_gone() => return Ok(0),
            Err(error) => Some(error.to_string()),
        };
    }
    if let Some(why) = why {
        checked.found(path, ProblemKind::Damaged, why);
    }
    Ok(rows)
}

/// Compares the footer of a file with the table. Columns at the end may be missing: an older version wrote it.
fn footer_problem(table: &Table, footer: &ParquetMetaData) -> Option<String> {
    let facts = footer.file_metadata();
    let entries = facts.key_value_metadata();
    let schema = entries.into_iter().flatten().find(|entry| entry.key == SCHEMA_ENTRY);
    let schema = schema.and_then(|entry| entry.value.as_deref());
    if schema != Some(SCHEMA) {
        return Some(format!("its schema is {}, not {SCHEMA}", schema.unwrap_or("not named")));
    }
    let found: Vec<&str> = facts.schema_descr().columns().iter().map(|column| column.name()).collect();
    let known: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    match found.iter().zip(&known).find(|(found, known)| found != known) {
        Some((found, known)) => Some(format!("it has the column {found} in place of {known}")),
        None if found.len() > known.len() => Some("it has columns of a newer version".to_owned()),
        None => None,
    }
}

/// Finds a row of another run.
fn foreign_key(batch: &RecordBatch, keys: &HashSet<String>) -> Option<String> {
    let column = batch.column_by_name("run_key")?;
    (0..column.len()).find_map(|row| {
        let key = array_value_to_string(column, row).unwrap_or_default();
        (!keys.contains(&key)).then(|| format!("it has a row of the run {key}"))
    })
}

/// Finds runs in two merged files of a folder.
fn overlaps(folder: &Folder, checked: &mut Checked) {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for merged in folder.current() {
        let mut others: BTreeMap<&str, usize> = BTreeMap::new();
        for key in &merged.keys {
            if let Some(other) = seen.insert(key, &merged.path) {
                *others.entry(other).or_default() += 1;
            }
        }
        for (other, runs) in others {
            let why = format!("{runs} of its runs are in {other} too; `compact` keeps them once");
            checked.found(&merged.path, ProblemKind::Duplicate, why);
        }
    }
}

/// Finds runs in two partitions.
fn duplicates(listing: &Listing, checked: &mut Checked) {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for (partition, folder) in listing.folders(&RunRow::TABLE) {
        let merged = folder.merged.iter().flat_map(|merged| &merged.keys);
        let keys: HashSet<&str> = folder.single.keys().chain(merged).map(String::as_str).collect();
        let mut keys: Vec<&str> = keys.into_iter().collect();
        keys.sort_unstable();
        for key in keys {
            if let Some(other) = seen.insert(key, partition) {
                let path = format!("{}/{partition}", RunRow::TABLE.name);
                checked.found(&path, ProblemKind::Duplicate, format!("the run {key} is in {other} too"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_removed_meanwhile_is_no_problem() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path().to_str().unwrap()).unwrap();
        let mut checked = Checked::default();
        let path = "runs/date=2026-03-01/project=p/host=h/merged-1.parquet";
        let rows = check_file(&store, &RunRow::TABLE, path, &HashSet::new(), false, &mut checked).unwrap();
        assert_eq!((rows, checked.files, checked.problems), (0, 0, Vec::new()));
    }
}
