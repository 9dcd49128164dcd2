//! One trace event.

use super::cursor::{Cursor, Expected, ParseStop, decode};
use super::keys::Keys;
use super::rows::{Filler, OpRow, Rows, SequenceRow, ShapeRow, ThreadKey, ThreadRow, WaitLine};
use crate::decimal::{MAX_NS, micros_to_ns, trailing, unsigned};
use crate::model::{group_label, stated_stream};
use crate::{Collective, LaunchShape, LossKind, NameId, Ns, OpKind, RecordedEvent, WaitKind};

/// The fields of an event that are of use, as they are written.
#[derive(Debug, Default)]
pub struct TraceEvent<'a> {
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
    texts: [Option<&'a [u8]>; Text::RecordCall as usize + 1],
    grid: [u32; 3],
    block: [u32; 3],
    /// Few kernels have it.
    collective: Option<Box<CollectiveText<'a>>>,
}

/// An argument that is kept as it is written.
#[derive(Debug, Clone, Copy)]
enum Text {
    /// In metadata events, and of a node of a graph that the program named.
    Name,
    Correlation,
    Device,
    Stream,
    /// Stream of an event that was moved to another one for display.
    OriginalStream,
    Registers,
    Shared,
    Bytes,
    Graph,
    GraphNode,
    /// A list in a text, with the name of a node of a graph.
    Annotation,
    /// Direction of a copy, and kinds of its memory, where its name does not tell.
    CopyKind,
    CopyFrom,
    CopyTo,
    /// Of an operator that takes part in autograd.
    Sequence,
    /// Not 0 for a backward operator.
    ForwardThread,
    /// Of a counter, which has one series without a name.
    Value,
    /// Shapes and types of the inputs of an operator, and the values of those that are no tensors.
    Dims,
    Types,
    Values,
    /// Stream on which the event of a wait was recorded, and the call that recorded it.
    RecordStream,
    RecordCall,
}

/// What the value of a key is.
#[derive(Debug, Clone, Copy)]
enum Field {
    Scalar(Text),
    /// A value of any kind.
    Whole(Text),
    Grid,
    Block,
    Collective(usize),
    Unused,
}

impl From<&[u8]> for Field {
    fn from(key: &[u8]) -> Self {
        Self::Scalar(match key {
            b"correlation" | b"Correlation ID" => Text::Correlation,
            b"device" => Text::Device,
            b"stream" => Text::Stream,
            b"original_stream" => Text::OriginalStream,
            b"registers per thread" => Text::Registers,
            b"shared memory" => Text::Shared,
            b"bytes" | b"Bytes" => Text::Bytes,
            b"graph id" => Text::Graph,
            b"graph node id" => Text::GraphNode,
            b"annotation" => Text::Annotation,
            b"copy kind" => Text::CopyKind,
            b"src kind" => Text::CopyFrom,
            b"dst kind" => Text::CopyTo,
            b"name" => Text::Name,
            b"Sequence number" => Text::Sequence,
            b"Fwd thread id" => Text::ForwardThread,
            b"" => Text::Value,
            b"wait_on_stream" => Text::RecordStream,
            b"wait_on_cuda_event_record_corr_id" => Text::RecordCall,
            b"Input Dims" => return Self::Whole(Text::Dims),
            b"Input type" => return Self::Whole(Text::Types),
            b"Concrete Inputs" => return Self::Whole(Text::Values),
            b"grid" => return Self::Grid,
            b"block" => return Self::Block,
            _ => return CollectiveText::field(key).map_or(Self::Unused, Self::Collective),
        })
    }
}

/// The keys of the events of a block.
#[derive(Debug, Default)]
pub struct EventKeys<'a> {
    members: Keys<'a, Member>,
    /// Keys of arguments, by kind of event.
    arguments: [Keys<'a, Field>; 4],
}

/// What the value of a key of an event is.
#[derive(Debug, Clone, Copy)]
enum Member {
    Phase,
    Category,
    Name,
    Pid,
    Tid,
    Start,
    Duration,
    Arguments,
    Unused,
}

