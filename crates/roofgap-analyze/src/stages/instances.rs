//! The instances of each stage, its steps and its notes among the ranges of a trace.

use super::rule::{Pattern, StageRule, StageSet};
use crate::timeline::IntervalSet;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

/// Tells whether a range lies in a recorded window of its process.
pub fn is_recorded(trace: &Trace, row: u32) -> bool {
    let range = trace.ranges.rows.get(row as usize);
    range.is_some_and(|range| trace.window_of(range.process, range.start, range.end).is_some())
}

/// Sums up instances and steps before those that were not recorded are left out.
pub fn all_of(trace: &Trace, instances: &[u32], steps: &[u32]) -> AllOfStage {
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
        let mut found = Self::default();
        let rows = &trace.ranges.rows;
        let mut own_warmup = Matcher::new(trace, &set.warmup);
        let mut matcher = Matcher::new(trace, &rule.patterns);
        let mut open: FxHashMap<ThreadId, i64> = FxHashMap::default();
        for (row, range) in rows.iter().enumerate().filter(|(_, r)| matcher.matches(r)) {
            // A stage that is a warm-up by name was asked for; only what lies inside one is left out.
            if warmup.holds(range) && !own_warmup.matches(range) {
                found.in_warmup += 1;
                continue;
            }
            // `decode` inside `decode_all` is the same time again.
            let end = open.entry(range.thread).or_insert(i64::MIN);
            if range.end <= *end {
                continue;
            }
            *end = range.end;
            found.instances.push(row as u32);
        }
        let own = found.instances.iter().filter_map(|&row| rows.get(row as usize));
        let inside = IntervalSet::by_thread(own);
        let pick = |patterns: &[Pattern], anywhere: bool, by_name: bool| -> Vec<u32> {
            let mut matcher = Matcher::new(trace, patterns);
            let wanted =
                |r: &Range| anywhere || inside.get(&r.thread).is_some_and(|u| u.encloses(r.start, r.end));
            let picked = rows.iter().enumerate().filter(|(_, r)| matcher.matches(r));
            // A step inside a step is the same time again; so is a note inside one of its name.
            let mut open: FxHashMap<(ThreadId, Option<NameId>), i64> = FxHashMap::default();
            picked
                .filter(|(_, r)| wanted(r) && !warmup.holds(r))
                .filter(|(_, r)| {
                    let end = open.entry((r.thread, by_name.then_some(r.name))).or_insert(i64::MIN);
                    let inside = r.end <= *end;
                    *end = r.end.max(*end);
                    !inside
                })
                .map(|(row, _)| row as u32)
                .collect()
        };
        let from_steps = found.instances.is_empty() && !rule.requested;
        found.steps = pick(&rule.steps, from_steps, false);
        found.notes = pick(&rule.notes, false, true);
        if from_steps {
            found.instances.clone_from(&found.steps);
        }
        found
    }
}
