//! NVTX events: ranges that begin, and marks.

use crate::field::{Field, Sink, Text};

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
