//! Reads a capture into the trace.

use super::annotations::{Annotations, NodeRanges};
use super::demangle;
use super::identity::Identity;
use super::samples::{Samples, Stacks};
use super::{Place, failed, find_older, open, plain};
use crate::model::{EventKey, EventRow, WaitRow, WaitRows, stated_stream};
use crate::{
    Call, CallClass, DeviceId, Format, GpuOp, LaunchShape, LossKind, MemoryKind, NameId, Ns, OpKind,
    ProcessId, ReadError, RecordedEvent, RecordedWindows, ShapeId, Sniffed, Source, SourceFormat, ThreadId,
    Trace, WaitKind,
};
use roofgap_wire::{self as wire, Ending, Header, Reader, Record};
use rustc_hash::{FxHashMap, FxHashSet};
use std::io::Read;
use std::path::Path;

pub const FORMAT: Format = Format {
    name: "native",
    description: "a native capture",
    profiler: "native",
    is_timeline: true,
    endings: &[".rgcap"],
    detect: |head| wire::looks_like(&head.bytes).into(),
    read: |file, input| read(file, &mut input.trace).map(drop),
    ..Format::DEFAULT
};

/// Reads a capture into `trace`, which may have other inputs already. The caller sorts. Returns how it ends.
pub fn read(file: &Sniffed, trace: &mut Trace) -> Result<Ending, ReadError> {
    // Unpacked before the first event: damaged compressed data adds none.
    file.unpacked(|content| {
        let path = &file.path;
        let mut reader = open(content)?;
        let header = *reader.header();
        let mut capture = Capture::new(&header, path, trace);
        capture.read_older(path, &header);
        each_record(&mut reader, path, |record| capture.record(record))?;
        // `next_frame` has returned `None`, so the ending is known.
        let ending = reader.ending().unwrap_or(Ending::Cut { at: 0, why: wire::CutReason::Torn });
        let has_note = wire::note_path(&plain(path)).exists();
        capture.finish(ending, has_note);
        Ok(ending)
    })
}

/// Reads the kernel names of a capture as pairs: demangled, as in the trace, and mangled, as other tools need them.
///
/// # Errors
/// Fails when the file is not a readable capture.
pub fn kernel_names(path: &Path) -> Result<Vec<(String, String)>, ReadError> {
    let mut names = Vec::new();
    each_record(&mut open(path)?, path, |record| {
        if let Record::TextEntry(entry) = record {
            let text = entry.text.to_str();
            names.push((demangle(&text).unwrap_or_else(|| text.to_string()), text.into_owned()));
        }
    })?;
    Ok(names)
}

/// Passes the records that are left of a capture to a function.
fn each_record(
    reader: &mut Reader<impl Read>,
    path: &Path,
    mut each: impl FnMut(&Record<'_>),
) -> Result<(), ReadError> {
    while let Some(records) = reader.next_frame().map_err(|error| failed(path, error))? {
        records.for_each(|record| each(&record));
    }
    Ok(())
}

/// A capture on its way into the trace.
struct Capture<'t> {
    trace: &'t mut Trace,
    process: ProcessId,
    who: Identity,
    place: Place,
    annotations: Annotations,
    nodes: NodeRanges,
    texts: FxHashMap<u32, NameId>,
    shapes: FxHashMap<u32, (NameId, ShapeId)>,
    streams: FxHashMap<u32, (DeviceId, u32)>,
    /// Numbers of devices by context.
    contexts: FxHashMap<u32, u16>,
    syncs: Vec<wire::SyncCall>,
    call_names: FxHashMap<u32, (NameId, CallClass)>,
    /// Offset of CUPTI's clock to the clock of the annotations, ns.
    offset: Ns,
    clock_known: bool,
    losses: FxHashMap<String, u64>,
    samples: Samples,
    stacks: Stacks,
    /// Edges of the recorded windows.
    edges: Vec<(bool, Ns)>,
    first: (usize, usize),
    last: Ns,
}

