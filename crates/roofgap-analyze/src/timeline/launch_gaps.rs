//! Gaps in which the GPU waits for a launch: the longest one, and the time in which the program loads data.

use super::interval::IntervalSet;
use super::launches::NO_CALL;
use roofgap_trace::{Ns, ThreadId, Trace};
use rustc_hash::FxHashMap;

/// Start of the name under which PyTorch marks the time that it takes to get a batch from a data loader.
const DATA_LOADER: &str = "enumerate(DataLoader)";

/// The launch gaps of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaunchGaps {
    /// Launch time of the longest gap, ns.
    pub longest_ns: Ns,
    /// Operation that ended the longest gap.
    pub longest_before: Option<usize>,
    /// Launch time in which the launching thread was getting data, summed over gaps, ns.
    pub data_loading_ns: Ns,
}

impl LaunchGaps {
    /// Adds a gap that ended with an operation. `launch_ns` of it are for the launch.
    pub fn add(&mut self, op: usize, launch_ns: Ns, loading_ns: Ns) {
        if launch_ns > self.longest_ns {
            (self.longest_ns, self.longest_before) = (launch_ns, Some(op));
        }
        self.data_loading_ns += loading_ns.min(launch_ns).max(0);
    }
}

/// Times in which each thread was getting data from a data loader.
pub struct DataLoading(FxHashMap<ThreadId, IntervalSet>);

impl DataLoading {
    /// Collects them from the ranges of a trace.
    pub fn of(trace: &Trace) -> Self {
        let loads = |name| trace.names.get(name).starts_with(DATA_LOADER);
        let ranges = trace.ranges.rows.iter().filter(|range| loads(range.name));
        Self(IntervalSet::by_thread(ranges))
    }

    /// Returns the part of a gap in which the thread of the call that ended it was getting data, ns.
    pub fn during(&self, trace: &Trace, (from, to): (Ns, Ns), call: u32) -> Ns {
        if self.0.is_empty() || call == NO_CALL {
            return 0;
        }
        let calls = &trace.calls;
        let (Some(thread), Some(start)) = (calls.thread.get(call as usize), calls.start.get(call as usize))
        else {
            return 0;
        };
        let times = self.0.get(thread);
        times.map_or(0, |times| times.overlap(from, (*start).clamp(from, to)))
    }
}
