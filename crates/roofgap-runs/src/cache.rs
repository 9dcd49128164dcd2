//! Opened inputs, kept for the next question.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use roofgap_base::error::Error;

use crate::open::{Exporter, Opened, Overrides, open_inputs};
use crate::runs::artifacts::files;

/// Inputs that stay in memory. A trace of a million kernels takes about 180 MB.
const KEPT: usize = 2;

/// Size and time of every file of an input: changes when the input does.
type Stamp = Vec<(PathBuf, u64, Option<SystemTime>)>;

/// A opened input and the files it was opened from.
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
    for path in paths {
        let below = files(path).unwrap_or_default().into_iter();
        stamp.extend(below.map(|file| (path.join(file.path), file.bytes, file.modified)));
        if let Ok(facts) = fs::metadata(path).map(|facts| (facts.len(), facts.modified().ok())) {
            stamp.push((path.clone(), facts.0, facts.1));
        }
    }
    stamp
}
