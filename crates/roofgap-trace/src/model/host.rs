//! Stacks of the threads of a program: calls of functions with exact times, and samples.

use super::{Dictionary, NameId, Ns, ThreadId};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

id!(
    /// A function in [`HostStacks`].
    FrameId, u32
);
id!(
    /// A stack of functions in [`HostStacks`]. The first one is empty.
    StackId, u32
);

/// A function of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HostFrame {
    /// Function.
    pub function: NameId,
    /// File, or the library of a native function; empty when unknown.
    pub file: NameId,
    /// Line; 0 when unknown.
    pub line: u32,
}

/// One call of a function with its exact time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSpan {
    /// Thread.
    pub thread: ThreadId,
    /// When it began.
    pub start: Ns,
    /// When it returned.
    pub end: Ns,
    /// Function.
    pub frame: FrameId,
}

/// The stack of a thread at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSample {
    /// Thread.
    pub thread: ThreadId,
    /// Moment.
    pub at: Ns,
    /// Stack.
    pub stack: StackId,
}

/// A sample of a thread that other captures of the program know by one of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignSample {
    /// Process id.
    pub pid: u32,
    /// Id of the thread, and the handle that stands for it where its id is not known.
    pub tids: [u32; 2],
    /// Moment.
    pub at: Ns,
    /// Stack.
    pub stack: StackId,
}

/// Name of the function that stands for time in which the system did not run a thread.
pub const NOT_RUNNING: &str = "(not_running)";

/// Stacks of threads. Calls are in the order of (thread, start, longest first) and samples in that of (thread, time).
#[derive(Debug, Clone, Default)]
pub struct HostStacks {
    /// Calls of functions, nested on each thread.
    pub spans: Vec<HostSpan>,
    /// Samples.
    pub samples: Vec<HostSample>,
    /// Samples of another process, until all captures are read.
    pub foreign: Vec<ForeignSample>,
    frames: Dictionary<HostFrame>,
    /// Caller and function of each stack but the empty one.
    stacks: Dictionary<(StackId, FrameId)>,
}

impl HostStacks {
    /// Returns the id of a function, and adds it if it is new.
    pub fn intern(&mut self, frame: HostFrame) -> FrameId {
        FrameId(self.frames.number(frame))
    }

    /// Returns the id of the stack in which a function is called from another stack, and adds it if it is new.
    pub fn call(&mut self, caller: StackId, frame: FrameId) -> StackId {
        StackId(self.stacks.number((caller, frame)) + 1)
    }

    /// Returns a function; an unknown one for an id of another trace.
    pub fn frame(&self, id: FrameId) -> HostFrame {
        self.frames.values.get(id.index()).copied().unwrap_or_default()
    }

    /// Returns the caller and the function of each stack, in the order of their ids from 1. A caller comes before what it calls.
    pub fn stacks(&self) -> &[(StackId, FrameId)] {
        &self.stacks.values
    }

    /// Returns true if the capture has no stacks.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.samples.is_empty()
    }

    /// Takes over the samples of other processes. `thread` finds a thread that calls CUDA; others launch nothing.
    pub(super) fn settle(&mut self, thread: impl Fn(u32, [u32; 2]) -> Option<ThreadId>) {
        let mut known = FxHashMap::default();
        for ForeignSample { pid, tids, at, stack } in std::mem::take(&mut self.foreign) {
            if let Some(thread) = *known.entry((pid, tids)).or_insert_with(|| thread(pid, tids)) {
                self.samples.push(HostSample { thread, at, stack });
            }
        }
    }

    /// Puts calls and samples in order. Calls of one time stay in the order in which they were read: the caller first.
    pub(super) fn sort(&mut self) {
        self.spans.sort_by_key(|span| (span.thread, span.start, Reverse(span.end)));
        self.samples.sort_by_key(|sample| (sample.thread, sample.at));
    }

    /// Keeps the calls and samples of the threads for which `keep` holds.
    pub(super) fn retain(&mut self, keep: impl Fn(ThreadId) -> bool) {
        self.spans.retain(|span| keep(span.thread));
        self.samples.retain(|sample| keep(sample.thread));
    }
}
