//! The timeline for Perfetto: as the JSON of `chrome://tracing`, or in Perfetto's own format.
//!
//! Stages have a track of their own. Each thread has a track for its ranges and operators and one for its CUDA calls, each
//! stream one for its operations. Arrows lead from a launch to its operation. Counters show power and clock of each device, and the
//! percentages measured for a kernel and launch shape.
//!
//! `chrome`, `perfetto`: the formats.

mod chrome;
mod perfetto;

use crate::Bundle;
use crate::document::kernels::COUNTER_SHARES;
use crate::export::{ExportError, FreeLines, write_whole};
use chrome::Chrome;
use flate2::Compression;
use flate2::write::GzEncoder;
use perfetto::Perfetto;
use roofgap_analyze::{Analysis, CounterRow, Launches, NO_CALL};
use roofgap_trace::{Ns, OpKind, ProcessId, RangeStyle, ThreadId, Trace};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

/// Format of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON of `chrome://tracing`.
    Chrome,
    /// Protocol buffers of Perfetto.
    Perfetto,
}

impl Format {
    /// Tells the format from the name of a file: `.pftrace` and `.perfetto-trace`, also before `.gz`, are Perfetto's own.
    pub fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let is_perfetto = name.ends_with(".pftrace") || name.ends_with(".perfetto-trace");
        if is_perfetto { Self::Perfetto } else { Self::Chrome }
    }

    fn writer<'a>(self, out: &'a mut dyn Write, first: Ns) -> io::Result<Box<dyn Writer + 'a>> {
        Ok(match self {
            Self::Chrome => Box::new(Chrome::new(out, first)?),
            Self::Perfetto => Box::new(Perfetto::new(out, first)?),
        })
    }
}

/// Writes the trace to a file, in the format of its name, compressed if it ends in `.gz`.
pub fn save(bundle: Bundle<'_>, path: &Path) -> Result<(), ExportError> {
    let nothing = |why| ExportError::Nothing { what: "timeline", path: path.to_path_buf(), why };
    let trace = bundle.trace.ok_or_else(|| nothing("the capture is not available"))?;
    if trace.span().is_none() {
        return Err(nothing("the inputs have totals or counters, but no single events"));
    }
    save_packed(path, |out| write(bundle, trace, Format::of(path), out))
}

/// Writes a file, compressed if its name ends in `.gz`.
fn save_packed(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), ExportError> {
    write_whole(path, |out| {
        if path.extension().is_some_and(|e| e == "gz") {
            let mut packed = GzEncoder::new(out, Compression::fast());
            fill(&mut packed)?;
            packed.finish().map(|_| ())
        } else {
            fill(out)
        }
    })
}

/// Writes the trace.
pub fn write(bundle: Bundle<'_>, trace: &Trace, format: Format, out: &mut dyn Write) -> io::Result<()> {
    // Marks do not count for the span, so one may come before it.
    let marks = trace.ranges.marks.iter().map(|mark| mark.at);
    let first = trace.span().map(|span| span.0).into_iter().chain(marks).min();
    let mut writer = format.writer(out, first.unwrap_or(0))?;
    events(bundle, trace, &mut *writer)?;
    writer.finish()
}

/// A rank of a job, and the moment in its clock that is the begin of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankPlace {
    /// Rank.
    pub rank: u32,
    /// Begin of the document in the clock of the rank, ns.
    pub begin: Ns,
}

/// Writes the trace of one rank.
type WriteRank<'a> = dyn FnMut(Bundle<'_>) -> io::Result<()> + 'a;

