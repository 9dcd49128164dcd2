//! One trace event.

use super::collective::CollectiveText;
use super::cursor::{Cursor, Expected, Stop, decode};
use super::operators::has_kept_shapes;
use super::rows::{Filler, OpRow, Rows, SequenceRow, ShapeRow, ThreadKey, ThreadRow};
use crate::decimal::{MAX_NS, micros_to_ns, trailing, unsigned};
use crate::{LaunchShape, LossKind, Ns, OpKind};

/// The first members of an event with a duration, as torch wrote them up to 2.11, since then, and as its writers in Python do.
const LAYOUTS: [[&[u8]; 6]; 3] = [
    [
        b"\n    \"ph\": \"X\", \"cat\": \"",
        b", \"name\": \"",
        b", \"pid\": ",
        b", \"tid\": ",
        b",\n    \"ts\": ",
        b", \"dur\": ",
    ],
    [
        b"\n    \"ph\": \"X\",\n    \"cat\": \"",
        b",\n    \"name\": \"",
        b",\n    \"pid\": ",
        b",\n    \"tid\": ",
        b",\n    \"ts\": ",
        b",\n    \"dur\": ",
    ],
    [b"\"ph\":\"X\",\"cat\":\"", b",\"name\":\"", b",\"pid\":", b",\"tid\":", b",\"ts\":", b",\"dur\":"],
];

/// The fields of an event that are of use, as they are written.
#[derive(Debug, Default)]
pub struct Event<'a> {
    phase: Option<&'a [u8]>,
    category: Option<Category>,
    name: Option<&'a [u8]>,
    pid: Option<&'a [u8]>,
    tid: Option<&'a [u8]>,
    start: Option<&'a [u8]>,
    duration: Option<&'a [u8]>,
    arguments: Arguments<'a>,
}

/// The arguments that are of use.
#[derive(Debug, Default)]
struct Arguments<'a> {
    /// In metadata events, and of a node of a graph that the program named.
    name: Option<&'a [u8]>,
    correlation: Option<&'a [u8]>,
    device: Option<&'a [u8]>,
    stream: Option<&'a [u8]>,
    /// Stream of an event that was moved to another one for display.
    original_stream: Option<&'a [u8]>,
    registers: Option<&'a [u8]>,
    shared: Option<&'a [u8]>,
    bytes: Option<&'a [u8]>,
    graph: Option<&'a [u8]>,
    graph_node: Option<&'a [u8]>,
    /// A list in a text, with the name of a node of a graph.
    annotation: Option<&'a [u8]>,
    /// Direction of a copy, and kinds of its memory, where its name does not tell.
    copy: [Option<&'a [u8]>; 3],
    /// Of an operator that takes part in autograd.
    sequence: Option<&'a [u8]>,
    /// Not 0 for a backward operator.
    forward_thread: Option<&'a [u8]>,
    /// Shapes and types of the inputs of an operator.
    dims: Option<&'a [u8]>,
    types: Option<&'a [u8]>,
    grid: [u32; 3],
    block: [u32; 3],
    /// Of a counter, which has one series without a name.
    value: Option<&'a [u8]>,
    /// Few kernels have it.
    collective: Option<Box<CollectiveText<'a>>>,
}

