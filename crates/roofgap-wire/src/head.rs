//! Encoding without allocation, for the threads of the profiled program.
//!
//! A small record, or an event up to its text, is encoded into a fixed array, which the caller copies into the ring of
//! its thread together with the text.

use crate::field::{Sink, put_varint};
use crate::nvtx::NvtxEvent;
use crate::record::{Call, GraphNode, NvtxEnd, NvtxPop, Thread};

/// Largest length of a [`RecordHead`], bytes.
pub const HEAD_MAX: usize = 48;

/// An encoded record, without the text that follows it.
#[derive(Debug, Clone, Copy)]
pub struct RecordHead {
    bytes: [u8; HEAD_MAX],
    length: usize,
}

impl Sink for RecordHead {
    fn put_bytes(&mut self, bytes: &[u8]) {
        if let Some(target) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            target.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }
}

impl RecordHead {
    fn new(tag: u8, body_len: usize) -> Self {
        let mut head = Self { bytes: [0; HEAD_MAX], length: 0 };
        head.put_bytes(&[tag]);
        put_varint(&mut head, body_len);
        head
    }

    /// Returns the encoded bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl NvtxEvent<'_> {
    /// Encodes the event up to the text of an inline message, which has to follow it.
    #[must_use]
    pub fn encode_head(&self) -> RecordHead {
        let mut head = RecordHead::new(self.kind.tag(), self.body_len());
        self.put_head(&mut head);
        head
    }
}

/// Implements `encode_head` for records of fixed length.
macro_rules! fixed {
    ($($record:ident, $body_len:literal;)*) => {$(
        impl $record {
            /// Encodes the record without allocation.
            #[must_use]
            pub fn encode_head(&self) -> RecordHead {
                let mut head = RecordHead::new(Self::TAG, $body_len);
                self.put(&mut head);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Text;
    use crate::nvtx::{EventKind, Message};
    use crate::record::Record;

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
    }
}