/// Writes the traces of several ranks to a file, each rank as a group of processes, in one clock. `load` passes a rank to the function
/// that it is given, so that only one is in memory.
pub fn save_ranks(
    path: &Path,
    ranks: &[RankPlace],
    mut load: impl FnMut(u32, &mut WriteRank<'_>) -> io::Result<()>,
) -> Result<(), ExportError> {
    save_packed(path, |out| {
        let mut writer = Format::of(path).writer(out, 0)?;
        for (at, place) in ranks.iter().enumerate() {
            let prefix = format!("rank {}: ", place.rank);
            writer.rank(Group { at: at as u32, prefix, first: place.begin });
            load(place.rank, &mut |bundle| match bundle.trace {
                Some(trace) => events(bundle, trace, &mut *writer),
                None => Ok(()),
            })?;
        }
        writer.finish()
    })
}

fn events(bundle: Bundle<'_>, trace: &Trace, writer: &mut dyn Writer) -> io::Result<()> {
    let tracks = Tracks::of(trace);
    tracks.describe(trace, writer)?;
    stages(bundle, writer)?;
    ranges(trace, &tracks, writer)?;
    operators(trace, &tracks, writer)?;
    calls(trace, &tracks, writer)?;
    let launches = bundle.stages.launches();
    operations(trace, &tracks, launches, writer)?;
    measured(bundle.analysis, trace, writer)?;
    vitals(trace, writer)
}

fn stages(bundle: Bundle<'_>, writer: &mut dyn Writer) -> io::Result<()> {
    if !bundle.stages.is_empty() {
        writer.process(Track::STAGES.pid, "stages", 0)?;
        writer.thread(Track::STAGES, "stages", 0)?;
    }
    for (at, stage) in bundle.analysis.stages.iter().enumerate() {
        for span in &bundle.stages.spans(at).instances {
            let (name, time) = (&stage.name, (span.start, span.end));
            writer.slice(Slice { track: Track::STAGES, category: "stage", name, time, args: &[] })?;
        }
    }
    Ok(())
}

fn ranges(trace: &Trace, tracks: &Tracks, writer: &mut dyn Writer) -> io::Result<()> {
    for (row, range) in trace.ranges.rows.iter().enumerate() {
        let Some(track) = tracks.thread(range.thread) else {
            continue;
        };
        let (name, domain) = (trace.names.get(range.name), trace.names.get(range.domain));
        let args: &[_] = if domain.is_empty() { &[] } else { &[("domain", Arg::Text(domain))] };
        let time = (range.start, range.end);
        match range.style {
            RangeStyle::PushPop => writer.slice(Slice { track, category: "range", name, time, args })?,
            RangeStyle::StartEnd => writer.async_slice(track, name, time, row as u64 + 1)?,
        }
    }
    for mark in &trace.ranges.marks {
        if let Some(track) = tracks.thread(mark.thread) {
            writer.instant(track, trace.names.get(mark.name), mark.at)?;
        }
    }
    Ok(())
}

fn operators(trace: &Trace, tracks: &Tracks, writer: &mut dyn Writer) -> io::Result<()> {
    let ops = &trace.cpu_ops;
    for (row, thread) in ops.thread.iter().enumerate() {
        if let Some(track) = tracks.thread(*thread) {
            let (name, time) = (trace.names.get(ops.name[row]), (ops.start[row], ops.end[row]));
            writer.slice(Slice { track, category: "operator", name, time, args: &[] })?;
        }
    }
    Ok(())
}

fn calls(trace: &Trace, tracks: &Tracks, writer: &mut dyn Writer) -> io::Result<()> {
    let calls = &trace.calls;
    for (row, thread) in calls.thread.iter().enumerate() {
        let Some(track) = tracks.calls(*thread) else { continue };
        let mut args = Vec::new();
        if calls.correlation[row] != 0 {
            args.push(("correlation", Arg::Number(calls.correlation[row].into())));
            args.extend(wait(trace, calls.process[row], calls.correlation[row]));
        }
        let (name, time) = (trace.names.get(calls.name[row]), (calls.start[row], calls.end[row]));
        writer.slice(Slice { track, category: "cuda", name, time, args: &args })?;
    }
    Ok(())
}

/// Returns the wait of a call, as the PyTorch profiler writes its parts.
fn wait(
    trace: &Trace,
    process: ProcessId,
    correlation: u32,
) -> impl Iterator<Item = (&'static str, Arg<'static>)> {
    let wait = trace.wait_of(process, correlation);
    let number = |number: u32| Arg::Number(number.into());
    let device = wait.and_then(|wait| trace.devices.get(wait.device?.index())).map(|device| device.number);
    let event = wait.and_then(|wait| wait.event);
    [
        wait.map(|wait| ("cuda_sync_kind", Arg::Text(wait.kind.as_str()))),
        device.map(|device| ("device", number(device))),
        wait.and_then(|wait| wait.stream).map(|stream| ("stream", number(stream))),
        event.map(|event| ("wait_on_stream", number(event.stream))),
        event.map(|event| ("wait_on_cuda_event_record_corr_id", number(event.correlation))),
    ]
    .into_iter()
    .flatten()
}

fn operations(
    trace: &Trace,
    tracks: &Tracks,
    launches: &Launches,
    writer: &mut dyn Writer,
) -> io::Result<()> {
    let ops = &trace.ops;
    for row in 0..ops.len() {
        let Some(track) = tracks.operation(row) else {
            continue;
        };
        let time: (Ns, Ns) = (ops.start[row], ops.end[row]);
        let name = trace.names.get(ops.name[row]);
        let category = ops.kind[row].as_str();
        let call = launches.call_of_op.get(row).copied().unwrap_or(NO_CALL) as usize;
        let mut args = Vec::with_capacity(5);
        if ops.kind[row] == OpKind::Kernel {
            let shape = ops.shape_of(row);
            let shared = i64::from(shape.static_shared) + i64::from(shape.dynamic_shared);
            args.extend([
                ("grid", Arg::Size(shape.grid)),
                ("block", Arg::Size(shape.block)),
                ("registers", Arg::Number(shape.registers.into())),
                ("shared_bytes", Arg::Number(shared)),
            ]);
        } else if let Some(transfer) = ops.transfers.get(&(row as u32)) {
            args.push(("bytes", Arg::Number(transfer.bytes as i64)));
        }
        if let Some(correlation) = trace.calls.correlation.get(call).filter(|id| **id != 0) {
            args.push(("correlation", Arg::Number((*correlation).into())));
        }
        writer.operation(Slice { track, category, name, time, args: &args })?;
        let thread = trace.calls.thread.get(call);
        if let (Some(from), Some(at)) = (thread.and_then(|t| tracks.calls(*t)), trace.calls.start.get(call)) {
            writer.flow((from, *at), (track, time.0), row as u64 + 1)?;
        }
    }
    Ok(())
}

/// Writes power and clock of each device while the trace was recorded.
fn vitals(trace: &Trace, writer: &mut dyn Writer) -> io::Result<()> {
    let Some((first, last)) = trace.span() else { return Ok(()) };
    for (index, gpu) in trace.devices.iter().enumerate() {
        let states = trace.vitals_of(gpu).into_iter().flat_map(|gpu| &gpu.states);
        for state in states {
            let at = state.at - trace.utc_offset;
            for (name, value) in [("power, W", state.watts), ("SM clock, MHz", state.sm_mhz)] {
                if let Some(value) = value.filter(|_| (first..=last).contains(&at)) {
                    writer.counter(device(index), name, at, value)?;
                }
            }
        }
    }
    Ok(())
}

/// Measured percentages that a timeline has.
const MEASURES: [&str; 3] = ["SM", "DRAM", "occupancy"];

/// Writes the measured percentages for every launch of the same kernel and shape.
fn measured(analysis: &Analysis, trace: &Trace, writer: &mut dyn Writer) -> io::Result<()> {
    let mut rows: BTreeMap<(&str, [u32; 3], [u32; 3]), &CounterRow> = BTreeMap::new();
    for row in &analysis.counters {
        rows.entry((&row.kernel, row.grid, row.block)).or_insert(row);
    }
    if rows.is_empty() {
        return Ok(());
    }
    let ops = &trace.ops;
    for op in (0..ops.len()).filter(|&op| ops.kind[op] == OpKind::Kernel) {
        let shape = ops.shape_of(op);
        let Some(row) = rows.get(&(trace.names.get(ops.name[op]), shape.grid, shape.block)) else {
            continue;
        };
        for (name, value) in COUNTER_SHARES.iter().filter(|(name, _)| MEASURES.contains(name)) {
            if let Some(value) = value(row) {
                let name = format!("{name} % measured for the launch shape");
                writer.counter(device(ops.device[op].index()), &name, ops.start[op], value)?;
                writer.counter(device(ops.device[op].index()), &name, ops.end[op], 0.0)?;
            }
        }
    }
    Ok(())
}

/// A track: a thread of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Track {
    pid: u32,
    tid: u32,
}

