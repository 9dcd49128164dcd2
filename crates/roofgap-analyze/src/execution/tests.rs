//! Replays of recorded timelines, and of a program whose times without a profiler are known.

use super::corrected::at_cost;
use super::graph::Graph;
use super::*;
use crate::attribution::Launches;
use crate::result::{Analysis, CostSource, Overhead, Profiler, Stage};
use crate::verdict::StageLimit;
use crate::{Options, analyze};
use roofgap_base::stats::ratio_error;
use roofgap_trace::{
    Call, CallClass, Device, GpuOp, Losses, Ns, OpKind, ProcessId, Range, RangeStyle, Source, SourceFormat,
    Trace,
};
use std::path::Path;

const FIXTURES: [&str; 7] = [
    "h200/llama4.sqlite.gz",
    "h200/dsocr2.sqlite.gz",
    "h200/llama4.kineto.json.gz",
    "h200/planted.kineto.json.gz",
    "vllm/vllm_dense_graph.sqlite.gz",
    "vllm/vllm_dense_graph.kineto.json.gz",
    "native/stand-in.rgcap",
];

fn fixture(name: &str) -> Trace {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    roofgap_trace::read(&[path]).unwrap().trace
}

fn launches(trace: &Trace) -> Vec<u32> {
    Launches::join(trace, &mut Losses::default()).call_of_op
}

#[test]
fn without_a_cost_the_recorded_times_come_back() {
    for name in FIXTURES {
        let trace = fixture(name);
        let calls = launches(&trace);
        let graph = Graph::new(&trace, &calls);
        assert_eq!(graph.ops.len(), trace.ops.len(), "{name}");
        let new = at_cost(&graph, 0);
        for (node, times) in graph.calls.iter().zip(&new.calls) {
            assert_eq!(*times, (node.start, node.end), "{name}: {node:?}");
        }
        for (node, times) in graph.ops.iter().zip(&new.ops) {
            assert_eq!(*times, (graph.op_start(node), graph.op_end(node)), "{name}: {node:?}");
        }
        let new = new.trace(&graph);
        assert!(new.ops.end == trace.ops.end && new.calls.end == trace.calls.end, "{name}: ends");
        assert!(new.ranges.rows == trace.ranges.rows, "{name}: ranges");
    }
}

#[test]
fn a_higher_cost_makes_nothing_later() {
    for name in FIXTURES {
        let trace = fixture(name);
        let calls = launches(&trace);
        let graph = Graph::new(&trace, &calls);
        let mut last = at_cost(&graph, 0);
        for cost in [1, 300, 2_000, 50_000] {
            let new = at_cost(&graph, cost);
            let later = |new: &[(Ns, Ns)], last: &[(Ns, Ns)]| {
                new.iter().zip(last).position(|(new, last)| new.0 > last.0 || new.1 > last.1)
            };
            assert_eq!(later(&new.ops, &last.ops), None, "{name} at {cost} ns: operations");
            assert_eq!(later(&new.calls, &last.calls), None, "{name} at {cost} ns: calls");
            assert!(new.calls.iter().all(|(start, end)| start <= end), "{name} at {cost} ns: a call");
            last = new;
        }
    }
}

/// What a step of the program does.
#[derive(Clone, Copy)]
enum Work {
    /// Launches so many kernels of so many ns.
    Kernels(u32, Ns),
    /// Launches a graph of so many kernels of so many ns.
    Graph(u32, Ns),
    /// Waits for the device.
    Wait,
    /// Copies to the host, and waits for it.
    Copy,
    /// Works on the CPU for so many ns.
    Cpu(Ns),
}

const QUEUED: Ns = 1_000;
const LAUNCH: Ns = 3_000;
const BETWEEN: Ns = 2_000;
const LATENCY: Ns = 1_000;
const RETURN: Ns = 1_500;

/// A program under a profiler that adds a cost to every call and to every node of a graph.
struct Program {
    trace: Trace,
    cost: Ns,
    now: Ns,
    free: Ns,
    correlation: u32,
}

