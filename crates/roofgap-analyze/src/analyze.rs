//! The analysis of a trace, in steps. Each step takes the result of the one before it.
//!
//! [`Case`] says what belongs to what, [`timed`] measures the times, [`add_work`] puts the work of the model in these times, and
//! [`add_counters`] the hardware counters beside them; findings are about all of it.

use crate::attribution::{Contexts, Launches, NO_CALL, calls_with_work, operator_table, range_table};
use crate::communication::{self, Communication};
use crate::counters::alone::MeasuredLaunches;
use crate::counters::{self, Joined, Timeline};
use crate::engines::EngineStep;
use crate::execution::{Engine, Uncorrected, correct, unprofiled};
use crate::findings::{LaunchGap, OtherWork, StageEvidence};
use crate::gpu::{Dtype, GpuFacts, UserLimits, reword_analysis};
use crate::knobs::{self, WorkloadFacts};
use crate::model::{Architecture, Tokens, WorkFacts};
use crate::names::Naming;
use crate::numbers::count;
use crate::rates::add_rates;
use crate::result::*;
use crate::roof;
use crate::shapes::ShapedKernels;
use crate::stages::{AbsentStage, StageIndex, StageSet};
use crate::timeline::{
    Activity, CopyMeter, HostWork, IntervalSet, LaunchGaps, StageMeter, StepPeriods, find_cold, from_totals,
    graph_table, kernel_table,
};
use crate::verdict::verdict;
use crate::{account, checks, findings, host, layers, ranks, serving, vitals};
use roofgap_base::text::cut;
use roofgap_trace::account::Account;
use roofgap_trace::ncu::CounterSet;
use roofgap_trace::vitals::GpuVitals;
use roofgap_trace::{CallClass, Device, LossKind, Losses, Ns, OpKind, RecordedWindows, SourceFormat, Trace};
use std::borrow::Cow;
use std::sync::Arc;

/// Options of an analysis.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Rules of the stages.
    pub stages: StageSet,
    /// Counters to join with the timeline.
    pub counters: Vec<CounterSet>,
    /// Model; without it, the model of the program's own account.
    pub model: Option<Architecture>,
    /// Why the model that the user named is not known.
    pub no_model: Option<String>,
    /// Name of the model in the reports, where the program's own account has none; without it, the name in the model.
    pub model_name: Option<String>,
    /// Limits of the device set by the user.
    pub limits: UserLimits,
    /// Number of ranks that share every layer, set by the user.
    pub tensor_parallel: Option<u32>,
    /// Number of ranks that the experts are divided among, set by the user.
    pub expert_parallel: Option<u32>,
    /// Number format of weights and matrix products, set by the user.
    pub dtype: Option<Dtype>,
    /// Tokens set by the user; missing numbers come from the program's own account.
    pub tokens: Tokens,
    /// The program's own account of its run.
    pub account: Option<Account>,
    /// Trace of another run of the program with the shapes of its operators, where the trace has none.
    pub shapes: Option<Arc<Trace>>,
    /// Operators of a separate run, instead of those of the trace.
    pub operators: Option<Vec<Operator>>,
    /// Profiler overhead.
    pub overhead: Vec<Overhead>,
    /// Ranges and calls of a run without a profiler.
    pub baseline: Option<Arc<Trace>>,
    /// Time of a unit of a stage (see [`Steady`]) without the profiler, as the user states it.
    pub unprofiled: Vec<(String, Ns)>,
    /// Requests that were sent while the timeline was recorded; without them, those of the account.
    pub recorded_requests: Option<RequestStats>,
    /// Vitals of the GPUs in the unprofiled run that `account` is of.
    pub baseline_vitals: Vec<GpuVitals>,
    /// Settings of the workload, for the knobs of findings; `None` for a capture alone.
    pub workload: Option<WorkloadFacts>,
}

/// An analysis together with the index of its stages.
#[derive(Debug, Default)]
pub struct Analyzed {
    /// The analysis.
    pub analysis: Analysis,
    /// Time spans and operations of each stage of `analysis.stages`.
    pub stages: StageIndex,
}

/// Analyses a trace.
pub fn analyze(trace: &Trace, options: &Options) -> Analyzed {
    let mut case = Case::new(trace, options);
    let has_calls = !trace.ops.is_empty() && !trace.calls.is_empty();
    let engine = has_calls.then(|| Engine::new(trace, &case.index));
    let (mut analysis, evidence) = timed(&case, engine.as_ref());
    let (gpu, model) = add_work(&mut analysis, &case);
    let (joined, alone) = add_counters(&mut analysis, &case, gpu.as_ref());
    mark_missing_work(&mut analysis, &case);
    analysis.stages.iter_mut().for_each(Stage::share_with_warm);
    let rules = findings::Inputs {
        analysis: &analysis,
        evidence: &evidence,
        model: model.as_ref(),
        counters: &joined.measured,
        engine: engine.as_ref(),
    };
    let mut list = findings::find(rules);
    if let Some(alone) = &alone {
        let evidence = std::slice::from_ref(&alone.evidence);
        list.extend(findings::find_alone(
            findings::Inputs { evidence, counters: &alone.rows, ..rules },
            &alone.stage,
        ));
    }
    analysis.findings = list;
    analysis.execution = engine.as_ref().map(Engine::edges);
    if let Some(engine) = &engine {
        findings::add_next_limits(&mut analysis, engine);
    }
    if let Some(workload) = &options.workload {
        knobs::attach(&mut analysis, workload, model.as_ref());
    }
    case.losses.merge(&joined.losses);
    analysis.losses = loss_rows(&case.losses);
    checks::declare(&mut analysis);
    reword_analysis(&mut analysis);
    Analyzed { analysis, stages: case.index }
}

