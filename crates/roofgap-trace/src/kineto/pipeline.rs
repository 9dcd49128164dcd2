//! Blocks are read and parsed by several threads, each on the guess that its block begins with an event, and put together in
//! the order of the file by one, which knows whether the guess was right and parses again where it was not.

use super::cursor::{Cursor, Expected, ParseStop};
use super::document::{Document, Header, Place, State, events};
use super::merge::Merge;
use super::rows::{Filler, Rows};
use memchr::memrchr;
use roofgap_base::file::Unpacked;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// No event and no part of the header is this long; text that goes on without an end to one is not held in memory.
const MAX_UNIT: usize = 64 << 20;

/// A trace has an event of the profiler before this.
const MAX_UNKNOWN: u64 = 64 << 20;

/// Division of the work between threads.
#[derive(Debug, Clone, Copy)]
pub struct Division {
    /// Bytes of a block.
    pub block: usize,
    /// Threads that parse.
    pub threads: usize,
}

impl Default for Division {
    /// Blocks small enough to stay in the cache of one core from reading to parsing, and a thread for each core.
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self { block: 1 << 20, threads: cores.clamp(1, 8) }
    }
}

/// Why a document could not be read to its end.
#[derive(Debug)]
pub enum Fault {
    /// No text to be had.
    Source(io::Error),
    /// The document is none of ours.
    Foreign(String),
    /// The document is broken.
    Broken(String),
}

/// Result of parsing a block, assuming that it begins with an event.
struct Parsed {
    index: u64,
    block: Block,
    /// Length of the parsed text and the state at its end.
    read: usize,
    place: Place,
    /// Syntax error at that position, if any.
    wrong: Option<Expected>,
}

/// Queue of blocks for the threads.
struct Feed {
    blocks: Blocks,
    free: Receiver<Block>,
    next: u64,
    failed: bool,
}

/// Reads a whole document into `merge`; the answer is its header.
pub fn run(blocks: Blocks, division: Division, merge: &mut Merge) -> Result<Header, Fault> {
    let (give_free, free) = channel();
    let (give_parsed, parsed) = channel();
    let feed = Mutex::new(Feed { blocks, free, next: 0, failed: false });
    for _ in 0..2 * division.threads + 2 {
        // The receiver is alive; were it not, the threads would find no room and end.
        let _ = give_free.send(Block::new(division.block));
    }
    thread::scope(|scope| {
        for _ in 0..division.threads {
            let give_parsed = give_parsed.clone();
            let feed = &feed;
            scope.spawn(move || work(feed, &give_parsed));
        }
        drop(give_parsed);
        // On a fault both channels close here, which ends the threads.
        let (give_free, parsed) = (give_free, parsed);
        assemble(&parsed, &give_free, merge)
    })
}

/// Parses blocks until the queue is empty.
fn work(feed: &Mutex<Feed>, give_parsed: &Sender<io::Result<Parsed>>) {
    loop {
        // Reading is under the lock: a file is read by one at a time, and what was just read is parsed on the same core.
        let (index, mut block) = {
            let mut feed = feed.lock().unwrap_or_else(PoisonError::into_inner);
            let Ok(mut block) = feed.free.recv() else {
                return;
            };
            if feed.failed {
                return;
            }
            match feed.blocks.next(&mut block) {
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => {
                    feed.failed = true;
                    let _ = give_parsed.send(Err(failure));
                    return;
                }
            }
            feed.next += 1;
            (feed.next - 1, block)
        };
        let (text, rows) = block.split();
        let mut place = Place::Next;
        let (mut read, mut wrong) = (0, None);
        // The first block begins with the header and not with an event.
        if index > 0 {
            let mut cursor = Cursor::new(text, 0);
            if let Err(ParseStop::Invalid(expected)) = events(&mut cursor, &mut place, &mut Filler::new(rows))
            {
                wrong = Some(expected);
            }
            read = cursor.at;
        }
        if give_parsed.send(Ok(Parsed { index, block, read, place, wrong })).is_err() {
            return;
        }
    }
}

