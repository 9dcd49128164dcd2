//! A few steps much slower than the rest.

use crate::findings::rule::{Cause, Find, FindingBuilder, Rows, Rule, View};
use crate::numbers::{count, time};
use crate::result::{Finding, SteadyUnit};

/// Fewer steps have no tail.
const LEAST_STEPS: u64 = 8;

/// Steps that took more than twice what their tokens or kernels explain. The bound is what they took beyond that.
fn long_tail(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let steady = stage.steady.as_ref().filter(|steady| steady.count >= LEAST_STEPS)?;
    let tail = steady.tail?;
    let unit = match steady.unit {
        SteadyUnit::Step => "step",
        SteadyUnit::Instance => "instance",
    };
    let title = format!(
        "{} of {} {unit}s of {} took more than twice the time that their work explains; the slowest {} for {}",
        count(tail.units),
        count(steady.count),
        stage.spoken(),
        time(tail.slowest_ns),
        time(tail.expected_ns)
    );
    let action = format!(
        "Look at {unit} {} in the timeline: growth of the cache or an allocation, recompilation or a new graph, garbage collection, \
         another process.{}",
        tail.slowest,
        if tail.slowest == 1 { " It is the first, so a longer warm-up may be all it needs." } else { "" }
    );
    let slowest = (steady.unit == SteadyUnit::Step).then_some(tail.slowest);
    // The slow ones may be left out of the stage that other rules see.
    let whole = view.inputs.analysis.stages.iter().find(|whole| whole.name == stage.name).unwrap_or(stage);
    let beyond = ("time beyond what the work of the slow ones explains", tail.beyond_ns);
    FindingBuilder::new(view.rule, whole, view.roofs, &[beyond])
        .with("steps", steady.count)
        .with("slow_steps", tail.units)
        .with("median_ns", steady.median_ns)
        .with("slowest_ns", tail.slowest_ns)
        .with("expected_ns", tail.expected_ns)
        .with("slowest_step", slowest)
        .finish(title, action)
}

pub const STEP_TAIL: Rule = Rule {
    find: Find::One(long_tail),
    cause: Cause::Steps,
    rows: Rows::Steps,
    id: "step-tail",
    remedy: "steps without a tail",
    meaning: "A few steps take more than twice the time that their tokens, batch or kernels explain. They are what users see as a stall.",
    computed: "Of at least eight steps, those above twice the time that steps of their size take. The bound is their time beyond it.",
    fix: "Look at the named steps in the timeline: allocation, growth of the cache, recompilation, a new \
              graph, garbage collection, another process.",
    disproof: "The slow steps did more work than the others in a way that the capture does not show, such as longer contexts.",
    ..Rule::BASE
};
