//! Whole sessions under stand-ins for nsys and ncu, which play back real recordings and fail as the real ones do.

use crate::support::{Bench, MODEL, NVIDIA_SMI, is_whole, json, stand_in, status, why};
use roofgap_base::exit::Exit;
use roofgap_collect::child::Cancel;
use roofgap_record::run::{Event, dry_run, profile, write_reports, write_reports_with};
use roofgap_runs::run_dir::{PhaseName, PhaseStatus};

#[test]
fn a_whole_session_leaves_the_whole_bundle() {
    let bench = Bench::new();
    let outcome = bench.watched(&["+workload.env.STANDIN_LAUNCHES=5"]);
    assert_eq!(outcome.exit, Exit::Done, "{:?}", outcome.record.missing);
    is_whole(&outcome);
    for phase in
        [PhaseName::Timeline, PhaseName::Select, PhaseName::Counters, PhaseName::Analyze, PhaseName::Report]
    {
        assert_eq!(*status(&outcome, phase), PhaseStatus::Ok, "{phase}");
    }
    for name in [
        "nsys/run.nsys-rep",
        "nsys/run.sqlite",
        "ncu/plan.json",
        "ncu/plan.ncu-rep",
        "ncu/plan_raw.csv",
        "ncu/decode_raw.csv",
        "ncu/prefill_raw.csv",
    ] {
        assert!(outcome.run_dir.join(name).exists(), "no {name}");
    }
    // The same file under three names: the code of the kernels is most of it.
    let inode =
        |name: &str| std::os::unix::fs::MetadataExt::ino(&outcome.run_dir.join(name).metadata().unwrap());
    assert_eq!(inode("ncu/decode.ncu-rep"), inode("ncu/plan.ncu-rep"));
    assert_eq!(inode("ncu/prefill.ncu-rep"), inode("ncu/plan.ncu-rep"));
    let metrics = json(&outcome, "metrics.json");
    let names: Vec<&str> =
        metrics["stages"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["prefill", "decode"]);
    assert!(!metrics["counters"].as_array().unwrap().is_empty());
    let tools: Vec<&str> =
        metrics["overhead"].as_array().unwrap().iter().map(|o| o["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["nsys", "nsys", "ncu", "ncu"]);

    let plan = json(&outcome, "ncu/plan.json");
    let strata = plan["strata"].as_array().unwrap();
    let came_back = strata.iter().filter(|s| s["measured_launches"].as_u64().unwrap() > 0).count();
    // The recording was made with bare function names as the base, under which ncu takes instances of a template with
    // equal grids for one; so not all can come back from it.
    assert!(came_back * 3 >= strata.len() * 2, "{came_back} of {} strata came back", strata.len());
    assert_eq!(plan["policies"]["clock_control"], "none");
    let ncu = &outcome.record.phase(PhaseName::Counters).unwrap().commands[0].argv;
    let after = |option: &str| ncu.iter().skip_while(|word| *word != option).nth(1).cloned().unwrap();
    assert_eq!(after("--kernel-name-base"), "mangled");
    assert_eq!(after("--filter-mode"), "per-launch-config");
    assert_eq!(after("--nvtx-exclude"), "LLM@warmup/");
    assert!(
        ncu.contains(&"LLM@decode_all/".to_owned()) && ncu.contains(&"LLM@prefill/".to_owned()),
        "{ncu:?}"
    );
}

#[test]
fn counters_can_be_limited_to_a_stage() {
    for pattern in ["decode*", "LLM@decode_all"] {
        let bench = Bench::new();
        let include = format!("profiling.ncu.nvtx_include='{pattern}'");
        let outcome = bench.watched(&["+workload.env.STANDIN_LAUNCHES=5", &include]);
        let plan = json(&outcome, "ncu/plan.json");
        let stages = plan["stages"].as_array().unwrap();
        assert_eq!(stages.len(), 1, "{stages:?}");
        assert_eq!(stages[0]["name"], "decode");
        let ncu = &outcome.record.phase(PhaseName::Counters).unwrap().commands[0].argv;
        assert!(ncu.contains(&"LLM@decode_all/".to_owned()), "{ncu:?}");
        assert!(!ncu.contains(&"LLM@prefill/".to_owned()), "{ncu:?}");
    }
    let bench = Bench::new();
    let outcome = bench.watched(&["profiling.ncu.nvtx_include=vision"]);
    let select = why(&outcome, PhaseName::Select);
    assert!(select.contains("matches no stage; stages found: prefill, decode"), "{select}");
    assert_eq!(outcome.exit, Exit::Partial);
}

#[test]
fn a_report_of_one_stage_has_the_name_of_that_stage() {
    let bench = Bench::new();
    let both = bench.watched(&["+workload.env.STANDIN_LAUNCHES=5"]);
    // An ncu that returns the launches of decode only, as the real one does when it is limited to them.
    let path = stand_in("ncu");
    let (_, path) = path.split_once('=').unwrap();
    let text = format!(
        "#!/bin/sh\nexport STANDIN_NCU_RAW='{}'\nexec {path} \"$@\"\n",
        both.run_dir.join("ncu/decode_raw.csv").display()
    );
    let ncu = format!("profiling.ncu.path='{}'", bench.script("decode_ncu", &text).display());
    let outcome =
        bench.watched(&["+workload.env.STANDIN_LAUNCHES=5", "profiling.ncu.nvtx_include=decode", &ncu]);
    assert_eq!(*status(&outcome, PhaseName::Counters), PhaseStatus::Ok);
    assert!(outcome.run_dir.join("ncu/decode.ncu-rep").exists());
    assert!(!outcome.run_dir.join("ncu/prefill_raw.csv").exists());
    let metrics = json(&outcome, "metrics.json");
    let of = |stage: &str| {
        let rows = metrics["counters"].as_array().unwrap().iter();
        rows.filter(|row| row["stage"] == stage).count()
    };
    assert!(of("decode") > 0 && of("prefill") == 0);
}

#[test]
fn a_section_that_matches_nothing_is_a_warning() {
    let bench = Bench::new();
    bench.script("bin/nvidia-smi", NVIDIA_SMI);
    let program = bench.script("program", MODEL);
    let overrides = [
        stand_in("nsys"),
        stand_in("ncu"),
        "profiling.ncu.sections=[LaunchStats, '.*SpeedOfLite.*']".to_owned(),
    ];
    let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
    let mut warnings = Vec::new();
    let props = bench.props(&[program.to_str().unwrap()], &overrides);
    let outcome = profile(&props, &Cancel::new(), &mut |event| {
        if let Event::Warning(text) = event {
            warnings.push(text.to_owned());
        }
    })
    .unwrap();
    assert_eq!(*status(&outcome, PhaseName::Counters), PhaseStatus::Ok);
    assert!(
        warnings.iter().any(|line| line == "--section .*SpeedOfLite.*: matches no section of this ncu"),
        "{warnings:?}"
    );
}

#[test]
fn the_reports_of_a_run_can_be_written_again() {
    let bench = Bench::new();
    let outcome = bench.watched(&[]);
    std::fs::remove_file(outcome.run_dir.join("report.md")).unwrap();
    let before = std::fs::read(outcome.run_dir.join("metrics.json")).unwrap();
    let rendered = write_reports(&outcome.run_dir).unwrap();
    assert_eq!(rendered.unreadable, Vec::<String>::new());
    assert!(outcome.run_dir.join("report.md").exists());
    assert_eq!(
        std::fs::read(outcome.run_dir.join("metrics.json")).unwrap(),
        before,
        "the same files, the same numbers"
    );
}

/// A program that writes no account: its tokens come from the configuration, or from the overrides of a later report.
#[test]
fn tokens_of_a_silent_program_can_be_stated() {
    let bench = Bench::new();
    bench.script("bin/nvidia-smi", NVIDIA_SMI);
    let program = bench.script("silent", "#!/bin/sh\nexit 0\n");
    let outcome = bench.run(
        &[program.to_str().unwrap()],
        &[&stand_in("nsys"), "runner.counters=false", "workload.prompt_tokens=16", "workload.tokens=8"],
    );
    let rate = |metrics: &serde_json::Value| metrics["stages"][0]["tokens_per_s"].as_f64();
    let first = json(&outcome, "metrics.json");
    assert_eq!(first["workload"]["prompt_tokens"], 16);
    assert_eq!(first["workload"]["model"], serde_json::Value::Null);
    let stated = rate(&first).unwrap();
    let overrides = ["workload.prompt_tokens=32".to_owned(), "model=qwen3_8b".to_owned()];
    write_reports_with(&outcome.run_dir, &overrides).unwrap();
    let again = json(&outcome, "metrics.json");
    assert_eq!(again["workload"]["model"], "Qwen/Qwen3-8B");
    assert!((rate(&again).unwrap() / stated - 2.0).abs() < 1e-9);
    // The configuration of the run is as it was.
    write_reports(&outcome.run_dir).unwrap();
    assert_eq!(json(&outcome, "metrics.json"), first);
}

#[test]
fn a_missing_timeline_is_explained() {
    for (mode, reason) in [
        ("nothing", "status 0 and left no report"),
        ("import-failed", "failed to import"),
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
        assert!(why.contains(reason) && why.contains("the program's own account"), "{mode}: {why}");
        let stages = json(&outcome, "metrics.json")["stages"].as_array().unwrap().len();
        assert_eq!(stages, 2, "{mode}: the program's own timings are there");
    }
}

#[test]
fn missing_counters_are_explained() {
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
    // Under ncu it would never end; it is stopped when the plan is complete.
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
    assert_eq!(*status(&outcome, PhaseName::Counters), PhaseStatus::Ok, "{:?}", outcome.record.missing);
    let ended = outcome.record.phase(PhaseName::Counters).unwrap().commands[0].outcome.clone().unwrap();
    assert_eq!(ended["ended"]["why"], "enough");
}

#[test]
fn a_crash_of_the_program_under_a_profiler_is_partial_and_quoted() {
    for (phase, tool) in [(PhaseName::Timeline, "nsys"), (PhaseName::Counters, "ncu")] {
        let bench = Bench::new();
        bench.script("bin/nvidia-smi", NVIDIA_SMI);
        let text = format!(
            "{MODEL}\n[ \"$ROOFGAP_PHASE\" != {phase} ] || {{ echo illegal address >&2; kill -SEGV $$; }}\n"
        );
        let program = bench.script("program", &text);
        let overrides = [stand_in("nsys"), stand_in("ncu")];
        let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
        let mut said = Vec::new();
        let props = bench.props(&[program.to_str().unwrap()], &overrides);
        let outcome = profile(&props, &Cancel::new(), &mut |event| {
            if let Event::ProgramFailed { phase, log_tail, .. } = event {
                said.push((phase, log_tail.to_owned()));
            }
        })
        .unwrap();
        assert_eq!(outcome.exit, Exit::Partial, "{phase}");
        assert_eq!(*status(&outcome, phase), PhaseStatus::Ok, "the recording is kept");
        let missing = outcome.record.missing.join("\n");
        assert!(
            missing.contains(&format!("{phase}: under {tool} the program"))
                && missing.contains("signal 11 (SIGSEGV)"),
            "{missing}"
        );
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].0, phase);
        assert!(said[0].1.contains("illegal address"), "{said:?}");
    }
}

