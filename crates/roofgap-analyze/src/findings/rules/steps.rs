//! Steps that take longer than others, compute again what is known, or run under a slow profiler.

use crate::findings::rule::{FindingBuilder, View, percent};
use crate::host::advice;
use crate::numbers::{count, time};
use crate::result::{
    Confidence, Finding, GraphRow, HostKind, Profiler, Spike, SpikeCause, Stage, StageKind, StageOrigin,
    SteadyUnit,
};
use crate::verdict::{StageLimit, verdict};
use roofgap_base::stats::{median, median_f64};

/// Fewer steps have no tail.
const LEAST_TAIL_STEPS: u64 = 8;

/// Id of the rule.
pub const STEP_TAIL: &str = "step-tail";

/// Steps that took more than twice what their tokens or kernels explain. The bound is what they took beyond that.
pub fn long_tail(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let steady = stage.steady.as_ref().filter(|steady| steady.count >= LEAST_TAIL_STEPS)?;
    let tail = steady.tail?;
    let unit = match steady.unit {
        SteadyUnit::Step => "step",
        SteadyUnit::Instance => "instance",
    };
    // The slow ones may be left out of the stage that other rules see.
    let whole = view.inputs.analysis.stages.iter().find(|whole| whole.name == stage.name).unwrap_or(stage);
    let cause = whole.spikes.iter().find(|spike| spike.time_ns == tail.slowest_ns);
    // One step that nothing explains may be the machine's.
    let is_pause = tail.units == 1 && cause.is_none_or(|spike| spike.cause == SpikeCause::Unknown);
    let confidence = if is_pause { Confidence::Guessed } else { view.rule.confidence };
    let others = |cause: SpikeCause| whole.spikes.iter().filter(|spike| spike.cause == cause).count() as u64;
    let title = format!(
        "{} of {} {unit}s of {} took more than twice the time that their work explains; the slowest {} for {}{}",
        count(tail.units),
        count(steady.count),
        stage.spoken(),
        time(tail.slowest_ns),
        time(tail.expected_ns),
        cause.map_or_else(String::new, spoken)
    );
    let action = match cause {
        Some(spike) => remedy(view, spike),
        None => format!("Look at {unit} {} in the timeline. {}", tail.slowest, view.action("no cause")),
    };
    let action = match tail.slowest {
        1 => format!("{action} {}", view.action("first step")),
        _ => action,
    };
    let slowest = (steady.unit == SteadyUnit::Step).then_some(tail.slowest);
    let beyond = ("time beyond what the work of the slow ones explains", tail.beyond_ns);
    FindingBuilder::new(view.rule, whole, view.roofs, &[beyond])
        .confidence(confidence)
        .with("steps", steady.count)
        .with("slow_steps", tail.units)
        .with("median_ns", steady.median_ns)
        .with("slowest_ns", tail.slowest_ns)
        .with("expected_ns", tail.expected_ns)
        .with("slowest_step", slowest)
        .with("cause", cause.map(|spike| spike.cause.as_str()))
        .with("cause_ns", cause.map(|spike| spike.evidence_ns))
        .with("cause_in", cause.and_then(|spike| spike.what.clone()))
        .with("steps_with_cause", cause.map(|spike| others(spike.cause)))
        .finish(title, action)
}

/// Returns what to do about the cause of a step.
fn remedy(view: &View<'_>, spike: &Spike) -> String {
    use SpikeCause::*;
    let text = match spike.cause {
        FirstUse => view.action("cold step"),
        Allocation => view.action("allocation in a step"),
        GarbageCollection => advice(HostKind::GarbageCollection),
        HostCopy => view.action("copy in a step"),
        Lock => advice(HostKind::Lock),
        Descheduled => view.action("descheduled"),
        ClockDrop => view.action("clock drop"),
        OtherTenant => view.action("other tenant"),
        LateRank => view.action("slow communication"),
        SlowKernel => view.action("slow kernel"),
        SlowKernels => view.action("slow kernels"),
        Wait => view.action("wait in a step"),
        Call => view.action("call in a step"),
        Code => view.action("code in a step"),
        Unknown => view.action("no cause"),
    };
    match &spike.missing {
        Some(missing) => format!("{text} The capture has no {missing}; record them to see it."),
        None => text.to_owned(),
    }
}

