//! Measures the plan with one ncu run inside a time budget.
//!
//! - `request`: the ncu options for a plan;
//! - `result`: the measured launches, split by stage.

mod request;
mod result;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use roofgap_analyze::StageSet;
use roofgap_analyze::counters::canonical;
use roofgap_collect::child::{Outcome, Watch, Watcher};
use roofgap_collect::ncu::{self, NameBase, NcuFailure, NcuProfile, Page, ProfiledLaunch};
use roofgap_collect::program::Phase;
use roofgap_collect::tool::Ncu;
use roofgap_trace::ncu::CounterSet;

use super::measured_rank::{self, MeasuredRank};
use super::requested::Requested;
use super::select::not_requested;
use super::stage1_runner;
use super::timeline::Timeline;
use crate::run::context::{PhaseCommand, PhaseContext, PhaseDescription};
use crate::run::error::{AttemptError, ProgramError};
use crate::run::program::{COUNTER_PATIENCE, Program};
use crate::run::tools::Tools;
use crate::select::Plan;
use crate::select::plan::Measured;
use request::{base_options, request};
use result::{split_by_stage, stages_of_launches};
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::open::accounts::account_at;
use roofgap_runs::run_dir::{Layout, PhaseName, PhaseStatus};

const PHASE: PhaseName = PhaseName::Counters;

/// The commands of a measurement.
struct NcuCommands {
    measure: PhaseCommand,
    import_raw: PhaseCommand,
    import_details: PhaseCommand,
    /// Options that this ncu does not support.
    left_out: Vec<String>,
}

/// Describes the commands of a measurement.
fn commands(
    config: &Config,
    layout: &Layout,
    tool: &Ncu,
    program: &Program,
    options: &NcuProfile,
    start: Option<Duration>,
    rank: &MeasuredRank,
) -> Result<NcuCommands, ProgramError> {
    let mut watched = program.command(Phase::Counters, &layout.ncu_account())?;
    if let Some(rank) = rank.one() {
        watched = watched.env(measured_rank::VARIABLE, rank.to_string());
    }
    let planned = options.command(tool, &watched);
    let command = |line, log, limit| PhaseCommand::new(PHASE, line, layout.ncu(), log, limit);
    let import =
        |page, log| command(ncu::import(tool, &options.report(), page), log, Duration::from_secs(600));
    Ok(NcuCommands {
        measure: command(planned.command, "ncu", limit(config, start)).profiler(),
        import_raw: import(Page::Raw, "import-raw").stdout_to(layout.ncu_raw()),
        import_details: import(Page::Details, "import-details").stdout_to(layout.ncu_details()),
        left_out: planned.left_out,
    })
}

/// Returns the time limit of the program. The watcher stops it at the budget; this limit is for a program without output, and for an
/// engine that does not get as far as its first measured launch.
fn limit(config: &Config, start: Option<Duration>) -> Duration {
    config.run.counter_budget.0 + start.unwrap_or_default() + Duration::from_secs(60)
}

/// Describes the phase before a timeline exists.
pub fn describe(
    config: &Config,
    layout: &Layout,
    tools: &Tools,
    program: &Program,
) -> Result<PhaseDescription, ProgramError> {
    let tool = match &tools.ncu {
        Ok(tool) => tool,
        Err(error) => {
            return Ok(PhaseDescription { commands: Vec::new(), notes: vec![error.to_string()] });
        }
    };
    let start = program.serving_engine().map(|_| start_limit(config, None));
    let options = base_options(config, layout);
    let rank = MeasuredRank::Every;
    let commands = commands(config, layout, tool, program, &options, start, &rank)?;
    let mut notes = commands.left_out;
    notes.push("kernel names, NVTX ranges and metrics are added from the timeline".to_owned());
    Ok(PhaseDescription {
        commands: vec![commands.measure, commands.import_raw, commands.import_details],
        notes,
    })
}

/// Runs the phase.
pub fn run(
    context: &mut PhaseContext<'_>,
    tools: &Tools,
    program: &Program,
    timeline: Option<&Timeline>,
    plan: Option<Plan>,
    stages: &StageSet,
    requested: Requested,
) {
    if let Some(why) = not_requested(context.config, requested) {
        context.skip(PHASE, false, why);
        return;
    }
    let rank = timeline.map(|timeline| MeasuredRank::of(context.config, &context.layout, timeline));
    let rank = rank.unwrap_or(MeasuredRank::Every);
    if let MeasuredRank::Elsewhere { rank, here } = rank {
        accompany(context, program, rank, &here);
        return;
    }
    let (tool, timeline, plan) = match (&tools.gpu, timeline, plan, &tools.ncu) {
        (Ok(()), Some(timeline), Some(plan), Ok(tool)) => (tool, timeline, plan),
        (gpu, timeline, plan, tool) => {
            let why = match (gpu, timeline, plan, tool) {
                (Err(error), ..) => error.to_string(),
                (_, None, ..) => "there is no timeline to select kernels from".to_owned(),
                (_, _, None, _) => no_plan(context),
                (.., Err(error)) => error.to_string(),
                (Ok(()), Some(_), Some(_), Ok(_)) => String::new(),
            };
            context.skip(PHASE, true, why);
            return;
        }
    };
    context.begin(PHASE);
    context.record.tool(PHASE, "ncu");
    let status = match attempt(context, tool, program, timeline, plan, stages, &rank) {
        Ok(()) => PhaseStatus::Ok,
        Err(error) => error.status(),
    };
    context.end(PHASE, status);
}

