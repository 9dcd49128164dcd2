//! A whole run made fit to be shared.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use roofgap_collect::file::write_atomic;
use roofgap_collect::rundir::{RunState, run_state};
use serde::Serialize;

use super::super::artifacts::{Found, files, is_temporary, sha256};
use super::super::error::RunsError;
use super::super::place::RunPlace;
use super::private::Private;
use super::surroundings::Surroundings;
use super::{pack, sqlite, text};
use crate::exit::Exit;
use crate::record::SessionRecord;

/// The schema of the outcome.
pub const SCHEMA: &str = "roofgap.scrub/1";

/// What scrubbing is told.
#[derive(Debug, Clone, Default)]
pub struct ScrubProps {
    /// What may have leaked into the files.
    pub surroundings: Surroundings,
    /// Where to write one archive of what is clean.
    pub pack: Option<PathBuf>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScrubOutcome {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// The run.
    pub run_id: String,
    /// Files that were changed.
    pub changed: Vec<PathBuf>,
    /// What was taken out of texts, and how often. Names of variables, never their values.
    pub removed: BTreeMap<String, u64>,
    /// Tables of the timeline that were left out.
    pub dropped_tables: Vec<String>,
    /// Files that still may hold what should not be shared, and why. They are in no archive.
    pub not_clean: Vec<Kept>,
    /// The archive.
    pub pack: Option<Packed>,
}

/// A file that stays as it is and is not shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Path below the run's folder.
    pub path: PathBuf,
    /// Why.
    pub why: String,
    /// Whether files of its kind can never be cleaned; otherwise something went wrong with this one.
    pub by_kind: bool,
}

impl ScrubOutcome {
    /// How to end: a report of nsys that cannot be cleaned is no failure, a timeline that should have been is.
    pub fn exit(&self) -> Exit {
        if self.not_clean.iter().all(|kept| kept.by_kind) {
            Exit::Done
        } else {
            Exit::Partial
        }
    }
}

/// The archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Packed {
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its hash.
    pub sha256: Option<String>,
    /// How many files are in it.
    pub files: usize,
}

