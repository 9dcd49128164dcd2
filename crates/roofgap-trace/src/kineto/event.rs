//! One trace event.

use super::collective::CollectiveText;
use super::cursor::{Cursor, Expected, Stop, decode};
use super::operators::has_kept_shapes;
use super::rows::{Filler, OpRow, SequenceRow, ShapeRow, ThreadKey, ThreadRow};
use crate::decimal::{MAX_NS, micros_to_ns, trailing, unsigned};
use crate::{LaunchShape, LossKind, Ns, OpKind};

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
    graph_node: Option<&'a [u8]>,
    /// Of an operator that takes part in autograd.
    sequence: Option<&'a [u8]>,
    /// Not 0 for a backward operator.
    forward_thread: Option<&'a [u8]>,
    /// Shapes and types of the inputs of an operator.
    dims: Option<&'a [u8]>,
    types: Option<&'a [u8]>,
    grid: [u32; 3],
    block: [u32; 3],
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
        if !cursor.take_exactly(b"\n    \"ph\": \"X\", \"cat\": \"") {
            return Ok(false);
        }
        self.phase = Some(b"X");
        self.category = Some(Category::of(cursor.string_rest()?));
        if !cursor.take_exactly(b", \"name\": \"") {
            return Ok(true);
        }
        self.name = Some(cursor.string_rest()?);
        for (key, value) in [
            (&b", \"pid\": "[..], &mut self.pid),
            (b", \"tid\": ", &mut self.tid),
            (b",\n    \"ts\": ", &mut self.start),
            (b", \"dur\": ", &mut self.duration),
        ] {
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
            Category::OtherDevice(name) => {
                return filler.rows.losses.add_message(LossKind::OtherDevice, name, 1);
            }
            _ => {}
        }
        if self.phase != Some(b"X") {
            // The profiler writes work on the GPU as whole events only; halves of one would be missing from the totals.
            return filler.rows.lose(match category {
                Category::Kernel | Category::Copy | Category::Set => LossKind::EventMalformed,
                _ => LossKind::EventUnknown,
            });
        }
        let (Some(name), Some(start), Some(duration)) = (self.name, self.start(), self.duration()) else {
            return filler.rows.lose(LossKind::EventMalformed);
        };
        if duration < 0 {
            return filler.rows.lose(match category {
                Category::Kernel | Category::Copy | Category::Set => LossKind::OpNegative,
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
            Category::Kernel => self.keep_op(OpKind::Kernel, name, start, end, filler),
            Category::Copy => self.keep_op(OpKind::Copy, name, start, end, filler),
            Category::Set => self.keep_op(OpKind::Set, name, start, end, filler),
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
        let graph_node = number(arguments.graph_node);
        if let Some(text) = arguments.name.filter(|_| graph_node != 0) {
            let row = (filler.rows.ops.len(), filler.name(text));
            filler.rows.node_names.push(row);
        }
        let name = filler.name(name);
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
            Some(b"i" | b"I" | b"R" | b"C" | b"s" | b"t" | b"f" | b"c") => {}
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
                b"graph node id" => self.graph_node = cursor.scalar()?,
                b"name" => self.name = cursor.scalar()?,
                b"Sequence number" => self.sequence = cursor.scalar()?,
                b"Fwd thread id" => self.forward_thread = cursor.scalar()?,
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

/// Reads a value as it is written.
fn raw<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Stop> {
    let from = cursor.at;
    cursor.skip()?;
    Ok(cursor.since(from).trim_ascii())
}

/// Parses a list of three integers; zeros for anything else.
fn triple(cursor: &mut Cursor<'_>) -> Result<[u32; 3], Stop> {
    cursor.peek()?;
    if let Some(numbers) = cursor.three_numbers() {
        return Ok(numbers);
    }
    let text = raw(cursor)?;
    let inner = text.strip_prefix(b"[").and_then(|t| t.strip_suffix(b"]")).unwrap_or_default();
    let mut numbers = inner.split(|&b| b == b',').map(|n| {
        let value = unsigned(n.trim_ascii())?;
        u32::try_from(value).ok()
    });
    match (numbers.next().flatten(), numbers.next().flatten(), numbers.next().flatten(), numbers.next()) {
        (Some(x), Some(y), Some(z), None) => Ok([x, y, z]),
        _ => Ok([0; 3]),
    }
}

/// Kind of a trace event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// An operator of the framework.
    CpuOp,
    /// A call into CUDA.
    Call,
    Kernel,
    Copy,
    Set,
    /// A range that the program named.
    Annotation,
    /// A call of a Python function.
    Frame,
    /// Work or a wait of a named device that is no GPU. They overlap, and only the device's own tools tell work from waits.
    OtherDevice(&'static str),
    /// Known, and not needed: it repeats what other events say, or says nothing about time on the GPU.
    Ignored,
    /// Never heard of.
    Unknown,
}

impl Category {
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
            b"kernel" | b"Kernel" => Self::Kernel,
            b"gpu_memcpy" | b"Memcpy" => Self::Copy,
            b"gpu_memset" | b"Memset" => Self::Set,
            b"user_annotation" => Self::Annotation,
            // Arrows between events.
            b"ac2g" | b"fwdbwd" | b"async" | b"async_cpu_to_gpu" | b"async_gpu" | b"forward_backward" => {
                Self::Ignored
            }
            b"python_function" => Self::Frame,
            b"mtia_ccp_events" | b"mtia_workloadd" | b"mtia_insight" => Self::OtherDevice("MTIA"),
            b"hpu_op" => Self::OtherDevice("HPU"),
            // Projections of ranges, memory instants, the profiler's own cost and frames.
            b"gpu_user_annotation" | b"cpu_instant_event" | b"overhead" | b"Trace" => Self::Ignored,
            b"cuda_sync" | b"cuda_event" | b"xpu_sync" | b"cuda_profiler_range" | b"external_correlation" => {
                Self::Ignored
            }
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
        matches!(self, Self::CpuOp | Self::Call | Self::Kernel | Self::Copy | Self::Set)
    }
}
