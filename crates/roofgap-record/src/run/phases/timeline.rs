//! Records the timeline with nsys or the native collector. The recording is never gated by default; stages are cut out of it
//! by range afterwards.
//! A process of its own samples hardware counters while the native collector records the program.

use super::completeness;
use super::counters::unwatched_time;
use super::sampler::Sampler;
use super::{Phase, Ready, Results, without_profiler};
use crate::run::context::{AttemptError, PhaseCommand, PhaseContext, PhaseDescription};
use crate::run::program::Program;
use crate::run::tools::{NativeLibrary, Tools};
use crate::stage1;
use roofgap_analyze::{Agreement, Engine, Options, Profiler, StageSet, analyze};
use roofgap_base::error::Error;
use roofgap_base::file::hash_file;
use roofgap_collect::child::{Outcome, probe};
use roofgap_collect::command::CommandLine;
use roofgap_collect::nsys::{self, CaptureEnd, CaptureRange, NsysProfile};
use roofgap_collect::tool::{Nsys, ToolError};
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::{LayerRanges, Mode, Profiling, TimelineTool, WorkloadKind};
use roofgap_runs::open::read_each;
use roofgap_runs::open::run::account_at;
use roofgap_runs::run_dir::{Layout, PhaseName};
use roofgap_trace::Input;
use std::ffi::{OsStr, OsString};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

const NAME: PhaseName = PhaseName::Timeline;

/// Samples a second of the stacks beside a full recording of one process.
const STACKS_HZ: NonZeroU32 = NonZeroU32::MIN.saturating_add(199);

/// The phase.
pub struct TimelineRecording;

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
            Self::Nsys => "nsys",
            Self::Native => "native",
        }
    }
}

/// The recorders of a session.
struct Order {
    /// In the order of attempts.
    recorders: [Recorder; 2],
    /// True where the second one records, too, after the first has succeeded.
    both: bool,
    /// Reason, where no tool is named.
    why: Option<String>,
}

/// Chooses the recorders. A serving engine ends its processes before nsys has all of their records; the native collector runs inside each
/// of them, and in each rank of a job. In deep mode nsys records all other programs, for its report, and the native collector does, too,
/// because it usually slows a program less.
fn order(config: &Config, is_usable: bool, no_nsys: Option<&ToolError>, engine: Option<&str>) -> Order {
    let nsys = |both, why| Order { recorders: [Recorder::Nsys, Recorder::Native], both, why };
    let native = |why| Order { recorders: [Recorder::Native, Recorder::Nsys], both: false, why };
    match (config.profiling.timeline, config.run.mode, engine) {
        (TimelineTool::Nsys, ..) => nsys(false, None),
        (TimelineTool::Native, ..) | (_, Mode::Light, _) => native(None),
        (.., Some(engine)) => native(Some(format!(
            "{engine} runs in several processes, so the native collector is tried before nsys"
        ))),
        _ if config.workload.kind == WorkloadKind::Server => native(None),
        _ if !is_usable => nsys(false, None),
        _ => match (config.profiling.nsys.asks_for(), no_nsys) {
            (Some(option), _) => {
                nsys(false, Some(format!("nsys records the timeline because of profiling.nsys.{option}")))
            }
            (None, None) => nsys(true, None),
            (None, Some(why)) => native(Some(format!("the native collector alone records: {why}"))),
        },
    }
}

/// Tells whether the native collector can record GPU work here.
pub(super) fn is_usable(tools: &Tools) -> bool {
    tools.native.is_ok() && tools.gpu.is_ok()
}

impl Phase for TimelineRecording {
    fn name(&self) -> PhaseName {
        NAME
    }