impl Program {
    fn run(steps: u32, work: &[Work], cost: Ns) -> Trace {
        let sources = vec![Source::new(Path::new("made"), SourceFormat::NsysSqlite)];
        let mut trace = Trace { sources, ..Trace::default() };
        let process = trace.add_process(1, "python");
        let thread = trace.add_thread(process, 1, "python");
        trace.add_device(Device::default());
        let mut program = Self { trace, cost, now: 1_000_000, free: 0, correlation: 0 };
        let begun = program.now;
        let mut spans = Vec::new();
        for _ in 0..steps {
            let start = program.now;
            work.iter().for_each(|work| program.work(*work));
            spans.push(("decode_step", start, program.now));
        }
        spans.push(("decode", begun, program.now));
        for (name, start, end) in spans {
            let (name, domain) = (program.trace.names.intern(name), program.trace.names.intern(""));
            let style = RangeStyle::PushPop;
            let range =
                Range { start, end, domain, name, process, thread, end_thread: thread, style, open: false };
            program.trace.ranges.rows.push(range);
        }
        program.trace.sort();
        program.trace
    }

    fn work(&mut self, work: Work) {
        match work {
            Work::Kernels(count, ns) => (0..count).for_each(|_| self.launch("cudaLaunchKernel", 1, ns)),
            Work::Graph(nodes, ns) => self.launch("cudaGraphLaunch", nodes, ns),
            Work::Wait => self.call("cudaStreamSynchronize", self.now.max(self.free) + RETURN),
            Work::Copy => {
                let start = (self.now + LATENCY).max(self.free + QUEUED);
                self.correlation += 1;
                self.operation(OpKind::Copy, start, 2_000);
                self.correlation -= 1;
                self.call("cudaMemcpyAsync", self.free + RETURN);
            }
            Work::Cpu(ns) => self.now += ns,
        }
    }

    fn launch(&mut self, name: &str, operations: u32, ns: Ns) {
        self.call(name, self.now + LAUNCH);
        for node in 0..operations {
            let (queued, arrived) = (self.free + QUEUED, self.now - BETWEEN + LATENCY);
            let start = if node == 0 { queued.max(arrived) } else { queued + self.cost };
            self.operation(OpKind::Kernel, start, ns);
        }
    }

    fn call(&mut self, name: &str, end: Ns) {
        self.correlation += 1;
        let call = Call {
            start: self.now,
            end: end + self.cost,
            name: self.trace.names.intern(name),
            class: CallClass::from_name(name),
            process: ProcessId(0),
            thread: Default::default(),
            correlation: self.correlation,
        };
        self.trace.calls.push(call);
        self.now = end + self.cost + BETWEEN;
    }

    fn operation(&mut self, kind: OpKind, start: Ns, ns: Ns) {
        let name =
            self.trace.names.intern(if kind == OpKind::Copy { "[CUDA memcpy Device-to-Host]" } else { "k" });
        self.free = start + ns;
        self.trace.ops.push(GpuOp {
            kind,
            start,
            end: self.free,
            name,
            correlation: self.correlation,
            ..GpuOp::default()
        });
    }
}

const COST: Ns = 2_500;

/// Programs with a step that launches, one that the GPU holds back, one that waits in between, one that copies, and graphs.
const PROGRAMS: [&[Work]; 6] = [
    &[Work::Kernels(100, 2_000), Work::Wait],
    &[Work::Kernels(100, 30_000), Work::Wait],
    // Held back by the CPU with a cost of 2.5 us a launch, and by the GPU without.
    &[Work::Kernels(100, 4_500), Work::Wait],
    &[Work::Kernels(20, 3_000), Work::Wait, Work::Cpu(40_000), Work::Kernels(20, 9_000), Work::Copy],
    &[Work::Graph(200, 1_500), Work::Wait],
    &[Work::Graph(40, 4_000), Work::Copy, Work::Cpu(9_000)],
];

#[test]
fn the_replay_is_the_program_without_its_profiler() {
    for (number, work) in PROGRAMS.iter().enumerate() {
        let (profiled, truth) = (Program::run(8, work, COST), Program::run(8, work, 0));
        let calls = launches(&profiled);
        let graph = Graph::new(&profiled, &calls);
        let new = at_cost(&graph, COST).trace(&graph);
        assert!(new.ops.start == truth.ops.start, "program {number}");
        assert!(new.calls.end == truth.calls.end, "program {number}");
        assert!(new.ranges.rows == truth.ranges.rows, "program {number}");
    }
}

