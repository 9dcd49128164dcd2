//! The analysis of a trace.

use crate::counters::alone::MeasuredLaunches;
use crate::counters::{self, Timeline};
use crate::engines::EngineStep;
use crate::gpu::{Dtype, GpuFacts, UserLimits};
use crate::knobs::{self, WorkloadFacts};
use crate::model::{Architecture, ConfigError, Tokens, add_utilisation};
use crate::names::Naming;
use crate::numbers::count;
use crate::rates::add_rates;
use crate::result::*;
use crate::roof::{self, RoofSums};
use crate::stages::{StageIndex, StageSet};
use crate::timeline::{
    Activity, Contexts, CopyMeter, LaunchGaps, Launches, NO_CALL, StageMeter, graphs, kernels, operators,
    range_table,
};
use crate::{account, communication, findings, layers, ranks, serving};
use roofgap_trace::account::Account;
use roofgap_trace::ncu::CounterSet;
use roofgap_trace::{CallClass, Device, LossKind, Losses, Ns, OpKind, RecordedWindows, SourceFormat, Trace};

/// Options of an analysis.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Rules of the stages.
    pub stages: StageSet,
    /// Counters to join with the timeline.
    pub counters: Vec<CounterSet>,
    /// Model; without it, the model of the program's own account.
    pub model: Option<Architecture>,
    /// Name of the model in the reports, where the program's own account has none; without it, the name in the model.
    pub model_name: Option<String>,
    /// Limits of the device set by the user.
    pub limits: UserLimits,
    /// Tokens set by the user; missing numbers come from the program's own account.
    pub tokens: Tokens,
    /// The program's own account of its run.
    pub account: Option<Account>,
    /// Operators of a separate run, instead of those of the trace.
    pub operators: Option<Vec<Operator>>,
    /// Profiler overhead.
    pub overhead: Vec<Overhead>,
    /// Requests that were sent while the timeline was recorded; without them, those of the account.
    pub recorded_requests: Option<RequestStats>,
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
    let mut losses = trace.losses.clone();
    let launches = Launches::join(trace, &mut losses);
    let contexts = Contexts::build(trace, &launches.call_of_op);
    let (index, absent) = StageIndex::build(trace, launches, contexts, &options.stages);
    let activity = Activity::of(trace);
    let copies = CopyMeter::new(trace, options.limits);
    let meter = StageMeter { trace, index: &index, activity: &activity, copies: &copies };
    let program = options.account.as_ref();
    let mut naming = Naming::of_trace(trace);
    let mut reasons = Vec::new();

    let from = kernel_origin(trace, options);
    let counter_sets = counters::merge(&options.counters);
    // The two sides take about the same time.
    let (
        (kernels, measured_stages),
        ((operators, operator_reason), ranges, mut evidence, communication, by_layer),
    ) = both(
        || {
            let kernels = match from {
                KernelOrigin::Timeline => kernels::table(trace, 0..trace.ops.len(), &mut naming),
                KernelOrigin::Summary => kernels::from_totals(trace, &mut naming),
                KernelOrigin::Counters => counters::alone::kernels(&counter_sets),
            };
            (kernels, meter.stages(&mut naming))
        },
        || {
            let evidence = findings::evidence(trace, &index);
            (
                operator_table(trace, &index, options),
                range_table(trace, &index),
                evidence,
                communication::table(trace, &index, options.limits),
                layers::table(trace, &index),
            )
        },
    );
    let (mut stages, gaps): (Vec<Stage>, Vec<LaunchGaps>) = measured_stages.into_iter().unzip();
    for (evidence, gaps) in evidence.iter_mut().zip(&gaps) {
        evidence.longest_launch_gap = longest_gap(trace, gaps);
    }
    let graphs = graphs::table(trace, 0..trace.ops.len());
    reasons.extend(kernels_reason(trace, from, &kernels, &graphs));
    reasons.extend(absent.into_iter().map(|stage| Reason::new(About::Stage(stage.name), stage.why)));
    let no_own_stages = stages.iter().all(|stage| stage.kind == StageKind::Whole);
    if let Some(program) = program.filter(|_| stages.is_empty()) {
        stages = account::stages(program);
    }
    if no_own_stages && stages.iter().all(|stage| stage.from == StageOrigin::Timeline) {
        reasons.push(Reason::new(About::Stages, no_stages(trace, from)));
    }
    reasons.extend(phases_reason(&index));
    reasons.extend(forward_reason(&index));
    reasons.extend(operator_reason);
    let (by_layer, layer_reason) = by_layer;
    reasons.extend(layer_reason);
    let own_devices = trace.used_devices();
    let counter_devices = counters::alone::devices(&counter_sets);
    let devices: Vec<&Device> =
        if own_devices.is_empty() { counter_devices.iter().collect() } else { own_devices };
    let coverage = coverage(trace, &stages);
    let mut analysis = Analysis {
        schema: SCHEMA.into(),
        sources: sources(trace),
        devices: devices.iter().map(|device| device_info(device)).collect(),
        totals: totals(trace, &index, &activity, &kernels, from),
        stages,
        kernels,
        operators,
        layers: by_layer,
        ranges,
        overhead: options.overhead.clone(),
        engine: engine(trace, &index, program),
        requests: program.and_then(|account| account.requests.clone()),
        copies: copies.table(0..trace.ops.len()),
        graphs,
        communication,
        ranks: ranks::table(trace),
        stage1: program.and_then(|account| account.stage1.clone()),
        coverage,
        reasons,
        ..Analysis::default()
    };

    add_serving(&mut analysis, trace, &index, &activity, options);

    let mut own_rank = std::mem::take(&mut analysis.ranks);
    own_rank.iter_mut().for_each(|rank| ranks::add_times(rank, &analysis));
    analysis.ranks = own_rank;

    let gpu = GpuFacts::of_run(devices.first().copied(), program, options.limits);
    let own_config = || program?.model.as_ref()?.config.as_ref();
    let model = match (&options.model, own_config()) {
        (Some(model), _) => Ok(model.clone()),
        (None, Some(config)) => Architecture::from_config(config).map_err(NoModel::Config),
        (None, None) => Err(NoModel::NotNamed),
    };
    let dtype = program.and_then(|a| a.model.as_ref()?.dtype.as_deref()?.parse::<Dtype>().ok());
    let tokens = account::tokens(&options.tokens, program);
    let share = ranks::model_share(trace, program);
    add_rates(&mut analysis, &tokens);
    add_utilisation(&mut analysis, model.as_ref(), gpu.as_ref(), &tokens, dtype, &share, &index);
    let model = model.ok();
    analysis.workload = account::workload(program, options.model_name.as_deref(), model.as_ref(), &tokens);

    let mut measured = Vec::new();
    let mut alone = None;
    let mut roofs = RoofSums::default();
    if options.counters.is_empty() {
        analysis.reasons.push(Reason::new(About::Counters, "no counters were given"));
    } else {
        let timeline = Timeline::of_stages(trace, &index);
        let joined = counters::join(&counter_sets, &timeline, &options.stages, gpu.as_ref().ok());
        analysis.counters = joined.rows();
        losses.merge(&joined.losses);
        analysis.ncu_rules = counters::rules(&counter_sets);
        if from == KernelOrigin::Counters {
            counters::alone::attach(&mut analysis.kernels, &joined);
            if let Ok(gpu) = &gpu {
                roofs = counters::roofs_alone(&joined, &analysis.kernels, gpu);
            }
            let kernels = &analysis.kernels;
            alone = MeasuredLaunches::of(&counter_sets, &joined, kernels, &counter_devices);
        } else {
            counters::attach(&mut analysis.kernels, &joined, None);
            if let Ok(gpu) = &gpu {
                roofs = counters::roofs(&joined, &timeline, gpu);
            }
        }
        for stage in &mut analysis.stages {
            counters::attach(&mut stage.kernels, &joined, Some(&stage.name));
        }
        measured = joined.measured;
    }
    if let Ok(gpu) = &gpu {
        roof::add_modelled(&mut roofs, trace, &index, gpu);
    }
    roof::attach(&mut analysis, &roofs);
    let inputs = findings::Inputs {
        analysis: &analysis,
        evidence: &evidence,
        model: model.as_ref(),
        counters: &measured,
    };
    let mut found = findings::find(inputs);
    if let Some(alone) = &alone {
        let inputs = findings::Inputs {
            evidence: std::slice::from_ref(&alone.evidence),
            counters: &alone.rows,
            ..inputs
        };
        found.extend(findings::find_alone(inputs, &alone.stage));
    }
    analysis.findings = found;
    if let Some(workload) = &options.workload {
        knobs::attach(&mut analysis, workload, model.as_ref());
    }
    analysis.losses = loss_rows(&losses);
    Analyzed { analysis, stages: index }
}

