//! Packets: the clock of each sequence, interned names, descriptions of tracks, and events.

use crate::kineto::Category;
use crate::protobuf::{Fields, Malformed, Wire, dimensions, last, messages, number, text};
use crate::vitals::Readings;
use crate::{LossKind, NameId, Ns, OpKind, Trace, WaitKind};
use flate2::read::ZlibDecoder;
use roofgap_base::file::Unpacked;
use rustc_hash::FxHashMap;
use std::io::{self, BufRead, BufReader, Read};

/// Largest packet, bytes.
const MOST_PACKET: u64 = 256 << 20;

/// The clock in which times are kept.
const BOOT_TIME: u64 = 6;

/// Clocks that belong to a sequence.
const OWN_CLOCKS: std::ops::Range<u64> = 64..128;

/// Fields of `InternedData`.
const CATEGORIES: u64 = 1;
const EVENT_NAMES: u64 = 2;
const NOTE_NAMES: u64 = 3;
const GPU_NAMES: u64 = 24;
const NOTE_TEXTS: u64 = 29;
const COUNTER_DESCRIPTORS: u64 = 47;
const LAUNCH_NAMES: u64 = 1001;

/// Why the packets of a file end early.
#[derive(Debug)]
pub enum Fault {
    Io(io::Error),
    Malformed(&'static str),
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        Self::Malformed("a message is not one")
    }
}

/// A track of events.
#[derive(Debug, Default)]
pub struct Track {
    pub name: String,
    pub parent: Option<u64>,
    pub pid: Option<u64>,
    pub tid: Option<u64>,
    /// A process, and no thread of one.
    pub is_process: bool,
}

/// Kind of a track event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeKind {
    Begin,
    End,
    Instant,
}

/// Values that events carry beside their name.
#[derive(Debug, Default)]
pub struct Notes {
    pub category: Option<Category>,
    pub domain: Option<NameId>,
    pub correlation: u64,
    pub device: Option<u64>,
    pub stream: Option<u64>,
    pub graph: u64,
    pub graph_node: u64,
    /// Name that the program gave to a node of a graph.
    pub name: Option<NameId>,
    pub bytes: u64,
    pub registers: u64,
    pub shared: u64,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Kind of a wait, and the stream and the call of the record of its event.
    pub wait: Option<WaitKind>,
    pub record_stream: Option<u64>,
    pub record_call: Option<u64>,
    /// Arrow from a launch to its operation.
    pub flow: Option<u64>,
}

/// An event of a track.
#[derive(Debug)]
pub struct SliceEdge {
    pub at: Ns,
    pub track: u64,
    pub kind: EdgeKind,
    pub name: Option<NameId>,
    pub category: Category,
    pub notes: Option<Box<Notes>>,
}

/// Work of a GPU.
#[derive(Debug, Default)]
pub struct RenderStage {
    pub start: Ns,
    pub duration: u64,
    pub gpu: u64,
    pub queue: Option<NameId>,
    pub queue_number: u64,
    pub name: Option<NameId>,
    pub notes: Notes,
}

#[derive(Debug, Clone, Copy)]
struct Clock {
    /// Last value, ns.
    last: Ns,
    /// Added to a value for the time that is kept, ns.
    offset: Ns,
    unit: Ns,
    is_incremental: bool,
}

#[derive(Debug, Default)]
struct Sequence {
    names: FxHashMap<(u64, u64), NameId>,
    /// Names and GPUs of counters, by the number of their list, which is 0 for one that is not interned, and their own.
    counters: FxHashMap<(u64, u64), (String, u64)>,
    clock: Option<u64>,
    track: Option<u64>,
}

/// Contents of the packets of a file.
#[derive(Default)]
pub struct Packets {
    pub tracks: FxHashMap<u64, Track>,
    pub events: Vec<SliceEdge>,
    pub stages: Vec<RenderStage>,
    sequences: FxHashMap<u64, Sequence>,
    /// By sequence, or 0 for those of all, and number.
    clocks: FxHashMap<(u64, u64), Clock>,
    /// Names of queues and stages of the first versions, by number.
    queues: Vec<NameId>,
    stage_names: Vec<NameId>,
    /// Names of the GPUs, in the order of their numbers.
    pub gpus: Vec<String>,
    pub readings: Readings,
}

