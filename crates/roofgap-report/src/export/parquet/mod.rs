//! Tables of many runs as Parquet: `DIR/TABLE/date=YYYY-MM-DD/KEY.parquet`, one file for each table and run.
//!
//! - `runs`: what every run has: the run itself, its stages, kernels, counters, findings, communication, ranks and requests;
//! - `events`: single operations, calls and ranges, one file `KEY-RANK.parquet` for each rank.
//!
//! A file is complete when it has its name, and is never changed: one that is there is left as it is. The table `runs` is written last, so
//! that a run whose export was killed is not in it. A table without rows is written with its columns.

mod events;
mod runs;

use crate::export::{ExportError, write_whole};
use crate::{Bundle, RunFacts};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows per row group, so that memory does not grow with the table.
const GROUP: usize = 250_000;

/// Tells whether a run is in a folder of tables, on any date.
pub fn has_run(dir: &Path, key: &str) -> bool {
    let dates = fs::read_dir(dir.join("runs")).into_iter().flatten().flatten();
    dates.into_iter().any(|date| date.path().join(format!("{key}.parquet")).is_file())
}

/// Writes the tables that every run has under `dir`, `runs` last. Returns the file in `runs`.
pub fn save_run(bundle: Bundle<'_>, facts: &RunFacts, dir: &Path) -> Result<PathBuf, ExportError> {
    let mut last = PathBuf::new();
    for table in runs::tables(bundle.analysis, facts) {
        last = table.save(dir, facts, &facts.key)?;
    }
    Ok(last)
}

/// Writes the events of one rank of a run under `dir`. Call it before [`save_run`].
pub fn save_events(bundle: Bundle<'_>, facts: &RunFacts, rank: u32, dir: &Path) -> Result<(), ExportError> {
    let empty = roofgap_trace::Trace::default();
    let events = events::Events::new(bundle, bundle.trace.unwrap_or(&empty), rank);
    let name = format!("{}-{rank}", facts.key);
    events.tables(&facts.key).into_iter().try_for_each(|table| table.save(dir, facts, &name).map(|_| ()))
}

/// Adds columns to `rows`, each with its name and its value for a `row`; a name alone is a field of the row.
macro_rules! columns {
    ($rows:expr, $row:tt; $($name:ident $(: $value:expr)?),* $(,)?) => {
        $rows$(.with(stringify!($name), |$row| columns!(@ $row $name $($value)?)))*
    };
    (@ $row:tt $name:ident) => { &$row.$name };
    (@ $row:tt $name:ident $value:expr) => {{
        _ = $row;
        $value
    }};
}
use columns;

/// The file of a table of a run, before it is written.
struct TableFile<'a> {
    name: &'static str,
    rows: usize,
    /// Returns the columns for some rows.
    columns: Box<dyn Fn(Range<usize>) -> Vec<Column> + 'a>,
}

impl<'a> TableFile<'a> {
    /// Declares a table: how many rows it has, each row, and its columns after `run_key`.
    fn new<R: Copy>(
        name: &'static str,
        key: &str,
        rows: usize,
        row: impl Fn(usize) -> R + 'a,
        columns: impl Fn(Columns<R>) -> Columns<R> + 'a,
    ) -> Self {
        let key = ByteArray::from(key);
        let columns = move |range: Range<usize>| {
            let rows = Columns { rows: range.map(&row).collect(), columns: Vec::new() };
            columns(rows.with("run_key", |_| key.clone())).columns
        };
        Self { name, rows, columns: Box::new(columns) }
    }

    /// Writes the file of the table, unless it is there.
    fn save(&self, dir: &Path, facts: &RunFacts, name: &str) -> Result<PathBuf, ExportError> {
        let folder = dir.join(self.name).join(format!("date={}", facts.date));
        let path = folder.join(format!("{name}.parquet"));
        if !path.is_file() {
            fs::create_dir_all(&folder).map_err(|e| ExportError::write(&folder, e))?;
            write_whole(&path, |out| {
                self.write(out).map_err(|e| match e {
                    ParquetError::External(source) => io::Error::other(source),
                    other => io::Error::other(other),
                })
            })?;
        }
        Ok(path)
    }

