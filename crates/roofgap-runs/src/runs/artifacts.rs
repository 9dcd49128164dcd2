//! The files below the folder of a run, with their purpose and hash.

use super::summary::status;
use crate::run_dir::phases::file_rule;
use crate::run_dir::{RunRef, SessionRecord};
use roofgap_base::error::Error;
use roofgap_base::file::hash_file;
use serde::Serialize;
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Schema of the list.
pub const SCHEMA: &str = "roofgap.artifacts/1";

/// The files of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArtifactList {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// Id of the run.
    pub run_id: String,
    /// Folder.
    pub path: PathBuf,
    /// State of the run: `done`, `partial`, `failed`, `interrupted`, `under_way`, `abandoned` or `unreadable`.
    pub state: &'static str,
    /// Files by path.
    pub artifacts: Vec<Artifact>,
    /// Disk usage, bytes. A file with two names counts once.
    pub bytes: u64,
}

/// A file of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Artifact {
    /// Path below the folder of the run.
    pub path: String,
    /// Purpose.
    pub kind: &'static str,
    /// Size, bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal; `None` for a file that disappeared meanwhile.
    pub sha256: Option<String>,
}

/// Lists the files of a run with their hashes.
pub fn artifacts(run: &RunRef) -> Result<ArtifactList, Error> {
    let mut list = list_artifacts(run)?;
    for artifact in &mut list.artifacts {
        artifact.sha256 = hash_file(&run.path.join(&artifact.path)).ok().map(|hash| hash.sha256);
    }
    Ok(list)
}

/// Lists the files of a run without their hashes, which take long.
pub fn list_artifacts(run: &RunRef) -> Result<ArtifactList, Error> {
    let listed = files(&run.path)?;
    let bytes = listed.iter().map(|file| file.own_bytes).sum();
    let artifact = |file: FoundFile| Artifact {
        kind: file_rule(&file.path).map_or("other", |rule| rule.kind),
        bytes: file.bytes,
        sha256: None,
        path: file.name(),
    };
    Ok(ArtifactList {
        schema: SCHEMA,
        run_id: run.id.clone(),
        path: run.path.clone(),
        state: status(&run.path, SessionRecord::read(&run.path).ok().as_ref()),
        bytes,
        artifacts: listed.into_iter().filter(|file| !is_temporary(&file.path)).map(artifact).collect(),
    })
}

/// Returns true for the name of a file in the middle of a write.
pub(super) fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| {
        name.starts_with('.') && (name.ends_with(".tmp") || name.ends_with(".tmp.sqlite"))
    })
}

/// Makes the error of a run that is still written.
pub(super) fn in_progress(run: &RunRef) -> Error {
    Error::new(format!("the run {} is in progress; wait until it ends", run.id))
}

/// A file below the folder of a run.
#[derive(Debug, Clone)]
pub(crate) struct FoundFile {
    /// Path below the folder.
    pub path: PathBuf,
    pub bytes: u64,
    /// Size, or 0 where another name of the file was counted before.
    pub own_bytes: u64,
    /// Time of the last write.
    pub modified: Option<SystemTime>,
}

impl FoundFile {
    /// Returns the path as text.
    pub fn name(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}

/// Lists the regular files below a folder by path. Links are not followed, because they lead out of it.
pub(crate) fn files(root: &Path) -> Result<Vec<FoundFile>, Error> {
    let mut listed = Vec::new();
    let mut known = HashSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // Another process may remove a folder meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound && folder != root => continue,
            Err(source) => return Err(Error::io("list", &folder)(source)),
        };
        for entry in entries {
            let path = entry.map_err(Error::io("list", &folder))?.path();
            let Ok(facts) = fs::symlink_metadata(&path) else {
                continue;
            };
            if facts.is_dir() {
                folders.push(path);
            } else if facts.is_file() {
                let is_first = known.insert((facts.dev(), facts.ino()));
                listed.push(FoundFile {
                    path: path.strip_prefix(root).unwrap_or(&path).to_owned(),
                    bytes: facts.len(),
                    own_bytes: if is_first { facts.len() } else { 0 },
                    modified: facts.modified().ok(),
                });
            }
        }
    }
    listed.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_are_listed_with_their_hashes_and_links_are_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("20260101-000000");
        fs::create_dir_all(root.join("nsys")).unwrap();
        fs::write(root.join("session.json"), "{}").unwrap();
        fs::write(root.join("nsys/run.sqlite.gz"), "abc").unwrap();
        fs::write(root.join(".metrics.json.1-1.tmp"), "half").unwrap();
        fs::hard_link(root.join("session.json"), root.join("again.json")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
        let list = artifacts(&RunRef::at(&root)).unwrap();
        let names: Vec<(&str, &str)> = list.artifacts.iter().map(|a| (a.path.as_str(), a.kind)).collect();
        assert_eq!(
            names,
            [
                ("again.json", "other"),
                ("nsys/run.sqlite.gz", "timeline (nsys)"),
                ("session.json", "record of the session"),
            ]
        );
        assert_eq!(list.bytes, 2 + 3 + 4);
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(list.artifacts[1].sha256.as_deref(), Some(abc));
        assert_eq!(list.state, "unreadable", "it has no record");
    }
}
