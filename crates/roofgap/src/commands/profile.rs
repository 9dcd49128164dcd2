//! `roofgap profile`: runs a session.

use super::signals::cancel_on_signal;
use crate::args::{Format, Profile};
use crate::failure::Failure;
use crate::printer::Printer;
use roofgap_collect::child::cancel_probes_with;
use roofgap_collect::command::word_text;
use roofgap_report::text;
use roofgap_session::config::compose;
use roofgap_session::config::settings::WorkloadKind;
use roofgap_session::exit::Exit;
use roofgap_session::run::{Event, Outcome, ProfileAnswer, ProfileProps, dry_run, profile};
use roofgap_session::run_dir::{Layout, PhaseStatus};
use std::path::PathBuf;

pub(super) fn run(args: Profile, printer: &Printer) -> Result<Exit, Failure> {
    let executable = std::env::current_exe().map_err(Failure::Executable)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let props = ProfileProps {
        composed: compose(&args.composition.props(&args.program))?,
        command_line: std::env::args_os().map(|word| word_text(&word)).collect(),
        executable,
        version: env!("CARGO_PKG_VERSION").into(),
        search_path: std::env::split_paths(&path).collect::<Vec<PathBuf>>(),
        native: roofgap_session::run::native::library(),
    };
    if args.dry_run {
        return print_plan(&props, printer);
    }
    let cancel = cancel_on_signal()?;
    cancel_probes_with(&cancel);
    let outcome = profile(&props, &cancel, &mut |event| print_event(&event, printer)).map_err(|error| {
        if cancel.is_requested() {
            Failure::Interrupted
        } else {
            error.into()
        }
    })?;
    print_outcome(&outcome, args.format, printer)
}

/// Prints the result of a session: the analysis as text, or the run as JSON.
pub(super) fn print_outcome(outcome: &Outcome, format: Format, printer: &Printer) -> Result<Exit, Failure> {
    for missing in &outcome.record.missing {
        printer.warning(&format_args!("missing: {missing}"));
    }
    if format == Format::Json {
        let answer = serde_json::to_string_pretty(&ProfileAnswer::of(outcome))?;
        printer.document(&format!("{answer}\n"))?;
        return Ok(outcome.exit);
    }
    if let Ok(rendered) = roofgap_collect::file::read_document(&outcome.run_dir.join("metrics.json"))
        && let Ok(analysis) = serde_json::from_slice(&rendered)
    {
        let look = text::TextOptions {
            color: printer.color(),
            ..text::TextOptions::default()
        };
        printer.text(&text::render(&analysis, look))?;
    }
    printer.text(&format!("\nbundle: {}\n", outcome.run_dir.display()))?;
    let page = Layout::of(&outcome.run_dir).page();
    if page.is_file() {
        printer.text(&format!("page: {}\n", page.display()))?;
    }
    if outcome.record.workload == WorkloadKind::Embedded.as_str() {
        printer.progress(
            &"the embedded model runs on the CPU; `roofgap demo` shows what a capture of a GPU has",
        );
    }
    Ok(outcome.exit)
}

/// Prints the commands that a session would run.
fn print_plan(props: &ProfileProps, printer: &Printer) -> Result<Exit, Failure> {
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

/// Prints an event of a session. Elapsed time is shown on a terminal only.
pub(super) fn print_event(event: &Event<'_>, printer: &Printer) {
    match event {
        Event::Started { run_id, path } => {
            printer.progress(&format_args!("run {run_id} in {}", path.display()));
        }
        Event::PhaseBegins(phase) => printer.status_line(&format!("{phase} ...")),
        Event::CommandBegins { phase, line } => printer.detail(&format_args!("{phase}: {line}")),
        Event::Tick {
            phase,
            elapsed,
            stopping,
        } => {
            let word = if *stopping { ", stopping" } else { "" };
            printer.status_line(&format!("{phase} ... {:.0} s{word}", elapsed.as_secs_f64()));
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
            let line = match status {
                PhaseStatus::Skipped { why } => format!("{phase}: skipped: {why}"),
                PhaseStatus::Failed { why, log_tail } => {
                    let tail = quoted(log_tail.as_deref().unwrap_or_default());
                    format!("{phase}: failed: {why}{tail}")
                }
                other => format!("{phase}: {}", other.word()),
            };
            printer.progress(&line);
        }
    }
}

/// Lines of a log that a message quotes.
const QUOTED_LINES: usize = 20;

/// Formats the last lines of a log, each on a line of its own.
fn quoted(log: &str) -> String {
    let lines: Vec<&str> = log.trim_end().lines().collect();
    let last = lines
        .get(lines.len().saturating_sub(QUOTED_LINES)..)
        .unwrap_or_default();
    last.iter().map(|line| format!("\n  | {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn the_last_twenty_lines_are_quoted() {
        let log: String = (0..30).map(|line| format!("line {line}\n")).collect();
        let text = quoted(&log);
        assert!(text.starts_with("\n  | line 10\n"), "{text}");
        assert!(text.ends_with("\n  | line 29"), "{text}");
        assert_eq!(quoted(""), "");
    }
}
