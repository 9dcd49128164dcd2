//! The records of a capture and their bytes.

use std::borrow::Cow;

use super::format::{put_varint, take_varint};
use super::nvtx::{EventKind, Message};

/// Text as the program gave it: usually UTF-8, never checked while recording.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<'a>(pub &'a [u8]);

impl std::fmt::Debug for Text<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}", self.to_str())
    }
}

impl<'a> Text<'a> {
    /// The text, with what is not UTF-8 replaced.
    #[must_use]
    pub fn to_str(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.0)
    }
}

/// A field with a fixed place in a record.
trait Field<'a>: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(bytes: &mut &'a [u8]) -> Option<Self>;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Field<'_> for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(bytes: &mut &[u8]) -> Option<Self> {
                let (head, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_le_bytes(*head))
            }
        }
    )*};
}
number!(u8, u16, u32, u64);

impl Field<'_> for [u32; 3] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.put(out));
    }
    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some([u32::take(bytes)?, u32::take(bytes)?, u32::take(bytes)?])
    }
}

impl<'a> Field<'a> for Text<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len());
        out.extend_from_slice(self.0);
    }
    fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let (length, rest) = take_varint(bytes)?;
        let (text, rest) = rest.split_at_checked(length)?;
        *bytes = rest;
        Some(Self(text))
    }
}

/// Writes tag and length before the body that begins two bytes after `at`.
fn close(out: &mut Vec<u8>, at: usize, tag: u8) {
    let length = out.len() - at - 2;
    let mut head = Vec::new();
    if let (Ok(short @ 0..=0x7f), Some(place)) = (u8::try_from(length), out.get_mut(at..at + 2)) {
        place.copy_from_slice(&[tag, short]);
        return;
    }
    head.push(tag);
    put_varint(&mut head, length);
    out.splice(at..at + 2, head);
}

