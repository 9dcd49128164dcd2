//! `runs merge`: runs of several nodes of one job become one run with all of their captures.
//!
//! The run with the lowest rank gives everything but the captures. Records of the others are kept below `nodes`, because they tell what is
//! private in their captures. Files are copied whole under names that depend only on their content, so a merge that is repeated
//! changes nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use roofgap_base::file::{copy_hashed, hash_file, write_atomic_with};
use roofgap_trace::native::{self, CaptureRank};
use serde::Serialize;

use super::artifacts::{files, in_progress};
use super::summary::status;
use crate::run_dir::folder::write_json;
use crate::run_dir::layout::nodes_in;
use crate::run_dir::locate::{self, LocateError, is_run};
use crate::run_dir::{Layout, PhaseName, RunRef, SessionRecord};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;

/// Marks a folder as the result of a merge.
const MARK: &str = "merge.json";

/// Result of a merge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MergeOutcome {
    /// Merged run.
    pub run: PathBuf,
    /// Runs that were merged.
    pub from: Vec<String>,
    /// Captures in the merged run.
    pub captures: usize,
    /// Ranks in the captures, in order.
    pub ranks: Vec<u32>,
    /// Ranks that several hosts recorded, and runs without a capture.
    pub problems: Vec<String>,
}

impl MergeOutcome {
    /// Returns the exit status.
    pub fn exit(&self) -> Exit {
        if self.problems.is_empty() { Exit::Done } else { Exit::Partial }
    }
}

/// A capture of a run.
struct Found {
    path: PathBuf,
    rank: Option<CaptureRank>,
}

/// Merges runs into a folder, which is created, or holds an earlier merge.
///
/// # Errors
/// Fails when a run is in progress, the folder holds something else, or a file cannot be copied.
pub fn merge(runs: &[RunRef], out: &Path) -> Result<MergeOutcome, Error> {
    let taken = fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    if taken && !out.join(MARK).is_file() {
        return Err(Error::new(format!(
            "{} holds files that no merge wrote; name an empty or a new folder",
            out.display()
        )));
    }
    if let Some(run) = runs.iter().find(|run| is_under_way(run)) {
        return Err(in_progress(run));
    }
    // As private as a run.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(out).map_err(Error::io("create", out))?;
    assemble(runs, out, Captures::Copied)
}

/// Makes the run of a job of the runs of its nodes, which lie in its folder. Their captures stay where they are.
///
/// # Errors
/// Fails when no node has a run, or a file cannot be copied.
pub fn join_nodes(job: &Path) -> Result<MergeOutcome, Error> {
    let base = nodes_in(job);
    let runs = locate::all(&base)?;
    // A session that was ended in its first moments has no record.
    let usable: Vec<RunRef> = runs.iter().filter(|run| is_run(&run.path)).cloned().collect();
    if usable.is_empty() {
        return Err(LocateError::Empty { base }.into());
    }
    let mut outcome = assemble(&usable, job, Captures::InPlace)?;
    let under_way = usable.iter().filter(|run| is_under_way(run));
    outcome.problems.extend(under_way.map(|run| {
        format!(
            "{}: the session is in progress, or its node died; what it has recorded so far counts",
            run.path.display()
        )
    }));
    Ok(outcome)
}

fn is_under_way(run: &RunRef) -> bool {
    let record = SessionRecord::read(&run.path).ok();
    status(&run.path, record.as_ref()) == "under_way"
}

/// Place of the captures of a merged run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Captures {
    /// In its own folder.
    Copied,
    /// In the runs that it is made of.
    InPlace,
}

fn assemble(runs: &[RunRef], out: &Path, captures_are: Captures) -> Result<MergeOutcome, Error> {
    let mut outcome = MergeOutcome { run: out.to_owned(), ..MergeOutcome::default() };
    let mut found: Vec<(&RunRef, Vec<Found>)> = Vec::new();
    for run in runs {
        let captures = Layout::of(&run.path).native_captures();
        if captures.is_empty() {
            outcome.problems.push(format!(
                "{}: no capture of the native collector; give nsys exports of several nodes to `roofgap analyze` together",
                run.path.display()
            ));
        }
        let captures = captures.into_iter().map(|path| Found {
            // A damaged capture is copied too; the reports name it.
            rank: native::rank(&path).ok().flatten(),
            path,
        });
        found.push((run, captures.collect()));
    }
    let lowest = |captures: &[Found]| {
        let ranks = captures.iter().filter_map(|found| Some(found.rank.as_ref()?.rank));
        ranks.min().unwrap_or(u32::MAX)
    };
    // The order of the arguments must not matter.
    found.sort_by_key(|(run, captures)| (lowest(captures), run.path.clone()));
    found.dedup_by(|later, first| later.0.path == first.0.path);
    let Some((base, _)) = found.first() else {
        return Ok(outcome);
    };
    copy_base(base, out)?;
    let mut recorded: BTreeMap<u32, Vec<Recorded>> = BTreeMap::new();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (run, captures) in &found {
        outcome.from.push(run.id.clone());
        if captures_are == Captures::Copied && run.path != base.path {
            copy_records(run, out)?;
        }
        for Found { path, rank } in captures {
            let mut is_again = false;
            if let Some(CaptureRank { rank, host }) = rank {
                let this = Recorded { run: run.id.clone(), host: host.clone() };
                let known = recorded.entry(*rank).or_default();
                is_again = known.iter().any(|other| other.host == this.host && other.run != this.run);
                if !known.contains(&this) {
                    known.push(this);
                }
            }
            match captures_are {
                Captures::InPlace => outcome.captures += 1,
                // In one folder, captures of one rank and host are processes of one start of the program.
                Captures::Copied if is_again => {}
                Captures::Copied => add_capture(path, &Layout::of(out).native(), &mut names)?,
            }
        }
    }
    outcome.captures += names.len();
    for (rank, recorded) in recorded {
        outcome.ranks.push(rank);
        outcome.problems.extend(recorded_twice(rank, &recorded));
    }
    write_record(base, out, &outcome)?;
    Ok(outcome)
}

