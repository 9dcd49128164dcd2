//! GPUs whose clock is early: their operations begin before the calls that launched them.

use super::{DeviceId, LossKind, Ns, Trace};
use rustc_hash::FxHashMap;

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
            for ((_, start), end) in times.filter(|((of, _), _)| *of == device) {
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
