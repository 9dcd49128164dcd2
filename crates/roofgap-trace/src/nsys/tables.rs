//! Tables of an nsys recording: those of a SQLite export, or those that a report is read as.

use crate::ReadError;
use crate::sqlite::{Database, Value};

/// Tables with the names and columns of an export.
pub trait Tables {
    /// Returns true if the table exists and has the column.
    fn has_column(&self, table: &str, column: &str) -> bool;

    /// Steps through all rows of a table in order, with the values in the order of `columns`. A missing table has no rows, and a
    /// missing column is [`Value::Null`].
    fn each(&self, table: &str, columns: &[&str], row: impl FnMut(&[Value<'_>])) -> Result<(), ReadError>;

    /// Steps through all rows of a table in parts that may run at the same time, as [`Database::scan`] does.
    fn scan<S: Send>(
        &self,
        table: &str,
        columns: &[&str],
        new: impl Fn(usize) -> S + Sync,
        row: impl Fn(&mut S, &[Value<'_>]) + Sync,
    ) -> Result<Vec<S>, ReadError>;
}

impl Tables for Database {
    fn has_column(&self, table: &str, column: &str) -> bool {
        self.has_column(table, column)
    }

    fn each(&self, table: &str, columns: &[&str], row: impl FnMut(&[Value<'_>])) -> Result<(), ReadError> {
        self.each(table, columns, row)
    }

    fn scan<S: Send>(
        &self,
        table: &str,
        columns: &[&str],
        new: impl Fn(usize) -> S + Sync,
        row: impl Fn(&mut S, &[Value<'_>]) + Sync,
    ) -> Result<Vec<S>, ReadError> {
        self.scan(table, columns, new, row)
    }
}
