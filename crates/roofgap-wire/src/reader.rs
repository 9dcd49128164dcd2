//! Reading a capture: frame by frame, safe on any bytes, up to the last whole frame.

use std::fmt;
use std::io::{self, Read};

use super::format::{CODEC_LZ4, CODEC_PLAIN, FRAME_MARK, VERSION, take_varint};
use super::frame::{FRAME_HEAD, MAX_RAW};
use super::header::{HEADER_LEN, Header, StopCode};
use super::record::Record;

/// Why a file cannot be read as a capture at all.
#[derive(Debug)]
pub enum WireError {
    /// The first bytes are another format's.
    NotACapture,
    /// A newer roofgap wrote it.
    Version {
        /// The version in the file.
        found: u16,
    },
    /// Fewer bytes than a header.
    HeaderCut,
    /// The header's checksum does not match.
    HeaderDamaged,
    /// The system could not read the file.
    Io(io::Error),
}

// Written out, because this crate is built once more for the library inside the binary and should have few dependencies.
impl fmt::Display for WireError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotACapture => write!(out, "not a native capture (it does not begin with RGCAP)"),
            Self::Version { found } => write!(
                out,
                "native capture of format version {found}, and this build reads up to {VERSION}: use a newer roofgap"
            ),
            Self::HeaderCut => {
                write!(
                    out,
                    "native capture cut within its header: the program ended before anything was recorded"
                )
            }
            Self::HeaderDamaged => write!(out, "native capture with a damaged header"),
            Self::Io(_) => write!(out, "reading a native capture"),
        }
    }
}

impl std::error::Error for WireError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How a capture ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All that was recorded is there.
    Complete {
        /// What ended it.
        how: How,
    },
    /// What came after `at` is not there.
    Cut {
        /// The bytes of the file that could be read.
        at: u64,
        /// What is known of the reason.
        why: Cut,
    },
}

/// How a complete capture ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The program ended in order.
    Exit,
    /// In a way a newer version knows.
    Other(u8),
}

/// Why a capture is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The last frame is whole but says nothing of an end: killed, `_exit`, `exec`, or still running.
    NoEnd,
    /// The last frame is torn.
    Torn,
    /// A frame's checksum or content does not hold.
    Damaged,
    /// A write failed with this error number (28 is a full disk).
    WriteFailed(u32),
    /// The file reached its limit.
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
    /// Reads the header.
    ///
    /// # Errors
    /// When the input is no capture this build can read.
    pub fn open(mut input: R) -> Result<Self, WireError> {
        let mut head = Vec::with_capacity(HEADER_LEN);
        input.by_ref().take(HEADER_LEN as u64).read_to_end(&mut head)?;
        let header = Header::decode(&head)?;
        let offset = HEADER_LEN as u64;
        Ok(Self {
            input,
            header,
            stored: Vec::new(),
            raw: Vec::new(),
            sequence: 0,
            offset,
            ending: None,
        })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How the capture ended; known once [`next_frame`](Self::next_frame) has returned `None`.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// The records of the next whole frame, or `None` at the end of what can be read.
    ///
    /// # Errors
    /// Only when the system cannot read; damage is an [`Ending`].
    pub fn next_frame(&mut self) -> Result<Option<Records<'_>>, WireError> {
        if self.ending.is_some() {
            return Ok(None);
        }
        if let Some(cut) = self.load()? {
            self.ending = Some(Ending::Cut {
                at: self.offset,
                why: self.reason(cut),
            });
            return Ok(None);
        }
        self.offset += (FRAME_HEAD + self.stored.len()) as u64;
        self.sequence = self.sequence.wrapping_add(1);
        if let Some(how) = (Records { rest: &self.raw }).end() {
            self.ending = Some(Ending::Complete { how });
        }
        Ok(Some(Records { rest: &self.raw }))
    }

    /// Reads and checks one frame into `raw`; says what is wrong when there is none.
    fn load(&mut self) -> Result<Option<Cut>, WireError> {
        let mut head = [0u8; FRAME_HEAD];
        let got = fill(&mut self.input, &mut head)?;
        if got < FRAME_HEAD {
            return Ok(Some(if got == 0 { Cut::NoEnd } else { Cut::Torn }));
        }
        let mut words = head.chunks_exact(4).map(|word| match *word {
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => 0,
        });
        let mut word = || words.next().unwrap_or_default();
        let (mark, sequence, stored, raw, codec, crc) = (word(), word(), word(), word(), word(), word());
        let (stored, raw) = (stored as usize, raw as usize);
        if mark != FRAME_MARK || sequence != self.sequence || stored > MAX_RAW || raw > MAX_RAW {
            return Ok(Some(Cut::Damaged));
        }
        // Grown as bytes arrive, so that a false length cannot make it allocate more than the file holds.
        self.stored.clear();
        let got = self
            .input
            .by_ref()
            .take(stored as u64)
            .read_to_end(&mut self.stored)?;
        if got < stored {
            return Ok(Some(Cut::Torn));
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(head.get(4..20).unwrap_or_default());
        hasher.update(&self.stored);
        if hasher.finalize() != crc {
            return Ok(Some(Cut::Damaged));
        }
        match codec {
            CODEC_PLAIN if stored == raw => {
                self.raw.clear();
                self.raw.extend_from_slice(&self.stored);
            }
            CODEC_LZ4 => {
                self.raw.resize(raw, 0);
                if lz4_flex::block::decompress_into(&self.stored, &mut self.raw).ok() != Some(raw) {
                    return Ok(Some(Cut::Damaged));
                }
            }
            _ => return Ok(Some(Cut::Damaged)),
        }
        Ok(None)
    }

    /// What the header knows better than the frames do.
    fn reason(&self, seen: Cut) -> Cut {
        match (seen, self.header.status) {
            (Cut::Damaged, _) | (_, None) => seen,
            (_, Some(status)) => match status.code {
                StopCode::WriteFailed => Cut::WriteFailed(status.errno),
                StopCode::SizeLimit => Cut::SizeLimit,
                _ => seen,
            },
        }
    }
}

/// Reads until `place` is full or the input ends.
fn fill(input: &mut impl Read, place: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = place.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(read) => got += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// The records of one frame.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl Records<'_> {
    /// How the capture ended, if this is the last frame.
    fn end(mut self) -> Option<How> {
        match self.next() {
            Some(Record::End(end)) => Some(if end.how == 1 {
                How::Exit
            } else {
                How::Other(end.how)
            }),
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
