//! The CPU works before the first or after the last GPU operation.

use super::lines;
use crate::findings::rule::{Cause, Find, Rule, View, percent};
use crate::numbers::time;
use crate::result::{Finding, StageKind};
use crate::verdict::LEAST_GAP_PCT;

/// A stage whose GPU has nothing to do before the first and after the last operation of its instances for much of its time.
fn outside(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let known_ns = stage.each_device(stage.before.data_loading_ns + stage.before.cold_ns);
    let (edges_ns, first_ns) =
        (stage.outside().idle_ns - known_ns, stage.each_device(stage.idle_detail.host_first_ns));
    let pct = percent(edges_ns.max(0) + first_ns, stage.elapsed_ns());
    // The time between the steps of an engine has a rule of its own.
    if stage.period_ns.is_some() || !stage.computes() || pct < LEAST_GAP_PCT {
        return None;
    }
    let draft = view.saves(&[
        ("idle time at the edges of the stage", edges_ns.max(0)),
        ("idle time before the first operation of a step", first_ns),
    ]);
    let title = format!(
        "the GPU has nothing to do for {} while the CPU works before the first and after the last operation of {}{}, {pct:.0} % of its \
         time{}",
        time(draft.bound_ns()),
        if first_ns > edges_ns { "a step of " } else { "" },
        stage.spoken(),
        lines::line(stage)
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
    draft
        .with("outside_idle_ns", edges_ns.max(0))
        .with("before_steps_ns", (first_ns > 0).then_some(first_ns))
        .with("instances", stage.instances)
        .with("wall_ns", stage.wall_ns)
        .finish(title, action)
}

/// A stage that was recorded cold: the CPU loads code, instantiates a graph or launches for the first time, and nothing warm is left.
fn cold(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (inside_ns, before_ns) = (stage.idle_detail.cold_ns, stage.before.cold_ns);
    let pct = percent(stage.each_device(inside_ns + before_ns), stage.elapsed_ns());
    if pct < LEAST_GAP_PCT {
        return None;
    }
    let draft = view.saves_on_devices(&[
        ("idle time while the CPU loads code or a graph", inside_ns),
        ("the same before the first operation", before_ns),
    ]);
    let causes = stage.cold_start.iter().flat_map(|cold| &cold.causes);
    let call = causes.max_by_key(|cause| cause.ns).map(|cause| cause.call.clone());
    let title = format!(
        "{} was recorded cold: the GPU is idle {} ({pct:.0} % of its time) while the CPU {}",
        stage.spoken(),
        time(draft.bound_ns()),
        call.as_ref()
            .map_or_else(|| "loads code".to_owned(), |call| format!("is in {call} and what leads to it"))
    );
    let action = "Record it warm: run it once or twice before, with the same shapes, and let the capture begin after that. If users wait \
                  for this time, warm up at the start: compile and load kernels ahead (a cache of compiled kernels, CUDA_MODULE_LOADING=EAGER), \
                  and capture graphs before the first request.";
    draft
        .with("cold_ns", inside_ns + before_ns)
        .with("call", call)
        .with("wall_ns", stage.wall_ns)
        .finish(title, action)
}

pub const COLD_START: Rule = Rule {
    find: Find::One(cold),
    cause: Cause::Steps,
    id: "cold-start",
    remedy: "a warm-up",
    meaning: "The stage ran for the first time: code was loaded or compiled, a graph was instantiated, or the first launch set up the \
              device, and no warm run of it was recorded.",
    computed: "Idle time in which the launching thread loads modules, instantiates graphs or is in a launch call of more than a \
              millisecond, from 20 % of the stage on. Cold instances beside warm ones are left out of the stage instead.",
    fix: "Warm up before recording. For users: load and compile ahead, keep a cache of compiled kernels, capture graphs at the start.",
    disproof: "A second run in the same process takes as long.",
    ..Rule::BASE
};

pub const OUTSIDE: Rule = Rule {
    find: Find::One(outside),
    cause: Cause::Host,
    id: "host-outside",
    remedy: "less CPU work around the GPU work",
    meaning: "The CPU works for a long time before the first GPU operation of a stage, or after the last, and the GPU waits.",
    computed: "Time of the stage from its start to its first GPU operation and from its last one to its end, and of a step to its first \
              operation, in which the GPU runs nothing, without data loading and loading of code, from 20 % of its time on. The bound is \
              that time.",
    fix: "Prepare the next inputs while the GPU works, and handle results on another thread. A CPU profile of the thread shows what \
          it does.",
    disproof: "The range of the stage encloses work that has nothing to do with it, such as a pause for the next request.",
    ..Rule::BASE
};
