//! `roofgap profile` on a machine without a GPU.

use crate::support::{ROOFGAP, Run, can_run, ok, roofgap, root, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The smallest embedded model, which a debug build runs in seconds.
const NANO: [&str; 5] = [
    "workload.size=nano",
    "workload.tokens=3",
    "workload.prompt_tokens=4",
    "workload.repeats=2",
    "workload.warmup=1",
];

struct Runs(tempfile::TempDir);

impl Runs {
    fn new() -> Self {
        Runs(tempfile::tempdir().unwrap())
    }

    fn place(&self) -> String {
        format!("artifacts.stage2_dir='{}'", self.0.path().display())
    }

    fn profile(&self, args: &[&str]) -> Run {
        roofgap(["profile", &self.place()]).args(args).output().unwrap().into()
    }

    /// Returns the only run.
    fn one(&self) -> PathBuf {
        let all: Vec<PathBuf> =
            std::fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().unwrap()
    }
}

fn json(path: PathBuf) -> Value {
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap()
}

fn phase<'a>(session: &'a Value, name: &str) -> &'a Value {
    let phases = session["phases"].as_array().unwrap();
    phases.iter().find(|phase| phase["name"] == name).unwrap()
}

fn has_gpu() -> bool {
    Path::new("/proc/driver/nvidia/version").exists()
}

/// Files that every session writes.
const BUNDLE: [&str; 10] = [
    "session.json",
    "env.json",
    "config.yaml",
    "inputs.yaml",
    "metrics.json",
    "kernels.md",
    "operators.md",
    "report.md",
    "stakeholder_summary.md",
    "report.html",
];

fn is_whole(run_dir: &Path) {
    for name in BUNDLE {
        let facts = std::fs::metadata(run_dir.join(name));
        assert!(facts.is_ok_and(|facts| facts.len() > 0), "{name} is missing or empty");
    }
}

/// Returns the section of a Markdown report under a heading.
fn section<'a>(report: &'a str, heading: &str) -> &'a str {
    let mut parts = report.split("\n## ");
    let part = parts.find(|part| part.lines().next().is_some_and(|line| line.contains(heading)));
    part.unwrap_or_else(|| panic!("no section {heading} in {report}"))
}

