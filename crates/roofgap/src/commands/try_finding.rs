//! `roofgap try`: measures changes of the workload of a run.

use super::signals::cancel_on_signal;
use super::{answer, session};
use crate::args::Try;
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::numbers::NONE;
use roofgap_collect::child::cancel_probes_with;
use roofgap_record::trial::plan::Candidate;
use roofgap_record::trial::{self, TrialEvent, TrialPlan, TrialProps};
use roofgap_report::{Screen, columns, count, time, tried_text};
use roofgap_runs::config::{ConfigProps, Span, compose};
use roofgap_runs::run_dir::{Layout, RunRef, resolve};
use std::fmt::Write;
use std::io::{BufRead, IsTerminal, stderr, stdin};
use std::path::Path;
use std::time::Duration;

pub fn run(args: Try, dir: &Path, printer: &Printer) -> Result<Exit, Error> {
    let run = resolve(dir, &args.run)?;
    let config = Some(Layout::of(&run.path).config());
    let props = TrialProps {
        session: session(compose(&ConfigProps { config, ..ConfigProps::default() })?)?,
        // The commands of the result work in any folder.
        run: RunRef { path: std::path::absolute(&run.path).unwrap_or(run.path), ..run },
        changes: args.changes,
        env: args.env,
        budget: args.budget.0,
        repeats: args.repeats,
        accept_changed_output: args.accept_changed_output,
    };
    let plan = trial::plan(&props)?;
    if args.dry_run {
        return answer(&plan, plan_text, printer);
    }
    printer.progress(&plan_text(&plan, printer.screen()));
    if !args.yes && !consent(printer)? {
        return Ok(Exit::Done);
    }
    let cancel = cancel_on_signal()?;
    cancel_probes_with(&cancel);
    let outcome = trial::run(&props, &plan, &cancel, &mut |event| match event {
        TrialEvent::Status(line) => printer.status_line(line),
        TrialEvent::Line(line) => {
            printer.status_line("");
            printer.progress(&line);
        }
    })?;
    answer(&outcome.trial, tried_text, printer)?;
    if let Some(reason) = outcome.trial.reason.filter(|_| outcome.exit != Exit::Done) {
        printer.warning(&reason);
    }
    printer.progress(&format_args!("result: {}", Layout::of(&props.run.path).trial().display()));
    Ok(outcome.exit)
}

/// Renders the plan and its cost.
fn plan_text(plan: &TrialPlan, screen: Screen) -> String {
    let row = |candidate: &Candidate| {
        let (knob, findings) = (&candidate.knob, candidate.finding_ids());
        let findings = if findings.is_empty() { NONE.to_owned() } else { findings.join(", ") };
        [knob.id.clone(), knob.title.clone(), findings, knob.output.as_str().to_owned()]
    };
    let head = ["change", "what it does", "finding", "effect on the output"];
    let mut out = columns(head, plan.candidates.iter().map(row), screen);
    let ns = |value| time(i64::try_from(value).unwrap_or(i64::MAX));
    let cost = match (plan.run_ns, plan.first_ns) {
        (Some(run), Some(all)) => format!(" of about {} each: {}", ns(run), ns(all)),
        _ => ", of unknown length: the run has no baseline".to_owned(),
    };
    let _ = writeln!(
        out,
        "\nat least {} runs without a profiler{cost}; what helps is run together within the budget of {}",
        count(plan.first_runs),
        Span(Duration::from_nanos(plan.budget_ns))
    );
    if plan.first_ns.is_some_and(|all| all > plan.budget_ns) {
        let _ = writeln!(
            out,
            "the budget is too short for all of them, which run in this order; raise it with --budget"
        );
    }
    out
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
