//! Traces of Perfetto (`.pftrace`, `.perfetto-trace`), plain or compressed with gzip.
//!
//! A render stage of a GPU is an operation, and its hardware queue a stream. A slice of a track is, by its category, an operator, a call,
//! GPU work or a range. A launch and its operation share a correlation, or an arrow. Counters on tracks, and packets of the system, are losses.

mod packets;

use crate::kineto::Category;
use crate::model::{WaitRow, WaitRows, stated_stream};
use crate::{
    Call, CallClass, Device, DeviceId, Format, GpuOp, LaunchShape, LossKind, Mark, NameId, Ns, OpKind,
    ProcessId, Range, RangeStyle, ReadError, RecordedEvent, Source, SourceFormat, ThreadId, Trace, input,
};
use packets::{EdgeKind, Fault, Notes, Packets, RenderStage, SliceEdge, Track};
use rustc_hash::FxHashMap;
use std::path::Path;

pub const FORMAT: Format = Format {
    name: "perfetto",
    description: "a Perfetto trace (.pftrace)",
    is_timeline: true,
    endings: &[".pftrace", ".perfetto-trace"],
    gpu_work_advice: "; a trace of Perfetto has it as render stages or as slices of the categories of the PyTorch profiler",
    detect: |head| packets::looks_like(&head.bytes).into(),
    read: |file, input| read(&file.path, &mut input.trace),
    ..Format::DEFAULT
};

/// Deepest chain of tracks that is followed. A broken trace may have a circle.
const DEEPEST: usize = 16;

/// End of the names of tracks of calls in roofgap's export.
const CALLS: &str = ": CUDA calls";

/// Reads a trace into `trace`.
pub fn read(path: &Path, trace: &mut Trace) -> Result<(), ReadError> {
    let damaged = |what: String| ReadError::damaged(path, "Perfetto trace", what);
    let content = input::open(path)?;
    let is_packed = content.is_packed();
    let mut packets = Packets::default();
    packets.read(content, trace).map_err(|fault| match fault {
        Fault::Io(error) => ReadError::content(path, is_packed, error),
        Fault::Malformed(what) => damaged(what.into()),
    })?;
    let Packets { tracks, events, stages, gpus, readings, .. } = packets;
    let ranks = tracks.values().filter(|track| track.is_process).filter_map(|track| rank_of(&track.name));
    let ranks: std::collections::BTreeSet<&str> = ranks.collect();
    if ranks.len() > 1 {
        let what = format!("a timeline of {} ranks in one", ranks.len());
        return Err(ReadError::unsupported(path, what, "give the captures of the ranks"));
    }
    if events.is_empty() && stages.is_empty() {
        let what = "a Perfetto trace without slices and without work of a GPU";
        let remedy = "give one with GPU render stages, or a trace of the PyTorch profiler";
        return Err(ReadError::unsupported(path, what, remedy));
    }
    let mut filler = Filler {
        tracks,
        trace,
        processes: FxHashMap::default(),
        threads: FxHashMap::default(),
        places: FxHashMap::default(),
        flows: FxHashMap::default(),
        waits: Vec::new(),
    };
    let devices = filler.describe_devices(gpus);
    filler.add_slices(events);
    filler.add_stages(stages, &devices);
    filler.settle_waits();
    readings.settle(0, trace);
    if !trace.ops.is_empty() && trace.calls.is_empty() {
        trace.losses.add(LossKind::NoRuntime, 1);
    }
    trace.sources.push(Source::new(path, SourceFormat::Perfetto));
    Ok(())
}

/// Returns the rank in the name of a process of roofgap's export.
fn rank_of(name: &str) -> Option<&str> {
    let (rank, _) = name.strip_prefix("rank ")?.split_once(": ")?;
    rank.bytes().all(|byte| byte.is_ascii_digit()).then_some(rank)
}

/// Thread of a track, and whether its slices nest.
#[derive(Clone, Copy)]
struct Place {
    thread: ThreadId,
    process: ProcessId,
    style: RangeStyle,
}

/// Turns events into rows of the trace.
struct Filler<'t> {
    tracks: FxHashMap<u64, Track>,
    trace: &'t mut Trace,
    /// By the track of the process; 0 for none.
    processes: FxHashMap<u64, ProcessId>,
    /// By process and name or number.
    threads: FxHashMap<(ProcessId, String), ThreadId>,
    places: FxHashMap<u64, Place>,
    /// Correlations of arrows.
    flows: FxHashMap<u64, u32>,
    waits: Vec<WaitRow>,
}

