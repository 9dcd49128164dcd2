//! What limits the kernels that matter: one ncu run of the plan, inside a time budget.

use std::path::Path;
use std::time::{Duration, Instant};

use roofgap_analyze::StageSet;
use roofgap_analyze::counters::canonical;
use roofgap_collect::child::{Outcome, Watch, Watcher};
use roofgap_collect::ncu::{self, NameBase, NcuFailure, Page, ProfiledLaunch};
use roofgap_collect::program::Phase;
use roofgap_collect::tool::Ncu;

use super::desk::{Desk, Errand};
use super::program::Program;
use super::request::{Request, request};
use super::returned::{by_stage, stages_of_launches};
use super::timeline::Timeline;
use super::tools::Tools;
use crate::record::{PhaseName, PhaseStatus};
use crate::select::Plan;
use crate::select::plan::Measured;

/// Measure the plan.
pub(super) fn run(
    desk: &mut Desk<'_>,
    tools: &Tools,
    program: &Program,
    timeline: &Timeline,
    plan: Plan,
    stages: &StageSet,
) {
    const PHASE: PhaseName = PhaseName::Counters;
    let ncu = match (&tools.gpu, &tools.ncu) {
        (Err(why), _) | (_, Err(why)) => {
            desk.skip(PHASE, true, why.clone());
            return;
        }
        (Ok(()), Ok(ncu)) => ncu,
    };
    desk.begin(PHASE);
    desk.ledger.tool(PHASE, "ncu");
    let status = attempt(desk, ncu, program, timeline, plan, stages).unwrap_or_else(|status| status);
    desk.end(PHASE, status);
}

fn attempt(
    desk: &mut Desk<'_>,
    ncu: &Ncu,
    program: &Program,
    timeline: &Timeline,
    mut plan: Plan,
    stages: &StageSet,
) -> Result<PhaseStatus, PhaseStatus> {
    const PHASE: PhaseName = PhaseName::Counters;
    let failed = |why: String| PhaseStatus::failed(why, None);
    let folder = desk
        .run_dir
        .folder("ncu")
        .map_err(|error| failed(error.to_string()))?;
    let account = desk.layout.ncu_account();
    let line = program.command(Phase::Counters, &account).map_err(failed)?;
    let Request { plan: asked, notes } = request(desk.config, &desk.layout, ncu, timeline, &plan, stages);
    notes.into_iter().for_each(|note| desk.ledger.note(PHASE, note));
    // By function name ncu also meets kernels that are not in the plan, so counting them says nothing about it.
    let countable = asked.name_base == NameBase::Mangled;
    let planned = asked.command(ncu, &line);
    planned
        .left_out
        .iter()
        .for_each(|left| desk.ledger.note(PHASE, left.clone()));
    let budget = desk.config.run.counter_budget.0;
    let errand = Errand {
        profiler: true,
        watch: Some(until_met(countable.then_some(plan.expected_launches), budget)),
        // The watcher ends the program at the budget; this is for a program from which nothing is heard.
        ..Errand::new(&planned.command, &folder, "ncu", budget + Duration::from_secs(60))
    };
    let outcome = desk.run(PHASE, errand).map_err(failed)?;
    let report = asked.report();
    if !desk.ledger.output(PHASE, &report) {
        return Err(nothing_measured(&folder, &outcome));
    }
    desk.ledger.output(PHASE, &account);
    let raw = desk.layout.ncu_raw();
    import(desk, ncu, &report, Page::Raw, &raw)?;
    // The details page only adds ncu's own rules; without it the rest still stands.
    if let Err(PhaseStatus::Failed { why, .. }) =
        import(desk, ncu, &report, Page::Details, &desk.layout.ncu_details())
    {
        desk.ledger.note(PHASE, why);
    }
    let file = std::fs::File::open(&raw)
        .map_err(|error| failed(format!("cannot read {}: {error}", raw.display())))?;
    let counters =
        roofgap_trace::ncu::raw::read(file).map_err(|error| failed(format!("{}: {error}", raw.display())))?;
    if counters.launches.is_empty() {
        return Err(PhaseStatus::failed(
            "the report of ncu holds no launch",
            Some(outcome.output_tail()),
        ));
    }
    let stage_of = stages_of_launches(&counters, &timeline.input.trace, stages, &plan);
    let measured: Vec<Measured> = counters
        .launches
        .iter()
        .zip(&stage_of)
        .filter_map(|(launch, stage)| {
            Some(Measured {
                stage: stage.clone(),
                kernel: launch.kernel.clone(),
                grid: launch.grid?,
                block: launch.block?,
            })
        })
        .collect();
    plan.came_back(&measured, |counted, planned| {
        canonical(counted) == canonical(planned)
    });
    match desk.run_dir.write_json("ncu/plan.json", &plan) {
        Ok(path) => {
            desk.ledger.output(PHASE, &path);
        }
        Err(error) => desk.ledger.note(PHASE, error.to_string()),
    }
    by_stage(desk, &raw, &report, &stage_of, &plan);
    if plan.unmet() > 0 {
        desk.ledger.note(
            PHASE,
            format!(
                "{} of {} kernel shapes of the plan did not come back; ncu/plan.json names them",
                plan.unmet(),
                plan.strata.len()
            ),
        );
    }
    let shared = plan
        .strata
        .iter()
        .filter(|planned| planned.measured_in.is_some())
        .count();
    if shared > 0 {
        desk.ledger.note(
            PHASE,
            format!(
                "{} of {} kernel shapes of the plan run in several stages; ncu measures each once, so that what was measured in \
                 one stage answers for the others (measured_in in ncu/plan.json)",
                shared,
                plan.strata.len()
            ),
        );
    }
    Ok(PhaseStatus::Ok)
}