/// Analyses a program that takes so many times as long under a profiler.
fn analysed(trace: &Trace, ratio: f64, interval: Option<(f64, f64)>) -> Analysis {
    let (tool, stage) = (Profiler::Nsys, "decode".to_owned());
    let overhead = vec![Overhead { tool, stage, ratio, interval, pairs: None, of_runs: None, stated: false }];
    analyze(trace, &Options { overhead, ..Options::default() }).analysis
}

fn decode(trace: &Trace) -> Stage {
    let stages = analyze(trace, &Options::default()).analysis.stages;
    stages.into_iter().find(|stage| stage.name == "decode").unwrap()
}

#[test]
fn the_cost_is_fitted_to_the_time_without_the_profiler() {
    for (number, work) in PROGRAMS.iter().enumerate() {
        let (profiled, truth) = (Program::run(8, work, COST), Program::run(8, work, 0));
        let (before, after) = (decode(&profiled), decode(&truth));
        let ratio = before.wall_ns as f64 / after.wall_ns as f64;
        let analysis = analysed(&profiled, ratio, Some((ratio / 1.01, ratio * 1.01)));
        let found = analysis.stages[0].corrected;
        let found = found.unwrap_or_else(|| panic!("program {number}: {:?}", analysis.reasons));
        let step = after.steady.as_ref().unwrap().time_ns;
        assert!((found.step_ns - step).abs() * 500 <= step, "program {number}: {} of {step}", found.step_ns);
        assert!((found.low_ns..=found.high_ns).contains(&step), "program {number}: {found:?}");
        assert!((found.busy_pct - 100.0 * after.busy_share().unwrap()).abs() < 0.5, "program {number}");
        assert_eq!(Some(found.limit), after.limit, "program {number}");
        assert_eq!(found.source, CostSource::Baseline);
        if number != 1 {
            assert!((found.cost_per_call_ns - COST).abs() < COST / 10, "program {number}: {found:?}");
        }
    }
    let flips = [COST, 0].map(|cost| decode(&Program::run(8, PROGRAMS[2], cost)).limit.unwrap());
    assert_eq!(flips, [StageLimit::Launch, StageLimit::Gpu], "one limit is that of the profiler");
}

#[test]
fn what_calls_do_not_explain_is_not_corrected() {
    let trace = Program::run(8, PROGRAMS[1], COST);
    let reason = |analysis: &Analysis, about: &str| {
        let own = analysis.reasons.iter().find(|reason| reason.about.to_string() == about);
        own.map(|reason| reason.why.clone()).unwrap_or_default()
    };
    let slow = analysed(&trace, 1.5, None);
    assert_eq!(slow.stages[0].corrected, None);
    let why = reason(&slow, "stages.decode.corrected");
    assert!(why.starts_with("1.50 times as long under the profiler"), "{why}");
    let alone = analyze(&trace, &Options::default()).analysis;
    assert!(reason(&alone, "stages.corrected").contains("no run without the profiler was measured"));
    // A profiler that costs nothing leaves the stage as it is.
    let same = analysed(&trace, 0.98, Some((0.95, 1.01))).stages.remove(0);
    let found = same.corrected.unwrap();
    assert_eq!((found.cost_per_call_ns, found.step_ns), (0, same.steady.unwrap().time_ns));
    assert!(found.low_ns < found.step_ns && found.step_ns < found.high_ns);
    // An unprofiled run that was slower is within the interval.
    let slower = analysed(&trace, 0.8, None).stages.remove(0).corrected.unwrap();
    assert_eq!(slower.step_ns, found.step_ns);
    assert!(slower.high_ns as f64 >= found.step_ns as f64 / 0.8, "{slower:?}");
}

/// Two processes differ more where the CPU sets the pace.
#[test]
fn the_interval_is_wider_where_the_cpu_sets_the_pace() {
    let part = |work| {
        let own =
            analysed(&Program::run(8, work, COST), 1.0, Some((1.0, 1.0))).stages.remove(0).corrected.unwrap();
        (own.high_ns - own.low_ns) as f64 / own.step_ns as f64
    };
    let (launches, kernels) = (part(PROGRAMS[0]), part(PROGRAMS[1]));
    assert!(kernels < 0.05 && 0.08 < launches, "{launches} {kernels}");
}

