//! Single events as Parquet tables, one folder per run and rank, so that many runs form one data set.
//!
//! `DIR/run=<id>/rank=<n>/{kernels,copies,calls,ranges,counters}.parquet`: DuckDB, Polars, Spark and pandas read `run` and `rank`
//! as columns. A table without rows is written with its columns.
//!
//! - `tables`: the content of the tables
//! - `column`: typed columns
//! - `file`: a table as a file

mod column;
mod file;
mod tables;

use crate::bundle::Bundle;
use crate::export::{self, ExportError};
use column::Column;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tables::Tables;

/// The part of a data set that one export writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Run name: letters, digits, dots, dashes and underscores.
    pub run: String,
    /// Rank within the run.
    pub rank: u32,
}

/// Returns the columns for some rows of a table.
type Columns<'a> = Box<dyn Fn(Range<usize>) -> Vec<Column> + 'a>;

/// Writes all tables of a run and rank under `dir`. Returns the files in order.
pub fn save(bundle: Bundle<'_>, dir: &Path, partition: &Partition) -> Result<Vec<PathBuf>, ExportError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let run = partition.run.as_str();
    if run.is_empty() || run.chars().all(|c| c == '.') || !run.chars().all(allowed) {
        return Err(ExportError::RunName { name: run.to_owned() });
    }
    let folder = dir.join(format!("run={run}")).join(format!("rank={}", partition.rank));
    fs::create_dir_all(&folder).map_err(|e| ExportError::write(&folder, e))?;
    let empty = roofgap_trace::Trace::default();
    let trace = bundle.trace.unwrap_or(&empty);
    let tables = Tables::new(bundle.analysis, bundle.stages, trace);
    let list: [(&str, usize, Columns<'_>); 5] = [
        ("kernels", tables.kernels.len(), Box::new(|r| tables.kernels(r))),
        ("copies", tables.copies.len(), Box::new(|r| tables.copies(r))),
        ("calls", trace.calls.len(), Box::new(|r| tables.calls(r))),
        ("ranges", trace.ranges.rows.len(), Box::new(|r| tables.ranges(r))),
        ("counters", bundle.analysis.counters.len(), Box::new(|r| tables.counters(r))),
    ];
    let mut files = Vec::new();
    for (name, rows, columns) in list {
        let path = folder.join(format!("{name}.parquet"));
        export::write_whole(&path, |out| file::write(out, rows, &columns))?;
        files.push(path);
    }
    Ok(files)
}