    /// The embedded model runs on the CPU, so it requests no timeline unless a recorder is named.
    fn not_requested(&self, config: &Config) -> Option<&'static str> {
        if !config.runner.timeline {
            return Some("runner.timeline is false");
        }
        let is_embedded = config.workload.kind == WorkloadKind::Embedded;
        (is_embedded && config.profiling.timeline == TimelineTool::Auto).then_some(
            "the embedded model runs on the CPU and times its own stages; profiling.timeline=nsys or native records it",
        )
    }

    /// Describes the commands of the first usable recorder.
    fn commands(&self, Ready { program, tools }: &Ready) -> Result<PhaseDescription, Error> {
        let (config, layout) = (&program.config, &program.layout);
        let mut described = PhaseDescription::default();
        let Order { recorders, both, why } =
            order(config, is_usable(tools), tools.nsys.as_ref().err(), program.serving_engine());
        described.notes.extend(why);
        for recorder in recorders {
            match (recorder, &tools.nsys, &tools.native) {
                (Recorder::Nsys, Ok(nsys), _) => {
                    let commands = nsys_commands(nsys, program)?;
                    described.notes.extend(commands.left_out);
                    described.commands.extend([commands.record, commands.export]);
                    described.commands.extend(commands.stats.map(|(stats, _)| stats));
                    if !both {
                        break;
                    }
                }
                (Recorder::Native, _, Ok(_)) => {
                    let beside =
                        |line| PhaseCommand::new(line, layout.native(), "sampler", config.run.timeout.0);
                    described.commands.extend(program.sampler().map(beside));
                    described.commands.push(native_command(program)?);
                    break;
                }
                (Recorder::Nsys, Err(why), _) | (Recorder::Native, _, Err(why)) => {
                    described.notes.push(why.to_string());
                }
            }
        }
        Ok(described)
    }

    fn expected(&self, _: &Config, unprofiled: Option<Duration>) -> Option<String> {
        without_profiler(unprofiled)
    }

    fn run(&self, context: &mut PhaseContext<'_>, found: &mut Results) -> Result<(), AttemptError> {
        found.timeline = Some(record(context, found.ready()?, &found.stages)?);
        Ok(())
    }
}

/// Records with the first recorder that succeeds.
fn record(
    context: &mut PhaseContext<'_>,
    ready: &Ready,
    stages: &StageSet,
) -> Result<Timeline, AttemptError> {
    let Ready { program, tools } = ready;
    let mut failures: Vec<(Recorder, AttemptError)> = Vec::new();
    let mut attempted = false;
    // The processes of an engine or a launcher are apart from that of the command.
    let is_apart = |name: &String| Engine::named(name).is_none_or(|engine| !engine.in_process);
    let engine = program.engine().filter(is_apart);
    let Order { recorders, both, why } =
        order(context.config, is_usable(tools), tools.nsys.as_ref().err(), engine.as_deref());
    if let Some(why) = why {
        context.note(why);
    }
    for recorder in recorders {
        if context.is_cancelled() {
            break;
        }
        let attempt = match (recorder, &tools.nsys, &tools.native) {
            (Recorder::Nsys, Err(why), _) | (Recorder::Native, _, Err(why)) => Err(why.clone().into()),
            (Recorder::Nsys, Ok(nsys), _) => {
                attempted = true;
                record_with_nsys(context, nsys, program)
            }
            (Recorder::Native, _, Ok(library)) => {
                attempted = true;
                record_natively(context, library, program, engine.is_none())
            }
        };
        match attempt {
            Ok(input) => {
                let timeline = finish(context, tools, recorder, input, &failures);
                return Ok(match &tools.native {
                    Ok(library) if both && recorder == Recorder::Nsys => {
                        record_again(context, library, program, stages, timeline)
                    }
                    _ => timeline,
                });
            }
            Err(error) => failures.push((recorder, error)),
        }
    }
    Err(no_recording(context.is_cancelled(), attempted, failures))
}

