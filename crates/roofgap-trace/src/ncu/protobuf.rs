//! The protobuf wire format: numbered fields of four shapes, read where they lie.

use std::io::{self, Read};

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// The bytes are no protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The fields of a message, in the order they are written.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn field(&mut self) -> Result<(u64, Wire<'a>), Malformed> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(Malformed),
        };
        Ok((tag >> 3, value))
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for (index, &byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.rest = self.rest.get(index + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Wire<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

impl<'a> Wire<'a> {
    pub fn unsigned(self) -> Option<u64> {
        match self {
            Self::Varint(value) => Some(value),
            _ => None,
        }
    }

    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(value) => Some(value),
            _ => None,
        }
    }

    pub fn text(self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_shapes() {
        let message =
            [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x1d, 1, 0, 0, 0, 0x21, 2, 0, 0, 0, 0, 0, 0, 0];
        let fields: Result<Vec<_>, _> = Fields::of(&message).collect();
        assert_eq!(
            fields,
            Ok(vec![
                (1, Wire::Varint(150)),
                (2, Wire::Bytes(b"hi")),
                (3, Wire::Fixed32(1)),
                (4, Wire::Fixed64(2))
            ])
        );
    }

    #[test]
    fn what_breaks_off_is_malformed() {
        for message in [&[0x08][..], &[0x12, 0x05, 1], &[0x21, 1, 2], &[0xff; 12], &[0x0b]] {
            assert!(Fields::of(message).any(|field| field.is_err()), "{message:?}");
        }
    }
}
