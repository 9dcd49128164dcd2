//! GPU work and calls into the runtime and the driver. The large tables, of kernels and calls, are read in parts and straight into
//! columns.

use super::columns::{Distinct, Strings, append, replace};
use super::identity::Identity;
use crate::sqlite::{Tables, Value, ints};
use crate::{
    CallClass, GpuOp, LaunchShape, LossKind, MemoryKind, NameId, Ns, OpKind, ReadError, ShapeId, Trace,
};

/// Columns that every table of GPU work has.
pub const COMMON: [&str; 6] = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid"];

/// Reads copies, sets and whole graphs.
pub fn transfers_and_graphs(
    db: &impl Tables,
    who: &mut Identity,
    trace: &mut Trace,
) -> Result<(), ReadError> {
    let columns: Vec<&str> = COMMON
        .into_iter()
        .chain(["bytes", "graphNodeId", "copyKind", "srcKind", "dstKind", "memKind", "graphId"])
        .collect();
    for (table, kind) in [
        ("CUPTI_ACTIVITY_KIND_MEMCPY", OpKind::Copy),
        ("CUPTI_ACTIVITY_KIND_MEMSET", OpKind::Set),
        ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", OpKind::Graph),
    ] {
        db.each(table, &columns, |row| {
            let int = |i: usize| row[i].int().unwrap_or(0);
            let small = |i: usize| u32::try_from(int(i)).unwrap_or(0);
            let Some([start, end]) = ints(row) else {
                return trace.losses.add(LossKind::EventMalformed, 1);
            };
            if end < start {
                return trace.losses.add(LossKind::OpNegative, 1);
            }
            let (name, memory, graph_node) = match kind {
                OpKind::Copy => (OpKind::copy_name(int(8)), (memory(row[9]), memory(row[10])), int(7)),
                OpKind::Set => ("[CUDA memset]", (MemoryKind::Unknown, memory(row[11])), int(7)),
                _ => ("[CUDA graph]", Default::default(), int(12).max(0)),
            };
            trace.losses.add(LossKind::GraphWhole, u64::from(kind == OpKind::Graph));
            let global_pid = int(5) as u64;
            let op = GpuOp {
                kind,
                start,
                end,
                name: trace.names.intern(name),
                device: who.device(global_pid, small(2), trace),
                stream: small(3),
                process: who.process(global_pid, trace),
                correlation: int(4) as u32,
                shape: ShapeId::default(),
                bytes: int(6).max(0) as u64,
                graph_node: graph_node as u64,
                memory,
            };
            trace.ops.push(op);
        })?;
    }
    Ok(())
}

fn memory(value: Value<'_>) -> MemoryKind {
    match value.int() {
        Some(0) => MemoryKind::Pageable,
        Some(1) => MemoryKind::Pinned,
        Some(2 | 3 | 5) => MemoryKind::Device,
        Some(4 | 6) => MemoryKind::Managed,
        _ => MemoryKind::Unknown,
    }
}

const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";

/// Columns that kernels and calls have in common, as one part of a scan collects them.
#[derive(Default)]
struct EventPart {
    start: Vec<Ns>,
    end: Vec<Ns>,
    name: Vec<NameId>,
    correlation: Vec<u32>,
    malformed: u64,
    negative: u64,
    unnamed: u64,
}

impl EventPart {
    fn with_room(rows: usize) -> Self {
        Self {
            start: Vec::with_capacity(rows),
            end: Vec::with_capacity(rows),
            name: Vec::with_capacity(rows),
            correlation: Vec::with_capacity(rows),
            ..Self::default()
        }
    }

    /// Adds a row that begins with its times; returns its name, or `None` where it is left out.
    #[inline]
    fn add(
        &mut self,
        row: &[Value<'_>],
        (name, correlation): (Value<'_>, Value<'_>),
        strings: &Strings,
        unnamed: NameId,
    ) -> Option<NameId> {
        let Some([start, end]) = ints(row) else {
            self.malformed += 1;
            return None;
        };
        if end < start {
            self.negative += 1;
            return None;
        }
        let name = name.int().and_then(|id| strings.get(id));
        self.unnamed += u64::from(name.is_none());
        let name = name.unwrap_or(unnamed);
        self.start.push(start);
        self.end.push(end);
        self.name.push(name);
        self.correlation.push(correlation.int().map_or(0, |v| v as u32));
        Some(name)
    }

    fn count_losses(&self, negative: LossKind, trace: &mut Trace) {
        trace.losses.add(LossKind::EventMalformed, self.malformed);
        trace.losses.add(negative, self.negative);
        trace.losses.add(LossKind::NameMissing, self.unnamed);
    }
}

/// Rows collected by one part of the scan.
#[derive(Default)]
struct KernelPart {
    events: EventPart,
    stream: Vec<u32>,
    /// Up to the last row that has one.
    graph_node: Vec<u64>,
    /// Positions among `origins`.
    origin: Vec<u32>,
    /// Positions among `shapes`.
    shape: Vec<u32>,
    /// Process and device as the export numbers them.
    origins: Distinct<(u64, u32)>,
    shapes: Distinct<LaunchShape>,
}

/// Reads the kernels.
pub fn kernels(
    db: &impl Tables,
    strings: &Strings,
    who: &mut Identity,
    trace: &mut Trace,
) -> Result<(), ReadError> {
    // Where the export does not have the full name, the best of what it has.
    let name = ["demangledName", "shortName", "mangledName"]
        .into_iter()
        .find(|name| db.has_column(KERNELS, name))
        .unwrap_or("demangledName");
    let columns: Vec<&str> = COMMON
        .into_iter()
        .chain([
            name,
            "graphNodeId",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
            "registersPerThread",
            "staticSharedMemory",
            "dynamicSharedMemory",
        ])
        .collect();
    let unnamed = trace.names.intern("");
    let parts =
        db.scan(KERNELS, &columns, KernelPart::with_room, |part, row| part.add(row, strings, unnamed))?;
    for part in parts {
        part.append(who, trace);
    }
    Ok(())
}

impl KernelPart {
    fn with_room(rows: usize) -> Self {
        Self {
            events: EventPart::with_room(rows),
            stream: Vec::with_capacity(rows),
            origin: Vec::with_capacity(rows),
            shape: Vec::with_capacity(rows),
            ..Self::default()
        }
    }

