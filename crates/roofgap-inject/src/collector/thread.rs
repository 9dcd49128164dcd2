//! Per-thread state: the ring of a thread and its open ranges.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering;

use super::duty::{self, Cycle, OpenStep};
use super::now;
use super::ring::{Pushed, Ring};
use super::session::{self, Session};
use roofgap_wire::{Call, EventKind, GraphNode, Message, NvtxEnd, NvtxEvent, NvtxPop, Thread, WindowCause};

/// Bytes that pushes leave free for the pops of open ranges.
const ROOM_FOR_POPS: usize = 8 << 10;

/// Largest number of domains with dropped pushes per thread.
const BEHIND: usize = 4;

thread_local! {
    static LOCAL: Local = const { Local::new() };
}

/// State of a thread.
struct Local {
    session: Cell<*const Session>,
    ring: Cell<Option<&'static Ring>>,
    tid: Cell<u32>,
    /// Low half of the pthread handle, which CUPTI uses as thread id.
    handle: Cell<u32>,
    /// Correlation id of the current runtime call; 0 for none.
    runtime: Cell<u32>,
    ranges: Cell<u32>,
    step: OpenStep,
    /// Begin and work of the open step.
    step_begun: Cell<(u64, u64)>,
    busy: Cell<bool>,
    /// Domains with dropped innermost pushes, and their number. Their pops are dropped too.
    behind: Cell<[(u32, u32); BEHIND]>,
}

impl Local {
    const fn new() -> Self {
        Self {
            session: Cell::new(ptr::null()),
            ring: Cell::new(None),
            tid: Cell::new(0),
            handle: Cell::new(0),
            runtime: Cell::new(0),
            ranges: Cell::new(0),
            step: Cell::new(None),
            step_begun: Cell::new((0, 0)),
            busy: Cell::new(false),
            behind: Cell::new([(0, 0); BEHIND]),
        }
    }

    /// Returns the ring of this thread in `session`, and claims it on first use.
    fn ring(&self, session: &'static Session) -> Option<&'static Ring> {
        if ptr::eq(self.session.get(), session) {
            return self.ring.get();
        }
        self.session.set(session);
        self.behind.set([(0, 0); BEHIND]);
        let ring = session.rings.claim();
        self.ring.set(ring);
        // The system call, because `libc::gettid` needs glibc 2.30.
        // SAFETY: both only answer.
        let (tid, handle) =
            unsafe { (libc::syscall(libc::SYS_gettid) as u32, libc::pthread_self() as usize as u32) };
        self.tid.set(tid);
        self.handle.set(handle);
        if let Some(ring) = ring {
            let thread = Thread { tid, handle, at: now() };
            ring.belongs_to(&thread);
            ring.push(thread.encode_head().as_bytes(), &[], 0);
        }
        ring
    }

    /// Adds `step` to the number of dropped pushes in `domain`; returns the number before.
    fn shift_behind(&self, domain: u32, step: i32) -> u32 {
        let mut behind = self.behind.get();
        let known = behind.iter().position(|entry| entry.1 > 0 && entry.0 == domain);
        let free = || behind.iter().position(|entry| entry.1 == 0).filter(|_| step > 0);
        let Some(entry) = known.or_else(free).and_then(|at| behind.get_mut(at)) else {
            return 0;
        };
        let before = if known.is_some() { entry.1 } else { 0 };
        *entry = (domain, before.saturating_add_signed(step));
        self.behind.set(behind);
        before
    }

    fn is_behind(&self, domain: u32) -> bool {
        self.behind.get().iter().any(|entry| entry.1 > 0 && entry.0 == domain)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            ring.retire();
        }
    }
}

