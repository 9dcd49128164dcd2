//! Columns of numbers as text: variable-length integers in base64. The page decodes them once.

/// Numbers as variable-length integers: seven bits per byte, the top bit set on all but the last byte of each.
#[derive(Debug, Default)]
pub struct Packer {
    bytes: Vec<u8>,
}

impl Packer {
    /// Returns the offset of the next number.
    pub fn offset(&self) -> usize {
        self.bytes.len()
    }

    /// Appends an unsigned number.
    pub fn unsigned(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Appends a signed number in zigzag encoding.
    pub fn signed(&mut self, value: i64) {
        self.unsigned(((value << 1) ^ (value >> 63)) as u64);
    }

    /// Encodes all numbers as base64.
    pub fn base64(&self) -> String {
        base64(&self.bytes)
    }
}

/// Encodes bytes as base64 with padding.
pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |v: u32| char::from(LETTERS[(v & 63) as usize]);
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let at = |i: usize| part.get(i).map_or(0, |b| u32::from(*b));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        out.push(letter(word >> 18));
        out.push(letter(word >> 12));
        out.push(if part.len() > 1 { letter(word >> 6) } else { '=' });
        out.push(if part.len() > 2 { letter(word) } else { '=' });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_others_write_it() {
        assert_eq!(base64(b""), "");
        assert_eq!(base64(b"M"), "TQ==");
        assert_eq!(base64(b"Ma"), "TWE=");
        assert_eq!(base64(b"Man"), "TWFu");
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn numbers_by_their_bytes() {
        let mut packer = Packer::default();
        packer.unsigned(0);
        packer.unsigned(127);
        packer.unsigned(300);
        packer.signed(-1);
        packer.signed(1);
        assert_eq!(packer.offset(), 6);
        assert_eq!(packer.bytes, [0, 127, 0xac, 2, 1, 2]);
    }
}
