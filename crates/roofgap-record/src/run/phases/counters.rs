//! Measures the plan with one ncu run inside a time budget.

use roofgap_base::clock::ns;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use roofgap_analyze::counters::{canonical, light_metrics};
use roofgap_analyze::{NamedPlace, StageSet};
use roofgap_base::file::write_atomic;
use roofgap_base::numbers::time;
use roofgap_collect::child::{Outcome, Watch, Watcher};
use roofgap_collect::command::NvtxRange;
use roofgap_collect::ncu::{self, NcuFailure, NcuProfile, Page};
use roofgap_collect::tool::Ncu;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::{Ncu as NcuSettings, WorkloadKind};
use roofgap_runs::run_dir::{Layout, PhaseName};
use roofgap_trace::ncu::CounterSet;
use roofgap_trace::{Range, Trace};

use super::select::{
    MeasuredRank, NO_TIMELINE, RANK_VARIABLE, STARTUP, measured_rank_note, no_counters, nvtx_range,
};
use super::timeline::{Recorder, Timeline};
use super::{Phase, Ready, Results, Skip};
use crate::run::context::{AttemptError, PhaseCommand, PhaseContext, PhaseDescription};
use crate::run::program::{COUNTER_PATIENCE, Program};
use crate::select::{Plan, StageCover, WHOLE, mangled_in_native, mangled_in_nsys};
use crate::stage1;
use roofgap_base::error::Error;

const NAME: PhaseName = PhaseName::Counters;

/// The phase.
pub struct Counters;

impl Phase for Counters {
    fn name(&self) -> PhaseName {
        NAME
    }

    fn not_requested(&self, config: &Config) -> Option<&'static str> {
        no_counters(config)
    }

    fn commands(&self, Ready { program, tools }: &Ready) -> Result<PhaseDescription, Error> {
        let tool = match &tools.ncu {
            Ok(tool) => tool,
            Err(why) => return Ok(PhaseDescription { notes: vec![why.to_string()], ..Default::default() }),
        };
        let start = program.serving_engine().map(|_| start_limit(&program.config, None));
        let commands = commands(tool, program, &base_options(program), start, &MeasuredRank::Every)?;
        let mut notes = commands.left_out;
        notes.push("kernel names, NVTX ranges and metrics are added from the timeline".to_owned());
        let commands = vec![commands.measure, commands.import_raw, commands.import_details];
        Ok(PhaseDescription { commands, notes })
    }

    fn expected(&self, config: &Config, _: Option<Duration>) -> Option<String> {
        Some(format!("at most about {}", time(ns(config.run.counter_budget.0))))
    }

    fn skip(&self, context: &PhaseContext<'_>, found: &Results) -> Option<Skip> {
        if let Some(why) = no_counters(context.config) {
            return Some(Skip::not_requested(why));
        }
        if matches!(measured_rank(context, found), MeasuredRank::Elsewhere { .. }) {
            return None;
        }
        let tools = &found.ready.as_ref()?.tools;
        let why = match (&tools.gpu, &found.timeline, &found.plan, &tools.ncu) {
            (Err(why), ..) => why.to_string(),
            (_, None, ..) => NO_TIMELINE.to_owned(),
            (_, _, None, _) => no_plan(context),
            (.., Err(why)) => why.to_string(),
            (Ok(()), Some(_), Some(_), Ok(_)) => return None,
        };
        Some(Skip::missing(why))
    }

    fn run(&self, context: &mut PhaseContext<'_>, found: &mut Results) -> Result<(), AttemptError> {
        let rank = measured_rank(context, found);
        let Ready { program, tools } = found.ready()?;
        if let MeasuredRank::Elsewhere { rank, here } = rank {
            return Err(accompany(context, program, rank, &here));
        }
        context.tool("ncu");
        let tool = tools.ncu.as_ref().map_err(Clone::clone)?;
        let timeline = found.timeline()?;
        let plan = found.plan.clone().ok_or_else(|| AttemptError::new(no_plan(context)))?;
        measure(context, tool, program, timeline, plan, &found.stages, &rank)
    }
}

