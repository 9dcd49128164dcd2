//! Programs that run with a dormant collector: a folder each, with a registration and the sockets that control it.
//!
//! A program holds a lock on its registration while it runs, so that its end is known in every container that shares the folder.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::fs::{self, File, TryLockError};
use std::hash::BuildHasher;
use std::io;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_base::clock;
use roofgap_base::error::Error;
use roofgap_base::file::{read_document, write_atomic_with};
use serde::{Deserialize, Serialize};

use crate::{entries, process};

/// Name of a registration. It also marks a folder as one that `watch` made.
const FILE: &str = "watch.json";

/// Longest path of a Unix socket, bytes.
const LONGEST_SOCKET: usize = 107;

/// Largest process id of Linux, for the length of a path.
const LARGEST_PID: u32 = 4_194_304;

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

/// The locks of a program on its registrations: open files that a program inherits and holds until it ends.
#[derive(Debug)]
pub struct ProgramLock {
    #[expect(dead_code, reason = "held until the program ends")]
    files: Vec<File>,
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
    pub fn open() -> Result<Self, Error> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        Self::open_in(runtime.as_deref(), &std::env::temp_dir())
    }

    fn open_in(runtime: Option<&Path>, temporary: &Path) -> Result<Self, Error> {
        let captures = captures_folder(temporary)?;
        let sockets = sockets_folder(runtime, &captures)?;
        Ok(Self { sockets, captures })
    }

    /// Registers this process, which is about to become the program, and removes what ended programs left.
    pub fn register(&self, command: Vec<String>) -> Result<(Watched, ProgramLock), Error> {
        self.remove_ended();
        let this = i32::try_from(std::process::id()).ok().and_then(process::find);
        let unknown = || Error::new("cannot read the start time of this process; is /proc mounted?");
        let process::Process { pid, start, .. } = this.ok_or_else(unknown)?;
        // Containers that share a folder have the same process ids.
        let name = format!("{pid}-{:08x}", RandomState::new().hash_one(start) as u32);
        let (sockets, files) = (self.sockets.join(&name), self.captures.join(&name));
        let longest = sockets.join(format!("{LARGEST_PID}.sock"));
        if longest.as_os_str().len() > LONGEST_SOCKET {
            let longest = longest.display();
            return Err(Error::new(format!(
                "{longest} is too long for the path of a socket; set XDG_RUNTIME_DIR to a shorter one"
            )));
        }
        let registration = Registration {
            pid,
            start,
            started: clock::now().to_string(),
            command,
            socket: socket_of(&sockets, pid),
            files: files.clone(),
        };
        let folders = BTreeSet::from([files, sockets.clone()]);
        let lock = folders.iter().map(|folder| create(folder, &registration)).collect::<Result<_, _>>()?;
        Ok((Watched { registration, sockets }, ProgramLock { files: lock }))
    }

    /// Lists the watched programs that run, oldest first.
    pub fn list(&self) -> Vec<Watched> {
        let mut running: Vec<Watched> =
            self.all().into_iter().filter(|watched| is_running(&watched.sockets)).collect();
        running.sort_by_key(|watched| (watched.registration.start, watched.registration.pid));
        running
    }

    /// Finds a program by the id of one of its processes, or the `latest` one.
    pub fn find(&self, wanted: &str) -> Result<Watched, Error> {
        let mut all = self.list();
        if all.is_empty() {
            return Err(Error::new("no program is watched; start one with `roofgap watch -- PROGRAM`"));
        }
        let known: Vec<String> = all.iter().map(|one| one.registration.pid.to_string()).collect();
        let has = |one: &Watched| {
            let is = |pid: i32| pid.to_string() == wanted;
            is(one.registration.pid) || one.processes().iter().any(|process| is(process.pid))
        };
        let watched = match wanted {
            "latest" => all.pop(),
            _ => all.into_iter().rfind(has),
        };
        watched.ok_or_else(|| {
            let known = known.join(", ");
            Error::new(format!("no watched program has process {wanted:?}; watched are {known}"))
        })
    }

    fn all(&self) -> Vec<Watched> {
        let read = |sockets: PathBuf| Some(Watched { registration: registration_in(&sockets)?, sockets });
        folders_of_user(&self.sockets).filter_map(read).collect()
    }

    /// Removes the folders of ended programs. Only a folder of this registry that `watch` made is removed, whatever a registration
    /// says.
    fn remove_ended(&self) {
        for parent in BTreeSet::from([&self.captures, &self.sockets]) {
            for folder in folders_of_user(parent).filter(|folder| !is_running(folder)) {
                // What cannot be removed is tried again next time.
                let _ = remove(&folder);
            }
        }
    }
}

