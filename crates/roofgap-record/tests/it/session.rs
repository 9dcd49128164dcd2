//! Whole sessions with stand-in programs: what they leave, how they end.

use std::path::{Path, PathBuf};

use crate::support::{Bench, MODEL, NVIDIA_SMI, is_whole, notes, stand_in, status, why};
use roofgap_base::exit::Exit;
use roofgap_collect::child::Cancel;
use roofgap_record::run::{Event, Outcome, ProfileProps, profile, write_reports};
use roofgap_runs::config::{ConfigProps, compose};
use roofgap_runs::run_dir::{PhaseName, PhaseStatus, SessionState};

/// Answer of a Python interpreter with torch and transformers.
const PYTHON_WITH_TORCH: &str = r#"{"executable": "/x/python3", "version": "3.12.0", "packages": {"torch": "2.9.0", "transformers": "5.0.0"}, "cupti": []}"#;

/// Answer of a Python interpreter with Hydra.
const PYTHON_WITH_HYDRA: &str =
    r#"{"executable": "/x/python3", "version": "3.12.0", "packages": {"hydra-core": "1.3.2"}, "cupti": []}"#;

/// `metrics.json` in the form that the Stage 1 runner writes.
const STAGE1_METRICS: &str = r#"{"aggregates": {
  "prefill_ms": {"mean": 120.5, "std": 2.0}, "decode_ms": {"mean": 1500.0, "std": 30.0},
  "tokens": {"mean": 64.0, "std": 0.0}, "tokens_per_s": {"mean": 42.7, "std": 0.9},
  "stage_ms": {"prefill": {"mean": 120.5, "std": 2.0}, "decode": {"mean": 1500.0, "std": 30.0}, "sam": {"mean": 20.0, "std": 0.5}}},
 "mfu_model_level": 0.1, "mfu_per_stage": {"prefill": 0.2, "decode": 0.05, "vision": 0.0},
 "model_dims": {"d_model": 1280, "d_ff": 6848, "n_layers": 12}, "peak_tflops": 989.0}"#;

/// Answer of a Python interpreter without packages.
const PYTHON_WITHOUT_TORCH: &str =
    r#"{"executable": "/x/python3", "version": "3.12.0", "packages": {}, "cupti": []}"#;

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
        assert!(!outcome.record.phase(phase).unwrap().requested, "{phase}");
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
    assert!(why(&outcome, PhaseName::Timeline).contains("nsys"), "{}", why(&outcome, PhaseName::Timeline));
    assert!(
        outcome.record.missing.iter().any(|line| line.starts_with("counters: ")),
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
    let composed = compose(&ConfigProps { config, ..ConfigProps::default() }).unwrap();
    let props = ProfileProps { composed, ..bench.props(&[], &[]) };
    let again = profile(&props, &Cancel::new(), &mut |_| {}).unwrap();
    assert_eq!(again.exit, Exit::Done);
    assert_ne!(again.run_dir, first.run_dir);
    let argv =
        |outcome: &Outcome| outcome.record.phase(PhaseName::Baseline).unwrap().commands[0].argv.clone();
    assert_eq!(argv(&again), argv(&first));
    assert_eq!(argv(&first)[1..], ["--x", "a b"]);
}

/// A session under the stand-ins with a program that times no operators itself, and does something in the phase that records them.
fn recorded(bench: &Bench, in_phase: &str, overrides: &[&str]) -> Outcome {
    bench.script("bin/nvidia-smi", NVIDIA_SMI);
    let text = MODEL.replace("\"operators\": [", "\"other\": [");
    let program = format!("{text}\nif [ \"$ROOFGAP_PHASE\" = operators ]; then\n{in_phase}\nfi\n");
    let program = bench.script("program", &program);
    let tools = [stand_in("nsys"), "profiling.timeline=nsys".to_owned(), "runner.counters=false".to_owned()];
    let all: Vec<&str> = tools.iter().map(String::as_str).chain(overrides.iter().copied()).collect();
    bench.run(&[program.to_str().unwrap()], &all)
}

