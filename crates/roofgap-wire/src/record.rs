//! The records of a capture; among them NVTX events: ranges that begin, and marks.
//!
//! [`RecordHead`] encodes without allocation, for the threads of the profiled program: a small record, or an event up to its text, is encoded into a fixed array, which the caller copies into the ring of
//! its thread together with the text.

use crate::field::{Field, FixedBytes, Sink, Text, put_varint};

/// Writes tag and length in front of the body, which begins two bytes after `at`.
fn close(out: &mut Vec<u8>, at: usize, tag: u8) {
    let length = out.len() - at - 2;
    if let (Ok(short @ 0..=0x7f), Some(target)) = (u8::try_from(length), out.get_mut(at..at + 2)) {
        target.copy_from_slice(&[tag, short]);
        return;
    }
    let mut head = vec![tag];
    put_varint(&mut head, length);
    out.splice(at..at + 2, head);
}

/// Declares the record types with their tags and fields in order, and the enum of all of them.
macro_rules! records {
    ($( $(#[$doc:meta])* $tag:literal $name:ident $(<$life:lifetime>)? { $( $(#[$field_doc:meta])* $field:ident : $type:ty ),* $(,)? } )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            pub struct $name $(<$life>)? { $( $(#[$field_doc])* pub $field: $type ),* }

            impl $(<$life>)? $name $(<$life>)? {
                pub(crate) const TAG: u8 = $tag;

                pub(crate) fn put(&self, out: &mut impl Sink) {
                    $( self.$field.put(out); )*
                }
            }
        )*

        /// A record of a capture.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Record<'a> {
            $( $(#[$doc])* $name($name $(<$life>)?), )*
            /// An NVTX range that begins, or a mark.
            NvtxEvent(NvtxEvent<'a>),
            /// A tag unknown to this version; skipped.
            Unknown(u8),
            /// A body too short for its tag; skipped.
            Malformed(u8),
        }

        impl<'a> Record<'a> {
            /// Appends the encoded record.
            pub fn encode(&self, out: &mut Vec<u8>) {
                let at = out.len();
                out.extend_from_slice(&[0, 0]);
                let tag = match self {
                    $( Self::$name(record) => { record.put(out); $name::TAG } )*
                    Self::NvtxEvent(event) => { event.put(out); event.kind.tag() }
                    Self::Unknown(_) | Self::Malformed(_) => return out.truncate(at),
                };
                close(out, at, tag);
            }

            /// Decodes the body of a record.
            pub(crate) fn decode(tag: u8, body: &'a [u8]) -> Self {
                Self::try_decode(tag, body).unwrap_or(Self::Malformed(tag))
            }

            fn try_decode(tag: u8, body: &'a [u8]) -> Option<Self> {
                let mut rest = body;
                Some(match tag {
                    $( $tag => Self::$name($name { $( $field: <$type as Field>::take(&mut rest)? ),* }), )*
                    tag => match EventKind::from_tag(tag) {
                        Some(kind) => Self::NvtxEvent(NvtxEvent::take(kind, rest)?),
                        None => Self::Unknown(tag),
                    },
                })
            }
        }
    };
}

records! {
    /// The recorded process.
    1 Process<'a> {
        /// Process id.
        pid: u32,
        /// Process id of the parent.
        parent: u32,
        /// Begin of the recording, ns since the epoch.
        at: u64,
        /// Short name as the operating system has it.
        name: Text<'a>,
    }
    /// The CUPTI library in use.
    2 Cupti<'a> {
        /// Version as `cuptiGetVersion` returns it.
        version: u32,
        /// Bit flags: 1 only selected calls are recorded, 2 copies and sets are on, 4 graphs are recorded as whole
        /// launches, 8 calls are recorded through callbacks, 16 kernels are
        /// recorded one at a time.
        options: u32,
        /// Path of the library.
        path: Text<'a>,
    }
    /// A GPU.
    3 Device<'a> {
        /// Device id that other records use.
        id: u32,
        /// 1 if the program can see the device, else 0.
        visible: u8,
        /// Source of these facts: 0 CUPTI, 1 the driver.
        source: u8,
        /// Compute capability, major.
        major: u32,
        /// Compute capability, minor.
        minor: u32,
        /// Number of multiprocessors.
        sms: u32,
        /// Core clock, kHz; 0 when unknown.
        clock_khz: u32,
        /// Size of the L2 cache, bytes; 0 when unknown.
        l2_bytes: u64,
        /// Memory, bytes.
        memory_bytes: u64,
        /// Memory bandwidth, bytes per second; 0 when unknown.
        bandwidth: u64,
        /// Name.
        name: Text<'a>,
        /// UUID of 16 bytes, or empty.
        uuid: Text<'a>,
    }
    /// A text that other records refer to by id.
    4 TextEntry<'a> {
        /// Text id.
        id: u32,
        /// The text.
        text: Text<'a>,
    }
    /// Name, grid, block and memory that launches of a kernel share; other records refer to it by id.
    5 LaunchShape {
        /// Shape id.
        id: u32,
        /// Kernel name, the id of a [`TextEntry`].
        name: u32,
        /// Blocks in the grid.
        grid: [u32; 3],
        /// Threads in a block.
        block: [u32; 3],
        /// Registers per thread.
        registers: u32,
        /// Static shared memory, bytes.
        static_shared: u32,
        /// Dynamic shared memory, bytes.
        dynamic_shared: u32,
        /// Local memory per thread, bytes.
        local: u32,
    }
    /// A stream that other records refer to by id.
    6 StreamEntry {
        /// Stream entry id.
        id: u32,
        /// Device.
        device: u32,
        /// Context.
        context: u32,
        /// Stream.
        stream: u32,
    }
    /// A kernel that ran.
    7 Kernel {
        /// Id of the [`LaunchShape`].
        shape: u32,
        /// Id of the [`StreamEntry`].
        stream_id: u32,
        /// Correlation id of the launching call.
        correlation: u32,
        /// Graph id, 0 for none.
        graph: u32,
        /// Start, ns.
        start: u64,
        /// End, ns; start and end are 0 when CUPTI gave no times.
        end: u64,
        /// Graph node id, 0 for none.
        node: u64,
    }
    /// A memory copy that ran.
    8 Memcpy {
        /// Id of the [`StreamEntry`].
        stream_id: u32,
        /// Correlation id of the call.
        correlation: u32,
        /// Graph id, 0 for none.
        graph: u32,
        /// Start, ns.
        start: u64,
        /// End, ns.
        end: u64,
        /// Graph node id, 0 for none.
        node: u64,
        /// Bytes copied.
        bytes: u64,
        /// Direction, as CUPTI numbers it (1 host to device, 2 device to host, 8 device to device, 10 peer).
        kind: u8,
        /// Kind of the source memory.
        from: u8,
        /// Kind of the target memory.
        to: u8,
        /// Bit flags: 1 asynchronous.
        flags: u8,
    }
    /// A memory set that ran.
    9 Memset {
        /// Id of the [`StreamEntry`].
        stream_id: u32,
        /// Correlation id of the call.
        correlation: u32,
        /// Graph id, 0 for none.
        graph: u32,
        /// Start, ns.
        start: u64,
        /// End, ns.
        end: u64,
        /// Graph node id, 0 for none.
        node: u64,
        /// Bytes set.
        bytes: u64,
        /// Kind of memory.
        memory: u16,
    }
    /// A wait as CUPTI records it; written by early collectors, which had no [`SyncCall`].
    10 Synchronization {
        /// Kind as CUPTI numbers it (1 event, 2 stream waits for event, 3 stream, 4 context).
        kind: u32,
        /// Correlation id of the waiting call.
        correlation: u32,
        /// Context.
        context: u32,
        /// Stream, `u32::MAX` for none.
        stream: u32,
        /// Start, ns.
        start: u64,
        /// End, ns.
        end: u64,
    }
    /// A graph launch recorded as a whole.
    11 GraphLaunch {
        /// Id of the [`StreamEntry`].
        stream_id: u32,
        /// Correlation id of the launching call.
        correlation: u32,
        /// Graph id.
        graph: u32,
        /// Start, ns.
        start: u64,
        /// End, ns.
        end: u64,
    }
    /// A call of the CUDA runtime or driver API.
    12 Call {
        /// Number of the function, with bit 31 set for the driver API.
        api: u32,
        /// Low 32 bits of the pthread handle; a [`Thread`] record maps it to a thread id.
        thread: u32,
        /// Correlation id, shared with the work it starts.
        correlation: u32,
        /// Return code.
        result: u32,
        /// Start, ns.
        start: u64,
        /// End, ns.
        end: u64,
    }
    /// Name of an API function.
    13 CallName<'a> {
        /// Number as in [`Call`].
        api: u32,
        /// Name of the function.
        name: Text<'a>,
    }
    /// Maps a pthread handle to a thread from time `at` on.
    14 Thread {
        /// Thread id of the operating system.
        tid: u32,
        /// Low 32 bits of the pthread handle, which a later thread may reuse.
        handle: u32,
        /// First use of the handle, ns.
        at: u64,
    }
    /// Name of a thread.
    15 ThreadName<'a> {
        /// Thread id of the operating system.
        tid: u32,
        /// 1 if the program set the name through NVTX, 0 if it is the operating system's.
        given: u8,
        /// Name.
        name: Text<'a>,
    }
    /// An NVTX domain. Id 0 is the default domain and needs no record.
    16 Domain<'a> {
        /// Domain id.
        id: u32,
        /// Name.
        name: Text<'a>,
    }
    /// A registered NVTX string.
    17 Registered<'a> {
        /// String id.
        id: u32,
        /// Domain id.
        domain: u32,
        /// The text.
        text: Text<'a>,
    }
    /// An NVTX category.
    18 Category<'a> {
        /// Domain id.
        domain: u32,
        /// Category id within the domain.
        id: u32,
        /// Name.
        name: Text<'a>,
    }
    /// End of the innermost push/pop range of a thread and domain.
    19 NvtxPop {
        /// Thread id of the operating system.
        tid: u32,
        /// Domain id.
        domain: u32,
        /// Time, ns.
        at: u64,
    }
    /// End of a start/end range.
    20 NvtxEnd {
        /// Thread id of the operating system.
        tid: u32,
        /// Range id.
        range: u64,
        /// Time, ns.
        at: u64,
    }
    /// CUPTI's clock, read between two readings of the capture's clock.
    21 ClockPair {
        /// Capture clock before, ns.
        before: u64,
        /// CUPTI clock, ns.
        cupti: u64,
        /// Capture clock after, ns.
        after: u64,
    }
    /// Marks that all records CUPTI had finished by `at` are written.
    22 Flush {
        /// Time, ns.
        at: u64,
    }
    /// Something that was not recorded. Counts are totals so far; the last record of an id is the valid one.
    23 Loss<'a> {
        /// Number of lost items.
        count: u64,
        /// Short identifier of the loss.
        id: Text<'a>,
        /// Explanation.
        detail: Text<'a>,
    }
    /// End of a complete capture, alone in the last frame.
    24 End {
        /// Kind of end: 1 the program exited normally.
        how: u8,
        /// Time, ns.
        at: u64,
    }
    /// An edge of a recorded window. GPU work launched between an edge with `on` 1 and the next with `on` 0 is recorded, other
    /// GPU work is not. A capture without this record is one window.
    25 Window {
        /// 1 where recording begins, 0 where it ends.
        on: u8,
        /// Cause, a [`WindowCause`].
        cause: u8,
        /// Time, ns: after recording began, or before it ended.
        at: u64,
    }
    /// Arguments of a call that records an event, or waits for one or for a stream.
    26 SyncCall {
        /// 0 records an event; a wait as CUPTI numbers it: 1 for an event, 2 of a stream for an event, 3 for a stream.
        kind: u8,
        /// Correlation id of the call.
        correlation: u32,
        /// Context.
        context: u32,
        /// Stream, `u32::MAX` for none.
        stream: u32,
        /// Handle of the event, 0 for none. A program may use it again for another event.
        event: u64,
        /// Begin of the call, ns.
        at: u64,
    }
    /// A node of a CUDA graph, created while the ranges that are open on its thread at this place of the file were open, or
    /// cloned from another node.
    30 GraphNode {
        /// Thread id of the operating system.
        tid: u32,
        /// Graph node id, as [`Kernel`] has it.
        node: u64,
        /// Node from which it was cloned, 0 for none.
        original: u64,
    }
    /// A variable by which the launcher of a distributed job tells the process its place, such as `RANK`.
    40 LauncherVariable<'a> {
        /// Value.
        value: u32,
        /// Name.
        name: Text<'a>,
    }
    /// The machine of the process.
    41 Host<'a> {
        /// Host name.
        name: Text<'a>,
    }
    /// A hardware counter of which [`CounterSample`] has values.
    50 CounterMetric<'a> {
        /// Device id.
        device: u32,
        /// Place of its value in a sample.
        place: u32,
        /// Name, as ncu spells it.
        name: Text<'a>,
    }
    /// The hardware counters of a device over a short time.
    51 CounterSample<'a> {
        /// Device id.
        device: u32,
        /// Start, ns, on CUPTI's clock.
        start: u64,
        /// End, ns.
        end: u64,
        /// Values in the order of their places, 4-byte floating-point numbers.
        values: Text<'a>,
    }
    /// A function of a program that [`StackSample`] refers to by id.
    52 StackFrame<'a> {
        /// Frame id.
        id: u32,
        /// Line, 0 when unknown.
        line: u32,
        /// Function.
        function: Text<'a>,
        /// File; empty for a call into the system.
        file: Text<'a>,
    }
    /// The stack of a thread at a moment.
    53 StackSample<'a> {
        /// Process id.
        pid: u32,
        /// Thread id of the operating system, 0 when unknown.
        tid: u32,
        /// Low 32 bits of the pthread handle, as [`Call`] has it.
        handle: u32,
        /// Time, ns.
        at: u64,
        /// Ids of [`StackFrame`], innermost first, 4 bytes each.
        frames: Text<'a>,
    }
}

