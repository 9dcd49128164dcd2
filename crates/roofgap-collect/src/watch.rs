//! Programs that run with a dormant collector: a folder each, with a registration and the sockets that control it.

use std::io;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_base::clock;
use roofgap_base::file::{read_document, write_atomic};
use serde::{Deserialize, Serialize};

use crate::process;

/// Name of a registration.
const FILE: &str = "watch.json";

/// Longest path of a Unix socket, bytes.
const LONGEST_SOCKET: usize = 107;

/// Largest process id of Linux, for the length of a path.
const LARGEST_PID: u32 = 4_194_304;

/// Failure to register or find a watched program.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// A private folder cannot be created or read.
    #[error("cannot use the folder {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    /// Others can enter a private folder.
    #[error("{} must be a folder of this user with mode 0700; remove it, or set {variable} to another place", path.display())]
    NotPrivate { path: PathBuf, variable: &'static str },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The path of a socket would be too long.
    #[error("{} is too long for the path of a socket; set XDG_RUNTIME_DIR to a shorter one", path.display())]
    LongPath { path: PathBuf },
    /// `/proc` has no facts about this process.
    #[error("cannot read the start time of this process; is /proc mounted?")]
    NoStartTime,
    /// Nothing is watched.
    #[error("no program is watched; start one with `roofgap watch -- PROGRAM`")]
    Nothing,
    /// No watched program has this process.
    #[error("no watched program has process {wanted:?}; watched are {known}")]
    Unknown { wanted: String, known: String },
}

/// Registration of a watched program, the document `watch.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Process id.
    pub pid: i32,
    /// Start time, clock ticks since boot. With the process id, it identifies a process uniquely.
    pub start: u64,
    /// Start time (RFC 3339, UTC).
    pub started: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Socket of the program; its children have theirs beside it.
    pub socket: PathBuf,
    /// Folder of the captures, the collector and the account of the program.
    pub files: PathBuf,
}

/// A watched program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// Registration.
    pub registration: Registration,
    /// Folder of the sockets.
    pub sockets: PathBuf,
}

/// A process of a watched program that has loaded the collector.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchedProcess {
    /// Process id.
    pub pid: i32,
    /// Socket.
    pub socket: PathBuf,
}

/// The registrations of this user.
#[derive(Debug, Clone)]
pub struct Registry {
    sockets: PathBuf,
    captures: PathBuf,
}

impl Registry {
    /// Opens the registry, in the places that the environment names.
    pub fn open() -> Result<Self, WatchError> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        Self::open_in(runtime.as_deref(), &std::env::temp_dir())
    }

    fn open_in(runtime: Option<&Path>, temporary: &Path) -> Result<Self, WatchError> {
        let captures = captures_folder(temporary)?;
        let sockets = sockets_folder(runtime, &captures)?;
        Ok(Self { sockets, captures })
    }

    /// Registers this process, which is about to become the program, and removes what ended programs left.
    pub fn register(&self, command: Vec<String>) -> Result<Watched, WatchError> {
        self.remove_ended();
        let pid = i32::try_from(std::process::id()).map_err(|_| WatchError::NoStartTime)?;
        let start = process::of(pid).ok_or(WatchError::NoStartTime)?.start;
        let name = format!("{pid}-{start}");
        let (sockets, files) = (self.sockets.join(&name), self.captures.join(&name));
        let longest = sockets.join(format!("{LARGEST_PID}.sock"));
        if longest.as_os_str().len() > LONGEST_SOCKET {
            return Err(WatchError::LongPath { path: longest });
        }
        for path in [&sockets, &files] {
            create(path)?;
        }
        let registration = Registration {
            pid,
            start,
            started: clock::now().to_string(),
            command,
            socket: socket_of(&sockets, pid),
            files,
        };
        let path = sockets.join(FILE);
        let write = |source| WatchError::Write { path: path.clone(), source };
        let text = serde_json::to_vec_pretty(&registration).map_err(|error| write(error.into()))?;
        write_atomic(&path, &text).map_err(write)?;
        Ok(Watched { registration, sockets })
    }

    /// Lists the watched programs that run, oldest first.
    pub fn list(&self) -> Vec<Watched> {
        let mut found: Vec<Watched> = self.all().into_iter().filter(Watched::is_running).collect();
        found.sort_by_key(|watched| (watched.registration.start, watched.registration.pid));
        found
    }

    /// Finds a program by the id of one of its processes, or the `latest` one.
    pub fn find(&self, wanted: &str) -> Result<Watched, WatchError> {
        let mut all = self.list();
        if all.is_empty() {
            return Err(WatchError::Nothing);
        }
        let known: Vec<String> = all.iter().map(|one| one.registration.pid.to_string()).collect();
        let has = |one: &Watched| {
            let is = |pid: i32| pid.to_string() == wanted;
            is(one.registration.pid) || one.processes().iter().any(|process| is(process.pid))
        };
        let found = match wanted {
            "latest" => all.pop(),
            _ => all.into_iter().rfind(has),
        };
        found.ok_or_else(|| WatchError::Unknown { wanted: wanted.to_owned(), known: known.join(", ") })
    }

    fn all(&self) -> Vec<Watched> {
        let entries = std::fs::read_dir(&self.sockets).into_iter().flatten().flatten();
        let read = |sockets: PathBuf| {
            let text = read_document(&sockets.join(FILE)).ok()?;
            let registration = serde_json::from_slice(&text).ok()?;
            Some(Watched { registration, sockets })
        };
        entries.filter_map(|entry| read(entry.path())).collect()
    }

    fn remove_ended(&self) {
        for ended in self.all().iter().filter(|watched| !watched.is_running()) {
            // What cannot be removed is tried again next time.
            let _ = std::fs::remove_dir_all(&ended.registration.files);
            let _ = std::fs::remove_dir_all(&ended.sockets);
        }
    }
}

