//! A server under load: latency that clients see, joined with the steps of its engine.
//!
//! These rules need engine steps in the timeline and, but for `graphs-not-used`, requests in the account.

use super::{LEAST_SMALL_GAP_PCT, words};
use crate::engines::ServerGauges;
use crate::findings::rule::{View, fill, percent};
use crate::numbers::{count, time};
use crate::result::{BatchRow, Confidence, Finding, RequestStats, Stage, StageKind, Steps};

/// Engine steps of a stage and the requests that they served.
struct ServedStage<'a> {
    requests: &'a RequestStats,
    steps: &'a Steps,
}

impl<'a> ServedStage<'a> {
    /// Returns the serving facts of a stage; `None` without requests, or for a stage without engine steps.
    fn from_view(view: &View<'a>) -> Option<Self> {
        let requests = view.inputs.analysis.requests.as_ref();
        Some(Self {
            requests: requests.filter(|requests| requests.completed > 0)?,
            steps: engine_steps(view.stage)?,
        })
    }

    /// Returns the mean number of requests in flight: their rate times their mean time.
    fn in_flight(&self) -> Option<f64> {
        let seconds = self.requests.e2e_ns?.mean as f64 / 1e9;
        Some(self.requests.requests_per_s? * seconds)
    }
}

fn engine_steps(stage: &Stage) -> Option<&Steps> {
    stage.requests?;
    stage.steps.as_ref().filter(|steps| steps.count > 0 && steps.p50_ns > 0)
}

/// Finds the engine steps of a kind.
fn steps_of<'a>(view: &View<'a>, kind: StageKind) -> Option<&'a Steps> {
    let stages = &view.inputs.analysis.stages;
    stages.iter().find(|stage| stage.kind == kind).and_then(engine_steps)
}

/// Steps with prompts that take less than this many times a decode step hardly delay anyone.
const LEAST_STEP_RATIO: f64 = 1.5;

/// Steps that read prompts and take longer than a step that only generates. Mixed steps serve requests that generate by definition;
/// prefill steps count where the time between tokens has such delays. The bound is what these steps take beyond a decode step.
pub fn starved_decode(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (serving, decode) = (ServedStage::from_view(view)?, steps_of(view, StageKind::Decode)?);
    let steps = serving.steps;
    let long_enough = steps.mean_ns as f64 >= LEAST_STEP_RATIO * decode.p50_ns as f64;
    let itl_p99 = serving.requests.itl_ns.map(|itl| itl.p99);
    let is_felt = match stage.kind {
        StageKind::Mixed => true,
        StageKind::Prefill => itl_p99.is_some_and(|p99| p99 >= steps.p50_ns.max(2 * decode.p50_ns)),
        _ => false,
    };
    if !long_enough || !is_felt {
        return None;
    }
    let longer = || steps.each_ns.iter().filter(|ns| **ns > decode.p50_ns);
    let latency =
        itl_p99.map_or_else(String::new, |p99| format!("; the time between tokens is {} at p99", time(p99)));
    let take = if steps.count == 1 { "step takes" } else { "steps take" };
    let wait = if stage.kind == StageKind::Mixed { "wait" } else { "may wait" };
    let title = format!(
        "{} {} {take} {} on average, and a decode step {} at the median: requests that generate {wait} for the prompts of \
         others{latency}",
        count(steps.count),
        stage.spoken(),
        time(steps.mean_ns),
        time(decode.p50_ns)
    );
    let setting = view.program.advice().smaller_prompts;
    view.saves(&[
        ("steps with prompts", longer().sum()),
        ("as many decode steps at the median", -decode.p50_ns * longer().count() as i64),
    ])
    .with("steps", steps.count)
    .with("mean_ns", steps.mean_ns)
    .with("decode_step_p50_ns", decode.p50_ns)
    .with("itl_p50_ns", serving.requests.itl_ns.map(|itl| itl.p50))
    .with("itl_p99_ns", itl_p99)
    .finish(title, fill(view.action("smaller prompts"), &[&setting]))
}

/// Smallest ratio of the time between tokens to a step.
const LEAST_ITL_RATIO: f64 = 1.2;

/// A time between tokens well above the time of a step. The bound is the difference, once for each step of decode.
pub fn outside_steps(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let serving = ServedStage::from_view(view).filter(|_| stage.kind == StageKind::Decode)?;
    let itl = serving.requests.itl_ns.filter(|itl| itl.count > 0)?;
    // Tokens of mixed steps take as long as these.
    let mixed = steps_of(view, StageKind::Mixed).map_or(0, |steps| steps.p50_ns);
    let step = serving.steps.p50_ns.max(mixed);
    if (itl.p50 as f64) < LEAST_ITL_RATIO * step as f64 {
        return None;
    }
    let outside = itl.p50 - step;
    let steps = i64::try_from(serving.steps.count).unwrap_or(i64::MAX);
    let title = format!(
        "clients get a part of an answer every {} at the median, and a step takes {}: {} are outside of the steps",
        time(itl.p50),
        time(step),
        time(outside)
    );
    let more = match view.program.advice().more_frontends {
        "" => String::new(),
        more => format!(" {more}"),
    };
    let action = fill(view.action("server"), &[&more]);
    view.saves(&[("time between tokens beyond a step, for each step", outside.saturating_mul(steps))])
        .with("itl_p50_ns", itl.p50)
        .with("itl_p99_ns", itl.p99)
        .with("step_p50_ns", step)
        .with("steps", serving.steps.count)
        .finish(title, action)
}

