//! Writes one archive of the clean files.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use roofgap_base::file::{FileHash, Unpacked, hash_file};

use super::private::Private;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;

/// Returns true for a device to write to, such as `/dev/null`, and false for a file to create or replace.
///
/// # Errors
/// Fails for a pipe, a folder or anything else that an archive must not replace.
pub fn is_device(target: &Path) -> Result<bool, Error> {
    match fs::metadata(target) {
        Ok(facts) if facts.file_type().is_char_device() => Ok(true),
        Ok(facts) if !facts.is_file() => {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
            Err(Error::io("write", target)(source))
        }
        _ => Ok(false),
    }
}

/// Packs files below a folder named after the run, and searches the archive for private data. A device is written to and stays
/// what it is.
pub fn pack(
    root: &Path,
    run_id: &str,
    files: &[PathBuf],
    target: &Path,
    private: &Private,
) -> Result<FileHash, Error> {
    let is_device = is_device(target)?;
    let beside = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let beside = beside.unwrap_or(Path::new("."));
    let elsewhere = std::env::temp_dir();
    let folder = if is_device { &elsewhere } else { beside };
    let mut archive = tempfile::Builder::new()
        .prefix(".roofgap-pack-")
        .suffix(".tmp")
        .tempfile_in(folder)
        .map_err(Error::io("write into", folder))?;
    write(root, run_id, files, archive.as_file_mut(), private)?;
    let failed = || Error::io("write", target);
    archive.as_file().sync_all().map_err(failed())?;
    archive.as_file_mut().seek(SeekFrom::Start(0)).map_err(failed())?;
    // A last search over every unpacked byte, file names included.
    let mut whole = MultiGzDecoder::new(BufReader::new(archive.as_file()));
    if let Some(what) = private.found_in(&mut whole).map_err(failed())? {
        return Err(not_clean(target, &what));
    }
    let hash = hash_file(archive.path()).map_err(failed())?;
    if is_device {
        let mut device = File::options().write(true).open(target).map_err(failed())?;
        archive.as_file_mut().seek(SeekFrom::Start(0)).map_err(failed())?;
        io::copy(archive.as_file_mut(), &mut device).map_err(failed())?;
    } else {
        // It stays readable by its owner only, who decides whom to share it with.
        archive.persist(target).map_err(|error| failed()(error.error))?;
    }
    Ok(hash)
}

fn write(
    root: &Path,
    run_id: &str,
    files: &[PathBuf],
    archive: &mut File,
    private: &Private,
) -> Result<(), Error> {
    let encoder = GzEncoder::new(BufWriter::new(archive), Compression::new(6));
    let mut tar = tar::Builder::new(encoder);
    for name in files {
        let path = root.join(name);
        if let Some(what) = still_in(&path, private)? {
            return Err(not_clean(&path, &what));
        }
        let io = || Error::io("pack", &path);
        let mut file = File::open(&path).map_err(io())?;
        let facts = file.metadata().map_err(io())?;
        // No owner and group: they have names.
        let mut header = tar::Header::new_gnu();
        header.set_size(facts.len());
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        let modified = facts.modified().ok();
        let modified = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        header.set_mtime(modified.map_or(0, |since| since.as_secs()));
        tar.append_data(&mut header, Path::new(run_id).join(name), &mut file).map_err(io())?;
    }
    let io = || Error::io("pack", root);
    let encoder = tar.into_inner().map_err(io())?;
    encoder.finish().map_err(io())?.flush().map_err(io())
}

fn not_clean(path: &Path, what: &str) -> Error {
    let path = path.display();
    Error::new(format!("{path} still holds {what} after scrubbing; no archive was written"))
        .with_exit(Exit::Partial)
}

/// Searches a file, plain or compressed, for private data. Returns its kind.
pub fn still_in(path: &Path, private: &Private) -> Result<Option<String>, Error> {
    let io = || Error::io("search", path);
    let mut source = Unpacked::open(path).map_err(io())?;
    private.found_in(&mut source).map_err(io())
}