/// Cause of an edge of a recorded window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum WindowCause {
    /// The state at the begin of a file.
    Begin,
    /// A request: a command, or a call of the program.
    Request,
    /// The duty cycle, by steps.
    Steps,
    /// The duty cycle, by time.
    Time,
    /// A limit of the recording.
    Limit,
}

impl WindowCause {
    /// Returns the number in [`Window`].
    pub fn to_u8(self) -> u8 {
        self as u8
    }
}

/// Kind of an NVTX event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// Begin of a push/pop range.
    Push,
    /// Begin of a start/end range.
    Start,
    /// A mark.
    Mark,
}

impl EventKind {
    pub(crate) fn tag(self) -> u8 {
        match self {
            Self::Push => 32,
            Self::Start => 33,
            Self::Mark => 34,
        }
    }

    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        [Self::Push, Self::Start, Self::Mark].into_iter().find(|kind| kind.tag() == tag)
    }
}

/// Message of an NVTX event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// No message.
    None,
    /// The text itself.
    Inline(Text<'a>),
    /// Id of a [`Registered`](crate::Registered) string.
    Registered(u32),
}

/// An NVTX range that begins, or a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvtxEvent<'a> {
    /// Kind of event.
    pub kind: EventKind,
    /// Thread id of the operating system.
    pub tid: u32,
    /// Domain id, 0 for the default domain.
    pub domain: u32,
    /// Time, ns.
    pub at: u64,
    /// Range id of a start/end range; 0 for a push or a mark.
    pub range: u64,
    /// Category, 0 for none.
    pub category: u32,
    /// Kind of payload as NVTX numbers it, 0 for none.
    pub payload_kind: u8,
    /// Bits of the payload.
    pub payload: u64,
    /// Message.
    pub message: Message<'a>,
}

