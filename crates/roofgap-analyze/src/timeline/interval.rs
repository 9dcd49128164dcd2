//! Sets of disjoint time intervals.

use roofgap_trace::{Ns, Range, ThreadId, Trace};
use rustc_hash::FxHashMap;

/// Disjoint intervals in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IntervalSet(Vec<(Ns, Ns)>);

impl IntervalSet {
    /// Joins intervals that overlap or touch.
    pub fn of(mut intervals: Vec<(Ns, Ns)>) -> Self {
        if !intervals.is_sorted() {
            intervals.sort_unstable();
        }
        intervals.dedup_by(|next, last| {
            let joined = next.0 <= last.1;
            if joined {
                last.1 = last.1.max(next.1);
            }
            joined
        });
        Self(intervals)
    }

    /// Collects ranges by thread.
    pub fn by_thread<'a>(ranges: impl Iterator<Item = &'a Range>) -> FxHashMap<ThreadId, Self> {
        let mut lists: FxHashMap<ThreadId, Vec<(Ns, Ns)>> = FxHashMap::default();
        for range in ranges {
            let list = lists.entry(range.thread).or_default();
            list.push((range.start, range.end));
        }
        lists.into_iter().map(|(thread, list)| (thread, Self::of(list))).collect()
    }

    /// Collects the times of the GPU operations for which `keep` holds, by device.
    pub fn by_device(trace: &Trace, mut keep: impl FnMut(usize) -> bool) -> Vec<Self> {
        let ops = &trace.ops;
        // Room that is not used takes no memory.
        let room = || Self(Vec::with_capacity(ops.len() / trace.devices.len()));
        let mut sets: Vec<Self> = trace.devices.iter().map(|_| room()).collect();
        for row in (0..ops.len()).filter(|&row| keep(row)) {
            if let Some(set) = sets.get_mut(ops.device[row].index()) {
                set.add(ops.start[row], ops.end[row]);
            }
        }
        sets.iter_mut().for_each(|set| set.0.shrink_to_fit());
        sets
    }

    /// Adds an interval. Cheap if it does not start before the last one.
    #[inline]
    pub fn add(&mut self, start: Ns, end: Ns) {
        match self.0.last_mut() {
            Some(last) if start < last.0 => {
                self.0.push((start, end));
                *self = Self::of(std::mem::take(&mut self.0));
            }
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => self.0.push((start, end)),
        }
    }

    /// The disjoint intervals.
    pub fn intervals(&self) -> &[(Ns, Ns)] {
        &self.0
    }

    /// Returns the time covered, ns.
    pub fn length(&self) -> Ns {
        covered(&self.0)
    }

    /// Returns the time covered in `start..end`, ns.
    pub fn overlap(&self, start: Ns, end: Ns) -> Ns {
        self.overlap_from(self.0.partition_point(|&(_, e)| e <= start), start, end)
    }

    /// The same, for questions that follow one another in time: `near` remembers where the last answer was found.
    #[inline]
    pub fn overlap_near(&self, start: Ns, end: Ns, near: &mut usize) -> Ns {
        *near = self.first_after(start, *near);
        self.overlap_from(*near, start, end)
    }

    #[inline]
    fn overlap_from(&self, first: usize, start: Ns, end: Ns) -> Ns {
        let after = self.0.get(first..).unwrap_or_default().iter();
        after.take_while(|(s, _)| *s < end).map(|&(s, e)| e.min(end) - s.max(start)).sum()
    }

    /// Passes the pieces of `start..end` in order, each with true where it is covered.
    pub fn pieces(&self, start: Ns, end: Ns, mut piece: impl FnMut(Ns, Ns, bool)) {
        let first = self.0.partition_point(|&(_, e)| e <= start);
        let mut at = start;
        for &(s, e) in self.0.get(first..).unwrap_or_default().iter().take_while(|(s, _)| *s < end) {
            if at < s {
                piece(at, s, false);
            }
            piece(s.max(at), e.min(end), true);
            at = e.min(end);
        }
        if at < end {
            piece(at, end, false);
        }
    }

    /// Tells whether any part of `start..end` is covered; `near` as above.
    fn touches_near(&self, start: Ns, end: Ns, near: &mut usize) -> bool {
        *near = self.first_after(start, *near);
        self.0.get(*near).is_some_and(|&(s, _)| s < end)
    }

    /// The first interval that ends after a moment: mostly the guess or the next one.
    #[inline]
    fn first_after(&self, moment: Ns, guess: usize) -> usize {
        let before = |at: usize| self.0.get(at).is_some_and(|&(_, e)| e <= moment);
        let next = guess + usize::from(before(guess));
        match next <= self.0.len() && !before(next) && (next == 0 || before(next - 1)) {
            true => next,
            false => self.0.partition_point(|&(_, e)| e <= moment),
        }
    }

    /// Tells whether one interval holds all of `start..end`.
    pub fn encloses(&self, start: Ns, end: Ns) -> bool {
        let after = self.0.partition_point(|&(s, _)| s <= start);
        after.checked_sub(1).and_then(|i| self.0.get(i)).is_some_and(|&(_, e)| e >= end)
    }

    /// The same, for questions that follow one another in time: `near` remembers where the last answer was found.
    #[inline]
    pub fn encloses_near(&self, start: Ns, end: Ns, near: &mut usize) -> bool {
        // An interval that ends at `start` encloses an empty span there.
        *near = self.first_after(start.saturating_sub(1), *near);
        self.0.get(*near).is_some_and(|&(s, e)| s <= start && e >= end)
    }
}

