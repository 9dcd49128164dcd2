//! The program unwatched: the reference for overhead, and the proof that it runs at all.

use std::time::Duration;

use roofgap_collect::child::EndReason;
use roofgap_collect::program::Phase;
use roofgap_trace::account::{self, Account};

use super::desk::{Desk, Errand};
use super::program::Program;
use super::stage1;
use crate::exit::Exit;
use crate::record::{PhaseName, PhaseStatus};

const PHASE: PhaseName = PhaseName::Baseline;

/// What the unwatched run gave.
#[derive(Debug, Clone)]
pub(super) struct Baseline {
    /// How long the whole program took.
    pub(super) wall: Duration,
    /// What it said of itself.
    pub(super) account: Option<Account>,
}

/// Run the program unwatched. `Err` says how a session ends that cannot go on.
pub(super) fn run(desk: &mut Desk<'_>, program: &Program) -> Result<Baseline, Exit> {
    desk.begin(PHASE);
    match attempt(desk, program) {
        Ok(baseline) => {
            desk.end(PHASE, PhaseStatus::Ok);
            Ok(baseline)
        }
        Err((exit, status)) => {
            desk.end(PHASE, status);
            Err(exit)
        }
    }
}

/// Take the unwatched times of another run instead of making one.
pub(super) fn taken(desk: &mut Desk<'_>, folder: &std::path::Path) -> Option<Baseline> {
    let (path, account, text) = match stage1::read(folder) {
        Ok(found) => found,
        Err(why) => {
            desk.skip(PHASE, true, why);
            return None;
        }
    };
    desk.begin(PHASE);
    let written = desk
        .run_dir
        .folder("baseline")
        .and_then(|_| desk.run_dir.write("baseline/workload.json", text.as_bytes()));
    let status = match written {
        Ok(copy) => {
            desk.ledger.output(PHASE, &copy);
            desk.ledger
                .note(PHASE, format!("not run: taken from {}", path.display()));
            PhaseStatus::Ok
        }
        Err(error) => PhaseStatus::failed(error.to_string(), None),
    };
    desk.end(PHASE, status);
    let stages = account.repeats.iter().flat_map(|repeat| &repeat.stages);
    let wall = stages.map(|stage| stage.wall_ns.max(0) as u64).sum();
    Some(Baseline {
        wall: Duration::from_nanos(wall),
        account: Some(account),
    })
}

fn attempt(desk: &mut Desk<'_>, program: &Program) -> Result<Baseline, (Exit, PhaseStatus)> {
    // What roofgap could not do is not the program's failure.
    let ours = |why: String| (Exit::Partial, PhaseStatus::failed(why, None));
    let folder = desk
        .run_dir
        .folder("baseline")
        .map_err(|error| ours(error.to_string()))?;
    let account_path = desk.layout.baseline_account();
    let line = program.command(Phase::Baseline, &account_path).map_err(ours)?;
    let errand = Errand::new(&line, &folder, "program", desk.config.run.timeout.0);
    let outcome = desk.run(PHASE, errand).map_err(ours)?;
    if !outcome.is_success() {
        let (exit, hint) = match outcome.ended {
            EndReason::TimeBudget { .. } => (Exit::ProgramFailed, "; raise run.timeout if it needs longer"),
            EndReason::DiskBudget { .. } => (Exit::Partial, "; free some room, or set artifacts.stage2_dir"),
            _ => (Exit::ProgramFailed, ""),
        };
        let why = format!("the program {}{hint}", outcome.describe());
        return Err((exit, PhaseStatus::failed(why, Some(outcome.output_tail()))));
    }
    let account = match account::read(&account_path) {
        Ok(account) => {
            desk.ledger.output(PHASE, &account_path);
            Some(account)
        }
        Err(error) => {
            let how = if account_path.exists() {
                format!("its account cannot be read ({error})")
            } else {
                "it wrote no account of its stages".to_owned()
            };
            let took = outcome.wall.as_secs_f64();
            desk.ledger.note(
                PHASE,
                format!(
                    "the program ran {took:.3} s; {how}, so that only the time of the whole process is known"
                ),
            );
            None
        }
    };
    Ok(Baseline {
        wall: outcome.wall,
        account,
    })
}