/// Records with the native collector what nsys has recorded, where the program is short, and notes how far the two agree. Returns the
/// timeline of the one that slowed the program less.
fn record_again(
    context: &mut PhaseContext<'_>,
    library: &NativeLibrary,
    program: &Program,
    stages: &StageSet,
    nsys: Timeline,
) -> Timeline {
    let budget = context.config.run.counter_budget.0;
    let native = match unwatched_time(context) {
        Some(wall) if wall > budget => Err("the program runs longer than run.counter_budget".to_owned()),
        _ => record_natively(context, library, program, true).map_err(|error| error.why),
    };
    let input = match native {
        Ok(input) => input,
        Err(why) => {
            context.note(format!("nsys alone recorded the timeline: {why}"));
            return nsys;
        }
    };
    let options = Options { stages: stages.clone(), ..Options::default() };
    let analysis = |input: &Input| analyze(&input.trace, &options).analysis;
    let (of_nsys, of_native) = (analysis(&nsys.input), analysis(&input));
    let agreement = Agreement::of([(Profiler::Native, &of_native), (Profiler::Nsys, &of_nsys)]);
    let written = context.run_dir.write_json(context.layout.agreement(), &agreement);
    context.note_output(written);
    if agreement.profilers[0] == Profiler::Nsys {
        return nsys;
    }
    context.tool(Recorder::Native.as_str());
    context.note("the times are those of the native collector, which slowed the program less than nsys");
    Timeline { tool: Recorder::Native, input, degraded: None }
}

/// Notes how the timeline was recorded.
fn finish(
    context: &mut PhaseContext<'_>,
    tools: &Tools,
    recorder: Recorder,
    input: Input,
    failures: &[(Recorder, AttemptError)],
) -> Timeline {
    context.tool(recorder.as_str());
    let replaced = failures.first().map(|(first, error)| {
        let (first, used) = (first.as_str(), recorder.as_str());
        format!("{first} recorded no timeline ({}); {used} was used instead", error.why)
    });
    if let Some(note) = &replaced {
        context.note(note.clone());
    }
    if input.trace.ops.is_empty() {
        let why = match &tools.gpu {
            Ok(()) => "the program used no GPU".to_owned(),
            Err(why) => why.to_string(),
        };
        context.note(format!("no GPU operation was recorded: {why}"));
    }
    if context.is_cancelled() {
        context.warn("interrupted: the timeline holds what was recorded until then");
    }
    Timeline {
        tool: recorder,
        input,
        // Without a named tool, either recorder is a full answer.
        degraded: replaced.filter(|_| context.config.profiling.timeline != TimelineTool::Auto),
    }
}

/// Joins the reasons of all recorders.
fn no_recording(cancelled: bool, attempted: bool, failures: Vec<(Recorder, AttemptError)>) -> AttemptError {
    let reasons: Vec<&str> = failures.iter().map(|(_, error)| error.why.as_str()).collect();
    let why = reasons.join("; ");
    if cancelled {
        return AttemptError::new(if why.is_empty() { "interrupted".to_owned() } else { why });
    }
    let why = format!("{why}; stage times come from the program's own account");
    if !attempted {
        return AttemptError::skipped(why);
    }
    let log_tail = failures.into_iter().rev().find_map(|(_, error)| error.log_tail);
    AttemptError { log_tail, ..AttemptError::new(why) }
}

/// The commands of a recording with nsys.
struct NsysCommands {
    record: PhaseCommand,
    export: PhaseCommand,
    /// Kernel summary of nsys, and the file it writes. A check of our numbers, never their source.
    stats: Option<(PhaseCommand, PathBuf)>,
    /// Options that this nsys does not support.
    left_out: Vec<String>,
    profile: NsysProfile,
}

impl NsysCommands {
    /// Returns true where nsys itself ended the program: `stop-shutdown` sends SIGTERM at the end of the capture range.
    fn is_shutdown(&self, outcome: &Outcome) -> bool {
        let gate = self.profile.capture_range.as_ref();
        gate.is_some_and(|gate| gate.end == CaptureEnd::StopShutdown)
            && (outcome.code == Some(128 + SIGTERM) || outcome.signal == Some(SIGTERM))
    }
}

