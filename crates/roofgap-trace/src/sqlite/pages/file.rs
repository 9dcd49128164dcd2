//! A SQLite file as numbered pages.

use super::super::header::Header;
use crate::ReadError;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The file, read at any position by any thread.
#[derive(Debug)]
pub struct PageFile {
    path: PathBuf,
    file: File,
    /// Bytes of a page.
    pub page_size: usize,
    /// Bytes of a page that SQLite uses.
    pub usable: usize,
    /// The number of the last page; the first is 1.
    pub last: u32,
}

impl PageFile {
    /// Opens the file, unless its pages cannot be read directly.
    pub fn open(path: &Path, header: Header) -> Result<Option<Self>, ReadError> {
        let usable = header.page_size - header.reserved;
        if !header.utf8 || usable < SMALLEST_USABLE {
            return Ok(None);
        }
        let Ok(last) = u32::try_from(header.pages) else {
            return Ok(None);
        };
        let file = File::open(path).map_err(|e| ReadError::io(path, e))?;
        Ok(Some(Self { path: path.to_path_buf(), file, page_size: header.page_size, usable, last }))
    }

    /// Reads `count` pages from page `first` on, and leaves [`PADDING`] zeros behind them.
    pub fn read(&self, first: u32, count: usize, buffer: &mut Vec<u8>) -> Result<(), ReadError> {
        let Some(skipped) =
            first.checked_sub(1).filter(|s| u64::from(*s) + count as u64 <= u64::from(self.last))
        else {
            return Err(self.damaged(format!("page {first} of {} is referred to", self.last)));
        };
        let wanted = count * self.page_size;
        buffer.resize(wanted + PADDING, 0);
        let (pages, padding) = buffer.split_at_mut(wanted);
        padding.fill(0);
        self.file
            .read_exact_at(pages, u64::from(skipped) * self.page_size as u64)
            .map_err(|e| ReadError::io(&self.path, e))
    }

    /// Creates the error for invalid content.
    pub fn damaged(&self, what: impl ToString) -> ReadError {
        ReadError::damaged(&self.path, "SQLite file", what)
    }
}

/// The least of a page that SQLite itself accepts.
const SMALLEST_USABLE: usize = 480;

/// Zeros behind the last page, so that an integer can always be loaded as eight bytes.
pub const PADDING: usize = 8;

/// Reads a big-endian number of two bytes.
#[inline]
pub fn two(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes: [u8; 2] = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(usize::from(u16::from_be_bytes(bytes)))
}

/// Reads a big-endian number of four bytes.
#[inline]
pub fn four(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_be_bytes(bytes))
}

/// Reads a varint; returns it and the position after it.
#[inline]
pub fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *bytes.get(at)?;
    if first < 0x80 {
        return Some((u64::from(first), at + 1));
    }
    long_varint(bytes, at)
}

fn long_varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let rest = bytes.get(at..)?;
    let mut value = 0u64;
    for (byte, next) in rest.iter().take(8).zip(at + 1..) {
        value = value << 7 | u64::from(byte & 0x7f);
        if *byte < 0x80 {
            return Some((value, next));
        }
    }
    // The ninth byte counts in full.
    Some((value << 8 | u64::from(*rest.get(8)?), at + 9))
}

#[cfg(test)]
mod tests {
    use super::varint;

    #[test]
    fn varints_of_every_length() {
        assert_eq!(varint(&[0x00], 0), Some((0, 1)));
        assert_eq!(varint(&[0xff, 0x7f], 1), Some((0x7f, 2)));
        assert_eq!(varint(&[0x81, 0x00], 0), Some((128, 2)));
        assert_eq!(varint(&[0xff; 9], 0), Some((u64::MAX, 9)));
        assert_eq!(varint(&[0x80, 0x80, 0x01], 0), Some((1, 3)));
        assert_eq!(varint(&[0xff; 8], 0), None);
        assert_eq!(varint(&[], 0), None);
    }
}
