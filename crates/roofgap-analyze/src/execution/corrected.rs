//! Stages without the profiler that recorded them: the graph, replayed with every recorded event shorter by its cost.
//!
//! The cost of a recorded event is fitted to the time of a stage without the profiler.

use super::graph::Graph;
use super::replay::{Clocks, Plan, Times, replay};
use crate::result::{Corrected, CostSource, Overhead, Stage};
use crate::stages::{Span, StageIndex};
use crate::verdict::verdict;
use roofgap_trace::{Ns, ProcessId, Trace};

/// Part by which the times of two processes of one program differ without a reason, while the CPU sets the pace and while the GPU does. Measured:
/// `docs/h200.md`.
const PROCESSES: (f64, f64) = (0.10, 0.01);

fn between_processes(busy: f64) -> f64 {
    let busy = busy.clamp(0.0, 1.0);
    PROCESSES.0 * (1.0 - busy) + PROCESSES.1 * busy
}

/// Part of the difference between two single runs that may be chance.
const SINGLE_RUNS: f64 = 0.25;

/// Factor from the spread of values to half of the 95 % confidence interval of their median, times the root of their number.
pub const MEDIAN_INTERVAL: f64 = 1.96 * 1.2533;

/// Part of a time to which a cost is fitted.
const CLOSE: f64 = 5e-4;

/// Cost of an event above that of any profiler, ns.
const MOST_COST_NS: Ns = 1 << 18;

/// A reason why a stage has no time without its profiler.
#[derive(Debug, thiserror::Error)]
pub enum Uncorrected {
    /// No unprofiled time is known.
    #[error(
        "no run without the profiler was measured, as `roofgap profile` does; --unprofiled STAGE=TIME states its time"
    )]
    NoBaseline,
    /// Steps that were not recorded are part of the profiled time.
    #[error("recorded in part: a run without the profiler does not tell what a recorded step costs")]
    InPart,
    /// The stage has no repeated GPU work.
    #[error("no steps or instances with GPU work")]
    NoSteps,
    /// The recorded events explain only so much of the ratio.
    #[error("{0:.2} times as long under the profiler, of which the recorded calls explain {1:.2} times")]
    Unexplained(f64, f64),
}

/// Returns a stage, by its number in the index, as it is without the profiler. `measure` measures the stages of a replayed trace.
pub fn correct(
    graph: &Graph<'_>,
    index: &StageIndex,
    (at, stage): (usize, &Stage),
    overhead: Option<&Overhead>,
    measure: impl Fn(&Trace) -> Vec<Stage>,
) -> Result<Corrected, Uncorrected> {
    let overhead = overhead.filter(|overhead| overhead.ratio.is_finite() && overhead.ratio > 0.0);
    let overhead = overhead.ok_or(Uncorrected::NoBaseline)?;
    if stage.coverage.is_some() && overhead.pairs.is_none() {
        return Err(Uncorrected::InPart);
    }
    let fit = Fit::new(graph, index, at);
    let ratio = overhead.ratio.max(1.0);
    let (low, high) = interval(overhead);
    let (cost_ns, most) = fit.cost(ratio);
    if most * (1.0 + between_processes(stage.busy_share().unwrap_or_default())) < low {
        return Err(Uncorrected::Unexplained(ratio, most));
    }
    let new = match cost_ns {
        0 => Some(stage.clone()),
        cost => measure(&at_cost(graph, cost).trace(graph))
            .into_iter()
            .find(|replayed| replayed.name == stage.name),
    };
    let mut new = new.ok_or(Uncorrected::NoSteps)?;
    new = new.warm.take().map_or(new, |warm| *warm);
    new.communication = stage.communication;
    let steady = new.steady.as_ref().ok_or(Uncorrected::NoSteps)?;
    let busy = new.busy_share().ok_or(Uncorrected::NoSteps)?;
    let step = steady.time_ns as f64;
    let spread = MEDIAN_INTERVAL * steady.spread_ns as f64 / (steady.count as f64).sqrt();
    let error = |of_ratio: f64| (between_processes(busy).hypot(of_ratio) * step).hypot(spread).round() as Ns;
    Ok(Corrected {
        tool: overhead.tool,
        step_ns: steady.time_ns,
        low_ns: (steady.time_ns - error(1.0 - ratio / high)).max(0),
        high_ns: steady.time_ns + error(ratio / low - 1.0),
        busy_pct: 100.0 * busy.min(1.0),
        idle_pct: 100.0 * (1.0 - busy).max(0.0),
        launch_ns: new.idle.map_or(0, |idle| idle.launch_ns),
        limit: verdict(&new).label,
        calls: (fit.events() as f64 / steady.count as f64).round() as u64,
        cost_per_call_ns: cost_ns,
        source: match overhead.pairs {
            _ if overhead.stated => CostSource::Stated,
            Some(_) => CostSource::Pairs,
            None => CostSource::Baseline,
        },
    })
}

