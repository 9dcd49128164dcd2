//! One profiling session: [`profile`] runs the phases in order and returns the exit status.
//!
//! - [`props`]: input, events and result of a session;
//! - [`answer`]: the result of a session as JSON;
//! - [`attach`]: a window of a program that runs;
//! - [`mod@dry_run`]: the commands of a session without running them;
//! - `job`: sessions of several nodes as one run;
//! - `context`: the context of the phases and the description of their commands;
//! - `manifest`: the inputs of a session;
//! - `program`, `tools`, [`native`], `environment`: the profiled program, the profilers and the machine;
//! - [`phases`]: one file or folder per phase;
//! - [`error`]: the error types.

pub mod answer;
pub mod attach;
pub mod dry_run;
pub mod error;
pub mod native;
pub mod phases;
pub mod props;

mod context;
mod environment;
mod job;
mod manifest;
mod program;
mod tools;

use std::path::Path;

use roofgap_analyze::StageSet;
use roofgap_base::clock;
use roofgap_collect::child::Cancel;
use roofgap_collect::command::CommandLine;
use roofgap_runs::run_dir::folder::RunDir;

pub use answer::ProfileAnswer;
pub use dry_run::{DryRun, dry_run};
pub use error::{ProgramError, SessionError};
pub use native::{NativeLibrary, NativeUnavailable};
pub use phases::report::{WrittenReports, write_reports, write_reports_with};
pub use props::{Event, JobOutcome, Outcome, ProfileProps};

use context::PhaseContext;
use environment::PythonResult;
use job::Job;
use phases::{baseline, counters, operators, preflight, report, requested::Requested, select, timeline};
use roofgap_base::exit::Exit;
use roofgap_runs::open::run::stages;
use roofgap_runs::run_dir::record::SCHEMA;
use roofgap_runs::run_dir::{
    Layout, PhaseName, PhaseStatus, RecordWriter, RunRef, SessionRecord, SessionState,
};
use roofgap_runs::runs::{prune, text};