/// The run and the host that recorded a rank.
#[derive(PartialEq, Eq)]
struct Recorded {
    run: String,
    host: Option<String>,
}

/// Names the runs or hosts of a rank that several recorded.
fn recorded_twice(rank: u32, recorded: &[Recorded]) -> Option<String> {
    let [first, others @ ..] = recorded else {
        return None;
    };
    others.first()?;
    if others.iter().all(|other| other.host == first.host) {
        let runs: Vec<&str> = recorded.iter().map(|known| known.run.as_str()).collect();
        let runs = runs.join(" and ");
        return Some(format!("rank {rank} was recorded by {runs}; {} counts", first.run));
    }
    let hosts: Vec<&str> = recorded.iter().map(|known| known.host.as_deref().unwrap_or(&known.run)).collect();
    Some(format!("rank {rank} was recorded on {}", hosts.join(" and on ")))
}

/// Copies everything but captures, reports that depend on them, trials, which the merged run has of its own, and hidden files.
fn copy_base(base: &RunRef, out: &Path) -> Result<(), Error> {
    for file in files(&base.path)? {
        let name = file.name();
        let hidden =
            Path::new(&name).components().any(|part| part.as_os_str().to_string_lossy().starts_with('.'));
        if hidden || native::is_capture(&name) || ["session.json", "try.json"].contains(&name.as_ref()) {
            continue;
        }
        copy(&base.path.join(&file.path), &out.join(&file.path))?;
    }
    Ok(())
}

/// Copies the records of a run, and of its nodes, which scrubbing reads.
fn copy_records(run: &RunRef, out: &Path) -> Result<(), Error> {
    for folder in std::iter::once(run.path.clone()).chain(Layout::of(&run.path).nodes()) {
        let layout = Layout::of(&folder);
        let Ok(hash) = hash_file(&layout.session()) else {
            continue;
        };
        // Not the id of a run: nodes may have the same, and a folder without captures is no run of a job.
        let to = nodes_in(out).join(format!("record-{}", hash.sha256.get(..12).unwrap_or_default()));
        for path in [layout.session(), layout.config()] {
            if let Some(name) = path.file_name().filter(|_| path.is_file()) {
                copy(&path, &to.join(name))?;
            }
        }
    }
    Ok(())
}

/// Copies a capture under its own name, or with its hash in front where another capture has that name. A copy that is there already
/// counts once.
fn add_capture(path: &Path, folder: &Path, names: &mut BTreeMap<String, String>) -> Result<(), Error> {
    let hash = hash_file(path).map_err(Error::io("read", path))?.sha256;
    if names.values().any(|known| *known == hash) {
        return Ok(());
    }
    let own = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let short = hash.get(..8).unwrap_or_default();
    let name = if names.contains_key(&own) { format!("{short}-{own}") } else { own };
    copy(path, &folder.join(&name))?;
    if let Some(older) = native::find_older(path) {
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let mut to = native::older_segment(&folder.join(plain));
        if older.extension().is_some_and(|extension| extension == "gz") {
            to = to.with_added_extension("gz");
        }
        copy(&older, &to)?;
    }
    names.insert(name, hash);
    Ok(())
}

/// Copies a file whole, unless the same is there.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    if let (Ok(own), Ok(there)) = (hash_file(from), hash_file(to))
        && own == there
    {
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
    }
    let mut source = File::open(from).map_err(Error::io("read", from))?;
    write_atomic_with(to, |file| copy_hashed(&mut source, file)).map_err(Error::io("write", to))?;
    Ok(())
}

/// Writes the record of the base under the id of the folder, and the mark of the merge.
fn write_record(base: &RunRef, out: &Path, outcome: &MergeOutcome) -> Result<(), Error> {
    let mut record = SessionRecord::read(&base.path)?;
    record.run_id = RunRef::at(out).id;
    let note = format!("merged from {}", outcome.from.join(", "));
    for phase in &mut record.phases {
        if phase.name == PhaseName::Timeline {
            phase.tool = Some("native".to_owned());
            phase.notes.retain(|known| *known != note);
            phase.notes.push(note.clone());
        }
    }
    write_json(&out.join(MARK), outcome)?;
    write_json(&out.join("session.json"), &record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_segment_goes_with_its_capture() {
        for (capture, older) in
            [("1.rgcap", "1.rgcap.old"), ("1.rgcap.gz", "1.rgcap.old.gz"), ("1.rgcap.gz", "1.rgcap.old")]
        {
            let base = tempfile::tempdir().unwrap();
            fs::write(base.path().join(capture), "newer").unwrap();
            fs::write(base.path().join(older), "older").unwrap();
            let folder = base.path().join("merged");
            // Another capture has that name.
            let mut names = BTreeMap::from([(capture.to_owned(), "another".to_owned())]);
            add_capture(&base.path().join(capture), &folder, &mut names).unwrap();
            let name = names.keys().find(|name| *name != capture).unwrap();
            let copied = native::find_older(&folder.join(name)).unwrap();
            assert_eq!(fs::read_to_string(copied).unwrap(), "older", "{name}");
        }
    }
}
