//! The file header: the recorded process, and a status that is rewritten in place when writing stops.
//!
//! The status is in the header, because on a full disk bytes can be overwritten but not appended.
//!
//! Constants of the format, its detection from content, and the errors of opening a capture.

use crate::field::{Field, FixedBytes, Sink};
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Length of the header, bytes.
pub const HEADER_LEN: usize = 64;

/// Offset of the status within the header, bytes.
const STATUS_AT: usize = 32;

/// Length of the status with its checksum, bytes.
const STATUS_LEN: usize = 28;

/// Header of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Format version.
    pub version: u16,
    /// Process id of the writer.
    pub pid: u32,
    /// Creation time of the file, ns since the epoch.
    pub opened_ns: u64,
    /// Start of the process, clock ticks since boot; identifies a process together with its id.
    pub start_ticks: u64,
    /// Reason writing stopped; `None` while writing, or when the status is damaged.
    pub status: Option<Status>,
}

/// State of the writer when it stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Reason.
    pub code: StopCode,
    /// Error number of the operating system, 0 for none.
    pub errno: u32,
    /// Time, ns since the epoch.
    pub at_ns: u64,
    /// Records discarded after the stop, bytes.
    pub lost: u64,
}

/// Reason a writer stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCode {
    /// Still writing, or killed.
    Open,
    /// The program exited normally.
    Exit,
    /// A write failed, for example on a full disk.
    WriteFailed,
    /// The file reached its size limit.
    SizeLimit,
    /// A code unknown to this version.
    Other,
}

impl StopCode {
    fn from_u32(code: u32) -> Self {
        let known = [Self::Open, Self::Exit, Self::WriteFailed, Self::SizeLimit];
        known.into_iter().find(|known| *known as u32 == code).unwrap_or(Self::Other)
    }
}

impl Status {
    /// Returns the offset of the status in the file and its bytes.
    pub fn encode(&self) -> (u64, [u8; STATUS_LEN]) {
        let mut out = FixedBytes::new();
        (self.code as u32).put(&mut out);
        self.errno.put(&mut out);
        self.at_ns.put(&mut out);
        self.lost.put(&mut out);
        crc32fast::hash(out.written()).put(&mut out);
        (STATUS_AT as u64, out.bytes)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, mut crc) = bytes.split_at_checked(24)?;
        let rest = &mut &*body;
        let code = StopCode::from_u32(u32::take(rest)?);
        let status = Self { code, errno: u32::take(rest)?, at_ns: u64::take(rest)?, lost: u64::take(rest)? };
        let is_whole = u32::take(&mut crc)? == crc32fast::hash(body);
        (is_whole && code != StopCode::Open).then_some(status)
    }
}

impl Header {
    /// Creates the header of a new file.
    pub fn new(pid: u32, opened_ns: u64, start_ticks: u64) -> Self {
        Self { version: CONTINUOUS, pid, opened_ns, start_ticks, status: None }
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = FixedBytes::new();
        out.put_bytes(MAGIC);
        self.version.put(&mut out);
        (HEADER_LEN as u32).put(&mut out);
        self.pid.put(&mut out);
        self.opened_ns.put(&mut out);
        self.start_ticks.put(&mut out);
        let crc = crc32fast::hash(out.written());
        let open = Status { code: StopCode::Open, errno: 0, at_ns: 0, lost: 0 };
        out.put_bytes(&self.status.unwrap_or(open).encode().1);
        crc.put(&mut out);
        out.bytes
    }

    /// Decodes a header from the first bytes of a file.
    ///
    /// # Errors
    /// Fails when the file is not a capture, has a newer version, or is truncated or damaged within the header.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if !looks_like(bytes) {
            return Err(WireError::NotACapture);
        }
        let version = bytes.get(6..).and_then(|mut rest| u16::take(&mut rest)).ok_or(WireError::HeaderCut)?;
        if version == 0 || version > VERSION {
            return Err(WireError::Version { found: version });
        }
        let bytes: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(WireError::HeaderCut)?;
        let fields = |mut rest: &[u8], mut crc: &[u8]| {
            let header = Self {
                version,
                pid: u32::take(&mut rest)?,
                opened_ns: u64::take(&mut rest)?,
                start_ticks: u64::take(&mut rest)?,
                status: Status::decode(&bytes[STATUS_AT..]),
            };
            (u32::take(&mut crc)? == crc32fast::hash(&bytes[..STATUS_AT])).then_some(header)
        };
        fields(&bytes[12..], &bytes[60..]).ok_or(WireError::HeaderDamaged)
    }
}

