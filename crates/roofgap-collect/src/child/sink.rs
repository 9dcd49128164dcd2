//! A child's output: drained on a thread, kept in a file of bounded size, its end at hand for messages.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::outcome::LogFacts;

/// Where a stream goes. Beyond `cap` bytes the middle is left out, and a line in the file says how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    /// Into a file, made anew.
    File {
        /// The file.
        path: PathBuf,
        /// The most of the stream it keeps.
        cap: u64,
    },
    /// Only the last bytes, in memory.
    Memory {
        /// The most that is kept.
        cap: usize,
    },
}

impl Sink {
    /// A file of at most 8 MiB: enough for any log a person reads.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Sink::File {
            path: path.into(),
            cap: 8 << 20,
        }
    }
}

/// What a message quotes of a log.
const TAIL: usize = 8 << 10;
/// The end of a stream that a capped file keeps: the last thing said is the most useful.
const FILE_TAIL: u64 = 64 << 10;

/// The open end of a sink, with what it has seen.
pub(super) struct Log {
    file: Option<(File, PathBuf)>,
    head_room: u64,
    last: VecDeque<u8>,
    keep: usize,
    seen: u64,
    write_error: Option<String>,
}

impl Log {
    /// Opens the file before the child is started, so that a folder that cannot be written costs nothing.
    pub(super) fn open(sink: &Sink) -> io::Result<Self> {
        Ok(match sink {
            Sink::File { path, cap } => {
                let tail = FILE_TAIL.min(cap / 2);
                Log {
                    file: Some((File::create(path)?, path.clone())),
                    head_room: cap - tail,
                    last: VecDeque::new(),
                    keep: usize::try_from(tail).unwrap_or(TAIL).max(TAIL),
                    seen: 0,
                    write_error: None,
                }
            }
            Sink::Memory { cap } => Log {
                file: None,
                head_room: 0,
                last: VecDeque::new(),
                keep: *cap,
                seen: 0,
                write_error: None,
            },
        })
    }

    fn take(&mut self, bytes: &[u8]) {
        self.seen = self.seen.saturating_add(bytes.len() as u64);
        if let Some((file, _)) = &mut self.file {
            let now = usize::try_from(self.head_room)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            if now > 0 && self.write_error.is_none() {
                // A full disk must not stop the draining, or the child would hang on its output.
                if let Err(error) = file.write_all(bytes.get(..now).unwrap_or_default()) {
                    self.write_error = Some(error.to_string());
                }
            }
            self.head_room -= now as u64;
        }
        let fresh = bytes
            .get(bytes.len().saturating_sub(self.keep)..)
            .unwrap_or_default();
        let excess = (self.last.len() + fresh.len()).saturating_sub(self.keep);
        self.last.drain(..excess.min(self.last.len()));
        self.last.extend(fresh);
    }

    fn finish(mut self, cap: u64) -> LogFacts {
        let last: Vec<u8> = std::mem::take(&mut self.last).into();
        let mut left_out = 0;
        if let Some((file, _)) = &mut self.file {
            let head = cap - FILE_TAIL.min(cap / 2);
            let beyond = self.seen.saturating_sub(head);
            if beyond > 0 {
                let tail = beyond.min(last.len() as u64).min(cap - head);
                left_out = beyond - tail;
                let from = last.len() - usize::try_from(tail).unwrap_or(last.len());
                let note = if left_out > 0 {
                    format!("\n[... {left_out} bytes of output left out here ...]\n")
                } else {
                    String::new()
                };
                let rest = [note.as_bytes(), last.get(from..).unwrap_or_default()].concat();
                if self.write_error.is_none()
                    && let Err(error) = file.write_all(&rest)
                {
                    self.write_error = Some(error.to_string());
                }
            }
        } else {
            left_out = self.seen - last.len() as u64;
        }
        let quoted = if self.file.is_some() { TAIL } else { self.keep };
        let tail = last.get(last.len().saturating_sub(quoted)..).unwrap_or_default();
        LogFacts {
            path: self.file.map(|(_, path)| path),
            bytes: self.seen,
            left_out,
            tail: String::from_utf8_lossy(tail).into_owned(),
            write_error: self.write_error,
        }
    }
}

