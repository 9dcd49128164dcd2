//! `add`: idempotent, atomic, resumable, and safe for several writers.

use crate::support::{TestLake, fixture, lake, ok, put, run};
use serde_json::Value;
use std::path::PathBuf;

fn capture() -> PathBuf {
    fixture("native/stand-in.rgcap")
}

fn add(lake: &TestLake, inputs: &[PathBuf], more: &[&str]) -> String {
    let mut args = vec!["add".to_owned(), "--to".to_owned(), lake.path().to_owned()];
    args.extend(["--host", "h", "--date", "2026-03-01"].map(str::to_owned));
    args.extend(inputs.iter().map(|path| path.to_str().unwrap().to_owned()));
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    ok(args)
}

#[test]
fn adding_twice_changes_nothing() {
    let lake = TestLake::new();
    let text = add(&lake, &[capture()], &["--project", "chat", "--label", "experiment=a", "--events"]);
    assert!(text.starts_with("added "), "{text}");
    let before = lake.files();
    let place = "date=2026-03-01/project=chat/host=h";
    assert!(before.iter().any(|(path, _)| path.starts_with(&format!("runs/{place}/"))), "{before:?}");
    let text = add(&lake, &[capture()], &["--project", "chat", "--label", "experiment=a"]);
    assert!(text.starts_with("present "), "{text}");
    assert_eq!(before, lake.files());
    // Another project or label makes another run.
    add(&lake, &[capture()], &["--project", "other"]);
    assert_eq!(lake.count("runs"), 2);
    let runs = lake.ask("select project, host, date, labels, kind, kernel_count, kernel_ns, date_from from runs where project = 'chat'");
    assert_eq!(runs[0]["labels"], "experiment=a");
    assert_eq!(runs[0]["date"], "2026-03-01");
    assert_eq!(runs[0]["date_from"], "flag");
    assert_eq!(runs[0]["kind"], "capture");
    // The kernels by shape, and the single events, add up to the run.
    for (table, count, ns) in
        [("kernels", "sum(calls)", "sum(total_ns)"), ("events", "count(*)", "sum(end_ns - start_ns)")]
    {
        let filter = if table == "events" { "and kind = 'kernel'" } else { "" };
        let sums = lake
            .ask(&format!("select {count} as n, {ns} as ns from {table} where project = 'chat' {filter}"));
        assert_eq!(sums[0]["n"], runs[0]["kernel_count"], "{table}");
        assert_eq!(sums[0]["ns"], runs[0]["kernel_ns"], "{table}");
    }
}

#[test]
fn a_kill_after_any_write_leaves_all_of_a_run_or_nothing() {
    let whole = TestLake::new();
    add(&whole, &[capture()], &[]);
    let all = whole.counts();
    assert!(all[0] == 1 && all[1] > 0 && all[3] > 0, "{all:?}");
    // Files in the order of writing: the place is first; `runs`, then the mark, are last.
    let mut files = whole.files();
    let order = |path: &str| match path {
        "roofgap.lake.json" => 0,
        path if path.ends_with(".place") => 1,
        path if path.starts_with("runs/") => 2,
        path if path.starts_with("_keys/") => 3,
        _ => 1,
    };
    files.sort_by_key(|(path, _)| order(path));
    for written in 1..=files.len() {
        let lake = TestLake::new();
        for (path, bytes) in &files[..written] {
            put(&lake, path, bytes);
        }
        // A file that was being written.
        if let Some((path, bytes)) = files.get(written) {
            let (folder, name) = path.rsplit_once('/').unwrap();
            put(&lake, &format!("{folder}/.{name}.7-0.tmp"), &bytes[..bytes.len() / 2]);
        }
        let is_visible = files[..written].iter().any(|(path, _)| path.starts_with("runs/"));
        let expected = if is_visible { all.clone() } else { vec![0; all.len()] };
        assert_eq!(lake.counts(), expected, "after {written} files");
        assert_eq!(run(["check", "--lake", lake.path()]).status, Some(0));
        add(&lake, &[capture()], &[]);
        assert_eq!(lake.counts(), all, "added again after {written} files");
    }
}

#[test]
fn a_killed_add_is_completed_by_the_next() {
    let lake_folder = TestLake::new();
    let inputs = [capture(), fixture("vllm/vllm_dense_graph.sqlite.gz"), fixture("h200/llama4.sqlite.gz")];
    for delay in [0, 20, 60, 150, 400] {
        let mut child =
            lake(["add", "--to", lake_folder.path(), "--host", "h", "--date", "2026-03-01", "--jobs", "1"])
                .args(&inputs)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(delay));
        child.kill().unwrap();
        child.wait().unwrap();
        if lake_folder.0.path().join("roofgap.lake.json").exists() {
            let visible = lake_folder.count("runs");
            let with_stages = lake_folder.ask("select count(distinct run_key) as n from stages");
            assert_eq!(with_stages[0]["n"], visible, "after {delay} ms");
            let damaged = run(["check", "--lake", lake_folder.path()]);
            assert_eq!(damaged.status, Some(0), "{}", damaged.stdout);
        }
    }
    add(&lake_folder, &inputs, &[]);
    assert_eq!(lake_folder.count("runs"), 3);
}

