//! Idle time of the GPU by cause: what the launching thread did in each gap.

use super::interval::{CoveredTime, IntervalSet};
use super::launches::NO_CALL;
use crate::result::{Idle, LaunchAfter};
use roofgap_trace::{CallClass, DeviceId, Ns, ThreadId, Trace};
use rustc_hash::FxHashMap;

/// Times at which each thread was waiting for the device or copying, and at which each device was busy with anything.
pub struct Activity {
    waits: Waits,
    devices: Vec<IntervalSet>,
    /// Busy time before each interval of each device, ns.
    before: Vec<Vec<Ns>>,
}

/// Times at which each thread was waiting for the device or copying.
#[derive(Default)]
pub struct Waits {
    sync: FxHashMap<ThreadId, IntervalSet>,
    copy: FxHashMap<ThreadId, IntervalSet>,
}

/// Positions of the last gap of a device, where the next search starts.
#[derive(Default, Clone)]
pub struct Near {
    device: usize,
    waits: NearWaits,
}

/// Positions of the last waits of the threads that launch on a device.
#[derive(Default, Clone)]
pub struct NearWaits {
    sync: usize,
    copy: usize,
}

impl Activity {
    /// Collects them from the whole trace.
    pub fn of(trace: &Trace) -> Self {
        let devices = IntervalSet::by_device(trace, |_| true);
        Self {
            waits: Waits::of(trace),
            before: devices.iter().map(IntervalSet::lengths_before).collect(),
            devices,
        }
    }

    /// Returns the busy time, summed over devices, ns.
    pub fn busy_ns(&self) -> Ns {
        self.devices.iter().map(IntervalSet::length).sum()
    }

    /// Returns the busy time of a device in a span of time, ns.
    pub fn busy_in(&self, device: usize, start: Ns, end: Ns) -> Ns {
        let (Some(busy), Some(before)) = (self.devices.get(device), self.before.get(device)) else {
            return 0;
        };
        let until = |moment: Ns| {
            let at = busy.intervals().partition_point(|(_, end)| *end <= moment);
            let part = busy.intervals().get(at).map_or(0, |(start, _)| (moment - start).max(0));
            before.get(at).copied().unwrap_or(0) + part
        };
        if start < end { until(end) - until(start) } else { 0 }
    }

    /// Returns the time in which one of the devices was busy.
    pub fn joined(&self, devices: &[usize]) -> CoveredTime {
        let sets = devices.iter().filter_map(|device| self.devices.get(*device));
        let all = sets.flat_map(|set| set.intervals().iter().copied()).collect();
        CoveredTime::of(IntervalSet::of(all))
    }

    /// Splits one gap of a device by cause, as [`Waits::split`] does, and returns the time in which the device ran other work.
    /// `near` speeds up gaps that follow one another.
    pub fn split(
        &self,
        trace: &Trace,
        device: DeviceId,
        gap: (Ns, Ns),
        call: u32,
        near: &mut Near,
        sums: (&mut Idle, &mut LaunchAfter),
    ) -> Ns {
        let elsewhere =
            self.devices.get(device.index()).map_or(0, |u| u.overlap_near(gap.0, gap.1, &mut near.device));
        self.waits.split(trace, gap, elsewhere, call, &mut near.waits, sums);
        elsewhere
    }
}

impl Waits {
    /// Collects them from the whole trace.
    pub fn of(trace: &Trace) -> Self {
        let calls = &trace.calls;
        let mut waits = Self::default();
        for (row, class) in calls.class.iter().enumerate() {
            let threads = match class {
                CallClass::Sync => &mut waits.sync,
                CallClass::Copy => &mut waits.copy,
                _ => continue,
            };
            let union = threads.entry(calls.thread[row]).or_default();
            union.add(calls.start[row], calls.end[row]);
        }
        waits
    }

    /// Splits one gap of a device by cause. The device ran other work for `elsewhere` ns of it, which is not idle time. `call`
    /// launched the operation that ended the gap.
    ///
    /// A gap counts as `launch` when the launch began after the device had run dry, less the time in which the launching
    /// thread waited (`sync`) or copied (`copy`) before that launch. A gap before an operation that was launched in time is `other`.
    ///
    /// A thread that waited when the device ran dry could have launched instead: as much of what is left of the gap as it had
    /// waited until then is added to `after`; it stays a part of `launch`.
    pub fn split(
        &self,
        trace: &Trace,
        (from, to): (Ns, Ns),
        elsewhere: Ns,
        call: u32,
        near: &mut NearWaits,
        (idle, after): (&mut Idle, &mut LaunchAfter),
    ) {
        let calls = &trace.calls;
        let launched = (call != NO_CALL).then(|| (calls.start[call as usize], calls.end[call as usize]));
        let Some((start, _)) = launched.filter(|(_, end)| *end > from) else {
            idle.other_ns += to - from - elsewhere;
            return;
        };
        let thread = calls.thread[call as usize];
        let until = start.clamp(from, to);
        // The time that the thread waited in the gap, and had waited when the gap began.
        let during = |lists: &FxHashMap<ThreadId, IntervalSet>, near: &mut usize| {
            lists.get(&thread).map_or((0, 0), |u| {
                let inside = u.overlap_near(from, until, near);
                let at = u.intervals().get(*near).filter(|(s, e)| *s <= from && from < *e);
                (inside, at.map_or(0, |(s, _)| from - s))
            })
        };
        let (sync, before_sync) = during(&self.sync, &mut near.sync);
        let (copy, before_copy) = during(&self.copy, &mut near.copy);
        let copy = copy.min(until - from - sync);
        let launch = to - from - sync - copy;
        // The device was not idle while it ran other work.
        let mut rest = elsewhere;
        let mut left = |part: Ns| {
            let taken = part.min(rest);
            rest -= taken;
            part - taken
        };
        let (launch, copy, sync) = (left(launch), left(copy), left(sync));
        idle.sync_ns += sync;
        idle.copy_ns += copy;
        idle.launch_ns += launch;
        let after_sync = before_sync.min(launch);
        after.sync_ns += after_sync;
        after.copy_ns += before_copy.min(launch - after_sync);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_busy_time_of_a_span_is_the_overlap(list in prop::collection::vec((0i64..200, 0i64..40), 0..40), from in -10i64..250, length in -5i64..90) {
            let set = IntervalSet::of(list.iter().map(|(start, length)| (*start, start + length)).collect());
            let activity = Activity {
                waits: Waits::default(),
                before: vec![set.lengths_before()],
                devices: vec![set.clone()],
            };
            prop_assert_eq!(activity.busy_in(0, from, from + length), set.overlap(from, (from + length).max(from)));
            prop_assert_eq!(activity.busy_in(1, from, from + length), 0);
        }
    }
}
