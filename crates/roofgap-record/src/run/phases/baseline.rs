//! Runs the program without a profiler: the reference for profiler overhead, and the proof that the program works.
//! The native collector is in the program without CUPTI, where that is possible: it times ranges and calls of the driver.

use roofgap_base::clock::ns;
use std::path::Path;
use std::time::Duration;

use roofgap_base::exit::Exit;
use roofgap_base::numbers::time;
use roofgap_collect::child::EndReason;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::run_dir::{Layout, PhaseName};
use roofgap_trace::account::{self, Account};

use super::{Phase, Ready, Results, Skip, timeline};
use crate::run::context::{AttemptError, PhaseCommand, PhaseContext, PhaseDescription};
use crate::stage1;
use roofgap_base::error::Error;

const NAME: PhaseName = PhaseName::Baseline;

/// The phase.
pub struct BaselineRun;

/// Result of the baseline run.
#[derive(Debug, Clone)]
pub struct Baseline {
    /// Wall time of the whole program.
    pub wall: Duration,
    /// Account of the program.
    pub account: Option<Account>,
}

impl Phase for BaselineRun {
    fn name(&self) -> PhaseName {
        NAME
    }

    fn not_requested(&self, config: &Config) -> Option<&'static str> {
        (!config.runner.baseline).then_some("runner.baseline is false")
    }

    fn commands(&self, ready: &Ready) -> Result<PhaseDescription, Error> {
        let command = ready.program.phase_command(NAME, &ready.program.layout.baseline_account())?;
        Ok(if is_timed(ready) { timed(command, &ready.program.layout) } else { command }.into())
    }

    fn skip(&self, context: &PhaseContext<'_>, _: &Results) -> Option<Skip> {
        let own = context.config.stage1.run_dir.is_none();
        self.not_requested(context.config).filter(|_| own).map(Skip::not_requested)
    }

    fn run(&self, context: &mut PhaseContext<'_>, found: &mut Results) -> Result<(), AttemptError> {
        let baseline = match &context.config.stage1.run_dir {
            Some(folder) => take_stage1(context, folder)?,
            None => run_program(context, found.ready()?)?,
        };
        found.baseline = Some(baseline);
        Ok(())
    }
}

/// Takes the times of an earlier run.
fn take_stage1(context: &mut PhaseContext<'_>, folder: &Path) -> Result<Baseline, AttemptError> {
    let found = stage1::read(folder).map_err(|error| AttemptError::skipped(error.to_string()))?;
    context.run_dir.folder("baseline")?;
    let copy = context.run_dir.write("baseline/workload.json", found.text.as_bytes())?;
    context.output(&copy);
    context.note(format!("not run: times taken from {}", found.path.display()));
    let stages = found.account.repeats.iter().flat_map(|repeat| &repeat.stages);
    let wall_ns = stages.map(|stage| stage.wall_ns.max(0) as u64).sum();
    Ok(Baseline { wall: Duration::from_nanos(wall_ns), account: Some(found.account) })
}

/// Tells whether the calls of the program are to be timed. A program that is part of roofgap times its own stages.
fn is_timed(Ready { program, tools }: &Ready) -> bool {
    let is_own = matches!(program.config.workload.kind, WorkloadKind::Embedded | WorkloadKind::Hf);
    !is_own && timeline::is_usable(tools)
}

/// Size limit of the times of a process, MB: millions of calls.
const MAX_MB: &str = "256";

/// Returns the command with the collector preloaded.
fn timed(mut command: PhaseCommand, layout: &Layout) -> PhaseCommand {
    let line =
        timeline::preloaded(command.line, layout).env("NVTX_INJECTION64_PATH", layout.native_library());
    command.line = line.env("ROOFGAP_NATIVE_DIR", layout.baseline()).env("ROOFGAP_NATIVE_MAX_MB", MAX_MB);
    command
}

/// Runs the program. A failure ends the session, because it would fail under a profiler too.
fn run_program(context: &mut PhaseContext<'_>, ready: &Ready) -> Result<Baseline, AttemptError> {
    // A failure of roofgap is not a failure of the program.
    fn own<E: Into<AttemptError>>(error: E) -> AttemptError {
        error.into().ending(Exit::Partial)
    }
    context.run_dir.folder("baseline").map_err(own)?;
    let path = context.layout.baseline_account();
    let mut command = ready.program.phase_command(NAME, &path).map_err(own)?;
    if is_timed(ready) {
        let timed = timed(command.clone(), &context.layout);
        match timeline::try_library(context, &ready.tools, &timed.line) {
            Ok(()) => command = timed,
            Err(why) => {
                context.note(format!("calls are not timed: the collector cannot be preloaded: {why}"))
            }
        }
    }
    let outcome = context.run(&command).map_err(own);
    let _ = std::fs::remove_file(context.layout.native_library());
    let captures = context.layout.baseline_captures();
    let timed = captures.iter().filter(|capture| context.output(capture)).count() > 0;
    let outcome = outcome?;
    if !outcome.is_success() {
        let (exit, hint) = match outcome.ended {
            EndReason::TimeBudget { .. } => (Exit::ProgramFailed, "; raise run.timeout if it needs longer"),
            EndReason::NoTerminal => {
                (Exit::ProgramFailed, "; give it its answers by an option, a variable or a file")
            }
            EndReason::DiskBudget { .. } => (
                Exit::Partial,
                "; raise retention.max_run_bytes, free disk space, or set artifacts.stage2_dir",
            ),
            // The driver of Hugging Face models says so of wrong arguments and inputs.
            _ if context.config.workload.kind == WorkloadKind::Hf && outcome.code == Some(2) => {
                (Exit::Usage, "")
            }
            _ => (Exit::ProgramFailed, ""),
        };
        let why = format!("the program {}{hint}", outcome.describe());
        return Err(AttemptError::after(why, &outcome).ending(exit));
    }
    stage1::complete_account(context, &path);
    let account = account::read(&path);
    if let Err(error) = &account {
        let how = match path.exists() {
            true => format!("its account is not readable ({error})"),
            false => "it wrote no account of its stages".to_owned(),
        };
        let wall = time(ns(outcome.wall));
        let known = if timed { "its ranges and calls" } else { "the whole process" };
        context.note(format!("the program ran {wall}; {how}, so only the time of {known} is known"));
    }
    Ok(Baseline { wall: outcome.wall, account: account.ok() })
}
