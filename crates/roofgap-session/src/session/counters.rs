//! What limits the kernels that matter: the plan, and one ncu run of it inside a time budget.

use std::path::Path;
use std::time::{Duration, Instant};

use roofgap_analyze::counters::{canonical, light_metrics};
use roofgap_analyze::{Analysis, StageSet};
use roofgap_collect::child::{Outcome, Watch, Watcher};
use roofgap_collect::ncu::{self, NameBase, Page, Profiled, Sampling};
use roofgap_collect::program::Phase;
use roofgap_collect::range::NvtxRange;
use roofgap_collect::tool::Ncu;
use roofgap_trace::Trace;
use roofgap_trace::ncu::CounterSet;

use super::baseline::Baseline;
use super::desk::{Desk, Errand};
use super::program::Program;
use super::timeline::{Recorder, Timeline};
use super::tools::Tools;
use crate::config::settings::Ncu as NcuSettings;
use crate::record::{PhaseName, PhaseStatus};
use crate::select::plan::Measured;
use crate::select::{Limits, Plan, Policies, choose, mangled, strata};

/// Make the plan. `None` where there is nothing to measure; the phase says why.
pub(super) fn select(
    desk: &mut Desk<'_>,
    timeline: &Timeline,
    analysis: &Analysis,
    stages: &StageSet,
    baseline: Option<&Baseline>,
) -> Option<Plan> {
    const PHASE: PhaseName = PhaseName::Select;
    let trace = &timeline.input.trace;
    if trace.ops.is_empty() {
        desk.skip(PHASE, true, "the timeline holds no kernels to choose from");
        return None;
    }
    desk.begin(PHASE);
    let found = strata::of(trace, &analysis.stages, stages);
    let mut ranges: Vec<String> = analysis
        .stages
        .iter()
        .flat_map(|stage| stage.ranges.clone())
        .collect();
    ranges.sort();
    ranges.dedup();
    let settings = &desk.config.profiling.ncu;
    let plan = choose(&found, &ranges, &limits(desk, baseline), policies(settings));
    let status = match desk
        .run_dir
        .folder("ncu")
        .and_then(|_| desk.run_dir.write_json("ncu/plan.json", &plan))
    {
        Ok(path) => {
            desk.ledger.output(PHASE, &path);
            if plan.kernels.is_empty() {
                PhaseStatus::failed(nothing_affordable(&plan), None)
            } else {
                for cover in plan
                    .stages
                    .iter()
                    .filter(|cover| cover.covered_pct < desk.config.run.kernel_time_pct)
                {
                    desk.ledger.note(
                        PHASE,
                        format!(
                            "{}: {:.1} % of its kernel time is covered",
                            cover.name, cover.covered_pct
                        ),
                    );
                }
                PhaseStatus::Ok
            }
        }
        Err(error) => PhaseStatus::failed(error.to_string(), None),
    };
    let usable = status == PhaseStatus::Ok;
    desk.end(PHASE, status);
    usable.then_some(plan)
}

fn nothing_affordable(plan: &Plan) -> String {
    if plan.left_out.is_empty() {
        "no kernel of any stage takes any time".to_owned()
    } else {
        format!(
            "no kernel fits into {:.0} s, of which the program itself takes {:.0} s; raise run.counter_budget",
            plan.budget_seconds, plan.expected_seconds
        )
    }
}

fn limits(desk: &Desk<'_>, baseline: Option<&Baseline>) -> Limits {
    let (run, settings) = (&desk.config.run, &desk.config.profiling.ncu);
    let top_n = desk
        .config
        .runner
        .max_kernels
        .map_or(run.top_n_kernels, |most| most.min(run.top_n_kernels));
    let seconds = |value: f64| Duration::try_from_secs_f64(value).unwrap_or_default();
    // Loading the program under ncu is slower than by itself; half as much again has been enough.
    let program = baseline.map_or(Duration::ZERO, |baseline| baseline.wall.mul_f64(1.5));
    Limits {
        top_n: top_n as usize,
        time_pct: run.kernel_time_pct,
        budget: run.counter_budget.0,
        startup: program.max(seconds(settings.startup_seconds)),
        per_launch: seconds(settings.seconds_per_launch),
        passes_per_launch: settings.passes_per_launch,
        launch_count: settings.launch_count,
    }
}

