//! GPU work and calls into the runtime and the driver. The large tables, of kernels and calls, are read in parts and straight into
//! columns.

use super::columns::{Distinct, Strings, append, replace};
use super::identity::Identity;
use super::tables::Tables;
use crate::sqlite::Value;
use crate::{
    CallClass, GpuOp, LaunchShape, LossKind, MemoryKind, NameId, Ns, OpKind, ReadError, ShapeId, Trace,
};

/// Columns that every table of GPU work has.
pub const COMMON: [&str; 6] = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid"];

/// A row of GPU work before its ids are resolved.
#[derive(Clone, Copy)]
struct RawOp {
    start: Ns,
    end: Ns,
    global_pid: u64,
    graph_node: u64,
    device: u32,
    stream: u32,
    correlation: u32,
}

/// Reads copies, sets and whole graphs.
pub fn transfers_and_graphs(
    db: &impl Tables,
    who: &mut Identity,
    trace: &mut Trace,
) -> Result<(), ReadError> {
    transfers(db, who, trace)?;
    graphs(db, who, trace)
}

fn transfers(db: &impl Tables, who: &mut Identity, trace: &mut Trace) -> Result<(), ReadError> {
    let columns: Vec<&str> = COMMON
        .into_iter()
        .chain(["bytes", "graphNodeId", "copyKind", "srcKind", "dstKind", "memKind"])
        .collect();
    for (table, kind) in
        [("CUPTI_ACTIVITY_KIND_MEMCPY", OpKind::Copy), ("CUPTI_ACTIVITY_KIND_MEMSET", OpKind::Set)]
    {
        db.each(table, &columns, |row| {
            let Some(mut op) = common(row) else {
                trace.losses.add(LossKind::EventMalformed, 1);
                return;
            };
            let bytes = row[6].int().unwrap_or(0).max(0) as u64;
            op.graph_node = row[7].int().unwrap_or(0) as u64;
            let (name, memory) = match kind {
                OpKind::Copy => {
                    (OpKind::copy_name(row[8].int().unwrap_or(0)), (memory(row[9]), memory(row[10])))
                }
                _ => ("[CUDA memset]", (MemoryKind::Unknown, memory(row[11]))),
            };
            let name = trace.names.intern(name);
            push(op, kind, name, (bytes, memory), who, trace);
        })?;
    }
    Ok(())
}

fn graphs(db: &impl Tables, who: &mut Identity, trace: &mut Trace) -> Result<(), ReadError> {
    let columns: Vec<&str> = COMMON.into_iter().chain(["graphId"]).collect();
    db.each("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", &columns, |row| {
        let Some(mut op) = common(row) else {
            trace.losses.add(LossKind::EventMalformed, 1);
            return;
        };
        op.graph_node = row[6].int().unwrap_or(0).max(0) as u64;
        let name = trace.names.intern("[CUDA graph]");
        trace.losses.add(LossKind::GraphWhole, 1);
        push(op, OpKind::Graph, name, Default::default(), who, trace);
    })
}