/// How a file is dealt with.
enum Treatment {
    /// Written anew as a timeline.
    Timeline,
    /// Cleaned as text.
    Text,
    /// Searched and not changed: a capture of the native collector holds names and times only.
    Search,
    /// Left out.
    LeaveOut(&'static str),
}

/// Takes out of a run what belongs to the machine and its people.
///
/// Each file is replaced whole, and what tells what to look for (the record, then the timelines) comes last, so that a run whose
/// scrubbing was cut short can be scrubbed again.
pub fn scrub(run: &RunPlace, props: &ScrubProps) -> Result<ScrubOutcome, RunsError> {
    if run_state(&run.path) == RunState::UnderWay {
        return Err(RunsError::UnderWay { run: run.id.clone() });
    }
    let mut outcome = ScrubOutcome {
        schema: SCHEMA,
        run_id: run.id.clone(),
        changed: Vec::new(),
        removed: BTreeMap::new(),
        dropped_tables: Vec::new(),
        not_clean: Vec::new(),
        pack: None,
    };
    sweep(&run.path)?;
    let mut found: Vec<Found> = files(&run.path)?;
    found.retain(|file| !is_hidden(&file.path));
    let private = gather(run, &found, props, &mut outcome);
    found.sort_by_key(|file| (last(&file.path), file.path.clone()));
    let mut clean = Vec::new();
    for file in &found {
        if outcome.not_clean.iter().any(|kept| kept.path == file.path) {
            continue;
        }
        let (why, by_kind) = match treatment(&file.path) {
            Treatment::LeaveOut(why) => (why.to_owned(), true),
            treatment => match treat(&run.path, &file.path, &treatment, &private, &mut outcome) {
                Ok(()) => {
                    clean.push(file.path.clone());
                    continue;
                }
                Err(why) => (why, false),
            },
        };
        outcome.not_clean.push(Kept {
            path: file.path.clone(),
            why,
            by_kind,
        });
    }
    let note = serde_json::to_vec_pretty(&outcome).unwrap_or_default();
    let path = run.path.join(NOTE);
    write_atomic(&path, &note).map_err(RunsError::io("write", &path))?;
    if let Some(target) = &props.pack {
        clean.retain(|file| file != Path::new(NOTE));
        clean.push(PathBuf::from(NOTE));
        clean.sort();
        let bytes = pack::pack(&run.path, &run.id, &clean, target, &private)?;
        outcome.pack = Some(Packed {
            path: target.clone(),
            bytes,
            sha256: sha256(target).ok(),
            files: clean.len(),
        });
    }
    Ok(outcome)
}

/// What was done, in the run itself.
const NOTE: &str = "scrubbed.json";

/// The beginning of the names of folders to work in.
const WORK: &str = ".scrub-";

/// Takes away what a scrubbing that was killed left behind: it is as private as what it was made from.
fn sweep(root: &Path) -> Result<(), RunsError> {
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
            // Its folder went with an earlier file of it.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(RunsError::io("remove", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What tells what to look for is changed last.
fn last(path: &Path) -> u8 {
    let name = path.to_string_lossy();
    if is_timeline(&name) {
        2
    } else {
        u8::from(name == "session.json")
    }
}

fn is_timeline(name: &str) -> bool {
    name.strip_suffix(".gz").unwrap_or(name).ends_with(".sqlite")
}

/// Markers, files half written, and folders of work.
fn is_hidden(path: &Path) -> bool {
    is_temporary(path)
        || path
            .components()
            .any(|part| part.as_os_str().to_string_lossy().starts_with('.'))
}

/// Everything to look for: in the surroundings, in the record of the session, in the timelines.
fn gather(run: &RunPlace, found: &[Found], props: &ScrubProps, outcome: &mut ScrubOutcome) -> Private {
    let mut private = Private::of(&props.surroundings);
    if let Ok(record) = SessionRecord::read(&run.path) {
        for command in record.phases.iter().flat_map(|phase| &phase.commands) {
            for (name, value) in &command.env {
                if let Some(value) = value {
                    private.variable(name, value);
                }
            }
        }
    }
    for file in found.iter().filter(|file| is_timeline(&file.name())) {
        let looked = with_plain(&run.path.join(&file.path), |plain, _| {
            sqlite::look(plain, &mut private).map_err(|error| error.to_string())
        });
        if let Err(why) = looked {
            outcome.not_clean.push(Kept {
                path: file.path.clone(),
                why: format!("it cannot be read: {why}"),
                by_kind: false,
            });
        }
    }
    private
}

fn treatment(path: &Path) -> Treatment {
    let name = path.to_string_lossy();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    if name.starts_with("program/") {
        return Treatment::LeaveOut("written by the program itself: what is in it is not known");
    }
    match plain.rsplit('.').next().unwrap_or_default() {
        "sqlite" => Treatment::Timeline,
        "nsys-rep" | "qdstrm" => {
            Treatment::LeaveOut("a report of nsys holds the environment of the machine and cannot be changed")
        }
        "ncu-rep" => Treatment::LeaveOut(
            "a report of ncu holds paths and modules of the program and cannot be changed",
        ),
        "json" | "yaml" | "yml" | "md" | "html" | "csv" | "log" | "txt" | "py" => Treatment::Text,
        "rgcap" => Treatment::Search,
        "parquet" => {
            Treatment::LeaveOut("compressed inside; `roofgap report` makes it again from what is clean")
        }
        _ => Treatment::LeaveOut("of a kind that is not known"),
    }
}

/// Deals with one file; an error says why it is not clean.
fn treat(
    root: &Path,
    name: &Path,
    treatment: &Treatment,
    private: &Private,
    outcome: &mut ScrubOutcome,
) -> Result<(), String> {
    let path = root.join(name);
    match treatment {
        Treatment::LeaveOut(_) | Treatment::Search => {}
        Treatment::Text => {
            if text::clean(&path, private, &mut outcome.removed).map_err(|error| error.to_string())? {
                outcome.changed.push(name.to_owned());
            }
        }
        Treatment::Timeline => {
            let dropped = timeline(&path, private, &mut outcome.removed)?;
            outcome.dropped_tables.extend(dropped);
            outcome.changed.push(name.to_owned());
        }
    }
    match pack::still_in(&path, private) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => Err(format!("it still holds {what}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Writes a timeline anew in its place.
fn timeline(
    path: &Path,
    private: &Private,
    count: &mut BTreeMap<String, u64>,
) -> Result<Vec<String>, String> {
    with_plain(path, |plain, work| {
        let (between, clean) = (work.join(".between.tmp"), work.join(".clean.tmp"));
        let rewritten =
            sqlite::rewrite(plain, &between, &clean, private, count).map_err(|error| error.to_string())?;
        let replace = || -> io::Result<()> {
            let ready = if text::is_packed(path)? {
                let packed = work.join(".packed.tmp");
                let mut encoder = GzEncoder::new(BufWriter::new(File::create(&packed)?), Compression::new(6));
                io::copy(&mut File::open(&clean)?, &mut encoder)?;
                encoder.finish()?.flush()?;
                packed
            } else {
                clean.clone()
            };
            File::open(&ready)?.sync_all()?;
            fs::rename(&ready, path)
        };
        // Searched before it replaces anything.
        match pack::still_in(&clean, private) {
            Ok(None) => {}
            Ok(Some(what)) => return Err(format!("written anew it still holds {what}")),
            Err(error) => return Err(error.to_string()),
        }
        replace().map_err(|error| error.to_string())?;
        Ok(rewritten.dropped)
    })
}

/// Gives a file that may be compressed as a plain one, and a folder to work in beside it, which goes afterwards.
fn with_plain<T>(path: &Path, work: impl FnOnce(&Path, &Path) -> Result<T, String>) -> Result<T, String> {
    let said = |error: io::Error| error.to_string();
    let folder = tempfile::Builder::new()
        .prefix(WORK)
        .tempdir_in(path.parent().unwrap_or(Path::new(".")))
        .map_err(said)?;
    if !text::is_packed(path).map_err(said)? {
        return work(path, folder.path());
    }
    let plain = folder.path().join(".plain.tmp");
    let mut source = MultiGzDecoder::new(BufReader::new(File::open(path).map_err(said)?));
    let mut target = BufWriter::new(File::create(&plain).map_err(said)?);
    io::copy(&mut source, &mut target)
        .and_then(|_| target.flush())
        .map_err(said)?;
    work(&plain, folder.path())
}
