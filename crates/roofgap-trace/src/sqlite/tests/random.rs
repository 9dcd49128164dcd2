//! Random tables.

use super::{Owned, all, by_sqlite, repeatable};
use crate::sqlite::Database;
use proptest::prelude::*;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};

impl ToSql for Owned {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(v) => ValueRef::Integer(*v),
            Self::Real(v) => ValueRef::Real(f64::from_bits(*v)),
            Self::Text(v) => ValueRef::Text(v),
            Self::Blob(v) => ValueRef::Blob(v),
        }))
    }
}

#[derive(Debug, Clone)]
struct Made {
    page_size: u32,
    auto_vacuum: u8,
    /// Written through a log that was merged at the end.
    log: bool,
    /// Written anew at the end.
    vacuum: bool,
    /// Declared types; the column of this position, if there is one, is the primary key.
    types: Vec<&'static str>,
    key: Option<usize>,
    rows: Vec<Vec<Owned>>,
    /// Every n-th row is deleted again.
    delete: usize,
    /// Rows from this one on have a column more.
    altered: usize,
    /// Which columns to ask for, in which order.
    asked: Vec<usize>,
}

fn value() -> impl Strategy<Value = Owned> {
    prop_oneof![
        2 => Just(Owned::Null),
        2 => (-2i64..3).prop_map(Owned::Int),
        6 => (any::<i64>(), 0u32..64).prop_map(|(v, shift)| Owned::Int(v >> shift)),
        2 => any::<f64>().prop_map(|v| Owned::Real(v.to_bits())),
        1 => (-1000i32..1000).prop_map(|v| Owned::Real(f64::from(v).to_bits())),
        3 => "\\PC{0,40}".prop_map(|v| Owned::Text(v.into_bytes())),
        2 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Owned::Blob),
        // Long enough to go on on other pages, whatever the page size.
        1 => (any::<u8>(), 300usize..20_000).prop_map(|(b, n)| Owned::Text(vec![b'a' + b % 26; n])),
    ]
}

fn made() -> impl Strategy<Value = Made> {
    let kinds = prop::sample::select(vec!["INTEGER", "REAL", "TEXT", "BLOB", "", "NUMERIC", "DOUBLE", "INT"]);
    (prop::collection::vec(kinds, 1..9), 0usize..120, 0usize..80).prop_flat_map(|(types, count, copies)| {
        let width = types.len();
        (
            prop::sample::select(vec![512u32, 1024, 4096, 65536]),
            0u8..3,
            (any::<bool>(), any::<bool>()),
            Just(types),
            prop::option::of(0..width),
            prop::collection::vec(prop::collection::vec(value(), width), count).prop_map(move |rows| {
                rows.iter().cycle().take(rows.len() * (1 + copies / 8)).cloned().collect()
            }),
            2usize..9,
            0usize..200,
            prop::sample::subsequence((0..=width).collect::<Vec<_>>(), 0..=width + 1).prop_shuffle(),
        )
            .prop_map(
                |(page_size, auto_vacuum, (log, vacuum), types, key, rows, delete, altered, asked)| Made {
                    page_size,
                    auto_vacuum,
                    log,
                    vacuum,
                    types,
                    key,
                    rows,
                    delete,
                    altered,
                    asked,
                },
            )
    })
}

fn name(column: usize) -> String {
    format!("c{column}")
}

fn write(made: &Made, path: &std::path::Path) -> rusqlite::Result<()> {
    let db = Connection::open(path)?;
    db.pragma_update(None, "page_size", made.page_size)?;
    db.pragma_update(None, "auto_vacuum", made.auto_vacuum)?;
    if made.log {
        db.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    }
    let columns: Vec<String> = made
        .types
        .iter()
        .enumerate()
        .map(|(i, kind)| match made.key {
            Some(key) if key == i => format!("{} INTEGER PRIMARY KEY", name(i)),
            _ => format!("{} {kind}", name(i)),
        })
        .collect();
    db.execute_batch(&format!("CREATE TABLE t ({}); BEGIN", columns.join(", ")))?;
    let places = |n| vec!["?"; n].join(", ");
    let mut altered = false;
    for (i, row) in made.rows.iter().enumerate() {
        if i == made.altered {
            db.execute_batch(&format!("ALTER TABLE t ADD COLUMN {} REAL", name(made.types.len())))?;
            altered = true;
        }
        let mut row = row.clone();
        if let Some(key) = made.key {
            // Ids that go up, down and repeat: the last writer of an id wins.
            row[key] =
                Owned::Int(if i % 3 == 0 { i as i64 } else { i64::MAX / 1000 * (i as i64 % 991 - 400) });
        }
        row.extend(altered.then_some(Owned::Int(i as i64)));
        db.prepare_cached(&format!("INSERT OR REPLACE INTO t VALUES ({})", places(row.len())))?
            .execute(params_from_iter(&row))?;
    }
    db.execute(&format!("DELETE FROM t WHERE rowid % {} = 0", made.delete), [])?;
    db.execute_batch(if made.vacuum { "COMMIT; VACUUM" } else { "COMMIT" })?;
    // The last to close merges the log and removes it.
    db.close().map_err(|(_, error)| error)
}

proptest! {
    #![proptest_config(repeatable(96))]

    #[test]
    fn pages_and_sqlite_give_the_same_rows(made in made()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.sqlite");
        write(&made, &path).unwrap();
        let asked: Vec<String> = made.asked.iter().map(|c| name(*c)).collect();
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        let fast = Database::open(&path).unwrap();
        let found = all(&fast, "t", &asked).unwrap();
        prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a file was made beside it");
        prop_assert_eq!(found, by_sqlite(&path, "t", &asked).unwrap());
    }
}

#[test]
fn a_tree_of_three_levels_is_read_by_all_processors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.sqlite");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "PRAGMA page_size = 512; CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
         INSERT INTO t SELECT i * 7, i * i, 'row ' || i FROM n",
    )
    .unwrap();
    drop(db);
    let fast = Database::open(&path).unwrap();
    let rows = all(&fast, "t", &["b", "nothing", "id"]).unwrap();
    assert_eq!(rows.len(), 60_000);
    assert_eq!(rows[59_999], [Owned::Text(b"row 60000".to_vec()), Owned::Null, Owned::Int(420_000)]);
    assert_eq!(rows, by_sqlite(&path, "t", &["b", "nothing", "id"]).unwrap());
}
