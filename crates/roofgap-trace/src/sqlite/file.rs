//! A SQLite file as numbered pages, and the trees of pages in it.

use crate::ReadError;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The letters every SQLite file begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Bytes of the header of a file, which are the first ones of page 1.
const FILE_HEADER: usize = 100;

/// The bytes a journal begins with as long as what it undoes is not done; a finished one is gone, empty or zeroed.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// The least of a page that SQLite itself accepts.
const SMALLEST_USABLE: usize = 480;

/// The first byte of a leaf of a table.
pub const LEAF: u8 = 0x0d;
/// The first byte of an inner page of a table.
const INNER: u8 = 0x05;
/// Offset of the cell pointers of an inner page, bytes.
const INNER_HEADER: usize = 12;

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
    /// Opens a file. Refuses one that is shorter than its header says, or that has a log not yet merged or a journal not yet done
    /// with.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let damaged = |what: String| Err(ReadError::damaged(path, "SQLite file", what));
        let file = File::open(path).map_err(|e| ReadError::io(path, e))?;
        let length = file.metadata().map_err(|e| ReadError::io(path, e))?.len();
        let mut head = [0u8; FILE_HEADER];
        if file.read_exact_at(&mut head, 0).is_err() {
            return damaged(format!("only {length} bytes long"));
        }
        if &head[..16] != MAGIC {
            return damaged("does not begin with the letters of a SQLite file".into());
        }
        let page_size = match u16::from_be_bytes([head[16], head[17]]) {
            1 => 65536,
            n => u64::from(n),
        };
        if page_size < 512 || !page_size.is_power_of_two() {
            return damaged(format!("page size {page_size} in the header"));
        }
        let promised = u32::from_be_bytes([head[28], head[29], head[30], head[31]]);
        // The count is only valid when the two change counters agree; files of old writers leave it at zero.
        let valid = head[24..28] == head[92..96] && promised > 0;
        if valid && u64::from(promised) * page_size > length {
            return damaged(format!(
                "{length} bytes long where the header promises {}; cut off?",
                u64::from(promised) * page_size
            ));
        }
        let beside = |end: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            name
        };
        if std::fs::metadata(beside("-wal")).is_ok_and(|m| m.len() > 0) {
            return damaged(
                "a write-ahead log lies beside it; let the program that writes it finish first".into(),
            );
        }
        let mut journal = [0u8; 8];
        if File::open(beside("-journal")).is_ok_and(|file| file.read_exact_at(&mut journal, 0).is_ok())
            && journal == JOURNAL_MAGIC
        {
            return damaged(
                "a journal lies beside it: whatever wrote it did not finish, or has not yet; export it again"
                    .into(),
            );
        }
        let page_size = page_size as usize;
        let usable = page_size - usize::from(head[20]);
        let last = if valid { promised } else { (length / page_size as u64).min(u32::MAX.into()) as u32 };
        let file = Self { path: path.to_path_buf(), file, page_size, usable, last };
        if usable < SMALLEST_USABLE {
            return Err(file.damaged(format!("only {usable} bytes of a page are used")));
        }
        if u32::from_be_bytes([head[56], head[57], head[58], head[59]]) > 1 {
            return Err(file.unsupported("its text is stored as UTF-16, which is not read".into()));
        }
        Ok(file)
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

    /// Creates the error for a form of storage that is not read.
    pub fn unsupported(&self, what: String) -> ReadError {
        ReadError::unsupported(&self.path, what, "export the report again with `nsys export --type sqlite`")
    }

    /// Returns the leaves of a tree in row order.
    ///
    /// All leaves of a sound tree lie equally deep, so the tree is opened level by level and no leaf need be read to know
    /// that it is one. A page that is met twice is an error, which also ends every cycle.
    pub fn leaves(&self, root: u32) -> Result<Vec<u32>, ReadError> {
        let mut seen = vec![0u64; self.last as usize / 64 + 1];
        let mut buffer = Vec::new();
        let mut level = vec![root];
        loop {
            let Some(&first) = level.first() else {
                return Ok(level);
            };
            self.read(first, 1, &mut buffer)?;
            match buffer.get(page_header(first)) {
                Some(&LEAF) => return Ok(level),
                Some(&INNER) => {}
                other => return Err(self.damaged(format!("page {first} of a table begins with {other:?}"))),
            }
            let mut below = Vec::new();
            for &page in &level {
                self.read(page, 1, &mut buffer)?;
                let before = below.len();
                children(&buffer, page_header(page), &mut below)
                    .ok_or_else(|| self.damaged(format!("page {page} is not an inner page of a table")))?;
                for &child in &below[before..] {
                    let Some(word) =
                        seen.get_mut(child as usize / 64).filter(|_| child > 1 && child <= self.last)
                    else {
                        return Err(
                            self.damaged(format!("page {page} refers to page {child} of {}", self.last))
                        );
                    };
                    let bit = 1 << (child % 64);
                    if child == root || *word & bit != 0 {
                        return Err(self.damaged(format!("page {child} is referred to twice")));
                    }
                    *word |= bit;
                }
            }
            level = below;
        }
    }

    /// Counts the rows of a tree by the headers of its leaves.
    pub fn rows(&self, root: u32) -> Result<u64, ReadError> {
        let mut buffer = Vec::new();
        let mut rows = 0;
        for page in self.leaves(root)? {
            self.read(page, 1, &mut buffer)?;
            rows += two(&buffer, page_header(page) + 3).unwrap_or(0) as u64;
        }
        Ok(rows)
    }
}

/// Returns the offset of the header of a page, bytes. Page 1 begins with the header of the file.
pub fn page_header(page: u32) -> usize {
    if page == 1 { FILE_HEADER } else { 0 }
}

/// Appends the pages below an inner page, which are at least two.
fn children(padded: &[u8], header: usize, below: &mut Vec<u32>) -> Option<()> {
    let page = padded.get(..padded.len().checked_sub(PADDING)?)?;
    if page.get(header) != Some(&INNER) {
        return None;
    }
    let cells = two(page, header + 3).filter(|n| *n > 0)?;
    let listed = header + INNER_HEADER;
    for cell in 0..cells {
        let at = two(page, listed + 2 * cell).filter(|at| *at >= listed + 2 * cells)?;
        below.push(four(page, at)?);
    }
    below.push(four(page, header + 8)?);
    Some(())
}

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
    // Row ids are of two and three bytes for the most part.
    let Some(&[first, second, third]) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else {
        return long_varint(bytes, at);
    };
    let high = u64::from(first & 0x7f) << 7 | u64::from(second & 0x7f);
    match (second < 0x80, third < 0x80) {
        (true, _) => Some((high, at + 2)),
        (_, true) => Some((high << 7 | u64::from(third), at + 3)),
        _ => long_varint(bytes, at),
    }
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
