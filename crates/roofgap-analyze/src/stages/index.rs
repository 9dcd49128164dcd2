//! The index of stages: the time spans of each stage and the GPU operations that belong to it.

use super::frame_steps::FrameSteps;
use super::iterations::{DATA_LOADER, iterations};
use super::ranges::{AllOfStage, EngineStage, StageRanges, Warmup};
use super::{StageRule, StageSet, step_stage};
use crate::attribution::{Contexts, Launches, NO_CALL};
use crate::engines::{Engine, EngineStep};
use crate::loops::{self, Loop};
use crate::result::{BesideRanges, ColdStart, StageKind, Tail};
use crate::timeline::{Activity, IntervalSet};
use roofgap_base::stats::median;
use roofgap_trace::{NameId, Ns, OpKind, ProcessId, Range, ThreadId, Trace, range_name};
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// Marks a context outside of every instance, or outside of every stage.
const NOWHERE: u32 = u32::MAX;

/// A span of time on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Start, ns on the clock of the trace.
    pub start: Ns,
    /// End, ns on the clock of the trace.
    pub end: Ns,
    /// Row in `Trace::ranges` of the range that marks it; `None` for a span found by other means.
    pub range: Option<u32>,
}

impl Span {
    /// Returns the length, ns.
    pub fn length(&self) -> Ns {
        self.end - self.start
    }

    /// Returns the range that marks it.
    pub(crate) fn range_in<'t>(&self, trace: &'t Trace) -> Option<&'t Range> {
        trace.ranges.rows.get(self.range? as usize)
    }
}

/// Returns the spans of ranges, given by their rows in `Trace::ranges`.
fn spans(trace: &Trace, rows: &[u32]) -> Vec<Span> {
    let span = |&row: &u32| {
        let range = trace.ranges.rows.get(row as usize)?;
        Some(Span { start: range.start, end: range.end, range: Some(row) })
    };
    rows.iter().filter_map(span).collect()
}

/// The time spans of one stage, each list in the order of start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StageSpans {
    /// Instances of the stage.
    pub instances: Vec<Span>,
    /// Steps inside the instances.
    pub steps: Vec<Span>,
    /// Notes inside the instances.
    pub notes: Vec<Span>,
}

/// One stage of the index.
#[derive(Debug, Clone, Default)]
struct IndexedStage {
    name: String,
    /// What it is called in a sentence; `None` for its name.
    title: Option<String>,
    kind: StageKind,
    /// Position of its rule in the set: decides between stages that hold the same operation.
    rule: usize,
    spans: StageSpans,
    /// The engine step of each instance; empty for other stages.
    engine_steps: Vec<EngineStep>,
    /// Extent with the part that was not recorded; `None` if all was.
    all: Option<AllOfStage>,
    /// Position of the instance for each context, or [`NOWHERE`].
    instance_of_context: Vec<u32>,
    /// All instances and steps, with the cold ones that are left out of `spans`; `None` where none is.
    with_cold: Option<StageSpans>,
    /// Calls in cold steps of instances that are not cold, as rows of `Trace::calls`.
    cold_calls: FxHashSet<u32>,
    cold: Option<ColdStart>,
    /// Tail with the steps that are left out because they pause; `None` without such.
    tail: Option<Tail>,
}

/// Cold instances and steps of a stage, and steps that pause, as positions in its spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cold {
    pub instances: Vec<usize>,
    /// Steps of other instances.
    pub steps: Vec<usize>,
    /// Description of the cold ones; `None` where steps only pause.
    pub start: Option<ColdStart>,
    /// Tail of all but the cold steps; `None` where none pauses.
    pub tail: Option<Tail>,
}

/// Answers which time spans and which operations belong to a stage. Stages are numbered as in `Analysis::stages`.
#[derive(Debug, Default)]
pub struct StageIndex {
    /// First and last time of the trace, ns.
    span: Option<(Ns, Ns)>,
    stages: Vec<IndexedStage>,
    /// Stages without their cold instances and steps, numbered after the others, with the number of the whole stage.
    warm: Vec<(usize, IndexedStage)>,
    /// The first stage, in the order of the rules, for each context.
    stage_of_context: Vec<u32>,
    launches: Launches,
    contexts: Contexts,
    /// All engine steps of all stages, in the order of start.
    engine_spans: Vec<Span>,
    engine: Option<&'static Engine>,
    /// Row of the engine step that the work after it belongs to, by context.
    between: FxHashMap<u32, u32>,
    /// Operations of an engine's first step that ran before the one launched first. They are in no stage.
    early: FxHashSet<u32>,
    /// Position of the recorded window of each operation, for the stage that holds the whole trace, or [`NOWHERE`] for one outside of the
    /// loop; empty where all are in.
    window_of_op: Vec<u32>,
    /// The calls before and after the loop that is a stage; empty without one.
    outside: FxHashSet<u32>,
    /// Loops, from the outermost inwards; empty where stages have names of their own.
    pub loops: Vec<Loop>,
    phases_told_by: Option<String>,
}