/// Declares the record types: their tag, their fields in order, and the enum of all of them.
macro_rules! records {
    ($( $(#[$doc:meta])* $tag:literal $name:ident $(<$life:lifetime>)? { $( $(#[$field_doc:meta])* $field:ident : $type:ty ),* $(,)? } )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $name $(<$life>)? { $( $(#[$field_doc])* pub $field: $type ),* }
        )*

        /// One record of a capture.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Record<'a> {
            $( $(#[$doc])* $name($name $(<$life>)?), )*
            /// Something that began or happened in the program's own annotations.
            NvtxEvent(NvtxEvent<'a>),
            /// A tag this version does not know; skipped.
            Unknown(u8),
            /// A body too short for its tag; skipped.
            Malformed(u8),
        }

        impl<'a> Record<'a> {
            /// Appends the record.
            pub fn encode(&self, out: &mut Vec<u8>) {
                let at = out.len();
                out.extend_from_slice(&[0, 0]);
                let tag = match self {
                    $( Self::$name(record) => { $( record.$field.put(out); )* $tag } )*
                    Self::NvtxEvent(event) => { event.put(out); event.kind.tag() }
                    Self::Unknown(_) | Self::Malformed(_) => return out.truncate(at),
                };
                close(out, at, tag);
            }

            /// Reads one record's body.
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
    /// The process that is recorded.
    1 Process<'a> {
        /// Its id.
        pid: u32,
        /// Its parent's.
        parent: u32,
        /// The capture's clock when it began, ns since the epoch.
        at: u64,
        /// The short name the system gives it.
        name: Text<'a>,
    }
    /// The CUPTI that was opened.
    2 Cupti<'a> {
        /// What `cuptiGetVersion` says.
        version: u32,
        /// Bit by bit: 1 calls were chosen one by one, 2 copies and sets are on, 4 graphs are whole launches, 8 calls
        /// were recorded through callbacks.
        options: u32,
        /// The library's file.
        path: Text<'a>,
    }
    /// A GPU.
    3 Device<'a> {
        /// The number other records use.
        id: u32,
        /// Whether the program can see it (1) or not (0).
        visible: u8,
        /// Where the facts come from: 0 CUPTI, 1 the driver.
        source: u8,
        /// Compute capability, major.
        major: u32,
        /// Compute capability, minor.
        minor: u32,
        /// Multiprocessors.
        sms: u32,
        /// Clock of the cores in kHz, 0 when unknown.
        clock_khz: u32,
        /// Size of the L2 cache in bytes, 0 when unknown.
        l2_bytes: u64,
        /// Memory in bytes.
        memory_bytes: u64,
        /// Memory bandwidth in bytes a second, 0 when unknown.
        bandwidth: u64,
        /// Its name.
        name: Text<'a>,
        /// The 16 bytes by which it is known everywhere, or none.
        uuid: Text<'a>,
    }
    /// A text that other records name by its number.
    4 TextEntry<'a> {
        /// The number.
        id: u32,
        /// The text.
        text: Text<'a>,
    }
    /// What launches of one kernel have in common; written once, named by number.
    5 LaunchShape {
        /// The number.
        id: u32,
        /// The kernel's name, a [`TextEntry`].
        name: u32,
        /// Blocks of the grid.
        grid: [u32; 3],
        /// Threads of a block.
        block: [u32; 3],
        /// Registers a thread.
        registers: u32,
        /// Static shared memory in bytes.
        static_shared: u32,
        /// Dynamic shared memory in bytes.
        dynamic_shared: u32,
        /// Local memory a thread in bytes.
        local: u32,
    }
    /// Where work ran.
    6 Place {
        /// The number.
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
        /// Its [`LaunchShape`].
        shape: u32,
        /// Its [`Place`].
        place: u32,
        /// The call that launched it.
        correlation: u32,
        /// Graph it belongs to, 0 for none.
        graph: u32,
        /// Start, ns.
        start: u64,
        /// End, ns; 0 with a start of 0 when CUPTI gave no times.
        end: u64,
        /// Node of the graph, 0 for none.
        node: u64,
    }
    /// A copy that ran.
    8 Copy {
        /// Its [`Place`].
        place: u32,
        /// The call that asked for it.
        correlation: u32,
        /// Graph it belongs to, 0 for none.
        graph: u32,
        /// Start, ns.
        start: u64,
        /// End, ns.
        end: u64,
        /// Node of the graph, 0 for none.
        node: u64,
        /// Bytes copied.
        bytes: u64,
        /// Direction, as CUPTI numbers it (1 host to device, 2 device to host, 8 device to device, 10 peer).
        kind: u8,
        /// Kind of memory it came from.
        from: u8,
        /// Kind of memory it went to.
        to: u8,
        /// Bit 0: asynchronous.
        flags: u8,
    }
    /// A memory set that ran.
    9 Set {
        /// Its [`Place`].
        place: u32,
        /// The call that asked for it.
        correlation: u32,
        /// Graph it belongs to, 0 for none.
        graph: u32,
        /// Start, ns.
        start: u64,
        /// End, ns.
        end: u64,
        /// Node of the graph, 0 for none.
        node: u64,
        /// Bytes set.
        bytes: u64,
        /// Kind of memory.
        memory: u16,
    }
    /// A wait of the program, or of one stream for another.
    10 Sync {
        /// As CUPTI numbers it (1 event, 2 stream waits for event, 3 stream, 4 context).
        kind: u32,
        /// The call that waited.
        correlation: u32,
        /// Context.
        context: u32,
        /// Stream, `u32::MAX` when it is about none.
        stream: u32,
        /// Start, ns.
        start: u64,
        /// End, ns.
        end: u64,
    }
    /// A graph that ran as a whole.
    11 GraphLaunch {
        /// Its [`Place`].
        place: u32,
        /// The call that launched it.
        correlation: u32,
        /// The graph.
        graph: u32,
        /// Start, ns.
        start: u64,
        /// End, ns.
        end: u64,
    }
    /// A call of the CUDA runtime or driver.
    12 Call {
        /// The call's number, with bit 31 set for the driver's.
        api: u32,
        /// The thread: low 32 bits of its pthread handle; a [`Thread`] record says which thread that is.
        thread: u32,
        /// What the work it starts carries.
        correlation: u32,
        /// What it returned.
        result: u32,
        /// Start, ns.
        start: u64,
        /// End, ns.
        end: u64,
    }
    /// The name of a call's number.
    13 CallName<'a> {
        /// As in [`Call`].
        api: u32,
        /// Its name.
        name: Text<'a>,
    }
    /// A thread that was seen: from `at` on, `handle` means this thread.
    14 Thread {
        /// The system's number.
        tid: u32,
        /// Low 32 bits of its pthread handle, which a later thread may inherit.
        handle: u32,
        /// When it was first seen, ns.
        at: u64,
    }
    /// A name for a thread.
    15 ThreadName<'a> {
        /// The system's number.
        tid: u32,
        /// 1 when the program chose it, 0 when it is the system's.
        given: u8,
        /// The name.
        name: Text<'a>,
    }
    /// A domain of annotations. Number 0 is the default domain and needs no record.
    16 Domain<'a> {
        /// The number.
        id: u32,
        /// Its name.
        name: Text<'a>,
    }
    /// A registered string.
    17 Registered<'a> {
        /// The number.
        id: u32,
        /// Its domain.
        domain: u32,
        /// The text.
        text: Text<'a>,
    }
    /// A category of annotations.
    18 Category<'a> {
        /// Its domain.
        domain: u32,
        /// Its number within the domain.
        id: u32,
        /// Its name.
        name: Text<'a>,
    }
    /// The end of the innermost push/pop range of a thread and domain.
    19 NvtxPop {
        /// The system's thread number.
        tid: u32,
        /// The domain.
        domain: u32,
        /// When, ns.
        at: u64,
    }
    /// The end of a start/end range.
    20 NvtxEnd {
        /// The system's thread number.
        tid: u32,
        /// The range.
        range: u64,
        /// When, ns.
        at: u64,
    }
    /// Two clocks read together: the capture's, CUPTI's, the capture's again.
    21 ClockPair {
        /// The capture's clock before.
        before: u64,
        /// CUPTI's.
        cupti: u64,
        /// The capture's clock after.
        after: u64,
    }
    /// What CUPTI had finished by then has been written.
    22 Flush {
        /// When, ns.
        at: u64,
    }
    /// Something that could not be recorded. Counts are totals so far: the last one of an id holds.
    23 Loss<'a> {
        /// How many.
        count: u64,
        /// What, a short identifier.
        id: Text<'a>,
        /// More about it.
        detail: Text<'a>,
    }
    /// The end of a capture that ended in order; it stands alone in the last frame.
    24 End {
        /// 1: the program ended in order.
        how: u8,
        /// When, ns.
        at: u64,
    }
}

