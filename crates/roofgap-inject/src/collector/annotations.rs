//! Annotations of the program: ranges and marks. A range that is a step may turn the recording of GPU work on or off.

use std::sync::atomic::Ordering;

use super::thread::{ROOM_FOR_POPS, ThreadRecorder, with};
use super::{now, windows};
use roofgap_wire::{EventKind, Message, NvtxEnd, NvtxEvent, NvtxPop, WindowCause};

/// Records the begin of a push/pop range.
pub fn push(event: &NvtxEvent<'_>) {
    with(|thread| {
        enter_step(thread, event);
        let local = thread.local;
        if local.is_behind(event.domain) || !record(thread, EventKind::Push, 0, event) {
            local.shift_behind(event.domain, 1);
        }
    });
}

/// Follows the steps of the program, and records this one or not as the duty cycle says.
fn enter_step(thread: &ThreadRecorder<'_>, event: &NvtxEvent<'_>) {
    let (session, local) = (thread.session, thread.local);
    let cycle = session.cycle.as_ref();
    let is_watched = cycle.is_some() || session.options.control.is_some() && session.switch.is_armed();
    if !is_watched && !local.step.is_open() {
        return;
    }
    let counts = || is_watched && cycle.is_none_or(|cycle| cycle.owns(local.tid.get(), now()));
    let Some(kind) = local.step.enter(event.domain, &event.message, counts) else { return };
    let is_recorded = match cycle {
        Some(cycle) => cycle.turn(kind),
        None => Some(true),
    };
    if let Some(on) = is_recorded {
        session.steps.fetch_add(1, Ordering::Relaxed);
        if cycle.is_some() {
            // A refused change leaves the state as it is; the next step tries again.
            let _ = windows::set(session, on, WindowCause::Steps);
        }
    }
    local.step_begun.set(session.step_log.begin(kind, &event.message));
}

/// Records the end of a push/pop range.
pub fn pop(domain: u32) {
    with(|thread| {
        if thread.local.step.leave(domain) {
            thread.session.step_log.end(thread.local.step_begun.get());
        }
        if thread.local.shift_behind(domain, -1) > 0 {
            return;
        }
        let pop = NvtxPop { tid: thread.local.tid.get(), domain, at: now() };
        thread.put(&pop.encode_head(), &[], 0);
    });
}

/// Records the begin of a start/end range; returns its id, 0 when nothing is recorded.
pub fn start(event: &NvtxEvent<'_>) -> u64 {
    with(|thread| {
        let count = thread.local.ranges.get().wrapping_add(1);
        thread.local.ranges.set(count);
        // Unique without asking anybody: no two threads at one time have the same number.
        let range = u64::from(thread.local.tid.get()) << 32 | u64::from(count);
        record(thread, EventKind::Start, range, event);
        range
    })
    .unwrap_or(0)
}

/// Records the end of a start/end range, on any thread.
pub fn end(range: u64) {
    with(|thread| {
        let end = NvtxEnd { tid: thread.local.tid.get(), range, at: now() };
        thread.put(&end.encode_head(), &[], 0);
    });
}

/// Records a mark.
pub fn mark(event: &NvtxEvent<'_>) {
    with(|thread| record(thread, EventKind::Mark, 0, event));
}

/// Records an event with its thread and time. Returns false if it did not fit.
fn record(thread: &ThreadRecorder<'_>, kind: EventKind, range: u64, event: &NvtxEvent<'_>) -> bool {
    let text = match event.message {
        Message::Inline(text) => text.0,
        _ => &[],
    };
    let event = NvtxEvent { kind, tid: thread.local.tid.get(), at: now(), range, ..*event };
    thread.put(&event.encode_head(), text, ROOM_FOR_POPS)
}