impl From<&[u8]> for Member {
    fn from(key: &[u8]) -> Self {
        match key {
            b"ph" => Self::Phase,
            b"cat" => Self::Category,
            b"name" => Self::Name,
            b"pid" => Self::Pid,
            b"tid" => Self::Tid,
            b"ts" => Self::Start,
            b"dur" => Self::Duration,
            b"args" => Self::Arguments,
            _ => Self::Unused,
        }
    }
}

impl<'a> TraceEvent<'a> {
    /// Reads an event up to and with its closing brace.
    #[inline]
    pub fn read(&mut self, cursor: &mut Cursor<'a>, keys: &mut EventKeys<'a>) -> Result<(), ParseStop> {
        cursor.take(b'{', Expected::Event)?;
        let mut last = 0;
        while let Some((at, member)) = keys.members.next(last, cursor)? {
            match member {
                Member::Phase => self.phase = cursor.scalar()?,
                Member::Category => self.category = cursor.scalar()?.map(Category::from_name),
                Member::Name => self.name = cursor.scalar()?,
                Member::Pid => self.pid = cursor.scalar()?,
                Member::Tid => self.tid = cursor.scalar()?,
                Member::Start => self.start = cursor.scalar()?,
                Member::Duration => self.duration = cursor.scalar()?,
                // The category usually comes first; where it does not, any argument may be needed.
                Member::Arguments if self.category.is_none_or(Category::has_arguments) => {
                    let kind = match self.category {
                        Some(Category::CpuOp) => 0,
                        Some(Category::Call) => 1,
                        Some(Category::Work(_)) => 2,
                        _ => 3,
                    };
                    self.arguments.read(cursor, &mut keys.arguments[kind])?;
                }
                Member::Arguments | Member::Unused => cursor.skip()?,
            }
            last = at;
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
            Category::Wait => self.keep_wait(name, start, filler),
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
        let device = arguments.get(Text::Device).or(self.pid).and_then(trailing);
        let stream = arguments
            .get(Text::OriginalStream)
            .or(arguments.get(Text::Stream))
            .or(self.tid)
            .and_then(trailing);
        let (Some(device), Some(stream)) = (device, stream) else {
            return filler.rows.lose(LossKind::EventMalformed);
        };
        let number = |text: Option<&[u8]>| text.and_then(unsigned).unwrap_or(0);
        let small = |text: Option<&[u8]>| u32::try_from(number(text)).unwrap_or(0);
        if let Some(collective) = &arguments.collective {
            collective.keep(filler);
        }
        let mut graph_node = number(arguments.get(Text::GraphNode));
        if graph_node != 0 {
            // Some writers leave the graph out of the number of its node.
            if graph_node >> 32 == 0 {
                graph_node |= number(arguments.get(Text::Graph)) << 32;
            }
            let given = match arguments.get(Text::Name) {
                Some(name) => Some(filler.name(name)),
                None => {
                    arguments.get(Text::Annotation).and_then(listed_name).map(|name| filler.composed(name))
                }
            };
            if let Some(given) = given {
                filler.rows.node_names.push((filler.rows.ops.len(), given));
            }
        }
        let name = match [Text::CopyKind, Text::CopyFrom, Text::CopyTo].map(|text| arguments.get(text)) {
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
            correlation: small(arguments.get(Text::Correlation)),
            shape: LaunchShape {
                grid: arguments.grid,
                block: arguments.block,
                registers: small(arguments.get(Text::Registers)),
                // Static and dynamic come as one sum.
                static_shared: 0,
                dynamic_shared: small(arguments.get(Text::Shared)),
            },
            bytes: number(arguments.get(Text::Bytes)),
            graph_node,
        });
    }

