//! Scrubs a whole run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::run_dir::folder::{RunState, run_state};
use flate2::Compression;
use flate2::write::GzEncoder;
use roofgap_base::file::{Unpacked, is_gzip, write_atomic, write_atomic_with};
use roofgap_trace::native;
use serde::Serialize;

use super::super::artifacts::is_temporary;
use super::super::files::{FoundFile, files, in_progress};
use super::host::HostFacts;
use super::private::Private;
use super::remembered::RememberedSecrets;
use super::{pack, remembered, sqlite, text};
use crate::run_dir::{Layout, RunRef, SessionRecord};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;

/// Schema of the result.
pub const SCHEMA: &str = "roofgap.scrub/1";

/// Settings of scrubbing.
#[derive(Debug, Clone, Default)]
pub struct ScrubProps {
    /// Facts of this machine.
    pub host: HostFacts,
    /// Archive to write with the clean files.
    pub pack: Option<PathBuf>,
    /// Report what would be removed, and change nothing.
    pub dry_run: bool,
}

/// Result of scrubbing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    pub removed: BTreeMap<String, u64>,
    /// Tables removed from the timeline.
    pub dropped_tables: Vec<String>,
    /// Files that may still hold private data. They are in no archive.
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
    pub removed: BTreeMap<String, u64>,
}

/// A file that is unchanged and must not be shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UncleanFile {
    /// Path below the folder of the run.
    pub path: PathBuf,
    /// Reason.
    pub why: String,
    /// True for a kind of file that can never be cleaned, false for an error on this file.
    pub by_kind: bool,
}

impl ScrubOutcome {
    /// Removes private data from the descriptions: the name of a variable comes from a file and may be one.
    fn clean_words(&mut self, private: &Private) {
        let clean = |text: &str| private.clean(text, &mut BTreeMap::new());
        let clean_keys = |counts: &mut BTreeMap<String, u64>| {
            for (what, times) in std::mem::take(counts) {
                *counts.entry(clean(&what).unwrap_or(what)).or_default() += times;
            }
        };
        clean_keys(&mut self.removed);
        for file in &mut self.cleaned {
            clean_keys(&mut file.removed);
        }
        let reasons = self.not_clean.iter_mut().map(|file| &mut file.why);
        for text in reasons.chain(&mut self.dropped_tables) {
            if let Some(clean) = clean(text) {
                *text = clean;
            }
        }
    }

