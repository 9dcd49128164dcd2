//! The KV cache limits the number of requests at once.

use super::ServedStage;
use crate::engines::ServerGauges;
use crate::findings::builder::FindingBuilder;
use crate::findings::{Explanation, View};
use crate::numbers::count;
use crate::result::{Finding, StageKind};

/// Used share from which on the cache is full.
const FULL: f64 = 0.95;

/// A KV cache that was full while requests waited, or from which requests were evicted. With memory for all of them, a step would
/// serve the waiting requests too, and evicted ones would be computed once: the bound takes both shares off the time of decode.
pub fn kv_cache_full(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let Some(served) = ServedStage::of(view).filter(|_| stage.kind == StageKind::Decode) else {
        return;
    };
    let requests = served.requests;
    let gauges = ServerGauges::of(requests);
    let peak = gauges.cache_usage.map(|usage| usage.max);
    let evicted = gauges.evictions.map_or(0.0, |evictions| evictions.max(0.0));
    let waiting = gauges.waiting.map_or(0.0, |waiting| waiting.mean);
    let is_full = peak.is_some_and(|peak| peak >= FULL);
    if !is_full && evicted == 0.0 {
        return;
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
    let setting = served.advice.larger_cache;
    let bound = stage.elapsed_ns() as f64 * share;
    let draft = FindingBuilder::new("kv-cache-full", stage, bound.round() as i64)
        .with("evictions", evicted)
        .with_number("requests_waiting", waiting)
        .with_number("requests_running", running);
    let draft = match peak {
        Some(peak) => draft.with_number("usage_max_pct", 100.0 * peak),
        None => draft,
    };
    draft.finish(
        parts.join("; "),
        format!("Give the KV cache more room: {setting}. More GPUs or shorter contexts do the same."),
        findings,
    );
}

pub const KV_CACHE_FULL: Explanation = Explanation {
    id: "kv-cache-full",
    remedy: "a larger KV cache",
    meaning: "The cache of keys and values was full while requests waited, or requests were evicted from it and computed again.",
    computed: "The engine's own gauges are read once a second while load is sent: the cache is full from 95 % on. The share of \
              waiting requests and the share of evicted ones are taken off the time of decode.",
    fix: "Give the cache more of the GPU's memory, store it in 8 bits, or allow fewer requests at once.",
    links: &["https://docs.vllm.ai/en/latest/configuration/optimization.html"],
};
