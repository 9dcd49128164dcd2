//! Damaged files: the right rows or an error, never a panic, never a part.

use super::{all, by_sqlite, repeatable};
use crate::ReadError;
use crate::sqlite::Database;
use proptest::prelude::*;
use rusqlite::Connection;
use std::path::Path;
use std::sync::LazyLock;

/// A file of some hundred pages: inner pages, long rows, a free list.
static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.sqlite");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "PRAGMA page_size = 512; CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT, c REAL);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
         INSERT INTO t SELECT i, i * i * i, substr('abcdefghij', 1, i % 11), i * 0.5 FROM n;
         UPDATE t SET b = printf('%.*c', id * 3, 'x') WHERE id % 97 = 0;
         DELETE FROM t WHERE id BETWEEN 300 AND 700;
         CREATE TABLE n (a INT, b INT, c INT, d INT);
         INSERT INTO n SELECT id, a * a, id % 3, CASE WHEN id % 7 THEN -a END FROM t",
    )
    .unwrap();
    drop(db);
    std::fs::read(&path).unwrap()
});

/// Bytes before the first page's own.
const HEADER: usize = 100;

const COLUMNS: [&str; 4] = ["c", "b", "id", "a"];

/// Rows of mixed values, and rows of integers alone, which have a way of their own.
const ASKED: [(&str, &[&str]); 4] =
    [("t", &COLUMNS), ("t", &["a", "id"]), ("n", &["d", "c", "b", "a"]), ("n", &["c", "a"])];

/// Counts the questions that were answered; the answers must be SQLite's own, where it does not refuse the schema.
fn held(path: &Path) -> usize {
    let Ok(fast) = Database::open(path) else { return 0 };
    let mut answered = 0;
    for (table, columns) in ASKED {
        match all(&fast, table, columns) {
            Ok(rows) => {
                match by_sqlite(path, table, columns) {
                    Ok(expected) => assert_eq!(rows, expected),
                    Err(error) => assert!(error.to_string().contains("malformed database schema"), "{error}"),
                }
                answered += 1;
            }
            Err(ReadError::Damaged { .. } | ReadError::Io { .. } | ReadError::Unsupported { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    answered
}

proptest! {
    #![proptest_config(repeatable(128))]

    #[test]
    fn changed_bytes_give_the_same_rows_or_an_error(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut bytes = SOUND.clone();
        for (at, value) in flips {
            let at = HEADER + at.index(bytes.len() - HEADER);
            bytes[at] = value;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        held(file.path());
    }

    // Damage where it hurts: in the headers of pages and their first cells.
    #[test]
    fn changed_page_headers_give_the_same_rows_or_an_error(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0usize..16, any::<u8>()), 1..4),
    ) {
        let mut bytes = SOUND.clone();
        for (page, at, value) in flips {
            let page = 1 + page.index(bytes.len() / 512 - 1);
            bytes[page * 512 + at] = value;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        held(file.path());
    }
}

#[test]
fn a_file_cut_off_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for keep in [0, 50, 100, 511, 512, 5_000, SOUND.len() - 1] {
        std::fs::write(file.path(), &SOUND[..keep]).unwrap();
        assert!(matches!(Database::open(file.path()), Err(ReadError::Damaged { .. })), "{keep}");
    }
    std::fs::write(file.path(), &*SOUND).unwrap();
    assert_eq!(held(file.path()), ASKED.len());
}

#[test]
fn an_inner_page_below_itself_ends_in_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &*SOUND).unwrap();
    let root = Database::open(file.path()).unwrap().tables["t"].root as usize;
    let mut bytes = SOUND.clone();
    let page = (root - 1) * 512;
    assert_eq!(bytes[page], 5, "the root is an inner page");
    bytes[page + 8..page + 12].copy_from_slice(&(root as u32).to_be_bytes());
    std::fs::write(file.path(), &bytes).unwrap();
    let db = Database::open(file.path()).unwrap();
    let error = all(&db, "t", &COLUMNS).unwrap_err();
    assert!(error.to_string().contains("referred to twice"), "{error}");
}

#[test]
fn a_changed_header_gives_the_same_rows_or_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for at in 0..HEADER {
        for value in [1, 0xff] {
            let mut bytes = SOUND.clone();
            bytes[at] = value;
            std::fs::write(file.path(), &bytes).unwrap();
            let Ok(fast) = Database::open(file.path()) else {
                continue;
            };
            for (table, columns) in ASKED {
                // SQLite also refuses headers that say nothing about rows, such as one that claims a page of pointers.
                let slow = by_sqlite(file.path(), table, columns);
                if let (Ok(fast), Ok(slow)) = (all(&fast, table, columns), slow) {
                    assert_eq!(fast, slow, "byte {at} is {value}");
                }
            }
        }
    }
}

