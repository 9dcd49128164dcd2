//! Selects the kernels for ncu, and the rank that it measures, and writes `ncu/plan.json`.
//!
//! ncu reaches every process of a launcher, and replays the kernels of each apart from the others. One rank is enough: the others
//! run the same kernels, and wait for it in their collectives. The annotation of a Python program opens a range in every other rank
//! (`adapters/counters_rank.py`), by which ncu leaves it out.

use std::collections::BTreeSet;
use std::time::Duration;

use roofgap_analyze::gpu::Dtype;
use roofgap_analyze::{Options, Pattern, Stage, StageIndex, StageSet, analyze};
use roofgap_collect::command::NvtxRange;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::{Ncu as NcuSettings, WorkloadKind};
use roofgap_runs::run_dir::{Layout, PhaseName};
use roofgap_trace::ncu::LaunchCounters;
use roofgap_trace::{Range, RangeStyle, Trace, native};

use super::baseline::Baseline;
use super::timeline::{Recorder, Timeline};
use super::{Phase, Results, Skip};
use crate::run::context::{AttemptError, PhaseContext};
use crate::select::{Limits, Plan, Policies, choose, launch_groups};

const NAME: PhaseName = PhaseName::Select;

/// The phase.
pub struct Select;

/// Reason without a timeline.
pub const NO_TIMELINE: &str = "there is no timeline to select kernels from";

/// Returns the reason why a configuration does not request counters.
pub fn no_counters(config: &Config) -> Option<&'static str> {
    if !config.runner.counters {
        return Some("runner.counters is false");
    }
    (config.workload.kind == WorkloadKind::Embedded).then_some("the embedded model runs on the CPU")
}

impl Phase for Select {
    fn name(&self) -> PhaseName {
        NAME
    }

    fn not_requested(&self, config: &Config) -> Option<&'static str> {
        no_counters(config)
    }

    fn is_result(&self) -> bool {
        // The plan only serves the counters, which report what they miss.
        false
    }

    fn skip(&self, context: &PhaseContext<'_>, found: &Results) -> Option<Skip> {
        let why = match (no_counters(context.config), &found.timeline) {
            (Some(why), _) => why,
            (None, None) => NO_TIMELINE,
            (None, Some(timeline)) if timeline.input.trace.ops.is_empty() => {
                "the timeline has no kernels to select from"
            }
            (None, Some(_)) => return None,
        };
        Some(Skip::not_requested(why))
    }

    fn run(&self, context: &mut PhaseContext<'_>, found: &mut Results) -> Result<(), AttemptError> {
        found.plan = Some(plan(context, found.timeline()?, &found.stages, found.baseline.as_ref())?);
        Ok(())
    }
}

fn plan(
    context: &mut PhaseContext<'_>,
    timeline: &Timeline,
    stages: &StageSet,
    baseline: Option<&Baseline>,
) -> Result<Plan, AttemptError> {
    let config = context.config;
    // The kernels of one rank: those of the other stages of a pipeline would never be measured.
    let rank = MeasuredRank::of(config, &context.layout, timeline).one();
    let rank = rank.filter(|rank| timeline.input.trace.ranks().contains(rank));
    let own = rank.map(|rank| timeline.input.trace.of_rank(rank));
    let trace = own.as_ref().unwrap_or(&timeline.input.trace);
    let options = Options { stages: stages.clone(), ..Options::default() };
    let analyzed = analyze(trace, &options);
    let included = included(config.profiling.ncu.nvtx_include.as_deref(), &analyzed.analysis.stages)?;
    let mut groups = launch_groups(trace, &analyzed);
    if config.profiling.ncu.nvtx_include.is_some() {
        let is_included = |name: &str| included.iter().any(|at| analyzed.stages.name(*at) == name);
        groups.retain(|group| is_included(&group.stage));
    }
    let mut ranges = ranges_of(trace, &analyzed.stages, &included);
    let is_engine = analyzed.stages.engine().is_some();
    if is_engine {
        // Steps are named by what they schedule, which differs from run to run.
        ranges.clear();
        context.note("the steps of the engine have other names in each run, so ncu measures the planned kernels outside warm-up, in whichever step");
    }
    let plan =
        choose(&groups, &ranges, &limits(config, baseline, is_engine), policies(&config.profiling.ncu));
    context.run_dir.folder("ncu")?;
    let path = context.run_dir.write_json("ncu/plan.json", &plan)?;
    context.output(&path);
    if plan.kernels.is_empty() {
        return Err(AttemptError::new(nothing_selected(&plan)));
    }
    for cover in plan.stages.iter().filter(|cover| cover.covered_pct < KERNEL_TIME_PCT) {
        context.note(format!("{}: {:.1} % of its kernel time is covered", cover.name, cover.covered_pct));
    }
    Ok(plan)
}