impl<'a> Event<'a> {
    /// Reads an event up to and with its closing brace.
    #[inline]
    pub fn read(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Stop> {
        cursor.take(b'{', Expected::Event)?;
        if self.read_usual(cursor)? {
            // The members that nearly all events begin with were all there.
        } else if cursor.peek()? == b'}' {
            cursor.at += 1;
            return Ok(());
        } else {
            self.read_member(cursor)?;
        }
        loop {
            match cursor.peek()? {
                b',' => cursor.at += 1,
                b'}' => break,
                _ => return Err(Stop::Invalid(Expected::CommaOrEnd)),
            }
            self.read_member(cursor)?;
        }
        cursor.at += 1;
        Ok(())
    }

    /// Reads the first members if they are written byte for byte as current profilers write them, without looking at keys one
    /// by one. Otherwise nothing is consumed.
    #[inline(always)]
    fn read_usual(&mut self, cursor: &mut Cursor<'a>) -> Result<bool, Stop> {
        let Some([_, name, keys @ ..]) = LAYOUTS.iter().find(|layout| cursor.take_exactly(layout[0])) else {
            return Ok(false);
        };
        self.phase = Some(b"X");
        self.category = Some(Category::of(cursor.string_rest()?));
        if !cursor.take_exactly(name) {
            return Ok(true);
        }
        self.name = Some(cursor.string_rest()?);
        let values = [&mut self.pid, &mut self.tid, &mut self.start, &mut self.duration];
        for (key, value) in keys.iter().zip(values) {
            if !cursor.take_exactly(key) {
                break;
            }
            *value = cursor.scalar()?;
        }
        Ok(true)
    }

    #[inline(always)]
    fn read_member(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Stop> {
        match cursor.key()? {
            b"ph" => self.phase = cursor.scalar()?,
            b"cat" => self.category = cursor.scalar()?.map(Category::of),
            b"name" => self.name = cursor.scalar()?,
            b"pid" => self.pid = cursor.scalar()?,
            b"tid" => self.tid = cursor.scalar()?,
            b"ts" => self.start = cursor.scalar()?,
            b"dur" => self.duration = cursor.scalar()?,
            // The category usually comes first; where it does not, any argument may be needed.
            b"args" if self.category.is_none_or(Category::has_arguments) => self.arguments.read(cursor)?,
            _ => cursor.skip()?,
        }
        Ok(())
    }

    /// Turns the event into a row, or counts why it is none.
    #[inline]
    pub fn keep(&self, filler: &mut Filler<'a, '_>) {
        filler.rows.events += 1;
        let Some(category) = self.category else {
            return self.keep_uncategorised(filler);
        };
        if category == Category::Unknown {
            return filler.rows.lose(LossKind::EventUnknown);
        }
        filler.rows.known += 1;
        match category {
            Category::Ignored => return,
            Category::Counter => return self.keep_counter(filler),
            Category::Unread(kind, name) => return filler.rows.losses.add_message(kind, name, 1),
            _ => {}
        }
        if self.phase != Some(b"X") {
            // The profiler writes work on the GPU as whole events only; halves of one would be missing from the totals.
            return filler.rows.lose(match category {
                Category::Work(_) => LossKind::EventMalformed,
                _ => LossKind::EventUnknown,
            });
        }
        let (Some(name), Some(start), Some(duration)) = (self.name, self.start(), self.duration()) else {
            return filler.rows.lose(LossKind::EventMalformed);
        };
        if duration < 0 {
            return filler.rows.lose(match category {
                Category::Work(_) => LossKind::OpNegative,
                Category::Call => LossKind::CallNegative,
                Category::Annotation => LossKind::RangeNegative,
                _ => LossKind::EventMalformed,
            });
        }
        let end = start + duration;
        if end > MAX_NS {
            return filler.rows.lose(LossKind::EventMalformed);
        }
        match category.with_name(name) {
            Category::Work(kind) => self.keep_op(kind, name, start, end, filler),
            category => self.keep_on_thread(category, name, start, end, filler),
        }
    }

    fn start(&self) -> Option<Ns> {
        micros_to_ns(self.start?)
    }

    fn duration(&self) -> Option<Ns> {
        micros_to_ns(self.duration?)
    }

    #[inline]
    fn keep_op(&self, kind: OpKind, name: &'a [u8], start: Ns, end: Ns, filler: &mut Filler<'a, '_>) {
        let arguments = &self.arguments;
        // On the GPU's side the process of an event is its device, and the thread is its stream.
        let device = arguments.device.or(self.pid).and_then(trailing);
        let stream = arguments.original_stream.or(arguments.stream).or(self.tid).and_then(trailing);
        let (Some(device), Some(stream)) = (device, stream) else {
            return filler.rows.lose(LossKind::EventMalformed);
        };
        let number = |text: Option<&[u8]>| text.and_then(unsigned).unwrap_or(0);
        let small = |text: Option<&[u8]>| u32::try_from(number(text)).unwrap_or(0);
        if let Some(collective) = &arguments.collective {
            collective.keep(filler);
        }
        let mut graph_node = number(arguments.graph_node);
        if graph_node != 0 {
            // Some writers leave the graph out of the number of its node.
            if graph_node >> 32 == 0 {
                graph_node |= number(arguments.graph) << 32;
            }
            let given = match arguments.name {
                Some(name) => Some(filler.name(name)),
                None => arguments.annotation.and_then(listed_name).map(|name| filler.composed(name)),
            };
            if let Some(given) = given {
                filler.rows.node_names.push((filler.rows.ops.len(), given));
            }
        }
        let name = match arguments.copy {
            [Some(direction), Some(from), Some(to)] if name == b"Memcpy" => {
                let [direction, from, to] = [direction, from, to].map(String::from_utf8_lossy);
                filler.composed(format!("Memcpy {direction} ({from} -> {to})"))
            }
            _ => filler.name(name),
        };
        filler.rows.whole_micros += u64::from(self.duration.is_some_and(|text| !text.contains(&b'.')));
        filler.rows.ops.push(OpRow {
            kind,
            start,
            end,
            name,
            device,
            stream,
            correlation: small(arguments.correlation),
            shape: LaunchShape {
                grid: arguments.grid,
                block: arguments.block,
                registers: small(arguments.registers),
                // Static and dynamic come as one sum.
                static_shared: 0,
                dynamic_shared: small(arguments.shared),
            },
            bytes: number(arguments.bytes),
            graph_node,
        });
    }

    #[inline]
    fn keep_on_thread(
        &self,
        category: Category,
        name: &'a [u8],
        start: Ns,
        end: Ns,
        filler: &mut Filler<'a, '_>,
    ) {
        let (Some(pid), Some(tid)) = (self.pid, self.tid) else {
            return filler.rows.lose(LossKind::EventMalformed);
        };
        let correlation = self.arguments.correlation.and_then(unsigned);
        let correlation = correlation.and_then(|c| u32::try_from(c).ok()).unwrap_or(0);
        let row =
            ThreadRow { start, end, name: filler.name(name), thread: filler.thread(pid, tid), correlation };
        match category {
            Category::Call => filler.rows.calls.push(row),
            Category::CpuOp => {
                if let Some(number) = self.arguments.sequence.and_then(unsigned) {
                    let forward = self.arguments.forward_thread.and_then(unsigned);
                    filler.rows.sequences.push(SequenceRow {
                        op: filler.rows.cpu_ops.len(),
                        number,
                        backward: forward.is_some_and(|thread| thread != 0),
                    });
                }
                if let (Some(dims), Some(types)) = (self.arguments.dims, self.arguments.types)
                    && has_kept_shapes(name, dims)
                {
                    let row = ShapeRow {
                        op: filler.rows.cpu_ops.len(),
                        dims: filler.name(dims),
                        types: filler.name(types),
                    };
                    filler.rows.shapes.push(row);
                }
                filler.rows.cpu_ops.push(row);
            }
            Category::Frame => filler.rows.frames.push(row),
            _ => filler.rows.ranges.push(row),
        }
    }

    /// Keeps a counter of a GPU; its process is called `GPU 0 Counters`.
    #[cold]
    fn keep_counter(&self, filler: &mut Filler<'a, '_>) {
        let Some(at) = self.start() else { return filler.rows.lose(LossKind::EventMalformed) };
        let [name, pid] = [self.name, self.pid].map(|text| decode(text.unwrap_or_default()));
        let gpu = pid.strip_prefix("GPU ").and_then(|rest| rest.strip_suffix(" Counters")?.parse().ok());
        let value = self.arguments.value.and_then(|text| decode(text).parse().ok());
        let Rows { readings, losses, .. } = &mut *filler.rows;
        readings.add(gpu, at, &name, value, losses);
    }

    /// Handles metadata, instants, counters and arrows, which need no category.
    #[cold]
    fn keep_uncategorised(&self, filler: &mut Filler<'a, '_>) {
        match self.phase {
            Some(b"M") => {
                let Some(value) = self.arguments.name else {
                    return;
                };
                let value = decode(value).into_owned();
                let pid = decode(self.pid.unwrap_or_default()).into_owned();
                match self.name {
                    Some(b"process_name") => filler.rows.process_names.push((pid, value)),
                    Some(b"thread_name") => {
                        let tid = decode(self.tid.unwrap_or_default()).into_owned();
                        filler.rows.thread_names.push((ThreadKey { pid, tid }, value));
                    }
                    _ => {}
                }
            }
            Some(b"C") => self.keep_counter(filler),
            Some(b"i" | b"I" | b"R" | b"s" | b"t" | b"f" | b"c") => {}
            Some(_) => filler.rows.lose(LossKind::EventUnknown),
            None => filler.rows.lose(LossKind::EventMalformed),
        }
    }
}

impl<'a> Arguments<'a> {
    /// Reads the object of arguments.
    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Stop> {
        if cursor.peek()? != b'{' {
            return cursor.skip();
        }
        cursor.at += 1;
        if cursor.peek()? == b'}' {
            cursor.at += 1;
            return Ok(());
        }
        loop {
            match cursor.key()? {
                b"correlation" | b"Correlation ID" => self.correlation = cursor.scalar()?,
                b"device" => self.device = cursor.scalar()?,
                b"stream" => self.stream = cursor.scalar()?,
                b"original_stream" => self.original_stream = cursor.scalar()?,
                b"grid" => self.grid = triple(cursor)?,
                b"block" => self.block = triple(cursor)?,
                b"registers per thread" => self.registers = cursor.scalar()?,
                b"shared memory" => self.shared = cursor.scalar()?,
                b"bytes" | b"Bytes" => self.bytes = cursor.scalar()?,
                b"graph id" => self.graph = cursor.scalar()?,
                b"graph node id" => self.graph_node = cursor.scalar()?,
                b"annotation" => self.annotation = cursor.scalar()?,
                b"copy kind" => self.copy[0] = cursor.scalar()?,
                b"src kind" => self.copy[1] = cursor.scalar()?,
                b"dst kind" => self.copy[2] = cursor.scalar()?,
                b"name" => self.name = cursor.scalar()?,
                b"Sequence number" => self.sequence = cursor.scalar()?,
                b"Fwd thread id" => self.forward_thread = cursor.scalar()?,
                b"" => self.value = cursor.scalar()?,
                b"Input Dims" => self.dims = Some(raw(cursor)?),
                b"Input type" => self.types = Some(raw(cursor)?),
                key => match CollectiveText::field(key) {
                    Some(field) => {
                        let value = cursor.scalar()?;
                        self.collective.get_or_insert_default().set(field, value);
                    }
                    None => cursor.skip()?,
                },
            }
            match cursor.peek()? {
                b',' => cursor.at += 1,
                b'}' => break,
                _ => return Err(Stop::Invalid(Expected::CommaOrEnd)),
            }
        }
        cursor.at += 1;
        Ok(())
    }
}

/// Returns the name in the text of a list of annotations, the innermost last.
fn listed_name(text: &[u8]) -> Option<String> {
    let list: Vec<serde_json::Value> = serde_json::from_str(&decode(text)).ok()?;
    Some(list.last()?.get("name")?.as_str()?.to_owned())
}

/// Reads a value as it is written.
fn raw<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Stop> {
    let from = cursor.at;
    cursor.skip()?;
    Ok(cursor.since(from).trim_ascii())
}

/// Parses a list of three integers; zeros for anything else.
fn triple(cursor: &mut Cursor<'_>) -> Result<[u32; 3], Stop> {
    cursor.peek()?;
    match cursor.three_numbers() {
        Some(numbers) => Ok(numbers),
        None => cursor.skip().map(|()| [0; 3]),
    }
}

/// Kind of a trace event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// An operator of the framework.
    CpuOp,
    /// A call into CUDA.
    Call,
    /// Work of a GPU.
    Work(OpKind),
    /// A range that the program named.
    Annotation,
    /// A call of a Python function.
    Frame,
    /// A counter of a GPU.
    Counter,
    /// Known, and a loss of a name. Work and waits of a device that is no GPU overlap, and only its own tools tell them apart.
    Unread(LossKind, &'static str),
    /// Known, and not needed: it repeats what other events say, or says nothing about time on the GPU.
    Ignored,
    /// Never heard of.
    Unknown,
}

impl Category {
    /// A call of a function of the host between operations of a CUDA graph.
    pub const HOST_NODE: Self = Self::Unread(LossKind::EventUnknown, "host nodes of CUDA graphs");

    /// Returns the category of a name. Capitalised names are those of the profiler's first releases.
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        match name {
            b"cpu_op" | b"Operator" => Self::CpuOp,
            b"cuda_runtime" | b"cuda_driver" | b"Runtime" => Self::Call,
            // Devices of others, which write the rest of a trace alike.
            b"xpu_runtime"
            | b"xpu_driver"
            | b"mtia_runtime"
            | b"privateuse1_runtime"
            | b"privateuse1_driver" => Self::Call,
            b"kernel" | b"Kernel" => Self::Work(OpKind::Kernel),
            b"gpu_memcpy" | b"Memcpy" => Self::Work(OpKind::Copy),
            b"gpu_memset" | b"Memset" => Self::Work(OpKind::Set),
            b"user_annotation" => Self::Annotation,
            // Arrows between events.
            b"ac2g" | b"fwdbwd" | b"async" | b"async_cpu_to_gpu" | b"async_gpu" | b"forward_backward" => {
                Self::Ignored
            }
            b"python_function" => Self::Frame,
            b"mtia_ccp_events" | b"mtia_workloadd" | b"mtia_insight" => {
                Self::Unread(LossKind::OtherDevice, "MTIA")
            }
            b"hpu_op" => Self::Unread(LossKind::OtherDevice, "HPU"),
            b"graph_host_node" => Self::HOST_NODE,
            b"hardware_counters" => Self::Counter,
            b"mtia_counters" | b"xpu_scope_profiler" => Self::Unread(LossKind::EventUnknown, "counters"),
            // Projections of ranges, memory instants, the profiler's own cost and frames.
            b"gpu_user_annotation" | b"cpu_instant_event" | b"overhead" | b"Trace" => Self::Ignored,
            b"cuda_sync"
            | b"cuda_event"
            | b"graph_event_node"
            | b"xpu_sync"
            | b"cuda_profiler_range"
            | b"external_correlation" => Self::Ignored,
            b"collective_comm" | b"glow_runtime" | b"__metadata" => Self::Ignored,
            _ => Self::Unknown,
        }
    }

    /// Returns the category of an event of this name. Releases before 2022 wrote the profiler's own ranges as operators.
    #[inline]
    fn with_name(self, name: &[u8]) -> Self {
        const RANGES: [&[u8]; 3] = [b"ProfilerStep#", b"Optimizer.", b"enumerate(DataLoader)#"];
        match self {
            Self::CpuOp if RANGES.iter().any(|range| name.starts_with(range)) => Self::Annotation,
            other => other,
        }
    }

    /// Returns true if arguments of such an event are read.
    #[inline]
    pub fn has_arguments(self) -> bool {
        matches!(self, Self::CpuOp | Self::Call | Self::Work(_) | Self::Counter)
    }
}