impl Filler<'_> {
    /// Pairs the begin and the end of each slice. Packets come in any order.
    fn add_slices(&mut self, mut events: Vec<SliceEdge>) {
        events.sort_by_key(|event| event.at);
        let last = events.last().map_or(0, |event| event.at);
        let mut open: FxHashMap<u64, Vec<SliceEdge>> = FxHashMap::default();
        for event in events {
            match event.kind {
                EdgeKind::Begin => open.entry(event.track).or_default().push(event),
                EdgeKind::End => match open.get_mut(&event.track).and_then(Vec::pop) {
                    Some(begin) => self.add_slice(&begin, event.at, false),
                    None => self.trace.losses.add(LossKind::RangeBegunBefore, 1),
                },
                EdgeKind::Instant => {
                    let Place { thread, .. } = self.place(event.track);
                    let (name, domain) = self.name_and_domain(&event);
                    self.trace.ranges.marks.push(Mark { at: event.at, domain, name, thread });
                }
            }
        }
        let mut left: Vec<SliceEdge> = open.into_values().flatten().collect();
        left.sort_by_key(|event| (event.at, event.track));
        for begin in left {
            self.trace.losses.add(LossKind::RangeOpen, 1);
            self.add_slice(&begin, last, true);
        }
    }

    fn name_and_domain(&mut self, event: &SliceEdge) -> (NameId, NameId) {
        let empty = self.trace.names.intern("");
        self.trace.losses.add(LossKind::RangeNoName, u64::from(event.name.is_none()));
        let domain = event.notes.as_ref().and_then(|notes| notes.domain);
        (event.name.unwrap_or(empty), domain.unwrap_or(empty))
    }

    fn add_slice(&mut self, begin: &SliceEdge, end: Ns, open: bool) {
        let (start, unsaid) = (begin.at, Notes::default());
        let notes = begin.notes.as_deref().unwrap_or(&unsaid);
        match begin.category {
            Category::Ignored => {}
            Category::Wait => self.add_wait(notes),
            Category::Unread(kind, name) => self.trace.losses.add_message(kind, name, 1),
            Category::Frame | Category::Counter | Category::Unknown => {
                self.trace.losses.add(LossKind::EventUnknown, 1)
            }
            Category::Work(kind) => {
                let track = self.tracks.get(&begin.track);
                let stream = notes.stream.or(track.and_then(|track| track.tid)).unwrap_or(begin.track);
                let gpu = notes.device.or(track.and_then(|track| track.pid)).unwrap_or(0);
                let number = u32::try_from(gpu).unwrap_or(0);
                let device = self.trace.add_device(Device { number, ..Device::default() });
                self.add_op((start, end), begin.name, kind, (device, stream as u32), None, notes);
            }
            Category::CpuOp => {
                let (name, _) = self.name_and_domain(begin);
                let Place { thread, .. } = self.place(begin.track);
                self.trace.cpu_ops.push(start, end, name, thread);
            }
            Category::Call => {
                let (name, _) = self.name_and_domain(begin);
                let Place { thread, process, .. } = self.place(begin.track);
                let class = CallClass::from_name(self.trace.names.get(name));
                let correlation = self.correlation(notes);
                self.trace.calls.push(Call { start, end, name, class, process, thread, correlation });
                // roofgap's export has the wait in its call.
                if notes.wait.is_some() {
                    self.add_wait(notes);
                }
            }
            Category::Annotation => {
                let (name, domain) = self.name_and_domain(begin);
                let Place { thread, process, style } = self.place(begin.track);
                let end_thread = thread;
                let range = Range { start, end, domain, name, process, thread, end_thread, style, open };
                self.trace.ranges.rows.push(range);
            }
        }
    }

    fn add_wait(&mut self, notes: &Notes) {
        let small = |number: u64| u32::try_from(number).ok();
        let Some(correlation) = small(notes.correlation).filter(|correlation| *correlation != 0) else {
            return self.trace.losses.add(LossKind::EventMalformed, 1);
        };
        let recorded = notes.record_stream.and_then(small).map(|stream| RecordedEvent {
            correlation: notes.record_call.and_then(small).unwrap_or(0),
            stream,
        });
        self.waits.push(WaitRow {
            process: ProcessId::default(),
            correlation,
            kind: notes.wait,
            stream: notes.stream.and_then(small).and_then(stated_stream),
            // A number until all devices are known.
            device: notes.device.and_then(|number| Some(DeviceId(number.try_into().ok()?))),
            event: None,
            recorded,
        });
    }

    /// Adds the waits, each with the process of its call.
    fn settle_waits(&mut self) {
        let calls = &self.trace.calls;
        let processes: FxHashMap<_, _> = calls.correlation.iter().zip(&calls.process).collect();
        let mut waits = std::mem::take(&mut self.waits);
        for wait in &mut waits {
            wait.process = processes.get(&wait.correlation).copied().copied().unwrap_or_default();
            let is_device = |number: DeviceId| {
                let is_it = |device: &Device| device.number == u32::from(number.0);
                Some(DeviceId(self.trace.devices.iter().position(is_it)? as u16))
            };
            wait.device = wait.device.and_then(is_device);
        }
        WaitRows { waits, records: Vec::new() }.settle(0, self.trace);
    }

    /// Returns the correlation of an event; for an arrow without one, a new number.
    fn correlation(&mut self, notes: &Notes) -> u32 {
        if notes.correlation != 0 {
            return notes.correlation as u32;
        }
        let next = u32::MAX - self.flows.len() as u32;
        notes.flow.map_or(0, |flow| *self.flows.entry(flow).or_insert(next))
    }

    fn add_op(
        &mut self,
        (start, end): (Ns, Ns),
        name: Option<NameId>,
        kind: OpKind,
        (device, stream): (DeviceId, u32),
        process: Option<ProcessId>,
        notes: &Notes,
    ) {
        let small = |value: u64| u32::try_from(value).unwrap_or(0);
        self.trace.losses.add(LossKind::NameMissing, u64::from(name.is_none()));
        let name = name.unwrap_or_else(|| self.trace.names.intern(""));
        let shape = self.trace.ops.intern_shape(LaunchShape {
            grid: notes.grid,
            block: notes.block,
            registers: small(notes.registers),
            // Static and dynamic come as one sum.
            dynamic_shared: small(notes.shared),
            ..LaunchShape::default()
        });
        let correlation = self.correlation(notes);
        let process = process.unwrap_or_else(|| self.launching_process());
        let graph_node = if notes.graph_node == 0 { 0 } else { notes.graph << 32 | notes.graph_node };
        if let Some(name) = notes.name.filter(|_| graph_node != 0)
            && self.trace.graph_nodes.stack_of(process, graph_node).is_none()
        {
            self.trace.graph_nodes.insert(process, graph_node, &[name]);
        }
        self.trace.ops.push(GpuOp {
            kind,
            start,
            end,
            name,
            device,
            stream,
            process,
            correlation,
            shape,
            bytes: notes.bytes,
            graph_node,
            ..GpuOp::default()
        });
    }

    /// Returns the process of GPU work that names none.
    fn launching_process(&mut self) -> ProcessId {
        match (self.trace.calls.process.last(), self.trace.processes.len()) {
            (Some(process), _) => *process,
            (None, 0) => self.trace.add_process(0, ""),
            (None, _) => ProcessId(0),
        }
    }

    fn add_stages(&mut self, stages: Vec<RenderStage>, devices: &[Device]) {
        if stages.is_empty() {
            return;
        }
        let launching = self.trace.calls.process.first().copied();
        let launching = launching.unwrap_or_else(|| self.launching_process());
        let mut queues: FxHashMap<Option<NameId>, (Option<u32>, ProcessId)> = FxHashMap::default();
        for stage in stages {
            match stage.notes.category {
                // Projections of ranges, and records of events.
                Some(Category::Ignored) => continue,
                Some(Category::Wait) => {
                    self.add_wait(&stage.notes);
                    continue;
                }
                Some(Category::Unread(kind, name)) => {
                    self.trace.losses.add_message(kind, name, 1);
                    continue;
                }
                _ => {}
            }
            let number = u32::try_from(stage.gpu).unwrap_or(0);
            let described = devices.get(stage.gpu as usize).cloned();
            let device = described.unwrap_or(Device { number, ..Device::default() });
            let device = self.trace.add_device(device);
            let (stream, process) = *queues.entry(stage.queue).or_insert_with(|| {
                let text = stage.queue.map_or("", |queue| self.trace.names.get(queue));
                let (stream, pid) = stream_and_pid(text);
                (stream, pid.and_then(|pid| process_of_pid(self.trace, pid)).unwrap_or(launching))
            });
            let name = stage.name.map_or("", |name| self.trace.names.get(name));
            let kind = match (stage.notes.category, name) {
                (_, WHOLE_GRAPH) => OpKind::Graph,
                (Some(Category::Work(kind)), _) => kind,
                (Some(_), _) => OpKind::Kernel,
                (_, name) if name.contains("memcpy") || name.starts_with("Memcpy") => OpKind::Copy,
                (_, name) if name.contains("memset") || name.starts_with("Memset") => OpKind::Set,
                _ => OpKind::Kernel,
            };
            self.trace.losses.add(LossKind::GraphWhole, u64::from(kind == OpKind::Graph));
            let end = stage.start.saturating_add(Ns::try_from(stage.duration).unwrap_or(Ns::MAX));
            let stream = stage.notes.stream.map(|stream| stream as u32).or(stream);
            let stream = stream.unwrap_or(stage.queue_number as u32);
            self.add_op((stage.start, end), stage.name, kind, (device, stream), Some(process), &stage.notes);
        }
    }

    /// Adds the GPUs that the trace describes, in the order of their numbers in events. roofgap's export has them as processes.
    fn describe_devices(&mut self, gpus: Vec<String>) -> Vec<Device> {
        let named =
            (0..).zip(gpus).map(|(number, name)| Device { number, name: Some(name), ..Device::default() });
        let mut devices: Vec<Device> = named.collect();
        if devices.is_empty() {
            devices = self.exported_devices();
        }
        for device in &devices {
            self.trace.add_device(device.clone());
        }
        devices
    }

    fn exported_devices(&self) -> Vec<Device> {
        let mut devices: Vec<(u64, Device)> = Vec::new();
        for track in self.tracks.values().filter(|track| track.is_process) {
            let described = track.name.strip_prefix("GPU ").and_then(|name| name.split_once(": "));
            if let Some((number, name)) = described
                && let (Ok(number), Some(pid)) = (number.parse(), track.pid)
            {
                let name = Some(name.to_owned()).filter(|name| name != "unknown");
                devices.push((pid, Device { number, name, ..Device::default() }));
            }
        }
        devices.sort_by_key(|(pid, _)| *pid);
        devices.into_iter().map(|(_, device)| device).collect()
    }

    /// Returns the thread of a track, or of the track around it.
    fn place(&mut self, uuid: u64) -> Place {
        if let Some(place) = self.places.get(&uuid) {
            return *place;
        }
        let (mut at, mut style) = (uuid, RangeStyle::PushPop);
        for _ in 0..DEEPEST {
            let track = self.tracks.get(&at).filter(|track| track.tid.is_none());
            let is_track = |uuid: &u64| self.tracks.get(uuid).is_some_and(|around| !around.is_process);
            let Some(parent) = track.and_then(|track| track.parent.filter(is_track)) else { break };
            (at, style) = (parent, RangeStyle::StartEnd);
        }
        let unknown = Track::default();
        let track = self.tracks.get(&at).unwrap_or(&unknown);
        let around = track.parent.and_then(|parent| self.tracks.get(&parent));
        let around = around.filter(|track| track.is_process);
        let pid = track.pid.or(around.and_then(|process| process.pid)).unwrap_or(0);
        let process_name = around.map_or("", |process| &process.name);
        let name = track.name.strip_suffix(CALLS).unwrap_or(&track.name);
        let tid = track.tid.unwrap_or(0) as u32;
        let key = match track.tid {
            Some(tid) => tid.to_string(),
            None if name.is_empty() => format!("track {at}"),
            None => name.to_owned(),
        };
        let new = || self.trace.add_process(pid as u32, process_name);
        let process = *self.processes.entry(pid).or_insert_with(new);
        let new = || self.trace.add_thread(process, tid, name);
        let thread = *self.threads.entry((process, key)).or_insert_with(new);
        let place = Place { thread, process, style };
        self.places.insert(uuid, place);
        place
    }
}

/// Name of a whole graph.
const WHOLE_GRAPH: &str = "[CUDA graph]";

/// Parses the stream and the process of a queue such as `stream 7` or `stream 7 of 1234 (2)`.
fn stream_and_pid(queue: &str) -> (Option<u32>, Option<u32>) {
    let mut words = queue.split_whitespace().skip_while(|word| !word.eq_ignore_ascii_case("stream"));
    let stream = words.nth(1).and_then(|word| word.trim_start_matches('#').parse().ok());
    let pid = words.next().filter(|word| *word == "of").and(words.next()).and_then(|word| word.parse().ok());
    (stream, pid)
}

/// Returns the process with a number, which roofgap's export has at the end of its name.
fn process_of_pid(trace: &Trace, pid: u32) -> Option<ProcessId> {
    let is_it = |name: NameId| {
        let last = trace.names.get(name).rsplit(' ').next();
        last.and_then(|word| word.parse().ok()) == Some(pid)
    };
    let position = trace.processes.iter().position(|process| process.pid == pid || is_it(process.name));
    position.map(|at| ProcessId(at as u32))
}

#[cfg(test)]
mod tests;