/// Something that began or happened in the program's own annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvtxEvent<'a> {
    /// Which of the three.
    pub kind: EventKind,
    /// The system's thread number.
    pub tid: u32,
    /// The domain, 0 for the default one.
    pub domain: u32,
    /// When, ns.
    pub at: u64,
    /// The range that starts; 0 for a push or a mark.
    pub range: u64,
    /// Category, 0 for none.
    pub category: u32,
    /// Kind of payload as NVTX numbers it, 0 for none.
    pub payload_kind: u8,
    /// The payload's bits.
    pub payload: u64,
    /// What it is called.
    pub message: Message<'a>,
}

impl<'a> NvtxEvent<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        self.tid.put(out);
        self.domain.put(out);
        self.at.put(out);
        self.range.put(out);
        self.category.put(out);
        self.payload_kind.put(out);
        self.payload.put(out);
        match self.message {
            Message::None => 0u8.put(out),
            Message::Inline(text) => {
                1u8.put(out);
                out.extend_from_slice(text.0);
            }
            Message::Registered(id) => {
                2u8.put(out);
                id.put(out);
            }
        }
    }

    fn take(kind: EventKind, mut rest: &'a [u8]) -> Option<Self> {
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
        Some(Self {
            kind,
            tid,
            domain,
            at,
            range,
            category,
            payload_kind,
            payload,
            message,
        })
    }
}
