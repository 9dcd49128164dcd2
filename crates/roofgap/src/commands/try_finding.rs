//! `roofgap try`: tries the actions of findings. `roofgap tune`: searches for changes that improve a goal.

use super::profile::Progress;
use super::signals::cancel_on_signal;
use super::{answer, session};
use crate::args::{Format, TrialOptions, Try, Tune, TuneCheck};
use crate::printer::Printer;
use roofgap_analyze::{Goal, MeasuredTime, TRY_SCHEMA, Trials};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::read_text;
use roofgap_collect::child::cancel_probes_with;
use roofgap_record::run::{ProfileProps, profile};
use roofgap_record::trial::{self, SearchProps, TrialEvent, TrialProps, search, text};
use roofgap_report::tried_text;
use roofgap_runs::config::{ConfigProps, compose, read_space};
use roofgap_runs::run_dir::{Layout, PhaseName, RunRef, resolve};
use std::io::{BufRead, IsTerminal, stderr, stdin};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub fn run(args: Try, printer: &Printer) -> Result<Exit, Error> {
    let options = args.options;
    let Some(wanted) = args.run.as_ref().filter(|_| !args.history) else {
        let base = args.run.map_or(options.base.dir, PathBuf::from);
        return answer(&trial::collect_history(&base)?, text::history, options.format, printer);
    };
    let run = resolve(&options.base.dir, wanted)?;
    let props = TrialProps {
        findings: args.findings,
        all: args.all,
        env: args.env,
        repeats: args.repeats,
        ..trial_props(run, &options)?
    };
    carry_out(&props, &options, printer)
}

pub fn tune(args: Tune, printer: &Printer) -> Result<Exit, Error> {
    if let Some(TuneCheck::Verify { file, run, format }) = args.check {
        return verify(&file, run, format, printer);
    }
    let (wanted, options) = (args.run.unwrap_or_default(), args.options);
    if !args.least.is_finite() || args.least < 1.0 {
        return Err(Error::new("--least is a ratio of at least 1, such as 1.02"));
    }
    let of_request = |(of, _): &(MeasuredTime, Duration)| *of == MeasuredTime::Request;
    if args.goal == Goal::Goodput && (args.limits.is_empty() || args.limits.iter().any(of_request)) {
        return Err(Error::new("the goal goodput needs --limit ttft=TIME or tpot=TIME, and knows no others"));
    }
    let space = match &args.space {
        Some(file) => read_space(&read_text(file).map_err(Error::io("read", file))?, file)?,
        None => Vec::new(),
    };
    let config = PathBuf::from(&wanted);
    let is_config = config.is_file() && config.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let run = if is_config && !options.dry_run {
        let props = ConfigProps { config: Some(config), ..ConfigProps::default() };
        let mut progress = Progress::new(PhaseName::ALL);
        let cancel = cancel_on_signal()?;
        let outcome =
            profile(&session(compose(&props)?)?, &cancel, &mut |event| progress.print(&event, printer))?;
        if matches!(outcome.exit, Exit::Interrupted | Exit::ProgramFailed) {
            return Ok(outcome.exit);
        }
        RunRef::at(&outcome.run_dir)
    } else if is_config {
        return Err(Error::new(
            "a configuration is profiled before it has a plan; leave out --dry-run, or give a run",
        ));
    } else {
        resolve(&options.base.dir, &wanted)?
    };
    let props = TrialProps {
        all: space.is_empty(),
        search: Some(SearchProps {
            goal: args.goal,
            limits: args.limits,
            space,
            max_memory_bytes: args.max_memory.map(|size| size.0),
            least_ratio: args.least,
            accepts_proposals: args.accept_proposals,
        }),
        ..trial_props(run, &options)?
    };
    carry_out(&props, &options, printer)
}

/// Returns the properties of a trial of no changes.
fn trial_props(run: RunRef, options: &TrialOptions) -> Result<TrialProps, Error> {
    Ok(TrialProps {
        session: session_of(&run.path)?,
        run: absolute(run),
        findings: Vec::new(),
        all: false,
        env: Vec::new(),
        budget: options.budget.0,
        repeats: 2,
        accept_changed_output: options.accept_changed_output,
        search: None,
    })
}

/// Makes the session of the workload of a run.
fn session_of(run: &Path) -> Result<ProfileProps, Error> {
    session(compose(&ConfigProps { config: Some(Layout::of(run).config()), ..ConfigProps::default() })?)
}

/// Makes the commands of the result work in any folder.
fn absolute(run: RunRef) -> RunRef {
    RunRef { path: std::path::absolute(&run.path).unwrap_or(run.path), ..run }
}

/// Checks a record of `roofgap tune`.
fn verify(file: &Path, again: bool, format: Format, printer: &Printer) -> Result<Exit, Error> {
    let file = if file.is_dir() { Layout::of(file).search() } else { file.to_owned() };
    let run = RunRef::at(file.parent().unwrap_or(&file));
    let here = Layout::of(&run.path).config().is_file();
    let session = if here { session_of(&run.path)? } else { session(compose(&ConfigProps::default())?)? };
    let (trial, mut verified) = trial::verify(&file, &session)?;
    if again {
        let cancel = cancel_on_signal()?;
        cancel_probes_with(&cancel);
        let mut watched = Progress::new(PhaseName::ALL);
        let events = &mut |event: TrialEvent<'_>| print(&event, &mut watched, printer);
        verified.again = Some(search::measure_again(&trial, absolute(run), &session, &cancel, events)?);
    }
    let exit = if verified.problems.is_empty() { Exit::Done } else { Exit::GateBroken };
    answer(&verified, |verified, _| text::verified(verified), format, printer)?;
    Ok(exit)
}

/// Plans and runs a trial.
fn carry_out(props: &TrialProps, options: &TrialOptions, printer: &Printer) -> Result<Exit, Error> {
    let plan = trial::plan(props)?;
    if options.dry_run {
        return answer(&plan, text::plan, options.format, printer);
    }
    printer.progress(&text::plan(&plan, printer.screen()));
    if !options.yes && !consent(printer)? {
        return Ok(Exit::Done);
    }
    let cancel = cancel_on_signal()?;
    cancel_probes_with(&cancel);
    let mut watched = Progress::new(PhaseName::ALL);
    let outcome = trial::run(props, &plan, &cancel, &mut |event| {
        print(&event, &mut watched, printer);
    })?;
    let reason = outcome.trial.reason.clone();
    let trials = Trials { schema: TRY_SCHEMA.to_owned(), run_id: plan.run_id, trials: vec![outcome.trial] };
    answer(&trials, tried_text, options.format, printer)?;
    if let Some(reason) = reason.filter(|_| outcome.exit != Exit::Done) {
        printer.warning(&reason);
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
    printer.plain(&"start? [y/N] ");
    let mut answer = String::new();
    // Without an answer nothing starts.
    let _ = stdin().lock().read_line(&mut answer);
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Prints the progress of a trial.
fn print(event: &TrialEvent<'_>, watched: &mut Progress<'_>, printer: &Printer) {
    match event {
        TrialEvent::Status(line) => printer.status_line(line),
        TrialEvent::Line(line) => {
            printer.status_line("");
            printer.progress(line);
        }
        TrialEvent::Watched(event) => watched.print(event, printer),
    }
}