/// Puts the blocks together in the order of the file.
fn assemble(
    parsed: &Receiver<io::Result<Parsed>>,
    give_free: &Sender<Block>,
    merge: &mut Merge,
) -> Result<Header, Fault> {
    let mut assembly = Assembly::new();
    let mut early = BTreeMap::new();
    let mut failure = None;
    let mut next = 0;
    for result in parsed {
        match result {
            // What was read before it may hold a better reason.
            Err(error) => failure = Some(error),
            Ok(parsed) => drop(early.insert(parsed.index, parsed)),
        }
        while let Some(parsed) = early.remove(&next) {
            next += 1;
            assembly.add(&parsed, merge)?;
            // No thread waits for it after the last block.
            let _ = give_free.send(parsed.block);
        }
    }
    match failure {
        Some(failure) => Err(Fault::Source(failure)),
        None => assembly.finish(merge),
    }
}

/// The document as far as it was put together.
struct Assembly {
    document: Document,
    /// Text that awaits more.
    pending: Vec<u8>,
    /// Length of `pending` at which the next attempt is made, bytes.
    enough: usize,
    /// Offset of `pending` in the file, bytes.
    offset: u64,
    rows: Rows,
}

impl Assembly {
    fn new() -> Self {
        Self { document: Document::new(), pending: Vec::new(), enough: 0, offset: 0, rows: Rows::default() }
    }

    fn add(&mut self, parsed: &Parsed, merge: &mut Merge) -> Result<(), Fault> {
        let text = parsed.block.text();
        match &mut self.document.state {
            // The guess was right.
            State::Events { place, .. } if *place == Place::Next && self.pending.is_empty() => {
                *place = parsed.place;
                merge.add(&parsed.block.rows);
                if let Some(expected) = parsed.wrong {
                    return Err(self.invalid(expected, text, parsed.read));
                }
                self.offset += parsed.read as u64;
                let rest = text.get(parsed.read..).unwrap_or_default();
                if !rest.is_empty() {
                    self.pending.extend_from_slice(rest);
                    self.enough = 0;
                    self.look(merge)?;
                }
            }
            _ => {
                self.pending.extend_from_slice(text);
                if self.pending.len() >= self.enough {
                    self.look(merge)?;
                }
            }
        }
        if self.pending.len() > MAX_UNIT {
            return Err(Fault::Broken(format!(
                "the value at byte {} does not end within {} MiB",
                self.offset,
                MAX_UNIT >> 20
            )));
        }
        if self.offset > MAX_UNKNOWN && merge.known == 0 {
            return Err(Fault::Foreign(format!(
                "no event of the PyTorch profiler in the first {} MiB",
                MAX_UNKNOWN >> 20
            )));
        }
        Ok(())
    }

    /// Reads on in the pending text.
    fn look(&mut self, merge: &mut Merge) -> Result<(), Fault> {
        let mut cursor = Cursor::new(&self.pending, 0);
        let stop = self.document.advance(&mut cursor, &mut Filler::new(&mut self.rows));
        let read = cursor.at;
        merge.add(&self.rows);
        if let ParseStop::Invalid(expected) = stop {
            return Err(self.invalid(expected, &self.pending, read));
        }
        self.offset += read as u64;
        self.pending.drain(..read);
        // Looking again only when there is twice as much keeps the work linear in the length of a long value.
        self.enough = if read == 0 { 2 * self.pending.len() } else { 0 };
        Ok(())
    }

    /// Describes a syntax error at `at` in `text`.
    fn invalid(&self, expected: Expected, text: &[u8], at: usize) -> Fault {
        let rest = text.get(at..).unwrap_or_default();
        let text: String = String::from_utf8_lossy(rest.get(..rest.len().min(24)).unwrap_or_default())
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let place =
            format!("at byte {}: expected {}, found `{text}`", self.offset + at as u64, expected.as_str());
        match self.document.state {
            State::Start | State::Events { place: Place::First, outermost: true } => Fault::Foreign(place),
            _ => Fault::Broken(place),
        }
    }

    fn finish(mut self, merge: &mut Merge) -> Result<Header, Fault> {
        if !self.pending.is_empty() {
            self.look(merge)?;
        }
        let length = self.offset + self.pending.len() as u64;
        match self.document.state {
            State::End => {}
            State::Start if length == 0 => return Err(Fault::Foreign("an empty file".into())),
            State::Start => return Err(Fault::Foreign("nothing but white space".into())),
            _ => {
                return Err(Fault::Broken(format!(
                    "the text ends at byte {length}, in the middle of the document"
                )));
            }
        }
        if !self.document.has_events {
            return Err(Fault::Foreign("a JSON document without `traceEvents`".into()));
        }
        match (merge.known, merge.events) {
            (0, 0) => Err(Fault::Foreign("a trace without events".into())),
            (0, _) if merge.has_process(&["/device:", "/host:"]) => Err(Fault::Foreign(
                "a trace of XLA (JAX or TensorFlow), which is not read; record the program with nsys instead"
                    .into(),
            )),
            (0, _) if merge.has_process(&["CPU HIP API", "CPU HSA API"]) => Err(Fault::Foreign(
                "a trace of AMD's rocprof, which is not read; for AMD GPUs, give a trace of the PyTorch profiler"
                    .into(),
            )),
            (0, n) => {
                Err(Fault::Foreign(format!("{n} trace events, none of a category of the PyTorch profiler")))
            }
            _ => Ok(self.document.header),
        }
    }
}

