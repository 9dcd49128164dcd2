//! Records the operators of the framework in a separate run under torch.profiler, where the program supports it.

use std::time::Duration;

use roofgap_analyze::account_operators;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::run_dir::{Layout, PhaseName};
use roofgap_trace::account;

use super::{Phase, PlannedSession, Results, Skip, without_profiler};
use crate::run::attempt::AttemptError;
use crate::run::context::{PhaseCommand, PhaseContext, PhaseDescription};
use crate::run::program::Program;
use roofgap_base::error::Error;

const NAME: PhaseName = PhaseName::Operators;

/// The phase.
pub struct Operators;

impl Phase for Operators {
    fn name(&self) -> PhaseName {
        NAME
    }

    fn not_requested(&self, config: &Config) -> Option<&'static str> {
        (!config.runner.is_on(NAME)).then_some("runner.operators is false")
    }

    fn commands(&self, session: &PlannedSession<'_>) -> Result<PhaseDescription, Error> {
        if !is_supported(session.config) {
            return Ok(PhaseDescription::default());
        }
        Ok(command(session.config, session.layout, session.program)?.into())
    }

    fn expected(&self, _: &Config, unprofiled: Option<Duration>) -> Option<String> {
        without_profiler(unprofiled)
    }

    fn skip(&self, context: &PhaseContext<'_>, found: &Results) -> Option<Skip> {
        let unsupported = "roofgap cannot run this program under torch.profiler; NVTX ranges of the timeline are used instead";
        let config = context.config;
        let reason = self.not_requested(config).or((!is_supported(config)).then_some(unsupported));
        reason.filter(|_| own_operators(found) == 0).map(Skip::not_requested)
    }

    fn run(&self, context: &mut PhaseContext<'_>, found: &mut Results) -> Result<(), AttemptError> {
        let own = own_operators(found);
        if own > 0 {
            context.tool("program");
            let note = format!("the program timed {own} operators itself; no separate run is needed");
            context.note(note);
            return Ok(());
        }
        context.run_dir.folder("torch")?;
        let command = command(context.config, &context.layout, &found.ready()?.program)?;
        let outcome = context.run(&command)?;
        let path = context.layout.torch_account();
        context.tool("torch.profiler");
        context.output(&path);
        context.output(&context.layout.torch_trace());
        let why = match account::read(&path).map(|account| account.operators.len()) {
            Ok(0) => "torch.profiler recorded no operator".to_owned(),
            Ok(_) => {
                context.program_ended("torch.profiler", &outcome);
                return Ok(());
            }
            Err(error) => format!("{error}; under torch.profiler the program {}", outcome.describe()),
        };
        Err(AttemptError::after(why, &outcome))
    }
}

fn command(config: &Config, layout: &Layout, program: &Program) -> Result<PhaseCommand, Error> {
    let line = program.command(NAME, &layout.torch_other_account())?;
    Ok(PhaseCommand::new(line, layout.torch(), "program", config.run.timeout.0))
}

/// Returns true where roofgap can run the program under torch.profiler.
fn is_supported(config: &Config) -> bool {
    config.workload.kind == WorkloadKind::Hf
}

/// Counts the operators that the program timed itself.
fn own_operators(found: &Results) -> usize {
    let account = found.baseline.as_ref().and_then(|baseline| baseline.account.as_ref());
    account.map_or(0, |account| account_operators(account).len())
}
