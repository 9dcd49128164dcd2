//! From a call to the ranges that enclose it on its thread.
//!
//! Calls between two edges of ranges share the same set of enclosing ranges. Such a set is a context; a call holds the number
//! of its context, so the cost does not grow with how deep ranges nest.

use super::{launching_calls, rows_by_thread};
use roofgap_trace::{BackwardLink, Ns, Trace};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Stands for "this call launched nothing".
const NO_CONTEXT: u32 = u32::MAX;

/// Members stored for each launching call and range on average. Beyond that, ranges that overlap without nesting would take
/// memory that grows with their square, and members are computed when they are asked for.
const MOST_STORED: usize = 32;

/// For each call that launched something the set of ranges that enclose it.
#[derive(Debug, Default)]
pub struct Contexts {
    /// Context of each row in `Trace::calls`; `NO_CONTEXT` for calls that launched nothing.
    pub of_call: Vec<u32>,
    /// Number of calls of each context.
    pub launches: Vec<u64>,
    /// Members of each context.
    members: Vec<Members>,
    /// Rows in `Trace::ranges`, outermost first, of the contexts that store theirs.
    stored: Vec<u32>,
    /// Limit of the length of `stored`.
    most_stored: usize,
    threads: Vec<ThreadRanges>,
    /// True if calls of backward operators have the ranges around their forward operators only.
    pub forward_only: bool,
}

/// Members of one context.
#[derive(Debug, Clone, Copy)]
enum Members {
    /// A part of `Contexts::stored`.
    Stored { from: usize, to: usize },
    /// The first `opened` ranges of a thread that end at `until` or later.
    Open { thread: usize, opened: usize, until: Ns },
}

/// Ranges of one thread in the order of their start.
#[derive(Debug, Default)]
struct ThreadRanges {
    /// Rows in `Trace::ranges`.
    rows: Vec<u32>,
    /// End of each range.
    ends: Vec<Ns>,
    /// Position after the last earlier range that ends later than this one; 0 for none.
    after_longer: Vec<usize>,
}

impl ThreadRanges {
    fn new(trace: &Trace, rows: Vec<u32>) -> Self {
        let ends: Vec<Ns> = rows.iter().map(|&row| trace.ranges.rows[row as usize].end).collect();
        let mut after_longer: Vec<usize> = Vec::with_capacity(ends.len());
        for (at, end) in ends.iter().enumerate() {
            let mut before = at;
            while before > 0 && ends[before - 1] <= *end {
                before = after_longer[before - 1];
            }
            after_longer.push(before);
        }
        Self { rows, ends, after_longer }
    }

    /// Collects the first `opened` ranges that end at `until` or later, innermost first; `None` if that takes more than `most` steps.
    fn open(&self, opened: usize, until: Ns, most: usize) -> Option<Vec<u32>> {
        let mut rows = Vec::new();
        let mut before = opened.min(self.rows.len());
        let mut steps = 0;
        while before > 0 {
            steps += 1;
            if steps > most {
                return None;
            }
            let at = before - 1;
            if self.ends[at] >= until {
                rows.push(self.rows[at]);
                before = at;
            } else {
                before = self.after_longer[at];
            }
        }
        Some(rows)
    }
}

/// Values by position, each with those before it: a Fenwick tree.
struct PrefixSums<T>(Vec<T>);

impl<T: Copy> PrefixSums<T> {
    /// Combines a value into a position.
    fn add(&mut self, position: usize, value: &T, combine: impl Fn(&mut T, &T)) {
        let mut at = position + 1;
        while let Some(sum) = self.0.get_mut(at - 1) {
            combine(sum, value);
            at += at & at.wrapping_neg();
        }
    }

    /// Combines the values of the first `count` positions.
    fn first(&self, count: usize, empty: T, combine: impl Fn(&mut T, &T)) -> T {
        let mut all = empty;
        let mut at = count;
        while at > 0 {
            if let Some(sum) = self.0.get(at - 1) {
                combine(&mut all, sum);
            }
            at &= at - 1;
        }
        all
    }
}

