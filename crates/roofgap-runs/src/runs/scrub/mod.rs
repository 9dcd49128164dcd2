//! Removes host names, user names, home paths and secrets from the documents of a run, and packs the files that can be shared.
//!
//! The archive has what is on an allow-list: records, configuration and analysis with private values removed, reports written
//! again from that analysis, captures of the native collector without their host, and counters. Logs, reports of nsys and ncu,
//! exports, output of the program and unknown files are left out and named. Every file that goes in is searched for secrets.
//!
//! - `private`: private data to remove, and the search for it;
//! - `shapes`: patterns of private text, and the secrets recognised by their shape.

#[cfg(test)]
mod planted;
mod private;
mod shapes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use roofgap_analyze::{Analysis, StageIndex};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::{FileHash, Unpacked, copy_hashed, read_text, write_atomic, write_atomic_with};
use roofgap_report::{Bundle, Context};
use roofgap_trace::native;
use serde::Serialize;

use super::artifacts::{FoundFile, files, in_progress, is_temporary};
use crate::config::read_yaml;
use crate::open::run::{Run, context};
use crate::run_dir::folder::{RunState, read_json, run_state, write_json};
use crate::run_dir::{Layout, RunRef, SessionRecord, read_trial};
pub use private::host_variables;
use private::{Private, Removed};
use shapes::Kind;

/// Schema of the result.
pub const SCHEMA: &str = "roofgap.scrub/1";

/// File in the run that holds the result.
const NOTE: &str = "scrubbed.json";

/// Settings of scrubbing.
#[derive(Debug, Clone, Default)]
pub struct ScrubProps {
    /// Environment variables of this machine, whose values are private.
    pub variables: Vec<(String, String)>,
    /// Archive to write with the files that can be shared.
    pub pack: Option<PathBuf>,
    /// Further files of the run to pack as they are, by their paths in it.
    pub include: Vec<PathBuf>,
    /// Report what would be removed, and change nothing.
    pub dry_run: bool,
}

/// Result of scrubbing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ScrubOutcome {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// Id of the run.
    pub run_id: String,
    /// True where nothing was changed and no archive written.
    pub dry_run: bool,
    /// Changed files.
    pub changed: Vec<PathBuf>,
    /// Removals by file.
    pub cleaned: Vec<CleanedFile>,
    /// Number of removals by kind. Variables are named, their values never.
    pub removed: Removed,
    /// Files that are left as they are and may hold private data. They are in no archive.
    pub not_clean: Vec<UncleanFile>,
    /// Archive.
    pub pack: Option<Archive>,
}

/// A file with removals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CleanedFile {
    /// Path below the folder of the run.
    pub path: PathBuf,
    /// Number of removals by kind.
    pub removed: Removed,
}

/// A file that is unchanged and must not be shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UncleanFile {
    /// Path below the folder of the run.
    pub path: PathBuf,
    /// Reason.
    pub why: String,
    /// True for a kind of file that is not on the allow-list, false for an error on this file.
    pub by_kind: bool,
    /// True where the clean file could not be written.
    #[serde(skip)]
    no_room: bool,
}

impl UncleanFile {
    fn new(path: &Path, why: impl Into<String>) -> Self {
        UncleanFile { path: path.to_owned(), why: why.into(), by_kind: false, no_room: false }
    }
}

/// An archive of clean files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Archive {
    /// Path.
    pub path: PathBuf,
    /// Size, bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
    /// Number of files.
    pub files: usize,
}

impl ScrubOutcome {
    /// Removes private data from the descriptions: the name of a variable comes from a file and may be one.
    fn clean_words(&mut self, private: &Private) {
        let clean = |text: &str| private.clean(text, &mut Removed::new());
        let clean_keys = |counts: &mut Removed| {
            for (what, times) in std::mem::take(counts) {
                *counts.entry(clean(&what).unwrap_or(what)).or_default() += times;
            }
        };
        clean_keys(&mut self.removed);
        for file in &mut self.cleaned {
            clean_keys(&mut file.removed);
        }
        for file in &mut self.not_clean {
            file.why = clean(&file.why).unwrap_or(std::mem::take(&mut file.why));
        }
    }

