//! Rows as Arrow batches, and batches as Parquet files.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, RecordBatch, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::{Cell, Column, Kind, SCHEMA, Table};
use crate::LakeError;

/// Footer entry with the schema of a file.
pub const SCHEMA_ENTRY: &str = "roofgap.schema";
/// Footer entry with the keys of the runs in a merged file, separated by commas.
pub const KEYS_ENTRY: &str = "roofgap.keys";

/// Rows in a row group: small enough to skip most of a merged file, large enough for long reads.
const ROW_GROUP: usize = 131_072;

/// Returns the Arrow schema of a table as it is written.
pub fn schema(table: &Table) -> SchemaRef {
    let fields = table.columns.iter().map(|column| {
        let kind = match column.kind {
            Kind::Integer => DataType::Int64,
            Kind::Float => DataType::Float64,
            Kind::Text => DataType::Utf8,
            Kind::Boolean => DataType::Boolean,
            Kind::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        };
        Field::new(column.name, kind, column.nullable)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Sorts rows in the order of a table and builds a batch.
pub fn batch(table: &Table, mut rows: Vec<Vec<Cell>>) -> Result<RecordBatch, ArrowError> {
    let order: Vec<usize> = table.order.iter().filter_map(|name| position(table, name)).collect();
    // The sort is stable, so that equal input gives equal bytes.
    rows.sort_by(|a, b| {
        let columns = order.iter().map(|at| compare(a.get(*at), b.get(*at)));
        columns.fold(Ordering::Equal, Ordering::then)
    });
    let columns = table.columns.iter().enumerate();
    let arrays = columns.map(|(at, column)| array(column, rows.iter().map(|row| row.get(at))));
    RecordBatch::try_new(schema(table), arrays.collect())
}

/// Joins batches and sorts their rows in the order of a table.
pub fn merge(table: &Table, batches: &[RecordBatch]) -> Result<RecordBatch, ArrowError> {
    let whole = concat_batches(&schema(table), batches)?;
    let keys: Vec<SortColumn> = table
        .order
        .iter()
        .filter_map(|name| whole.column_by_name(name))
        .map(|values| SortColumn { values: Arc::clone(values), options: None })
        .collect();
    let order = lexsort_to_indices(&keys, None)?;
    take_record_batch(&whole, &order)
}

/// Writes batches of a table as a Parquet file. `keys` are those of a merged file.
pub fn parquet(
    table: &Table,
    batches: &[RecordBatch],
    keys: Option<&[String]>,
) -> Result<Vec<u8>, ParquetError> {
    let mut entries = vec![KeyValue::new(SCHEMA_ENTRY.to_owned(), SCHEMA.to_owned())];
    entries.extend(keys.map(|keys| KeyValue::new(KEYS_ENTRY.to_owned(), keys.join(","))));
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .set_created_by("roofgap-lake".to_owned())
        .set_key_value_metadata(Some(entries))
        .build();
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new_with_options(&mut bytes, schema(table), options)?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.close()?;
    Ok(bytes)
}

/// Builds the Parquet file of some rows. `keys` are those of a merged file; `path` is for the error.
pub fn file(
    table: &Table,
    rows: Vec<Vec<Cell>>,
    keys: Option<&[String]>,
    path: &str,
) -> Result<Vec<u8>, LakeError> {
    let built = batch(table, rows).map_err(|source| LakeError::Rows { table: table.name, source })?;
    parquet(table, &[built], keys).map_err(|source| LakeError::Parquet { path: path.to_owned(), source })
}

fn position(table: &Table, name: &str) -> Option<usize> {
    table.columns.iter().position(|column| column.name == name)
}

/// Orders two cells of one column; a missing value is first.
fn compare(a: Option<&Cell>, b: Option<&Cell>) -> Ordering {
    match (a, b) {
        (Some(Cell::Integer(a)), Some(Cell::Integer(b))) => a.cmp(b),
        (Some(Cell::Timestamp(a)), Some(Cell::Timestamp(b))) => a.cmp(b),
        (Some(Cell::Float(a)), Some(Cell::Float(b))) => a.total_cmp(b),
        (Some(Cell::Text(a)), Some(Cell::Text(b))) => a.cmp(b),
        (Some(Cell::Boolean(a)), Some(Cell::Boolean(b))) => a.cmp(b),
        (a, b) => {
            let present = |cell: Option<&Cell>| cell.is_some_and(|cell| *cell != Cell::Null);
            present(a).cmp(&present(b))
        }
    }
}

/// Builds the array of a column. A cell of another type, which the rows cannot have, is null.
fn array<'a>(column: &Column, cells: impl Iterator<Item = Option<&'a Cell>>) -> ArrayRef {
    macro_rules! build {
        ($builder:expr, $cell:ident) => {{
            let mut builder = $builder;
            for cell in cells {
                match cell {
                    Some(Cell::$cell(value)) => builder.append_value(value.to_owned()),
                    _ => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }};
    }
    match column.kind {
        Kind::Integer => build!(Int64Builder::new(), Integer),
        Kind::Float => build!(Float64Builder::new(), Float),
        Kind::Text => build!(StringBuilder::new(), Text),
        Kind::Boolean => build!(BooleanBuilder::new(), Boolean),
        Kind::Timestamp => build!(TimestampMicrosecondBuilder::new().with_timezone("UTC"), Timestamp),
    }
}
