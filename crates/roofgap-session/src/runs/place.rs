//! Which run is meant.

use std::path::{Path, PathBuf};

use roofgap_collect::rundir::{self, RunId};

use super::error::RunsError;

/// A run and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlace {
    /// Its name: that of its folder.
    pub id: String,
    /// Its folder.
    pub path: PathBuf,
}

impl RunPlace {
    /// The run in a folder.
    pub fn at(path: &Path) -> Self {
        let full = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let id = full.file_name().map_or_else(
            || full.display().to_string(),
            |name| name.to_string_lossy().into_owned(),
        );
        RunPlace {
            id,
            path: path.to_owned(),
        }
    }
}

/// All runs below `base`, oldest first; none where the folder is missing.
pub fn all(base: &Path) -> Result<Vec<RunPlace>, RunsError> {
    match rundir::list_runs(base) {
        Ok(runs) => {
            let place = |(id, path): (RunId, PathBuf)| RunPlace {
                id: id.as_str().to_owned(),
                path,
            };
            Ok(runs.into_iter().map(place).collect())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(RunsError::io("list the runs in", base)(source)),
    }
}

/// The run that is meant by an id, the beginning of one, `latest`, or a path.
pub fn resolve(base: &Path, wanted: &str) -> Result<RunPlace, RunsError> {
    let runs = all(base)?;
    if let Some(exact) = runs.iter().find(|run| run.id == wanted) {
        return Ok(exact.clone());
    }
    if wanted == "latest" {
        return runs.last().cloned().ok_or_else(|| RunsError::None {
            base: base.to_owned(),
        });
    }
    let path = Path::new(wanted);
    if path.join("session.json").is_file() {
        return Ok(RunPlace::at(path));
    }
    let like: Vec<&RunPlace> = runs
        .iter()
        .filter(|run| !wanted.is_empty() && run.id.starts_with(wanted))
        .collect();
    match like.as_slice() {
        [one] => Ok((*one).clone()),
        [] if runs.is_empty() => Err(RunsError::None {
            base: base.to_owned(),
        }),
        [] => Err(RunsError::Unknown {
            wanted: wanted.to_owned(),
            base: base.to_owned(),
            last: some(runs.iter().rev()),
        }),
        several => Err(RunsError::Ambiguous {
            wanted: wanted.to_owned(),
            count: several.len(),
            some: some(several.iter().rev().copied()),
        }),
    }
}

fn some<'a>(runs: impl Iterator<Item = &'a RunPlace>) -> String {
    let names: Vec<&str> = runs.take(3).map(|run| run.id.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> tempfile::TempDir {
        let base = tempfile::tempdir().unwrap();
        for id in [
            "20260101-000000",
            "20260101-000000-2",
            "20260203-101112",
            "not-a-run",
        ] {
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
    }

    #[test]
    fn what_cannot_be_found_says_what_is_there() {
        let base = base();
        let said = |wanted: &str| resolve(base.path(), wanted).unwrap_err().to_string();
        assert!(said("2026").contains("3 runs: 20260203-101112, 20260101-000000-2"));
        assert!(said("1999").contains("the last ones are 20260203-101112"));
        assert!(said("").contains("the last ones"));
        let empty = base.path().join("nothing");
        for wanted in ["latest", "x"] {
            let error = resolve(&empty, wanted).unwrap_err().to_string();
            assert!(error.contains("roofgap profile"), "{error}");
        }
    }
}
