//! Records the timeline with nsys or the native collector. The recording is never gated by default; stages are cut out of it
//! by range afterwards.
//!
//! - `nsys`: records and exports with nsys;
//! - `native`: records with the native collector;
//! - `completeness`: checks that a recording holds the GPU work of the program.

mod completeness;
mod native;
mod nsys;

use std::path::PathBuf;

use roofgap_analyze::Engine;
use roofgap_collect::child::Outcome;
use roofgap_trace::Input;

use super::requested::Requested;
use crate::run::context::{PhaseContext, PhaseDescription};
use crate::run::error::{AttemptError, ProgramError};
use crate::run::program::Program;
use crate::run::tools::Tools;
use completeness::Completeness;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::{Mode, TimelineTool};
use roofgap_runs::open::accounts::account_at;
use roofgap_runs::open::read_each;
use roofgap_runs::run_dir::{Layout, PhaseName, PhaseStatus};

const PHASE: PhaseName = PhaseName::Timeline;

/// A recorded timeline.
pub struct Timeline {
    /// Tool that recorded it.
    pub tool: Recorder,
    /// Recording.
    pub input: Input,
    /// Reason why the tool named in the configuration was replaced.
    pub degraded: Option<String>,
}

/// A tool that records timelines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorder {
    /// Nsight Systems.
    Nsys,
    /// The native collector.
    Native,
}

impl Recorder {
    fn as_str(self) -> &'static str {
        match self {
            Recorder::Nsys => "nsys",
            Recorder::Native => "native",
        }
    }
}

/// Lists the recorders in the order of attempts. A serving engine ends its processes before nsys has all of their records; the
/// native collector runs inside each of them, and in each rank of a job.
fn order(wanted: TimelineTool, mode: Mode, is_engine: bool) -> [Recorder; 2] {
    match (wanted, mode) {
        (TimelineTool::Auto, Mode::Deep) if !is_engine => [Recorder::Nsys, Recorder::Native],
        (TimelineTool::Nsys, _) => [Recorder::Nsys, Recorder::Native],
        (TimelineTool::Native | TimelineTool::Auto, _) => [Recorder::Native, Recorder::Nsys],
    }
}

/// Returns the serving engine or launcher of several processes that the command or the baseline's account names.
fn serving_engine(layout: &Layout, program: &Program) -> Option<String> {
    let by_account = || account_at(layout.baseline_account())?.engine?.name;
    let by_command = program.serving_engine().map(str::to_owned);
    let is_apart = |name: &String| Engine::named(name).is_none_or(|engine| !engine.in_process);
    by_command.or_else(by_account).filter(is_apart)
}

/// Describes the commands of the first usable recorder.
pub fn describe(
    config: &Config,
    layout: &Layout,
    tools: &Tools,
    program: &Program,
) -> Result<PhaseDescription, ProgramError> {
    let mut described = PhaseDescription::default();
    let is_engine = program.serving_engine().is_some();
    for recorder in order(config.profiling.timeline, config.run.mode, is_engine) {
        match (recorder, &tools.nsys, &tools.native) {
            (Recorder::Nsys, Ok(nsys), _) => {
                let commands = nsys::commands(config, layout, nsys, program, nsys::Gating::Configured)?;
                described.notes.extend(commands.left_out);
                described.commands.extend([commands.record, commands.export]);
                described.commands.extend(commands.stats.map(|(stats, _)| stats));
                break;
            }
            (Recorder::Native, _, Ok(_)) => {
                described.commands.push(native::command(config, layout, program)?);
                break;
            }
            (Recorder::Nsys, Err(error), _) => described.notes.push(error.to_string()),
            (Recorder::Native, _, Err(error)) => described.notes.push(error.to_string()),
        }
    }
    Ok(described)
}

/// Runs the phase with the first recorder that succeeds.
pub fn run(
    context: &mut PhaseContext<'_>,
    tools: &Tools,
    program: &Program,
    requested: Requested,
) -> Option<Timeline> {
    let config = context.config;
    if !requested.timeline {
        let why = if config.runner.timeline {
            "the embedded model runs on the CPU and times its own stages; profiling.timeline=nsys or native records it"
        } else {
            "runner.timeline is false"
        };
        context.skip(PHASE, false, why);
        return None;
    }
    context.begin(PHASE);
    let mut failures: Vec<(Recorder, AttemptError)> = Vec::new();
    let mut attempted = false;
    let engine = serving_engine(&context.layout, program);
    let (wanted, mode) = (config.profiling.timeline, config.run.mode);
    let recorders = order(wanted, mode, engine.is_some());
    if let Some(engine) = engine.filter(|_| recorders != order(wanted, mode, false)) {
        let note =
            format!("{engine} runs in several processes, so the native collector is tried before nsys");
        context.record.note(PHASE, note);
    }
    for recorder in recorders {
        if context.is_cancelled() {
            break;
        }
        let attempt = match (recorder, &tools.nsys, &tools.native) {
            (Recorder::Nsys, Err(error), _) => Err(error.into()),
            (Recorder::Native, _, Err(error)) => Err(error.into()),
            (Recorder::Nsys, Ok(nsys), _) => {
                attempted = true;
                nsys::record(context, nsys, program)
            }
            (Recorder::Native, _, Ok(library)) => {
                attempted = true;
                native::record(context, library, program)
            }
        };
        match attempt {
            Ok(input) => return Some(finish(context, tools, recorder, input, &failures)),
            Err(error) => failures.push((recorder, error)),
        }
    }
    let status = failed(context.is_cancelled(), attempted, &failures);
    context.end(PHASE, status);
    None
}

