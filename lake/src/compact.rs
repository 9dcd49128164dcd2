//! Merges the small files of each partition.
//!
//! The new file is written first, with the keys of its runs in its footer; only then the old ones are removed. At every moment in
//! between, and after a kill, the footer tells which of the old files no longer count.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use arrow::array::{RecordBatch, new_null_array};
use arrow::compute::cast;
use arrow::error::ArrowError;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use sha2::{Digest, Sha256};

use crate::error::LakeError;
use crate::layout::merged_file;
use crate::listing::{Folder, Listing};
use crate::store::Store;
use crate::tables::record::{Record as _, Table};
use crate::tables::rows::{ErrorRow, EventRow, RunRow};
use crate::tables::{TABLES, batch};

/// The result of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compacted {
    /// Number of merged files that were written.
    pub written: usize,
    /// Number of files that they replace.
    pub replaced: usize,
    /// Rows in the merged files.
    pub rows: usize,
}

/// Merges the files of every table and partition with more than one. Single events are left alone: their files are large already.
pub fn compact(store: &Store) -> Result<Compacted, LakeError> {
    // The list begins with `runs`: a run that is added meanwhile is not in it and stays as it is.
    let listing = Listing::read(store, false)?;
    let mut done = Compacted::default();
    let children = TABLES
        .iter()
        .filter(|table| ![RunRow::TABLE.name, EventRow::TABLE.name].contains(&table.name));
    for table in children.chain([&RunRow::TABLE]) {
        for (partition, folder) in listing.folders(table) {
            let runs = listing.runs(partition);
            compact_folder(store, table, partition, folder, &runs, &mut done)?;
        }
    }
    Ok(done)
}

fn compact_folder(
    store: &Store,
    table: &Table,
    partition: &str,
    folder: &Folder,
    runs: &HashSet<&str>,
    done: &mut Compacted,
) -> Result<(), LakeError> {
    let is_errors = table.name == ErrorRow::TABLE.name;
    let counts = |key: &str| is_errors || runs.contains(key);
    let single: Vec<(&String, &String)> = folder.single.iter().filter(|(key, _)| counts(key)).collect();
    let fresh = single.iter().filter(|(key, _)| !folder.merged_has(key));
    let current: Vec<&str> = folder.current().map(|merged| merged.path.as_str()).collect();
    let mut inputs: Vec<&str> = current.clone();
    inputs.extend(fresh.map(|(_, path)| path.as_str()));
    let files = single.len() + folder.merged.len();
    if files < 2 {
        return Ok(());
    }
    // All runs of the partition, also those without rows in this table: a later merged file then always has all runs of an earlier one.
    let mut keys: BTreeSet<&str> = folder
        .merged
        .iter()
        .flat_map(|merged| &merged.keys)
        .map(String::as_str)
        .collect();
    keys.extend(single.iter().map(|(key, _)| key.as_str()));
    if !is_errors {
        keys.extend(runs);
    }
    let keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
    let path = merged_file(table, partition, &hash(&keys));
    if inputs != [path.as_str()] {
        let mut batches = Vec::new();
        for input in &inputs {
            batches.extend(read(store, table, input)?);
        }
        let merged = batch::merge(table, &batches).map_err(|source| LakeError::Rows {
            table: table.name,
            source,
        })?;
        let bytes = batch::parquet(table, std::slice::from_ref(&merged), Some(&keys));
        let bytes = bytes.map_err(|source| LakeError::Parquet {
            path: path.clone(),
            source,
        })?;
        store.put(&path, bytes)?;
        done.written += 1;
        done.rows += merged.num_rows();
    }
    let old = folder.merged.iter().map(|merged| merged.path.as_str());
    for old in old.chain(single.iter().map(|(_, path)| path.as_str())) {
        if old != path {
            store.delete(old)?;
            done.replaced += 1;
        }
    }
    Ok(())
}

/// Reads the rows of a file in the columns of the table as it is now.
pub(crate) fn read(store: &Store, table: &Table, path: &str) -> Result<Vec<RecordBatch>, LakeError> {
    let bytes = store.read(path)?;
    let rows = || -> Result<Vec<RecordBatch>, ParquetError> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?.build()?;
        let batches = reader.collect::<Result<Vec<_>, ArrowError>>()?;
        batches.iter().map(|batch| Ok(align(table, batch)?)).collect()
    };
    rows().map_err(|source| LakeError::Parquet {
        path: store.address(path),
        source,
    })
}

/// Adds columns that an older version did not write, as nulls. A column that this version does not know is an error, not dropped.
fn align(table: &Table, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch::schema(table);
    let unknown = batch
        .schema_ref()
        .fields()
        .iter()
        .find(|field| schema.field_with_name(field.name()).is_err());
    if let Some(field) = unknown {
        let why = format!(
            "the column {} is not known to this version of roofgap-lake",
            field.name()
        );
        return Err(ArrowError::SchemaError(why));
    }
    let columns = schema
        .fields()
        .iter()
        .map(|field| match batch.column_by_name(field.name()) {
            Some(column) => cast(column, field.data_type()),
            None => Ok(new_null_array(field.data_type(), batch.num_rows())),
        });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(Arc::clone(&schema), columns)
}

/// Identifies a set of runs.
pub(crate) fn hash(keys: &[String]) -> String {
    let digest = Sha256::digest(keys.join(","));
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
