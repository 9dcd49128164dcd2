//! Sessions of programs whose GPU work nsys does not see: serving engines, children made by fork.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Bench, MODEL, NVIDIA_SMI, json, notes, stand_in, status, why};
use roofgap_base::exit::Exit;
use roofgap_collect::child::Cancel;
use roofgap_record::run::{NativeLibrary, Outcome, dry_run, profile};
use roofgap_runs::run_dir::PhaseName;

/// An empty library: the stand-in program writes the capture that a collector would write.
const LIBRARY: NativeLibrary = NativeLibrary { bytes: b"" };

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name).canonicalize().unwrap()
}

/// An export of a real report without its CUDA records, as nsys leaves it when the work was done in another process.
fn export_without_gpu(bench: &Bench) -> PathBuf {
    let path = bench.path("no_gpu.sqlite");
    let unpacked = Command::new("gzip").arg("-dc").arg(fixture("h200/llama4.sqlite.gz")).output().unwrap();
    assert!(unpacked.status.success());
    std::fs::write(&path, unpacked.stdout).unwrap();
    let database = rusqlite::Connection::open(&path).unwrap();
    let mut tables = database
        .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'CUPTI%'")
        .unwrap();
    let names: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(names.iter().any(|name| name == "CUPTI_ACTIVITY_KIND_KERNEL"));
    drop(tables);
    for name in names {
        database.execute_batch(&format!("DROP TABLE \"{name}\"")).unwrap();
    }
    path
}

/// An nsys whose recordings have no GPU work.
fn blind_nsys(bench: &Bench) -> String {
    let real = stand_in("nsys");
    let real = real.trim_start_matches("profiling.nsys.path=");
    let sqlite = export_without_gpu(bench);
    let text = format!("#!/bin/sh\nSTANDIN_SQLITE='{}' exec {real} \"$@\"\n", sqlite.display());
    let path = bench.script("tools/nsys", &text);
    format!("profiling.nsys.path='{}'", path.display())
}

/// Runs the stand-in for a model on a GPU under an nsys that sees nothing of it; `native` if the collector is available.
fn unseen(program: &str, native: bool, overrides: &[&str]) -> (Bench, Outcome) {
    let bench = Bench::new();
    bench.script("bin/nvidia-smi", NVIDIA_SMI);
    let capture = fixture("native/stand-in.rgcap");
    let text = format!(
        "{program}\n[ -z \"${{ROOFGAP_NATIVE_DIR:-}}\" ] || cp '{}' \"$ROOFGAP_NATIVE_DIR/1.rgcap\"\n",
        capture.display()
    );
    let program = bench.script("program", &text);
    let mut all = vec![blind_nsys(&bench), "runner.counters=false".to_owned()];
    all.extend(overrides.iter().map(|text| (*text).to_owned()));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut props = bench.props(&[program.to_str().unwrap()], &all);
    if native {
        props.native = Ok(LIBRARY);
    }
    let outcome = profile(&props, &Cancel::new(), &mut |_| {}).unwrap();
    (bench, outcome)
}