/// Bytes of an event's body before the content of its message.
const FIXED: usize = 38;

impl<'a> NvtxEvent<'a> {
    /// Length of the body, bytes.
    pub(crate) fn body_len(&self) -> usize {
        FIXED
            + match self.message {
                Message::None => 0,
                Message::Inline(text) => text.0.len(),
                Message::Registered(_) => 4,
            }
    }

    /// Appends the body without the text of an inline message, which follows it.
    pub(crate) fn put_head(&self, out: &mut impl Sink) {
        self.tid.put(out);
        self.domain.put(out);
        self.at.put(out);
        self.range.put(out);
        self.category.put(out);
        self.payload_kind.put(out);
        self.payload.put(out);
        match self.message {
            Message::None => 0u8.put(out),
            Message::Inline(_) => 1u8.put(out),
            Message::Registered(id) => {
                2u8.put(out);
                id.put(out);
            }
        }
    }

    /// Appends the whole body.
    pub(crate) fn put(&self, out: &mut impl Sink) {
        self.put_head(out);
        if let Message::Inline(text) = self.message {
            out.put_bytes(text.0);
        }
    }

    pub(crate) fn take(kind: EventKind, mut rest: &'a [u8]) -> Option<Self> {
        let rest = &mut rest;
        let (tid, domain, at) = (u32::take(rest)?, u32::take(rest)?, u64::take(rest)?);
        let (range, category) = (u64::take(rest)?, u32::take(rest)?);
        let (payload_kind, payload) = (u8::take(rest)?, u64::take(rest)?);
        let message = match u8::take(rest)? {
            0 => Message::None,
            1 => Message::Inline(Text(rest)),
            2 => Message::Registered(u32::take(rest)?),
            _ => return None,
        };
        Some(Self { kind, tid, domain, at, range, category, payload_kind, payload, message })
    }
}

