//! Columns of numbers as text: variable-length integers in base64. The page decodes them once.

pub use roofgap_base::text::base64;

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

#[cfg(test)]
mod tests {
    use super::*;

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
