//! One profiling session: [`profile`] runs the phases in order and returns the exit status; [`dry_run`] lists their commands.
//!
//! - [`props`]: input, events and result of a session;
//! - [`phases`]: what a phase is, their order, and one file a phase;
//! - `context`: the context of the phases, the description of their commands, and their failures;
//! - `program`, `inputs`, `tools`: the profiled program, its inputs, the profilers and the machine;
//! - [`attach`]: a window of a program that runs;
//! - [`incident`]: the last seconds of a program, kept when something happens.

pub mod attach;
pub mod incident;
pub mod phases;
pub mod props;

pub(crate) mod context;
pub(crate) mod inputs;
pub(crate) mod program;
mod tools;

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use roofgap_base::exit::Exit;
use roofgap_collect::child::Cancel;
use roofgap_collect::command::CommandLine;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::open::run::stages;
use roofgap_runs::run_dir::folder::{RunDir, RunState, cannot_create, run_state};
use roofgap_runs::run_dir::layout::nodes_in;
use roofgap_runs::run_dir::{Layout, PhaseName, PhaseStatus, RunRef, locate};
use roofgap_runs::runs::{prune, text};

use context::PhaseContext;
use phases::{ORDER, Ready, Results, Stop, needs_tools, preflight, run_all};
use program::{Program, ProgramFiles};
use roofgap_base::error::Error;
use tools::{GpuCheck, Tools};

pub use phases::report::{WrittenReports, write_reports, write_reports_with};
pub use props::{Event, Outcome, ProfileAnswer, ProfileProps, SharedRunOutcome};
pub use tools::NativeLibrary;

/// Runs a whole session.
pub fn profile(
    props: &ProfileProps,
    cancel: &Cancel,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome, Error> {
    let config = &props.composed.config;
    let stages = stages(config).map_err(Error::of)?;
    let python = preflight::check(props)?;
    let shared_run = SharedRun::of(config);
    let run_dir = match &shared_run {
        Some(shared) => RunDir::create(&shared.create_nodes()?)?,
        None => RunDir::create(&config.artifacts.stage2_dir)?,
    };
    let repeat = repeat_command(props, &Layout::of(run_dir.path()));
    let mut context = PhaseContext::begin_session(props, &run_dir, repeat, cancel, events)?;
    let mut found = Results::new(stages, python);
    let end = run_all(&mut context, &mut found);
    warn_about_size(&mut context);
    let outcome = conclude(context, end, found);
    // The session has ended for the others of its run when its marker is gone.
    drop(run_dir);
    let shared_run = shared_run.map(|shared| shared.end());
    let is_whole = shared_run.as_ref().is_none_or(|shared| shared.problems.is_empty());
    let exit = if is_whole || outcome.exit != Exit::Done { outcome.exit } else { Exit::Partial };
    Ok(Outcome { exit, shared_run, ..outcome })
}

/// Warns about a run over `retention.max_run_bytes`, with what `runs prune` would do about it.
fn warn_about_size(context: &mut PhaseContext<'_>) {
    let cap = context.config.retention.max_run_bytes.0;
    let run = RunRef { id: context.run_dir.id().to_string(), path: context.run_dir.path().to_owned() };
    // A run whose files cannot be listed has told so in its phases.
    let Ok(plan) = prune::of_run(&run, false, cap) else {
        return;
    };
    if plan.bytes > cap {
        let command = format!(
            "roofgap runs prune artifacts.stage2_dir='{}' retention.max_run_bytes={cap}",
            context.config.artifacts.stage2_dir.display()
        );
        context.warn(text::over_cap(&plan, cap, &command));
    }
}

/// Decides the exit status, lists the missing results, and ends the record.
fn conclude(mut context: PhaseContext<'_>, end: Result<(), Stop>, found: Results) -> Outcome {
    let phases = context.record.record().phases.iter();
    let mut missing: Vec<String> = phases
        .filter(|phase| phase.requested && phase.status != PhaseStatus::Ok)
        .map(|phase| format!("{}: {}", phase.name, phase.status.why().unwrap_or("not reached")))
        .collect();
    missing.append(&mut context.program_failures);
    let write_error = context.record.write_error();
    missing.extend(write_error.map(|error| format!("session.json: {error}")));
    let exit = match end {
        Err(Stop::Cancelled) => Exit::Interrupted,
        Err(Stop::Failed(_)) if context.is_cancelled() => Exit::Interrupted,
        Err(Stop::Failed(exit)) => exit,
        Ok(()) => {
            missing.extend(found.degraded().map(|why| format!("{}: {why}", PhaseName::Timeline)));
            if missing.is_empty() { Exit::Done } else { Exit::Partial }
        }
    };
    context.record.session_ends(exit, missing);
    let run_dir = context.run_dir.path().to_owned();
    let analysis = found.opened.map(|opened| opened.analysis);
    Outcome { run_dir, exit, record: context.record.into_record(), analysis, shared_run: None }
}

/// Builds the command that repeats the run from the same folder, because paths may be relative to it.
fn repeat_command(props: &ProfileProps, layout: &Layout) -> String {
    let line = CommandLine::new(&props.executable).args(["profile", "--config"]).arg(layout.config());
    match std::env::current_dir() {
        Ok(folder) => line.cwd(folder).to_string(),
        Err(_) => line.to_string(),
    }
}

/// The commands of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DryRun {
    /// Commands in order, each with its phase. Paths are those of a run directory named `RUN`.
    pub commands: Vec<(PhaseName, CommandLine)>,
    /// Notes, each with its phase.
    pub remarks: Vec<(PhaseName, String)>,
}

