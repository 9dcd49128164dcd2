//! One file compressed: written beside it under another name, read back, renamed; only then does the original go.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use roofgap_collect::file::copy_hashed;

/// The name of a file once it is compressed.
pub(super) fn packed_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    PathBuf::from(name)
}

/// Compresses a file in its place and returns how large it is now.
pub(super) fn pack(path: &Path) -> io::Result<u64> {
    pack_through(path, |file| file)
}

/// The same with something between the bytes and the disk.
pub(super) fn pack_through<W: Write>(path: &Path, wrap: impl FnOnce(File) -> W) -> io::Result<u64> {
    let target = packed_name(path);
    let temporary = temporary_name(&target)?;
    let written = write(path, &temporary, wrap).and_then(|size| {
        fs::rename(&temporary, &target)?;
        sync_folder(&target)?;
        Ok(size)
    });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
        return written;
    }
    // From here on the compressed file is whole and has its name.
    fs::remove_file(path)?;
    sync_folder(path)?;
    written
}

fn write<W: Write>(path: &Path, temporary: &Path, wrap: impl FnOnce(File) -> W) -> io::Result<u64> {
    let mut source = File::open(path)?;
    let file = File::create_new(temporary)?;
    let to_sync = file.try_clone()?;
    let mut encoder = GzEncoder::new(BufWriter::with_capacity(1 << 17, wrap(file)), Compression::new(6));
    let original = copy_hashed(&mut source, &mut encoder)?;
    encoder
        .finish()?
        .into_inner()
        .map_err(|error| error.into_error())?
        .flush()?;
    to_sync.sync_all()?;
    // A disk can lie and memory can rot: what cannot be read back does not replace anything.
    let mut back = GzDecoder::new(BufReader::new(File::open(temporary)?));
    if copy_hashed(&mut back, &mut io::sink())? != original {
        return Err(io::Error::other("what was written does not read back the same"));
    }
    Ok(fs::metadata(temporary)?.len())
}

fn temporary_name(target: &Path) -> io::Result<PathBuf> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = target
        .file_name()
        .ok_or_else(|| io::Error::other("the path has no file name"))?;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    Ok(target.with_file_name(format!(
        ".{}.{}-{count}.tmp",
        name.to_string_lossy(),
        std::process::id()
    )))
}

/// Makes a change of names outlast a power cut.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// What a file would come to, as a share of its size, from up to three pieces of it.
pub(super) fn estimate(path: &Path, size: u64) -> io::Result<f64> {
    const PIECE: u64 = 1 << 20;
    let mut file = File::open(path)?;
    let places = if size <= 3 * PIECE {
        vec![(0, size)]
    } else {
        vec![(0, PIECE), (size / 2, PIECE), (size - PIECE, PIECE)]
    };
    let (mut plain, mut packed) = (0u64, 0u64);
    for (at, length) in places {
        file.seek(SeekFrom::Start(at))?;
        let mut encoder = GzEncoder::new(Counted(0), Compression::new(6));
        plain += io::copy(&mut (&mut file).take(length), &mut encoder)?;
        packed += encoder.finish()?.0;
    }
    Ok(if plain == 0 {
        1.0
    } else {
        packed as f64 / plain as f64
    })
}

/// Counts what is written to it.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
