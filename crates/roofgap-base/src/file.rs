//! Files: bounded reads, atomic writes, SHA-256, and content that may be compressed with gzip.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

use crate::text::hex;

/// Limit of a document that is read whole, bytes.
const MOST_DOCUMENT: u64 = 512 << 20;

/// Reads a document whole.
///
/// # Errors
/// Fails for anything but a regular file, such as a pipe, whose end may never come, and for more than 512 MiB.
pub fn read_document(path: &Path) -> io::Result<Vec<u8>> {
    let facts = fs::metadata(path)?;
    if !facts.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    if facts.len() > MOST_DOCUMENT {
        let why = format!("more than {} MiB", MOST_DOCUMENT >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    File::open(path)?.take(MOST_DOCUMENT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a document of UTF-8 text whole.
///
/// # Errors
/// Fails as [`read_document`] does, and for other bytes than UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_document(path)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// Writes `path` atomically: readers see the old file or the new one, never a part.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_atomic_with(path, |file| file.write_all(bytes))
}

/// Writes `path` atomically with a callback: to a temporary file `.NAME.PID-SALT-COUNT.tmp` beside it, then a rename.
pub fn write_atomic_with<T>(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    write_through(&temporary_beside(path)?, path, fill)
}

/// Returns the path of a temporary file beside `path` that no other process uses.
fn temporary_beside(path: &Path) -> io::Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Containers that share a folder have the same process ids.
    static SALT: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
    let name = path.file_name().ok_or_else(|| io::Error::other("the path has no file name"))?;
    Ok(path.with_file_name(format!(
        ".{}.{}-{:016x}-{}.tmp",
        name.to_string_lossy(),
        std::process::id(),
        *SALT,
        COUNT.fetch_add(1, Ordering::Relaxed)
    )))
}

/// Fills a new file `temporary` and renames it to `path`. A file that was there before is left alone.
fn write_through<T>(
    temporary: &Path,
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<T>,
) -> io::Result<T> {
    let mut file = File::create_new(temporary)?;
    let written = fill(&mut file).and_then(|value| {
        // Without a sync, a power cut can leave the new name on an empty file.
        file.sync_all()?;
        fs::rename(temporary, path)?;
        Ok(value)
    });
    if written.is_err() {
        // The first error matters; a temporary file that cannot be removed adds nothing.
        let _ = fs::remove_file(temporary);
    }
    written
}

/// Length and SHA-256 of some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHash {
    /// Length, bytes.
    pub bytes: u64,
    /// SHA-256 in lowercase hexadecimal.
    pub sha256: String,
}

/// Hashes a file.
pub fn hash_file(path: &Path) -> io::Result<FileHash> {
    copy_hashed(&mut File::open(path)?, &mut io::sink())
}

/// Copies a stream and hashes what was copied.
pub fn copy_hashed(from: &mut impl Read, to: &mut impl Write) -> io::Result<FileHash> {
    let mut hasher = Sha256::new();
    let mut bytes = 0_u64;
    let mut buffer = vec![0; 1 << 17];
    loop {
        let part = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => &buffer[..count],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(part);
        to.write_all(part)?;
        bytes += part.len() as u64;
    }
    Ok(FileHash { bytes, sha256: hex(&hasher.finalize()) })
}

/// Returns the SHA-256 of some bytes in lowercase hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Growth limit of large compressed files. Captures grow 3 to 40 times.
const MOST_GROWTH: u64 = 200;

/// Size below which growth is not limited, bytes.
const SMALL: u64 = 64 << 20;

/// Content of a file, unpacked where it is compressed with gzip. Reading fails with `FileTooLarge` when compressed data grows
/// beyond the limit.
pub struct Unpacked {
    source: Source,
    /// Number of bytes returned.
    given: u64,
}

enum Source {
    Plain(BufReader<File>),
    Gzip(Box<MultiGzDecoder<Counted>>),
}

/// A buffered file that counts the bytes read.
struct Counted {
    file: BufReader<File>,
    read: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read += count as u64;
        Ok(count)
    }
}

