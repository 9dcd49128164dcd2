//! Decode steps with few requests: each reads all weights for little work.

use super::ServedStage;
use crate::findings::builder::FindingBuilder;
use crate::findings::{Explanation, View};
use crate::numbers::count;
use crate::result::{Finding, StageKind};

/// A batch of more than this share of the one at which compute is the limit is not small.
const LARGE_SHARE: f64 = 0.25;

/// Ratio of requests in flight to requests in a step from which on the engine holds requests back.
const HELD_BACK: f64 = 1.5;

/// Decode steps whose batch is far below the one at which compute, not memory, is the limit. Bytes never fall with the batch, so that
/// one is an upper estimate, and so is the bound: the time at the compute roof for the same tokens is taken off.
pub fn small_batch(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let Some(serving) = ServedStage::of(view).filter(|_| stage.kind == StageKind::Decode) else {
        return;
    };
    let (Some(mfu), Some(mbu)) = (&stage.mfu, &stage.mbu) else {
        return;
    };
    let Some(generation) = stage.requests.and_then(|requests| requests.generation) else {
        return;
    };
    let batch = generation as f64 / serving.steps.count as f64;
    // Time at the roof of memory over time at the roof of compute.
    let ratio = (mbu.bytes / mbu.bandwidth_bytes_per_s) / (mfu.flops / mfu.peak_flops_per_s);
    if !ratio.is_finite() || batch <= 0.0 || ratio * LARGE_SHARE <= 1.0 {
        return;
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
    let more = "Serve more requests at once where the latency allows it: clients with more requests in flight, or fewer replicas.";
    let action = match in_flight {
        Some(flying) if flying >= HELD_BACK * batch => {
            let setting = serving.advice.larger_batch;
            format!(
                "About {flying:.0} requests were in flight on average, so the engine held some back: try {setting}."
            )
        }
        Some(flying) => format!("About {flying:.0} requests were in flight on average. {more}"),
        None => more.to_owned(),
    };
    let bound = stage.elapsed_ns() as f64 * (1.0 - 1.0 / ratio);
    let draft = FindingBuilder::new("batch-too-small", stage, bound as i64)
        .with_number("requests_per_step", batch)
        .with("roof_requests_per_step", roof)
        .with("bytes", mbu.bytes)
        .with("flops", mfu.flops);
    let draft = match in_flight {
        Some(flying) => draft.with_number("requests_in_flight", flying),
        None => draft,
    };
    draft.finish(title, action, findings);
}

/// Explains `batch-too-small`.
pub const BATCH_TOO_SMALL: Explanation = Explanation {
    id: "batch-too-small",
    remedy: "a larger batch",
    meaning: "A decode step serves few requests. It reads all weights for them, and could serve more with the same \
              reading.",
    computed: "Time of the model's bytes at the memory bandwidth over time of its FLOPs at the compute peak: where \
              it is above 4, memory is the limit by far. The bound takes the time of the same tokens at the \
              compute roof.",
    fix: "Send more requests at once, allow more of them in a step, or give the cache of keys and values more \
              memory.",
    links: &["https://docs.vllm.ai/en/latest/configuration/optimization.html"],
};