/// What is analysed, and what belongs to what in it: GPU operations to calls, calls to ranges, ranges to stages.
struct Case<'a> {
    trace: &'a Trace,
    options: &'a Options,
    /// The program's own account.
    program: Option<&'a Account>,
    /// Counters, those of one report together.
    counters: Cow<'a, [CounterSet]>,
    /// Devices of the counters.
    counter_devices: Vec<Device>,
    /// Origin of the kernels.
    from: KernelOrigin,
    index: StageIndex,
    activity: Activity,
    host: HostWork,
    /// Steps of each stage.
    periods: Vec<StepPeriods>,
    /// Stages that were requested and do not occur.
    absent: Vec<AbsentStage>,
    losses: Losses,
}

impl<'a> Case<'a> {
    fn new(trace: &'a Trace, options: &'a Options) -> Self {
        let counters = counters::merge(&options.counters);
        // Without kernels in the timeline they come from a summary table, or from the launches that ncu measured.
        let from = match (trace.ops.is_empty(), trace.kernel_totals.is_empty(), counters.is_empty()) {
            (true, false, _) => KernelOrigin::Summary,
            (true, true, false) => KernelOrigin::Counters,
            _ => KernelOrigin::Timeline,
        };
        let counter_devices = counters::alone::devices(&counters);
        let mut losses = trace.losses.clone();
        let launches = Launches::join(trace, &mut losses);
        let contexts = Contexts::build(trace, &launches.call_of_op);
        let (mut index, absent) = StageIndex::build(trace, launches, contexts, &options.stages);
        let activity = Activity::of(trace);
        index.leave_out_early(trace, &activity);
        let host = HostWork::of(trace, &index);
        let measure = |stage| StepPeriods::measure(trace, &index, &activity, stage);
        let periods: Vec<StepPeriods> = (0..index.len()).map(measure).collect();
        for (stage, periods) in periods.iter().enumerate() {
            if let Some(cold) = find_cold(trace, &index, &host, stage, periods) {
                index.add_warm(trace, stage, cold);
            }
        }
        Self {
            trace,
            options,
            program: options.account.as_ref(),
            counters,
            counter_devices,
            from,
            index,
            activity,
            host,
            periods,
            absent,
            losses,
        }
    }

    fn meter<'m>(&'m self, copies: &'m CopyMeter<'m>, members: &'m [Vec<u32>]) -> StageMeter<'m> {
        let Self { trace, index, activity, host, periods, .. } = self;
        StageMeter { trace, index, activity, host, copies, members, periods }
    }

    /// Builds the table of kernels.
    fn kernels(&self, naming: &mut Naming) -> Vec<Kernel> {
        match self.from {
            KernelOrigin::Timeline => kernel_table(self.trace, 0..self.trace.ops.len(), naming),
            KernelOrigin::Summary => from_totals(self.trace, naming),
            KernelOrigin::Counters => counters::alone::kernels(&self.counters),
        }
    }

    /// Returns the devices of the trace; without any, those of the counters, which also describe one that the trace only names.
    fn devices(&self) -> Vec<&Device> {
        let used = self.trace.used_devices();
        if used.is_empty() {
            return self.counter_devices.iter().collect();
        }
        let described = |device: &Device| {
            let (number, name) = (device.number, device.name.clone());
            let is_bare = *device == Device { number, name: name.clone(), ..Device::default() };
            let same = |known: &&Device| is_bare && known.number == number && known.name == name;
            self.counter_devices.iter().find(same)
        };
        used.into_iter().map(|device| described(device).unwrap_or(device)).collect()
    }

    /// Returns the model that the user named, else that of the program's account.
    fn model(&self) -> Result<Architecture, NotKnown> {
        let own = self.program.and_then(|program| program.model.as_ref());
        let own = own.filter(|model| model.config.is_some() || !model.modules.is_empty());
        match (&self.options.model, own) {
            (Some(model), _) => Ok(model.clone()),
            (None, Some(own)) => {
                let none = serde_json::json!({});
                Architecture::from_program(own.config.as_ref().unwrap_or(&none), &own.modules).map_err(
                    |why| format!("the model configuration of the program is not supported: {why}").into(),
                )
            }
            (None, None) => Err(match &self.options.no_model {
                Some(why) => why.as_str().into(),
                None => "the model is unknown; name it with --model NAME|config.json".into(),
            }),
        }
        .map(|model| match self.options.dtype {
            Some(dtype) => model.with_dtype(dtype),
            None => model,
        })
    }
}

