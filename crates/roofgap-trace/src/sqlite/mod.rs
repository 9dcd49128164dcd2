//! Tables of a SQLite file, read page by page without writing to it or its folder.
//!
//! [`Tables::scan`] passes rows to a function. Pages are decoded by hand, because that is several times faster than SQLite and
//! runs in parallel; tests compare it with SQLite. Tables stored in another form than the usual one are refused by name.
//!
//! `schema` finds the tables, `file` reads pages and trees of pages, `record` takes a row apart, `layout` spares it the work for
//! rows that are like earlier ones, and `scan` goes through the rows of a table.

mod file;
mod layout;
mod record;
mod scan;
mod schema;

#[cfg(test)]
mod tests;

use crate::ReadError;
use file::PageFile;
use record::Plan;
use schema::TableSchema;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

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

/// Returns the first values of a row, if all are integers.
#[inline]
pub(crate) fn ints<const N: usize>(row: &[Value<'_>]) -> Option<[i64; N]> {
    let mut numbers = [0; N];
    for (place, value) in numbers.iter_mut().zip(row) {
        *place = value.int()?;
    }
    Some(numbers)
}

/// Reads parts in parallel, one thread for each.
pub(crate) fn on_threads<I: Send, T: Send, E: Send>(
    parts: impl Iterator<Item = I>,
    read: impl Fn(I) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    std::thread::scope(|scope| {
        let read = &read;
        let running: Vec<_> = parts.map(|part| scope.spawn(move || read(part))).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.map(|read| read.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Tables by name: those of a SQLite file, or those that a report of nsys is read as.
pub trait Tables {
    /// Returns true if the table exists and has the column.
    fn has_column(&self, table: &str, column: &str) -> bool;

    /// Steps through all rows of a table in order, with the values in the order of `columns`. A missing table has no rows, and a
    /// missing column is [`Value::Null`].
    fn each(&self, table: &str, columns: &[&str], row: impl FnMut(&[Value<'_>])) -> Result<(), ReadError>;

    /// Steps through all rows of a table, in parts that may run at the same time.
    ///
    /// `new` makes the state of a part, given the expected number of rows: for the first part about that of the table, since the
    /// others are likely to be appended to it. `row` takes one row with the values in the order of `columns`. The states come back
    /// in row order. After an error, what `row` was given is not the table.
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

/// A SQLite file opened read-only.
#[derive(Debug)]
pub struct Database {
    file: PageFile,
    tables: BTreeMap<String, TableSchema>,
    /// First pages of the tables that were read.
    read: RefCell<BTreeSet<u32>>,
}

impl Database {
    /// Opens a file and reads its list of tables.
    ///
    /// # Errors
    /// Fails when the file is damaged or cut off, when another program has not finished writing it, or when its text is UTF-16.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let file = PageFile::open(path)?;
        let tables = schema::tables(&file)?;
        Ok(Self { file, tables, read: RefCell::default() })
    }

    /// Iterates over the names of all tables and views.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// Lists the tables with rows that nobody has read so far, and the numbers of their rows. A table that is damaged has none.
    pub fn unread(&self) -> Vec<(&str, u64)> {
        let mut seen = self.read.borrow().clone();
        let plain = self.tables.iter().filter(|(_, table)| table.odd.is_none());
        plain
            .filter(|(_, table)| seen.insert(table.root))
            .filter_map(|(name, table)| Some((name.as_str(), self.file.rows(table.root).ok()?)))
            .filter(|(_, rows)| *rows > 0)
            .collect()
    }

    /// Returns the plan for reading columns of a table; `None` if there is no such table.
    fn plan(&self, table: &str, columns: &[&str]) -> Result<Option<Plan>, ReadError> {
        let Some(schema) = self.tables.get(table) else {
            return Ok(None);
        };
        match &schema.odd {
            Some(odd) => {
                Err(self.file.unsupported(format!("the table `{table}` is {odd}, which is not read")))
            }
            None => {
                self.read.borrow_mut().insert(schema.root);
                Ok(Some(Plan::new(schema, columns)))
            }
        }
    }
}

impl Tables for Database {
    fn has_column(&self, table: &str, column: &str) -> bool {
        self.tables.get(table).is_some_and(|t| t.position(column).is_some())
    }

    fn each(
        &self,
        table: &str,
        columns: &[&str],
        mut row: impl FnMut(&[Value<'_>]),
    ) -> Result<(), ReadError> {
        match self.plan(table, columns)? {
            Some(plan) => scan::each(&self.file, &plan, &mut row),
            None => Ok(()),
        }
    }

    fn scan<S: Send>(
        &self,
        table: &str,
        columns: &[&str],
        new: impl Fn(usize) -> S + Sync,
        row: impl Fn(&mut S, &[Value<'_>]) + Sync,
    ) -> Result<Vec<S>, ReadError> {
        match self.plan(table, columns)? {
            Some(plan) => scan::scan(&self.file, &plan, new, row),
            None => Ok(Vec::new()),
        }
    }
}
