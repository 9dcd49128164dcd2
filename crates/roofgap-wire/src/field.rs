//! Encoding of single fields: numbers, varints and text.

use std::borrow::Cow;

/// Destination of encoded bytes.
pub trait Sink {
    fn put_bytes(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A fixed number of bytes; what does not fit is left out.
#[derive(Debug, Clone, Copy)]
pub struct FixedBytes<const N: usize> {
    pub bytes: [u8; N],
    length: usize,
}

impl<const N: usize> FixedBytes<N> {
    pub fn new() -> Self {
        Self { bytes: [0; N], length: 0 }
    }

    pub fn written(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl<const N: usize> Sink for FixedBytes<N> {
    fn put_bytes(&mut self, bytes: &[u8]) {
        if let Some(target) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            target.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }
}

/// Text as the program passed it: usually UTF-8, not validated while recording.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<'a>(pub &'a [u8]);

impl std::fmt::Debug for Text<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}", self.to_str())
    }
}

impl<'a> Text<'a> {
    /// Returns the text, with invalid UTF-8 replaced.
    pub fn to_str(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.0)
    }
}

/// A field at a fixed position in a record.
pub trait Field<'a>: Sized {
    fn put(&self, out: &mut impl Sink);
    fn take(bytes: &mut &'a [u8]) -> Option<Self>;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Field<'_> for $type {
            fn put(&self, out: &mut impl Sink) {
                out.put_bytes(&self.to_le_bytes());
            }
            fn take(bytes: &mut &[u8]) -> Option<Self> {
                let (head, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_le_bytes(*head))
            }
        }
    )*};
}
number!(u8, u16, u32, u64);

impl Field<'_> for [u32; 3] {
    fn put(&self, out: &mut impl Sink) {
        self.iter().for_each(|value| value.put(out));
    }
    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some([u32::take(bytes)?, u32::take(bytes)?, u32::take(bytes)?])
    }
}

impl<'a> Field<'a> for Text<'a> {
    fn put(&self, out: &mut impl Sink) {
        put_varint(out, self.0.len());
        out.put_bytes(self.0);
    }
    fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let (length, rest) = take_varint(bytes)?;
        let (text, rest) = rest.split_at_checked(length)?;
        *bytes = rest;
        Some(Self(text))
    }
}

/// Appends `value` as a little-endian base-128 number.
pub fn put_varint(out: &mut impl Sink, mut value: usize) {
    while value >= 0x80 {
        out.put_bytes(&[(value as u8 & 0x7f) | 0x80]);
        value >>= 7;
    }
    out.put_bytes(&[value as u8]);
}

/// Reads a number written by [`put_varint`]: at most five bytes, since no record is longer than 4 GiB.
pub fn take_varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0usize;
    for (at, &byte) in bytes.iter().enumerate().take(5) {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(at + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip() {
        for value in [0usize, 1, 127, 128, 300, 16_383, 16_384, 1 << 20, u32::MAX as usize] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            out.push(7);
            assert_eq!(take_varint(&out), Some((value, &[7u8][..])));
        }
    }

    #[test]
    fn an_unterminated_varint_is_rejected() {
        assert_eq!(take_varint(&[0x80; 16]), None);
        assert_eq!(take_varint(&[0x80]), None);
        assert_eq!(take_varint(&[]), None);
    }
}
