//! The run directory: a unique name, atomic writes, and a marker while the run is in progress.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use roofgap_base::clock;
use roofgap_base::error::Error;
use roofgap_base::file::{read_document, write_atomic};
use roofgap_collect::process;

/// Name of a run: `YYYYMMDD-HHMMSS` in UTC, with `-2`, `-3`, ... for further runs of the same second.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RunId(String);

impl RunId {
    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses a folder name; `None` if it is not a run id.
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let digits =
            |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
        let valid = digits(parts.next()?, 8)
            && digits(parts.next()?, 6)
            && parts.next().is_none_or(|count| count.parse::<u32>().is_ok_and(|count| count >= 2))
            && parts.next().is_none();
        valid.then(|| RunId(name.to_owned()))
    }

    fn at(time: Timestamp, attempt: u32) -> Self {
        let second = time.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S").to_string();
        RunId(if attempt == 1 { second } else { format!("{second}-{attempt}") })
    }

    /// Returns the second, as text that sorts, and the number of the run in it.
    pub(super) fn parts(&self) -> (&str, u32) {
        match self.0.rsplit_once('-').filter(|(second, _)| second.contains('-')) {
            Some((second, count)) => (second, count.parse().unwrap_or(1)),
            None => (&self.0, 1),
        }
    }

    /// Lists the id and those of later runs of the same second.
    pub fn and_next(&self) -> impl Iterator<Item = String> + use<'_> {
        let (second, first) = self.parts();
        let later = (first + 1..10_000).map(move |count| format!("{second}-{count}"));
        std::iter::once(self.0.clone()).chain(later)
    }
}

impl std::fmt::Display for RunId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// Returns a function that says what to do about a folder that cannot be created.
pub fn cannot_create(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.display().to_string();
    move |source| {
        let remedy = "set artifacts.stage2_dir to a writable folder";
        Error::new(format!("cannot create the run folder {path}: {source}; {remedy}"))
    }
}

/// Reads a value from a JSON document.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let bytes = read_document(path).map_err(Error::io("read", path))?;
    serde_json::from_slice(&bytes).map_err(|error| Error::io("parse", path)(error.into()))
}

/// Writes a value as a JSON document, atomically.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let bytes = serde_json::to_vec_pretty(value).map_err(io::Error::from);
    let written = bytes.and_then(|bytes| write_atomic(path, &[bytes.as_slice(), b"\n"].concat()));
    written.map_err(Error::io("write", path))
}

/// Name of the file that marks a run in progress.
const MARKER: &str = ".running.json";

/// Folder of a run in progress. Dropping this removes the marker.
#[derive(Debug)]
pub struct RunDir {
    id: RunId,
    path: PathBuf,
}

impl RunDir {
    /// Creates a new run below `base`. Creates `base` if it is missing.
    pub fn create(base: &Path) -> Result<Self, Error> {
        Self::create_at(base, clock::now())
    }

    fn create_at(base: &Path, now: Timestamp) -> Result<Self, Error> {
        fs::create_dir_all(base).map_err(cannot_create(base))?;
        let base = fs::canonicalize(base).map_err(cannot_create(base))?;
        for attempt in 1..10_000 {
            let id = RunId::at(now, attempt);
            let path = base.join(id.as_str());
            // Creating a folder succeeds only once, so it reserves the name.
            // It holds the environment of the program, so that only its owner may read it.
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let run = Self { id, path };
                    run.write_json(MARKER, &Marker::of_this_process(now))?;
                    return Ok(run);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(cannot_create(&path)(source)),
            }
        }
        let first = RunId::at(now, 1);
        let base = base.display();
        Err(Error::new(format!("no free run name that starts with {first} in {base}; remove old runs")))
    }

    /// Returns the run id.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Returns the absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file or folder in the run.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Creates a folder in the run.
    pub fn folder(&self, name: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let path = self.join(name);
        fs::create_dir_all(&path).map_err(cannot_create(&path))?;
        Ok(path)
    }

    /// Writes a file in the run atomically.
    pub fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> Result<PathBuf, Error> {
        let path = self.join(name);
        write_atomic(&path, bytes).map_err(Error::io("write", &path))?;
        Ok(path)
    }

    /// Writes a value as JSON atomically.
    pub fn write_json(&self, name: impl AsRef<Path>, value: &impl Serialize) -> Result<PathBuf, Error> {
        let path = self.join(name);
        write_json(&path, value)?;
        Ok(path)
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.join(MARKER));
    }
}

