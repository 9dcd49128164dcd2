//! Run directories and nsys reports as inputs.

use crate::support::{fixture, listing, ok, run};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A program that writes the account of a model.
const MODEL: &str = r#"
cat > "$ROOFGAP_WORKLOAD_JSON.tmp" <<'JSON'
{"schema": "roofgap.workload/1",
 "model": {"name": "stand-in", "parameters": 1000, "dtype": "f32", "weights": "random"},
 "tokens": {"prompt": 8, "generated": 4, "batch": 1},
 "repeats": [{"warmup": false, "stages": [{"name": "prefill", "wall_ns": 5000000}, {"name": "decode", "wall_ns": 8000000}]}]}
JSON
mv "$ROOFGAP_WORKLOAD_JSON.tmp" "$ROOFGAP_WORKLOAD_JSON"
"#;

/// Runs a session without profilers and returns its run directory.
fn session(folder: &Path) -> PathBuf {
    let runs = folder.join("runs");
    let place = format!("artifacts.stage2_dir='{}'", runs.display());
    ok(["profile", "--quiet", &place, "runner=unwatched", "--", "sh", "-c", MODEL]);
    let mut found = std::fs::read_dir(&runs).unwrap();
    found.next().unwrap().unwrap().path()
}

fn walls(path: &Path) -> Vec<(String, i64)> {
    let run = ok(["analyze".as_ref(), "--format=json".as_ref(), path.as_os_str()]);
    let analysis: Value = serde_json::from_str(&run.stdout).unwrap();
    let stages = analysis["stages"].as_array().unwrap();
    stages
        .iter()
        .map(|stage| (stage["name"].as_str().unwrap().to_owned(), stage["wall_ns"].as_i64().unwrap()))
        .collect()
}

#[test]
fn a_run_directory_is_analysed_from_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = session(folder.path());
    let before = listing(&run_dir);
    let expected = [("prefill".to_owned(), 5_000_000), ("decode".to_owned(), 8_000_000)];
    assert_eq!(walls(&run_dir), expected);
    assert_eq!(listing(&run_dir), before, "a run was written to");

    // The same with compressed files.
    let account = run_dir.join("baseline/workload.json");
    let bytes = std::fs::read(&account).unwrap();
    std::fs::write(account.with_extension("json.gz"), crate::support::packed(&bytes)).unwrap();
    std::fs::remove_file(&account).unwrap();
    assert_eq!(walls(&run_dir), expected);

    let both = run(["analyze".as_ref(), run_dir.as_os_str(), "fixtures/h200/llama4.sqlite.gz".as_ref()]);
    assert_eq!(both.status, Some(2), "{}", both.stderr);
    assert!(both.stderr.contains("roofgap compare"), "{}", both.stderr);
}

#[test]
fn a_run_whose_record_is_damaged_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("session.json"), "{\"schema\": ").unwrap();
    let run = run(["analyze".as_ref(), folder.path().as_os_str()]);
    assert_eq!(run.status, Some(2));
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("session.json"), "{}", run.stderr);
}

#[test]
fn an_unknown_report_without_an_nsys_names_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.nsys-rep");
    let mut bytes = std::fs::read(fixture("nsys-report/llama4.nsys-rep")).unwrap();
    let at = bytes.windows(8).position(|window| window == b"QDTEXT00").unwrap();
    bytes[at..at + 8].copy_from_slice(b"QDTEXT01");
    std::fs::write(&path, bytes).unwrap();
    let nowhere = format!("--set=profiling.nsys.path={}", folder.path().join("nsys").display());
    let run = run(["analyze".as_ref(), nowhere.as_ref(), path.as_os_str()]);
    assert_eq!(run.status, Some(2), "{}", run.stderr);
    assert_eq!(run.stdout, "");
    for words in
        ["run.nsys-rep", "2023.4.4.54", "events of another form", "install Nsight Systems", "nsys export"]
    {
        assert!(run.stderr.contains(words), "no {words:?} in {}", run.stderr);
    }
}

#[test]
fn a_report_says_what_its_export_says() {
    let nowhere = std::ffi::OsStr::new("--set=profiling.nsys.path=/nowhere/nsys");
    let analysis = |name: &str| -> Value {
        let path = fixture(name);
        let run = ok(["analyze".as_ref(), "--format=json".as_ref(), nowhere, path.as_os_str()]);
        serde_json::from_str(&run.stdout).unwrap()
    };
    let (report, export) =
        (analysis("nsys-report/llama4.nsys-rep"), analysis("nsys-report/llama4.sqlite.gz"));
    assert_eq!(report["sources"][0]["format"], "nsys-rep");
    for part in ["totals", "stages", "kernels", "findings"] {
        assert!(!report[part].is_null(), "{part}");
        assert_eq!(report[part], export[part], "{part}");
    }
}

/// Reads a report of a real nsys. `scripts/get-nsys.sh` gets an nsys.
#[test]
#[ignore = "needs nsys: set ROOFGAP_TEST_NSYS"]
fn real_nsys_a_report_is_read() {
    let nsys = std::env::var_os("ROOFGAP_TEST_NSYS").expect("ROOFGAP_TEST_NSYS is not set");
    let folder = tempfile::tempdir().unwrap();
    let recorded = std::process::Command::new(&nsys)
        .args([
            "profile",
            "--trace=nvtx,osrt",
            "--sample=none",
            "--cpuctxsw=none",
            "--output=run",
            "sleep",
            "0.1",
        ])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(folder.path().join("run.nsys-rep").is_file(), "{recorded:?}");
    // A name without an extension.
    let report = folder.path().join("capture");
    std::fs::rename(folder.path().join("run.nsys-rep"), &report).unwrap();
    let before = listing(folder.path());
    let mut named = std::ffi::OsString::from("--set=profiling.nsys.path=");
    named.push(&nsys);
    let run = ok(["analyze".as_ref(), "--format=json".as_ref(), named.as_os_str(), report.as_os_str()]);
    assert_eq!(listing(folder.path()), before);
    let analysis: Value = serde_json::from_str(&run.stdout).unwrap();
    let source = &analysis["sources"][0];
    assert_eq!(source["format"], "nsys-rep");
    assert_eq!(source["path"], report.display().to_string());
}