/// Runs `body` with this thread's ring, unless nothing is recorded, the thread is ending, or a signal handler
/// interrupted another event.
fn with<R>(body: impl FnOnce(&'static Session, &Local, &Ring) -> R) -> Option<R> {
    let session = session::current()?;
    LOCAL
        .try_with(|local| {
            if local.busy.replace(true) {
                session.counters.reentered.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            let result = match local.ring(session) {
                Some(ring) => Some(body(session, local, ring)),
                None => {
                    session.counters.no_ring.fetch_add(1, Ordering::Relaxed);
                    None
                }
            };
            local.busy.set(false);
            result
        })
        .ok()
        .flatten()
}

/// Registers this thread, even if it makes no annotations.
pub fn register() {
    with(|_, _, _| ());
}

/// An NVTX event without the fields that the thread supplies.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    pub domain: u32,
    pub category: u32,
    pub payload_kind: u8,
    pub payload: u64,
    pub message: Message<'a>,
}

/// Records the begin of a push/pop range.
pub fn push(event: &Event<'_>) {
    with(|session, local, ring| {
        let is_inside = local.step.get().is_some();
        if let Some(cycle) = &session.cycle {
            if let Some(on) = cycle.push(local.tid.get(), &local.step, event.domain, &event.message) {
                session.steps.fetch_add(1, Ordering::Relaxed);
                // A refused change leaves the state as it is; the next step tries again.
                let _ = session.set(on, WindowCause::Steps);
            }
        } else if session.options.control.is_some() && session.switch.is_armed() {
            duty::count_step(&session.steps, &local.step, event.domain, &event.message);
        }
        if !is_inside && local.step.get().is_some() {
            local.step_begun.set(session.step_log.begin(&event.message));
        }
        if local.is_behind(event.domain) || !write(session, local, ring, EventKind::Push, 0, event) {
            local.shift_behind(event.domain, 1);
        }
    });
}

/// Records the end of a push/pop range.
pub fn pop(domain: u32) {
    with(|session, local, ring| {
        if local.step.get().is_some() {
            Cycle::pop(&local.step, domain);
            if local.step.get().is_none() {
                session.step_log.end(local.step_begun.get());
            }
        }
        if local.shift_behind(domain, -1) > 0 {
            return;
        }
        let pop = NvtxPop { tid: local.tid.get(), domain, at: now() };
        put(session, ring, pop.encode_head().as_bytes(), &[], 0);
    });
}

/// Records the begin of a start/end range; returns its id, 0 when nothing is recorded.
pub fn start(event: &Event<'_>) -> u64 {
    with(|session, local, ring| {
        let count = local.ranges.get().wrapping_add(1);
        local.ranges.set(count);
        // Unique without asking anybody: no two threads at one time have the same number.
        let range = u64::from(local.tid.get()) << 32 | u64::from(count);
        write(session, local, ring, EventKind::Start, range, event);
        range
    })
    .unwrap_or(0)
}

/// Records the end of a start/end range, on any thread.
pub fn end(range: u64) {
    with(|session, local, ring| {
        let end = NvtxEnd { tid: local.tid.get(), range, at: now() };
        put(session, ring, end.encode_head().as_bytes(), &[], 0);
    });
}

/// Notes the begin of a runtime call.
pub fn enter_runtime(correlation: u32) {
    let _ = LOCAL.try_with(|local| local.runtime.set(correlation));
}

/// Records a call that returns. Driver calls that the runtime makes for the same launch are left out.
pub fn leave(runtime: bool, api: u32, correlation: u32, result: u32, start: u64) {
    with(|session, local, ring| {
        if runtime {
            local.runtime.set(0);
        } else if local.runtime.get() == correlation {
            return;
        }
        let call = Call { api, thread: local.handle.get(), correlation, result, start, end: now() };
        put(session, ring, call.encode_head().as_bytes(), &[], ROOM_FOR_POPS);
    });
}

/// Records a node of a graph that is created, or cloned from the node `original`.
pub fn graph_node(node: u64, original: u64) {
    with(|session, local, ring| {
        let tid = local.tid.get();
        let record = GraphNode { tid, node, original };
        put(session, ring, record.encode_head().as_bytes(), &[], ROOM_FOR_POPS);
    });
}

/// Records a mark.
pub fn mark(event: &Event<'_>) {
    with(|session, local, ring| write(session, local, ring, EventKind::Mark, 0, event));
}

fn write(
    session: &Session,
    local: &Local,
    ring: &Ring,
    kind: EventKind,
    range: u64,
    event: &Event<'_>,
) -> bool {
    let text = match event.message {
        Message::Inline(text) => text.0,
        _ => &[],
    };
    let event_record = NvtxEvent {
        kind,
        tid: local.tid.get(),
        domain: event.domain,
        at: now(),
        range,
        category: event.category,
        payload_kind: event.payload_kind,
        payload: event.payload,
        message: event.message,
    };
    put(session, ring, event_record.encode_head().as_bytes(), text, ROOM_FOR_POPS)
}

/// Puts an event into the ring of its thread. Returns false if it did not fit.
fn put(session: &Session, ring: &Ring, first: &[u8], second: &[u8], spare: usize) -> bool {
    let pushed = ring.push(first, second, spare);
    if pushed == Pushed::Full {
        session.counters.ring_full.fetch_add(1, Ordering::Relaxed);
    }
    if pushed != Pushed::In {
        session.wake();
    }
    pushed != Pushed::Full
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_that_did_not_get_in_takes_its_pop_with_it() {
        let local = Local::new();
        local.shift_behind(3, 1);
        local.shift_behind(3, 1);
        local.shift_behind(0, 1);
        assert!(local.is_behind(3) && local.is_behind(0) && !local.is_behind(7));
        assert_eq!(local.shift_behind(3, -1), 2);
        assert_eq!(local.shift_behind(3, -1), 1);
        assert!(!local.is_behind(3));
        assert_eq!(local.shift_behind(3, -1), 0, "this pop is recorded again");
        assert_eq!(local.shift_behind(0, -1), 1);
    }
}
