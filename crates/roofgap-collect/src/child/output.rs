//! Exit status, resource usage and output of a child. Output is drained on a thread into a file of bounded size, with its tail in memory
//! for messages.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;

/// Destination of one output stream. Beyond `max_bytes` the middle is left out, and a line in the file says how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputTarget {
    /// A file, truncated first.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Most bytes the file keeps.
        max_bytes: u64,
    },
    /// Memory, for the last bytes only.
    Memory {
        /// Most bytes kept.
        max_bytes: usize,
    },
}

impl OutputTarget {
    /// Returns a file of at most 8 MiB, enough for any log a person reads.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File { path: path.into(), max_bytes: 8 << 20 }
    }

    /// Returns the path of the file, if there is one.
    pub(super) fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Memory { .. } => None,
        }
    }
}

/// Bytes of a log that a message quotes.
const TAIL: usize = 8 << 10;
/// Bytes at the end of a stream that a full file keeps: the last lines are the most useful.
const FILE_TAIL: u64 = 64 << 10;

/// An open output target.
#[derive(Default)]
pub struct Log {
    file: Option<(File, PathBuf)>,
    /// Bytes of the stream's start and of its end that are kept.
    head: u64,
    tail: u64,
    /// Bytes of the end in memory, at most `keep`.
    last: VecDeque<u8>,
    keep: usize,
    seen: u64,
    write_error: Option<String>,
}

impl Log {
    /// Opens the target before the child starts, so that an unwritable folder is reported first.
    pub(super) fn open(target: &OutputTarget) -> io::Result<Self> {
        Ok(match target {
            OutputTarget::File { path, max_bytes } => {
                let tail = FILE_TAIL.min(max_bytes / 2);
                Self {
                    file: Some((File::create(path)?, path.clone())),
                    head: max_bytes - tail,
                    tail,
                    keep: usize::try_from(tail).unwrap_or(TAIL).max(TAIL),
                    ..Self::default()
                }
            }
            OutputTarget::Memory { max_bytes } => {
                Self { tail: *max_bytes as u64, keep: *max_bytes, ..Self::default() }
            }
        })
    }

    /// Writes to the file. A full disk must not stop the draining, or the child would block on its output.
    fn write(&mut self, bytes: &[u8]) {
        if let Some((file, _)) = self.file.as_mut().filter(|_| self.write_error.is_none()) {
            self.write_error = file.write_all(bytes).err().map(|error| error.to_string());
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.head.saturating_sub(self.seen)).unwrap_or(usize::MAX);
        self.write(&bytes[..room.min(bytes.len())]);
        self.seen = self.seen.saturating_add(bytes.len() as u64);
        let fresh = &bytes[bytes.len().saturating_sub(self.keep)..];
        let excess = (self.last.len() + fresh.len()).saturating_sub(self.keep);
        self.last.drain(..excess.min(self.last.len()));
        self.last.extend(fresh);
    }

    fn finish(mut self) -> CapturedOutput {
        let last: Vec<u8> = std::mem::take(&mut self.last).into();
        let end = |bytes: usize| &last[last.len().saturating_sub(bytes)..];
        let beyond = self.seen.saturating_sub(self.head);
        let kept = beyond.min(self.tail).min(last.len() as u64);
        let left_out = beyond - kept;
        if left_out > 0 {
            self.write(format!("\n[... {left_out} bytes of output left out here ...]\n").as_bytes());
        }
        self.write(end(kept as usize));
        let quoted = if self.file.is_some() { TAIL } else { self.keep };
        CapturedOutput {
            path: self.file.map(|(_, path)| path),
            bytes: self.seen,
            left_out,
            tail: String::from_utf8_lossy(end(quoted)).into_owned(),
            write_error: self.write_error,
        }
    }
}

/// Drains `pipe` until it is closed, or until `stop` is set and no data is waiting (an escaped process may hold the
/// pipe open for ever).
pub fn drain<P: Read + AsFd>(
    mut pipe: P,
    mut log: Log,
    stop: &AtomicBool,
    mut line: Option<impl FnMut(&str)>,
) -> CapturedOutput {
    let mut buffer = vec![0; 64 << 10];
    let mut partial = Vec::new();
    loop {
        let stopping = stop.load(Ordering::SeqCst);
        let wait = if stopping { 0 } else { 50_000_000 };
        let mut fds = [PollFd::new(&pipe, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: wait })) {
            Ok(0) if stopping => break,
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => break,
        }
        match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                let bytes = &buffer[..count];
                log.take(bytes);
                if let Some(line) = &mut line {
                    lines(&mut partial, bytes, line);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    log.finish()
}

/// Passes complete lines to `line`. A carriage return ends a line too, because progress bars use it.
fn lines(partial: &mut Vec<u8>, bytes: &[u8], line: &mut impl FnMut(&str)) {
    for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
        // An endless line must not use unbounded memory.
        if partial.len() < 64 << 10 {
            partial.extend_from_slice(piece);
        }
        if matches!(piece.last(), Some(b'\n' | b'\r')) {
            line(String::from_utf8_lossy(partial).trim_end_matches(['\n', '\r']));
            partial.clear();
        }
    }
}