impl Watched {
    /// Lists the processes that have loaded the collector, by id.
    pub fn processes(&self) -> Vec<WatchedProcess> {
        let entries = std::fs::read_dir(&self.sockets).into_iter().flatten().flatten();
        let mut found: Vec<WatchedProcess> = entries
            .filter_map(|entry| {
                let socket = entry.path();
                let pid = socket.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()?;
                Some(WatchedProcess { pid, socket })
            })
            // A killed process leaves its socket.
            .filter(|process| UnixStream::connect(&process.socket).is_ok())
            .collect();
        found.sort();
        found
    }

    /// Returns the folder of the captures.
    pub fn captures(&self) -> PathBuf {
        self.registration.files.join("captures")
    }

    /// Returns the path of the program's account of itself.
    pub fn account(&self) -> PathBuf {
        self.registration.files.join("workload.json")
    }

    /// Tells whether the program runs, or a process that it left.
    fn is_running(&self) -> bool {
        let same = |found: &process::Process| found.start == self.registration.start && !found.is_zombie();
        process::of(self.registration.pid).is_some_and(|found| same(&found)) || !self.processes().is_empty()
    }
}

fn create(path: &Path) -> Result<(), WatchError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| WatchError::Write { path: path.to_owned(), source })
}

fn socket_of(sockets: &Path, pid: i32) -> PathBuf {
    sockets.join(format!("{pid}.sock"))
}

/// Creates a private folder, or checks the one that exists. `variable`: variable of the environment that moves it.
fn private(path: &Path, variable: &'static str) -> Result<(), WatchError> {
    let failed = |source| WatchError::Folder { path: path.to_owned(), source };
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let found = std::fs::symlink_metadata(path).map_err(failed)?;
    let user = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(WatchError::NotPrivate { path: path.to_owned(), variable });
    }
    Ok(())
}

/// Creates or checks the folder for captures: `roofgap-UID` in the folder for temporary files.
fn captures_folder(temporary: &Path) -> Result<PathBuf, WatchError> {
    let path = temporary.join(format!("roofgap-{}", rustix::process::geteuid().as_raw()));
    private(&path, "TMPDIR")?;
    Ok(path)
}

/// Creates or checks the folder for registrations and sockets: `roofgap` in the user's runtime folder where there is one, else that for
/// captures.
fn sockets_folder(runtime: Option<&Path>, captures: &Path) -> Result<PathBuf, WatchError> {
    let Some(runtime) = runtime.filter(|path| path.is_absolute() && path.is_dir()) else {
        return Ok(captures.to_owned());
    };
    let path = runtime.join("roofgap");
    private(&path, "XDG_RUNTIME_DIR")?;
    Ok(path)
}

/// Time limit of an answer. A flush takes up to 5 s, and another client may be served first.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longest answer, bytes: a line with a path.
const LONGEST: u64 = 8192;

/// Failure of a command to a collector.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The process does not answer; it may have ended.
    #[error("{} does not answer: {source}", socket.display())]
    Io { socket: PathBuf, source: io::Error },
    /// The collector refused the command.
    #[error("{why}")]
    Refused { why: String },
}

/// State of the collector inside a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// True while GPU work is recorded.
    pub armed: bool,
    /// Number of steps that began while it was.
    pub steps: u64,
    /// Path of the capture.
    pub file: PathBuf,
}

/// Sends a command and returns the answer without its `ok`.
pub fn ask(socket: &Path, command: &str) -> Result<String, ControlError> {
    let exchange = || -> io::Result<String> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        (&stream).write_all(format!("{command}\n").as_bytes())?;
        let mut line = String::new();
        BufReader::new(&stream).take(LONGEST).read_line(&mut line)?;
        Ok(line)
    };
    let line = exchange().map_err(|source| ControlError::Io { socket: socket.to_owned(), source })?;
    answer(&line).map_err(|why| match why {
        Some(why) => ControlError::Refused { why },
        None => ControlError::Io { socket: socket.to_owned(), source: io::ErrorKind::UnexpectedEof.into() },
    })
}