fn policies(settings: &NcuSettings) -> Policies {
    let word = |value: serde_json::Result<serde_json::Value>| {
        value
            .ok()
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap_or_default()
    };
    Policies {
        clock_control: word(serde_json::to_value(settings.clock_control)),
        cache_control: word(serde_json::to_value(settings.cache_control)),
        replay_mode: word(serde_json::to_value(settings.replay_mode)),
    }
}

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
    let asked = request(desk, ncu, timeline, &plan, stages);
    let planned = asked.command(ncu, &line);
    planned
        .left_out
        .iter()
        .for_each(|left| desk.ledger.note(PHASE, left.clone()));
    let budget = desk.config.run.counter_budget.0;
    let errand = Errand {
        profiler: true,
        watch: Some(until_met(plan.expected_launches, budget)),
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
            Some(outcome.last_words()),
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
                "{} of {} strata of the plan did not come back",
                plan.unmet(),
                plan.strata.len()
            ),
        );
    }
    Ok(PhaseStatus::Ok)
}

/// What is asked of ncu.
fn request(desk: &mut Desk<'_>, ncu: &Ncu, timeline: &Timeline, plan: &Plan, stages: &StageSet) -> ncu::Plan {
    let settings = &desk.config.profiling.ncu;
    let (kernels, name_base) = names(desk, timeline, plan);
    let trace = &timeline.input.trace;
    let capability = trace.devices.iter().find_map(|device| device.compute_capability);
    let wanted = metrics(settings, capability);
    let (metrics, lacking) = match capability.and_then(|(major, minor)| ncu::metrics::chip(major, minor)) {
        // ncu measures nothing at all where one name is unknown to it.
        Some(chip) => match ncu.metrics_of(chip) {
            Ok(known) => ncu::metrics::existing(wanted, &known),
            Err(_) => (wanted, Vec::new()),
        },
        None => (wanted, Vec::new()),
    };
    if !lacking.is_empty() {
        desk.ledger.note(
            PhaseName::Counters,
            format!("this ncu does not know for this device: {}", lacking.join(", ")),
        );
    }
    let settings = &desk.config.profiling.ncu;
    ncu::Plan {
        kernels,
        name_base,
        ranges: plan
            .ranges
            .iter()
            .filter_map(|range| NvtxRange::parse(range))
            .collect(),
        except: warmups(trace, stages),
        sampling: Sampling::PerLaunchConfig {
            count: settings.launch_count.max(1),
        },
        set: settings.set.clone(),
        sections: settings.sections.clone(),
        metrics,
        clock: settings.clock_control,
        cache: settings.cache_control,
        replay: settings.replay_mode,
        processes: settings.target_processes,
        end_when_met: false,
        extra: settings.extra_args.clone(),
        ..ncu::Plan::to(desk.layout.ncu_base())
    }
}

/// The kernels by the name on which the timeline and ncu agree.
fn names(desk: &mut Desk<'_>, timeline: &Timeline, plan: &Plan) -> (Vec<String>, NameBase) {
    let known = match timeline.tool {
        Recorder::Nsys => mangled::from_nsys(&desk.layout.nsys_sqlite()).unwrap_or_default(),
        Recorder::Native => Default::default(),
    };
    let mangled: Option<Vec<Vec<String>>> =
        plan.kernels.iter().map(|name| known.get(name).cloned()).collect();
    match mangled {
        Some(names) => (names.into_iter().flatten().collect(), NameBase::Mangled),
        None => {
            desk.ledger.note(
                PhaseName::Counters,
                "the timeline has no mangled names; kernels are asked for by function name, which may measure more",
            );
            (
                plan.kernels.iter().map(|name| function_name(name)).collect(),
                NameBase::Function,
            )
        }
    }
}