/// Processes of a rank at most.
const PROCESSES: u32 = 2_000_000;

impl Track {
    /// Track of the stages.
    const STAGES: Self = Self { pid: 1, tid: 1 };
}

/// The processes of one rank.
#[derive(Debug, Default)]
struct Group {
    /// Position of the rank among several.
    at: u32,
    /// Text before the names of its processes.
    prefix: String,
    /// First moment.
    first: Ns,
}

impl Group {
    /// Returns the number of a process among those of all ranks.
    fn pid(&self, pid: u32) -> u32 {
        PROCESSES.saturating_mul(self.at).saturating_add(pid)
    }

    /// Returns the number of an arrow or a slice among those of all ranks.
    fn id(&self, id: u64) -> u64 {
        (u64::from(self.at) << 40) + id
    }
}

/// A value beside an event.
#[derive(Debug, Clone, Copy)]
enum Arg<'a> {
    Number(i64),
    /// Size of a grid or a block.
    Size([u32; 3]),
    Text(&'a str),
}

/// Something that lasts.
#[derive(Debug, Clone, Copy)]
struct Slice<'a> {
    track: Track,
    category: &'a str,
    name: &'a str,
    time: (Ns, Ns),
    args: &'a [(&'a str, Arg<'a>)],
}

/// Writes the events of a timeline in one format.
trait Writer {
    /// Begins the processes of a rank.
    fn rank(&mut self, group: Group);

