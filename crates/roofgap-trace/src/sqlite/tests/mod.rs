//! The page reader compared with SQLite: on made-up tables, on real exports, and on damaged files.

mod damaged;
mod random;
mod unusual;

use super::scan::MOST_COLUMNS;
use super::{Database, Tables, Value};
use crate::ReadError;
use proptest::test_runner::{Config, RngSeed};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// A value that outlives its row. Numbers are compared by their bits.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owned {
    Null,
    Int(i64),
    Real(u64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

impl From<Value<'_>> for Owned {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Int(v) => Self::Int(v),
            Value::Real(v) => Self::Real(v.to_bits()),
            Value::Text(v) => Self::Text(v.to_vec()),
            Value::Blob(v) => Self::Blob(v.to_vec()),
        }
    }
}

type Rows = Vec<Vec<Owned>>;

fn own(values: &[Value<'_>]) -> Vec<Owned> {
    values.iter().copied().map(Owned::from).collect()
}

fn all(db: &Database, table: &str, columns: &[&str]) -> Result<Rows, ReadError> {
    let parts = db.scan(table, columns, |_| Vec::new(), |rows: &mut Rows, values| rows.push(own(values)))?;
    let scanned = parts.concat();
    let mut rows = Vec::new();
    db.each(table, columns, |values| rows.push(own(values)))?;
    assert_eq!(scanned, rows, "scan and each disagree on {table}");
    Ok(rows)
}

/// Reads columns of a table with SQLite, the oracle; a column that the table lacks is null.
fn by_sqlite(path: &Path, table: &str, columns: &[&str]) -> rusqlite::Result<Rows> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let known = columns_by_sqlite(&db, table)?;
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let column = |name: &&str| if known.iter().any(|c| c == name) { quoted(name) } else { "NULL".into() };
    let list: Vec<String> = columns.iter().map(column).chain(["NULL".into()]).collect();
    // An index that holds all the columns would be stepped through instead, in its own order.
    let mut statement =
        db.prepare(&format!("SELECT {} FROM {} NOT INDEXED", list.join(", "), quoted(table)))?;
    let mut found = statement.query([])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let value = |i| {
            Ok(match row.get_ref(i)? {
                ValueRef::Null => Owned::Null,
                ValueRef::Integer(v) => Owned::Int(v),
                ValueRef::Real(v) => Owned::Real(v.to_bits()),
                ValueRef::Text(v) => Owned::Text(v.to_vec()),
                ValueRef::Blob(v) => Owned::Blob(v.to_vec()),
            })
        };
        rows.push((0..columns.len()).map(value).collect::<rusqlite::Result<_>>()?);
    }
    Ok(rows)
}

fn columns_by_sqlite(db: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut names = db.prepare("SELECT name FROM pragma_table_xinfo(?1) ORDER BY cid")?;
    names.query_map([table], |row| row.get(0))?.collect()
}

/// Compares every table that is read, with all its columns; returns the number of rows.
fn agree(path: &Path) -> usize {
    let db = Database::open(path).unwrap();
    let sqlite = Connection::open(path).unwrap();
    let mut count = 0;
    for (table, found) in db.tables.iter().filter(|(_, table)| table.odd.is_none()) {
        let columns: Vec<&str> = found.columns.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(columns, columns_by_sqlite(&sqlite, table).unwrap(), "{table}");
        for columns in columns.chunks(MOST_COLUMNS) {
            let rows = all(&db, table, columns).unwrap();
            assert_eq!(rows, by_sqlite(path, table, columns).unwrap(), "{table}");
            count += rows.len();
        }
    }
    count
}

/// Random inputs that are the same in every run, so that a failure is one that can be looked at.
fn repeatable(cases: u32) -> Config {
    Config { cases, rng_seed: RngSeed::Fixed(20_250_731), failure_persistence: None, ..Config::default() }
}
