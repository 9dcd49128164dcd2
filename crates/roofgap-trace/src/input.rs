//! Which reader takes a file, told by its content and never by its name.

use crate::{ReadError, Trace, nsys};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The formats that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// An export of Nsight Systems.
    NsysSqlite,
    /// The same, compressed with gzip.
    NsysSqliteGz,
}

/// Everything that the inputs of one command held.
#[derive(Debug, Default)]
pub struct Input {
    /// The timeline; empty if no input was one.
    pub trace: Trace,
}

/// How much of a file is looked at to tell its format.
const HEAD: u64 = 64 * 1024;

/// The largest database that is unpacked from gzip.
const MOST_UNPACKED: u64 = 64 << 30;

/// Reads all inputs into one.
pub fn read(paths: &[PathBuf]) -> Result<Input, ReadError> {
    let mut input = Input::default();
    for path in paths {
        match sniff(path)? {
            Format::NsysSqlite => nsys::read(path, &mut input.trace)?,
            Format::NsysSqliteGz => {
                let unpacked = unpack(path)?;
                nsys::read(unpacked.path(), &mut input.trace).map_err(|e| e.about(path))?;
                if let Some(source) = input.trace.sources.last_mut() {
                    source.path = path.display().to_string();
                }
            }
        }
    }
    input.trace.sort();
    Ok(input)
}

/// Tells the format of a file by its content.
pub fn sniff(path: &Path) -> Result<Format, ReadError> {
    let mut file = File::open(path).map_err(|e| ReadError::io(path, e))?;
    let mut head = Vec::new();
    (&mut file)
        .take(HEAD)
        .read_to_end(&mut head)
        .map_err(|e| ReadError::io(path, e))?;
    let packed = head.starts_with(&[0x1f, 0x8b]);
    if packed {
        file.seek(SeekFrom::Start(0))
            .map_err(|e| ReadError::io(path, e))?;
        head.clear();
        let mut inside = MultiGzDecoder::new(file).take(HEAD);
        inside
            .read_to_end(&mut head)
            .map_err(|e| ReadError::damaged(path, "gzip file", e))?;
    }
    if head.starts_with(b"SQLite format 3\0") {
        return Ok(if packed {
            Format::NsysSqliteGz
        } else {
            Format::NsysSqlite
        });
    }
    Err(ReadError::Unrecognised {
        path: path.to_path_buf(),
        expected: EXPECTED.into(),
        found: describe(&head),
    })
}

const EXPECTED: &str = "an nsys SQLite export, a PyTorch trace (.json, .json.gz), an nsys kernel summary CSV, an ncu report or CSV, a native capture, or a run directory";

/// What the first bytes look like, for people.
fn describe(head: &[u8]) -> String {
    match head {
        [] => "an empty file".into(),
        [b'{' | b'[', ..] => "JSON that is not a trace".into(),
        _ if head.starts_with(b"\x7fELF") => "a program".into(),
        _ if head.starts_with(b"PK\x03\x04") => "a zip archive".into(),
        _ => match std::str::from_utf8(&head[..head.len().min(60)]) {
            Ok(text) => format!("text beginning with {:?}", text.lines().next().unwrap_or("")),
            Err(_) => format!("bytes beginning with {:02x?}", &head[..head.len().min(8)]),
        },
    }
}

/// Unpacks a database into a temporary file, since SQLite pages are read out of order.
fn unpack(path: &Path) -> Result<tempfile::NamedTempFile, ReadError> {
    let io = |e| ReadError::io(path, e);
    let mut target = tempfile::Builder::new()
        .prefix("roofgap-")
        .suffix(".sqlite")
        .tempfile()
        .map_err(io)?;
    let mut inside = MultiGzDecoder::new(File::open(path).map_err(io)?).take(MOST_UNPACKED);
    let mut buffer = vec![0u8; 1 << 18];
    loop {
        match inside
            .read(&mut buffer)
            .map_err(|e| ReadError::damaged(path, "gzip file", e))?
        {
            0 => break,
            n => target.write_all(&buffer[..n]).map_err(io)?,
        }
    }
    target.flush().map_err(io)?;
    Ok(target)
}
