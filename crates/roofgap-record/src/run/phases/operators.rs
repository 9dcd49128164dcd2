//! Records the operators of the framework in a separate run under torch.profiler, where the program supports it.

use std::time::Duration;

use roofgap_analyze::account_operators;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::run_dir::PhaseName;
use roofgap_trace::account;

use super::{Phase, Ready, Results, Skip, without_profiler};
use crate::run::context::{AttemptError, PhaseCommand, PhaseContext, PhaseDescription};
use crate::stage1;
use roofgap_base::error::Error;

const NAME: PhaseName = PhaseName::Operators;

/// The phase.
pub struct Operators;

impl Phase for Operators {
    fn name(&self) -> PhaseName {
        NAME
    }

    fn not_requested(&self, config: &Config) -> Option<&'static str> {
        (!config.runner.operators).then_some("runner.operators is false")
    }

    fn commands(&self, Ready { program, .. }: &Ready) -> Result<PhaseDescription, Error> {
        match program.config.workload.kind {
            WorkloadKind::Hf => {
                Ok(program.phase_command(NAME, &program.layout.torch_other_account())?.into())
            }
            WorkloadKind::Hydra => {
                let note =
                    "the module runs once more with its own torch.profiler on, if it has a switch for it";
                Ok(PhaseDescription { notes: vec![note.to_owned()], ..PhaseDescription::default() })
            }
            _ => Ok(PhaseDescription::default()),
        }
    }

    fn expected(&self, _: &Config, unprofiled: Option<Duration>) -> Option<String> {
        without_profiler(unprofiled)
    }

    fn skip(&self, context: &PhaseContext<'_>, found: &Results) -> Option<Skip> {
        let config = context.config;
        let unsupported = match config.workload.kind {
            WorkloadKind::Hf => None,
            WorkloadKind::Hydra => {
                let program = found.ready.as_ref().map(|ready| &ready.program);
                let line =
                    program.and_then(|program| program.with_own_profiler(context.module_config.as_ref()));
                line.is_none().then_some("the module has no switch for a torch.profiler of its own, so its operators are not known")
            }
            _ => Some(
                "roofgap cannot run this program under torch.profiler; NVTX ranges of the timeline are used instead",
            ),
        };
        let reason = self.not_requested(config).or(unsupported);
        reason.filter(|_| own_operators(found) == 0).map(Skip::not_requested)
    }

    fn run(&self, context: &mut PhaseContext<'_>, found: &mut Results) -> Result<(), AttemptError> {
        let own = own_operators(found);
        if own > 0 {
            context.tool("program");
            context.note(format!("the program timed {own} operators itself; no separate run is needed"));
            return Ok(());
        }
        context.run_dir.folder("torch")?;
        let path = context.layout.torch_account();
        let program = &found.ready()?.program;
        let own_profiler = program.with_own_profiler(context.module_config.as_ref());
        let command = match own_profiler.clone() {
            Some(line) => {
                PhaseCommand::new(line, context.layout.torch(), "program", context.config.run.timeout.0)
            }
            None => program.phase_command(NAME, &context.layout.torch_other_account())?,
        };
        let outcome = context.run(&command)?;
        context.tool("torch.profiler");
        let recorded = match own_profiler {
            Some(_) => stage1::keep_operators(context, &path),
            None => account::read(&path).map(|account| account.operators.len()).map_err(AttemptError::from),
        };
        context.output(&path);
        context.output(&context.layout.torch_trace());
        let why = match recorded {
            Ok(0) => "torch.profiler recorded no operator".to_owned(),
            Ok(_) => {
                context.program_ended("torch.profiler", &outcome);
                return Ok(());
            }
            Err(error) => format!("{}; under torch.profiler the program {}", error.why, outcome.describe()),
        };
        Err(AttemptError::after(why, &outcome))
    }
}

/// Counts the operators that the program timed itself.
fn own_operators(found: &Results) -> usize {
    let account = found.baseline.as_ref().and_then(|baseline| baseline.account.as_ref());
    account.map_or(0, |account| account_operators(account).len() + stage1::operator_count(account))
}
