//! Exports of nsys with a Parquet file a table (`nsys export --type parquetdir`), read as the tables of an SQLite export.

use crate::ReadError;
use crate::protobuf::Fields;
use crate::sqlite::{Tables, Value};
use bytes::Bytes;
use parquet::basic::Type;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::file::serialized_reader::SerializedPageReader;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
        let tables =
            files.filter(|file| file.extension().is_some_and(|end| end == "parquet") && file.is_file());
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
        let bytes = file.metadata().map_err(|error| ReadError::io(path, error))?.len();
        let file = SerializedFileReader::new(file).map_err(|error| self.damaged(table, &error))?;
        let groups = file.metadata().row_groups();
        let total = |numbers: &mut dyn Iterator<Item = i64>| {
            numbers.map(|number| u64::try_from(number).unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
        };
        let rows = total(&mut groups.iter().map(|group| group.num_rows()));
        let columns = groups.iter().flat_map(|group| group.columns());
        let unpacked = total(&mut columns.map(|column| column.uncompressed_size()));
        // No table of nsys is packed as tightly.
        if rows > (1 << 16) + 16 * bytes || unpacked > (64 << 20) + 200 * bytes {
            let what = format!("{rows} rows in {unpacked} bytes, too many for a file of {bytes} bytes");
            return Err(self.damaged(table, &ParquetError::General(what)));
        }
        Ok(Some(file))
    }

    fn damaged(&self, table: &str, error: &ParquetError) -> ReadError {
        let path = self.files.get(table).unwrap_or(&self.path);
        ReadError::damaged(path, "Parquet export of nsys", error)
    }

    fn rows(
        path: &Path,
        file: &SerializedFileReader<File>,
        columns: &[&str],
        mut row: impl FnMut(&[Value<'_>]),
    ) -> Result<(), ParquetError> {
        let places: Vec<Option<usize>> = columns.iter().map(|name| place(file, name)).collect();
        for group in 0..file.num_row_groups() {
            let group = file.get_row_group(group)?;
            let open = |at| {
                let column = group.metadata().column(at);
                let most = u64::try_from(column.uncompressed_size()).unwrap_or(0);
                let pages = Pages::open(File::open(path)?, column, most)?;
                Ok::<_, ParquetError>(get_column_reader(column.column_descr_ptr(), Box::new(pages)))
            };
            let readers = places.iter().map(|place| place.map(open).transpose());
            let mut readers = readers.collect::<Result<Vec<_>, _>>()?;
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

/// A column of a file. A page that states a larger size than its column is an error before memory is taken for it.
struct Column {
    file: File,
    /// Size of the column without compression, bytes.
    most: u64,
}

impl Length for Column {
    fn len(&self) -> u64 {
        Length::len(&self.file)
    }
}

impl ChunkReader for Column {
    type T = PageHeader;

    fn get_read(&self, start: u64) -> Result<PageHeader, ParquetError> {
        Ok(PageHeader { text: self.file.get_read(start)?, most: Some(self.most) })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.file.get_bytes(start, length)
    }
}

/// The header of a page, which is checked when it is read.
struct PageHeader {
    text: BufReader<File>,
    /// Largest size that it may state, bytes; `None` once it is checked.
    most: Option<u64>,
}

impl Read for PageHeader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(most) = self.most.take() {
            let size = stated_size(self.text.fill_buf()?);
            if size.is_none_or(|size| size > most) {
                return Err(io::Error::other("a page larger than its column"));
            }
        }
        self.text.read(into)
    }
}

/// Returns the size without compression that the header of a page states: its second field, after the kind of the page. Both are
/// integers of the compact protocol of Thrift, with the sign in the lowest bit.
fn stated_size(header: &[u8]) -> Option<u64> {
    const NEXT_INTEGER: u64 = 0x15;
    let mut fields = Fields::of(header);
    let mut integer = || (fields.varint().ok()? == NEXT_INTEGER).then(|| fields.varint().ok())?;
    integer()?;
    integer().filter(|size| size % 2 == 0).map(|size| size / 2)
}

/// The pages of a column. More words in a dictionary than bytes are an error.
struct Pages(SerializedPageReader<Column>);

impl Pages {
    fn open(file: File, column: &ColumnChunkMetaData, most: u64) -> Result<Self, ParquetError> {
        let rows = usize::try_from(column.num_values()).unwrap_or(0);
        SerializedPageReader::new(Arc::new(Column { file, most }), column, rows, None).map(Self)
    }
}

impl Iterator for Pages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let page = self.0.get_next_page()?;
        let has_too_many =
            |page: &Page| page.is_dictionary_page() && page.num_values() as usize > page.buffer().len();
        if page.as_ref().is_some_and(has_too_many) {
            return Err(ParquetError::General("a dictionary with more words than bytes".into()));
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.0.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.0.skip_next_page()
    }
}

/// Returns the place of a column of plain values of a type that is read.
fn place(file: &SerializedFileReader<File>, name: &str) -> Option<usize> {
    let columns = file.metadata().file_metadata().schema_descr().columns();
    let is_it = |column: &parquet::schema::types::ColumnDescriptor| {
        let is_read = !matches!(column.physical_type(), Type::INT96 | Type::FIXED_LEN_BYTE_ARRAY);
        is_read && column.name() == name && column.max_rep_level() == 0 && column.max_def_level() <= 1
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

/// Reads the next values of a column; those of a missing one are null.
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
        let (Some(file), Some(path)) = (self.file(table)?, self.files.get(table)) else { return Ok(()) };
        self.read.borrow_mut().insert(table.to_owned());
        Self::rows(path, &file, columns, row).map_err(|error| self.damaged(table, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::data_type::{FixedLenByteArrayType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    /// Writes a table with a column of equal numbers and one of an unread type.
    fn written(rows: usize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let schema = "message t { required int64 start; optional fixed_len_byte_array(1) raw; }";
        let file = File::create(folder.path().join("T.parquet")).unwrap();
        let properties = Arc::new(WriterProperties::builder().build());
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut file = SerializedFileWriter::new(file, schema, properties).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut start = group.next_column().unwrap().unwrap();
        start.typed::<Int64Type>().write_batch(&vec![7; rows], None, None).unwrap();
        start.close().unwrap();
        let mut raw = group.next_column().unwrap().unwrap();
        raw.typed::<FixedLenByteArrayType>().write_batch(&[], Some(&vec![0; rows]), None).unwrap();
        raw.close().unwrap();
        group.close().unwrap();
        file.close().unwrap();
        folder
    }

    fn rows_read(rows: usize, column: &str) -> Result<usize, ReadError> {
        let folder = written(rows);
        let mut read = 0;
        let folder = Folder::open(folder.path()).unwrap();
        folder.each("T", &[column], |_| read += 1).map(|()| read)
    }

    #[test]
    fn a_column_of_an_unread_type_is_missing() {
        assert_eq!((rows_read(9, "start").unwrap(), rows_read(9, "raw").unwrap()), (9, 0));
    }

    #[test]
    fn more_rows_than_a_file_can_have_are_refused() {
        assert_eq!(rows_read(1 << 16, "start").unwrap(), 1 << 16);
        assert!(rows_read(1 << 18, "start").unwrap_err().to_string().contains("262144 rows in"));
    }

    #[test]
    fn a_page_larger_than_its_column_is_refused() {
        let folder = written(9);
        let file = Folder::open(folder.path()).unwrap().file("T").unwrap().unwrap();
        // The dictionary is one number.
        for (most, is_read) in [(7, false), (8, true)] {
            let own = File::open(folder.path().join("T.parquet")).unwrap();
            let mut pages = Pages::open(own, file.metadata().row_group(0).column(0), most).unwrap();
            assert_eq!(pages.next().unwrap().is_ok(), is_read);
        }
    }

    #[test]
    fn the_stated_size_of_a_page_is_its_second_field() {
        assert_eq!(stated_size(&[0x15, 0x04, 0x15, 0x10, 0x15, 0x14]), Some(8));
        assert_eq!(stated_size(&[0x15, 0x00, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f]), Some(i32::MAX as u64));
        // Another order of fields, a negative size, and the end of the file.
        for header in [&[0x25, 0x10, 0x15][..], &[0x15, 0x00, 0x15, 0x01], &[0x15, 0x00, 0x15], &[]] {
            assert_eq!(stated_size(header), None);
        }
    }

    #[test]
    fn only_plain_files_are_tables() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("T.parquet")).unwrap();
        assert!(Folder::open(folder.path()).unwrap().files.is_empty());
    }
}
