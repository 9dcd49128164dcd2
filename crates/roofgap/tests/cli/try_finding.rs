//! `roofgap try` on a program whose times are fixed numbers.

use crate::support::{ROOFGAP, Run, can_run, ok, roofgap, root};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A program whose account has fixed times, changed by environment variables. It counts its runs in `$COUNT`.
const PROGRAM: &str = r#"
count=$(( $(cat "$COUNT" 2>/dev/null || echo 0) + 1 ))
echo $count > "$COUNT"
[ "$count" = "$HANG_AT" ] && { touch "$COUNT.hangs"; exec sleep 3600; }
decode=1000000000 prefill=200000000 hash=sha256:aa
[ -n "$FAST" ] && decode=$(( decode / 10 ))
[ -n "$MORE" ] && prefill=$(( prefill / 2 ))
[ -n "$SLOW" ] && decode=$(( decode * 10 ))
[ -n "$WRONG" ] && { hash=sha256:bb; decode=10; }
[ -n "$FAST" ] && [ -n "$MORE" ] && [ "$count" -ge "${CLASH_AT:-100}" ] && { hash=$CLASH; decode=3000000000; }
generated=10
[ -n "$SHORT" ] && { generated=5; decode=10; }
[ -n "$DAMAGED" ] && { echo '{' > "$ROOFGAP_WORKLOAD_JSON"; exit 0; }
[ -n "$UNSTEADY" ] && hash=sha256:$count
[ -n "$CRASH" ] && { echo "unknown option --fast" >&2; exit 3; }
[ -n "$MEMORY" ] && { echo "CUDA out of memory. Tried to allocate 2.00 GiB" >&2; exit 1; }
[ -n "$SILENT" ] && exit 0
printf '{"schema": "roofgap.workload/1", "token_hash": "%s", "tokens": {"generated": %s},
 "device_memory_bytes": 3000000000, "repeats": [{"stages": [
 {"name": "prefill", "wall_ns": %s}, {"name": "decode", "wall_ns": %s}]}]}' \
 $hash $generated $prefill $decode > "$ROOFGAP_WORKLOAD_JSON"
"#;

/// A run of the program in a folder of its own.
pub struct Tried {
    pub folder: tempfile::TempDir,
    pub run: PathBuf,
}

impl Tried {
    /// Profiles the program with these overrides.
    pub fn new(overrides: &[&str]) -> Self {
        let (tried, profile) = Self::profile(overrides);
        assert_eq!(profile.status, Some(0), "{}", profile.stderr);
        tried
    }

    /// Profiles the program with these overrides, and returns how that ended.
    fn profile(overrides: &[&str]) -> (Self, Run) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("program.sh"), PROGRAM).unwrap();
        let profile: Run =
            roofgap(["profile", "runner=unwatched", "workload=command", "workload.annotate=false"])
                .arg(format!("artifacts.stage2_dir='{}'", folder.path().join("runs").display()))
                .arg(format!("++workload.env.COUNT='{}'", folder.path().join("count").display()))
                .arg(format!("workload.program=[sh, '{}']", folder.path().join("program.sh").display()))
                .args(overrides)
                .output()
                .unwrap()
                .into();
        let runs = std::fs::read_dir(folder.path().join("runs")).unwrap();
        let run = runs.map(|entry| entry.unwrap().path()).next().unwrap();
        (Tried { folder, run }, profile)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = roofgap(["try", self.run.to_str().unwrap(), "--repeats=2"]);
        command.args(args);
        command
    }

    /// Tries with consent.
    fn attempt(&self, args: &[&str]) -> Run {
        self.command(args).arg("--yes").output().unwrap().into()
    }

    /// Returns the trial on disk, checked against its schema.
    fn trial(&self) -> Value {
        let document: Value =
            serde_json::from_slice(&std::fs::read(self.run.join("try.json")).unwrap()).unwrap();
        let schema: Value = serde_json::from_str(&ok(["schema", "try"]).stdout).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&document)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
        document
    }
}

