//! Limits of times and other numbers, so that no difference, sum or product of them overflows; and GPUs whose clock is early: their
//! operations begin before the calls that launched them.

use super::order::Order;
use super::{Device, DeviceId, LossKind, Ns, Range, Trace};
use rustc_hash::FxHashMap;

/// Longest capture, ns: a year.
const MOST_SPAN: Ns = 366 * 86_400 * 1_000_000_000;

/// Largest size of a copy, a message or a memory, bytes: a pebibyte.
pub const MOST_BYTES: u64 = 1 << 50;

/// Longest sum of the durations of one kind of event, ns.
const MOST_TOTAL: i128 = (Ns::MAX / 2) as i128;

impl Trace {
    /// Leaves out events more than a year away from the others, and values that cannot be, and counts them as losses. It is called once
    /// for all that was read, before it is sorted: nothing behind it checks a number again.
    ///
    /// # Errors
    /// Fails when the durations of the events cannot be added up.
    pub fn limit_values(&mut self) -> Result<(), &'static str> {
        let mut span = self.span();
        if !self.is_in_range(span) {
            self.leave_out_of_range();
            span = self.span();
        }
        let windows = || self.recorded.first().map(|recorded| (recorded.span.0, recorded.span.0));
        let (first, last) = span.or_else(windows).unwrap_or_default();
        let limits = (first.saturating_sub(MOST_SPAN), last.saturating_add(MOST_SPAN));
        let windows: u64 = self.recorded.iter_mut().map(|recorded| recorded.limit_times(limits)).sum();
        self.losses.add(LossKind::TimeOutOfRange, windows);
        self.profiler.retain(|(start, end)| is_between(*start, *end, limits));
        let samples: u64 = self.sampled.iter_mut().map(|counters| counters.limit(limits)).sum();
        self.losses.add(LossKind::SampleMalformed, samples);
        let facts: u64 = self.devices.iter_mut().map(Device::limit_values).sum();
        self.losses.add(LossKind::ValueOutOfRange, facts + self.ops.limit_values());
        let sum = |ranges: &[Range]| ranges.iter().map(|range| length(range.start, range.end)).sum::<i128>();
        let columns = [
            (&self.ops.start, &self.ops.end),
            (&self.calls.start, &self.calls.end),
            (&self.cpu_ops.start, &self.cpu_ops.end),
        ];
        // No event is longer than all of them together.
        let is_long = |rows: usize| length(first, last).saturating_mul(rows as i128) > MOST_TOTAL;
        if columns.iter().any(|(start, end)| is_long(start.len()) && total(start, end) > MOST_TOTAL)
            || sum(&self.ranges.rows) > MOST_TOTAL
            || sum(&self.modules) > MOST_TOTAL
        {
            return Err("its events last more than 146 years together");
        }
        Ok(())
    }

    fn is_in_range(&self, span: Option<(Ns, Ns)>) -> bool {
        let marks = self.ranges.marks.iter().map(|mark| mark.at);
        let (low, high) = marks.fold((Ns::MAX, Ns::MIN), |(low, high), at| (low.min(at), high.max(at)));
        let (first, last) = span.unwrap_or((low, high));
        let (first, last) = (first.min(low), last.max(high));
        // A module is as long as its operators, or longer.
        let modules = self.modules.iter().map(|module| (module.start, module.end));
        let (first, last) =
            modules.fold((first, last), |span, module| (span.0.min(module.0), span.1.max(module.1)));
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
        self.ops.take(&kept(&self.ops.start, &self.ops.end, limits));
        self.calls.take(&kept(&self.calls.start, &self.calls.end, limits));
        self.cpu_ops.take(&kept(&self.cpu_ops.start, &self.cpu_ops.end, limits));
        let is_kept = |start, end| is_between(start, end, limits);
        let ranges = &mut self.ranges;
        ranges.marks.retain(|mark| is_kept(mark.at, mark.at));
        self.modules.retain(|module| is_kept(module.start, module.end));
        self.shaped.retain(|operator| is_kept(operator.start, operator.end));
        self.backward
            .retain(|link| is_kept(link.start, link.end) && is_kept(link.forward_start, link.forward_end));
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
        let timed = self.ops.len() + self.calls.len() + self.cpu_ops.len();
        timed + ranges.rows.len() + ranges.marks.len() + self.modules.len()
    }
}

fn is_between(start: Ns, end: Ns, (first, last): (Ns, Ns)) -> bool {
    start >= first && end <= last
}

fn length(start: Ns, end: Ns) -> i128 {
    i128::from(end) - i128::from(start)
}

fn total(start: &[Ns], end: &[Ns]) -> i128 {
    start.iter().zip(end).map(|(start, end)| length(*start, *end)).sum()
}

/// Returns the rows between the limits.
fn kept(start: &[Ns], end: &[Ns], limits: (Ns, Ns)) -> Order {
    let times = start.iter().zip(end).zip(0u32..);
    let rows = times.filter(|((start, end), _)| is_between(**start, **end, limits));
    Order::All(rows.map(|(_, row)| row).collect())
}

