//! The phases of a session: what a `Phase` is, and their `ORDER`.
//!
//! 1. `preflight` checks the program, tools, GPU and disk space;
//! 2. `baseline` runs the program without a profiler, or takes the times of an earlier run;
//! 3. `timeline` records with nsys or the native collector, and samples counters beside the latter; `completeness` checks the recording;
//! 4. `operators` runs the program under torch.profiler;
//! 5. `select` plans the kernels for ncu, and chooses one of several ranks;
//! 6. `counters` measures that plan;
//! 7. [`report`] analyses the recordings and writes the reports.

pub mod report;

mod baseline;
mod completeness;
mod counters;
mod operators;
pub(crate) mod preflight;
pub(crate) mod sampler;
mod select;
mod timeline;

use roofgap_base::clock::ns;
use std::time::Duration;

use roofgap_analyze::StageSet;
use roofgap_base::exit::Exit;
use roofgap_base::numbers::time;
use roofgap_runs::config::Config;
use roofgap_runs::open::Opened;
use roofgap_runs::run_dir::{PhaseName, PhaseStatus};

use super::context::{PhaseContext, PhaseDescription};
use super::program::Program;
use super::tools::{PythonResult, Tools};
use crate::run::context::AttemptError;
use crate::select::Plan;
use baseline::Baseline;
use roofgap_base::error::Error;
pub use sampler::{Sampler, stacks_now};
use timeline::Timeline;

/// The phases in the order in which they run.
pub(crate) const ORDER: [&dyn Phase; 8] = [
    &preflight::Preflight,
    &baseline::BaselineRun,
    &timeline::TimelineRecording,
    &operators::Operators,
    &select::Select,
    &counters::Counters,
    &report::Analyze,
    &report::Report,
];

/// A phase of a session. `session.json` says how each ended: ok, skipped or failed, with the reason.
pub(crate) trait Phase: Sync {
    /// Name. The files that the phase leaves are in its row of the table of phases ([`PhaseName::files`]).
    fn name(&self) -> PhaseName;

    /// Returns the reason why a configuration does not request the phase; `None` where it does.
    fn not_requested(&self, _config: &Config) -> Option<&'static str> {
        None
    }

    /// Returns true where the phase can be missing from the result. One that only serves another cannot.
    fn is_result(&self) -> bool {
        true
    }

    /// Returns true where the phase runs however the session ended.
    fn is_conclusion(&self) -> bool {
        false
    }

    /// Describes the commands of the phase before anything runs.
    fn commands(&self, _ready: &Ready) -> Result<PhaseDescription, Error> {
        Ok(PhaseDescription::default())
    }

    /// States the time that the phase can be expected to take. `unprofiled` is the time of the baseline.
    fn expected(&self, _config: &Config, _unprofiled: Option<Duration>) -> Option<String> {
        None
    }

    /// Returns the reason not to run the phase.
    fn skip(&self, context: &PhaseContext<'_>, _found: &Results) -> Option<Skip> {
        self.not_requested(context.config).map(Skip::not_requested)
    }

    /// Runs the phase. Whatever it records is in `session.json`, whether or not it succeeds.
    fn run(&self, context: &mut PhaseContext<'_>, found: &mut Results) -> Result<(), AttemptError>;
}

/// Reason not to run a phase.
pub(crate) struct Skip {
    why: String,
    /// True where the phase is missing from the result.
    is_missing: bool,
}

impl Skip {
    fn not_requested(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_missing: false }
    }

    fn missing(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_missing: true }
    }
}

/// Results of the phases so far.
#[derive(Default)]
pub(crate) struct Results {
    stages: StageSet,
    /// Python of the program.
    python: Option<PythonResult>,
    ready: Option<Ready>,
    baseline: Option<Baseline>,
    timeline: Option<Timeline>,
    plan: Option<Plan>,
    pub opened: Option<Opened>,
    /// True once vitals could not be sampled.
    no_vitals: bool,
}

/// The program and the tools of a session.
pub(crate) struct Ready {
    pub program: Program,
    pub tools: Tools,
}