/// Describes the longest launch gap of a stage.
fn longest_gap(trace: &Trace, gaps: &LaunchGaps) -> Option<findings::LaunchGap> {
    let op = gaps.longest_before?;
    Some(findings::LaunchGap {
        ns: gaps.longest_ns,
        kind: *trace.ops.kind.get(op)?,
        name: trace.names.get(*trace.ops.name.get(op)?).to_owned(),
    })
}

/// Adds the steps of an engine together. Times of single requests are used here and are not part of the result.
fn add_serving(
    analysis: &mut Analysis,
    trace: &Trace,
    index: &StageIndex,
    activity: &Activity,
    options: &Options,
) {
    let parallelism = analysis.engine.as_ref().and_then(|engine| engine.parallelism.as_ref());
    let replicas = parallelism.and_then(|ways| ways.get("data").copied());
    let sent = options.recorded_requests.as_ref().or(analysis.requests.as_ref());
    let (serving, reasons) = serving::measure(trace, index, activity, replicas, sent);
    analysis.serving = serving;
    analysis.reasons.extend(reasons);
    if let Some(requests) = &mut analysis.requests {
        requests.each.clear();
    }
}

/// The model is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum NoModel {
    #[error("the model is unknown; name it with --model NAME|config.json")]
    NotNamed,
    #[error("the model configuration of the program is not supported: {0}")]
    Config(ConfigError),
}