/// Ends the program once the plan is met, or once the budget is spent.
fn until_met(expected: Option<u64>, budget: Duration) -> Watcher {
    let began = Instant::now();
    let mut measured = 0;
    Box::new(move |line| {
        if ProfiledLaunch::parse(line).is_some() {
            measured += 1;
        }
        if expected.is_some_and(|expected| measured >= expected) || began.elapsed() > budget {
            Watch::Stop
        } else {
            Watch::Continue
        }
    })
}

/// Why there is no report.
fn nothing_measured(folder: &Path, outcome: &Outcome) -> PhaseStatus {
    let said = ["ncu.out.log", "ncu.err.log"]
        .iter()
        .filter_map(|log| std::fs::read(folder.join(log)).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect::<String>();
    let why = match NcuFailure::find(&said) {
        Some(failure) => format!("ncu measured nothing: {failure}; {}", failure.remedy()),
        None => format!("ncu left no report: it {}", outcome.describe()),
    };
    PhaseStatus::failed(why, Some(outcome.output_tail()))
}

fn import(desk: &mut Desk<'_>, ncu: &Ncu, report: &Path, page: Page, csv: &Path) -> Result<(), PhaseStatus> {
    const PHASE: PhaseName = PhaseName::Counters;
    let line = ncu::import(ncu, report, page);
    let folder = desk.layout.ncu();
    let log = if page == Page::Raw {
        "import-raw"
    } else {
        "import-details"
    };
    let errand = Errand {
        stdout_to: Some(csv),
        ..Errand::new(&line, &folder, log, Duration::from_secs(600))
    };
    let outcome = desk
        .run(PHASE, errand)
        .map_err(|why| PhaseStatus::failed(why, None))?;
    if !desk.ledger.output(PHASE, csv) {
        let why = format!(
            "ncu wrote no CSV of {}: it {}",
            report.display(),
            outcome.describe()
        );
        return Err(PhaseStatus::failed(why, Some(outcome.output_tail())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_ended_once_the_plan_is_met() {
        let mut watch = until_met(Some(2), Duration::from_secs(1000));
        let line = "==PROF== Profiling \"k\" - 0: 0%....50%....100% - 9 passes";
        assert_eq!(watch("something"), Watch::Continue);
        assert_eq!(watch(line), Watch::Continue);
        assert_eq!(watch(line), Watch::Stop);
        let mut spent = until_met(None, Duration::ZERO);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(spent("anything"), Watch::Stop);
    }
}
