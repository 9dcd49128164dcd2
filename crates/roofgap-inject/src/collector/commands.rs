//! The commands of the control socket, which turn the recording on and off from outside of the program.
//!
//! A client sends commands, one a line, and gets one line for each, which begins with `ok` or `error`. After `hold` the connection takes
//! no more commands: until it ends, no other client gets the same right, and when it ends, by the death of the client too, the
//! recording stops.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::atomic::Ordering;

use super::control::{Control, Woken, has_left, of_same_user};
use super::descriptor::Descriptor;
use super::session::Session;
use roofgap_wire::WindowCause;

/// Longest command, bytes.
const LONGEST: u64 = 64;

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Arm,
    Disarm,
    Status,
    Flush,
    Cut,
    Hold,
}

impl Command {
    fn parse(line: &str) -> Option<Self> {
        Some(match line.trim() {
            "arm" => Self::Arm,
            "disarm" => Self::Disarm,
            "status" => Self::Status,
            "flush" => Self::Flush,
            "cut" => Self::Cut,
            "hold" => Self::Hold,
            _ => return None,
        })
    }
}

/// Serves clients, one after another, until the program closes the socket.
pub fn serve(session: &'static Session, control: &Control) {
    let mut holder = Holder { session, connection: None };
    while let Some(woken) = control.wait(holder.connection.as_ref()) {
        match woken {
            Woken::HolderLeft => holder.release(),
            // A client that fails ends its own connection.
            Woken::Client(client) if of_same_user(&client) && talk(&client, &mut holder).unwrap_or(false) => {
                holder.connection = Some(client);
            }
            Woken::Client(client) => client.close(),
        }
    }
    holder.release();
}

/// The client that has the right to record.
struct Holder {
    session: &'static Session,
    connection: Option<Descriptor>,
}

impl Holder {
    /// Stops the recording of a client that has left.
    fn release(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close();
            self.session.withdraw(WindowCause::Request);
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
fn talk(client: &Descriptor, holder: &mut Holder) -> io::Result<bool> {
    let mut lines = BufReader::new(Client(client));
    loop {
        let mut line = String::new();
        if lines.by_ref().take(LONGEST).read_line(&mut line)? == 0 {
            return Ok(false);
        }
        let command = Command::parse(&line);
        let holds = command == Some(Command::Hold) && !holder.is_there();
        let answer = match command {
            Some(command) => answer(command, holds, holder.session),
            None => "error unknown command; use arm, disarm, status, flush, cut or hold".into(),
        };
        // The program must not get SIGPIPE from us; our threads block all signals.
        Client(client).socket()?.write_all(format!("{answer}\n").as_bytes())?;
        if holds {
            return Ok(true);
        }
    }
}

fn answer(command: Command, holds: bool, session: &'static Session) -> String {
    match command {
        Command::Hold if holds => "ok held".into(),
        Command::Hold => "error it is being captured already; wait until that capture has ended".into(),
        Command::Arm => match session.request() {
            Ok(()) => "ok armed".into(),
            Err(refused) => format!("error {refused}"),
        },
        Command::Disarm => {
            session.withdraw(WindowCause::Request);
            "ok dormant".into()
        }
        Command::Status => format!(
            "ok {} windows={} steps={} cupti={} file={}",
            if session.is_requested() { "armed" } else { "dormant" },
            session.switch.windows(),
            session.steps.load(Ordering::Relaxed),
            if session.gpu().is_some() { "loaded" } else { "none" },
            session.file.display(),
        ),
        Command::Flush if session.flush_now() => "ok flushed".into(),
        Command::Cut if session.cut_now() => "ok cut".into(),
        Command::Flush | Command::Cut => "error the writer did not answer".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_single_words() {
        assert_eq!(Command::parse("arm\n"), Some(Command::Arm));
        assert_eq!(Command::parse(" disarm \r\n"), Some(Command::Disarm));
        assert_eq!(Command::parse("status"), Some(Command::Status));
        assert_eq!(Command::parse("flush"), Some(Command::Flush));
        assert_eq!(Command::parse("cut"), Some(Command::Cut));
        assert_eq!(Command::parse("hold"), Some(Command::Hold));
        for line in ["", "ARM", "arm now", "armed"] {
            assert_eq!(Command::parse(line), None, "{line}");
        }
    }
}
