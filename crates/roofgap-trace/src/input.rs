//! Detects the format of each input from its content and calls its reader.

use crate::account;
use crate::annotated;
use crate::ncu;
use crate::reader::{Detected, Head, Input, Reader};
use crate::temporary::TemporaryCopy;
use crate::{ReadError, SourceFormat, Trace};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Readers in the order in which they are asked.
const READERS: &[Reader] = &[
    crate::nsys::READER,
    crate::native::READER,
    ncu::READER,
    crate::summary_csv::READER,
    account::READER,
    crate::kineto::READER,
];

/// Bytes read to detect the format.
const HEAD: u64 = 64 * 1024;

/// Bytes read when the first ones are not sufficient.
const LONG_HEAD: u64 = 2 << 20;

/// Reads all inputs into one.
///
/// # Errors
/// Fails when a file cannot be read, has an unknown format, is damaged, or is a second timeline. Captures of the native
/// collector count as one timeline, because it writes a file per process.
pub fn read(paths: &[PathBuf]) -> Result<Input, ReadError> {
    let mut input = Input::default();
    let mut timeline = None;
    for path in paths {
        add(path, &mut timeline, &mut input)?;
    }
    limit_times(timeline, &mut input)?;
    input.trace.sort();
    annotated::settle(&mut input.trace);
    Ok(input)
}

/// Reads the readable inputs into one and returns the errors of the others. Each file is read once.
pub fn read_each(paths: &[PathBuf]) -> (Input, Vec<ReadError>) {
    let mut input = Input::default();
    let mut timeline = None;
    let mut errors = Vec::new();
    for path in paths {
        errors.extend(add(path, &mut timeline, &mut input).err());
    }
    errors.extend(limit_times(timeline, &mut input).err());
    input.trace.sort();
    annotated::settle(&mut input.trace);
    (input, errors)
}

/// Leaves out events whose times cannot be; without the timeline if none of it can be used.
fn limit_times(timeline: Option<(SourceFormat, &Path)>, input: &mut Input) -> Result<(), ReadError> {
    input.trace.limit_times().map_err(|why| {
        let sources = std::mem::take(&mut input.trace.sources);
        input.trace = Trace { sources, ..Trace::default() };
        ReadError::damaged(timeline.map_or(Path::new(""), |(_, path)| path), "capture", why)
    })
}

/// Adds one file. A file that fails adds no events.
fn add<'p>(
    path: &'p Path,
    timeline: &mut Option<(SourceFormat, &'p Path)>,
    input: &mut Input,
) -> Result<(), ReadError> {
    let (format, reader, packed) = find_reader(path)?;
    if format.is_timeline()
        && let Some((known, first)) = *timeline
        && (known, format) != (SourceFormat::Native, SourceFormat::Native)
    {
        return Err(ReadError::Unsupported {
            path: path.to_path_buf(),
            what: format!("a second timeline beside {}, with a clock of its own", first.display()),
            remedy: "analyse one at a time, or compare the two with `roofgap compare`".into(),
        });
    }
    let sources = input.trace.sources.clone();
    if let Err(error) = read_one(path, format, reader, packed, input) {
        // A native capture fails at its header, before its first event. Any other timeline is the only one.
        if format.is_timeline() && format != SourceFormat::Native {
            input.trace = Trace { sources, ..Trace::default() };
        }
        return Err(error);
    }
    if format.is_timeline() {
        *timeline = Some((format, path));
    }
    Ok(())
}

fn read_one(
    path: &Path,
    format: SourceFormat,
    reader: &Reader,
    packed: bool,
    input: &mut Input,
) -> Result<(), ReadError> {
    if !packed || reader.takes_gzip {
        return (reader.read)(path, format, input);
    }
    let unpacked = TemporaryCopy::unpack(path)?;
    (reader.read)(unpacked.path(), format, input).map_err(|e| e.about(path))?;
    if let Some(source) = input.trace.sources.last_mut().filter(|_| format.is_timeline()) {
        source.path = path.display().to_string();
    }
    Ok(())
}

/// Detects the format of a file from its content.
///
/// # Errors
/// Fails when the file cannot be read or has an unknown format.
pub fn detect(path: &Path) -> Result<SourceFormat, ReadError> {
    find_reader(path).map(|(format, ..)| format)
}

