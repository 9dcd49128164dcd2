//! `roofgap try`: tries the actions of findings.

use super::profile::Progress;
use super::signals::cancel_on_signal;
use super::{answer, session};
use crate::args::Try;
use crate::printer::Printer;
use roofgap_analyze::{TRY_SCHEMA, TrialVerdict, Trials};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::child::cancel_probes_with;
use roofgap_record::trial::{self, TrialEvent, TrialProps, text};
use roofgap_report::{time, tried_text};
use roofgap_runs::config::{ConfigProps, compose};
use roofgap_runs::run_dir::{Layout, PhaseName, resolve};
use std::io::{BufRead, IsTerminal, stderr, stdin};
use std::path::PathBuf;

pub fn run(args: Try, printer: &Printer) -> Result<Exit, Error> {
    let screen = printer.screen();
    let Some(wanted) = args.run.as_ref().filter(|_| !args.history) else {
        let base = args.run.map_or(args.base.dir, PathBuf::from);
        let history = trial::collect_history(&base)?;
        answer(&history, |history| text::history(history, screen), args.format, printer)?;
        return Ok(Exit::Done);
    };
    let mut run = resolve(&args.base.dir, wanted)?;
    // The commands of the result work in any folder.
    run.path = std::path::absolute(&run.path).unwrap_or(run.path);
    let config = ConfigProps { config: Some(Layout::of(&run.path).config()), ..ConfigProps::default() };
    let props = TrialProps {
        session: session(compose(&config)?)?,
        run,
        findings: args.findings,
        all: args.all,
        env: args.env,
        budget: args.budget.0,
        repeats: args.repeats,
        accept_changed_output: args.accept_changed_output,
    };
    let plan = trial::plan(&props)?;
    if args.dry_run {
        answer(&plan, |plan| text::plan(plan, screen), args.format, printer)?;
        return Ok(Exit::Done);
    }
    printer.progress(&text::plan(&plan, screen));
    if !args.yes && !consent(printer)? {
        return Ok(Exit::Done);
    }
    let cancel = cancel_on_signal()?;
    cancel_probes_with(&cancel);
    let mut watched = Progress::new(PhaseName::ALL);
    let outcome = trial::run(&props, &plan, &cancel, &mut |event| {
        print(&event, &mut watched, printer);
    })?;
    let reason = outcome.trial.reason.clone();
    let trials = Trials { schema: TRY_SCHEMA.to_owned(), run_id: plan.run_id, trials: vec![outcome.trial] };
    answer(&trials, |trials| tried_text(trials, screen), args.format, printer)?;
    if let Some(reason) = &reason {
        printer.warning(reason);
    }
    printer.progress(&format_args!("result: {}", outcome.path.display()));
    Ok(outcome.exit)
}

/// Asks whether to start.
fn consent(printer: &Printer) -> Result<bool, Error> {
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return Err(Error::new("the runs take time; --yes starts them without asking")
            .with_hint("`--dry-run` prints the plan and its cost"));
    }
    printer.question("start? [y/N] ");
    let mut answer = String::new();
    // Without an answer nothing starts.
    let _ = stdin().lock().read_line(&mut answer);
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Prints the progress of a trial.
fn print(event: &TrialEvent<'_>, watched: &mut Progress<'_>, printer: &Printer) {
    match event {
        TrialEvent::RunBegins { label, pair } => printer.status_line(&format!("pair {pair}: {label}")),
        TrialEvent::Tick { label, pair, elapsed } => {
            let elapsed = i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX);
            printer.status_line(&format!("pair {pair}: {label} ... {}", time(elapsed)));
        }
        TrialEvent::RunEnds { label, pair, time: (of, ns) } => {
            printer.status_line("");
            printer.progress(&format_args!("pair {pair}: {label}: {of} {}", time(*ns)));
        }
        TrialEvent::RunFails { label, why } => {
            printer.status_line("");
            printer.progress(&format_args!("{label}: failed: {why}"));
        }
        TrialEvent::RowEnds(row) => {
            let verdict = match row.verdict {
                // What is kept is decided when all are measured.
                TrialVerdict::Faster => "faster",
                verdict => verdict.word(),
            };
            printer.progress(&format_args!("{}: {verdict}", row.knobs.join(" + ")));
        }
        TrialEvent::Watched(event) => watched.print(event, printer),
    }
}