/// The bare name of a function: no return type, namespace, template arguments or parameters.
fn function_name(name: &str) -> String {
    let mut depth = 0_usize;
    let mut plain = String::new();
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 && !plain.is_empty() => break,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let last = plain.trim().rsplit([' ', ':']).next().unwrap_or_default();
    if last.is_empty() {
        name.to_owned()
    } else {
        last.to_owned()
    }
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

/// The warm-up ranges that occur: stages inside them are called as the others are, and come first.
fn warmups(trace: &Trace, stages: &StageSet) -> Vec<NvtxRange> {
    let mut found: Vec<NvtxRange> = Vec::new();
    for range in &trace.ranges.rows {
        let (domain, name) = (trace.names.get(range.domain), trace.names.get(range.name));
        if stages.warmup.iter().any(|pattern| pattern.matches(domain, name)) {
            let domain = (!domain.is_empty()).then(|| domain.to_owned());
            let range = NvtxRange {
                domain,
                name: name.to_owned(),
            };
            if !found.contains(&range) {
                found.push(range);
            }
        }
    }
    found
}

/// Ends the program once the plan is met, or once the budget is spent.
fn until_met(expected: u64, budget: Duration) -> Watcher {
    let began = Instant::now();
    let mut measured = 0;
    Box::new(move |line| {
        if Profiled::read(line).is_some() {
            measured += 1;
        }
        if (expected > 0 && measured >= expected) || began.elapsed() > budget {
            Watch::Enough
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
    let why = match ncu::complaint(&said) {
        Some(complaint) => format!(
            "ncu measured nothing: {}; {}",
            describe(&complaint),
            complaint.remedy()
        ),
        None => format!("ncu left no report: it {}", outcome.describe()),
    };
    PhaseStatus::failed(why, Some(outcome.last_words()))
}

fn describe(complaint: &ncu::Complaint) -> String {
    use ncu::Complaint;
    match complaint {
        Complaint::Permission => "the counters are closed to this user (ERR_NVGPUCTRPERM)".to_owned(),
        Complaint::NothingProfiled => "no kernel was profiled".to_owned(),
        Complaint::UnknownName(line)
        | Complaint::Driver(line)
        | Complaint::Busy(line)
        | Complaint::Other(line) => line.trim_start_matches("==ERROR==").trim().to_owned(),
    }
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
        return Err(PhaseStatus::failed(why, Some(outcome.last_words())));
    }
    Ok(())
}

/// The stage of each measured launch, by the ranges ncu saw around it; where it saw none, by the plan if only one stage
/// has the kernel and shape.
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
            let within = |patterns: &[roofgap_analyze::Pattern]| {
                launch.nvtx.iter().any(|range| {
                    let domain = range.domain.as_deref().unwrap_or_default();
                    patterns
                        .iter()
                        .any(|pattern| pattern.matches(domain, &range.name))
                })
            };
            if within(&set.warmup) {
                return None;
            }
            let by_range = set
                .stages
                .iter()
                .find(|rule| within(&rule.patterns) || within(&rule.steps));
            if let Some(rule) = by_range {
                return Some(rule.name.clone());
            }
            if whole {
                return Some(strata::WHOLE.to_owned());
            }
            let mut stages: Vec<&str> = plan
                .strata
                .iter()
                .filter(|s| Some(s.grid) == launch.grid && Some(s.block) == launch.block)
                .filter(|s| canonical(&s.kernel) == canonical(&launch.kernel))
                .map(|s| s.stage.as_str())
                .collect();
            stages.dedup();
            match stages.as_slice() {
                [only] => Some((*only).to_owned()),
                _ => None,
            }
        })
        .collect()
}