impl BufRead for Counted {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.file.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.read += amount as u64;
        self.file.consume(amount);
    }
}

impl Unpacked {
    /// Opens a file. Its first bytes tell whether it is compressed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(1 << 18, File::open(path)?);
        let source = if file.fill_buf()?.starts_with(&GZIP) {
            Source::Gzip(Box::new(MultiGzDecoder::new(Counted { file, read: 0 })))
        } else {
            Source::Plain(file)
        };
        Ok(Self { source, given: 0 })
    }

    /// Tells whether the file is compressed.
    pub fn is_packed(&self) -> bool {
        matches!(self.source, Source::Gzip(_))
    }
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let decoder = match &mut self.source {
            Source::Plain(file) => return file.read(buffer),
            Source::Gzip(decoder) => decoder,
        };
        let count = decoder.read(buffer)?;
        self.given += count as u64;
        if self.given > SMALL && self.given / decoder.get_ref().read.max(1) > MOST_GROWTH {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!(
                    "the compressed data grows more than {MOST_GROWTH} times, which no capture does; \
                     unpack it to read it all the same"
                ),
            ));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_atomic_write_leaves_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write_atomic(&path, b"old").unwrap();
        write_atomic(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // The target is a folder, so the rename fails: the temporary file must go.
        fs::create_dir(folder.path().join("b")).unwrap();
        assert!(write_atomic(&folder.path().join("b"), b"x").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        let failed = write_atomic_with(&path, |_| Err::<(), _>(io::Error::other("no")));
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn processes_of_the_same_id_do_not_share_a_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let temporary = temporary_beside(&path).unwrap();
        let name = temporary.file_name().unwrap().to_str().unwrap();
        let temporary_name = name
            .strip_prefix(&format!(".a.json.{}-", std::process::id()))
            .and_then(|rest| rest.strip_suffix(".tmp"));
        let (salt, _) = temporary_name.unwrap().split_once('-').expect("a salt and a count");
        assert_eq!(salt.len(), 16, "{name}");
        // The file of another process stays.
        fs::write(&temporary, "of another").unwrap();
        let refused = write_through(&temporary, &path, |file| file.write_all(b"own"));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&temporary).unwrap(), b"of another");
    }

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "{}").unwrap();
        assert_eq!(read_text(&path).unwrap(), "{}");
        fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_text(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let link = folder.path().join("zero");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        let error = read_document(&link).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        assert!(read_document(folder.path()).is_err());
        // Sparse, so that it takes no room.
        let large = folder.path().join("large");
        File::create(&large).unwrap().set_len(MOST_DOCUMENT + 1).unwrap();
        let error = read_document(&large).unwrap_err().to_string();
        assert!(error.contains("more than 512 MiB"), "{error}");
    }

    #[test]
    fn a_known_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        fs::write(&path, "abc").unwrap();
        let hash = hash_file(&path).unwrap();
        assert_eq!(hash.bytes, 3);
        assert_eq!(hash.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(hash_file(&folder.path().join("none")).is_err());
    }

    fn zeros(megabytes: usize, each: &[u8]) -> io::Result<u64> {
        let mut file = tempfile::NamedTempFile::new()?;
        let mut encoder = flate2::write::GzEncoder::new(&mut file, flate2::Compression::best());
        for _ in 0..megabytes {
            encoder.write_all(&[0; 1 << 20])?;
            encoder.write_all(each)?;
        }
        encoder.finish()?;
        io::copy(&mut Unpacked::open(file.path())?, &mut io::sink())
    }

    #[test]
    fn growth_beyond_reason_ends_the_reading() {
        let error = zeros(100, b"").unwrap_err();
        assert!(error.to_string().contains("grows more than 200 times"), "{error}");
    }

    #[test]
    fn what_is_small_or_dense_enough_is_read_whole() {
        assert_eq!(zeros(20, b"").unwrap(), 20 << 20);
        let mut noise: u32 = 1;
        let dense: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        })
        .take(8 << 10)
        .collect();
        assert_eq!(zeros(80, &dense).unwrap(), 80 * ((1 << 20) + (8 << 10)));
    }
}
