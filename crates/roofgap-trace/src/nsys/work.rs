//! What ran and who launched it: kernels, copies, sets, graphs and calls.

use super::identity::Identity;
use crate::sqlite::{Database, Value};
use crate::{
    Call, CallClass, GpuOp, LaunchShape, LossKind, MemoryKind, NameId, Ns, OpKind, ReadError, ShapeId, Trace,
};
use rustc_hash::FxHashMap;

/// Strings of the export by their id.
pub(super) type Strings = FxHashMap<i64, NameId>;

/// Columns that every table of GPU work has.
const COMMON: [&str; 6] = [
    "start",
    "end",
    "deviceId",
    "streamId",
    "correlationId",
    "globalPid",
];

/// A row of GPU work before its ids are resolved. Kept small: a million of these live at once.
#[derive(Clone, Copy)]
struct RawOp {
    start: Ns,
    end: Ns,
    global_pid: u64,
    name: i64,
    graph_node: u64,
    device: u32,
    stream: u32,
    correlation: u32,
    shape: u32,
}

/// What one part of a scan of kernels collects.
#[derive(Default)]
struct KernelPart {
    rows: Vec<RawOp>,
    shapes: Vec<LaunchShape>,
    shape_ids: FxHashMap<LaunchShape, u32>,
    malformed: u64,
}

/// Reads kernels, copies, sets and whole graphs.
pub(super) fn operations(
    db: &Database,
    strings: &Strings,
    who: &mut Identity,
    trace: &mut Trace,
) -> Result<(), ReadError> {
    kernels(db, strings, who, trace)?;
    transfers(db, who, trace)?;
    graphs(db, who, trace)
}

fn kernels(db: &Database, strings: &Strings, who: &mut Identity, trace: &mut Trace) -> Result<(), ReadError> {
    const TABLE: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
    let columns: Vec<&str> = COMMON
        .into_iter()
        .chain([
            "demangledName",
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
    let parts = db.scan(TABLE, &columns, KernelPart::default, |part, row| {
        let Some(mut op) = common(row) else {
            part.malformed += 1;
            return;
        };
        let small = |i: usize| row[i].int().and_then(|v| u32::try_from(v).ok()).unwrap_or(0);
        op.name = row[6].int().unwrap_or(-1);
        op.graph_node = row[7].int().unwrap_or(0) as u64;
        let shape = LaunchShape {
            grid: [small(8), small(9), small(10)],
            block: [small(11), small(12), small(13)],
            registers: small(14),
            static_shared: small(15),
            dynamic_shared: small(16),
        };
        op.shape = match part.rows.last() {
            // Neighbours are often alike; this spares the map.
            Some(last) if part.shapes.get(last.shape as usize) == Some(&shape) => last.shape,
            _ => *part.shape_ids.entry(shape).or_insert_with(|| {
                part.shapes.push(shape);
                part.shapes.len() as u32 - 1
            }),
        };
        part.rows.push(op);
    })?;
    let mut unknown = 0;
    for part in parts {
        trace.losses.add(LossKind::EventMalformed, part.malformed);
        let shapes: Vec<ShapeId> = part.shapes.iter().map(|&s| trace.ops.intern_shape(s)).collect();
        for raw in part.rows {
            let name = strings.get(&raw.name).copied().unwrap_or_else(|| {
                unknown += 1;
                trace.names.intern("")
            });
            let shape = shapes.get(raw.shape as usize).copied().unwrap_or_default();
            push(
                raw,
                OpKind::Kernel,
                name,
                shape,
                0,
                Default::default(),
                who,
                trace,
            );
        }
    }
    trace.losses.add(LossKind::NameMissing, unknown);
    Ok(())
}

fn transfers(db: &Database, who: &mut Identity, trace: &mut Trace) -> Result<(), ReadError> {
    let columns: Vec<&str> = COMMON
        .into_iter()
        .chain([
            "bytes",
            "graphNodeId",
            "copyKind",
            "srcKind",
            "dstKind",
            "memKind",
        ])
        .collect();
    for (table, kind) in [
        ("CUPTI_ACTIVITY_KIND_MEMCPY", OpKind::Copy),
        ("CUPTI_ACTIVITY_KIND_MEMSET", OpKind::Set),
    ] {
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
            push(op, kind, name, ShapeId::default(), bytes, memory, who, trace);
        })?;
    }
    Ok(())
}

fn graphs(db: &Database, who: &mut Identity, trace: &mut Trace) -> Result<(), ReadError> {
    db.each("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", &COMMON, |row| {
        let Some(op) = common(row) else {
            trace.losses.add(LossKind::EventMalformed, 1);
            return;
        };
        let name = trace.names.intern("[CUDA graph]");
        trace.losses.add(LossKind::GraphWhole, 1);
        push(
            op,
            OpKind::Graph,
            name,
            ShapeId::default(),
            0,
            Default::default(),
            who,
            trace,
        );
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
        name: 0,
        graph_node: 0,
        shape: 0,
    })
}

#[allow(clippy::too_many_arguments)] // one row, one call
fn push(
    raw: RawOp,
    kind: OpKind,
    name: NameId,
    shape: ShapeId,
    bytes: u64,
    memory: (MemoryKind, MemoryKind),
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
        shape,
        bytes,
        graph_node: raw.graph_node,
        memory,
    });
}

/// Reads the calls into the runtime and the driver.
pub(super) fn calls(
    db: &Database,
    strings: &Strings,
    who: &mut Identity,
    trace: &mut Trace,
) -> Result<(), ReadError> {
    #[derive(Default)]
    struct Part {
        rows: Vec<(Ns, Ns, u64, i64, u32)>,
        malformed: u64,
    }
    let columns = ["start", "end", "globalTid", "nameId", "correlationId"];
    let parts = db.scan(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        &columns,
        Part::default,
        |part, row| {
            let (Some(start), Some(end)) = (row[0].int(), row[1].int()) else {
                part.malformed += 1;
                return;
            };
            let thread = row[2].int().map_or(0, |v| v as u64);
            part.rows.push((
                start,
                end,
                thread,
                row[3].int().unwrap_or(-1),
                row[4].int().map_or(0, |v| v as u32),
            ));
        },
    )?;
    let mut known: FxHashMap<i64, (NameId, CallClass)> = FxHashMap::default();
    let mut unknown = 0;
    for part in parts {
        trace.losses.add(LossKind::EventMalformed, part.malformed);
        for (start, end, global, name, correlation) in part.rows {
            if end < start {
                trace.losses.add(LossKind::CallNegative, 1);
                continue;
            }
            let (name, class) = *known.entry(name).or_insert_with(|| {
                let id = strings.get(&name).copied().unwrap_or_else(|| {
                    unknown += 1;
                    trace.names.intern("")
                });
                (id, CallClass::of(trace.names.get(id)))
            });
            let thread = who.thread(global, trace);
            let process = who.process(global, trace);
            trace.calls.push(Call {
                start,
                end,
                name,
                class,
                process,
                thread,
                correlation,
            });
        }
    }
    trace.losses.add(LossKind::NameMissing, unknown);
    Ok(())
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