/// Largest length of a [`RecordHead`], bytes.
pub const HEAD_MAX: usize = 48;

/// An encoded record, without the text that follows it.
#[derive(Debug, Clone, Copy)]
pub struct RecordHead(FixedBytes<HEAD_MAX>);

impl RecordHead {
    fn new(tag: u8, body_len: usize) -> Self {
        let mut head = FixedBytes::new();
        head.put_bytes(&[tag]);
        put_varint(&mut head, body_len);
        Self(head)
    }

    /// Returns the encoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.written()
    }
}

impl NvtxEvent<'_> {
    /// Encodes the event up to the text of an inline message, which has to follow it.
    pub fn encode_head(&self) -> RecordHead {
        let mut head = RecordHead::new(self.kind.tag(), self.body_len());
        self.put_head(&mut head.0);
        head
    }
}

/// Implements `encode_head` for records of fixed length.
macro_rules! fixed {
    ($($record:ident, $body_len:literal;)*) => {$(
        impl $record {
            /// Encodes the record without allocation.
            pub fn encode_head(&self) -> RecordHead {
                let mut head = RecordHead::new(Self::TAG, $body_len);
                self.put(&mut head.0);
                head
            }
        }
    )*};
}
fixed! {
    Call, 32;
    Thread, 16;
    NvtxPop, 16;
    NvtxEnd, 20;
    GraphNode, 20;
    SyncCall, 29;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Text;
    use crate::record::{EventKind, Message, Record};

    fn encoded(record: Record<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        record.encode(&mut out);
        out
    }

    #[test]
    fn a_head_has_the_bytes_of_the_record() {
        for (kind, message) in [
            (EventKind::Push, Message::Inline(Text(b"prefill"))),
            (EventKind::Start, Message::Registered(7)),
            (EventKind::Mark, Message::None),
            (EventKind::Push, Message::Inline(Text(&[b'x'; 1000]))),
        ] {
            let event = NvtxEvent {
                kind,
                tid: 5,
                domain: 2,
                at: 9,
                range: 11,
                category: 3,
                payload_kind: 1,
                payload: 6,
                message,
            };
            let mut short = event.encode_head().as_bytes().to_vec();
            if let Message::Inline(text) = message {
                short.extend_from_slice(text.0);
            }
            assert_eq!(short, encoded(Record::NvtxEvent(event)));
        }
        let (tid, at) = (1, 3);
        let pop = NvtxPop { tid, domain: 2, at };
        assert_eq!(pop.encode_head().as_bytes(), encoded(Record::NvtxPop(pop)));
        let end = NvtxEnd { tid, range: 2, at };
        assert_eq!(end.encode_head().as_bytes(), encoded(Record::NvtxEnd(end)));
        let thread = Thread { tid, handle: 2, at };
        assert_eq!(thread.encode_head().as_bytes(), encoded(Record::Thread(thread)));
        let call = Call { api: 1 << 31 | 307, thread: 2, correlation: 3, result: 4, start: 5, end: 6 };
        assert_eq!(call.encode_head().as_bytes(), encoded(Record::Call(call)));
        let node = GraphNode { tid, node: 1 << 40, original: 7 };
        assert_eq!(node.encode_head().as_bytes(), encoded(Record::GraphNode(node)));
        let sync = SyncCall { kind: 2, correlation: 3, context: 1, stream: 7, event: 1 << 40, at };
        assert_eq!(sync.encode_head().as_bytes(), encoded(Record::SyncCall(sync)));
    }
}
