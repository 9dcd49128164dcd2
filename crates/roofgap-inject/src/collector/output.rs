//! The output file. When it cannot grow, the recording ends and the program continues.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::now;
use roofgap_wire::{HEADER_LEN, Header, Status, StopCode};

/// Limit of files per process: `exec` keeps pid and start time, so each program of a chain gets a number.
const TRIES: u32 = 1000;

/// A capture being written.
pub(crate) struct Output {
    file: File,
    length: u64,
    limit: u64,
    stopped: Option<Status>,
}

impl Output {
    /// Creates `<pid>-<start>.rgcap` in `folder` and writes its header. Never overwrites a file.
    pub(crate) fn create(folder: &Path, pid: u32, limit: u64) -> io::Result<(Self, PathBuf)> {
        let start = start_ticks().unwrap_or_default();
        for attempt in 0..TRIES {
            let name = match attempt {
                0 => format!("{pid}-{start}.rgcap"),
                _ => format!("{pid}-{start}-{attempt}.rgcap"),
            };
            let path = folder.join(name);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    file.write_all(&Header::new(pid, now(), start).encode())?;
                    let output = Self {
                        file,
                        length: HEADER_LEN as u64,
                        limit,
                        stopped: None,
                    };
                    return Ok((output, path));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Appends a frame, or ends the recording. `raw` is the uncompressed length of the frame, bytes.
    pub(crate) fn append(&mut self, frame: &[u8], raw: usize) {
        if frame.is_empty() {
            return;
        }
        if let Some(stopped) = &mut self.stopped {
            stopped.lost += raw as u64;
            return;
        }
        if self.length + frame.len() as u64 > self.limit {
            self.stop(StopCode::SizeLimit, 0, raw);
            return;
        }
        match self.file.write_all_at(frame, self.length) {
            Ok(()) => self.length += frame.len() as u64,
            Err(error) => {
                // A torn frame would read as damage; without it the file is whole up to here.
                let _ = self.file.set_len(self.length);
                self.stop(
                    StopCode::WriteFailed,
                    error.raw_os_error().unwrap_or_default() as u32,
                    raw,
                );
            }
        }
    }

    fn stop(&mut self, code: StopCode, errno: u32, raw: usize) {
        self.stopped = Some(Status {
            code,
            errno,
            at_ns: now(),
            lost: raw as u64,
        });
        self.tell();
    }

    /// Overwrites the status in the header, which needs no new disk space.
    fn tell(&self) {
        if let Some(status) = &self.stopped {
            let (at, bytes) = status.encode();
            let _ = self.file.write_all_at(&bytes, at);
        }
    }

    /// Records that the program exited normally.
    pub(crate) fn finish(&mut self) {
        self.stopped.get_or_insert(Status {
            code: StopCode::Exit,
            errno: 0,
            at_ns: now(),
            lost: 0,
        });
        self.tell();
    }
}

/// Returns the start of this process in ticks since boot: field 22 of its stat, counted after the name in parentheses.
fn start_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    stat.get(stat.rfind(')')? + 1..)?
        .split_ascii_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_wire::{CutReason, Ending, FrameBuilder, NvtxPop, Reader, Record};

    fn frame(builder: &mut FrameBuilder) -> Vec<u8> {
        builder.put(&Record::NvtxPop(NvtxPop {
            tid: 1,
            domain: 2,
            at: 3,
        }));
        builder.close().to_vec()
    }

    fn ending(path: &Path) -> (usize, Ending) {
        let mut reader = Reader::open(File::open(path).unwrap()).unwrap();
        let mut count = 0;
        while let Some(records) = reader.next_frame().unwrap() {
            count += records.count();
        }
        (count, reader.ending().unwrap())
    }

    #[test]
    fn a_second_file_of_the_process_gets_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let (_, first) = Output::create(folder.path(), 77, 1 << 20).unwrap();
        let (_, second) = Output::create(folder.path(), 77, 1 << 20).unwrap();
        assert_ne!(first, second);
        assert!(second.to_string_lossy().ends_with("-1.rgcap"));
    }

    #[test]
    fn a_limit_ends_the_file_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = FrameBuilder::new();
        let (mut output, path) = Output::create(folder.path(), 1, 150).unwrap();
        for _ in 0..5 {
            let bytes = frame(&mut builder);
            output.append(&bytes, 18);
        }
        output.finish();
        let (count, end) = ending(&path);
        assert_eq!(count, 2);
        assert!(matches!(
            end,
            Ending::Cut {
                why: CutReason::SizeLimit,
                ..
            }
        ));
        let header = *Reader::open(File::open(&path).unwrap()).unwrap().header();
        assert_eq!(header.status.unwrap().lost, 3 * 18);
    }

    #[test]
    fn a_write_that_fails_ends_the_file_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = FrameBuilder::new();
        let (mut output, path) = Output::create(folder.path(), 1, 1 << 20).unwrap();
        let bytes = frame(&mut builder);
        output.append(&bytes, 18);
        // Opened for reading only, so that the next write fails.
        output.file = File::open(&path).unwrap();
        let bytes = frame(&mut builder);
        output.append(&bytes, 18);
        assert_eq!(output.stopped.unwrap().code, StopCode::WriteFailed);
        assert!(output.stopped.unwrap().errno != 0);
        assert_eq!(ending(&path).0, 1);
    }
}
