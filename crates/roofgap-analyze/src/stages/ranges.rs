//! Stages among the ranges of a trace: the ranges that match a rule, and the steps that an engine names.

use super::{Pattern, StageRule, StageSet};
use crate::engines::{Engine, EngineStep};
use crate::result::StageKind;
use crate::timeline::IntervalSet;
use roofgap_base::stats::PairedRatio;
use roofgap_trace::{NameId, Ns, Range, ThreadId, Trace};
use rustc_hash::FxHashMap;

/// Ranges found for one stage. All lists hold rows of `Trace::ranges`, in the order of their start.
#[derive(Debug, Default)]
pub struct StageRanges {
    /// Outermost ranges that match; steps stand in where only steps were recorded.
    pub instances: Vec<u32>,
    /// Steps inside the instances.
    pub steps: Vec<u32>,
    /// Notes inside the instances.
    pub notes: Vec<u32>,
    /// Matching ranges that lie inside a warm-up.
    pub in_warmup: u64,
}

/// Answers whether a range matches, once for each distinct name.
struct Matcher<'a> {
    trace: &'a Trace,
    patterns: &'a [Pattern],
    known: FxHashMap<(NameId, NameId), bool>,
}

impl<'a> Matcher<'a> {
    fn new(trace: &'a Trace, patterns: &'a [Pattern]) -> Self {
        Self { trace, patterns, known: FxHashMap::default() }
    }

    fn matches(&mut self, range: &Range) -> bool {
        *self.known.entry((range.domain, range.name)).or_insert_with(|| {
            let (domain, name) = (self.trace.names.get(range.domain), self.trace.names.get(range.name));
            self.patterns.iter().any(|p| p.matches(domain, name))
        })
    }
}

/// Warm-up times by thread.
pub struct Warmup(FxHashMap<ThreadId, IntervalSet>);

impl Warmup {
    /// Collects the warm-up ranges of a trace.
    pub fn of(trace: &Trace, set: &StageSet) -> Self {
        let mut matcher = Matcher::new(trace, &set.warmup);
        Self(IntervalSet::by_thread(trace.ranges.rows.iter().filter(|r| matcher.matches(r))))
    }

    /// Tells whether a range is inside a warm-up of its thread.
    pub fn holds(&self, range: &Range) -> bool {
        self.0.get(&range.thread).is_some_and(|u| u.encloses(range.start, range.end))
    }
}

/// The extent of a stage that was not recorded as a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AllOfStage {
    /// Number of its steps, or of its instances where it has none.
    pub count: u64,
    /// Their CPU time, ns.
    pub wall_ns: Ns,
    /// Number of its instances.
    pub instances: u64,
    /// CPU time of the instances, ns.
    pub elapsed_ns: Ns,
    /// Number of the first steps, or instances where it has none, that were all recorded.
    pub leading: u64,
    /// Time of its recorded steps over that of steps that were not recorded, and the number of pairs of such steps.
    pub cost: Option<(PairedRatio, u64)>,
}

/// Tells whether a range lies in a recorded window of its process.
fn is_recorded(trace: &Trace, row: u32) -> bool {
    let range = trace.ranges.rows.get(row as usize);
    range.is_some_and(|range| trace.window_of(range.process, range.start, range.end).is_some())
}

/// Sums up instances and steps before those that were not recorded are left out.
fn all_of(trace: &Trace, instances: &[u32], steps: &[u32]) -> AllOfStage {
    let time = |rows: &[u32]| {
        let ranges = rows.iter().filter_map(|row| trace.ranges.rows.get(*row as usize));
        ranges.map(|range| range.end - range.start).sum()
    };
    let parts = if steps.is_empty() { instances } else { steps };
    AllOfStage {
        count: parts.len() as u64,
        wall_ns: time(parts),
        instances: instances.len() as u64,
        elapsed_ns: time(instances),
        leading: parts.iter().take_while(|row| is_recorded(trace, **row)).count() as u64,
        cost: cost_of(trace, parts),
    }
}

/// Fewest pairs from which a cost is computed.
const FEWEST_PAIRS: usize = 4;

