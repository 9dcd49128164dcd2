//! Single events as Parquet tables, one folder per run and rank, so that many runs form one data set.
//!
//! `DIR/run=<id>/rank=<n>/{kernels,copies,calls,ranges,counters}.parquet`: DuckDB, Polars, Spark and pandas read `run` and `rank`
//! as columns. A table without rows is written with its columns.

mod tables;

use crate::bundle::Bundle;
use crate::export::{ExportError, write_whole};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tables::Tables;

/// Rows per row group, so that memory does not grow with the table.
const GROUP: usize = 250_000;

/// The part of a data set that one export writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Run name: letters, digits, dots, dashes and underscores.
    pub run: String,
    /// Rank within the run.
    pub rank: u32,
}

/// Returns the columns for some rows of a table.
type MakeColumns<'a> = Box<dyn Fn(Range<usize>) -> Vec<Column> + 'a>;

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
    let list: [(&str, usize, MakeColumns<'_>); 5] = [
        ("kernels", tables.kernels.len(), Box::new(|r| tables.kernels(r))),
        ("copies", tables.copies.len(), Box::new(|r| tables.copies(r))),
        ("calls", trace.calls.len(), Box::new(|r| tables.calls(r))),
        ("ranges", trace.ranges.rows.len(), Box::new(|r| tables.ranges(r))),
        ("counters", bundle.analysis.counters.len(), Box::new(|r| tables.counters(r))),
    ];
    let mut files = Vec::new();
    for (name, rows, columns) in list {
        let path = folder.join(format!("{name}.parquet"));
        write_whole(&path, |out| {
            write_table(out, rows, &columns).map_err(|e| match e {
                ParquetError::External(source) => io::Error::other(source),
                other => io::Error::other(other),
            })
        })?;
        files.push(path);
    }
    Ok(files)
}

/// Writes a table of `rows` rows.
fn write_table(out: impl Write + Send, rows: usize, columns: &MakeColumns<'_>) -> ParquetResult<()> {
    let fields = columns(0..0).iter().map(|c| c.declaration().map(Arc::new)).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("roofgap ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    for first in (0..rows).step_by(GROUP) {
        let mut group = file.next_row_group()?;
        for column in columns(first..rows.min(first + GROUP)) {
            let Some(mut writer) = group.next_column()? else {
                return Err(ParquetError::General(format!("column {} is not in the schema", column.name)));
            };
            (column.write)(&mut writer)?;
            writer.close()?;
        }
        group.close()?;
    }
    file.close().map(|_| ())
}

/// A value in the type in which it is stored.
trait Value: 'static {
    type Stored: DataType;
    const OPTIONAL: bool = false;

    /// Returns the stored value; `None` for one that was not recorded.
    fn stored(self) -> Option<<Self::Stored as DataType>::T>;
}

macro_rules! stored_as {
    ($($value:ty => $stored:ty),*) => {$(
        impl Value for $value {
            type Stored = $stored;

            fn stored(self) -> Option<$value> {
                Some(self)
            }
        }
    )*};
}

stored_as!(i64 => Int64Type, i32 => Int32Type, f64 => DoubleType, bool => BoolType, ByteArray => ByteArrayType);

impl<V: Value> Value for Option<V> {
    type Stored = V::Stored;
    const OPTIONAL: bool = true;

    fn stored(self) -> Option<<V::Stored as DataType>::T> {
        self.and_then(V::stored)
    }
}

/// Writes the values of a column.
type WriteValues = Box<dyn FnOnce(&mut SerializedColumnWriter<'_>) -> ParquetResult<()>>;

/// A column of some rows.
struct Column {
    name: &'static str,
    physical: Physical,
    optional: bool,
    write: WriteValues,
}

impl Column {
    fn new<V: Value>(name: &'static str, values: impl Iterator<Item = V>) -> Self {
        let stored: Vec<_> = values.map(V::stored).collect();
        let write: WriteValues = Box::new(move |writer| {
            let levels: Vec<i16> = stored.iter().map(|value| i16::from(value.is_some())).collect();
            let values: Vec<_> = stored.into_iter().flatten().collect();
            let levels = V::OPTIONAL.then_some(levels.as_slice());
            writer.typed::<V::Stored>().write_batch(&values, levels, None).map(|_| ())
        });
        Self { name, physical: V::Stored::get_physical_type(), optional: V::OPTIONAL, write }
    }

    /// Declares the column in the schema of a file.
    fn declaration(&self) -> ParquetResult<Type> {
        let repetition = if self.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let text = self.physical == Physical::BYTE_ARRAY;
        Type::primitive_type_builder(self.name, self.physical)
            .with_repetition(repetition)
            .with_logical_type(text.then_some(LogicalType::String))
            .build()
    }
}

/// Builds the columns of some rows.
struct Columns<R> {
    rows: Vec<R>,
    columns: Vec<Column>,
}

impl<R: Copy> Columns<R> {
    fn of(rows: impl Iterator<Item = R>) -> Self {
        Self { rows: rows.collect(), columns: Vec::new() }
    }

    /// Adds a column.
    fn with<V: Value>(mut self, name: &'static str, value: impl Fn(R) -> V) -> Self {
        self.columns.push(Column::new(name, self.rows.iter().map(|row| value(*row))));
        self
    }
}
