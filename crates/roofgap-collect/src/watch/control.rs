//! Commands to the collector inside a process.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