    /// Returns the exit status. A file that is not on the allow-list is not a failure.
    pub fn exit(&self) -> Exit {
        if self.not_clean.iter().all(|file| file.by_kind) { Exit::Done } else { Exit::Partial }
    }
}

/// Treatment of a file.
enum Treatment {
    /// Clean the strings of a JSON document.
    Json,
    /// Clean as text: configuration and tables.
    Text,
    /// Write again from the analysis.
    Report,
    /// Remove the host name and search the rest: a native capture holds nothing but names and times.
    Capture,
    /// Search only: the user named the file.
    Named,
    /// Leave out.
    LeaveOut(&'static str),
}

/// Finds the treatment of a file of a run: the allow-list.
fn treatment(path: &Path, include: &[PathBuf]) -> Treatment {
    let name = in_run(path).to_string_lossy();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    let (folder, file) = plain.split_once('/').unwrap_or(("", plain));
    let (_, kind) = file.rsplit_once('.').unwrap_or_default();
    match (folder, file) {
        _ if include.iter().any(|named| named == path) => Treatment::Named,
        ("", "session.json" | "env.json" | "metrics.json" | "try.json" | "merge.json" | NOTE)
        | ("ncu", "plan.json")
        | ("model", "config.json")
        | ("torch", "operators.json")
        | ("baseline" | "nsys" | "native" | "torch" | "ncu", "workload.json") => Treatment::Json,
        ("", "config.yaml" | "inputs.yaml") => Treatment::Text,
        ("ncu", _) if kind == "csv" => Treatment::Text,
        ("nsys", _) if kind == "csv" && file.starts_with("summary_") => Treatment::Text,
        ("", "report.md" | "kernels.md" | "operators.md" | "stakeholder_summary.md" | "report.html") => {
            Treatment::Report
        }
        ("native", _) if native::is_capture(file) => Treatment::Capture,
        ("program", _) => Treatment::LeaveOut("written by the program, content unknown"),
        _ => Treatment::LeaveOut(match kind {
            "nsys-rep" | "qdstrm" => {
                "an nsys report holds the environment of the machine and cannot be changed"
            }
            "ncu-rep" => "an ncu report holds paths and modules of the program and cannot be changed",
            "sqlite" => "an nsys export holds the environment and the output of the program",
            "log" => "a log holds the output of the program",
            "parquet" => "compressed inside; `roofgap report` regenerates it from the clean files",
            _ => "unknown kind of file",
        }),
    }
}

/// Returns the path of a file below the folder of its run, which for a node of a job is `nodes/RUN`.
fn in_run(path: &Path) -> &Path {
    let mut parts = path.components();
    match (parts.next(), parts.next()) {
        (Some(first), Some(_)) if first.as_os_str() == "nodes" => parts.as_path(),
        _ => path,
    }
}

/// Tells whether a file could not be written because there is no room for it.
fn is_write_failure(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), FileTooLarge | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}