/// Asks for the state of a collector.
pub fn status(socket: &Path) -> Result<Status, ControlError> {
    let line = ask(socket, "status")?;
    parse_status(&line).ok_or_else(|| ControlError::Refused { why: format!("an unknown answer: {line}") })
}

/// Splits an answer: the text after `ok`, or the reason after `error`; `None` for anything else.
fn answer(line: &str) -> Result<String, Option<String>> {
    let line = line.strip_suffix('\n').ok_or(None)?;
    match line.split_once(' ') {
        Some(("ok", rest)) => Ok(rest.to_owned()),
        Some(("error", why)) => Err(Some(why.to_owned())),
        _ => Err(None),
    }
}

fn parse_status(line: &str) -> Option<Status> {
    // The path is last, and may contain spaces.
    let (words, file) = line.split_once(" file=")?;
    let mut words = words.split(' ');
    let armed = words.next()? == "armed";
    let steps = words.find_map(|word| word.strip_prefix("steps="))?;
    Some(Status { armed, steps: steps.parse().ok()?, file: file.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn registry(base: &Path) -> Registry {
        Registry::open_in(Some(base), base).unwrap()
    }

    #[test]
    fn a_program_is_found_by_its_processes_until_all_have_ended() {
        let base = tempfile::tempdir().unwrap();
        let registry = registry(base.path());
        assert!(matches!(registry.find("latest"), Err(WatchError::Nothing)));
        let watched = registry.register(vec!["serve".into(), "a b".into()]).unwrap();
        let pid = watched.registration.pid.to_string();
        assert_eq!(registry.find("latest").unwrap(), watched);
        assert_eq!(registry.find(&pid).unwrap(), watched);
        let unknown = registry.find("1").unwrap_err().to_string();
        assert!(unknown.ends_with(&format!("watched are {pid}")), "{unknown}");
        assert_eq!(watched.processes(), []);
        // A worker has loaded the collector.
        let listener = UnixListener::bind(watched.sockets.join("77.sock")).unwrap();
        assert_eq!(watched.processes()[0].pid, 77);
        assert_eq!(registry.find("77").unwrap(), watched);
        // The program has ended, the worker has not.
        let mut registration = watched.registration.clone();
        registration.start += 1;
        let text = serde_json::to_vec(&registration).unwrap();
        write_atomic(&watched.sockets.join(FILE), &text).unwrap();
        assert_eq!(registry.list().len(), 1);
        drop(listener);
        assert!(matches!(registry.find("77"), Err(WatchError::Nothing)));
        assert!(watched.registration.files.exists());
        registry.remove_ended();
        assert!(!watched.registration.files.exists() && !watched.sockets.exists());
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let long = base.path().join("x".repeat(80));
        std::fs::create_dir(&long).unwrap();
        let error = registry(&long).register(Vec::new()).unwrap_err();
        assert!(error.to_string().contains("XDG_RUNTIME_DIR"), "{error}");
    }
}

#[cfg(test)]
mod folder_tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("own");
        private(&path, "TMPDIR").unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        private(&path, "TMPDIR").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = private(&path, "TMPDIR").unwrap_err();
        assert!(error.to_string().contains("mode 0700"), "{error}");
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        assert!(private(&link, "TMPDIR").is_err());
    }

    #[test]
    fn sockets_are_in_the_runtime_folder_if_there_is_one() {
        let base = tempfile::tempdir().unwrap();
        let captures = captures_folder(base.path()).unwrap();
        let sockets = |runtime: Option<&Path>| sockets_folder(runtime, &captures).unwrap();
        assert_eq!(sockets(Some(base.path())), base.path().join("roofgap"));
        assert_eq!(sockets(None), captures);
        assert_eq!(sockets(Some(Path::new("relative"))), captures);
        assert_eq!(sockets(Some(&base.path().join("missing"))), captures);
    }
}

#[cfg(test)]
mod control_tests {
    use super::*;

    #[test]
    fn answers() {
        assert_eq!(answer("ok armed\n"), Ok("armed".to_owned()));
        assert_eq!(answer("error no CUDA\n"), Err(Some("no CUDA".to_owned())));
        for line in ["", "ok armed", "what\n"] {
            assert_eq!(answer(line), Err(None), "{line:?}");
        }
    }

    #[test]
    fn a_state_has_steps_and_a_path() {
        let line = "armed windows=2 steps=17 cupti=loaded file=/tmp/a b/1-2.rgcap";
        let expected = Status { armed: true, steps: 17, file: "/tmp/a b/1-2.rgcap".into() };
        assert_eq!(parse_status(line), Some(expected));
        assert!(!parse_status("dormant steps=0 file=/x").unwrap().armed);
        assert_eq!(parse_status("dormant file=/x"), None);
    }

    #[test]
    fn a_missing_socket_is_named() {
        let error = ask(Path::new("/nowhere/1.sock"), "arm").unwrap_err();
        assert!(error.to_string().contains("/nowhere/1.sock"), "{error}");
    }
}