/// Identity of the process that writes a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    pid: i32,
    /// Start time, clock ticks since boot. Process ids are reused; an id with its start time is not.
    start_ticks: Option<u64>,
    /// Kernel boot id: identifies the machine and its boot.
    boot_id: Option<String>,
    /// PID namespace: containers number their processes separately.
    pid_namespace: Option<String>,
    /// Start of the run, Unix seconds, for readers on another machine.
    started_unix_s: i64,
}

impl Marker {
    fn of_this_process(now: Timestamp) -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Self {
            pid,
            start_ticks: process::find(pid).map(|process| process.start),
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
        let running = if here {
            process::find(self.pid)
                .is_some_and(|process| !process.is_zombie() && Some(process.start) == self.start_ticks)
        } else {
            // Another machine or container on a shared disk: its processes are not visible here, so wait a day.
            now.as_second().saturating_sub(self.started_unix_s) < 24 * 3600
        };
        if running { RunState::UnderWay } else { RunState::Abandoned }
    }
}

/// State of a run directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// A running process is writing it.
    UnderWay,
    /// The writer finished.
    Ended,
    /// The writer was killed. Files are complete, but some may be missing.
    Abandoned,
}

/// Returns the state of the run in `folder`.
pub fn run_state(folder: &Path) -> RunState {
    let marker = folder.join(MARKER);
    // A link or a pipe is not our marker; reading it may never end.
    let is_file = fs::symlink_metadata(&marker).is_ok_and(|facts| facts.is_file());
    let Some(text) = is_file.then(|| read_document(&marker).ok()).flatten() else {
        return RunState::Ended;
    };
    match serde_json::from_slice::<Marker>(&text) {
        Ok(marker) => marker.state(clock::now()),
        Err(_) => RunState::Abandoned,
    }
}

/// Lists the folders and the links to folders below `base` that are named like a run, oldest first.
pub fn list_runs(base: &Path) -> io::Result<Vec<(RunId, PathBuf)>> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(base)? {
        let entry = entry?;
        if let Some(id) = entry.file_name().to_str().and_then(RunId::parse)
            && entry.path().is_dir()
        {
            runs.push((id, entry.path()));
        }
    }
    // By number: `-10` comes after `-9`.
    runs.sort_by(|(a, _), (b, _)| a.parts().cmp(&b.parts()));
    Ok(runs)
}

fn boot_id() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

fn pid_namespace() -> Option<String> {
    Some(fs::read_link("/proc/self/ns/pid").ok()?.to_string_lossy().into_owned())
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
        for name in
            ["", "latest", "20260304", "20260304-05060", "20260304-050607-1", "20260304-050607-2-3", "a-b"]
        {
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
        let listed = list_runs(&base.path().join("deep/er")).unwrap();
        assert_eq!(listed.len(), 16);
        assert_eq!(listed.first().unwrap().0, RunId::at(now, 1));
        assert_eq!(listed.last().unwrap().0, RunId::at(now, 16));
    }

    #[test]
    fn a_link_is_not_a_run_and_a_run_is_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let base = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), base.path().join("20260101-000000")).unwrap();
        let run = RunDir::create(base.path()).unwrap();
        let listed = crate::run_dir::locate::all(base.path()).unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].id, run.id().as_str());
        let mode = fs::metadata(run.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
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
    fn a_place_that_cannot_be_written_says_what_to_set() {
        let folder = tempfile::tempdir().unwrap();
        // A file where the folder should be: refused for every user, root included.
        let base = folder.path().join("file");
        fs::write(&base, "").unwrap();
        let error = RunDir::create(&base).unwrap_err().to_string();
        assert!(error.contains("artifacts.stage2_dir"), "{error}");
    }
}
