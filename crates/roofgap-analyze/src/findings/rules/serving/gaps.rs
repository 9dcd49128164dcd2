//! The GPU runs nothing between the steps of a busy server.

use super::{ServedStage, Settings};
use crate::findings::View;
use crate::findings::builder::{FindingBuilder, ms, percent};
use crate::result::Finding;

/// Below this share of the stage's time, in %, gaps between steps are not worth a finding.
const LEAST_GAP_PCT: f64 = 10.0;

/// A period of this many medians is a pause of the load, not a gap between steps.
const PAUSE: i64 = 10;

/// With fewer requests in flight, the server may have had nothing to do.
const LEAST_IN_FLIGHT: f64 = 2.0;

/// Time between steps in which the GPU runs nothing, while requests are in flight. Pauses of the load are left out.
pub(in crate::findings) fn between_steps(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let (Some(serving), Some(period_ns)) = (ServedStage::of(view), stage.period_ns) else {
        return;
    };
    let Some(in_flight) = serving.in_flight().filter(|flying| *flying >= LEAST_IN_FLIGHT) else {
        return;
    };
    let steps = serving.steps;
    let is_pause = |ns: &&i64| **ns > PAUSE * steps.p50_ns;
    let pauses: i64 = steps
        .each_ns
        .iter()
        .filter(is_pause)
        .map(|ns| ns - steps.p50_ns)
        .sum();
    let counted = steps.each_ns.iter().filter(|ns| !is_pause(ns)).count() as i64;
    let gap_ns = (stage.between_ns - pauses).max(0);
    if counted == 0 || percent(gap_ns, period_ns - pauses) < LEAST_GAP_PCT {
        return;
    }
    let title = format!(
        "the GPU runs nothing for {} between the steps of {}: {} a step, of {} at the median",
        ms(gap_ns),
        stage.name,
        ms(gap_ns / counted),
        ms(steps.p50_ns)
    );
    let setting = match serving.settings {
        Some(Settings::Vllm) => {
            "prepare the next step while the GPU runs this one (--async-scheduling, where it is not the default)"
        }
        Some(Settings::Sglang) => {
            "prepare the next step while the GPU runs this one (the default; do not pass --disable-overlap-schedule)"
        }
        Some(Settings::TensorRtLlm) => {
            "prepare the next step while the GPU runs this one (the default; do not set disable_overlap_scheduler)"
        }
        None => "prepare the next step while the GPU runs this one, where the engine can",
    };
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
