//! Events encoded without allocating: the program's own threads do it.
//!
//! The head of an event goes into a small array and the text is copied behind it, so a handler writes the bytes of the
//! record straight into its thread's ring and nobody touches them again before they are compressed.

use super::record::Text;

/// The most bytes the part of an event before its text takes.
pub const HEAD_MAX: usize = 48;

/// Bytes of an event's body before its message.
const FIXED: usize = 37;

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A push/pop range begins.
    Push,
    /// A start/end range begins.
    Start,
    /// Something happened.
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
        Some(match tag {
            32 => Self::Push,
            33 => Self::Start,
            34 => Self::Mark,
            _ => return None,
        })
    }
}

/// What an event is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// It has no name.
    None,
    /// The text itself.
    Inline(Text<'a>),
    /// A registered string.
    Registered(u32),
}

/// The bytes of an event before its text.
#[derive(Debug, Clone, Copy)]
pub struct EventHead {
    bytes: [u8; HEAD_MAX],
    length: usize,
}

impl EventHead {
    fn new(tag: u8, body: usize) -> Self {
        let mut head = Self {
            bytes: [0; HEAD_MAX],
            length: 0,
        };
        head.push(&[tag]);
        let mut rest = body;
        while rest >= 0x80 {
            head.push(&[(rest as u8 & 0x7f) | 0x80]);
            rest >>= 7;
        }
        head.push(&[rest as u8]);
        head
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            place.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Encodes an event up to its text, which follows it when the message is inline.
#[must_use]
pub fn encode_event(event: &super::NvtxEvent<'_>) -> EventHead {
    let message = match event.message {
        Message::None => 0,
        Message::Inline(text) => text.0.len(),
        Message::Registered(_) => 4,
    };
    let mut head = EventHead::new(event.kind.tag(), FIXED + 1 + message);
    head.push(&event.tid.to_le_bytes());
    head.push(&event.domain.to_le_bytes());
    head.push(&event.at.to_le_bytes());
    head.push(&event.range.to_le_bytes());
    head.push(&event.category.to_le_bytes());
    head.push(&[event.payload_kind]);
    head.push(&event.payload.to_le_bytes());
    match event.message {
        Message::None => head.push(&[0]),
        Message::Inline(_) => head.push(&[1]),
        Message::Registered(id) => {
            head.push(&[2]);
            head.push(&id.to_le_bytes());
        }
    }
    head
}

/// Encodes the end of a push/pop range.
#[must_use]
pub fn encode_pop(tid: u32, domain: u32, at: u64) -> EventHead {
    let mut head = EventHead::new(19, 16);
    head.push(&tid.to_le_bytes());
    head.push(&domain.to_le_bytes());
    head.push(&at.to_le_bytes());
    head
}

/// Encodes the end of a start/end range.
#[must_use]
pub fn encode_range_end(tid: u32, range: u64, at: u64) -> EventHead {
    let mut head = EventHead::new(20, 20);
    head.push(&tid.to_le_bytes());
    head.push(&range.to_le_bytes());
    head.push(&at.to_le_bytes());
    head
}

/// Encodes a call of CUDA.
#[must_use]
pub fn encode_call(call: &super::Call) -> EventHead {
    let mut head = EventHead::new(12, 32);
    head.push(&call.api.to_le_bytes());
    head.push(&call.thread.to_le_bytes());
    head.push(&call.correlation.to_le_bytes());
    head.push(&call.result.to_le_bytes());
    head.push(&call.start.to_le_bytes());
    head.push(&call.end.to_le_bytes());
    head
}

/// Encodes the first sight of a thread.
#[must_use]
pub fn encode_thread(tid: u32, handle: u32, at: u64) -> EventHead {
    let mut head = EventHead::new(14, 16);
    head.push(&tid.to_le_bytes());
    head.push(&handle.to_le_bytes());
    head.push(&at.to_le_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::super::{Call, NvtxEnd, NvtxEvent, NvtxPop, Record, Thread};
    use super::*;

    fn encoded(record: Record<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        record.encode(&mut out);
        out
    }

    #[test]
    fn the_short_way_writes_what_the_long_way_writes() {
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
            let mut short = encode_event(&event).as_bytes().to_vec();
            if let Message::Inline(text) = message {
                short.extend_from_slice(text.0);
            }
            assert_eq!(short, encoded(Record::NvtxEvent(event)));
        }
        assert_eq!(
            encode_pop(1, 2, 3).as_bytes(),
            encoded(Record::NvtxPop(NvtxPop {
                tid: 1,
                domain: 2,
                at: 3
            }))
        );
        assert_eq!(
            encode_range_end(1, 2, 3).as_bytes(),
            encoded(Record::NvtxEnd(NvtxEnd {
                tid: 1,
                range: 2,
                at: 3
            }))
        );
        assert_eq!(
            encode_thread(1, 2, 3).as_bytes(),
            encoded(Record::Thread(Thread {
                tid: 1,
                handle: 2,
                at: 3
            }))
        );
        let call = Call {
            api: 1 << 31 | 307,
            thread: 2,
            correlation: 3,
            result: 4,
            start: 5,
            end: 6,
        };
        assert_eq!(encode_call(&call).as_bytes(), encoded(Record::Call(call)));
    }
}
