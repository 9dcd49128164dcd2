//! SQLite's own engine as the reader of rows: slow, and right by definition.

use super::schema::{Column, Table, has_real_affinity};
use super::{MOST_COLUMNS, Value, view};
use crate::{ReadError, temporary};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Limit of views in a file; exports of nsys have none.
const MOST_VIEWS: usize = 256;

/// Limits of SQLite, far above what an export of nsys needs.
const LIMITS: [(Limit, i32); 8] = [
    (Limit::SQLITE_LIMIT_LENGTH, 256 << 20),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 20),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 100),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 10),
    (Limit::SQLITE_LIMIT_VDBE_OP, 100_000),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];

/// Steps of SQLite's virtual machine between two checks of the budget.
const STEPS_AT_ONCE: i32 = 10_000;

/// Budget for a file, steps: a fixed part, and a part that grows with its length. A row has at least two bytes on its page and takes
/// about as many steps as columns.
const STEPS: u64 = 50_000_000;
const STEPS_PER_BYTE: u64 = 64;

#[derive(Debug)]
pub struct Plain {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Plain {
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |e| ReadError::damaged(path, "SQLite file", e);
        let mut connection =
            temporary::open_by_name(path, |path| Connection::open_with_flags(uri(path), flags))
                .map_err(|e| ReadError::io(path, e))?
                .map_err(failed)?;
        // The schema of a file from elsewhere may call functions and modules; only the harmless ones run.
        for (setting, on) in
            [(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true), (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)]
        {
            connection.set_db_config(setting, on).map_err(failed)?;
        }
        for (limit, most) in LIMITS {
            connection.set_limit(limit, most).map_err(failed)?;
        }
        let bytes = std::fs::metadata(path).map_or(0, |facts| facts.len());
        let mut left = (STEPS + STEPS_PER_BYTE * bytes) / STEPS_AT_ONCE as u64;
        let is_spent = move || {
            left = left.saturating_sub(1);
            left == 0
        };
        connection.progress_handler(STEPS_AT_ONCE, Some(is_spent)).map_err(failed)?;
        Ok(Self { path: path.to_path_buf(), connection: Mutex::new(connection) })
    }

