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

    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Lists the tables with rows that nobody has read so far, and the numbers of their rows. A table that is damaged has none.
    pub fn unread(&self) -> Vec<(&str, u64)> {
        let read = self.read.borrow();
        let rows = |table: &str| {
            let file = self.file(table).ok()??;
            u64::try_from(file.metadata().file_metadata().num_rows()).ok().filter(|rows| *rows > 0)
        };
        let unread = self.tables().filter(|table| !read.contains(*table));
        unread.filter_map(|table| Some((table, rows(table)?))).collect()
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
            while left > 0 {
                let most = left.min(BATCH);
                let cells = readers.iter_mut().map(|reader| Cells::read(reader.as_mut(), most));
                let cells = cells.collect::<Result<Vec<_>, _>>()?;
                let lengths: BTreeSet<usize> = cells.iter().filter_map(Cells::len).collect();
                if lengths.iter().ne([&most]) {
                    return Err(ParquetError::General("columns differ in length".into()));
                }
                for at in 0..most {
                    row(&cells.iter().map(|cells| cells.at(at)).collect::<Vec<_>>());
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

/// Some values of a column.
enum Cells {
    Missing,
    Ints(Vec<Option<i64>>),
    Reals(Vec<Option<f64>>),
    Texts(Vec<Option<ByteArray>>),
}

impl Cells {
    fn read(reader: Option<&mut ColumnReader>, most: usize) -> Result<Self, ParquetError> {
        use ColumnReader as Reader;
        Ok(match reader {
            Some(Reader::Int64ColumnReader(own)) => Self::Ints(values(own, most, |value| value)?),
            Some(Reader::Int32ColumnReader(own)) => Self::Ints(values(own, most, i64::from)?),
            Some(Reader::BoolColumnReader(own)) => Self::Ints(values(own, most, i64::from)?),
            Some(Reader::DoubleColumnReader(own)) => Self::Reals(values(own, most, |value| value)?),
            Some(Reader::FloatColumnReader(own)) => Self::Reals(values(own, most, f64::from)?),
            Some(Reader::ByteArrayColumnReader(own)) => Self::Texts(values(own, most, |value| value)?),
            _ => Self::Missing,
        })
    }

    fn len(&self) -> Option<usize> {
        match self {
            Self::Missing => None,
            Self::Ints(values) => Some(values.len()),
            Self::Reals(values) => Some(values.len()),
            Self::Texts(values) => Some(values.len()),
        }
    }

    fn at(&self, row: usize) -> Value<'_> {
        match self {
            Self::Missing => Value::Null,
            Self::Ints(values) => values[row].map_or(Value::Null, Value::Int),
            Self::Reals(values) => values[row].map_or(Value::Null, Value::Real),
            Self::Texts(values) => values[row].as_ref().map_or(Value::Null, |text| Value::Text(text.data())),
        }
    }
}

/// Reads the next values of a column.
fn values<T: DataType, V>(
    reader: &mut ColumnReaderImpl<T>,
    most: usize,
    of: impl Fn(T::T) -> V,
) -> Result<Vec<Option<V>>, ParquetError> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let (records, ..) = reader.read_records(most, Some(&mut levels), None, &mut values)?;
    let mut values = values.into_iter().map(of);
    Ok((0..records).map(|row| if levels.get(row) == Some(&0) { None } else { values.next() }).collect())
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
