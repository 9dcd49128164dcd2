//! Frames: a payload of whole records with a checksum, compressed when that helps.

use super::format::{CODEC_LZ4, CODEC_PLAIN, FRAME_MARK};
use super::record::Record;

/// The longest payload a frame may hold; a length above it is damage, not a reason to allocate.
pub const MAX_RAW: usize = 16 << 20;

/// The bytes before a payload.
pub(crate) const FRAME_HEAD: usize = 24;

/// Gathers records and closes them into frames.
#[derive(Debug, Default)]
pub struct FrameBuilder {
    payload: Vec<u8>,
    frame: Vec<u8>,
    sequence: u32,
}

impl FrameBuilder {
    /// An empty builder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one record.
    pub fn put(&mut self, record: &Record<'_>) {
        record.encode(&mut self.payload);
    }

    /// Adds whole records that are encoded already.
    pub fn put_encoded(&mut self, records: &[u8]) {
        self.payload.extend_from_slice(records);
    }

    /// Bytes gathered so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.payload.len()
    }

    /// Whether nothing was gathered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// Closes what was gathered into one frame and returns its bytes; empty when nothing was gathered.
    ///
    /// The caller closes well before [`MAX_RAW`].
    pub fn close(&mut self) -> &[u8] {
        self.frame.clear();
        if self.payload.is_empty() {
            return &self.frame;
        }
        self.frame.resize(
            FRAME_HEAD + lz4_flex::block::get_maximum_output_size(self.payload.len()),
            0,
        );
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
        let words = [
            FRAME_MARK,
            self.sequence,
            stored as u32,
            self.payload.len() as u32,
            codec,
        ];
        for (place, word) in self.frame.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let crc = checksum(&self.frame);
        if let Some(place) = self.frame.get_mut(20..24) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.payload.clear();
        &self.frame
    }
}

/// The checksum of a frame given with its head: everything but the mark and the checksum itself.
pub(crate) fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(frame.get(4..20).unwrap_or_default());
    hasher.update(frame.get(FRAME_HEAD..).unwrap_or_default());
    hasher.finalize()
}
