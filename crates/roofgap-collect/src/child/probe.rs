//! A short query to a tool (`--version`, `--help`), answered in memory.

use std::sync::OnceLock;
use std::time::Duration;

use super::budget::Budget;
use super::outcome::EndReason;
use super::output::OutputTarget;
use super::run::{ChildError, ChildSpec, run};
use super::shutdown::{Cancel, StopPlan};
use crate::command::CommandLine;

/// Output of a tool that was queried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOutput {
    /// The tool exited by itself with status 0.
    pub success: bool,
    /// The tool exited by itself, with any status.
    pub exited: bool,
    /// Description of the end, such as `ended with status 1`.
    pub ended: String,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl ProbeOutput {
    /// Returns both streams: tools disagree on where an answer belongs.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Returns the first line, shortened and quoted for a message.
    pub fn summary(&self) -> String {
        let text = self.text();
        let Some(line) = text.lines().map(str::trim).find(|line| !line.is_empty()) else {
            return "no output".to_owned();
        };
        let plain = |c: &char| !c.is_control() && *c != char::REPLACEMENT_CHARACTER;
        let mut summary: String = line.chars().filter(plain).take(SUMMARY_CHARS).collect();
        if line.chars().nth(SUMMARY_CHARS).is_some() {
            summary.push_str("...");
        }
        format!("output {summary:?}")
    }
}

/// Characters of the output that a message quotes.
const SUMMARY_CHARS: usize = 160;

/// Cancellation flag of all probes.
static CANCEL: OnceLock<Cancel> = OnceLock::new();

/// Lets `cancel` end all probes of this process. Only the first call has an effect.
pub fn cancel_probes_with(cancel: &Cancel) {
    let _ = CANCEL.set(cancel.clone());
}

/// Runs a command for at most `limit` and returns its output.
pub fn probe(command: &CommandLine, limit: Duration) -> Result<ProbeOutput, ChildError> {
    let memory = || OutputTarget::Memory { max_bytes: 4 << 20 };
    let mut spec = ChildSpec::new(command, memory(), memory());
    spec.cancel = CANCEL.get().cloned().unwrap_or_default();
    spec.budget = Budget { time: Some(limit), disk: None };
    spec.stop = StopPlan {
        interrupt: Duration::ZERO,
        report: Duration::ZERO,
        terminate: Duration::from_secs(1),
        settle: Duration::from_millis(200),
    };
    let outcome = run(spec, &mut |_| {})?;
    Ok(ProbeOutput {
        success: outcome.is_success(),
        exited: outcome.ended == EndReason::Exited && outcome.code.is_some(),
        ended: outcome.describe(),
        stdout: outcome.stdout.tail,
        stderr: outcome.stderr.tail,
    })
}
