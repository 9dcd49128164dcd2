//! Writes one archive of the clean files.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::super::error::RunsError;
use super::private::Private;
use super::text::is_packed;

/// Packs files below a folder named after the run, and searches the archive for private data.
pub(super) fn pack(
    root: &Path,
    run_id: &str,
    files: &[PathBuf],
    target: &Path,
    private: &Private,
) -> Result<u64, RunsError> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut archive = tempfile::Builder::new()
        .prefix(".roofgap-pack-")
        .suffix(".tmp")
        .tempfile_in(folder)
        .map_err(RunsError::io("write into", folder))?;
    write(root, run_id, files, archive.as_file_mut(), private)?;
    let io = || RunsError::io("write", target);
    archive.as_file().sync_all().map_err(io())?;
    archive.as_file_mut().seek(SeekFrom::Start(0)).map_err(io())?;
    // A last search over every unpacked byte, file names included.
    let mut whole = MultiGzDecoder::new(BufReader::new(archive.as_file()));
    if let Some(what) = private.found_in(&mut whole).map_err(io())? {
        return Err(RunsError::NotClean {
            path: target.to_owned(),
            what,
        });
    }
    // It stays readable by its owner only, who decides whom to share it with.
    archive.persist(target).map_err(|error| io()(error.error))?;
    Ok(fs::metadata(target).map_err(io())?.len())
}

fn write(
    root: &Path,
    run_id: &str,
    files: &[PathBuf],
    archive: &mut File,
    private: &Private,
) -> Result<(), RunsError> {
    let encoder = GzEncoder::new(BufWriter::new(archive), Compression::new(6));
    let mut tar = tar::Builder::new(encoder);
    for name in files {
        let path = root.join(name);
        if let Some(what) = still_in(&path, private)? {
            return Err(RunsError::NotClean { path, what });
        }
        let io = || RunsError::io("pack", &path);
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
        tar.append_data(&mut header, Path::new(run_id).join(name), &mut file)
            .map_err(io())?;
    }
    let io = || RunsError::io("pack", root);
    let encoder = tar.into_inner().map_err(io())?;
    encoder.finish().map_err(io())?.flush().map_err(io())
}

/// Searches a file, plain or compressed, for private data. Returns its kind.
pub(super) fn still_in(path: &Path, private: &Private) -> Result<Option<String>, RunsError> {
    let io = || RunsError::io("search", path);
    let packed = is_packed(path).map_err(io())?;
    let file = BufReader::new(File::open(path).map_err(io())?);
    let mut source: Box<dyn Read> = if packed {
        Box::new(MultiGzDecoder::new(file))
    } else {
        Box::new(file)
    };
    private.found_in(&mut source).map_err(io())
}
