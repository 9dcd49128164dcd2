//! Records a timeline with nsys and exports it to SQLite.

use std::collections::HashMap;
use std::path::PathBuf;

use roofgap_collect::child::Outcome;
use roofgap_collect::nsys::{self, CaptureEnd, CaptureRange, NsysProfile};
use roofgap_collect::program::Phase;
use roofgap_collect::range::NvtxRange;
use roofgap_collect::tool::Nsys;
use roofgap_trace::{Input, range_name};

use super::{PHASE, read, read_complete};
use crate::run::context::{PhaseCommand, PhaseContext};
use crate::run::error::{AttemptError, ProgramError};
use crate::run::phases::stage1_runner;
use crate::run::program::Program;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::RangeEnd;
use roofgap_runs::run_dir::Layout;

/// Gating of a recording by `profiling.nsys.nvtx_capture`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gating {
    /// On, if configured.
    Configured,
    /// Off.
    Off,
}

/// The commands of a recording with nsys.
pub struct NsysCommands {
    pub record: PhaseCommand,
    pub export: PhaseCommand,
    /// Kernel summary of nsys, and the file it writes. A check of our numbers, never their source.
    pub stats: Option<(PhaseCommand, PathBuf)>,
    /// Options that this nsys does not support.
    pub left_out: Vec<String>,
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
pub fn commands(
    config: &Config,
    layout: &Layout,
    nsys: &Nsys,
    program: &Program,
    gating: Gating,
) -> Result<NsysCommands, ProgramError> {
    let mut profile = profile(config, layout)?;
    let mut log = "nsys";
    if gating == Gating::Off {
        profile.capture_range = None;
        log = "nsys-ungated";
    }
    let command = |line, log| PhaseCommand::new(PHASE, line, layout.nsys(), log, config.run.timeout.0);
    let layers = config.profiling.layers.as_str();
    let program = program.command(Phase::Timeline, &layout.nsys_account())?.env("ROOFGAP_LAYERS", layers);
    let planned = profile.command(nsys, &program);
    let export = nsys::export(nsys, &profile.report(), &layout.nsys_export());
    let base = layout.nsys_summary();
    let summary = nsys::kernel_summary(nsys, &base).filter(|_| config.profiling.nsys.stats);
    let stats = summary.map(|summary| {
        let line = nsys::stats(nsys, &layout.nsys_sqlite(), &[summary.report], &base);
        (command(line, "stats"), summary.file)
    });
    Ok(NsysCommands {
        record: command(planned.command, log).profiler(),
        export: command(export, "export"),
        stats,
        left_out: planned.left_out,
        profile,
    })
}

/// Reads the recording options from the configuration.
fn profile(config: &Config, layout: &Layout) -> Result<NsysProfile, ProgramError> {
    let settings = &config.profiling.nsys;
    let capture_range = match settings.gate() {
        None => None,
        Some(text) => Some(CaptureRange {
            range: NvtxRange::parse(text).ok_or_else(|| ProgramError::Range(text.to_owned()))?,
            end: match settings.capture_range_end.unwrap_or(RangeEnd::Stop) {
                RangeEnd::Stop => CaptureEnd::Stop,
                RangeEnd::StopShutdown => CaptureEnd::StopShutdown,
            },
        }),
    };
    Ok(NsysProfile {
        trace: settings.trace.clone(),
        sample: settings.sample.clone(),
        cpuctxsw: settings.cpuctxsw.clone(),
        graph: settings.cuda_graph_trace,
        events: settings.cuda_event_trace,
        capture_range,
        extra: settings.extra_args.clone(),
        ..NsysProfile::new(layout.nsys_base())
    })
}

/// Records with nsys; without a gate where the gated range never opened.
pub fn record(context: &mut PhaseContext<'_>, nsys: &Nsys, program: &Program) -> Result<Input, AttemptError> {
    let gated = commands(context.config, &context.layout, nsys, program, Gating::Configured)?;
    match run(context, &gated) {
        Err(error)
            if gated.profile.capture_range.is_some()
                && !gated.profile.report().exists()
                && !context.is_cancelled() =>
        {
            let ungated = commands(context.config, &context.layout, nsys, program, Gating::Off)?;
            let input = run(context, &ungated)?;
            let range = context.config.profiling.nsys.gate().unwrap_or_default();
            let note = format!(
                "the range {range} never opened ({}); everything was recorded instead. Ranges found: {}",
                error.why,
                most_frequent_ranges(&input)
            );
            context.record.note(PHASE, note);
            Ok(input)
        }
        other => other,
    }
}

fn run(context: &mut PhaseContext<'_>, commands: &NsysCommands) -> Result<Input, AttemptError> {
    context.run_dir.folder("nsys")?;
    for left in &commands.left_out {
        context.record.note(PHASE, left.clone());
    }
    let outcome = context.run(&commands.record)?;
    if !context.output(PHASE, &commands.profile.report()) {
        let why = if commands.profile.unimported().exists() {
            "nsys recorded but failed to import the recording (it left a .qdstrm); see `roofgap doctor`"
                .to_owned()
        } else if outcome.is_success() {
            "nsys ended with status 0 and left no report".to_owned()
        } else {
            format!("nsys left no report: it {}", outcome.describe())
        };
        return Err(AttemptError::after(why, &outcome));
    }
    if commands.is_shutdown(&outcome) {
        let note = "nsys ended the program after the capture range".to_owned();
        context.record.note(PHASE, note);
    } else {
        context.program_ended(PHASE, "nsys", &outcome);
    }
    let account = context.layout.nsys_account();
    stage1_runner::write_account(context, PHASE, Phase::Timeline, &account);
    context.output(PHASE, &account);
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
    if outcome.is_success() && std::fs::rename(&partial, &sqlite).is_ok() && context.output(PHASE, &sqlite) {
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
        context.record.note(PHASE, "this nsys has no kernel summary");
        return Ok(());
    };
    context.run(stats)?;
    if !context.output(PHASE, file) {
        let note = "nsys stats wrote no kernel summary: the recording has no kernels";
        context.record.note(PHASE, note);
    }
    Ok(())
}

/// Lists up to 20 range names, the most frequent first.
fn most_frequent_ranges(input: &Input) -> String {
    let trace = &input.trace;
    let mut calls: HashMap<_, u64> = HashMap::new();
    for range in &trace.ranges.rows {
        *calls.entry((range.domain, range.name)).or_default() += 1;
    }
    let mut counts: Vec<(String, u64)> = calls
        .into_iter()
        .map(|((domain, name), count)| (range_name(trace.names.get(domain), trace.names.get(name)), count))
        .collect();
    if counts.is_empty() {
        return "none".to_owned();
    }
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let shown: Vec<&str> = counts.iter().take(20).map(|(name, _)| name.as_str()).collect();
    match counts.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
