//! The control socket, through which the recording is turned on and off from outside of the program.
//!
//! `ROOFGAP_NATIVE_CONTROL` names a folder that only its owner can enter; the socket is `<pid>.sock` in it. Only clients of the same user are
//! served.
//!
//! A client sends commands, one a line, and gets one line for each, which begins with `ok` or `error`. After `hold` the connection takes
//! no more commands: until it ends, no other client gets the same right, and when it ends, by the death of the client too, the
//! recording stops.

use super::output::Descriptor;
use std::fs::{DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Time after which a silent client is dropped, s.
const PATIENCE: libc::time_t = 10;

/// Interval between looks at a client that records, ms. Its end wakes the thread at once, unless the program closed our files.
const LOOK_MS: libc::c_int = 1000;

/// Event of the control socket.
enum Woken {
    /// A new client.
    Client(Descriptor),
    /// The client that records has left.
    HolderLeft,
}

/// The socket of a process.
#[derive(Debug)]
pub struct Control {
    pub descriptor: Descriptor,
    path: PathBuf,
}

impl Control {
    /// Creates the socket of this process in a private folder, which it creates if necessary.
    pub fn create(folder: &Path, pid: u32) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let metadata = std::fs::symlink_metadata(folder)?;
        // SAFETY: only answers.
        let user = unsafe { libc::geteuid() };
        if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o077 != 0 {
            return Err(io::Error::other("the folder must belong to this user, with mode 0700"));
        }
        let path = folder.join(format!("{pid}.sock"));
        // A socket that an ended process of the same number left.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        let descriptor = Descriptor::new(File::from(OwnedFd::from(listener)))?;
        Ok(Self { descriptor, path })
    }

    /// Waits for a client, or for the end of the one that records; `None` once the socket is not ours any more.
    fn wait(&self, holder: Option<&Descriptor>) -> Option<Woken> {
        loop {
            let socket = self.descriptor.file(0)?;
            if let Some(holder) = holder {
                if has_left(holder) {
                    return Some(Woken::HolderLeft);
                }
                let client = holder.file(0).map_or(-1, |client| client.as_raw_fd());
                if !ready([socket.as_raw_fd(), client], LOOK_MS)[0] {
                    continue;
                }
            }
            // SAFETY: waits on the socket; no address is asked for.
            let number = unsafe {
                libc::accept4(
                    socket.as_raw_fd(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    libc::SOCK_CLOEXEC,
                )
            };
            if number >= 0 {
                // SAFETY: a new descriptor, which nobody else knows yet.
                return Descriptor::new(unsafe { File::from_raw_fd(number) }).ok().map(Woken::Client);
            }
            let error = io::Error::last_os_error();
            let again = [libc::EINTR, libc::ECONNABORTED, libc::EMFILE, libc::ENFILE];
            if !error.raw_os_error().is_some_and(|code| again.contains(&code)) {
                return None;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }

    /// Removes the socket.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns true once a client that only has to stay has left.
fn has_left(client: &Descriptor) -> bool {
    client.file(0).is_none_or(|socket| ready([socket.as_raw_fd()], 0)[0])
}

/// Waits until one of several sockets has something to read or is closed, and tells which.
fn ready<const N: usize>(sockets: [libc::c_int; N], limit_ms: libc::c_int) -> [bool; N] {
    let mut polled =
        sockets.map(|fd| libc::pollfd { fd, events: libc::POLLIN | libc::POLLRDHUP, revents: 0 });
    // SAFETY: reads and writes as many entries as there are.
    let count = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, limit_ms) };
    polled.map(|one| count > 0 && one.revents != 0)
}

/// Returns true if a client belongs to this user, and sets the time limits of its connection.
fn is_of_same_user(client: &Descriptor) -> bool {
    let Some(socket) = client.file(0) else {
        return false;
    };
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let patience = libc::timeval { tv_sec: PATIENCE, tv_usec: 0 };
    // SAFETY: reads the credentials of the peer into `peer`, whose length it is told, and sets two time limits.
    let (asked, user) = unsafe {
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const patience).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            );
        }
        let asked = libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        );
        (asked, libc::geteuid())
    };
    asked == 0 && peer.uid == user
}

/// Longest command, bytes.
const LONGEST: u64 = 64;

/// Command that stops the recording.
pub const DISARM: &str = "disarm";

/// Serves clients, one after another, until the program closes the socket. `answer` carries out their commands.
pub fn serve(control: &Control, answer: &dyn Fn(&str) -> String) {
    let mut holder = Holder { answer, connection: None };
    while let Some(woken) = control.wait(holder.connection.as_ref()) {
        match woken {
            Woken::HolderLeft => holder.release(),
            // A client that fails ends its own connection.
            Woken::Client(client)
                if is_of_same_user(&client) && talk(&client, &mut holder).unwrap_or(false) =>
            {
                holder.connection = Some(client);
            }
            Woken::Client(client) => client.close(),
        }
    }
    holder.release();
}

/// The client that has the right to record.
struct Holder<'a> {
    answer: &'a dyn Fn(&str) -> String,
    connection: Option<Descriptor>,
}

impl Holder<'_> {
    /// Stops the recording of a client that has left.
    fn release(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close();
            (self.answer)(DISARM);
        }
    }

    /// Returns true if a client has the right.
    fn is_there(&mut self) -> bool {
        if self.connection.as_ref().is_some_and(has_left) {
            self.release();
        }
        self.connection.is_some()
    }
}

/// A connection whose descriptor is checked before each use.
struct Client<'a>(&'a Descriptor);

impl Client<'_> {
    fn socket(&self) -> io::Result<std::mem::ManuallyDrop<File>> {
        self.0.file(0).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Read for Client<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket()?.read(buffer)
    }
}

/// Answers the commands of a client. Returns true if it has the right to record from now on.
fn talk(client: &Descriptor, holder: &mut Holder<'_>) -> io::Result<bool> {
    let mut lines = BufReader::new(Client(client));
    loop {
        let mut line = String::new();
        if lines.by_ref().take(LONGEST).read_line(&mut line)? == 0 {
            return Ok(false);
        }
        let command = line.trim();
        let holds = command == "hold" && !holder.is_there();
        let answer = match command {
            "hold" if holds => "ok held".to_owned(),
            "hold" => "error it is being captured already; wait until that capture has ended".to_owned(),
            _ => (holder.answer)(command),
        };
        // The program must not get SIGPIPE from us; our threads block all signals.
        Client(client).socket()?.write_all(format!("{answer}\n").as_bytes())?;
        if holds {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_folder_must_be_private() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("control");
        let control = Control::create(&folder, 7).unwrap();
        assert_eq!(folder.metadata().unwrap().mode() & 0o777, 0o700);
        assert!(folder.join("7.sock").exists());
        Control::create(&folder, 7).unwrap().descriptor.close();
        control.descriptor.close();
        control.remove();
        assert!(!folder.join("7.sock").exists());
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o750)).unwrap();
        assert!(Control::create(&folder, 7).is_err());
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        assert!(Control::create(&link, 7).is_err());
    }
}
