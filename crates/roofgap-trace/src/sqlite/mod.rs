//! Tables of a SQLite file, read without writing to it or its folder.
//!
//! [`Database::scan`] passes rows to a function. `pages` decodes tables in the usual storage form by hand, because that is
//! several times faster than SQLite and runs in parallel; tests compare it with SQLite. `plain` reads all others through SQLite.

mod header;
mod pages;
mod plain;
mod schema;
mod view;

#[cfg(test)]
mod tests;

use crate::ReadError;
use pages::{PageFile, Plan};
use schema::Table;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A value of a row, borrowed while the row is looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// No value, or a column that the table does not have.
    Null,
    /// An integer.
    Int(i64),
    /// A number.
    Real(f64),
    /// Text as stored; not necessarily valid UTF-8.
    Text(&'a [u8]),
    /// Bytes.
    Blob(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Returns the integer, if it is one.
    #[inline]
    pub fn int(self) -> Option<i64> {
        match self {
            Self::Int(v) => Some(v),
            _ => None,
        }
    }

    /// Returns the text, if it is text; invalid UTF-8 is replaced.
    pub fn text(self) -> Option<std::borrow::Cow<'a, str>> {
        match self {
            Self::Text(v) => Some(String::from_utf8_lossy(v)),
            _ => None,
        }
    }
}

/// A SQLite file opened read-only and immutable.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    tables: BTreeMap<String, Table>,
    plain: plain::Plain,
    pages: Option<PageFile>,
}

/// The most columns a scan may ask for and still be fast.
const MOST_COLUMNS: usize = 32;

impl Database {
    /// Opens a file after checking that its header and its length agree.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let header = header::check(path)?;
        let plain = plain::Plain::open(path)?;
        let tables = plain.schema()?;
        let pages = PageFile::open(path, header)?;
        Ok(Self { path: path.to_path_buf(), tables, plain, pages })
    }

    /// Returns the names of the tables of a file, also of one whose views cannot be read.
    pub fn names(path: &Path) -> Result<Vec<String>, ReadError> {
        header::check(path)?;
        plain::Plain::open(path)?.names()
    }

    /// Returns the database with every row read by SQLite's own engine: the oracle of the tests.
    pub fn without_pages(self) -> Self {
        Self { pages: None, ..self }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the table exists.
    pub fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// Returns true if the table exists and has the column.
    pub fn has_column(&self, table: &str, column: &str) -> bool {
        self.tables.get(table).is_some_and(|t| t.position(column).is_some())
    }

    /// Iterates over the names of all tables.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// Steps through all rows of a table, in parts that may run at the same time.
    ///
    /// `new` makes the state of a part, `row` takes one row with the values in the order of `columns`; a column that the
    /// table lacks is [`Value::Null`]. The states come back in row order. A missing table has no rows. After an error, what
    /// `row` was given is not the table.
    pub fn scan<S: Send>(
        &self,
        table: &str,
        columns: &[&str],
        new: impl Fn() -> S + Sync,
        row: impl Fn(&mut S, &[Value<'_>]) + Sync,
    ) -> Result<Vec<S>, ReadError> {
        self.scan_sized(table, columns, |_| new(), row)
    }

    /// Scans like [`Database::scan`], and passes `new` the expected number of rows: for the first part about that of the table,
    /// since the others are likely to be appended to it.
    pub fn scan_sized<S: Send>(
        &self,
        table: &str,
        columns: &[&str],
        new: impl Fn(usize) -> S + Sync,
        row: impl Fn(&mut S, &[Value<'_>]) + Sync,
    ) -> Result<Vec<S>, ReadError> {
        let Some(found) = self.tables.get(table) else {
            return Ok(Vec::new());
        };
        if let Some((pages, plan)) = self.direct(found, columns) {
            return pages::scan(pages, &plan, new, row);
        }
        let mut state = new(0);
        self.plain.scan(table, found, columns, &mut |values| row(&mut state, values))?;
        Ok(vec![state])
    }

    /// Steps through all rows of a table in order.
    pub fn each(
        &self,
        table: &str,
        columns: &[&str],
        mut row: impl FnMut(&[Value<'_>]),
    ) -> Result<(), ReadError> {
        let Some(found) = self.tables.get(table) else {
            return Ok(());
        };
        match self.direct(found, columns) {
            Some((pages, plan)) => pages::each(pages, &plan, &mut row),
            None => self.plain.scan(table, found, columns, &mut row),
        }
    }

    /// Returns the plan for reading pages directly, if that is possible.
    fn direct(&self, table: &Table, columns: &[&str]) -> Option<(&PageFile, Plan)> {
        Some((self.pages.as_ref()?, Plan::new(table, columns)?))
    }
}