    fn keep_wait(&self, name: &[u8], start: Ns, filler: &mut Filler<'a, '_>) {
        let number = |text| u32::try_from(unsigned(self.arguments.get(text)?)?).ok();
        let (Some(kind), Some(correlation)) = (WaitKind::named(name), number(Text::Correlation)) else {
            return filler.rows.lose(LossKind::EventMalformed);
        };
        let recorded = number(Text::RecordStream)
            .map(|stream| RecordedEvent { correlation: number(Text::RecordCall).unwrap_or(0), stream });
        let (stream, device) = (number(Text::Stream).and_then(stated_stream), number(Text::Device));
        filler.rows.waits.push(WaitLine { start, kind, correlation, stream, device, recorded });
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
        let correlation = self.arguments.get(Text::Correlation).and_then(unsigned);
        let correlation = correlation.and_then(|c| u32::try_from(c).ok()).unwrap_or(0);
        let row =
            ThreadRow { start, end, name: filler.name(name), thread: filler.thread(pid, tid), correlation };
        match category {
            Category::Call => filler.rows.calls.push(row),
            Category::CpuOp => {
                if let Some(number) = self.arguments.get(Text::Sequence).and_then(unsigned) {
                    let forward = self.arguments.get(Text::ForwardThread).and_then(unsigned);
                    filler.rows.sequences.push(SequenceRow {
                        op: filler.rows.cpu_ops.len(),
                        number,
                        backward: forward.is_some_and(|thread| thread != 0),
                    });
                }
                if let (Some(dims), Some(types)) =
                    (self.arguments.get(Text::Dims), self.arguments.get(Text::Types))
                    && has_kept_shapes(name, dims)
                {
                    let values = self.arguments.get(Text::Values).filter(|text| text.len() <= LONGEST);
                    let row = ShapeRow {
                        op: filler.rows.cpu_ops.len(),
                        dims: filler.name(dims),
                        types: filler.name(types),
                        values: filler.name(values.unwrap_or_default()),
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
        let value = self.arguments.get(Text::Value).and_then(|text| decode(text).parse().ok());
        let Rows { readings, losses, .. } = &mut *filler.rows;
        readings.add(gpu, at, &name, value, losses);
    }

    /// Handles metadata, instants, counters and arrows, which need no category.
    #[cold]
    fn keep_uncategorised(&self, filler: &mut Filler<'a, '_>) {
        match self.phase {
            Some(b"M") => {
                let Some(value) = self.arguments.get(Text::Name) else {
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
    fn get(&self, text: Text) -> Option<&'a [u8]> {
        self.texts[text as usize]
    }

    /// Reads the object of arguments.
    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'a>, keys: &mut Keys<'a, Field>) -> Result<(), ParseStop> {
        if cursor.peek()? != b'{' {
            return cursor.skip();
        }
        cursor.at += 1;
        let mut last = 0;
        while let Some((at, field)) = keys.next(last, cursor)? {
            match field {
                Field::Scalar(text) => self.texts[text as usize] = cursor.scalar()?,
                Field::Whole(text) => self.texts[text as usize] = Some(keys.value(at, cursor)?),
                Field::Grid => self.grid = triple(cursor)?,
                Field::Block => self.block = triple(cursor)?,
                Field::Collective(field) => {
                    let value = cursor.scalar()?;
                    self.collective.get_or_insert_default().set(field, value);
                }
                Field::Unused => _ = keys.value(at, cursor)?,
            }
            last = at;
        }
        Ok(())
    }
}

/// Returns the name in the text of a list of annotations, the innermost last.
fn listed_name(text: &[u8]) -> Option<String> {
    let list: Vec<serde_json::Value> = serde_json::from_str(&decode(text)).ok()?;
    Some(list.last()?.get("name")?.as_str()?.to_owned())
}

/// Parses a list of three integers; zeros for anything else.
fn triple(cursor: &mut Cursor<'_>) -> Result<[u32; 3], ParseStop> {
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
    /// A wait of a thread for a GPU, or of a stream for an event.
    Wait,
    /// A range that the program named.
    Annotation,
    /// A call of a Python function.
    Frame,
    /// A counter of a GPU.
    Counter,
    /// Known, and a loss of a name. Work and waits of a device that is no GPU overlap, and only the tools of that device tell them apart.
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
    pub fn from_name(name: &[u8]) -> Self {
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
            // Projections of ranges, memory instants, profiler overhead and frames.
            b"gpu_user_annotation" | b"cpu_instant_event" | b"overhead" | b"Trace" => Self::Ignored,
            b"cuda_sync" => Self::Wait,
            b"cuda_event"
            | b"graph_event_node"
            | b"xpu_sync"
            | b"cuda_profiler_range"
            | b"external_correlation" => Self::Ignored,
            b"collective_comm" | b"glow_runtime" | b"__metadata" => Self::Ignored,
            _ => Self::Unknown,
        }
    }

    /// Returns the category of an event of this name. Releases before 2022 wrote ranges of the profiler as operators.
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
        matches!(self, Self::CpuOp | Self::Call | Self::Work(_) | Self::Wait | Self::Counter)
    }
}

/// The arguments of a collective, as they are written.
#[derive(Debug, Default)]
pub struct CollectiveText<'a>([Option<&'a [u8]>; 9]);

impl<'a> CollectiveText<'a> {
    /// Returns the position of a key.
    #[inline(always)]
    pub fn field(key: &[u8]) -> Option<usize> {
        Some(match key {
            b"Collective name" => 0,
            b"In msg nelems" => 1,
            b"Out msg nelems" => 2,
            b"dtype" => 3,
            b"Group size" => 4,
            b"Process Group Name" => 5,
            b"Process Group Description" => 6,
            b"Seq" => 7,
            // A send names its target and a receive its source.
            b"Src Rank" | b"Dst Rank" => 8,
            _ => return None,
        })
    }

    pub fn set(&mut self, field: usize, value: Option<&'a [u8]>) {
        self.0[field] = value;
    }

    /// Keeps it, with names of the block, for the operation that is added next.
    pub fn keep(&self, filler: &mut Filler<'a, '_>) {
        let [name, input, output, dtype, group_size, group, description, sequence, peer] = self.0;
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return;
        };
        let element = dtype.and_then(element_bytes);
        let bytes = |elements: Option<&[u8]>| unsigned(elements?)?.checked_mul(element?);
        let small = |text: Option<&[u8]>| u32::try_from(unsigned(text?)?).ok();
        let [group, description] = [group, description].map(|text| decode(text.unwrap_or_default()));
        let collective = Collective {
            name: NameId(filler.name(name)),
            group: NameId(filler.composed(group_label(&group, &description))),
            group_size: small(group_size).unwrap_or(0),
            input_bytes: bytes(input),
            output_bytes: bytes(output),
            sequence: sequence.and_then(unsigned),
            peer: small(peer),
        };
        let op = filler.rows.ops.len();
        filler.rows.collectives.push((op, collective));
    }
}

/// Returns the size of an element of a type as PyTorch names it.
fn element_bytes(dtype: &[u8]) -> Option<u64> {
    Some(match dtype {
        b"Byte" | b"Char" | b"Bool" | b"QInt8" | b"QUInt8" => 1,
        b"Float8_e5m2" | b"Float8_e4m3fn" | b"Float8_e5m2fnuz" | b"Float8_e4m3fnuz" | b"Float8_e8m0fnu" => 1,
        b"Short" | b"UInt16" | b"Half" | b"BFloat16" => 2,
        b"Int" | b"UInt32" | b"Float" | b"ComplexHalf" | b"QInt32" => 4,
        b"Long" | b"UInt64" | b"Double" | b"ComplexFloat" => 8,
        b"ComplexDouble" => 16,
        _ => return None,
    })
}

/// Operators that launch a kernel of known work themselves. None of them encloses another.
const OPERATORS: [&[u8]; 11] = [
    b"aten::mm",
    b"aten::addmm",
    b"aten::bmm",
    b"aten::baddbmm",
    b"aten::_addmm_activation",
    b"aten::_grouped_mm",
    b"aten::convolution",
    b"aten::embedding",
    b"aten::_scaled_dot_product_flash_attention",
    b"aten::_scaled_dot_product_efficient_attention",
    b"aten::_scaled_dot_product_cudnn_attention",
];

/// The longest text of shapes that is kept, bytes.
const LONGEST: usize = 400;

/// Tells whether the shapes of an operator are kept.
pub fn has_kept_shapes(operator: &[u8], dims: &[u8]) -> bool {
    operator.starts_with(b"aten::") && OPERATORS.contains(&operator) && dims.len() <= LONGEST
}
