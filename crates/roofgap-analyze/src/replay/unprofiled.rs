//! Profiler overhead of stages by a second run, in which only ranges and calls were timed, without a profiler.

use super::MEDIAN_INTERVAL;
use crate::attribution::{Contexts, Launches};
use crate::result::{Overhead, Profiler, Stage, StageKind};
use crate::stages::{Span, StageIndex, StageSet, StageSpans, iterations};
use roofgap_base::stats::median_f64;
use roofgap_trace::{CallClass, Ns, Trace};
use rustc_hash::FxHashMap;

/// Start and time of a unit of a stage on the CPU, ns.
type Unit = (Ns, Ns);

/// Measures the overhead on the stages of an index. Stages of which a part was recorded are left out.
pub fn overheads(
    (trace, index, stages): (&Trace, &StageIndex, &[Stage]),
    unprofiled: &Trace,
    set: &StageSet,
    tool: Profiler,
) -> Vec<Overhead> {
    let (second, _) = StageIndex::build(unprofiled, Launches::default(), Contexts::default(), set);
    let stages = stages.iter().enumerate().take(index.len()).filter(|(_, stage)| stage.coverage.is_none());
    let row = |(at, stage): (usize, &Stage)| {
        let profiled = units(trace, index.spans(at), engine_spans(index, at));
        let warm = index.spans(index.warm(at));
        let is_warm = |start: Ns| {
            let kept = if warm.steps.is_empty() { &warm.instances } else { &warm.steps };
            kept.binary_search_by_key(&start, |span| span.start).is_ok()
        };
        let (ratio, interval) = ratio(&profiled, is_warm, &unprofiled_units(unprofiled, &second, stage))?;
        let stage = stage.name.clone();
        Some(Overhead { tool, stage, ratio, interval, pairs: None, of_runs: None, stated: false })
    };
    stages.filter_map(row).collect()
}

/// Returns the units of a stage in the unprofiled run; none where they are not found.
fn unprofiled_units(trace: &Trace, index: &StageIndex, stage: &Stage) -> Vec<Unit> {
    if stage.kind == StageKind::Whole {
        let starts = [CallClass::Launch, CallClass::GraphLaunch, CallClass::Copy];
        let calls = &trace.calls;
        let launching = (0..calls.len()).filter(|call| starts.contains(&calls.class[*call]));
        let launching: Vec<_> = launching.map(|call| (calls.start[call], calls.process[call])).collect();
        let steps = iterations(trace, &launching);
        return units(trace, &StageSpans { steps, ..StageSpans::default() }, &[]);
    }
    let at = (0..index.len()).find(|at| index.name(*at) == stage.name);
    at.map_or_else(Vec::new, |at| units(trace, index.spans(at), engine_spans(index, at)))
}

/// Returns the steps that follow one another across the stages of an engine.
fn engine_spans(index: &StageIndex, stage: usize) -> &[Span] {
    if index.engine_steps(stage).is_empty() { &[] } else { index.engine_spans() }
}

/// Returns the time from the start of each step to that of the next one on its thread in its instance; without such, that of each instance.
/// In the steady state the CPU goes on as fast as the GPU.
fn units(trace: &Trace, spans: &StageSpans, engine: &[Span]) -> Vec<Unit> {
    let sequence = if engine.is_empty() { &spans.steps } else { engine };
    let mut next = FxHashMap::default();
    let period = |span: &Span| {
        let before = spans.instances.partition_point(|instance| instance.start <= span.start);
        let instance = if engine.is_empty() { before } else { 0 };
        let thread = span.range_in(trace).map(|range| range.thread);
        let next = next.insert((thread, instance), span.start)?;
        let is_own = spans
            .steps
            .binary_search_by_key(&(span.start, span.range), |step| (step.start, step.range))
            .is_ok();
        is_own.then_some((span.start, next - span.start))
    };
    let mut units: Vec<Unit> = sequence.iter().rev().filter_map(period).collect();
    units.reverse();
    if units.is_empty() {
        units = spans.instances.iter().map(|span| (span.start, span.length())).collect();
    }
    units
}

/// Divides the times of two runs, with the ends of the 95 % confidence interval. The units of runs with as many are compared one by one.
fn ratio(
    profiled: &[Unit],
    is_warm: impl Fn(Ns) -> bool,
    unprofiled: &[Unit],
) -> Option<(f64, Option<(f64, f64)>)> {
    let log = |time: Ns| (time as f64).ln();
    let has_warm = profiled.iter().any(|(start, _)| is_warm(*start));
    let counts = |start: Ns| !has_warm || is_warm(start);
    let pairs = profiled.iter().zip(unprofiled).filter(|((start, _), _)| counts(*start));
    let (middle, error) = if profiled.len() == unprofiled.len() {
        middle(pairs.map(|(with, without)| log(with.1) - log(without.1)).collect())?
    } else {
        let with = middle(profiled.iter().filter(|unit| counts(unit.0)).map(|unit| log(unit.1)).collect())?;
        let without = middle(unprofiled.iter().map(|unit| log(unit.1)).collect())?;
        (with.0 - without.0, with.1.zip(without.1).map(|(a, b)| a.hypot(b)))
    };
    let ratio = Some(middle.exp()).filter(|ratio| ratio.is_finite() && *ratio > 0.0)?;
    Some((ratio, error.map(|error| ((middle - error).exp(), (middle + error).exp()))))
}

/// Returns the median of values and half of its 95 % confidence interval; a single value has none.
fn middle(values: Vec<f64>) -> Option<(f64, Option<f64>)> {
    let middle = median_f64(&mut values.clone())?;
    let mut distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let spread = 1.4826 * median_f64(&mut distances)?;
    let error = MEDIAN_INTERVAL * spread / (values.len() as f64).sqrt();
    Some((middle, (values.len() > 1).then_some(error)))
}
