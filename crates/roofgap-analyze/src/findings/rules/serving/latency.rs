//! The time between tokens that clients see is longer than a step.

use super::{ServedStage, steps_of};
use crate::findings::builder::FindingBuilder;
use crate::findings::{Explanation, View};
use crate::numbers::time;
use crate::result::{Finding, StageKind};

/// Smallest ratio of the time between tokens to a step.
const LEAST_RATIO: f64 = 1.2;

/// A time between tokens well above the time of a step. The bound is the difference, once for each step of decode.
pub fn outside_steps(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let Some(serving) = ServedStage::of(view).filter(|_| stage.kind == StageKind::Decode) else {
        return;
    };
    let Some(itl) = serving.requests.itl_ns.filter(|itl| itl.count > 0) else {
        return;
    };
    // Tokens of mixed steps take as long as these.
    let mixed = steps_of(view, StageKind::Mixed).map_or(0, |steps| steps.p50_ns);
    let step = serving.steps.p50_ns.max(mixed);
    if (itl.p50 as f64) < LEAST_RATIO * step as f64 {
        return;
    }
    let outside = itl.p50 - step;
    let steps = i64::try_from(serving.steps.count).unwrap_or(i64::MAX);
    let title = format!(
        "clients get a part of an answer every {} at the median, and a step takes {}: {} are outside of the steps",
        time(itl.p50),
        time(step),
        time(outside)
    );
    let more = serving.advice.more_frontends;
    let action = format!(
        "Look at the server around the model: processes that tokenise, format and stream answers, and the CPU cores they share with \
         the engine.{more} A part of several tokens (a stream interval, speculative decoding) and prefill steps between those of \
         decode look the same."
    );
    FindingBuilder::new("latency-outside-steps", stage, outside.saturating_mul(steps))
        .with("itl_p50_ns", itl.p50)
        .with("itl_p99_ns", itl.p99)
        .with("step_p50_ns", step)
        .with("steps", serving.steps.count)
        .finish(title, action, findings);
}

/// Explains `latency-outside-steps`.
pub const LATENCY_OUTSIDE_STEPS: Explanation = Explanation {
    id: "latency-outside-steps",
    remedy: "less time between the steps and the client",
    meaning: "Clients wait longer for a token than a step of the engine takes. The rest is outside of the model: \
              scheduling, tokenising, formatting, streaming.",
    computed: "Median time between tokens, at least 1.2 times the median step. The bound is the difference, once \
              for each step of decode.",
    fix: "Give the server processes CPU cores of their own, use more of them, and look at stream intervals and \
              speculative decoding, which look the same.",
    links: &[],
};
