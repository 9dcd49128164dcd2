//! `compact` keeps every answer, and `check` finds damage.

use crate::support::{TestLake, answer, ok, put, run, same};
use roofgap_lake::compact::{Limits, compact};
use roofgap_lake::query::saved::Query;
use roofgap_lake::store::Store;
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
        assert!(same(rows, &after[name]), "{name} {when}:\n{rows:#}\n{:#}", after[name]);
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
    let (more, _) =
        TestLake::synthetic(&["--runs", "16", "--days", "1", "--hosts", "2", "--single", "--seed", "2"]);
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

/// Copies the files of a lake whose paths pass a test into another lake.
fn copy(from: &[(String, Vec<u8>)], to: &TestLake, is_copied: impl Fn(&str) -> bool) {
    for (path, bytes) in from.iter().filter(|(path, _)| is_copied(path)) {
        put(to, path, bytes);
    }
}

#[test]
fn a_large_partition_has_several_merged_files() {
    let (lake, _) = TestLake::synthetic(&SMALL);
    let (before, counts) = (answers(&lake), lake.counts());
    let limits = Limits { runs: 4, ..Limits::default() };
    let merge = || compact(&Store::open(lake.path()).unwrap(), limits).unwrap();
    let paths = || -> Vec<String> { lake.files().into_iter().map(|(path, _)| path).collect() };
    assert!(merge().written > 0);
    // 24 runs in four partitions: four and two runs in each.
    let runs = paths().into_iter().filter(|path| path.starts_with("runs/"));
    assert_eq!(runs.count(), 8);
    assert_same(&before, &answers(&lake), "in several files");
    assert_eq!(counts, lake.counts());
    assert!(ok(["check", "--lake", lake.path()]).contains("0 problems"));
    assert_eq!(merge().written, 0);
    // By size: no two files fit into one.
    let (lake, _) = TestLake::synthetic(&SMALL);
    let small = Limits { bytes: 1, ..Limits::default() };
    assert_eq!(compact(&Store::open(lake.path()).unwrap(), small).unwrap().written, 0);
    // A file of the full size is left alone, and the others are merged.
    let merge = |full_bytes| {
        let limits = Limits { full_bytes, ..Limits::default() };
        compact(&Store::open(lake.path()).unwrap(), limits).unwrap()
    };
    assert_eq!(merge(1).written, 0);
    assert!(merge(u64::MAX).written > 0);
    assert_eq!(counts, lake.counts());
}

#[test]
fn merged_files_that_overlap_are_found_and_repaired() {
    let (lake, _) = TestLake::synthetic(&["--runs", "4", "--days", "1", "--hosts", "1", "--single"]);
    let all = lake.files();
    let counts = lake.counts();
    let keys: Vec<&str> = all
        .iter()
        .filter(|(path, _)| path.starts_with("runs/") && path.contains("project=chat"))
        .map(|(path, _)| path.rsplit_once('/').unwrap().1)
        .collect();
    assert_eq!(keys.len(), 2);
    // Three runs in one partition: those of the other project moved there would be other runs, so one more is added.
    let (more, _) =
        TestLake::synthetic(&["--runs", "2", "--days", "1", "--hosts", "1", "--single", "--seed", "2"]);
    let more = more.files();
    let third = |path: &str| path.contains("project=chat");
    copy(&more, &lake, third);
    let counts_of_three = lake.counts();
    assert_ne!(counts, counts_of_three);
    let three = lake.files();
    // Two compactions at once, each of which sees another two of the three runs.
    let mut merged = Vec::new();
    for hidden in &keys {
        let part = TestLake::new();
        copy(&three, &part, |path| !path.ends_with(hidden));
        ok(["compact", "--lake", part.path()]);
        merged.push(part);
    }
    let both = TestLake::new();
    for part in &merged {
        copy(&part.files(), &both, |_| true);
    }
    assert_eq!(both.count("runs"), counts_of_three[0] + 1);
    let found = run(["check", "--lake", both.path(), "--quick"]);
    assert_eq!(found.status, Some(3), "{}", found.stdout);
    assert!(found.stdout.contains("duplicate  runs/"), "{}", found.stdout);
    ok(["compact", "--lake", both.path()]);
    assert_eq!(both.counts(), counts_of_three);
    assert_eq!(run(["check", "--lake", both.path()]).status, Some(0));
}

#[test]
fn the_newer_error_of_an_input_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let lake = TestLake::new();
    let add = |name: &str, content: &str, options: &[&str]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let mut args = vec!["add", path.to_str().unwrap(), "--to", lake.path()];
        args.extend(["--date", "2026-03-01"]);
        args.extend(options);
        assert_eq!(run(args).status, Some(2));
    };
    add("a.rgcap", "not a capture", &[]);
    add("b.rgcap", "nor this", &[]);
    ok(["compact", "--lake", lake.path()]);
    // The same content under another name: the source is that of the last attempt.
    add("c.rgcap", "not a capture", &[]);
    ok(["compact", "--lake", lake.path()]);
    let rows = lake.ask("select source from errors order by source");
    let names: Vec<&str> =
        rows.iter().map(|row| row["source"].as_str().unwrap().rsplit_once('/').unwrap().1).collect();
    assert_eq!(names, ["b.rgcap", "c.rgcap"]);
    assert!(ok(["compact", "--lake", lake.path()]).starts_with("0 merged files"));
}

#[test]
fn a_query_never_mixes_two_states_of_a_lake() {
    let (lake, _) = TestLake::synthetic(&SMALL);
    let count = "select count(*) as n from stages";
    let opened = lake.engine();
    // `add` finishes a run after the tables were opened.
    let (more, _) =
        TestLake::synthetic(&["--runs", "4", "--days", "1", "--hosts", "2", "--single", "--seed", "2"]);
    copy(&more.files(), &lake, |_| true);
    let answer = opened.query(count).unwrap().json().unwrap();
    assert_eq!(String::from_utf8(answer).unwrap().trim(), "[{\"n\":240}]");
    assert_eq!(lake.count("stages"), 280);
    // `compact` removes what was opened: neither fewer rows nor rows twice.
    let opened = lake.engine();
    ok(["compact", "--lake", lake.path()]);
    let error = opened.query(count).unwrap_err().to_string();
    assert!(error.contains("ask again"), "{error}");
    assert_eq!(lake.count("stages"), 280);
}

#[test]
fn check_finds_what_is_planted() {
    let (lake, _) = TestLake::synthetic(&["--runs", "4", "--days", "1", "--hosts", "2", "--single"]);
    let path = |table: &str| {
        let files = lake.files();
        let file = files.into_iter().find(|(path, _)| path.starts_with(&format!("{table}/")));
        file.unwrap()
    };
    let check = |kind: &str, why: &str, status: i32| {
        let run = run(["check", "--lake", lake.path()]);
        assert_eq!(run.status, Some(status), "{kind}: {}", run.stdout);
        let found = run.stdout.lines().any(|line| line.starts_with(kind) && line.contains(why));
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
    flipped.iter_mut().skip(40).take(64).for_each(|byte| *byte ^= 0x55);
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

    put(&lake, &runs.replace(".parquet", ".parquet.tmp").replace("gpu-00/", "gpu-00/."), b"PAR1");
    check("temporary", "not finished", 0);
}
