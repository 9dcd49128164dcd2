//! The output file, and its descriptor in a table that the program shares. When the file cannot grow, or the program closes it, the
//! recording ends and the program continues.
//!
//! A program may close descriptors it did not open (`closefrom`, a daemon), and its next `open` then gets the same number.
//! The number is therefore high, where `open` rarely goes, and the file behind it is checked before each use.

use super::now;
use roofgap_wire::{
    FrameBuilder, HEADER_LEN, Header, Status, StopCode, WITH_WINDOWS, note_path, older_segment,
};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Limit of files per process: `exec` keeps pid and start time, so each program of a chain gets a number.
const TRIES: u32 = 1000;

/// A capture being written.
pub struct Output {
    header: Header,
    descriptor: Descriptor,
    /// Absolute path, because the program may change its folder.
    path: PathBuf,
    length: u64,
    limit: u64,
    state: State,
}

/// State of an output file.
#[derive(Debug, Clone, Copy)]
enum State {
    Writing,
    /// Nothing is appended any more; the header says why.
    Stopped(Status),
    /// The descriptor does not refer to the file any more; a note beside the file says so.
    Lost,
}

impl Output {
    /// Creates `<pid>-<start>.rgcap` in `folder` and writes its header. Never overwrites a file.
    pub fn create(folder: &Path, pid: u32, limit: u64) -> io::Result<Self> {
        let folder = std::path::absolute(folder)?;
        let start = start_ticks().unwrap_or_default();
        for attempt in 0..TRIES {
            let name = match attempt {
                0 => format!("{pid}-{start}.rgcap"),
                _ => format!("{pid}-{start}-{attempt}.rgcap"),
            };
            let path = folder.join(name);
            match create_new(&path) {
                Ok(file) => {
                    let header = Header::new(pid, now(), start);
                    return Ok(Self {
                        descriptor: begin(file, &header)?,
                        header,
                        path,
                        length: HEADER_LEN as u64,
                        limit,
                        state: State::Writing,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Closes a frame and appends it.
    pub fn write(&mut self, frame: &mut FrameBuilder) {
        let raw = frame.len();
        self.append(frame.close(), raw);
    }

    /// Appends a frame, or ends the recording. `raw` is the uncompressed length of the frame, bytes.
    fn append(&mut self, frame: &[u8], raw: usize) {
        if frame.is_empty() {
            return;
        }
        match &mut self.state {
            State::Writing => {}
            State::Stopped(status) => {
                status.lost += raw as u64;
                return;
            }
            State::Lost => return,
        }
        if self.length + frame.len() as u64 > self.limit {
            self.stop(StopCode::SizeLimit, 0, raw);
            return;
        }
        let Some(file) = self.descriptor.file(self.length) else {
            self.lose();
            return;
        };
        match file.write_all_at(frame, self.length) {
            Ok(()) => self.length += frame.len() as u64,
            Err(error) => {
                // A torn frame would read as damage; without it the file is whole up to here.
                if let Some(file) = self.descriptor.file(self.length) {
                    let _ = file.set_len(self.length);
                }
                self.stop(StopCode::WriteFailed, error.raw_os_error().unwrap_or_default() as u32, raw);
            }
        }
    }

    /// Marks the file as a capture with windows, which older readers reject.
    pub fn mark_windows(&mut self) {
        if self.header.version == WITH_WINDOWS || !matches!(self.state, State::Writing) {
            return;
        }
        self.header.version = WITH_WINDOWS;
        match self.descriptor.file(self.length) {
            Some(file) => drop(file.write_all_at(&self.header.encode(), 0)),
            None => self.lose(),
        }
    }

    /// Renames the file to the older segment, in place of the one before, and goes on in a new file. Returns false if nothing
    /// was changed.
    pub fn rotate(&mut self) -> bool {
        if !matches!(self.state, State::Writing) {
            return false;
        }
        if self.descriptor.file(self.length).is_none() {
            self.lose();
            return false;
        }
        let is_ours = |metadata| self.descriptor.is(&metadata);
        if !std::fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            return false;
        }
        let header = Header { opened_ns: now(), ..self.header };
        let unfinished = self.path.with_extension("rgcap.new");
        let _ = std::fs::remove_file(&unfinished);
        let next = create_new(&unfinished).and_then(|file| begin(file, &header)).and_then(|descriptor| {
            std::fs::rename(&self.path, older_segment(&self.path))?;
            std::fs::rename(&unfinished, &self.path)?;
            Ok(descriptor)
        });
        let Ok(descriptor) = next else { return false };
        self.descriptor.close();
        self.descriptor = descriptor;
        self.header = header;
        self.length = HEADER_LEN as u64;
        true
    }

    /// Returns true if half of the size limit is used.
    pub fn is_half_full(&self) -> bool {
        self.length > self.limit / 2
    }

    /// Returns true once nothing is appended any more.
    pub fn has_ended(&self) -> bool {
        !matches!(self.state, State::Writing)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn stop(&mut self, code: StopCode, errno: u32, raw: usize) {
        self.state = State::Stopped(Status { code, errno, at_ns: now(), lost: raw as u64 });
        self.tell();
    }

    /// Overwrites the status in the header, which needs no new disk space.
    fn tell(&mut self) {
        if let State::Stopped(status) = &self.state {
            let (at, bytes) = status.encode();
            match self.descriptor.file(self.length) {
                Some(file) => drop(file.write_all_at(&bytes, at)),
                None => self.lose(),
            }
        }
    }

    /// Ends the recording and leaves a note beside the file. Writes nothing if the path leads elsewhere, as after `chroot`.
    fn lose(&mut self) {
        self.state = State::Lost;
        let is_ours = |metadata| self.descriptor.is(&metadata);
        if !std::fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            return;
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let at = now();
        let (seconds, rest) = (at / 1_000_000_000, at % 1_000_000_000);
        let note = format!(
            "The program closed the descriptor of {name}, which ended the recording at {seconds}.{rest:09} s since the epoch.\n\
             The capture is readable up to its last frame. Later events are not in it.\n"
        );
        if let Ok(mut file) = create_new(&note_path(&self.path)) {
            let _ = file.write_all(note.as_bytes());
        }
    }

    /// Returns the descriptor of the file.
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// Records that the program exited normally.
    pub fn finish(&mut self) {
        if matches!(self.state, State::Writing) {
            self.state = State::Stopped(Status { code: StopCode::Exit, errno: 0, at_ns: now(), lost: 0 });
        }
        self.tell();
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.descriptor.close();
    }
}

/// Writes the header of a new file and moves its descriptor to a high number.
fn begin(mut file: File, header: &Header) -> io::Result<Descriptor> {
    file.write_all(&header.encode())?;
    Descriptor::new(file)
}

/// Creates a file that does not exist yet, not even as a link.
fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Returns the start of this process in ticks since boot: field 22 of its stat, counted after the name in parentheses.
fn start_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Distance from the limit of descriptors.
const BELOW_LIMIT: u64 = 64;

/// Highest number that is requested. The kernel's table grows with the highest number, and `fork` copies it.
const HIGHEST: u64 = 4096;

/// Number above which few programs open files.
const HIGH: RawFd = 512;

/// A descriptor number and the identity of the file that was opened there.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    number: RawFd,
    device: u64,
    inode: u64,
}

impl Descriptor {
    /// Moves an open file to a high number, close-on-exec. Keeps the number when no higher one is free.
    pub fn new(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let wanted = wanted(soft_limit());
        let number = [wanted, HIGH.min(wanted)]
            .into_iter()
            .filter(|&least| least > file.as_raw_fd())
            .find_map(|least| duplicate(&file, least))
            .unwrap_or_else(|| file.into_raw_fd());
        Ok(Self { number, device: metadata.dev(), inode: metadata.ino() })
    }

    /// Returns the file if the number still refers to it and it has at least `length` bytes. The length tells it from a new
    /// file with a reused inode.
    pub fn file(&self, length: u64) -> Option<ManuallyDrop<File>> {
        // SAFETY: never dropped here, so a number that is not ours any more is not closed; `fstat` accepts any number.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(self.number) });
        let metadata = file.metadata().ok()?;
        (self.is(&metadata) && metadata.len() >= length).then_some(file)
    }

    /// Closes the file, unless the number refers to another one.
    pub fn close(&self) {
        if let Some(file) = self.file(0) {
            drop(ManuallyDrop::into_inner(file));
        }
    }

    /// Returns true if `metadata` is of the same file.
    pub fn is(&self, metadata: &std::fs::Metadata) -> bool {
        metadata.dev() == self.device && metadata.ino() == self.inode
    }
}

fn duplicate(file: &File, least: RawFd) -> Option<RawFd> {
    // SAFETY: makes a new descriptor of an open file.
    let number = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    (number >= 0).then_some(number)
}

fn soft_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one rlimit.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur
}

/// Returns the lowest number to ask for under a limit of descriptors.
fn wanted(limit: u64) -> RawFd {
    limit.saturating_sub(BELOW_LIMIT).min(HIGHEST) as RawFd
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_wire::{CutReason, Ending, FrameBuilder, NvtxPop, Reader, Record};
    use std::os::unix::fs::FileExt;

    fn frame(builder: &mut FrameBuilder) -> Vec<u8> {
        builder.put(&Record::NvtxPop(NvtxPop { tid: 1, domain: 2, at: 3 }));
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
        let first = Output::create(folder.path(), 77, 1 << 20).unwrap();
        let second = Output::create(folder.path(), 77, 1 << 20).unwrap();
        assert_ne!(first.path, second.path);
        assert!(second.path.to_string_lossy().ends_with("-1.rgcap"));
    }

    #[test]
    fn a_limit_ends_the_file_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = FrameBuilder::new();
        let mut output = Output::create(folder.path(), 1, 150).unwrap();
        let path = output.path.clone();
        for _ in 0..5 {
            let bytes = frame(&mut builder);
            output.append(&bytes, 18);
        }
        output.finish();
        let (count, end) = ending(&path);
        assert_eq!(count, 2);
        assert!(matches!(end, Ending::Cut { why: CutReason::SizeLimit, .. }));
        let header = *Reader::open(File::open(&path).unwrap()).unwrap().header();
        assert_eq!(header.status.unwrap().lost, 3 * 18);
    }

    #[test]
    fn a_rotated_file_leaves_two_segments() {
        let folder = tempfile::tempdir().unwrap();
        let mut output = Output::create(folder.path(), 1, 1 << 20).unwrap();
        let path = output.path.clone();
        output.mark_windows();
        for round in 0..3 {
            let mut builder = FrameBuilder::new();
            for _ in 0..=round {
                let bytes = frame(&mut builder);
                output.append(&bytes, 18);
            }
            assert!(output.rotate());
        }
        let bytes = frame(&mut FrameBuilder::new());
        output.append(&bytes, 18);
        output.finish();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        assert_eq!(ending(&older_segment(&path)).0, 3);
        assert_eq!(ending(&path).0, 1);
        let header = |path: &Path| *Reader::open(File::open(path).unwrap()).unwrap().header();
        let (old, new) = (header(&older_segment(&path)), header(&path));
        assert_eq!((old.version, new.version), (WITH_WINDOWS, WITH_WINDOWS));
        assert_eq!((old.pid, old.start_ticks), (new.pid, new.start_ticks));
        assert!(!output.rotate(), "a finished file stays");
    }

    #[test]
    fn a_file_that_was_moved_is_not_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let mut output = Output::create(folder.path(), 1, 1 << 20).unwrap();
        std::fs::rename(&output.path, folder.path().join("moved")).unwrap();
        std::fs::write(&output.path, "of another").unwrap();
        assert!(!output.rotate());
        assert_eq!(std::fs::read(&output.path).unwrap(), b"of another");
    }

    #[test]
    fn a_write_that_fails_ends_the_file_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = FrameBuilder::new();
        let mut output = Output::create(folder.path(), 1, 1 << 20).unwrap();
        let path = output.path.clone();
        let bytes = frame(&mut builder);
        output.append(&bytes, 18);
        // Opened for reading only, so that the next write fails.
        output.descriptor.close();
        output.descriptor = Descriptor::new(File::open(&path).unwrap()).unwrap();
        let bytes = frame(&mut builder);
        output.append(&bytes, 18);
        let State::Stopped(status) = output.state else {
            panic!("{:?}", output.state);
        };
        assert_eq!(status.code, StopCode::WriteFailed);
        assert!(status.errno != 0);
        assert_eq!(ending(&path).0, 1);
        assert!(!note_path(&path).exists());
    }

    #[test]
    fn a_lost_descriptor_ends_the_recording_with_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = FrameBuilder::new();
        let mut output = Output::create(folder.path(), 1, 1 << 20).unwrap();
        let path = output.path.clone();
        let bytes = frame(&mut builder);
        output.append(&bytes, 18);
        output.descriptor.close();
        let bytes = frame(&mut builder);
        output.append(&bytes, 18);
        output.finish();
        let note = std::fs::read_to_string(note_path(&path)).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(note.starts_with(&format!("The program closed the descriptor of {name},")), "{note}");
        let expected = Ending::Cut { at: path.metadata().unwrap().len(), why: CutReason::NoEnd };
        assert_eq!(ending(&path), (1, expected));
    }

