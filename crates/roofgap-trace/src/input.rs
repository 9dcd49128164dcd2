//! The one door for inputs: a file is opened, its format is detected from its content, and its reader is called.

use crate::annotated;
use crate::format::{Detected, Head, SourceFormat};
use crate::native::{self, CaptureRank};
use crate::ncu::CounterSet;
use crate::{ReadError, Trace};
use roofgap_base::file::Unpacked;
use roofgap_base::text::hex;
use roofgap_wire::account::Account;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Bytes read to detect the format.
const HEAD: u64 = 64 * 1024;

/// Bytes read when the first ones are not sufficient.
const LONG_HEAD: u64 = 2 << 20;

/// Contents of all inputs of one command.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Input {
    /// Timeline; empty if no input is one.
    pub trace: Trace,
    /// Counters, one set per file.
    pub counters: Vec<CounterSet>,
    /// Workload account of the program.
    pub account: Option<Account>,
}

/// A file whose format is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sniffed {
    /// Path, as named by the user.
    pub path: PathBuf,
    /// Format, as detected from content.
    pub format: SourceFormat,
    /// True if the file is compressed with gzip.
    pub packed: bool,
}

impl Sniffed {
    /// Detects the format of a file from its content.
    ///
    /// # Errors
    /// Fails when the file cannot be read or has an unknown format.
    pub fn of(path: &Path) -> Result<Self, ReadError> {
        let unrecognised = |found: String| ReadError::Unrecognised {
            path: path.to_path_buf(),
            expected: SourceFormat::expected(),
            found,
        };
        let kind = std::fs::metadata(path).map_err(|e| ReadError::io(path, e))?;
        for (table, what) in FOLDERS {
            if path.join(table).is_file() {
                return Err(ReadError::unsupported(
                    path,
                    what,
                    "export with `nsys export --type sqlite` instead",
                ));
            }
        }
        if kind.is_dir() {
            return Err(unrecognised("a folder that is no run".into()));
        }
        if !kind.is_file() {
            let what = "a pipe or a device, but a capture is read from its beginning more than once";
            return Err(ReadError::unsupported(path, what, "write it to a file first"));
        }
        let (head, packed) = head(path, HEAD)?;
        let mut long_head = None;
        for &format in SourceFormat::ALL {
            let detect = format.facts().detect;
            let mut detected = detect(&head);
            if detected == Detected::NeedMore {
                let long_head = match &mut long_head {
                    Some(known) => known,
                    empty => empty.insert(self::head(path, LONG_HEAD)?.0),
                };
                detected = detect(long_head);
            }
            if detected == Detected::Yes {
                return Ok(Self { path: path.to_path_buf(), format, packed });
            }
        }
        Err(unrecognised(describe(&head.bytes)))
    }

    /// Looks at a file in a folder. Returns `None` for a file that is no capture, and an error for one that is not readable and has a
    /// name that only timelines of one format have.
    pub fn in_folder(path: &Path) -> Option<Result<Self, ReadError>> {
        let name = path.file_name()?.to_string_lossy();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let named = |format: &&SourceFormat| format.facts().endings.iter().any(|end| plain.ends_with(end));
        let named: Vec<&SourceFormat> = SourceFormat::ALL.iter().filter(named).collect();
        if named.is_empty() || !path.is_file() {
            return None;
        }
        match (Self::of(path), &named[..]) {
            (Err(error), [only]) if only.is_timeline() => Some(Err(error)),
            (sniffed, _) => sniffed.ok().map(Ok),
        }
    }

    /// Reads the rank and the host in a native capture of a job of several; `None` where it tells none or is damaged.
    pub fn rank(&self) -> Option<CaptureRank> {
        (self.format == SourceFormat::Native).then(|| native::rank(&self.path).ok().flatten()).flatten()
    }

    /// Calls a function that needs an uncompressed file.
    pub(crate) fn unpacked<T>(
        &self,
        read: impl FnOnce(&Path) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        if !self.packed {
            return read(&self.path);
        }
        let copy = TemporaryCopy::unpack(&self.path)?;
        read(copy.path()).map_err(|error| error.about(&self.path))
    }
}

/// Opens a file, which may be compressed with gzip.
pub fn open(path: &Path) -> Result<Unpacked, ReadError> {
    Unpacked::open(path).map_err(|error| ReadError::io(path, error))
}

/// Reads the first bytes of a file; returns them, and true if it is compressed.
fn head(path: &Path, most: u64) -> Result<(Head, bool), ReadError> {
    let content = open(path)?;
    let packed = content.is_packed();
    let mut bytes = Vec::new();
    content.take(most).read_to_end(&mut bytes).map_err(|e| ReadError::content(path, packed, e))?;
    let whole = (bytes.len() as u64) < most;
    Ok((Head { bytes, whole }, packed))
}

