//! Windows: steps of a stage that follow one another, replayed together, because a single step hides how far the CPU runs ahead.

use super::graph::{Graph, NONE};
use super::replay::{Plan, Times};
use crate::stages::{Span, StageIndex};
use roofgap_base::stats::median;
use roofgap_trace::Ns;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::ops::Range;

/// Most steps of a window.
const MOST_STEPS: usize = 64;

/// Steps of a stage that follow one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Calls that start in it, by their positions in the graph.
    pub calls: Range<usize>,
    /// Start and end, ns.
    pub span: (Ns, Ns),
    /// Start of each step.
    pub starts: Vec<Ns>,
}

impl Window {
    /// Chooses the steps of a stage that take about the median time; `None` where no call starts in them.
    pub fn of_stage(graph: &Graph<'_>, index: &StageIndex, stage: usize) -> Option<Self> {
        let spans = index.spans(index.warm(stage));
        let inside = |instance: &Span| -> Vec<Span> {
            let at = |moment| spans.steps.partition_point(|step| step.start < moment);
            let steps = &spans.steps[at(instance.start)..at(instance.end).max(at(instance.start))];
            steps.iter().filter(|step| step.end <= instance.end).copied().collect()
        };
        // The instance with most steps; without steps, the instance of median length.
        let most = spans.instances.iter().map(inside).max_by_key(Vec::len).filter(|steps| !steps.is_empty());
        let steps = most.or_else(|| {
            let usual = median(&mut spans.instances.iter().map(Span::length).collect::<Vec<_>>())?;
            let by_length = |span: &&Span| ((span.length() - usual).abs(), Reverse(span.start));
            Some(vec![*spans.instances.iter().min_by_key(by_length)?])
        })?;
        let ends = steps.iter().skip(1).map(|next| next.start).chain([steps.last()?.end]);
        let periods: Vec<Ns> = steps.iter().zip(ends).map(|(step, end)| end - step.start).collect();
        let usual = median(&mut periods.clone())?;
        // The first steps may wait for earlier work, and the last one ends with the program.
        let is_usual = |period: &Ns| *period <= 2 * usual;
        let run = periods.iter().position(is_usual)?..periods.iter().rposition(is_usual)? + 1;
        let count = run.len().min(MOST_STEPS);
        let off = |at: &usize| (periods[*at..at + count].iter().sum::<Ns>() - usual * count as Ns).abs();
        let first = (run.start..=run.end - count).min_by_key(off)?;
        let start = steps[first].start;
        let span = (start, start + periods[first..first + count].iter().sum::<Ns>());
        let calls = graph.calls_in(span);
        let starts = steps[first..first + count].iter().map(|step| step.start).collect();
        (!calls.is_empty()).then_some(Self { calls, span, starts })
    }

    /// Returns the time of a replay of the window, ns: on the CPU or on a GPU, whichever takes longer. Where the CPU runs ahead, its time is
    /// not that of the steps.
    pub fn time(&self, graph: &Graph<'_>, plan: &Plan, times: &Times) -> Ns {
        let last = self.calls.clone().rev().find(|at| graph.calls[*at].row != NONE);
        let on_cpu = last.map_or(0, |at| {
            let (recorded, replayed) = (graph.calls[at].end, times.calls[at - self.calls.start].1);
            replayed - self.span.0 + (self.span.1 - recorded).max(0)
        });
        let on_gpu = self.on_gpu(graph, plan, times).map(|(from, to)| to - from).max().unwrap_or(0);
        on_cpu.max(on_gpu).max(aside(graph, plan))
    }

    /// Returns the first start and the last end of what is not aside, on each device.
    fn on_gpu(&self, graph: &Graph<'_>, plan: &Plan, times: &Times) -> impl Iterator<Item = (Ns, Ns)> {
        let devices = graph.device_of_stream.iter().max().map_or(0, |most| *most as usize + 1);
        let mut extents = vec![(Ns::MAX, Ns::MIN); devices];
        let counts = |op: usize| runs(plan, op) && !plan.aside.contains_key(&(op as u32));
        for (op, (start, end)) in plan.ops.clone().zip(&times.ops).filter(|(op, _)| counts(*op)) {
            let device = graph.device_of_stream[graph.ops[op].stream as usize] as usize;
            let extent = &mut extents[device];
            *extent = (extent.0.min(*start), extent.1.max(*end));
        }
        extents.into_iter().filter(|(from, to)| from < to)
    }
}

/// Returns the time of the operations aside, ns: the most on a stream. They are prepared ahead, so they only have to fit.
fn aside(graph: &Graph<'_>, plan: &Plan) -> Ns {
    let mut of_stream: FxHashMap<u32, Ns> = FxHashMap::default();
    for op in plan.aside.keys().filter(|op| runs(plan, **op as usize)) {
        let stream = graph.ops[*op as usize].stream;
        *of_stream.entry(stream).or_default() += plan.op_ns[*op as usize - plan.ops.start];
    }
    of_stream.into_values().max().unwrap_or(0)
}

/// Tells whether an operation runs with the changes of a plan.
fn runs(plan: &Plan, op: usize) -> bool {
    let local = op - plan.ops.start;
    !plan.op_gone[local] && !plan.gone[plan.call_of_op[local] as usize - plan.calls.start]
}