/// Ends the phase with a recording.
fn finish(
    context: &mut PhaseContext<'_>,
    tools: &Tools,
    recorder: Recorder,
    input: Input,
    failures: &[(Recorder, AttemptError)],
) -> Timeline {
    context.record.tool(PHASE, recorder.as_str());
    let replaced = failures.first().map(|(first, error)| {
        let (first, used) = (first.as_str(), recorder.as_str());
        format!("{first} recorded no timeline ({}); {used} was used instead", error.why)
    });
    if let Some(note) = &replaced {
        context.record.note(PHASE, note.clone());
    }
    if input.trace.ops.is_empty() {
        let why = match &tools.gpu {
            Ok(()) => "the program used no GPU".to_owned(),
            Err(error) => error.to_string(),
        };
        context.record.note(PHASE, format!("no GPU operation was recorded: {why}"));
    }
    if context.is_cancelled() {
        let note = "interrupted: the timeline holds what was recorded until then";
        context.warn(PHASE, note.to_owned());
    }
    context.end(PHASE, PhaseStatus::Ok);
    Timeline {
        tool: recorder,
        input,
        // Without a named tool, either recorder is a full answer.
        degraded: replaced.filter(|_| context.config.profiling.timeline != TimelineTool::Auto),
    }
}

fn failed(cancelled: bool, attempted: bool, failures: &[(Recorder, AttemptError)]) -> PhaseStatus {
    let reasons: Vec<&str> = failures.iter().map(|(_, error)| error.why.as_str()).collect();
    let why = reasons.join("; ");
    if cancelled {
        let why = if why.is_empty() { "interrupted".to_owned() } else { why };
        return PhaseStatus::failed(why, None);
    }
    let why = format!("{why}; stage times come from the program's own account");
    if attempted {
        let tail = failures.iter().rev().find_map(|(_, error)| error.log_tail.as_deref());
        PhaseStatus::failed(why, tail)
    } else {
        PhaseStatus::skipped(why)
    }
}

/// Reads a recording and checks that it holds the GPU work of the program, whose run ended as `outcome`.
fn read_complete(
    context: &mut PhaseContext<'_>,
    paths: &[PathBuf],
    outcome: &Outcome,
    account: PathBuf,
) -> Result<Input, AttemptError> {
    let input = read(context, paths)?;
    for note in completeness::missing_kernels(&input.trace) {
        context.warn(PHASE, note);
    }
    let account = account_at(account);
    match completeness::check(&input.trace, &outcome.gpu_processes, account.as_ref()) {
        Completeness::Complete => Ok(input),
        Completeness::MissingProcesses(note) => {
            context.record.note(PHASE, note);
            Ok(input)
        }
        Completeness::NoGpuWork(why) => Err(AttemptError::new(why)),
    }
}

/// Reads a recording. Unreadable files are noted; an empty recording is an error.
fn read(context: &mut PhaseContext<'_>, paths: &[PathBuf]) -> Result<Input, AttemptError> {
    let mut unreadable = Vec::new();
    let input = read_each(paths, &mut unreadable);
    let is_empty = input.trace.ops.is_empty() && input.trace.ranges.rows.is_empty();
    match unreadable.as_slice() {
        [error] if is_empty && paths.len() == 1 => Err(AttemptError::new(error)),
        _ if is_empty => Err(AttemptError::new("the recording has neither GPU operations nor NVTX ranges")),
        _ => {
            for error in unreadable {
                context.record.note(PHASE, error);
            }
            Ok(input)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn light_mode_prefers_the_native_collector_and_a_named_tool_comes_first() {
        let first = |wanted, mode| order(wanted, mode, false)[0];
        assert_eq!(first(TimelineTool::Auto, Mode::Deep), Recorder::Nsys);
        assert_eq!(first(TimelineTool::Auto, Mode::Light), Recorder::Native);
        assert_eq!(first(TimelineTool::Nsys, Mode::Light), Recorder::Nsys);
        assert_eq!(first(TimelineTool::Native, Mode::Deep), Recorder::Native);
    }

    #[test]
    fn an_engine_is_recorded_by_the_native_collector_unless_nsys_is_named() {
        let first = |wanted| order(wanted, Mode::Deep, true)[0];
        assert_eq!(first(TimelineTool::Auto), Recorder::Native);
        assert_eq!(first(TimelineTool::Nsys), Recorder::Nsys);
    }
}