/// Returns the positions of the stages whose name or range matches `profiling.ncu.nvtx_include`, or of all without a pattern. A pattern
/// without a domain matches ranges of any domain.
fn included(pattern: Option<&str>, stages: &[Stage]) -> Result<Vec<usize>, AttemptError> {
    let Some(written) = pattern else {
        return Ok((0..stages.len()).collect());
    };
    // ncu itself marks a range of the push/pop kind with a slash at its end, and an @ of a name with a backslash.
    let text = written.strip_suffix('/').unwrap_or(written).replace(r"\@", "@");
    let pattern =
        if text.contains('@') { Pattern::parse(&text)? } else { Pattern::parse(&format!("*@{text}"))? };
    let matches = |range: &str| {
        let (domain, name) = range.split_once('@').unwrap_or(("", range));
        pattern.matches(domain, name)
    };
    let is_meant = |stage: &Stage| matches(&stage.name) || stage.ranges.iter().any(|range| matches(range));
    let found: Vec<usize> = (0..stages.len()).filter(|at| stages.get(*at).is_some_and(is_meant)).collect();
    if found.is_empty() {
        let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
        return Err(AttemptError::new(format!(
            "profiling.ncu.nvtx_include is {written}, which matches no stage; stages found: {}",
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        )));
    }
    Ok(found)
}

/// Lists the ranges that mark the instances of some stages.
fn ranges_of(trace: &Trace, index: &StageIndex, stages: &[usize]) -> Vec<NvtxRange> {
    let spans = stages.iter().flat_map(|at| &index.spans(*at).instances);
    let rows = spans.filter_map(|span| trace.ranges.rows.get(span.range? as usize));
    let mut found: Vec<NvtxRange> = rows.map(|range| nvtx_range(trace, range)).collect();
    found.sort();
    found.dedup();
    found
}

/// Returns the domain and the name of a range.
pub fn nvtx_range(trace: &Trace, range: &Range) -> NvtxRange {
    let (domain, name) = (trace.names.get(range.domain), trace.names.get(range.name));
    NvtxRange { domain: (!domain.is_empty()).then(|| domain.to_owned()), name: name.to_owned() }
}

fn nothing_selected(plan: &Plan) -> String {
    if plan.left_out.is_empty() {
        return "no kernel of any stage takes time".to_owned();
    }
    format!(
        "no kernel fits into {:.0} s, of which the program itself takes {:.0} s; raise run.counter_budget",
        plan.budget_seconds, plan.expected_seconds
    )
}

/// Share of a stage's kernel time at which the selection stops, %.
const KERNEL_TIME_PCT: f64 = 90.0;

/// Estimated time of a measured launch, s, and of a pass for each GB of weights, which ncu saves and restores.
const LAUNCH_SECONDS: f64 = 0.5;
const PASS_SECONDS_PER_GB: f64 = 0.002;

/// Estimated time of start and end under ncu, without replays.
pub const STARTUP: Duration = Duration::from_secs(30);

fn limits(config: &Config, baseline: Option<&Baseline>, is_engine: bool) -> Limits {
    let (run, settings) = (&config.run, &config.profiling.ncu);
    let most = config.runner.max_kernels;
    let top_n = most.map_or(run.top_n_kernels, |most| most.min(run.top_n_kernels));
    let weights_gb = baseline.and_then(weights_gb).unwrap_or(0.0);
    let passes = settings.passes();
    let per_launch = LAUNCH_SECONDS + PASS_SECONDS_PER_GB * f64::from(passes) * weights_gb;
    // The program loads more slowly under ncu; 1.5 times the baseline has been enough.
    let program = baseline.map_or(Duration::ZERO, |baseline| baseline.wall.mul_f64(1.5));
    Limits {
        top_n: top_n as usize,
        time_pct: KERNEL_TIME_PCT,
        budget: run.counter_budget.0,
        // An engine takes minutes to start, so its budget begins with the first measured launch.
        startup: match is_engine {
            true => Duration::ZERO,
            false => program.max(STARTUP),
        },
        per_launch: Duration::try_from_secs_f64(per_launch).unwrap_or_default(),
        passes_per_launch: passes,
        launch_count: settings.launch_count,
    }
}

