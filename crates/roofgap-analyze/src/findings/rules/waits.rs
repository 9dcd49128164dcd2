//! The CPU waits for the GPU, or copies, in the middle of the work.

use super::lines;
use crate::findings::rule::{Cause, Find, Rows, Rule, View, percent};
use crate::numbers::{count, time, times};
use crate::result::{Finding, StageKind};
use crate::timeline::IdleCause;
use crate::verdict::LEAST_GAP_PCT;

/// Up to so many waits in a step are the one that ends it.
const ONCE_A_STEP: f64 = 1.5;

/// Calls that wait for the device inside a step (or inside a stage without steps), with the idle time they cause: while the
/// thread waits, and after, until it has launched again what it could have launched meanwhile.
fn synchronisation(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (evidence, idle) = (view.evidence?, stage.idle?);
    let syncs = &evidence.syncs;
    let gaps_ns = idle.sync_ns + stage.launch_after.sync_ns;
    if syncs.inside == 0 || gaps_ns <= 0 {
        return None;
    }
    // A whole trace has waits that belong to no step; only a loss that leads is told.
    let causes = stage.causes().unwrap_or_default();
    let least = if stage.steps.is_some() { LEAST_EXPOSED_PCT } else { LEAST_GAP_PCT };
    let leads = gaps_ns >= causes.launch_ns.max(causes.copy_ns).max(causes.other_ns)
        && percent(stage.each_device(gaps_ns), stage.elapsed_ns()) >= least;
    if stage.kind == StageKind::Whole && !leads {
        return None;
    }
    let steps = stage.steps.as_ref().map_or(0, |steps| steps.count);
    let per_step = (steps > 0).then(|| syncs.inside as f64 / steps as f64);
    let call = syncs.most_common.as_deref().unwrap_or("a synchronising call");
    let draft = view
        .saves_on_devices(&[
            ("idle time inside synchronising calls", idle.sync_ns),
            ("idle time after them until the next launch", stage.launch_after.sync_ns),
        ])
        .with("sync_calls", syncs.inside)
        .with("sync_call_ns", syncs.ns)
        .with("idle_sync_ns", idle.sync_ns)
        .with("idle_after_sync_ns", stage.launch_after.sync_ns)
        .with("most_common_call", call)
        .with_number("sync_calls_per_step", per_step);
    let rate = per_step.map_or_else(String::new, |per_step| format!(" ({per_step:.1} a step)"));
    let title = format!(
        "{} waits for the device {} inside its work{rate}, which leaves the GPU idle for {}{}",
        stage.spoken(),
        times(syncs.inside),
        time(stage.each_device(gaps_ns)),
        lines::waiting_line(stage)
    );
    let action = if per_step.is_some_and(|count| count <= ONCE_A_STEP) {
        let each = gaps_ns as f64 / syncs.inside as f64;
        let early = match view.program.engine {
            Some(engine) if engine.uses_graphs => engine.advice.overlap,
            _ if view.program.generates => {
                "launch the next step before the token of the last one is read (asynchronous scheduling, sampling on the device)"
            }
            _ => {
                "launch the next step before the result of the last one is read, or read it once in several steps"
            }
        };
        format!(
            "A step ends in one wait ({call}), and the GPU is idle for {} until the CPU has launched again. Do not wait: {early}; or \
             shorten what the CPU does between the wait and the launch.",
            time(each as i64)
        )
    } else {
        format!(
            "Find what reads a value back ({call}): .item(), .cpu(), .tolist(), nonzero, boolean indexing{}. Keep the value on the \
             device, or read it once in several steps.",
            if view.program.generates {
                ", or a stopping test for each token"
            } else {
                ", or a loss that is printed"
            }
        )
    };
    draft.finish(title, action)
}

/// Share of the stage's time, in %, from which on pinned copies that nothing hides, and waits in the steps of a whole trace, are worth a
/// line.
const LEAST_EXPOSED_PCT: f64 = 10.0;

