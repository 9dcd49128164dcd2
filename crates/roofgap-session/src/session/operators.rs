//! Operators of the framework: a separate run under torch.profiler, where the program supports it.

use roofgap_collect::program::Phase;
use roofgap_trace::account;

use super::baseline::Baseline;
use super::desk::{Desk, Errand};
use super::program::Program;
use crate::config::settings::WorkloadKind;
use crate::record::{PhaseName, PhaseStatus};

const PHASE: PhaseName = PhaseName::Operators;

/// Have the operators of the program.
pub(super) fn run(desk: &mut Desk<'_>, program: &Program, baseline: Option<&Baseline>) {
    let own = baseline
        .and_then(|baseline| baseline.account.as_ref())
        .map_or(0, |account| account.operators.len());
    if own > 0 {
        desk.begin(PHASE);
        desk.ledger.tool(PHASE, "program");
        desk.ledger.note(
            PHASE,
            format!("the program timed {own} operators itself; no run of its own is needed"),
        );
        desk.end(PHASE, PhaseStatus::Ok);
        return;
    }
    if !desk.config.runner.operators {
        desk.skip(PHASE, false, "runner.operators is false");
        return;
    }
    if desk.config.workload.kind != WorkloadKind::Hf {
        let why = "the program is not one that roofgap can run under torch.profiler; ranges of the timeline stand in";
        desk.skip(PHASE, false, why);
        return;
    }
    desk.begin(PHASE);
    let status = attempt(desk, program).unwrap_or_else(|status| status);
    desk.end(PHASE, status);
}

fn attempt(desk: &mut Desk<'_>, program: &Program) -> Result<PhaseStatus, PhaseStatus> {
    let failed = |why: String| PhaseStatus::failed(why, None);
    let folder = desk
        .run_dir
        .folder("torch")
        .map_err(|error| failed(error.to_string()))?;
    let account_path = desk.layout.torch_account();
    let line = program
        .command(Phase::Operators, &desk.layout.torch_other_account())
        .map_err(failed)?;
    let outcome = desk
        .run(
            PHASE,
            Errand::new(&line, &folder, "program", desk.config.run.timeout.0),
        )
        .map_err(failed)?;
    desk.ledger.tool(PHASE, "torch.profiler");
    desk.ledger.output(PHASE, &account_path);
    desk.ledger.output(PHASE, &desk.layout.torch_trace());
    let operators = account::read(&account_path).map(|account| account.operators.len());
    match operators {
        Ok(0) => Err(PhaseStatus::failed(
            "torch.profiler recorded no operator",
            Some(outcome.output_tail()),
        )),
        Ok(_) => {
            if !outcome.is_success() {
                desk.ledger.note(
                    PHASE,
                    format!("under torch.profiler the program {}", outcome.describe()),
                );
            }
            Ok(PhaseStatus::Ok)
        }
        Err(error) => {
            let why = format!("{error}; under torch.profiler the program {}", outcome.describe());
            Err(PhaseStatus::failed(why, Some(outcome.output_tail())))
        }
    }
}
