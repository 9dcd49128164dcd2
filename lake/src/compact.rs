//! Merges the small files of each partition, into several files where one would be too large.
//!
//! The new file is written first, with the keys of its runs in its footer; only then the old ones are removed. At every moment in
//! between, and after a kill, the footer tells which of the old files no longer count.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use arrow::array::{AsArray as _, BooleanArray, RecordBatch, new_null_array};
use arrow::compute::{cast, filter_record_batch};
use arrow::error::ArrowError;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use roofgap_base::file::sha256;

use crate::LakeError;
use crate::layout::merged_file;
use crate::listing::{Folder, Listing};
use crate::store::Store;
use crate::tables::rows::{ErrorRow, EventRow, RunRow};
use crate::tables::{Record as _, TABLES, Table, batch};

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

/// Extent of a merged file. It bounds the memory of a merge, and text of a column has to stay below 2 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Runs.
    pub runs: usize,
    /// Rows in memory, bytes.
    pub bytes: usize,
    /// Size of a merged file that is left alone, bytes.
    pub full_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs: 5000, bytes: 256 << 20, full_bytes: 64 << 20 }
    }
}

/// Merges the files of every table and partition with more than one. Single events are left alone: their files are large already.
pub fn compact(store: &Store, limits: Limits) -> Result<Compacted, LakeError> {
    // The list begins with `runs`: a run that is added meanwhile is not in it and stays as it is.
    let listing = Listing::read(store, false)?;
    let mut done = Compacted::default();
    let children =
        TABLES.iter().filter(|table| ![RunRow::TABLE.name, EventRow::TABLE.name].contains(&table.name));
    for table in children.chain([&RunRow::TABLE]) {
        for (partition, folder) in listing.folders(table) {
            let merge = Merge { store, table, partition, limits };
            merge.folder(folder, &listing, &mut done)?;
        }
    }
    Ok(done)
}

/// A file to merge.
struct Input<'a> {
    path: &'a str,
    keys: BTreeSet<&'a str>,
}

/// Files that become one.
#[derive(Default)]
struct Chunk<'a> {
    paths: Vec<&'a str>,
    keys: BTreeSet<&'a str>,
    batches: Vec<RecordBatch>,
    bytes: usize,
    /// True where rows were left out.
    is_changed: bool,
}

/// A merge of the files of a table and partition.
struct Merge<'a> {
    store: &'a Store,
    table: &'a Table,
    partition: &'a str,
    limits: Limits,
}

