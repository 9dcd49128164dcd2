//! The event model: columns of ids and times, interned names, declared losses.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $repr);

        impl $name {
            /// Returns the position in the table that this id refers to.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

mod calls;
mod distributed;
mod host;
mod limits;
mod losses;
mod ops;
mod order;
mod sampled;
mod trace;
mod waits;

pub use calls::{
    BackwardLink, Call, CallClass, Calls, CpuOps, GraphNodes, Mark, Range, RangeCollective, RangeStyle,
    Ranges, ShapedOperator,
};
pub use distributed::{Collective, Distributed, ProcessGroup};
pub(crate) use distributed::{group_label, launched_job};
pub use host::{ForeignSample, FrameId, HostFrame, HostSample, HostSpan, HostStacks, NOT_RUNNING, StackId};
pub use losses::{Loss, LossKind, Losses, Severity};
pub(crate) use ops::is_within;
pub use ops::{GpuOp, GpuOps, LaunchShape, MemoryKind, OpKind, ShapeId};
pub use sampled::{SampledCounters, SampledMetric};
pub(crate) use trace::MOST_DEVICES;
pub use trace::{Device, KernelTotal, Process, RecordedWindows, Source, Thread, Trace, range_name};
pub(crate) use waits::{EventKey, EventRow, WaitRow, WaitRows, stated_stream};
pub use waits::{RecordedEvent, Wait, WaitKind};

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Nanoseconds on the trace's one time base, or a length of time in nanoseconds.
pub type Ns = i64;

id!(
    /// A string in [`Names`].
    NameId, u32
);
id!(
    /// A position in `Trace::processes`.
    ProcessId, u32
);
id!(
    /// A position in `Trace::threads`.
    ThreadId, u32
);
id!(
    /// A position in `Trace::devices`.
    DeviceId, u16
);

/// Distinct values, numbered in the order of first occurrence.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dictionary<T> {
    pub values: Vec<T>,
    numbers: FxHashMap<T, u32>,
}

impl<T: Copy + Eq + Hash> Dictionary<T> {
    /// Returns the number of a value, and adds it if it is new.
    #[inline]
    pub fn number(&mut self, value: T) -> u32 {
        let next = self.values.len() as u32;
        let number = *self.numbers.entry(value).or_insert(next);
        if number == next {
            self.values.push(value);
        }
        number
    }
}

/// An interner: every distinct string once, rows hold the id.
#[derive(Debug, Clone, Default)]
pub struct Names {
    strings: Vec<Box<str>>,
    ids: FxHashMap<Box<str>, NameId>,
}

impl Names {
    /// Returns the id of `text`, and adds it if it is new.
    pub fn intern(&mut self, text: &str) -> NameId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = NameId(self.strings.len() as u32);
        self.strings.push(text.into());
        self.ids.insert(text.into(), id);
        id
    }

    /// Returns the id of `text` if it is known.
    pub fn find(&self, text: &str) -> Option<NameId> {
        self.ids.get(text).copied()
    }

    /// Returns the string of an id; empty for an id of another trace.
    pub fn get(&self, id: NameId) -> &str {
        self.strings.get(id.index()).map_or("", |s| s)
    }

    /// Replaces each string by another; ids stay. Two strings may become equal.
    pub fn rewrite(&mut self, text: impl Fn(&str) -> String) {
        self.strings.iter_mut().for_each(|name| *name = text(name).into());
        self.ids = self.strings.iter().cloned().zip((0..).map(NameId)).collect();
    }

    /// Returns the number of distinct strings.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Returns true if no string was interned.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    /// Iterates over ids and strings in the order of first occurrence.
    pub fn iter(&self) -> impl Iterator<Item = (NameId, &str)> {
        self.strings.iter().enumerate().map(|(i, s)| (NameId(i as u32), &**s))
    }
}