/// Measures all that the times of a capture tell, with the evidence for findings by stage.
fn timed(case: &Case<'_>, engine: Option<&Engine<'_>>) -> (Analysis, Vec<StageEvidence>) {
    let Case { trace, options, program, index, .. } = case;
    let limits = options.limits;
    let copies = CopyMeter::new(trace, limits);
    let members = index.members();
    let meter = case.meter(&copies, &members);
    // The two sides take about the same time.
    let (
        (kernels, measured),
        (mut evidence, (operators, no_operators), (layers, no_layer), ranges, recorded),
    ) = in_parallel(
        || {
            let mut naming = Naming::of_trace(trace);
            (case.kernels(&mut naming), meter.stages(&mut naming))
        },
        || {
            let (ranges, recorded) = (range_table(trace, index), communication::recorded(trace, index));
            let evidence = findings::evidence(trace, index, &members);
            (evidence, operators(case), layers::table(trace, index), ranges, recorded)
        },
    );
    let (mut stages, gaps): (Vec<Stage>, Vec<LaunchGaps>) = measured.into_iter().unzip();
    host::attach(&mut stages, &meter);
    for (at, (evidence, gaps)) in evidence.iter_mut().zip(&gaps).enumerate() {
        evidence.longest_launch_gap = launch_gap(trace, gaps.longest);
        evidence.other_work = other_work(trace, index, gaps);
        if let Some(stage) = stages.get_mut(at) {
            let tail = stage.warm().steady.as_ref().and_then(|steady| steady.tail);
            stage.spikes = findings::spikes(&meter, at, tail);
        }
    }
    add_communication(&mut stages, &evidence, &recorded);
    let no_own_stages = stages.iter().all(Stage::is_unnamed);
    if let Some(program) = program.filter(|_| stages.is_empty()) {
        stages = account::stages(program);
    }
    let of_timeline = stages.iter().all(|stage| stage.from == StageOrigin::Timeline);
    let graphs = graph_table(trace, 0..trace.ops.len());
    let copies = copies.table(0..trace.ops.len());
    let absent = case.absent.iter().map(|stage| Reason::new(About::Stage(stage.name.clone()), &*stage.why));
    let reasons = kernels_reason(case, &kernels, &graphs).into_iter().chain(absent);
    let no_stages = (no_own_stages && of_timeline).then(|| Reason::new(About::Stages, no_stages(case)));
    let more = [no_stages, phases_reason(index), forward_reason(index), no_operators, no_layer];
    let mut analysis = Analysis {
        schema: SCHEMA.into(),
        sources: sources(trace),
        devices: case.devices().into_iter().map(device_info).collect(),
        totals: totals(case, &kernels, &copies),
        coverage: coverage(trace, &stages),
        stages,
        kernels,
        operators,
        layers,
        ranges,
        communication: communication::table(trace, &recorded, limits),
        overhead: options.overhead.clone(),
        engine: engine_info(case),
        startup: program.map(account::startup).unwrap_or_default(),
        requests: program.and_then(|account| account.requests.clone()),
        copies,
        graphs,
        stage1: program.and_then(|account| account.stage1.clone()),
        reasons: reasons.chain(more.into_iter().flatten()).collect(),
        ..Analysis::default()
    };
    add_serving(&mut analysis, case);
    analysis.ranks = ranks::of_capture(trace, &analysis, None).into_iter().collect();
    add_baseline(&mut analysis, case);
    add_own_cost(&mut analysis, index);
    add_stated(&mut analysis, &options.unprofiled);
    add_limits(&mut analysis);
    add_corrected(&mut analysis, case, engine);
    (analysis, evidence)
}

/// Adds the work of the model in the times that were measured, clocks and energy. Returns the GPU and the model, where they are known.
fn add_work(analysis: &mut Analysis, case: &Case<'_>) -> (Option<GpuFacts>, Option<Architecture>) {
    let Case { trace, options, program, index, .. } = case;
    let gpu = GpuFacts::of_run(case.devices().first().copied(), *program, options.limits);
    let (tensor, expert) = (options.tensor_parallel, options.expert_parallel);
    let replicas = expert.unwrap_or(1) / tensor.unwrap_or(1);
    let model = case.model().map(|model| model.with_replicas(replicas));
    // What the user states wins.
    let tokens = options.tokens.or(program.and_then(|program| program.tokens).unwrap_or_default());
    let dtype_of_program = || program.and_then(|a| a.model.as_ref()?.dtype.as_deref()?.parse::<Dtype>().ok());
    add_rates(analysis, &tokens);
    let facts = WorkFacts {
        model: &model,
        gpu: gpu.as_ref().map_err(|why| *why),
        tokens: &tokens,
        dtype: options.dtype.or_else(dtype_of_program),
        share: &ranks::model_share(trace, *program, tensor.or(expert.map(|_| 1))),
        index,
    };
    facts.add_utilisation(analysis);
    let (gpu, model) = (gpu.ok(), model.ok());
    let baseline = vitals::Baseline { vitals: &options.baseline_vitals, account: *program };
    vitals::attach(analysis, trace, index, gpu.as_ref(), &baseline);
    let served = analysis.stages.iter().filter(|stage| stage.requests.is_some());
    let joules =
        served.map(|stage| Some(stage.vitals.as_ref()?.energy.as_ref()?.joules)).sum::<Option<f64>>();
    let receipts = analysis.serving.as_mut().and_then(|serving| serving.receipts.as_mut());
    if let Some((receipts, joules)) = receipts.zip(joules) {
        serving::add_energy(receipts, joules);
    }
    analysis.workload = account::workload(*program, options.model_name.as_deref(), model.as_ref(), &tokens);
    (gpu, model)
}