/// Computes the size of the weights from the program's account, GB.
fn weights_gb(baseline: &Baseline) -> Option<f64> {
    let model = baseline.account.as_ref()?.model.as_ref()?;
    let bits = model.dtype.as_deref()?.parse::<Dtype>().ok()?.bits();
    Some(model.parameters? as f64 * bits / 8e9)
}

fn policies(settings: &NcuSettings) -> Policies {
    Policies {
        clock_control: settings.clock_control,
        cache_control: settings.cache_control,
        replay_mode: settings.replay_mode,
    }
}

/// Variable that tells the annotation which rank is measured.
pub const RANK_VARIABLE: &str = "ROOFGAP_COUNTERS_RANK";

/// Ranges that the annotation opens in the other ranks, and in the measured one.
const OTHER: &str = "roofgap.other_rank";
const MEASURED: &str = "roofgap.counters rank=";

/// The rank to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeasuredRank {
    /// The program has no ranks, or the kernels of every rank are measured.
    Every,
    /// One rank of this session.
    One(u32),
    /// A rank that another session records.
    Elsewhere {
        /// Rank to measure.
        rank: u32,
        /// Ranks of this session.
        here: BTreeSet<u32>,
    },
}

impl MeasuredRank {
    /// Decides by the ranks in the timeline.
    pub fn of(config: &Config, layout: &Layout, timeline: &Timeline) -> Self {
        let here: BTreeSet<u32> = match timeline.tool {
            Recorder::Native => {
                let captures = layout.native_captures().into_iter();
                captures.filter_map(|path| Some(native::rank(&path).ok()??.rank)).collect()
            }
            Recorder::Nsys => ranks_of(&timeline.input.trace),
        };
        Self::among(config.profiling.ncu.rank, here)
    }

    fn among(wanted: Option<u32>, here: BTreeSet<u32>) -> Self {
        match wanted {
            Some(rank) if here.contains(&rank) => Self::One(rank),
            Some(rank) if !here.is_empty() => Self::Elsewhere { rank, here },
            _ => Self::Every,
        }
    }

    /// Returns the rank that this session measures, if it is one of several.
    pub fn one(&self) -> Option<u32> {
        match self {
            Self::One(rank) => Some(*rank),
            Self::Every | Self::Elsewhere { .. } => None,
        }
    }

    /// Returns the range that is open in the ranks to leave out.
    pub fn excluded(&self) -> Option<NvtxRange> {
        self.one().and_then(|_| NvtxRange::parse(OTHER))
    }
}

/// Returns the ranks in a trace: of its processes, or the one rank of a job that all of it belongs to.
fn ranks_of(trace: &Trace) -> BTreeSet<u32> {
    let job = trace.distributed.as_ref();
    // A launcher also tells the only process of a program that it is rank 0.
    let own = job.filter(|job| job.world_size.is_some_and(|size| size > 1));
    trace.ranks().into_iter().chain(own.and_then(|job| job.rank)).collect()
}

/// Says which rank the counters belong to.
pub fn measured_rank_note(wanted: u32, launches: &[LaunchCounters]) -> String {
    let ranks: BTreeSet<Option<&str>> = launches.iter().map(rank_of).collect();
    if let [Some(rank)] = ranks.iter().copied().collect::<Vec<_>>()[..] {
        return format!("the counters are those of rank {rank}; ncu left out the other ranks");
    }
    let processes: BTreeSet<Option<u32>> = launches.iter().map(|launch| launch.process).collect();
    let processes = match processes.len() {
        1 => "one process".to_owned(),
        count => format!("{count} processes"),
    };
    format!(
        "the counters come from {processes} of the job, and ncu cannot tell rank {wanted} from the others: it leaves out \
         ranks of Python programs that import torch, with workload.annotate=true"
    )
}