/// Removes host names, user names, home paths and secrets from the documents of a run, and packs what can be shared.
///
/// Each file is replaced atomically. The records, which tell what to look for, come last, so that an interrupted scrub can be
/// repeated.
pub fn scrub(run: &RunRef, props: &ScrubProps) -> Result<ScrubOutcome, Error> {
    let folders: Vec<PathBuf> =
        std::iter::once(run.path.clone()).chain(Layout::of(&run.path).nodes()).collect();
    if folders.iter().any(|folder| run_state(folder) == RunState::UnderWay) {
        return Err(in_progress(run));
    }
    if let Some(target) = &props.pack {
        is_device(target)?;
    }
    let mut found = files(&run.path)?;
    if let Some(absent) = props.include.iter().find(|named| !found.iter().any(|file| file.path == **named)) {
        return Err(Error::new(format!("the run {} has no file {}", run.id, absent.display())));
    }
    if !props.dry_run {
        // What a killed scrub left holds private data.
        for file in found.iter().filter(|file| is_temporary(&file.path)) {
            let path = run.path.join(&file.path);
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
    }
    let is_hidden = |part: std::path::Component<'_>| part.as_os_str().to_string_lossy().starts_with('.');
    found.retain(|file| !file.path.components().any(is_hidden));
    let is_record =
        |path: &Path| ["session.json", "config.yaml"].iter().any(|name| in_run(path) == Path::new(name));
    found.sort_by_key(|file| (is_record(&file.path), file.path.clone()));
    let private = gather(&run.path, &folders, &found, &props.variables);
    let mut scrubber =
        Scrubber { root: &run.path, private: &private, dry_run: props.dry_run, reports: BTreeMap::new() };
    let mut outcome = ScrubOutcome {
        schema: SCHEMA,
        run_id: run.id.clone(),
        dry_run: props.dry_run,
        ..ScrubOutcome::default()
    };
    let mut clean = Vec::new();
    for file in &found {
        if is_record(&file.path) && outcome.not_clean.iter().any(|other| other.no_room) {
            let why = "another file could not be written, and this one tells what to look for there";
            outcome.not_clean.push(UncleanFile::new(&file.path, why));
            continue;
        }
        match scrubber.treat(&file.path, treatment(&file.path, &props.include), &mut outcome) {
            Ok(()) => clean.push(file.path.clone()),
            Err(unclean) => outcome.not_clean.push(unclean),
        }
    }
    outcome.clean_words(&private);
    if props.dry_run {
        return Ok(outcome);
    }
    write_json(&run.path.join(NOTE), &outcome)?;
    if let Some(target) = &props.pack {
        clean.retain(|file| file != Path::new(NOTE));
        clean.push(PathBuf::from(NOTE));
        clean.sort();
        let hash = pack(&run.path, &run.id, &clean, target, &private)?;
        outcome.pack = Some(Archive {
            path: target.clone(),
            bytes: hash.bytes,
            sha256: hash.sha256,
            files: clean.len(),
        });
    }
    Ok(outcome)
}

/// Collects the private data of this machine, of the records and configurations, and the hosts of the captures.
fn gather(root: &Path, folders: &[PathBuf], found: &[FoundFile], variables: &[(String, String)]) -> Private {
    let mut private = Private::of(variables);
    for folder in folders {
        if let Ok(record) = SessionRecord::read(folder) {
            private.arguments(&record.command_line);
            for command in record.phases.iter().flat_map(|phase| &phase.commands) {
                private.arguments(&command.argv);
                for (name, value) in &command.env {
                    private.variable(name, value.as_deref().unwrap_or_default());
                }
            }
        }
        let path = Layout::of(folder).config();
        let config = read_text(&path).ok();
        let config = config.and_then(|text| read_yaml(&text, &path).ok());
        let env = config.as_ref().and_then(|config| config.pointer("/workload/env")?.as_object());
        for (name, value) in env.into_iter().flatten() {
            private.variable(name, value.as_str().unwrap_or_default());
        }
        // An analysis names the hosts of its ranks.
        let analysis = read_json::<Analysis>(&Layout::of(folder).metrics());
        for rank in analysis.iter().flat_map(|analysis| &analysis.ranks) {
            private.word(rank.host.as_deref().unwrap_or_default(), "the host name");
        }
    }
    let captures = found.iter().filter(|file| native::is_capture(&file.name()));
    for host in captures.filter_map(|file| native::host(&root.join(&file.path)).ok().flatten()) {
        private.word(&host, "the host name");
    }
    private
}

/// The files of a run and what is removed from them.
struct Scrubber<'a> {
    root: &'a Path,
    private: &'a Private,
    dry_run: bool,
    /// Reports of each folder with an analysis, by their paths in the run.
    reports: BTreeMap<PathBuf, Vec<u8>>,
}