#[test]
fn torch_profiler_is_started_in_a_part_of_a_program() {
    let bench = Bench::new();
    let event = r#"{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":5,"args":{}}"#;
    let hook = format!(
        "echo '{{\"schemaVersion\":1,\"traceEvents\":[{event}]}}' | gzip > \"$ROOFGAP_TORCH_TRACE\"\n\
         echo \"window $ROOFGAP_LAUNCHES\" > \"$ROOFGAP_RUN_DIR/torch/notes.log\""
    );
    let outcome = recorded(&bench, &hook, &[]);
    assert_eq!(*status(&outcome, PhaseName::Operators), PhaseStatus::Ok);
    let said = notes(&outcome, PhaseName::Operators);
    assert!(said.contains("window ") && said.contains("launches are not counted: "), "{said}");
    let metrics = crate::support::json(&outcome, "metrics.json");
    assert_eq!(metrics["operators"][0]["name"], "aten::mm");

    let light = recorded(&bench, &hook, &["run.mode=light"]);
    assert_eq!(why(&light, PhaseName::Operators), "runner.operators is false");
    let plain = recorded(&bench, &hook, &["workload.annotate=false"]);
    assert!(why(&plain, PhaseName::Operators).starts_with("workload.annotate is false"));
}

#[test]
fn a_program_that_cannot_run_twice_says_so_and_the_session_goes_on() {
    let bench = Bench::new();
    let outcome = recorded(&bench, "echo address in use >&2\nexit 7", &[]);
    is_whole(&outcome);
    assert_eq!(outcome.exit, Exit::Partial);
    let said = why(&outcome, PhaseName::Operators);
    assert!(said.contains("ended with status 7; it cannot run twice where a port"), "{said}");
    let PhaseStatus::Failed { log_tail, .. } = status(&outcome, PhaseName::Operators) else {
        panic!("not failed")
    };
    assert!(log_tail.as_ref().unwrap().contains("address in use"));
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
    let program = bench.script("hang", "#!/bin/sh\ntrap '' INT TERM\nwhile :; do sleep 0.1; done\n");
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
    let text = format!("{MODEL}\nsleep 300 >/dev/null 2>&1 &\necho $! > '{}'\n", pid_file.display());
    let program = bench.script("forks", &text);
    let outcome = bench.run(&[program.to_str().unwrap()], &["runner=unwatched"]);
    assert_eq!(outcome.exit, Exit::Done, "{:?}", outcome.record.missing);
    let pid = std::fs::read_to_string(pid_file).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).join("exe").exists(), "{pid} lives");
    assert!(notes(&outcome, PhaseName::Baseline).contains("left behind"));
}

#[test]
fn a_program_that_prints_without_end_does_not_fill_the_disk() {
    let bench = Bench::new();
    let program = bench.script("prints", &format!("{MODEL}\nhead -c 100000000 /dev/zero | tr '\\0' 'x'\n"));
    let outcome = bench.run(&[program.to_str().unwrap()], &["runner=unwatched"]);
    assert_eq!(outcome.exit, Exit::Done, "{:?}", outcome.record.missing);
    let log = std::fs::metadata(outcome.run_dir.join("baseline/program.out.log")).unwrap();
    assert!(log.len() < 10_000_000, "{}", log.len());
}