/// Number of the signal that nsys sends to the program after the capture range.
const SIGTERM: i32 = 15;

/// Describes the commands of a recording.
fn nsys_commands(nsys: &Nsys, program: &Program) -> Result<NsysCommands, Error> {
    let (config, layout) = (&program.config, &program.layout);
    let profile = nsys_options(config, layout)?;
    let command = |line, log| PhaseCommand::new(line, layout.nsys(), log, config.run.timeout.0);
    let layers = config.profiling.layers.as_str();
    let program = program.command(NAME, &layout.nsys_account())?.env("ROOFGAP_LAYERS", layers);
    let planned = profile.command(nsys, &program);
    let export = nsys::export(nsys, &profile.report(), &layout.nsys_export());
    let base = layout.nsys_summary();
    let summary = nsys::kernel_summary(nsys, &base).filter(|_| config.profiling.nsys.stats);
    let stats = summary.map(|summary| {
        let line = nsys::stats(nsys, &layout.nsys_sqlite(), &[summary.report], &base);
        (command(line, "stats"), summary.file)
    });
    Ok(NsysCommands {
        record: command(planned.command, "nsys").profiler(),
        export: command(export, "export"),
        stats,
        left_out: planned.left_out,
        profile,
    })
}

/// Reads the recording options from the configuration.
fn nsys_options(config: &Config, layout: &Layout) -> Result<NsysProfile, Error> {
    let settings = &config.profiling.nsys;
    let gate = settings.gate()?;
    let end = settings.capture_range_end.unwrap_or_default();
    let capture_range = gate.map(|range| CaptureRange { range, end });
    Ok(NsysProfile {
        trace: settings.trace.clone(),
        sample: settings.sample.clone(),
        cpuctxsw: settings.cpuctxsw.clone(),
        graph: settings.cuda_graph_trace,
        capture_range,
        extra: settings.extra_args.clone(),
        ..NsysProfile::new(layout.nsys_base())
    })
}

/// Records with nsys.
fn record_with_nsys(
    context: &mut PhaseContext<'_>,
    nsys: &Nsys,
    program: &Program,
) -> Result<Input, AttemptError> {
    let commands = &nsys_commands(nsys, program)?;
    if let Some(note) = context.config.profiling.nsys.gate_note() {
        context.note(note);
    }
    context.run_dir.folder("nsys")?;
    for left in &commands.left_out {
        context.note(left.clone());
    }
    let outcome = context.run(&commands.record)?;
    if !context.output(&commands.profile.report()) {
        let gate = commands.profile.capture_range.as_ref();
        let gate =
            gate.map_or(String::new(), |gate| format!("; perhaps the range {} never opened", gate.range));
        let why = if commands.profile.unimported().exists() {
            "nsys recorded but failed to import the recording (it left a .qdstrm); see `roofgap doctor`"
                .to_owned()
        } else if outcome.is_success() {
            format!("nsys ended with status 0 and left no report{gate}")
        } else {
            format!("nsys left no report: it {}{gate}", outcome.describe())
        };
        return Err(AttemptError::after(why, &outcome));
    }
    if commands.is_shutdown(&outcome) {
        context.note("nsys ended the program after the capture range");
    } else {
        context.program_ended("nsys", &outcome);
    }
    let account = context.layout.nsys_account();
    stage1::complete_account(context, &account);
    let sqlite = export(context, commands)?;
    if context.config.profiling.nsys.stats {
        summarise(context, commands)?;
    }
    if commands.profile.capture_range.is_some() {
        // What lies outside the range was left out on request.
        return read(context, &[sqlite]);
    }
    read_complete(context, &[sqlite], &outcome, account)
}

