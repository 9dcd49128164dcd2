//! Exports of nsys with a Parquet file a table (`nsys export --type parquetdir`), read as the tables of an SQLite export.

use crate::ReadError;
use crate::sqlite::{Tables, Value};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Rows that are decoded at a time.
const BATCH: usize = 8192;

/// A folder of tables.
pub struct Folder {
    path: PathBuf,
    /// Files by the names of their tables.
    files: BTreeMap<String, PathBuf>,
    /// Tables that were read.
    read: RefCell<BTreeSet<String>>,
}

impl Folder {
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let entries = std::fs::read_dir(path).map_err(|error| ReadError::io(path, error))?;
        let files = entries.flatten().map(|entry| entry.path());
        let tables = files.filter(|file| file.extension().is_some_and(|end| end == "parquet"));
        let named = tables.filter_map(|file| Some((file.file_stem()?.to_str()?.to_owned(), file)));
        Ok(Self { path: path.to_path_buf(), files: named.collect(), read: RefCell::default() })
    }

    /// Lists the tables with rows that nobody has read so far, and the numbers of their rows. A table that is damaged has none.
    pub fn unread(&self) -> Vec<(&str, u64)> {
        let read = self.read.borrow();
        let rows = |table: &str| {
            let file = self.file(table).ok()??;
            u64::try_from(file.metadata().file_metadata().num_rows()).ok().filter(|rows| *rows > 0)
        };
        let unread = self.files.keys().filter(|table| !read.contains(*table));
        unread.filter_map(|table| Some((table.as_str(), rows(table)?))).collect()
    }

    fn file(&self, table: &str) -> Result<Option<SerializedFileReader<File>>, ReadError> {
        let Some(path) = self.files.get(table) else { return Ok(None) };
        let file = File::open(path).map_err(|error| ReadError::io(path, error))?;
        SerializedFileReader::new(file).map(Some).map_err(|error| self.damaged(table, &error))
    }

    fn damaged(&self, table: &str, error: &ParquetError) -> ReadError {
        let path = self.files.get(table).unwrap_or(&self.path);
        ReadError::damaged(path, "Parquet export of nsys", error)
    }

    fn rows(
        file: &SerializedFileReader<File>,
        columns: &[&str],
        mut row: impl FnMut(&[Value<'_>]),
    ) -> Result<(), ParquetError> {
        let places: Vec<Option<usize>> = columns.iter().map(|name| place(file, name)).collect();
        for group in 0..file.num_row_groups() {
            let group = file.get_row_group(group)?;
            let open = |place: &Option<usize>| place.map(|at| group.get_column_reader(at)).transpose();
            let mut readers = places.iter().map(open).collect::<Result<Vec<_>, _>>()?;
            let mut left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
            while left > 0 && readers.iter().any(Option::is_some) {
                let most = left.min(BATCH);
                let columns = readers.iter_mut().map(|reader| cells(reader.as_mut(), most));
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                if columns.iter().any(|cells| cells.len() != most) {
                    return Err(ParquetError::General("columns differ in length".into()));
                }
                for at in 0..most {
                    row(&columns.iter().map(|cells| cells[at].value()).collect::<Vec<_>>());
                }
                left -= most;
            }
        }
        Ok(())
    }
}

/// Returns the place of a column of plain values.
fn place(file: &SerializedFileReader<File>, name: &str) -> Option<usize> {
    let columns = file.metadata().file_metadata().schema_descr().columns();
    let is_it = |column: &parquet::schema::types::ColumnDescriptor| {
        column.name() == name && column.max_rep_level() == 0 && column.max_def_level() <= 1
    };
    columns.iter().position(|column| is_it(column))
}

/// A value that is kept until its row is complete.
#[derive(Clone)]
enum Cell {
    Null,
    Int(i64),
    Real(f64),
    Text(ByteArray),
}

impl Cell {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Int(value) => Value::Int(*value),
            Self::Real(value) => Value::Real(*value),
            Self::Text(text) => Value::Text(text.data()),
        }
    }
}

/// Reads the next values of a column; those of a missing one, or one of another type, are null.
fn cells(reader: Option<&mut ColumnReader>, most: usize) -> Result<Vec<Cell>, ParquetError> {
    use ColumnReader as Reader;
    match reader {
        Some(Reader::Int64ColumnReader(own)) => values(own, most, Cell::Int),
        Some(Reader::Int32ColumnReader(own)) => values(own, most, |value| Cell::Int(value.into())),
        Some(Reader::BoolColumnReader(own)) => values(own, most, |value| Cell::Int(value.into())),
        Some(Reader::DoubleColumnReader(own)) => values(own, most, Cell::Real),
        Some(Reader::FloatColumnReader(own)) => values(own, most, |value| Cell::Real(value.into())),
        Some(Reader::ByteArrayColumnReader(own)) => values(own, most, Cell::Text),
        _ => Ok(vec![Cell::Null; most]),
    }
}

fn values<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    most: usize,
    cell: impl Fn(T::T) -> Cell,
) -> Result<Vec<Cell>, ParquetError> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let (records, ..) = reader.read_records(most, Some(&mut levels), None, &mut values)?;
    let mut values = values.into_iter().map(cell);
    let is_null = |row: usize| levels.get(row) == Some(&0);
    let value = |row| if is_null(row) { Cell::Null } else { values.next().unwrap_or(Cell::Null) };
    Ok((0..records).map(value).collect())
}

impl Tables for Folder {
    fn has_column(&self, table: &str, column: &str) -> bool {
        self.file(table).ok().flatten().is_some_and(|file| place(&file, column).is_some())
    }

    fn each(&self, table: &str, columns: &[&str], row: impl FnMut(&[Value<'_>])) -> Result<(), ReadError> {
        let Some(file) = self.file(table)? else { return Ok(()) };
        self.read.borrow_mut().insert(table.to_owned());
        Self::rows(&file, columns, row).map_err(|error| self.damaged(table, &error))
    }

    fn scan<S: Send>(
        &self,
        table: &str,
        columns: &[&str],
        new: impl Fn(usize) -> S + Sync,
        row: impl Fn(&mut S, &[Value<'_>]) + Sync,
    ) -> Result<Vec<S>, ReadError> {
        let mut state = new(0);
        self.each(table, columns, |values| row(&mut state, values))?;
        Ok(vec![state])
    }
}