/// Marks the stages of a trace that lacks the GPU work of a tenth or more of the launches and copies, over a tenth of its time or more.
fn mark_missing_work(analysis: &mut Analysis, case: &Case<'_>) {
    let (trace, missing) = (case.trace, case.losses.count(LossKind::LaunchNoKernel));
    let launches = [CallClass::Launch, CallClass::GraphLaunch];
    let calls = || trace.calls.class.iter().zip(&trace.calls.start).enumerate();
    let all =
        calls().filter(|(_, (class, _))| launches.contains(class) || **class == CallClass::Copy).count();
    let many = missing > 0 && missing.saturating_mul(10) >= all as u64;
    // What comes before the first of them is known.
    let has_work = calls_with_work(trace, &case.index.launches().call_of_op);
    let without = calls().filter(|(call, (class, _))| launches.contains(class) && !has_work[*call]);
    let first = without.map(|(_, (_, start))| *start).min();
    let lasts = first.zip(trace.span()).is_some_and(|(first, (from, to))| 10 * (to - first) >= to - from);
    for stage in &mut analysis.stages {
        stage.work_missing = many && lasts;
    }
}

/// Joins the counters with the timeline, puts them beside the kernels, and adds the distance to the roof. Returns the measured launches
/// too where there is no timeline.
fn add_counters(
    analysis: &mut Analysis,
    case: &Case<'_>,
    gpu: Option<&GpuFacts>,
) -> (Joined, Option<MeasuredLaunches>) {
    let Case { trace, index, counters, .. } = case;
    let stages = &case.options.stages;
    let (mut joined, mut timeline, mut alone) = (Joined::default(), Timeline::default(), None);
    if counters.is_empty() && trace.sampled.is_empty() {
        analysis.reasons.push(Reason::new(About::Counters, "no counters were given"));
    } else {
        timeline = Timeline::of_stages(trace, index);
        joined = counters::join(counters, &timeline, stages, gpu);
        counters::add_sampled(&mut joined, trace, index, analysis, gpu);
        joined.sort(stages);
        analysis.counters = joined.rows();
        analysis.ncu_rules = counters::rules(counters);
    }
    let shaped = ShapedKernels::find(trace, index, case.options.shapes.as_deref());
    shaped.attach(&mut analysis.kernels, trace, gpu);
    let roofs = if case.from == KernelOrigin::Counters {
        counters::alone::attach(&mut analysis.kernels, &joined);
        let kernels = &analysis.kernels;
        alone = MeasuredLaunches::from_counters(counters, &joined, kernels, &case.counter_devices);
        gpu.map(|gpu| counters::roofs_alone(&joined, kernels, gpu))
    } else {
        counters::attach(&mut analysis.kernels, &joined, None);
        let at_clock = |gpu: &GpuFacts| counters::roofs(&joined, &timeline, gpu);
        vitals::add_roofs(analysis, trace, index, gpu, &shaped, at_clock);
        gpu.map(at_clock)
    };
    for stage in &mut analysis.stages {
        counters::attach(&mut stage.kernels, &joined, Some(&stage.name));
        if let Some(warm) = &mut stage.warm {
            counters::attach(&mut warm.kernels, &joined, Some(&stage.name));
        }
    }
    let mut roofs = roofs.unwrap_or_default();
    if let Some(gpu) = gpu {
        roof::add_modelled(&mut roofs, trace, index, gpu, &shaped);
    }
    roof::attach(analysis, &roofs);
    vitals::add_activity(analysis, trace, index);
    (joined, alone)
}

