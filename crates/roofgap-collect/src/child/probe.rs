//! A short question to a tool (`--version`, `--help`), answered in memory.

use std::time::Duration;

use super::budget::Budget;
use super::job::{ChildError, Job, run};
use super::outcome::Ended;
use super::sink::Sink;
use super::stop::{Cancel, StopPlan};
use crate::command::CommandLine;

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// It ended by itself with status 0.
    pub ok: bool,
    /// It ended by itself, with whatever status.
    pub itself: bool,
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

    /// What it said, short enough for a message: its first line, or that there is none.
    pub fn gist(&self) -> String {
        let text = self.text();
        let Some(line) = text.lines().map(str::trim).find(|line| !line.is_empty()) else {
            return "saying nothing".to_owned();
        };
        let plain = |c: &char| !c.is_control() && *c != char::REPLACEMENT_CHARACTER;
        let mut gist: String = line.chars().filter(plain).take(GIST).collect();
        if line.chars().nth(GIST).is_some() {
            gist.push_str("...");
        }
        format!("saying {gist:?}")
    }
}

/// Characters of an answer that a message quotes.
const GIST: usize = 160;

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
        itself: outcome.ended == Ended::Itself && outcome.code.is_some(),
        how: outcome.describe(),
        stdout: outcome.stdout.tail,
        stderr: outcome.stderr.tail,
    })
}
