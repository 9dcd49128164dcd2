//! `runs merge`: runs of several nodes of one job become one run with all of their captures.
//!
//! They lie below `nodes` in its folder, as those of a job with a shared id do. The run with the lowest rank gives everything but the
//! captures. A merge that is repeated changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use roofgap_base::file::{copy_hashed, hash_file, write_atomic_with};
use roofgap_trace::native::{self, CaptureRank};
use serde::Serialize;

use super::artifacts::{FoundFile, files, in_progress};
use super::summary::status;
use crate::run_dir::folder::{RunId, write_json};
use crate::run_dir::layout::nodes_in;
use crate::run_dir::locate::{LocateError, is_run};
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
    let nodes = runs.iter().flat_map(|run| {
        let mut nodes = Layout::of(&run.path).node_runs();
        // A session that was ended in its first moments has no record.
        nodes.retain(|node| is_run(node));
        if nodes.is_empty() { vec![run.path.clone()] } else { nodes }
    });
    // The order of the arguments must not matter.
    for node in nodes.collect::<BTreeSet<PathBuf>>() {
        copy_node(&node, out)?;
    }
    join_nodes(out)
}

/// Copies a run to the nodes of a job, under its id, or the next one that is free.
fn copy_node(run: &Path, job: &Path) -> Result<(), Error> {
    let named = [RunRef::at(run).id, SessionRecord::read(run)?.run_id];
    let id = named.iter().find_map(|id| RunId::parse(id));
    let id = id.ok_or_else(|| Error::new(format!("{} is not the run of one node", run.display())))?;
    let session = Layout::of(run).session();
    let is_free = |to: &PathBuf| !to.exists() || is_same(&session, &Layout::of(to).session());
    let Some(to) = id.and_next().map(|id| nodes_in(job).join(id)).find(is_free) else {
        return Ok(());
    };
    // First the record, by which a copy is known again.
    copy(&session, &Layout::of(&to).session())?;
    for file in files(run)?.iter().filter(|file| !is_hidden(file)) {
        copy(&run.join(&file.path), &to.join(&file.path))?;
    }
    Ok(())
}

/// Makes the run of a job of the runs of its nodes, which lie in its folder. Their captures stay where they are.
///
/// # Errors
/// Fails when no node has a run, or a file cannot be copied.
pub fn join_nodes(job: &Path) -> Result<MergeOutcome, Error> {
    let mut outcome = MergeOutcome { run: job.to_owned(), ..MergeOutcome::default() };
    let mut nodes: Vec<(u32, RunRef, Vec<Option<CaptureRank>>)> = Vec::new();
    for run in Layout::of(job).node_runs().iter().filter(|run| is_run(run)).map(|run| RunRef::at(run)) {
        let captures = Layout::of(&run.path).native_captures();
        if captures.is_empty() {
            outcome.problems.push(format!(
                "{}: no capture of the native collector; give nsys exports of several nodes to `roofgap analyze` together",
                run.path.display()
            ));
        }
        // The reports name a damaged capture.
        let ranks: Vec<_> = captures.iter().map(|path| native::rank(path).ok().flatten()).collect();
        let lowest = ranks.iter().flatten().map(|known| known.rank).min().unwrap_or(u32::MAX);
        nodes.push((lowest, run, ranks));
    }
    nodes.sort_by_key(|(lowest, ..)| *lowest);
    let Some((_, base, _)) = nodes.first() else {
        return Err(LocateError::Empty { base: nodes_in(job) }.into());
    };
    copy_base(base, job)?;
    let mut recorded: BTreeMap<u32, Vec<Recorded>> = BTreeMap::new();
    for (_, run, ranks) in &nodes {
        outcome.from.push(run.id.clone());
        outcome.captures += ranks.len();
        for CaptureRank { rank, host } in ranks.iter().flatten() {
            let source = Recorded { run: run.id.clone(), host: host.clone() };
            let known = recorded.entry(*rank).or_default();
            if !known.contains(&source) {
                known.push(source);
            }
        }
    }
    for (rank, recorded) in recorded {
        outcome.ranks.push(rank);
        outcome.problems.extend(recorded_twice(rank, &recorded));
    }
    write_record(base, job, &outcome)?;
    let under_way = nodes.iter().filter(|(_, run, _)| is_under_way(run));
    outcome.problems.extend(under_way.map(|(_, run, _)| {
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

fn is_hidden(file: &FoundFile) -> bool {
    file.path.iter().any(|part| part.as_encoded_bytes().starts_with(b"."))
}

/// Copies everything but captures, reports that depend on them, trials, which the merged run has of its own, and hidden files.
fn copy_base(base: &RunRef, job: &Path) -> Result<(), Error> {
    for file in files(&base.path)? {
        let name = file.name();
        if !(is_hidden(&file) || native::is_capture(&name) || ["session.json", "try.json"].contains(&&*name))
        {
            copy(&base.path.join(&file.path), &job.join(&file.path))?;
        }
    }
    Ok(())
}

fn is_same(file: &Path, other: &Path) -> bool {
    matches!((hash_file(file), hash_file(other)), (Ok(file), Ok(other)) if file == other)
}

/// Copies a file whole, unless the same is there.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    if is_same(from, to) {
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
fn write_record(base: &RunRef, job: &Path, outcome: &MergeOutcome) -> Result<(), Error> {
    let mut record = SessionRecord::read(&base.path)?;
    record.run_id = RunRef::at(job).id;
    let note = format!("merged from {}", outcome.from.join(", "));
    for phase in &mut record.phases {
        if phase.name == PhaseName::Timeline {
            phase.tool = Some("native".to_owned());
            phase.notes.retain(|known| *known != note);
            phase.notes.push(note.clone());
        }
    }
    write_json(&job.join(MARK), outcome)?;
    write_json(&job.join("session.json"), &record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_with_the_same_id_are_kept_apart_and_copied_once() {
        let base = tempfile::tempdir().unwrap();
        let run = |host: &str| {
            let path = base.path().join(host).join("20260101-000000-2");
            fs::create_dir_all(path.join("native")).unwrap();
            let mut record: serde_json::Value = serde_json::from_str(
                r#"{"schema": "roofgap.session/1", "run_id": "20260101-000000-2", "roofgap_version": "0", "command_line": [],
                    "repeat_command": "", "mode": "deep", "workload": "command", "started": "", "state": "done", "missing": [],
                    "phases": []}"#,
            )
            .unwrap();
            record["repeat_command"] = host.into();
            fs::write(path.join("session.json"), record.to_string()).unwrap();
            for name in ["1.rgcap", "1.rgcap.old", ".hidden"] {
                fs::write(path.join("native").join(name), host).unwrap();
            }
            RunRef::at(&path)
        };
        let runs = [run("b"), run("a")];
        let out = base.path().join("merged");
        for _ in 0..2 {
            merge(&runs, &out).unwrap();
            let nodes = Layout::of(&out).node_runs();
            let names: Vec<_> = nodes.iter().map(|node| RunRef::at(node).id).collect();
            assert_eq!(names, ["20260101-000000-2", "20260101-000000-3"]);
            for (node, host) in nodes.iter().zip(["a", "b"]) {
                assert_eq!(fs::read_to_string(node.join("native/1.rgcap.old")).unwrap(), host);
                assert!(!node.join("native/.hidden").exists());
            }
        }
        // A node without a record is none.
        fs::create_dir(nodes_in(&out).join("20260101-000000-4")).unwrap();
        let again = merge(&[RunRef::at(&out)], &base.path().join("again")).unwrap();
        assert_eq!(again.from, ["20260101-000000-2", "20260101-000000-3"]);
    }
}