/// A batch of more than this share of the one at which compute is the limit is not small.
const LARGE_SHARE: f64 = 0.25;

/// Ratio of requests in flight to requests in a step from which on the engine holds requests back.
const HELD_BACK: f64 = 1.5;

/// Decode steps whose batch is far below the one at which compute, not memory, is the limit. Bytes never fall with the batch, so that
/// one is an upper estimate, and so is the bound: the time at the compute roof for the same tokens is taken off.
pub fn small_batch(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let serving = ServedStage::from_view(view).filter(|_| stage.kind == StageKind::Decode)?;
    let (mfu, mbu) = (stage.mfu.as_ref()?, stage.mbu.as_ref()?);
    let generation = stage.requests?.generation?;
    let batch = generation as f64 / serving.steps.count as f64;
    // Time at the roof of memory over time at the roof of compute.
    let ratio = (mbu.bytes / mbu.bandwidth_bytes_per_s) / (mfu.flops / mfu.peak_flops_per_s);
    if !ratio.is_finite() || batch <= 0.0 || ratio * LARGE_SHARE <= 1.0 {
        return None;
    }
    let roof = (batch * ratio).floor();
    let title = format!(
        "a step of {} serves {batch:.1} requests on average; what it reads from memory would serve up to {} before compute is the limit",
        stage.spoken(),
        count(roof as u64)
    );
    let parallel = |kind: &str| {
        let engine = view.inputs.analysis.engine.as_ref()?;
        engine.parallelism.as_ref()?.get(kind).copied()
    };
    // Replicas share the requests, so that the number in flight says nothing of a single step.
    let in_flight = serving.in_flight().filter(|_| parallel("data").is_none_or(|parts| parts <= 1));
    let more = view.action("more requests");
    let action = match in_flight {
        Some(flying) if flying >= HELD_BACK * batch => {
            let setting = view.program.advice().larger_batch;
            fill(view.action("held back"), &[&format!("{flying:.0}"), &setting])
        }
        Some(flying) => format!("About {flying:.0} requests were in flight on average. {more}"),
        None => more.to_owned(),
    };
    let held_back = in_flight.is_some_and(|flying| flying >= HELD_BACK * batch);
    let at_compute_roof = (stage.elapsed_ns() as f64 / ratio) as i64;
    view.saves(&[
        ("time of the stage", stage.elapsed_ns()),
        ("its tokens in steps at the compute roof", -at_compute_roof),
    ])
    .confidence(if held_back { Confidence::Bounded } else { Confidence::Guessed })
    .with_number("requests_per_step", batch)
    .with("roof_requests_per_step", roof)
    .with("bytes", mbu.bytes)
    .with("flops", mfu.flops)
    .with_number("requests_in_flight", in_flight)
    .finish(title, action)
}

/// Most batch sizes that are named.
const NAMED: usize = 8;

/// Decode steps that launch their kernels one by one, while others of the same engine replay graphs: their batch size was not
/// captured. The bound is the idle time inside these steps.
pub fn eager_batches(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let serving = view.inputs.analysis.serving.as_ref();
    let serving = serving.filter(|_| stage.kind == StageKind::Decode && stage.requests.is_some())?;
    let by_graph: u64 = serving.batches.iter().map(|batch| batch.graph_steps).sum();
    let is_eager = |batch: &&BatchRow| batch.graph_steps == 0 && batch.eager_idle_ns > 0;
    let eager: Vec<&BatchRow> = serving.batches.iter().filter(is_eager).collect();
    let steps: u64 = eager.iter().map(|batch| batch.steps).sum();
    if by_graph == 0 || steps == 0 {
        return None;
    }
    let idle_ns = eager.iter().map(|batch| batch.eager_idle_ns).sum();
    let mut sizes: Vec<String> = eager.iter().take(NAMED).map(|batch| batch.requests.to_string()).collect();
    if eager.len() > NAMED {
        sizes.push(format!("{} more", eager.len() - NAMED));
    }
    let title = format!(
        "{} of {} decode steps launch their kernels one by one, and the GPU is idle for {} in them: no CUDA graph was used for these \
         batch sizes: {}",
        count(steps),
        count(serving.batches.iter().map(|batch| batch.steps).sum()),
        time(idle_ns),
        sizes.join(", ")
    );
    let setting = view.program.advice().graph_sizes;
    let largest =
        serving.batches.iter().filter(|batch| batch.graph_steps > 0).map(|batch| batch.requests).max();
    view.saves(&[("idle time inside steps without a graph", idle_ns)])
        .with("steps", steps)
        .with("graph_steps", by_graph)
        .with("batch_sizes", eager.iter().map(|batch| batch.requests).collect::<Vec<u64>>())
        .with("largest_graph_batch", largest)
        .with("idle_ns", idle_ns)
        .finish(title, fill(view.action("batch sizes"), &[&setting]))
}

