//! Perfetto's own format: packets of protocol buffers. Operations of a GPU are render stages, each stream a hardware queue; everything
//! else is a track event. A render stage cannot be the end of an arrow, so launch and operation share a correlation instead.

use super::{Arg, Group, Slice, Track, Writer};
use roofgap_trace::Ns;
use std::collections::HashMap;
use std::io::{self, Write};

/// Number of the one sequence of packets: interned names are its own.
const SEQUENCE: u64 = 1;
/// `SEQ_INCREMENTAL_STATE_CLEARED`, and `SEQ_NEEDS_INCREMENTAL_STATE`.
const CLEARED: u64 = 1;
const NEEDED: u64 = 2;
/// `ChildTracksOrdering.EXPLICIT`.
const EXPLICIT: u64 = 3;

/// Types of track events.
#[derive(Clone, Copy)]
enum Type {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// Names that were written, with their numbers.
struct Names {
    /// Field in `InternedData`.
    field: u64,
    written: HashMap<Box<str>, u64>,
}

impl Names {
    fn new(field: u64) -> Self {
        Self { field, written: HashMap::new() }
    }

    /// Returns the number of a name, and of a new one the packet that comes before its use.
    fn number(&mut self, name: &str) -> (u64, Option<Message>) {
        if let Some(number) = self.written.get(name) {
            return (*number, None);
        }
        let number = self.written.len() as u64 + 1;
        self.written.insert(name.into(), number);
        let entry = Message::default().number(1, number).text(2, name);
        let data = Message::default().message(self.field, &entry);
        (number, Some(Message::default().message(12, &data).number(13, NEEDED)))
    }
}

/// Bytes of a message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn double(mut self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u64, message: &Message) -> Self {
        self.bytes(field, &message.0)
    }
}

/// Writes packets.
pub struct Perfetto<'a> {
    out: &'a mut dyn Write,
    group: Group,
    /// Names of events.
    names: Names,
    /// Names of operations and queues.
    gpu_names: Names,
    /// Number of the queue of a stream's track.
    queues: HashMap<u64, u64>,
    /// Tracks of the counters of a process.
    counters: HashMap<u64, Vec<(Box<str>, u64)>>,
}

impl<'a> Perfetto<'a> {
    /// Starts the document.
    pub fn new(out: &'a mut dyn Write, first: Ns) -> io::Result<Self> {
        let mut writer = Self {
            out,
            group: Group { first, ..Group::default() },
            names: Names::new(2),
            gpu_names: Names::new(24),
            queues: HashMap::new(),
            counters: HashMap::new(),
        };
        writer.packet(Message::default().number(13, CLEARED))?;
        Ok(writer)
    }

    fn packet(&mut self, packet: Message) -> io::Result<()> {
        let document = Message::default().message(1, &packet.number(10, SEQUENCE));
        self.out.write_all(&document.0)
    }

    /// Begins a packet at a time.
    fn at(&self, at: Ns) -> Message {
        let at = at.saturating_sub(self.group.first).max(0) as u64;
        Message::default().number(8, at).number(13, NEEDED)
    }

    fn uuid(&self, Track { pid, tid }: Track) -> u64 {
        u64::from(self.group.pid(pid)) << 32 | u64::from(tid)
    }

    /// Returns the number of the name of an operation or a queue, which is written before it is first used.
    fn gpu_name(&mut self, name: &str) -> io::Result<u64> {
        let (number, new) = self.gpu_names.number(name);
        new.map_or(Ok(()), |packet| self.packet(packet))?;
        Ok(number)
    }

    fn describe(&mut self, track: Message, uuid: u64, order: i64) -> io::Result<()> {
        // Positions are below the number of threads; a negative one would take ten bytes.
        let order = order.clamp(0, i64::from(i32::MAX)) as u64;
        let track = track.number(1, uuid).number(11, EXPLICIT).number(12, order);
        self.packet(Message::default().message(60, &track))
    }

    /// Returns the track of a counter, which is described when it is first used.
    fn counter_track(&mut self, process: u64, name: &str) -> io::Result<u64> {
        let known = self.counters.entry(process).or_default();
        if let Some((_, uuid)) = known.iter().find(|(known, _)| **known == *name) {
            return Ok(*uuid);
        }
        // Threads are numbered from below.
        let uuid = process | (u64::from(u32::MAX) - known.len() as u64);
        known.push((name.into(), uuid));
        let track = Message::default().text(2, name).number(5, process).message(8, &Message::default());
        self.describe(track, uuid, 0)?;
        Ok(uuid)
    }