    /// Names a process and sets its position among the others.
    fn process(&mut self, pid: u32, name: &str, order: i64) -> io::Result<()>;

    /// Names a track and sets its position in its process.
    fn thread(&mut self, track: Track, name: &str, order: i64) -> io::Result<()>;

    /// Names the track of a stream of a GPU.
    fn stream(&mut self, track: Track, name: &str, order: i64) -> io::Result<()> {
        self.thread(track, name, order)
    }

    /// Writes a slice that nests in its track.
    fn slice(&mut self, slice: Slice<'_>) -> io::Result<()>;

    /// Writes an operation of a GPU on the track of its stream.
    fn operation(&mut self, operation: Slice<'_>) -> io::Result<()> {
        self.slice(operation)
    }

    /// Writes a slice that need not nest.
    fn async_slice(&mut self, track: Track, name: &str, time: (Ns, Ns), id: u64) -> io::Result<()>;

    /// Writes an instant.
    fn instant(&mut self, track: Track, name: &str, at: Ns) -> io::Result<()>;

    /// Writes an arrow from a call to an operation.
    fn flow(&mut self, from: (Track, Ns), to: (Track, Ns), id: u64) -> io::Result<()>;

    /// Writes a counter value of a process.
    fn counter(&mut self, pid: u32, name: &str, at: Ns, value: f64) -> io::Result<()>;

    /// Ends the document.
    fn finish(&mut self) -> io::Result<()>;
}

/// First number of the program's processes.
const FIRST_PROCESS: u32 = 1_000;
/// First number of the processes that stand for devices.
const FIRST_DEVICE: u32 = 1_000_000;
/// First number of the tracks of calls; the tracks of ranges are below.
const FIRST_CALLS: u32 = 10_000_000;
/// First number of the tracks of streams.
const FIRST_STREAM: u32 = 20_000_000;

/// Returns the process that stands for a device.
fn device(index: usize) -> u32 {
    FIRST_DEVICE + index as u32
}

/// Device, process, stream, and a line for each of its concurrent operations.
type StreamLine = (u16, u32, u32, u32);

/// The tracks of a trace.
struct Tracks {
    threads: Vec<u32>,
    streams: Vec<StreamLine>,
    /// Position in `streams`, by row of the operations.
    of_op: Vec<u32>,
}

impl Tracks {
    /// Assigns every thread and GPU operation to a track.
    fn of(trace: &Trace) -> Self {
        let ops = &trace.ops;
        let mut ends: BTreeMap<(u16, u32, u32), FreeLines> = BTreeMap::new();
        let mut lines: BTreeMap<StreamLine, Vec<u32>> = BTreeMap::new();
        for row in 0..ops.len() {
            let key = (ops.device[row].0, ops.process[row].0, ops.stream[row]);
            let line = ends.entry(key).or_default().assign(ops.start[row], ops.end[row]);
            let rows = lines.entry((key.0, key.1, key.2, line as u32)).or_default();
            rows.push(row as u32);
        }
        let mut of_op = vec![0; ops.len()];
        for (at, rows) in lines.values().enumerate() {
            for &row in rows {
                of_op[row as usize] = at as u32;
            }
        }
        Self {
            threads: trace.threads.iter().map(|t| t.process.0).collect(),
            streams: lines.into_keys().collect(),
            of_op,
        }
    }

