//! The trace: the events of all readers in one model.

use super::limits::MOST_BYTES;
use super::order::Order;
use super::{
    BackwardLink, Calls, CpuOps, DeviceId, Distributed, GpuOps, GraphNodes, HostStacks, Losses, Mark, NameId,
    Names, Ns, ProcessId, Range, Ranges, SampledCounters, ShapedOperator, ThreadId, Wait,
};
use crate::SourceFormat;
use crate::vitals::GpuVitals;
use rustc_hash::FxHashSet;
use std::path::Path;

/// An input file of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file as the user named it.
    pub path: String,
    /// Format, as detected from content.
    pub format: SourceFormat,
    /// Version of the tool that made it, where it says.
    pub tool_version: Option<String>,
    /// Version of the file's schema, where it says.
    pub schema_version: Option<String>,
}

impl Source {
    /// Describes a file that does not say which version wrote it.
    pub fn new(path: &Path, format: SourceFormat) -> Self {
        Self { path: path.display().to_string(), format, tool_version: None, schema_version: None }
    }
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Device {
    /// The number by which the tool calls it.
    pub number: u32,
    /// Marketing name, where known.
    pub name: Option<String>,
    /// Compute capability.
    pub compute_capability: Option<(u32, u32)>,
    /// Multiprocessors.
    pub sms: Option<u32>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Memory bandwidth as the device reports it, bytes a second.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Highest clock as the device reports it, Hz.
    pub clock_hz: Option<u64>,
    /// Level-2 cache, bytes.
    pub l2_bytes: Option<u64>,
    /// Stable identity.
    pub uuid: Option<String>,
}

impl Device {
    /// Takes away facts that no GPU has; returns the number of them.
    pub(super) fn limit_values(&mut self) -> u64 {
        fn keep<T: Copy>(value: &mut Option<T>, is_possible: impl Fn(&T) -> bool) -> u64 {
            let had = value.is_some();
            *value = value.filter(is_possible);
            u64::from(had && value.is_none())
        }
        let size = |bytes: &u64| *bytes <= MOST_BYTES;
        keep(&mut self.sms, |sms| (1..=1 << 16).contains(sms))
            + keep(&mut self.compute_capability, |(major, minor)| *major.max(minor) < 1_000)
            + keep(&mut self.clock_hz, |hertz| *hertz <= 1 << 40)
            + [&mut self.memory_bytes, &mut self.bandwidth_bytes_per_s, &mut self.l2_bytes]
                .map(|bytes| keep(bytes, size))
                .iter()
                .sum::<u64>()
    }
}

/// A process of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// The system's number.
    pub pid: u32,
    /// Name; empty when unknown.
    pub name: NameId,
}

/// A thread of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread {
    /// Process of the thread.
    pub process: ProcessId,
    /// The system's number.
    pub tid: u32,
    /// Name; empty when unknown.
    pub name: NameId,
}

/// Totals of a kernel from a summary table, without times of launches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelTotal {
    /// Kernel name.
    pub name: NameId,
    /// Sum of durations, ns.
    pub total_ns: i64,
    /// Number of launches.
    pub calls: u64,
    /// Median duration, ns, where the table has it.
    pub median_ns: Option<f64>,
    /// Shortest duration, ns.
    pub min_ns: Option<i64>,
    /// Longest duration, ns.
    pub max_ns: Option<i64>,
}

/// Limit of devices, above that of any machine.
pub const MOST_DEVICES: usize = 4096;

