//! The descriptor of the output file, in a table that the program shares.
//!
//! A program may close descriptors it did not open (`closefrom`, a daemon), and its next `open` then gets the same number.
//! The number is therefore high, where `open` rarely goes, and the file behind it is checked before each use.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

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

/// A descriptor that the writer replaces and a forked child closes. A child that is made in between keeps it open, which
/// does no harm.
#[derive(Debug)]
pub struct SharedDescriptor {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl SharedDescriptor {
    pub fn new(descriptor: Descriptor) -> Self {
        Self {
            number: AtomicI32::new(descriptor.number),
            device: AtomicU64::new(descriptor.device),
            inode: AtomicU64::new(descriptor.inode),
        }
    }

    pub fn set(&self, descriptor: Descriptor) {
        self.number.store(descriptor.number, Ordering::Relaxed);
        self.device.store(descriptor.device, Ordering::Relaxed);
        self.inode.store(descriptor.inode, Ordering::Relaxed);
    }

    pub fn get(&self) -> Descriptor {
        Descriptor {
            number: self.number.load(Ordering::Relaxed),
            device: self.device.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
        }
    }
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
    use std::os::unix::fs::FileExt;

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