#[test]
fn the_embedded_model_leaves_a_whole_bundle() {
    if !can_run(!has_gpu(), "this machine has a GPU, where a session has more phases") {
        return;
    }
    let runs = Runs::new();
    let run = runs.profile(&NANO);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let run_dir = runs.one();
    is_whole(&run_dir);
    assert!(run.stdout.contains("prefill") && run.stdout.contains("decode"), "{}", run.stdout);
    assert!(
        run.stdout.ends_with(&format!("\nbundle: {0}\npage: {0}/report.html\n", run_dir.display())),
        "{}",
        run.stdout
    );
    assert!(run.stderr.contains("`roofgap demo`"), "{}", run.stderr);

    // A page that is gone is written again.
    let page = run_dir.join("report.html");
    std::fs::remove_file(&page).unwrap();
    let open = ok(["open", "--no-browser", run_dir.to_str().unwrap()]);
    assert_eq!(open.stdout, format!("{}\n", page.display()));
    assert!(page.is_file());

    let session = json(run_dir.join("session.json"));
    assert_eq!(session["state"], "done");
    assert_eq!(session["exit_status"], 0);
    for name in ["preflight", "baseline", "operators", "analyze", "report"] {
        assert_eq!(phase(&session, name)["status"], "ok", "{name}");
    }
    for name in ["timeline", "select", "counters"] {
        assert_eq!(phase(&session, name)["status"], "skipped", "{name}");
        assert!(!phase(&session, name)["why"].as_str().unwrap().is_empty());
    }

    let metrics = json(run_dir.join("metrics.json"));
    let stages: Vec<&str> =
        metrics["stages"].as_array().unwrap().iter().map(|stage| stage["name"].as_str().unwrap()).collect();
    assert_eq!(stages, ["prefill", "decode"]);
    // The smallest model does not measure the peak of the machine: its MFU is null, with a reason.
    assert!(metrics["stages"][0]["mfu"].is_null());
    let reasons = metrics["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|reason| reason["about"] == "stages.prefill.mfu"), "{reasons:?}");
    assert!(!metrics["operators"].as_array().unwrap().is_empty());

    // Every mandatory table exists; those without rows have a reason.
    let report = std::fs::read_to_string(run_dir.join("report.md")).unwrap();
    let kernels = std::fs::read_to_string(run_dir.join("kernels.md")).unwrap();
    assert!(kernels.contains("No kernels: the timeline phase was skipped"), "{kernels}");
    for heading in ["Environment", "Aggregates", "Stages", "MFU and MBU", "Operators"] {
        let section = section(&report, heading);
        let rows = section.lines().filter(|line| line.starts_with('|')).count();
        let words = section.lines().skip(1).any(|line| line.len() > 20 && !line.starts_with('|'));
        assert!(rows > 2 || words, "{heading} is neither filled nor explained:\n{section}");
    }
    // One page for readers who decide.
    let summary = std::fs::read_to_string(run_dir.join("stakeholder_summary.md")).unwrap();
    assert!(summary.lines().count() <= 90 && summary.contains("\nA step of decode takes "), "{summary}");
    assert!(summary.contains("No profiler ran."), "{summary}");

    // The reports can be written again from the files.
    let stages =
        || section(&std::fs::read_to_string(run_dir.join("report.md")).unwrap(), "Stages").to_owned();
    let first = stages();
    std::fs::remove_file(run_dir.join("report.md")).unwrap();
    let again = ok(["report".as_ref(), run_dir.as_os_str()]);
    assert!(again.stdout.contains("report.md"), "{}", again.stdout);
    assert_eq!(stages(), first);
}

#[test]
fn the_result_of_a_session_is_json_on_request() {
    let runs = Runs::new();
    let run = runs.profile(&["--format", "json", "--", "sh", "-c", "exit 7"]);
    assert_eq!(run.status, Some(4), "{}", run.stderr);
    let run_dir = runs.one();
    let answer: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(answer["schema"], "roofgap.profile/1");
    assert_eq!(answer["run_id"], run_dir.file_name().unwrap().to_str().unwrap());
    assert_eq!(answer["path"], run_dir.to_str().unwrap());
    assert_eq!((&answer["state"], &answer["exit_status"]), (&"failed".into(), &4.into()));
    assert!(answer["missing"][0].as_str().unwrap().starts_with("baseline: "), "{answer}");
    let files = answer["files"].as_object().unwrap();
    assert_eq!(files.len(), BUNDLE.len(), "{files:?}");
    for path in files.values() {
        assert!(Path::new(path.as_str().unwrap()).is_file(), "{path}");
    }
    // The same word everywhere.
    let base = runs.0.path().to_str().unwrap();
    for (command, field) in [("show", "status"), ("artifacts", "state")] {
        let run = ok(["runs", command, "latest", "--dir", base, "--format", "json"]);
        let found: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(found[field], "failed", "{command}");
    }
    assert_eq!(json(run_dir.join("session.json"))["state"], "failed");
}

#[test]
fn a_run_over_the_size_limit_says_what_pruning_would_do() {
    let runs = Runs::new();
    let fill = "i=0; while [ $i -lt 3000 ]; do echo line $i of a log; i=$((i+1)); done";
    // The program and its log stay below the limit; the reports exceed it.
    let run = runs.profile(&[
        "retention.max_run_bytes=100kB",
        "runner=unwatched",
        "workload.annotate=false",
        "--",
        "sh",
        "-c",
        fill,
    ]);
    let warning = run
        .stderr
        .lines()
        .find(|line| line.contains("more than retention.max_run_bytes"))
        .unwrap_or_else(|| panic!("no warning in {}", run.stderr));
    assert!(warning.contains("runs prune") && warning.contains("would free about"), "{warning}");
}

#[test]
fn a_program_that_fails_is_status_4() {
    let runs = Runs::new();
    let run = runs.profile(&["--", "sh", "-c", "echo no such weights >&2; exit 7"]);
    assert_eq!(run.status, Some(4), "{}", run.stderr);
    assert!(run.stderr.contains("status 7"), "{}", run.stderr);
    let run_dir = runs.one();
    is_whole(&run_dir);
    let session = json(run_dir.join("session.json"));
    assert_eq!(session["state"], "failed");
    assert!(phase(&session, "baseline")["log_tail"].as_str().unwrap().contains("no such weights"));
    assert_eq!(runs.profile(&["--", "false"]).status, Some(4));
}

#[test]
fn wrong_usage_is_status_2_and_creates_no_run() {
    let runs = Runs::new();
    for (args, said) in [
        (&["nonsense.key=1"] as &[&str], "nonsense"),
        (&["workload=hydra", "torch_profiler.enabled=false"], "go into workload.overrides"),
        (&["run.mod=light"], "run.mode"),
        (&["workload.tokens=many"], "workload.tokens"),
        (&["workload=embeded"], "embedded"),
    ] {
        let run = runs.profile(args);
        assert_eq!(run.status, Some(2), "{args:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{args:?}");
        assert!(run.stderr.contains(said), "{args:?}: {}", run.stderr);
    }
    let run = runs.profile(&["--", "no-such-program-anywhere"]);
    assert_eq!(run.status, Some(2), "{}", run.stderr);
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("no-such-program-anywhere"), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert_eq!(std::fs::read_dir(runs.0.path()).unwrap().count(), 0);
}

#[test]
fn a_dry_run_prints_commands_and_leaves_nothing() {
    let runs = Runs::new();
    let run = runs.profile(&["--dry-run", "--", "sh", "-c", "echo it ran >&2"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("baseline"), "{}", run.stdout);
    assert!(run.stdout.contains("sh -c 'echo it ran >&2'"), "{}", run.stdout);
    assert!(!run.stderr.contains("it ran"), "{}", run.stderr);
    assert_eq!(std::fs::read_dir(runs.0.path()).unwrap().count(), 0);
}

#[test]
fn without_any_tool_the_session_is_partial_and_names_what_is_missing() {
    if !can_run(!has_gpu(), "this machine has a GPU and may have tools") {
        return;
    }
    let runs = Runs::new();
    // The paths name missing tools, so that none of this machine is used.
    let absent = runs.0.path().join("absent/tool");
    let path = |tool: &str| format!("profiling.{tool}.path='{}'", absent.display());
    let run = runs.profile(&[&path("nsys"), &path("ncu"), "--", "true"]);
    assert_eq!(run.status, Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("missing: counters"), "{}", run.stderr);
    is_whole(&runs.one());
}

/// Kills a child that outlives its test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A generous time limit.
const LIMIT: Duration = Duration::from_secs(300);

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < LIMIT, "{what} did not happen within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A session in a child process, which can be signalled.
struct Session {
    runs: Runs,
    child: Guard,
}

impl Session {
    fn begin(args: &[&str]) -> Self {
        Self::begin_in(args, &[])
    }

    fn begin_in(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let runs = Runs::new();
        let child = roofgap(["profile", &runs.place()])
            .args(args)
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Session { runs, child: Guard(child) }
    }

    /// Waits until a log in a folder of the run contains a word.
    fn wait_for(&mut self, folder: &str, word: &str) {
        let says = |log: &Path| std::fs::read_to_string(log).is_ok_and(|text| text.contains(word));
        let in_run = |run: &Path| {
            let logs = std::fs::read_dir(run.join(folder));
            logs.is_ok_and(|logs| logs.flatten().any(|log| says(&log.path())))
        };
        wait_until(word, || {
            assert_eq!(self.child.0.try_wait().unwrap(), None, "it ended before {word}");
            let mut runs = std::fs::read_dir(self.runs.0.path()).unwrap().flatten();
            runs.any(|run| in_run(&run.path()))
        });
    }

    fn signal(&self, signal: &str) {
        let id = self.child.0.id().to_string();
        let sent = std::process::Command::new("kill").args([signal, &id]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end, checks that the session was interrupted, and returns its run directory.
    fn end(&mut self) -> PathBuf {
        let mut status = None;
        wait_until("the end", || {
            status = self.child.0.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(130));
        let run_dir = self.runs.one();
        is_whole(&run_dir);
        let session = json(run_dir.join("session.json"));
        assert_eq!(session["state"], "interrupted");
        assert_eq!(session["exit_status"], 130);
        ok(["analyze".as_ref(), run_dir.as_os_str()]);
        ok(["report".as_ref(), run_dir.as_os_str()]);
        run_dir
    }
}

fn interrupted(signal: &str) {
    let mut session = Session::begin(&["--", "sh", "-c", "echo started; sleep 3600"]);
    session.wait_for("baseline", "started");
    session.signal(signal);
    session.end();
}

#[test]
fn ctrl_c_ends_the_program_and_keeps_what_was_collected() {
    interrupted("-INT");
}

#[test]
fn sigterm_does_the_same() {
    interrupted("-TERM");
}

#[test]
fn ctrl_c_while_nsys_exports_ends_it_and_keeps_the_report() {
    let nsys = format!("profiling.nsys.path='{}'", root().join("tests/stand-in/nsys").display());
    let args = [&*nsys, "profiling.timeline=nsys", "run.grace=1s", "--", "true"];
    let mut session = Session::begin_in(&args, &[("STANDIN_NSYS_MODE", "export-hang")]);
    session.wait_for("nsys", "exporting in");
    session.signal("-INT");
    let run_dir = session.end();
    let log = std::fs::read_to_string(run_dir.join("nsys/export.out.log")).unwrap();
    let ids: Vec<&str> = log.split_whitespace().filter(|word| word.parse::<u32>().is_ok()).collect();
    assert_eq!(ids.len(), 2, "{log}");
    for id in ids {
        assert!(!Path::new("/proc").join(id).join("exe").exists(), "{id} lives");
    }
    assert!(run_dir.join("nsys/run.nsys-rep").is_file());
    // A partial export is deleted.
    let exports = std::fs::read_dir(run_dir.join("nsys")).unwrap().flatten();
    let exports: Vec<PathBuf> =
        exports.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains("sqlite")).collect();
    assert!(exports.is_empty(), "{exports:?}");
    let session = json(run_dir.join("session.json"));
    assert_eq!(phase(&session, "baseline")["status"], "ok");
    let timeline = phase(&session, "timeline");
    assert_eq!(timeline["status"], "failed");
    assert!(timeline["why"].as_str().unwrap().contains("run.nsys-rep"), "{timeline}");
}

#[test]
fn a_second_ctrl_c_kills_the_tools() {
    let deaf = "trap 'echo heard' INT; echo started; while :; do sleep 0.1; done";
    let mut session = Session::begin(&["run.grace=1h", "--", "sh", "-c", deaf]);
    session.wait_for("baseline", "started");
    session.signal("-INT");
    session.wait_for("baseline", "heard");
    session.signal("-INT");
    session.end();
}

#[test]
fn the_embedded_model_is_deterministic() {
    let folder = tempfile::tempdir().unwrap();
    let account = |name: &str| {
        let path = folder.path().join(name);
        let file = format!("--account={}", path.display());
        let args = [
            "workload",
            "--quiet",
            "--preset=nano",
            "--new-tokens=3",
            "--repeats=1",
            "--warmup=0",
            "--format=json",
            &file,
        ];
        let run = ok(args);
        assert_eq!(run.stderr, "");
        let printed: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(printed, json(path));
        printed
    };
    let (first, second) = (account("a.json"), account("b.json"));
    assert_eq!(first["model"]["weights"], "random");
    assert!(first["token_hash"].is_string());
    assert_eq!(first["token_hash"], second["token_hash"]);
}

/// Gives each decode step of an account a time, from the number of positions before it.
fn set_steps(path: PathBuf, prompt: i64, step_ns: impl Fn(i64) -> i64) {
    let mut account = json(path.clone());
    account["tokens"]["prompt"] = prompt.into();
    for repeat in account["repeats"].as_array_mut().unwrap() {
        let stages = repeat["stages"].as_array_mut().unwrap();
        stages[0]["wall_ns"] = (prompt * 1_000_000).into();
        stages[0]["notes"] = serde_json::json!([]);
        let count = stages[1]["steps_ns"].as_array().unwrap().len() as i64;
        let steps: Vec<i64> = (prompt..prompt + count).map(&step_ns).collect();
        stages[1]["wall_ns"] = steps.iter().sum::<i64>().into();
        stages[1]["steps_ns"] = steps.into();
    }
    std::fs::write(path, account.to_string()).unwrap();
}

#[test]
fn a_decode_without_a_cache_is_found_with_the_changes_that_fix_it() {
    let runs = Runs::new();
    let slow = ["workload.kv_cache=false", "workload.tokens=48", "runner=unwatched"];
    let done = runs.profile(&[&NANO[..], &slow].concat());
    assert_eq!(done.status, Some(0), "{}", done.stderr);
    let run_dir = runs.one();
    let account = run_dir.join("baseline/workload.json");
    let notes = json(account.clone())["notes"].to_string();
    assert!(notes.contains("no KV cache"), "{notes}");
    let findings = |step_ns: fn(i64) -> i64| {
        set_steps(account.clone(), 64, step_ns);
        ok(["report", run_dir.to_str().unwrap()]);
        json(run_dir.join("metrics.json"))["findings"].clone()
    };
    let found = findings(|positions| positions * 1_000_000);
    assert_eq!(found[0]["id"], "context-recomputed");
    let knobs = found[0]["knobs"].as_array().unwrap();
    let ids: Vec<&Value> = knobs.iter().map(|knob| &knob["id"]).collect();
    assert_eq!(ids, ["embedded.kv_cache", "embedded.context_limit"]);
    assert_eq!(
        knobs[0]["changes"],
        serde_json::json!([{"kind": "setting", "key": "workload.kv_cache", "value": "true"}])
    );
    let report = std::fs::read_to_string(run_dir.join("report.md")).unwrap();
    let id = run_dir.file_name().unwrap().to_str().unwrap();
    assert!(report.contains(&format!("try: roofgap try {id} context-recomputed (workload.kv_cache=true;")));
    // Steps of the same time whatever the context.
    assert_eq!(findings(|_| 64_000_000), serde_json::json!([]));
}

/// Profiles under a real nsys without a GPU. `scripts/get-nsys.sh` gets an nsys.
#[test]
#[ignore = "needs nsys: set ROOFGAP_TEST_NSYS"]
fn real_nsys_stages_come_from_the_timeline() {
    let nsys = std::env::var_os("ROOFGAP_TEST_NSYS").expect("ROOFGAP_TEST_NSYS is not set");
    if !can_run(!has_gpu(), "this machine has a GPU, where a session has more phases") {
        return;
    }
    let path = format!("profiling.nsys.path='{}'", nsys.to_string_lossy());
    let model = ["workload", "--preset=nano", "--new-tokens=3", "--repeats=2", "--warmup=1"];
    let mut embedded = NANO.to_vec();
    embedded.extend([&*path, "profiling.timeline=nsys"]);
    let mut command = vec![&*path, "profiling.timeline=nsys", "--", ROOFGAP];
    command.extend(model);
    // The embedded model requests no counters. A program does, but there is no GPU.
    for (args, status) in [(embedded, 0), (command, 3)] {
        let runs = Runs::new();
        let run = runs.profile(&args);
        assert_eq!(run.status, Some(status), "{}", run.stderr);
        let run_dir = runs.one();
        is_whole(&run_dir);
        for name in ["nsys/run.nsys-rep", "nsys/run.sqlite"] {
            assert!(run_dir.join(name).is_file(), "no {name}");
        }
        let session = json(run_dir.join("session.json"));
        assert_eq!(phase(&session, "timeline")["status"], "ok", "{session:#}");
        assert_eq!(phase(&session, "timeline")["tool"], "nsys");
        assert_eq!(phase(&session, "counters")["status"], "skipped");
        assert!(!phase(&session, "counters")["why"].as_str().unwrap().is_empty());
        let metrics = json(run_dir.join("metrics.json"));
        let stages = metrics["stages"].as_array().unwrap();
        assert_eq!(stages.len(), 2, "{stages:?}");
        for (stage, name) in stages.iter().zip(["prefill", "decode"]) {
            assert_eq!(stage["name"], name);
            assert_eq!(stage["from"], "timeline");
            assert_eq!(stage["instances"], 2, "warm-up is not left out of {name}");
        }
        let reasons = metrics["reasons"].as_array().unwrap();
        for about in ["kernels", "counters"] {
            assert!(reasons.iter().any(|reason| reason["about"] == about), "{about}: {reasons:?}");
        }
    }
}

#[test]
fn the_binary_can_be_called_by_a_link_from_anywhere() {
    let runs = Runs::new();
    let link = runs.0.path().join("rg");
    std::os::unix::fs::symlink(ROOFGAP, &link).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(&link)
        .args(["profile", "runner=unwatched"])
        .args(NANO)
        .current_dir(elsewhere.path())
        .output()
        .unwrap();
    let run = Run::from(output);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert!(elsewhere.path().join("tmp/stage2").is_dir(), "not in the current folder");
    let id = |listed: &[u8]| String::from_utf8_lossy(listed).contains("202");
    let list =
        || std::process::Command::new(&link).args(["runs", "list"]).current_dir(elsewhere.path()).output();
    assert!(id(&list().unwrap().stdout));
    std::fs::rename(elsewhere.path().join("tmp/stage2"), elsewhere.path().join("roofgap-runs")).unwrap();
    assert!(id(&list().unwrap().stdout), "a folder of an earlier version is listed, too");
}

#[test]
fn a_run_is_repeated_by_its_own_command_from_anywhere() {
    let runs = Runs::new();
    let folder = tempfile::Builder::new().prefix("it's a ").tempdir().unwrap();
    std::fs::write(folder.path().join("script"), "echo \"$1|$WORD\"\n").unwrap();
    let profiled: Run = roofgap(["profile", &runs.place(), "runner=unwatched", "+workload.env.WORD=a=b"])
        .args(["--", "sh", "script", "two 'words' $HOME ü"])
        .current_dir(folder.path())
        .output()
        .unwrap()
        .into();
    assert_eq!(profiled.status, Some(0), "{}", profiled.stderr);
    let first = runs.one();
    let said = |run_dir: &Path| std::fs::read_to_string(run_dir.join("baseline/program.out.log")).unwrap();
    assert_eq!(said(&first), "two 'words' $HOME ü|a=b\n");
    let session = json(first.join("session.json"));
    let again = std::process::Command::new("sh")
        .args(["-c", session["repeat_command"].as_str().unwrap()])
        .current_dir("/")
        .output()
        .unwrap();
    assert!(again.status.success(), "{again:?}");
    let all = std::fs::read_dir(runs.0.path()).unwrap().flatten().map(|entry| entry.path());
    let second = all.into_iter().find(|path| *path != first).unwrap();
    assert_eq!(said(&second), said(&first));
    let config = |run_dir: &Path| std::fs::read_to_string(run_dir.join("config.yaml")).unwrap();
    assert_eq!(config(&second), config(&first));
}

#[test]
fn a_report_of_no_run_is_status_2() {
    let runs = Runs::new();
    let dir = format!("--dir={}", runs.0.path().display());
    let run = run(["report", "19700101-000000", &dir]);
    assert_eq!(run.status, Some(2));
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("no runs in"), "{}", run.stderr);
}
