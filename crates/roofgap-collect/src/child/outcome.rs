//! What came of a child.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use serde::Serialize;

/// Why a child is no longer running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Ended {
    /// It ended by itself, well or badly; the exit status says which.
    Itself,
    /// The watcher had seen enough and it was ended.
    Enough,
    /// It used up its time.
    TimeBudget {
        /// The time it had.
        limit_ns: u64,
    },
    /// It used up its room on the disk.
    DiskBudget {
        /// What was found.
        found: String,
    },
    /// The user asked for the end.
    Cancelled,
}

/// Processor time and memory of a child and of the descendants it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Time in user mode.
    pub user_ns: u64,
    /// Time in the kernel.
    pub system_ns: u64,
    /// The largest resident set of any one process.
    pub max_rss_bytes: u64,
}

/// One stream of a child's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogFacts {
    /// The file it is in, where it went to one.
    pub path: Option<PathBuf>,
    /// What the child wrote.
    pub bytes: u64,
    /// What the file leaves out of its middle, so that it stays within its cap.
    pub left_out: u64,
    /// The end of it, at most a few kilobytes, for messages.
    pub tail: String,
    /// Why the file is not whole, where writing it failed (a full disk, for one).
    pub write_error: Option<String>,
}

/// A process the child left behind, and which was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Its id.
    pub pid: i32,
    /// Its name as the kernel has it.
    pub name: String,
}

/// What came of a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Why it is no longer running.
    pub ended: Ended,
    /// Its exit status, where it ended with one.
    pub code: Option<i32>,
    /// The signal that ended it, where one did.
    pub signal: Option<i32>,
    /// When it started (RFC 3339, UTC).
    pub started: String,
    /// When it ended (RFC 3339, UTC).
    pub finished: String,
    /// How long it ran, from before its start to its end.
    #[serde(rename = "wall_ns", serialize_with = "as_ns")]
    pub wall: Duration,
    /// Processor time and memory.
    pub usage: Usage,
    /// Its standard output.
    pub stdout: LogFacts,
    /// Its standard error.
    pub stderr: LogFacts,
    /// What it left behind.
    pub leftovers: Vec<Leftover>,
}

impl Outcome {
    /// It ended by itself with status 0. This says nothing about whether it left what was asked of it.
    pub fn is_success(&self) -> bool {
        self.ended == Ended::Itself && self.code == Some(0)
    }

    /// The end of its error output, or of its output where that is empty.
    pub fn last_words(&self) -> &str {
        let error = self.stderr.tail.trim_end();
        if error.is_empty() {
            self.stdout.tail.trim_end()
        } else {
            error
        }
    }

    /// How it ended, in words: `ended with status 3`, `was killed by signal 9 (SIGKILL)`, ...
    pub fn describe(&self) -> String {
        let how = match (self.code, self.signal) {
            (Some(code), _) => format!("ended with status {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
            (None, None) => "ended without a status".to_owned(),
        };
        match &self.ended {
            Ended::Itself => how,
            Ended::Enough => format!("was ended because enough was seen, and {how}"),
            Ended::TimeBudget { limit_ns } => {
                format!(
                    "was ended after its time budget of {} s, and {how}",
                    limit_ns / 1_000_000_000
                )
            }
            Ended::DiskBudget { found } => format!("was ended because {found}, and {how}"),
            Ended::Cancelled => format!("was interrupted, and {how}"),
        }
    }

    pub(crate) fn split(status: ExitStatus) -> (Option<i32>, Option<i32>) {
        (status.code(), status.signal())
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        2 => " (SIGINT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

fn as_ns<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(ns(*time))
}

/// Whole nanoseconds; 584 years is where it stops counting.
pub(crate) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