/// First bytes of every capture.
pub const MAGIC: &[u8; 6] = b"RGCAP\0";

/// Newest format version that this build reads.
pub const VERSION: u16 = WITH_WINDOWS;

/// Version of a capture that was recorded without interruption.
pub const CONTINUOUS: u16 = 1;

/// Version of a capture with [`Window`](crate::Window) records. Older readers would show the time between two windows as idle,
/// so they must reject it.
pub const WITH_WINDOWS: u16 = 2;

/// First bytes of every frame.
pub const FRAME_MARK: u32 = u32::from_le_bytes(*b"RGFR");

/// Codec of an uncompressed payload.
pub const CODEC_PLAIN: u32 = 0;

/// Codec of a payload compressed as one lz4 block.
pub const CODEC_LZ4: u32 = 1;

/// Returns true if a file that begins with these bytes is a native capture of any version.
pub fn looks_like(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}

/// Returns the path of the note beside a capture. The collector writes it when the program closed the descriptor of the
/// capture, so that the capture itself cannot say why it ends.
pub fn note_path(capture: &Path) -> PathBuf {
    capture.with_added_extension("log")
}

/// Returns the path of the older segment of a capture that keeps only the last seconds. The collector renames a full capture
/// to it and goes on in a new file; ids mean the same in both.
pub fn older_segment(capture: &Path) -> PathBuf {
    capture.with_added_extension("old")
}

/// Reason a file cannot be read as a capture at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum WireError {
    /// The first bytes belong to another format.
    NotACapture,
    /// A newer roofgap wrote the file.
    Version {
        /// Format version of the file.
        found: u16,
    },
    /// The file is shorter than a header.
    HeaderCut,
    /// The checksum of the header does not match.
    HeaderDamaged,
    /// Reading the file failed.
    Io(io::Error),
}

// Implemented by hand: the injected library links this crate and should have few dependencies.
impl fmt::Display for WireError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotACapture => write!(out, "not a native capture (it does not begin with RGCAP)"),
            Self::Version { found } => write!(
                out,
                "native capture of format version {found}; this build reads up to {VERSION}: use a newer roofgap"
            ),
            Self::HeaderCut => write!(
                out,
                "native capture truncated within its header: the program ended before anything was recorded"
            ),
            Self::HeaderDamaged => write!(out, "native capture with a damaged header"),
            Self::Io(_) => write!(out, "cannot read native capture"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_round_trips() {
        let mut header = Header::new(4321, 1_700_000_000_000_000_000, 99);
        assert_eq!(Header::decode(&header.encode()).unwrap(), header);
        header.status = Some(Status { code: StopCode::WriteFailed, errno: 28, at_ns: 5, lost: 12 });
        assert_eq!(Header::decode(&header.encode()).unwrap(), header);
    }

    #[test]
    fn the_status_can_be_rewritten_in_place() {
        let mut bytes = Header::new(1, 2, 3).encode();
        let status = Status { code: StopCode::SizeLimit, errno: 0, at_ns: 77, lost: 3 };
        let (at, patch) = status.encode();
        bytes[at as usize..at as usize + patch.len()].copy_from_slice(&patch);
        assert_eq!(Header::decode(&bytes).unwrap().status, Some(status));
    }

    #[test]
    fn a_newer_version_is_rejected() {
        let mut bytes = Header::new(1, 2, 3).encode();
        bytes[6] = 3;
        assert!(matches!(Header::decode(&bytes), Err(WireError::Version { found: 3 })));
    }

    #[test]
    fn damage_differs_from_truncation() {
        let mut bytes = Header::new(1, 2, 3).encode();
        assert!(matches!(Header::decode(&bytes[..40]), Err(WireError::HeaderCut)));
        bytes[13] ^= 1;
        assert!(matches!(Header::decode(&bytes), Err(WireError::HeaderDamaged)));
        assert!(matches!(Header::decode(b"SQLite format 3"), Err(WireError::NotACapture)));
    }

    #[test]
    fn a_damaged_status_reads_as_none() {
        let mut bytes = Header::new(1, 2, 3).encode();
        bytes[32] = 1;
        assert_eq!(Header::decode(&bytes).unwrap().status, None);
    }
}
