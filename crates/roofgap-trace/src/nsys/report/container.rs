//! The file of a report: sections that a table at its end lists, and the events inside the largest one.
//!
//! The events lie in blocks of LZ4, each behind its two lengths, then the strings likewise; names of threads and facts of the
//! machine follow as plain messages. Numbers of fields are the same in all versions seen, 2019.6 to 2026.2.

use crate::protobuf::{Fields, Malformed, Wire, bytes, messages, number};
use crate::{REPORT_MAGIC, ReadError};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Last bytes of a report that is whole. Before them stands the offset of the table of sections.
const END: &[u8] = b"U3w[END]";

/// First bytes of the section with the events.
const EVENTS: &[u8] = b"QDTEXT00";

/// The only compression seen.
const LZ4: &[u8] = b"lz4";

/// Most bytes that a byte of LZ4 unpacks to.
const LZ4_RATIO: usize = 255;

/// A failure to read a report.
pub enum ReportFault {
    /// The content is not sound.
    Damaged(&'static str),
    /// The report has a part in a form that is not read.
    Unknown(String),
    Io(std::io::Error),
}

impl From<Malformed> for ReportFault {
    fn from(_: Malformed) -> Self {
        Self::Damaged("a message breaks off or has no valid length")
    }
}

impl ReportFault {
    pub fn about(self, path: &Path) -> ReadError {
        match self {
            Self::Damaged(what) => ReadError::damaged(path, "nsys report", what),
            Self::Io(source) => ReadError::io(path, source),
            Self::Unknown(what) => ReadError::UnknownReport { path: path.to_path_buf(), what },
        }
    }
}

/// The parts of a report that are used.
pub struct Container {
    /// Facts of the recording for the user interface, with the version of nsys.
    pub about: Vec<u8>,
    /// Settings of the recording, with the environment of the program.
    pub options: Vec<u8>,
    events: Vec<u8>,
    /// Offset of the strings in `events`.
    strings: usize,
}

impl Container {
    pub fn open(path: &Path) -> Result<Self, ReportFault> {
        let mut file = File::open(path).map_err(ReportFault::Io)?;
        let length = file.metadata().map_err(ReportFault::Io)?.len();
        let tail = length.checked_sub(16).filter(|at| *at > REPORT_MAGIC.len() as u64);
        let tail = tail.ok_or(ReportFault::Damaged("it breaks off in its first bytes"))?;
        let trailer = part(&mut file, tail, 16)?;
        let (offset, end) = trailer.split_at(8);
        if end != END {
            return Err(ReportFault::Damaged("it breaks off: the mark at its end is missing"));
        }
        let offset = u64::from_le_bytes(offset.try_into().unwrap_or_default());
        let table =
            tail.checked_sub(offset).ok_or(ReportFault::Damaged("its table of sections is not in it"))?;
        let table = part(&mut file, offset, table)?;
        let mut section = |wanted: &[u8]| -> Result<Vec<u8>, ReportFault> {
            for entry in messages(&table, 1)? {
                if bytes(entry, 1)? == Some(wanted) {
                    let (offset, length) = (number(entry, 2)?.unwrap_or(0), number(entry, 3)?.unwrap_or(0));
                    let inside = offset.checked_add(length).is_some_and(|end| end <= tail);
                    let outside = ReportFault::Damaged("a section is not in it");
                    return if inside { part(&mut file, offset, length) } else { Err(outside) };
                }
            }
            Err(ReportFault::Unknown(format!("no section `{}`", String::from_utf8_lossy(wanted))))
        };
        let mut strings = None;
        for field in Fields::new(&section(b"Sampling Data Offsets")?) {
            match field? {
                (1, Wire::Bytes(LZ4)) => {}
                (1, Wire::Bytes(other)) => return Err(compressed(other)),
                (2, Wire::Varint(at)) => strings = usize::try_from(at).ok(),
                (4, _) => return Err(ReportFault::Unknown("events in tables of columns".into())),
                _ => {}
            }
        }
        // Counted from behind the first bytes of the section.
        let strings = strings.and_then(|at| at.checked_add(EVENTS.len()));
        let events = section(b"Raw Sampling Data")?;
        if !events.starts_with(EVENTS) {
            return Err(ReportFault::Unknown("events of another form".into()));
        }
        Ok(Self {
            about: section(b"UI Data")?,
            options: section(b"Analysis Options Data")?,
            strings: strings
                .filter(|at| *at <= events.len())
                .ok_or(ReportFault::Damaged("its strings are not in it"))?,
            events,
        })
    }