/// Returns the format of a file, its reader, and true if it is compressed with gzip.
fn find_reader(path: &Path) -> Result<(SourceFormat, &'static Reader, bool), ReadError> {
    let unrecognised = |found: String| ReadError::Unrecognised {
        path: path.to_path_buf(),
        expected: EXPECTED.into(),
        found,
    };
    let kind = std::fs::metadata(path).map_err(|e| ReadError::io(path, e))?;
    if kind.is_dir() {
        return Err(unrecognised("a folder without a session.json".into()));
    }
    if !kind.is_file() {
        return Err(ReadError::Unsupported {
            path: path.to_path_buf(),
            what: "a pipe or a device, but a capture is read from its beginning more than once".into(),
            remedy: "write it to a file first".into(),
        });
    }
    let head = head(path, HEAD)?;
    let mut long_head = None;
    for reader in READERS {
        let mut detected = (reader.detect)(&head);
        if detected == Detected::NeedMore {
            let long_head = match &mut long_head {
                Some(known) => known,
                empty => empty.insert(self::head(path, LONG_HEAD)?),
            };
            detected = (reader.detect)(long_head);
        }
        if let Detected::Yes(format) = detected {
            return Ok((format, reader, head.packed));
        }
    }
    Err(unrecognised(describe(&head.bytes)))
}

/// Reads the first bytes of a file.
fn head(path: &Path, most: u64) -> Result<Head, ReadError> {
    let mut file = File::open(path).map_err(|e| ReadError::io(path, e))?;
    let mut bytes = Vec::new();
    (&mut file).take(most).read_to_end(&mut bytes).map_err(|e| ReadError::io(path, e))?;
    let packed = bytes.starts_with(&[0x1f, 0x8b]);
    if packed {
        file.seek(SeekFrom::Start(0)).map_err(|e| ReadError::io(path, e))?;
        bytes.clear();
        let mut inside = MultiGzDecoder::new(file).take(most);
        inside.read_to_end(&mut bytes).map_err(|e| ReadError::damaged(path, "gzip file", e))?;
    }
    let whole = (bytes.len() as u64) < most;
    Ok(Head { bytes, whole, packed })
}

const EXPECTED: &str = "an nsys SQLite export, a PyTorch trace (.json, .json.gz), an nsys kernel summary CSV, an ncu report or CSV page, \
                        a native capture, or a run directory";

/// Describes the first bytes for an error message.
fn describe(head: &[u8]) -> String {
    match head {
        [] => "an empty file".into(),
        [b'{' | b'[', ..] => "JSON that is not a trace".into(),
        _ if head.starts_with(b"\x7fELF") => "a program".into(),
        _ if head.starts_with(b"version https://git-lfs.github.com/spec/") => {
            "a Git LFS pointer to a file that was not downloaded; fetch it with `git lfs pull`".into()
        }
        _ if head.starts_with(b"PK\x03\x04") => "a zip archive; unpack it and give the captures in it".into(),
        _ if head.get(257..262) == Some(b"ustar") => {
            "a tar archive; unpack it and give the captures in it".into()
        }
        _ if head.starts_with(b"\x28\xb5\x2f\xfd") => "data compressed with zstd; decompress it first".into(),
        _ if head.starts_with(b"\xfd7zXZ\0") => "data compressed with xz; decompress it first".into(),
        _ if head.starts_with(b"BZh") => "data compressed with bzip2; decompress it first".into(),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "UTF-16 text, as PowerShell writes; save it as UTF-8".into(),
        _ if is_stats_table(head) => {
            "another table of `nsys stats`; give the kernel summary (cuda_gpu_kern_sum) as CSV, or the SQLite export of the report"
                .into()
        }
        _ => {
            let start = &head[..head.len().min(60)];
            match std::str::from_utf8(start) {
                Ok(text) => format!("text beginning with {:?}", text.lines().next().unwrap_or("")),
                Err(_) => format!("bytes beginning with {:02x?}", &start[..start.len().min(8)]),
            }
        }
    }
}

/// Returns true if text has the columns of a table that `nsys stats` prints.
fn is_stats_table(head: &[u8]) -> bool {
    let start = &head[..head.len().min(4096)];
    ["Total Time (ns)", "Duration (ns),CorrId"]
        .iter()
        .any(|columns| memchr::memmem::find(start, columns.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    #[test]
    fn archives_and_other_tables_are_named() {
        let mut tar = vec![0; 512];
        tar[..5].copy_from_slice(b"data/");
        tar[257..262].copy_from_slice(b"ustar");
        for (bytes, named) in [
            (&tar[..], "a tar archive; unpack it"),
            (b"PK\x03\x04....", "a zip archive; unpack it"),
            (b"\x28\xb5\x2f\xfd....", "compressed with zstd"),
            (b"\xfd7zXZ\0....", "compressed with xz"),
            (b"BZh91AY&SY", "compressed with bzip2"),
            (b"Start (ns),Duration (ns),CorrId,GrdX\n1,2,3,4\n", "another table of `nsys stats`"),
            (b"Time (%),Total Time (ns),Num Calls,Avg (ns)\n", "another table of `nsys stats`"),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), bytes).unwrap();
            let error = super::detect(file.path()).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_git_lfs_pointer_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n";
        std::fs::write(file.path(), pointer).unwrap();
        let error = super::detect(file.path()).unwrap_err().to_string();
        assert!(error.contains("a Git LFS pointer"), "{error}");
        assert!(error.contains("git lfs pull"), "{error}");
    }
}
