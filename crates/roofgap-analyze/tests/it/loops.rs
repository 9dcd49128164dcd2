//! Loops that are found without names, against the steps that captures name.

use crate::programs::{Program, US};
use roofgap_analyze::{Options, StageIndex, StageKind, analyze};
use roofgap_base::stats::median;
use roofgap_trace::{Call, CallClass, GpuOp, Trace};

fn fixture(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// Returns the start of each step, ns.
fn starts(stages: &StageIndex) -> Vec<i64> {
    let of_engine = stages.engine_spans();
    let all = (0..stages.len()).flat_map(|stage| &stages.spans_with_cold(stage).steps);
    let mut starts: Vec<i64> = match of_engine.is_empty() {
        true => all.map(|span| span.start).collect(),
        false => of_engine.iter().map(|span| span.start).collect(),
    };
    starts.sort_unstable();
    starts
}

/// Returns the median time from one step to the next, ns.
fn period(starts: &[i64]) -> i64 {
    median(&mut starts.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()).unwrap()
}

fn without_names(mut trace: Trace) -> Trace {
    trace.ranges.rows.clear();
    trace.cpu_ops = Default::default();
    trace
}

#[test]
fn a_loop_without_names_is_that_of_the_names() {
    for file in [
        "h200/llama4.sqlite.gz",
        "h200/llama4.kineto.json.gz",
        "h200/dsocr2.sqlite.gz",
        "h200/planted.kineto.json.gz",
    ] {
        let input = roofgap_trace::read(&[fixture(file)]).unwrap();
        let named = starts(&analyze(&input.trace, &Options::default()).stages);
        let analyzed = analyze(&without_names(input.trace), &Options::default());
        assert_eq!(analyzed.analysis.stages[0].kind, StageKind::Loop, "{file}");
        // A warm-up, whose name leaves it out, repeats the same.
        let [half, first, last] = [period(&named) / 2, named[0], named[named.len() - 1]];
        let found: Vec<i64> = starts(&analyzed.stages)
            .into_iter()
            .filter(|start| (first - half..=last + half).contains(start))
            .collect();
        assert_eq!(found.len(), named.len(), "{file}");
        let (named, found) = (period(&named), period(&found));
        assert!((named - found).abs() * 50 <= named, "{file}: {named} {found}");
    }
}

/// Equal steps in which nothing waits look like layers of a pass; a program that was recorded from its start ends with its loop.
#[test]
fn a_loop_ends_a_program_that_was_recorded_from_its_start() {
    let stage = |from_start: bool, read: bool| {
        let mut program = Program::on(1);
        if from_start {
            program.call("cudaMalloc", 200 * US);
        }
        program.kernel("fill", 0, 5 * US);
        for _ in 0..40 {
            for name in ["a", "b", "c"] {
                program.kernel(name, 0, 50 * US);
            }
        }
        if read {
            program.kernel("head", 0, 20 * US);
            program.copy("[CUDA memcpy Device-to-Host]", 2 * US);
        }
        program.wait();
        let stage = program.analysis().stages.remove(0);
        (stage.kind, stage.steps.map_or(0, |steps| steps.count))
    };
    let (kind, steps) = stage(true, false);
    assert!(kind == StageKind::Loop && (39..=40).contains(&steps), "{kind:?} {steps}");
    assert_eq!(stage(false, false).0, StageKind::Whole);
    assert_eq!(stage(true, true).0, StageKind::Whole, "a pass whose result is read");
}

/// Layers repeat inside of one pass too, but the host takes no part in them.
#[test]
fn a_single_pass_has_no_loop() {
    let trace = roofgap_trace::read(&[fixture("h200/llama4.kineto.json.gz")]).unwrap().trace;
    let named = starts(&analyze(&trace, &Options::default()).stages);
    let calls = &trace.calls;
    let launched = (0..calls.len()).filter(|row| {
        calls.class[*row] == CallClass::Launch && (named[2]..named[3]).contains(&calls.start[*row])
    });
    let ids: Vec<u32> = launched.map(|row| calls.correlation[row]).collect();
    let rows: Vec<usize> =
        (0..trace.ops.len()).filter(|row| ids.contains(&trace.ops.correlation[*row])).collect();
    assert_eq!(rows.len(), 187);
    let analyzed = analyze(&of_rows(&trace, &rows), &Options::default());
    assert_eq!(analyzed.analysis.stages[0].kind, StageKind::Whole);
}

/// Copies a trace with some of its operations, and the calls that launched them.
fn of_rows(trace: &Trace, rows: &[usize]) -> Trace {
    let (ops, calls) = (&trace.ops, &trace.calls);
    let mut part = Trace { names: trace.names.clone(), devices: trace.devices.clone(), ..Trace::default() };
    (part.processes, part.threads) = (trace.processes.clone(), trace.threads.clone());
    for row in rows {
        part.ops.push(GpuOp {
            kind: ops.kind[*row],
            start: ops.start[*row],
            end: ops.end[*row],
            name: ops.name[*row],
            device: ops.device[*row],
            process: ops.process[*row],
            correlation: ops.correlation[*row],
            ..GpuOp::default()
        });
    }
    for row in
        (0..calls.len()).filter(|row| rows.iter().any(|op| ops.correlation[*op] == calls.correlation[*row]))
    {
        part.calls.push(Call {
            start: calls.start[row],
            end: calls.end[row],
            name: calls.name[row],
            class: calls.class[row],
            process: calls.process[row],
            thread: calls.thread[row],
            correlation: calls.correlation[row],
        });
    }
    part
}
