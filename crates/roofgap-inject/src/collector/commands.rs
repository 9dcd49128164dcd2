//! The commands of the control socket, which turn the recording on and off from outside of the program.
//!
//! A client sends commands, one a line, and gets one line for each, which begins with `ok` or `error`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::atomic::Ordering;

use super::control::{Control, of_same_user};
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
}

impl Command {
    fn parse(line: &str) -> Option<Self> {
        Some(match line.trim() {
            "arm" => Self::Arm,
            "disarm" => Self::Disarm,
            "status" => Self::Status,
            "flush" => Self::Flush,
            "cut" => Self::Cut,
            _ => return None,
        })
    }
}

/// Serves clients, one after another, until the program closes the socket.
pub fn serve(session: &'static Session, control: &Control) {
    while let Some(client) = control.accept() {
        if of_same_user(&client) {
            // A client that fails ends its own connection.
            let _ = talk(&client, session);
        }
        client.close();
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

fn talk(client: &Descriptor, session: &'static Session) -> io::Result<()> {
    let mut lines = BufReader::new(Client(client));
    loop {
        let mut line = String::new();
        if lines.by_ref().take(LONGEST).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let answer = match Command::parse(&line) {
            Some(command) => answer(command, session),
            None => "error unknown command; use arm, disarm, status, flush or cut".into(),
        };
        // The program must not get SIGPIPE from us; our threads block all signals.
        Client(client).socket()?.write_all(format!("{answer}\n").as_bytes())?;
    }
}

fn answer(command: Command, session: &'static Session) -> String {
    match command {
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
        for line in ["", "ARM", "arm now", "armed"] {
            assert_eq!(Command::parse(line), None, "{line}");
        }
    }
}