/// Runs the program without ncu, because the session that measures another of its ranks needs all of them.
fn accompany(context: &mut PhaseContext<'_>, program: &Program, rank: u32, here: &BTreeSet<u32>) {
    context.begin(PHASE);
    let account = context.layout.ncu_account();
    let start = start_limit(context.config, unwatched_time(context));
    let limit = limit(context.config, Some(start));
    let ended = context.run_dir.folder("ncu").map_err(AttemptError::from).and_then(|folder| {
        let line = program.command(Phase::Counters, &account)?;
        Ok(context.run(&PhaseCommand::new(PHASE, line, folder, "program", limit))?)
    });
    let here: Vec<String> = here.iter().map(u32::to_string).collect();
    let mut why = format!(
        "the counters of a job are those of one rank, {rank} (profiling.ncu.rank), and the ranks here are {}; the program ran without ncu",
        here.join(", ")
    );
    if let Err(error) = ended {
        why = format!("{why}, but did not start: {}", error.why);
    }
    // Its status says nothing: it fails when the other session has measured enough and ends.
    context.skip(PHASE, false, why);
}

fn no_plan(context: &PhaseContext<'_>) -> String {
    let select = context.record.record().phase(PhaseName::Select);
    let why = select.and_then(|phase| phase.status.why()).unwrap_or("it was not written");
    format!("there is no plan to measure: {why}")
}

fn attempt(
    context: &mut PhaseContext<'_>,
    tool: &Ncu,
    program: &Program,
    timeline: &Timeline,
    mut plan: Plan,
    stages: &StageSet,
    rank: &MeasuredRank,
) -> Result<(), AttemptError> {
    let folder = context.run_dir.folder("ncu")?;
    let request = request(context.config, &context.layout, tool, timeline, &plan, stages, rank);
    let engine = engine_of(&context.layout, program);
    let start = engine.as_ref().map(|_| start_limit(context.config, unwatched_time(context)));
    let commands = commands(context.config, &context.layout, tool, program, &request.options, start, rank)?;
    for note in &request.notes {
        context.record.note(PHASE, note.clone());
    }
    for option in commands.left_out.clone() {
        context.warn(PHASE, option);
    }
    // By function name ncu also measures kernels outside the plan, so their count says nothing about the plan.
    let expected = (request.options.name_base == NameBase::Mangled).then_some(plan.expected_launches);
    let watcher = until_complete(expected, context.config.run.counter_budget.0, engine.is_some());
    let outcome = context.run_watched(&commands.measure, Some(watcher))?;
    let report = request.options.report();
    if !context.output(PHASE, &report) {
        return Err(nothing_measured(&folder, &outcome, engine.as_deref()));
    }
    context.program_ended(PHASE, "ncu", &outcome);
    let account = context.layout.ncu_account();
    stage1_runner::write_account(context, PHASE, Phase::Counters, &account);
    context.output(PHASE, &account);
    let raw = context.layout.ncu_raw();
    import(context, &commands.import_raw, &raw)?;
    // The details page only adds ncu's rules.
    if let Err(error) = import(context, &commands.import_details, &context.layout.ncu_details()) {
        context.record.note(PHASE, error.why);
    }
    let counters = roofgap_trace::read(std::slice::from_ref(&raw))?.counters;
    let counters = counters
        .first()
        .filter(|counters| !counters.launches.is_empty())
        .ok_or_else(|| AttemptError::after("the ncu report has no launches", &outcome))?;
    if let Some(rank) = rank.one() {
        context.record.note(PHASE, measured_rank::told(rank, &counters.launches));
    }
    let stage_of = stages_of_launches(counters, &timeline.input.trace, stages, &plan);
    plan.add_result(&measured(counters, &stage_of), |counted, planned| {
        canonical(counted) == canonical(planned)
    });
    let written = context.run_dir.write_json("ncu/plan.json", &plan);
    context.note_output(PHASE, written);
    split_by_stage(context, &raw, &report, &stage_of, &plan);
    note_coverage(context, &plan);
    Ok(())
}

/// Lists the measured launches with their stages.
fn measured(counters: &CounterSet, stage_of: &[Option<String>]) -> Vec<Measured> {
    let launches = counters.launches.iter().zip(stage_of);
    launches
        .filter_map(|(launch, stage)| {
            Some(Measured {
                stage: stage.clone(),
                kernel: launch.kernel.clone(),
                grid: launch.grid?,
                block: launch.block?,
            })
        })
        .collect()
}

