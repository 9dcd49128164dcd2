//! Checks the header of a SQLite file against the file.

use crate::ReadError;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The letters every SQLite file begins with.
pub const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The bytes a journal begins with as long as what it undoes is not done; a finished one is gone, empty or zeroed.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// Header fields that the page reader needs.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    /// Bytes of a page.
    pub page_size: usize,
    /// Bytes at the end of every page that are not SQLite's.
    pub reserved: usize,
    /// Pages of the file.
    pub pages: u64,
    /// True if text is stored as UTF-8.
    pub utf8: bool,
}

fn begins_with(path: &Path, bytes: [u8; 8]) -> bool {
    let mut found = [0u8; 8];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut found).is_ok()) && found == bytes
}

/// Refuses a file that is shorter than its header says, or that has a log not yet merged or a journal not yet done with.
pub fn check(path: &Path) -> Result<Header, ReadError> {
    let damaged = |what: String| Err(ReadError::damaged(path, "SQLite file", what));
    let mut file = File::open(path).map_err(|e| ReadError::io(path, e))?;
    let length = file.metadata().map_err(|e| ReadError::io(path, e))?.len();
    let mut head = [0u8; 100];
    if file.read_exact(&mut head).is_err() {
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
    let promised = u64::from(u32::from_be_bytes([head[28], head[29], head[30], head[31]]));
    // The count is only valid when the two change counters agree; files of old writers leave it at zero.
    let valid = head[24..28] == head[92..96] && promised > 0;
    if valid && promised * page_size > length {
        return damaged(format!(
            "{length} bytes long where the header promises {}; cut off?",
            promised * page_size
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
    if begins_with(beside("-journal").as_ref(), JOURNAL_MAGIC) {
        return damaged(
            "a journal lies beside it: whatever wrote it did not finish, or has not yet; export it again"
                .into(),
        );
    }
    Ok(Header {
        page_size: page_size as usize,
        reserved: usize::from(head[20]),
        pages: if valid { promised } else { length / page_size },
        utf8: u32::from_be_bytes([head[56], head[57], head[58], head[59]]) <= 1,
    })
}
