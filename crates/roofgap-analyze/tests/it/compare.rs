//! Comparisons of real captures: with themselves, with altered copies, and across tools.

use roofgap_analyze::compare::*;
use roofgap_analyze::{Analysis, Options, analyze};
use roofgap_base::exit::Exit;
use roofgap_trace::{Ns, OpKind, Trace};
use std::path::PathBuf;

fn read(name: &str) -> Trace {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/h200").join(name);
    roofgap_trace::read(&[path]).expect("the fixture reads").trace
}

fn analysis(trace: &Trace) -> Analysis {
    analyze(trace, &Options::default()).analysis
}

fn held(base: &Analysis, head: &Analysis, gates: &str) -> Comparison {
    let facts = SideFacts::default();
    let side = |analysis| Side { analysis, facts: &facts };
    let gates: Vec<Gate> = gates.split(',').filter(|g| !g.is_empty()).map(|g| g.parse().unwrap()).collect();
    let comparison = compare(side(base), side(head), &gates);
    for stage in &comparison.stages {
        let sum: i64 = stage.parts.iter().map(|part| part.delta_ns).sum();
        assert_eq!(sum as f64, stage.number("wall_ns").delta.unwrap(), "{}", stage.name);
    }
    comparison
}

/// Tells whether any change is beyond the noise.
fn has_changed(stage: &StageChange) -> bool {
    let is_real = |judgement| matches!(judgement, Judgement::Better | Judgement::Worse);
    stage.numbers.values().any(|change| is_real(change.judgement))
        || stage.kernels.iter().any(|kernel| kernel.status != KernelStatus::Same)
}

fn decode_range(trace: &Trace) -> (Ns, Ns) {
    let range = trace.ranges.rows.iter().find(|range| trace.names.get(range.name) == "decode_all").unwrap();
    (range.start, range.end)
}

/// Every kernel of decode a tenth longer; what follows on the device starts later where it must.
fn slower_decode_kernels(trace: &Trace) -> Trace {
    let mut slower = trace.clone();
    let (from, to) = decode_range(trace);
    let ops = &mut slower.ops;
    let mut free = Ns::MIN;
    for i in 0..ops.start.len() {
        let inside = (from..=to).contains(&ops.start[i]);
        let length = ops.end[i] - ops.start[i];
        let longer = inside && ops.kind[i] == OpKind::Kernel;
        if inside {
            ops.start[i] = ops.start[i].max(free);
        }
        ops.end[i] = ops.start[i] + if longer { length + length / 10 } else { length };
        free = ops.end[i];
    }
    slower.sort();
    slower
}

/// Everything from the start of decode on takes a tenth longer, on the CPU and on the GPU.
fn slower_decode(trace: &Trace) -> Trace {
    let mut slower = trace.clone();
    let (from, _) = decode_range(trace);
    let later = |at: &mut Ns| {
        if *at > from {
            *at += (*at - from) / 10;
        }
    };
    for column in [&mut slower.ops.start, &mut slower.ops.end, &mut slower.calls.start, &mut slower.calls.end]
    {
        column.iter_mut().for_each(later);
    }
    for range in &mut slower.ranges.rows {
        later(&mut range.start);
        later(&mut range.end);
    }
    slower
}

#[test]
fn a_capture_and_itself_are_the_same_under_any_gate() {
    let analysis = analysis(&read("dsocr2.sqlite.gz"));
    let comparison = held(&analysis, &analysis, "0%,0ns,total=0%,launches=0%,idle=0%,decode.step=0ns");
    assert_eq!(comparison.verdict(), Exit::Done);
    assert!(comparison.differences.is_empty());
    assert!(comparison.stages.len() >= 2);
    for stage in &comparison.stages {
        assert!(!has_changed(stage), "{}", stage.name);
        assert!(stage.parts.is_empty());
    }
    assert!(comparison.total.kernels.iter().all(|kernel| kernel.status == KernelStatus::Same));
    assert!(comparison.gates.iter().all(|gate| gate.outcome == GateOutcome::Held));
}