    /// Returns the track of a thread's ranges and operators.
    fn thread(&self, thread: ThreadId) -> Option<Track> {
        let process = self.threads.get(thread.index())?;
        Some(Track { pid: FIRST_PROCESS + process, tid: FIRST_PROCESS + thread.0 })
    }

    /// Returns the track of a thread's calls.
    fn calls(&self, thread: ThreadId) -> Option<Track> {
        let track = self.thread(thread)?;
        Some(Track { tid: FIRST_CALLS + thread.0, ..track })
    }

    /// Returns the track of a GPU operation.
    fn operation(&self, row: usize) -> Option<Track> {
        let at = *self.of_op.get(row)?;
        self.stream(at)
    }

    fn stream(&self, at: u32) -> Option<Track> {
        let stream = self.streams.get(at as usize)?;
        Some(Track { pid: device(stream.0 as usize), tid: FIRST_STREAM + at })
    }

    /// Writes the names of all processes and tracks.
    fn describe(&self, trace: &Trace, writer: &mut dyn Writer) -> io::Result<()> {
        for (at, process) in trace.processes.iter().enumerate() {
            let name = match trace.names.get(process.name) {
                "" => "process",
                name => name,
            };
            let order = 1 + at as i64;
            writer.process(FIRST_PROCESS + at as u32, &format!("{name} {}", process.pid), order)?;
        }
        for (at, thread) in trace.threads.iter().enumerate() {
            let name = match trace.names.get(thread.name) {
                "" => "thread",
                name => name,
            };
            let number = thread.tid.to_string();
            // Some tools include the number in the name.
            let name = if name.contains(&number) { name.to_owned() } else { format!("{name} {number}") };
            let id = ThreadId(at as u32);
            if let (Some(ranges), Some(calls)) = (self.thread(id), self.calls(id)) {
                writer.thread(ranges, &name, 2 * at as i64)?;
                writer.thread(calls, &format!("{name}: CUDA calls"), 2 * at as i64 + 1)?;
            }
        }
        for (at, gpu) in trace.devices.iter().enumerate() {
            let name = gpu.name.as_deref().unwrap_or("unknown");
            writer.process(device(at), &format!("GPU {}: {name}", gpu.number), 1_000_000 + at as i64)?;
        }
        for (at, stream) in self.streams.iter().enumerate() {
            let pid = trace.processes.get(stream.1 as usize).filter(|_| trace.processes.len() > 1);
            let pid = pid.map(|p| format!(" of {}", p.pid)).unwrap_or_default();
            let line = if stream.3 == 0 { String::new() } else { format!(" ({})", stream.3 + 1) };
            if let Some(track) = self.stream(at as u32) {
                writer.stream(track, &format!("stream {}{pid}{line}", stream.2), at as i64)?;
            }
        }
        Ok(())
    }
}