/// Compares each run of recorded steps with as many steps before it that were not recorded. The steps of a pair have the same name
/// and follow each other closely. Turning the recording on and off counts to the run.
fn cost_of(trace: &Trace, parts: &[u32]) -> Option<(PairedRatio, u64)> {
    let mut by_thread: FxHashMap<ThreadId, Vec<(&Range, bool)>> = FxHashMap::default();
    for row in parts {
        let range = trace.ranges.rows.get(*row as usize)?;
        by_thread.entry(range.thread).or_default().push((range, is_recorded(trace, *row)));
    }
    let follows = |a: &Range, b: &Range| a.name == b.name && b.start - a.end <= a.end - a.start;
    let mut pairs = Vec::new();
    for steps in by_thread.values() {
        let (mut before, mut from): (&[(&Range, bool)], usize) = (&[], 0);
        for run in steps.chunk_by(|a, b| a.1 == b.1) {
            let (from_run, to) = (from, from + run.len());
            let others = std::mem::replace(&mut before, run);
            from = to;
            let is_on = run.first().is_some_and(|(_, on)| *on);
            let count = run.len().min(others.len().saturating_sub(1));
            let whole = steps.get(from_run.saturating_sub(count + 1)..=to);
            let Some(whole) = whole.filter(|_| is_on && count > 0) else {
                continue;
            };
            let close = whole.windows(2).all(|pair| matches!(pair, [a, b] if follows(a.0, b.0)));
            if let (true, Some([first, ..]), Some([last_but_one, last]), Some((next, _))) =
                (close, whole.get(..1), whole.get(count - 1..=count), whole.last())
            {
                let usual_gap = last.0.start - last_but_one.0.end;
                let on = (next.start - last.0.end - usual_gap) as f64 / run.len() as f64;
                pairs.push((on, (last.0.start - first.0.start) as f64 / count as f64));
            }
        }
    }
    let ratio = PairedRatio::of(&pairs).filter(|_| pairs.len() >= FEWEST_PAIRS)?;
    Some((ratio, pairs.len() as u64))
}

/// Leaves out ranges inside one before them on their thread: they are the same time again. With `by_name` only one of the same name
/// counts.
pub fn outermost(by_name: bool) -> impl FnMut(&Range) -> bool {
    let mut open: FxHashMap<(ThreadId, Option<NameId>), Ns> = FxHashMap::default();
    move |range| {
        let end = open.entry((range.thread, by_name.then_some(range.name))).or_insert(Ns::MIN);
        let is_outermost = range.end > *end;
        *end = range.end.max(*end);
        is_outermost
    }
}

impl StageRanges {
    /// Leaves only what was recorded as a whole. The recorded steps of a stage with gaps are its instances. Returns the extent
    /// before that; `None` if nothing was left out.
    pub fn keep_recorded(&mut self, trace: &Trace) -> Option<AllOfStage> {
        if trace.recorded.is_empty() || self.instances.iter().all(|row| is_recorded(trace, *row)) {
            return None;
        }
        let of_steps = !self.steps.is_empty();
        let all = all_of(trace, &self.instances, &self.steps);
        self.steps.retain(|row| is_recorded(trace, *row));
        self.notes.retain(|row| is_recorded(trace, *row));
        if of_steps {
            self.instances.clone_from(&self.steps);
        } else {
            self.instances.retain(|row| is_recorded(trace, *row));
        }
        Some(all)
    }

    /// Finds the ranges of one stage.
    pub fn find(trace: &Trace, rule: &StageRule, warmup: &Warmup, set: &StageSet) -> Self {
        let mut stage = Self::default();
        let rows = &trace.ranges.rows;
        let mut own_warmup = Matcher::new(trace, &set.warmup);
        let mut matcher = Matcher::new(trace, &rule.patterns);
        let mut is_outermost = outermost(false);
        for (row, range) in rows.iter().enumerate().filter(|(_, r)| matcher.matches(r)) {
            // A stage that is a warm-up by name was asked for; only what lies inside one is left out.
            if warmup.holds(range) && !own_warmup.matches(range) {
                stage.in_warmup += 1;
            } else if is_outermost(range) {
                stage.instances.push(row as u32);
            }
        }
        let instances = stage.instances.iter().filter_map(|&row| rows.get(row as usize));
        let inside = IntervalSet::by_thread(instances);
        let pick = |patterns: &[Pattern], anywhere: bool, by_name: bool| -> Vec<u32> {
            let mut matcher = Matcher::new(trace, patterns);
            let mut is_outermost = outermost(by_name);
            let wanted = |range: &Range| {
                let set = inside.get(&range.thread);
                (anywhere || set.is_some_and(|set| set.encloses(range.start, range.end)))
                    && !warmup.holds(range)
            };
            let picked = rows.iter().enumerate().filter(|(_, r)| matcher.matches(r));
            picked.filter(|(_, r)| wanted(r) && is_outermost(r)).map(|(row, _)| row as u32).collect()
        };
        let from_steps = stage.instances.is_empty() && !rule.requested;
        stage.steps = pick(&rule.steps, from_steps, false);
        stage.notes = pick(&rule.notes, false, true);
        if from_steps {
            stage.instances.clone_from(&stage.steps);
        }
        stage
    }
}