#[test]
fn longer_decode_kernels_are_named_and_break_the_gate() {
    let trace = read("llama4.sqlite.gz");
    let (base, head) = (analysis(&trace), analysis(&slower_decode_kernels(&trace)));
    let comparison = held(&base, &head, "5%");
    let stage = |name: &str| comparison.stages.iter().find(|stage| stage.name == name).unwrap();
    let decode = stage("decode");
    assert_eq!(decode.number("kernel_ns").judgement, Judgement::Worse);
    let pct = decode.number("kernel_ns").delta_pct.unwrap();
    assert!((9.5..10.1).contains(&pct), "{pct}");
    assert!(!has_changed(stage("prefill")));
    // Nearly all of the added time is in kernels that are called slower, and none is called anything else.
    let slower: i64 = decode
        .kernels
        .iter()
        .filter(|kernel| kernel.status == KernelStatus::Slower)
        .map(|kernel| kernel.delta_ns)
        .sum();
    let all: i64 = decode.kernels.iter().map(|kernel| kernel.delta_ns).sum();
    assert_eq!(Some(all as f64), decode.number("kernel_ns").delta);
    assert!(slower as f64 > 0.95 * all as f64, "{slower} of {all}");
    let allowed = [KernelStatus::Slower, KernelStatus::Same];
    assert!(decode.kernels.iter().all(|kernel| allowed.contains(&kernel.status)));
    assert_eq!(comparison.verdict(), Exit::GateBroken);
    let broken: Vec<_> = comparison
        .gates
        .iter()
        .filter(|gate| gate.outcome == GateOutcome::Broken)
        .map(|gate| gate.stage.as_deref())
        .collect();
    assert_eq!(broken, [Some("decode"); 2], "busy and kernel time; the wall time hides it");
    // The other way round it is an improvement, which breaks nothing.
    let better = held(&head, &base, "5%");
    assert_eq!(better.verdict(), Exit::Done);
    let decode = better.stages.iter().find(|stage| stage.name == "decode").unwrap();
    assert_eq!(decode.number("kernel_ns").judgement, Judgement::Better);
}

#[test]
fn a_longer_decode_breaks_its_wall_time() {
    let trace = read("llama4.sqlite.gz");
    let (base, head) = (analysis(&trace), analysis(&slower_decode(&trace)));
    let comparison = held(&base, &head, "decode.wall=5%,prefill=5%,decode.step=5%");
    let decode = comparison.stages.iter().find(|stage| stage.name == "decode").unwrap();
    assert_eq!(decode.number("wall_ns").judgement, Judgement::Worse);
    assert!((9.9..10.1).contains(&decode.number("wall_ns").delta_pct.unwrap()));
    let broken: Vec<&str> = comparison
        .gates
        .iter()
        .filter(|gate| gate.outcome == GateOutcome::Broken)
        .map(|gate| gate.metric.as_str())
        .collect();
    assert_eq!(broken, ["wall", "step"]);
}

#[test]
fn captures_of_two_tools_agree_on_kernels() {
    let (nsys, kineto) = (read("llama4.sqlite.gz"), read("llama4.kineto.json.gz"));
    let comparison = held(&analysis(&nsys), &analysis(&kineto), "");
    assert!(comparison.differences.iter().any(|difference| difference.what == "timeline"));
    // The framework's trace has no ranges of stages: what compares is the whole.
    let of_head = comparison.total.kernels.iter().filter(|kernel| kernel.head.is_some());
    let (named, other): (Vec<_>, Vec<_>) =
        of_head.partition(|kernel| kernel.base.is_some() && !kernel.renamed);
    assert!(named.len() > 9 * other.len(), "{} of {}", named.len(), named.len() + other.len());
    assert_eq!(comparison.stages_gone, ["prefill", "decode"]);
}