impl Watched {
    /// Lists the processes that have loaded the collector, by id.
    pub fn processes(&self) -> Vec<WatchedProcess> {
        processes_in(&self.sockets)
    }

    /// Returns the folder of the captures.
    pub fn captures(&self) -> PathBuf {
        self.registration.files.join("captures")
    }

    /// Returns the path of the program's account of itself.
    pub fn account(&self) -> PathBuf {
        self.registration.files.join("workload.json")
    }
}

fn processes_in(sockets: &Path) -> Vec<WatchedProcess> {
    let mut processes: Vec<WatchedProcess> = entries(sockets)
        .into_iter()
        .filter_map(|socket| {
            let pid = socket.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()?;
            Some(WatchedProcess { pid, socket })
        })
        // A killed process leaves its socket.
        .filter(|process| UnixStream::connect(&process.socket).is_ok())
        .collect();
    processes.sort();
    processes
}

/// Tells whether the program of a folder runs, or a process that it left.
fn is_running(folder: &Path) -> bool {
    let probe = File::open(folder.join(FILE)).map(|file| file.try_lock_shared());
    if matches!(probe, Ok(Err(TryLockError::WouldBlock))) {
        return true;
    }
    let Some(registration) = registration_in(folder) else {
        return false;
    };
    // A daemon closes the files that it inherits, and its lock with them.
    let is_same = |process: &process::Process| process.start == registration.start && !process.is_zombie();
    process::find(registration.pid).is_some_and(|process| is_same(&process))
        || !processes_in(registration.socket.parent().unwrap_or(folder)).is_empty()
}

fn registration_in(folder: &Path) -> Option<Registration> {
    serde_json::from_slice(&read_document(&folder.join(FILE)).ok()?).ok()
}

/// Lists the folders that `watch` made for this user: no links, and with a registration inside.
fn folders_of_user(parent: &Path) -> impl Iterator<Item = PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let is_of_user = move |path: &Path, is_kind: fn(&fs::Metadata) -> bool| {
        fs::symlink_metadata(path).is_ok_and(|facts| is_kind(&facts) && facts.uid() == user)
    };
    entries(parent).into_iter().filter(move |path| {
        is_of_user(path, fs::Metadata::is_dir) && is_of_user(&path.join(FILE), fs::Metadata::is_file)
    })
}

/// Removes a folder. Its registration goes last, so that a removal that was interrupted is done again.
fn remove(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else if entry.file_name() != FILE {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(folder.join(FILE))?;
    fs::remove_dir(folder)
}

/// Creates the folder of a program with its registration, locked. Returns the file that holds the lock, which `exec` keeps open.
fn create(folder: &Path, registration: &Registration) -> Result<File, Error> {
    let path = folder.join(FILE);
    let failed = |source| Error::io("write", &path)(source);
    fs::DirBuilder::new().mode(0o700).create(folder).map_err(failed)?;
    let text = serde_json::to_vec_pretty(registration).map_err(|error| failed(error.into()))?;
    // It has its name once it is locked, so that nobody takes it for one of an ended program.
    let lock = write_atomic_with(&path, |file| {
        file.write_all(&text)?;
        file.try_lock()?;
        file.try_clone()
    });
    let lock = lock.map_err(failed)?;
    rustix::io::fcntl_setfd(&lock, rustix::io::FdFlags::empty()).map_err(|error| failed(error.into()))?;
    Ok(lock)
}

fn socket_of(sockets: &Path, pid: i32) -> PathBuf {
    sockets.join(format!("{pid}.sock"))
}

/// Creates a private folder, or checks the one that exists. `variable`: variable of the environment that moves it.
fn private(path: &Path, variable: &'static str) -> Result<(), Error> {
    let failed = |source| Error::io("use the folder", path)(source);
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let metadata = fs::symlink_metadata(path).map_err(failed)?;
    let user = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o077 != 0 {
        return Err(Error::new(format!(
            "{} must be a folder of this user with mode 0700; remove it, or set {variable} to another place",
            path.display()
        )));
    }
    Ok(())
}

/// Creates or checks the folder for captures: `roofgap-UID` in the folder for temporary files.
fn captures_folder(temporary: &Path) -> Result<PathBuf, Error> {
    let path = temporary.join(format!("roofgap-{}", rustix::process::geteuid().as_raw()));
    private(&path, "TMPDIR")?;
    Ok(path)
}

/// Creates or checks the folder for registrations and sockets: `roofgap` in the user's runtime folder where there is one, else that for
/// captures.
fn sockets_folder(runtime: Option<&Path>, captures: &Path) -> Result<PathBuf, Error> {
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
    /// Number of steps that began while it was.
    pub steps: u64,
    /// Path of the capture.
    pub file: PathBuf,
}

/// Sends a command and returns the answer without its `ok`.
pub fn ask(socket: &Path, command: &str) -> Result<String, ControlError> {
    ask_within(socket, command, PATIENCE)
}

/// Sends a command and waits for the answer for a time. A stopped process does not answer.
pub fn ask_within(socket: &Path, command: &str, patience: Duration) -> Result<String, ControlError> {
    exchange(socket, command, patience).map(|(answer, _)| answer)
}

/// A step of a program that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepTime {
    /// Begin, ns since the epoch.
    pub begin_ns: u64,
    /// Length of its range on the CPU, ns.
    pub ns: u64,
    /// Kind of step, a number.
    pub kind: u64,
    /// Tokens that its name states; 0 where it states none.
    pub tokens: u64,
}