/// One program run as the tools saw it.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Input files.
    pub sources: Vec<Source>,
    /// All strings.
    pub names: Names,
    /// GPUs.
    pub devices: Vec<Device>,
    /// Processes.
    pub processes: Vec<Process>,
    /// Threads.
    pub threads: Vec<Thread>,
    /// GPU operations.
    pub ops: GpuOps,
    /// Calls into CUDA.
    pub calls: Calls,
    /// Waits that the tools recorded, in the order of process and correlation. A call that waits may have none.
    pub waits: Vec<Wait>,
    /// Ranges and marks.
    pub ranges: Ranges,
    /// Calls of modules that a framework recorded beside its operators, in no order.
    pub modules: Vec<Range>,
    /// Nodes of CUDA graphs.
    pub graph_nodes: GraphNodes,
    /// Operators of a framework.
    pub cpu_ops: CpuOps,
    /// Backward operators whose forward operators are known, in no order.
    pub backward: Vec<BackwardLink>,
    /// Operators whose shapes were recorded, in no order.
    pub shaped: Vec<ShapedOperator>,
    /// Stacks of the threads of the program.
    pub stacks: HostStacks,
    /// Kernel totals of a summary table, where that is all there is.
    pub kernel_totals: Vec<KernelTotal>,
    /// Hardware counters that were sampled while the program ran.
    pub sampled: Vec<SampledCounters>,
    /// Times at which the profiler worked on threads that call CUDA, as the profiler reports it, in no order.
    pub profiler: Vec<(Ns, Ns)>,
    /// Vitals of the GPUs while the program ran, and perhaps before and after.
    pub vitals: Vec<GpuVitals>,
    /// Time of the epoch at time 0 of the trace, ns; 0 where its times are ns since the epoch.
    pub utc_offset: Ns,
    /// Host name, where the capture has it.
    pub host: Option<String>,
    /// Rank of a distributed job, where the capture names it.
    pub distributed: Option<Distributed>,
    /// Ranks of processes, where the trace holds several ranks; else empty.
    pub process_ranks: Vec<(ProcessId, Distributed)>,
    /// Recorded windows of the processes that were not recorded all the time.
    pub recorded: Vec<RecordedWindows>,
    /// Declared losses.
    pub losses: Losses,
}

/// Times since the epoch are after this, ns.
const THIS_CENTURY_NS: Ns = 946_684_800_000_000_000;

/// Formats a range as `domain@name`, or as its name in the default domain.
pub fn range_name(domain: &str, name: &str) -> String {
    let at = if domain.is_empty() { "" } else { "@" };
    format!("{domain}{at}{name}")
}

impl Trace {
    /// Adds a process and returns its id.
    pub fn add_process(&mut self, pid: u32, name: &str) -> ProcessId {
        let name = self.names.intern(name);
        self.processes.push(Process { pid, name });
        ProcessId(self.processes.len() as u32 - 1)
    }

    /// Adds a thread and returns its id.
    pub fn add_thread(&mut self, process: ProcessId, tid: u32, name: &str) -> ThreadId {
        let name = self.names.intern(name);
        self.threads.push(Thread { process, tid, name });
        ThreadId(self.threads.len() as u32 - 1)
    }

    /// Adds a device, or finds the one that is the same by identity, and returns its id. Of more devices than any machine
    /// has, which only a broken file names, all beyond that are the last one.
    pub fn add_device(&mut self, device: Device) -> DeviceId {
        let same = |d: &Device| match (&d.uuid, &device.uuid) {
            (Some(a), Some(b)) => a == b,
            _ => d.number == device.number,
        };
        if let Some(known) = self.devices.iter().position(same) {
            return DeviceId(known as u16);
        }
        if self.devices.len() < MOST_DEVICES {
            self.devices.push(device);
        }
        DeviceId(self.devices.len() as u16 - 1)
    }

    /// Returns the devices that ran operations, in the order of their numbers; all devices if there are no operations.
    pub fn used_devices(&self) -> Vec<&Device> {
        let mut used = vec![self.ops.is_empty(); self.devices.len()];
        for device in &self.ops.device {
            if let Some(used) = used.get_mut(device.index()) {
                *used = true;
            }
        }
        let mut devices: Vec<&Device> =
            self.devices.iter().zip(used).filter_map(|(device, used)| used.then_some(device)).collect();
        devices.sort_by_key(|device| device.number);
        devices
    }

    /// Puts every column in its order. Readers call it once at the end.
    pub fn sort(&mut self) {
        let Self { ops, calls, waits, ranges, cpu_ops, stacks, threads, processes, .. } = self;
        waits.sort_by_key(|wait| (wait.process, wait.correlation));
        if !stacks.foreign.is_empty() {
            let calling: FxHashSet<ThreadId> = calls.thread.iter().copied().collect();
            stacks.settle(|pid, tids| {
                let mut known = calling.iter().filter_map(|id| Some((*id, threads.get(id.index())?)));
                let is_in =
                    |thread: &Thread| processes.get(thread.process.index()).is_some_and(|p| p.pid == pid);
                known.find(|(_, thread)| is_in(thread) && tids.contains(&thread.tid)).map(|(id, _)| id)
            });
        }
        std::thread::scope(|scope| {
            scope.spawn(|| ops.sort());
            calls.sort();
            ranges.sort();
            cpu_ops.sort();
            stacks.sort();
        });
    }

