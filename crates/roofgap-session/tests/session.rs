//! Whole sessions with stand-in programs and tools: what they leave, how they end.

// Helpers of tests may fail as tests do; clippy only sees that inside a #[test].
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use roofgap_collect::child::Cancel;
use roofgap_session::config::{ConfigProps, compose};
use roofgap_session::exit::Exit;
use roofgap_session::record::{PhaseName, PhaseStatus, SessionRecord, SessionState};
use roofgap_session::session::{Event, Outcome, ProfileProps, SessionError, dry_run, profile, report};

/// A program that writes the account that a model would write.
const MODEL: &str = r#"#!/bin/sh
cat > "$ROOFGAP_WORKLOAD_JSON.tmp" <<'JSON'
{"schema": "roofgap.workload/1",
 "model": {"name": "stand-in", "revision": null, "parameters": 1000, "active_parameters": 500, "dtype": "f32", "weights": "random", "config": null},
 "tokens": {"prompt": 8, "generated": 4, "batch": 1, "vision": null},
 "device": {"kind": "cpu", "name": "a CPU"},
 "repeats": [{"warmup": true, "stages": [{"name": "prefill", "wall_ns": 9000000, "steps_ns": null, "notes": []}]},
             {"warmup": false, "stages": [{"name": "prefill", "wall_ns": 5000000, "steps_ns": null, "notes": []},
                                          {"name": "decode", "wall_ns": 8000000, "steps_ns": [2000000, 2000000, 2000000, 2000000], "notes": []}]}],
 "operators": [{"name": "matmul", "stage": "decode", "calls": 4, "self_cpu_ns": 100, "total_cpu_ns": 100, "self_gpu_ns": null, "total_gpu_ns": null}],
 "token_hash": null, "peak": null, "notes": []}
JSON
mv "$ROOFGAP_WORKLOAD_JSON.tmp" "$ROOFGAP_WORKLOAD_JSON"
"#;

/// An nvidia-smi that lists one GPU.
const NVIDIA_SMI: &str = "#!/bin/sh\necho '0, GPU-0, NVIDIA H200, 580.159.04, 9.0, 143771, 4, 700.00, 700.00, 345, 1980, \
                          3201, 3201, 31, 0, Disabled, Enabled, Enabled, Default'\n";