/// Room for a piece of text, and for the rows that are read from it.
#[derive(Debug)]
pub struct Block {
    room: Vec<u8>,
    length: usize,
    pub rows: Rows,
}

impl Block {
    pub fn new(size: usize) -> Self {
        Self { room: vec![0; size.max(1)], length: 0, rows: Rows::default() }
    }

    /// Returns the text.
    pub fn text(&self) -> &[u8] {
        &self.room[..self.length]
    }

    /// Returns the text and the target of its rows.
    pub fn split(&mut self) -> (&[u8], &mut Rows) {
        (&self.room[..self.length], &mut self.rows)
    }
}

/// A file as text, unpacked where it is compressed.
pub struct Blocks {
    input: Unpacked,
    /// Bytes read after the end of the last block.
    carry: Vec<u8>,
    ended: bool,
}

impl Blocks {
    /// Opens a file, compressed or not.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { input: Unpacked::open(path)?, carry: Vec::new(), ended: false })
    }

    /// Tells whether the file is compressed.
    pub fn is_packed(&self) -> bool {
        self.input.is_packed()
    }

    /// Fills a block with the text that follows; `false` when there is none left.
    pub fn next(&mut self, block: &mut Block) -> io::Result<bool> {
        block.length = 0;
        if self.ended {
            return Ok(false);
        }
        let carried = self.carry.len();
        if let Some(start) = block.room.get_mut(..carried) {
            start.copy_from_slice(&self.carry);
            block.length = carried;
        }
        self.carry.clear();
        while let Some(free) = block.room.get_mut(block.length..).filter(|free| !free.is_empty()) {
            match self.input.read(free) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(true);
                }
                Ok(count) => block.length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if let Some((cut, rest)) =
            last_cut(block.text()).and_then(|cut| Some((cut, block.text().get(cut..)?)))
        {
            self.carry.extend_from_slice(rest);
            block.length = cut;
        }
        Ok(true)
    }
}

/// Finds the likely start of the last event: a brace before a quote, after a brace and a comma. The guess may be inside an
/// event. The reader of the text before it confirms the guess by ending there.
fn last_cut(text: &[u8]) -> Option<usize> {
    let mut end = text.len();
    loop {
        let at = memrchr(b'{', text.get(..end)?)?;
        let before = text.get(..at)?.trim_ascii_end();
        let after = text.get(at + 1..)?.trim_ascii_start();
        if after.first() == Some(&b'"')
            && before.strip_suffix(b",").is_some_and(|b| b.trim_ascii_end().ends_with(b"}"))
        {
            return Some(at);
        }
        end = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_is_before_the_last_event() {
        let text = br#"[{"a": 1}, {"b": "{lambda}"} ,
          {"ph": "X", "args": {"x": {}}"#;
        let cut = last_cut(text).unwrap();
        assert!(text[cut..].starts_with(br#"{"ph""#));
        assert_eq!(last_cut(br#"{"a": [1, {"b"#), None);
        assert_eq!(last_cut(b""), None);
        assert_eq!(last_cut(b"{"), None);
    }

    #[test]
    fn the_blocks_are_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let content = r#"[{"ph": "X"}, {"ph": "Y", "args": {"a": 1}}, {"ph": "Z"}]"#.repeat(3);
        std::fs::write(&path, &content).unwrap();
        for size in 1..content.len() + 2 {
            let mut blocks = Blocks::open(&path).unwrap();
            let mut block = Block::new(size);
            let mut read = Vec::new();
            while blocks.next(&mut block).unwrap() {
                read.extend_from_slice(block.text());
            }
            assert_eq!(read, content.as_bytes(), "in blocks of {size}");
        }
    }
}
