//! The instances of each stage, its steps and its notes among the ranges of a trace.

use crate::attribute::Contexts;
use crate::interval::Union;
use crate::stages::{Pattern, StageRule, StageSet};
use roofgap_trace::{NameId, Range, ThreadId, Trace};
use rustc_hash::FxHashMap;

/// Stands for "not in this stage".
pub(crate) const NO_INSTANCE: u32 = u32::MAX;

/// Ranges found for one stage. All lists hold rows of `Trace::ranges`, in the order of their start.
#[derive(Debug, Default)]
pub(crate) struct StageRanges {
    /// Outermost ranges that match; steps stand in where only steps were recorded.
    pub instances: Vec<u32>,
    /// Steps inside the instances.
    pub steps: Vec<u32>,
    /// Notes inside the instances.
    pub notes: Vec<u32>,
    /// Whether the instances are the steps themselves.
    pub from_steps: bool,
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
        Self {
            trace,
            patterns,
            known: FxHashMap::default(),
        }
    }

    fn matches(&mut self, range: &Range) -> bool {
        *self.known.entry((range.domain, range.name)).or_insert_with(|| {
            let (domain, name) = (
                self.trace.names.get(range.domain),
                self.trace.names.get(range.name),
            );
            self.patterns.iter().any(|p| p.matches(domain, name))
        })
    }
}

/// Where each thread was warming up.
pub(crate) struct Warmup(FxHashMap<ThreadId, Union>);

impl Warmup {
    /// Collects the warm-up ranges of a trace.
    pub(crate) fn of(trace: &Trace, set: &StageSet) -> Self {
        let mut matcher = Matcher::new(trace, &set.warmup);
        let mut lists: FxHashMap<ThreadId, Vec<(i64, i64)>> = FxHashMap::default();
        for range in trace.ranges.rows.iter().filter(|r| matcher.matches(r)) {
            lists
                .entry(range.thread)
                .or_default()
                .push((range.start, range.end));
        }
        Self(
            lists
                .into_iter()
                .map(|(thread, list)| (thread, Union::of(list)))
                .collect(),
        )
    }

    /// Whether a range lies inside a warm-up of its thread.
    pub(crate) fn holds(&self, range: &Range) -> bool {
        self.0
            .get(&range.thread)
            .is_some_and(|u| u.encloses(range.start, range.end))
    }
}

impl StageRanges {
    /// Finds the ranges of one stage.
    pub(crate) fn find(trace: &Trace, rule: &StageRule, warmup: &Warmup, set: &StageSet) -> Self {
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
        let inside = found.inside(trace);
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
                    let end = open
                        .entry((r.thread, by_name.then_some(r.name)))
                        .or_insert(i64::MIN);
                    let inside = r.end <= *end;
                    *end = r.end.max(*end);
                    !inside
                })
                .map(|(row, _)| row as u32)
                .collect()
        };
        found.from_steps = found.instances.is_empty() && !rule.asked;
        found.steps = pick(&rule.steps, found.from_steps, false);
        found.notes = pick(&rule.notes, false, true);
        if found.from_steps {
            found.instances.clone_from(&found.steps);
        }
        found
    }

    fn inside(&self, trace: &Trace) -> FxHashMap<ThreadId, Union> {
        let mut lists: FxHashMap<ThreadId, Vec<(i64, i64)>> = FxHashMap::default();
        for range in self
            .instances
            .iter()
            .filter_map(|&row| trace.ranges.rows.get(row as usize))
        {
            lists
                .entry(range.thread)
                .or_default()
                .push((range.start, range.end));
        }
        lists
            .into_iter()
            .map(|(thread, list)| (thread, Union::of(list)))
            .collect()
    }
}

/// For each context the position of the first of `rows` that it holds, or [`NO_INSTANCE`].
pub(crate) fn place_contexts(contexts: &Contexts, rows: &[u32], ranges: usize) -> Vec<u32> {
    let mut position = vec![NO_INSTANCE; ranges];
    for (at, &row) in rows.iter().enumerate() {
        if let Some(slot) = position.get_mut(row as usize) {
            *slot = at as u32;
        }
    }
    (0..contexts.len() as u32)
        .map(|context| {
            let mut places = contexts
                .ranges(context)
                .iter()
                .filter_map(|&r| position.get(r as usize).copied());
            places.find(|&p| p != NO_INSTANCE).unwrap_or(NO_INSTANCE)
        })
        .collect()
}
