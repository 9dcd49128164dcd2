//! The commands of a session, without running them.

use roofgap_collect::command::CommandLine;

use super::error::SessionError;
use super::job::Job;
use super::phases::requested::Requested;
use super::phases::{baseline, counters, operators, preflight, timeline};
use super::program::{Program, ProgramFiles};
use super::props::ProfileProps;
use super::tools::{GpuFacts, Tools};
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::open::run::stages;
use roofgap_runs::run_dir::{Layout, PhaseName};

/// The commands of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DryRun {
    /// Commands in order, each with its phase. Paths are those of a run directory named `RUN`.
    pub commands: Vec<(PhaseName, CommandLine)>,
    /// Notes, each with its phase.
    pub remarks: Vec<(PhaseName, String)>,
}

/// Checks a session and lists its commands. Creates no run directory and does not run the program.
pub fn dry_run(props: &ProfileProps) -> Result<DryRun, SessionError> {
    let config = &props.composed.config;
    stages(config)?;
    preflight::check(props)?;
    let base = match Job::of(config) {
        Some(job) => job.nodes(),
        None => config.artifacts.stage2_dir.clone(),
    };
    let root = base.join("RUN");
    let layout = Layout::of(&std::path::absolute(&root).unwrap_or(root));
    let files = ProgramFiles::planned(config, &layout)?;
    let program = Program::of(config, &props.executable, &layout, &files)?;
    let requested = Requested::of(config);
    let gpus = GpuFacts::query(config, &props.search_path);
    let mut dry_run = DryRun::default();
    let no_gpu = gpus.usable.as_ref().err();
    dry_run.remarks.extend(no_gpu.map(|error| (PhaseName::Preflight, error.to_string())));
    if config.workload.kind == WorkloadKind::Hydra {
        let note = "the module is asked for its configuration when the session runs; overrides that turn off its own measurements are added then";
        dry_run.remarks.push((PhaseName::Preflight, note.to_owned()));
    }
    let mut commands = Vec::new();
    if requested.baseline {
        commands.push(baseline::command(config, &layout, &program)?);
    }
    if requested.needs_tools() {
        let tools = Tools::find(props, gpus.usable);
        for (phase, described) in [
            (
                PhaseName::Timeline,
                requested.timeline.then(|| timeline::describe(config, &layout, &tools, &program)),
            ),
            (
                PhaseName::Counters,
                requested.counters.then(|| counters::describe(config, &layout, &tools, &program)),
            ),
        ] {
            if let Some(described) = described.transpose()? {
                commands.extend(described.commands);
                dry_run.remarks.extend(described.notes.into_iter().map(|note| (phase, note)));
            }
        }
    }
    if requested.operators && operators::is_supported(config) {
        commands.push(operators::command(config, &layout, &program)?);
    }
    commands.sort_by_key(|command| command.phase);
    dry_run.commands.extend(commands.into_iter().map(|command| (command.phase, command.line)));
    Ok(dry_run)
}