/// A stage of the set that does not occur in the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsentStage {
    /// Stage name.
    pub name: String,
    /// Reason.
    pub why: String,
}

impl StageIndex {
    /// Finds the stages of `set` in a trace, in the order of their first instance. Returns the requested stages that are absent too.
    pub fn build(
        trace: &Trace,
        launches: Launches,
        contexts: Contexts,
        set: &StageSet,
    ) -> (Self, Vec<AbsentStage>) {
        let warmup = Warmup::of(trace, set);
        let mut index = Self { launches, contexts, span: trace.span(), ..Self::default() };
        let mut absent = Vec::new();
        for (position, rule) in set.stages.iter().enumerate() {
            let mut ranges = StageRanges::find(trace, rule, &warmup, set);
            let all = ranges.keep_recorded(trace);
            if ranges.instances.is_empty() {
                let why = if let Some(all) = all {
                    not_recorded(all)
                } else if ranges.in_warmup > 0 {
                    format!("all {} matching ranges are inside a warm-up", ranges.in_warmup)
                } else if rule.requested {
                    no_match(trace, rule)
                } else {
                    continue;
                };
                absent.push(AbsentStage { name: rule.name.clone(), why });
                continue;
            }
            let spans = StageSpans {
                instances: spans(trace, &ranges.instances),
                steps: spans(trace, &ranges.steps),
                notes: spans(trace, &ranges.notes),
            };
            let name = rule.name.clone();
            index.add(IndexedStage {
                name,
                kind: rule.kind,
                rule: position,
                spans,
                all,
                ..IndexedStage::default()
            });
        }
        if index.stages.is_empty()
            && let Some((engine, stages)) = EngineStage::find(trace, &warmup)
        {
            index.add_engine_stages(trace, engine, stages, &mut absent);
        }
        if index.stages.is_empty()
            && let Some(steps) = FrameSteps::find(trace, &warmup)
        {
            let all = spans(trace, &steps.rows());
            let step_of_context = index.span_of_context(&all);
            let step_of_op = |op: usize| known(step_of_context.get(index.context_of_op(op) as usize));
            let (stages, told_by) = steps.stages(trace, step_of_op);
            if !stages.is_empty() {
                index.add_engine_stages(trace, steps.engine, stages, &mut absent);
                index.phases_told_by = Some(told_by);
            }
        }
        if index.stages.is_empty() && set.stages.iter().all(|rule| !rule.requested) {
            index.add_own_stage(trace);
        }
        index.between = index.work_between(trace);
        for stage in 0..index.stages.len() {
            if !index.engine_steps(stage).is_empty() {
                index.stages[stage].instance_of_context =
                    index.span_of_context(&index.spans(stage).instances);
            }
        }
        index.stages.sort_by_key(|stage| stage.spans.instances.first().map(|span| span.start));
        index.stage_of_context = index.first_stages();
        (index, absent)
    }

    /// Leaves out the operations of an engine's first step that ran before the one launched first, where the device did little else until
    /// then: it ran work from before the recording, which the step does not wait for.
    pub fn leave_out_early(&mut self, trace: &Trace, activity: &Activity) {
        let (ops, step) = (&trace.ops, self.span_of_context(&self.engine_spans));
        // Step, launch and row of the first operation of each device.
        let mut first: Vec<Option<(usize, Ns, usize)>> = vec![None; trace.devices.len()];
        let step_of = |op: usize| known(step.get(self.context_of_op(op) as usize));
        for op in 0..ops.len() {
            if let (Some(at), Some(first)) = (step_of(op), first.get_mut(ops.device[op].index())) {
                let launched = (at, trace.calls.start[self.call_of_op(op) as usize], op);
                *first = Some(first.map_or(launched, |first| first.min(launched)));
            }
        }
        let mut early = FxHashSet::default();
        for (device, (at, _, op)) in first.iter().enumerate().filter_map(|(at, first)| Some((at, (*first)?)))
        {
            let before = |other: &usize| ops.device[*other].index() == device && step_of(*other) == Some(at);
            // Operations are in the order of their start.
            let rows: Vec<usize> = (0..op).filter(before).collect();
            let begin = rows.first().map_or(ops.start[op], |row| ops.start[*row]);
            if 2 * activity.busy_in(device, begin, ops.start[op]) < ops.start[op] - begin {
                early.extend(rows.into_iter().map(|row| row as u32));
            }
        }
        self.early = early;
    }

