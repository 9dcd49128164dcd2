//! Constants of the format, and telling it from other files.

/// The first bytes of every capture.
pub const MAGIC: &[u8; 6] = b"RGCAP\0";

/// The version this build writes, and the newest it reads.
pub const VERSION: u16 = 1;

/// The first bytes of every frame.
pub(crate) const FRAME_MARK: u32 = u32::from_le_bytes(*b"RGFR");

/// A payload stored as it is.
pub(crate) const CODEC_PLAIN: u32 = 0;

/// A payload compressed as one lz4 block.
pub(crate) const CODEC_LZ4: u32 = 1;

/// Whether a file that begins with these bytes is a native capture (of any version).
#[must_use]
pub fn looks_like(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}

/// Appends `value` as a little-endian base-128 number.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads what [`put_varint`] wrote; at most five bytes, since no record is longer than 4 GiB.
pub(crate) fn take_varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
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
    fn varints_come_back() {
        for value in [
            0usize,
            1,
            127,
            128,
            300,
            16_383,
            16_384,
            1 << 20,
            u32::MAX as usize,
        ] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            out.push(7);
            assert_eq!(take_varint(&out), Some((value, &[7u8][..])));
        }
    }

    #[test]
    fn an_endless_varint_is_refused() {
        assert_eq!(take_varint(&[0x80; 16]), None);
        assert_eq!(take_varint(&[0x80]), None);
        assert_eq!(take_varint(&[]), None);
    }
}