/// The fields of a packet that are of use.
#[derive(Default)]
struct Packet<'a> {
    timestamp: Option<u64>,
    clock: Option<u64>,
    sequence: u64,
    is_cleared: bool,
    is_after_drop: bool,
    event: Option<&'a [u8]>,
    interned: Option<&'a [u8]>,
    defaults: Option<&'a [u8]>,
    track: Option<&'a [u8]>,
    stage: Option<&'a [u8]>,
    counters: Option<&'a [u8]>,
    snapshot: Option<&'a [u8]>,
    compressed: Option<&'a [u8]>,
    gpus: Option<&'a [u8]>,
}

impl<'a> Packet<'a> {
    fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut packet = Self::default();
        for field in Fields::new(message) {
            match field? {
                (8, Wire::Varint(at)) => packet.timestamp = Some(at),
                (58, Wire::Varint(clock)) => packet.clock = Some(clock),
                (10, Wire::Varint(sequence)) => packet.sequence = sequence,
                (13, Wire::Varint(flags)) => packet.is_cleared |= flags & 1 != 0,
                (41, Wire::Varint(1)) => packet.is_cleared = true,
                (42, Wire::Varint(1)) => packet.is_after_drop = true,
                (11, Wire::Bytes(message)) => packet.event = Some(message),
                (12, Wire::Bytes(message)) => packet.interned = Some(message),
                (59, Wire::Bytes(message)) => packet.defaults = Some(message),
                (60, Wire::Bytes(message)) => packet.track = Some(message),
                (53, Wire::Bytes(message)) => packet.stage = Some(message),
                (52, Wire::Bytes(message)) => packet.counters = Some(message),
                (6, Wire::Bytes(message)) => packet.snapshot = Some(message),
                (50, Wire::Bytes(message)) => packet.compressed = Some(message),
                (128, Wire::Bytes(message)) => packet.gpus = Some(message),
                _ => {}
            }
        }
        Ok(packet)
    }
}

/// Returns true if bytes begin with packets of a trace.
pub fn looks_like(head: &[u8]) -> bool {
    let packets = Fields::new(head).map_while(Result::ok).take(8);
    let mut first = packets.map_while(|(field, value)| value.bytes().filter(|_| field == 1));
    // Every packet names its sequence, or is of the service itself, with a clock or a configuration.
    let is_packet = |message: &[u8]| {
        Fields::new(message).map_while(Result::ok).any(|(field, value)| match value {
            Wire::Varint(_) => matches!(field, 8 | 10 | 13),
            Wire::Bytes(_) => matches!(field, 6 | 33 | 36 | 50),
            _ => false,
        })
    };
    let is_valid = |message: &[u8]| Fields::new(message).all(|field| field.is_ok());
    first.next().is_some_and(|message| is_valid(message) && is_packet(message)) && first.all(is_valid)
}

impl Packets {
    /// Reads the packets of a file, one after the other. A file that ends within a packet is a loss.
    pub fn read(&mut self, content: Unpacked, trace: &mut Trace) -> Result<(), Fault> {
        let mut content = BufReader::with_capacity(1 << 16, content);
        let mut packet = Vec::new();
        while !content.fill_buf().map_err(Fault::Io)?.is_empty() {
            let Some((tag, length)) = varint(&mut content)?.zip(varint(&mut content)?) else {
                trace.losses.add(LossKind::CaptureCut, 1);
                return Ok(());
            };
            if tag & 7 != 2 || length > MOST_PACKET {
                return Err(Fault::Malformed("what follows is no packet"));
            }
            packet.clear();
            let read = content.by_ref().take(length).read_to_end(&mut packet).map_err(Fault::Io)?;
            if (read as u64) < length {
                trace.losses.add(LossKind::CaptureCut, 1);
                return Ok(());
            }
            if tag >> 3 == 1 {
                self.packet(&packet, true, trace)?;
            }
        }
        Ok(())
    }

