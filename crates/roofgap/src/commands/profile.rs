//! `roofgap profile`: runs a session.

use super::progress::Progress;
use super::signals::cancel_on_signal;
use super::{session, to_json};
use crate::args::{Format, Profile};
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::child::cancel_probes_with;
use roofgap_record::run::{Outcome, ProfileAnswer, ProfileProps, SharedRunOutcome, dry_run, profile};
use roofgap_report::text;
use roofgap_runs::config::compose;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::run_dir::{Layout, PhaseName};

pub fn run(args: Profile, printer: &Printer) -> Result<Exit, Error> {
    let props = session(compose(&args.composition.props(&args.program))?)?;
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
    print_outcome(&outcome, args.format, printer)
}

/// Prints the result of a session: the analysis as text, or the run as JSON.
pub fn print_outcome(outcome: &Outcome, format: Format, printer: &Printer) -> Result<Exit, Error> {
    for missing in &outcome.record.missing {
        printer.warning(&format_args!("missing: {missing}"));
    }
    for problem in outcome.shared_run.iter().flat_map(|shared| &shared.problems) {
        printer.warning(&format_args!("job: {problem}"));
    }
    if format == Format::Json {
        printer.document(&to_json(&ProfileAnswer::of(outcome))?)?;
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