    /// Tells whether an operation is left out of the first step of an engine.
    pub(crate) fn is_early(&self, op: usize) -> bool {
        !self.early.is_empty() && self.early.contains(&(op as u32))
    }

    /// Adds up the kernels of engine steps that are in the stage and not in its ranges, or in its ranges and not in the stage; `None`
    /// without any.
    pub fn beside_ranges(&self, trace: &Trace, stage: usize) -> Option<BesideRanges> {
        let instances = &self.at(stage).instance_of_context;
        let mut sums = BesideRanges::default();
        for op in (0..trace.ops.len()).filter(|op| trace.ops.kind[*op] == OpKind::Kernel) {
            let context = self.context_of_op(op);
            if known(instances.get(context as usize)).is_none() {
                continue;
            }
            let sum = match (self.between.contains_key(&context), self.is_early(op)) {
                (true, false) => &mut sums.launched_after,
                (false, true) => &mut sums.ran_before,
                _ => continue,
            };
            sum.kernel_count += 1;
            sum.kernel_ns += trace.ops.duration(op);
        }
        (sums != BesideRanges::default()).then_some(sums)
    }

    /// Adds a stage after it has found the contexts of its instances.
    fn add(&mut self, stage: IndexedStage) {
        let instance_of_context = self.span_of_context(&stage.spans.instances);
        self.stages.push(IndexedStage { instance_of_context, ..stage });
    }

    /// Adds a stage without its cold instances and steps, as if they were a warm-up.
    pub fn add_warm(&mut self, trace: &Trace, stage: usize, cold: Cold) {
        let Cold { instances, steps, start, tail } = cold;
        let Some(whole) = self.stages.get_mut(stage) else {
            return;
        };
        let startup_ns = start.as_ref().map_or(0, |start| start.startup_ns);
        let starts_up = startup_ns > 0 && whole.kind == StageKind::Whole;
        (whole.cold, whole.tail) = (start, tail);
        if instances.is_empty() && steps.is_empty() && !starts_up {
            return;
        }
        let mut warm_part = whole.clone();
        let engine = !warm_part.engine_steps.is_empty();
        if !engine && !steps.is_empty() {
            let step_of_call = self.step_of_call(trace, stage, &warm_part.spans.steps);
            let rows = (0u32..).zip(&step_of_call).filter(|(_, step)| steps.contains(&(**step as usize)));
            warm_part.cold_calls = rows.map(|(call, _)| call).collect();
        }
        let all = warm_part.spans.clone();
        // The steps of an engine are its instances.
        let gone = if engine { &steps } else { &instances };
        let lost: Vec<Span> =
            gone.iter().filter_map(|at| warm_part.spans.instances.get(*at)).copied().collect();
        let inside = |span: &Span, outer: &Span| outer.start <= span.start && span.end <= outer.end;
        let kept = |list: &[Span], cold: &[usize]| -> Vec<Span> {
            let spans = list.iter().enumerate().filter(|(at, span)| {
                !cold.contains(at) && !lost.iter().any(|instance| inside(span, instance))
            });
            spans.map(|(_, span)| *span).collect()
        };
        let of_engine = warm_part.engine_steps.iter().enumerate().filter(|(at, _)| !gone.contains(at));
        warm_part.engine_steps = of_engine.map(|(_, step)| *step).collect();
        warm_part.spans = StageSpans {
            instances: kept(&warm_part.spans.instances, gone),
            steps: kept(&warm_part.spans.steps, &steps),
            notes: kept(&warm_part.spans.notes, &[]),
        };
        // An instance that begins with cold steps begins after them.
        let by_time = is_by_time(warm_part.kind);
        for instance in warm_part.spans.instances.iter_mut().filter(|_| !engine) {
            let first =
                |list: &[Span]| list.iter().find(|span| inside(span, instance)).map(|span| span.start);
            let warm = match (first(&all.steps), first(&warm_part.spans.steps)) {
                (Some(cold), Some(warm)) if cold < warm || starts_up => Some(warm),
                (None, _) if starts_up => Some(instance.start + startup_ns),
                _ => None,
            };
            if let Some(warm) = warm {
                // The whole trace holds what was launched before its steps, too.
                let from = if trace.recorded.is_empty() { Ns::MIN } else { instance.start };
                let earlier = (0u32..).zip(&trace.calls.start).filter(|_| by_time);
                let earlier = earlier.filter(|(_, start)| (from..warm).contains(*start));
                warm_part.cold_calls.extend(earlier.map(|(call, _)| call));
                let unlaunched = |op: usize| self.launches.call_of_op.get(op) == Some(&NO_CALL);
                if by_time && (0..trace.ops.len()).any(|op| trace.ops.start[op] < warm && unlaunched(op)) {
                    warm_part.cold_calls.insert(NO_CALL);
                }
                instance.start = warm;
            }
        }
        warm_part.with_cold = Some(all);
        warm_part.instance_of_context = self.span_of_context(&warm_part.spans.instances);
        self.warm.push((stage, warm_part));
    }

