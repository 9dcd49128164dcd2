//! `roofgap profile`.

use super::config::composed;
use crate::args::Profile;
use crate::failure::Failure;
use crate::printer::Printer;
use roofgap_collect::child::Cancel;
use roofgap_report::text;
use roofgap_session::record::PhaseStatus;
use roofgap_session::session::{Event, ProfileProps, dry_run, profile};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::PathBuf;

pub(super) fn run(args: Profile, printer: &Printer) -> Result<u8, Failure> {
    let executable = std::env::current_exe()
        .map_err(|e| Failure::Usage(format!("cannot tell where this program lies: {e}")))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let props = ProfileProps {
        composed: composed(args.composition, args.program)?,
        command_line: std::env::args_os()
            .map(|a| a.to_string_lossy().into_owned())
            .collect(),
        executable,
        version: env!("CARGO_PKG_VERSION").into(),
        search_path: std::env::split_paths(&path).collect::<Vec<PathBuf>>(),
        native: roofgap_session::native::library(),
    };
    if args.dry_run {
        return dry(&props, printer);
    }
    let outcome = profile(&props, &cancel()?, &mut |event| tell(&event, printer))?;
    if let Ok(rendered) = std::fs::read(outcome.run_dir.join("metrics.json"))
        && let Ok(analysis) = serde_json::from_slice(&rendered)
    {
        let look = text::TextOptions {
            color: printer.color(),
            ..text::TextOptions::default()
        };
        printer
            .answer(&text::render(&analysis, look))
            .map_err(Failure::Print)?;
    }
    for missing in &outcome.record.missing {
        printer.warning(&format_args!("missing: {missing}"));
    }
    printer
        .answer(&format!("\nbundle: {}\n", outcome.run_dir.display()))
        .map_err(Failure::Print)?;
    Ok(outcome.exit.code())
}

/// Ctrl-C and a polite kill ask the session to end; a second one forces its children, a third one ends this program.
pub(super) fn cancel() -> Result<Cancel, Failure> {
    let cancel = Cancel::new();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|e| Failure::Bug(format!("cannot handle signals: {e}")))?;
    let asked = cancel.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if asked.is_forced() {
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            asked.request();
        }
    });
    Ok(cancel)
}

fn dry(props: &ProfileProps, printer: &Printer) -> Result<u8, Failure> {
    let plan = dry_run(props)?;
    let mut out = String::new();
    for (phase, remark) in &plan.remarks {
        out.push_str(&format!("# {phase}: {remark}\n"));
    }
    for (phase, command) in &plan.commands {
        out.push_str(&format!("# {phase}\n{command}\n"));
    }
    printer.answer(&out).map_err(Failure::Print)?;
    Ok(0)
}

/// What a session tells, as lines; the running time of a command only on a terminal.
fn tell(event: &Event<'_>, printer: &Printer) {
    match event {
        Event::Started { run_id, path } => {
            printer.progress(&format_args!("run {run_id} in {}", path.display()));
        }
        Event::PhaseBegins(phase) => printer.tick(&format!("{phase} ...")),
        Event::CommandBegins { phase, line } => printer.detail(&format_args!("{phase}: {line}")),
        Event::Tick {
            phase,
            elapsed,
            stopping,
        } => {
            let word = if *stopping { ", ending" } else { "" };
            printer.tick(&format!("{phase} ... {:.0} s{word}", elapsed.as_secs_f64()));
        }
        Event::Warning(text) => {
            printer.tick("");
            printer.warning(text);
        }
        Event::PhaseEnds { phase, status } => {
            printer.tick("");
            let line = match status {
                PhaseStatus::Skipped { why } => format!("{phase}: skipped: {why}"),
                PhaseStatus::Failed { why, .. } => format!("{phase}: failed: {why}"),
                other => format!("{phase}: {}", other.word()),
            };
            printer.progress(&line);
        }
    }
}
