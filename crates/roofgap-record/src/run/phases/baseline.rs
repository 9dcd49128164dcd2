//! Runs the program without a profiler: the reference for profiler overhead, and the proof that the program works.

use std::path::Path;
use std::time::Duration;

use roofgap_base::numbers::time;
use roofgap_collect::child::EndReason;
use roofgap_collect::program::Phase;
use roofgap_trace::account::{self, Account};

use super::requested::Requested;
use super::{stage1, stage1_runner};
use crate::run::context::{PhaseCommand, PhaseContext};
use crate::run::error::{AttemptError, ProgramError};
use crate::run::program::Program;
use roofgap_base::exit::Exit;
use roofgap_runs::config::Config;
use roofgap_runs::run_dir::{Layout, PhaseName, PhaseStatus};

const PHASE: PhaseName = PhaseName::Baseline;

/// Result of the baseline run.
#[derive(Debug, Clone)]
pub struct Baseline {
    /// Wall time of the whole program.
    pub wall: Duration,
    /// Account of the program.
    pub account: Option<Account>,
}

/// Describes the command of the phase.
pub fn command(config: &Config, layout: &Layout, program: &Program) -> Result<PhaseCommand, ProgramError> {
    let line = program.command(Phase::Baseline, &layout.baseline_account())?;
    let limit = config.run.timeout.0;
    Ok(PhaseCommand::new(PHASE, line, layout.baseline(), "program", limit))
}

/// Runs the phase. An error is the exit status of a session that cannot continue.
pub fn run(
    context: &mut PhaseContext<'_>,
    program: &Program,
    requested: Requested,
) -> Result<Option<Baseline>, Exit> {
    if let Some(folder) = &context.config.stage1.run_dir {
        return Ok(take_stage1(context, folder));
    }
    if !requested.baseline {
        context.skip(PHASE, false, "runner.baseline is false");
        return Ok(None);
    }
    context.begin(PHASE);
    match attempt(context, program) {
        Ok(baseline) => {
            context.end(PHASE, PhaseStatus::Ok);
            Ok(Some(baseline))
        }
        Err((exit, error)) => {
            context.end(PHASE, error.status());
            Err(exit)
        }
    }
}

/// Takes the times of an earlier run.
fn take_stage1(context: &mut PhaseContext<'_>, folder: &Path) -> Option<Baseline> {
    let found = match stage1::read(folder) {
        Ok(found) => found,
        Err(error) => {
            context.skip(PHASE, true, error.to_string());
            return None;
        }
    };
    context.begin(PHASE);
    let written = context
        .run_dir
        .folder("baseline")
        .and_then(|_| context.run_dir.write("baseline/workload.json", found.text.as_bytes()));
    let status = match written {
        Ok(copy) => {
            context.output(PHASE, &copy);
            let note = format!("not run: times taken from {}", found.path.display());
            context.record.note(PHASE, note);
            PhaseStatus::Ok
        }
        Err(error) => PhaseStatus::failed(error.to_string(), None),
    };
    context.end(PHASE, status);
    let stages = found.account.repeats.iter().flat_map(|repeat| &repeat.stages);
    let wall_ns = stages.map(|stage| stage.wall_ns.max(0) as u64).sum();
    Some(Baseline { wall: Duration::from_nanos(wall_ns), account: Some(found.account) })
}

fn attempt(context: &mut PhaseContext<'_>, program: &Program) -> Result<Baseline, (Exit, AttemptError)> {
    // A failure of roofgap is not a failure of the program.
    fn own<E: Into<AttemptError>>(error: E) -> (Exit, AttemptError) {
        (Exit::Partial, error.into())
    }
    context.run_dir.folder("baseline").map_err(own)?;
    let command = command(context.config, &context.layout, program).map_err(own)?;
    let outcome = context.run(&command).map_err(own)?;
    if !outcome.is_success() {
        let (exit, hint) = match outcome.ended {
            EndReason::TimeBudget { .. } => (Exit::ProgramFailed, "; raise run.timeout if it needs longer"),
            EndReason::DiskBudget { .. } => (
                Exit::Partial,
                "; raise retention.max_run_bytes, free disk space, or set artifacts.stage2_dir",
            ),
            _ => (Exit::ProgramFailed, ""),
        };
        let why = format!("the program {}{hint}", outcome.describe());
        return Err((exit, AttemptError::after(why, &outcome)));
    }
    let path = context.layout.baseline_account();
    stage1_runner::write_account(context, PHASE, Phase::Baseline, &path);
    let account = match account::read(&path) {
        Ok(account) => {
            context.output(PHASE, &path);
            Some(account)
        }
        Err(error) => {
            let how = if path.exists() {
                format!("its account is not readable ({error})")
            } else {
                "it wrote no account of its stages".to_owned()
            };
            let wall = i64::try_from(outcome.wall.as_nanos()).unwrap_or(i64::MAX);
            let note = format!(
                "the program ran {}; {how}, so only the time of the whole process is known",
                time(wall)
            );
            context.record.note(PHASE, note);
            None
        }
    };
    Ok(Baseline { wall: outcome.wall, account })
}
