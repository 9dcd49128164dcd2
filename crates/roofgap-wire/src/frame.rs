//! Frames: whole records with a checksum, compressed when that makes them shorter.

use crate::header::{CODEC_LZ4, CODEC_PLAIN, FRAME_MARK};
use crate::record::Record;

/// Largest uncompressed payload of a frame, bytes. A larger length means damage.
pub const MAX_RAW: usize = 16 << 20;

/// Length of a frame before its payload, bytes.
pub const FRAME_HEAD: usize = 24;

/// Collects records and encodes them as frames.
#[derive(Debug, Default)]
pub struct FrameBuilder {
    payload: Vec<u8>,
    frame: Vec<u8>,
    sequence: u32,
}

impl FrameBuilder {
    /// Creates an empty builder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record.
    pub fn put(&mut self, record: &Record<'_>) {
        record.encode(&mut self.payload);
    }

    /// Adds encoded records.
    pub fn put_encoded(&mut self, records: &[u8]) {
        self.payload.extend_from_slice(records);
    }

    /// Returns the length of the collected records, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.payload.len()
    }

    /// Returns true if no record was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// Encodes the collected records as a frame and returns its bytes; empty without records.
    ///
    /// The caller closes a frame well before [`MAX_RAW`].
    pub fn close(&mut self) -> &[u8] {
        self.frame.clear();
        if self.payload.is_empty() {
            return &self.frame;
        }
        self.frame.resize(FRAME_HEAD + lz4_flex::block::get_maximum_output_size(self.payload.len()), 0);
        let body = self.frame.get_mut(FRAME_HEAD..).unwrap_or_default();
        let (codec, stored) = match lz4_flex::block::compress_into(&self.payload, body) {
            Ok(length) if length < self.payload.len() => (CODEC_LZ4, length),
            _ => {
                self.frame.truncate(FRAME_HEAD);
                self.frame.extend_from_slice(&self.payload);
                (CODEC_PLAIN, self.payload.len())
            }
        };
        self.frame.truncate(FRAME_HEAD + stored);
        let words = [FRAME_MARK, self.sequence, stored as u32, self.payload.len() as u32, codec];
        for (target, word) in self.frame.chunks_exact_mut(4).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        let (head, payload) = self.frame.split_at(FRAME_HEAD);
        let crc = checksum(head, payload);
        if let Some(target) = self.frame.get_mut(20..24) {
            target.copy_from_slice(&crc.to_le_bytes());
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.payload.clear();
        &self.frame
    }
}

/// Computes the checksum of a frame: all of its head but the mark and the checksum, and the stored payload.
pub fn checksum(head: &[u8], stored: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head.get(4..20).unwrap_or_default());
    hasher.update(stored);
    hasher.finalize()
}
