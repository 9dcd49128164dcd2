//! A server under load: `roofgap load` and `workload=server`, against a stand-in.

use crate::support::{free_port, ok, root, run};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn stand_in() -> String {
    root().join("tests/stand-in/openai_server.py").display().to_string()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns the run in a folder of runs.
fn only_run(folder: &Path) -> PathBuf {
    let mut paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.find(|path| path.join("metrics.json").exists()).unwrap()
}

#[test]
fn load_starts_a_server_and_prints_its_latency() {
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let account = folder.path().join("account.json");
    let (url, file) = (format!("--url=http://127.0.0.1:{port}"), account.display().to_string());
    let base = ["load", &url, "--requests=6", "load.warmup=1", "--concurrency=2", "load.prompt_tokens=9"];
    let server = ["load.output_tokens=4", "--account", &file, "--", "python3"];
    let (port, script) = (port.to_string(), stand_in());
    let end = [script.as_str(), port.as_str()];
    let words: Vec<&str> = base.into_iter().chain(server).chain(end).collect();
    let answer = ok(&words);
    assert!(answer.stdout.contains("time to first token"), "{}", answer.stdout);
    assert!(answer.stdout.contains("6 requests completed"), "{}", answer.stdout);
    assert!(answer.stdout.contains("54 prompt tokens, 24 generated tokens"), "{}", answer.stdout);
    assert_eq!(json(&account)["requests"]["completed"], 6);
}

#[test]
fn a_server_that_does_not_answer_is_status_4() {
    let port = free_port();
    let url = format!("--url=http://127.0.0.1:{port}");
    let failed = run(["load", &url, "load.model=m", "--requests=2", "load.warmup=0"]);
    assert_eq!(failed.status, Some(4), "{}", failed.stderr);
    assert!(failed.stderr.contains("all 2 requests failed"), "{}", failed.stderr);
    let failed = run(["load", &url]);
    assert_eq!(failed.status, Some(4), "{}", failed.stderr);
    let words = format!("error: no server answers at http://127.0.0.1:{port}: Connection refused");
    assert!(failed.stderr.contains(&words), "{}", failed.stderr);
    let usage = run(["load", &url, "--rate=0"]);
    assert_eq!(usage.status, Some(2), "{}", usage.stderr);
}

#[test]
fn a_profiled_server_has_its_requests_in_every_report() {
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let (url, runs) = (
        format!("server.url=http://127.0.0.1:{port}"),
        format!("artifacts.stage2_dir={}", folder.path().display()),
    );
    let overrides = ["profile", "workload=server", &url, &runs, "load.requests=5", "load.output_tokens=3"];
    let phases =
        ["load.prompt_tokens=8", "runner.timeline=false", "runner.counters=false", "runner.operators=false"];
    let (port, script) = (port.to_string(), stand_in());
    let server = ["--", "python3", script.as_str(), port.as_str()];
    let words: Vec<&str> = overrides.into_iter().chain(phases).chain(server).collect();
    ok(&words);
    let run = only_run(folder.path());
    let metrics = json(&run.join("metrics.json"));
    assert_eq!(metrics["requests"]["completed"], 5);
    assert_eq!(metrics["requests"]["output_tokens"], 15);
    for report in ["report.md", "report.html"] {
        let text = std::fs::read_to_string(run.join(report)).unwrap();
        assert!(text.contains("time to first token"), "{report}");
    }
    assert!(run.join("baseline/server.log").exists());
}

#[test]
fn a_change_of_a_server_is_refused_if_its_answers_differ() {
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let url = format!("server.url=http://127.0.0.1:{port}");
    let runs = format!("artifacts.stage2_dir={}", folder.path().display());
    let (port, script) = (port.to_string(), stand_in());
    let load = ["load.requests=4", "load.output_tokens=3", "runner=unwatched"];
    let start = ["profile", "workload=server", &url, &runs];
    let server = ["--", "python3", &script, &port];
    let words: Vec<&str> = start.into_iter().chain(load).chain(server).collect();
    ok(&words);
    let run = only_run(folder.path());
    let (path, change) = (run.display().to_string(), "--env=ANSWER=b");
    ok(["try", &path, change, "--repeats=2", "--yes"]);
    let row = &json(&run.join("try.json"))["rows"][0];
    assert_eq!(row["verdict"], "refused", "{row}");
    assert_eq!(row["output"]["tokens"], "different", "{row}");
    let times = row["times"].as_array().unwrap().iter();
    let kinds: Vec<&str> = times.map(|time| time["of"]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["token", "request", "ttft", "itl", "process"]);
}

#[test]
fn a_server_workload_needs_a_server() {
    let refused = run(["profile", "workload=server"]);
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("after --"), "{}", refused.stderr);
}
