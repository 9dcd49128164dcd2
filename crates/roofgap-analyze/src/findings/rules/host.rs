//! The CPU works before the first or after the last GPU operation.

use crate::findings::rule::{Cause, Find, Rule, View, percent};
use crate::numbers::time;
use crate::result::{Finding, StageKind};
use crate::verdict::LEAST_GAP_PCT;

/// A stage whose GPU has nothing to do before the first and after the last operation of its instances for much of its time.
fn outside(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let idle_ns = stage.outside().idle_ns;
    let pct = percent(idle_ns, stage.elapsed_ns());
    // The time between the steps of an engine has a rule of its own.
    if stage.period_ns.is_some() || !stage.computes() || pct < LEAST_GAP_PCT {
        return None;
    }
    let title = format!(
        "the GPU has nothing to do for {} before the first and after the last operation of {}, {pct:.0} % of its time",
        time(idle_ns),
        stage.spoken()
    );
    let work = match stage.kind {
        _ if view.program.trains => "reading and preparing the batch, logging, checkpoints",
        StageKind::Prefill => "tokenising, image processing, copying the inputs",
        StageKind::Decode | StageKind::Mixed => "sampling, stopping tests, decoding text, streaming",
        _ => "preparing inputs, reading files, handling results",
    };
    let action = format!(
        "Find what the CPU does there ({work}) in a CPU profile, and take it off the path: prepare the next inputs while the GPU works, \
         and handle results afterwards, on another thread."
    );
    view.saves(&[("idle time at the edges of the stage", idle_ns)])
        .with("outside_idle_ns", idle_ns)
        .with("instances", stage.instances)
        .with("wall_ns", stage.wall_ns)
        .finish(title, action)
}

pub const OUTSIDE: Rule = Rule {
    find: Find::One(outside),
    cause: Cause::Host,
    id: "host-outside",
    remedy: "less CPU work around the GPU work",
    meaning: "The CPU works for a long time before the first GPU operation of a stage, or after the last, and the GPU waits.",
    computed: "Time of the stage from its start to its first GPU operation and from its last one to its end, in which the GPU runs \
              nothing, from 20 % of its time on. The bound is that time.",
    fix: "Prepare the next inputs while the GPU works, and handle results on another thread. A CPU profile of the thread shows what \
          it does.",
    disproof: "The range of the stage encloses work that has nothing to do with it, such as a pause for the next request.",
    ..Rule::BASE
};