/// Operations of a device that are looked at before all are.
const FIRST_LOOK: usize = 64;

/// Fewest operations with a call that tell about a clock, and the least error that is mended, ns.
const LEAST_OPS: usize = 8;
const LEAST_NS: Ns = 100_000;

impl Trace {
    /// Moves the operations of GPUs whose clock is early, so that they begin no earlier than the calls that launched them. Rows are in order.
    pub(crate) fn settle_clocks(&mut self) {
        let few = self.rows_by_device(FIRST_LOOK, |_| true);
        let is_early = |rows: &Vec<usize>| {
            rows.len() >= LEAST_OPS && self.lateness(rows).iter().all(|late| *late < -LEAST_NS)
        };
        let suspects: Vec<bool> = few.iter().map(is_early).collect();
        if !suspects.contains(&true) {
            return;
        }
        let all = self.rows_by_device(usize::MAX, |device| suspects[device.index()]);
        let early =
            all.iter().zip(0..).filter_map(|(rows, device)| Some((DeviceId(device), self.early_by(rows)?)));
        let early: Vec<(DeviceId, Ns)> = early.collect();
        for (device, ns) in &early {
            let ops = &mut self.ops;
            let times = ops.device.iter().zip(&mut ops.start).zip(&mut ops.end);
            let mut moved = 0;
            for ((_, start), end) in times.filter(|((at, _), _)| *at == device) {
                (*start, *end, moved) = (*start + ns, *end + ns, moved + 1);
            }
            let number = self.devices[device.index()].number;
            let message = format!("GPU {number}: {:.3} ms", *ns as f64 / 1e6);
            self.losses.add_message(LossKind::ClockEarly, &message, moved);
        }
        self.ops.sort();
    }

    /// Lists operations with a call by device, from the middle of the trace on: of each that is wanted as many as are asked for.
    fn rows_by_device(&self, most: usize, wanted: impl Fn(DeviceId) -> bool) -> Vec<Vec<usize>> {
        let ops = &self.ops;
        let mut lists = vec![Vec::new(); self.devices.len()];
        for row in (ops.len() / 2..ops.len()).chain(0..ops.len() / 2).filter(|row| ops.correlation[*row] != 0)
        {
            let device = ops.device[row];
            if let Some(list) =
                lists.get_mut(device.index()).filter(|list| list.len() < most && wanted(device))
            {
                list.push(row);
            }
        }
        lists
    }

    /// Returns how early the clock of a device is by all its operations, ns; `None` where not nearly all begin before their calls.
    fn early_by(&self, rows: &[usize]) -> Option<Ns> {
        let late = self.lateness(rows);
        // A few rows may have the call of another operation.
        let least = *late.get(late.len() / 256).filter(|_| late.len() >= LEAST_OPS)?;
        (late[late.len() * 9 / 10] < 0).then_some(-least)
    }

