//! `watch` and `capture`: a program with the real collector in it and a stand-in CUPTI below.

use crate::support::{Run, roofgap, root};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a program to have loaded the collector.
const PATIENCE: Duration = Duration::from_secs(300);

/// Compiles a stand-in into a folder.
fn compile(folder: &Path, source: &str, out: &str, flags: &[&str]) -> PathBuf {
    let out = folder.join(out);
    let done = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-O1", "-o"])
        .arg(&out)
        .arg(root().join("crates/roofgap-inject/tests/stand-in").join(source))
        .args(flags)
        .args(["-ldl", "-lpthread"])
        .output()
        .expect("a C compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    out
}

const LIBRARY: [&str; 2] = ["-shared", "-fPIC"];

/// A place for sockets, captures and runs of one test.
struct Bench {
    folder: tempfile::TempDir,
    program: PathBuf,
    cupti: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // A program that steps until its standard input ends, and CUPTI.
        let program = compile(folder.path(), "program.c", "program", &[]);
        let cupti = compile(folder.path(), "cupti.c", "libcupti.so", &LIBRARY);
        std::fs::create_dir(folder.path().join("run")).unwrap();
        Self { folder, program, cupti }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn roofgap(&self, args: &[&str]) -> Command {
        let mut command = roofgap(args);
        command
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("TMPDIR", self.folder.path())
            .env("CUPTI_LIBRARY", &self.cupti);
        command
    }

    /// Starts a scenario of the stand-in program under `roofgap watch`, and waits until `processes` have loaded the collector.
    fn watch(&self, scenario: &str, processes: usize) -> Child {
        let program = self.program.to_str().unwrap();
        let mut child = self
            .roofgap(&["watch", "--", program, scenario])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(&format!("roofgap capture {} --for 5s", child.id())), "{line}");
        let deadline = Instant::now() + PATIENCE;
        while self.list()[0]["processes"].as_array().unwrap().len() < processes {
            assert!(Instant::now() < deadline, "the collector is never loaded");
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    }

    fn list(&self) -> serde_json::Value {
        let done: Run = self.roofgap(&["capture", "--format", "json"]).output().unwrap().into();
        assert_eq!(done.status, Some(0), "{}", done.stderr);
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// Adds requests to the run of an answer, and checks that its reports have them.
    fn add_requests(&self, answer: &Run) {
        let answer: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
        let run = self.path("runs").join(answer["run_id"].as_str().unwrap());
        let load = self.path("load.json");
        let account = r#"{"schema": "roofgap.workload/1", "requests": {"sent": 5, "completed": 5}}"#;
        std::fs::write(&load, account).unwrap();
        let args = ["report", run.to_str().unwrap(), "--requests", load.to_str().unwrap()];
        let done: Run = self.roofgap(&args).output().unwrap().into();
        assert_eq!(done.status, Some(0), "{}", done.stderr);
        let metrics = std::fs::read(run.join("metrics.json")).unwrap();
        let metrics: serde_json::Value = serde_json::from_slice(&metrics).unwrap();
        assert_eq!(metrics["requests"]["completed"], 5);
        std::fs::write(&load, r#"{"schema": "roofgap.workload/1"}"#).unwrap();
        let none: Run = self.roofgap(&args).output().unwrap().into();
        assert_eq!(none.status, Some(2));
        assert!(none.stderr.contains("has no requests"), "{}", none.stderr);
    }

    /// Begins a long capture, and waits until it records.
    fn begin_capture(&self, runs: &Path) -> Child {
        let mut capture = self
            .roofgap(&["capture", "latest", "--for", "10m", "--out", runs.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(capture.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("run "), "{line}");
        capture
    }

    /// Captures with `--out`; returns the output and the analysis.
    fn capture(&self, args: &[&str]) -> (Run, serde_json::Value) {
        let runs = self.path("runs");
        let mut all = vec!["capture"];
        all.extend(args);
        all.extend(["--format", "json", "--out", runs.to_str().unwrap()]);
        let done: Run = self.roofgap(&all).output().unwrap().into();
        assert_eq!(done.status, Some(0), "{}", done.stderr);
        let answer: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        let id = answer["run_id"].as_str().unwrap();
        let metrics = std::fs::read(runs.join(id).join("metrics.json")).unwrap();
        (done, serde_json::from_slice(&metrics).unwrap())
    }
}

#[test]
fn windows_of_a_running_program_become_runs() {
    let bench = Bench::new();
    let mut child = bench.watch("loop", 1);
    let pid = child.id().to_string();
    assert_eq!(bench.list()[0]["pid"], child.id());
    for target in [pid.as_str(), "latest"] {
        let (_, metrics) = bench.capture(&[target, "--steps", "20"]);
        let decode = &metrics["stages"][0];
        assert_eq!(decode["name"], "decode");
        let steps = decode["steps"]["count"].as_u64().unwrap();
        assert!(steps >= 19, "{steps} steps");
        // A second capture has nothing of the first.
        let recorded = &metrics["coverage"]["recorded_ns"];
        assert!(recorded.as_i64().unwrap() > 0, "{metrics}");
        assert_eq!(metrics["kernels"][0]["name"], "kernel_step");
        let kernels = metrics["totals"]["kernel_count"].as_u64().unwrap();
        assert!(kernels.abs_diff(2 * steps) <= 4, "{kernels} kernels in {steps} steps");
        let losses: Vec<&str> =
            metrics["losses"].as_array().unwrap().iter().map(|loss| loss["id"].as_str().unwrap()).collect();
        assert!(!losses.iter().any(|id| id.starts_with("capture_")), "{losses:?}");
    }
    let (answer, metrics) = bench.capture(&["latest", "--for", "3s"]);
    assert!(metrics["totals"]["kernel_count"].as_u64().unwrap() > 0);
    assert!(metrics["requests"].is_null());
    bench.add_requests(&answer);
    // The program has run on, and ends as it would alone.
    assert!(child.try_wait().unwrap().is_none());
    drop(child.stdin.take());
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    assert_eq!(stdout, "done\n");
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert_eq!(bench.list(), serde_json::json!([]));
    let done: Run = bench.roofgap(&["capture", "latest"]).output().unwrap().into();
    assert_eq!(done.status, Some(2));
    assert!(done.stderr.contains("no program is watched"), "{}", done.stderr);
}

#[test]
fn counters_of_a_running_program_are_sampled_or_say_why_not() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("driver")).unwrap();
    // The same library is the driver and the CUPTI of the sampler.
    let driver = compile(&bench.path("driver"), "pm.c", "libcuda.so.1", &LIBRARY);
    let runs = bench.path("runs");
    let command = |time: &str, how: &str| {
        let out = runs.to_str().unwrap();
        let mut command = bench.roofgap(&["capture", "latest", "--counters", "--for", time, "--out", out]);
        command.env("CUPTI_LIBRARY", &driver).env("LD_LIBRARY_PATH", bench.path("driver"));
        command.env("STANDIN_PM", how);
        command
    };
    let newest = || {
        let newest = std::fs::read_dir(&runs).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
        let metrics = std::fs::read(newest.join("metrics.json")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&metrics).unwrap()
    };
    let capture = |how: &str| {
        let done: Run = command("1s", how).output().unwrap().into();
        (done, newest())
    };
    let ids = |metrics: &serde_json::Value| {
        let losses = metrics["losses"].as_array().unwrap().iter();
        losses.map(|loss| loss["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut child = bench.watch("loop", 1);
    let (done, metrics) = capture("");
    assert_eq!(done.status, Some(0), "{}", done.stderr);
    // Its stand-in counts bytes all the time: more than the program moves. On a busy machine there may be too few samples to tell.
    let other = ids(&metrics).contains(&"samples_of_other_work".to_owned());
    assert!(other || metrics["counters"] == serde_json::json!([]), "{metrics}");
    assert_eq!(metrics["sources"].as_array().unwrap().len(), 2, "{}", metrics["sources"]);
    let (done, metrics) = capture("forbidden");
    assert!(done.stderr.contains("NVreg_RestrictProfilingToAdminUsers=0"), "{}", done.stderr);
    assert!(metrics["totals"]["kernel_count"].as_u64().unwrap() > 0);
    let (_, metrics) = capture("full");
    assert!(ids(&metrics).contains(&"samples_dropped".to_owned()), "{metrics}");
    // A program that ends in the window ends it; so does its sampler.
    let mut long = command("10m", "").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(long.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("run "), "{line}");
    drop(child.stdin.take());
    child.wait().unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    long.wait().unwrap();
    assert!(rest.contains("the program ended before the window did"), "{rest}");
    assert!(newest()["totals"]["kernel_count"].as_u64().unwrap() > 0);
}

#[test]
fn a_capture_has_vitals_or_says_why_not() {
    let bench = Bench::new();
    let mut child = bench.watch("loop", 1);
    let capture = |runs: &str| {
        let runs = bench.path(runs);
        let args = ["capture", "latest", "--for", "1s", "--out", runs.to_str().unwrap()];
        let done: Run =
            bench.roofgap(&args).env("LD_LIBRARY_PATH", bench.path("driver")).output().unwrap().into();
        assert_eq!(done.status, Some(0), "{}", done.stderr);
        let run = std::fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
        ["metrics.json", "session.json"].map(|name| {
            serde_json::from_slice::<serde_json::Value>(&std::fs::read(run.join(name)).unwrap()).unwrap()
        })
    };
    let [metrics, session] = capture("without");
    assert!(metrics["vitals"].is_null());
    assert_eq!(session.to_string().matches("no vitals were sampled: ").count(), 1, "{session}");
    std::fs::create_dir(bench.path("driver")).unwrap();
    compile(&bench.path("driver"), "nvml.c", "libnvidia-ml.so.1", &LIBRARY);
    let [metrics, session] = capture("with");
    assert_eq!(metrics["vitals"]["gpus"][0]["sm_mhz"], 1575.0, "{}", metrics["vitals"]);
    assert!(session["phases"].to_string().contains("vitals/timeline.jsonl"), "{session}");
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// A slow step and a signal are kept as runs; the program runs on and ends as it would alone.
#[test]
fn the_last_seconds_are_kept_when_something_happens() {
    let bench = Bench::new();
    let runs = bench.path("runs");
    let (program, out) = (bench.program.to_str().unwrap(), runs.to_str().unwrap());
    let mut child = bench
        .roofgap(&["watch", "--record", "--out", out, "--", program, "loop"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut until = |part: &str| said.find(|line| line.contains(part)).unwrap();
    assert!(until("recording process ").contains(&format!("kill -USR1 {}", child.id())));
    let deadline = Instant::now() + PATIENCE;
    while bench.list()[0]["processes"].as_array().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "the collector is never loaded");
    }
    // Some steps show how long they take.
    std::thread::sleep(Duration::from_secs(2));
    // On a busy machine other steps may be slow, and incidents are five seconds apart.
    let is_long = |line: &str| {
        let took = line.split("a step took ").nth(1).and_then(|rest| rest.split_once(" ms;"));
        took.is_some_and(|(ms, _)| ms.parse::<f64>().is_ok_and(|ms| ms >= 300.0))
    };
    let told = (0..5).find_map(|_| {
        child.stdin.as_mut().unwrap().write_all(b"s").unwrap();
        let told = until("incident ");
        std::thread::sleep(Duration::from_secs(6));
        is_long(&told).then_some(told)
    });
    let told = told.expect("the long step is kept");
    assert!(told.contains("; cause: unknown in step "), "{told}");
    Command::new("kill").args(["-USR1", &child.id().to_string()]).status().unwrap();
    until("a signal asked for it");
    drop(child.stdin.take());
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    assert_eq!((stdout.as_str(), child.wait().unwrap().code()), ("done\n", Some(7)));
    let list = |format: &str| -> Run {
        bench.roofgap(&["runs", "list", "--dir", out, "--format", format]).output().unwrap().into()
    };
    let runs: serde_json::Value = serde_json::from_str(&list("json").stdout).unwrap();
    let kept = |run: &serde_json::Value| {
        let file = Path::new(run["path"].as_str().unwrap()).join("incident.json");
        let mut row: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        row["run"] = run["path"].clone();
        row
    };
    let rows: Vec<serde_json::Value> = runs.as_array().unwrap().iter().map(kept).collect();
    let slow = rows.iter().find(|row| row["step_ns"].as_i64().is_some_and(|ns| ns >= 300_000_000)).unwrap();
    assert_eq!(slow["trigger"], "slow-step");
    assert!(rows.iter().any(|row| row["trigger"] == "signal" && row["step_ns"].is_null()), "{runs}");
    let cause = &slow["cause"];
    assert_eq!(
        (&cause["stage"], &cause["missing"]),
        (&"decode".into(), &"stacks of the CPU".into()),
        "{slow}"
    );
    assert!(cause["time_ns"].as_i64().unwrap() >= 300_000_000, "{slow}");
    let process = &slow["processes"][0];
    assert_eq!((&process["name"], process["threads"][0]["tid"] == process["pid"]), (&"program".into(), true));
    let run = Path::new(slow["run"].as_str().unwrap());
    let report = std::fs::read_to_string(run.join("report.md")).unwrap();
    assert!(report.contains("## Incident") && report.contains("Cause: unknown in step "), "{report}");
    assert!(std::fs::read_to_string(run.join("report.html")).unwrap().contains("id=\"incident\""));
    let text = list("text").stdout;
    assert!(text.contains(": incident at ") && text.contains("; unknown in step "), "{text}");
    let show: Run = bench.roofgap(&["runs", "show", run.to_str().unwrap()]).output().unwrap().into();
    assert!(show.stdout.contains("incident  ") && show.stdout.contains("a step took "), "{}", show.stdout);
}

#[test]
fn a_long_window_has_a_part_of_its_steps() {
    let bench = Bench::new();
    let mut child = bench.watch("loop", 1);
    let (_, metrics) = bench.capture(&["latest", "--steps", "250"]);
    let decode = &metrics["stages"][0];
    let (recorded, all) = (&decode["coverage"]["recorded"], &decode["coverage"]["all"]);
    let (recorded, all) = (recorded.as_u64().unwrap(), all.as_u64().unwrap());
    assert!(all >= 250, "{all}");
    // The first 64, then 8 of every 128, of the window and not of the steps around it; a step may be open at both ends.
    let expected = 79..=64 + 8 * (all / 128 + 1);
    assert!(expected.contains(&recorded), "{recorded} of {all}");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_killed_capture_leaves_the_program_to_the_next() {
    let bench = Bench::new();
    let mut child = bench.watch("loop", 1);
    let mut capture = bench.begin_capture(&bench.path("killed"));
    capture.kill().unwrap();
    capture.wait().unwrap();
    let (_, metrics) = bench.capture(&["latest", "--steps", "3"]);
    assert!(metrics["stages"][0]["steps"]["count"].as_u64().unwrap() >= 2, "{metrics}");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn what_a_damaged_registration_names_is_not_removed() {
    let bench = Bench::new();
    let (registry, documents) = (bench.path("run/roofgap"), bench.path("documents"));
    for folder in [&registry, &registry.join("1-1"), &documents] {
        std::fs::create_dir(folder).unwrap();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    std::fs::write(documents.join("letter"), "dear reader").unwrap();
    let stale = serde_json::json!({
        "pid": 1, "start": 0, "started": "", "command": [], "socket": "/nowhere", "files": documents,
    });
    std::fs::write(registry.join("1-1/watch.json"), stale.to_string()).unwrap();
    assert!(bench.roofgap(&["watch", "--", "true"]).status().unwrap().success());
    assert_eq!(std::fs::read_to_string(documents.join("letter")).unwrap(), "dear reader");
    assert!(!registry.join("1-1").exists(), "a folder of an ended program stays");
}

#[test]
fn an_interrupted_capture_is_kept_and_leaves_the_program_dormant() {
    let bench = Bench::new();
    let mut child = bench.watch("loop", 1);
    let runs = bench.path("runs");
    let mut capture = bench.begin_capture(&runs);
    // One window at a time.
    let busy: Run = bench.roofgap(&["capture", "latest"]).output().unwrap().into();
    assert_eq!(busy.status, Some(3), "{}", busy.stderr);
    assert!(busy.stderr.contains("captured already"), "{}", busy.stderr);
    let pid = capture.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
    assert_eq!(capture.wait().unwrap().code(), Some(130));
    let run = std::fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    assert!(run.join("metrics.json").is_file());
    // A capture that finds the program armed would be refused.
    bench.capture(&["latest", "--steps", "3"]);
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn every_process_of_a_program_is_captured() {
    let bench = Bench::new();
    let mut child = bench.watch("workers", 2);
    let (done, metrics) = bench.capture(&["latest", "--steps", "10"]);
    assert_eq!(metrics["sources"].as_array().unwrap().len(), 2, "{}", done.stderr);
    assert!(metrics["totals"]["kernel_count"].as_u64().unwrap() >= 2 * 2 * 9);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_program_that_cannot_be_recorded_says_why() {
    let bench = Bench::new();
    // It annotates and never starts CUDA.
    let program = bench.program.to_str().unwrap();
    let script = format!("{program} nvtx-only; read line");
    let mut child = bench
        .roofgap(&["watch", "--", "sh", "-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while bench.list().as_array().unwrap().is_empty() {
        assert!(Instant::now() < deadline);
    }
    let pid = child.id().to_string();
    let deadline = Instant::now() + PATIENCE;
    let done: Run = loop {
        // The stand-in may still run; then its refusal is the reason.
        let done: Run = bench.roofgap(&["capture", &pid]).output().unwrap().into();
        assert_eq!(done.status, Some(3), "{}", done.stderr);
        if done.stderr.contains("has not loaded the collector") {
            break done;
        }
        assert!(Instant::now() < deadline, "{}", done.stderr);
    };
    assert!(done.stderr.contains(&pid), "{}", done.stderr);
    let long: Run = bench.roofgap(&["capture", &pid, "--for", "1h"]).output().unwrap().into();
    assert_eq!(long.status, Some(2), "{}", long.stderr);
    let unknown: Run = bench.roofgap(&["capture", "1"]).output().unwrap().into();
    assert_eq!(unknown.status, Some(2));
    assert!(unknown.stderr.contains(&format!("watched are {pid}")), "{}", unknown.stderr);
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn signals_and_missing_programs_are_passed_on() {
    let bench = Bench::new();
    let killed = bench.roofgap(&["watch", "--", "sh", "-c", "kill -TERM $$"]).output().unwrap();
    assert_eq!(killed.status.signal(), Some(15));
    let missing: Run = bench.roofgap(&["watch", "--", "no-such-program-here"]).output().unwrap().into();
    assert_eq!(missing.status, Some(2));
    assert!(missing.stderr.contains("no-such-program-here"), "{}", missing.stderr);
    assert!(!missing.stderr.contains("watching"), "{}", missing.stderr);
}

#[test]
fn an_interrupted_timeline_says_that_it_is_a_part() {
    let bench = Bench::new();
    let runs = format!("artifacts.stage2_dir={}", bench.path("runs").display());
    let script = format!("sleep 1000 | '{}' loop", bench.program.display());
    let args = [
        "profile",
        "runner=timeline",
        "runner.baseline=false",
        "profiling.timeline=native",
        &runs,
        "--",
        "sh",
        "-c",
        &script,
    ];
    let mut session = bench.roofgap(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let files = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let recorded = || {
        let captures = files(&bench.path("runs"))
            .iter()
            .flat_map(|run| files(&run.join("native")))
            .filter(|path| path.extension().is_some_and(|end| end == "rgcap"))
            .collect::<Vec<_>>();
        captures.iter().any(|path| std::fs::metadata(path).is_ok_and(|file| file.len() > 1 << 16))
    };
    let deadline = Instant::now() + PATIENCE;
    while !recorded() {
        assert!(Instant::now() < deadline, "nothing is recorded");
        std::thread::sleep(Duration::from_millis(20));
    }
    let signal = Command::new("kill").args(["-INT", &session.id().to_string()]).status();
    assert!(signal.unwrap().success());
    assert_eq!(session.wait().unwrap().code(), Some(130));
    let run = files(&bench.path("runs")).pop().unwrap();
    let session = std::fs::read(run.join("session.json")).unwrap();
    let session: serde_json::Value = serde_json::from_slice(&session).unwrap();
    let phases = session["phases"].as_array().unwrap();
    let timeline = phases.iter().find(|phase| phase["name"] == "timeline").unwrap();
    let notes = timeline["notes"].to_string();
    assert!(notes.contains("interrupted: the timeline holds"), "{timeline:#}");
}