    /// Takes the section of the events apart.
    pub fn contents(&self) -> Result<Contents<'_>, ReportFault> {
        let (before, after) = self.events.split_at(self.strings);
        let mut cursor = Fields::new(before.get(EVENTS.len()..).unwrap_or_default());
        let _session = cursor.delimited()?;
        let header = cursor.delimited()?;
        let mut counts = Counts::read(header)?;
        let mut blocks = Vec::new();
        while !cursor.is_empty() {
            blocks.push(Block::next(&mut cursor)?);
        }
        let mut cursor = Fields::new(after);
        let mut strings = Strings::default();
        while (strings.places.len() as u64) < counts.strings {
            let block = Block::next(&mut cursor)?.unpacked()?;
            strings.add(Fields::new(&block).delimited()?)?;
        }
        let mut threads = Vec::new();
        while counts.threads > 0 {
            let before = threads.len();
            threads.extend(messages(cursor.delimited()?, 1)?);
            let more = (threads.len() - before) as u64;
            if more == 0 {
                return Err(ReportFault::Damaged("names of threads are missing"));
            }
            counts.threads = counts.threads.saturating_sub(more);
        }
        let machine = cursor.delimited()?;
        Ok(Contents {
            header,
            events: counts.events,
            generic: counts.generic,
            blocks,
            strings,
            threads,
            machine,
        })
    }
}

fn compressed(with: &[u8]) -> ReportFault {
    ReportFault::Unknown(format!("the compression `{}`", String::from_utf8_lossy(with)))
}

fn part(file: &mut File, offset: u64, length: u64) -> Result<Vec<u8>, ReportFault> {
    file.seek(SeekFrom::Start(offset)).map_err(ReportFault::Io)?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).map_err(ReportFault::Io)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(ReportFault::Damaged("it breaks off")) }
}

/// The section of the events, taken apart.
pub struct Contents<'a> {
    pub header: &'a [u8],
    /// Number of events.
    pub events: u64,
    /// Number of events whose fields the header describes.
    pub generic: u64,
    pub blocks: Vec<Block<'a>>,
    pub strings: Strings,
    pub threads: Vec<&'a [u8]>,
    /// Facts of the machine.
    pub machine: &'a [u8],
}

/// Numbers in the header of the events.
#[derive(Default)]
struct Counts {
    events: u64,
    generic: u64,
    strings: u64,
    threads: u64,
}

impl Counts {
    fn read(header: &[u8]) -> Result<Self, ReportFault> {
        let mut counts = Self::default();
        let (mut machine, mut no_metadata) = (0, 0);
        for field in Fields::new(header) {
            match field? {
                (1, Wire::Varint(count)) => counts.events = count,
                (3, Wire::Varint(count)) => counts.strings = count,
                (5, Wire::Varint(count)) => counts.threads = count,
                (9, Wire::Bytes(with)) if with != LZ4 => return Err(compressed(with)),
                (10, Wire::Varint(flag)) => machine = flag,
                (12, Wire::Varint(flag)) => no_metadata = flag,
                (15, Wire::Varint(count)) => counts.generic = count,
                _ => {}
            }
        }
        if (machine, no_metadata) == (1, 1) {
            Ok(counts)
        } else {
            Err(ReportFault::Unknown("parts in another order".into()))
        }
    }
}

/// A block of LZ4.
pub struct Block<'a> {
    packed: &'a [u8],
    size: usize,
}

impl<'a> Block<'a> {
    fn next(cursor: &mut Fields<'a>) -> Result<Self, ReportFault> {
        let packed = usize::try_from(cursor.varint()?).map_err(|_| Malformed)?;
        let size = usize::try_from(cursor.varint()?).map_err(|_| Malformed)?;
        let packed = cursor.take(packed)?;
        let possible = size <= packed.len().saturating_mul(LZ4_RATIO);
        if possible {
            Ok(Self { packed, size })
        } else {
            Err(ReportFault::Damaged("a block claims too large a size"))
        }
    }

    pub fn unpacked(&self) -> Result<Vec<u8>, ReportFault> {
        let bytes = lz4_flex::block::decompress(self.packed, self.size);
        let bytes = bytes.ok().filter(|bytes| bytes.len() == self.size);
        bytes.ok_or(ReportFault::Damaged("a block of events or strings does not unpack"))
    }
}

/// The strings of a report; the position of one is its id.
#[derive(Default)]
pub struct Strings {
    bytes: Vec<u8>,
    places: Vec<(usize, usize)>,
}

impl Strings {
    fn add(&mut self, storage: &[u8]) -> Result<(), ReportFault> {
        let before = self.places.len();
        for text in messages(storage, 1)? {
            self.places.push((self.bytes.len(), text.len()));
            self.bytes.extend_from_slice(text);
        }
        if self.places.len() > before { Ok(()) } else { Err(ReportFault::Damaged("strings are missing")) }
    }

    pub fn get(&self, id: u64) -> Option<&[u8]> {
        let &(start, length) = self.places.get(usize::try_from(id).ok()?)?;
        self.bytes.get(start..start + length)
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|&(start, length)| &self.bytes[start..start + length])
    }
}