/// Exports the report. An incomplete export is removed.
fn export(context: &mut PhaseContext<'_>, commands: &NsysCommands) -> Result<PathBuf, AttemptError> {
    let report = commands.profile.report();
    let interrupted = || {
        let path = report.display();
        AttemptError::new(format!("interrupted; `roofgap analyze {path}` reads the recording"))
    };
    if context.is_cancelled() {
        return Err(interrupted());
    }
    let (partial, sqlite) = (context.layout.nsys_export(), context.layout.nsys_sqlite());
    let outcome = context.run(&commands.export)?;
    if outcome.is_success() && std::fs::rename(&partial, &sqlite).is_ok() && context.output(&sqlite) {
        return Ok(sqlite);
    }
    let _ = std::fs::remove_file(&partial);
    if context.is_cancelled() {
        return Err(interrupted());
    }
    let why = format!("nsys export left no SQLite file: it {}", outcome.describe());
    Err(AttemptError::after(why, &outcome))
}

fn summarise(context: &mut PhaseContext<'_>, commands: &NsysCommands) -> Result<(), AttemptError> {
    let Some((stats, file)) = &commands.stats else {
        context.note("this nsys has no kernel summary");
        return Ok(());
    };
    context.run(stats)?;
    if !context.output(file) {
        context.note("nsys stats wrote no kernel summary: the recording has no kernels");
        return Ok(());
    }
    // The name in the documents of the original system.
    let short = context.layout.nsys_summary().with_extension("csv");
    let _ = std::fs::remove_file(&short);
    if std::fs::hard_link(file, &short).is_ok() || std::fs::copy(file, &short).is_ok() {
        context.output(&short);
    }
    Ok(())
}

/// Describes the command of a recording: the program with the collector loaded into it.
fn native_command(program: &Program) -> Result<PhaseCommand, Error> {
    let (config, layout) = (&program.config, &program.layout);
    let mut command = program.phase_command(NAME, &layout.native_account())?;
    let line = command
        .line
        .env("CUDA_INJECTION64_PATH", layout.native_library())
        .env("NVTX_INJECTION64_PATH", layout.native_library())
        .env("ROOFGAP_NATIVE_DIR", layout.native());
    let settings = collector_settings(&config.profiling, config.run.mode).into_iter();
    command.line = settings.fold(line, |line, (name, value)| line.env(name, value));
    Ok(command)
}

/// Returns the settings of the collector as variables of the environment.
fn collector_settings(profiling: &Profiling, mode: Mode) -> Vec<(&'static str, String)> {
    let native = &profiling.native;
    let copies = native.copies.unwrap_or(mode == Mode::Deep);
    let mut settings = vec![
        ("ROOFGAP_NATIVE_COPIES", u8::from(copies).to_string()),
        ("ROOFGAP_NATIVE_GRAPH", native.graph.as_str().to_owned()),
    ];
    if profiling.layers != LayerRanges::Off {
        // Engines capture their graphs as they start, also outside of the recorded steps.
        settings.push(("ROOFGAP_NATIVE_NODES", "always".to_owned()));
    }
    settings.push(("ROOFGAP_LAYERS", profiling.layers.as_str().to_owned()));
    settings.extend(native.duty_in(mode).map(|every| ("ROOFGAP_NATIVE_DUTY", every.to_string())));
    settings
}