/// Says what took the time, as the end of a sentence.
fn spoken(spike: &Spike) -> String {
    use SpikeCause::*;
    let what = spike.what.as_deref().unwrap_or_default();
    let how = match spike.cause {
        FirstUse => format!("to load code or a graph ({what})"),
        GarbageCollection => format!("in garbage collection ({what})"),
        Lock => format!("waiting for a lock in {what}"),
        Descheduled => "while its thread did not run".to_owned(),
        ClockDrop => format!("because the clock was lower ({what})"),
        OtherTenant => format!("beside {what} on the same GPU"),
        LateRank => format!("in communication ({what})"),
        SlowKernel => format!("in one launch of {what}"),
        SlowKernels => format!("because its kernels ran longer, above all {what}"),
        Wait => format!("in {what} while the GPU ran nothing"),
        Unknown => return "; no cause was recorded".to_owned(),
        Allocation | HostCopy | Call | Code => format!("in {what}"),
    };
    format!(", {} of it {how}", time(spike.evidence_ns))
}

/// Fewer steps of an instance show no trend.
const LEAST_STEPS: usize = 12;
/// Median share over instances of a step's time that is proportional to the context, from which on the context is read again. The
/// attention to cached keys and values is far below it.
const LEAST_SHARE: f64 = 0.5;
/// The same of each instance, whose times vary.
const LEAST_SHARE_EACH: f64 = 0.25;
/// A step that reads the context again takes at least this share of the prefill, which reads the prompt once.
const LEAST_PREFILL_SHARE: f64 = 0.5;

/// A decode without a KV cache: a step takes about as long as the prefill, and its time grows in proportion to its context, in
/// every instance. Only steps in which the context is at most twice the prompt are compared, since the attention to a long cached
/// context grows too. The bound leaves each step the share of one position, and the model's bytes at the memory bandwidth.
pub fn context_again(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let analysis = view.inputs.analysis;
    let prompt = analysis.workload.as_ref()?.prompt_tokens?;
    let prefill = analysis.stages.iter().find(|other| other.kind == StageKind::Prefill)?;
    let steps = stage.steps.as_ref()?;
    // Steps of an engine serve several requests, each with its own context; a sampled recording has gaps between its steps.
    if stage.kind != StageKind::Decode || stage.requests.is_some() || stage.coverage.is_some() {
        return None;
    }
    let instances = usize::try_from(stage.instances).unwrap_or(usize::MAX).max(1);
    if !steps.each_ns.len().is_multiple_of(instances) {
        return None;
    }
    let of_instance = steps.each_ns.len() / instances;
    let compared = of_instance.min(usize::try_from(prompt).unwrap_or(usize::MAX));
    if compared < LEAST_STEPS {
        return None;
    }
    let trends: Vec<Trend> = steps
        .each_ns
        .chunks_exact(of_instance)
        .map(|each| Trend::fit(&each[..compared], prompt as f64))
        .collect();
    let is_again = |trend: &Trend| {
        trend.share >= LEAST_SHARE_EACH
            && trend.median_ns as f64 >= LEAST_PREFILL_SHARE * text_ns(prefill) as f64
    };
    let mut shares: Vec<f64> = trends.iter().map(|trend| trend.share).collect();
    let share = median_f64(&mut shares).unwrap_or_default();
    if share < LEAST_SHARE || !trends.iter().all(is_again) {
        return None;
    }
    let median_ns = median_of(&steps.each_ns);
    let context = prompt as f64 + (of_instance as f64 - 1.0) / 2.0;
    let floor_ns = stage.mbu.as_ref().and_then(|mbu| mbu.floor_step_ns).unwrap_or(0);
    let least_ns = (stage.elapsed_ns() as f64 / context).max(floor_ns as f64 * steps.count as f64);
    let first = Trend::third(&steps.each_ns[..compared], 0);
    let last = Trend::third(&steps.each_ns[..compared], 2);
    let title = format!(
        "{} reads its context again for each token: a step takes {} at the median, the prefill of {} tokens {}, and a step grows \
         from {} to {} within {} steps",
        stage.spoken(),
        time(median_ns),
        count(prompt),
        time(text_ns(prefill)),
        time(first),
        time(last),
        count(compared as u64)
    );
    view.saves(&[
        ("time of the stage", stage.elapsed_ns()),
        ("one position in each step", -(least_ns as i64)),
    ])
    .with("steps", steps.count)
    .with("step_p50_ns", median_ns)
    .with("prefill_ns", text_ns(prefill))
    .with("prompt_tokens", prompt)
    .with_number("mean_context_tokens", context)
    .with_number("share_by_context_pct", 100.0 * share.min(1.0))
    .finish(title, view.action("key cache"))
}

