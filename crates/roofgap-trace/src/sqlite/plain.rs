//! SQLite's own engine as the reader of rows: slow, and right by definition.

use super::Value;
use crate::ReadError;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

#[derive(Debug)]
pub(super) struct Plain {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Plain {
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(uri(path), flags)
            .map_err(|e| ReadError::damaged(path, "SQLite file", e))?;
        Ok(Self {
            path: path.to_path_buf(),
            connection: Mutex::new(connection),
        })
    }

    fn damaged(&self, error: rusqlite::Error) -> ReadError {
        ReadError::damaged(&self.path, "SQLite file", error)
    }

    fn connection(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Every table with its columns.
    pub(super) fn schema(&self) -> Result<BTreeMap<String, Vec<String>>, ReadError> {
        let connection = self.connection();
        let mut statement = connection
            .prepare("SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY m.name, c.cid")
            .map_err(|e| self.damaged(e))?;
        let mut rows = statement.query([]).map_err(|e| self.damaged(e))?;
        let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
        while let Some(row) = rows.next().map_err(|e| self.damaged(e))? {
            let table: String = row.get(0).map_err(|e| self.damaged(e))?;
            tables
                .entry(table)
                .or_default()
                .push(row.get(1).map_err(|e| self.damaged(e))?);
        }
        Ok(tables)
    }

    /// Steps through all rows of a table in the order of their ids.
    pub(super) fn scan(
        &self,
        table: &str,
        present: &[String],
        columns: &[&str],
        row: &mut dyn FnMut(&[Value<'_>]),
    ) -> Result<(), ReadError> {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let list: Vec<String> = columns
            .iter()
            .map(|c| {
                if present.iter().any(|p| p == c) {
                    quoted(c)
                } else {
                    "NULL".into()
                }
            })
            .collect();
        let connection = self.connection();
        let sql = format!("SELECT {} FROM {}", list.join(", "), quoted(table));
        let mut statement = connection.prepare(&sql).map_err(|e| self.damaged(e))?;
        let mut rows = statement.query([]).map_err(|e| self.damaged(e))?;
        while let Some(found) = rows.next().map_err(|e| self.damaged(e))? {
            let mut values = [Value::Null; MOST_COLUMNS];
            for (i, value) in values.iter_mut().enumerate().take(columns.len()) {
                *value = match found.get_ref(i).map_err(|e| self.damaged(e))? {
                    ValueRef::Null => Value::Null,
                    ValueRef::Integer(v) => Value::Int(v),
                    ValueRef::Real(v) => Value::Real(v),
                    ValueRef::Text(v) => Value::Text(v),
                    ValueRef::Blob(v) => Value::Blob(v),
                };
            }
            row(&values[..columns.len().min(MOST_COLUMNS)]);
        }
        Ok(())
    }
}

/// The most columns a scan asks for.
pub(super) const MOST_COLUMNS: usize = 32;

/// The path as a URI that tells SQLite that nobody writes to the file, so that it makes no file beside it.
fn uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                uri.push(char::from(*byte))
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    uri
}