impl Results {
    /// Starts with the stages of the configuration and the Python of the program.
    pub fn new(stages: StageSet, python: Option<PythonResult>) -> Self {
        Self { stages, python, ..Self::default() }
    }

    fn ready(&self) -> Result<&Ready, AttemptError> {
        self.ready.as_ref().ok_or_else(|| AttemptError::new("the program was not checked"))
    }

    fn timeline(&self) -> Result<&Timeline, AttemptError> {
        self.timeline.as_ref().ok_or_else(|| AttemptError::new(select::NO_TIMELINE))
    }

    /// Returns the reason why a result is less than what was asked for.
    pub fn degraded(&self) -> Option<String> {
        self.timeline.as_ref()?.degraded.clone()
    }
}

/// Reason to stop before the last phase.
pub(crate) enum Stop {
    /// The user cancelled the session.
    Cancelled,
    /// The session cannot continue.
    Failed(Exit),
}

/// Tells whether a configuration requests a phase that records with a profiler.
pub(crate) fn needs_tools(config: &Config) -> bool {
    let profiled: [&dyn Phase; 2] = [&timeline::TimelineRecording, &counters::Counters];
    profiled.iter().any(|phase| phase.not_requested(config).is_none())
}

/// Runs the phases in order. Once the session stops, only those that conclude it run.
pub(crate) fn run_all(context: &mut PhaseContext<'_>, found: &mut Results) -> Result<(), Stop> {
    for phase in ORDER {
        let requested = phase.is_result() && phase.not_requested(context.config).is_none();
        context.record.requested(phase.name(), requested);
    }
    let mut end = Ok(());
    for phase in ORDER {
        if phase.is_conclusion() {
            // The reports show whatever was recorded, however the session ended.
            let _ = run_phase(phase, context, found);
        } else if end.is_ok() {
            end = run_phase(phase, context, found);
            if end.is_ok() && context.is_cancelled() {
                end = Err(Stop::Cancelled);
            }
        }
    }
    end
}

/// Runs a phase and records how it ended.
pub(crate) fn run_phase(
    phase: &dyn Phase,
    context: &mut PhaseContext<'_>,
    found: &mut Results,
) -> Result<(), Stop> {
    let name = phase.name();
    if let Some(skip) = phase.skip(context, found) {
        context.skip(name, skip.is_missing, skip.why);
        return Ok(());
    }
    let baseline = context.record.record().phase(PhaseName::Baseline);
    let unprofiled = baseline.filter(|phase| phase.status == PhaseStatus::Ok).and_then(|phase| phase.wall_ns);
    context.begin(name, phase.expected(context.config, unprofiled.map(Duration::from_nanos)));
    let is_recorded = name.results().is_some() && !found.no_vitals;
    let gpu = found.ready.as_ref().filter(|ready| is_recorded && ready.tools.gpu.is_ok());
    let is_wanted = |_: &&Ready| context.config.run.vitals && context.run_dir.folder("vitals").is_ok();
    let file = context.layout.vitals(name);
    // Activity is read from hardware counters: not beside others that count, nor in the run that shows the program alone.
    let is_counted = matches!(name, PhaseName::Counters | PhaseName::Baseline)
        || context.config.profiling.native.counters_us.is_some();
    let vitals = gpu.filter(is_wanted);
    let vitals = vitals.map(|ready| Sampler::vitals(&ready.program.executable, &file, is_counted));
    let end = phase.run(context, found);
    if let Some(vitals) = vitals {
        found.no_vitals |= !vitals.end(context);
        context.output(&file);
    }
    match end {
        Ok(()) => context.end(PhaseStatus::Ok),
        Err(error) => {
            context.end(error.status());
            if let Some(exit) = error.exit {
                return Err(Stop::Failed(exit));
            }
        }
    }
    Ok(())
}

/// States the time of the program without a profiler, for a phase that runs it with one.
fn without_profiler(unprofiled: Option<Duration>) -> Option<String> {
    Some(format!("{} without a profiler", time(ns(unprofiled?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_run_in_the_order_of_their_names() {
        assert_eq!(ORDER.map(|phase| phase.name()).as_slice(), PhaseName::ALL);
    }
}