impl Scrubber<'_> {
    /// Cleans one file and records it.
    fn treat(
        &mut self,
        name: &Path,
        treatment: Treatment,
        outcome: &mut ScrubOutcome,
    ) -> Result<(), UncleanFile> {
        // The name of a file is in the result and in the archive.
        if let Some(name) = self.private.clean(&name.to_string_lossy(), &mut Removed::new()) {
            return Err(UncleanFile::new(Path::new(&name), "its name holds private data"));
        }
        let path = self.root.join(name);
        let mut removed = Removed::new();
        let changed = match treatment {
            Treatment::LeaveOut(why) => {
                return Err(UncleanFile { by_kind: true, ..UncleanFile::new(name, why) });
            }
            Treatment::Json | Treatment::Text => self.document(&path, &treatment, &mut removed),
            Treatment::Report => self.report(name),
            Treatment::Capture => self.capture(&path, &mut removed),
            Treatment::Named => self.named(&path).map(|()| false),
        };
        let failed = |error: io::Error| UncleanFile {
            no_room: is_write_failure(&error),
            ..UncleanFile::new(name, error.to_string())
        };
        if changed.map_err(failed)? {
            outcome.changed.push(name.to_owned());
        }
        for (what, times) in &removed {
            *outcome.removed.entry(what.clone()).or_default() += times;
        }
        if !removed.is_empty() {
            outcome.cleaned.push(CleanedFile { path: name.to_owned(), removed });
        }
        Ok(())
    }

    /// Cleans a document or a table, plain or compressed. Returns true if it changed.
    fn document(&self, path: &Path, treatment: &Treatment, removed: &mut Removed) -> io::Result<bool> {
        let mut content = Unpacked::open(path)?;
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes)?;
        is_searchable(&bytes)?;
        let clean = match treatment {
            Treatment::Json => {
                let text = std::str::from_utf8(&bytes).map_err(io::Error::other)?;
                self.private.clean_json(text, removed).map(String::into_bytes)
            }
            _ => self.clean_lines(&bytes, removed),
        };
        let text = clean.as_deref().unwrap_or(&bytes);
        self.check_text(text)?;
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml");
        if is_yaml && let Ok(text) = std::str::from_utf8(text) {
            let broken = |error| io::Error::other(format!("cleaning would break it: {error}"));
            read_yaml(text, path).map_err(broken)?;
        }
        if let Some(clean) = clean.as_ref().filter(|_| !self.dry_run) {
            write_as(path, content.is_packed(), |file| file.write_all(clean))?;
        }
        Ok(clean.is_some())
    }

    /// Cleans a text. Bytes that are not UTF-8 are kept.
    fn clean_lines(&self, bytes: &[u8], removed: &mut Removed) -> Option<Vec<u8>> {
        let mut clean = Vec::with_capacity(bytes.len());
        let mut changed = false;
        for chunk in bytes.utf8_chunks() {
            let text = self.private.clean(chunk.valid(), removed);
            changed |= text.is_some();
            clean.extend_from_slice(text.as_deref().unwrap_or(chunk.valid()).as_bytes());
            clean.extend_from_slice(chunk.invalid());
        }
        changed.then_some(clean)
    }

    /// Checks that a text has no private data left.
    fn check_text(&self, bytes: &[u8]) -> io::Result<()> {
        let mut found = Removed::new();
        self.clean_lines(bytes, &mut found);
        found.into_keys().next().map_or(Ok(()), |what| Err(still_holds(&what)))
    }

    /// Writes a report again from the analysis without private data. Returns true if it changed.
    fn report(&mut self, name: &Path) -> io::Result<bool> {
        if !self.reports.contains_key(name) {
            let folder = name.parent().unwrap_or(Path::new(""));
            self.reports.extend(self.render(folder)?);
        }
        let bytes =
            self.reports.get(name).ok_or_else(|| io::Error::other("it is a report of another version"))?;
        self.check_text(bytes)?;
        let path = self.root.join(name);
        let changed = fs::read(&path)? != *bytes;
        if changed && !self.dry_run {
            write_atomic(&path, bytes)?;
        }
        Ok(changed)
    }

    /// Renders the reports of a run, or of a node of a job, from its analysis alone.
    fn render(&self, folder: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
        let layout = Layout::of(&self.root.join(folder));
        let metrics = layout.metrics();
        let text = read_text(&metrics).map_err(Error::io("write it again from", &metrics));
        let text = text.map_err(io::Error::other)?;
        let analysis: Analysis = self.cleaned(text)?;
        let known = Run::open(layout.root()).map(|run| context(&run.record, &layout, &run.config));
        let known = Context { trial: read_trial(&layout).unwrap_or_default(), ..known.unwrap_or_default() };
        let context: Context = self.cleaned(serde_json::to_string(&known)?)?;
        let (stages, trace) = (&StageIndex::default(), None);
        let files = roofgap_report::files(Bundle { analysis: &analysis, stages, trace, context: &context });
        Ok(files.into_iter().map(|file| (folder.join(file.name), file.bytes)).collect())
    }

    /// Reads a value from JSON without private data.
    fn cleaned<T: serde::de::DeserializeOwned>(&self, text: String) -> io::Result<T> {
        let clean = self.private.clean_json(&text, &mut Removed::new()).unwrap_or(text);
        Ok(serde_json::from_str(&clean)?)
    }

    /// Removes the host name from a native capture and searches the rest. Returns true if it had one.
    fn capture(&self, path: &Path, removed: &mut Removed) -> io::Result<bool> {
        if native::host(path).map_err(unsearchable)?.is_none() {
            return self.check_capture(path).map(|()| false);
        }
        let mut copy = tempfile::NamedTempFile::new()?;
        native::write_without_host(path, copy.as_file_mut()).map_err(unsearchable)?;
        self.check_capture(copy.path())?;
        removed.insert("the host name".to_owned(), 1);
        if !self.dry_run {
            let is_packed = Unpacked::open(path)?.is_packed();
            let mut clean = File::open(copy.path())?;
            write_as(path, is_packed, |file| io::copy(&mut clean, file).map(drop))?;
        }
        Ok(true)
    }

    /// Searches a native capture, which is compressed inside: its bytes, and its names as other files show them.
    fn check_capture(&self, path: &Path) -> io::Result<()> {
        let kinds = [Kind::Secret, Kind::Name];
        let mut found = None;
        let whole = native::frames(path, &mut |mut frame| {
            // Reading from memory cannot fail.
            found = found.take().or_else(|| self.private.found_in(&mut frame, &kinds).unwrap_or_default());
        });
        let whole = whole.map_err(unsearchable)?;
        if let Some(what) = found {
            return Err(still_holds(&what));
        }
        let mut content = Unpacked::open(path)?;
        io::copy(&mut (&mut content).take(whole), &mut io::sink())?;
        if BufReader::new(content).bytes().any(|byte| !matches!(byte, Ok(0))) {
            return Err(unsearchable(format!("it is damaged after {whole} bytes")));
        }
        let input = roofgap_trace::read(&[path.to_owned()]).map_err(unsearchable)?;
        input.trace.names.iter().try_for_each(|(_, name)| self.check_text(name.as_bytes()))
    }

    /// Searches a file that the user named.
    fn named(&self, path: &Path) -> io::Result<()> {
        let mut content = Unpacked::open(path)?;
        let mut first = Vec::new();
        (&mut content).take(LONGEST_MAGIC).read_to_end(&mut first)?;
        is_searchable(&first)?;
        let mut whole = first.as_slice().chain(content);
        let found = self.private.found_in(&mut whole, &[Kind::Secret, Kind::Field])?;
        found.map_or(Ok(()), |what| Err(still_holds(&what)))
    }
}