impl Merge<'_> {
    fn folder(&self, folder: &Folder, listing: &Listing, done: &mut Compacted) -> Result<(), LakeError> {
        let is_errors = self.table.name == ErrorRow::TABLE.name;
        let runs = listing.runs(self.partition);
        let counts = |key: &str| is_errors || runs.contains(key);
        let single: Vec<(&String, &String)> = folder.single.iter().filter(|(key, _)| counts(key)).collect();
        if single.len() + folder.merged.len() < 2 {
            return Ok(());
        }
        // An input that failed again has a newer error, in a file of its own. All other files of one run have the same rows.
        let fresh = single.iter().filter(|(key, _)| is_errors || !folder.merged_has(key));
        let fresh = fresh.map(|(key, path)| Input { path, keys: BTreeSet::from([key.as_str()]) });
        let merged = folder.current().map(|merged| Input {
            path: &merged.path,
            keys: merged.keys.iter().map(String::as_str).collect(),
        });
        let inputs: Vec<Input<'_>> =
            if is_errors { fresh.chain(merged).collect() } else { merged.chain(fresh).collect() };
        let current: HashSet<&str> = inputs.iter().map(|input| input.path).collect();
        let mut taken: HashSet<&str> = HashSet::new();
        let mut chunk = Chunk::default();
        for input in inputs {
            let keys: BTreeSet<&str> =
                input.keys.iter().filter(|key| !taken.contains(*key)).copied().collect();
            let is_whole = keys.len() == input.keys.len();
            let is_full =
                keys.len() >= self.limits.runs || listing.size(input.path) >= self.limits.full_bytes;
            taken.extend(&keys);
            if is_whole && is_full {
                continue;
            }
            let mut batches = read(self.store, self.table, input.path)?;
            if !is_whole {
                batches = self.of_runs(&batches, &keys)?;
            }
            let bytes = batches.iter().map(RecordBatch::get_array_memory_size).sum::<usize>();
            let exceeds =
                chunk.keys.len() + keys.len() > self.limits.runs || chunk.bytes + bytes > self.limits.bytes;
            if exceeds && !chunk.paths.is_empty() {
                self.write(std::mem::take(&mut chunk), done)?;
            }
            chunk.paths.push(input.path);
            chunk.keys.extend(keys);
            chunk.batches.extend(batches);
            chunk.bytes += bytes;
            chunk.is_changed |= !is_whole;
        }
        self.write(chunk, done)?;
        // The rows of the others are in files that count.
        let merged = folder.merged.iter().map(|merged| &merged.path);
        for path in merged.chain(single.into_iter().map(|(_, path)| path)) {
            if !current.contains(path.as_str()) {
                self.store.delete(path)?;
                done.replaced += 1;
            }
        }
        Ok(())
    }

    /// Writes a merged file and removes the files that it replaces. A file that would be copied stays as it is.
    fn write(&self, chunk: Chunk<'_>, done: &mut Compacted) -> Result<(), LakeError> {
        if chunk.paths.len() < 2 && !chunk.is_changed {
            return Ok(());
        }
        let keys: Vec<String> = chunk.keys.into_iter().map(str::to_owned).collect();
        let path = merged_file(self.table, self.partition, &hash(&keys));
        let merged = batch::merge(self.table, &chunk.batches).map_err(|source| self.failed(source))?;
        if merged.num_rows() > 0 {
            let bytes = batch::parquet(self.table, std::slice::from_ref(&merged), Some(&keys));
            let bytes = bytes.map_err(|source| LakeError::Parquet { path: path.clone(), source })?;
            self.store.put(&path, bytes)?;
            done.written += 1;
            done.rows += merged.num_rows();
        }
        for old in chunk.paths.into_iter().filter(|old| *old != path) {
            self.store.delete(old)?;
            done.replaced += 1;
        }
        Ok(())
    }

    /// Keeps the rows of some runs.
    fn of_runs(&self, batches: &[RecordBatch], keys: &BTreeSet<&str>) -> Result<Vec<RecordBatch>, LakeError> {
        let kept = |batch: &RecordBatch| {
            let rows = batch.column_by_name("run_key").and_then(|keys| keys.as_string_opt::<i32>());
            let rows = rows.into_iter().flatten();
            let mask: BooleanArray =
                rows.map(|key| Some(key.is_some_and(|key| keys.contains(key)))).collect();
            filter_record_batch(batch, &mask).map_err(|source| self.failed(source))
        };
        batches.iter().map(kept).collect()
    }

    fn failed(&self, source: ArrowError) -> LakeError {
        LakeError::Rows { table: self.table.name, source }
    }
}

/// Reads the rows of a file in the columns of the table as it is now.
pub(crate) fn read(store: &Store, table: &Table, path: &str) -> Result<Vec<RecordBatch>, LakeError> {
    let bytes = store.read(path)?;
    let rows = || -> Result<Vec<RecordBatch>, ParquetError> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?.build()?;
        let batches = reader.collect::<Result<Vec<_>, ArrowError>>()?;
        batches.iter().map(|batch| Ok(align(table, batch)?)).collect()
    };
    rows().map_err(|source| LakeError::Parquet { path: store.address(path), source })
}

/// Adds columns that an older version did not write, as nulls. A column that this version does not know is an error, not dropped.
fn align(table: &Table, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch::schema(table);
    let unknown =
        batch.schema_ref().fields().iter().find(|field| schema.field_with_name(field.name()).is_err());
    if let Some(field) = unknown {
        let why = format!("the column {} is not known to this version of roofgap-lake", field.name());
        return Err(ArrowError::SchemaError(why));
    }
    let columns = schema.fields().iter().map(|field| match batch.column_by_name(field.name()) {
        Some(column) => cast(column, field.data_type()),
        None => Ok(new_null_array(field.data_type(), batch.num_rows())),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(Arc::clone(&schema), columns)
}

/// Identifies a set of runs.
pub fn hash(keys: &[String]) -> String {
    sha256(keys.join(",").as_bytes()).chars().take(32).collect()
}
