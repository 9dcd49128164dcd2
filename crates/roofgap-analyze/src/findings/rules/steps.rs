//! A few steps much slower than the rest.

use crate::findings::rule::{Cause, Find, Rows, Rule, View};
use crate::numbers::time;
use crate::result::Finding;

/// Fewer steps have no tail.
const LEAST_STEPS: usize = 8;
/// A step of the tail is this many times the median.
const TAIL: i64 = 2;

/// Steps that took more than twice the median. The bound is what they took beyond it.
fn long_tail(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let steps = stage.steps.as_ref().filter(|s| s.each_ns.len() >= LEAST_STEPS && s.p50_ns > 0)?;
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
    let &(worst, worst_ns) = slow.iter().max_by_key(|(_, ns)| *ns)?;
    let slow_ns: i64 = slow.iter().map(|(_, ns)| *ns).sum();
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
    view.saves(&[("slow steps", slow_ns), ("at the median", -steps.p50_ns * slow.len() as i64)])
        .with("steps", steps.count)
        .with("slow_steps", slow.len())
        .with("median_ns", steps.p50_ns)
        .with("p99_ns", steps.p99_ns)
        .with("slowest_ns", worst_ns)
        .with("slowest_step", worst + 1)
        .finish(title, action)
}

pub const STEP_TAIL: Rule = Rule {
    find: Find::One(long_tail),
    cause: Cause::Steps,
    rows: Rows::Steps,
    id: "step-tail",
    remedy: "steps without a tail",
    meaning: "A few steps take more than twice the median. They are what users see as a stall.",
    computed: "Of at least eight steps, those above twice the median. The bound is their time beyond the median.",
    fix: "Look at the named steps in the timeline: allocation, growth of the cache, recompilation, a new \
              graph, garbage collection, another process.",
    disproof: "The slow steps did more work than the others: more tokens, a larger batch, longer contexts.",
    ..Rule::BASE
};