    fn packet(&mut self, message: &[u8], may_be_compressed: bool, trace: &mut Trace) -> Result<(), Fault> {
        let packet = Packet::parse(message)?;
        if let Some(compressed) = packet.compressed.filter(|_| may_be_compressed) {
            let mut inside = Vec::new();
            let read = ZlibDecoder::new(compressed).take(MOST_PACKET).read_to_end(&mut inside);
            read.map_err(|_| Fault::Malformed("compressed packets are damaged"))?;
            return messages(&inside, 1)?
                .into_iter()
                .try_for_each(|packet| self.packet(packet, false, trace));
        }
        let is_known = self.sequences.contains_key(&packet.sequence);
        trace.losses.add(LossKind::ToolDropped, u64::from(packet.is_after_drop && is_known));
        let sequence = self.sequences.entry(packet.sequence).or_default();
        if packet.is_cleared {
            *sequence = Sequence::default();
        }
        if let Some(defaults) = packet.defaults {
            sequence.clock = number(defaults, 58)?.or(sequence.clock);
            for event in messages(defaults, 11)? {
                sequence.track = number(event, 11)?.or(sequence.track);
            }
        }
        if let Some(interned) = packet.interned {
            for field in Fields::new(interned) {
                let (kind, Wire::Bytes(entry)) = field? else { continue };
                if kind == COUNTER_DESCRIPTORS {
                    let [list, gpu] = [number(entry, 1)?, number(entry, 3)?].map(Option::unwrap_or_default);
                    sequence.describe_counters(list, gpu, messages(entry, 2)?)?;
                } else if let (Some(iid), Some(text)) = (number(entry, 1)?, text(entry, 2)?) {
                    sequence.names.insert((kind, iid), trace.names.intern(&text));
                }
            }
        }
        if let Some(snapshot) = packet.snapshot {
            self.snapshot(packet.sequence, snapshot)?;
        }
        if let Some(track) = packet.track {
            self.track(track)?;
        }
        for gpu in messages(packet.gpus.unwrap_or_default(), 1)? {
            self.gpus.push(text(gpu, 1)?.unwrap_or_default());
        }
        let at = self.time(&packet);
        match (packet.event, packet.stage, packet.counters) {
            (Some(event), ..) => self.event(packet.sequence, at, event, trace),
            (None, Some(stage), _) => self.stage(packet.sequence, at, stage, trace),
            (None, None, Some(counters)) => self.counters(packet.sequence, at, counters, trace),
            // A packet at a time that is none of these is an event of another kind.
            (None, None, None) => {
                let is_other = packet.timestamp.is_some()
                    && [packet.snapshot, packet.interned, packet.track, packet.defaults, packet.gpus]
                        .iter()
                        .all(Option::is_none);
                trace.losses.add(LossKind::EventUnknown, u64::from(is_other));
                Ok(())
            }
        }
    }

    /// Relates the clocks of a snapshot to the one that is kept.
    fn snapshot(&mut self, sequence: u64, message: &[u8]) -> Result<(), Fault> {
        let mut clocks = Vec::new();
        for clock in messages(message, 1)? {
            let value = |field| Ok::<_, Malformed>(number(clock, field)?.unwrap_or(0));
            let unit = small_ns(value(4)?.max(1));
            clocks.push((value(1)?, small_ns(value(2)?).saturating_mul(unit), unit, value(3)? != 0));
        }
        let boot = clocks.iter().find(|clock| clock.0 == BOOT_TIME).map(|clock| clock.1);
        for (id, last, unit, is_incremental) in clocks {
            let key = clock_key(sequence, id);
            let known = self.clocks.get(&key).map_or(0, |clock| clock.offset);
            let offset = boot.map_or(known, |boot| boot.saturating_sub(last));
            self.clocks.insert(key, Clock { last, offset, unit, is_incremental });
        }
        Ok(())
    }