/// Steps of a process since the last question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepNews {
    /// Time for which a step is open, ns; 0 for none.
    pub open_ns: u64,
    /// Steps that have ended, in order.
    pub ended: Vec<StepTime>,
}

/// Asks for the steps of a process since the last question.
pub fn steps(socket: &Path, patience: Duration) -> Result<StepNews, ControlError> {
    let line = ask_within(socket, "steps", patience)?;
    let mut words = line.split(' ');
    let open_ns = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let step = |word: &str| {
        let mut numbers = word.split(',').map(|number| number.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        Some(StepTime { begin_ns: next()?, ns: next()?, kind: next()?, tokens: next()? })
    };
    Ok(StepNews { open_ns, ended: words.filter_map(step).collect() })
}

/// The sole right to record a process. The collector stops recording when it ends, also if this program is killed.
#[derive(Debug)]
pub struct Hold {
    #[expect(dead_code, reason = "the right lasts as long as the connection")]
    connection: UnixStream,
}

/// Takes the sole right to record a process.
pub fn hold(socket: &Path) -> Result<Hold, ControlError> {
    exchange(socket, "hold", PATIENCE).map(|(_, connection)| Hold { connection })
}

fn exchange(socket: &Path, command: &str, patience: Duration) -> Result<(String, UnixStream), ControlError> {
    let send = || -> io::Result<(String, UnixStream)> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        (&stream).write_all(format!("{command}\n").as_bytes())?;
        let mut line = String::new();
        BufReader::new(&stream).take(LONGEST).read_line(&mut line)?;
        Ok((line, stream))
    };
    let (line, stream) = send().map_err(|source| ControlError::Io { socket: socket.to_owned(), source })?;
    match answer(&line) {
        Some(Ok(answer)) => Ok((answer.to_owned(), stream)),
        Some(Err(why)) => Err(ControlError::Refused { why: why.to_owned() }),
        None => {
            Err(ControlError::Io { socket: socket.to_owned(), source: io::ErrorKind::UnexpectedEof.into() })
        }
    }
}

/// Asks for the state of a collector.
pub fn status(socket: &Path) -> Result<Status, ControlError> {
    let line = ask(socket, "status")?;
    parse_status(&line).ok_or_else(|| ControlError::Refused { why: format!("an unknown answer: {line}") })
}

/// Splits an answer: the text after `ok`, or the reason after `error`; `None` for anything else.
fn answer(line: &str) -> Option<Result<&str, &str>> {
    match line.strip_suffix('\n')?.split_once(' ')? {
        ("ok", rest) => Some(Ok(rest)),
        ("error", why) => Some(Err(why)),
        _ => None,
    }
}

