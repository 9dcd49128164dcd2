//! Annotations of the program: ranges and marks. A range that is a step may turn the recording of GPU work on or off.
//!
//! The names of domains, registered strings, categories and threads are kept for the life of the process, in a lock-free list that only
//! grows. The writer reads new entries. A forked child with its own recording reads all of it, because handles from before the fork are
//! still in use.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::thread::{ROOM_FOR_POPS, ThreadRecorder, with};
use super::{duty, now, windows};
use roofgap_wire::{
    CallName, Category, Domain, EventKind, Message, NvtxEnd, NvtxEvent, NvtxPop, Record, Registered, Text,
    ThreadName, WindowCause,
};

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

static HEAD: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());
static NEXT_DOMAIN: AtomicU32 = AtomicU32::new(1);
static NEXT_STRING: AtomicU32 = AtomicU32::new(1);

/// Owner of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    Domain { id: u32 },
    String { id: u32, domain: u32 },
    Category { id: u32, domain: u32 },
    Thread { tid: u32 },
    Call { api: u32 },
}

struct Node {
    named: Named,
    text: Box<[u8]>,
    next: *const Node,
}

/// Adds a domain and returns its id.
pub fn add_domain(name: &[u8]) -> u32 {
    let id = NEXT_DOMAIN.fetch_add(1, Ordering::Relaxed);
    add_name(Named::Domain { id }, name);
    id
}

/// Adds a registered string and returns its id.
pub fn add_string(domain: u32, text: &[u8]) -> u32 {
    let id = NEXT_STRING.fetch_add(1, Ordering::Relaxed);
    duty::register(id, text);
    add_name(Named::String { id, domain }, text);
    id
}

/// Adds a name.
pub fn add_name(named: Named, text: &[u8]) {
    let node = Box::leak(Box::new(Node { named, text: text.into(), next: ptr::null() }));
    let mut head = HEAD.load(Ordering::Relaxed);
    loop {
        node.next = head;
        match HEAD.compare_exchange_weak(head, node, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Position of a reader in the list.
pub struct Seen(*const Node);

// SAFETY: nodes are never changed after they are in the list, and never freed.
unsafe impl Send for Seen {}

impl Seen {
    /// Creates a position before all names.
    pub fn nothing() -> Self {
        Self(ptr::null())
    }

    /// Calls `take` with each name added since the last call.
    pub fn each_new(&mut self, mut take: impl FnMut(Record<'_>)) {
        let head = HEAD.load(Ordering::Acquire).cast_const();
        let mut node = head;
        while !node.is_null() && node != self.0 {
            // SAFETY: in the list, so complete and never freed.
            let entry = unsafe { &*node };
            let text = Text(&entry.text);
            take(match entry.named {
                Named::Domain { id } => Record::Domain(Domain { id, name: text }),
                Named::String { id, domain } => Record::Registered(Registered { id, domain, text }),
                Named::Category { id, domain } => Record::Category(Category { domain, id, name: text }),
                Named::Thread { tid } => Record::ThreadName(ThreadName { tid, given: 1, name: text }),
                Named::Call { api } => Record::CallName(CallName { api, name: text }),
            });
            node = entry.next;
        }
        self.0 = head;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_seen_once_by_each_reader() {
        let mut seen = Seen::nothing();
        seen.each_new(|_| {});
        let domain = add_domain(b"names-test");
        let string = add_string(domain, b"names-test-string");
        let count = |seen: &mut Seen| {
            let mut texts = Vec::new();
            seen.each_new(|record| match record {
                Record::Domain(entry) if entry.id == domain => texts.push(entry.name.to_str().into_owned()),
                Record::Registered(entry) if entry.id == string => {
                    texts.push(entry.text.to_str().into_owned())
                }
                _ => {}
            });
            texts.sort();
            texts
        };
        assert_eq!(count(&mut seen), ["names-test", "names-test-string"]);
        assert!(count(&mut seen).is_empty());
        assert_eq!(count(&mut Seen::nothing()).len(), 2);
    }
}