/// Adds the communication of each stage, with the time that its kernels wait for other devices.
fn add_communication(stages: &mut [Stage], evidence: &[StageEvidence], recorded: &[Communication<'_>]) {
    let waiting = communication::waiting(recorded, stages.len());
    let late = communication::late(recorded, stages.len());
    for (at, (stage, evidence)) in stages.iter_mut().zip(evidence).enumerate() {
        let (late_calls, late_ns) = late[at];
        stage.communication = evidence.communication.map(|kernels| StageCommunication {
            kernels: kernels.count,
            total_ns: kernels.ns,
            exposed_ns: kernels.exposed_ns,
            waiting_ns: waiting[at].map(|ns| ns.min(kernels.exposed_ns)),
            late_ns: late_ns.min(kernels.exposed_ns),
            late_calls,
        });
        stage.warm.iter_mut().for_each(|warm| warm.communication = stage.communication);
    }
}
/// Adds the overhead on stages whose time the program does not write, by the ranges and calls of its unprofiled run.
fn add_baseline(analysis: &mut Analysis, Case { trace, options, index, .. }: &Case<'_>) {
    let Some((tool, baseline)) = analysis.recorder().zip(options.baseline.as_ref()) else { return };
    let found = unprofiled::overheads((trace, index, &analysis.stages), baseline, &options.stages, tool);
    let known =
        |row: &Overhead| analysis.overhead.iter().any(|own| own.tool == tool && own.stage == row.stage);
    let new: Vec<Overhead> = found.into_iter().filter(|row| !known(row)).collect();
    analysis.overhead.extend(new);
}

/// Adds the overhead on stages of which a part of the steps was recorded, by pairs of steps of the process. Where a run without the
/// profiler was measured, what it costs steps that are not recorded counts, too.
fn add_own_cost(analysis: &mut Analysis, index: &StageIndex) {
    let Some(tool) = analysis.recorder() else { return };
    for (stage_at, stage) in analysis.stages.iter().enumerate() {
        let at = analysis.overhead.iter().position(|row| row.tool == tool && row.stage == stage.name);
        let run = at.and_then(|at| analysis.overhead.get(at)).cloned();
        let cost = index.all_of(stage_at).and_then(|all| all.cost).zip(stage.coverage.as_ref());
        let with_pairs = run.as_ref().is_some_and(|run| run.pairs.is_some());
        let Some(((cost, pairs), coverage)) = cost.filter(|_| !with_pairs) else {
            continue;
        };
        let all_steps = 1.0 + coverage.share() * (cost.ratio - 1.0);
        let rest = run.as_ref().map_or(1.0, |run| run.ratio / all_steps);
        let ratio = cost.ratio * rest;
        let width = |(low, high): (f64, f64)| (high / low).ln() / 2.0;
        let of_run = run.as_ref().map_or(Some(0.0), |run| run.interval.map(width));
        let factor = of_run.map(|of_run| of_run.hypot(width((cost.low, cost.high))).exp());
        let row = Overhead {
            tool,
            stage: stage.name.clone(),
            ratio,
            interval: factor.map(|factor| (ratio / factor, ratio * factor)),
            pairs: Some(pairs),
            of_runs: run.map(|run| run.ratio),
            stated: false,
        };
        match at.and_then(|at| analysis.overhead.get_mut(at)) {
            Some(run) => *run = row,
            None => analysis.overhead.push(row),
        }
    }
}

/// Adds the overhead on stages whose time without the profiler is stated.
fn add_stated(analysis: &mut Analysis, unprofiled: &[(String, Ns)]) {
    for (name, ns) in unprofiled.iter().filter(|(_, ns)| *ns > 0) {
        let stage = analysis.stages.iter().find(|stage| stage.name == *name);
        let time = stage.and_then(|stage| Some(stage.steady.as_ref()?.time_ns));
        if let Some((tool, time)) = analysis.recorder().zip(time) {
            analysis.overhead.retain(|row| row.tool != tool || row.stage != *name);
            let (stage, ratio) = (name.clone(), time as f64 / *ns as f64);
            analysis.overhead.push(Overhead {
                tool,
                stage,
                ratio,
                interval: None,
                pairs: None,
                of_runs: None,
                stated: true,
            });
        }
    }
}

/// Adds the limit of each stage, and its time without the profiler where an unprofiled run was measured beside the profiled one.
fn add_limits(analysis: &mut Analysis) {
    let overhead: Vec<Overhead> = analysis.timeline_overhead().cloned().collect();
    for stage in &mut analysis.stages {
        stage.limit = Some(verdict(stage).label);
        let row = overhead.iter().find(|row| row.stage == stage.name && row.ratio > 0.0);
        let busy = stage.warm().busy_share().unwrap_or(0.0).min(1.0);
        if let (Some(steady), Some(row)) = (&mut stage.steady, row) {
            // A profiler that slows the CPU down does not slow the work of the GPU, which a step takes at least.
            let without = (steady.time_ns as f64 / row.ratio).max(busy * steady.time_ns as f64);
            steady.unprofiled_ns = Some(without.round() as Ns);
        }
        stage.share_with_warm();
    }
}

/// Adds the stages without the profiler that recorded them, or the reason why that is not known.
fn add_corrected(analysis: &mut Analysis, case: &Case<'_>, engine: Option<&Engine<'_>>) {
    let Case { trace, options, index, .. } = case;
    let Some(engine) = engine.filter(|_| !index.is_empty()) else { return };
    if !trace.profiler.is_empty() {
        let profiler = IntervalSet::of(trace.profiler.clone());
        for (at, stage) in analysis.stages.iter_mut().enumerate().take(index.len()) {
            let instances = index.spans(at).instances.iter();
            let inside = instances.map(|span| profiler.overlap(span.start, span.end)).sum();
            stage.profiler_overhead_ns = Some(inside);
        }
    }
    let overhead: Vec<Overhead> = analysis.timeline_overhead().cloned().collect();
    if overhead.is_empty() {
        let why = Uncorrected::NoBaseline.to_string();
        return analysis.reasons.push(Reason::new(About::Other("stages.corrected".into()), why));
    }
    let measure = |trace: &Trace| {
        let case = Case::new(trace, options);
        let (copies, members) = (CopyMeter::new(trace, options.limits), case.index.members());
        let measured = case.meter(&copies, &members).stages(&mut Naming::of_trace(trace));
        measured.into_iter().map(|(stage, _)| stage).collect()
    };
    for (at, stage) in analysis.stages.iter_mut().enumerate() {
        let cost = overhead.iter().find(|row| row.stage == stage.name);
        match correct(engine.graph(), index, (at, stage), cost, measure) {
            Ok(corrected) => stage.corrected = Some(corrected),
            Err(why) => {
                let about = About::Other(format!("stages.{}.corrected", stage.name));
                analysis.reasons.push(Reason::new(about, why.to_string()));
            }
        }
    }
}

/// Describes a gap of a stage by the operation that ended it.
fn launch_gap(trace: &Trace, (ns, before): (Ns, Option<usize>)) -> Option<LaunchGap> {
    let op = before?;
    let name = trace.names.get(*trace.ops.name.get(op)?).to_owned();
    Some(LaunchGap { ns, kind: *trace.ops.kind.get(op)?, name })
}

/// Describes the gaps of a stage in which its thread did other work, and names the shortest range or operator in the middle of the
/// longest, where it is about that gap.
fn other_work(trace: &Trace, index: &StageIndex, gaps: &LaunchGaps) -> Option<OtherWork> {
    let (ns, before) = gaps.host_longest;
    let longest = launch_gap(trace, gaps.host_longest)?;
    let call = index.call_of_op(before?) as usize;
    let (Some(start), Some(thread)) = (trace.calls.start.get(call), trace.calls.thread.get(call)) else {
        return Some(OtherWork { longest, managed_ns: gaps.managed_ns, within: None });
    };
    let middle = start - ns / 2;
    let (ranges, operators) = (&trace.ranges.rows, &trace.cpu_ops);
    let ranges = ranges.iter().map(|range| (range.start, range.end, range.thread, range.name));
    let operators = (0..operators.len())
        .map(|at| (operators.start[at], operators.end[at], operators.thread[at], operators.name[at]));
    let around = ranges.chain(operators).filter(|(start, end, on, _)| {
        let length = end - start;
        on == thread && (*start..*end).contains(&middle) && (ns / 2..=ns.saturating_mul(4)).contains(&length)
    });
    let within = around.min_by_key(|(start, end, ..)| end - start);
    let within = within.map(|(.., name)| trace.names.get(name).to_owned());
    Some(OtherWork { longest, managed_ns: gaps.managed_ns, within })
}

/// Adds the steps of an engine together. Times of single requests are used here and are not part of the result.
fn add_serving(analysis: &mut Analysis, case: &Case<'_>) {
    let parallelism = analysis.engine.as_ref().and_then(|engine| engine.parallelism.as_ref());
    let replicas = parallelism.and_then(|ways| ways.get("data").copied());
    let sent = case.options.recorded_requests.as_ref().or(analysis.requests.as_ref());
    let (serving, reasons) = serving::measure(case.trace, &case.index, &case.activity, replicas, sent);
    analysis.serving = serving;
    analysis.reasons.extend(reasons);
    if let Some(requests) = &mut analysis.requests {
        requests.each.clear();
    }
}

/// Runs two functions, the second on a thread of its own.
fn in_parallel<A, B: Send>(first: impl FnOnce() -> A, second: impl FnOnce() -> B + Send) -> (A, B) {
    std::thread::scope(|scope| {
        let second = scope.spawn(second);
        let first = first();
        let second = second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (first, second)
    })
}

/// Explains why there are no kernels, or what the times of measured launches are.
fn kernels_reason(case: &Case<'_>, kernels: &[Kernel], graphs: &[GraphRow]) -> Option<Reason> {
    let in_kernels: i64 = kernels.iter().map(|kernel| kernel.total_ns).sum();
    let (launches, in_graphs) = GraphRow::sum(graphs);
    let why: Cow<'_, str> = match (case.from, kernels.is_empty()) {
        (KernelOrigin::Counters, false) => {
            "the times are those of single launches as ncu measured them, not of a run of the program".into()
        }
        (KernelOrigin::Counters, true) => {
            "ncu did not collect the duration of the launches (gpu__time_duration.sum); what it collected is in the counters".into()
        }
        (_, is_empty) if launches > 0 && (is_empty || in_graphs > in_kernels) => format!(
            "most of the GPU work was recorded as {} launches of whole CUDA graphs, without their kernels; nsys shows \
             them with --cuda-graph-trace=node",
            count(launches)
        )
        .into(),
        (_, true) => format!("the capture holds no kernels: {}", no_kernels(case.trace)).into(),
        (_, false) => return None,
    };
    Some(Reason::new(About::Kernels, why))
}