    fn damaged(&self, error: rusqlite::Error) -> ReadError {
        let what = match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::OperationInterrupted) => {
                "reading it takes far more steps than its length explains".to_owned()
            }
            _ => error.to_string(),
        };
        ReadError::damaged(&self.path, "SQLite file", what)
    }

    fn connection(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn refused(&self, view: &str) -> ReadError {
        ReadError::Unsupported {
            path: self.path.clone(),
            what: format!("`{view}` is a view with a query of its own or a virtual table, which is not run"),
            remedy: "export the report again with `nsys export --type sqlite`".into(),
        }
    }

    /// Reads the names of all tables and views, without their columns.
    pub fn names(&self) -> Result<Vec<String>, ReadError> {
        let connection = self.connection();
        let mut statement = connection
            .prepare("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
            .map_err(|e| self.damaged(e))?;
        let names = statement.query_map([], |row| row.get(0));
        names.and_then(Iterator::collect).map_err(|e| self.damaged(e))
    }

    /// Reads the text of every view.
    fn views(&self, connection: &Connection) -> rusqlite::Result<BTreeMap<String, String>> {
        let sql = "SELECT name, ifnull(sql, '') FROM sqlite_master WHERE type = 'view'";
        let mut statement = connection.prepare(sql)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    }

    /// Returns, for each table and view, true if it is a usual table, and true if it is a virtual one.
    fn kinds(&self, connection: &Connection) -> rusqlite::Result<BTreeMap<String, (bool, bool)>> {
        let sql = "SELECT name, type = 'table' AND NOT wr, type = 'virtual' FROM pragma_table_list WHERE schema = 'main'";
        let mut statement = connection.prepare(sql)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
        rows.collect()
    }

    /// Reads every table and view with its columns.
    ///
    /// # Errors
    /// Fails when the schema is damaged, and for views of views, whose columns can take forever to find out.
    pub fn schema(&self) -> Result<BTreeMap<String, Table>, ReadError> {
        let connection = self.connection();
        let views = self.views(&connection).map_err(|e| self.damaged(e))?;
        for (name, sql) in &views {
            let nested = || views.keys().any(|other| other != name && view::mentions(sql, other));
            if views.len() > MOST_VIEWS || view::table_of(sql).is_none() && nested() {
                return Err(self.refused(name));
            }
        }
        let kinds = self.kinds(&connection).map_err(|e| self.damaged(e))?;
        let mut statement = connection
            .prepare("SELECT name, rootpage FROM sqlite_master WHERE type IN ('table', 'view')")
            .map_err(|e| self.damaged(e))?;
        let found = statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .and_then(Iterator::collect::<Result<Vec<(String, Option<u32>)>, _>>)
            .map_err(|e| self.damaged(e))?;
        let mut tables = BTreeMap::new();
        for (name, root) in found {
            let Some(&(usual, is_virtual)) = kinds.get(&name) else {
                continue;
            };
            // A simple view of another view would run the query of that one.
            let is_simple = |sql: &String| {
                view::table_of(sql).is_some_and(|base| !views.keys().any(|v| v.eq_ignore_ascii_case(&base)))
            };
            // The rows of a virtual table come from a module, which steps through them uncounted.
            if is_virtual || views.get(&name).is_some_and(|sql| !is_simple(sql)) {
                let table = Table { columns: Vec::new(), root: None, refused: true };
                tables.insert(name, table);
                continue;
            }
            match self.table(&connection, &name, root.filter(|page| usual && *page > 1)) {
                Ok(table) => _ = tables.insert(name, table),
                // A view of what is not here has no rows that anybody could read.
                Err(_) if !usual => {}
                Err(error) => return Err(self.damaged(error)),
            }
        }
        Ok(tables)
    }

    fn table(&self, connection: &Connection, name: &str, root: Option<u32>) -> rusqlite::Result<Table> {
        let mut statement = connection.prepare_cached(
            "SELECT name, type, dflt_value IS NOT NULL, pk, hidden, \
             EXISTS (SELECT 1 FROM pragma_index_list(?1) WHERE origin = 'pk') FROM pragma_table_xinfo(?1) ORDER BY cid",
        )?;
        let mut rows = statement.query([name])?;
        let (mut columns, mut keys, mut root) = (Vec::new(), 0, root);
        while let Some(row) = rows.next()? {
            let declared: String = row.get(1)?;
            let (key, hidden, indexed): (i64, i64, bool) = (row.get(3)?, row.get(4)?, row.get(5)?);
            if hidden != 0 {
                // Computed columns: the record does not store what the table shows.
                root = None;
            }
            keys += i64::from(key != 0);
            columns.push(Column {
                name: row.get(0)?,
                row_id: key == 1 && !indexed && declared.eq_ignore_ascii_case("INTEGER"),
                real: has_real_affinity(&declared),
                default: row.get(2)?,
            });
        }
        if keys > 1 {
            columns.iter_mut().for_each(|c| c.row_id = false);
        }
        Ok(Table { columns, root, refused: false })
    }

    /// Steps through all rows of a table in the order of their ids.
    pub fn scan(
        &self,
        name: &str,
        table: &Table,
        columns: &[&str],
        row: &mut dyn FnMut(&[Value<'_>]),
    ) -> Result<(), ReadError> {
        if table.refused {
            return Err(self.refused(name));
        }
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let list: Vec<String> = columns
            .iter()
            .map(|c| if table.position(c).is_some() { quoted(c) } else { "NULL".into() })
            .collect();
        let list = if list.is_empty() { "NULL".into() } else { list.join(", ") };
        let connection = self.connection();
        // An index that holds all the columns would be stepped through instead, in its own order.
        let sql = format!("SELECT {list} FROM {} NOT INDEXED", quoted(name));
        let mut statement = connection.prepare(&sql).map_err(|e| self.damaged(e))?;
        let mut rows = statement.query([]).map_err(|e| self.damaged(e))?;
        while let Some(found) = rows.next().map_err(|e| self.damaged(e))? {
            let mut few = [Value::Null; MOST_COLUMNS];
            let mut many = Vec::new();
            let values = match few.get_mut(..columns.len()) {
                Some(few) => few,
                None => {
                    many.resize(columns.len(), Value::Null);
                    many.as_mut_slice()
                }
            };
            for (i, value) in values.iter_mut().enumerate() {
                *value = match found.get_ref(i).map_err(|e| self.damaged(e))? {
                    ValueRef::Null => Value::Null,
                    ValueRef::Integer(v) => Value::Int(v),
                    ValueRef::Real(v) => Value::Real(v),
                    ValueRef::Text(v) => Value::Text(v),
                    ValueRef::Blob(v) => Value::Blob(v),
                };
            }
            row(values);
        }
        Ok(())
    }
}

/// Formats the path as a URI for an immutable file, so that SQLite creates no file beside it.
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