/// Runs a whole session.
pub fn profile(
    props: &ProfileProps,
    cancel: &Cancel,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome, SessionError> {
    let config = &props.composed.config;
    let stages = stages(config)?;
    let python = preflight::check(props)?;
    let job = Job::of(config);
    let run_dir = match &job {
        Some(job) => RunDir::create(&job.create_nodes()?)?,
        None => RunDir::create(&config.artifacts.stage2_dir)?,
    };
    let layout = Layout::of(run_dir.path());
    // A session whose configuration cannot be kept is not worth running.
    run_dir.write("config.yaml", props.composed.to_yaml().as_bytes())?;
    events(Event::Started { run_id: run_dir.id().as_str(), path: run_dir.path() });
    let record = RecordWriter::begin(&run_dir, new_record(props, &run_dir, &layout));
    let mut context = PhaseContext {
        config,
        run_dir: &run_dir,
        layout,
        record,
        cancel,
        events,
        program_failures: Vec::new(),
        module_config: None,
    };
    let end = run_phases(&mut context, props, &stages, python.as_ref());
    // The reports show whatever was recorded, however the session ended.
    report::run(&mut context);
    warn_about_size(&mut context);
    let (exit, missing) = conclude(&context, end);
    context.record.session_ends(exit, missing);
    let record = context.record.into_record();
    let path = run_dir.path().to_owned();
    // The session has ended for the others of its job when its marker is gone.
    drop(run_dir);
    let job = job.map(|job| job.end());
    let is_whole = job.as_ref().is_none_or(|job| job.problems.is_empty());
    Ok(Outcome {
        run_dir: path,
        exit: if is_whole || exit != Exit::Done { exit } else { Exit::Partial },
        record,
        job,
    })
}

/// Warns about a run over `retention.max_run_bytes`, with what `runs prune` would do about it.
fn warn_about_size(context: &mut PhaseContext<'_>) {
    let cap = context.config.retention.max_run_bytes.0;
    let run = RunRef { id: context.run_dir.id().to_string(), path: context.run_dir.path().to_owned() };
    // A run whose files cannot be listed has told so in its phases.
    let Ok(plan) = prune::plan::of_run(&run, false, cap) else {
        return;
    };
    if plan.bytes > cap {
        let command = format!(
            "roofgap runs prune artifacts.stage2_dir='{}' retention.max_run_bytes={cap}",
            context.config.artifacts.stage2_dir.display()
        );
        let warning = text::over_cap(&plan, cap, &command);
        context.warn(PhaseName::Report, warning);
    }
}

/// Reason to stop before the last phase.
enum Stop {
    /// The user cancelled the session.
    Cancelled,
    /// The session cannot continue.
    Failed(Exit),
}

/// Runs the phases up to the counters. Returns what a substituted recorder degraded, if anything.
fn run_phases(
    context: &mut PhaseContext<'_>,
    props: &ProfileProps,
    stages: &StageSet,
    python: Option<&PythonResult>,
) -> Result<Option<String>, Stop> {
    let requested = Requested::of(context.config);
    requested.record(&mut context.record);
    let ready = preflight::run(context, props, python, requested);
    let (tools, program) = ready.ok_or(Stop::Failed(Exit::Usage))?;
    check_cancelled(context)?;
    let baseline = baseline::run(context, &program, requested).map_err(Stop::Failed)?;
    check_cancelled(context)?;
    let timeline = timeline::run(context, &tools, &program, requested);
    check_cancelled(context)?;
    operators::run(context, &program, baseline.as_ref());
    check_cancelled(context)?;
    let plan = select::run(context, timeline.as_ref(), stages, baseline.as_ref(), requested);
    check_cancelled(context)?;
    counters::run(context, &tools, &program, timeline.as_ref(), plan, stages, requested);
    check_cancelled(context)?;
    Ok(timeline.and_then(|timeline| timeline.degraded))
}

fn check_cancelled(context: &PhaseContext<'_>) -> Result<(), Stop> {
    if context.is_cancelled() {
        return Err(Stop::Cancelled);
    }
    Ok(())
}

/// Decides the exit status and lists the missing results.
fn conclude(context: &PhaseContext<'_>, end: Result<Option<String>, Stop>) -> (Exit, Vec<String>) {
    let phases = context.record.record().phases.iter();
    let mut missing: Vec<String> = phases
        .filter(|phase| phase.requested && phase.status != PhaseStatus::Ok)
        .map(|phase| format!("{}: {}", phase.name, phase.status.why().unwrap_or("not reached")))
        .collect();
    missing.extend(context.program_failures.iter().cloned());
    let write_error = context.record.write_error();
    missing.extend(write_error.map(|error| format!("session.json: {error}")));
    let exit = match end {
        Err(Stop::Cancelled) => Exit::Interrupted,
        Err(Stop::Failed(_)) if context.is_cancelled() => Exit::Interrupted,
        Err(Stop::Failed(exit)) => exit,
        Ok(degraded) => {
            missing.extend(degraded.map(|why| format!("{}: {why}", PhaseName::Timeline)));
            if missing.is_empty() { Exit::Done } else { Exit::Partial }
        }
    };
    (exit, missing)
}

fn new_record(props: &ProfileProps, run_dir: &RunDir, layout: &Layout) -> SessionRecord {
    let config = &props.composed.config;
    SessionRecord {
        schema: SCHEMA.to_owned(),
        run_id: run_dir.id().to_string(),
        roofgap_version: props.version.clone(),
        command_line: props.command_line.clone(),
        repeat_command: repeat_command(props, &layout.config()),
        mode: config.run.mode.as_str().to_owned(),
        workload: config.workload.kind.as_str().to_owned(),
        started: clock::now().to_string(),
        finished: None,
        state: SessionState::Running,
        exit_status: None,
        missing: Vec::new(),
        phases: Vec::new(),
    }
}

/// Builds the command that repeats the run from the same folder, because paths may be relative to it.
fn repeat_command(props: &ProfileProps, config: &Path) -> String {
    let line = CommandLine::new(&props.executable).args(["profile", "--config"]).arg(config);
    match std::env::current_dir() {
        Ok(folder) => line.cwd(folder).to_string(),
        Err(_) => line.to_string(),
    }
}
