//! The state of the recording of GPU work: on or off, and the edges of the recorded windows.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::now;
use roofgap_wire::{Window, WindowCause};

/// Flushes after a window, until the work that was launched in it has ended.
const FLUSHES_AFTER: u32 = 3;

/// Longest wait for another thread.
const PATIENCE: Duration = Duration::from_millis(20);

/// Reason GPU work cannot be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The program has not started CUDA; recording begins when it does.
    NoCuda,
    /// CUPTI is not available; the capture has the reason.
    NoCupti,
    /// The capture takes no more records: it reached its limit, or the program ends.
    Ended,
    /// Another thread is turning it on or off.
    Busy,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::NoCuda => "the program has not started CUDA; recording begins when it does",
            Self::NoCupti => "CUPTI is not available; the capture has the reason",
            Self::Ended => "the capture has ended",
            Self::Busy => "another thread is turning the recording on or off",
        })
    }
}

/// The switch of a recording.
#[derive(Default)]
pub struct Switch {
    state: Mutex<State>,
    armed: AtomicBool,
    /// True once the capture takes no more records.
    ended: AtomicBool,
    flushes_due: AtomicU32,
    windows: AtomicU32,
    edges: Mutex<Vec<Window>>,
}

/// State that changes with a lock.
#[derive(Default)]
pub struct State {
    /// True if GPU work is to be recorded as soon as there is CUDA.
    pub wanted: bool,
    /// True once the program has started CUDA.
    pub cuda: bool,
    /// Begin of the current window.
    pub since: Option<(Instant, u64)>,
    /// True once an edge was written; until then the capture is one window.
    pub has_edges: bool,
}

impl Switch {
    /// Creates the switch of a recording that begins with GPU work or without.
    pub fn new(armed: bool) -> Self {
        let switch = Self::default();
        let mut state = switch.lock();
        state.wanted = armed;
        if !armed {
            state.has_edges = true;
            switch.edge(false, WindowCause::Begin, now());
        }
        drop(state);
        switch
    }

    /// Waits for another thread that turns the recording on or off.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for another thread that turns the recording on or off, but not for ever: a signal handler may have interrupted it.
    pub fn try_lock(&self) -> Result<MutexGuard<'_, State>, Refused> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.state.try_lock() {
                Ok(state) => return Ok(state),
                Err(TryLockError::Poisoned(state)) => return Ok(state.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() > deadline => return Err(Refused::Busy),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }

    /// Adds the edge of a window.
    pub fn edge(&self, on: bool, cause: WindowCause, at: u64) {
        self.windows.fetch_add(u32::from(on), Ordering::Relaxed);
        self.edges.lock().unwrap_or_else(PoisonError::into_inner).push(Window {
            on: u8::from(on),
            cause: cause.to_u8(),
            at,
        });
    }

    /// Returns the edges since the last call.
    pub fn take_edges(&self) -> Vec<Window> {
        std::mem::take(&mut *self.edges.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true while GPU work is recorded.
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Returns the number of windows that began.
    pub fn windows(&self) -> u32 {
        self.windows.load(Ordering::Relaxed)
    }

    /// Returns the length of the current window.
    pub fn armed_for(&self) -> Option<Duration> {
        self.lock().since.map(|(since, _)| since.elapsed())
    }

    /// Notes that GPU work is recorded from now on, or not.
    pub fn set_armed(&self, armed: bool) {
        self.armed.store(armed, Ordering::Relaxed);
        if !armed {
            self.flushes_due.store(FLUSHES_AFTER, Ordering::Relaxed);
        }
    }

    /// Returns true once the capture takes no more records.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Refuses all further requests.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Returns true if work of the last window may still have to be delivered.
    pub fn awaits_flush(&self) -> bool {
        self.flushes_due.load(Ordering::Relaxed) > 0
    }

    /// Returns true if CUPTI may have records to deliver.
    pub fn take_flush(&self) -> bool {
        if self.is_armed() {
            return true;
        }
        let due = self.flushes_due.load(Ordering::Relaxed);
        self.flushes_due.store(due.saturating_sub(1), Ordering::Relaxed);
        due > 0
    }
}
