//! Tables of single events as Parquet, one folder a run and rank, so that many runs form one data set.
//!
//! `DIR/run=<id>/rank=<n>/{kernels,copies,calls,ranges,counters}.parquet`; readers that know such folders (DuckDB, Polars,
//! Spark, pandas) see `run` and `rank` as columns. A table without rows is there all the same, with its columns.

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

/// Which part of a data set is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The run; letters, digits, dots, dashes and underscores.
    pub run: String,
    /// The rank within the run.
    pub rank: u32,
}

/// Columns of some rows of a table.
type Columns<'a> = Box<dyn Fn(Range<usize>) -> Vec<Column> + 'a>;

/// Writes all tables of a run and rank under `dir`; the files, in order.
pub fn save(bundle: Bundle<'_>, dir: &Path, partition: &Partition) -> Result<Vec<PathBuf>, ExportError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let run = partition.run.as_str();
    if run.is_empty() || run.chars().all(|c| c == '.') || !run.chars().all(allowed) {
        return Err(ExportError::RunName { name: run.to_owned() });
    }
    let folder = dir
        .join(format!("run={run}"))
        .join(format!("rank={}", partition.rank));
    fs::create_dir_all(&folder).map_err(|e| ExportError::write(&folder, e))?;
    let empty = roofgap_trace::Trace::default();
    let tables = Tables::new(bundle.analysis, bundle.stages, bundle.trace.unwrap_or(&empty));
    let list: [(&str, usize, Columns<'_>); 5] = [
        (
            "kernels",
            tables.kernel_count(),
            Box::new(|rows| tables.kernels(rows)),
        ),
        (
            "copies",
            tables.copy_count(),
            Box::new(|rows| tables.copies(rows)),
        ),
        ("calls", tables.call_count(), Box::new(|rows| tables.calls(rows))),
        (
            "ranges",
            tables.range_count(),
            Box::new(|rows| tables.ranges(rows)),
        ),
        (
            "counters",
            tables.counter_count(),
            Box::new(|rows| tables.counters(rows)),
        ),
    ];
    let mut files = Vec::new();
    for (name, rows, columns) in list {
        let path = folder.join(format!("{name}.parquet"));
        export::write_whole(&path, |out| file::write(out, rows, &columns))?;
        files.push(path);
    }
    Ok(files)
}