/// A tool of `tests/stand-in`: it plays back a recording of an H200, or fails as the real one does.
fn stand_in(tool: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/stand-in")
        .join(tool);
    format!(
        "profiling.{tool}.path='{}'",
        path.canonicalize().unwrap().display()
    )
}

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Bench {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A session of a program that ran well, under the stand-ins, with a GPU.
    fn watched(&self, overrides: &[&str]) -> Outcome {
        self.script("bin/nvidia-smi", NVIDIA_SMI);
        let program = self.script("program", MODEL);
        let mut all = vec![stand_in("nsys"), stand_in("ncu")];
        all.extend(overrides.iter().map(|text| (*text).to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        self.run(&[program.to_str().unwrap()], &all)
    }

    fn props(&self, program: &[&str], overrides: &[&str]) -> ProfileProps {
        let mut all = vec![
            format!("artifacts.stage2_dir='{}'", self.path("runs").display()),
            format!("profiling.nsys.path='{}'", self.path("no/nsys").display()),
            format!("profiling.ncu.path='{}'", self.path("no/ncu").display()),
            "run.grace=200ms".to_owned(),
            "run.min_free_bytes=1MB".to_owned(),
        ];
        all.extend(overrides.iter().map(|text| (*text).to_owned()));
        let composed = compose(&ConfigProps {
            overrides: all,
            program: program.iter().map(|word| (*word).to_owned()).collect(),
            ..ConfigProps::default()
        })
        .unwrap();
        ProfileProps {
            composed,
            command_line: vec!["roofgap".to_owned(), "profile".to_owned()],
            executable: self.script("model", MODEL),
            version: "0.0.0-test".to_owned(),
            search_path: vec![
                self.path("bin"),
                "/usr/local/bin".into(),
                "/usr/bin".into(),
                "/bin".into(),
            ],
            native: Err("not part of this build".to_owned()),
        }
    }

    fn run(&self, program: &[&str], overrides: &[&str]) -> Outcome {
        profile(&self.props(program, overrides), &Cancel::new(), &mut |_| {}).unwrap()
    }
}

fn status(outcome: &Outcome, phase: PhaseName) -> &PhaseStatus {
    &outcome.record.phase(phase).unwrap().status
}

fn why(outcome: &Outcome, phase: PhaseName) -> &str {
    status(outcome, phase).why().unwrap_or("")
}

fn notes(outcome: &Outcome, phase: PhaseName) -> String {
    outcome.record.phase(phase).unwrap().notes.join("\n")
}

/// What every bundle has, whatever happened.
fn is_whole(outcome: &Outcome) {
    for name in [
        "session.json",
        "env.json",
        "config.yaml",
        "inputs.yaml",
        "metrics.json",
        "kernels.md",
        "operators.md",
        "report.md",
        "stakeholder_summary.md",
    ] {
        let facts = std::fs::metadata(outcome.run_dir.join(name)).unwrap_or_else(|_| panic!("no {name}"));
        assert!(facts.len() > 0, "{name} is empty");
    }
    let on_disk = SessionRecord::read(&outcome.run_dir).unwrap();
    assert_eq!(on_disk, outcome.record);
    assert_eq!(on_disk.exit_status, Some(outcome.exit.code()));
    let leftover = std::fs::read_dir(&outcome.run_dir)
        .unwrap()
        .flatten()
        .find(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.ends_with(".tmp") || name == ".running.json"
        });
    assert!(leftover.is_none(), "{leftover:?}");
}

#[test]
fn the_embedded_model_needs_nothing() {
    let bench = Bench::new();
    let outcome = bench.run(&[], &[]);
    assert_eq!(outcome.exit, Exit::Done, "{:?}", outcome.record.missing);
    is_whole(&outcome);
    assert_eq!(*status(&outcome, PhaseName::Baseline), PhaseStatus::Ok);
    assert_eq!(*status(&outcome, PhaseName::Operators), PhaseStatus::Ok);
    for phase in [PhaseName::Timeline, PhaseName::Select, PhaseName::Counters] {
        assert_eq!(status(&outcome, phase).word(), "skipped", "{phase}");
        assert!(!outcome.record.phase(phase).unwrap().asked, "{phase}");
    }
    let command = &outcome.record.phase(PhaseName::Baseline).unwrap().commands[0];
    assert_eq!(command.outcome.as_ref().unwrap()["code"], 0);
    assert!(command.env.contains_key("ROOFGAP_WORKLOAD_JSON"));
}

#[test]
fn without_any_tool_the_rest_is_there_and_what_is_missing_is_named() {
    let bench = Bench::new();
    let program = bench.script("program", MODEL);
    let outcome = bench.run(&[program.to_str().unwrap()], &[]);
    assert_eq!(outcome.exit, Exit::Partial);
    is_whole(&outcome);
    assert_eq!(status(&outcome, PhaseName::Timeline).word(), "skipped");
    assert!(
        why(&outcome, PhaseName::Timeline).contains("nsys"),
        "{}",
        why(&outcome, PhaseName::Timeline)
    );
    assert!(
        outcome
            .record
            .missing
            .iter()
            .any(|line| line.starts_with("counters: ")),
        "{:?}",
        outcome.record.missing
    );
}

#[test]
fn the_resolved_configuration_repeats_the_run() {
    let bench = Bench::new();
    let program = bench.script("my program", MODEL);
    let first = bench.run(&[program.to_str().unwrap(), "--x", "a b"], &["runner=unwatched"]);
    assert_eq!(first.exit, Exit::Done, "{:?}", first.record.missing);
    let config = Some(first.run_dir.join("config.yaml"));
    let composed = compose(&ConfigProps {
        config,
        ..ConfigProps::default()
    })
    .unwrap();
    let props = ProfileProps {
        composed,
        ..bench.props(&[], &[])
    };
    let again = profile(&props, &Cancel::new(), &mut |_| {}).unwrap();
    assert_eq!(again.exit, Exit::Done);
    assert_ne!(again.run_dir, first.run_dir);
    let argv = |outcome: &Outcome| {
        outcome.record.phase(PhaseName::Baseline).unwrap().commands[0]
            .argv
            .clone()
    };
    assert_eq!(argv(&again), argv(&first));
    assert_eq!(argv(&first)[1..], ["--x", "a b"]);
}

#[test]
fn a_program_that_fails_ends_the_session_with_its_last_words() {
    let bench = Bench::new();
    let program = bench.script("crash", "#!/bin/sh\necho out of luck >&2\nkill -SEGV $$\n");
    let outcome = bench.run(&[program.to_str().unwrap()], &[]);
    assert_eq!(outcome.exit, Exit::ProgramFailed);
    is_whole(&outcome);
    assert!(
        why(&outcome, PhaseName::Baseline).contains("signal 11"),
        "{}",
        why(&outcome, PhaseName::Baseline)
    );
    let PhaseStatus::Failed { log_tail, .. } = status(&outcome, PhaseName::Baseline) else {
        panic!("not failed")
    };
    assert!(log_tail.as_ref().unwrap().contains("out of luck"));
    assert_eq!(outcome.record.state, SessionState::Failed);
}

#[test]
fn a_program_that_hangs_and_ignores_signals_is_ended() {
    let bench = Bench::new();
    let program = bench.script(
        "hang",
        "#!/bin/sh\ntrap '' INT TERM\nwhile :; do sleep 0.1; done\n",
    );
    let outcome = bench.run(&[program.to_str().unwrap()], &["run.timeout=500ms"]);
    assert_eq!(outcome.exit, Exit::ProgramFailed);
    is_whole(&outcome);
    assert!(
        why(&outcome, PhaseName::Baseline).contains("run.timeout"),
        "{}",
        why(&outcome, PhaseName::Baseline)
    );
}

#[test]
fn what_a_program_leaves_behind_is_ended() {
    let bench = Bench::new();
    let pid_file = bench.path("pid");
    let text = format!(
        "{MODEL}\nsleep 300 >/dev/null 2>&1 &\necho $! > '{}'\n",
        pid_file.display()
    );
    let program = bench.script("forks", &text);
    let outcome = bench.run(&[program.to_str().unwrap()], &["runner=unwatched"]);
    assert_eq!(outcome.exit, Exit::Done, "{:?}", outcome.record.missing);
    let pid = std::fs::read_to_string(pid_file).unwrap();
    assert!(
        !Path::new("/proc").join(pid.trim()).join("exe").exists(),
        "{pid} lives"
    );
    assert!(notes(&outcome, PhaseName::Baseline).contains("left behind"));
}

#[test]
fn a_program_that_prints_without_end_does_not_fill_the_disk() {
    let bench = Bench::new();
    let program = bench.script(
        "prints",
        &format!("{MODEL}\nhead -c 100000000 /dev/zero | tr '\\0' 'x'\n"),
    );
    let outcome = bench.run(&[program.to_str().unwrap()], &["runner=unwatched"]);
    assert_eq!(outcome.exit, Exit::Done, "{:?}", outcome.record.missing);
    let log = std::fs::metadata(outcome.run_dir.join("baseline/program.out.log")).unwrap();
    assert!(log.len() < 10_000_000, "{}", log.len());
}

#[test]
fn a_program_that_is_not_there_is_wrong_usage() {
    let bench = Bench::new();
    let outcome = bench.run(&["no-such-program-anywhere"], &[]);
    assert_eq!(outcome.exit, Exit::Usage);
    is_whole(&outcome);
    assert!(why(&outcome, PhaseName::Preflight).contains("no-such-program-anywhere"));
    assert_eq!(*status(&outcome, PhaseName::Baseline), PhaseStatus::Pending);
}

#[test]
fn an_interrupt_ends_the_children_and_keeps_the_bundle() {
    let bench = Bench::new();
    let pid_file = bench.path("pid");
    let program = bench.script(
        "slow",
        &format!("#!/bin/sh\necho $$ > '{}'\nexec sleep 300\n", pid_file.display()),
    );
    let cancel = Cancel::new();
    let props = bench.props(&[program.to_str().unwrap()], &[]);
    let outcome = profile(&props, &cancel, &mut |event| {
        if matches!(event, Event::Tick { .. }) && pid_file.exists() && !cancel.is_requested() {
            cancel.request();
        }
    })
    .unwrap();
    assert_eq!(outcome.exit, Exit::Interrupted);
    is_whole(&outcome);
    assert_eq!(outcome.record.state, SessionState::Interrupted);
    let pid = std::fs::read_to_string(pid_file).unwrap();
    assert!(
        !Path::new("/proc").join(pid.trim()).join("exe").exists(),
        "{pid} lives"
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_before_anything_runs() {
    let bench = Bench::new();
    let file = bench.script("file", "x");
    let stage2 = format!("artifacts.stage2_dir='{}'", file.join("below").display());
    let props = bench.props(&[], &[&stage2]);
    let error = profile(&props, &Cancel::new(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, SessionError::RunDir(_)), "{error}");
    assert_eq!(error.exit(), Exit::Usage);
    assert!(error.to_string().contains("artifacts.stage2_dir"), "{error}");
}

#[test]
fn sessions_at_once_do_not_meet() {
    let bench = Bench::new();
    let props = bench.props(&[], &[]);
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| profile(&props, &Cancel::new(), &mut |_| {}).unwrap()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut folders: Vec<&PathBuf> = outcomes.iter().map(|outcome| &outcome.run_dir).collect();
    folders.sort();
    folders.dedup();
    assert_eq!(folders.len(), 4);
    for outcome in &outcomes {
        assert_eq!(outcome.exit, Exit::Done, "{:?}", outcome.record.missing);
        is_whole(outcome);
    }
}

fn json(outcome: &Outcome, name: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(outcome.run_dir.join(name)).unwrap()).unwrap()
}

#[test]
fn a_whole_session_leaves_the_whole_bundle() {
    let bench = Bench::new();
    let outcome = bench.watched(&["+workload.env.STANDIN_LAUNCHES=5"]);
    assert_eq!(outcome.exit, Exit::Done, "{:?}", outcome.record.missing);
    is_whole(&outcome);
    for phase in [
        PhaseName::Timeline,
        PhaseName::Select,
        PhaseName::Counters,
        PhaseName::Analyze,
        PhaseName::Report,
    ] {
        assert_eq!(*status(&outcome, phase), PhaseStatus::Ok, "{phase}");
    }
    for name in [
        "nsys/run.nsys-rep",
        "nsys/run.sqlite",
        "ncu/plan.json",
        "ncu/plan.ncu-rep",
        "ncu/plan_raw.csv",
        "ncu/decode.ncu-rep",
        "ncu/decode_raw.csv",
        "ncu/prefill_raw.csv",
    ] {
        assert!(outcome.run_dir.join(name).exists(), "no {name}");
    }
    let metrics = json(&outcome, "metrics.json");
    let names: Vec<&str> = metrics["stages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["prefill", "decode"]);
    assert!(!metrics["counters"].as_array().unwrap().is_empty());
    let tools: Vec<&str> = metrics["overhead"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| o["tool"].as_str().unwrap())
        .collect();
    assert_eq!(tools, ["nsys", "nsys", "ncu", "ncu"]);

    let plan = json(&outcome, "ncu/plan.json");
    let strata = plan["strata"].as_array().unwrap();
    let came_back = strata
        .iter()
        .filter(|s| s["measured_launches"].as_u64().unwrap() > 0)
        .count();
    // The recording was made with bare function names as the base, under which ncu takes instances of a template with
    // equal grids for one; so not all can come back from it.
    assert!(
        came_back * 3 >= strata.len() * 2,
        "{came_back} of {} strata came back",
        strata.len()
    );
    assert_eq!(plan["policies"]["clock_control"], "none");
    let ncu = &outcome.record.phase(PhaseName::Counters).unwrap().commands[0].argv;
    let after = |option: &str| {
        ncu.iter()
            .skip_while(|word| *word != option)
            .nth(1)
            .cloned()
            .unwrap()
    };
    assert_eq!(after("--kernel-name-base"), "mangled");
    assert_eq!(after("--filter-mode"), "per-launch-config");
    assert_eq!(after("--nvtx-exclude"), "LLM@warmup/");
    assert!(
        ncu.contains(&"LLM@decode_all/".to_owned()) && ncu.contains(&"LLM@prefill/".to_owned()),
        "{ncu:?}"
    );
}

#[test]
fn the_reports_of_a_run_can_be_written_again() {
    let bench = Bench::new();
    let outcome = bench.watched(&[]);
    std::fs::remove_file(outcome.run_dir.join("report.md")).unwrap();
    let before = std::fs::read(outcome.run_dir.join("metrics.json")).unwrap();
    let rendered = report(&outcome.run_dir).unwrap();
    assert_eq!(rendered.unreadable, Vec::<String>::new());
    assert!(outcome.run_dir.join("report.md").exists());
    assert_eq!(
        std::fs::read(outcome.run_dir.join("metrics.json")).unwrap(),
        before,
        "the same files, the same numbers"
    );
}

#[test]
fn a_timeline_that_cannot_be_had_is_explained() {
    for (mode, reason) in [
        ("nothing", "status 0 and left no report"),
        ("import-failed", "could not import"),
        ("empty", "left no report"),
        ("killed", "signal 9"),
        ("error", "status 1"),
    ] {
        let bench = Bench::new();
        let outcome = bench.watched(&[&format!("+workload.env.STANDIN_NSYS_MODE={mode}")]);
        assert_eq!(outcome.exit, Exit::Partial, "{mode}");
        is_whole(&outcome);
        assert_eq!(status(&outcome, PhaseName::Timeline).word(), "failed", "{mode}");
        let why = why(&outcome, PhaseName::Timeline);
        assert!(
            why.contains(reason) && why.contains("the program's own account"),
            "{mode}: {why}"
        );
        let stages = json(&outcome, "metrics.json")["stages"].as_array().unwrap().len();
        assert_eq!(stages, 2, "{mode}: the program's own timings are there");
    }
}

#[test]
fn counters_that_cannot_be_had_are_explained() {
    for (mode, reason) in [
        ("permission", "NVreg_RestrictProfilingToAdminUsers"),
        ("no-kernels", "no kernel was profiled"),
        ("unknown-section", "did not match any section"),
        ("killed", "signal 9"),
    ] {
        let bench = Bench::new();
        let outcome = bench.watched(&[&format!("+workload.env.STANDIN_NCU_MODE={mode}")]);
        assert_eq!(outcome.exit, Exit::Partial, "{mode}");
        is_whole(&outcome);
        assert_eq!(*status(&outcome, PhaseName::Timeline), PhaseStatus::Ok, "{mode}");
        assert!(
            why(&outcome, PhaseName::Counters).contains(reason),
            "{mode}: {}",
            why(&outcome, PhaseName::Counters)
        );
        assert!(json(&outcome, "ncu/plan.json")["measured_launches"].is_null());
    }
}

#[test]
fn the_program_ends_early_once_ncu_has_the_plan() {
    let bench = Bench::new();
    // Under ncu it would run for ever; it is ended when all launches of the plan were told.
    bench.script("bin/nvidia-smi", NVIDIA_SMI);
    let text = format!("{MODEL}\n[ \"$ROOFGAP_PHASE\" != counters ] || exec sleep 300\n");
    let program = bench.script("program", &text);
    let overrides = [
        stand_in("nsys"),
        stand_in("ncu"),
        "+workload.env.STANDIN_NCU_MODE=watch".to_owned(),
        "+workload.env.STANDIN_LAUNCHES=1000".to_owned(),
    ];
    let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
    let outcome = bench.run(&[program.to_str().unwrap()], &overrides);
    assert_eq!(
        *status(&outcome, PhaseName::Counters),
        PhaseStatus::Ok,
        "{:?}",
        outcome.record.missing
    );
    let ended = outcome.record.phase(PhaseName::Counters).unwrap().commands[0]
        .outcome
        .clone()
        .unwrap();
    assert_eq!(ended["ended"]["why"], "enough");
}

#[test]
fn a_range_that_never_opened_is_named_with_those_that_did() {
    let bench = Bench::new();
    let outcome = bench.watched(&[
        "profiling/nsys=gated",
        "profiling.nsys.nvtx_capture=LLM@decod",
        "+workload.env.STANDIN_RANGES='prefill@LLM decode_all@LLM'",
    ]);
    assert_eq!(*status(&outcome, PhaseName::Timeline), PhaseStatus::Ok);
    let notes = notes(&outcome, PhaseName::Timeline);
    assert!(
        notes.contains("LLM@decod never opened") && notes.contains("LLM@decode_step"),
        "{notes}"
    );
}

#[test]
fn a_recorder_asked_for_by_name_and_replaced_is_missing() {
    let bench = Bench::new();
    let outcome = bench.watched(&["profiling.timeline=native"]);
    assert_eq!(*status(&outcome, PhaseName::Timeline), PhaseStatus::Ok);
    assert_eq!(
        outcome.record.phase(PhaseName::Timeline).unwrap().tool.as_deref(),
        Some("nsys")
    );
    assert_eq!(outcome.exit, Exit::Partial);
    assert!(
        outcome
            .record
            .missing
            .iter()
            .any(|line| line.contains("nsys stood in")),
        "{:?}",
        outcome.record.missing
    );
}

#[test]
fn a_dry_run_lists_every_command_and_runs_none() {
    let bench = Bench::new();
    let marker = bench.path("ran");
    let program = bench.script("program", &format!("#!/bin/sh\ntouch '{}'\n", marker.display()));
    let overrides = [stand_in("nsys"), stand_in("ncu")];
    let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
    let plan = dry_run(&bench.props(&[program.to_str().unwrap(), "--x"], &overrides)).unwrap();
    let phases: Vec<PhaseName> = plan.commands.iter().map(|(phase, _)| *phase).collect();
    use PhaseName::{Baseline, Counters, Timeline};
    assert_eq!(
        phases,
        [
            Baseline, Timeline, Timeline, Timeline, Counters, Counters, Counters
        ]
    );
    let text = plan.commands[1].1.to_string();
    assert!(
        text.contains("--trace=cuda,nvtx,osrt") && text.ends_with("program --x"),
        "{text}"
    );
    assert!(!marker.exists() && !bench.path("runs").exists());
    let missing = dry_run(&bench.props(&["no-such-program-anywhere"], &[])).unwrap_err();
    assert_eq!(missing.exit(), Exit::Usage);
}

#[test]
fn a_run_that_was_killed_can_still_be_rendered() {
    let bench = Bench::new();
    let outcome = bench.run(&[], &[]);
    let path = outcome.run_dir.join("session.json");
    let mut record = outcome.record.clone();
    record.state = SessionState::Running;
    record.finished = None;
    record.exit_status = None;
    for phase in record.phases.iter_mut().skip(2) {
        phase.status = PhaseStatus::Pending;
    }
    std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    let rendered = report(&outcome.run_dir).unwrap();
    assert!(
        rendered
            .analysis
            .reasons
            .iter()
            .any(|reason| reason.why.contains("ended before"))
    );
    assert!(matches!(
        report(&bench.path("nowhere")),
        Err(SessionError::Record(_))
    ));
}
