//! A short question to a tool (`--version`, `--help`), answered in memory.

use std::time::Duration;

use super::budget::Budget;
use super::job::{ChildError, Job, run};
use super::sink::Sink;
use super::stop::{Cancel, StopPlan};
use crate::command::CommandLine;

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// It ended by itself with status 0.
    pub ok: bool,
    /// How it ended, in words.
    pub how: String,
    /// Its output.
    pub stdout: String,
    /// Its error output.
    pub stderr: String,
}

impl Answer {
    /// Both streams, since tools disagree about where an answer belongs.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Asks a tool, and gives it `limit` to answer.
pub fn probe(command: &CommandLine, limit: Duration) -> Result<Answer, ChildError> {
    let memory = || Sink::Memory { cap: 4 << 20 };
    let mut job = Job::new(command, memory(), memory());
    job.budget = Budget {
        time: Some(limit),
        disk: None,
    };
    job.stop = StopPlan {
        interrupt: Duration::ZERO,
        terminate: Duration::from_secs(1),
        settle: Duration::from_millis(200),
    };
    job.cancel = Cancel::new();
    let outcome = run(job, &mut |_| {})?;
    Ok(Answer {
        ok: outcome.is_success(),
        how: outcome.describe(),
        stdout: outcome.stdout.tail,
        stderr: outcome.stderr.tail,
    })
}
