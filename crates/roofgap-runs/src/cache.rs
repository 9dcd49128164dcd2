//! Opened inputs, kept for the next question.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use roofgap_base::error::Error;
use roofgap_collect::entries;

use crate::open::{Exporter, Opened, Overrides, open_inputs};
use crate::run_dir::Layout;

/// Inputs that stay in memory. A trace of a million kernels takes about 180 MB.
const KEPT: usize = 2;

/// Size and time of every file of an input: changes when the input does.
type Stamp = Vec<(PathBuf, u64, Option<SystemTime>)>;

/// An opened input and the files it was opened from.
#[derive(Debug)]
struct Entry {
    paths: Vec<PathBuf>,
    stamp: Stamp,
    opened: Arc<Opened>,
}

/// Cache of opened inputs, last used first.
#[derive(Debug)]
pub struct OpenCache {
    exporter: Exporter,
    overrides: Overrides,
    entries: Mutex<VecDeque<Entry>>,
}

impl OpenCache {
    /// Makes an empty cache.
    pub fn new(exporter: Exporter) -> Self {
        Self { exporter, overrides: Overrides::default(), entries: Mutex::default() }
    }

    /// Makes an empty cache whose runs may name files in these folders only.
    pub fn within(exporter: Exporter, folders: Vec<PathBuf>) -> Self {
        let overrides = Overrides { folders: Some(folders), ..Overrides::default() };
        Self { overrides, ..Self::new(exporter) }
    }

    /// Returns the exporter of nsys reports.
    pub fn exporter(&self) -> &Exporter {
        &self.exporter
    }

    /// Opens captures or a run, unless they are opened and unchanged. One input is opened at a time.
    ///
    /// # Errors
    /// Fails for inputs that cannot be read.
    pub fn open(&self, paths: &[PathBuf]) -> Result<Arc<Opened>, Error> {
        // Nothing is left half changed by a panic.
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = stamp(paths);
        let known = entries.iter().position(|entry| entry.paths == paths);
        if let Some(entry) = known.and_then(|position| entries.remove(position))
            && entry.stamp == stamp
        {
            let opened = entry.opened.clone();
            entries.push_front(entry);
            return Ok(opened);
        }
        entries.truncate(KEPT - 1);
        let opened = Arc::new(open_inputs(paths, &self.overrides, &self.exporter)?);
        entries.push_front(Entry { paths: paths.to_vec(), stamp, opened: opened.clone() });
        Ok(opened)
    }
}

fn stamp(paths: &[PathBuf]) -> Stamp {
    let mut stamp = Vec::new();
    let mut left = paths.to_vec();
    left.extend(paths.iter().flat_map(|path| Layout::of(path).node_runs()));
    while let Some(path) = left.pop() {
        match fs::metadata(&path) {
            // Links below a folder may lead in a circle. A folder that cannot be read adds nothing to the input either.
            Ok(facts) if facts.is_dir() => {
                left.extend(entries(&path).into_iter().filter(|p| !p.is_symlink()))
            }
            Ok(facts) => stamp.push((path, facts.len(), facts.modified().ok())),
            Err(_) => {}
        }
    }
    stamp
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn every_file_that_can_be_read_counts() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        for folder in ["run/nodes", "run/native", "run/closed", "20260101-000000"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["run/session.json", "run/native/1.rgcap", "20260101-000000/session.json"] {
            fs::write(at(file), "").unwrap();
        }
        symlink(at("run"), at("run/native/circle")).unwrap();
        symlink(at("20260101-000000"), at("run/nodes/20260101-000000")).unwrap();
        fs::set_permissions(at("run/closed"), fs::Permissions::from_mode(0o0)).unwrap();
        let names: Vec<PathBuf> = stamp(&[at("run")]).into_iter().map(|(path, ..)| path).collect();
        fs::set_permissions(at("run/closed"), fs::Permissions::from_mode(0o700)).unwrap();
        let files = ["nodes/20260101-000000/session.json", "session.json", "native/1.rgcap"];
        assert_eq!(names, files.map(|name| at("run").join(name)));
    }
}
