//! Exit status, resource usage and output of a finished child.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

/// Reason why a child ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum EndReason {
    /// The child exited by itself, with any status.
    #[serde(rename = "itself")]
    Exited,
    /// The watcher returned [`super::Watch::Stop`].
    #[serde(rename = "enough")]
    StoppedByWatcher,
    /// The time budget was exceeded.
    TimeBudget {
        /// Time limit, ns.
        limit_ns: u64,
    },
    /// The disk budget was exceeded.
    DiskBudget {
        /// Limit and usage.
        found: String,
    },
    /// The user cancelled.
    Cancelled,
}

/// CPU time and memory of a child and the descendants it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// CPU time in user mode, ns.
    pub user_ns: u64,
    /// CPU time in the kernel, ns.
    pub system_ns: u64,
    /// Largest resident set of any one process, bytes.
    pub max_rss_bytes: u64,
}

/// One output stream of a finished child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CapturedOutput {
    /// Path of the log file, if there is one.
    pub path: Option<PathBuf>,
    /// Bytes the child wrote.
    pub bytes: u64,
    /// Bytes left out of the middle to respect the size limit.
    pub left_out: u64,
    /// Last bytes of the stream, for messages.
    pub tail: String,
    /// Error that left the file incomplete, such as a full disk.
    pub write_error: Option<String>,
}

/// A process that outlived the child and was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Process id.
    pub pid: i32,
    /// Process name, as in `/proc/PID/stat`.
    pub name: String,
}

/// A process that loaded the CUDA driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuProcess {
    /// Process id.
    pub pid: i32,
    /// Process name, as in `/proc/PID/stat`.
    pub name: String,
}

/// Result of running a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Reason why the child ended.
    pub ended: EndReason,
    /// Exit status, if the child exited.
    pub code: Option<i32>,
    /// Number of the signal that killed the child, if one did.
    pub signal: Option<i32>,
    /// Start time (RFC 3339, UTC).
    pub started: String,
    /// End time (RFC 3339, UTC).
    pub finished: String,
    /// Wall time from before the start to the end.
    #[serde(rename = "wall_ns", serialize_with = "as_ns")]
    pub wall: Duration,
    /// CPU time and memory.
    pub usage: Usage,
    /// Standard output.
    pub stdout: CapturedOutput,
    /// Standard error.
    pub stderr: CapturedOutput,
    /// Processes that outlived the child.
    pub leftovers: Vec<Leftover>,
    /// Processes of the program that were seen with the CUDA driver loaded. One that lived for less than a few seconds may be
    /// missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_processes: Vec<GpuProcess>,
}

impl Outcome {
    /// Returns true when the child exited by itself with status 0. Its output files may still be missing.
    pub fn is_success(&self) -> bool {
        self.ended == EndReason::Exited && self.code == Some(0)
    }

    /// Returns the tail of stderr, or of stdout when stderr is empty.
    pub fn output_tail(&self) -> &str {
        let error = self.stderr.tail.trim_end();
        if error.is_empty() { self.stdout.tail.trim_end() } else { error }
    }

    /// Describes the end: `ended with status 3`, `was killed by signal 9 (SIGKILL)`, ...
    pub fn describe(&self) -> String {
        let how = match (self.code, self.signal) {
            // A shell or profiler in between reports a signal as 128 + its number.
            (Some(code), _) => match signal_name(code - 128) {
                "" => format!("ended with status {code}"),
                name => format!("ended with status {code}, as after signal {}{name}", code - 128),
            },
            (None, Some(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
            (None, None) => "ended without a status".to_owned(),
        };
        match &self.ended {
            EndReason::Exited => how,
            EndReason::StoppedByWatcher => format!("was stopped once enough was measured, and {how}"),
            EndReason::TimeBudget { limit_ns } => {
                let seconds = limit_ns / 1_000_000_000;
                format!("was stopped after its time budget of {seconds} s, and {how}")
            }
            EndReason::DiskBudget { found } => format!("was stopped because {found}, and {how}"),
            EndReason::Cancelled => format!("was interrupted, and {how}"),
        }
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

/// Converts to whole nanoseconds; saturates at 584 years.
pub fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
