//! Frames: whole records with a checksum, compressed when that makes them shorter. Reads a capture frame by frame, up to the last whole
//! frame. Any input bytes are safe.

use std::io::{self, Read};

use crate::field::take_varint;
use crate::header::{CODEC_LZ4, CODEC_PLAIN, FRAME_MARK, HEADER_LEN, Header, StopCode, WireError};
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
    pub fn len(&self) -> usize {
        self.payload.len()
    }

    /// Returns true if no record was added.
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

/// End of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The capture is complete.
    Complete {
        /// Kind of end, as [`End`](crate::End) has it.
        how: u8,
    },
    /// The capture is truncated.
    Cut {
        /// Readable length of the file, bytes.
        at: u64,
        /// Reason, as far as it is known.
        why: CutReason,
    },
}

/// Reason a capture is truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutReason {
    /// The last frame is whole but has no end record: the program was killed, called `_exit` or `exec`, closed
    /// the file, or still runs.
    NoEnd,
    /// The last frame is incomplete.
    Torn,
    /// The checksum or content of a frame is wrong.
    Damaged,
    /// A write failed with this error number (28 is a full disk).
    WriteFailed(u32),
    /// The file reached its size limit.
    SizeLimit,
}

/// Reads the frames of a capture.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    stored: Vec<u8>,
    raw: Vec<u8>,
    sequence: u32,
    offset: u64,
    ending: Option<Ending>,
}

impl<R: Read> Reader<R> {
    /// Opens a capture and reads its header.
    ///
    /// # Errors
    /// Fails when the input is not a capture that this build reads.
    pub fn open(mut input: R) -> Result<Self, WireError> {
        let mut head = Vec::with_capacity(HEADER_LEN);
        input.by_ref().take(HEADER_LEN as u64).read_to_end(&mut head)?;
        let header = Header::decode(&head)?;
        let offset = HEADER_LEN as u64;
        Ok(Self { input, header, stored: Vec::new(), raw: Vec::new(), sequence: 0, offset, ending: None })
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the end of the capture; known once [`next_frame`](Self::next_frame) has returned `None`.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Returns the records of the next whole frame, or `None` after the last one.
    ///
    /// # Errors
    /// Fails when reading fails; damage is an [`Ending`].
    pub fn next_frame(&mut self) -> Result<Option<Records<'_>>, WireError> {
        if self.ending.is_some() {
            return Ok(None);
        }
        if let Some(cut) = self.load()? {
            self.ending = Some(Ending::Cut { at: self.offset, why: self.reason(cut) });
            return Ok(None);
        }
        self.offset += (FRAME_HEAD + self.stored.len()) as u64;
        self.sequence = self.sequence.wrapping_add(1);
        if let Some(how) = (Records { rest: &self.raw }).end() {
            self.ending = Some(Ending::Complete { how });
        }
        Ok(Some(Records { rest: &self.raw }))
    }

    /// Reads and checks a frame into `raw`; returns the reason when there is none.
    fn load(&mut self) -> Result<Option<CutReason>, WireError> {
        let mut head = [0u8; FRAME_HEAD];
        let got = fill(&mut self.input, &mut head)?;
        if got < FRAME_HEAD {
            return Ok(Some(if got == 0 { CutReason::NoEnd } else { CutReason::Torn }));
        }
        let mut words = head.chunks_exact(4).map(|word| match *word {
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => 0,
        });
        let mut word = || words.next().unwrap_or_default();
        let (mark, sequence, stored, raw, codec, crc) = (word(), word(), word(), word(), word(), word());
        let (stored, raw) = (stored as usize, raw as usize);
        if mark != FRAME_MARK || sequence != self.sequence || stored > MAX_RAW || raw > MAX_RAW {
            return Ok(Some(CutReason::Damaged));
        }
        // Grows as bytes arrive, so that a wrong length cannot allocate more than the file holds.
        self.stored.clear();
        let got = self.input.by_ref().take(stored as u64).read_to_end(&mut self.stored)?;
        if got < stored {
            return Ok(Some(CutReason::Torn));
        }
        if checksum(&head, &self.stored) != crc {
            return Ok(Some(CutReason::Damaged));
        }
        match codec {
            CODEC_PLAIN if stored == raw => {
                self.raw.clear();
                self.raw.extend_from_slice(&self.stored);
            }
            CODEC_LZ4 => {
                self.raw.resize(raw, 0);
                if lz4_flex::block::decompress_into(&self.stored, &mut self.raw).ok() != Some(raw) {
                    return Ok(Some(CutReason::Damaged));
                }
            }
            _ => return Ok(Some(CutReason::Damaged)),
        }
        Ok(None)
    }

    /// Replaces the reason seen in the frames by the one in the header, where it has one.
    fn reason(&self, seen: CutReason) -> CutReason {
        match (seen, self.header.status) {
            (CutReason::Damaged, _) | (_, None) => seen,
            (_, Some(status)) => match status.code {
                StopCode::WriteFailed => CutReason::WriteFailed(status.errno),
                StopCode::SizeLimit => CutReason::SizeLimit,
                _ => seen,
            },
        }
    }
}

/// Reads until `target` is full or the input ends.
fn fill(input: &mut impl Read, target: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = target.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(read) => got += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// Records of a frame.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Returns the kind of end, if this is the last frame.
    fn end(mut self) -> Option<u8> {
        match self.next() {
            Some(Record::End(end)) => Some(end.how),
            _ => None,
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let (&tag, rest) = self.rest.split_first()?;
        let body = take_varint(rest).and_then(|(length, rest)| rest.split_at_checked(length));
        let Some((body, rest)) = body else {
            self.rest = &[];
            return Some(Record::Malformed(tag));
        };
        self.rest = rest;
        Some(Record::decode(tag, body))
    }
}