    /// Returns the exit status. A file that can never be cleaned is not a failure.
    pub fn exit(&self) -> Exit {
        if self.not_clean.iter().all(|file| file.by_kind) { Exit::Done } else { Exit::Partial }
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
    pub sha256: Option<String>,
    /// Number of files.
    pub files: usize,
}

/// Treatment of a file.
enum Treatment {
    /// Rewrite as a timeline.
    Timeline,
    /// Clean as text.
    Text,
    /// Search only: a native capture holds nothing but names and times.
    Search,
    /// Leave out.
    LeaveOut(&'static str),
}

/// Removes host names, user names, home paths and secrets from a run.
///
/// Each file is replaced atomically. The records and the timelines, which tell what to look for, come last, so that an
/// interrupted scrub can be repeated.
pub fn scrub(run: &RunRef, props: &ScrubProps) -> Result<ScrubOutcome, Error> {
    let mut folders = std::iter::once(run.path.clone()).chain(Layout::of(&run.path).nodes());
    if folders.any(|folder| run_state(&folder) == RunState::UnderWay) {
        return Err(in_progress(run));
    }
    if let Some(target) = &props.pack {
        pack::is_device(target)?;
    }
    let mut outcome = ScrubOutcome {
        schema: SCHEMA,
        run_id: run.id.clone(),
        dry_run: props.dry_run,
        changed: Vec::new(),
        cleaned: Vec::new(),
        removed: BTreeMap::new(),
        dropped_tables: Vec::new(),
        not_clean: Vec::new(),
        pack: None,
    };
    if !props.dry_run {
        remove_leftovers(&run.path)?;
    }
    let mut found: Vec<FoundFile> = files(&run.path)?;
    found.retain(|file| !is_hidden(&file.path));
    let private = gather(run, &found, props, &mut outcome);
    found.sort_by_key(|file| (order(&file.path), file.path.clone()));
    let mut clean = Vec::new();
    for file in &found {
        if outcome.not_clean.iter().any(|unclean| unclean.path == file.path) {
            continue;
        }
        // The name of a file is in the result and in the archive.
        if let Some(name) = private.clean(&file.name(), &mut BTreeMap::new()) {
            outcome.not_clean.push(UncleanFile {
                path: name.into(),
                why: "its name holds private data".to_owned(),
                by_kind: false,
            });
            continue;
        }
        let (why, by_kind) = match treatment(&file.path) {
            Treatment::LeaveOut(why) => (why.to_owned(), true),
            treatment => match treat(&run.path, &file.path, &treatment, &private, &mut outcome) {
                Ok(()) => {
                    clean.push(file.path.clone());
                    continue;
                }
                Err(error) => (error.to_string(), false),
            },
        };
        outcome.not_clean.push(UncleanFile { path: file.path.clone(), why, by_kind });
    }
    outcome.clean_words(&private);
    if props.dry_run {
        return Ok(outcome);
    }
    let note = serde_json::to_vec_pretty(&outcome).unwrap_or_default();
    let path = run.path.join(NOTE);
    write_atomic(&path, &note).map_err(Error::io("write", &path))?;
    if let Some(target) = &props.pack {
        clean.retain(|file| file != Path::new(NOTE));
        clean.push(PathBuf::from(NOTE));
        clean.sort();
        let hash = pack::pack(&run.path, &run.id, &clean, target, &private)?;
        outcome.pack = Some(Archive {
            path: target.clone(),
            bytes: hash.bytes,
            sha256: Some(hash.sha256),
            files: clean.len(),
        });
    }
    Ok(outcome)
}

/// File in the run that holds the result.
const NOTE: &str = "scrubbed.json";

/// Prefix of the work folders.
const WORK: &str = ".scrub-";

/// Deletes the leftovers of a killed scrub, which hold private data.
fn remove_leftovers(root: &Path) -> Result<(), Error> {
    for file in files(root)? {
        let path = root.join(&file.path);
        let work = path.ancestors().find(|folder| {
            let name = folder.file_name().map(|name| name.to_string_lossy());
            *folder != root && folder.is_dir() && name.is_some_and(|name| name.starts_with(WORK))
        });
        let gone = match work {
            Some(folder) => fs::remove_dir_all(folder),
            None if is_temporary(&file.path) => fs::remove_file(&path),
            None => continue,
        };
        match gone {
            // Its folder was deleted with an earlier file.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Orders the files: those that tell what to look for come last.
fn order(path: &Path) -> u8 {
    let path = in_run(path);
    if is_timeline(&path.to_string_lossy()) { 2 } else { u8::from(path == Path::new("session.json")) }
}

/// Returns the path of a file below the folder of its run, which for a node of a job is `nodes/RUN`.
fn in_run(path: &Path) -> &Path {
    let mut parts = path.components();
    match (parts.next(), parts.next()) {
        (Some(first), Some(_)) if first.as_os_str() == "nodes" => parts.as_path(),
        _ => path,
    }
}

fn is_timeline(name: &str) -> bool {
    name.strip_suffix(".gz").unwrap_or(name).ends_with(".sqlite")
}

/// Returns true for markers, unfinished files and work folders.
fn is_hidden(path: &Path) -> bool {
    is_temporary(path) || path.components().any(|part| part.as_os_str().to_string_lossy().starts_with('.'))
}

/// Collects the private data of the machine, the record and the timelines.
fn gather(run: &RunRef, found: &[FoundFile], props: &ScrubProps, outcome: &mut ScrubOutcome) -> Private {
    let mut private = Private::of(&props.host);
    let folders: Vec<PathBuf> =
        std::iter::once(run.path.clone()).chain(Layout::of(&run.path).nodes()).collect();
    for record in folders.iter().filter_map(|folder| SessionRecord::read(folder).ok()) {
        private.arguments(&record.command_line);
        for command in record.phases.iter().flat_map(|phase| &phase.commands) {
            private.arguments(&command.argv);
            for (name, value) in &command.env {
                if let Some(value) = value {
                    private.variable(name, value);
                }
            }
        }
    }
    for folder in &folders {
        match RememberedSecrets::read(folder) {
            Ok(remembered) => remembered.into_iter().for_each(|remembered| private.remember(remembered)),
            Err(error) => outcome.not_clean.push(UncleanFile {
                path: folder.strip_prefix(&run.path).unwrap_or(Path::new("")).join(remembered::FILE),
                why: format!("not readable, so that secrets of the recording machine may be left: {error}"),
                by_kind: false,
            }),
        }
    }
    // Captures of other machines name their hosts.
    let captures = found.iter().filter(|file| native::is_capture(&file.name()));
    for host in captures.filter_map(|file| native::host(&run.path.join(&file.path)).ok().flatten()) {
        private.word(&host, "the host name");
    }
    for file in found.iter().filter(|file| is_timeline(&file.name())) {
        let collected = with_plain(&run.path.join(&file.path), props.dry_run, |plain, _| {
            Ok(sqlite::collect(plain, &mut private)?)
        });
        if let Err(error) = collected {
            outcome.not_clean.push(UncleanFile {
                path: file.path.clone(),
                why: format!("not readable: {error}"),
                by_kind: false,
            });
        }
    }
    private
}

fn treatment(path: &Path) -> Treatment {
    let name = in_run(path).to_string_lossy();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    if name.starts_with("program/") {
        return Treatment::LeaveOut("written by the program, content unknown");
    }
    if plain == remembered::FILE {
        return Treatment::LeaveOut("hashes, from which a short secret can be guessed");
    }
    if native::is_capture(plain) {
        return Treatment::Search;
    }
    match plain.rsplit('.').next().unwrap_or_default() {
        "sqlite" => Treatment::Timeline,
        "nsys-rep" | "qdstrm" => {
            Treatment::LeaveOut("an nsys report holds the environment of the machine and cannot be changed")
        }
        "ncu-rep" => {
            Treatment::LeaveOut("an ncu report holds paths and modules of the program and cannot be changed")
        }
        "json" | "yaml" | "yml" | "md" | "html" | "csv" | "log" | "txt" | "py" => Treatment::Text,
        "parquet" => {
            Treatment::LeaveOut("compressed inside; `roofgap report` regenerates it from the clean files")
        }
        _ => Treatment::LeaveOut("unknown kind of file"),
    }
}

/// Cleans one file.
fn treat(
    root: &Path,
    name: &Path,
    treatment: &Treatment,
    private: &Private,
    outcome: &mut ScrubOutcome,
) -> Result<(), ScrubError> {
    let path = root.join(name);
    let mut removed = BTreeMap::new();
    let (changed, result) = match treatment {
        Treatment::LeaveOut(_) => return Ok(()),
        Treatment::Search => {
            let had_host = capture(&path, outcome.dry_run, private)?;
            if had_host {
                removed.insert("the host name".to_owned(), 1);
            }
            (had_host, Ok(()))
        }
        Treatment::Text => {
            let clean = text::clean(&path, private, &mut removed)?;
            if clean.changed && !outcome.dry_run {
                clean.write(&path)?;
            }
            (clean.changed, is_clean(&mut clean.bytes.as_slice(), private))
        }
        Treatment::Timeline => {
            let dropped = timeline(&path, outcome.dry_run, private, &mut removed)?;
            outcome.dropped_tables.extend(dropped);
            (true, Ok(()))
        }
    };
    if changed {
        outcome.changed.push(name.to_owned());
    }
    for (what, times) in &removed {
        *outcome.removed.entry(what.clone()).or_default() += times;
    }
    if !removed.is_empty() {
        outcome.cleaned.push(CleanedFile { path: name.to_owned(), removed });
    }
    result
}

/// Removes the host name from a native capture and searches the rest. Returns true if it had one.
fn capture(path: &Path, dry_run: bool, private: &Private) -> Result<bool, ScrubError> {
    let unreadable = |error: roofgap_trace::ReadError| ScrubError::Unreadable { why: error.to_string() };
    with_plain(path, dry_run, |plain, work| {
        if native::host(plain).map_err(unreadable)?.is_none() {
            return check_capture(plain, private).map(|()| false);
        }
        let clean = work.join(".clean.tmp");
        native::write_without_host(plain, &mut File::create(&clean)?).map_err(unreadable)?;
        check_capture(&clean, private)?;
        if !dry_run {
            replace(path, &clean)?;
        }
        Ok(true)
    })
}

/// Searches a native capture, which is compressed inside: its bytes, and its names as other files show them.
fn check_capture(path: &Path, private: &Private) -> Result<(), ScrubError> {
    let unreadable = |error: roofgap_trace::ReadError| ScrubError::Unreadable { why: error.to_string() };
    let mut found = Ok(());
    let whole = roofgap_trace::native::frames(path, &mut |frame| {
        if found.is_ok() {
            found = is_clean(&mut &*frame, private);
        }
    });
    let whole = whole.map_err(unreadable)?;
    found?;
    let mut rest = File::open(path)?;
    rest.seek(SeekFrom::Start(whole))?;
    if BufReader::new(rest).bytes().any(|byte| !matches!(byte, Ok(0))) {
        return Err(ScrubError::Unreadable { why: format!("it is damaged after {whole} bytes") });
    }
    let input = roofgap_trace::read(&[path.to_owned()]).map_err(unreadable)?;
    let mut count = BTreeMap::new();
    for (_, name) in input.trace.names.iter() {
        if private.clean(name, &mut count).is_some() {
            let what = count.into_keys().next().unwrap_or_default();
            return Err(ScrubError::NotClean { what });
        }
    }
    Ok(())
}

fn is_clean(bytes: &mut dyn Read, private: &Private) -> Result<(), ScrubError> {
    match private.found_in(bytes)? {
        None => Ok(()),
        Some(what) => Err(ScrubError::NotClean { what }),
    }
}

fn check_clean(path: &Path, private: &Private) -> Result<(), ScrubError> {
    match pack::still_in(path, private)? {
        None => Ok(()),
        Some(what) => Err(ScrubError::NotClean { what }),
    }
}

/// Error from cleaning one file.
#[derive(Debug, thiserror::Error)]
enum ScrubError {
    #[error("still holds {what}")]
    NotClean { what: String },
    #[error("cannot be searched: {why}")]
    Unreadable { why: String },
    #[error(transparent)]
    Search(#[from] Error),
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Rewrites a timeline in place, or into a temporary folder only. Returns the dropped tables.
fn timeline(
    path: &Path,
    dry_run: bool,
    private: &Private,
    count: &mut BTreeMap<String, u64>,
) -> Result<Vec<String>, ScrubError> {
    with_plain(path, dry_run, |plain, work| {
        let (between, clean) = (work.join(".between.tmp"), work.join(".clean.tmp"));
        let dropped = sqlite::rewrite(plain, &between, &clean, private, count)?;
        // Searched before it replaces the original.
        check_clean(&clean, private)?;
        if !dry_run {
            replace(path, &clean)?;
        }
        Ok(dropped)
    })
}

/// Replaces a file by its clean copy, compressed where the file was.
fn replace(path: &Path, clean: &Path) -> Result<(), ScrubError> {
    let packed = is_gzip(path)?;
    write_atomic_with(path, |file| {
        let mut source = File::open(clean)?;
        if !packed {
            return io::copy(&mut source, file).map(|_| ());
        }
        let mut encoder = GzEncoder::new(BufWriter::new(file), Compression::new(6));
        io::copy(&mut source, &mut encoder)?;
        encoder.finish()?.flush()
    })?;
    Ok(())
}

/// Unpacks a file where it is compressed, and passes it on with a temporary work folder, which is beside it or, for a dry run,
/// outside the run.
fn with_plain<T>(
    path: &Path,
    dry_run: bool,
    work: impl FnOnce(&Path, &Path) -> Result<T, ScrubError>,
) -> Result<T, ScrubError> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(WORK);
    let folder = if dry_run {
        builder.tempdir()?
    } else {
        builder.tempdir_in(path.parent().unwrap_or(Path::new(".")))?
    };
    let mut source = Unpacked::open(path)?;
    if !source.is_packed() {
        return work(path, folder.path());
    }
    let plain = folder.path().join(".plain.tmp");
    let mut target = BufWriter::new(File::create(&plain)?);
    io::copy(&mut source, &mut target)?;
    target.flush()?;
    work(&plain, folder.path())
}
