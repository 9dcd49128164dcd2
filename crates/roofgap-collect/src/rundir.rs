//! The run directory: a name nobody else has, files written whole, and a marker while the run is under way.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::process;

/// The name of a run: `YYYYMMDD-HHMMSS` in UTC, with `-2`, `-3`, ... where another run has the second already.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RunId(String);

impl RunId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a folder name back; `None` where it is not the name of a run.
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let digits =
            |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
        let valid = digits(parts.next()?, 8)
            && digits(parts.next()?, 6)
            && parts
                .next()
                .is_none_or(|count| count.parse::<u32>().is_ok_and(|count| count >= 2))
            && parts.next().is_none();
        valid.then(|| RunId(name.to_owned()))
    }

    fn at(time: Timestamp, attempt: u32) -> Self {
        let second = time.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S").to_string();
        RunId(if attempt == 1 {
            second
        } else {
            format!("{second}-{attempt}")
        })
    }
}

impl std::fmt::Display for RunId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// Why a run directory could not be made or written.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// A folder could not be made.
    #[error(
        "could not make the run folder {path}: {source}; set artifacts.stage2_dir to a folder that can be written"
    )]
    Create {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("could not write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Ten thousand runs within one second.
    #[error("no free name for a run starting with {first} in {base}; remove old runs")]
    NoName {
        /// The first name tried.
        first: String,
        /// Where.
        base: PathBuf,
    },
}

/// The file that says a run is under way.
const MARKER: &str = ".running.json";

/// The folder of a run under way. The marker goes when this is dropped.
#[derive(Debug)]
pub struct RunDir {
    id: RunId,
    path: PathBuf,
}

impl RunDir {
    /// Makes a new run below `base`, which is made as well where it is missing.
    pub fn create(base: &Path) -> Result<Self, RunDirError> {
        Self::create_at(base, Timestamp::now())
    }

    fn create_at(base: &Path, now: Timestamp) -> Result<Self, RunDirError> {
        let create_error = |path: &Path| {
            let path = path.to_path_buf();
            move |source| RunDirError::Create { path, source }
        };
        fs::create_dir_all(base).map_err(create_error(base))?;
        let base = fs::canonicalize(base).map_err(create_error(base))?;
        for attempt in 1..10_000 {
            let id = RunId::at(now, attempt);
            let path = base.join(id.as_str());
            // Making the folder is the one step that cannot succeed twice, so it decides who has the name.
            match fs::create_dir(&path) {
                Ok(()) => {
                    let run = RunDir { id, path };
                    run.write_json(MARKER, &Marker::of_this_process(now))?;
                    return Ok(run);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(create_error(&path)(source)),
            }
        }
        Err(RunDirError::NoName {
            first: RunId::at(now, 1).0,
            base,
        })
    }

    /// Its name.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file or folder in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Makes a folder in it.
    pub fn folder(&self, name: impl AsRef<Path>) -> Result<PathBuf, RunDirError> {
        let path = self.join(name);
        fs::create_dir_all(&path).map_err(|source| RunDirError::Create {
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }

    /// Writes a file in it, whole or not at all.
    pub fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> Result<PathBuf, RunDirError> {
        let path = self.join(name);
        write_whole(&path, bytes).map_err(|source| RunDirError::Write {
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }

    /// Writes a value as JSON, whole or not at all.
    pub fn write_json(&self, name: impl AsRef<Path>, value: &impl Serialize) -> Result<PathBuf, RunDirError> {
        let path = self.join(&name);
        let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| RunDirError::Write {
            path: path.clone(),
            source: error.into(),
        })?;
        bytes.push(b'\n');
        self.write(name, &bytes)
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.join(MARKER));
    }
}

/// Writes `path` whole or not at all: under another name in the same folder, flushed, then renamed.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("the path has no file name"))?;
    let temporary = folder.join(format!(
        ".{}.{}-{}.tmp",
        name.to_string_lossy(),
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    ));
    let written = File::create_new(&temporary)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            // Without this a power cut can leave the new name on an empty file.
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Who is writing a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    pid: i32,
    /// In clock ticks since the machine started: ids are used again, this with it is not.
    start_ticks: Option<u64>,
    /// Which start of which machine.
    boot_id: Option<String>,
    /// Which of its containers: they number their processes apart.
    pid_namespace: Option<String>,
    /// When, for a reader on another machine.
    started_unix_s: i64,
}

impl Marker {
    fn of_this_process(now: Timestamp) -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Marker {
            pid,
            start_ticks: process::of(pid).map(|process| process.start),
            boot_id: boot_id(),
            pid_namespace: pid_namespace(),
            started_unix_s: now.as_second(),
        }
    }

    fn state(&self, now: Timestamp) -> RunState {
        let here = self.boot_id.is_some()
            && self.boot_id == boot_id()
            && self.pid_namespace.is_some()
            && self.pid_namespace == pid_namespace();
        let under_way = if here {
            process::of(self.pid)
                .is_some_and(|process| !process.is_zombie() && Some(process.start) == self.start_ticks)
        } else {
            // Another machine or container over a shared disk: its processes cannot be seen from here, so a day's grace.
            now.as_second().saturating_sub(self.started_unix_s) < 24 * 3600
        };
        if under_way {
            RunState::UnderWay
        } else {
            RunState::Abandoned
        }
    }
}

/// Whether a run is still being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// A living process is writing it.
    UnderWay,
    /// Its writer is done.
    Ended,
    /// Its writer was killed before it was done; what is there is whole but not all.
    Abandoned,
}

/// The state of the run in `folder`.
pub fn run_state(folder: &Path) -> RunState {
    let Ok(text) = fs::read(folder.join(MARKER)) else {
        return RunState::Ended;
    };
    match serde_json::from_slice::<Marker>(&text) {
        Ok(marker) => marker.state(Timestamp::now()),
        Err(_) => RunState::Abandoned,
    }
}

/// Takes the marker of an abandoned run away, once that has been noted.
pub fn clear_marker(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join(MARKER)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The runs below `base`, oldest first. A folder whose name is not that of a run is not one.
pub fn runs(base: &Path) -> io::Result<Vec<(RunId, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(base)? {
        let entry = entry?;
        if let Some(id) = entry.file_name().to_str().and_then(RunId::parse)
            && entry.path().is_dir()
        {
            found.push((id, entry.path()));
        }
    }
    // `-10` comes after `-9`, which plain text order does not know.
    found.sort_by_key(|(id, _)| {
        let mut parts = id.0.splitn(3, '-');
        let second = (parts.next().map(str::to_owned), parts.next().map(str::to_owned));
        (
            second,
            parts
                .next()
                .and_then(|count| count.parse::<u32>().ok())
                .unwrap_or(1),
        )
    });
    Ok(found)
}

fn boot_id() -> Option<String> {
    Some(
        fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .ok()?
            .trim()
            .to_owned(),
    )
}

fn pid_namespace() -> Option<String> {
    Some(
        fs::read_link("/proc/self/ns/pid")
            .ok()?
            .to_string_lossy()
            .into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_second_in_utc() {
        let time: Timestamp = "2026-03-04T05:06:07.9Z".parse().unwrap();
        assert_eq!(RunId::at(time, 1).as_str(), "20260304-050607");
        assert_eq!(RunId::at(time, 3).as_str(), "20260304-050607-3");
    }

    #[test]
    fn names_of_runs_and_other_names() {
        for name in ["20260304-050607", "20260304-050607-2", "20260304-050607-123"] {
            assert_eq!(RunId::parse(name).unwrap().as_str(), name);
        }
        for name in [
            "",
            "latest",
            "20260304",
            "20260304-05060",
            "20260304-050607-1",
            "20260304-050607-2-3",
            "a-b",
        ] {
            assert_eq!(RunId::parse(name), None, "{name}");
        }
    }

    #[test]
    fn runs_started_at_the_same_moment_never_share_a_folder() {
        let base = tempfile::tempdir().unwrap();
        let now = Timestamp::now();
        let threads: Vec<_> = (0..16)
            .map(|_| {
                let base = base.path().join("deep/er");
                std::thread::spawn(move || RunDir::create_at(&base, now).unwrap())
            })
            .collect();
        let made: Vec<RunDir> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let mut names: Vec<&str> = made.iter().map(|run| run.id().as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 16);
        let listed = runs(&base.path().join("deep/er")).unwrap();
        assert_eq!(listed.len(), 16);
        assert_eq!(listed.first().unwrap().0, RunId::at(now, 1));
        assert_eq!(listed.last().unwrap().0, RunId::at(now, 16));
    }

    #[test]
    fn a_run_is_under_way_until_it_is_dropped() {
        let base = tempfile::tempdir().unwrap();
        let run = RunDir::create(base.path()).unwrap();
        let path = run.path().to_path_buf();
        assert_eq!(run_state(&path), RunState::UnderWay);
        drop(run);
        assert_eq!(run_state(&path), RunState::Ended);
    }

    #[test]
    fn a_killed_writer_leaves_an_abandoned_run() {
        let base = tempfile::tempdir().unwrap();
        let run = RunDir::create(base.path()).unwrap();
        let mut marker = Marker::of_this_process(Timestamp::now());
        // The id is in use, but by a process that started at another time.
        marker.start_ticks = marker.start_ticks.map(|ticks| ticks + 1);
        run.write_json(MARKER, &marker).unwrap();
        assert_eq!(run_state(run.path()), RunState::Abandoned);
        run.write(MARKER, b"{ half").unwrap();
        assert_eq!(run_state(run.path()), RunState::Abandoned);
        clear_marker(run.path()).unwrap();
        clear_marker(run.path()).unwrap();
        assert_eq!(run_state(run.path()), RunState::Ended);
    }

    #[test]
    fn a_writer_elsewhere_is_believed_for_a_day() {
        let now = Timestamp::now();
        let mut marker = Marker::of_this_process(now);
        marker.boot_id = Some("another machine".to_owned());
        assert_eq!(marker.state(now), RunState::UnderWay);
        marker.started_unix_s -= 25 * 3600;
        assert_eq!(marker.state(now), RunState::Abandoned);
    }

    #[test]
    fn a_file_is_written_whole_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write_whole(&path, b"old").unwrap();
        write_whole(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // The target is a folder, so the rename fails: the temporary file must go.
        fs::create_dir(folder.path().join("b")).unwrap();
        assert!(write_whole(&folder.path().join("b"), b"x").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_place_that_cannot_be_written_says_what_to_set() {
        let folder = tempfile::tempdir().unwrap();
        // A file where the folder should be: refused for every user, root included.
        let base = folder.path().join("file");
        fs::write(&base, "").unwrap();
        let error = RunDir::create(&base).unwrap_err().to_string();
        assert!(error.contains("artifacts.stage2_dir"), "{error}");
    }
}
