//! The rows of the blocks, put into the trace under the ids of the trace.

use super::document::Header;
use super::frames::NamedFrame;
use super::operators::{Sequences, Shapes};
use super::rows::{BlockNames, Rows, ThreadKey, ThreadRow};
use crate::model::MOST_DEVICES;
use crate::vitals::Readings;
use crate::{
    Call, CallClass, Collective, Device, DeviceId, GpuOp, HostSpan, LossKind, MemoryKind, NameId, Ns, OpKind,
    ProcessId, Range, RangeStyle, ThreadId, Trace,
};
use rustc_hash::FxHashMap;

/// What a reading adds to a trace. Ids of processes and threads are handed out at once; what they are called, which process
/// launched an operation and what the time base is, is known only at the end.
#[derive(Default)]
pub struct Merge {
    trace: Trace,
    /// Number of rows before this input.
    first_op: usize,
    first_call: usize,
    first_cpu_op: usize,
    first_range: usize,
    first_module: usize,
    first_span: usize,
    /// Processes and threads of this file, in the order of their ids.
    processes: Vec<String>,
    threads: Vec<(ThreadKey, ProcessId)>,
    process_ids: FxHashMap<String, ProcessId>,
    thread_ids: FxHashMap<ThreadKey, ThreadId>,
    process_names: FxHashMap<String, String>,
    thread_names: FxHashMap<ThreadKey, String>,
    /// Devices that operations ran on, by number; the column of the trace holds positions in it until the end.
    devices: Vec<u32>,
    /// Names of nodes of graphs, by row of the operation.
    node_names: Vec<(usize, NameId)>,
    sequences: Sequences,
    shapes: Shapes,
    readings: Readings,
    /// Operations whose duration has no decimals.
    whole_micros: u64,
    /// Events of a known kind, and all.
    pub known: u64,
    pub events: u64,
}

impl Merge {
    /// Continues a trace.
    pub fn new(trace: Trace) -> Self {
        Self {
            first_op: trace.ops.len(),
            first_call: trace.calls.len(),
            first_cpu_op: trace.cpu_ops.len(),
            first_range: trace.ranges.rows.len(),
            first_module: trace.modules.len(),
            first_span: trace.stacks.spans.len(),
            trace,
            ..Self::default()
        }
    }

    /// Tells whether a process has a name with one of these parts.
    pub fn has_process(&self, parts: &[&str]) -> bool {
        self.process_names.values().any(|name| parts.iter().any(|part| name.contains(part)))
    }

    /// Adds the rows of a block.
    pub fn add(&mut self, rows: &Rows) {
        self.known += rows.known;
        self.whole_micros += rows.whole_micros;
        self.events += rows.events;
        self.trace.losses.merge(&rows.losses);
        self.readings.append(&rows.readings);
        for (pid, name) in &rows.process_names {
            self.process_names.entry(pid.clone()).or_insert_with(|| name.clone());
        }
        for (key, name) in &rows.thread_names {
            self.thread_names.entry(key.clone()).or_insert_with(|| name.clone());
        }
        let threads: Vec<(ThreadId, ProcessId)> = rows.threads.iter().map(|key| self.thread(key)).collect();
        let mut names = BlockNames::of(rows);
        self.add_ops(rows, &mut names);
        self.add_calls(rows, &threads, &mut names);
        self.sequences.add(&rows.sequences, self.trace.cpu_ops.len());
        let trace = &mut self.trace;
        let first = trace.cpu_ops.len();
        self.shapes.add(&rows.shapes, first, |name| names.get(name, trace));
        for row in &rows.cpu_ops {
            let (thread, _) = threads[row.thread as usize];
            let name = names.get(row.name, &mut self.trace);
            self.trace.cpu_ops.push(row.start, row.end, name, thread);
        }
        let range = |row: &ThreadRow, domain: NameId, name: NameId| {
            let (thread, process) = threads[row.thread as usize];
            Range {
                start: row.start,
                end: row.end,
                domain,
                name,
                process,
                thread,
                end_thread: thread,
                style: RangeStyle::PushPop,
                open: false,
            }
        };
        for row in &rows.ranges {
            let (domain, name) = domain_and_name(names.text(row.name));
            let (domain, name) = (self.trace.names.intern(domain), self.trace.names.intern(name));
            self.trace.ranges.rows.push(range(row, domain, name));
        }
        // A name is looked at once in a block: there are far fewer names than frames.
        let mut known: Vec<Option<NamedFrame>> = vec![None; rows.names.len()];
        for row in &rows.frames {
            let NamedFrame { frame, step, module } = *known[row.name as usize]
                .get_or_insert_with(|| NamedFrame::of(names.text(row.name), &mut self.trace));
            let (thread, _) = threads[row.thread as usize];
            self.trace.stacks.spans.push(HostSpan { thread, start: row.start, end: row.end, frame });
            if let Some((domain, name)) = step {
                self.trace.ranges.rows.push(range(row, domain, name));
            }
            if let Some((domain, name)) = module {
                self.trace.modules.push(range(row, domain, name));
            }
        }
    }