impl Contexts {
    /// Combines, for each range, the values of the contexts that it encloses. `empty` combined with a value is that value; the order
    /// in which values are combined must not matter.
    pub fn sum_by_range<T: Copy>(
        &self,
        of_context: &[T],
        ranges: usize,
        empty: T,
        combine: impl Fn(&mut T, &T),
    ) -> Vec<T> {
        let mut of_range = vec![empty; ranges];
        let mut add = |row: u32, value: &T| {
            if let Some(sum) = of_range.get_mut(row as usize) {
                combine(sum, value);
            }
        };
        // Contexts that do not store their members, by thread.
        let mut computed: Vec<Vec<(usize, Ns, T)>> = vec![Vec::new(); self.threads.len()];
        for (members, value) in self.members.iter().zip(of_context) {
            match *members {
                Members::Stored { .. } => self.stored(members).iter().for_each(|row| add(*row, value)),
                Members::Open { thread, opened, until } => computed[thread].push((opened, until, *value)),
            }
        }
        for (ranges, contexts) in self.threads.iter().zip(&mut computed) {
            if contexts.is_empty() {
                continue;
            }
            // Backward operators come in the order of their calls, not in that of the forward operators.
            contexts.sort_by_key(|(opened, ..)| *opened);
            let mut moments: Vec<Ns> = contexts.iter().map(|(_, until, _)| *until).collect();
            moments.sort_unstable();
            moments.dedup();
            let mut sums = PrefixSums(vec![empty; moments.len()]);
            let mut later = contexts.iter().rev().peekable();
            for (at, (&row, &end)) in ranges.rows.iter().zip(&ranges.ends).enumerate().rev() {
                while let Some((_, until, value)) = later.next_if(|(opened, ..)| *opened > at) {
                    sums.add(moments.partition_point(|moment| moment < until), value, &combine);
                }
                let before = moments.partition_point(|moment| *moment <= end);
                add(row, &sums.first(before, empty, &combine));
            }
        }
        of_range
    }

    /// Returns, for each context, the first of its ranges, outermost first, for which `marked` gives a number; `none` without any.
    pub fn outermost(&self, marked: impl Fn(u32) -> Option<u32>, none: u32) -> Vec<u32> {
        // The marked ranges of each thread that end later than all marked ones before: any other is inside one of them.
        let records = |ranges: &ThreadRanges| {
            let mut records: Vec<(Ns, usize, u32)> = Vec::new();
            for (at, (&row, &end)) in ranges.rows.iter().zip(&ranges.ends).enumerate() {
                if records.last().is_none_or(|last| last.0 < end)
                    && let Some(number) = marked(row)
                {
                    records.push((end, at, number));
                }
            }
            records
        };
        let records: Vec<Vec<(Ns, usize, u32)>> = self.threads.iter().map(records).collect();
        let first = |members: &Members| match *members {
            Members::Stored { .. } => self.stored(members).iter().find_map(|row| marked(*row)),
            Members::Open { thread, opened, until } => {
                let records = records.get(thread)?;
                let first = records.partition_point(|(end, ..)| *end < until);
                let (_, at, number) = records.get(first)?;
                (*at < opened).then_some(*number)
            }
        };
        let members = self.members.iter();
        members.map(|members| first(members).unwrap_or(none)).collect()
    }