/// Runs both, the second on a thread of its own.
fn both<A, B: Send>(first: impl FnOnce() -> A, second: impl FnOnce() -> B + Send) -> (A, B) {
    std::thread::scope(|scope| {
        let second = scope.spawn(second);
        let first = first();
        let second = second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (first, second)
    })
}

/// Explains why there are no kernels.
fn no_kernels(trace: &Trace, graphs: &[GraphRow]) -> String {
    let launches: u64 = graphs.iter().map(|graph| graph.launches).sum();
    if launches > 0 {
        return format!(
            "the GPU work was recorded as {} launches of whole CUDA graphs; nsys shows their kernels with --cuda-graph-trace=node",
            count(launches)
        );
    }
    match trace.ops.len() {
        0 => format!("the capture holds no kernels: {}", no_gpu_work(trace)),
        transfers => {
            format!("the capture holds no kernels, only copies and memory sets: {}", count(transfers as u64))
        }
    }
}

/// Explains why no GPU work was recorded: the tool was not told to, or it traced the calls and got no records of the GPU.
fn no_gpu_work(trace: &Trace) -> String {
    let calls = |class: CallClass| trace.calls.class.iter().filter(|own| **own == class).count() as u64;
    let launches = calls(CallClass::Launch) + calls(CallClass::GraphLaunch);
    let transfers = calls(CallClass::Copy) + calls(CallClass::Set);
    if launches + transfers == 0 {
        return format!("no GPU work was recorded{}", how_to_record(trace));
    }
    let traced =
        [(launches, "launch", "launches"), (transfers, "copy or memory set", "copies and memory sets")]
            .into_iter()
            .filter(|(number, ..)| *number > 0)
            .map(|(number, one, many)| format!("{} {}", count(number), if number == 1 { one } else { many }))
            .collect::<Vec<_>>()
            .join(" and ");
    format!(
        "the calls of {traced} were traced, but there are no records of the GPU. Usual reasons: the user may not profile the GPU, the \
         tool is older than the driver, a virtual GPU or WSL2, or recording stopped before the records were written"
    )
}

/// Says which setting of the recording tool records GPU work.
fn how_to_record(trace: &Trace) -> &'static str {
    trace.sources.first().map_or("", |source| source.format.facts().gpu_work_advice)
}

/// Tells where the kernels come from: the timeline; without kernels in it a summary table, or the launches that ncu measured.
fn kernel_origin(trace: &Trace, options: &Options) -> KernelOrigin {
    if !trace.ops.is_empty() {
        KernelOrigin::Timeline
    } else if !trace.kernel_totals.is_empty() {
        KernelOrigin::Summary
    } else if !options.counters.is_empty() {
        KernelOrigin::Counters
    } else {
        KernelOrigin::Timeline
    }
}

/// Explains why there are no kernels, or what the times of measured launches are.
fn kernels_reason(
    trace: &Trace,
    from: KernelOrigin,
    kernels: &[Kernel],
    graphs: &[GraphRow],
) -> Option<Reason> {
    let why = match (from, kernels.is_empty()) {
        (KernelOrigin::Counters, false) => {
            "the times are those of single launches as ncu measured them, not of a run of the program"
        }
        (KernelOrigin::Counters, true) => {
            "ncu did not collect the duration of the launches (gpu__time_duration.sum); what it collected is in the counters"
        }
        (_, true) => return Some(Reason::new(About::Kernels, no_kernels(trace, graphs))),
        (_, false) => return None,
    };
    Some(Reason::new(About::Kernels, why))
}