/// First bytes of compressed content that is not unpacked: gzip in gzip, Zstandard, xz, bzip2, zip, LZ4, 7z and Parquet.
const COMPRESSED: [&[u8]; 8] = [
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b"\xfd7zXZ",
    b"BZh",
    b"PK\x03\x04",
    b"\x04\x22\x4d\x18",
    b"7z\xbc\xaf\x27\x1c",
    b"PAR1",
];

/// Length of the longest of them.
const LONGEST_MAGIC: u64 = 6;

/// Refuses content whose secrets a search would not find.
fn is_searchable(content: &[u8]) -> io::Result<()> {
    if COMPRESSED.iter().any(|magic| content.starts_with(magic)) {
        return Err(unsearchable("it is compressed inside"));
    }
    Ok(())
}

fn still_holds(what: &str) -> io::Error {
    io::Error::other(format!("still holds {what}"))
}

fn unsearchable(why: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("cannot be searched: {why}"))
}

/// Replaces a file, compressed where it was.
fn write_as(
    path: &Path,
    packed: bool,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    write_atomic_with(path, |file| {
        if !packed {
            return fill(file);
        }
        let mut encoder = GzEncoder::new(BufWriter::new(file), Compression::new(6));
        fill(&mut encoder)?;
        encoder.finish()?.flush()
    })
}