#[test]
fn two_writers_add_every_input_once() {
    let shared = TestLake::new();
    let inputs = [
        capture(),
        fixture("vllm/vllm_dense_graph.sqlite.gz"),
        fixture("vllm/vllm_dense_graph.kineto.json.gz"),
    ];
    let writers: Vec<_> = (0..3)
        .map(|at| {
            let mut order = inputs.to_vec();
            order.rotate_left(at);
            lake(["add", "--to", shared.path(), "--host", "h", "--date", "2026-03-01"])
                .args(order)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let alone = TestLake::new();
    add(&alone, &inputs, &[]);
    assert_eq!(shared.counts(), alone.counts());
    assert_eq!(shared.count("runs"), 3);
}

#[test]
fn copies_of_an_input_are_one_run_whatever_their_dates() {
    let folder = tempfile::tempdir().unwrap();
    let copies: Vec<PathBuf> = (1..=4_u64)
        .map(|day| {
            let copy = folder.path().join(format!("{day}.rgcap"));
            std::fs::copy(capture(), &copy).unwrap();
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(day * 86_400);
            let file = std::fs::File::options().write(true).open(&copy).unwrap();
            file.set_modified(at).unwrap();
            copy
        })
        .collect();
    // In one process.
    let alone = TestLake::new();
    let text = ok(["add", folder.path().to_str().unwrap(), "--to", alone.path(), "--jobs", "4"]);
    let statuses = ["added ", "present "].map(|status| text.matches(status).count());
    assert_eq!(statuses, [1, 3], "{text}");
    assert_eq!(alone.count("runs"), 1);
    // In several.
    let shared = TestLake::new();
    let writers: Vec<_> = copies
        .iter()
        .map(|copy| {
            let mut command = lake(["add", "--to", shared.path()]);
            command.arg(copy).stdout(std::process::Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    assert_eq!(shared.counts(), alone.counts());
    // After a writer that was killed before the mark was written.
    for (path, _) in shared.files() {
        if path.starts_with("_keys/") && !path.ends_with(".place") {
            std::fs::remove_file(shared.0.path().join(path)).unwrap();
        }
    }
    for copy in &copies {
        ok(["add", copy.to_str().unwrap(), "--to", shared.path()]);
    }
    assert_eq!(shared.counts(), alone.counts());
}

#[test]
fn a_bad_input_is_a_row_and_the_others_are_added() {
    let lake = TestLake::new();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::copy(capture(), path("good.rgcap")).unwrap();
    std::fs::write(path("broken.rgcap"), "not a capture").unwrap();
    std::fs::write(path("notes.json"), "{\"a\": 1}").unwrap();
    std::fs::write(path("notes.txt"), "nothing").unwrap();
    let missing = path("missing.sqlite");
    let args = ["add", "--to", lake.path(), "--json", "--date", "2026-03-01"];
    let text = crate::support::lake(args).arg(folder.path()).arg(&missing).output().unwrap();
    assert_eq!(text.status.code(), Some(3));
    let lines = String::from_utf8(text.stdout).unwrap();
    let mut lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by_key(|line| line["source"].to_string());
    let status: Vec<(&str, bool)> =
        lines.iter().map(|line| (line["status"].as_str().unwrap(), line["error"].is_null())).collect();
    assert_eq!(status, [("failed", false), ("added", true), ("failed", false)], "{lines:?}");
    let errors = lake.ask("select source, error, host from errors order by source");
    assert_eq!(errors.len(), 2);
    assert_eq!(errors[0]["source"], path("broken.rgcap").to_str().unwrap());
    assert!(errors[0]["error"].as_str().unwrap().len() > 10, "{errors:?}");
    assert_eq!(errors[0]["host"], "unknown");
    assert_eq!(lake.count("runs"), 1);
    // Nothing but bad inputs.
    let alone = crate::support::lake(args).arg(&missing).output().unwrap();
    assert_eq!(alone.status.code(), Some(2));
    // The repaired input is added, and its error stays known.
    std::fs::copy(fixture("vllm/vllm_dense_graph.sqlite.gz"), path("broken.sqlite.gz")).unwrap();
    std::fs::remove_file(path("broken.rgcap")).unwrap();
    assert_eq!(crate::support::lake(args).arg(folder.path()).output().unwrap().status.code(), Some(0));
    assert_eq!((lake.count("runs"), lake.count("errors")), (2, 2));
}

#[test]
fn wrong_arguments_write_nothing() {
    let lake = TestLake::new();
    let input = capture();
    let input = input.to_str().unwrap();
    for wrong in [["--project", "a/b"], ["--host", "../x"], ["--date", "yesterday"], ["--label", "no-value"]]
    {
        let run = run(["add", input, "--to", lake.path(), wrong[0], wrong[1]]);
        assert_eq!(run.status, Some(2), "{wrong:?}");
        assert!(run.stderr.contains("error:"), "{}", run.stderr);
    }
    let written: Vec<String> = lake.files().into_iter().map(|(path, _)| path).collect();
    assert!(written.iter().all(|path| path == "roofgap.lake.json"), "{written:?}");
    let none = run(["query", "coverage", "--lake", "/nonexistent/lake"]);
    assert_eq!(none.status, Some(2));
    assert!(none.stderr.contains("is not a lake"), "{}", none.stderr);
}
