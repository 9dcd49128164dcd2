//! Detects the format of each input from its content and calls its reader.

use crate::gzip::Unpacked;
use crate::ncu::{CounterSet, NcuFormat, Sniff};
use crate::{ReadError, Source, Trace, account, kineto, native, ncu, nsys, summary_csv};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The formats that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// An export of Nsight Systems.
    NsysSqlite,
    /// A capture of the native collector.
    Native,
    /// A PyTorch trace.
    Kineto,
    /// A kernel summary of `nsys stats`.
    SummaryCsv,
    /// Counters of Nsight Compute.
    Ncu(NcuFormat),
    /// A program's own account of its run.
    Account,
}

impl Format {
    /// Returns true for a timeline, of which one command takes one.
    pub fn is_timeline(self) -> bool {
        matches!(
            self,
            Self::NsysSqlite | Self::Native | Self::Kineto | Self::SummaryCsv
        )
    }
}

/// Everything that the inputs of one command held.
#[derive(Debug, Default)]
pub struct Input {
    /// The timeline; empty if no input was one.
    pub trace: Trace,
    /// Counters, one set a file.
    pub counters: Vec<CounterSet>,
    /// The program's own account.
    pub account: Option<account::Account>,
}

/// Bytes read to detect the format.
const HEAD: u64 = 64 * 1024;

/// Bytes read when the first ones are not sufficient.
const LONG_HEAD: u64 = 2 << 20;

/// Reads all inputs into one.
pub fn read(paths: &[PathBuf]) -> Result<Input, ReadError> {
    let mut input = Input::default();
    let mut timeline: Option<(Format, &Path)> = None;
    for path in paths {
        let (format, packed) = sniff(path)?;
        if format.is_timeline()
            && let Some((known, first)) = timeline.replace((format, path))
            // The native collector writes a file for each process, all with one clock.
            && (known, format) != (Format::Native, Format::Native)
        {
            return Err(ReadError::Unsupported {
                path: path.clone(),
                what: format!(
                    "a second timeline beside {}, with a clock of its own",
                    first.display()
                ),
                remedy: "analyse one at a time, or compare the two with `roofgap compare`".into(),
            });
        }
        one(path, format, packed, &mut input)?;
    }
    input.trace.sort();
    Ok(input)
}

fn one(path: &Path, format: Format, packed: bool, input: &mut Input) -> Result<(), ReadError> {
    match format {
        Format::Kineto => kineto::read(path, &mut input.trace),
        // These readers seek or are small: they take a plain file.
        Format::NsysSqlite | Format::Native | Format::SummaryCsv | Format::Account if packed => {
            let unpacked = unpack(path)?;
            one(unpacked.path(), format, false, input).map_err(|e| e.about(path))?;
            if let Some(source) = input.trace.sources.last_mut().filter(|_| format.is_timeline()) {
                source.path = path.display().to_string();
            }
            Ok(())
        }
        Format::NsysSqlite => nsys::read(path, &mut input.trace),
        Format::Native => native::read(path, &mut input.trace).map(|_| ()),
        Format::SummaryCsv => summary_csv::read(path, &mut input.trace),
        Format::Account => {
            input.account = Some(account::read(path)?);
            Ok(())
        }
        Format::Ncu(page) => {
            let io = |e| ReadError::io(path, e);
            let set = if packed {
                ncu::read(page, BufReader::new(Unpacked::open(path).map_err(io)?))
            } else {
                ncu::read(page, BufReader::new(File::open(path).map_err(io)?))
            };
            let set = set.map_err(|e| ReadError::damaged(path, "ncu report or page", chain(&e)))?;
            let format = match page {
                NcuFormat::Report => "ncu-rep",
                NcuFormat::RawPage => "ncu-raw-csv",
                NcuFormat::DetailsPage => "ncu-details-csv",
            };
            let tool_version = set.tool.version.clone();
            let path = path.display().to_string();
            input.trace.sources.push(Source {
                path,
                format,
                tool_version,
                schema_version: None,
            });
            input.counters.push(set);
            Ok(())
        }
    }
}

