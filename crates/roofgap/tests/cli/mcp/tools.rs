//! Answers of the tools: their schemas, bounds, ids and errors.

use super::client::{Client, ROOFGAP, fixtures};
use serde_json::{Value, json};
use std::process::Command;

const LLAMA: &str = "h200/llama4.sqlite.gz";

fn connect() -> (Client, tempfile::TempDir) {
    let runs = tempfile::tempdir().unwrap();
    (Client::connect(&[&fixtures()], runs.path()), runs)
}

/// A call of every tool.
fn calls() -> [(&'static str, Value); 8] {
    [
        ("list", json!({})),
        ("summary", json!({ "input": LLAMA })),
        ("findings", json!({ "input": LLAMA })),
        ("kernels", json!({ "input": LLAMA, "stage": "decode" })),
        ("steps", json!({ "input": LLAMA })),
        ("timeline", json!({ "input": LLAMA })),
        ("compare", json!({ "base": LLAMA, "head": LLAMA })),
        ("explain", json!({ "input": LLAMA, "finding": "launch-bound" })),
    ]
}

#[test]
fn every_tool_is_read_only_and_its_answer_follows_its_schema() {
    let (mut client, _runs) = connect();
    let listed = client.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let calls = calls();
    assert_eq!(tools.len(), calls.len());
    for (name, arguments) in calls {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{name}");
        assert!(tool["description"].as_str().unwrap().len() > 20, "{name}");
        let input = jsonschema::validator_for(&tool["inputSchema"]).unwrap();
        assert!(input.is_valid(&arguments), "{name}");
        let answer = client.call(name, arguments).unwrap();
        let output = jsonschema::validator_for(&tool["outputSchema"]).unwrap();
        let errors: Vec<String> = output.iter_errors(&answer).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}

#[test]
fn answers_are_bounded() {
    let (mut client, _runs) = connect();
    for (name, mut arguments) in calls() {
        arguments["limit"] = json!(1_000_000);
        let answer = client.call(name, arguments).unwrap();
        let size = answer.to_string().len();
        assert!(size < 100_000, "{name}: {size} bytes");
    }
    let kernels = json!({ "input": "h200/dsocr2.sqlite.gz", "limit": 100_000 });
    let answer = client.call("kernels", kernels).unwrap();
    assert!(answer["kernels"].as_array().unwrap().len() <= 100);
    let next = json!({ "input": LLAMA, "limit": 2, "offset": 2 });
    let next = client.call("kernels", next).unwrap();
    assert_eq!(next["kernels"][0]["pointer"], "/kernels/2");
}

#[test]
fn pointers_lead_into_the_analysis() {
    let (mut client, _runs) = connect();
    let output = Command::new(ROOFGAP)
        .args(["analyze", "--format", "json"])
        .arg(fixtures().join(LLAMA))
        .output()
        .unwrap();
    let analysis: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = client.call("findings", json!({ "input": LLAMA })).unwrap();
    let mut checked = 0;
    for finding in findings["findings"].as_array().unwrap() {
        let own = analysis.pointer(finding["pointer"].as_str().unwrap()).unwrap();
        for (name, value) in own.as_object().unwrap() {
            assert_eq!(finding[name], *value, "{name}");
            checked += 1;
        }
    }
    assert!(checked > 10, "{checked}");
    let kernels = client.call("kernels", json!({ "input": LLAMA, "stage": "decode" })).unwrap();
    for kernel in kernels["kernels"].as_array().unwrap() {
        let own = analysis.pointer(kernel["pointer"].as_str().unwrap()).unwrap();
        assert_eq!(own["total_ns"], kernel["total_ns"]);
    }
}

#[test]
fn a_value_that_was_not_measured_has_a_reason() {
    let (mut client, _runs) = connect();
    let summary = client.call("summary", json!({ "input": LLAMA })).unwrap();
    let decode = &summary["stages"][1];
    assert_eq!(decode["mfu"], Value::Null);
    let reasons = summary["not_measured"].as_array().unwrap();
    let why = reasons.iter().find(|reason| reason["about"] == "stages.decode.mfu").unwrap();
    assert!(why["why"].as_str().unwrap().contains("model is unknown"), "{why}");
    let steps = client.call("steps", json!({ "input": LLAMA, "stage": "prefill" })).unwrap();
    assert_eq!(steps["summary"], Value::Null);
    assert!(steps["not_measured"].as_str().unwrap().contains("prefill"));
    // A capture without a GPU has no window.
    let error = client.call("timeline", json!({ "input": "nsys-versions/nsys-2023.4.4-cpu-nvtx.sqlite.gz" }));
    assert!(error.as_ref().unwrap_err().starts_with("not measured"), "{error:?}");
}

#[test]
fn a_window_of_the_timeline_adds_up() {
    let (mut client, _runs) = connect();
    let whole = client.call("timeline", json!({ "input": LLAMA, "limit": 1 })).unwrap();
    let summary = client.call("summary", json!({ "input": LLAMA })).unwrap();
    assert_eq!(whole["devices"][0]["busy_ns"], summary["totals"]["busy_ns"]);
    // The window of the first operation alone.
    let first = &whole["operations"][0];
    let (start, length) = (first["start_ns"].as_i64().unwrap(), first["duration_ns"].as_i64().unwrap());
    let request = json!({ "input": LLAMA, "start_ns": start, "end_ns": start + length });
    let window = client.call("timeline", request).unwrap();
    assert_eq!(window["count"], 1);
    assert_eq!(window["devices"][0]["busy_ns"], length);
    assert_eq!(window["devices"][0]["idle_ns"], 0);
    let half = json!({ "input": LLAMA, "start_ns": start - 100, "end_ns": start + length / 2 });
    let half = client.call("timeline", half).unwrap();
    assert_eq!(half["devices"][0]["busy_ns"], length / 2);
    assert_eq!(half["devices"][0]["idle_ns"], 100);
    let empty = client.call("timeline", json!({ "input": LLAMA, "start_ns": 5, "end_ns": 5 }));
    assert!(empty.unwrap_err().contains("is empty"));
}

#[test]
fn wrong_requests_name_what_there_is_and_paths_outside_are_refused() {
    let (mut client, _runs) = connect();
    let error = client.call("kernels", json!({ "input": LLAMA, "stage": "encode" })).unwrap_err();
    assert!(error.contains("prefill, decode"), "{error}");
    let error = client.call("explain", json!({ "input": LLAMA, "finding": "magic" })).unwrap_err();
    assert!(error.contains("launch-bound (decode)"), "{error}");
    let error = client.call("summary", json!({ "input": "h200/none.sqlite" })).unwrap_err();
    assert!(error.contains("no run and no file"), "{error}");
    for input in ["../Cargo.toml", "/etc/passwd", "/etc/no-such-file", "h200/../../Cargo.toml"] {
        let error = client.call("summary", json!({ "input": input })).unwrap_err();
        assert!(error.contains("outside"), "{input}: {error}");
        let error = client.call("compare", json!({ "base": LLAMA, "head": input })).unwrap_err();
        assert!(error.contains("outside"), "{input}: {error}");
        let error = client.call("summary", json!({ "input": LLAMA, "with": [input] })).unwrap_err();
        assert!(error.contains("outside"), "{input}: {error}");
    }
    let error = client.call("summary", json!({ "input": "h200/README.md" })).unwrap_err();
    assert!(error.contains("README.md"), "{error}");
    // The server goes on after every error.
    assert!(client.call("summary", json!({ "input": LLAMA })).is_ok());
    let unknown = client.ask("tools/call", json!({ "name": "delete", "arguments": {} }));
    assert!(unknown["error"].is_object() || unknown["result"]["isError"] == true, "{unknown}");
}

#[cfg(feature = "embedded")]
#[test]
fn captures_of_every_kind_are_listed_and_their_names_can_be_read() {
    let (mut client, _runs) = connect();
    for name in ["kernel-summary/seconds.csv.gz", "ncu/llama4_light_raw.csv.gz", "h200/llama4.sqlite.gz"] {
        let listed = client.call("list", json!({ "filter": name })).unwrap();
        assert_eq!(listed["captures"][0]["input"], name, "{listed}");
        let input = &listed["captures"][0]["input"];
        assert!(client.call("summary", json!({ "input": input })).is_ok(), "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("counters.csv");
    let packed = std::fs::File::open(fixtures().join("ncu/llama4_light_raw.csv.gz")).unwrap();
    let mut text = std::fs::File::create(&plain).unwrap();
    std::io::copy(&mut flate2::read::GzDecoder::new(packed), &mut text).unwrap();
    std::fs::write(folder.path().join("table.csv"), "a,b\n1,2\n").unwrap();
    let mut client = Client::connect(&[folder.path()], &folder.path().join("runs"));
    let listed = client.call("list", json!({})).unwrap();
    assert_eq!(listed["capture_count"], 1, "{listed}");
    assert_eq!(listed["captures"][0]["input"], "counters.csv");
}

#[test]
fn a_comparison_names_what_it_could_not_check() {
    let (mut client, _runs) = connect();
    let answer = client.call("compare", json!({ "base": LLAMA, "head": LLAMA })).unwrap();
    let unchecked = answer["unchecked"].as_array().unwrap();
    assert!(unchecked.contains(&json!("mode")), "{answer}");
}

#[test]
fn runs_are_listed_and_read_by_id() {
    let runs = tempfile::tempdir().unwrap();
    let profiled = Command::new(ROOFGAP)
        .args(["profile", "--format", "json", "workload.size=nano"])
        .arg(format!("artifacts.stage2_dir={}", runs.path().display()))
        .output()
        .unwrap();
    let profiled: Value = serde_json::from_slice(&profiled.stdout).unwrap();
    let mut client = Client::connect(&[], runs.path());
    let listed = client.call("list", json!({})).unwrap();
    assert_eq!(listed["run_count"], 1, "{listed}");
    assert_eq!(listed["runs"][0]["input"], profiled["run_id"]);
    let summary = client.call("summary", json!({ "input": "latest" })).unwrap();
    assert_eq!(summary["input"], profiled["run_id"]);
    let stages: Vec<&str> =
        summary["stages"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(stages, ["prefill", "decode"]);
    assert_eq!(summary["stages"][0]["from"], "workload");
    // No kernel was counted, which is not the same as none.
    assert_eq!(summary["stages"][0]["kernel_count"], Value::Null);
    assert!(summary["not_measured"].to_string().contains("stages"), "{summary}");
    let same = client.call("compare", json!({ "base": "latest", "head": profiled["run_id"] })).unwrap();
    assert_eq!(same["comparable"], true);
}

#[test]
fn what_is_no_message_is_answered() {
    let (mut client, _runs) = connect();
    let deep = [&b"{\"a\":".repeat(5_000)[..], b"1", &b"}".repeat(5_000)].concat();
    let long =
        [&b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \""[..], &vec![b'x'; 20 << 20], b"\"}"].concat();
    for (line, code) in [(&b"{\"id\": 1,"[..], -32700), (&deep, -32700), (b"[1]", -32600), (&long, -32600)] {
        assert_eq!(client.answer_to(line)["error"]["code"], code);
    }
    assert_eq!(client.answer_to(br#"{"jsonrpc": "2.0", "id": "a", "method": 5}"#)["id"], "a");
    assert!(client.call("summary", json!({ "input": LLAMA })).is_ok(), "the server goes on");
}

#[cfg(feature = "embedded")]
#[test]
fn a_run_cannot_name_files_outside_of_the_folders() {
    let base = tempfile::tempdir().unwrap();
    let runs = base.path().join("runs");
    let profiled = Command::new(ROOFGAP)
        .args(["profile", "--format", "json", "workload.size=nano"])
        .arg(format!("artifacts.stage2_dir={}", runs.display()))
        .output()
        .unwrap();
    let profiled: Value = serde_json::from_slice(&profiled.stdout).unwrap();
    let id = profiled["run_id"].as_str().unwrap();
    let config = runs.join(id).join("config.yaml");
    let plain = std::fs::read_to_string(&config).unwrap();
    let outside = base.path().join("outside.json");
    let mut answers = Vec::new();
    // A file that is there and no model, and one that is not there.
    for (name, content) in [(&outside, Some("{\"secret\": 1}")), (&base.path().join("absent.json"), None)] {
        if let Some(content) = content {
            std::fs::write(name, content).unwrap();
        }
        let named = plain.replacen("kind: embedded", "kind: hf", 1);
        let (before, after) = named.split_once("\nmodel:\n").unwrap();
        let after = after.replacen("  config: null", &format!("  config: {}", name.display()), 1);
        std::fs::write(&config, format!("{before}\nmodel:\n{after}")).unwrap();
        assert!(std::fs::read_to_string(&config).unwrap().contains(name.to_str().unwrap()));
        let mut client = Client::connect(&[], &runs);
        let answer = client.call("summary", json!({ "input": id })).unwrap().to_string();
        answers.push(answer.replace(name.file_name().unwrap().to_str().unwrap(), "FILE"));
    }
    assert!(answers[0].contains("is not in the folders that may be read"), "{}", answers[0]);
    assert_eq!(answers[0], answers[1]);
}
