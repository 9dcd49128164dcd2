//! The container of an ncu report: messages, each behind its length.

use std::io::{self, Read};

/// First bytes of a report.
pub const MAGIC: &[u8] = b"NVR\0";

/// A message that is read whole is never this large; one that claims to be is not read.
const MESSAGE_LIMIT: u32 = 512 << 20;

pub enum Stop {
    Io(io::Error),
    NotAReport,
    Malformed(&'static str),
    TooLarge(u32),
}

impl Stop {
    pub fn problem(&self) -> String {
        match self {
            Self::Io(_) => "the file breaks off".to_owned(),
            Self::NotAReport => "it is no report".to_owned(),
            Self::Malformed(what) => format!("{what} is not as this version of the format has it"),
            Self::TooLarge(size) => format!("a message claims {size} bytes"),
        }
    }
}

pub struct Counted<R> {
    pub input: R,
    pub offset: u64,
}

impl<R: Read> Counted<R> {
    /// Reads a length; `None` at the end of the file.
    pub fn length(&mut self) -> Result<Option<u32>, Stop> {
        let mut bytes = [0u8; 4];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(Stop::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Stop::Io(error)),
            }
        }
        self.offset += 4;
        Ok(Some(u32::from_le_bytes(bytes)))
    }

    pub fn message(&mut self, length: u32) -> Result<Vec<u8>, Stop> {
        if length > MESSAGE_LIMIT {
            return Err(Stop::TooLarge(length));
        }
        // Grows with what is there, not with what is claimed.
        let mut message = Vec::new();
        let read = (&mut self.input).take(u64::from(length)).read_to_end(&mut message).map_err(Stop::Io)?;
        self.offset += read as u64;
        if read as u64 == u64::from(length) {
            Ok(message)
        } else {
            Err(Stop::Io(io::ErrorKind::UnexpectedEof.into()))
        }
    }

    pub fn skip(&mut self, length: u64) -> Result<(), Stop> {
        let skipped = io::copy(&mut (&mut self.input).take(length), &mut io::sink()).map_err(Stop::Io)?;
        self.offset += skipped;
        if skipped == length { Ok(()) } else { Err(Stop::Io(io::ErrorKind::UnexpectedEof.into())) }
    }
}