    /// The ranges of a context, as rows in `Trace::ranges`, outermost first.
    pub fn ranges(&self, context: u32) -> Cow<'_, [u32]> {
        match self.members.get(context as usize) {
            Some(&Members::Open { thread, opened, until }) => {
                let ranges = self.threads.get(thread);
                let mut rows =
                    ranges.and_then(|ranges| ranges.open(opened, until, usize::MAX)).unwrap_or_default();
                rows.reverse();
                rows.into()
            }
            Some(members) => self.stored(members).into(),
            None => Cow::default(),
        }
    }

    /// Returns the rows of a context that stores them.
    fn stored(&self, members: &Members) -> &[u32] {
        match *members {
            Members::Stored { from, to } => self.stored.get(from..to).unwrap_or_default(),
            Members::Open { .. } => &[],
        }
    }

    /// The context of a call; `NO_CONTEXT` for no call.
    pub fn of_call(&self, call: u32) -> u32 {
        self.of_call.get(call as usize).copied().unwrap_or(NO_CONTEXT)
    }

    /// Returns the number of contexts.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Tells whether there is no context.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sweeps over calls and ranges thread by thread. `call_of_op` says which calls launched something.
    pub fn build(trace: &Trace, call_of_op: &[u32]) -> Self {
        Self::build_with(trace, call_of_op, MOST_STORED)
    }

    fn build_with(trace: &Trace, call_of_op: &[u32], most_stored: usize) -> Self {
        let calls = launching_calls(trace, call_of_op);
        let ranges = ranges_by_thread(trace);
        let count = |lists: &[Vec<u32>]| lists.iter().map(Vec::len).sum::<usize>();
        let mut contexts = Self {
            of_call: vec![NO_CONTEXT; trace.calls.len()],
            most_stored: most_stored * (count(&calls) + count(&ranges)),
            ..Self::default()
        };
        for (thread, (calls, ranges)) in calls.iter().zip(ranges).enumerate() {
            let ranges = ThreadRanges::new(trace, ranges);
            contexts.sweep(trace, thread, calls, &ranges);
            contexts.threads.push(ranges);
        }
        contexts.follow_forward(trace, &calls);
        contexts.launches = vec![0; contexts.len()];
        for context in &contexts.of_call {
            if let Some(launches) = contexts.launches.get_mut(*context as usize) {
                *launches += 1;
            }
        }
        contexts
    }

    /// Adds to the calls of a backward operator the ranges around its forward operator, and those in which the thread of that waits for it. `calls` are those of each thread.
    fn follow_forward(&mut self, trace: &Trace, calls: &[Vec<u32>]) {
        let mut links: Vec<&BackwardLink> = trace.backward.iter().collect();
        links.sort_by_key(|link| (link.thread, link.start, Reverse(link.end)));
        // Operators nest; the outermost decides.
        let mut last: Option<&BackwardLink> = None;
        links.retain(|link| {
            let inside = last.is_some_and(|last| last.thread == link.thread && link.start < last.end);
            if !inside {
                last = Some(*link);
            }
            !inside
        });
        // Without room for more rows, members are computed when they are asked for.
        let mut room = true;
        for link in links {
            let calls = calls.get(link.thread.index()).map_or(&[][..], |calls| calls);
            let from = calls.partition_point(|&call| trace.calls.start[call as usize] < link.start);
            let to = calls.partition_point(|&call| trace.calls.start[call as usize] < link.end);
            let inside = calls.get(from..to).unwrap_or_default();
            let Some(ranges) = self.threads.get(link.forward_thread.index()).filter(|_| !inside.is_empty())
            else {
                continue;
            };
            let start = |row: &u32| trace.ranges.rows[*row as usize].start;
            let opened = ranges.rows.partition_point(|row| start(row) <= link.forward_start);
            let forward =
                Members::Open { thread: link.forward_thread.index(), opened, until: link.forward_end };
            let open = |at, until| ranges.open(at, until, usize::MAX).unwrap_or_default();
            let mut around = if room { open(opened, link.forward_end) } else { Vec::new() };
            // The thread of the forward operator waits meanwhile, in ranges that name the backward pass.
            if room && link.thread != link.forward_thread {
                around.extend(open(ranges.rows.partition_point(|row| start(row) <= link.start), link.end));
            }
            if room && around.is_empty() {
                continue;
            }
            let mut joined: Option<(u32, u32)> = None;
            for &call in inside {
                let call_context = self.of_call[call as usize];
                let context = match joined {
                    Some((same, context)) if same == call_context => context,
                    _ => {
                        room = room && self.join(call_context, &around);
                        if !room {
                            self.forward_only = true;
                            self.members.push(forward);
                        }
                        self.members.len() as u32 - 1
                    }
                };
                joined = Some((call_context, context));
                self.of_call[call as usize] = context;
            }
        }
    }

    /// Adds a context of the ranges of another one and those `around` a forward operator; false if there is no room.
    fn join(&mut self, context: u32, around: &[u32]) -> bool {
        let mut rows = self.ranges(context).into_owned();
        rows.extend(around);
        // Rows are in the order of their start, so that outer ranges come first.
        rows.sort_unstable();
        rows.dedup();
        let from = self.stored.len();
        let to = from + rows.len();
        if to > self.most_stored {
            return false;
        }
        self.stored.extend(rows);
        self.members.push(Members::Stored { from, to });
        true
    }

    /// One thread: calls and ranges are both in the order of their start.
    fn sweep(&mut self, trace: &Trace, thread: usize, calls: &[u32], ranges: &ThreadRanges) {
        // Ends of the open ranges, the first end on top.
        let mut open = BinaryHeap::new();
        let mut opened = 0;
        let mut current = None;
        for &call in calls {
            let (start, end) = (trace.calls.start[call as usize], trace.calls.end[call as usize]);
            while let Some(&range) = ranges.rows.get(opened)
                && trace.ranges.rows[range as usize].start <= start
            {
                open.push(Reverse(ranges.ends[opened]));
                opened += 1;
                current = None;
            }
            while open.peek().is_some_and(|first| first.0 < start) {
                open.pop();
                current = None;
            }
            // A call that outlasts a range is not enclosed by it, though the next call might be by an equal set.
            let outlasts = open.peek().is_some_and(|first| first.0 < end);
            let context = match current.filter(|_| !outlasts) {
                Some(same) => same,
                None => {
                    let until = if outlasts { end } else { start };
                    self.add(Members::Open { thread, opened, until }, ranges, open.len())
                }
            };
            if !outlasts {
                current = Some(context);
            }
            self.of_call[call as usize] = context;
        }
    }

    /// Adds a context with at most `most` members, and stores them if there is room.
    fn add(&mut self, mut members: Members, ranges: &ThreadRanges, most: usize) -> u32 {
        if let Members::Open { opened, until, .. } = members
            && self.stored.len() + most <= self.most_stored
            && let Some(rows) = ranges.open(opened, until, 2 * most + MOST_STORED)
        {
            let from = self.stored.len();
            self.stored.extend(rows.into_iter().rev());
            let to = self.stored.len();
            members = Members::Stored { from, to };
        }
        self.members.push(members);
        self.members.len() as u32 - 1
    }
}