fn parse_status(line: &str) -> Option<Status> {
    // The path is last, and may contain spaces.
    let (words, file) = line.split_once(" file=")?;
    let steps = words.split(' ').find_map(|word| word.strip_prefix("steps="))?;
    Some(Status { steps: steps.parse().ok()?, file: file.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn registry(base: &Path) -> Registry {
        Registry::open_in(Some(base), base).unwrap()
    }

    /// Changes the registrations of a program in place, so that its locks stay.
    fn change(watched: &Watched, change: impl Fn(&mut Registration)) {
        let mut registration = watched.registration.clone();
        change(&mut registration);
        for folder in [&watched.sockets, &watched.registration.files] {
            fs::write(folder.join(FILE), serde_json::to_vec(&registration).unwrap()).unwrap();
        }
    }

    #[test]
    fn a_program_of_another_container_is_neither_missed_nor_removed() {
        let base = tempfile::tempdir().unwrap();
        for runtime in [None, Some(base.path())] {
            let registry = Registry::open_in(runtime, base.path()).unwrap();
            let (watched, lock) = registry.register(Vec::new()).unwrap();
            let (sockets, files) = (&watched.sockets, &watched.registration.files);
            // Its process id means nothing here.
            change(&watched, |registration| registration.start += 1);
            assert_eq!(registry.list().len(), 1);
            let (_, other) = registry.register(Vec::new()).unwrap();
            assert!(files.exists() && sockets.exists());
            drop(lock);
            drop(other);
            registry.remove_ended();
            assert!(!files.exists() && !sockets.exists());
        }
    }

    #[test]
    fn only_folders_that_watch_made_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let registry = registry(base.path());
        let documents = base.path().join("documents");
        fs::create_dir(&documents).unwrap();
        fs::write(documents.join("a"), "a").unwrap();
        let planted = |folder: &Path| {
            fs::create_dir_all(folder).unwrap();
            let registration = Registration {
                pid: 1,
                start: 0,
                started: String::new(),
                command: Vec::new(),
                socket: folder.join("1.sock"),
                files: documents.clone(),
            };
            fs::write(folder.join(FILE), serde_json::to_vec(&registration).unwrap()).unwrap();
        };
        planted(&registry.sockets.join("1-0"));
        // No folder of ours: a link, one without a registration, and one whose registration is a link.
        let foreign = base.path().join("foreign");
        planted(&foreign);
        std::os::unix::fs::symlink(&foreign, registry.sockets.join("1-1")).unwrap();
        let (bare, linked) = (registry.captures.join("1-2"), registry.captures.join("1-3"));
        fs::create_dir(&bare).unwrap();
        fs::create_dir(&linked).unwrap();
        std::os::unix::fs::symlink(foreign.join(FILE), linked.join(FILE)).unwrap();
        registry.remove_ended();
        assert!(!registry.sockets.join("1-0").exists());
        for kept in [documents.join("a"), foreign.join(FILE), bare, linked] {
            assert!(kept.exists(), "{}", kept.display());
        }
    }

    #[test]
    fn a_program_is_found_by_its_processes_until_all_have_ended() {
        let base = tempfile::tempdir().unwrap();
        let registry = registry(base.path());
        assert!(registry.find("latest").is_err());
        let (watched, lock) = registry.register(vec!["serve".into(), "a b".into()]).unwrap();
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
        change(&watched, |registration| registration.start += 1);
        drop(lock);
        assert_eq!(registry.list().len(), 1);
        drop(listener);
        assert!(registry.find("77").is_err());
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
        assert_eq!(answer("ok armed\n"), Some(Ok("armed")));
        assert_eq!(answer("error no CUDA\n"), Some(Err("no CUDA")));
        for line in ["", "ok armed", "what\n"] {
            assert_eq!(answer(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_state_has_steps_and_a_path() {
        let line = "armed windows=2 steps=17 cupti=loaded file=/tmp/a b/1-2.rgcap";
        let expected = Status { steps: 17, file: "/tmp/a b/1-2.rgcap".into() };
        assert_eq!(parse_status(line), Some(expected));
        assert_eq!(parse_status("dormant steps=0 file=/x").unwrap().steps, 0);
        assert_eq!(parse_status("dormant file=/x"), None);
    }

    #[test]
    fn a_missing_socket_is_named() {
        let error = ask(Path::new("/nowhere/1.sock"), "arm").unwrap_err();
        assert!(error.to_string().contains("/nowhere/1.sock"), "{error}");
    }
}