/// Explains why no kernels were recorded: the tool was not told to, or it traced the calls and got no records of the GPU.
fn no_kernels(trace: &Trace) -> String {
    if !trace.ops.is_empty() {
        return format!("only {} copies and memory sets were recorded", count(trace.ops.len() as u64));
    }
    if let Some((device, _)) = trace.losses.messages(LossKind::OtherDevice).next() {
        return format!("its device is an {device}, whose events are not read; use the tools of its maker");
    }
    if let Some(text) = cuda_failed(&trace.losses) {
        let text = cut(text, MOST_QUOTED);
        return format!(
            "CUDA was traced, but no GPU work was recorded; the tool says \u{201c}{text}\u{201d}"
        );
    }
    let starts = [CallClass::Launch, CallClass::GraphLaunch, CallClass::Copy, CallClass::Set];
    let traced = trace.calls.class.iter().filter(|class| starts.contains(class)).count() as u64;
    if traced == 0 {
        let advice = trace.sources.first().map_or("", |source| source.format.facts().gpu_work_advice);
        return format!("no GPU work was recorded{advice}");
    }
    format!(
        "{} calls that start GPU work were traced, but there are no records of the GPU. Usual reasons: the user may not profile the GPU, \
         the tool is older than the driver, a virtual GPU or WSL2, or recording stopped before the records were written",
        count(traced)
    )
}

