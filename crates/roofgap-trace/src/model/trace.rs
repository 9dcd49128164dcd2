//! The trace: everything the readers found, in one model.

use crate::SourceFormat;
use std::path::Path;

use super::{
    BackwardLink, Calls, CpuOps, DeviceId, Distributed, GpuOps, GraphNodes, Losses, NameId, Names, Ns,
    ProcessId, Range, Ranges, RecordedWindows, ShapedOperator, ThreadId,
};

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
    /// Kernel totals of a summary table, where that is all there is.
    pub kernel_totals: Vec<KernelTotal>,
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
        let Self { ops, calls, ranges, cpu_ops, .. } = self;
        std::thread::scope(|scope| {
            scope.spawn(|| ops.sort());
            calls.sort();
            ranges.sort();
            cpu_ops.sort();
        });
    }

    /// Returns the window of a process that holds a time span as a whole: `Some(0)` for a process that was recorded all the time.
    pub fn window_of(&self, process: ProcessId, start: Ns, end: Ns) -> Option<usize> {
        match self.recorded.iter().find(|recorded| recorded.process == process) {
            Some(recorded) => recorded.window_of(start, end),
            None => Some(0),
        }
    }

    /// Returns the first and the last time in the trace.
    pub fn span(&self) -> Option<(Ns, Ns)> {
        let starts = [&self.ops.start, &self.calls.start, &self.cpu_ops.start];
        let ends = [&self.ops.end, &self.calls.end, &self.cpu_ops.end];
        let first = starts.iter().filter_map(|c| c.iter().min()).copied();
        let last = ends.iter().filter_map(|c| c.iter().max()).copied();
        let first = first.chain(self.ranges.rows.iter().map(|r| r.start)).min()?;
        let last = last.chain(self.ranges.rows.iter().map(|r| r.end)).max()?;
        Some((first, last))
    }
}