/// Checks a session and lists its commands. Creates no run directory and does not run the program.
pub fn dry_run(props: &ProfileProps) -> Result<DryRun, Error> {
    let config = &props.composed.config;
    stages(config).map_err(Error::of)?;
    preflight::check(props)?;
    let base = match SharedRun::of(config) {
        Some(shared) => shared.nodes(),
        None => config.artifacts.stage2_dir.clone(),
    };
    let root = base.join("RUN");
    let layout = Layout::of(&std::path::absolute(&root).unwrap_or(root));
    let files = ProgramFiles::planned(config, &layout)?;
    let program = Program::of(config, &props.executable, &layout, files)?;
    let gpus = GpuCheck::query(config, &props.search_path);
    let mut dry_run = DryRun::default();
    let no_gpu = gpus.usable.as_ref().err();
    dry_run.remarks.extend(no_gpu.map(|why| (PhaseName::Preflight, why.to_string())));
    if config.workload.kind == WorkloadKind::Hydra {
        let note = "the module is asked for its configuration when the session runs; overrides that turn off its own measurements are added then";
        dry_run.remarks.push((PhaseName::Preflight, note.to_owned()));
    }
    let tools = Tools::find(props, gpus.usable, needs_tools(config));
    let ready = Ready { program, tools };
    for phase in ORDER.iter().filter(|phase| phase.not_requested(config).is_none()) {
        let described = phase.commands(&ready)?;
        dry_run.commands.extend(described.commands.into_iter().map(|command| (phase.name(), command.line)));
        dry_run.remarks.extend(described.notes.into_iter().map(|note| (phase.name(), note)));
    }
    Ok(dry_run)
}

/// The folder of a run of several nodes: sessions with the same `run.id` and folder become one run.
///
/// Each session writes a run directory of its own, `ID/nodes/RUN`, so that none can harm another. The one that ends last finds that
/// all others have ended, and makes the run `ID` of all of them. Where a node died, `roofgap report ID` makes it.
#[derive(Debug, Clone)]
struct SharedRun {
    folder: PathBuf,
}

impl SharedRun {
    /// Returns the shared run of a configuration; `None` for a session of its own.
    fn of(config: &Config) -> Option<Self> {
        let id = config.run.id.as_ref()?;
        let base = &config.artifacts.stage2_dir;
        let base = std::path::absolute(base).unwrap_or_else(|_| base.clone());
        Some(Self { folder: base.join(id) })
    }

    /// Returns the folder of the sessions.
    fn nodes(&self) -> PathBuf {
        nodes_in(&self.folder)
    }

    /// Creates the folder of the sessions, which only its owner may read.
    fn create_nodes(&self) -> Result<PathBuf, Error> {
        let nodes = self.nodes();
        let base = self.folder.parent().unwrap_or(&self.folder);
        let created = std::fs::create_dir_all(base).and_then(|()| {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(&nodes)
        });
        created.map_err(cannot_create(&nodes))?;
        Ok(nodes)
    }

    /// Writes the shared run once all of its sessions have ended. This one has.
    fn end(&self) -> SharedRunOutcome {
        let mut outcome = SharedRunOutcome { path: self.folder.clone(), ..SharedRunOutcome::default() };
        if let Err(error) = self.write(&mut outcome) {
            outcome.problems.push(error.to_string());
        }
        outcome
    }

    fn write(&self, outcome: &mut SharedRunOutcome) -> Result<(), Error> {
        let runs = locate::all(&self.nodes())?;
        outcome.nodes = runs.len();
        let under_way = runs.iter().filter(|run| run_state(&run.path) == RunState::UnderWay);
        outcome.under_way = under_way.map(|run| run.id.clone()).collect();
        if outcome.under_way.is_empty() {
            outcome.problems = write_reports(&self.folder)?.unreadable;
        }
        Ok(())
    }
}