/// Returns the mean time of a prefill without its named parts, such as the vision encoder, ns.
fn text_ns(prefill: &Stage) -> i64 {
    let notes: i64 = prefill.notes.iter().map(|note| note.wall_ns).sum();
    (prefill.elapsed_ns() - notes).max(0) / prefill.instances.max(1) as i64
}

/// The times of the steps of one instance.
struct Trend {
    /// Median of a step, ns.
    median_ns: i64,
    /// Part of the mean that is proportional to the context, 0 to about 1.
    share: f64,
}

impl Trend {
    /// Fits a line through the medians of the first and the last third.
    fn fit(each: &[i64], prompt: f64) -> Self {
        let growth = (Self::third(each, 2) - Self::third(each, 0)) as f64;
        let steps = each.len() as f64;
        // The middles of the two thirds are two thirds of the steps apart.
        let slope = growth / (steps * 2.0 / 3.0);
        let median_ns = median_of(each);
        Self { median_ns, share: slope * (prompt + steps / 2.0) / median_ns.max(1) as f64 }
    }

    /// Returns the median of a third of the steps, ns.
    fn third(each: &[i64], number: usize) -> i64 {
        let (from, to) = (each.len() * number / 3, each.len() * (number + 1) / 3);
        median_of(&each[from..to])
    }
}

/// Returns the median; 0 for no values.
fn median_of(values: &[i64]) -> i64 {
    median(&mut values.to_vec()).unwrap_or(0)
}

/// Id of the rule.
pub const GRAPHS_WHOLE: &str = "graphs-whole";

/// Finds a stage whose time is mostly in graphs that were recorded whole. The bound is that time, of which nothing else is known.
pub fn whole_graphs(view: &View<'_>) -> Option<Finding> {
    let (stage, busy) = (view.stage, view.stage.busy_ns?);
    let (launches, in_graphs) = GraphRow::sum(&stage.graphs);
    // Most of the time, or most of the work of a GPU that has its work.
    let is_most = 2 * stage.each_device(in_graphs) > stage.elapsed_ns()
        || 2 * in_graphs > busy && verdict(stage).label == StageLimit::Gpu;
    let title = format!(
        "{:.0} % of the GPU time of {} is in {} launches of CUDA graphs that were recorded whole: their kernels are not in the capture",
        percent(in_graphs, busy),
        stage.spoken(),
        count(launches)
    );
    let draft = view.saves_on_devices(&[("time inside of whole graphs", in_graphs)]);
    let draft = draft.with("graph_launches", launches).with("graph_ns", in_graphs).with("busy_ns", busy);
    draft.finish(title, view.action("record")).filter(|_| is_most)
}

/// Id of the rule.
pub const PROFILER_OVERHEAD: &str = "profiler-overhead";

/// Ratio of profiled to unprofiled time above which the other findings are doubtful.
const DOUBTFUL: f64 = 1.25;

/// Finds a profiler that made the stage slower by more than a quarter. The bound is the overhead in the wall time.
pub fn watching(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    if stage.from == StageOrigin::Workload {
        // Without a timeline no time includes the overhead.
        return None;
    }
    let overhead = view
        .inputs
        .analysis
        .timeline_overhead()
        .filter(|o| o.stage == stage.name && o.ratio.is_finite() && o.sure_ratio() > DOUBTFUL)
        .max_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    // Steps that the GPU paces take as long without it.
    let steady =
        stage.steady.as_ref().and_then(|steady| Some(steady.time_ns as f64 / steady.unprofiled_ns? as f64));
    let ratio = steady.unwrap_or(overhead.ratio);
    let title = format!(
        "{} takes {ratio:.2} times as long under {} as without it: gaps and launch counts of the timeline are inflated",
        stage.spoken(),
        overhead.tool
    );
    let action = match overhead.tool {
        Profiler::Native => view.action("native collector"),
        _ => view.action("lighter profiler"),
    };
    let without_ns = (stage.wall_ns as f64 / ratio) as i64;
    view.saves(&[("wall time under the profiler", stage.wall_ns), ("without it", -without_ns)])
        .with("tool", overhead.tool.as_str())
        .with_number("ratio", ratio)
        .with("wall_ns", stage.wall_ns)
        .finish(title, action)
}