    fn add(&mut self, row: &[Value<'_>], strings: &Strings, unnamed: NameId) {
        let small = |i: usize| row[i].int().and_then(|v| u32::try_from(v).ok()).unwrap_or(0);
        let Some(name) = self.events.add(row, (row[6], row[4]), strings, unnamed) else {
            return;
        };
        let shape = LaunchShape {
            grid: [small(8), small(9), small(10)],
            block: [small(11), small(12), small(13)],
            registers: small(14),
            static_shared: small(15),
            dynamic_shared: small(16),
        };
        let node = row[7].int().unwrap_or(0) as u64;
        if node != 0 {
            self.graph_node.resize(self.stream.len(), 0);
            self.graph_node.push(node);
        }
        self.stream.push(small(3));
        let process = row[5].int().map_or(0, |v| v as u64);
        self.origin.push(self.origins.number((process, small(2)), 0));
        // Launches of a kernel are alike more often than neighbours are.
        self.shape.push(self.shapes.number(shape, name.index()));
    }

    /// Appends the rows to the trace, with the ids of the trace in place of those of the export.
    fn append(self, who: &mut Identity, trace: &mut Trace) {
        let events = self.events;
        events.count_losses(LossKind::OpNegative, trace);
        let origins: Vec<_> = self
            .origins
            .values()
            .iter()
            .map(|&(process, device)| (who.process(process, trace), who.device(process, device, trace)))
            .collect();
        let ops = &mut trace.ops;
        let shapes: Vec<ShapeId> =
            self.shapes.values().iter().map(|&shape| ops.intern_shape(shape)).collect();
        let (processes, devices): (Vec<_>, Vec<_>) = origins.into_iter().unzip();
        let rows = self.stream.len();
        if !self.graph_node.is_empty() {
            ops.graph_node.resize(ops.start.len(), 0);
            append(&mut ops.graph_node, self.graph_node);
        }
        append(&mut ops.device, self.origin.iter().map(|&at| devices[at as usize]).collect());
        append(&mut ops.process, replace(self.origin, &processes));
        append(&mut ops.shape, replace(self.shape, &shapes));
        append(&mut ops.start, events.start);
        append(&mut ops.end, events.end);
        append(&mut ops.name, events.name);
        append(&mut ops.stream, self.stream);
        append(&mut ops.correlation, events.correlation);
        ops.kind.resize(ops.kind.len() + rows, OpKind::Kernel);
    }
}

/// Rows collected by one part of the scan.
#[derive(Default)]
struct CallPart {
    events: EventPart,
    /// Positions among `threads`.
    thread: Vec<u32>,
    threads: Distinct<u64>,
}

/// Reads the calls.
pub fn calls(
    db: &impl Tables,
    strings: &Strings,
    who: &mut Identity,
    trace: &mut Trace,
) -> Result<(), ReadError> {
    let columns = ["start", "end", "globalTid", "nameId", "correlationId"];
    let unnamed = trace.names.intern("");
    let parts = db.scan("CUPTI_ACTIVITY_KIND_RUNTIME", &columns, CallPart::with_room, |part, row| {
        part.add(row, strings, unnamed)
    })?;
    let mut classes = vec![None; trace.names.len()];
    for part in parts {
        part.append(&mut classes, who, trace);
    }
    Ok(())
}

impl CallPart {
    fn with_room(rows: usize) -> Self {
        Self { events: EventPart::with_room(rows), thread: Vec::with_capacity(rows), ..Self::default() }
    }

    fn add(&mut self, row: &[Value<'_>], strings: &Strings, unnamed: NameId) {
        if self.events.add(row, (row[3], row[4]), strings, unnamed).is_some() {
            let thread = row[2].int().map_or(0, |v| v as u64);
            self.thread.push(self.threads.number(thread, 0));
        }
    }

    /// Appends the rows to the trace. `classes` remembers what each function does.
    fn append(self, classes: &mut [Option<CallClass>], who: &mut Identity, trace: &mut Trace) {
        let events = self.events;
        events.count_losses(LossKind::CallNegative, trace);
        let threads: Vec<_> = self
            .threads
            .values()
            .iter()
            .map(|&thread| (who.process(thread, trace), who.thread(thread, trace)))
            .collect();
        let (calls, names) = (&mut trace.calls, &trace.names);
        calls.class.extend(events.name.iter().map(|&name| match classes.get_mut(name.index()) {
            Some(class) => *class.get_or_insert_with(|| CallClass::from_name(names.get(name))),
            None => CallClass::Other,
        }));
        let (processes, threads): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
        append(&mut calls.process, self.thread.iter().map(|&at| processes[at as usize]).collect());
        append(&mut calls.thread, replace(self.thread, &threads));
        append(&mut calls.start, events.start);
        append(&mut calls.end, events.end);
        append(&mut calls.name, events.name);
        append(&mut calls.correlation, events.correlation);
    }
}