    fn add_ops(&mut self, rows: &Rows, names: &mut BlockNames<'_>) {
        let mut collectives = rows.collectives.iter().peekable();
        let mut node_names = rows.node_names.iter().peekable();
        for (at, row) in rows.ops.iter().enumerate() {
            let collective = collectives.next_if(|(op, _)| *op == at);
            let node_name = node_names.next_if(|(op, _)| *op == at);
            let position = self.devices.iter().position(|&number| number == row.device);
            let device = match position {
                Some(device) => device,
                None if self.devices.len() < MOST_DEVICES => {
                    self.devices.push(row.device);
                    self.devices.len() - 1
                }
                None => {
                    self.trace.losses.add(LossKind::EventMalformed, 1);
                    continue;
                }
            };
            let memory = match row.kind {
                OpKind::Kernel | OpKind::Graph => Default::default(),
                _ => memory_kinds(names.text(row.name)),
            };
            let op = GpuOp {
                kind: row.kind,
                start: row.start,
                end: row.end,
                name: names.get_demangled(row.name, &mut self.trace),
                device: DeviceId(device as u16),
                stream: row.stream,
                process: ProcessId::default(),
                correlation: row.correlation,
                shape: self.trace.ops.intern_shape(row.shape),
                bytes: row.bytes,
                graph_node: row.graph_node,
                memory,
            };
            if let Some((_, own)) = collective {
                let group = names.get(own.group.0, &mut self.trace);
                let collective = Collective { group, name: names.get(own.name.0, &mut self.trace), ..*own };
                let row = self.trace.ops.len() as u32;
                self.trace.ops.collectives.insert(row, collective);
            }
            if let Some((_, name)) = node_name {
                self.node_names.push((self.trace.ops.len(), names.get(*name, &mut self.trace)));
            }
            self.trace.ops.push(op);
        }
    }

    /// Gives the names of nodes to the nodes, which all launches of a graph share.
    fn name_nodes(&mut self) {
        let Trace { ops, graph_nodes, .. } = &mut self.trace;
        for (row, name) in &self.node_names {
            let (process, node) = (ops.process.get(*row).copied().unwrap_or_default(), ops.graph_node(*row));
            if graph_nodes.stack_of(process, node).is_none() {
                graph_nodes.insert(process, node, &[*name]);
            }
        }
    }

    fn add_calls(&mut self, rows: &Rows, threads: &[(ThreadId, ProcessId)], names: &mut BlockNames<'_>) {
        let mut classes: Vec<Option<CallClass>> = vec![None; rows.names.len()];
        for row in &rows.calls {
            let (thread, process) = threads[row.thread as usize];
            let class =
                *classes[row.name as usize].get_or_insert_with(|| CallClass::of(names.text(row.name)));
            let call = Call {
                start: row.start,
                end: row.end,
                name: names.get(row.name, &mut self.trace),
                class,
                process,
                thread,
                correlation: row.correlation,
            };
            self.trace.calls.push(call);
        }
    }

    /// Returns the ids of a thread and of its process in the trace.
    fn thread(&mut self, key: &ThreadKey) -> (ThreadId, ProcessId) {
        let process = match self.process_ids.get(&key.pid) {
            Some(&process) => process,
            None => {
                let process = ProcessId((self.trace.processes.len() + self.processes.len()) as u32);
                self.processes.push(key.pid.clone());
                self.process_ids.insert(key.pid.clone(), process);
                process
            }
        };
        if let Some(&thread) = self.thread_ids.get(key) {
            return (thread, process);
        }
        let thread = ThreadId((self.trace.threads.len() + self.threads.len()) as u32);
        self.threads.push((key.clone(), process));
        self.thread_ids.insert(key.clone(), thread);
        (thread, process)
    }

