//! Requests that generate wait for the prompts of others.

use super::{ServedStage, steps_of};
use crate::findings::builder::FindingBuilder;
use crate::findings::{Explanation, View};
use crate::numbers::{count, time};
use crate::result::{Finding, StageKind};

/// Steps with prompts that take less than this many times a decode step hardly delay anyone.
const LEAST_RATIO: f64 = 1.5;

/// Steps that read prompts and take longer than a step that only generates. Mixed steps serve requests that generate by definition;
/// prefill steps count where the time between tokens has such delays. The bound is what these steps take beyond a decode step.
pub fn starved_decode(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let (Some(serving), Some(decode)) = (ServedStage::of(view), steps_of(view, StageKind::Decode)) else {
        return;
    };
    let steps = serving.steps;
    let long_enough = steps.mean_ns as f64 >= LEAST_RATIO * decode.p50_ns as f64;
    let itl_p99 = serving.requests.itl_ns.map(|itl| itl.p99);
    let is_felt = match stage.kind {
        StageKind::Mixed => true,
        StageKind::Prefill => itl_p99.is_some_and(|p99| p99 >= steps.p50_ns.max(2 * decode.p50_ns)),
        _ => false,
    };
    if !long_enough || !is_felt {
        return;
    }
    let beyond = steps.each_ns.iter().map(|ns| (ns - decode.p50_ns).max(0)).sum();
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
    let action = serving.advice.smaller_prompts;
    FindingBuilder::new("decode-starved", stage, beyond)
        .with("steps", steps.count)
        .with("mean_ns", steps.mean_ns)
        .with("decode_step_p50_ns", decode.p50_ns)
        .with("itl_p50_ns", serving.requests.itl_ns.map(|itl| itl.p50))
        .with("itl_p99_ns", itl_p99)
        .finish(
            title,
            format!("{action} It costs time to first token; serving prefill on other GPUs does not."),
            findings,
        );
}

/// Explains `decode-starved`.
pub const DECODE_STARVED: Explanation = Explanation {
    id: "decode-starved",
    remedy: "smaller chunks of prompts",
    meaning: "Steps that read prompts take much longer than steps that only generate, and requests that generate \
              wait for them.",
    computed: "Steps with prompts that take at least 1.5 times the median decode step; prefill steps count where \
              the time between tokens shows such delays. The bound is their time beyond a decode step.",
    fix: "Schedule fewer prompt tokens in a step (chunked prefill), or serve prefill on other GPUs. It costs \
              time to first token.",
    links: &["https://docs.vllm.ai/en/latest/configuration/optimization.html"],
};