/// The rows of each stage as a file of their own, and the report under the name of each stage.
fn by_stage(desk: &mut Desk<'_>, raw: &Path, report: &Path, stage_of: &[Option<String>], plan: &Plan) {
    const PHASE: PhaseName = PhaseName::Counters;
    for cover in &plan.stages {
        let csv = desk.layout.ncu_stage_raw(&cover.name);
        match split(raw, &csv, stage_of, &cover.name) {
            Ok(0) => {}
            Ok(_) => {
                desk.ledger.output(PHASE, &csv);
                let link = desk.layout.ncu_stage_report(&cover.name);
                let _ = std::fs::remove_file(&link);
                // One run measured all stages, so there is one report; a second name costs nothing, a copy 100 MB.
                if std::fs::hard_link(report, &link).is_ok() {
                    desk.ledger.output(PHASE, &link);
                }
            }
            Err(error) => desk
                .ledger
                .note(PHASE, format!("cannot write {}: {error}", csv.display())),
        }
    }
}

/// Copy header, units and the rows of one stage. Returns how many rows there were.
fn split(raw: &Path, to: &Path, stage_of: &[Option<String>], stage: &str) -> Result<usize, csv::Error> {
    // What ncu says of itself may stand before the table.
    let text = std::fs::read_to_string(raw)?;
    let table = text
        .find("\"ID\",")
        .map_or(text.as_str(), |at| text.get(at..).unwrap_or_default());
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(table.as_bytes());
    let mut writer = csv::WriterBuilder::new()
        .quote_style(csv::QuoteStyle::Always)
        .flexible(true)
        .from_writer(Vec::new());
    let mut rows = 0;
    let mut launch = 0;
    for (at, record) in reader.records().enumerate() {
        let record = record?;
        let is_head = at == 0 || (at == 1 && record.get(0).is_some_and(|id| id.trim().is_empty()));
        if is_head {
            writer.write_record(&record)?;
            continue;
        }
        if stage_of
            .get(launch)
            .is_some_and(|own| own.as_deref() == Some(stage))
        {
            writer.write_record(&record)?;
            rows += 1;
        }
        launch += 1;
    }
    if rows > 0 {
        let bytes = writer
            .into_inner()
            .map_err(|error| std::io::Error::other(error.to_string()))?;
        roofgap_collect::rundir::write_whole(to, &bytes)?;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_function_names() {
        for (name, bare) in [
            (
                "void at::native::vectorized_elementwise_kernel<(int)8, at::X<c10::BFloat16>>(int, T2, T3)",
                "vectorized_elementwise_kernel",
            ),
            ("nvjet_tst_192x192_64x4_v_bz", "nvjet_tst_192x192_64x4_v_bz"),
            ("void <unnamed>::softmax<float>(float *)", "softmax"),
            ("sm90_xmma_gemm(Params)", "sm90_xmma_gemm"),
        ] {
            assert_eq!(function_name(name), bare, "{name}");
        }
    }

    #[test]
    fn the_program_is_ended_once_the_plan_is_met() {
        let mut watch = until_met(2, Duration::from_secs(1000));
        let line = "==PROF== Profiling \"k\" - 0: 0%....50%....100% - 9 passes";
        assert_eq!(watch("something"), Watch::Continue);
        assert_eq!(watch(line), Watch::Continue);
        assert_eq!(watch(line), Watch::Enough);
        let mut spent = until_met(2, Duration::ZERO);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(spent("anything"), Watch::Enough);
    }

    #[test]
    fn rows_go_to_their_stage() {
        let folder = tempfile::tempdir().unwrap();
        let (raw, to) = (
            folder.path().join("raw.csv"),
            folder.path().join("decode_raw.csv"),
        );
        std::fs::write(
            &raw,
            "==PROF== x\n\"ID\",\"Kernel Name\"\n\"\",\"\"\n\"0\",\"a, b\"\n\"1\",\"c\"\n",
        )
        .unwrap();
        let stages = [Some("decode".to_owned()), Some("prefill".to_owned())];
        assert_eq!(split(&raw, &to, &stages, "decode").unwrap(), 1);
        let text = std::fs::read_to_string(&to).unwrap();
        assert_eq!(text, "\"ID\",\"Kernel Name\"\n\"\",\"\"\n\"0\",\"a, b\"\n");
        assert_eq!(
            split(&raw, &folder.path().join("none.csv"), &stages, "vision").unwrap(),
            0
        );
        assert!(!folder.path().join("none.csv").exists());
    }
}
