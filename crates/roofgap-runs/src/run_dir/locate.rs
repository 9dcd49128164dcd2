//! Finds runs by id, prefix, path or `latest`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use roofgap_base::error::Error;

use crate::run_dir::folder::list_runs;

use super::layout::{Layout, nodes_in};

/// Folder of the runs when none is named.
pub const DEFAULT_BASE: &str = "tmp/stage2";

/// Default folder of earlier versions. Its runs are listed with those of the default one.
const OLD_BASE: &str = "roofgap-runs";

/// Error from finding a run.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// The folder of the runs is not readable.
    #[error("cannot list the runs in {}: {source}", base.display())]
    List { base: PathBuf, source: std::io::Error },
    /// There are no runs.
    #[error("no runs in {}; `roofgap profile` creates one, artifacts.stage2_dir sets the folder", base.display())]
    Empty { base: PathBuf },
    /// No run matches.
    #[error("no run {wanted:?} in {}; the latest are {latest}", base.display())]
    Unknown { wanted: String, base: PathBuf, latest: String },
    /// A folder is not the directory of a run.
    #[error("{} is a folder but not a run: it has no session.json", path.display())]
    NotRun { path: PathBuf },
    /// Several runs match.
    #[error("{wanted:?} matches {count} runs: {some}; write more of the id")]
    Ambiguous { wanted: String, count: usize, some: String },
}

impl From<LocateError> for Error {
    fn from(error: LocateError) -> Self {
        Self::of(error)
    }
}

/// Reference to a run: id and folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRef {
    /// Id: the name of the folder.
    pub id: String,
    /// Folder.
    pub path: PathBuf,
}

impl RunRef {
    /// Refers to the run in a folder.
    pub fn at(path: &Path) -> Self {
        let full = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let id = full
            .file_name()
            .map_or_else(|| full.display().to_string(), |name| name.to_string_lossy().into_owned());
        Self { id, path: path.to_owned() }
    }
}

/// Lists all runs below `base`, oldest first, without links; none where the folder is missing.
pub fn all(base: &Path) -> Result<Vec<RunRef>, LocateError> {
    all_in(base, (base == Path::new(DEFAULT_BASE)).then_some(Path::new(OLD_BASE)))
}

fn all_in(base: &Path, old: Option<&Path>) -> Result<Vec<RunRef>, LocateError> {
    let mut runs = Vec::new();
    for folder in old.into_iter().chain([base]) {
        match list_runs(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            own => runs.extend(own.map_err(|source| LocateError::List { base: folder.to_owned(), source })?),
        }
    }
    runs.sort_by(|(a, _), (b, _)| a.parts().cmp(&b.parts()));
    // A link leads out of the folder of the runs.
    let own = runs.into_iter().filter(|(_, path)| !path.is_symlink());
    Ok(own.map(|(id, path)| RunRef { id: id.to_string(), path }).collect())
}

/// Returns true for the directory of a run.
pub fn is_run(path: &Path) -> bool {
    path.join("session.json").is_file()
}

/// Returns true for the folder of a job of several nodes, also before its run was written.
pub fn is_job(path: &Path) -> bool {
    let job = Layout::of(path);
    // Older merges kept only the records of the nodes there.
    nodes_in(path).is_dir() && (job.nodes().is_empty() || !job.node_runs().is_empty())
}