fn on_gpu() -> String {
    MODEL.replace(r#""kind": "cpu", "name": "a CPU""#, r#""kind": "cuda", "name": "NVIDIA H200""#)
}

fn tool(outcome: &Outcome) -> Option<String> {
    outcome.record.phase(PhaseName::Timeline).unwrap().tool.clone()
}

#[test]
fn a_recording_without_the_gpu_work_of_the_program_is_a_failed_phase() {
    let (_bench, outcome) = unseen(&on_gpu(), false, &[]);
    assert_eq!(status(&outcome, PhaseName::Timeline).word(), "failed");
    let why = why(&outcome, PhaseName::Timeline);
    assert!(why.contains("no GPU work was recorded") && why.contains("ran on NVIDIA H200"), "{why}");
    assert_eq!(outcome.exit, Exit::Partial);
    assert_eq!(json(&outcome, "metrics.json")["stages"].as_array().unwrap().len(), 2);
}

#[test]
fn a_recording_of_a_program_on_the_cpu_is_whole_without_gpu_work() {
    let (_bench, outcome) = unseen(MODEL, true, &["profiling.timeline=nsys"]);
    assert_eq!(status(&outcome, PhaseName::Timeline).word(), "ok");
    assert_eq!(tool(&outcome).as_deref(), Some("nsys"));
    assert!(notes(&outcome, PhaseName::Timeline).contains("the program used no GPU"));
}

/// A deep session leaves a report for the window of nsys, and says how far both recordings agree.
#[test]
fn a_program_of_one_process_is_recorded_by_nsys_and_natively() {
    let nsys = stand_in("nsys");
    let (_bench, outcome) = unseen(MODEL, true, &[&nsys]);
    for name in ["nsys/run.nsys-rep", "nsys/run.sqlite", "native/1.rgcap", "agreement.json"] {
        assert!(outcome.run_dir.join(name).is_file(), "no {name}");
    }
    let metrics = json(&outcome, "metrics.json");
    let agreement = &metrics["agreement"];
    let used = agreement["profilers"][0].as_str();
    assert_eq!(tool(&outcome).as_deref(), used);
    assert_eq!(agreement["kernels"][0], metrics["totals"]["kernel_count"]);
    assert_ne!(agreement["kernels"][0], agreement["kernels"][1], "they are of two programs");
    let report = std::fs::read_to_string(outcome.run_dir.join("report.md")).unwrap();
    assert!(report.contains("Recorded twice: the times are those of"), "{report}");

    let (_bench, light) = unseen(MODEL, true, &[&nsys, "run.mode=light"]);
    assert_eq!(tool(&light).as_deref(), Some("native"));
    assert!(
        !light.run_dir.join("nsys/run.nsys-rep").exists() && !light.run_dir.join("agreement.json").exists()
    );
    let (_bench, long) = unseen(&format!("{MODEL}sleep 0.1\n"), true, &[&nsys, "run.counter_budget=50ms"]);
    assert_eq!(tool(&long).as_deref(), Some("nsys"));
    assert!(notes(&long, PhaseName::Timeline).contains("runs longer than run.counter_budget"));
    let (_bench, asked) = unseen(MODEL, true, &[&nsys, "profiling.nsys.sample=process-tree"]);
    assert_eq!(tool(&asked).as_deref(), Some("nsys"));
    let said = notes(&asked, PhaseName::Timeline);
    assert!(said.contains("nsys records the timeline because of profiling.nsys.sample"), "{said}");
}

#[test]
fn the_native_collector_runs_when_nsys_saw_nothing() {
    let (_bench, outcome) = unseen(&on_gpu(), true, &["profiling.nsys.cpuctxsw=process-tree"]);
    assert_eq!(status(&outcome, PhaseName::Timeline).word(), "ok", "{}", why(&outcome, PhaseName::Timeline));
    assert_eq!(tool(&outcome).as_deref(), Some("native"));
    let notes = notes(&outcome, PhaseName::Timeline);
    assert!(
        notes.contains("nsys recorded no timeline (no GPU work was recorded")
            && notes.contains("native was used instead"),
        "{notes}"
    );
    assert!(json(&outcome, "metrics.json")["totals"]["kernel_count"].as_u64().unwrap() > 0);
    assert_eq!(outcome.exit, Exit::Done, "{:?}", outcome.record.missing);
}

#[test]
fn an_engine_named_by_its_account_is_recorded_natively_first() {
    let engine = on_gpu().replace(
        r#""tokens": {"#,
        r#""engine": {"name": "vLLM", "version": "0.26.0", "parallelism": {"tensor": 1}},
 "tokens": {"#,
    );
    let (_bench, outcome) = unseen(&engine, true, &[]);
    assert_eq!(tool(&outcome).as_deref(), Some("native"));
    let said = notes(&outcome, PhaseName::Timeline);
    assert!(said.contains("vLLM runs in several processes"), "{said}");
    assert!(!said.contains("nsys recorded no timeline"), "{said}");
    let metrics = json(&outcome, "metrics.json");
    assert_eq!(metrics["engine"]["name"], "vLLM");
    assert_eq!(metrics["engine"]["version"], "0.26.0");
    assert_eq!(metrics["engine"]["told_by"], "account");

    let (_bench, outcome) = unseen(&engine, true, &["profiling.timeline=nsys"]);
    let said = notes(&outcome, PhaseName::Timeline);
    assert!(said.contains("nsys recorded no timeline"), "nsys was asked for: {said}");
    assert_eq!(tool(&outcome).as_deref(), Some("native"));
}

#[test]
fn an_engine_named_by_its_command_is_recorded_natively_first() {
    let bench = Bench::new();
    bench.script("bin/nvidia-smi", NVIDIA_SMI);
    let program = bench.script("bin/vllm", MODEL);
    let nsys = stand_in("nsys");
    let mut props = bench.props(&[program.to_str().unwrap(), "serve"], &[&nsys]);
    props.native = Ok(LIBRARY);
    let dry = dry_run(&props).unwrap();
    let timeline: Vec<String> = dry
        .commands
        .iter()
        .filter(|(phase, _)| *phase == PhaseName::Timeline)
        .map(|(_, line)| line.to_string())
        .collect();
    assert_eq!(timeline.len(), 1, "no nsys, no export: {timeline:?}");
    assert!(timeline[0].contains("CUDA_INJECTION64_PATH"), "{timeline:?}");
}
