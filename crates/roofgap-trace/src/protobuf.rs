//! The protobuf wire format: numbered fields of four shapes, read where they lie. Bad bytes are an error, never a panic.

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

/// The fields of a message, in the order they are written; also a cursor through messages behind their lengths.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Returns true at the end.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes a message that stands behind its length.
    pub fn delimited(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        self.take(length)
    }

    fn field(&mut self) -> Result<(u64, Wire<'a>), Malformed> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => Wire::Bytes(self.delimited()?),
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(Malformed),
        };
        Ok((tag >> 3, value))
    }

    /// Takes an integer.
    pub fn varint(&mut self) -> Result<u64, Malformed> {
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

    /// Takes some bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
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
        if self.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Returns the last value of a field.
pub fn last(message: &[u8], wanted: u64) -> Result<Option<Wire<'_>>, Malformed> {
    let mut last = None;
    for field in Fields::new(message) {
        let (field, value) = field?;
        if field == wanted {
            last = Some(value);
        }
    }
    Ok(last)
}

/// Returns the last integer of a field.
pub fn number(message: &[u8], wanted: u64) -> Result<Option<u64>, Malformed> {
    Ok(last(message, wanted)?.and_then(Wire::unsigned))
}

/// Returns the last bytes of a field.
pub fn bytes(message: &[u8], wanted: u64) -> Result<Option<&[u8]>, Malformed> {
    Ok(last(message, wanted)?.and_then(Wire::bytes))
}

/// Returns the last text of a field.
pub fn text(message: &[u8], wanted: u64) -> Result<Option<String>, Malformed> {
    Ok(last(message, wanted)?.and_then(Wire::text))
}

/// Lists the messages of a field.
pub fn messages(message: &[u8], wanted: u64) -> Result<Vec<&[u8]>, Malformed> {
    let mut inner = Vec::new();
    for field in Fields::new(message) {
        let (field, value) = field?;
        inner.extend(value.bytes().filter(|_| field == wanted));
    }
    Ok(inner)
}

/// Reads the fields 1 to 3 as sizes of a grid or a block; `None` if one is too large.
pub fn dimensions(message: &[u8]) -> Result<Option<[u32; 3]>, Malformed> {
    let side = |field| Ok(u32::try_from(number(message, field)?.unwrap_or(0)).ok());
    let (x, y, z) = (side(1)?, side(2)?, side(3)?);
    Ok(x.zip(y).zip(z).map(|((x, y), z)| [x, y, z]))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_shapes() {
        let message =
            [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x1d, 1, 0, 0, 0, 0x21, 2, 0, 0, 0, 0, 0, 0, 0];
        let fields: Result<Vec<_>, _> = Fields::new(&message).collect();
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
            assert!(Fields::new(message).any(|field| field.is_err()), "{message:?}");
        }
    }
}
