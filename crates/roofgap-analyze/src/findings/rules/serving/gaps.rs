//! The GPU runs nothing between the steps of a busy server.

use super::ServedStage;
use crate::findings::builder::{FindingBuilder, percent};
use crate::findings::{Explanation, View};
use crate::numbers::time;
use crate::result::Finding;

/// Below this share of the stage's time, in %, gaps between steps are not worth a finding.
const LEAST_GAP_PCT: f64 = 10.0;

/// A period of this many medians is a pause of the load, not a gap between steps.
const PAUSE: i64 = 10;

/// With fewer requests in flight, the server may have had nothing to do.
const LEAST_IN_FLIGHT: f64 = 2.0;

/// Time between steps in which the GPU runs nothing, while requests are in flight. Pauses of the load are left out.
pub fn between_steps(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let (Some(serving), Some(period_ns)) = (ServedStage::of(view), stage.period_ns) else {
        return;
    };
    let Some(in_flight) = serving.in_flight().filter(|flying| *flying >= LEAST_IN_FLIGHT) else {
        return;
    };
    let steps = serving.steps;
    let is_pause = |ns: &&i64| **ns > PAUSE * steps.p50_ns;
    let pauses: i64 = steps.each_ns.iter().filter(is_pause).map(|ns| ns - steps.p50_ns).sum();
    let counted = steps.each_ns.iter().filter(|ns| !is_pause(ns)).count() as i64;
    let gap_ns = (stage.between_ns - pauses).max(0);
    if counted == 0 || percent(gap_ns, period_ns - pauses) < LEAST_GAP_PCT {
        return;
    }
    let title = format!(
        "the GPU runs nothing for {} between the steps of {}: {} a step, of {} at the median",
        time(gap_ns),
        stage.spoken(),
        time(gap_ns / counted),
        time(steps.p50_ns)
    );
    let setting = serving.advice.overlap;
    let action = format!(
        "Take the CPU off the path from step to step: {setting}; sampling on the GPU, fewer features a request (log probabilities, \
         structured output), and CPU cores of its own for the engine."
    );
    FindingBuilder::new("gaps-between-steps", stage, gap_ns)
        .with("between_ns", stage.between_ns)
        .with("pauses_ns", pauses)
        .with("steps", steps.count)
        .with("step_p50_ns", steps.p50_ns)
        .with_number("requests_in_flight", in_flight)
        .finish(title, action, findings);
}

/// Explains `gaps-between-steps`.
pub const GAPS_BETWEEN_STEPS: Explanation = Explanation {
    id: "gaps-between-steps",
    remedy: "shorter gaps between steps",
    meaning: "The GPU runs nothing between the steps of a busy server, while the CPU prepares the next one.",
    computed: "Time after the last operation of a step and before the first of the next, without pauses of the \
              load, while at least two requests are in flight on average. The bound is that time.",
    fix: "Let the engine prepare a step while the GPU runs the one before (asynchronous scheduling), sample on \
              the GPU, and give the engine CPU cores of its own.",
    links: &[],
};