/// Reads a whole file of at most `most` bytes.
pub fn load(path: &Path, format: &'static str, most: u64) -> Result<Vec<u8>, ReadError> {
    match head(path, most + 1)?.0 {
        Head { bytes, whole: true } => Ok(bytes),
        _ => Err(ReadError::damaged(path, format, format!("longer than {} MiB", most >> 20))),
    }
}

/// The unpacked content of a compressed file. A killed process leaves none behind: where possible, the copy has no name.
#[derive(Debug)]
pub struct TemporaryCopy {
    path: PathBuf,
    /// Keeps the content: a file without a name, or one that is removed at the end.
    _content: Content,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held until the copy is no longer read")]
enum Content {
    Nameless(File),
    Named(tempfile::TempPath),
}

impl TemporaryCopy {
    /// Unpacks a gzip file.
    pub fn unpack(path: &Path) -> Result<Self, ReadError> {
        let no_room = |e: io::Error| {
            let what = format!("cannot unpack it into {}: {e}", std::env::temp_dir().display());
            let remedy = "unpack it with gunzip first, or set TMPDIR to a folder with more room";
            ReadError::unsupported(path, what, remedy)
        };
        let mut inside = open(path)?;
        let (copy, mut file) = Self::create().map_err(no_room)?;
        let mut buffer = vec![0u8; 1 << 18];
        // Not `io::copy`: errors of reading and of writing differ.
        loop {
            match inside.read(&mut buffer).map_err(|e| ReadError::damaged(path, "gzip file", e))? {
                0 => return Ok(copy),
                n => file.write_all(&buffer[..n]).map_err(no_room)?,
            }
        }
    }

    /// Creates an empty copy and returns it with the file to write to.
    fn create() -> io::Result<(Self, File)> {
        let nameless = tempfile::tempfile()?;
        if let Some(path) = path_of(&nameless) {
            let file = nameless.try_clone()?;
            return Ok((Self { path, _content: Content::Nameless(nameless) }, file));
        }
        let (file, path) = tempfile::Builder::new().prefix("roofgap-").tempfile()?.into_parts();
        Ok((Self { path: path.to_path_buf(), _content: Content::Named(path) }, file))
    }

    /// Returns a path under which the copy can be opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns a path of an open file without a name, where `/proc` is mounted.
fn path_of(file: &File) -> Option<PathBuf> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    File::open(&path).is_ok().then_some(path)
}

/// Reads all inputs into one.
///
/// # Errors
/// Fails when a file cannot be read, has an unknown format, is damaged, or is a second timeline. Captures of the native
/// collector count as one timeline, because it writes a file per process.
pub fn read(paths: &[PathBuf]) -> Result<Input, ReadError> {
    read_files(&paths.iter().map(|path| Sniffed::of(path)).collect::<Result<Vec<_>, _>>()?)
}

/// Reads files whose format is known into one input, as [`read`] does.
///
/// # Errors
/// Fails when a file is damaged or a second timeline.
pub fn read_files(files: &[Sniffed]) -> Result<Input, ReadError> {
    let mut reading = Reading::default();
    files.iter().try_for_each(|file| reading.add(file))?;
    let (input, error) = reading.finish();
    error.map_or(Ok(input), Err)
}

/// Reads the readable inputs into one and returns the errors of the others. Each file is read once.
pub fn read_each(files: &[Sniffed]) -> (Input, Vec<ReadError>) {
    let mut reading = Reading::default();
    let mut errors: Vec<ReadError> = files.iter().filter_map(|file| reading.add(file).err()).collect();
    let (input, error) = reading.finish();
    errors.extend(error);
    (input, errors)
}

/// Inputs as far as they are read.
#[derive(Default)]
struct Reading {
    input: Input,
    /// The last timeline.
    timeline: Option<Sniffed>,
}

impl Reading {
    /// Adds one file. A file that fails adds no events.
    fn add(&mut self, file: &Sniffed) -> Result<(), ReadError> {
        let is_timeline = file.format.is_timeline();
        let is_native = file.format == SourceFormat::Native;
        if let Some(first) = self.timeline.as_ref().filter(|_| is_timeline)
            && !(is_native && first.format == SourceFormat::Native)
        {
            let what = format!("a second timeline beside {}, with a clock of its own", first.path.display());
            let remedy = "analyse one at a time, or compare the two with `roofgap compare`";
            return Err(ReadError::unsupported(&file.path, what, remedy));
        }
        let sources = self.input.trace.sources.clone();
        if let Err(error) = (file.format.facts().read)(file, &mut self.input) {
            // A native capture fails at its header, before its first event. Any other timeline is the only one.
            if is_timeline && !is_native {
                self.input.trace = Trace { sources, ..Trace::default() };
            }
            return Err(error);
        }
        if is_timeline {
            // The reader may have seen an unpacked copy.
            if let Some(source) = self.input.trace.sources.last_mut() {
                source.path = file.path.display().to_string();
            }
            self.timeline = Some(file.clone());
        }
        Ok(())
    }