    /// Returns the window of a process that holds a time span as a whole: `Some(0)` for a process that was recorded all the time.
    pub fn window_of(&self, process: ProcessId, start: Ns, end: Ns) -> Option<usize> {
        match self.recorded.iter().find(|recorded| recorded.process == process) {
            Some(recorded) => recorded.window_of(start, end),
            None => Some(0),
        }
    }

    /// Returns a time of the trace in ns since the epoch; `None` where it counts from the start of a machine or a program.
    pub fn unix_ns(&self, at: Ns) -> Option<Ns> {
        Some(at.saturating_add(self.utc_offset)).filter(|at| *at > THIS_CENTURY_NS)
    }

    /// Returns the first and the last time in the trace.
    pub fn span(&self) -> Option<(Ns, Ns)> {
        let starts = [&self.ops.start, &self.calls.start, &self.cpu_ops.start];
        let ends = [&self.ops.end, &self.calls.end, &self.cpu_ops.end];
        let first = starts.iter().filter_map(|c| c.iter().copied().min());
        let last = ends.iter().filter_map(|c| c.iter().copied().max());
        let first = first.chain(self.ranges.rows.iter().map(|r| r.start)).min()?;
        let last = last.chain(self.ranges.rows.iter().map(|r| r.end)).max()?;
        Some((first, last))
    }
}

impl Trace {
    /// Lists the ranks of a trace that holds several, in order; empty for any other.
    pub fn ranks(&self) -> Vec<u32> {
        let mut ranks: Vec<u32> = self.process_ranks.iter().filter_map(|(_, job)| job.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Copies a trace with the events of one of its ranks only. Processes, threads, names and losses stay.
    pub fn of_rank(&self, rank: u32) -> Self {
        let of_rank = self.process_ranks.iter().filter(|(_, job)| job.rank == Some(rank));
        let processes: Vec<ProcessId> = of_rank.clone().map(|(process, _)| *process).collect();
        let mut part = self.clone();
        part.distributed = of_rank.map(|(_, job)| job.clone()).next();
        part.process_ranks.clear();
        part.keep_processes(|process| processes.contains(&process));
        part
    }

    /// Copies a trace with the events of the processes that tell no rank, of a trace that holds several.
    pub fn without_ranks(&self) -> Self {
        let mut part = self.clone();
        part.distributed = None;
        part.process_ranks.clear();
        part.keep_processes(|process| self.process_ranks.iter().all(|(known, _)| *known != process));
        part
    }

    fn keep_processes(&mut self, keep: impl Fn(ProcessId) -> bool) {
        let rows = |keeps: &mut dyn Iterator<Item = bool>| {
            let rows = keeps.zip(0_u32..).filter_map(|(keep, row)| keep.then_some(row));
            Order::All(rows.collect())
        };
        let process_of = |thread: ThreadId| self.threads.get(thread.index()).map(|thread| thread.process);
        let ops = rows(&mut self.ops.process.iter().map(|process| keep(*process)));
        let calls = rows(&mut self.calls.process.iter().map(|process| keep(*process)));
        let cpu_ops =
            rows(&mut self.cpu_ops.thread.iter().map(|thread| process_of(*thread).is_some_and(&keep)));
        let marks = |mark: &Mark| process_of(mark.thread).is_some_and(&keep);
        self.ranges.marks.retain(marks);
        self.stacks.retain(|thread| process_of(thread).is_some_and(&keep));
        self.ops.take(&ops);
        self.calls.take(&calls);
        self.cpu_ops.take(&cpu_ops);
        let ranges = &mut self.ranges;
        let (mut new_rows, mut kept) = (Vec::with_capacity(ranges.rows.len()), 0_u32);
        ranges.rows.retain(|range| {
            let keeps = keep(range.process);
            new_rows.push(keeps.then_some(kept));
            kept += u32::from(keeps);
            keeps
        });
        ranges.collectives.retain_mut(|collective| {
            let row = new_rows.get(collective.row as usize).copied().flatten();
            collective.row = row.unwrap_or_default();
            row.is_some()
        });
        self.waits.retain(|wait| keep(wait.process));
        self.recorded.retain(|recorded| keep(recorded.process));
    }
}

/// Recorded windows of a process. GPU work that was launched outside of them is not in the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedWindows {
    /// The process.
    pub process: ProcessId,
    /// Start and end of each window, ns, in order and apart.
    pub windows: Vec<(Ns, Ns)>,
    /// First and last time of the recording, ns.
    pub span: (Ns, Ns),
}

impl RecordedWindows {
    /// Makes windows of edges, each with true where recording began. A window that is open at the end lasts until `last`.
    pub fn from_edges(process: ProcessId, edges: &[(bool, Ns)], last: Ns) -> Self {
        let mut windows: Vec<(Ns, Ns)> = Vec::new();
        let mut open = None;
        for &(on, at) in edges {
            match (on, open) {
                (true, None) => open = Some(at),
                (false, Some(start)) => {
                    windows.push((start, at.max(start)));
                    open = None;
                }
                _ => {}
            }
        }
        if let Some(start) = open {
            windows.push((start, last.max(start)));
        }
        windows.sort_unstable();
        let first = edges.iter().map(|edge| edge.1).min().unwrap_or(last);
        let end = edges.iter().map(|edge| edge.1).max().unwrap_or(last);
        Self { process, windows, span: (first, end.max(last)) }
    }