/// Returns the rank that a launch was measured in.
fn rank_of(launch: &LaunchCounters) -> Option<&str> {
    let ranges = launch.nvtx.iter().filter(|range| range.kind == RangeStyle::StartEnd);
    let mut told = ranges.filter_map(|range| range.name.strip_prefix(MEASURED));
    told.find_map(|rest| rest.split(' ').next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_runs::config::{ConfigProps, compose};

    /// A program may push the whole label as the name of a range in the default domain.
    #[test]
    fn a_literal_label_reaches_ncu_as_a_name() {
        let mut trace = Trace::default();
        let process = trace.add_process(1, "python");
        let thread = trace.add_thread(process, 1, "main");
        let (none, literal) = (trace.names.intern(""), trace.names.intern("LLM@decode_all"));
        let (domain, own) = (trace.names.intern("LLM"), trace.names.intern("prefill"));
        for (at, domain, name) in [(0, domain, own), (20, none, literal)] {
            trace.ranges.rows.push(Range {
                start: at,
                end: at + 10,
                domain,
                name,
                process,
                thread,
                end_thread: thread,
                style: RangeStyle::PushPop,
                open: false,
            });
        }
        let analyzed = analyze(&trace, &Options::default());
        let texts = |pattern| {
            let included = included(pattern, &analyzed.analysis.stages).unwrap();
            let ranges = ranges_of(&trace, &analyzed.stages, &included);
            ranges.iter().map(NvtxRange::for_ncu).collect::<Vec<String>>()
        };
        assert_eq!(texts(None), [r"LLM\@decode_all/", "LLM@prefill/"]);
        for pattern in ["decode*", "LLM@decode_all", r"LLM\@decode_all/"] {
            assert_eq!(texts(Some(pattern)), [r"LLM\@decode_all/"], "{pattern}");
        }
    }

    #[test]
    fn the_start_of_an_engine_is_not_part_of_its_budget() {
        let config = compose(&ConfigProps::default()).unwrap().config;
        let baseline = Baseline { wall: Duration::from_secs(60), account: None };
        let startup = |is_engine| limits(&config, Some(&baseline), is_engine).startup;
        assert_eq!(startup(false), Duration::from_secs(90));
        assert_eq!(startup(true), Duration::ZERO);
    }
}

#[cfg(test)]
mod rank_tests {
    use super::*;
    use roofgap_trace::Distributed;
    use roofgap_trace::ncu::NvtxRange as LaunchRange;

    #[test]
    fn one_rank_of_a_job_is_measured() {
        let among = |wanted, here: &[u32]| MeasuredRank::among(wanted, here.iter().copied().collect());
        assert_eq!(among(Some(0), &[0, 1]), MeasuredRank::One(0));
        assert_eq!(among(Some(3), &[3]), MeasuredRank::One(3));
        assert_eq!(among(Some(0), &[]), MeasuredRank::Every, "a program of one process");
        assert_eq!(among(None, &[0, 1]), MeasuredRank::Every);
        let elsewhere = among(Some(0), &[8, 9]);
        assert_eq!((elsewhere.one(), elsewhere.excluded()), (None, None));
        assert!(matches!(elsewhere, MeasuredRank::Elsewhere { rank: 0, .. }));
        assert_eq!(among(Some(1), &[0, 1]).excluded().unwrap().to_string(), OTHER);
    }

    #[test]
    fn a_trace_of_one_rank_of_several_has_it() {
        let trace = |rank, world_size| Trace {
            distributed: Some(Distributed {
                rank: Some(rank),
                world_size: Some(world_size),
                ..Distributed::default()
            }),
            ..Trace::default()
        };
        let ranks = ranks_of(&trace(1, 2));
        assert_eq!(ranks, BTreeSet::from([1]));
        assert!(matches!(MeasuredRank::among(Some(0), ranks), MeasuredRank::Elsewhere { rank: 0, .. }));
        assert!(ranks_of(&trace(0, 1)).is_empty(), "a program of one process");
        assert!(ranks_of(&Trace::default()).is_empty());
    }

    #[test]
    fn the_rank_comes_from_the_ranges_of_the_launches() {
        let launch = |process, name: &str| LaunchCounters {
            process: Some(process),
            nvtx: vec![LaunchRange { domain: None, name: name.to_owned(), kind: RangeStyle::StartEnd }],
            ..LaunchCounters::default()
        };
        let measured = "roofgap.counters rank=1 world=8";
        let one = measured_rank_note(1, &[launch(5, measured), launch(5, measured)]);
        assert!(one.contains("those of rank 1"), "{one}");
        let several = measured_rank_note(1, &[launch(5, "x"), launch(6, "x")]);
        assert!(several.contains("from 2 processes"), "{several}");
        let mixed = measured_rank_note(1, &[launch(5, measured), launch(6, "x")]);
        assert!(mixed.contains("from 2 processes"), "{mixed}");
    }
}