    /// Leaves out numbers that cannot be, and the timeline if none of it can be used; puts the events in order.
    fn finish(self) -> (Input, Option<ReadError>) {
        let Self { mut input, timeline } = self;
        let error = input.trace.limit_values().err().map(|why| {
            let sources = std::mem::take(&mut input.trace.sources);
            input.trace = Trace { sources, ..Trace::default() };
            let path = timeline.map_or_else(PathBuf::new, |file| file.path);
            ReadError::damaged(&path, "capture", why)
        });
        input.trace.sort();
        input.trace.settle_clocks();
        annotated::settle(&mut input.trace);
        (input, error)
    }
}

/// Tables of strings in folders that nsys exports.
const FOLDERS: [(&str, &str); 2] = [
    ("StringIds.parquet", "a Parquet export of nsys, which is not read"),
    ("StringIds.arrow", "an Arrow export of nsys, which is not read"),
];

/// Formats that are refused, the more specific ones first. Columns: first bytes, of which a file has one (as text or in hex); words of the
/// beginning, one on each side of `&`; a description, with what to give instead. An empty column holds for every file.
const REFUSED: &str = include_str!("refused.tsv");

/// Describes the first bytes for an error message.
fn describe(head: &[u8]) -> String {
    if head.is_empty() {
        return "an empty file".to_owned();
    }
    if head.get(257..262) == Some(b"ustar") {
        return "a tar archive; unpack it and give the captures in it".to_owned();
    }
    let first = format!("0x{}", hex(&head[..head.len().min(8)]));
    let begins = |text: &str| head.starts_with(text.as_bytes()) || text.len() > 2 && first.starts_with(text);
    let has = |word: &str| memchr::memmem::find(head, word.as_bytes()).is_some();
    for line in REFUSED.lines() {
        let mut columns = line.split('\t');
        let [starts, words, description] = std::array::from_fn(|_| columns.next().unwrap_or_default());
        if (starts.is_empty() || starts.split(" | ").any(begins))
            && words.split(" & ").all(|words| words.split(" | ").any(has))
        {
            return description.to_owned();
        }
    }
    let start = &head[..head.len().min(60)];
    match std::str::from_utf8(start) {
        Ok(text) => format!("text beginning with {:?}", text.lines().next().unwrap_or("")),
        Err(_) => format!("bytes beginning with {:02x?}", &start[..start.len().min(8)]),
    }
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
            (b"==PROF== Connected to process 7", "the text that ncu prints"),
            (b"==7== NVPROF is profiling process 7", "output of nvprof"),
            (b"\"Index\",\"KernelName\",\"gpu-id\"", "a table of AMD's rocprof"),
            (b"PAR1\x15\x04", "of a recipe of nsys"),
            (b"\x92\x83\xa5frame\x82", "record with `data=\"trace\"`"),
            (br#"[{"children": [], "frame": {"name": "ROOT"}, "metrics": {}}]"#, "a Proton profile"),
            (b"# HELP DCGM_FI_DEV_SM_CLOCK (in MHz)", "the DCGM exporter, which are not needed"),
            (b"\x80\x04\x95\x10\0\0\0\0\0\0\0}", "a memory snapshot of PyTorch"),
            (b"\x0a\x20\x08\x01\x12\x0b/host:CPU", "an XPlane profile"),
            (br#"{"rocprofiler-sdk-tool": [{"metadata": {}}]}"#, "AMD's rocprofv3"),
            (
                br#"{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}"#,
                "an execution trace of PyTorch (Chakra)",
            ),
            (br#"{"segments": [], "device_traces": [[]]}"#, "a memory snapshot of PyTorch"),
            (br#"{"a": 1}"#, "JSON that is not a trace"),
            (b"Start (ns),Duration (ns),CorrId,Name\n1,2,3,4\n", "another table of `nsys stats`"),
            (b"Time (%),Total Time (ns),Num Calls,Avg (ns)\n", "another table of `nsys stats`"),
            (
                b" Time (%)  Total Time (ns)  Instances  Name\n --------  ----\n",
                "`--report cuda_gpu_kern_sum --format csv`",
            ),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), bytes).unwrap();
            let error = super::Sniffed::of(file.path()).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_git_lfs_pointer_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n";
        std::fs::write(file.path(), pointer).unwrap();
        let error = super::Sniffed::of(file.path()).unwrap_err().to_string();
        assert!(error.contains("a Git LFS pointer"), "{error}");
        assert!(error.contains("git lfs pull"), "{error}");
    }
}
