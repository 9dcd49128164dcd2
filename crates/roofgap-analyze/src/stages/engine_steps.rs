//! The steps of a serving engine among the ranges of a trace, as stages.

use super::instances::{AllOfStage, Warmup, all_of, is_recorded};
use crate::engines::{Engine, EngineStep};
use crate::result::StageKind;
use crate::timeline::IntervalSet;
use roofgap_trace::{NameId, Range, ThreadId, Trace};
use rustc_hash::FxHashMap;

/// The steps of one kind.
pub struct EngineStage {
    pub kind: StageKind,
    /// Rows of `Trace::ranges`, in the order of start.
    pub rows: Vec<u32>,
    /// The step of each row.
    pub steps: Vec<EngineStep>,
    /// Extent with the steps that were not recorded; `None` if all were.
    pub all: Option<AllOfStage>,
}

impl EngineStage {
    /// Leaves only the steps that were recorded as a whole.
    fn keep_recorded(&mut self, trace: &Trace) {
        let recorded: Vec<bool> = self.rows.iter().map(|row| is_recorded(trace, *row)).collect();
        if recorded.iter().all(|recorded| *recorded) {
            return;
        }
        self.all = Some(all_of(trace, &self.rows, &[]));
        let mut keep = recorded.iter();
        self.rows.retain(|_| keep.next().is_some_and(|keep| *keep));
        let mut keep = recorded.iter();
        self.steps.retain(|_| keep.next().is_some_and(|keep| *keep));
    }
}

/// All steps of an engine, by kind.
#[derive(Default)]
pub struct EngineSteps {
    pub engine: Option<&'static Engine>,
    pub stages: Vec<EngineStage>,
}

impl EngineSteps {
    /// Finds the outermost steps that scheduled something. Steps inside a warm-up or a graph capture are left out.
    pub fn find(trace: &Trace, warmup: &Warmup) -> Self {
        let rows = &trace.ranges.rows;
        let mut parsed: FxHashMap<NameId, Option<EngineStep>> = FxHashMap::default();
        let mut step_of = |range: &Range| {
            let parse = || EngineStep::parse(trace.names.get(range.name));
            *parsed.entry(range.name).or_insert_with(parse)
        };
        let mut outermost: Vec<(u32, EngineStep)> = Vec::new();
        let mut open: FxHashMap<ThreadId, usize> = FxHashMap::default();
        for (row, range) in rows.iter().enumerate() {
            let Some(step) = step_of(range) else {
                continue;
            };
            if let Some((around, outer)) = open.get(&range.thread).and_then(|at| outermost.get_mut(*at))
                && rows.get(*around as usize).is_some_and(|outer| range.end <= outer.end)
            {
                // Two names of one step: the inner one may know more.
                outer.complete(&step);
                continue;
            }
            open.insert(range.thread, outermost.len());
            outermost.push((row as u32, step));
        }
        if outermost.is_empty() {
            return Self::default();
        }
        let is_capture = |range: &&Range| Engine::captures_in(trace.names.get(range.name));
        let captures = IntervalSet::by_thread(rows.iter().filter(is_capture));
        let counts = |(row, _): &(u32, EngineStep)| {
            rows.get(*row as usize).is_some_and(|range| {
                let capturing = captures.get(&range.thread);
                !warmup.holds(range) && !capturing.is_some_and(|set| set.encloses(range.start, range.end))
            })
        };
        let engine = outermost.first().map(|(_, step)| step.engine);
        let mut found = Self { engine, stages: Vec::new() };
        for (row, step) in outermost.into_iter().filter(counts) {
            let Some(kind) = step.kind() else {
                continue;
            };
            let at = found.stages.iter().position(|stage| stage.kind == kind);
            let at = at.unwrap_or_else(|| {
                found.stages.push(EngineStage { kind, rows: Vec::new(), steps: Vec::new(), all: None });
                found.stages.len() - 1
            });
            if let Some(stage) = found.stages.get_mut(at) {
                stage.rows.push(row);
                stage.steps.push(step);
            }
        }
        if !trace.recorded.is_empty() {
            found.stages.iter_mut().for_each(|stage| stage.keep_recorded(trace));
        }
        found
    }
}