/// Most characters of a message that are quoted.
const MOST_QUOTED: usize = 160;

/// Returns the message of the recording tool that says why it has no records of the GPU, or that it has none although it traced CUDA.
fn cuda_failed(losses: &Losses) -> Option<&str> {
    const WORDS: [&str; 5] =
        ["CUDA driver version", "CUPTI_ERROR", "CUDA injection", "No CUDA events", "CUDA profiling might"];
    let kinds = [LossKind::ToolNote, LossKind::ToolError, LossKind::ToolWarning];
    let texts = || kinds.iter().flat_map(|kind| losses.messages(*kind)).map(|(text, _)| text);
    WORDS.iter().find_map(|word| texts().find(|text| text.contains(word)))
}
/// Explains why there are no stages.
fn no_stages(case: &Case<'_>) -> String {
    let why = match (case.from, case.trace.ranges.rows.is_empty()) {
        (KernelOrigin::Summary, _) => "a summary table has no ranges",
        (KernelOrigin::Counters, true) => {
            "ncu measures single launches and records no timeline; add an nsys, PyTorch or native capture of the same program"
        }
        (_, true) => {
            let first = case.trace.sources.first();
            let format = first.map_or(SourceFormat::NsysSqlite, |source| source.format);
            return format!("the capture has no ranges; {}", format.facts().stages_advice);
        }
        (_, false) => "no range matches a stage; name one with --stage NAME=PATTERN",
    };
    why.to_owned()
}

/// Describes the serving engine: by the names of its steps, else by the account of the program.
fn engine_info(case: &Case<'_>) -> Option<EngineInfo> {
    let Case { trace, index, program, .. } = case;
    let stated = program.and_then(|account| account.engine.as_ref());
    let stated_name = stated.and_then(|engine| engine.name.as_deref());
    let timeline = trace.sources.iter().find(|source| source.format.is_timeline());
    let range_word = timeline.map_or("range", |source| source.format.facts().range_word);
    let (name, told_by) = match index.engine() {
        Some(engine) if index.phases_told_by().is_some() => (engine.name, "frames"),
        Some(engine) => (engine.name, range_word),
        None => (stated_name?, "account"),
    };
    let stated = stated.filter(|_| stated_name == Some(name));
    Some(EngineInfo {
        name: name.to_owned(),
        version: stated.and_then(|engine| engine.version.clone()),
        parallelism: stated.and_then(|engine| engine.parallelism.clone()),
        told_by: told_by.to_owned(),
        phases_told_by: index.phases_told_by().map(str::to_owned),
    })
}

/// Says that the names of steps leave a doubt about their phase.
fn phases_reason(index: &StageIndex) -> Option<Reason> {
    let why = (0..index.len()).flat_map(|stage| index.engine_steps(stage)).find_map(EngineStep::doubt)?;
    Some(Reason::new(About::Other("engine.phases_told_by".into()), why))
}

/// Says that calls of backward operators are missing from ranges on their own threads.
fn forward_reason(index: &StageIndex) -> Option<Reason> {
    index.contexts().forward_only.then(|| {
        let why = "too many ranges overlap: calls of some backward operators count in the ranges around their forward operators, \
                   not in those on their own threads";
        Reason::new(About::Other("ranges".into()), why)
    })
}

/// Sums up the recorded part of a trace with gaps.
fn coverage(trace: &Trace, stages: &[Stage]) -> Option<Coverage> {
    if trace.recorded.is_empty() {
        return None;
    }
    let sum = |count: fn(&Stage, &Steps) -> u64| {
        let counts = stages.iter().filter_map(|stage| Some(count(stage, stage.steps.as_ref()?)));
        counts.reduce(|sum, count| sum + count)
    };
    let time = |of: fn(&RecordedWindows) -> Ns| trace.recorded.iter().map(of).fold(0, Ns::saturating_add);
    Some(Coverage {
        recorded_steps: sum(|_, steps| steps.count),
        all_steps: sum(|stage, steps| stage.coverage.as_ref().map_or(steps.count, |part| part.all)),
        recorded_ns: time(RecordedWindows::recorded_ns),
        all_ns: time(RecordedWindows::all_ns),
    })
}

