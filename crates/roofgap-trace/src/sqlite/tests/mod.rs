//! The two engines held against each other: on made-up tables, on real exports, and on damaged files.

mod damaged;
mod random;
mod unusual;

use super::{Database, Value};
use crate::ReadError;
use proptest::test_runner::{Config, RngSeed};
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
    let parts = db.scan(table, columns, Vec::new, |rows: &mut Rows, values| rows.push(own(values)))?;
    let scanned = parts.concat();
    let mut rows = Vec::new();
    db.each(table, columns, |values| rows.push(own(values)))?;
    assert_eq!(scanned, rows, "scan and each disagree on {table}");
    Ok(rows)
}

fn plain(path: &Path) -> Result<Database, ReadError> {
    Ok(Database::open(path)?.without_pages())
}

/// Every table with all its columns through both engines; how many rows there were.
fn agree(path: &Path) -> usize {
    let (fast, slow) = (Database::open(path).unwrap(), plain(path).unwrap());
    let mut count = 0;
    for (table, found) in fast.tables.iter().filter(|(_, table)| !table.refused) {
        let columns: Vec<&str> = found.columns.iter().map(|c| c.name.as_str()).collect();
        let rows = all(&fast, table, &columns).unwrap();
        assert_eq!(rows, all(&slow, table, &columns).unwrap(), "{table}");
        count += rows.len();
    }
    count
}

/// Random inputs that are the same in every run, so that a failure is one that can be looked at.
fn repeatable(cases: u32) -> Config {
    Config { cases, rng_seed: RngSeed::Fixed(20_250_731), failure_persistence: None, ..Config::default() }
}
