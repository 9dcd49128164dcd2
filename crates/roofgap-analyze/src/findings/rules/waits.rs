//! The CPU waits for the GPU, or copies, in the middle of the work.

use crate::analysis::Finding;
use crate::findings::View;
use crate::findings::draft::{Draft, ms};

/// Calls that wait for the device inside a step (or inside a stage without steps), with the idle time they cause.
pub(in crate::findings) fn synchronisation(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let (Some(evidence), Some(idle)) = (view.evidence, stage.idle) else {
        return;
    };
    let syncs = &evidence.syncs;
    if syncs.inside == 0 || idle.sync_ns <= 0 {
        return;
    }
    let steps = stage.steps.as_ref().map_or(0, |steps| steps.count);
    let per_step = if steps > 0 {
        Some(syncs.inside as f64 / steps as f64)
    } else {
        None
    };
    let call = syncs.most_common.as_deref().unwrap_or("a synchronising call");
    let mut draft = Draft::new("sync-in-step", stage, idle.sync_ns)
        .with("sync_calls", syncs.inside)
        .with("sync_call_ns", syncs.ns)
        .with("idle_sync_ns", idle.sync_ns)
        .with("most_common_call", call);
    let mut rate = String::new();
    if let Some(per_step) = per_step {
        draft = draft.with_number("sync_calls_per_step", per_step);
        rate = format!(" ({per_step:.1} a step)");
    }
    let title = format!(
        "{} waits for the device {} times inside its work{rate}; the GPU is idle {} meanwhile",
        stage.name,
        syncs.inside,
        ms(idle.sync_ns)
    );
    let action = format!(
        "Find what reads a value back ({call}): .item(), .cpu(), .tolist(), nonzero, boolean indexing, or a stopping test for \
         each token. Keep the value on the device, or test it once in several tokens on a side stream."
    );
    draft.say(title, action, findings);
}

/// Copies between host and device inside the stage: pageable ones block the CPU, and one for each token adds up.
pub(in crate::findings) fn host_copies(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let (Some(evidence), Some(idle)) = (view.evidence, stage.idle) else {
        return;
    };
    let copies = evidence.host_copies;
    let steps = stage.steps.as_ref().map_or(0, |steps| steps.count);
    let each_step = steps > 0 && copies.count >= steps;
    if copies.pageable == 0 && !each_step {
        return;
    }
    let bound = copies.exposed_ns + idle.copy_ns;
    let mut draft = Draft::new("host-copies", stage, bound)
        .with("host_copies", copies.count)
        .with("pageable_copies", copies.pageable)
        .with("bytes", copies.bytes)
        .with("copy_ns", copies.ns)
        .with("exposed_copy_ns", copies.exposed_ns)
        .with("idle_copy_ns", idle.copy_ns);
    if steps > 0 {
        draft = draft.with_number("copies_per_step", copies.count as f64 / steps as f64);
    }
    let title = format!(
        "{} copies between host and device {} times, {} of them from or to pageable memory",
        stage.name, copies.count, copies.pageable
    );
    let action = if copies.pageable > 0 {
        "Make the tensors on the device, or stage them in pinned memory and copy with non_blocking=True; a pageable copy holds \
         the CPU until it is done."
    } else {
        "Move the copies out of the step: build masks and positions on the device, and read tokens back in batches."
    };
    draft.say(title, action.to_owned(), findings);
}
