//! The phases in order, and how a session ends.

use std::path::Path;

use jiff::Timestamp;
use roofgap_collect::child::Cancel;
use roofgap_collect::command::CommandLine;
use roofgap_collect::provenance::Python;
use roofgap_collect::rundir::RunDir;

use super::desk::Desk;
use super::layout::Layout;
use super::program::{Program, mode_word};
use super::props::{Event, Outcome, ProfileProps, SessionError};
use super::timeline::Timeline;
use super::tools::Tools;
use super::{baseline, bundle, counters, operators, preflight, select, timeline};
use crate::config::Config;
use crate::config::settings::{TimelineTool, WorkloadKind};
use crate::exit::Exit;
use crate::inputs::Given;
use crate::record::session::SCHEMA;
use crate::record::{Ledger, PhaseName, PhaseStatus, SessionRecord, SessionState};

/// Run a whole session.
pub fn profile(
    props: &ProfileProps,
    cancel: &Cancel,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome, SessionError> {
    let config = &props.composed.config;
    bundle::stages(config).map_err(SessionError::Usage)?;
    let python = preflight::possible(props).map_err(SessionError::Usage)?;
    let run_dir = RunDir::create(&config.artifacts.stage2_dir)?;
    let layout = Layout::of(run_dir.path());
    // Nothing is worth running if its configuration cannot even be kept.
    run_dir.write("config.yaml", props.composed.to_yaml().as_bytes())?;
    events(Event::Started {
        run_id: run_dir.id().as_str(),
        path: run_dir.path(),
    });
    let ledger = Ledger::begin(&run_dir, new_record(props, &run_dir, &layout));
    let mut desk = Desk {
        config,
        run_dir: &run_dir,
        layout,
        ledger,
        cancel,
        events,
    };
    let ending = phases(&mut desk, props, python.as_ref());
    let (exit, missing) = conclude(&desk, ending);
    render(&mut desk);
    let (exit, missing) = match (exit, missing_after(&desk, missing)) {
        (Exit::Done, missing) if !missing.is_empty() => (Exit::Partial, missing),
        (exit, missing) => (exit, missing),
    };
    desk.ledger.session_ends(exit, missing);
    let record = desk.ledger.into_record();
    Ok(Outcome {
        run_dir: run_dir.path().to_owned(),
        exit,
        record,
    })
}

/// How the phases ended.
struct Ending {
    /// The session could not go on.
    stopped: Option<Exit>,
    degraded: Option<String>,
}

fn phases(desk: &mut Desk<'_>, props: &ProfileProps, python: Option<&Result<Python, String>>) -> Ending {
    let mut ending = Ending {
        stopped: None,
        degraded: None,
    };
    let asked = Asked::of(desk.config);
    for (phase, asked) in [
        (PhaseName::Baseline, asked.baseline),
        (PhaseName::Timeline, asked.timeline),
        (PhaseName::Operators, asked.operators),
        // A means to the counters: what it lacks, they lack.
        (PhaseName::Select, false),
        (PhaseName::Counters, asked.counters),
    ] {
        desk.ledger.asked(phase, asked);
    }
    let Some((tools, program)) = preflight::run(desk, props, python, asked) else {
        ending.stopped = Some(Exit::Usage);
        return ending;
    };
    if desk.is_cancelled() {
        return ending;
    }
    let base = if let Some(folder) = &desk.config.stage1.run_dir {
        baseline::taken(desk, folder)
    } else if asked.baseline {
        match baseline::run(desk, &program) {
            Ok(base) => Some(base),
            Err(exit) => {
                ending.stopped = Some(exit);
                return ending;
            }
        }
    } else {
        desk.skip(PhaseName::Baseline, false, "runner.baseline is false");
        None
    };
    if desk.is_cancelled() {
        return ending;
    }
    let recorded = record_timeline(desk, &tools, &program, asked);
    ending.degraded = recorded.as_ref().and_then(|timeline| timeline.degraded.clone());
    if desk.is_cancelled() {
        return ending;
    }
    operators::run(desk, &program, base.as_ref());
    if desk.is_cancelled() {
        return ending;
    }
    measure(desk, &tools, &program, recorded.as_ref(), base.as_ref(), asked);
    ending
}

fn record_timeline(desk: &mut Desk<'_>, tools: &Tools, program: &Program, asked: Asked) -> Option<Timeline> {
    if !asked.timeline {
        let why = if desk.config.runner.timeline {
            "the embedded model runs on the CPU and times its own stages; profiling.timeline=nsys or native records it"
        } else {
            "runner.timeline is false"
        };
        desk.skip(PhaseName::Timeline, false, why);
        return None;
    }
    timeline::run(desk, tools, program)
}

fn measure(
    desk: &mut Desk<'_>,
    tools: &Tools,
    program: &Program,
    recorded: Option<&Timeline>,
    base: Option<&baseline::Baseline>,
    asked: Asked,
) {
    if !asked.counters {
        let why = if desk.config.runner.counters {
            "the embedded model runs on the CPU"
        } else {
            "runner.counters is false"
        };
        desk.skip(PhaseName::Select, false, why);
        desk.skip(PhaseName::Counters, false, why);
        return;
    }
    let Some(recorded) = recorded else {
        let why = "there is no timeline to choose kernels from";
        desk.skip(PhaseName::Select, false, why);
        desk.skip(
            PhaseName::Counters,
            true,
            tools.gpu.as_ref().err().map_or(why, String::as_str),
        );
        return;
    };
    let stages = bundle::stages(desk.config).unwrap_or_default();
    let options = roofgap_analyze::Options {
        stages: stages.clone(),
        ..Default::default()
    };
    let analyzed = roofgap_analyze::analyze(&recorded.input.trace, &options);
    match select::run(desk, recorded, &analyzed, base) {
        Some(plan) if !desk.is_cancelled() => {
            counters::run(desk, tools, program, recorded, plan, &stages);
        }
        Some(_) => {}
        None => {
            let why = match &tools.gpu {
                Err(why) => why.clone(),
                Ok(()) => {
                    let select = desk.ledger.record().phase(PhaseName::Select);
                    let why = select
                        .and_then(|phase| phase.status.why())
                        .unwrap_or("it was not made");
                    format!("there is no plan to measure: {why}")
                }
            };
            desk.skip(PhaseName::Counters, true, why);
        }
    }
}

/// What a session is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) baseline: bool,
    pub(super) timeline: bool,
    pub(super) operators: bool,
    pub(super) counters: bool,
}

