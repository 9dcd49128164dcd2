//! Rows of one block of text, with ids local to the block.

use crate::{LaunchShape, LossKind, Losses, Ns, OpKind};
use rustc_hash::FxHashMap;

use super::text::decode;

/// A GPU operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OpRow {
    pub(super) kind: OpKind,
    pub(super) start: Ns,
    pub(super) end: Ns,
    pub(super) name: u32,
    pub(super) device: u32,
    pub(super) stream: u32,
    pub(super) correlation: u32,
    pub(super) shape: LaunchShape,
    pub(super) bytes: u64,
    pub(super) graph_node: u64,
}

/// The collective of a kernel. Names are ids of the block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CollectiveRow {
    pub(super) name: u32,
    pub(super) group: Option<u32>,
    /// Purpose of the group.
    pub(super) description: Option<u32>,
    pub(super) group_size: u32,
    pub(super) input_bytes: Option<u64>,
    pub(super) output_bytes: Option<u64>,
    pub(super) sequence: Option<u64>,
    pub(super) peer: Option<u32>,
}

/// Something that a thread did: a call, an operator, a range or a Python frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ThreadRow {
    pub(super) start: Ns,
    pub(super) end: Ns,
    pub(super) name: u32,
    pub(super) thread: u32,
    pub(super) correlation: u32,
}

/// The autograd sequence number of an operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SequenceRow {
    /// Position among the operators of the block.
    pub(super) op: usize,
    pub(super) number: u64,
    /// True for a backward operator.
    pub(super) backward: bool,
}

/// The shapes of an operator's inputs. Names are ids of the block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ShapeRow {
    /// Position among the operators of the block.
    pub(super) op: usize,
    pub(super) dims: u32,
    pub(super) types: u32,
}

/// A thread, by the texts that stand for it and its process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ThreadKey {
    pub(super) pid: String,
    pub(super) tid: String,
}

/// The rows of a block.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) ops: Vec<OpRow>,
    /// Collectives of kernels, by position in `ops`, in that order.
    pub(super) collectives: Vec<(usize, CollectiveRow)>,
    pub(super) calls: Vec<ThreadRow>,
    pub(super) cpu_ops: Vec<ThreadRow>,
    pub(super) sequences: Vec<SequenceRow>,
    pub(super) shapes: Vec<ShapeRow>,
    pub(super) ranges: Vec<ThreadRow>,
    pub(super) frames: Vec<ThreadRow>,
    pub(super) modules: Vec<ThreadRow>,
    /// The names that the rows refer to, in the order of first sight.
    pub(super) names: Vec<String>,
    /// The threads that the rows refer to, in the order of first sight.
    pub(super) threads: Vec<ThreadKey>,
    /// Names of processes and of threads, as metadata events give them.
    pub(super) process_names: Vec<(String, String)>,
    pub(super) thread_names: Vec<(ThreadKey, String)>,
    pub(super) losses: Losses,
    /// GPU operations whose duration has no decimals.
    pub(super) whole_micros: u64,
    /// Events that the profiler is known to write, read or not.
    pub(super) known: u64,
    /// All events.
    pub(super) events: u64,
}

impl Rows {
    /// Empties it and keeps the room.
    pub(super) fn clear(&mut self) {
        self.ops.clear();
        self.collectives.clear();
        self.calls.clear();
        self.cpu_ops.clear();
        self.sequences.clear();
        self.shapes.clear();
        self.ranges.clear();
        self.frames.clear();
        self.modules.clear();
        self.names.clear();
        self.threads.clear();
        self.process_names.clear();
        self.thread_names.clear();
        self.losses = Losses::default();
        self.whole_micros = 0;
        self.known = 0;
        self.events = 0;
    }

    pub(super) fn lose(&mut self, kind: LossKind) {
        self.losses.add(kind, 1);
    }
}

/// Fills [`Rows`] from one block. Names and threads are looked up by the bytes in the text, so that nothing is copied for a
/// row but its numbers.
pub(super) struct Filler<'a, 'r> {
    pub(super) rows: &'r mut Rows,
    names: FxHashMap<&'a [u8], u32>,
    threads: FxHashMap<(&'a [u8], &'a [u8]), u32>,
    last_thread: Option<(&'a [u8], &'a [u8], u32)>,
}

impl<'a, 'r> Filler<'a, 'r> {
    /// Starts a block; `rows` is emptied.
    pub(super) fn new(rows: &'r mut Rows) -> Self {
        rows.clear();
        Self { rows, names: FxHashMap::default(), threads: FxHashMap::default(), last_thread: None }
    }

    /// Returns the block's id of a raw name.
    #[inline]
    pub(super) fn name(&mut self, raw: &'a [u8]) -> u32 {
        let next = self.rows.names.len() as u32;
        let id = *self.names.entry(raw).or_insert(next);
        if id == next {
            self.rows.names.push(decode(raw).into_owned());
        }
        id
    }

    /// Returns the block's id of a thread.
    #[inline]
    pub(super) fn thread(&mut self, pid: &'a [u8], tid: &'a [u8]) -> u32 {
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