#[test]
fn a_range_that_never_opened_is_named() {
    let bench = Bench::new();
    let outcome = bench.watched(&[
        "profiling/nsys=gated",
        "profiling.nsys.nvtx_capture=LLM@decod",
        "+workload.env.STANDIN_RANGES='prefill@LLM decode_all@LLM'",
    ]);
    let why = status(&outcome, PhaseName::Timeline).why().unwrap();
    assert!(why.contains("LLM@decod never opened"), "{why}");
}

#[test]
fn a_named_recorder_that_is_replaced_is_missing() {
    let bench = Bench::new();
    let outcome = bench.watched(&["profiling.timeline=native"]);
    assert_eq!(*status(&outcome, PhaseName::Timeline), PhaseStatus::Ok);
    assert_eq!(outcome.record.phase(PhaseName::Timeline).unwrap().tool.as_deref(), Some("nsys"));
    assert_eq!(outcome.exit, Exit::Partial);
    assert!(
        outcome.record.missing.iter().any(|line| line.contains("nsys was used instead")),
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
    use PhaseName::{Baseline, Counters, Operators, Timeline};
    assert_eq!(phases, [Baseline, Timeline, Timeline, Timeline, Operators, Counters, Counters, Counters]);
    let text = plan.commands[1].1.to_string();
    assert!(text.contains("--trace=cuda,nvtx,osrt") && text.ends_with("program --x"), "{text}");
    assert!(!marker.exists() && !bench.path("runs").exists());
    let missing = dry_run(&bench.props(&["no-such-program-anywhere"], &[])).unwrap_err();
    assert_eq!(missing.exit(), Exit::Usage);
}
