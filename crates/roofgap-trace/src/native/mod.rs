//! Captures of the native collector (`.rgcap`): CUPTI and NVTX from inside the program, one file per process.

use crate::annotated::GroupMark;
use crate::model::launched_job;
use crate::{Distributed, ReadError, input};
use cpp_demangle::{DemangleOptions, Symbol};
use roofgap_wire::{EventKind, Message, Reader, Record, WireError};
use rustc_hash::FxHashMap;
use std::fmt;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

mod annotations;
mod identity;
mod reader;
mod samples;

pub(crate) use reader::FORMAT;
pub use reader::kernel_names;
pub use roofgap_wire::older_segment;

#[cfg(test)]
mod tests;

/// The longest readable name; references back can make a short mangled name very long.
const LONGEST: usize = 64 << 10;

/// Demangles the name of a kernel; `None` if it is not mangled or not understood.
pub fn demangle(name: &str) -> Option<String> {
    struct Bounded(String);
    impl fmt::Write for Bounded {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.push_str(text);
            if self.0.len() > LONGEST { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let symbol = name.starts_with("_Z").then(|| Symbol::new(name).ok())??;
    let mut text = Bounded(String::new());
    symbol.structured_demangle(&mut text, &DemangleOptions::default()).ok()?;
    Some(text.0)
}

/// Returns true for the name of a capture or of its older segment, also of a compressed one.
pub fn is_capture(name: &str) -> bool {
    let plain = name.strip_suffix(".gz").unwrap_or(name);
    plain.strip_suffix(".old").unwrap_or(plain).ends_with(".rgcap")
}

/// Finds the older segment of a capture; `None` without one. Each of the two may be compressed.
pub fn find_older(capture: &Path) -> Option<PathBuf> {
    let older = older_segment(&plain(capture));
    let packed = older.with_added_extension("gz");
    [older, packed].into_iter().find(|path| path.is_file())
}

/// Returns the path of a capture without the extension of a compressed one.
fn plain(capture: &Path) -> PathBuf {
    match capture.extension() {
        Some(extension) if extension == "gz" => capture.with_extension(""),
        _ => capture.to_owned(),
    }
}

/// Opens a capture, plain or compressed.
fn open(path: &Path) -> Result<Reader<Box<dyn Read>>, ReadError> {
    Reader::open(content(path)?).map_err(|error| failed(path, error))
}

/// Opens the uncompressed bytes of a capture.
fn content(path: &Path) -> Result<Box<dyn Read>, ReadError> {
    Ok(Box::new(BufReader::with_capacity(1 << 18, input::open(path)?)))
}

/// Describes an error of the wire format in a file.
fn failed(path: &Path, error: WireError) -> ReadError {
    match error {
        WireError::Io(source) => ReadError::io(path, source),
        WireError::Version { .. } => {
            ReadError::unsupported(path, error.to_string(), "read it with the roofgap that recorded it")
        }
        WireError::NotACapture => ReadError::Unrecognised {
            path: path.to_path_buf(),
            expected: "a native capture".into(),
            found: "another format".into(),
        },
        _ => ReadError::damaged(path, "native capture", error),
    }
}

/// Variables and host of a process, as far as they are read.
#[derive(Debug, Default)]
struct Place {
    variables: FxHashMap<String, u32>,
    host: Option<String>,
}

impl Place {
    /// Takes a record that tells something of the place.
    fn take(&mut self, record: &Record<'_>) {
        match record {
            Record::LauncherVariable(variable) => {
                self.variables.insert(variable.name.to_str().into_owned(), variable.value);
            }
            Record::Host(host) => {
                self.host = Some(host.name.to_str().into_owned()).filter(|name| !name.is_empty());
            }
            _ => {}
        }
    }

    /// Returns the rank in a job of several; `None` without one.
    fn distributed(&self) -> Option<Distributed> {
        let job = launched_job(|name| self.variables.get(name).copied());
        job.filter(|job| job.world_size > Some(1))
    }
}

/// Frames that are searched for the mark of a process group. A program joins its group before it computes.
const MOST_FRAMES: usize = 64;

/// The rank of a capture in a job of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureRank {
    /// Rank.
    pub rank: u32,
    /// Host name, where the capture has it.
    pub host: Option<String>,
}

/// Reads the rank in a job of several from the begin of a capture, which may be compressed with gzip; `None` without one.
///
/// # Errors
/// Fails when the file is not a readable capture.
pub fn rank(path: &Path) -> Result<Option<CaptureRank>, ReadError> {
    let mut reader = open(path)?;
    let mut place = Place::default();
    for _ in 0..MOST_FRAMES {
        let Some(records) = reader.next_frame().map_err(|error| failed(path, error))? else {
            break;
        };
        for record in records {
            place.take(&record);
            if let Record::NvtxEvent(event) = record
                && event.kind == EventKind::Mark
                && let Message::Inline(text) = event.message
                && let Some(mark) = GroupMark::parse(&text.to_str())
                && mark.world_size > 1
            {
                return Ok(Some(CaptureRank { rank: mark.rank, host: place.host }));
            }
        }
    }
    let launched = place.distributed().and_then(|job| job.rank);
    Ok(launched.map(|rank| CaptureRank { rank, host: place.host }))
}