/// Ranges of each thread in the order of their start. One that was closed on another thread belongs to both.
fn ranges_by_thread(trace: &Trace) -> Vec<Vec<u32>> {
    let rows = (0u32..).zip(&trace.ranges.rows).flat_map(|(row, range)| {
        let other = (range.end_thread != range.thread).then_some(range.end_thread);
        std::iter::once(range.thread).chain(other).map(move |thread| (row, thread))
    });
    rows_by_thread(trace, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_trace::{Call, CallClass, Range, RangeStyle, ThreadId};

    /// A trace of one thread with ranges and calls by start and end.
    fn trace(ranges: &[(Ns, Ns)], calls: &[(Ns, Ns)]) -> Trace {
        let mut trace = Trace::default();
        let process = trace.add_process(1, "");
        let thread = trace.add_thread(process, 1, "");
        let name = trace.names.intern("");
        for &(start, end) in ranges {
            trace.ranges.rows.push(Range {
                start,
                end,
                domain: name,
                name,
                process,
                thread,
                end_thread: thread,
                style: RangeStyle::StartEnd,
                open: false,
            });
        }
        for &(start, end) in calls {
            trace.calls.push(Call {
                start,
                end,
                name,
                class: CallClass::Launch,
                process,
                thread,
                correlation: 0,
            });
        }
        trace.sort();
        trace
    }

    fn build(trace: &Trace) -> Contexts {
        let calls: Vec<u32> = (0..trace.calls.len() as u32).collect();
        Contexts::build(trace, &calls)
    }

    /// Checks each call against all ranges.
    fn check(trace: &Trace, contexts: &Contexts) {
        for call in 0..trace.calls.len() {
            let (start, end) = (trace.calls.start[call], trace.calls.end[call]);
            let rows = trace.ranges.rows.iter().zip(0u32..);
            let around = rows.filter(|(r, _)| r.start <= start && r.end >= end);
            let expected: Vec<u32> = around.map(|(_, row)| row).collect();
            let ranges_around = contexts.ranges(contexts.of_call(call as u32));
            assert_eq!(ranges_around, expected, "call {call}");
        }
    }

    #[test]
    fn every_call_has_the_ranges_around_it() {
        // Nested, one after another, overlapping, and calls that outlast a range.
        let nested = [(0, 100), (1, 40), (2, 20), (3, 10), (21, 30), (41, 60), (50, 90)];
        let calls: Vec<(Ns, Ns)> = (0..110).map(|at| (at, at + at % 7)).collect();
        let mut number = 7u64;
        let mut random = |below: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((number >> 33) % below) as Ns
        };
        let overlapping: Vec<(Ns, Ns)> = (0..60)
            .map(|_| {
                let start = random(100);
                (start, start + random(60))
            })
            .collect();
        for ranges in [&nested[..], &overlapping[..], &[]] {
            let trace = trace(ranges, &calls);
            check(&trace, &build(&trace));
        }
    }

    /// Calls of a backward operator have the ranges around its forward operator, and their own.
    #[test]
    fn backward_calls_follow_the_forward_operator() {
        let ranges = [(0, 100), (10, 20), (30, 40), (45, 75), (60, 70)];
        let mut trace = trace(&ranges, &[(50, 51), (62, 63), (80, 81)]);
        let process = trace.threads[0].process;
        let autograd = trace.add_thread(process, 2, "");
        trace.calls.thread.fill(autograd);
        let last = trace.ranges.rows.last_mut().unwrap();
        (last.thread, last.end_thread) = (autograd, autograd);
        for (start, end, forward_start) in [(49, 70, 12), (55, 65, 32)] {
            trace.backward.push(BackwardLink {
                thread: autograd,
                start,
                end,
                forward_thread: ThreadId(0),
                forward_start,
                forward_end: forward_start + 3,
            });
        }
        let contexts = build(&trace);
        let rows = |call: u32| contexts.ranges(contexts.of_call(call)).into_owned();
        assert_eq!(rows(0), [0, 1, 3], "the forward thread waits in the last one");
        assert_eq!(rows(1), [0, 1, 3, 4], "the outermost backward operator decides");
        assert!(rows(2).is_empty());
    }

    #[test]
    fn sums_by_range_and_outermost_ranges_agree_with_the_members() {
        let mut number = 3u64;
        let mut random = |below: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((number >> 33) % below) as Ns
        };
        let ranges: Vec<(Ns, Ns)> = (0..300)
            .map(|_| {
                let start = random(1_000);
                (start, start + random(700))
            })
            .collect();
        let calls: Vec<(Ns, Ns)> = (0..1_500).map(|at| (at, at + random(9))).collect();
        let mut trace = trace(&ranges, &calls);
        // Backward operators, whose forward operators are in the reverse order.
        let autograd = trace.add_thread(trace.threads[0].process, 2, "");
        for call in (0..calls.len()).step_by(3) {
            trace.calls.thread[call] = autograd;
            let (start, forward_start) = (trace.calls.start[call], 1_500 - trace.calls.start[call]);
            trace.backward.push(BackwardLink {
                thread: autograd,
                start,
                end: start + 1,
                forward_thread: ThreadId(0),
                forward_start,
                forward_end: forward_start + 3,
            });
        }
        let launched: Vec<u32> = (0..trace.calls.len() as u32).collect();
        // All contexts stored, most of them, about half, none.
        let all = 1_000;
        for most_stored in [all, MOST_STORED, 10, 0] {
            let contexts = Contexts::build_with(&trace, &launched, most_stored);
            let values: Vec<(u64, i64)> = (0..contexts.len()).map(|at| (1, at as i64 * 7 % 101)).collect();
            let mut sums = vec![(0, i64::MIN); ranges.len()];
            let mut first = vec![u32::MAX; contexts.len()];
            let marked = |row: u32| (row % 5 == 2).then_some(row + 1_000);
            for (context, value) in values.iter().enumerate() {
                let members = contexts.ranges(context as u32);
                for row in members.iter() {
                    let sum: &mut (u64, i64) = &mut sums[*row as usize];
                    *sum = (sum.0 + value.0, sum.1.max(value.1));
                }
                first[context] = members.iter().find_map(|row| marked(*row)).unwrap_or(u32::MAX);
            }
            let combine = |sum: &mut (u64, i64), value: &(u64, i64)| {
                *sum = (sum.0 + value.0, sum.1.max(value.1));
            };
            let computed = contexts.sum_by_range(&values, ranges.len(), (0, i64::MIN), combine);
            assert_eq!(computed, sums, "{most_stored}");
            assert_eq!(contexts.outermost(marked, u32::MAX), first, "{most_stored}");
            assert_eq!(contexts.forward_only, most_stored < all, "{most_stored}");
        }
    }

    #[test]
    fn memory_is_linear_in_ranges_that_stay_open() {
        let count = 2_000;
        let ranges: Vec<(Ns, Ns)> = (0..count).map(|at| (2 * at, 10 * count)).collect();
        let calls: Vec<(Ns, Ns)> = (0..count).map(|at| (2 * at + 1, 2 * at + 1)).collect();
        let trace = trace(&ranges, &calls);
        let contexts = build(&trace);
        assert_eq!(contexts.len(), count as usize);
        assert!(contexts.stored.len() <= 2 * MOST_STORED * count as usize);
        for call in [0, 1_000, 1_999] {
            let ranges_around = contexts.ranges(contexts.of_call(call));
            assert!(ranges_around.iter().copied().eq(0..=call), "call {call}");
        }
    }
}