#[test]
fn what_cannot_be_run_is_wrong_usage_and_leaves_nothing() {
    let bench = Bench::new();
    let plain = bench.path("plain");
    std::fs::write(&plain, "no program").unwrap();
    let manifest = format!("inputs.manifest='{}'", plain.display());
    let long = bench.script("long.yaml", "[a, b, c, d, e]");
    let long = format!("inputs.manifest='{}'", long.display());
    let python = |name: &str, packages: &str| {
        let text = format!("#!/bin/sh\ncat <<'JSON'\n{packages}\nJSON\n");
        format!("workload.python='{}'", bench.script(name, &text).display())
    };
    let torch = python("with_torch", PYTHON_WITH_TORCH);
    let bare = python("without_torch", PYTHON_WITHOUT_TORCH);
    for (program, overrides, said) in [
        (&["no-such-program-anywhere"] as &[&str], &[] as &[&str], "no-such-program-anywhere"),
        (&[plain.to_str().unwrap()], &[], "chmod +x"),
        (&[], &["workload.cwd=no/such/folder"], "workload.cwd"),
        (&[], &["inputs.manifest=no/such/file"], "inputs.manifest"),
        (&[], &["stage1.run_dir=no/such/folder"], "stage1.run_dir"),
        (&[], &["model=llama3_8b", "workload.python=no-such-python"], "no-such-python"),
        (&[], &[manifest.as_str()], "expected a list of images or prompts"),
        (&["true"], &[manifest.as_str()], "the program after -- does not read"),
        (
            &[],
            &["model=llama3_8b", torch.as_str(), long.as_str()],
            "has 5 items, but workload.repeats=3 with workload.batch=1 uses 3; set workload.repeats=5",
        ),
        (
            &[],
            &["model=llama3_8b", torch.as_str(), "workload.env.CUDA_VISIBLE_DEVICES='-1'"],
            "workload.device=cpu, or profile the embedded model instead",
        ),
        (&[], &["model=llama3_8b", bare.as_str()], "lacks torch and transformers; install with"),
    ] {
        let props = bench.props(program, overrides);
        let error = profile(&props, &Cancel::new(), &mut |_| {}).unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
        assert!(error.to_string().contains(said), "{error}");
        assert!(!bench.path("runs").exists(), "{error}");
    }
}

