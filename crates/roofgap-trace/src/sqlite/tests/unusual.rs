//! Tables that are stored in another way, and real exports.

use super::{Owned, agree, all};
use crate::sqlite::Database;
use rusqlite::Connection;
use std::path::{Path, PathBuf};

fn write(folder: &Path, sql: &str) -> PathBuf {
    let path = folder.join("t.sqlite");
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    path
}

/// Returns the error from reading a column of a table.
fn refused(path: &Path, table: &str, column: &str) -> String {
    let read = Database::open(path).and_then(|db| all(&db, table, &[column]));
    read.unwrap_err().to_string()
}

#[test]
fn tables_in_another_form_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(
        folder.path(),
        "CREATE TABLE usual (a INT, b TEXT); INSERT INTO usual VALUES (1, 'x');
         CREATE TABLE no_row_ids (a TEXT PRIMARY KEY, b INT) WITHOUT ROWID; INSERT INTO no_row_ids VALUES ('k', 2);
         CREATE TABLE computed (a INT, b INT AS (a * 2) VIRTUAL, c INT AS (a + 1) STORED); INSERT INTO computed VALUES (3);
         CREATE TABLE altered (a INT); INSERT INTO altered VALUES (4);
         ALTER TABLE altered ADD COLUMN b INT NOT NULL DEFAULT 9;
         CREATE TABLE defaults (a INT DEFAULT (CAST(3 AS INT)), b INT DEFAULT 7); INSERT INTO defaults (a) VALUES (4);
         CREATE TABLE down (a INTEGER PRIMARY KEY DESC, b INT); INSERT INTO down VALUES (50, 6);
         CREATE TABLE key (b INT, \"a, (b\" INTEGER, PRIMARY KEY (\"A, (B\" DESC)); INSERT INTO key VALUES (60, 7);
         CREATE TABLE keys (a INTEGER, b INT, CONSTRAINT k PRIMARY KEY (a, b)); INSERT INTO keys VALUES (NULL, 7);
         CREATE TABLE strict (a INTEGER PRIMARY KEY, b ANY, c REAL) STRICT; INSERT INTO strict VALUES (7, '8', 9);
         CREATE TABLE commented (a INTEGER -- the id, as it were
           PRIMARY KEY, /* and ) */ [b] DECIMAL(10, 5) NOT NULL CHECK (b > 0), 'c' DOUBLE PRECISION);
         INSERT INTO commented VALUES (7, 8, 9);
         CREATE TABLE indexed (a INT, b INT); INSERT INTO indexed VALUES (2, 1), (1, 2);
         CREATE INDEX by_a ON indexed (a, b);
         CREATE VIRTUAL TABLE words USING fts5 (body); INSERT INTO words VALUES ('some text');",
    );
    for (table, column, named) in [
        ("no_row_ids", "a", "the table `no_row_ids` is stored WITHOUT ROWID"),
        ("computed", "a", "computed columns"),
        ("altered", "b", "a row older than a column that has a default value"),
        ("words", "body", "a virtual table"),
    ] {
        let error = refused(&path, table, column);
        assert!(error.contains(named), "{error}");
    }
    let db = Database::open(&path).unwrap();
    assert_eq!(all(&db, "altered", &["a"]).unwrap(), [[Owned::Int(4)]]);
    assert_eq!(all(&db, "defaults", &["b", "a"]).unwrap(), [[Owned::Int(7), Owned::Int(4)]]);
    assert_eq!(all(&db, "down", &["a", "b"]).unwrap(), [[Owned::Int(50), Owned::Int(6)]]);
    assert_eq!(all(&db, "key", &["a, (b"]).unwrap(), [[Owned::Int(7)]]);
    assert_eq!(all(&db, "usual", &[]).unwrap(), [Vec::new()]);
    assert_eq!(all(&db, "nowhere", &["a"]).unwrap(), Vec::<Vec<Owned>>::new());
    drop(db);
    Connection::open(&path).unwrap().execute_batch("DROP TABLE altered").unwrap();
    assert!(agree(&path) > 8);
}

#[test]
fn a_view_of_a_whole_table_is_read_as_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(
        folder.path(),
        "CREATE TABLE t (a INT, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y');
         CREATE VIEW v AS SELECT * FROM t;
         CREATE VIEW w AS SELECT b, a * 10 AS c FROM t;
         CREATE VIEW broken AS SELECT * FROM nowhere;",
    );
    let db = Database::open(&path).unwrap();
    assert_eq!(
        all(&db, "v", &["b", "a", "missing"]).unwrap(),
        [
            [Owned::Text("x".into()), Owned::Int(1), Owned::Null],
            [Owned::Text("y".into()), Owned::Int(2), Owned::Null]
        ]
    );
    let error = refused(&path, "w", "b");
    assert!(error.contains("`w` is a view with a query of its own, which is not read"), "{error}");
    assert!(db.tables().all(|table| table != "broken"));
}

#[test]
fn many_tables_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let tables: String = (0..2_000).map(|n| format!("CREATE TABLE t{n} (a INT);")).collect();
    let path = write(folder.path(), &format!("PRAGMA page_size = 512; BEGIN; {tables} COMMIT"));
    assert_eq!(Database::open(&path).unwrap().tables().count(), 2_000);
}

#[test]
fn text_in_another_encoding_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(
        folder.path(),
        "PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('ä')",
    );
    let error = refused(&path, "t", "a");
    assert!(error.contains("stored as UTF-16"), "{error}");
    assert!(error.contains("nsys export"), "{error}");
}

#[test]
fn bytes_kept_at_the_end_of_pages_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.sqlite");
    let packed =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sqlite/reserved.sqlite.gz"))
            .unwrap();
    let mut file = std::fs::File::create(&path).unwrap();
    std::io::copy(&mut flate2::read::GzDecoder::new(&packed[..]), &mut file).unwrap();
    assert_eq!(agree(&path), 500);
}

#[test]
fn real_exports_have_the_rows_that_sqlite_finds() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "h200/llama4.sqlite.gz",
        "h200/dsocr2.sqlite.gz",
        "nsys-versions/nsys-2022.4.2-cpu-nvtx.sqlite.gz",
        "nsys-versions/nsys-2023.4.4-cpu-nvtx.sqlite.gz",
    ] {
        let path = folder.path().join("capture.sqlite");
        let mut file = std::fs::File::create(&path).unwrap();
        let mut unpacked = roofgap_base::file::Unpacked::open(&fixtures.join(name)).unwrap();
        std::io::copy(&mut unpacked, &mut file).unwrap();
        assert!(agree(&path) > 100, "{name}");
    }
}