    /// Completes what needed the whole file: devices, launching processes, names, the time base.
    pub fn finish(mut self, header: &Header) -> Trace {
        if header.distributed.is_some() {
            self.trace.distributed.clone_from(&header.distributed);
        }
        self.place_on_devices(header);
        self.find_launching_processes();
        self.name_nodes();
        self.name_processes_and_threads();
        self.shift(header.base);
        std::mem::take(&mut self.readings).settle(header.base, &mut self.trace);
        self.sequences.link(&mut self.trace);
        self.shapes.link(&mut self.trace);
        for option in &header.options {
            self.trace.losses.add(*option, 1);
        }
        // Profilers before torch 2.4 wrote whole microseconds throughout; a later one may write one without decimals by chance.
        let ops = (self.trace.ops.len() - self.first_op) as u64;
        if self.whole_micros == ops {
            self.trace.losses.add(LossKind::TimeRounded, ops);
        }
        if self.trace.ops.len() > self.first_op && self.trace.calls.len() == self.first_call {
            self.trace.losses.add(LossKind::NoRuntime, 1);
        }
        if self.has_process(&["Ascend Hardware"]) {
            self.trace.losses.add_message(LossKind::OtherDevice, "Ascend NPU", 1);
        }
        self.trace
    }

    fn place_on_devices(&mut self, header: &Header) {
        for device in &header.devices {
            self.trace.add_device(device.clone());
        }
        // ROCm counts the processors of the host among the devices of events. Where all GPUs are alike, each number is one of them.
        let mut described_as = header.devices.iter().map(|device| Device { number: 0, ..device.clone() });
        let alike = described_as.next().filter(|first| described_as.all(|other| other == *first));
        let mut described = Vec::new();
        let mut ids = Vec::new();
        for &number in &self.devices {
            described.push(alike.is_some() || header.devices.iter().any(|device| device.number == number));
            ids.push(self.trace.add_device(Device { number, ..alike.clone().unwrap_or_default() }));
        }
        let mut undescribed = 0;
        for device in self.trace.ops.device.iter_mut().skip(self.first_op) {
            let position = device.index();
            undescribed += u64::from(!described[position]);
            *device = ids[position];
        }
        self.trace.losses.add(LossKind::OpNoDevice, undescribed);
    }

    /// Operations do not say which process launched them; the call with the same correlation id does.
    fn find_launching_processes(&mut self) {
        if self.trace.ops.len() == self.first_op {
            return;
        }
        let calls = &self.trace.calls;
        let processes = &calls.process[self.first_call..];
        let first = processes.first().copied();
        let launching = match first {
            Some(otherwise) if processes.iter().all(|&process| process == otherwise) => {
                Launching { index: Vec::new(), otherwise }
            }
            Some(otherwise) => {
                let rows = self.first_call..calls.len();
                let launch = |row: usize| (calls.correlation[row], calls.start[row], calls.process[row]);
                let mut index: Vec<(u32, Ns, ProcessId)> = rows.map(launch).collect();
                index.sort_unstable();
                Launching { index, otherwise }
            }
            // Without calls: the process that ran operators, or one that nothing is known of.
            None => {
                if self.processes.is_empty() {
                    self.processes.push(String::new());
                }
                Launching { index: Vec::new(), otherwise: ProcessId(self.trace.processes.len() as u32) }
            }
        };
        let ops = &mut self.trace.ops;
        let rows = ops.process.iter_mut().zip(&ops.correlation).zip(&ops.start).skip(self.first_op);
        for ((process, &correlation), &start) in rows {
            *process = launching.of(correlation, start);
        }
    }

    fn name_processes_and_threads(&mut self) {
        for pid in &self.processes {
            let named = self.process_names.get(pid);
            let number = pid.parse::<i64>().ok();
            // A process that is no number goes by its text.
            let name = named.map_or(if number.is_none() { pid } else { "" }, |name| name);
            self.trace.add_process(number.unwrap_or(0) as u32, name);
        }
        for (key, process) in &self.threads {
            let named = self.thread_names.get(key);
            let number = key.tid.parse::<i64>().ok();
            // So does a thread whose number is a pointer.
            let small = number.and_then(|n| u32::try_from(n).ok());
            let name = named.map_or(if small.is_none() { &key.tid } else { "" }, |name| name);
            self.trace.add_thread(*process, number.unwrap_or(0) as u32, name);
        }
    }