/// The steps of an engine of one kind.
pub struct EngineStage {
    pub kind: StageKind,
    /// Rows of `Trace::ranges`, in the order of start.
    pub rows: Vec<u32>,
    /// The step of each row.
    pub steps: Vec<EngineStep>,
    /// Extent with the steps that were not recorded; `None` if all were.
    pub all: Option<AllOfStage>,
}

/// A draft model takes at most one in so many parts of the time of its model.
const DRAFT: Ns = 8;

impl EngineStage {
    /// Collects steps by kind, in the order in which the kinds occur. Only steps that were recorded as a whole are kept.
    pub fn collect(trace: &Trace, steps: impl Iterator<Item = (u32, StageKind, EngineStep)>) -> Vec<Self> {
        let mut stages: Vec<Self> = Vec::new();
        for (row, kind, step) in steps {
            match stages.iter_mut().find(|stage| stage.kind == kind) {
                Some(stage) => {
                    stage.rows.push(row);
                    stage.steps.push(step);
                }
                None => stages.push(Self { kind, rows: vec![row], steps: vec![step], all: None }),
            }
        }
        for stage in stages.iter_mut().filter(|_| !trace.recorded.is_empty()) {
            if !stage.rows.iter().all(|row| is_recorded(trace, *row)) {
                stage.all = Some(all_of(trace, &stage.rows, &[]));
                let rows = std::mem::take(&mut stage.rows).into_iter().zip(std::mem::take(&mut stage.steps));
                (stage.rows, stage.steps) = rows.filter(|(row, _)| is_recorded(trace, *row)).unzip();
            }
        }
        stages
    }

    /// Finds the outermost steps that engines name and that scheduled something, and their engine. Steps inside a warm-up or a graph
    /// capture are left out.
    pub fn find(trace: &Trace, warmup: &Warmup) -> Option<(&'static Engine, Vec<Self>)> {
        let rows = &trace.ranges.rows;
        let mut parsed: FxHashMap<NameId, Option<EngineStep>> = FxHashMap::default();
        let mut steps: Vec<(u32, EngineStep)> = Vec::new();
        let mut open: FxHashMap<ThreadId, usize> = FxHashMap::default();
        for (row, range) in rows.iter().enumerate() {
            let parse = || EngineStep::parse(trace.names.get(range.name));
            let Some(step) = *parsed.entry(range.name).or_insert_with(parse) else {
                continue;
            };
            if let Some((around, outer)) = open.get(&range.thread).and_then(|at| steps.get_mut(*at))
                && let Some(last) = rows.get(*around as usize)
            {
                if range.end <= last.end {
                    // Two names of one step: the inner one may know more.
                    outer.complete(&step);
                    continue;
                }
                let time = range.end - range.start;
                let follows =
                    range.start - last.end < time && time.saturating_mul(DRAFT) < last.end - last.start;
                if range.name == last.name && follows && step.kind() == Some(StageKind::Prefill) {
                    // Speculative decoding: the draft model reads the prompts that the model has just read, as a part of the step.
                    continue;
                }
            }
            open.insert(range.thread, steps.len());
            steps.push((row as u32, step));
        }
        let engine = steps.first()?.1.engine;
        let captures =
            IntervalSet::by_thread(rows.iter().filter(|r| Engine::captures_in(trace.names.get(r.name))));
        steps.retain(|(row, _)| {
            rows.get(*row as usize).is_some_and(|range| {
                let capturing = captures.get(&range.thread);
                !warmup.holds(range) && !capturing.is_some_and(|set| set.encloses(range.start, range.end))
            })
        });
        // Where an engine names its decode steps, those without a phase are prefill.
        let names_decode = steps.iter().any(|(_, step)| step.kind() == Some(StageKind::Decode));
        let steps = steps.into_iter().filter_map(|(row, step)| {
            let kind = match step.kind()? {
                StageKind::Custom if names_decode => StageKind::Prefill,
                kind => kind,
            };
            Some((row, kind, step))
        });
        Some((engine, Self::collect(trace, steps)))
    }
}
