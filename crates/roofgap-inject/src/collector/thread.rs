//! Per-thread state: the ring of a thread, and the records of calls and graph nodes that CUPTI reports on it.

use std::cell::Cell;
use std::ptr;

use super::duty::OpenStep;
use super::now;
use super::ring::{Pushed, Ring};
use super::session::{self, Counted, Session};
use roofgap_wire::{Call, GraphNode, RecordHead, SyncCall, Thread};

/// Bytes that pushes leave free for the pops of open ranges.
pub const ROOM_FOR_POPS: usize = 8 << 10;

/// Largest number of domains with dropped pushes per thread.
const BEHIND: usize = 4;

thread_local! {
    static LOCAL: Local = const { Local::new() };
}

/// State of a thread.
pub struct Local {
    session: Cell<*const Session>,
    ring: Cell<Option<&'static Ring>>,
    pub tid: Cell<u32>,
    /// Low half of the pthread handle, which CUPTI uses as thread id.
    handle: Cell<u32>,
    /// Correlation id of the current runtime call; 0 for none.
    runtime: Cell<u32>,
    /// Number of start/end ranges so far.
    pub ranges: Cell<u32>,
    pub step: OpenStep,
    /// Begin and work of the open step.
    pub step_begun: Cell<(u64, u64)>,
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
            step: OpenStep::none(),
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
    pub fn shift_behind(&self, domain: u32, step: i32) -> u32 {
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

    pub fn is_behind(&self, domain: u32) -> bool {
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

/// This thread in its recording.
pub struct ThreadRecorder<'a> {
    pub session: &'static Session,
    pub local: &'a Local,
    ring: &'a Ring,
}

impl ThreadRecorder<'_> {
    /// Puts an event and its text into the ring of this thread, and leaves at least `spare` bytes free. Returns false if it did not fit.
    pub fn put(&self, head: &RecordHead, text: &[u8], spare: usize) -> bool {
        let pushed = self.ring.push(head.as_bytes(), text, spare);
        if pushed == Pushed::Full {
            self.session.count(Counted::RingFull);
        }
        if pushed != Pushed::In {
            self.session.wake_writer();
        }
        pushed != Pushed::Full
    }
}

/// Runs `body` with this thread's ring, unless nothing is recorded, the thread is ending, or a signal handler
/// interrupted another event.
pub fn with<R>(body: impl FnOnce(&ThreadRecorder<'_>) -> R) -> Option<R> {
    let session = session::current()?;
    let record = |local: &Local| {
        if local.busy.replace(true) {
            session.count(Counted::Reentered);
            return None;
        }
        let result = match local.ring(session) {
            Some(ring) => Some(body(&ThreadRecorder { session, local, ring })),
            None => {
                session.count(Counted::NoRing);
                None
            }
        };
        local.busy.set(false);
        result
    };
    LOCAL.try_with(record).ok().flatten()
}

/// Registers this thread, even if it makes no annotations.
pub fn register() {
    with(|_| ());
}

/// Notes the begin of a runtime call.
pub fn enter_runtime(correlation: u32) {
    let _ = LOCAL.try_with(|local| local.runtime.set(correlation));
}

/// Records a call that returns, and its arguments. Driver calls that the runtime makes for the same launch are left out. `call`: its
/// number, result and start.
pub fn leave(runtime: bool, correlation: u32, call: Option<(u32, u32, u64)>, sync: Option<SyncCall>) {
    with(|thread| {
        if runtime {
            thread.local.runtime.set(0);
        } else if thread.local.runtime.get() == correlation {
            return;
        }
        if let Some((api, result, start)) = call {
            let handle = thread.local.handle.get();
            let call = Call { api, thread: handle, correlation, result, start, end: now() };
            thread.put(&call.encode_head(), &[], ROOM_FOR_POPS);
        }
        if let Some(sync) = sync {
            thread.put(&sync.encode_head(), &[], ROOM_FOR_POPS);
        }
    });
}

/// Records a node of a graph that is created, or cloned from the node `original`.
pub fn graph_node(node: u64, original: u64) {
    with(|thread| {
        let record = GraphNode { tid: thread.local.tid.get(), node, original };
        thread.put(&record.encode_head(), &[], ROOM_FOR_POPS);
    });
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