impl<'t> Capture<'t> {
    fn new(header: &Header, path: &Path, trace: &'t mut Trace) -> Self {
        let source = Source::new(path, SourceFormat::Native);
        trace.sources.push(Source { schema_version: Some(header.version.to_string()), ..source });
        Self {
            process: trace.add_process(header.pid, ""),
            who: Identity::default(),
            place: Place::default(),
            annotations: Annotations::default(),
            nodes: NodeRanges::default(),
            texts: FxHashMap::default(),
            shapes: FxHashMap::default(),
            streams: FxHashMap::default(),
            contexts: FxHashMap::default(),
            syncs: Vec::new(),
            call_names: FxHashMap::default(),
            offset: 0,
            clock_known: false,
            losses: FxHashMap::default(),
            samples: Samples::default(),
            stacks: Stacks::default(),
            edges: Vec::new(),
            first: (trace.ops.len(), trace.calls.len()),
            last: 0,
            trace,
        }
    }

    /// Reads the older segment of a capture that keeps only the last seconds, where there is one of the same process.
    fn read_older(&mut self, path: &Path, header: &Header) {
        let Some(mut older) = find_older(path).and_then(|older| open(&older).ok()) else {
            return;
        };
        let other = older.header();
        if (other.pid, other.start_ticks) != (header.pid, header.start_ticks) {
            return;
        }
        // It has no end record unless it was cut on request: the recording goes on in the newer segment.
        while let Ok(Some(records)) = older.next_frame() {
            records.for_each(|record| self.record(&record));
        }
        let whole = matches!(
            older.ending(),
            Some(Ending::Complete { .. } | Ending::Cut { why: wire::CutReason::NoEnd, .. })
        );
        self.trace.losses.add(LossKind::CaptureCut, u64::from(!whole));
    }

    fn record(&mut self, record: &Record<'_>) {
        match record {
            Record::Kernel(kernel) => self.kernel(kernel),
            Record::Call(call) => self.call(call),
            Record::Memcpy(copy) => self.copy(copy),
            Record::Memset(set) => self.set(set),
            Record::GraphLaunch(graph) => self.graph(graph),
            Record::NvtxEvent(event) => {
                self.last = self.last.max(moment(event.at));
                self.annotations.event(event, self.trace);
            }
            Record::NvtxPop(pop) => {
                self.last = self.last.max(moment(pop.at));
                self.annotations.pop(pop);
            }
            Record::NvtxEnd(end) => {
                self.last = self.last.max(moment(end.at));
                self.annotations.end(end);
            }
            Record::GraphNode(node) => self.nodes.add(node, &self.annotations),
            Record::TextEntry(entry) => {
                let text = entry.text.to_str();
                let readable = demangle(&text);
                let name = self.trace.names.intern(readable.as_deref().unwrap_or(&text));
                self.texts.insert(entry.id, name);
            }
            Record::LaunchShape(shape) => self.shape(shape),
            Record::StreamEntry(entry) => {
                let number = u16::try_from(entry.device).unwrap_or(u16::MAX);
                self.streams.insert(entry.id, (DeviceId(number), entry.stream));
                self.contexts.insert(entry.context, number);
            }
            Record::CallName(entry) => {
                let name = entry.name.to_str();
                let class = CallClass::from_name(name.trim_start_matches('_'));
                let id = self.trace.names.intern(&name);
                self.call_names.insert(entry.api, (id, class));
            }
            Record::Domain(domain) => {
                let name = self.trace.names.intern(&domain.name.to_str());
                self.annotations.domains.insert(domain.id, name);
            }
            Record::Registered(string) => {
                let name = self.trace.names.intern(&string.text.to_str());
                self.annotations.strings.insert(string.id, name);
            }
            Record::Thread(thread) => self.who.see_thread(thread),
            Record::ThreadName(name) => self.who.name_thread(name),
            Record::Device(device) => self.who.see_device(device),
            Record::Process(process) => {
                let name = self.trace.names.intern(&process.name.to_str());
                if let Some(known) = self.trace.processes.get_mut(self.process.index()) {
                    known.name = name;
                }
            }
            Record::Cupti(cupti) => {
                if let Some(source) = self.trace.sources.last_mut() {
                    source.tool_version = Some(format!("CUPTI {}", cupti.version));
                }
            }
            Record::CounterMetric(metric) => self.samples.name(metric),
            Record::CounterSample(sample) => {
                let window = (self.time(sample.start), self.time(sample.end));
                self.samples.add(sample, window);
            }
            Record::StackFrame(frame) => self.stacks.name(frame, self.trace),
            Record::StackSample(sample) => self.stacks.add(sample, moment(sample.at), self.trace),
            Record::LauncherVariable(_) | Record::Host(_) => self.place.take(record),
            Record::ClockPair(clocks) => self.clocks(clocks),
            Record::Window(window) => self.edges.push((window.on == 1, moment(window.at))),
            // Counts are totals: the last one holds.
            Record::Loss(loss) => drop(self.losses.insert(loss.id.to_str().into_owned(), loss.count)),
            Record::Malformed(_) => self.trace.losses.add(LossKind::EventMalformed, 1),
            Record::Unknown(_) => self.trace.losses.add(LossKind::EventUnknown, 1),
            Record::SyncCall(sync) => self.syncs.push(*sync),
            Record::Synchronization(sync) => {
                let &wire::Synchronization { kind, correlation, context, stream, start: at, .. } = sync;
                let kind = u8::try_from(kind).unwrap_or(u8::MAX);
                self.syncs.push(wire::SyncCall { kind, correlation, context, stream, event: 0, at });
            }
            // They say nothing of the program.
            Record::Category(_) | Record::Flush(_) | Record::End(_) => {}
        }
    }