    /// Returns the times from calls to their operations, in order, ns.
    fn lateness(&self, rows: &[usize]) -> Vec<Ns> {
        let (ops, calls) = (&self.ops, &self.calls);
        let ids = || rows.iter().map(|row| ops.correlation[*row]);
        let (Some(first), Some(last)) = (ids().min(), ids().max()) else {
            return Vec::new();
        };
        let mut started = FxHashMap::default();
        for (call, id) in calls.correlation.iter().enumerate().filter(|(_, id)| (first..=last).contains(*id))
        {
            started.entry((calls.process[call], *id)).or_insert(calls.start[call]);
        }
        let late =
            |row: &usize| Some(ops.start[*row] - started.get(&(ops.process[*row], ops.correlation[*row]))?);
        let mut times: Vec<Ns> = rows.iter().filter_map(late).collect();
        times.sort_unstable();
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Collective, LaunchShape, Mark, OpKind, ProcessId, RecordedWindows, ShapeId};

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
                bytes: 1 + (start / 1_000_000_000).unsigned_abs(),
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
        trace.limit_values().unwrap();
        assert_eq!(trace.ops.start, [epoch, epoch + HOUR, epoch + 9]);
        assert_eq!(trace.ops.end, [epoch + 5, epoch + 2 * HOUR, epoch + 10]);
        assert_eq!(trace.ops.transfers[&1].bytes, 1 + (epoch + HOUR) as u64 / 1_000_000_000);
        assert_eq!(trace.ops.transfers.len(), 3);
        assert_eq!(trace.ranges.marks.len(), 1);
        assert_eq!(trace.losses.count(LossKind::TimeOutOfRange), 4);
    }

    #[test]
    fn times_in_range_stay() {
        let mut trace = trace(&[(-HOUR, -5), (0, 0), (HOUR, 2 * HOUR)]);
        trace.limit_values().unwrap();
        assert_eq!((trace.ops.len(), trace.losses.iter().count()), (3, 0));
    }

    #[test]
    fn windows_far_from_the_events_are_clipped() {
        let mut trace = trace(&[(0, HOUR)]);
        let edges = [(true, i64::MIN), (false, -5), (true, 7), (false, 9), (true, 20)];
        trace.recorded.push(RecordedWindows::from_edges(ProcessId(0), &edges, i64::MAX));
        trace.limit_values().unwrap();
        assert_eq!(trace.recorded[0].windows, [(-MOST_SPAN, -5), (7, 9), (20, HOUR + MOST_SPAN)]);
        assert_eq!(trace.recorded[0].all_ns(), HOUR + 2 * MOST_SPAN);
        assert_eq!(trace.losses.count(LossKind::TimeOutOfRange), 2);
    }

    #[test]
    fn values_that_no_gpu_has_are_left_out() {
        let mut trace = trace(&[(1, 2), (3, 4), (5, 6)]);
        let huge = [1 << 31; 3];
        for (row, (grid, block)) in
            [(huge, [1; 3]), ([i32::MAX as u32, 65_535, 1], [1_024, 1, 1]), ([1; 3], huge)]
                .into_iter()
                .enumerate()
        {
            let shape = trace.ops.intern_shape(LaunchShape { grid, block, ..LaunchShape::default() });
            trace.ops.shape[row] = shape;
        }
        trace.ops.transfers.get_mut(&1).unwrap().bytes = u64::MAX;
        let name = trace.names.intern("");
        let bytes = Some(u64::MAX);
        trace.ops.collectives.insert(
            0,
            Collective {
                name,
                group: name,
                group_size: 2,
                input_bytes: bytes,
                output_bytes: Some(8),
                sequence: None,
                peer: None,
            },
        );
        trace.add_device(Device {
            sms: Some(u32::MAX),
            memory_bytes: bytes,
            clock_hz: Some(1),
            ..Device::default()
        });
        trace.limit_values().unwrap();
        let grids: Vec<[u32; 3]> = (0..3).map(|row| trace.ops.shape_of(row).grid).collect();
        assert_eq!(grids, [[0; 3], [i32::MAX as u32, 65_535, 1], [0; 3]]);
        assert_eq!(trace.ops.transfers[&1].bytes, 0);
        assert_eq!(trace.ops.collectives[&0].message_bytes(), Some(8));
        let device = &trace.devices[0];
        assert_eq!((device.sms, device.memory_bytes, device.clock_hz), (None, None, Some(1)));
        assert_eq!(trace.losses.count(LossKind::ValueOutOfRange), 6);
    }

    #[test]
    fn durations_that_cannot_be_added_are_an_error() {
        let mut trace = trace(&[(0, MOST_SPAN); 200]);
        assert!(trace.limit_values().is_err());
        trace.ops = super::super::GpuOps::default();
        assert!(trace.limit_values().is_ok());
    }
}

#[cfg(test)]
mod clock_tests {
    use super::super::{Call, CallClass, Device, GpuOp, OpKind};
    use super::*;

    /// Two devices with 100 kernels each, 1 ms apart; those of the second begin `late` ns after their calls.
    fn trace(late: Ns) -> Trace {
        let mut trace = Trace::default();
        let process = trace.add_process(1, "");
        let thread = trace.add_thread(process, 1, "");
        let name = trace.names.intern("k");
        for id in 0..200 {
            let device = trace.add_device(Device { number: id % 2, ..Device::default() });
            let start = 1_000_000_000 + i64::from(id) * 1_000_000;
            let class = CallClass::Launch;
            trace.calls.push(Call {
                start,
                end: start + 5_000,
                name,
                class,
                process,
                thread,
                correlation: id + 1,
            });
            let start = start + if id % 2 == 0 { 10_000 } else { late + i64::from(id) };
            let op = GpuOp {
                start,
                end: start + 9_000,
                name,
                kind: OpKind::Kernel,
                device,
                process,
                correlation: id + 1,
                ..GpuOp::default()
            };
            trace.ops.push(op);
        }
        trace.sort();
        trace
    }

    #[test]
    fn a_gpu_whose_clock_is_early_is_moved() {
        let mut early = trace(-50_000_000);
        early.settle_clocks();
        let losses: Vec<_> = early.losses.iter().map(|loss| (loss.kind, loss.count)).collect();
        assert_eq!(losses, [(LossKind::ClockEarly, 100)]);
        let second = early.ops.device.iter().zip(&early.ops.start).filter(|(device, _)| device.index() == 1);
        let starts: Vec<Ns> = second.map(|(_, start)| *start).collect();
        assert_eq!((starts[0], starts[99]), (1_001_000_000, 1_199_000_198));
        assert!(early.ops.start.is_sorted());
    }

    #[test]
    fn small_errors_and_right_clocks_stay() {
        for late in [-20_000, 3_000] {
            let (mut other, before) = (trace(late), trace(late));
            other.settle_clocks();
            assert_eq!(other.ops.start, before.ops.start);
            assert_eq!(other.losses.iter().count(), 0);
        }
    }
}
