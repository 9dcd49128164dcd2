//! Progress of a session: the phase, its number, the time elapsed and the time expected.

use crate::printer::Printer;
use roofgap_record::run::Event;
use roofgap_runs::run_dir::{PhaseName, PhaseStatus};
use std::time::Duration;

/// Progress of a session.
pub struct Progress<'a> {
    /// Phases of the session, in order.
    phases: &'a [PhaseName],
    /// Time that the current phase can be expected to take.
    expected: Option<String>,
}

impl<'a> Progress<'a> {
    /// Starts with no phase.
    pub fn new(phases: &'a [PhaseName]) -> Self {
        Self { phases, expected: None }
    }

    /// Prints an event. Elapsed time is shown on a terminal only.
    pub fn print(&mut self, event: &Event<'_>, printer: &Printer) {
        match event {
            Event::Started { run_id, path } => {
                printer.progress(&format_args!("run {run_id} in {}", path.display()));
            }
            Event::PhaseBegins { phase, expected } => {
                self.expected.clone_from(expected);
                printer.status_line(&self.line(*phase, None, false));
            }
            Event::CommandBegins { phase, line } => printer.detail(&format_args!("{phase}: {line}")),
            Event::Tick { phase, elapsed, stopping } => {
                printer.status_line(&self.line(*phase, Some(*elapsed), *stopping))
            }
            Event::Warning(text) => {
                printer.status_line("");
                printer.warning(text);
            }
            Event::ProgramFailed { phase, why, log_tail } => {
                printer.status_line("");
                printer.warning(&format_args!("{phase}: {why}{}", quoted(log_tail)));
            }
            Event::PhaseEnds { phase, status } => {
                printer.status_line("");
                let word = printer.word(status.word());
                let line = match status {
                    PhaseStatus::Skipped { why } => format!("{phase}: {word}: {why}"),
                    PhaseStatus::Failed { why, log_tail } => {
                        let tail = quoted(log_tail.as_deref().unwrap_or_default());
                        format!("{phase}: {word}: {why}{tail}")
                    }
                    _ => format!("{phase}: {word}"),
                };
                printer.progress(&line);
            }
        }
    }

    /// Formats the line of a running phase, such as `3 of 8: timeline ... 12 s, about 15.0 s without a profiler`.
    fn line(&self, phase: PhaseName, elapsed: Option<Duration>, stopping: bool) -> String {
        let mut line = match self.phases.iter().position(|known| *known == phase) {
            Some(at) => format!("{} of {}: {phase} ...", at + 1, self.phases.len()),
            None => format!("{phase} ..."),
        };
        if let Some(elapsed) = elapsed {
            line.push_str(&format!(" {:.0} s", elapsed.as_secs_f64()));
        }
        if stopping {
            line.push_str(", stopping");
        } else if let Some(expected) = &self.expected {
            line.push_str(&format!(", {expected}"));
        }
        line
    }
}

/// Lines of a log that a message quotes.
const QUOTED_LINES: usize = 20;

/// Formats the last lines of a log, each on a line of its own.
fn quoted(log: &str) -> String {
    let lines: Vec<&str> = log.trim_end().lines().collect();
    let last = lines.get(lines.len().saturating_sub(QUOTED_LINES)..).unwrap_or_default();
    last.iter().map(|line| format!("\n  | {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Progress, quoted};
    use roofgap_runs::run_dir::PhaseName;
    use std::time::Duration;

    #[test]
    fn a_line_has_the_phase_its_number_and_the_times() {
        let mut progress = Progress::new(PhaseName::ALL);
        assert_eq!(progress.line(PhaseName::Timeline, None, false), "3 of 8: timeline ...");
        progress.expected = Some("12.3 s without a profiler".to_owned());
        assert_eq!(
            progress.line(PhaseName::Timeline, Some(Duration::from_secs(4)), false),
            "3 of 8: timeline ... 4 s, 12.3 s without a profiler"
        );
        assert_eq!(
            progress.line(PhaseName::Counters, Some(Duration::from_secs(9)), true),
            "6 of 8: counters ... 9 s, stopping"
        );
    }

    #[test]
    fn the_last_twenty_lines_are_quoted() {
        let log: String = (0..30).map(|line| format!("line {line}\n")).collect();
        let text = quoted(&log);
        assert!(text.starts_with("\n  | line 10\n"), "{text}");
        assert!(text.ends_with("\n  | line 29"), "{text}");
        assert_eq!(quoted(""), "");
    }
}