/// Explains why there are no stages.
fn no_stages(trace: &Trace, from: KernelOrigin) -> String {
    if from == KernelOrigin::Summary {
        "a summary table has no ranges".into()
    } else if from == KernelOrigin::Counters && trace.ranges.rows.is_empty() {
        "ncu measures single launches and records no timeline; add an nsys, PyTorch or native capture of the same program".into()
    } else if trace.ranges.rows.is_empty() {
        let format = trace.sources.first().map_or(SourceFormat::NsysSqlite, |source| source.format);
        format!("the capture has no ranges; {}", format.facts().stages_advice)
    } else {
        "no range matches a stage; name one with --stage NAME=PATTERN".into()
    }
}

/// Describes the serving engine: by the names of its steps, else by the account of the program.
fn engine(trace: &Trace, index: &StageIndex, program: Option<&Account>) -> Option<EngineInfo> {
    let own = program.and_then(|account| account.engine.as_ref());
    let own_name = own.and_then(|engine| engine.name.as_deref());
    let timeline = trace.sources.iter().find(|source| source.format.is_timeline());
    let range_word = timeline.map_or("range", |source| source.format.facts().range_word);
    let (name, told_by) = match index.engine() {
        Some(engine) if index.phases_told_by().is_some() => (engine.name, "frames"),
        Some(engine) => (engine.name, range_word),
        None => (own_name?, "account"),
    };
    let own = own.filter(|_| own_name == Some(name));
    Some(EngineInfo {
        name: name.to_owned(),
        version: own.and_then(|engine| engine.version.clone()),
        parallelism: own.and_then(|engine| engine.parallelism.clone()),
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
    let with_steps = |stage: &&Stage| stage.steps.is_some();
    let has_steps = stages.iter().any(|stage| with_steps(&stage));
    let sum = |count: fn(&Stage, &Steps) -> u64| {
        let counts = stages.iter().filter_map(|stage| Some(count(stage, stage.steps.as_ref()?)));
        has_steps.then(|| counts.sum())
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
    rows.sort_by_key(|l| std::cmp::Reverse(l.kind.severity()));
    let info = |l: roofgap_trace::Loss| LossInfo {
        id: l.kind.id().into(),
        severity: l.kind.severity().as_str().into(),
        count: l.count,
        meaning: l.kind.meaning().into(),
        messages: loss_messages(losses, l.kind),
    };
    rows.into_iter().map(info).collect()
}

/// Sorts the texts of the recording tool: those on the GPU first, then the most frequent.
fn loss_messages(losses: &Losses, kind: LossKind) -> Vec<LossMessage> {
    let on_gpu = |text: &str| ["CUDA", "CUPTI", "GPU"].iter().any(|word| text.contains(word));
    let message = |(text, count): (&str, u64)| LossMessage { text: text.to_owned(), count };
    let mut messages: Vec<LossMessage> = losses.messages(kind).map(message).collect();
    messages.sort_by_key(|m| (!on_gpu(&m.text), std::cmp::Reverse(m.count)));
    messages
}

/// Takes the operators of the options, of the trace or of the program's account; without any, of the ranges.
fn operator_table(trace: &Trace, index: &StageIndex, options: &Options) -> (Vec<Operator>, Option<Reason>) {
    let reason = |why: &str| Some(Reason::new(About::Operators, why));
    if let Some(operators) = options.operators.as_ref().filter(|o| !o.is_empty()) {
        return (operators.clone(), None);
    }
    if trace.cpu_ops.is_empty()
        && let Some(program) = options.account.as_ref().filter(|a| !a.operators.is_empty())
    {
        return (account::operators(program), reason("as the program itself timed them"));
    }
    let operators = operators::table(trace, &index.launches().call_of_op);
    let why = if operators.is_empty() {
        reason("the capture holds neither operators of a framework nor ranges")
    } else if trace.cpu_ops.is_empty() {
        reason("no operators of a framework in the capture; ranges of the program stand in")
    } else {
        None
    };
    (operators, why)
}

fn totals(
    trace: &Trace,
    index: &StageIndex,
    activity: &Activity,
    kernels: &[Kernel],
    from: KernelOrigin,
) -> Totals {
    let ops = &trace.ops;
    let time =
        |kind: OpKind| (0..ops.len()).filter(|&i| ops.kind[i] == kind).map(|i| ops.duration(i)).sum::<Ns>();
    // Without any operation it is not known whether the GPU was recorded at all.
    let known = !ops.is_empty();
    Totals {
        kernel_count: kernels.iter().map(|k| k.calls).sum(),
        kernel_ns: kernels.iter().map(|k| k.total_ns).sum(),
        busy_ns: known.then(|| activity.busy_ns()),
        memcpy_ns: known.then(|| time(OpKind::Copy)),
        memset_ns: known.then(|| time(OpKind::Set)),
        unattributed_count: index.launches().call_of_op.iter().filter(|c| **c == NO_CALL).count() as u64,
        from,
    }
}