/// Records with the native collector. `is_one` is true for a program of one process.
fn record_natively(
    context: &mut PhaseContext<'_>,
    library: &NativeLibrary,
    program: &Program,
    is_one: bool,
) -> Result<Input, AttemptError> {
    let mode = context.config.run.mode;
    write_library(context, library)?;
    let command = native_command(program)?;
    let folder = context.layout.native();
    let counters = program.sampler().map(|line| Sampler::counters(line, &folder));
    let stacks = |hz| Sampler::stacks(folder, std::process::id(), hz);
    let stacks = match context.config.profiling.native.stacks_hz {
        Some(hz) => Some(stacks(hz)),
        // Nobody asked for them, so that their lack is no warning.
        None => {
            (cfg!(feature = "stacks") && is_one && mode == Mode::Deep).then(|| stacks(STACKS_HZ).optional())
        }
    };
    let outcome = context.run(&command);
    for sampler in counters.into_iter().chain(stacks) {
        sampler.end(context);
    }
    let outcome = outcome?;
    // The record keeps the hash of the library.
    let _ = std::fs::remove_file(context.layout.native_library());
    let found = context.layout.native_captures();
    let captures: Vec<PathBuf> = found.into_iter().filter(|capture| context.output(capture)).collect();
    if captures.is_empty() {
        let how = if outcome.is_success() {
            "used neither CUDA nor NVTX ranges".to_owned()
        } else {
            outcome.describe()
        };
        let why = format!("the native collector left no capture: the program {how}");
        return Err(AttemptError::after(why, &outcome));
    }
    context.program_ended("the native collector", &outcome);
    let account = context.layout.native_account();
    stage1::complete_account(context, &account);
    read_complete(context, &captures, &outcome, account)
}

/// Adds the collector to the libraries that are preloaded.
pub(super) fn preloaded(line: CommandLine, layout: &Layout) -> CommandLine {
    let own = line.env_value("LD_PRELOAD").map(|value| value.map(OsString::from));
    let others = own.unwrap_or_else(|| std::env::var_os("LD_PRELOAD")).filter(|set| !set.is_empty());
    let all: Vec<OsString> = std::iter::once(layout.native_library().into()).chain(others).collect();
    line.env("LD_PRELOAD", all.join(OsStr::new(":")))
}

/// Writes the collector, and tries whether another program starts with it.
pub(super) fn try_library(
    context: &mut PhaseContext<'_>,
    tools: &Tools,
    line: &CommandLine,
) -> Result<(), String> {
    let library = tools.native.as_ref().map_err(ToString::to_string)?;
    write_library(context, library).map_err(|error| error.why)?;
    let preload = line.env_value("LD_PRELOAD").flatten().unwrap_or_default();
    let tried = probe(&CommandLine::new("true").env("LD_PRELOAD", preload), Duration::from_secs(10));
    match tried.map_err(|error| error.to_string())? {
        output if output.success && !output.stderr.contains("libroofgap_inject") => Ok(()),
        output => Err(output.summary()),
    }
}

