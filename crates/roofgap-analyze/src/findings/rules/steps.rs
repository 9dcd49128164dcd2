//! A few steps much slower than the rest.

use crate::findings::builder::FindingBuilder;
use crate::findings::{Explanation, View};
use crate::numbers::time;
use crate::result::Finding;

/// Fewer steps have no tail.
const LEAST_STEPS: usize = 8;
/// A step of the tail is this many times the median.
const TAIL: i64 = 2;

/// Steps that took more than twice the median. The bound is what they took beyond it.
pub fn long_tail(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let Some(steps) = stage.steps.as_ref().filter(|s| s.each_ns.len() >= LEAST_STEPS && s.p50_ns > 0) else {
        return;
    };
    // A first step that had to wait its turn behind an earlier stage says nothing of the steps.
    let queued_ns = stage.each_device(stage.queued_ns);
    let behind = |(at, ns): &(usize, i64)| *at == 0 && queued_ns.saturating_mul(2) > ns - steps.p50_ns;
    let slow: Vec<(usize, i64)> = steps
        .each_ns
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, ns)| *ns > TAIL * steps.p50_ns)
        .filter(|step| !behind(step))
        .collect();
    let Some(&(worst, worst_ns)) = slow.iter().max_by_key(|(_, ns)| *ns) else {
        return;
    };
    let beyond: i64 = slow.iter().map(|(_, ns)| ns - steps.p50_ns).sum();
    let title = format!(
        "{} of {} steps of {} took more than twice the median of {}; the slowest {}",
        slow.len(),
        steps.count,
        stage.spoken(),
        time(steps.p50_ns),
        time(worst_ns)
    );
    let action = format!(
        "Look at step {} in the timeline: growth of the cache or an allocation, recompilation or a new graph, garbage collection, \
         another process.{}",
        worst + 1,
        if worst == 0 { " It is the first, so a longer warm-up may be all it needs." } else { "" }
    );
    FindingBuilder::new("step-tail", stage, beyond)
        .with("steps", steps.count)
        .with("slow_steps", slow.len())
        .with("median_ns", steps.p50_ns)
        .with("p99_ns", steps.p99_ns)
        .with("slowest_ns", worst_ns)
        .with("slowest_step", worst + 1)
        .finish(title, action, findings);
}

/// Explains `step-tail`.
pub const STEP_TAIL: Explanation = Explanation {
    id: "step-tail",
    remedy: "steps without a tail",
    meaning: "A few steps take more than twice the median. They are what users see as a stall.",
    computed: "Of at least eight steps, those above twice the median. The bound is their time beyond the median.",
    fix: "Look at the named steps in the timeline: allocation, growth of the cache, recompilation, a new \
              graph, garbage collection, another process.",
    links: &[],
};