/// Returns the ends of the interval of a ratio of times. One of two single runs has none, and may be chance in part.
fn interval(overhead: &Overhead) -> (f64, f64) {
    let beyond = SINGLE_RUNS * (overhead.ratio - 1.0).abs();
    let (low, high) = overhead.interval.unwrap_or((overhead.ratio - beyond, overhead.ratio + beyond));
    // A profiler makes nothing faster; where the unprofiled run was slower, it counts as chance.
    (low.min(overhead.ratio), high.max(1.0))
}

/// The time of a stage on the CPU, to which a cost is fitted.
struct Fit<'a> {
    graph: &'a Graph<'a>,
    /// Process and span of each instance; of steps of an engine, to the beginning of the next.
    spans: Vec<(ProcessId, Ns, Ns)>,
}

impl<'a> Fit<'a> {
    fn new(graph: &'a Graph<'a>, index: &StageIndex, stage: usize) -> Self {
        let trace = graph.trace;
        // A span without a range is of the process that launches first.
        let first = trace.calls.process.first().copied().unwrap_or_default();
        let process = |span: &Span| span.range_in(trace).map_or(first, |range| range.process);
        let engine = index.engine_spans();
        let span = |span: &Span| {
            let after = engine.partition_point(|other| other.start <= span.start);
            let next = engine.get(after).filter(|next| process(next) == process(span));
            let end = if engine.is_empty() { Some(span.end) } else { next.map(|next| next.start) };
            Some((process(span), span.start, end?))
        };
        Self { graph, spans: index.spans(index.warm(stage)).instances.iter().filter_map(span).collect() }
    }

    /// Counts the events that have a cost.
    fn events(&self) -> usize {
        let (trace, graph) = (self.graph.trace, self.graph);
        let calls = |process: &ProcessId, from: &Ns, to: &Ns| {
            let own = graph.calls[graph.calls_in((*from, *to))].iter();
            let own = own.filter(|call| trace.calls.process.get(call.row as usize) == Some(process));
            own.map(|call| 1 + call.operators as usize).sum::<usize>()
        };
        let nodes = |process: &ProcessId, from: &Ns, to: &Ns| {
            let inside = |row: usize| (*from..*to).contains(&trace.ops.start[row]);
            let own =
                graph.ops.iter().filter(|op| op.is_node && trace.ops.process[op.row as usize] == *process);
            own.filter(|op| inside(op.row as usize)).count()
        };
        self.spans.iter().map(|(process, from, to)| calls(process, from, to) + nodes(process, from, to)).sum()
    }

    fn time(&self, new: &Times) -> Ns {
        let clocks = Clocks::of(self.graph, new);
        let length = |(process, from, to): &(ProcessId, Ns, Ns)| {
            let thread = clocks.of_thread(usize::MAX, *process);
            clocks.at(thread, *to) - clocks.at(thread, *from)
        };
        self.spans.iter().map(length).sum()
    }

    /// Returns the cost of an event at which the stage takes as long as without the profiler, ns, and the largest ratio that any cost
    /// explains. Where none explains the ratio, it is the least cost that explains as much.
    fn cost(&self, ratio: f64) -> (Ns, f64) {
        let all: Ns = self.spans.iter().map(|(_, from, to)| to - from).sum();
        let explained = |cost: Ns| all.max(1) as f64 / self.time(&at_cost(self.graph, cost)).max(1) as f64;
        let most = explained(MOST_COST_NS);
        let aim = ratio.min(most) * (1.0 - CLOSE);
        if aim <= 1.0 {
            return (0, most);
        }
        // An event saves about its cost. Every replay reads the whole trace, so few are better.
        let least = (all as f64 * (1.0 - 1.0 / aim) / self.events().max(1) as f64) as Ns;
        let mut high = least.clamp(1, MOST_COST_NS);
        let mut low = high - (high >> 4) - 1;
        while high < MOST_COST_NS && explained(high) < aim {
            (low, high) = (high, (high + (high >> 2) + 1).min(MOST_COST_NS));
        }
        while low > 0 && explained(low) >= aim {
            (low, high) = (low - (low >> 2) - 1, low);
        }
        while high - low > (high >> 10).max(1) {
            let middle = low.midpoint(high);
            if explained(middle) < aim { low = middle } else { high = middle }
        }
        (high, most)
    }
}

/// Replays all of a graph with a cost of each event taken off.
pub fn at_cost(graph: &Graph<'_>, cost_ns: Ns) -> Times {
    replay(graph, &Plan { cost_ns, ..Plan::of(graph, 0..graph.calls.len()) })
}
