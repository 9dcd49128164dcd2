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

fn is_direct(db: &Database, table: &str, columns: &[&str]) -> bool {
    db.direct(&db.tables[table], columns).is_some()
}

#[test]
fn what_pages_cannot_tell_is_left_to_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(
        folder.path(),
        "CREATE TABLE usual (a INT, b TEXT); INSERT INTO usual VALUES (1, 'x');
         CREATE TABLE no_row_ids (a TEXT PRIMARY KEY, b INT) WITHOUT ROWID; INSERT INTO no_row_ids VALUES ('k', 2);
         CREATE TABLE computed (a INT, b INT AS (a * 2) VIRTUAL, c INT AS (a + 1) STORED); INSERT INTO computed VALUES (3);
         CREATE TABLE altered (a INT); INSERT INTO altered VALUES (4);
         ALTER TABLE altered ADD COLUMN b INT NOT NULL DEFAULT 9;
         CREATE TABLE down (a INTEGER PRIMARY KEY DESC, b INT); INSERT INTO down VALUES (50, 6);
         CREATE TABLE strict (a INTEGER PRIMARY KEY, b ANY, c REAL) STRICT; INSERT INTO strict VALUES (7, '8', 9);
         CREATE TABLE indexed (a INT, b INT); INSERT INTO indexed VALUES (2, 1), (1, 2);
         CREATE INDEX by_a ON indexed (a, b);
         CREATE VIRTUAL TABLE words USING fts5 (body); INSERT INTO words VALUES ('some text');",
    );
    let db = Database::open(&path).unwrap();
    assert!(is_direct(&db, "usual", &["b", "missing"]));
    assert!(!is_direct(&db, "usual", &["a", "a"]));
    assert!(!is_direct(&db, "no_row_ids", &["a"]));
    assert!(!is_direct(&db, "computed", &["a"]));
    assert!(!is_direct(&db, "altered", &["b"]));
    assert!(is_direct(&db, "altered", &["a"]));
    assert!(is_direct(&db, "down", &["a"]));
    assert!(is_direct(&db, "strict", &["a", "b", "c"]));
    let error = all(&db, "words", &["body"]).unwrap_err().to_string();
    assert!(error.contains("virtual table"), "{error}");
    assert_eq!(all(&db, "altered", &["b"]).unwrap(), [[Owned::Int(9)]]);
    assert_eq!(all(&db, "down", &["a", "b"]).unwrap(), [[Owned::Int(50), Owned::Int(6)]]);
    assert_eq!(all(&db, "usual", &["a", "a"]).unwrap(), [[Owned::Int(1), Owned::Int(1)]]);
    assert_eq!(all(&db, "usual", &[]).unwrap(), [Vec::new()]);
    assert_eq!(all(&db, "usual", &["a"; 40]).unwrap()[0].len(), 40);
    assert_eq!(all(&db, "nowhere", &["a"]).unwrap(), Vec::<Vec<Owned>>::new());
    assert!(agree(&path) > 8);
}

#[test]
fn a_view_is_read_as_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(
        folder.path(),
        "CREATE TABLE t (a INT, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y');
         CREATE VIEW v AS SELECT b, a * 10 AS c FROM t;
         CREATE VIEW broken AS SELECT * FROM nowhere;",
    );
    let db = Database::open(&path).unwrap();
    assert!(!is_direct(&db, "v", &["b"]));
    assert_eq!(
        all(&db, "v", &["c", "b", "missing"]).unwrap(),
        [
            [Owned::Int(10), Owned::Text("x".into()), Owned::Null],
            [Owned::Int(20), Owned::Text("y".into()), Owned::Null]
        ]
    );
    assert!(!db.has("broken"));
}

#[test]
fn a_file_that_keeps_sqlite_busy_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let branches: String = (1..4_000).map(|n| format!("WHEN {n} THEN {n} ")).collect();
    let path = write(
        folder.path(),
        &format!(
            "CREATE TABLE t (a INT, b INT AS (CASE a {branches} END) VIRTUAL);
             INSERT INTO t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 40000) SELECT 0 FROM n;
             CREATE TABLE few (a INT, b INT AS (CASE a {branches} END) VIRTUAL); INSERT INTO few VALUES (3);"
        ),
    );
    let db = Database::open(&path).unwrap();
    assert_eq!(all(&db, "few", &["b"]).unwrap(), [[Owned::Int(3)]]);
    let error = all(&db, "t", &["b"]).unwrap_err().to_string();
    assert!(error.contains("more steps than its length explains"), "{error}");
}

#[test]
fn many_tables_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let tables: String = (0..2_000).map(|n| format!("CREATE TABLE t{n} (a INT);")).collect();
    let path = write(folder.path(), &format!("PRAGMA page_size = 512; BEGIN; {tables} COMMIT"));
    assert_eq!(Database::open(&path).unwrap().tables().count(), 2_000);
}

#[test]
fn an_expression_beyond_the_limits_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let deep = format!("{}a{}", "(1+".repeat(300), ")".repeat(300));
    let path = write(
        folder.path(),
        &format!("CREATE TABLE t (a INT, b INT AS ({deep}) VIRTUAL); INSERT INTO t VALUES (1)"),
    );
    let result = Database::open(&path).and_then(|db| all(&db, "t", &["b"]));
    let error = result.unwrap_err().to_string();
    assert!(error.contains("depth"), "{error}");
}

#[test]
fn text_in_another_encoding_is_left_to_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(
        folder.path(),
        "PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('ä')",
    );
    let db = Database::open(&path).unwrap();
    assert!(!is_direct(&db, "t", &["a"]));
    assert_eq!(all(&db, "t", &["a"]).unwrap(), [[Owned::Text("ä".into())]]);
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
    let db = Database::open(&path).unwrap();
    assert!(is_direct(&db, "t", &["a", "b"]));
    assert_eq!(agree(&path), 500);
}

#[test]
fn real_exports_read_the_same_both_ways() {
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
