//! Rows of one block of text, with ids local to the block.

use super::cursor::decode;
use super::event::EventKeys;
use crate::native::demangle;
use crate::vitals::Readings;
use crate::{Collective, LaunchShape, LossKind, Losses, NameId, Ns, OpKind, RecordedEvent, Trace, WaitKind};
use rustc_hash::FxHashMap;

/// A GPU operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpRow {
    pub kind: OpKind,
    pub start: Ns,
    pub end: Ns,
    pub name: u32,
    pub device: u32,
    pub stream: u32,
    pub correlation: u32,
    pub shape: LaunchShape,
    pub bytes: u64,
    pub graph_node: u64,
}

/// Something that a thread did: a call, an operator, a range or a Python frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThreadRow {
    pub start: Ns,
    pub end: Ns,
    pub name: u32,
    pub thread: u32,
    pub correlation: u32,
}

/// A wait, with the numbers of the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WaitLine {
    pub start: Ns,
    pub kind: WaitKind,
    pub correlation: u32,
    pub stream: Option<u32>,
    pub device: Option<u32>,
    pub recorded: Option<RecordedEvent>,
}

/// The autograd sequence number of an operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SequenceRow {
    /// Position among the operators of the block.
    pub op: usize,
    pub number: u64,
    /// True for a backward operator.
    pub backward: bool,
}

/// The shapes of an operator's inputs. Names are ids of the block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShapeRow {
    /// Position among the operators of the block.
    pub op: usize,
    pub dims: u32,
    pub types: u32,
    pub values: u32,
}

/// A thread, by the texts that stand for it and its process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadKey {
    pub pid: String,
    pub tid: String,
}

/// The rows of a block.
#[derive(Debug, Default)]
pub struct Rows {
    pub ops: Vec<OpRow>,
    /// Collectives of kernels, by position in `ops`, in that order. Names are ids of the block.
    pub collectives: Vec<(usize, Collective)>,
    /// Names that the program gave to nodes of graphs, by position in `ops`, in that order.
    pub node_names: Vec<(usize, u32)>,
    pub calls: Vec<ThreadRow>,
    pub waits: Vec<WaitLine>,
    pub cpu_ops: Vec<ThreadRow>,
    pub sequences: Vec<SequenceRow>,
    pub shapes: Vec<ShapeRow>,
    pub ranges: Vec<ThreadRow>,
    pub frames: Vec<ThreadRow>,
    /// The names that the rows refer to, in the order of first sight.
    pub names: Vec<String>,
    /// The threads that the rows refer to, in the order of first sight.
    pub threads: Vec<ThreadKey>,
    /// Names of processes and of threads, as metadata events give them.
    pub process_names: Vec<(String, String)>,
    pub thread_names: Vec<(ThreadKey, String)>,
    /// Counters of the GPUs.
    pub readings: Readings,
    pub losses: Losses,
    /// GPU operations whose duration has no decimals.
    pub whole_micros: u64,
    /// Events that the profiler is known to write, read or not.
    pub known: u64,
    /// All events.
    pub events: u64,
}

impl Rows {
    /// Empties it and keeps the room of the large columns.
    pub fn clear(&mut self) {
        fn emptied<T>(rows: &mut Vec<T>) -> Vec<T> {
            rows.clear();
            std::mem::take(rows)
        }
        *self = Self {
            ops: emptied(&mut self.ops),
            calls: emptied(&mut self.calls),
            cpu_ops: emptied(&mut self.cpu_ops),
            ranges: emptied(&mut self.ranges),
            frames: emptied(&mut self.frames),
            names: emptied(&mut self.names),
            ..Self::default()
        };
    }

    pub fn lose(&mut self, kind: LossKind) {
        self.losses.add(kind, 1);
    }
}

/// Fills [`Rows`] from one block. Names and threads are looked up by the bytes in the text, so that nothing is copied for a
/// row but its numbers.
pub struct Filler<'a, 'r> {
    pub rows: &'r mut Rows,
    names: FxHashMap<&'a [u8], u32>,
    threads: FxHashMap<(&'a [u8], &'a [u8]), u32>,
    last_thread: Option<(&'a [u8], &'a [u8], u32)>,
    pub keys: EventKeys<'a>,
}

impl<'a, 'r> Filler<'a, 'r> {
    /// Starts a block; `rows` is emptied.
    pub fn new(rows: &'r mut Rows) -> Self {
        rows.clear();
        Self {
            rows,
            names: FxHashMap::default(),
            threads: FxHashMap::default(),
            last_thread: None,
            keys: EventKeys::default(),
        }
    }

    /// Returns the block's id of a raw name.
    #[inline]
    pub fn name(&mut self, raw: &'a [u8]) -> u32 {
        let next = self.rows.names.len() as u32;
        let id = *self.names.entry(raw).or_insert(next);
        if id == next {
            self.rows.names.push(decode(raw).into_owned());
        }
        id
    }

    /// Returns an id for a name that is not in the text.
    pub fn composed(&mut self, name: String) -> u32 {
        self.rows.names.push(name);
        self.rows.names.len() as u32 - 1
    }

    /// Returns the block's id of a thread.
    #[inline]
    pub fn thread(&mut self, pid: &'a [u8], tid: &'a [u8]) -> u32 {
        if let Some((last_pid, last_tid, id)) = self.last_thread
            && last_pid == pid
            && last_tid == tid
        {
            return id;
        }
        let next = self.rows.threads.len() as u32;
        let id = *self.threads.entry((pid, tid)).or_insert(next);
        if id == next {
            self.rows
                .threads
                .push(ThreadKey { pid: decode(pid).into_owned(), tid: decode(tid).into_owned() });
        }
        self.last_thread = Some((pid, tid, id));
        id
    }
}

/// The trace's ids of a block's names, taken when they are first needed.
pub struct BlockNames<'r> {
    rows: &'r Rows,
    ids: Vec<Option<NameId>>,
}

impl<'r> BlockNames<'r> {
    /// Takes the names of a block, none of which has an id yet.
    pub fn new(rows: &'r Rows) -> Self {
        let ids = vec![None; rows.names.len()];
        Self { rows, ids }
    }

    /// Returns the text of a name.
    pub fn text(&self, name: u32) -> &'r str {
        &self.rows.names[name as usize]
    }

    /// Returns the trace's id of a name.
    pub fn get(&mut self, name: u32, trace: &mut Trace) -> NameId {
        self.id(name, trace, |_| None)
    }

    /// Returns the id of a kernel name. The profiler leaves some names mangled; nsys never does.
    pub fn get_demangled(&mut self, name: u32, trace: &mut Trace) -> NameId {
        self.id(name, trace, demangle)
    }

    fn id(&mut self, name: u32, trace: &mut Trace, readable: fn(&str) -> Option<String>) -> NameId {
        let text = self.text(name);
        let intern = || trace.names.intern(readable(text).as_deref().unwrap_or(text));
        *self.ids[name as usize].get_or_insert_with(intern)
    }
}
