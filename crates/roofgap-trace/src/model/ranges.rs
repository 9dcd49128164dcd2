//! NVTX ranges and marks of the program.

use super::{NameId, Ns, ProcessId, ThreadId};

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

/// All ranges, in the order of (start, longest first).
#[derive(Debug, Clone, Default)]
pub struct Ranges {
    /// The ranges.
    pub rows: Vec<Range>,
    /// The marks.
    pub marks: Vec<Mark>,
}

impl Ranges {
    /// Puts ranges in the order of (start, longest first, thread) and marks in the order of time.
    pub fn sort(&mut self) {
        self.rows
            .sort_by_key(|r| (r.start, std::cmp::Reverse(r.end), r.thread));
        self.marks.sort_by_key(|m| (m.at, m.thread));
    }
}