/// Writes the library and checks its hash.
pub(super) fn write_library(
    context: &mut PhaseContext<'_>,
    library: &NativeLibrary,
) -> Result<(), AttemptError> {
    let path = context.layout.native_library();
    context.run_dir.folder("native")?;
    context.run_dir.write(&path, library.bytes)?;
    let (written, expected) = (hash_file(&path)?.sha256, library.sha256());
    if written != expected {
        let why = format!("{} has SHA-256 {written}, expected {expected}", path.display());
        return Err(AttemptError::new(why));
    }
    context.note(format!("native collector, SHA-256 {written}"));
    Ok(())
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
        context.warn(note);
    }
    let account = account_at(account);
    let checked = completeness::check(&input.trace, &outcome.gpu_processes, account.as_ref());
    if let Some(note) = checked? {
        context.note(note);
    }
    Ok(input)
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
                context.note(error);
            }
            Ok(input)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_runs::config::{ConfigProps, compose};

    fn order_of(overrides: &[&str], no_nsys: Option<&ToolError>, engine: Option<&str>) -> Order {
        let overrides = overrides.iter().map(|word| (*word).to_owned()).collect();
        let config = compose(&ConfigProps { overrides, ..ConfigProps::default() }).unwrap().config;
        order(&config, true, no_nsys, engine)
    }

    /// Returns the first recorder on a machine with a GPU and nsys, with the reason.
    fn first(overrides: &[&str], engine: Option<&str>) -> (Recorder, String) {
        let Order { recorders, both, why } = order_of(overrides, None, engine);
        assert!(!both, "{overrides:?}");
        (recorders[0], why.unwrap_or_default())
    }

    #[test]
    fn a_deep_session_is_recorded_by_nsys_and_the_native_collector() {
        let deep = order_of(&["run.mode=deep"], None, None);
        assert_eq!((deep.recorders[0], deep.both), (Recorder::Nsys, true));
        for tool in ["nsys", "native"] {
            let alone = order_of(&[&format!("profiling.timeline={tool}")], None, None);
            assert_eq!((alone.recorders[0].as_str(), alone.both), (tool, false));
        }
        let missing = ToolError("nsys was not found".to_owned());
        let without = order_of(&["run.mode=deep"], Some(&missing), None);
        assert_eq!((without.recorders[0], without.both), (Recorder::Native, false));
        assert!(without.why.unwrap().contains("nsys was not found"));
        for native in [&["run.mode=light"][..], &["workload=server", "workload.program=[serve]"]] {
            assert_eq!(first(native, None).0, Recorder::Native, "{native:?}");
        }
        let (recorder, why) = first(&["run.mode=deep"], Some("vllm"));
        assert!(recorder == Recorder::Native && why.starts_with("vllm runs in several processes"), "{why}");
        let config = compose(&ConfigProps::default()).unwrap().config;
        assert_eq!(
            order(&config, false, None, None).recorders[0],
            Recorder::Nsys,
            "without a GPU or the collector"
        );
    }

    #[test]
    fn what_only_nsys_records_keeps_it_first() {
        for option in [
            "profiling.nsys.sample=process-tree",
            "profiling.nsys.cpuctxsw=process-tree",
            "profiling.nsys.trace=[cuda,nvtx,cublas]",
            "profiling.nsys.nvtx_capture=LLM@decode_all",
            "profiling.nsys.extra_args=[--gpu-metrics-devices=all]",
        ] {
            let (recorder, why) = first(&["run.mode=deep", option], None);
            assert_eq!(recorder, Recorder::Nsys, "{option}");
            assert!(option.starts_with(why.rsplit(' ').next().unwrap()), "{option}: {why}");
            assert_eq!(first(&["run.mode=deep", option], Some("vllm")).0, Recorder::Native, "{option}");
        }
    }

    #[test]
    fn the_configuration_becomes_settings_of_the_collector() {
        let mut profiling = compose(&ConfigProps::default()).unwrap().config.profiling;
        let names = |profiling: &Profiling, mode| {
            let settings = collector_settings(profiling, mode);
            settings.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let deep = [
            "ROOFGAP_NATIVE_COPIES=1",
            "ROOFGAP_NATIVE_GRAPH=node",
            "ROOFGAP_NATIVE_NODES=always",
            "ROOFGAP_LAYERS=auto",
        ];
        assert_eq!(names(&profiling, Mode::Deep), deep, "deep mode records all");
        let light = names(&profiling, Mode::Light);
        assert_eq!(light[0], "ROOFGAP_NATIVE_COPIES=0");
        assert_eq!(light.last().map(String::as_str), Some("ROOFGAP_NATIVE_DUTY=16"));
        profiling.native.duty = std::num::NonZeroU32::new(4);
        let with_duty = names(&profiling, Mode::Deep);
        assert_eq!(with_duty[0], "ROOFGAP_NATIVE_COPIES=1");
        assert_eq!(with_duty.last().map(String::as_str), Some("ROOFGAP_NATIVE_DUTY=4"));
        profiling.native.duty = std::num::NonZeroU32::new(1);
        profiling.layers = LayerRanges::Off;
        let off = names(&profiling, Mode::Deep);
        assert_eq!(off.len(), 3, "one of one is all");
        assert_eq!(off[2], "ROOFGAP_LAYERS=off");
        assert_eq!(names(&profiling, Mode::Light).len(), 3, "also in light mode");
    }
}