    /// Adds stages whose instances are steps of an engine.
    fn add_engine_stages(
        &mut self,
        trace: &Trace,
        engine: &'static Engine,
        stages: Vec<EngineStage>,
        absent: &mut Vec<AbsentStage>,
    ) {
        self.engine = Some(engine);
        for (rule, EngineStage { kind, rows, steps, all }) in stages.into_iter().enumerate() {
            let name = step_stage(kind).to_owned();
            if let (true, Some(all)) = (rows.is_empty(), all) {
                absent.push(AbsentStage { name, why: not_recorded(all) });
                continue;
            }
            let instances = spans(trace, &rows);
            self.engine_spans.extend(&instances);
            let spans = StageSpans { steps: instances.clone(), instances, notes: Vec::new() };
            self.add(IndexedStage {
                name,
                kind,
                rule,
                spans,
                engine_steps: steps,
                all,
                ..IndexedStage::default()
            });
        }
        self.engine_spans.sort_by_key(|span| (span.start, span.range));
    }

    /// Finds the work that the threads of an engine launch after a step and before the next one, which belongs to that step: the head of
    /// the model and sampling often run outside of its range. Returns the row of the step's range by context.
    fn work_between(&self, trace: &Trace) -> FxHashMap<u32, u32> {
        // The steps of each thread, in the order of start.
        let mut steps: FxHashMap<ThreadId, Vec<(Span, ProcessId)>> = FxHashMap::default();
        for span in &self.engine_spans {
            if let Some(range) = span.range_in(trace) {
                steps.entry(range.thread).or_default().push((*span, range.process));
            }
        }
        let mut rows = FxHashMap::default();
        if steps.is_empty() {
            return rows;
        }
        // A step without requests, which keeps the ranks of a group together, is no part of the step before it.
        let mut is_idle: FxHashMap<NameId, bool> = FxHashMap::default();
        let idle = IntervalSet::by_thread(trace.ranges.rows.iter().filter(|range| {
            let parse = || EngineStep::parse(trace.names.get(range.name));
            *is_idle.entry(range.name).or_insert_with(|| parse().is_some_and(|step| step.kind().is_none()))
        }));
        let calls = &trace.calls;
        let launching = self.contexts.of_call.iter().enumerate();
        for (call, context) in launching.filter(|(_, context)| (**context as usize) < self.contexts.len()) {
            let (Some(thread), Some(start)) = (calls.thread.get(call), calls.start.get(call)) else {
                continue;
            };
            let Some(steps) = steps.get(thread) else { continue };
            if idle.get(thread).is_some_and(|set| set.encloses(*start, *start)) {
                continue;
            }
            let after = steps.partition_point(|(span, _)| span.start <= *start);
            // After the last step anything may follow.
            if let Some(((step, process), (next, _))) =
                after.checked_sub(1).and_then(|at| steps.get(at)).zip(steps.get(after))
                && let Some(row) = step.range
                && step.end < *start
                && (trace.recorded.is_empty() || trace.window_of(*process, step.start, next.end).is_some())
            {
                rows.insert(*context, row);
            }
        }
        rows
    }

