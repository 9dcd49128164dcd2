//! GPU work other than kernels: copies, sets and whole graphs.

use super::identity::Identity;
use crate::sqlite::{Database, Value};
use crate::{GpuOp, LossKind, MemoryKind, NameId, Ns, OpKind, ReadError, ShapeId, Trace};

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
pub fn transfers_and_graphs(db: &Database, who: &mut Identity, trace: &mut Trace) -> Result<(), ReadError> {
    transfers(db, who, trace)?;
    graphs(db, who, trace)
}

fn transfers(db: &Database, who: &mut Identity, trace: &mut Trace) -> Result<(), ReadError> {
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
                OpKind::Copy => (copy_name(row[8].int()), (memory(row[9]), memory(row[10]))),
                _ => ("[CUDA memset]", (MemoryKind::Unknown, memory(row[11]))),
            };
            let name = trace.names.intern(name);
            push(op, kind, name, (bytes, memory), who, trace);
        })?;
    }
    Ok(())
}

fn graphs(db: &Database, who: &mut Identity, trace: &mut Trace) -> Result<(), ReadError> {
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

fn copy_name(kind: Option<i64>) -> &'static str {
    match kind {
        Some(1) => "[CUDA memcpy Host-to-Device]",
        Some(2) => "[CUDA memcpy Device-to-Host]",
        Some(3) => "[CUDA memcpy Host-to-Array]",
        Some(4) => "[CUDA memcpy Array-to-Host]",
        Some(5) => "[CUDA memcpy Array-to-Array]",
        Some(6) => "[CUDA memcpy Array-to-Device]",
        Some(7) => "[CUDA memcpy Device-to-Array]",
        Some(8) => "[CUDA memcpy Device-to-Device]",
        Some(9) => "[CUDA memcpy Host-to-Host]",
        Some(10) => "[CUDA memcpy Peer-to-Peer]",
        Some(11) => "[CUDA memcpy Unified Host-to-Device]",
        Some(12) => "[CUDA memcpy Unified Device-to-Host]",
        Some(13) => "[CUDA memcpy Unified Device-to-Device]",
        _ => "[CUDA memcpy]",
    }
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