    /// Moves every time of this file by its base.
    fn shift(&mut self, base: Ns) {
        if base == 0 {
            return;
        }
        let trace = &mut self.trace;
        let columns = [
            (&mut trace.ops.start, self.first_op),
            (&mut trace.ops.end, self.first_op),
            (&mut trace.calls.start, self.first_call),
            (&mut trace.calls.end, self.first_call),
            (&mut trace.cpu_ops.start, self.first_cpu_op),
            (&mut trace.cpu_ops.end, self.first_cpu_op),
        ];
        for (column, first) in columns {
            column.iter_mut().skip(first).for_each(|time| *time += base);
        }
        let ranges = trace.ranges.rows.iter_mut().skip(self.first_range);
        for range in ranges.chain(trace.modules.iter_mut().skip(self.first_module)) {
            range.start += base;
            range.end += base;
        }
        for span in trace.stacks.spans.iter_mut().skip(self.first_span) {
            span.start += base;
            span.end += base;
        }
    }
}

/// Processes that launched operations, by correlation and time of the call.
struct Launching {
    index: Vec<(u32, Ns, ProcessId)>,
    otherwise: ProcessId,
}

impl Launching {
    fn of(&self, correlation: u32, start: Ns) -> ProcessId {
        let index = &self.index;
        // Of several with the same id, the last that began before the operation.
        let begin = index.partition_point(|&(c, _, _)| c < correlation);
        let end = index.partition_point(|&(c, s, _)| (c, s) <= (correlation, start));
        let found = index.get(begin..end.max(begin)).and_then(|same| same.last()).or(index.get(begin));
        found.filter(|(c, _, _)| *c == correlation).map_or(self.otherwise, |&(_, _, process)| process)
    }
}

/// Splits `LLM@prefill` into domain `LLM` and name `prefill`, as NVTX has them; other names with `@` stay whole.
fn domain_and_name(text: &str) -> (&str, &str) {
    let is_identifier = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    match text.split_once('@') {
        Some((domain, name)) if is_identifier(domain) && !name.is_empty() && !name.contains('@') => {
            (domain, name)
        }
        _ => ("", text),
    }
}

/// Parses the memory kinds in `Memcpy HtoD (Pageable -> Device)` and `Memset (Device)`.
fn memory_kinds(name: &str) -> (MemoryKind, MemoryKind) {
    let kind = |text: &str| match text.trim() {
        "Pageable" | "pageable" => MemoryKind::Pageable,
        "Pinned" | "pinned" => MemoryKind::Pinned,
        "Device" | "Array" | "device" | "array" => MemoryKind::Device,
        "Managed" | "managed" => MemoryKind::Managed,
        _ => MemoryKind::Unknown,
    };
    let inner =
        name.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map_or("", |(inner, _)| inner);
    match inner.split_once("->") {
        Some((from, to)) => (kind(from), kind(to)),
        None => (MemoryKind::Unknown, kind(inner)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_come_from_identifiers_only() {
        assert_eq!(domain_and_name("LLM@prefill"), ("LLM", "prefill"));
        for name in ["prefill", "a b@c", "a@b@c", "@x", "x@", "9a@b", "user@host.com: x@"] {
            assert_eq!(domain_and_name(name), ("", name));
        }
    }

    #[test]
    fn memory_is_told_by_the_name() {
        use MemoryKind::*;
        assert_eq!(memory_kinds("Memcpy HtoD (Pageable -> Device)"), (Pageable, Device));
        assert_eq!(memory_kinds("Memcpy DtoH (Device -> Pinned)"), (Device, Pinned));
        assert_eq!(memory_kinds("Memset (Device)"), (Unknown, Device));
        assert_eq!(memory_kinds("Memset (Unknown)"), (Unknown, Unknown));
        assert_eq!(memory_kinds("Memcpy"), (Unknown, Unknown));
    }

    #[test]
    fn colliding_correlations_go_to_the_latest_call_before() {
        let (a, b) = (ProcessId(3), ProcessId(4));
        let launching = Launching { index: vec![(7, 10, a), (7, 20, b), (9, 30, b)], otherwise: a };
        assert_eq!(launching.of(7, 15), a);
        assert_eq!(launching.of(7, 25), b);
        assert_eq!(launching.of(7, 5), a);
        assert_eq!(launching.of(9, 5), b);
        assert_eq!(launching.of(8, 50), a);
        assert_eq!(launching.of(99, 50), a);
    }
}