    fn write(&self, out: impl Write + Send) -> ParquetResult<()> {
        let declared = (self.columns)(0..0).into_iter().map(|column| column.declaration().map(Arc::new));
        let schema =
            Type::group_type_builder("rows").with_fields(declared.collect::<Result<_, _>>()?).build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("roofgap ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
        for first in (0..self.rows).step_by(GROUP) {
            let mut group = file.next_row_group()?;
            for column in (self.columns)(first..self.rows.min(first + GROUP)) {
                let Some(mut writer) = group.next_column()? else {
                    let why = format!("column {} is not in the schema", column.name);
                    return Err(ParquetError::General(why));
                };
                (column.write)(&mut writer)?;
                writer.close()?;
            }
            group.close()?;
        }
        file.close().map(|_| ())
    }
}

/// A value in the type in which it is stored.
trait Value {
    type Stored: DataType;
    const OPTIONAL: bool = false;

    /// Returns the stored value; `None` for one that was not recorded.
    fn stored(self) -> Option<<Self::Stored as DataType>::T>;
}

macro_rules! stored_as {
    ($($type:ty => $stored:ty, $value:ident => $as:expr;)*) => {$(
        impl Value for $type {
            type Stored = $stored;

            fn stored(self) -> Option<<$stored as DataType>::T> {
                let $value = self;
                Some($as)
            }
        }
    )*};
}

stored_as! {
    bool => BoolType, value => value;
    i64 => Int64Type, value => value;
    u8 => Int64Type, value => value.into();
    u32 => Int64Type, value => value.into();
    // No count reaches 2^63.
    u64 => Int64Type, value => i64::try_from(value).unwrap_or(i64::MAX);
    usize => Int64Type, value => i64::try_from(value).unwrap_or(i64::MAX);
    ByteArray => ByteArrayType, value => value;
    &str => ByteArrayType, value => value.into();
    String => ByteArrayType, value => value.into_bytes().into();
}

impl<V: Value + Clone> Value for &V {
    type Stored = V::Stored;
    const OPTIONAL: bool = V::OPTIONAL;

    fn stored(self) -> Option<<V::Stored as DataType>::T> {
        self.clone().stored()
    }
}

/// Infinity and NaN are no measurements, and readers order them differently.
impl Value for f64 {
    type Stored = DoubleType;
    const OPTIONAL: bool = true;

    fn stored(self) -> Option<f64> {
        Some(self).filter(|value| value.is_finite())
    }
}

impl<V: Value> Value for Option<V> {
    type Stored = V::Stored;
    const OPTIONAL: bool = true;

    fn stored(self) -> Option<<V::Stored as DataType>::T> {
        self.and_then(V::stored)
    }
}

/// A column of some rows.
struct Column {
    name: &'static str,
    physical: Physical,
    optional: bool,
    /// Writes the values.
    write: Box<WriteColumn>,
}

/// Writes the values of a column.
type WriteColumn = dyn FnOnce(&mut SerializedColumnWriter<'_>) -> ParquetResult<()>;

impl Column {
    fn new<D: DataType>(name: &'static str, stored: Vec<Option<D::T>>, optional: bool) -> Self {
        let write = move |writer: &mut SerializedColumnWriter<'_>| {
            let levels: Vec<i16> = stored.iter().map(|value| i16::from(value.is_some())).collect();
            let values: Vec<_> = stored.into_iter().flatten().collect();
            let levels = optional.then_some(levels.as_slice());
            writer.typed::<D>().write_batch(&values, levels, None).map(|_| ())
        };
        Self { name, physical: D::get_physical_type(), optional, write: Box::new(write) }
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

/// Columns of some rows, in the making.
struct Columns<R> {
    rows: Vec<R>,
    columns: Vec<Column>,
}

impl<R: Copy> Columns<R> {
    /// Adds a column.
    fn with<V: Value>(mut self, name: &'static str, value: impl Fn(R) -> V) -> Self {
        let stored = self.rows.iter().map(|row| value(*row).stored()).collect();
        self.columns.push(Column::new::<V::Stored>(name, stored, V::OPTIONAL));
        self
    }
}