    /// Returns the time of a packet, ns. Times that only count on move the clock on.
    fn time(&mut self, packet: &Packet<'_>) -> Ns {
        let default = self.sequences.get(&packet.sequence).and_then(|sequence| sequence.clock);
        let id = packet.clock.or(default).unwrap_or(BOOT_TIME);
        let Some(timestamp) = packet.timestamp else { return 0 };
        match self.clocks.get_mut(&clock_key(packet.sequence, id)) {
            Some(clock) => {
                let value = small_ns(timestamp).saturating_mul(clock.unit);
                let value = if clock.is_incremental { clock.last.saturating_add(value) } else { value };
                clock.last = value;
                value.saturating_add(clock.offset)
            }
            None => small_ns(timestamp),
        }
    }

    fn track(&mut self, message: &[u8]) -> Result<(), Fault> {
        let uuid = number(message, 1)?.unwrap_or(0);
        let track = self.tracks.entry(uuid).or_default();
        for field in Fields::new(message) {
            match field? {
                (2 | 10, value @ Wire::Bytes(_)) => track.name = value.text().unwrap_or_default(),
                (5, Wire::Varint(parent)) => track.parent = Some(parent),
                (3, Wire::Bytes(process)) => {
                    track.pid = number(process, 1)?;
                    track.is_process = true;
                    track.name = text(process, 6)?.unwrap_or_else(|| std::mem::take(&mut track.name));
                }
                (4, Wire::Bytes(thread)) => {
                    (track.pid, track.tid) = (number(thread, 1)?, number(thread, 2)?);
                    track.name = text(thread, 5)?.unwrap_or_else(|| std::mem::take(&mut track.name));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn event(&mut self, sequence: u64, at: Ns, message: &[u8], trace: &mut Trace) -> Result<(), Fault> {
        let name_of = names_of(&self.sequences, sequence);
        let mut track = self.sequences.get(&sequence).and_then(|known| known.track).unwrap_or(sequence);
        let (mut kind, mut name, mut category) = (0, None, None);
        let mut notes: Option<Box<Notes>> = None;
        for field in Fields::new(message) {
            match field? {
                (9, Wire::Varint(value)) => kind = value,
                (11, Wire::Varint(uuid)) => track = uuid,
                (10, Wire::Varint(iid)) => name = name_of(EVENT_NAMES, iid),
                (23, value @ Wire::Bytes(_)) => {
                    name = value.text().map(|text| trace.names.intern(&text));
                }
                (3, Wire::Varint(iid)) => category = category.or(name_of(CATEGORIES, iid)),
                (3, Wire::Bytes(packed)) => {
                    let iid = Fields::new(packed).varint()?;
                    category = category.or(name_of(CATEGORIES, iid));
                }
                (22, value @ Wire::Bytes(_)) => {
                    category = value.text().map(|text| trace.names.intern(&text));
                }
                (47 | 48, Wire::Fixed64(id)) | (36 | 42, Wire::Varint(id)) => {
                    notes.get_or_insert_default().flow = Some(id);
                }
                (4, Wire::Bytes(note)) => {
                    let interned = |names: u64, iid: Option<u64>| {
                        Some(trace.names.get(name_of(names, iid?)?).to_owned())
                    };
                    let key = interned(NOTE_NAMES, number(note, 1)?).or(text(note, 10)?);
                    let text = text(note, 6)?.or(interned(NOTE_TEXTS, number(note, 17)?));
                    let value = number(note, 3)?.or(number(note, 4)?);
                    if let Some(key) = key {
                        notes.get_or_insert_default().set(&key, value, text.as_deref(), trace);
                    }
                }
                _ => {}
            }
        }
        let kind = match kind {
            1 => EdgeKind::Begin,
            2 => EdgeKind::End,
            3 => EdgeKind::Instant,
            _ => {
                let what = if kind == 4 { "counters on tracks" } else { "" };
                trace.losses.add_message(LossKind::EventUnknown, what, 1);
                return Ok(());
            }
        };
        let category = category.map(|id| category_of(trace.names.get(id)));
        let category = category.or(notes.as_ref().and_then(|notes| notes.category));
        let category = category.unwrap_or(Category::Annotation);
        self.events.push(SliceEdge { at, track, kind, name, category, notes });
        Ok(())
    }

    /// Reads values of the counters of a GPU.
    fn counters(&mut self, sequence: u64, at: Ns, message: &[u8], trace: &mut Trace) -> Result<(), Fault> {
        let sequence = self.sequences.entry(sequence).or_default();
        let gpu = number(message, 3)?;
        sequence.describe_counters(0, gpu.unwrap_or(0), messages(message, 1)?)?;
        let list = number(message, 4)?.unwrap_or(0);
        for counter in messages(message, 2)? {
            let key = (list, number(counter, 1)?.unwrap_or(0));
            let (name, described_gpu) =
                sequence.counters.get(&key).map_or(("", 0), |(name, gpu)| (name, *gpu));
            let value = match last(counter, 3)? {
                Some(Wire::Fixed64(bits)) => Some(f64::from_bits(bits)),
                _ => number(counter, 2)?.map(|value| value as i64 as f64),
            };
            let gpu = u32::try_from(gpu.unwrap_or(described_gpu)).ok();
            self.readings.add(gpu, at, name, value, &mut trace.losses);
        }
        Ok(())
    }

    fn stage(&mut self, sequence: u64, at: Ns, message: &[u8], trace: &mut Trace) -> Result<(), Fault> {
        let name_of = names_of(&self.sequences, sequence);
        let mut own_name = None;
        let mut stage = RenderStage { start: at, ..RenderStage::default() };
        let mut is_description = false;
        for field in Fields::new(message) {
            match field? {
                (2, Wire::Varint(duration)) => stage.duration = duration,
                (11, Wire::Varint(gpu)) => stage.gpu = gpu,
                (3, Wire::Varint(queue)) => {
                    stage.queue_number = queue;
                    stage.queue = self.queues.get(queue as usize).copied();
                }
                (4, Wire::Varint(name)) => stage.name = self.stage_names.get(name as usize).copied(),
                (13, Wire::Varint(iid)) => (stage.queue, stage.queue_number) = (name_of(GPU_NAMES, iid), iid),
                // The name of the event, if it has one, goes before that of its stage.
                (14, Wire::Varint(iid)) => {
                    let name = name_of(GPU_NAMES, iid);
                    let category = name.and_then(|id| stage_category(trace.names.get(id)));
                    stage.notes.category = stage.notes.category.or(category);
                    stage.name = stage.name.or(name);
                }
                (20, Wire::Varint(iid)) => own_name = name_of(EVENT_NAMES, iid).or(own_name),
                (17, value @ Wire::Bytes(_)) => {
                    own_name = value.text().map(|text| trace.names.intern(&text));
                }
                (6, Wire::Bytes(extra)) => {
                    if let (Some(key), Some(value)) = (text(extra, 1)?, text(extra, 2)?) {
                        stage.notes.set(&key, None, Some(&value), trace);
                    }
                }
                (21, Wire::Bytes(launch)) => {
                    for field in Fields::new(launch) {
                        match field? {
                            (1, Wire::Bytes(grid)) => {
                                stage.notes.grid = dimensions(grid)?.unwrap_or_default()
                            }
                            (2, Wire::Bytes(block)) => {
                                stage.notes.block = dimensions(block)?.unwrap_or_default()
                            }
                            (3, Wire::Bytes(value)) => {
                                let key = number(value, 1)?.and_then(|iid| name_of(LAUNCH_NAMES, iid));
                                let key = key.map_or(String::new(), |id| trace.names.get(id).to_owned());
                                stage.notes.set(&key, number(value, 4)?, None, trace);
                            }
                            _ => {}
                        }
                    }
                }
                (7, Wire::Bytes(description)) => {
                    is_description = true;
                    let mut names = |field| -> Result<Vec<NameId>, Malformed> {
                        let entries = messages(description, field)?.into_iter();
                        let names = entries.map(|entry| Ok(text(entry, 1)?.unwrap_or_default()));
                        names.map(|name| Ok(trace.names.intern(&name?))).collect()
                    };
                    (self.queues, self.stage_names) = (names(2)?, names(3)?);
                }
                _ => {}
            }
        }
        if !is_description || stage.duration > 0 {
            stage.name = own_name.or(stage.name);
            self.stages.push(stage);
        }
        Ok(())
    }
}

impl Sequence {
    /// Keeps the names of a list of counters.
    fn describe_counters(&mut self, list: u64, gpu: u64, descriptors: Vec<&[u8]>) -> Result<(), Malformed> {
        for descriptor in descriptors {
            for counter in messages(descriptor, 1)? {
                let name = text(counter, 2)?.unwrap_or_default();
                self.counters.insert((list, number(counter, 1)?.unwrap_or(0)), (name, gpu));
            }
        }
        Ok(())
    }
}

impl Notes {
    /// Keeps a value of a key that is of use.
    fn set(&mut self, key: &str, number: Option<u64>, text: Option<&str>, trace: &mut Trace) {
        let number = number.or_else(|| text.and_then(|text| text.parse().ok()));
        match key {
            "category" => self.category = text.map(category_of),
            "domain" => self.domain = text.map(|text| trace.names.intern(text)),
            "correlation" => self.correlation = number.unwrap_or(0),
            "device" => self.device = number,
            "stream" | "stream id" => self.stream = number,
            "graph id" => self.graph = number.unwrap_or(0),
            "graph node id" => self.graph_node = number.unwrap_or(0),
            "name" => self.name = text.map(|text| trace.names.intern(text)),
            "cuda_sync_kind" => {
                self.category = Some(Category::Wait);
                self.wait = text.and_then(|kind| WaitKind::named(kind.as_bytes()));
            }
            "wait_on_stream" => self.record_stream = number,
            "wait_on_cuda_event_record_corr_id" => self.record_call = number,
            "bytes" => self.bytes = number.unwrap_or(0),
            "registers" | "registers per thread" | "registers_per_thread" => {
                self.registers = number.unwrap_or(0)
            }
            "shared_bytes" | "shared memory" | "shared_mem_dynamic" => self.shared = number.unwrap_or(0),
            _ => {}
        }
    }
}

/// Returns the kind of a render stage by its name in traces of PyTorch.
fn stage_category(name: &str) -> Option<Category> {
    match name {
        "Kernel" | "Memcpy" | "Memset" => Some(Category::from_name(name.as_bytes())),
        "Annotation" | "EventRecord" => Some(Category::Ignored),
        "HostNode" => Some(Category::HOST_NODE),
        _ => None,
    }
}

/// Returns the kind of an event by its category: those of the PyTorch profiler, and of roofgap's export.
pub fn category_of(name: &str) -> Category {
    match name {
        "cuda" => Category::Call,
        "operator" => Category::CpuOp,
        "memcpy" => Category::Work(OpKind::Copy),
        "memset" => Category::Work(OpKind::Set),
        "stage" => Category::Ignored,
        name => match Category::from_name(name.as_bytes()) {
            Category::Unknown => Category::Annotation,
            known => known,
        },
    }
}

/// Looks up interned names of a sequence, by the kind of name and its number.
fn names_of(sequences: &FxHashMap<u64, Sequence>, sequence: u64) -> impl Fn(u64, u64) -> Option<NameId> {
    let known = sequences.get(&sequence);
    move |kind, iid| known?.names.get(&(kind, iid)).copied()
}

fn clock_key(sequence: u64, id: u64) -> (u64, u64) {
    (if OWN_CLOCKS.contains(&id) { sequence } else { 0 }, id)
}

/// Returns a time that may be added to; what no clock gives is left out later.
fn small_ns(value: u64) -> Ns {
    Ns::try_from(value).unwrap_or(Ns::MAX)
}

/// Reads an integer; `None` where the file ends.
fn varint(content: &mut impl Read) -> Result<Option<u64>, Fault> {
    let mut value = 0;
    for index in 0..10 {
        let mut byte = [0];
        if content.read(&mut byte).map_err(Fault::Io)? == 0 {
            return Ok(None);
        }
        value |= u64::from(byte[0] & 0x7f) << (7 * index);
        if byte[0] < 0x80 {
            return Ok(Some(value));
        }
    }
    Err(Fault::Malformed("a number has no end"))
}