    /// Computes the offset of CUPTI's clock, which differs only if the program replaced it.
    fn clocks(&mut self, clocks: &wire::ClockPair) {
        if self.clock_known {
            return;
        }
        self.clock_known = true;
        if !(clocks.before..=clocks.after).contains(&clocks.cupti) {
            let middle = clocks.before / 2 + clocks.after / 2;
            self.offset = moment(clocks.cupti) - moment(middle);
        }
    }

    fn shape(&mut self, shape: &wire::LaunchShape) {
        let name = self.name(shape.name);
        let id = self.trace.ops.intern_shape(LaunchShape {
            grid: shape.grid,
            block: shape.block,
            registers: shape.registers,
            static_shared: shape.static_shared,
            dynamic_shared: shape.dynamic_shared,
        });
        self.shapes.insert(shape.id, (name, id));
    }

    fn name(&mut self, id: u32) -> NameId {
        self.texts.get(&id).copied().unwrap_or_else(|| {
            self.trace.losses.add(LossKind::NameMissing, 1);
            self.trace.names.intern("")
        })
    }

    /// Adds a GPU operation with the fields of every kind to those given; counts a loss when its times are invalid.
    fn op(&mut self, (start, end): (u64, u64), stream_id: u32, correlation: u32, op: GpuOp) {
        if start == 0 || end == 0 {
            return self.trace.losses.add(LossKind::EventMalformed, 1);
        }
        let (start, end) = (self.time(start), self.time(end));
        if end < start {
            return self.trace.losses.add(LossKind::OpNegative, 1);
        }
        self.last = self.last.max(end);
        self.trace.losses.add(LossKind::GraphWhole, u64::from(op.kind == OpKind::Graph));
        let (device, stream) = self.streams.get(&stream_id).copied().unwrap_or_default();
        self.trace.ops.push(GpuOp { start, end, device, stream, process: self.process, correlation, ..op });
    }

    /// Converts a time of CUPTI's clock to the clock of the annotations.
    fn time(&self, at: u64) -> Ns {
        moment(at).saturating_sub(self.offset)
    }

    fn kernel(&mut self, kernel: &wire::Kernel) {
        let (name, shape) = match self.shapes.get(&kernel.shape) {
            Some(&known) => known,
            None => (self.name(u32::MAX), ShapeId::default()),
        };
        let op = GpuOp { name, shape, graph_node: kernel.node, ..GpuOp::default() };
        self.op((kernel.start, kernel.end), kernel.stream_id, kernel.correlation, op);
    }