/// Drains `pipe` until it is closed, or until `stop` is set and nothing more is waiting (a process that escaped may
/// hold the pipe open for ever).
pub(super) fn drain<P: Read + AsFd>(
    mut pipe: P,
    mut log: Log,
    cap: u64,
    stop: &AtomicBool,
    seen: &AtomicU64,
    mut line: Option<impl FnMut(&str)>,
) -> LogFacts {
    let mut buffer = vec![0; 64 << 10];
    let mut partial = Vec::new();
    loop {
        let stopping = stop.load(Ordering::SeqCst);
        let wait = if stopping { 0 } else { 50_000_000 };
        let mut fds = [PollFd::new(&pipe, PollFlags::IN)];
        match rustix::event::poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: wait,
            }),
        ) {
            Ok(0) if stopping => break,
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => break,
        }
        match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                let bytes = buffer.get(..count).unwrap_or_default();
                log.take(bytes);
                seen.fetch_add(count as u64, Ordering::Relaxed);
                if let Some(line) = &mut line {
                    lines(&mut partial, bytes, line);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    log.finish(cap)
}

/// Hands whole lines over; carriage returns end lines too, since progress is often written so.
fn lines(partial: &mut Vec<u8>, bytes: &[u8], line: &mut impl FnMut(&str)) {
    for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
        // A line without an end must not take all memory.
        if partial.len() < 64 << 10 {
            partial.extend_from_slice(piece);
        }
        if matches!(piece.last(), Some(b'\n' | b'\r')) {
            line(String::from_utf8_lossy(partial).trim_end_matches(['\n', '\r']));
            partial.clear();
        }
    }
}

/// The cap of a sink, in bytes.
pub(super) fn cap(sink: &Sink) -> u64 {
    match sink {
        Sink::File { cap, .. } => *cap,
        Sink::Memory { cap } => *cap as u64,
    }
}

/// Counters a drain shares with the one who reports progress.
#[derive(Default, Clone)]
pub(super) struct Flow {
    pub(super) stop: Arc<AtomicBool>,
    pub(super) seen: Arc<AtomicU64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(sink: &Sink, pieces: &[&[u8]]) -> LogFacts {
        let mut log = Log::open(sink).unwrap();
        for piece in pieces {
            log.take(piece);
        }
        log.finish(cap(sink))
    }

    #[test]
    fn a_short_stream_is_kept_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let facts = feed(&Sink::file(&path), &[b"one\n", b"two\n"]);
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        assert_eq!(
            (facts.bytes, facts.left_out, facts.tail.as_str()),
            (8, 0, "one\ntwo\n")
        );
    }

    #[test]
    fn a_stream_at_and_just_over_its_cap() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let sink = Sink::File {
            path: path.clone(),
            cap: 10,
        };
        assert_eq!(feed(&sink, &[b"01234", b"56789"]).left_out, 0);
        assert_eq!(std::fs::read(&path).unwrap(), b"0123456789");
        assert_eq!(feed(&sink, &[b"0123456789ab"]).left_out, 2);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "01234\n[... 2 bytes of output left out here ...]\n789ab");
    }

    #[test]
    fn memory_keeps_the_end() {
        let facts = feed(&Sink::Memory { cap: 4 }, &[b"abc", b"defg"]);
        assert_eq!((facts.tail.as_str(), facts.bytes, facts.left_out), ("defg", 7, 3));
    }

    #[test]
    fn lines_come_whole_whatever_the_pieces() {
        let mut seen = Vec::new();
        let mut partial = Vec::new();
        for piece in [&b"ab"[..], b"c\nd", b"e\r\nf"] {
            lines(&mut partial, piece, &mut |line: &str| seen.push(line.to_owned()));
        }
        assert_eq!(seen, ["abc", "de", ""]);
    }
}