/// An error with its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Tells the format of a file by its content, and whether it is packed with gzip.
pub fn sniff(path: &Path) -> Result<(Format, bool), ReadError> {
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
            what: "a pipe or a device, where a capture has to be read from its beginning more than once"
                .into(),
            remedy: "write it to a file first".into(),
        });
    }
    let (head, whole, packed) = head(path, HEAD)?;
    if head.starts_with(b"SQLite format 3\0") {
        return Ok((Format::NsysSqlite, packed));
    }
    if native::looks_like(&head) {
        return Ok((Format::Native, packed));
    }
    let mut told = ncu::sniff(&head, whole);
    if told == Sniff::NeedMore {
        let (head, whole, _) = self::head(path, LONG_HEAD)?;
        told = ncu::sniff(&head, whole);
    }
    if let Sniff::Yes(page) = told {
        return Ok((Format::Ncu(page), packed));
    }
    // The tables of other reports may stand before it.
    if summary_csv::looks_like(&head)
        || !whole
            && summary_csv::may_follow(&head)
            && summary_csv::looks_like(&self::head(path, LONG_HEAD)?.0)
    {
        return Ok((Format::SummaryCsv, packed));
    }
    if memchr::memmem::find(&head, account::SCHEMA.as_bytes()).is_some() {
        return Ok((Format::Account, packed));
    }
    if kineto::looks_like(&head) {
        return Ok((Format::Kineto, packed));
    }
    Err(unrecognised(describe(&head)))
}

/// The first bytes of a file, unpacked; whether that is all of it; whether it was packed.
fn head(path: &Path, most: u64) -> Result<(Vec<u8>, bool, bool), ReadError> {
    let mut file = File::open(path).map_err(|e| ReadError::io(path, e))?;
    let mut head = Vec::new();
    (&mut file)
        .take(most)
        .read_to_end(&mut head)
        .map_err(|e| ReadError::io(path, e))?;
    let packed = head.starts_with(&[0x1f, 0x8b]);
    if packed {
        file.seek(SeekFrom::Start(0))
            .map_err(|e| ReadError::io(path, e))?;
        head.clear();
        let mut inside = MultiGzDecoder::new(file).take(most);
        inside
            .read_to_end(&mut head)
            .map_err(|e| ReadError::damaged(path, "gzip file", e))?;
    }
    let whole = (head.len() as u64) < most;
    Ok((head, whole, packed))
}

const EXPECTED: &str = "an nsys SQLite export, a PyTorch trace (.json, .json.gz), an nsys kernel summary CSV, an ncu report or CSV page, \
                        a native capture, or a run directory";

/// Describes the first bytes for an error message.
fn describe(head: &[u8]) -> String {
    match head {
        [] => "an empty file".into(),
        [b'{' | b'[', ..] => "JSON that is not a trace".into(),
        _ if head.starts_with(b"\x7fELF") => "a program".into(),
        _ if head.starts_with(b"PK\x03\x04") => "a zip archive".into(),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "UTF-16 text, as PowerShell writes; save it as UTF-8".into(),
        _ => {
            let start = &head[..head.len().min(60)];
            match std::str::from_utf8(start) {
                Ok(text) => format!("text beginning with {:?}", text.lines().next().unwrap_or("")),
                Err(_) => format!("bytes beginning with {:02x?}", &start[..start.len().min(8)]),
            }
        }
    }
}

/// Unpacks a file into a temporary one.
fn unpack(path: &Path) -> Result<tempfile::NamedTempFile, ReadError> {
    let no_room = |e: std::io::Error| ReadError::Unsupported {
        path: path.to_path_buf(),
        what: format!("cannot unpack it into {}: {e}", std::env::temp_dir().display()),
        remedy: "unpack it with gunzip first, or set TMPDIR to a folder with more room".into(),
    };
    let mut inside = Unpacked::open(path).map_err(|e| ReadError::io(path, e))?;
    let mut target = tempfile::Builder::new()
        .prefix("roofgap-")
        .tempfile()
        .map_err(no_room)?;
    let mut buffer = vec![0u8; 1 << 18];
    loop {
        match inside
            .read(&mut buffer)
            .map_err(|e| ReadError::damaged(path, "gzip file", e))?
        {
            0 => break,
            n => target
                .write_all(buffer.get(..n).unwrap_or_default())
                .map_err(no_room)?,
        }
    }
    target.flush().map_err(no_room)?;
    Ok(target)
}