/// Returns true for a device to write to, such as `/dev/null`, and false for a file to create or replace.
///
/// # Errors
/// Fails for a pipe, a folder or anything else that an archive must not replace.
fn is_device(target: &Path) -> Result<bool, Error> {
    match fs::metadata(target) {
        Ok(facts) if facts.file_type().is_char_device() => Ok(true),
        Ok(facts) if !facts.is_file() => {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
            Err(Error::io("write", target)(source))
        }
        _ => Ok(false),
    }
}

/// Packs files below a folder named after the run, and searches the archive for secrets. A device is written to and stays what it
/// is.
fn pack(
    root: &Path,
    run_id: &str,
    files: &[PathBuf],
    target: &Path,
    private: &Private,
) -> Result<FileHash, Error> {
    let failed = || Error::io("write", target);
    // Without a name, so that a kill leaves nothing of it.
    let mut archive = tempfile::tempfile().map_err(failed())?;
    let mut tar = tar::Builder::new(GzEncoder::new(BufWriter::new(&mut archive), Compression::new(6)));
    for name in files {
        let path = root.join(name);
        append(&mut tar, &path, &Path::new(run_id).join(name)).map_err(Error::io("pack", &path))?;
    }
    tar.into_inner().and_then(GzEncoder::finish).and_then(|mut file| file.flush()).map_err(failed())?;
    archive.rewind().map_err(failed())?;
    // A last search over every unpacked byte, file names included.
    let mut whole = MultiGzDecoder::new(BufReader::new(&mut archive));
    if let Some(what) = private.found_in(&mut whole, &[Kind::Secret]).map_err(failed())? {
        let archive = target.display();
        let message = format!("{archive} still holds {what} after scrubbing; no archive was written");
        return Err(Error::new(message).with_exit(Exit::Partial));
    }
    archive.rewind().map_err(failed())?;
    let written = if is_device(target)? {
        File::options().write(true).open(target).and_then(|mut device| copy_hashed(&mut archive, &mut device))
    } else {
        write_atomic_with(target, |file| {
            // It stays readable by its owner only, who decides whom to share it with.
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            copy_hashed(&mut archive, file)
        })
    };
    written.map_err(failed())
}

/// Adds a file to an archive, without owner and group, which have names.
fn append(tar: &mut tar::Builder<impl Write>, path: &Path, name: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let facts = file.metadata()?;
    let mut header = tar::Header::new_gnu();
    header.set_size(facts.len());
    header.set_mode(0o644);
    header.set_entry_type(tar::EntryType::Regular);
    let modified = facts.modified().ok();
    let modified = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    header.set_mtime(modified.map_or(0, |since| since.as_secs()));
    tar.append_data(&mut header, name, &mut file)
}