/// Copies between host and device inside the stage: pageable ones block the CPU, one for each token adds up, and large ones take
/// time of their own.
fn host_copies(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (evidence, idle) = (view.evidence?, stage.idle?);
    let copies = evidence.host_copies;
    let steps = stage.steps.as_ref().map_or(0, |steps| steps.count);
    let each_step = steps > 0 && copies.count >= steps;
    let exposed_pct = percent(stage.each_device(copies.exposed_ns), stage.elapsed_ns());
    if copies.pageable == 0 && !each_step && exposed_pct < LEAST_EXPOSED_PCT {
        return None;
    }
    let bound = copies.exposed_ns + idle.copy_ns + stage.launch_after.copy_ns;
    let draft = view
        .saves_on_devices(&[
            ("copies that no kernel overlaps", copies.exposed_ns),
            ("idle time inside copy calls", idle.copy_ns),
            ("idle time after them until the next launch", stage.launch_after.copy_ns),
        ])
        .with("host_copies", copies.count)
        .with("pageable_copies", copies.pageable)
        .with("bytes", copies.bytes)
        .with("copy_ns", copies.ns)
        .with("exposed_copy_ns", copies.exposed_ns)
        .with("copies_to_host", copies.to_host)
        .with("idle_copy_ns", idle.copy_ns)
        .with("idle_after_copy_ns", stage.launch_after.copy_ns)
        .with_number("copies_per_step", (steps > 0).then(|| copies.count as f64 / steps as f64));
    let pageable = match copies.pageable {
        0 => String::new(),
        1 if copies.count == 1 => ", from or to pageable memory".to_owned(),
        all if all == copies.count => ", all of them from or to pageable memory".to_owned(),
        some => format!(", {} of them from or to pageable memory", count(some)),
    };
    let title = format!(
        "{} copies {} between host and device{pageable}; that and the gaps it leaves take {}",
        stage.spoken(),
        times(copies.count),
        time(stage.each_device(bound))
    );
    let read_back = 2 * copies.to_host > copies.count;
    let mostly_pageable = 3 * copies.pageable >= copies.count;
    let action = match (read_back, mostly_pageable) {
        (true, true) => {
            "Find what reads values back (.item(), .cpu(), .tolist(), printing): such a copy holds the CPU until the GPU has \
             caught up. Keep the values on the device, or read them late, through pinned memory with non_blocking=True."
        }
        (true, false) => "Read back less often: several results at once, or while the next step runs.",
        (false, true) => {
            "Make the tensors on the device, or stage them in pinned memory and copy with non_blocking=True; a pageable copy \
             holds the CPU until it is done. Weights that are copied in each step belong on the device."
        }
        (false, false) => {
            "Move the copies out of the step: build masks and positions on the device, keep weights there, and copy ahead on a \
             stream of their own, while kernels run."
        }
    };
    draft.finish(title, action)
}

pub const SYNC_IN_STEP: Rule = Rule {
    find: Find::One(synchronisation),
    cause: Cause::Waits,
    rows: Rows::Gaps(IdleCause::Sync),
    id: "sync-in-step",
    remedy: "fewer waits for the device",
    meaning: "The CPU waits for the GPU in the middle of the work. While it waits it launches nothing, so that the \
              GPU runs dry and stays idle until the next launch arrives.",
    computed: "Idle time while the launching thread was inside a synchronising call, and after it until the next \
              launch. The bound is the sum of both.",
    fix: "Keep values on the device: .item(), .cpu(), .tolist(), nonzero, boolean indexing and printing wait. \
              Test for the end of generation once in several tokens, sample on the device, or schedule the next \
              step before the last token is read.",
    disproof: "The GPU stays as idle when the calls are left out; set_sync_debug_mode names the lines that wait.",
    links: &["https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html"],
    ..Rule::BASE
};

pub const HOST_COPIES: Rule = Rule {
    find: Find::One(host_copies),
    cause: Cause::Copies,
    rows: Rows::Gaps(IdleCause::Copy),
    id: "host-copies",
    remedy: "fewer copies between host and device",
    meaning: "Data moves between host and device inside the stage. A copy from or to pageable memory also holds \
              the CPU until it is done.",
    computed: "Time of the copies that no kernel overlaps, idle time inside copy calls, and idle time after them \
              until the next launch. The bound is the sum.",
    fix: "Create tensors on the device, keep weights and masks there, and stage what must move in pinned \
              memory with non_blocking=True, on a stream of its own.",
    disproof: "The stage takes as long with the data on the device already.",
    links: &["https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html"],
    ..Rule::BASE
};