fn sources(trace: &Trace) -> Vec<SourceInfo> {
    let info = |s: &roofgap_trace::Source| SourceInfo {
        path: s.path.clone(),
        format: s.format.into(),
        tool_version: s.tool_version.clone(),
        schema_version: s.schema_version.clone(),
    };
    trace.sources.iter().map(info).collect()
}

fn device_info(device: &Device) -> DeviceInfo {
    DeviceInfo {
        id: device.number,
        name: device.name.clone().filter(|name| !name.trim().is_empty()),
        compute_capability: device.compute_capability.map(|(major, minor)| format!("{major}.{minor}")),
        sms: device.sms,
        memory_bytes: device.memory_bytes,
        bandwidth_bytes_per_s: device.bandwidth_bytes_per_s,
    }
}

fn loss_rows(losses: &Losses) -> Vec<LossInfo> {
    let mut rows: Vec<_> = losses.iter().collect();
    rows.sort_by_key(|loss| std::cmp::Reverse(loss.kind.severity()));
    rows.into_iter()
        .map(|loss| LossInfo::new(loss.kind, loss.count, loss_messages(losses, loss.kind)))
        .collect()
}

/// Sorts the texts of the recording tool: those on the GPU first, then the most frequent.
fn loss_messages(losses: &Losses, kind: LossKind) -> Vec<LossMessage> {
    let on_gpu = |text: &str| ["CUDA", "CUPTI", "GPU"].iter().any(|word| text.contains(word));
    let message = |(text, count): (&str, u64)| LossMessage { text: text.to_owned(), count };
    let mut messages: Vec<LossMessage> = losses.messages(kind).map(message).collect();
    messages.sort_by_key(|m| (!on_gpu(&m.text), std::cmp::Reverse(m.count)));
    messages
}

/// Returns the operators of a trace.
pub fn trace_operators(trace: &Trace) -> Vec<Operator> {
    operator_table(trace, &Launches::join(trace, &mut Losses::default()).call_of_op)
}

/// Takes the operators of the options, of the program's account or of the trace.
fn operators(case: &Case<'_>) -> (Vec<Operator>, Option<Reason>) {
    let trace = case.trace;
    if let Some(operators) = case.options.operators.as_ref().filter(|o| !o.is_empty()) {
        return (operators.clone(), None);
    }
    let timed = case.program.filter(|program| trace.cpu_ops.is_empty() && !program.operators.is_empty());
    let operators = match timed {
        Some(program) => account::operators(program),
        None => operator_table(trace, &case.index.launches().call_of_op),
    };
    let why = if timed.is_some() {
        Some("as the program itself timed them")
    } else if operators.is_empty() {
        Some("the capture holds no operators of a framework")
    } else if trace.cpu_ops.is_empty() {
        Some("the operators that the framework wrote as ranges")
    } else {
        None
    };
    (operators, why.map(|why| Reason::new(About::Operators, why)))
}

fn totals(case: &Case<'_>, kernels: &[Kernel], copies: &[CopyRow]) -> Totals {
    let ops = &case.trace.ops;
    let sets = ops.kind.iter().enumerate().filter(|(_, kind)| **kind == OpKind::Set);
    // Without any operation it is not known whether the GPU was recorded at all.
    let known = !ops.is_empty();
    let stages = || (0..case.index.len()).flat_map(|at| &case.index.spans_with_cold(at).instances);
    let first = stages().map(|span| span.start).min();
    let last = stages().map(|span| span.end).max();
    Totals {
        kernel_count: kernels.iter().map(|k| k.calls).sum(),
        kernel_ns: kernels.iter().map(|k| k.total_ns).sum(),
        busy_ns: known.then(|| case.activity.busy_ns()),
        memcpy_ns: known.then(|| copies.iter().map(|row| row.total_ns).sum()),
        memset_ns: known.then(|| sets.map(|(op, _)| ops.duration(op)).sum()),
        unattributed_count: case.index.launches().call_of_op.iter().filter(|c| **c == NO_CALL).count() as u64,
        stages_wall_ns: first.zip(last).map(|(first, last)| last - first),
        from: case.from,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_that_hold_most_of_the_work_are_told_first() {
        let kernel = |total_ns| Kernel { total_ns, ..Kernel::default() };
        let graph = GraphRow { launches: 1_200, total_ns: 999, ..GraphRow::default() };
        let (trace, options) = (Trace::default(), Options::default());
        let case = Case::new(&trace, &options);
        let graphs = [graph];
        let why = kernels_reason(&case, &[kernel(1)], &graphs).unwrap().why;
        assert!(why.starts_with("most of the GPU work was recorded as 1,200 launches"), "{why}");
        assert!(why.contains("--cuda-graph-trace=node"), "{why}");
        assert_eq!(kernels_reason(&case, &[kernel(2_000)], &graphs), None);
        assert_eq!(kernels_reason(&case, &[kernel(1)], &[]), None);
    }
}