/// The interval holds the time without the profiler in 19 of 20 sessions of three repeats each, whose times vary by 3 %.
#[test]
fn the_interval_holds_the_time_without_the_profiler() {
    let (profiled, truth) = (Program::run(8, PROGRAMS[0], COST), Program::run(8, PROGRAMS[0], 0));
    let (before, after) = (decode(&profiled), decode(&truth));
    let step = after.steady.as_ref().unwrap().time_ns;
    let mut state = 7u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut repeats = |ns: i64| -> Vec<f64> {
        let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        (0..3).map(|_| ns as f64 * (0.03 * normal()).exp()).collect()
    };
    let sessions = 100;
    let holds = |_: &u32| {
        let (with, without) = (repeats(before.wall_ns), repeats(after.wall_ns));
        let ratio = with.iter().sum::<f64>() / without.iter().sum::<f64>();
        let factor = ratio_error(&with, &without).unwrap().exp();
        let analysis = analysed(&profiled, ratio, Some((ratio / factor, ratio * factor)));
        analysis.stages[0].corrected.is_some_and(|own| (own.low_ns..=own.high_ns).contains(&step))
    };
    let held = (0..sessions).filter(holds).count();
    assert!(held >= 95, "{held} of {sessions}");
}

/// The profiler's own times may overlap one another and begin before a stage.
#[test]
fn the_own_work_of_the_profiler_in_a_stage_is_summed() {
    let mut trace = Program::run(3, &[Work::Kernels(4, 5_000), Work::Wait], 0);
    let overhead = |trace: &Trace| {
        let analysis = analyze(trace, &Options::default()).analysis;
        let stage = analysis.stages.iter().find(|stage| stage.name == "decode").unwrap();
        stage.profiler_overhead_ns
    };
    assert_eq!(overhead(&trace), None);
    trace.profiler = vec![(1_010_000, 1_011_000), (0, 1_002_000), (1_001_000, 1_003_000)];
    assert_eq!(overhead(&trace), Some(4_000));
}

/// The part of a run that is timed without a profiler.
fn unprofiled(trace: &Trace) -> Options {
    let mut baseline = Trace { ops: Default::default(), ..trace.clone() };
    baseline.sources.clear();
    Options { baseline: Some(baseline.into()), ..Options::default() }
}

#[test]
fn ranges_of_a_run_without_the_profiler_tell_its_overhead() {
    for (number, work) in PROGRAMS.iter().enumerate() {
        let (profiled, truth) = (Program::run(8, work, COST), Program::run(8, work, 0));
        let step = decode(&truth).steady.unwrap().time_ns;
        let analysis = analyze(&profiled, &unprofiled(&truth)).analysis;
        let [row] = &analysis.overhead[..] else { panic!("program {number}: {:?}", analysis.overhead) };
        assert_eq!((row.tool, row.stage.as_str(), row.pairs), (Profiler::Nsys, "decode", None));
        let (low, high) = row.interval.unwrap();
        assert!(low <= row.ratio && row.ratio <= high, "program {number}: {row:?}");
        let found = analysis.stages[0].steady.as_ref().unwrap().unprofiled_ns.unwrap();
        assert!((found - step).abs() * 100 <= step, "program {number}: {found} of {step}");
        let corrected = analysis.stages[0].corrected.unwrap();
        assert!((corrected.low_ns..=corrected.high_ns).contains(&step), "program {number}: {corrected:?}");
    }
}

#[test]
fn runs_with_other_numbers_of_steps_are_compared_as_far_as_both_go() {
    let profiled = Program::run(8, PROGRAMS[0], COST);
    let ratio = |steps: u32| {
        let baseline = unprofiled(&Program::run(steps, PROGRAMS[0], 0));
        analyze(&profiled, &baseline).analysis.overhead.first().map(|row| (row.ratio, row.interval.is_some()))
    };
    let (same, other) = (ratio(8).unwrap(), ratio(5).unwrap());
    assert!(same.0 > 1.2 && (same.0 - other.0).abs() < 0.01 && same.1 && other.1, "{same:?} {other:?}");
    // Two steps have one period, which has no spread.
    assert_eq!(ratio(2).map(|row| row.1), Some(false));
}

