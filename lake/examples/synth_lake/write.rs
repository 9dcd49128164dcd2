//! Writes the files of a synthetic lake.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::make::{Made, Place, make};
use crate::planted::{Extent, PROJECTS};
use roofgap_lake::LakeError;
use roofgap_lake::compact::hash;
use roofgap_lake::layout::{Partition, key_mark, merged_file, run_file};
use roofgap_lake::store::Store;
use roofgap_lake::tables::rows::{ErrorRow, RunRow};
use roofgap_lake::tables::{Cell, Record};
use roofgap_lake::tables::{TABLES, batch};

/// Rows of a partition by table.
type Tables = BTreeMap<&'static str, Vec<Vec<Cell>>>;

/// Writes a synthetic lake: one merged file for each table and partition, or with `single` one file for each run.
pub fn write(store: &Store, extent: &Extent, single: bool, jobs: usize) -> Result<(), LakeError> {
    let partitions = extent.days * PROJECTS.len() * extent.hosts;
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<LakeError>> = Mutex::new(None);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= partitions {
                return;
            }
            if let Err(error) = write_partition(store, extent, at, partitions, single) {
                next.store(partitions, Ordering::Relaxed);
                if let Ok(mut failed) = failed.lock() {
                    failed.get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.max(1) {
            scope.spawn(work);
        }
        work();
    });
    failed.into_inner().unwrap_or_default().map_or(Ok(()), Err)
}

fn write_partition(
    store: &Store,
    extent: &Extent,
    at: usize,
    partitions: usize,
    single: bool,
) -> Result<(), LakeError> {
    let host = at % extent.hosts;
    let project = at / extent.hosts % PROJECTS.len();
    let day = at / extent.hosts / PROJECTS.len();
    let partition = Partition {
        date: extent.date(day).to_string(),
        project: PROJECTS.get(project).copied().unwrap_or_default().to_owned(),
        host: extent.host(host),
    };
    let first = extent.runs * at / partitions;
    let end = extent.runs * (at + 1) / partitions;
    let place = |run: usize| Place { day, project, host, run, index: run - first };
    let made = (first..end).map(|run| make(extent, place(run)));
    if single {
        for made in made {
            let key = made.run.run_key.to_string();
            let error = made.errors.first().map(|row| row.run_key.to_string());
            let mut tables = Tables::new();
            collect(&mut tables, made);
            put(
                store,
                tables,
                |table| match &error {
                    Some(error) if table == ErrorRow::TABLE.name => (error.clone(), None),
                    _ => (key.clone(), None),
                },
                &partition,
            )?;
            store.put(&key_mark(&key), Vec::new())?;
        }
        return Ok(());
    }
    let mut tables = Tables::new();
    let (mut keys, mut errors) = (Vec::new(), Vec::new());
    for made in made {
        keys.push(made.run.run_key.to_string());
        errors.extend(made.errors.iter().map(|row| row.run_key.to_string()));
        collect(&mut tables, made);
    }
    keys.sort();
    errors.sort();
    put(
        store,
        tables,
        |table| {
            let keys = if table == ErrorRow::TABLE.name { &errors } else { &keys };
            (hash(keys), Some(keys.as_slice()))
        },
        &partition,
    )
}

fn collect(tables: &mut Tables, made: Made) {
    fn add<R: Record>(tables: &mut Tables, rows: impl IntoIterator<Item = R>) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_some() {
            tables.entry(R::TABLE.name).or_default().extend(rows.map(R::cells));
        }
    }
    add(tables, [made.run]);
    add(tables, made.stages);
    add(tables, made.steps);
    add(tables, made.kernels);
    add(tables, made.counters);
    add(tables, made.findings);
    add(tables, made.communication);
    add(tables, made.ranks);
    add(tables, made.requests);
    add(tables, made.errors);
}

/// Writes the tables of a partition, `runs` last. `name` returns the key or the hash of a file, and the keys of a merged one.
fn put<'a>(
    store: &Store,
    mut tables: Tables,
    name: impl Fn(&str) -> (String, Option<&'a [String]>),
    partition: &Partition,
) -> Result<(), LakeError> {
    let runs = RunRow::TABLE;
    let others = TABLES.iter().filter(|table| table.name != runs.name);
    for table in others.chain([&runs]) {
        let Some(rows) = tables.remove(table.name) else {
            continue;
        };
        let (id, keys) = name(table.name);
        let path = match keys {
            Some(_) => {
                let folder = partition.folder(table);
                let place = folder.strip_prefix(table.name).unwrap_or(&folder);
                merged_file(table, place.trim_start_matches('/'), &id)
            }
            None => run_file(table, partition, &id),
        };
        store.put(&path, batch::file(table, rows, keys, &path)?)?;
    }
    Ok(())
}