    fn copy(&mut self, copy: &wire::Memcpy) {
        let op = GpuOp {
            kind: OpKind::Copy,
            name: self.trace.names.intern(OpKind::copy_name(copy.kind.into())),
            bytes: copy.bytes,
            graph_node: copy.node,
            memory: (memory(copy.from), memory(copy.to)),
            ..GpuOp::default()
        };
        self.op((copy.start, copy.end), copy.stream_id, copy.correlation, op);
    }

    fn set(&mut self, set: &wire::Memset) {
        let op = GpuOp {
            kind: OpKind::Set,
            name: self.trace.names.intern("[CUDA memset]"),
            bytes: set.bytes,
            graph_node: set.node,
            memory: (MemoryKind::Unknown, memory(set.memory as u8)),
            ..GpuOp::default()
        };
        self.op((set.start, set.end), set.stream_id, set.correlation, op);
    }

    fn graph(&mut self, graph: &wire::GraphLaunch) {
        let name = self.trace.names.intern("[CUDA graph]");
        let op = GpuOp { kind: OpKind::Graph, name, graph_node: graph.graph.into(), ..GpuOp::default() };
        self.op((graph.start, graph.end), graph.stream_id, graph.correlation, op);
    }

    fn call(&mut self, call: &wire::Call) {
        let (start, end) = (self.time(call.start), self.time(call.end));
        if end < start {
            self.trace.losses.add(LossKind::CallNegative, 1);
            return;
        }
        self.last = self.last.max(end);
        let (name, class) = *self.call_names.entry(call.api).or_insert_with(|| {
            let side = if call.api >> 31 == 1 { "driver" } else { "runtime" };
            let text = format!("[CUDA {side} call {}]", call.api & (u32::MAX >> 1));
            (self.trace.names.intern(&text), CallClass::Other)
        });
        self.trace.calls.push(Call {
            start,
            end,
            name,
            class,
            process: self.process,
            thread: ThreadId(call.thread),
            correlation: call.correlation,
        });
    }

    /// Settles what needs the whole capture. `has_note`: the collector left a note that the program closed the capture.
    fn finish(mut self, ending: Ending, has_note: bool) {
        let trace = self.trace;
        self.who.settle_threads(self.process, self.first.1, trace);
        let devices = self.who.settle_devices(self.first.0, trace);
        self.samples.settle(&self.who, trace);
        self.nodes.settle(self.process, &self.annotations, trace);
        self.annotations.settle(self.process, self.last, &mut self.who, trace);
        // Other processes of the same rank tell the same.
        if trace.distributed.is_none() {
            trace.distributed = self.place.distributed();
        }
        trace.host = trace.host.take().or(self.place.host);
        let windows = RecordedWindows::from_edges(self.process, &self.edges, self.last);
        let device = |context| devices.get(self.contexts.get(&context)?).copied();
        wait_rows(self.process, &self.syncs, &windows, device).settle(self.first.1, trace);
        if !self.edges.is_empty() {
            let mut recorded = windows;
            cut_at_window_edges(self.first, &mut recorded, trace);
            trace.losses.add(LossKind::PartlyRecorded, recorded.gaps());
            trace.recorded.push(recorded);
        }
        if trace.ops.len() > self.first.0 && trace.calls.len() == self.first.1 {
            trace.losses.add(LossKind::NoRuntime, 1);
        }
        match ending {
            Ending::Complete { .. } => {}
            Ending::Cut { why: wire::CutReason::NoEnd, .. } if !has_note => {
                trace.losses.add(LossKind::EndMissing, 1)
            }
            Ending::Cut { .. } => trace.losses.add(LossKind::CaptureCut, 1),
        }
        for (id, count) in &self.losses {
            if let Some(kind) = loss_kind(id) {
                trace.losses.add(kind, *count);
            }
        }
    }
}