    /// Adds the loop in which the program spends its time, named or not; without one a stage for all GPU work, so that a trace without stages
    /// has an answer too.
    fn add_own_stage(&mut self, trace: &Trace) {
        let (Some(&start), Some(&end)) = (trace.ops.start.iter().min(), trace.ops.end.iter().max()) else {
            return;
        };
        let launching: Vec<(Ns, ProcessId)> = (0..trace.calls.len())
            .filter(|call| self.contexts.of_call(*call as u32) != NOWHERE)
            .map(|call| (trace.calls.start[call], trace.calls.process[call]))
            .collect();
        let (mut name, mut steps) = iterations(trace, &launching);
        let mut title = None;
        if steps.is_empty() && trace.recorded.is_empty() {
            let main;
            (self.loops, main) = loops::find(trace, &self.launches.call_of_op);
            if let Some(found) = main.and_then(|main| self.loops.get(main)) {
                steps.clone_from(&found.spans);
                let own = loops::name(trace, &steps);
                title = own.is_none().then(|| found.title());
                name = own.unwrap_or_else(|| "loop".to_owned());
            }
        }
        let mut spans =
            StageSpans { instances: vec![Span { start, end, range: None }], ..StageSpans::default() };
        if !trace.recorded.is_empty() {
            (spans.instances, self.window_of_op) = self.recorded_windows(trace);
            spans.steps = steps;
        } else if let Some(first) = steps.first().map(|first| first.start) {
            let end = end_of_steps(&steps, &launching).unwrap_or(end);
            // Its GPU work may go on.
            let end = self.leave_out(trace, first..=end).max(end);
            spans = StageSpans {
                instances: vec![Span { start: first, end, range: None }],
                steps,
                notes: Vec::new(),
            };
            let kind = StageKind::Loop;
            return self.add(IndexedStage { name, title, kind, spans, ..IndexedStage::default() });
        } else {
            // Getting the first batch is the beginning.
            let loads = |range: &&Range| trace.names.get(range.name).starts_with(DATA_LOADER);
            let loading = trace.ranges.rows.iter().filter(loads).map(|range| range.start).min();
            spans.instances[0].start = loading.map_or(start, |first| first.min(start));
        }
        let (name, kind) = ("all".to_owned(), StageKind::Whole);
        self.add(IndexedStage { name, kind, spans, ..IndexedStage::default() });
    }

    /// Leaves out what was not launched in a time, and returns the end of the last operation that was.
    fn leave_out(&mut self, trace: &Trace, time: RangeInclusive<Ns>) -> Ns {
        let outside = (0u32..).zip(&trace.calls.start).filter(|(_, start)| !time.contains(start));
        self.outside = outside.map(|(call, _)| call).collect();
        let launched = |(op, call): (usize, &u32)| match trace.calls.start.get(*call as usize) {
            Some(at) => *at,
            None => trace.ops.start[op],
        };
        let at = |op| if time.contains(&launched(op)) { 0 } else { NOWHERE };
        self.window_of_op = self.launches.call_of_op.iter().enumerate().map(at).collect();
        let inside = self.window_of_op.iter().zip(&trace.ops.end).filter(|(window, _)| **window == 0);
        inside.map(|(_, end)| *end).max().unwrap_or(Ns::MIN)
    }

    /// Returns the recorded windows that have operations, and for each operation the position of the window in which it was launched.
    fn recorded_windows(&self, trace: &Trace) -> (Vec<Span>, Vec<u32>) {
        let (ops, calls) = (&trace.ops, &trace.calls);
        let mut windows: Vec<Span> = Vec::new();
        let mut of_op = Vec::with_capacity(ops.len());
        let mut known: FxHashMap<(ProcessId, usize), u32> = FxHashMap::default();
        for op in 0..ops.len() {
            let call = self.launches.call_of_op.get(op).copied();
            let at = call.and_then(|call| calls.start.get(call as usize)).copied();
            let (process, at) = (ops.process[op], at.unwrap_or(ops.start[op]));
            let recorded = trace.recorded.iter().find(|recorded| recorded.process == process);
            let list = recorded.map_or(&[][..], |recorded| &recorded.windows);
            // What was launched at an edge of a window counts to the window before it.
            let window = list.partition_point(|window| window.0 <= at).saturating_sub(1);
            let (start, end) = list.get(window).copied().unwrap_or((ops.start[op], ops.end[op]));
            let position = *known.entry((process, window)).or_insert_with(|| {
                windows.push(Span { start, end, range: None });
                windows.len() as u32 - 1
            });
            if let Some(span) = windows.get_mut(position as usize).filter(|_| recorded.is_none()) {
                *span = Span { start: span.start.min(start), end: span.end.max(end), range: None };
            }
            of_op.push(position);
        }
        (windows, of_op)
    }