/// Finds a run by id, prefix of an id, `latest` or path. A job is found by the id that its sessions share.
pub fn resolve(base: &Path, wanted: &str) -> Result<RunRef, LocateError> {
    let runs = all(base)?;
    if let Some(exact) = runs.iter().find(|run| run.id == wanted) {
        return Ok(exact.clone());
    }
    if wanted == "latest" {
        return runs.last().cloned().ok_or_else(|| LocateError::Empty { base: base.to_owned() });
    }
    let path = Path::new(wanted);
    if is_run(path) || is_job(path) {
        return Ok(RunRef::at(path));
    }
    let job = base.join(wanted);
    if !wanted.is_empty() && is_job(&job) {
        return Ok(RunRef::at(&job));
    }
    let like: Vec<&RunRef> =
        runs.iter().filter(|run| !wanted.is_empty() && run.id.starts_with(wanted)).collect();
    match like.as_slice() {
        [one] => Ok((*one).clone()),
        [] if path.is_dir() => Err(LocateError::NotRun { path: path.to_owned() }),
        [] if runs.is_empty() => Err(LocateError::Empty { base: base.to_owned() }),
        [] => Err(LocateError::Unknown {
            wanted: wanted.to_owned(),
            base: base.to_owned(),
            latest: some(runs.iter().rev()),
        }),
        several => Err(LocateError::Ambiguous {
            wanted: wanted.to_owned(),
            count: several.len(),
            some: some(several.iter().rev().copied()),
        }),
    }
}

fn some<'a>(runs: impl Iterator<Item = &'a RunRef>) -> String {
    let names: Vec<&str> = runs.take(3).map(|run| run.id.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> tempfile::TempDir {
        let base = tempfile::tempdir().unwrap();
        for id in ["20260101-000000", "20260101-000000-2", "20260203-101112", "not-a-run"] {
            std::fs::create_dir(base.path().join(id)).unwrap();
            std::fs::write(base.path().join(id).join("session.json"), "{}").unwrap();
        }
        base
    }

    #[test]
    fn a_run_is_found_by_id_prefix_path_and_as_the_latest() {
        let base = base();
        let found = |wanted: &str| resolve(base.path(), wanted).unwrap().id;
        assert_eq!(found("20260203-101112"), "20260203-101112");
        assert_eq!(found("202602"), "20260203-101112");
        assert_eq!(found("latest"), "20260203-101112");
        // An id that is the beginning of another is still an id.
        assert_eq!(found("20260101-000000"), "20260101-000000");
        let path = base.path().join("not-a-run");
        assert_eq!(found(path.to_str().unwrap()), "not-a-run");
        assert!(matches!(resolve(base.path(), "not-a-run"), Err(LocateError::Unknown { .. })));
        std::fs::remove_file(path.join("session.json")).unwrap();
        assert!(matches!(resolve(base.path(), path.to_str().unwrap()), Err(LocateError::NotRun { .. })));
        std::fs::create_dir_all(base.path().join("job-7/nodes")).unwrap();
        assert_eq!(found("job-7"), "job-7");
    }

    #[test]
    fn runs_in_the_old_default_folder_are_listed_by_their_time() {
        let (base, old) = (base(), tempfile::tempdir().unwrap());
        std::fs::create_dir(old.path().join("20260105-000000")).unwrap();
        let listed = all_in(base.path(), Some(old.path())).unwrap();
        let ids: Vec<&str> = listed.iter().map(|run| run.id.as_str()).collect();
        assert_eq!(ids, ["20260101-000000", "20260101-000000-2", "20260105-000000", "20260203-101112"]);
        assert_eq!(all_in(&base.path().join("none"), Some(old.path())).unwrap().len(), 1);
    }

    #[test]
    fn an_unknown_run_names_the_known_ones() {
        let base = base();
        let error = |wanted: &str| resolve(base.path(), wanted).unwrap_err();
        let LocateError::Ambiguous { count, some, .. } = error("2026") else {
            panic!("not ambiguous");
        };
        assert_eq!(count, 3);
        assert_eq!(some, "20260203-101112, 20260101-000000-2, 20260101-000000");
        for wanted in ["1999", ""] {
            let error = error(wanted);
            assert!(
                matches!(&error, LocateError::Unknown { latest, .. } if latest.starts_with("20260203-101112")),
                "{error}"
            );
        }
        let empty = base.path().join("nothing");
        for wanted in ["latest", "x"] {
            let error = resolve(&empty, wanted).unwrap_err();
            assert!(matches!(error, LocateError::Empty { .. }), "{error}");
        }
    }
}
