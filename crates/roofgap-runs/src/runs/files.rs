//! Files below the folder of a run.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::run_dir::RunRef;
use roofgap_base::error::Error;

/// Makes the error of a run that is still written.
pub fn in_progress(run: &RunRef) -> Error {
    Error::new(format!("the run {} is in progress; wait until it ends", run.id))
}

/// A file below the folder of a run.
#[derive(Debug, Clone)]
pub struct FoundFile {
    /// Path below the folder.
    pub path: PathBuf,
    pub bytes: u64,
    /// Size, or 0 where another name of the file was counted before.
    pub own_bytes: u64,
    /// Time since the last write, s.
    pub age_s: u64,
}

impl FoundFile {
    /// Returns the path as text.
    pub fn name(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}

/// Lists the regular files of a run by path. Links are not followed, because they lead out of it.
pub fn files(root: &Path) -> Result<Vec<FoundFile>, Error> {
    let mut found = Vec::new();
    let mut known = HashSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // Another process may remove a folder meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder != root => continue,
            Err(source) => return Err(Error::io("list", &folder)(source)),
        };
        for entry in entries {
            let entry = entry.map_err(Error::io("list", &folder))?;
            let path = entry.path();
            let Ok(facts) = fs::symlink_metadata(&path) else {
                continue;
            };
            if facts.is_dir() {
                folders.push(path);
            } else if facts.is_file() {
                let first = known.insert((facts.dev(), facts.ino()));
                let age = facts.modified().ok().and_then(|time| time.elapsed().ok());
                found.push(FoundFile {
                    path: path.strip_prefix(root).unwrap_or(&path).to_owned(),
                    bytes: facts.len(),
                    own_bytes: if first { facts.len() } else { 0 },
                    age_s: age.map_or(0, |age| age.as_secs()),
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}