/// Used share from which on the cache is full.
const FULL: f64 = 0.95;

/// A KV cache that was full while requests waited, or from which requests were evicted. With memory for all of them, a step would
/// serve the waiting requests too, and evicted ones would be computed once: the bound takes both shares off the time of decode.
pub fn kv_cache_full(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let served = ServedStage::from_view(view).filter(|_| stage.kind == StageKind::Decode)?;
    let requests = served.requests;
    let gauges = ServerGauges::of(requests);
    let peak = gauges.cache_usage.map(|usage| usage.max);
    let evicted = gauges.evictions.map_or(0.0, |evictions| evictions.max(0.0));
    let waiting = gauges.waiting.map_or(0.0, |waiting| waiting.mean);
    let is_full = peak.is_some_and(|peak| peak >= FULL);
    if !is_full && evicted == 0.0 {
        return None;
    }
    let running = gauges.running.map_or(0.0, |running| running.mean);
    let held_back = if is_full && running > 0.0 { waiting / (waiting + running) } else { 0.0 };
    let again = evicted / (evicted + requests.completed as f64);
    let share = 1.0 - (1.0 - held_back) * (1.0 - again);
    let mut parts = Vec::new();
    parts.extend(peak.map(|peak| format!("the KV cache was {:.0} % full at most", 100.0 * peak)));
    if evicted > 0.0 {
        let times = count(evicted.round() as u64);
        parts.push(format!("requests lost their part of it {times} times and were computed again"));
    }
    if waiting > 0.0 {
        parts.push(format!("{waiting:.1} requests waited on average while {running:.1} ran"));
    }
    let setting = view.program.advice().larger_cache;
    let left = stage.elapsed_ns() as f64 * (1.0 - share);
    view.saves(&[
        ("time of the stage", stage.elapsed_ns()),
        ("without waits and evictions", -(left.round() as i64)),
    ])
    .with("evictions", evicted)
    .with_number("requests_waiting", waiting)
    .with_number("requests_running", running)
    .with_number("usage_max_pct", peak.map(|peak| 100.0 * peak))
    .finish(parts.join("; "), fill(view.action("larger cache"), &[&setting]))
}

/// A period of this many medians is a pause of the load, not a gap between steps.
const PAUSE: i64 = 10;

/// With fewer requests in flight, the server may have had nothing to do.
const LEAST_IN_FLIGHT: f64 = 2.0;

/// Time between steps in which the GPU runs nothing. Pauses of the load are left out, and where the requests are known all time with
/// fewer than two of them in flight.
pub fn between_steps(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (steps, period_ns) = (engine_steps(stage)?, stage.period_ns?);
    let in_flight = ServedStage::from_view(view).and_then(|serving| serving.in_flight());
    if in_flight.is_some_and(|flying| flying < LEAST_IN_FLIGHT) {
        return None;
    }
    let is_pause = |ns: &&i64| **ns > PAUSE * steps.p50_ns;
    let pauses: i64 = steps.each_ns.iter().filter(is_pause).map(|ns| ns - steps.p50_ns).sum();
    let counted = steps.each_ns.iter().filter(|ns| !is_pause(ns)).count() as i64;
    let gap_ns = (stage.between_ns - pauses).max(0);
    if counted == 0 || percent(gap_ns, period_ns - pauses) < LEAST_SMALL_GAP_PCT {
        return None;
    }
    let title = format!(
        "the GPU runs nothing for {} between the steps of {}: {} a step, of {} at the median{}",
        time(gap_ns),
        stage.spoken(),
        time(gap_ns / counted),
        time(steps.p50_ns),
        words::line(stage)
    );
    let setting = view.program.advice().overlap;
    let doubt =
        if in_flight.is_some() { "" } else { " If no request was waiting, there is nothing to gain." };
    let action = fill(view.action("step to step"), &[&setting]) + doubt;
    view.saves(&[("time between steps", stage.between_ns), ("pauses of the load", gap_ns - stage.between_ns)])
        .confidence(if in_flight.is_some() { Confidence::Measured } else { Confidence::Guessed })
        .with("between_ns", stage.between_ns)
        .with("pauses_ns", pauses)
        .with("steps", steps.count)
        .with("step_p50_ns", steps.p50_ns)
        .with_number("requests_in_flight", in_flight)
        .finish(title, action)
}
