//! `roofgap profile`: runs a session, and prints the progress of any: the phase, its number, the time elapsed and the time expected.

use super::session;
use super::signals::cancel_on_signal;
use crate::args::{Format, Profile};
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::child::cancel_probes_with;
use roofgap_record::run::{Event, Outcome, ProfileAnswer, ProfileProps, SharedRunOutcome, dry_run, profile};
use roofgap_report::{json, text};
use roofgap_runs::config::compose;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::run_dir::{Layout, PhaseName, PhaseStatus};
use std::path::Path;
use std::time::Duration;

pub fn run(args: Profile, dir: Option<&Path>, printer: &Printer) -> Result<Exit, Error> {
    let props = session(compose(&args.composition.props(&args.program, dir))?)?;
    for note in &props.composed.notes {
        printer.progress(&format_args!("note: {note}"));
    }
    if args.dry_run {
        return print_plan(&props, printer);
    }
    let cancel = cancel_on_signal()?;
    cancel_probes_with(&cancel);
    let mut progress = Progress::new(PhaseName::ALL);
    let outcome = profile(&props, &cancel, &mut |event| progress.print(&event, printer)).map_err(
        |error| match cancel.is_requested() {
            true => Error::new("interrupted before the run started").with_exit(Exit::Interrupted),
            false => error,
        },
    )?;
    print_outcome(&outcome, printer)
}

/// Prints the result of a session: the analysis as text, or the run as JSON.
pub fn print_outcome(outcome: &Outcome, printer: &Printer) -> Result<Exit, Error> {
    for missing in &outcome.record.missing {
        printer.warning(&format_args!("missing: {missing}"));
    }
    for problem in outcome.shared_run.iter().flat_map(|shared| &shared.problems) {
        printer.warning(&format_args!("job: {problem}"));
    }
    if printer.format() == Format::Json {
        printer.document(&json::pretty(&ProfileAnswer::of(outcome)))?;
        return Ok(outcome.exit);
    }
    if let Some(analysis) = &outcome.analysis {
        printer.text(&text::brief(analysis, printer.text_options(0)))?;
    }
    printer.text(&format!("\nbundle: {}\n", outcome.run_dir.display()))?;
    let page = Layout::of(&outcome.run_dir).page();
    if page.is_file() {
        printer.text(&format!("page: {}\n", page.display()))?;
    }
    if let Some(shared) = &outcome.shared_run {
        printer.text(&format!("{}\n", shared_run_line(shared)))?;
    }
    if outcome.record.workload == WorkloadKind::Embedded.as_str() {
        printer.progress(
            &"the embedded model runs on the CPU; `roofgap demo` shows what a capture of a GPU has",
        );
    }
    Ok(outcome.exit)
}

/// Says where the run of several nodes is, or who writes it.
fn shared_run_line(shared: &SharedRunOutcome) -> String {
    let path = shared.path.display();
    if shared.under_way.is_empty() {
        return format!("job: {path}, {} sessions", shared.nodes);
    }
    let waiting = shared.under_way.join(", ");
    format!(
        "job: {path} is not written yet; in progress of its {} sessions: {waiting}. The last to end writes it, or `roofgap report {path}`",
        shared.nodes
    )
}

/// Prints the commands that a session would run.
fn print_plan(props: &ProfileProps, printer: &Printer) -> Result<Exit, Error> {
    let plan = dry_run(props)?;
    let mut out = String::new();
    for (phase, remark) in &plan.remarks {
        out.push_str(&format!("# {phase}: {remark}\n"));
    }
    for (phase, command) in &plan.commands {
        out.push_str(&format!("# {phase}\n{command}\n"));
    }
    printer.text(&out)?;
    Ok(Exit::Done)
}

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
    use super::*;

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