impl Asked {
    /// The embedded model runs on the CPU: it asks for no GPU phase unless a recorder is named.
    pub(super) fn of(config: &Config) -> Self {
        let runner = &config.runner;
        let embedded = config.workload.kind == WorkloadKind::Embedded;
        Asked {
            baseline: runner.baseline,
            timeline: runner.timeline && (!embedded || config.profiling.timeline != TimelineTool::Auto),
            operators: runner.operators,
            counters: runner.counters && !embedded,
        }
    }
}

/// The exit status, and what was asked for and could not be had.
fn conclude(desk: &Desk<'_>, ending: Ending) -> (Exit, Vec<String>) {
    let mut missing: Vec<String> = desk
        .ledger
        .record()
        .phases
        .iter()
        .filter(|phase| phase.asked && !matches!(phase.name, PhaseName::Analyze | PhaseName::Report))
        .filter_map(|phase| match &phase.status {
            PhaseStatus::Ok => None,
            PhaseStatus::Pending | PhaseStatus::Running => Some(format!("{}: not reached", phase.name)),
            status => Some(format!(
                "{}: {}",
                phase.name,
                status.why().unwrap_or("no reason is known")
            )),
        })
        .collect();
    missing.extend(ending.degraded.map(|why| format!("timeline: {why}")));
    let exit = if desk.is_cancelled() {
        Exit::Interrupted
    } else if let Some(exit) = ending.stopped {
        exit
    } else if missing.is_empty() {
        Exit::Done
    } else {
        Exit::Partial
    };
    (exit, missing)
}

/// What the last two phases and the disk add to what is missing.
fn missing_after(desk: &Desk<'_>, mut missing: Vec<String>) -> Vec<String> {
    let record = desk.ledger.record();
    for name in [PhaseName::Analyze, PhaseName::Report] {
        if let Some(phase) = record.phase(name)
            && phase.status != PhaseStatus::Ok
        {
            missing.push(format!("{name}: {}", phase.status.why().unwrap_or("not reached")));
        }
    }
    missing.extend(
        desk.ledger
            .write_error()
            .map(|error| format!("session.json: {error}")),
    );
    missing
}

/// Analyse what there is and write the reports, whatever went before.
fn render(desk: &mut Desk<'_>) {
    desk.begin(PhaseName::Analyze);
    let reading = bundle::read(&desk.layout, desk.config, desk.ledger.record(), &Given::default());
    reading
        .unreadable
        .iter()
        .for_each(|why| desk.ledger.note(PhaseName::Analyze, why.clone()));
    let status = match reading.unreadable.as_slice() {
        [] => PhaseStatus::Ok,
        some => PhaseStatus::failed(some.join("; "), None),
    };
    for heavy in bundle::too_heavy(&reading.analysis, desk.config.runner.overhead_limit_pct) {
        (desk.events)(Event::Warning(&heavy));
        desk.ledger.note(PhaseName::Analyze, heavy);
    }
    desk.end(PhaseName::Analyze, status);
    desk.begin(PhaseName::Report);
    let files = bundle::reports(&reading, desk.ledger.record(), &desk.layout, desk.config);
    let mut errors = Vec::new();
    for file in files {
        match desk.run_dir.write(file.name, &file.bytes) {
            Ok(path) => {
                desk.ledger.output(PhaseName::Report, &path);
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    let status = if errors.is_empty() {
        PhaseStatus::Ok
    } else {
        PhaseStatus::failed(errors.join("; "), None)
    };
    desk.end(PhaseName::Report, status);
}

fn new_record(props: &ProfileProps, run_dir: &RunDir, layout: &Layout) -> SessionRecord {
    SessionRecord {
        schema: SCHEMA.to_owned(),
        run_id: run_dir.id().to_string(),
        roofgap_version: props.version.clone(),
        command_line: props.command_line.clone(),
        repeat_command: repeat_command(props, &layout.config()),
        mode: mode_word(&props.composed.config).to_owned(),
        workload: workload_word(&props.composed.config).to_owned(),
        started: Timestamp::now().to_string(),
        finished: None,
        state: SessionState::Running,
        exit_status: None,
        missing: Vec::new(),
        phases: Vec::new(),
    }
}

/// From the same folder: the program and its files may be named relative to it.
fn repeat_command(props: &ProfileProps, config: &Path) -> String {
    let line = CommandLine::new(&props.executable)
        .args(["profile", "--config"])
        .arg(config);
    match std::env::current_dir() {
        Ok(folder) => line.cwd(folder).to_string(),
        Err(_) => line.to_string(),
    }
}

fn workload_word(config: &Config) -> &'static str {
    match config.workload.kind {
        WorkloadKind::Embedded => "embedded",
        WorkloadKind::Hf => "hf",
        WorkloadKind::Hydra => "hydra",
        WorkloadKind::Command => "command",
    }
}