#[test]
fn the_output_of_a_stage1_runner_is_the_baseline() {
    let bench = Bench::new();
    let folder = bench.path("stage1/torch_profiler");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("metrics.json"), STAGE1_METRICS).unwrap();
    std::fs::write(
        folder.join("operators.md"),
        "|op_name|total_time_ms|cuda_time_ms|calls|mean_ms|\n| :---: | :---: | :---: | :---: | :---: |\n|aten::mm|12.500|30.000|8|1.562500|\n",
    )
    .unwrap();
    std::fs::write(folder.join("assumptions.md"), "- Batch size: 1\n- Model path: /models/deepseek-ocr\n")
        .unwrap();
    std::fs::create_dir_all(bench.path("stage1/static_analysis")).unwrap();
    std::fs::write(
        bench.path("stage1/static_analysis/static_compute.json"),
        r#"{"metadata": {"seq_len": 281}, "total": {"params": 3336106240}}"#,
    )
    .unwrap();
    let stage1 = format!("stage1.run_dir='{}'", bench.path("stage1").display());
    let outcome = bench.run(&[], &[&stage1]);
    assert_eq!(*status(&outcome, PhaseName::Baseline), PhaseStatus::Ok);
    let account = crate::support::json(&outcome, "baseline/workload.json");
    let stages = &account["repeats"][0]["stages"];
    assert_eq!(stages[0]["name"], "prefill");
    assert_eq!(stages[0]["wall_ns"], 120_500_000);
    assert_eq!(stages[0]["notes"][0]["name"], "sam");
    assert_eq!(stages[1]["name"], "decode");
    assert_eq!(stages[1]["wall_ns"], 1_500_000_000);
    assert_eq!(account["tokens"]["generated"], 64);
    assert_eq!(account["tokens"]["prompt"], 281);
    assert_eq!(account["model"]["name"], "deepseek-ocr");
    assert_eq!(account["model"]["parameters"], 3_336_106_240_u64);
    assert!(account["notes"][1].as_str().unwrap().contains("d_model 1280"), "{account}");
    let figures = &crate::support::json(&outcome, "metrics.json")["stage1"];
    assert_eq!(figures["times"][1]["std_ns"], 30_000_000);
    assert_eq!(figures["mfu"].as_array().unwrap().len(), 3, "0 stands for not computed: {figures}");
    assert_eq!(figures["operators"][0]["calls"], 8);
    let report = std::fs::read_to_string(outcome.run_dir.join("report.md")).unwrap();
    assert!(report.contains("| aten::mm "), "{report}");
    let summary = std::fs::read_to_string(outcome.run_dir.join("stakeholder_summary.md")).unwrap();
    for words in ["42.7 tokens/s", "| aten::mm ", "| 1,500.000 | 30.000 |"] {
        assert!(summary.contains(words), "no {words:?} in {summary}");
    }

    std::fs::write(folder.join("metrics.json"), r#"{"aggregates": {}}"#).unwrap();
    let error = profile(&bench.props(&[], &[&stage1]), &Cancel::new(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("prefill_ms"), "{error}");
}

#[test]
fn a_stage1_runner_under_hydra_gives_its_account() {
    let bench = Bench::new();
    // A Python that answers the query of its packages, accepts every override, and writes what the runner writes.
    let python = bench.script(
        "hydra_python",
        &format!(
            "#!/bin/sh\nif [ \"$1\" = -c ]; then\n  echo '{PYTHON_WITH_HYDRA}'\n  exit\nfi\nfor word; do\n  case $word in\n    --cfg) exit ;;\n    \
             hydra.run.dir=*) out=${{word#hydra.run.dir=}} ;;\n  esac\ndone\nmkdir -p \"$out/torch_profiler\"\n\
             cat > \"$out/torch_profiler/metrics.json\" <<'JSON'\n{STAGE1_METRICS}\nJSON\n"
        ),
    );
    let python = format!("workload.python='{}'", python.display());
    let outcome =
        bench.run(&[], &["workload=hydra", "workload.module=app.runner", &python, "runner=unwatched"]);
    assert_eq!(*status(&outcome, PhaseName::Baseline), PhaseStatus::Ok);
    let account = crate::support::json(&outcome, "baseline/workload.json");
    assert_eq!(account["repeats"][0]["stages"][1]["wall_ns"], 1_500_000_000);
    assert!(
        notes(&outcome, PhaseName::Baseline).contains("torch_profiler/metrics.json"),
        "{}",
        notes(&outcome, PhaseName::Baseline)
    );
}

#[test]
fn an_interrupt_ends_the_children_and_keeps_the_bundle() {
    let bench = Bench::new();
    let pid_file = bench.path("pid");
    let program =
        bench.script("slow", &format!("#!/bin/sh\necho $$ > '{}'\nexec sleep 300\n", pid_file.display()));
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
    assert!(!Path::new("/proc").join(pid.trim()).join("exe").exists(), "{pid} lives");
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_before_anything_runs() {
    let bench = Bench::new();
    let file = bench.script("file", "x");
    let stage2 = format!("artifacts.stage2_dir='{}'", file.join("below").display());
    let props = bench.props(&[], &[&stage2]);
    let error = profile(&props, &Cancel::new(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().starts_with("cannot "), "{error}");
    assert_eq!(error.exit(), Exit::Usage);
    assert!(error.to_string().contains("artifacts.stage2_dir"), "{error}");
}

#[test]
fn sessions_at_once_do_not_meet() {
    let bench = Bench::new();
    let props = bench.props(&[], &[]);
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| profile(&props, &Cancel::new(), &mut |_| {}).unwrap())).collect();
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
    let rendered = write_reports(&outcome.run_dir).unwrap();
    assert!(rendered.analysis.reasons.iter().any(|reason| reason.why.contains("ended before")));
    let error = write_reports(&bench.path("nowhere")).unwrap_err();
    assert!(error.to_string().contains("not a run directory?"), "{error}");
}