/// Notes the parts of the plan that were not measured, or measured in another stage.
fn note_coverage(context: &mut PhaseContext<'_>, plan: &Plan) {
    let (unmeasured, all) = (plan.unmeasured(), plan.groups.len());
    if unmeasured > 0 {
        let note = format!(
            "{unmeasured} of {all} planned launch groups were not measured; ncu/plan.json names them"
        );
        context.record.note(PHASE, note);
    }
    let shared = plan.groups.iter().filter(|group| group.measured_in.is_some()).count();
    if shared > 0 {
        let note = format!(
            "{shared} of {all} planned launch groups run in several stages; ncu measures each once, so the measurement in one \
             stage stands for the others (measured_in in ncu/plan.json)"
        );
        context.record.note(PHASE, note);
    }
}

/// Returns the engine that the command, or the account of an earlier phase, names.
fn engine_of(layout: &Layout, program: &Program) -> Option<String> {
    let accounts = [layout.baseline_account(), layout.native_account(), layout.nsys_account()];
    let by_account = || accounts.into_iter().find_map(|path| account_at(path)?.engine?.name);
    program.serving_engine().map(str::to_owned).or_else(by_account)
}

/// Returns the time of the program in an earlier phase.
fn unwatched_time(context: &PhaseContext<'_>) -> Option<Duration> {
    let record = context.record.record();
    let mut phases = [PhaseName::Baseline, PhaseName::Timeline].into_iter();
    let wall_ns = phases.find_map(|name| record.phase(name)?.wall_ns);
    wall_ns.map(Duration::from_nanos)
}

/// Returns the time that an engine gets before its first measured launch: it starts more slowly under ncu.
fn start_limit(config: &Config, unwatched: Option<Duration>) -> Duration {
    let unwatched = unwatched.map_or(Duration::ZERO, |wall| wall.mul_f64(3.0));
    let server = match config.workload.kind {
        WorkloadKind::Server => config.server.ready_timeout.0 * COUNTER_PATIENCE,
        _ => Duration::ZERO,
    };
    let least = Duration::try_from_secs_f64(config.profiling.ncu.startup_seconds).unwrap_or_default();
    (unwatched + least).max(server).min(config.run.timeout.0)
}

/// Stops the program once the plan is complete or the budget is used up, which for an engine begins with the first measured launch.
fn until_complete(expected: Option<u64>, budget: Duration, is_engine: bool) -> Watcher {
    let mut began = (!is_engine).then(Instant::now);
    let mut measured = 0;
    Box::new(move |line| {
        if ProfiledLaunch::parse(line).is_some() {
            began.get_or_insert_with(Instant::now);
            measured += 1;
        }
        let is_spent = began.is_some_and(|began| began.elapsed() > budget);
        if expected.is_some_and(|expected| measured >= expected) || is_spent {
            Watch::Stop
        } else {
            Watch::Continue
        }
    })
}

/// Explains why there is no report. `engine` is the serving engine that was measured.
fn nothing_measured(folder: &Path, outcome: &Outcome, engine: Option<&str>) -> AttemptError {
    let output = ["ncu.out.log", "ncu.err.log"]
        .iter()
        .filter_map(|log| std::fs::read(folder.join(log)).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect::<String>();
    let why = match NcuFailure::find(&output) {
        Some(failure) => format!("ncu measured nothing: {failure}; {}", failure.remedy()),
        None => format!("ncu left no report: it {}", outcome.describe()),
    };
    let why = match engine {
        Some(engine) => format!(
            "{why}; ncu replays every measured kernel, and {engine} may give up its own processes or requests meanwhile: \
             measure a script that runs the same model offline with a few requests (roofgap profile -- python SCRIPT)"
        ),
        None => why,
    };
    AttemptError::after(why, outcome)
}

/// Writes a page of the report as CSV.
fn import(context: &mut PhaseContext<'_>, command: &PhaseCommand, csv: &Path) -> Result<(), AttemptError> {
    let outcome = context.run(command)?;
    if context.output(PHASE, csv) {
        return Ok(());
    }
    let why = format!("ncu wrote no {}: it {}", csv.display(), outcome.describe());
    Err(AttemptError::after(why, &outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_stopped_once_the_plan_is_complete() {
        let mut watch = until_complete(Some(2), Duration::from_secs(1000), false);
        let line = "==PROF== Profiling \"k\" - 0: 0%....50%....100% - 9 passes";
        assert_eq!(watch("something"), Watch::Continue);
        assert_eq!(watch(line), Watch::Continue);
        assert_eq!(watch(line), Watch::Stop);
        let mut spent = until_complete(None, Duration::ZERO, false);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(spent("anything"), Watch::Stop);
    }

    #[test]
    fn the_budget_of_an_engine_begins_with_its_first_measured_launch() {
        let line = "==PROF== Profiling \"k\" - 0: 0%....50%....100% - 9 passes";
        let mut watch = until_complete(Some(9), Duration::ZERO, true);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(watch("loading weights"), Watch::Continue);
        watch(line);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(watch("anything"), Watch::Stop, "the budget is used up");
    }
}
