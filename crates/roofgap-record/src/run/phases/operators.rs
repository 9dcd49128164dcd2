//! Records the operators of the framework in a separate run under torch.profiler. In a program that roofgap does not configure, the
//! annotation starts it around a few instances of the main loop.

use std::time::Duration;

use roofgap_analyze::{account_operators, launches_of_window};
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::run_dir::PhaseName;
use roofgap_trace::{Trace, account};

use super::timeline::{preloaded, try_library};
use super::{Phase, Ready, Results, Skip, without_profiler};
use crate::run::context::{AttemptError, PhaseCommand, PhaseContext, PhaseDescription};
use crate::run::program::Program;
use crate::run::tools::Tools;
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

    fn commands(&self, Ready { program, tools }: &Ready) -> Result<PhaseDescription, Error> {
        match program.config.workload.kind {
            WorkloadKind::Hf => {
                Ok(program.phase_command(NAME, &program.layout.torch_other_account())?.into())
            }
            WorkloadKind::Hydra => {
                let note =
                    "the module runs once more with its own torch.profiler on, if it has a switch for it";
                Ok(PhaseDescription { notes: vec![note.to_owned()], ..PhaseDescription::default() })
            }
            WorkloadKind::Command | WorkloadKind::Server if program.config.workload.annotate => {
                let note =
                    "the launches to record are those of four instances of the main loop in the timeline";
                let mut described = PhaseDescription::from(in_window(program, tools.native.is_ok(), None)?);
                described.notes.push(note.to_owned());
                Ok(described)
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
            WorkloadKind::Embedded => Some("the embedded model does not run in torch"),
            _ if !config.workload.annotate => {
                Some("workload.annotate is false, and the annotation starts torch.profiler")
            }
            _ => (!found.timeline.as_ref().is_some_and(|timeline| has_torch(&timeline.input.trace)))
                .then_some("the timeline has no kernel of torch"),
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
        let Ready { program, tools } = found.ready()?;
        if matches!(context.config.workload.kind, WorkloadKind::Command | WorkloadKind::Server) {
            let window = launches_of_window(&found.timeline()?.input.trace, &found.stages);
            return record_window(context, program, tools, window);
        }
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

/// Most launches that are recorded, which keeps the trace below about 100 MB, and the time for which a program runs under the profiler
/// where nothing counts them, s.
const MOST_LAUNCHES: u64 = 20_000;
const SECONDS: u64 = 10;

/// Tells whether torch launched kernels in a timeline.
fn has_torch(trace: &Trace) -> bool {
    trace.names.iter().any(|(_, name)| name.contains("at::native"))
}

/// Describes the program with torch.profiler on between two launches; without a loop, from its first one on.
fn in_window(program: &Program, counts: bool, window: Option<(u64, u64)>) -> Result<PhaseCommand, Error> {
    let (first, last) = window.unwrap_or((0, MOST_LAUNCHES));
    let last = last.min(first + MOST_LAUNCHES);
    let mut command = program.phase_command(NAME, &program.layout.torch_other_account())?;
    if counts {
        command.line = preloaded(command.line, &program.layout);
    }
    command.line = command
        .line
        .env("ROOFGAP_TORCH_TRACE", program.layout.torch_trace())
        .env("ROOFGAP_LAUNCHES", format!("{first}-{last}"))
        .env("ROOFGAP_SECONDS", SECONDS.to_string());
    Ok(command)
}

/// Runs the program once more, with torch.profiler on in a part of it.
fn record_window(
    context: &mut PhaseContext<'_>,
    program: &Program,
    tools: &Tools,
    window: Option<(u64, u64)>,
) -> Result<(), AttemptError> {
    let mut command = in_window(program, true, window)?;
    if let Err(why) = try_library(context, tools, &command.line) {
        context.note(format!("launches are not counted: {why}"));
        command = in_window(program, false, window)?;
    }
    if window.is_none() {
        context.note("no loop in the timeline, so the operators are those of the first launches");
    }
    let outcome = context.run(&command);
    let _ = std::fs::remove_file(context.layout.native_library());
    let outcome = outcome?;
    context.tool("torch.profiler");
    let said = std::fs::read_to_string(context.layout.torch().join("notes.log")).unwrap_or_default();
    let said: Vec<&str> = said.lines().collect();
    let trace = context.layout.torch_trace();
    let operators = match context.output(&trace) {
        true => roofgap_trace::read(&[trace]).map(|input| input.trace.cpu_ops.len()),
        false => Ok(0),
    };
    let why = match operators {
        Ok(0) if outcome.is_success() && said.is_empty() => {
            context.note("no process of the program imported torch in Python, so no operator was recorded");
            return Ok(());
        }
        Ok(0) => "torch.profiler recorded no operator".to_owned(),
        Ok(_) => {
            said.into_iter().for_each(|line| context.note(line));
            context.program_ended("torch.profiler", &outcome);
            return Ok(());
        }
        Err(error) => error.to_string(),
    };
    let mut reasons = vec![why];
    reasons.extend(said.into_iter().map(str::to_owned));
    if !outcome.is_success() {
        let describe = outcome.describe();
        reasons.push(format!(
            "run once more under torch.profiler the program {describe}; it cannot run twice where a port or an output is taken"
        ));
    }
    Err(AttemptError::after(reasons.join("; "), &outcome))
}

/// Counts the operators that the program timed itself.
fn own_operators(found: &Results) -> usize {
    let account = found.baseline.as_ref().and_then(|baseline| baseline.account.as_ref());
    account.map_or(0, |account| account_operators(account).len() + stage1::operator_count(account))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::program::ProgramFiles;
    use roofgap_runs::config::{ConfigProps, compose};
    use roofgap_runs::run_dir::Layout;
    use std::path::Path;

    #[test]
    fn the_window_and_the_counter_of_launches_are_in_the_environment() {
        let overrides = vec!["+workload.env.LD_PRELOAD=/own.so".to_owned()];
        let program = ["python3", "x.py"].map(str::to_owned).to_vec();
        let config = compose(&ConfigProps { program, overrides, ..ConfigProps::default() }).unwrap().config;
        let layout = Layout::of(Path::new("/r"));
        let files = ProgramFiles::planned(&config, &layout).unwrap();
        let program = Program::of(&config, Path::new("/bin/roofgap"), &layout, files).unwrap();
        let line = |counts, window| in_window(&program, counts, window).unwrap().line.to_string();
        let counted = line(true, Some((40, 200)));
        for part in [
            "ROOFGAP_PHASE=operators",
            "ROOFGAP_TORCH_TRACE=/r/torch/trace.json.gz",
            "ROOFGAP_LAUNCHES=40-200",
            "LD_PRELOAD=/r/native/libroofgap_inject.so:/own.so",
            "PYTHONPATH=/r/scripts/annotate",
        ] {
            assert!(counted.contains(part), "{part} is not in {counted}");
        }
        // No more than are useful, and from the first one on without a loop.
        let most = |window| line(false, window);
        assert!(most(Some((40, 1_000_000))).contains("ROOFGAP_LAUNCHES=40-20040"));
        assert!(most(None).contains("ROOFGAP_LAUNCHES=0-20000") && most(None).contains("LD_PRELOAD=/own.so"));
    }
}
