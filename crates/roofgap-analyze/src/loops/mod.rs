//! The loops of a program, found without names: what it launches, copies and waits for comes back again and again.
//!
//! Some short sequence of events occurs exactly once in a period that is not itself a repetition. Sequences of 1, 2, 4, ... events that come
//! back at mostly even distances are therefore anchors (`anchors`), and instances lie from anchor to anchor. They are cut where the CPU
//! stands longest, and neighbours belong to one loop if they have more in common than they differ in (`instances`).

mod anchors;
mod events;
mod instances;

use crate::numbers::count;
use crate::stages::Span;
use anchors::anchors;
use events::Events;
use instances::{Measured, Sequence};
use roofgap_base::stats::median;
use roofgap_trace::{NameId, Ns, Trace, range_name};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::ops::Range;

/// Fewest instances. Two can be chance; three give two periods that can agree.
const FEW: usize = 3;

/// Part of the operations or of the GPU time, 1 in so many, from which on a loop is worth a line.
const WORTH: Ns = 10;

/// Two lengths are the same if they differ by no more than 1 in so many.
const ALIKE: usize = 20;

/// Anchors that are tried for each length of a period.
const TRIED: usize = 3;

/// A loop of a program.
#[derive(Debug, Clone, Default)]
pub struct Loop {
    /// Each instance, from its first call to the first of what follows it.
    pub spans: Vec<Span>,
    /// Median time from instance to instance, ns.
    pub period_ns: Ns,
    /// Median number of launches, copies and waits of an instance.
    pub launches: usize,
    /// A step of the program: the host takes part in each instance, or others repeat inside. Not a layer of one pass, and no start-up.
    pub is_step: bool,
    /// Instances that differ from the one before.
    pub different: usize,
}

impl Loop {
    /// Returns what a loop without a name is called in a sentence.
    pub fn title(&self) -> String {
        format!(
            "the loop of {} repetitions of {} launches",
            count(self.spans.len() as u64),
            count(self.launches as u64)
        )
    }
}

/// Returns the loops of a trace, from the outermost inwards, and the position of the one in which the program spends its time.
pub fn find(trace: &Trace, call_of_op: &[u32]) -> (Vec<Loop>, Option<usize>) {
    let events = Events::of(trace, call_of_op);
    let mut found = levels(&events, &events.tokens);
    // Where every launch grows with the context, a loop shows only without what grows.
    for one in levels(&events, &events.coarse) {
        let known = |other: &Measured| {
            let (count, length) = (other.instances.len(), other.length);
            one.instances.len().abs_diff(count) * 10 <= count || one.length.abs_diff(length) * 10 <= length
        };
        if !found.iter().any(known) {
            found.push(one);
        }
    }
    // Of two that do not fit into one another, the longer is a chance grouping of the shorter.
    found.sort_by_key(|one| (Reverse(one.tenths()), !one.is_tied(), one.length));
    let mut tree: Vec<Measured> = Vec::new();
    for one in found {
        let fits = |other: &Measured| match one.length > other.length {
            true => one.fits(other),
            false => other.fits(&one),
        };
        if tree.iter().all(fits) {
            tree.push(one);
        }
    }
    tree.sort_by_key(|one| Reverse(one.length));
    let mut steps: Vec<bool> = tree.iter().map(|one| one.is_step(&tree)).collect();
    let most = |at: &usize| (tree[*at].tenths(), tree[*at].length);
    let mut main = (0..tree.len()).filter(|at| steps[*at] && tree[*at].is_most()).max_by_key(most);
    // Of a program that was recorded from its start, what repeats until its end is no layer of a pass, whose result is read.
    if main.is_none() && events.has_start() {
        let last = |one: &Measured| one.instances.last().map_or(0, |last| last.end);
        let ends = |one: &Measured| events.all.iter().skip(last(one)).all(|event| event.is_wait);
        let ending =
            (0..tree.len()).filter(|at| tree[*at].is_steady() && tree[*at].is_most() && ends(&tree[*at]));
        main = ending.max_by_key(most);
        main.into_iter().for_each(|at| steps[at] = true);
    }
    let span = |range: &Range<usize>| Span {
        start: events.all[range.start].start,
        end: events
            .all
            .get(range.end)
            .map_or(Ns::MAX, |next| next.start)
            .min(events.all[range.clone()].iter().map(|event| event.end).max().unwrap_or(Ns::MIN)),
        range: None,
    };
    let result = |(measured, is_step): (Measured, bool)| Loop {
        spans: measured.instances.iter().map(span).collect(),
        period_ns: measured.period_ns,
        launches: measured.length,
        is_step,
        different: measured.different,
    };
    (tree.into_iter().zip(steps).map(result).collect(), main)
}

/// Returns the best loop of each length of a period.
fn levels(events: &Events, tokens: &[u32]) -> Vec<Measured> {
    let sequence = Sequence::of(events, tokens);
    let mut found = Vec::new();
    for (_, candidates) in anchors(&sequence) {
        let better = |one: &Measured| ((one.explains() * 1000.0).round() as u64, one.instances.len());
        // The first of equals: the shortest anchor.
        let best = |best: Measured, one: Measured| if better(&one) > better(&best) { one } else { best };
        let measured = candidates.iter().flat_map(|anchor| {
            let shifts = sequence.boundaries(anchor).into_iter();
            shifts.filter_map(|shift| sequence.measure(anchor, shift))
        });
        let one = measured.reduce(best);
        found.extend(one.filter(|one| one.cover.max(one.share) * WORTH as f64 >= 1.0));
    }
    found
}

/// Returns the median of times, 0 without any.
fn middle(times: impl Iterator<Item = Ns>) -> Ns {
    median(&mut times.collect::<Vec<Ns>>()).unwrap_or(0)
}

/// Returns the name of the ranges, modules or operators that enclose one instance each; `None` where most have none.
pub fn name(trace: &Trace, instances: &[Span]) -> Option<String> {
    let mut names: FxHashMap<(NameId, NameId), (usize, Ns)> = FxHashMap::default();
    let ops = &trace.cpu_ops;
    let operators =
        (0..ops.start.len()).map(|row| ((NameId(u32::MAX), ops.name[row]), ops.start[row], ops.end[row]));
    let ranges = trace.ranges.rows.iter().chain(&trace.modules);
    for (name, start, end) in ranges.map(|r| ((r.domain, r.name), r.start, r.end)).chain(operators) {
        // The last instance that begins before its end.
        let at = instances.partition_point(|span| span.start <= end);
        let Some(own) = at.checked_sub(1).and_then(|at| instances.get(at)) else { continue };
        let before = at.checked_sub(2).and_then(|at| instances.get(at));
        let inside = end.min(own.end) - start.max(own.start);
        if 2 * inside > own.length() && before.is_none_or(|before| start > before.start + before.length() / 2)
        {
            let sum = names.entry(name).or_default();
            *sum = (sum.0 + 1, sum.1 + end - start);
        }
    }
    let one_each = |(_, (found, _)): &(_, (usize, Ns))| {
        found.abs_diff(instances.len()) * WORTH as usize <= instances.len()
    };
    let longest = names.into_iter().filter(one_each).max_by_key(|(name, (_, ns))| (*ns, Reverse(*name)));
    longest.map(|((domain, name), _)| range_name(trace.names.get(domain), trace.names.get(name)))
}