    fn first_stages(&self) -> Vec<u32> {
        let mut order: Vec<(usize, &IndexedStage)> = self.stages.iter().enumerate().collect();
        order.sort_by_key(|(_, stage)| stage.rule);
        let first = |context: usize| {
            let first =
                order.iter().find(|(_, stage)| known(stage.instance_of_context.get(context)).is_some());
            first.map_or(NOWHERE, |(position, _)| *position as u32)
        };
        (0..self.contexts.len()).map(first).collect()
    }

    /// Returns the first and the last time of the trace, ns; `None` without events.
    pub fn span(&self) -> Option<(Ns, Ns)> {
        self.span
    }

    /// Returns the number of stages. It is 0 where the stages of the analysis do not come from the trace.
    pub fn len(&self) -> usize {
        self.stages.len()
    }

    /// Tells whether the index has no stage.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    fn at(&self, stage: usize) -> &IndexedStage {
        static NONE: LazyLock<IndexedStage> = LazyLock::new(IndexedStage::default);
        let warm = || self.warm.get(stage.checked_sub(self.stages.len())?).map(|(_, stage)| stage);
        self.stages.get(stage).or_else(warm).unwrap_or_else(|| &NONE)
    }

    /// Returns the number of a stage without its cold instances and steps; its own number if all of it is warm.
    pub fn warm(&self, stage: usize) -> usize {
        let at = self.warm.iter().position(|(whole, _)| *whole == stage);
        at.map_or(stage, |at| self.stages.len() + at)
    }

    /// Returns the name of a stage; empty for a stage that is not in the index.
    pub fn name(&self, stage: usize) -> &str {
        &self.at(stage).name
    }

    /// Returns what a stage is called in a sentence; `None` for its name.
    pub fn title(&self, stage: usize) -> Option<&str> {
        self.at(stage).title.as_deref()
    }

    /// Returns the time spans of a stage; none for a stage that is not in the index.
    pub fn spans(&self, stage: usize) -> &StageSpans {
        &self.at(stage).spans
    }

    /// Returns the time spans of a stage with the cold ones.
    pub fn spans_with_cold(&self, stage: usize) -> &StageSpans {
        let stage = self.at(stage);
        stage.with_cold.as_ref().unwrap_or(&stage.spans)
    }

    /// Returns the cold instances and steps of a stage; `None` without any.
    pub fn cold(&self, stage: usize) -> Option<&ColdStart> {
        self.at(stage).cold.as_ref()
    }

    /// Returns the tail of a stage with the steps that are left out because they pause; `None` without such.
    pub fn tail(&self, stage: usize) -> Option<Tail> {
        self.at(stage).tail
    }

    /// Returns the number of calls that launched work of a stage.
    pub fn launches_in(&self, stage: usize) -> u64 {
        let holds = |context: u32| self.instance_of_context(stage, context).is_some();
        let contexts = (0..).zip(&self.contexts.launches).filter(|(context, _)| holds(*context));
        let cold = &self.at(stage).cold_calls;
        let is_loop = self.kind(stage) == StageKind::Loop;
        let outside = self.outside.iter().filter(|call| is_loop && !cold.contains(call));
        let gone = cold.iter().chain(outside).filter(|call| holds(self.contexts.of_call(**call)));
        contexts.map(|(_, launches)| launches).sum::<u64>() - gone.count() as u64
    }

    /// Returns the kind of a stage.
    pub fn kind(&self, stage: usize) -> StageKind {
        self.at(stage).kind
    }

    /// Returns the extent of a stage with the part that was not recorded; `None` if all of it was recorded.
    pub fn all_of(&self, stage: usize) -> Option<AllOfStage> {
        self.at(stage).all
    }

    /// Returns the engine step of each instance of a stage; empty for a stage that is not made of engine steps.
    pub fn engine_steps(&self, stage: usize) -> &[EngineStep] {
        &self.at(stage).engine_steps
    }

    /// Returns the engine whose step names were found.
    pub fn engine(&self) -> Option<&'static Engine> {
        self.engine
    }

    /// Returns how prefill and decode were told apart; `None` where the names of the steps say it.
    pub fn phases_told_by(&self) -> Option<&str> {
        self.phases_told_by.as_deref()
    }

    /// Returns the engine steps of all stages, in the order of start.
    pub fn engine_spans(&self) -> &[Span] {
        &self.engine_spans
    }

    /// Returns the position of the stage that holds the whole trace, or its loop.
    fn whole_trace(&self) -> Option<usize> {
        self.stages.iter().position(|stage| is_by_time(stage.kind))
    }

    /// Returns the stage of a GPU operation. Of several stages that hold it, the first in the order of the rules.
    pub fn stage_of_op(&self, op: usize) -> Option<usize> {
        let stage = self.stage_of_context(self.context_of_op(op)).filter(|_| !self.is_early(op));
        stage.or_else(|| self.whole_trace().filter(|stage| self.holds(*stage, op)))
    }

    /// Returns the stage in which a call launched GPU work; `None` for a call that launched none.
    pub fn stage_of_call(&self, call: usize) -> Option<usize> {
        let context = self.contexts.of_call(u32::try_from(call).ok()?);
        let launched = (context as usize) < self.contexts.len();
        let inside = launched && !self.outside.contains(&(call as u32));
        self.stage_of_context(context).or_else(|| self.whole_trace().filter(|_| inside))
    }

    /// Tells whether a GPU operation belongs to a stage.
    pub fn holds(&self, stage: usize, op: usize) -> bool {
        self.instance_of(stage, op).is_some()
    }

    /// Returns the instance of a stage that a GPU operation belongs to, as a position in `spans(stage).instances`.
    #[inline]
    pub fn instance_of(&self, stage: usize, op: usize) -> Option<usize> {
        let indexed = self.at(stage);
        self.instance_in(indexed, op).filter(|_| !self.is_cold_in(indexed, op))
    }

    /// Returns the GPU operations of a stage among `members`, which are those of the stage with its cold instances and steps.
    pub(crate) fn held<'a>(&self, stage: usize, members: &'a [u32]) -> Cow<'a, [u32]> {
        match stage < self.len() {
            true => members.into(),
            false => members.iter().copied().filter(|op| self.holds(stage, *op as usize)).collect(),
        }
    }

    fn is_cold_in(&self, stage: &IndexedStage, op: usize) -> bool {
        !stage.cold_calls.is_empty() && stage.cold_calls.contains(&self.call_of_op(op))
    }

    fn instance_in(&self, stage: &IndexedStage, op: usize) -> Option<usize> {
        match stage.kind {
            kind if is_by_time(kind) => self.window_of_op.get(op).map_or(Some(0), |at| known(Some(at))),
            _ if self.is_early(op) => None,
            _ => known(stage.instance_of_context.get(self.context_of_op(op) as usize)),
        }
    }

    /// Returns the GPU operations of each stage, in the order of their start.
    pub(crate) fn members(&self) -> Vec<Vec<u32>> {
        let ops = 0..self.launches.call_of_op.len() as u32;
        let members = |stage| {
            let indexed = self.at(stage);
            ops.clone().filter(|op| self.instance_in(indexed, *op as usize).is_some()).collect()
        };
        (0..self.len() + self.warm.len()).map(members).collect()
    }

    /// Returns the launch call of each GPU operation.
    pub fn launches(&self) -> &Launches {
        &self.launches
    }

    pub(crate) fn contexts(&self) -> &Contexts {
        &self.contexts
    }

    /// Returns the launch call of a GPU operation, or [`NO_CALL`].
    pub(crate) fn call_of_op(&self, op: usize) -> u32 {
        self.launches.call_of_op.get(op).copied().unwrap_or(NO_CALL)
    }

    pub(crate) fn context_of_op(&self, op: usize) -> u32 {
        self.contexts.of_call(self.call_of_op(op))
    }

    pub(crate) fn instance_of_context(&self, stage: usize, context: u32) -> Option<usize> {
        let stage = self.at(stage);
        if is_by_time(stage.kind) {
            return ((context as usize) < self.contexts.len()).then_some(0);
        }
        known(stage.instance_of_context.get(context as usize))
    }

    fn stage_of_context(&self, context: u32) -> Option<usize> {
        known(self.stage_of_context.get(context as usize))
    }

    /// Returns the step of each call that launched something, as a position in `spans`, or `u32::MAX`. A call belongs to the step whose
    /// range encloses it on its thread. In the stage of the whole trace or a loop it belongs to the step during which it began, on whichever
    /// thread: a backward pass is launched by threads of its own.
    pub fn step_of_call(&self, trace: &Trace, stage: usize, spans: &[Span]) -> Vec<u32> {
        let of_call = self.contexts.of_call.iter();
        if !is_by_time(self.kind(stage)) {
            let step = self.span_of_context(spans);
            let at = |context: &u32| step.get(*context as usize).copied().unwrap_or(NOWHERE);
            return of_call.map(at).collect();
        }
        let at = |(call, context): (usize, &u32)| {
            let launched = (*context as usize) < self.contexts.len();
            let start = trace.calls.start.get(call).filter(|_| launched)?;
            let after = spans.partition_point(|span| span.start <= *start);
            let span = spans.get(after.checked_sub(1)?)?;
            let other = |range: &Range| Some(&range.process) != trace.calls.process.get(call);
            let inside = *start <= span.end && !span.range_in(trace).is_some_and(other);
            inside.then_some((after - 1) as u32)
        };
        of_call.enumerate().map(|call| at(call).unwrap_or(NOWHERE)).collect()
    }

    /// Returns, for each context, the position of the outermost of `spans` around it, or `u32::MAX`. Work between two steps of an engine
    /// is in the first of them.
    pub fn span_of_context(&self, spans: &[Span]) -> Vec<u32> {
        let marked = spans.iter().enumerate();
        let rows = marked.filter_map(|(at, span)| Some((span.range? as usize, at as u32)));
        let last = spans.iter().filter_map(|span| span.range).max();
        let mut position = vec![NOWHERE; last.map_or(0, |row| row as usize + 1)];
        for (row, at) in rows {
            if let Some(slot) = position.get_mut(row) {
                *slot = at;
            }
        }
        let marked = |row: u32| position.get(row as usize).copied().filter(|at| *at != NOWHERE);
        let mut positions = self.contexts.outermost(marked, NOWHERE);
        for (context, row) in &self.between {
            if let Some(slot) = positions.get_mut(*context as usize).filter(|slot| **slot == NOWHERE)
                && let Some(at) = marked(*row)
            {
                *slot = at;
            }
        }
        positions
    }
}

