//! Compresses one file in place: written beside it, read back, renamed, and only then the original is deleted.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use roofgap_base::file::{copy_hashed, write_atomic_with};

use crate::run_dir::layout::packed_name;

/// Compresses a file in place and returns its new size, bytes.
pub fn pack(path: &Path) -> io::Result<u64> {
    pack_through(path, |file| file)
}

/// Compresses a file through a wrapper of the output file.
pub fn pack_through<W: Write>(path: &Path, wrap: impl FnOnce(File) -> W) -> io::Result<u64> {
    let target = packed_name(path);
    let size = write_atomic_with(&target, |file| compress(path, file, wrap))?;
    sync_folder(&target)?;
    // The compressed file is complete and has its final name.
    fs::remove_file(path)?;
    sync_folder(path)?;
    Ok(size)
}

/// Compresses a file and checks that the result reads back the same.
fn compress<W: Write>(path: &Path, file: &mut File, wrap: impl FnOnce(File) -> W) -> io::Result<u64> {
    let output = BufWriter::with_capacity(1 << 17, wrap(file.try_clone()?));
    let mut encoder = GzEncoder::new(output, Compression::new(6));
    let original = copy_hashed(&mut File::open(path)?, &mut encoder)?;
    let output = encoder.finish()?.into_inner();
    output.map_err(|error| error.into_error())?.flush()?;
    file.sync_all()?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(0))?;
    let mut back = GzDecoder::new(BufReader::new(file));
    if copy_hashed(&mut back, &mut io::sink())? != original {
        return Err(io::Error::other("the compressed file does not read back the same"));
    }
    Ok(size)
}

/// Syncs a folder, so that a rename survives a power cut.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Estimates the compressed share of a file from up to three samples.
pub fn estimate(path: &Path, size: u64) -> io::Result<f64> {
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
    Ok(if plain == 0 { 1.0 } else { packed as f64 / plain as f64 })
}

/// A writer that counts bytes.
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
