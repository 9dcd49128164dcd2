//! Profiler overhead of stages by a second run, in which only ranges and calls were timed, without a profiler.

use super::corrected::MEDIAN_INTERVAL;
use crate::attribution::{Contexts, Launches};
use crate::loops::{self, Loop};
use crate::result::{Overhead, Profiler, Stage, StageKind};
use crate::stages::{Span, StageIndex, StageSet, StageSpans, iterations};
use crate::timeline::DEVIATION;
use roofgap_base::stats::median_f64;
use roofgap_trace::{CallClass, Ns, Trace};
use rustc_hash::FxHashMap;

/// Start and time of a unit of a stage on the CPU, ns.
type Unit = (Ns, Ns);

/// Measures the overhead on the stages of an index, but not on those of which a part was recorded, and not on those of engines.
pub fn overheads(
    (trace, index, stages): (&Trace, &StageIndex, &[Stage]),
    unprofiled: &Trace,
    set: &StageSet,
    tool: Profiler,
) -> Vec<Overhead> {
    let (second, _) = StageIndex::build(unprofiled, Launches::default(), Contexts::default(), set);
    let row = |(at, stage): (usize, &Stage)| {
        if stage.coverage.is_some() || !index.engine_steps(at).is_empty() {
            return None;
        }
        let profiled = units(trace, index.spans(at));
        let warm = index.spans(index.warm(at));
        let warm = if warm.steps.is_empty() { &warm.instances } else { &warm.steps };
        let is_warm = |unit: &Unit| warm.binary_search_by_key(&unit.0, |span| span.start).is_ok();
        let has_warm = profiled.iter().any(is_warm);
        // Runs with other numbers of units are compared as far as both go.
        let pairs = profiled.iter().zip(unprofiled_units(unprofiled, &second, stage));
        let pairs = pairs.filter(|(unit, _)| !has_warm || is_warm(unit));
        let (ratio, interval) = ratio(pairs.map(|(with, without)| (with.1 as f64 / without.1 as f64).ln()))?;
        let stage = stage.name.clone();
        Some(Overhead { tool, stage, ratio, interval, pairs: None, of_runs: None, stated: false })
    };
    stages.iter().enumerate().take(index.len()).filter_map(row).collect()
}

/// Returns the units of a stage in the unprofiled run; none where they are not found.
fn unprofiled_units(trace: &Trace, index: &StageIndex, stage: &Stage) -> Vec<Unit> {
    if matches!(stage.kind, StageKind::Whole | StageKind::Loop) {
        let starts = [CallClass::Launch, CallClass::GraphLaunch, CallClass::Copy];
        let calls = &trace.calls;
        let launching = (0..calls.len()).filter(|call| starts.contains(&calls.class[*call]));
        let launching: Vec<_> = launching.map(|call| (calls.start[call], calls.process[call])).collect();
        let (_, mut steps) = iterations(trace, &launching);
        if steps.is_empty() {
            // The same loop is repeated as often.
            let count = stage.steps.as_ref().map_or(0, |steps| steps.count);
            let (loops, main) = loops::find(trace, &[]);
            let is_same = |found: &&Loop| count.abs_diff(found.spans.len() as u64) <= 1;
            let main = main.and_then(|main| loops.get(main)).filter(is_same);
            steps = main
                .or_else(|| loops.iter().find(is_same))
                .map_or_else(Vec::new, |found| found.spans.clone());
        }
        return units(trace, &StageSpans { steps, ..StageSpans::default() });
    }
    let at = (0..index.len()).find(|at| index.name(*at) == stage.name);
    at.map_or_else(Vec::new, |at| units(trace, index.spans(at)))
}

/// Returns the time from the start of each step to that of the next one on its thread in its instance; without such, that of each instance.
/// In the steady state the CPU goes on as fast as the GPU.
fn units(trace: &Trace, spans: &StageSpans) -> Vec<Unit> {
    let mut next = FxHashMap::default();
    let period = |span: &Span| {
        let instance = spans.instances.partition_point(|instance| instance.start <= span.start);
        let thread = span.range_in(trace).map(|range| range.thread);
        Some((span.start, next.insert((thread, instance), span.start)? - span.start))
    };
    let mut units: Vec<Unit> = spans.steps.iter().rev().filter_map(period).collect();
    units.reverse();
    if units.is_empty() {
        units = spans.instances.iter().map(|span| (span.start, span.length())).collect();
    }
    units
}

/// Returns the median of ratios, given by their logarithms, and the ends of its 95 % confidence interval; a single one has none.
fn ratio(logs: impl Iterator<Item = f64>) -> Option<(f64, Option<(f64, f64)>)> {
    let logs: Vec<f64> = logs.filter(|log| log.is_finite()).collect();
    let middle = median_f64(&mut logs.clone())?;
    let spread = median_f64(&mut logs.iter().map(|log| (log - middle).abs()).collect::<Vec<f64>>())?;
    let error = MEDIAN_INTERVAL * DEVIATION * spread / (logs.len() as f64).sqrt();
    Some((middle.exp(), (logs.len() > 1).then(|| ((middle - error).exp(), (middle + error).exp()))))
}
