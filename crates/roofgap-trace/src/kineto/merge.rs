//! The rows of the blocks, put into the trace under the ids of the trace.

use super::document::Header;
use super::frames::NamedFrame;
use super::rows::{BlockNames, Rows, SequenceRow, ThreadKey, ThreadRow, WaitLine};
use crate::model::{MOST_DEVICES, WaitRow, WaitRows};
use crate::vitals::Readings;
use crate::{
    BackwardLink, Call, CallClass, Collective, Device, DeviceId, GpuOp, HostSpan, LossKind, MemoryKind,
    NameId, Ns, OpKind, ProcessId, Range, RangeStyle, ShapedOperator, ThreadId, Trace,
};
use rustc_hash::FxHashMap;

/// What a reading adds to a trace. Ids of processes and threads are handed out at once; what they are called, which process
/// launched an operation and what the time base is, is known only at the end.
#[derive(Default)]
pub struct Merge {
    trace: Trace,
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
    sequences: Vec<SequenceRow>,
    waits: Vec<WaitLine>,
    readings: Readings,
    /// Operations whose duration has no decimals.
    whole_micros: u64,
    /// Events of a known kind, and all.
    pub known: u64,
    pub events: u64,
}

impl Merge {
    /// Fills a trace that has no events.
    pub fn new(trace: Trace) -> Self {
        Self { trace, ..Self::default() }
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
        self.waits.extend(&rows.waits);
        for (pid, name) in &rows.process_names {
            self.process_names.entry(pid.clone()).or_insert_with(|| name.clone());
        }
        for (key, name) in &rows.thread_names {
            self.thread_names.entry(key.clone()).or_insert_with(|| name.clone());
        }
        let threads: Vec<(ThreadId, ProcessId)> = rows.threads.iter().map(|key| self.thread(key)).collect();
        let mut names = BlockNames::new(rows);
        self.add_ops(rows, &mut names);
        self.add_calls(rows, &threads, &mut names);
        let first = self.trace.cpu_ops.len();
        self.sequences.extend(rows.sequences.iter().map(|row| SequenceRow { op: first + row.op, ..*row }));
        let mut name = |name| names.get(name, &mut self.trace);
        let shapes: Vec<_> = rows
            .shapes
            .iter()
            .map(|row| (row.op, [row.dims, row.types, row.values].map(&mut name)))
            .collect();
        for row in &rows.cpu_ops {
            let (thread, _) = threads[row.thread as usize];
            let name = names.get(row.name, &mut self.trace);
            self.trace.cpu_ops.push(row.start, row.end, name, thread);
        }
        for (op, [dims, types, values]) in shapes {
            let (ops, row) = (&self.trace.cpu_ops, first + op);
            let (thread, start, end, name) = (ops.thread[row], ops.start[row], ops.end[row], ops.name[row]);
            self.trace.shaped.push(ShapedOperator { thread, start, end, name, dims, types, values });
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
                .get_or_insert_with(|| NamedFrame::intern(names.text(row.name), &mut self.trace));
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
            if let Some((_, collective_row)) = collective {
                let group = names.get(collective_row.group.0, &mut self.trace);
                let collective = Collective {
                    group,
                    name: names.get(collective_row.name.0, &mut self.trace),
                    ..*collective_row
                };
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
                *classes[row.name as usize].get_or_insert_with(|| CallClass::from_name(names.text(row.name)));
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
        let devices = self.place_on_devices(header);
        self.find_launching_processes(&devices);
        self.name_nodes();
        self.name_processes_and_threads();
        self.shift(header.base);
        std::mem::take(&mut self.readings).settle(header.base, &mut self.trace);
        link_backward(&self.sequences, &mut self.trace);
        for option in &header.options {
            self.trace.losses.add(*option, 1);
        }
        // Profilers before torch 2.4 wrote whole microseconds throughout; a later one may write one without decimals by chance.
        let ops = self.trace.ops.len() as u64;
        if self.whole_micros == ops {
            self.trace.losses.add(LossKind::TimeRounded, ops);
        }
        if ops > 0 && self.trace.calls.is_empty() {
            self.trace.losses.add(LossKind::NoRuntime, 1);
        }
        if self.has_process(&["Ascend Hardware"]) {
            self.trace.losses.add_message(LossKind::OtherDevice, "Ascend NPU", 1);
        }
        self.trace
    }

    /// Returns the devices in the order of `devices`.
    fn place_on_devices(&mut self, header: &Header) -> Vec<DeviceId> {
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
        for device in &mut self.trace.ops.device {
            let position = device.index();
            undescribed += u64::from(!described[position]);
            *device = ids[position];
        }
        self.trace.losses.add(LossKind::OpNoDevice, undescribed);
        ids
    }

    /// Operations and waits do not say which process launched them; the call with the same correlation id does.
    fn find_launching_processes(&mut self, devices: &[DeviceId]) {
        let Trace { ops, calls, .. } = &mut self.trace;
        // Without calls: the process that ran operators, or one that nothing is known of.
        if !ops.is_empty() && calls.is_empty() && self.processes.is_empty() {
            self.processes.push(String::new());
        }
        let first = calls.process.first().copied().unwrap_or_default();
        let mut launches: Vec<(u32, Ns, ProcessId)> = Vec::new();
        if calls.process.iter().any(|process| *process != first) {
            let launch = |row: usize| (calls.correlation[row], calls.start[row], calls.process[row]);
            launches.extend((0..calls.len()).map(launch));
            launches.sort_unstable();
        }
        for ((process, &correlation), &start) in ops.process.iter_mut().zip(&ops.correlation).zip(&ops.start)
        {
            *process = launching_process(&launches, correlation, start).unwrap_or(first);
        }
        let wait = |line: &WaitLine| {
            let &WaitLine { start, kind, correlation, stream, device, recorded } = line;
            let device = self.devices.iter().position(|number| Some(*number) == device);
            WaitRow {
                process: launching_process(&launches, correlation, start).unwrap_or(first),
                correlation,
                kind: Some(kind),
                stream,
                device: device.and_then(|at| devices.get(at).copied()),
                event: None,
                recorded,
            }
        };
        let waits = self.waits.iter().map(wait).collect();
        WaitRows { waits, records: Vec::new() }.settle(0, &mut self.trace);
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
        let Trace { ops, calls, cpu_ops, ranges, modules, stacks, shaped, .. } = &mut self.trace;
        let starts = [&mut ops.start, &mut calls.start, &mut cpu_ops.start];
        let ends = [&mut ops.end, &mut calls.end, &mut cpu_ops.end];
        let columns = starts.into_iter().chain(ends).flatten();
        let ranges = ranges.rows.iter_mut().chain(modules).map(|range| [&mut range.start, &mut range.end]);
        let spans = stacks.spans.iter_mut().map(|span| [&mut span.start, &mut span.end]);
        let shaped = shaped.iter_mut().map(|operator| [&mut operator.start, &mut operator.end]);
        for time in columns.chain(ranges.chain(spans).chain(shaped).flatten()) {
            *time += base;
        }
    }
}

/// Returns the process of the call that launched an operation. `launches` are correlation, time and process of all calls, in order.
fn launching_process(launches: &[(u32, Ns, ProcessId)], correlation: u32, start: Ns) -> Option<ProcessId> {
    // Of several with the same id, the last that began before the operation.
    let begin = launches.partition_point(|&(id, ..)| id < correlation);
    let end = launches.partition_point(|&(id, at, _)| (id, at) <= (correlation, start));
    let launch = launches.get(begin..end.max(begin)).and_then(|same| same.last()).or(launches.get(begin));
    launch.filter(|(id, ..)| *id == correlation).map(|(.., process)| *process)
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

/// Links each backward operator with the forward operator of its sequence number: the innermost, where all of that number are on one
/// thread.
fn link_backward(sequences: &[SequenceRow], trace: &mut Trace) {
    if sequences.iter().all(|row| !row.backward) {
        return;
    }
    let ops = &trace.cpu_ops;
    let mut forward: FxHashMap<u64, Option<usize>> = FxHashMap::default();
    for &SequenceRow { op, number, .. } in sequences.iter().filter(|row| !row.backward) {
        let known = forward.entry(number).or_insert(Some(op));
        let same_thread = known.filter(|known| ops.thread[*known] == ops.thread[op]);
        *known = same_thread.map(|known| if ops.start[op] > ops.start[known] { op } else { known });
    }
    for &SequenceRow { op, number, .. } in sequences.iter().filter(|row| row.backward) {
        if let Some(&Some(forward)) = forward.get(&number) {
            trace.backward.push(BackwardLink {
                thread: ops.thread[op],
                start: ops.start[op],
                end: ops.end[op],
                forward_thread: ops.thread[forward],
                forward_start: ops.start[forward],
                forward_end: ops.end[forward],
            });
        }
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
        let launched = |id, at| launching_process(&[(7, 10, a), (7, 20, b), (9, 30, b)], id, at);
        assert_eq!(launched(7, 15), Some(a));
        assert_eq!(launched(7, 25), Some(b));
        assert_eq!(launched(7, 5), Some(a));
        assert_eq!(launched(9, 5), Some(b));
        assert_eq!(launched(8, 50), None);
        assert_eq!(launched(99, 50), None);
    }
}
