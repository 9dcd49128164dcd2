//! `compact` keeps every answer, and `check` finds damage.

use crate::support::{TestLake, answer, ok, put, run, same};
use roofgap_lake::query::saved::Query;
use serde_json::Value;
use std::collections::BTreeMap;

/// One day, two projects, two hosts; one file for each run.
const SMALL: [&str; 7] = ["--runs", "24", "--days", "1", "--hosts", "2", "--single"];

/// Answers every saved query, in this process, which opens the lake once.
fn answers(lake: &TestLake) -> BTreeMap<String, Value> {
    let engine = lake.engine();
    let answer = |query: Query| (query.name.to_owned(), answer(&engine, query));
    Query::all().map(answer).collect()
}

fn assert_same(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>, when: &str) {
    assert!(before.len() >= 15, "{} saved queries", before.len());
    for (name, rows) in before {
        assert!(
            same(rows, &after[name]),
            "{name} {when}:\n{rows:#}\n{:#}",
            after[name]
        );
    }
}

#[test]
fn compacting_keeps_every_answer_at_every_moment() {
    let (lake, _) = TestLake::synthetic(&SMALL);
    let before = answers(&lake);
    let counts = lake.counts();
    let single = lake.files();
    let text = ok(["compact", "--lake", lake.path()]);
    assert!(text.contains("replace"), "{text}");
    let merged = lake.files();
    assert_same(&before, &answers(&lake), "after compact");
    let is_table = |(path, _): &&(String, Vec<u8>)| path.ends_with(".parquet");
    assert!(merged.iter().filter(is_table).count() * 4 < single.iter().filter(is_table).count());
    assert!(ok(["check", "--lake", lake.path()]).contains("0 problems"));
    // Killed before anything was removed: every row is there twice.
    for (path, bytes) in &single {
        put(&lake, path, bytes);
    }
    assert_same(&before, &answers(&lake), "with the old files");
    assert_eq!(counts, lake.counts());
    assert_eq!(run(["check", "--lake", lake.path()]).status, Some(0));
    // Killed while the old files were removed. A table with one file in a partition keeps it.
    let is_replaced = |path: &str| !merged.iter().any(|(kept, _)| kept == path);
    for (path, _) in single.iter().filter(|(path, _)| is_replaced(path)).step_by(2) {
        std::fs::remove_file(lake.0.path().join(path)).unwrap();
    }
    assert_eq!(counts, lake.counts());
    ok(["compact", "--lake", lake.path()]);
    assert_eq!(merged, lake.files());
    // A second compact has nothing to do.
    assert!(ok(["compact", "--lake", lake.path()]).starts_with("0 merged files"));
}

#[test]
fn runs_that_are_added_after_compacting_are_merged_with_the_others() {
    let (lake, _) = TestLake::synthetic(&SMALL);
    ok(["compact", "--lake", lake.path()]);
    let first = lake.files();
    let runs = lake.count("runs");
    let (more, _) = TestLake::synthetic(&[
        "--runs", "16", "--days", "1", "--hosts", "2", "--single", "--seed", "2",
    ]);
    for (path, bytes) in more.files() {
        put(&lake, &path, &bytes);
    }
    assert_eq!(lake.count("runs"), runs + 16);
    ok(["compact", "--lake", lake.path()]);
    assert_eq!(lake.count("runs"), runs + 16);
    let second = lake.files();
    // Killed before the first merged files were removed.
    for (path, bytes) in &first {
        put(&lake, path, bytes);
    }
    assert_eq!(lake.count("runs"), runs + 16);
    assert_eq!(lake.count("stages"), (runs + 16) * 10);
    ok(["compact", "--lake", lake.path()]);
    assert_eq!(second, lake.files());
}

#[test]
fn check_finds_what_is_planted() {
    let (lake, _) = TestLake::synthetic(&["--runs", "4", "--days", "1", "--hosts", "2", "--single"]);
    let path = |table: &str| {
        let files = lake.files();
        let file = files
            .into_iter()
            .find(|(path, _)| path.starts_with(&format!("{table}/")));
        file.unwrap()
    };
    let check = |kind: &str, why: &str, status: i32| {
        let run = run(["check", "--lake", lake.path()]);
        assert_eq!(run.status, Some(status), "{kind}: {}", run.stdout);
        let found = run
            .stdout
            .lines()
            .any(|line| line.starts_with(kind) && line.contains(why));
        assert!(found, "{kind}: {why}:\n{}", run.stdout);
    };
    assert!(ok(["check", "--lake", lake.path()]).contains("0 problems"));
    let restored = |planted: &str, bytes: Option<&[u8]>| match bytes {
        Some(bytes) => put(&lake, planted, bytes),
        None => std::fs::remove_file(lake.0.path().join(planted)).unwrap(),
    };

    let (stages, bytes) = path("stages");
    put(&lake, &stages, &bytes[..bytes.len() / 2]);
    check("damaged", &stages, 3);
    let mut flipped = bytes.clone();
    flipped
        .iter_mut()
        .skip(40)
        .take(64)
        .for_each(|byte| *byte ^= 0x55);
    put(&lake, &stages, &flipped);
    check("damaged", &stages, 3);
    restored(&stages, Some(&bytes));

    let other = format!("{}0000.parquet", &stages[..stages.len() - 12]);
    put(&lake, &other, &bytes);
    check("damaged", "it has a row of the run", 3);
    restored(&other, None);

    // The rows of another table.
    let (_, kernels) = path("kernels");
    put(&lake, &stages, &kernels);
    check("damaged", "in place of", 3);
    restored(&stages, Some(&bytes));

    put(&lake, "stages/date=2026-03-01/notes.parquet", &bytes);
    check("foreign", "notes.parquet", 3);
    restored("stages/date=2026-03-01/notes.parquet", None);

    let (runs, row) = path("runs");
    let moved = runs.replace("host=gpu-00", "host=gpu-01");
    assert_ne!(moved, runs);
    put(&lake, &moved, &row);
    check("duplicate", "is in", 3);
    restored(&moved, None);

    std::fs::remove_file(lake.0.path().join(&runs)).unwrap();
    check("orphan", "not in the table runs", 0);
    restored(&runs, Some(&row));

    put(
        &lake,
        &runs
            .replace(".parquet", ".parquet.tmp")
            .replace("gpu-00/", "gpu-00/."),
        b"PAR1",
    );
    check("temporary", "not finished", 0);
}
