//! Records the operators of the framework in a separate run under torch.profiler, where the program supports it.

use roofgap_analyze::account_operators;
use roofgap_collect::program::Phase;
use roofgap_trace::account;

use super::baseline::Baseline;
use crate::run::context::{PhaseCommand, PhaseContext};
use crate::run::error::{AttemptError, ProgramError};
use crate::run::program::Program;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::run_dir::{Layout, PhaseName, PhaseStatus};

const PHASE: PhaseName = PhaseName::Operators;

/// Describes the command of the phase.
pub fn command(config: &Config, layout: &Layout, program: &Program) -> Result<PhaseCommand, ProgramError> {
    let line = program.command(Phase::Operators, &layout.torch_other_account())?;
    let limit = config.run.timeout.0;
    Ok(PhaseCommand::new(PHASE, line, layout.torch(), "program", limit))
}

/// Returns true where roofgap can run the program under torch.profiler.
pub fn is_supported(config: &Config) -> bool {
    config.workload.kind == WorkloadKind::Hf
}

/// Runs the phase.
pub fn run(context: &mut PhaseContext<'_>, program: &Program, baseline: Option<&Baseline>) {
    let own = baseline
        .and_then(|baseline| baseline.account.as_ref())
        .map_or(0, |account| account_operators(account).len());
    if own > 0 {
        context.begin(PHASE);
        context.record.tool(PHASE, "program");
        let note = format!("the program timed {own} operators itself; no separate run is needed");
        context.record.note(PHASE, note);
        context.end(PHASE, PhaseStatus::Ok);
    } else if !context.config.runner.operators {
        context.skip(PHASE, false, "runner.operators is false");
    } else if !is_supported(context.config) {
        let why = "roofgap cannot run this program under torch.profiler; NVTX ranges of the timeline are used instead";
        context.skip(PHASE, false, why);
    } else {
        context.begin(PHASE);
        let status = match attempt(context, program) {
            Ok(()) => PhaseStatus::Ok,
            Err(error) => error.status(),
        };
        context.end(PHASE, status);
    }
}

fn attempt(context: &mut PhaseContext<'_>, program: &Program) -> Result<(), AttemptError> {
    context.run_dir.folder("torch")?;
    let command = command(context.config, &context.layout, program)?;
    let outcome = context.run(&command)?;
    let account_path = context.layout.torch_account();
    context.record.tool(PHASE, "torch.profiler");
    context.output(PHASE, &account_path);
    context.output(PHASE, &context.layout.torch_trace());
    match account::read(&account_path).map(|account| account.operators.len()) {
        Ok(0) => Err(AttemptError::after("torch.profiler recorded no operator", &outcome)),
        Ok(_) => {
            context.program_ended(PHASE, "torch.profiler", &outcome);
            Ok(())
        }
        Err(error) => {
            let why = format!("{error}; under torch.profiler the program {}", outcome.describe());
            Err(AttemptError::after(why, &outcome))
        }
    }
}