/// Reason why a child ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum EndReason {
    /// The child exited by itself, with any status.
    #[serde(rename = "itself")]
    Exited,
    /// The watcher returned [`super::Watch::Stop`].
    #[serde(rename = "enough")]
    StoppedByWatcher,
    /// The time budget was exceeded.
    TimeBudget {
        /// Time limit, ns.
        limit_ns: u64,
    },
    /// The disk budget was exceeded.
    DiskBudget {
        /// Limit and usage.
        found: String,
    },
    /// The child waits for the terminal, which it does not get.
    #[serde(rename = "terminal")]
    NoTerminal,
    /// The user cancelled.
    Cancelled,
}

/// CPU time and memory of a child and the descendants it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// CPU time in user mode, ns.
    pub user_ns: u64,
    /// CPU time in the kernel, ns.
    pub system_ns: u64,
    /// Largest resident set of any one process, bytes.
    pub max_rss_bytes: u64,
}

/// One output stream of a finished child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CapturedOutput {
    /// Path of the log file, if there is one.
    pub path: Option<PathBuf>,
    /// Bytes the child wrote.
    pub bytes: u64,
    /// Bytes left out of the middle to respect the size limit.
    pub left_out: u64,
    /// Last bytes of the stream, for messages.
    pub tail: String,
    /// Error that left the file incomplete, such as a full disk.
    pub write_error: Option<String>,
}

/// A process of a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessName {
    /// Process id.
    pub pid: i32,
    /// Process name, as in `/proc/PID/stat`.
    pub name: String,
}

/// Result of running a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Reason why the child ended.
    pub ended: EndReason,
    /// Exit status, if the child exited.
    pub code: Option<i32>,
    /// Number of the signal that killed the child, if one did.
    pub signal: Option<i32>,
    /// Start time (RFC 3339, UTC).
    pub started: String,
    /// End time (RFC 3339, UTC).
    pub finished: String,
    /// Wall time from before the start to the end.
    #[serde(rename = "wall_ns", serialize_with = "as_ns")]
    pub wall: Duration,
    /// CPU time and memory.
    pub usage: Usage,
    /// Standard output.
    pub stdout: CapturedOutput,
    /// Standard error.
    pub stderr: CapturedOutput,
    /// Processes that outlived the child and were ended.
    pub leftovers: Vec<ProcessName>,
    /// Processes of the program that were seen with the CUDA driver loaded. One that lived for less than a few seconds may be
    /// missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_processes: Vec<ProcessName>,
}

impl Outcome {
    /// Returns true when the child exited by itself with status 0. Its output files may still be missing.
    pub fn is_success(&self) -> bool {
        self.ended == EndReason::Exited && self.code == Some(0)
    }

    /// Returns the tail of stderr, or of stdout when stderr is empty.
    pub fn output_tail(&self) -> &str {
        let error = self.stderr.tail.trim_end();
        if error.is_empty() { self.stdout.tail.trim_end() } else { error }
    }

    /// Describes the end: `ended with status 3`, `was killed by signal 9 (SIGKILL)`, ...
    pub fn describe(&self) -> String {
        let how = match (self.code, self.signal) {
            // A shell or profiler in between reports a signal as 128 + its number.
            (Some(code), _) => match signal_name(code - 128) {
                "" => format!("ended with status {code}"),
                name => format!("ended with status {code}, as after signal {}{name}", code - 128),
            },
            (None, Some(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
            (None, None) => "ended without a status".to_owned(),
        };
        match &self.ended {
            EndReason::Exited => how,
            EndReason::StoppedByWatcher => format!("was stopped once enough was measured, and {how}"),
            EndReason::TimeBudget { limit_ns } => {
                let seconds = limit_ns / 1_000_000_000;
                format!("was stopped after its time budget of {seconds} s, and {how}")
            }
            EndReason::DiskBudget { found } => format!("was stopped because {found}, and {how}"),
            EndReason::NoTerminal => {
                let why = "it asks at the terminal (/dev/tty), which a session does not give it";
                format!("was stopped because {why}, and {how}")
            }
            EndReason::Cancelled => format!("was interrupted, and {how}"),
        }
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        2 => " (SIGINT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

fn as_ns<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(ns(*time))
}

/// Converts to whole nanoseconds; saturates at 584 years.
pub fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(target: &OutputTarget, pieces: &[&[u8]]) -> CapturedOutput {
        let mut log = Log::open(target).unwrap();
        for piece in pieces {
            log.take(piece);
        }
        log.finish()
    }

    #[test]
    fn a_short_stream_is_kept_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let facts = feed(&OutputTarget::file(&path), &[b"one\n", b"two\n"]);
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        assert_eq!((facts.bytes, facts.left_out, facts.tail.as_str()), (8, 0, "one\ntwo\n"));
    }

    #[test]
    fn a_stream_at_and_just_over_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let target = OutputTarget::File { path: path.clone(), max_bytes: 10 };
        assert_eq!(feed(&target, &[b"01234", b"56789"]).left_out, 0);
        assert_eq!(std::fs::read(&path).unwrap(), b"0123456789");
        assert_eq!(feed(&target, &[b"0123456789ab"]).left_out, 2);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "01234\n[... 2 bytes of output left out here ...]\n789ab");
    }

    #[test]
    fn memory_keeps_the_end() {
        let facts = feed(&OutputTarget::Memory { max_bytes: 4 }, &[b"abc", b"defg"]);
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
