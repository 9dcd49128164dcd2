//! NVTX ranges and marks of the program.

use super::{Collective, NameId, Ns, ProcessId, ThreadId};
use rustc_hash::FxHashMap;

/// Style of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RangeStyle {
    /// Pushed and popped on one thread.
    PushPop,
    /// Started and ended by handle, maybe on two threads.
    StartEnd,
}

/// One range of time that the program named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// When it was opened.
    pub start: Ns,
    /// When it was closed, or the end of the capture if it never was.
    pub end: Ns,
    /// Domain; the empty string is the default domain.
    pub domain: NameId,
    /// Name.
    pub name: NameId,
    /// The process.
    pub process: ProcessId,
    /// The thread that opened it.
    pub thread: ThreadId,
    /// The thread that closed it.
    pub end_thread: ThreadId,
    /// Style.
    pub style: RangeStyle,
    /// True if the range was still open when the capture ended.
    pub open: bool,
}

/// A moment that the program named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Ns,
    /// Domain; the empty string is the default domain.
    pub domain: NameId,
    /// Name.
    pub name: NameId,
    /// The thread.
    pub thread: ThreadId,
}

/// The collective that a range of the program performs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeCollective {
    /// Row of the range.
    pub row: u32,
    /// The collective.
    pub collective: Collective,
    /// True for a collective that runs on the CPU, without a kernel.
    pub on_host: bool,
    /// True if the range ends when the collective has ended.
    pub waits: bool,
}

/// All ranges, in the order of (start, longest first).
#[derive(Debug, Clone, Default)]
pub struct Ranges {
    /// The ranges.
    pub rows: Vec<Range>,
    /// The marks.
    pub marks: Vec<Mark>,
    /// Collectives of ranges, in the order of their rows.
    pub collectives: Vec<RangeCollective>,
}

impl Ranges {
    /// Puts ranges in the order of (start, longest first, thread) and marks in the order of time.
    pub fn sort(&mut self) {
        self.rows.sort_by_key(|r| (r.start, std::cmp::Reverse(r.end), r.thread));
        self.marks.sort_by_key(|m| (m.at, m.thread));
    }
}

/// The nodes of CUDA graphs, each with the names of the ranges around its creation.
#[derive(Debug, Clone, Default)]
pub struct GraphNodes {
    stacks: Vec<Vec<NameId>>,
    ids: FxHashMap<Vec<NameId>, u32>,
    of_node: FxHashMap<(ProcessId, u64), u32>,
}

impl GraphNodes {
    /// Most ranges around a node. Ranges inside that many are left out, so that ranges that stay open do not make the cost quadratic.
    pub(crate) const DEEPEST: usize = 128;

    /// Adds a node with the names of the ranges around its creation, outermost first.
    pub fn insert(&mut self, process: ProcessId, node: u64, ranges: &[NameId]) {
        let id = match self.ids.get(ranges) {
            Some(id) => *id,
            None => {
                let id = self.stacks.len() as u32;
                self.stacks.push(ranges.to_vec());
                self.ids.insert(ranges.to_vec(), id);
                id
            }
        };
        self.of_node.insert((process, node), id);
    }

    /// Returns the number of the stack of ranges around the creation of a node; `None` for a node whose creation was not recorded.
    pub fn stack_of(&self, process: ProcessId, node: u64) -> Option<usize> {
        self.of_node.get(&(process, node)).map(|id| *id as usize)
    }

    /// Returns the distinct stacks of range names, each outermost first.
    pub fn stacks(&self) -> &[Vec<NameId>] {
        &self.stacks
    }

    /// Returns true if no creation of a node was recorded.
    pub fn is_empty(&self) -> bool {
        self.of_node.is_empty()
    }
}
