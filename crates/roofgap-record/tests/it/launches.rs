//! The times of calls of a program that is not profiled.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Bench, NVIDIA_SMI, notes, status};
use roofgap_collect::child::Cancel;
use roofgap_record::run::{NativeLibrary, Outcome, profile};
use roofgap_runs::open::read_each;
use roofgap_runs::run_dir::{Layout, PhaseName};
use roofgap_trace::CallClass;

/// Compiles the stand-ins of the driver and of a program.
fn compile(bench: &Bench) -> [PathBuf; 2] {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand-in/launches.c");
    let compile = |name: &str, flags: &[&str]| {
        let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        let out = bench.path(name);
        cc.args(["-O1", "-w", "-o"]).arg(&out).arg(&source).args(flags).arg("-ldl");
        assert!(cc.status().expect("a C compiler").success());
        out
    };
    [compile("libcuda.so.1", &["-shared", "-fPIC", "-DDRIVER"]), compile("launches", &[])]
}

fn session(bench: &Bench, library: NativeLibrary) -> Outcome {
    bench.script("bin/nvidia-smi", NVIDIA_SMI);
    let [driver, program] = compile(bench);
    let driver = format!("+workload.env.DRIVER='{}'", driver.display());
    let only = ["runner.timeline=false", "runner.counters=false", "runner.operators=false"];
    let overrides: Vec<&str> = only.into_iter().chain([driver.as_str()]).collect();
    let mut props = bench.props(&[program.to_str().unwrap()], &overrides);
    props.native = Ok(library);
    profile(&props, &Cancel::new(), &mut |_| {}).unwrap()
}

#[test]
fn calls_of_an_unprofiled_program_are_timed_and_launches_are_told_apart() {
    let bench = Bench::new();
    let outcome = session(&bench, NativeLibrary::embedded().unwrap());
    assert_eq!(status(&outcome, PhaseName::Baseline).word(), "ok");
    let layout = Layout::of(&outcome.run_dir);
    let printed = std::fs::read_to_string(layout.baseline().join("program.out.log")).unwrap();
    assert_eq!(printed, "12\n", "the program sees its driver, and the launches are counted");
    let captures = layout.baseline_captures();
    assert_eq!(captures.len(), 1);
    let mut unreadable = Vec::new();
    let trace = read_each(&captures, &mut unreadable).trace;
    assert_eq!(unreadable, [] as [String; 0]);
    let calls: Vec<(&str, CallClass)> = (0..trace.calls.len())
        .map(|at| (trace.names.get(trace.calls.name[at]), trace.calls.class[at]))
        .collect();
    let step = |grid: &'static str| {
        [
            ("cuLaunchKernel f0 [1, 2, 3] [4, 5, 6]", CallClass::Launch),
            (grid, CallClass::Launch),
            ("cuLaunchKernelEx f0 [2, 3, 4] [64, 1, 1]", CallClass::Launch),
            ("cuGraphLaunch g2", CallClass::GraphLaunch),
            ("cuStreamSynchronize", CallClass::Sync),
            ("cuStreamSynchronize", CallClass::Sync),
        ]
    };
    let grids = [0, 1, 2].map(|at| format!("cuLaunchKernel f1 [{at}, 1, 1] [32, 1, 1]").leak() as &str);
    assert_eq!(calls, grids.map(step).concat());
    let starts = &trace.calls.start;
    assert!(starts.is_sorted() && (0..calls.len()).all(|at| trace.calls.end[at] >= starts[at]));
}

#[test]
fn a_library_that_cannot_be_preloaded_leaves_the_program_alone() {
    let bench = Bench::new();
    let outcome = session(&bench, NativeLibrary { bytes: b"no library" });
    assert_eq!(status(&outcome, PhaseName::Baseline).word(), "ok");
    let layout = Layout::of(&outcome.run_dir);
    assert_eq!(std::fs::read_to_string(layout.baseline().join("program.out.log")).unwrap(), "0\n");
    assert_eq!(std::fs::read_to_string(layout.baseline().join("program.err.log")).unwrap(), "");
    let said = notes(&outcome, PhaseName::Baseline);
    assert!(said.contains("calls are not timed"), "{said}");
}