fn measured_rank(context: &PhaseContext<'_>, found: &Results) -> MeasuredRank {
    let timeline = found.timeline.as_ref();
    timeline
        .map_or(MeasuredRank::Every, |timeline| MeasuredRank::of(context.config, &context.layout, timeline))
}

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
    tool: &Ncu,
    program: &Program,
    options: &NcuProfile,
    start: Option<Duration>,
    rank: &MeasuredRank,
) -> Result<NcuCommands, Error> {
    let layout = &program.layout;
    let mut watched = program.command(NAME, &layout.ncu_account())?;
    if let Some(rank) = rank.one() {
        watched = watched.env(RANK_VARIABLE, rank.to_string());
    }
    let planned = options.command(tool, &watched);
    let command = |line, log, limit| PhaseCommand::new(line, layout.ncu(), log, limit);
    let import =
        |page, log| command(ncu::import(tool, &options.report(), page), log, Duration::from_secs(600));
    Ok(NcuCommands {
        measure: command(planned.command, "ncu", limit(&program.config, start)).profiler(),
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

/// Runs the program without ncu, because the session that measures another of its ranks needs all of them.
fn accompany(
    context: &mut PhaseContext<'_>,
    program: &Program,
    rank: u32,
    here: &BTreeSet<u32>,
) -> AttemptError {
    let account = context.layout.ncu_account();
    let start = start_limit(context.config, unwatched_time(context));
    let limit = limit(context.config, Some(start));
    let ended = context.run_dir.folder("ncu").map_err(AttemptError::from).and_then(|folder| {
        let line = program.command(NAME, &account)?;
        Ok(context.run(&PhaseCommand::new(line, folder, "program", limit))?)
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
    context.record.requested(NAME, false);
    AttemptError::skipped(why)
}

fn no_plan(context: &PhaseContext<'_>) -> String {
    let select = context.record.record().phase(PhaseName::Select);
    let why = select.and_then(|phase| phase.status.why()).unwrap_or("it was not written");
    format!("there is no plan to measure: {why}")
}

fn measure(
    context: &mut PhaseContext<'_>,
    tool: &Ncu,
    program: &Program,
    timeline: &Timeline,
    mut plan: Plan,
    stages: &StageSet,
    rank: &MeasuredRank,
) -> Result<(), AttemptError> {
    let folder = context.run_dir.folder("ncu")?;
    let (options, notes) = request(tool, program, timeline, &plan, stages, rank)?;
    let engine = program.engine();
    let start = engine.as_ref().map(|_| start_limit(context.config, unwatched_time(context)));
    let commands = commands(tool, program, &options, start, rank)?;
    notes.into_iter().for_each(|note| context.note(note));
    for option in &commands.left_out {
        context.warn(option);
    }
    let watcher =
        until_complete(plan.expected_launches, context.config.run.counter_budget.0, engine.is_some());
    let outcome = context.run_watched(&commands.measure, Some(watcher))?;
    let report = options.report();
    if !context.output(&report) {
        return Err(nothing_measured(&folder, &outcome, engine.as_deref()));
    }
    context.program_ended("ncu", &outcome);
    stage1::complete_account(context, &context.layout.ncu_account());
    let raw = context.layout.ncu_raw();
    import(context, &commands.import_raw, &raw)?;
    // The details page only adds ncu's rules.
    if let Err(error) = import(context, &commands.import_details, &context.layout.ncu_details()) {
        context.note(error.why);
    }
    let counters = roofgap_trace::read(std::slice::from_ref(&raw))?.counters;
    let counters = counters
        .first()
        .filter(|counters| !counters.launches.is_empty())
        .ok_or_else(|| AttemptError::after("the ncu report has no launches", &outcome))?;
    if let Some(rank) = rank.one() {
        context.note(measured_rank_note(rank, &counters.launches));
    }
    let stage_of = stages_of_launches(counters, &timeline.input.trace, stages, &plan);
    plan.add_result(&counters.launches, &stage_of);
    let written = context.run_dir.write_json("ncu/plan.json", &plan);
    context.note_output(written);
    split_by_stage(context, &raw, &report, &stage_of, &plan);
    note_coverage(context, &plan);
    Ok(())
}

/// Notes the parts of the plan that were not measured, or measured in another stage.
fn note_coverage(context: &mut PhaseContext<'_>, plan: &Plan) {
    let (unmeasured, all) = (plan.unmeasured(), plan.groups.len());
    if unmeasured > 0 {
        context.note(format!(
            "{unmeasured} of {all} planned launch groups were not measured; ncu/plan.json names them"
        ));
    }
    let shared = plan.groups.iter().filter(|group| group.measured_in.is_some()).count();
    if shared > 0 {
        let note = format!(
            "{shared} of {all} planned launch groups run in several stages; ncu measures each once, so the measurement in one \
             stage stands for the others (measured_in in ncu/plan.json)"
        );
        context.note(note);
    }
}

/// Returns the time of the program in an earlier phase.
pub(super) fn unwatched_time(context: &PhaseContext<'_>) -> Option<Duration> {
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
    (unwatched + STARTUP).max(server).min(config.run.timeout.0)
}

/// Stops the program once the plan is complete or the budget is used up, which for an engine begins with the first measured launch.
fn until_complete(expected: u64, budget: Duration, is_engine: bool) -> Watcher {
    let mut began = (!is_engine).then(Instant::now);
    let mut measured = 0;
    Box::new(move |line| {
        if ncu::is_measured_launch(line) {
            began.get_or_insert_with(Instant::now);
            measured += 1;
        }
        let is_spent = began.is_some_and(|began| began.elapsed() > budget);
        if measured >= expected || is_spent { Watch::Stop } else { Watch::Continue }
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
        Some(failure) => format!("ncu measured nothing: {}; {}", failure.message, failure.remedy),
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
    if context.output(csv) {
        return Ok(());
    }
    let why = format!("ncu wrote no {}: it {}", csv.display(), outcome.describe());
    Err(AttemptError::after(why, &outcome))
}

/// Builds the ncu options for a plan, with notes on them.
fn request(
    tool: &Ncu,
    program: &Program,
    timeline: &Timeline,
    plan: &Plan,
    stages: &StageSet,
    rank: &MeasuredRank,
) -> Result<(NcuProfile, Vec<String>), AttemptError> {
    let mut notes = Vec::new();
    let trace = &timeline.input.trace;
    let kernels = mangled_names(&program.layout, timeline.tool, plan, &mut notes);
    if kernels.is_empty() {
        return Err(AttemptError::new("the timeline has no mangled names of the planned kernels"));
    }
    let capability = trace.devices.iter().find_map(|device| device.compute_capability);
    let wanted = metrics(&program.config.profiling.ncu, capability);
    let chip = capability.and_then(|(major, minor)| ncu::chip_name(major, minor));
    let (metrics, unknown) = match chip.map(|chip| tool.metrics_of(chip)) {
        // One unknown name makes ncu measure nothing.
        Some(Ok(known)) => ncu::split_supported(wanted, &known),
        Some(Err(_)) | None => (wanted, Vec::new()),
    };
    if !unknown.is_empty() {
        notes.push(format!("metrics unknown to this ncu for this device: {}", unknown.join(", ")));
    }
    let options = NcuProfile {
        kernels,
        ranges: plan.ranges.clone(),
        excluded_ranges: warmups(trace, stages),
        excluded_processes: rank.excluded(),
        metrics,
        ..base_options(program)
    };
    Ok((options, notes))
}

/// Builds the ncu options that do not depend on a timeline: no kernels, ranges or metrics.
fn base_options(program: &Program) -> NcuProfile {
    let settings = &program.config.profiling.ncu;
    NcuProfile {
        launches_per_config: settings.launch_count.max(1),
        set: settings.set.clone(),
        sections: settings.sections.clone(),
        metrics: metrics(settings, None),
        clock: settings.clock_control,
        cache: settings.cache_control,
        replay: settings.replay_mode,
        processes: settings.target_processes,
        extra: settings.extra_args.clone(),
        ..NcuProfile::new(program.layout.ncu_base())
    }
}

/// Lists the kernels by their mangled names, on which all tools agree. On readable ones they do not.
fn mangled_names(layout: &Layout, recorder: Recorder, plan: &Plan, notes: &mut Vec<String>) -> Vec<String> {
    let known = match recorder {
        Recorder::Nsys => mangled_in_nsys(&layout.nsys_sqlite()).unwrap_or_default(),
        Recorder::Native => mangled_in_native(&layout.native_captures()).unwrap_or_default(),
    };
    let (found, lost): (Vec<&String>, Vec<&String>) =
        plan.kernels.iter().partition(|name| known.contains_key(*name));
    if !lost.is_empty() {
        notes.push(format!(
            "the timeline has no mangled names of {} of {} planned kernels, so they are not measured",
            lost.len(),
            plan.kernels.len()
        ));
    }
    found.into_iter().filter_map(|name| known.get(name)).flatten().cloned().collect()
}

fn metrics(settings: &NcuSettings, capability: Option<(u32, u32)>) -> Vec<String> {
    let small = |value: u32| u8::try_from(value).ok();
    let capability = capability.and_then(|(major, minor)| Some((small(major)?, small(minor)?)));
    let mut wanted: Vec<String> = Vec::new();
    for metric in &settings.metrics {
        match metric.as_str() {
            "auto" => wanted.extend(light_metrics(capability)),
            _ => wanted.push(metric.clone()),
        }
    }
    wanted.dedup();
    wanted
}

/// Lists the warm-up ranges of a trace. Stages inside them have the names of the measured ones and come first.
fn warmups(trace: &Trace, stages: &StageSet) -> Vec<NvtxRange> {
    let is_warmup = |range: &&Range| {
        let (domain, name) = (trace.names.get(range.domain), trace.names.get(range.name));
        stages.warmup.iter().any(|pattern| pattern.matches(domain, name))
    };
    let mut found: Vec<NvtxRange> =
        trace.ranges.rows.iter().filter(is_warmup).map(|range| nvtx_range(trace, range)).collect();
    found.sort();
    found.dedup();
    found
}

/// Finds the stage of each measured launch: by the ranges around it, else by the plan where only one stage has the kernel
/// and shape.
fn stages_of_launches(
    counters: &CounterSet,
    trace: &Trace,
    set: &StageSet,
    plan: &Plan,
) -> Vec<Option<String>> {
    let whole = trace.ranges.rows.is_empty();
    counters
        .launches
        .iter()
        .map(|launch| {
            match set.place(&launch.nvtx) {
                NamedPlace::Warmup => return None,
                NamedPlace::Stage(at) => return set.stages.get(at).map(|rule| rule.name.clone()),
                NamedPlace::Step(name) => return Some(name.to_owned()),
                NamedPlace::Outside => {}
            }
            if whole {
                return Some(WHOLE.to_owned());
            }
            let mut stages: Vec<&str> = plan
                .groups
                .iter()
                .map(|planned| &planned.group)
                .filter(|group| Some(group.grid) == launch.grid && Some(group.block) == launch.block)
                .filter(|group| canonical(&group.kernel) == canonical(&launch.kernel))
                .map(|group| group.stage.as_str())
                .collect();
            stages.dedup();
            match stages.as_slice() {
                [only] => Some((*only).to_owned()),
                _ => None,
            }
        })
        .collect()
}

/// Writes the rows of each stage to a file of their own, and gives the report the name of each: most of a report is the code of the
/// kernels, so that one by stage would be as large as the whole.
fn split_by_stage(
    context: &mut PhaseContext<'_>,
    raw: &Path,
    report: &Path,
    stage_of: &[Option<String>],
    plan: &Plan,
) {
    for StageCover { name, .. } in &plan.stages {
        let csv = context.layout.ncu_stage_raw(name);
        match split(raw, &csv, stage_of, name) {
            Ok(0) => continue,
            Ok(_) => context.output(&csv),
            Err(error) => {
                context.note(format!("cannot write {}: {error}", csv.display()));
                continue;
            }
        };
        let own = context.layout.ncu_stage_report(name);
        let _ = std::fs::remove_file(&own);
        if std::fs::hard_link(report, &own).is_ok() {
            context.output(&own);
        }
    }
}

/// Copies the header, the units and the rows of one stage. Returns the number of rows.
fn split(raw: &Path, to: &Path, stage_of: &[Option<String>], stage: &str) -> Result<usize, csv::Error> {
    // Messages of ncu may precede the table.
    let text = std::fs::read_to_string(raw)?;
    let table = text.find("\"ID\",").map_or(text.as_str(), |at| &text[at..]);
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(table.as_bytes());
    let mut writer =
        csv::WriterBuilder::new().quote_style(csv::QuoteStyle::Always).flexible(true).from_writer(Vec::new());
    let mut rows = 0;
    let mut launch = 0;
    for (at, record) in reader.records().enumerate() {
        let record = record?;
        let is_head = at == 0 || (at == 1 && record.get(0).is_some_and(|id| id.trim().is_empty()));
        if is_head {
            writer.write_record(&record)?;
            continue;
        }
        if stage_of.get(launch).is_some_and(|own| own.as_deref() == Some(stage)) {
            writer.write_record(&record)?;
            rows += 1;
        }
        launch += 1;
    }
    if rows > 0 {
        let bytes = writer.into_inner().map_err(|error| std::io::Error::other(error.to_string()))?;
        write_atomic(to, &bytes)?;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_stopped_once_the_plan_is_complete() {
        let mut watch = until_complete(2, Duration::from_secs(1000), false);
        let line = "==PROF== Profiling \"k\" - 0: 0%....50%....100% - 9 passes";
        assert_eq!(watch("something"), Watch::Continue);
        assert_eq!(watch(line), Watch::Continue);
        assert_eq!(watch(line), Watch::Stop);
        let mut spent = until_complete(2, Duration::ZERO, false);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(spent("anything"), Watch::Stop);
    }

    #[test]
    fn the_budget_of_an_engine_begins_with_its_first_measured_launch() {
        let line = "==PROF== Profiling \"k\" - 0: 0%....50%....100% - 9 passes";
        let mut watch = until_complete(9, Duration::ZERO, true);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(watch("loading weights"), Watch::Continue);
        watch(line);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(watch("anything"), Watch::Stop, "the budget is used up");
    }

    #[test]
    fn rows_go_to_their_stage() {
        let folder = tempfile::tempdir().unwrap();
        let (raw, to) = (folder.path().join("raw.csv"), folder.path().join("decode_raw.csv"));
        std::fs::write(&raw, "==PROF== x\n\"ID\",\"Kernel Name\"\n\"\",\"\"\n\"0\",\"a, b\"\n\"1\",\"c\"\n")
            .unwrap();
        let stages = [Some("decode".to_owned()), Some("prefill".to_owned())];
        assert_eq!(split(&raw, &to, &stages, "decode").unwrap(), 1);
        let text = std::fs::read_to_string(&to).unwrap();
        assert_eq!(text, "\"ID\",\"Kernel Name\"\n\"\",\"\"\n\"0\",\"a, b\"\n");
        assert_eq!(split(&raw, &folder.path().join("none.csv"), &stages, "vision").unwrap(), 0);
        assert!(!folder.path().join("none.csv").exists());
    }
}