/// Rows of `t` that are not yet in the file for good.
const UNFINISHED: &str = "PRAGMA cache_size = 5; BEGIN; UPDATE t SET a = a + 1, b = b || 'more than before'";

#[test]
fn a_file_in_the_middle_of_a_change_is_refused() {
    for mode in ["delete", "persist", "truncate"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.sqlite");
        std::fs::write(&path, &*SOUND).unwrap();
        let db = Connection::open(&path).unwrap();
        db.pragma_update_and_check(None, "journal_mode", mode, |_| Ok(())).unwrap();
        db.execute_batch(UNFINISHED).unwrap();
        let error = Database::open(&path).unwrap_err();
        assert!(error.to_string().contains("a journal lies beside it"), "{mode}: {error}");
        db.execute_batch("COMMIT").unwrap();
        assert_eq!(held(&path), ASKED.len(), "{mode}");
    }
}

#[test]
fn a_file_whose_log_is_not_merged_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.sqlite");
    std::fs::write(&path, &*SOUND).unwrap();
    let db = Connection::open(&path).unwrap();
    db.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).unwrap();
    db.execute_batch("UPDATE t SET a = a + 1").unwrap();
    let error = Database::open(&path).unwrap_err();
    assert!(error.to_string().contains("a write-ahead log"), "{error}");
    drop(db);
    assert_eq!(held(&path), ASKED.len());
}

/// Every long row claims to be eight times as long, over a page that goes on on itself: the time must not be the product.
#[test]
fn rows_that_share_their_pages_end_in_an_error() {
    const PAGE: usize = 512;
    // Lengths of which the same part lies on the leaf.
    const LENGTH: u16 = 1003;
    const CLAIMED: u16 = 8115;
    const LOCAL: usize = 39;
    let two = |v: u16| [(v >> 7) as u8 | 0x80, v as u8 & 0x7f];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.sqlite");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "PRAGMA page_size = 512; CREATE TABLE t (a TEXT);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
         INSERT INTO t SELECT printf('%.*c', 1000, 'x') FROM n",
    )
    .unwrap();
    drop(db);
    let mut bytes = std::fs::read(&path).unwrap();
    let number = |bytes: &[u8], at: usize| usize::from(bytes[at]) << 8 | usize::from(bytes[at + 1]);
    let mut changed = 0;
    for page in (PAGE..bytes.len()).step_by(PAGE) {
        let cells = number(&bytes, page + 3);
        if bytes[page] != 0x0d || 8 + 2 * cells > PAGE {
            continue;
        }
        for cell in 0..cells {
            let at = page + number(&bytes, page + 8 + 2 * cell);
            if bytes[at..at + 2] == two(LENGTH) {
                bytes[at..at + 2].copy_from_slice(&two(CLAIMED));
                // The one value of the row, a text, behind three bytes that say so.
                bytes[at + 4..at + 6].copy_from_slice(&two(13 + 2 * (CLAIMED - 3)));
                let next = at + 3 + LOCAL;
                let first = number(&bytes, next + 2);
                let itself: [u8; 4] = bytes[next..next + 4].try_into().unwrap();
                bytes[(first - 1) * PAGE..][..4].copy_from_slice(&itself);
                changed += 1;
            }
        }
    }
    assert_eq!(changed, 100);
    std::fs::write(&path, &bytes).unwrap();
    let error = all(&Database::open(&path).unwrap(), "t", &["a"]).unwrap_err();
    assert!(error.to_string().contains("rows longer than the file"), "{error}");
}