fn common(row: &[Value<'_>]) -> Option<RawOp> {
    Some(RawOp {
        start: row[0].int()?,
        end: row[1].int()?,
        device: row[2].int().and_then(|v| u32::try_from(v).ok()).unwrap_or(0),
        stream: row[3].int().and_then(|v| u32::try_from(v).ok()).unwrap_or(0),
        correlation: row[4].int().map_or(0, |v| v as u32),
        global_pid: row[5].int().map_or(0, |v| v as u64),
        graph_node: 0,
    })
}

fn push(
    raw: RawOp,
    kind: OpKind,
    name: NameId,
    (bytes, memory): (u64, (MemoryKind, MemoryKind)),
    who: &mut Identity,
    trace: &mut Trace,
) {
    if raw.end < raw.start {
        trace.losses.add(LossKind::OpNegative, 1);
        return;
    }
    let process = who.process(raw.global_pid, trace);
    let device = who.device(raw.global_pid, raw.device, trace);
    trace.ops.push(GpuOp {
        kind,
        start: raw.start,
        end: raw.end,
        name,
        device,
        stream: raw.stream,
        process,
        correlation: raw.correlation,
        shape: ShapeId::default(),
        bytes,
        graph_node: raw.graph_node,
        memory,
    });
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

/// Rows collected by one part of the scan.
#[derive(Default)]
struct KernelPart {
    start: Vec<Ns>,
    end: Vec<Ns>,
    name: Vec<NameId>,
    stream: Vec<u32>,
    correlation: Vec<u32>,
    /// Up to the last row that has one.
    graph_node: Vec<u64>,
    /// Positions among `origins`.
    origin: Vec<u32>,
    /// Positions among `shapes`.
    shape: Vec<u32>,
    /// Process and device as the export numbers them.
    origins: Distinct<(u64, u32)>,
    shapes: Distinct<LaunchShape>,
    malformed: u64,
    negative: u64,
    unnamed: u64,
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
            start: Vec::with_capacity(rows),
            end: Vec::with_capacity(rows),
            name: Vec::with_capacity(rows),
            stream: Vec::with_capacity(rows),
            correlation: Vec::with_capacity(rows),
            origin: Vec::with_capacity(rows),
            shape: Vec::with_capacity(rows),
            ..Self::default()
        }
    }

    fn add(&mut self, row: &[Value<'_>], strings: &Strings, unnamed: NameId) {
        let small = |i: usize| row[i].int().and_then(|v| u32::try_from(v).ok()).unwrap_or(0);
        let (Some(start), Some(end)) = (row[0].int(), row[1].int()) else {
            self.malformed += 1;
            return;
        };
        if end < start {
            self.negative += 1;
            return;
        }
        let name = row[6].int().and_then(|id| strings.get(id));
        self.unnamed += u64::from(name.is_none());
        let shape = LaunchShape {
            grid: [small(8), small(9), small(10)],
            block: [small(11), small(12), small(13)],
            registers: small(14),
            static_shared: small(15),
            dynamic_shared: small(16),
        };
        let node = row[7].int().unwrap_or(0) as u64;
        if node != 0 {
            self.graph_node.resize(self.start.len(), 0);
            self.graph_node.push(node);
        }
        self.start.push(start);
        self.end.push(end);
        self.name.push(name.unwrap_or(unnamed));
        self.stream.push(small(3));
        self.correlation.push(row[4].int().map_or(0, |v| v as u32));
        let process = row[5].int().map_or(0, |v| v as u64);
        self.origin.push(self.origins.number((process, small(2)), 0));
        // Launches of a kernel are alike more often than neighbours are.
        let near = name.unwrap_or(unnamed).index();
        self.shape.push(self.shapes.number(shape, near));
    }

    /// Appends the rows to the trace, with ids of its own in place of the export's.
    fn append(self, who: &mut Identity, trace: &mut Trace) {
        trace.losses.add(LossKind::EventMalformed, self.malformed);
        trace.losses.add(LossKind::OpNegative, self.negative);
        trace.losses.add(LossKind::NameMissing, self.unnamed);
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
        let rows = self.start.len();
        if !self.graph_node.is_empty() {
            ops.graph_node.resize(ops.start.len(), 0);
            append(&mut ops.graph_node, self.graph_node);
        }
        append(&mut ops.device, self.origin.iter().map(|&at| devices[at as usize]).collect());
        append(&mut ops.process, replace(self.origin, &processes));
        append(&mut ops.shape, replace(self.shape, &shapes));
        append(&mut ops.start, self.start);
        append(&mut ops.end, self.end);
        append(&mut ops.name, self.name);
        append(&mut ops.stream, self.stream);
        append(&mut ops.correlation, self.correlation);
        ops.kind.resize(ops.kind.len() + rows, OpKind::Kernel);
    }
}

/// Rows collected by one part of the scan.
#[derive(Default)]
struct CallPart {
    start: Vec<Ns>,
    end: Vec<Ns>,
    name: Vec<NameId>,
    correlation: Vec<u32>,
    /// Positions among `threads`.
    thread: Vec<u32>,
    threads: Distinct<u64>,
    malformed: u64,
    negative: u64,
    unnamed: u64,
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
        Self {
            start: Vec::with_capacity(rows),
            end: Vec::with_capacity(rows),
            name: Vec::with_capacity(rows),
            correlation: Vec::with_capacity(rows),
            thread: Vec::with_capacity(rows),
            ..Self::default()
        }
    }

    fn add(&mut self, row: &[Value<'_>], strings: &Strings, unnamed: NameId) {
        let (Some(start), Some(end)) = (row[0].int(), row[1].int()) else {
            self.malformed += 1;
            return;
        };
        if end < start {
            self.negative += 1;
            return;
        }
        let name = row[3].int().and_then(|id| strings.get(id));
        self.unnamed += u64::from(name.is_none());
        self.start.push(start);
        self.end.push(end);
        self.name.push(name.unwrap_or(unnamed));
        self.correlation.push(row[4].int().map_or(0, |v| v as u32));
        let thread = row[2].int().map_or(0, |v| v as u64);
        self.thread.push(self.threads.number(thread, 0));
    }

    /// Appends the rows to the trace. `classes` remembers what each function does.
    fn append(self, classes: &mut [Option<CallClass>], who: &mut Identity, trace: &mut Trace) {
        trace.losses.add(LossKind::EventMalformed, self.malformed);
        trace.losses.add(LossKind::CallNegative, self.negative);
        trace.losses.add(LossKind::NameMissing, self.unnamed);
        let threads: Vec<_> = self
            .threads
            .values()
            .iter()
            .map(|&thread| (who.process(thread, trace), who.thread(thread, trace)))
            .collect();
        let (calls, names) = (&mut trace.calls, &trace.names);
        calls.class.extend(self.name.iter().map(|&name| match classes.get_mut(name.index()) {
            Some(class) => *class.get_or_insert_with(|| CallClass::of(names.get(name))),
            None => CallClass::Other,
        }));
        let (processes, threads): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
        append(&mut calls.process, self.thread.iter().map(|&at| processes[at as usize]).collect());
        append(&mut calls.thread, replace(self.thread, &threads));
        append(&mut calls.start, self.start);
        append(&mut calls.end, self.end);
        append(&mut calls.name, self.name);
        append(&mut calls.correlation, self.correlation);
    }
}