    fn event(&mut self, kind: Type, uuid: u64, at: Ns, event: Message) -> io::Result<()> {
        let event = event.number(9, kind as u64).number(11, uuid);
        self.packet(self.at(at).message(11, &event))
    }

    fn named(&mut self, category: &str, name: &str) -> io::Result<Message> {
        let (number, new) = self.names.number(name);
        new.map_or(Ok(()), |packet| self.packet(packet))?;
        let event = Message::default().number(10, number);
        Ok(if category.is_empty() { event } else { event.text(22, category) })
    }

    fn span(&mut self, uuid: u64, (start, end): (Ns, Ns), event: Message) -> io::Result<()> {
        self.event(Type::Begin, uuid, start, event)?;
        self.event(Type::End, uuid, end.max(start), Message::default())
    }
}

impl Writer for Perfetto<'_> {
    fn rank(&mut self, group: Group) {
        self.group = group;
    }

    fn process(&mut self, pid: u32, name: &str, order: i64) -> io::Result<()> {
        let number = u64::from(self.group.pid(pid));
        let process = Message::default().number(1, number).text(6, &format!("{}{name}", self.group.prefix));
        let track = Message::default().message(3, &process);
        let uuid = self.uuid(Track { pid, tid: 0 });
        self.describe(track, uuid, order)
    }

    fn thread(&mut self, track: Track, name: &str, order: i64) -> io::Result<()> {
        let message = Message::default().text(2, name).number(5, self.uuid(Track { tid: 0, ..track }));
        self.describe(message, self.uuid(track), order)
    }

    fn stream(&mut self, track: Track, name: &str, _: i64) -> io::Result<()> {
        let queue = self.gpu_name(&format!("{}{name}", self.group.prefix))?;
        self.queues.insert(self.uuid(track), queue);
        Ok(())
    }

    fn slice(&mut self, Slice { track, category, name, time, args }: Slice<'_>) -> io::Result<()> {
        let mut event = self.named(category, name)?;
        for (key, value) in args {
            let note = Message::default().text(10, key);
            let note = match value {
                Arg::Number(number) => note.number(4, *number as u64),
                Arg::Size(size) => note.text(6, &format!("{size:?}")),
                Arg::Text(text) => note.text(6, text),
            };
            event = event.message(4, &note);
        }
        self.span(self.uuid(track), time, event)
    }

    fn operation(&mut self, Slice { track, category, name, time, args }: Slice<'_>) -> io::Result<()> {
        let (start, end) = time;
        let stage = self.gpu_name(name)?;
        let queue = self.queues.get(&self.uuid(track)).copied().unwrap_or_default();
        let length = end.saturating_sub(start).max(0) as u64;
        let mut event = Message::default().number(2, length).number(13, queue).number(14, stage);
        event = event.number(11, u64::from(track.pid.saturating_sub(super::device(0))));
        let mut launch = Message::default();
        for (key, value) in [("category", Arg::Text(category))].iter().chain(args) {
            let text = match value {
                Arg::Number(number) => number.to_string(),
                Arg::Size(size) => {
                    let [x, y, z] = size.map(u64::from);
                    let sides = Message::default().number(1, x).number(2, y).number(3, z);
                    launch = launch.message(if *key == "grid" { 1 } else { 2 }, &sides);
                    continue;
                }
                Arg::Text(text) => (*text).to_owned(),
            };
            event = event.message(6, &Message::default().text(1, key).text(2, &text));
        }
        if !launch.0.is_empty() {
            event = event.message(21, &launch);
        }
        self.packet(self.at(start).message(53, &event))
    }

    fn async_slice(&mut self, track: Track, name: &str, time: (Ns, Ns), id: u64) -> io::Result<()> {
        // Ranges that overlap need a track each; those of one name share it in the viewer.
        let event = self.named("range", name)?;
        let message = Message::default().text(2, name).number(5, self.uuid(track));
        let uuid = 1 << 62 | u64::from(self.group.pid(0)) << 32 | id;
        self.describe(message, uuid, 0)?;
        self.span(uuid, time, event)
    }

    fn instant(&mut self, track: Track, name: &str, at: Ns) -> io::Result<()> {
        let event = self.named("mark", name)?;
        self.event(Type::Instant, self.uuid(track), at, event)
    }

    fn flow(&mut self, _: (Track, Ns), _: (Track, Ns), _: u64) -> io::Result<()> {
        Ok(())
    }

    fn counter(&mut self, pid: u32, name: &str, at: Ns, value: f64) -> io::Result<()> {
        let parent = self.uuid(Track { pid, tid: 0 });
        let uuid = self.counter_track(parent, name)?;
        self.event(Type::Counter, uuid, at, Message::default().double(44, value))
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}