#[test]
fn a_stage_that_the_unprofiled_run_has_not_gets_no_overhead_and_an_account_wins() {
    let profiled = Program::run(8, PROGRAMS[0], COST);
    let mut other = Program::run(8, PROGRAMS[0], 0);
    let own = Overhead {
        tool: Profiler::Nsys,
        stage: "decode".to_owned(),
        ratio: 3.0,
        interval: None,
        pairs: None,
        of_runs: None,
        stated: false,
    };
    let with_account = Options { overhead: vec![own.clone()], ..unprofiled(&other) };
    assert_eq!(analyze(&profiled, &with_account).analysis.overhead, [own]);
    other.ranges.rows.clear();
    assert_eq!(analyze(&profiled, &unprofiled(&other)).analysis.overhead, []);
}

/// Predicts a step of `PROGRAMS`-like work with a change, and returns it with the steps as they are, all in ns.
fn predicted(work: &[Work], edit: Edit) -> (Ns, Ns) {
    let trace = Program::run(8, work, 0);
    let analyzed = analyze(&trace, &Options::default());
    let [after] = &what_if(&trace, &analyzed.stages, &analyzed.analysis, &[edit])[..] else { panic!() };
    let after = after.step.as_ref().unwrap_or_else(|| panic!("{:?}", after.why));
    (after.now_ns, after.after_ns)
}

/// The program with a change, played without it and with it, against its replay.
#[test]
fn a_change_gives_what_the_changed_program_takes() {
    use Work::{Cpu, Kernels, Wait};
    let scaled = |factor: f64| Edit::Kernels("k".into(), factor);
    for (number, (with, without, edit)) in [
        // The GPU sets the pace, and then the CPU does.
        (vec![Kernels(100, 30_000), Wait], vec![Kernels(100, 15_000), Wait], scaled(0.5)),
        (vec![Kernels(100, 30_000), Wait], vec![Kernels(100, 1_500), Wait], scaled(0.05)),
        (vec![Kernels(100, 2_000), Wait], vec![Kernels(100, 1_000), Wait], scaled(0.5)),
        // The CPU runs ahead, and never waits.
        (vec![Kernels(100, 30_000)], vec![Kernels(100, 15_000)], scaled(0.5)),
        // Work of the CPU that the GPU hides, and that it does not.
        (vec![Kernels(60, 9_000), Cpu(2_000_000), Wait], vec![Kernels(60, 9_000), Wait], Edit::NoOtherWork),
        (vec![Kernels(600, 9_000), Cpu(2_000_000), Wait], vec![Kernels(600, 9_000), Wait], Edit::NoOtherWork),
    ]
    .into_iter()
    .enumerate()
    {
        let (now, after) = predicted(&with, edit);
        let [recorded, truth] =
            [&with, &without].map(|work| decode(&Program::run(8, work, 0)).steady.unwrap().time_ns);
        assert_eq!(now, recorded, "program {number}");
        assert!(
            (after - truth).abs() * 100 <= recorded,
            "program {number}: {after} of {truth}, from {recorded}"
        );
    }
}

#[test]
fn a_graph_cannot_hold_a_wait() {
    use Work::{Kernels, Wait};
    let (_, whole) = predicted(&[Kernels(100, 2_000), Wait], Edit::Graph);
    let (now, split) = predicted(&[Kernels(50, 2_000), Wait, Kernels(50, 2_000), Wait], Edit::Graph);
    assert!(whole < split && split < now, "{whole} {split} {now}");
}

#[test]
fn changes_are_written_as_they_are_read() {
    for text in ["graph", "no-wait", "host=0.5", "kernel:gemm=2x", "overlap-copies", "fuse", "no-allocations"]
    {
        assert_eq!(text.parse::<Edit>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "graphs",
        "host=",
        "host=-1",
        "host=nan",
        "kernel:=2x",
        "kernel:gemm=2",
        "kernel:gemm=0x",
        "kernel:gemm=1e-9x",
        "host=1e9",
    ] {
        assert!(text.parse::<Edit>().is_err(), "{text}");
    }
}