    /// Moves all times between two, and windows apart; returns the number of windows that this changed.
    pub(super) fn limit_times(&mut self, (first, last): (Ns, Ns)) -> u64 {
        let limited = |(start, end): (Ns, Ns)| (start.clamp(first, last), end.clamp(first, last));
        let (mut changed, mut before) = (0, first);
        for window in &mut self.windows {
            let (start, end) = limited(*window);
            let apart = (start.max(before), end.max(before));
            changed += u64::from(*window != apart);
            (*window, before) = (apart, apart.1);
        }
        self.span = limited(self.span);
        changed
    }

    /// Returns the position of the window that holds a time span as a whole.
    pub fn window_of(&self, start: Ns, end: Ns) -> Option<usize> {
        let at = self.windows.partition_point(|window| window.0 <= start).checked_sub(1)?;
        self.windows.get(at).filter(|window| end <= window.1).map(|_| at)
    }

    /// Returns the recorded time, ns.
    pub fn recorded_ns(&self) -> Ns {
        let lengths = self.windows.iter().map(|window| window.1.saturating_sub(window.0));
        lengths.fold(0, Ns::saturating_add)
    }

    /// Returns the time of the recording with the gaps, ns.
    pub fn all_ns(&self) -> Ns {
        self.span.1.saturating_sub(self.span.0)
    }

    /// Returns the number of times that were not recorded.
    pub fn gaps(&self) -> u64 {
        let mut covered = self.span.0;
        let mut gaps = 0;
        for &(start, end) in &self.windows {
            gaps += u64::from(start > covered);
            covered = covered.max(end);
        }
        gaps + u64::from(covered < self.span.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(edges: &[(bool, Ns)], last: Ns) -> RecordedWindows {
        RecordedWindows::from_edges(ProcessId(0), edges, last)
    }

    #[test]
    fn edges_become_windows() {
        let recorded =
            windows(&[(false, 0), (true, 10), (true, 12), (false, 20), (false, 21), (true, 30)], 50);
        assert_eq!(recorded.windows, [(10, 20), (30, 50)]);
        assert_eq!((recorded.recorded_ns(), recorded.all_ns(), recorded.gaps()), (30, 50, 2));
        assert_eq!(recorded.window_of(10, 20), Some(0));
        assert_eq!(recorded.window_of(31, 40), Some(1));
        assert_eq!(recorded.window_of(19, 21), None);
        assert_eq!(recorded.window_of(5, 7), None);
        let never = windows(&[(false, 3)], 50);
        assert!(never.windows.is_empty());
        assert_eq!((never.recorded_ns(), never.gaps()), (0, 1));
        let cut = windows(&[(true, 1), (false, 40)], 50);
        assert_eq!((cut.windows.as_slice(), cut.gaps()), (&[(1, 40)][..], 1));
        let whole = windows(&[(true, 1)], 50);
        assert_eq!((whole.windows.as_slice(), whole.gaps()), (&[(1, 50)][..], 0));
    }
}
