//! Constants of the format, its detection from content, and the errors of opening a capture.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

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
#[must_use]
pub fn looks_like(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}

/// Returns the path of the note beside a capture. The collector writes it when the program closed the descriptor of the
/// capture, so that the capture itself cannot say why it ends.
#[must_use]
pub fn note_path(capture: &Path) -> PathBuf {
    let mut name = capture.as_os_str().to_owned();
    name.push(".log");
    name.into()
}

/// Returns the path of the older segment of a capture that keeps only the last seconds. The collector renames a full capture
/// to it and goes on in a new file; ids mean the same in both.
#[must_use]
pub fn older_segment(capture: &Path) -> PathBuf {
    let mut name = capture.as_os_str().to_owned();
    name.push(".old");
    name.into()
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
