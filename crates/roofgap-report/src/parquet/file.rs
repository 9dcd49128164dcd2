//! A table as a file: row groups of bounded size, so that memory does not grow with the table.

use super::column::Column;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

/// Rows per row group.
const GROUP: usize = 250_000;

/// Writes a table of `rows` rows.
pub fn write(
    out: &mut (impl Write + Send),
    rows: usize,
    columns: &dyn Fn(Range<usize>) -> Vec<Column>,
) -> io::Result<()> {
    table(out, rows, columns).map_err(|e| match e {
        ParquetError::External(source) => io::Error::other(source),
        other => io::Error::other(other),
    })
}

fn table(
    out: &mut (impl Write + Send),
    rows: usize,
    columns: &dyn Fn(Range<usize>) -> Vec<Column>,
) -> Result<(), ParquetError> {
    let fields =
        columns(0..0).iter().map(|c| c.declaration().map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
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
            column.write(&mut writer)?;
            writer.close()?;
        }
        group.close()?;
    }
    file.close().map(|_| ())
}
