//! Limits of times, so that no difference and no sum of them overflows.

use super::order::Order;
use super::{LossKind, Ns, Trace};

/// Longest capture, ns: a year.
const MOST_SPAN: Ns = 366 * 86_400 * 1_000_000_000;

/// Longest sum of the durations of one kind of event, ns.
const MOST_TOTAL: i128 = (Ns::MAX / 2) as i128;

/// The events last longer together than a sum can hold.
#[derive(Debug, thiserror::Error)]
#[error("its events last more than 146 years together")]
pub struct TooLong;

impl Trace {
    /// Leaves out events more than a year away from the others, and counts them as a loss. Readers call it before they sort.
    ///
    /// # Errors
    /// Fails when the durations of the events cannot be added up.
    pub fn limit_times(&mut self) -> Result<(), TooLong> {
        if !self.is_in_range() {
            self.leave_out_of_range();
        }
        let ranges = self.ranges.rows.iter().map(|range| (range.start, range.end));
        let columns = [
            total(&self.ops.start, &self.ops.end),
            total(&self.calls.start, &self.calls.end),
            total(&self.cpu_ops.start, &self.cpu_ops.end),
            ranges.map(|(start, end)| i128::from(end) - i128::from(start)).sum(),
        ];
        match columns.iter().all(|total| *total <= MOST_TOTAL) {
            true => Ok(()),
            false => Err(TooLong),
        }
    }

    fn is_in_range(&self) -> bool {
        let marks = self.ranges.marks.iter().map(|mark| mark.at);
        let (low, high) = marks.fold((Ns::MAX, Ns::MIN), |(low, high), at| (low.min(at), high.max(at)));
        let (first, last) = self.span().unwrap_or((low, high));
        let (first, last) = (first.min(low), last.max(high));
        first > last || is_between(first, last, (-MOST_SPAN, Ns::MAX / 2)) && last - first <= MOST_SPAN
    }

    fn leave_out_of_range(&mut self) {
        // Most events are right, so the one in the middle is.
        let mut starts: Vec<Ns> = [&self.ops.start, &self.calls.start, &self.cpu_ops.start]
            .into_iter()
            .flatten()
            .copied()
            .chain(self.ranges.rows.iter().map(|range| range.start))
            .chain(self.ranges.marks.iter().map(|mark| mark.at))
            .collect();
        let middle = starts.len() / 2;
        if starts.is_empty() {
            return;
        }
        let centre = (*starts.select_nth_unstable(middle).1).clamp(-MOST_SPAN, Ns::MAX / 2);
        let limits =
            (centre.saturating_sub(MOST_SPAN).max(-MOST_SPAN), (centre + MOST_SPAN).min(Ns::MAX / 2));
        let before = self.events();
        let rows = kept(&self.ops.start, &self.ops.end, limits);
        self.ops.take(&rows);
        let rows = kept(&self.calls.start, &self.calls.end, limits);
        self.calls.take(&rows);
        let rows = kept(&self.cpu_ops.start, &self.cpu_ops.end, limits);
        self.cpu_ops.take(&rows);
        let is_kept = |start, end| is_between(start, end, limits);
        let ranges = &mut self.ranges;
        ranges.marks.retain(|mark| is_kept(mark.at, mark.at));
        // A range that was never closed ends with the last event, which may be one that is left out.
        ranges.rows.retain(|range| is_kept(range.start, if range.open { range.start } else { range.end }));
        let closed = ranges.rows.iter().filter(|range| !range.open).map(|range| range.end);
        let ends = [&self.ops.end, &self.calls.end, &self.cpu_ops.end].into_iter().flatten();
        let last = ends.copied().chain(closed).max().unwrap_or(limits.0);
        for range in ranges.rows.iter_mut().filter(|range| range.open) {
            range.end = range.end.min(last).max(range.start);
        }
        let left_out = before - self.events();
        self.losses.add(LossKind::TimeOutOfRange, left_out as u64);
    }

    fn events(&self) -> usize {
        let ranges = &self.ranges;
        self.ops.len() + self.calls.len() + self.cpu_ops.len() + ranges.rows.len() + ranges.marks.len()
    }
}

fn is_between(start: Ns, end: Ns, (first, last): (Ns, Ns)) -> bool {
    start >= first && end <= last
}

fn total(start: &[Ns], end: &[Ns]) -> i128 {
    let times = start.iter().zip(end);
    times.map(|(start, end)| i128::from(*end) - i128::from(*start)).sum()
}

/// Returns the rows between the limits.
fn kept(start: &[Ns], end: &[Ns], limits: (Ns, Ns)) -> Order {
    let times = start.iter().zip(end).zip(0u32..);
    let rows = times.filter(|((start, end), _)| is_between(**start, **end, limits));
    Order::All(rows.map(|(_, row)| row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mark, OpKind, ShapeId};

    const HOUR: Ns = 3_600_000_000_000;

    fn trace(ops: &[(Ns, Ns)]) -> Trace {
        let mut trace = Trace::default();
        let process = trace.add_process(1, "");
        let name = trace.names.intern("k");
        for &(start, end) in ops {
            trace.ops.push(crate::GpuOp {
                kind: OpKind::Copy,
                start,
                end,
                name,
                device: crate::DeviceId(0),
                stream: 0,
                process,
                correlation: 0,
                shape: ShapeId::default(),
                bytes: start.unsigned_abs(),
                graph_node: 0,
                memory: Default::default(),
            });
        }
        trace
    }

    #[test]
    fn events_far_from_the_others_are_left_out() {
        let epoch = 1_790_000_000_000_000_000;
        let mut trace = trace(&[
            (i64::MIN, i64::MAX),
            (epoch, epoch + 5),
            (7, 8),
            (epoch + HOUR, epoch + 2 * HOUR),
            (epoch + 9, i64::MAX - 1),
            (epoch + 9, epoch + 10),
        ]);
        let thread = trace.add_thread(crate::ProcessId(0), 1, "");
        let name = trace.names.intern("mark");
        for at in [i64::MIN, epoch] {
            let domain = name;
            trace.ranges.marks.push(Mark { at, domain, name, thread });
        }
        trace.limit_times().unwrap();
        assert_eq!(trace.ops.start, [epoch, epoch + HOUR, epoch + 9]);
        assert_eq!(trace.ops.end, [epoch + 5, epoch + 2 * HOUR, epoch + 10]);
        assert_eq!(trace.ops.transfers[&1].bytes, (epoch + HOUR) as u64);
        assert_eq!(trace.ops.transfers.len(), 3);
        assert_eq!(trace.ranges.marks.len(), 1);
        assert_eq!(trace.losses.count(LossKind::TimeOutOfRange), 4);
    }

    #[test]
    fn times_in_range_stay() {
        let mut trace = trace(&[(-HOUR, -5), (0, 0), (HOUR, 2 * HOUR)]);
        trace.limit_times().unwrap();
        assert_eq!((trace.ops.len(), trace.losses.iter().count()), (3, 0));
    }

    #[test]
    fn durations_that_cannot_be_added_are_an_error() {
        let mut trace = trace(&[(0, MOST_SPAN); 200]);
        assert!(trace.limit_times().is_err());
        trace.ops = super::super::GpuOps::default();
        assert!(trace.limit_times().is_ok());
    }
}
