//! GPU work and calls into the runtime and the driver. The large tables, of kernels and calls, are read in parts and straight into
//! columns.

use super::identity::{Identity, Strings};
use crate::model::Dictionary;
use crate::sqlite::{Tables, Value, ints};
use crate::{
    CallClass, GpuOp, LaunchShape, LossKind, MemoryKind, NameId, Ns, OpKind, ReadError, SampledCounters,
    SampledMetric, ShapeId, Trace,
};
use rustc_hash::FxHashMap;
use std::hash::Hash;

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

/// Lower bits of a type, which number the GPU.
const GPU_BITS: i64 = 0xff;

/// Time around the GPU work of which samples are kept, ns.
const MARGIN: Ns = 1_000_000;

/// A value before it is placed: type, time, counter, value.
type SampleRow = (i64, Ns, SampledMetric, f32);

/// Reads the samples around the GPU work of the trace, which is read before.
pub fn samples(db: &impl Tables, who: &Identity, trace: &mut Trace) -> Result<(), ReadError> {
    let mut known: FxHashMap<(i64, i64), SampledMetric> = FxHashMap::default();
    db.each("TARGET_INFO_GPU_METRICS", &["typeId", "metricId", "metricName"], |row| {
        if let (Some([kind, id]), Some(name)) = (ints(row), row[2].text())
            && let Some(metric) = SampledMetric::of_nsys(&name)
        {
            known.insert((kind, id), metric);
        }
    })?;
    let first = trace.ops.start.iter().min().copied();
    let last = trace.ops.end.iter().max().copied();
    let (Some((first, last)), false) = (first.zip(last), known.is_empty()) else {
        return Ok(());
    };
    let span = first.saturating_sub(MARGIN)..=last.saturating_add(MARGIN);
    let columns = ["timestamp", "typeId", "metricId", "value"];
    let parts = db.scan(
        "GPU_METRICS",
        &columns,
        |_| Vec::<SampleRow>::new(),
        |rows, row| {
            if let Some([at, kind, id, value]) = ints(row)
                && let Some(metric) = known.get(&(kind, id)).filter(|_| span.contains(&at))
            {
                rows.push((kind, at, *metric, value as f32));
            }
        },
    )?;
    let mut rows: Vec<SampleRow> = parts.into_iter().flatten().collect();
    rows.sort_unstable_by_key(|&(kind, at, metric, _)| (kind, at, metric));
    for of_gpu in rows.chunk_by(|a, b| a.0 == b.0) {
        let number = of_gpu.first().map_or(0, |row| (row.0 & GPU_BITS) as u32);
        let device = trace.add_device(who.gpu(number));
        let values: Vec<_> = of_gpu.iter().map(|&(_, at, metric, value)| (at, metric, value)).collect();
        trace.sampled.push(SampledCounters::windows(device, &values));
    }
    Ok(())
}

/// A dictionary that remembers the number last returned for each hint.
#[derive(Debug, Default)]
pub struct Distinct<T> {
    known: Dictionary<T>,
    last: Vec<u32>,
}

/// Larger hints share one entry.
const MOST_HINTS: usize = 1 << 16;

impl<T: Copy + Eq + Hash> Distinct<T> {
    /// Returns the number of a value. A value that repeats under its hint needs no look-up in the map.
    #[inline]
    pub fn number(&mut self, value: T, hint: usize) -> u32 {
        let hint = hint.min(MOST_HINTS);
        if let Some(&last) = self.last.get(hint)
            && self.known.values.get(last as usize) == Some(&value)
        {
            return last;
        }
        let number = self.known.number(value);
        if self.last.len() <= hint {
            self.last.resize(hint + 1, u32::MAX);
        }
        self.last[hint] = number;
        number
    }

    /// Returns the values in the order of their numbers.
    pub fn values(&self) -> &[T] {
        &self.known.values
    }
}

/// Appends a column; the first one is taken over with its capacity.
pub fn append<T: Copy>(to: &mut Vec<T>, from: Vec<T>) {
    if to.is_empty() {
        *to = from;
    } else {
        to.extend_from_slice(&from);
    }
}

/// Replaces the numbers of a part by their values, in place where both have one size.
pub fn replace<T: Copy>(numbers: Vec<u32>, values: &[T]) -> Vec<T> {
    numbers.into_iter().map(|number| values[number as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::Distinct;

    #[test]
    fn numbers_count_up_whatever_the_hint() {
        let mut list = Distinct::default();
        let numbers = [(7, 0), (7, 5), (9, 0), (7, 0), (9, 1 << 30), (8, 1 << 30), (9, 5)];
        assert_eq!(numbers.map(|(value, hint)| list.number(value, hint)), [0, 0, 1, 0, 1, 2, 1]);
        assert_eq!(list.values(), [7, 9, 8]);
    }
}