/// A set of intervals with the time covered before some of them, so that long overlaps cost no more than short ones.
#[derive(Debug, Clone, Default)]
pub struct CoveredTime {
    /// The intervals.
    pub set: IntervalSet,
    /// Time covered before each [`APART`]th interval, ns.
    before: Vec<Ns>,
}

/// Distance of the intervals whose time before is stored.
const APART: usize = 16;

impl CoveredTime {
    /// Adds up the time before each interval.
    pub fn of(set: IntervalSet) -> Self {
        let mut sum = 0;
        let before = set.0.chunks(APART).map(|near| {
            let before = sum;
            sum += covered(near);
            before
        });
        Self { before: before.collect(), set }
    }

    /// Collects the times of the operations for which `beside` holds, by device, as far as they touch the times of the device in
    /// `these`: few do, so that this takes little memory.
    pub fn beside(trace: &Trace, these: &[IntervalSet], beside: impl Fn(usize) -> bool) -> Vec<Self> {
        let ops = &trace.ops;
        let mut near = vec![0; these.len()];
        let sets = IntervalSet::by_device(trace, |op| {
            let device = ops.device[op].index();
            let touches =
                |(set, near): (&IntervalSet, &mut usize)| set.touches_near(ops.start[op], ops.end[op], near);
            these.get(device).zip(near.get_mut(device)).is_some_and(touches) && beside(op)
        });
        sets.into_iter().map(Self::of).collect()
    }

    /// Returns the time covered in `start..end`, ns.
    pub fn overlap(&self, start: Ns, end: Ns) -> Ns {
        self.until(end) - self.until(start)
    }

    fn until(&self, moment: Ns) -> Ns {
        let after = self.set.0.partition_point(|(start, _)| *start < moment);
        let last = after.checked_sub(1);
        last.map_or(0, |at| {
            let (start, end) = self.set.0[at];
            let near = &self.set.0[at / APART * APART..at];
            self.before[at / APART] + covered(near) + end.min(moment) - start
        })
    }
}

/// Returns the time that disjoint intervals cover, ns.
fn covered(intervals: &[(Ns, Ns)]) -> Ns {
    intervals.iter().map(|(start, end)| end - start).sum()
}

/// The first start and last end of a group of GPU operations.
#[derive(Debug, Clone, Copy)]
pub struct Extent(pub Ns, pub Ns);

impl Extent {
    pub const EMPTY: Self = Self(Ns::MAX, Ns::MIN);

    pub fn add(&mut self, start: Ns, end: Ns) {
        *self = Self(self.0.min(start), self.1.max(end));
    }

    /// Returns the length, ns; `None` for an empty group.
    pub fn length(self) -> Option<Ns> {
        (self.0 <= self.1).then(|| self.1 - self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_union_counts_every_moment_once(list in prop::collection::vec((0i64..200, 0i64..40), 0..40), probe in (0i64..250, 0i64..60)) {
            let intervals: Vec<_> = list.iter().map(|(s, d)| (*s, s + d)).collect();
            let union = IntervalSet::of(intervals.clone());
            let mut added = IntervalSet::default();
            intervals.iter().for_each(|&(start, end)| added.add(start, end));
            prop_assert_eq!(&added, &union);
            let covered = |t: i64| intervals.iter().any(|(s, e)| *s <= t && t < *e);
            prop_assert_eq!(union.length(), (0..300).filter(|t| covered(*t)).count() as i64);
            let (from, to) = (probe.0, probe.0 + probe.1);
            prop_assert_eq!(union.overlap(from, to), (from..to).filter(|t| covered(*t)).count() as i64);
            prop_assert_eq!(CoveredTime::of(union.clone()).overlap(from, to), union.overlap(from, to));
            let touches = union.touches_near(from, to, &mut 0);
            prop_assert_eq!(touches, union.intervals().iter().any(|(s, e)| *s < to && *e > from));
            for guess in 0..=union.intervals().len() + 1 {
                let mut near = guess;
                prop_assert_eq!(union.overlap_near(from, to, &mut near), union.overlap(from, to));
                prop_assert_eq!(near, union.intervals().partition_point(|(_, e)| *e <= from));
            }
            if probe.1 > 0 {
                prop_assert_eq!(union.encloses(from, to), (from..to).all(covered));
            }
            for guess in 0..=union.intervals().len() + 1 {
                prop_assert_eq!(union.encloses_near(from, to, &mut { guess }), union.encloses(from, to));
            }
        }
    }
}