/// Returns the waits and the records of events of a process.
fn wait_rows(
    process: ProcessId,
    syncs: &[wire::SyncCall],
    windows: &RecordedWindows,
    device: impl Fn(u32) -> Option<DeviceId>,
) -> WaitRows {
    let mut rows = WaitRows::default();
    for &wire::SyncCall { kind, correlation, context, stream, event, at } in syncs {
        // An event of an earlier window may have been recorded again where nothing was recorded. Handles have less than 48 bits.
        let window = windows.window_of(moment(at), moment(at)).map_or(0, |window| window as u64);
        let event = (event != 0).then_some(EventKey { id: event ^ window << 48, context: 0, sync: None });
        match (kind, event, stated_stream(stream)) {
            (0, Some(event), Some(stream)) => rows.records.push(EventRow {
                process,
                event,
                recorded: RecordedEvent { correlation, stream },
            }),
            (0, ..) => {}
            (_, event, stream) => rows.waits.push(WaitRow {
                process,
                correlation,
                kind: WaitKind::from_cupti(kind.into()),
                stream,
                device: device(context),
                event,
                recorded: None,
            }),
        }
    }
    rows
}

/// Converts a time of the collector. One that no clock gives becomes the largest, which the limits of the trace leave out.
pub(super) fn moment(at: u64) -> Ns {
    Ns::try_from(at).unwrap_or(Ns::MAX)
}

/// Maps a loss of the collector to one of the model; `None` for losses that the records show themselves.
fn loss_kind(id: &str) -> Option<LossKind> {
    Some(match id {
        "cupti.dropped" | "cupti.foreign_buffer" => LossKind::ToolDropped,
        "nvtx.ring_full" | "nvtx.reentered" | "nvtx.too_many_threads" => LossKind::ToolDropped,
        "cupti.missing" | "cupti.refused" | "cupti.other_profiler" | "cupti.no_memory" => {
            LossKind::GpuNotRecorded
        }
        "cupti.kind_refused" => LossKind::KindNotRecorded,
        "cupti.serial_kernels" | "cupti.graph_nodes_refused" => LossKind::ToolWarning,
        "cupti.last_flush" | "cupti.no_flush" => LossKind::CaptureCut,
        "sampling.overflow" | "sampling.failed" => LossKind::SamplesDropped,
        "process.forked" => LossKind::ForkNotRecorded,
        _ => return None,
    })
}

/// Maps CUPTI's memory kinds.
fn memory(kind: u8) -> MemoryKind {
    match kind {
        1 => MemoryKind::Pageable,
        2 => MemoryKind::Pinned,
        3 | 4 | 6 => MemoryKind::Device,
        5 | 7 => MemoryKind::Managed,
        _ => MemoryKind::Unknown,
    }
}

/// Removes kernels of graphs that are not inside one window: CUPTI gives one that runs while recording ends the end time of a later
/// launch of the same graph, and one that runs while recording begins the start time of an earlier launch. Kernels launched one by one
/// have their own times.
///
/// A window whose last graph launches lost kernels ends before the first of them, so
/// that no step counts as recorded without all of its kernels. `first`: first operation and first call of the capture.
fn cut_at_window_edges(first: (usize, usize), recorded: &mut RecordedWindows, trace: &mut Trace) {
    let ops = &trace.ops;
    let is_cut = |row: usize| {
        row >= first.0
            && ops.kind[row] != OpKind::Graph
            && ops.graph_node(row) != 0
            && recorded.window_of(ops.start[row], ops.end[row]).is_none()
    };
    let (cut, kept): (Vec<u32>, Vec<u32>) = (0..ops.len() as u32).partition(|&row| is_cut(row as usize));
    if cut.is_empty() {
        return;
    }
    let launches: FxHashSet<u32> = cut.iter().map(|&row| ops.correlation[row as usize]).collect();
    let calls = &trace.calls;
    let mut ends: Vec<Ns> = recorded.windows.iter().map(|window| window.1).collect();
    for row in first.1..calls.len() {
        let at = calls.start[row];
        if launches.contains(&calls.correlation[row])
            && let Some(end) = recorded.window_of(at, at).and_then(|window| ends.get_mut(window))
        {
            *end = (*end).min(at.saturating_sub(1));
        }
    }
    for (window, end) in recorded.windows.iter_mut().zip(ends) {
        window.1 = end.max(window.0);
    }
    trace.losses.add(LossKind::WindowEdge, cut.len() as u64);
    trace.ops.keep_rows(kept);
}