/// Tells whether a stage holds what was launched in its time, on whichever thread, and not what is inside of ranges.
fn is_by_time(kind: StageKind) -> bool {
    matches!(kind, StageKind::Whole | StageKind::Loop)
}

/// Returns a position that is not [`NOWHERE`].
fn known(position: Option<&u32>) -> Option<usize> {
    position.filter(|at| **at != NOWHERE).map(|at| *at as usize)
}

/// Returns the end of the last step. Its range may go on while a profiler stops: after its last launch it counts for as long as those of
/// the steps before it do. `launching` are the calls that launched GPU work, in the order of start.
fn end_of_steps(steps: &[Span], launching: &[(Ns, ProcessId)]) -> Option<Ns> {
    let last_launch = |span: &Span| {
        let after = launching.partition_point(|(start, _)| *start <= span.end);
        after.checked_sub(1).and_then(|at| launching.get(at)).map_or(span.start, |(start, _)| *start)
    };
    let (last, before) = steps.split_last()?;
    let mut tails: Vec<Ns> = before.iter().map(|span| span.end - last_launch(span)).collect();
    Some(match median(&mut tails) {
        Some(tail) => last.end.min(last_launch(last) + tail),
        None => last.end,
    })
}

/// Explains why a stage has no numbers although its ranges were found.
fn not_recorded(all: AllOfStage) -> String {
    format!(
        "its ranges are there ({} steps or instances), and none of them lies in a recorded window",
        all.count
    )
}

/// Explains why a requested stage matches nothing, with the range names that exist.
fn no_match(trace: &Trace, rule: &StageRule) -> String {
    const MOST: usize = 12;
    let patterns: Vec<String> = rule.patterns.iter().map(ToString::to_string).collect();
    let mut seen = FxHashSet::default();
    let mut names = Vec::new();
    for range in &trace.ranges.rows {
        if seen.insert((range.domain, range.name)) && seen.len() <= MOST {
            names.push(range_name(trace.names.get(range.domain), trace.names.get(range.name)));
        }
    }
    let there = match seen.len().saturating_sub(MOST) {
        _ if names.is_empty() => "the capture has no ranges".to_owned(),
        0 => format!("the capture has {}", names.join(", ")),
        more => format!("the capture has {} and {more} more", names.join(", ")),
    };
    format!("no range matches {} (* stands for anything); {there}", patterns.join(", "))
}
