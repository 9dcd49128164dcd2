//! The program unwatched: the reference for overhead, and the proof that it runs at all.

use std::time::Duration;

use roofgap_collect::child::Ended;
use roofgap_collect::program::Phase;
use roofgap_trace::account::{self, Account};

use super::desk::{Desk, Errand};
use super::program::Program;
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
            Ended::TimeBudget { .. } => (Exit::ProgramFailed, "; raise run.timeout if it needs longer"),
            Ended::DiskBudget { .. } => (Exit::Partial, "; free some room, or set artifacts.stage2_dir"),
            _ => (Exit::ProgramFailed, ""),
        };
        let why = format!("the program {}{hint}", outcome.describe());
        return Err((exit, PhaseStatus::failed(why, Some(outcome.last_words()))));
    }
    let account = match account::read(&account_path) {
        Ok(account) => {
            desk.ledger.output(PHASE, &account_path);
            Some(account)
        }
        Err(error) => {
            desk.ledger.note(
                PHASE,
                format!("the program gave no account of its run ({error}); only the time of the whole process is known"),
            );
            None
        }
    };
    Ok(Baseline {
        wall: outcome.wall,
        account,
    })
}