/// Returns the compared time of a kind, and of a stage by its name.
fn time<'a>(row: &'a Value, kind: &str, name: Option<&str>) -> &'a Value {
    let times = row["times"].as_array().unwrap();
    let found =
        times.iter().find(|change| change["of"]["kind"] == kind && change["of"]["name"].as_str() == name);
    found.unwrap_or_else(|| panic!("no {kind} in {row}"))
}

fn near(value: &Value, expected: f64) -> bool {
    (value.as_f64().unwrap() / expected - 1.0).abs() < 1e-6
}

#[test]
fn changes_that_help_are_kept_together() {
    let tried = Tried::new(&[]);
    let before = std::fs::read(tried.run.join("config.yaml")).unwrap();
    let run = tried.attempt(&["--env=FAST=1", "--env=MORE=1"]);
    assert_eq!(run.status, Some(0), "{}\n{}", run.stderr, run.stdout);

    let trial = tried.trial();
    assert_eq!(trial["state"], "done");
    assert_eq!(trial["base"]["deterministic"], true);
    let rows = trial["rows"].as_array().unwrap();
    let verdicts: Vec<&str> = rows.iter().map(|row| row["verdict"].as_str().unwrap()).collect();
    // Each alone, then both together, each against the unchanged program.
    assert_eq!(verdicts, ["kept", "kept", "kept"]);
    assert!(near(&time(&rows[0], "stage", Some("decode"))["ratio"], 10.0), "{}", rows[0]);
    assert!(near(&time(&rows[0], "token", None)["ratio"], 10.0));
    assert!(near(&time(&rows[0], "run", None)["ratio"], 4.0));
    assert!(near(&time(&rows[0], "stage", Some("prefill"))["ratio"], 1.0));
    assert!(near(&time(&rows[1], "run", None)["ratio"], 12.0 / 11.0), "{}", rows[1]);
    assert!(near(&time(&rows[2], "run", None)["ratio"], 6.0), "{}", rows[2]);
    assert_eq!(rows[2]["output"]["tokens"], "identical");
    assert_eq!(rows[2]["device_memory_bytes"], 3_000_000_000u64);

    let winner = &trial["winner"];
    assert_eq!(winner["knobs"], serde_json::json!(["env.FAST", "env.MORE"]));
    assert_eq!(winner["row"], 2);
    // The command to keep them works as it is printed.
    let command = winner["command"].as_str().unwrap();
    let words = command.strip_prefix("roofgap ").unwrap();
    let again = Command::new("sh").args(["-c", &format!("{ROOFGAP} {words} --dry-run")]).output().unwrap();
    let again = Run::from(again);
    assert_eq!(again.status, Some(0), "{}", again.stderr);
    assert!(again.stdout.contains("FAST=1") && again.stdout.contains("MORE=1"), "{}", again.stdout);

    for words in ["Kept: env.FAST + env.MORE", "6.00 times as fast", "identical", "Its program: "] {
        assert!(run.stdout.contains(words), "{words} in {}", run.stdout);
    }
    assert_eq!(std::fs::read(tried.run.join("config.yaml")).unwrap(), before);
    let left: Vec<PathBuf> = std::fs::read_dir(&tried.run)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains(".try-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let files = ok(["runs", "artifacts", tried.run.to_str().unwrap()]).stdout;
    assert!(files.contains("trial of changes"), "{files}");

    // A second trial takes the place of the first.
    let run = tried.attempt(&["--env=SLOW=1", "--format=json"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let printed: Value = serde_json::from_str(&run.stdout).unwrap();
    let trial = tried.trial();
    assert_eq!(printed["schema"], "roofgap.try/2");
    assert_eq!(printed, trial);
    assert_eq!(trial["rows"][0]["verdict"], "slower");
    assert_eq!(trial["winner"], Value::Null);
}

/// Pretends that the baseline took `ns`.
fn set_baseline(tried: &Tried, ns: u64) {
    let path = tried.run.join("session.json");
    let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let phases = record["phases"].as_array_mut().unwrap();
    let baseline = phases.iter_mut().find(|phase| phase["name"] == "baseline");
    baseline.unwrap()["wall_ns"] = ns.into();
    std::fs::write(&path, record.to_string()).unwrap();
}

/// Each change has runs of the unchanged program beside its own, so a short budget decides some changes instead of none.
#[test]
fn one_change_is_decided_after_the_other() {
    let tried = Tried::new(&[]);
    set_baseline(&tried, 300_000_000_000);
    let args = ["--env=SLOW=1", "--env=MORE=1", "--budget=21m"];
    let run = tried.attempt(&args);
    assert_eq!(run.status, Some(0), "{}\n{}", run.stderr, run.stdout);
    assert!(run.stderr.contains("which run in this order; raise it with --budget"), "{}", run.stderr);
    let pairs: Vec<&str> = run.stderr.lines().filter(|line| line.starts_with("pair ")).collect();
    let second = pairs.iter().position(|line| line.contains("env.MORE")).unwrap();
    let (first, second) = pairs.split_at(second);
    assert!(first.iter().any(|line| line.contains("env.SLOW")), "{pairs:?}");
    assert!(!second.iter().any(|line| line.contains("env.SLOW")), "{pairs:?}");
    let trial = &tried.trial();
    assert_eq!(trial["rows"][0]["verdict"], "slower");
    assert_eq!(trial["rows"][1]["verdict"], "kept");
}

/// The profiled run is the first; four measure each change alone, and what follows both together.
#[test]
fn the_best_alone_is_kept_where_all_together_do_not_help() {
    for (hash, verdict) in [("sha256:bb", "refused"), ("sha256:aa", "slower")] {
        let clash = format!("++workload.env.CLASH='{hash}'");
        let tried = Tried::new(&["++workload.env.CLASH_AT='10'", &clash]);
        let run = tried.attempt(&["--env=FAST=1", "--env=MORE=1"]);
        assert_eq!(run.status, Some(0), "{}\n{}", run.stderr, run.stdout);
        let trial = &tried.trial();
        let rows = trial["rows"].as_array().unwrap();
        let verdicts: Vec<&str> = rows.iter().map(|row| row["verdict"].as_str().unwrap()).collect();
        assert_eq!(verdicts, ["kept", "faster", verdict], "{trial}");
        let reason = rows[1]["reason"].as_str().unwrap();
        assert_eq!(reason, format!("env.FAST + env.MORE, measured together: {verdict}"));
        let winner = &trial["winner"];
        assert_eq!((&winner["knobs"], &winner["row"]), (&serde_json::json!(["env.FAST"]), &0.into()));
        assert!(run.stdout.contains("Kept: env.FAST\n"), "{}", run.stdout);
        let command = winner["command"].as_str().unwrap();
        assert!(command.contains("FAST") && !command.contains("MORE"), "{command}");
    }
}

#[test]
fn a_job_gets_no_node_by_a_trial() {
    let (mut tried, profile) = Tried::profile(&["run.id=job7"]);
    let job = tried.run.clone();
    assert!(job.ends_with("job7"), "{}", profile.stderr);
    let nodes = || -> Vec<PathBuf> {
        let nodes = std::fs::read_dir(job.join("nodes")).unwrap();
        nodes.map(|entry| entry.unwrap().path()).collect()
    };
    let (before, record) = (nodes(), std::fs::read(job.join("session.json")).unwrap());
    assert_eq!(before.len(), 1);
    // The job and its node.
    for run in [job.clone(), before[0].clone()] {
        tried.run = run;
        let run = tried.attempt(&["--env=FAST=1"]);
        assert_eq!(run.status, Some(0), "{}\n{}", run.stderr, run.stdout);
        let winner = &tried.trial()["winner"];
        let command = winner["command"].as_str().unwrap();
        assert!(command.ends_with(" run.id=null"), "{command}");
        assert_eq!(nodes(), before);
        assert_eq!(std::fs::read(job.join("session.json")).unwrap(), record);
    }
    // A second session of the job.
    std::fs::create_dir(job.join("nodes/20260101-000000")).unwrap();
    for run in [job.clone(), before[0].clone()] {
        tried.run = run;
        let refused = tried.attempt(&["--env=FAST=1"]);
        assert_eq!(refused.status, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains("several sessions"), "{}", refused.stderr);
    }
}

#[test]
fn a_damaged_account_is_a_failure() {
    let tried = Tried::new(&[]);
    let run = tried.attempt(&["--env=DAMAGED=1"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let row = &tried.trial()["rows"][0];
    assert_eq!(row["verdict"], "failed", "{row}");
    assert!(row["reason"].as_str().unwrap().contains("workload account"), "{row}");
}

#[test]
fn failures_are_rows() {
    let tried = Tried::new(&[]);
    let run = tried.attempt(&[
        "--env=CRASH=1",
        "--env=MEMORY=1",
        "--env=WRONG=1",
        "--env=NOTHING=1",
        "--env=SILENT=1",
        "--env=SHORT=1",
    ]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let trial = tried.trial();
    let rows = trial["rows"].as_array().unwrap();
    let of = |at: usize| (rows[at]["verdict"].as_str().unwrap(), rows[at]["reason"].as_str().unwrap_or(""));
    assert_eq!(of(0), ("failed", "the program ended with status 3"));
    assert_eq!(rows[0]["log_tail"], "unknown option --fast");
    assert_eq!(of(1), ("failed", "out of memory: the program ended with status 1"));
    assert_eq!(of(2), ("refused", "its tokens differ from those without the change"));
    assert_eq!(rows[2]["output"]["tokens"], "different");
    assert_eq!(of(3), ("same", ""));
    assert_eq!(of(4).0, "failed");
    assert!(of(4).1.contains("other times"), "{:?}", of(4));
    assert_eq!(of(5), ("refused", "it generated fewer tokens: 5 instead of 10"));
    assert_eq!(trial["winner"], Value::Null);
    for words in ["none is kept", "| unknown option --fast", "no measurable change", "refused"] {
        assert!(run.stdout.contains(words), "{words} in {}", run.stdout);
    }
}

#[test]
fn ctrl_c_leaves_the_rows_measured_so_far() {
    // The profiled run is the first, then the unchanged program, the changed one twice, and the unchanged one again.
    let tried = Tried::new(&["++workload.env.HANG_AT='5'"]);
    let mut child = tried
        .command(&["--env=FAST=1", "--yes"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let hangs = tried.folder.path().join("count.hangs");
    let end = Instant::now() + Duration::from_secs(300);
    while !hangs.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let trial = tried.trial();
    assert_eq!(trial["state"], "interrupted");
    let row = &trial["rows"][0];
    assert_eq!(row["verdict"], "unfinished");
    assert_eq!(row["reason"], "interrupted after 1 of at least 2 pairs of runs");
    let decode = time(row, "stage", Some("decode"));
    assert_eq!(decode["before_ns"], serde_json::json!([1_000_000_000]));
    assert_eq!(decode["after_ns"], serde_json::json!([100_000_000]));
    // The run can be tried again.
    assert_eq!(tried.attempt(&["--env=FAST=1"]).status, Some(0));
    assert_eq!(tried.trial()["rows"][0]["verdict"], "kept");
}

#[test]
fn tokens_that_differ_from_run_to_run_are_not_compared() {
    let tried = Tried::new(&["++workload.env.UNSTEADY='1'"]);
    let run = tried.attempt(&["--env=FAST=1"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let trial = &tried.trial();
    assert_eq!(trial["base"]["deterministic"], false);
    assert_eq!(trial["rows"][0]["output"]["tokens"], "not_known");
    assert_eq!(trial["rows"][0]["verdict"], "kept");
    assert!(run.stdout.contains("differ from run to run"), "{}", run.stdout);
}

#[test]
fn a_program_without_an_account_is_compared_by_its_process() {
    let tried = Tried::new(&["++workload.env.SILENT='1'"]);
    let run = tried.attempt(&["--env=NOTHING=1"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let trial = &tried.trial();
    assert_eq!(trial["rows"][0]["times"][0]["of"]["kind"], "process");
    assert!(trial["base"]["times_reason"].is_string());
    assert!(run.stdout.contains("start-up included"), "{}", run.stdout);
}

#[test]
fn a_spent_budget_is_said() {
    let tried = Tried::new(&[]);
    let run = tried.attempt(&["--env=FAST=1", "--budget=0s"]);
    assert_eq!(run.status, Some(3), "{}", run.stderr);
    let trial = &tried.trial();
    assert_eq!(trial["rows"][0]["verdict"], "unfinished");
    assert!(trial["reason"].as_str().unwrap().contains("budget"), "{trial}");
    assert!(run.stderr.contains("raise it with --budget"), "{}", run.stderr);
}

#[test]
fn a_program_that_fails_unchanged_ends_the_trial() {
    let tried = Tried::new(&["++workload.env.HANG_AT=''"]);
    std::fs::write(tried.folder.path().join("program.sh"), "echo broken >&2; exit 7").unwrap();
    let run = tried.attempt(&["--env=FAST=1"]);
    assert_eq!(run.status, Some(4), "{}", run.stderr);
    let trial = &tried.trial();
    assert_eq!(trial["state"], "failed");
    assert_eq!(trial["log_tail"], "broken");
    assert!(run.stdout.contains("ended with status 7"), "{}", run.stdout);
}

#[test]
fn nothing_runs_without_consent_or_a_change() {
    let tried = Tried::new(&[]);
    let refused: Run = tried.command(&["--env=FAST=1"]).output().unwrap().into();
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("--yes") && refused.stderr.contains("--dry-run"), "{}", refused.stderr);
    let plan: Run = tried.command(&["--env=FAST=1", "--dry-run", "--format=json"]).output().unwrap().into();
    assert_eq!(plan.status, Some(0), "{}", plan.stderr);
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(plan["first_runs"], 4);
    assert_eq!(plan["candidates"][0]["knob"]["id"], "env.FAST");
    for (args, words) in [
        (&[][..], "no finding of the run has a change"),
        (&["launch-bound"][..], "no finding \"launch-bound\""),
        (&["--env=1X=1"][..], "NAME=VALUE"),
    ] {
        let run = tried.attempt(args);
        assert_eq!(run.status, Some(2), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(words), "{args:?}: {}", run.stderr);
    }
    assert!(!tried.run.join("try.json").exists());
    let count = std::fs::read_to_string(tried.folder.path().join("count")).unwrap();
    assert_eq!(count.trim(), "1", "only the profiled run ran");
}

#[test]
fn a_terminal_is_asked() {
    let python = Command::new("python3").arg("--version").output();
    if !can_run(python.is_ok(), "python3 is not installed") {
        return;
    }
    let tried = Tried::new(&[]);
    let on_terminal = |answer: &str| -> Run {
        let output = Command::new("python3")
            .arg(root().join("crates/roofgap/tests/cli/on_terminal.py"))
            .args([ROOFGAP, "try", tried.run.to_str().unwrap(), "--env=FAST=1", "--repeats=2"])
            .env("ANSWER", answer)
            .output();
        output.unwrap().into()
    };
    let no = on_terminal("n");
    assert_eq!(no.status, Some(0), "{}", no.stdout);
    assert!(no.stdout.contains("at least 4 runs"), "{}", no.stdout);
    assert!(!tried.run.join("try.json").exists());
    let yes = on_terminal("y");
    assert_eq!(yes.status, Some(0), "{}", yes.stdout);
    assert_eq!(tried.trial()["rows"][0]["verdict"], "kept");
}

/// The embedded model without its KV cache: the finding's change is faster with the same tokens; the other change reads
/// less of the context, so that the tokens differ.
#[cfg(feature = "embedded")]
#[test]
fn a_planted_slow_path_is_found_tried_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    let profile: Run =
        roofgap(["profile", "runner=unwatched", "workload.size=nano", "workload.kv_cache=false"])
            .args([
                "workload.tokens=16",
                "workload.prompt_tokens=400",
                "workload.threads=1",
                "workload.repeats=1",
                "workload.warmup=0",
            ])
            .arg(format!("artifacts.stage2_dir='{runs}'"))
            .output()
            .unwrap()
            .into();
    assert_eq!(profile.status, Some(0), "{}", profile.stderr);
    // The finding needs steady times, which a busy machine does not give: each step takes 1 ms for each position before it.
    let run_dir = std::fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    let path = run_dir.join("baseline/workload.json");
    let mut account: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let prompt = account["tokens"]["prompt"].as_i64().unwrap();
    let stages = account["repeats"][0]["stages"].as_array_mut().unwrap();
    stages[0] = serde_json::json!({"name": "prefill", "wall_ns": prompt * 1_000_000});
    let count = stages[1]["steps_ns"].as_array().unwrap().len() as i64;
    let steps: Vec<i64> = (prompt..prompt + count).map(|position| position * 1_000_000).collect();
    stages[1]["wall_ns"] = steps.iter().sum::<i64>().into();
    stages[1]["steps_ns"] = steps.into();
    std::fs::write(&path, account.to_string()).unwrap();

    let tried = Tried { run: run_dir, folder };
    let plan: Run = tried.command(&["--dry-run"]).output().unwrap().into();
    assert_eq!(plan.status, Some(0), "{}", plan.stderr);
    assert!(plan.stdout.contains("context-recomputed"), "{}", plan.stdout);
    // One change of a finding can be named by itself, and its findings are known.
    let one: Run =
        tried.command(&["embedded.context_limit", "--dry-run", "--format=json"]).output().unwrap().into();
    assert_eq!(one.status, Some(0), "{}", one.stderr);
    let one: Value = serde_json::from_str(&one.stdout).unwrap();
    let candidates = one["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 1, "{one}");
    assert_eq!(candidates[0]["knob"]["id"], "embedded.context_limit");
    assert_eq!(candidates[0]["findings"][0]["id"], "context-recomputed");
    let run = tried.attempt(&["context-recomputed", "--budget=24h"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let trial = &tried.trial();
    let row = |id: &str| {
        let rows = trial["rows"].as_array().unwrap();
        rows.iter().find(|row| row["knob"]["id"] == id).unwrap()
    };
    let cache = row("embedded.kv_cache");
    assert_eq!(cache["output"]["tokens"], "identical", "{trial}");
    // The times are those of this machine, whatever they are; verdict, bound and winner follow from them.
    let low = |change: &Value| change["interval"][0].as_f64().unwrap();
    let is_faster = low(&cache["times"][0]) > 1.0;
    assert_eq!(cache["verdict"] == "kept", is_faster, "{trial}");
    let decode = time(cache, "stage", Some("decode"));
    let bound = decode["bound_ratio"].as_f64().unwrap();
    assert!(bound > 10.0, "{decode}");
    assert_eq!(decode["within_bound"].as_bool(), Some(low(decode) <= bound), "{decode}");
    let limit = row("embedded.context_limit");
    assert_eq!(limit["output"]["tokens"], "different", "{trial}");
    assert_ne!(limit["verdict"], "kept", "{trial}");
    let winner = &trial["winner"];
    assert_eq!(winner.is_object(), is_faster, "{trial}");
    if is_faster {
        // With a cache the limit changes nothing, so that it may be measured as a gain beside it.
        assert_eq!(winner["knobs"][0], "embedded.kv_cache", "{trial}");
        assert!(winner["command"].as_str().unwrap().contains(" workload.kv_cache=true"), "{trial}");
    }
}