    #[test]
    fn no_note_replaces_a_file_or_lies_beside_another_capture() {
        let folder = tempfile::tempdir().unwrap();
        let mut output = Output::create(folder.path(), 1, 1 << 20).unwrap();
        let target = folder.path().join("target");
        std::os::unix::fs::symlink(&target, note_path(&output.path)).unwrap();
        output.lose();
        assert!(!target.exists());
        let mut output = Output::create(folder.path(), 2, 1 << 20).unwrap();
        std::fs::rename(&output.path, folder.path().join("moved")).unwrap();
        std::fs::write(&output.path, "of another").unwrap();
        output.lose();
        assert!(!note_path(&output.path).exists());
    }

    #[test]
    fn the_number_is_high_where_the_limit_allows_it() {
        assert_eq!(wanted(20), 0);
        assert_eq!(wanted(256), 192);
        assert_eq!(wanted(1024), 960);
        assert_eq!(wanted(1 << 20), 4096);
        assert_eq!(wanted(libc::RLIM_INFINITY), 4096);
        let descriptor = Descriptor::new(tempfile::tempfile().unwrap()).unwrap();
        assert!(descriptor.number >= wanted(soft_limit()));
        // SAFETY: reads the flags of an open descriptor.
        let flags = unsafe { libc::fcntl(descriptor.number, libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        descriptor.close();
        assert!(descriptor.file(0).is_none());
    }

    #[test]
    fn another_file_under_the_number_is_neither_used_nor_closed() {
        let ours = Descriptor::new(tempfile::tempfile().unwrap()).unwrap();
        assert!(ours.file(0).is_some());
        assert!(ours.file(1).is_none(), "a shorter file is another one");
        let other = tempfile::tempfile().unwrap();
        // SAFETY: replaces the file under the number, as a program may.
        unsafe { libc::dup2(other.as_raw_fd(), ours.number) };
        assert!(ours.file(0).is_none());
        ours.close();
        // SAFETY: the number refers to the other file, which this test owns.
        let still_open = unsafe { File::from_raw_fd(ours.number) };
        still_open.write_all_at(b"x", 0).unwrap();
        assert_eq!(other.metadata().unwrap().len(), 1);
    }
}
