//! The state of the recording of GPU work: on or off, and the edges of the recorded windows.
//!
//! Turns the recording of GPU work on and off while the program runs, and the flush thread that does so by time.
//!
//! Annotations are recorded all the time: they cost little, and a window then knows the ranges that were open when it began.

use super::duty::{Clock, Cycle};
use super::options::Dormant;
use super::session::Session;
use super::{gpu, lock, now};
use roofgap_wire::{Window, WindowCause};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

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
        lock(&self.state)
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
        lock(&self.edges).push(Window { on: u8::from(on), cause: cause.to_u8(), at });
    }

    /// Returns the edges since the last call.
    pub fn take_edges(&self) -> Vec<Window> {
        std::mem::take(&mut *lock(&self.edges))
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

impl Session {
    /// Notes that the program has started CUDA.
    pub fn start_gpu(&'static self) {
        self.cuda_started(self.options.dormant == Some(Dormant::Loaded) || self.is_requested());
    }

    /// Notes that the program has started CUDA, and begins to record if that was requested. `load`: loads CUPTI in any case.
    pub fn cuda_started(&'static self, load: bool) {
        let mut state = self.switch.lock();
        state.cuda = true;
        if self.gpu().is_none() && (load || state.wanted) {
            gpu::start(self);
        }
        if state.wanted {
            // A failure is noted as a loss.
            let _ = self.begin_window(&mut state, WindowCause::Begin);
        }
    }

    /// Begins to record GPU work on request, all of it or by the duty cycle.
    pub fn request(&'static self) -> Result<(), Refused> {
        let Some(cycle) = &self.cycle else {
            return self.begin_window(&mut self.switch.lock(), WindowCause::Request);
        };
        cycle.set_active(true);
        let state = self.switch.lock();
        if !state.cuda {
            return Err(Refused::NoCuda);
        }
        if self.gpu().is_none() {
            gpu::start(self);
        }
        self.gpu().ok_or(Refused::NoCupti)?;
        self.wake_flusher();
        Ok(())
    }

    /// Stops recording GPU work, and the duty cycle.
    pub fn withdraw(&'static self, cause: WindowCause) {
        if let Some(cycle) = &self.cycle {
            cycle.set_active(false);
        }
        self.disarm(cause);
    }

    /// Stops recording GPU work.
    pub fn disarm(&'static self, cause: WindowCause) {
        self.end_window(&mut self.switch.lock(), cause);
    }

    /// Turns the recording of GPU work on or off for the duty cycle.
    pub fn set(&'static self, on: bool, cause: WindowCause) -> Result<(), Refused> {
        let mut state = self.switch.try_lock()?;
        // Meanwhile the cycle may have been stopped, or steps may have begun.
        let over = |cycle: &Cycle| !cycle.is_active() || cause == WindowCause::Time && cycle.by_steps();
        if self.cycle.as_ref().is_some_and(over) {
            return Ok(());
        }
        if on {
            return self.begin_window(&mut state, cause);
        }
        self.end_window(&mut state, cause);
        Ok(())
    }

    fn begin_window(&'static self, state: &mut State, cause: WindowCause) -> Result<(), Refused> {
        if self.switch.has_ended() || self.stopping.load(Ordering::Relaxed) {
            return Err(Refused::Ended);
        }
        state.wanted = true;
        if !state.cuda {
            return Err(Refused::NoCuda);
        }
        if self.switch.is_armed() {
            return Ok(());
        }
        if self.gpu().is_none() {
            gpu::start(self);
        }
        let gpu = self.gpu().ok_or(Refused::NoCupti)?;
        gpu::enable(self, gpu);
        let at = now();
        state.since = Some((Instant::now(), at));
        if state.has_edges {
            self.switch.edge(true, cause, at);
        }
        self.switch.set_armed(true);
        self.wake_flusher();
        Ok(())
    }

    fn end_window(&'static self, state: &mut State, cause: WindowCause) {
        state.wanted = false;
        let at = now();
        if !state.has_edges {
            // Until now the whole capture was recorded.
            state.has_edges = true;
            if let Some((_, begun)) = state.since {
                self.switch.edge(true, WindowCause::Begin, begun);
            } else {
                self.switch.edge(false, WindowCause::Begin, at);
            }
        }
        let Some(gpu) = self.gpu().filter(|_| self.switch.is_armed()) else {
            return;
        };
        state.since = None;
        self.switch.edge(false, cause, at);
        self.switch.set_armed(false);
        gpu::disable(self, gpu);
    }
}

/// Flushes CUPTI at intervals, and completely at the end; runs the duty cycle by time and ends windows at their limit. It has
/// its own thread, because a flush can block while the rings must be drained.
pub fn run_flusher(session: &'static Session) {
    let Some(gpu) = session.gpu() else { return };
    let pause = session.options.flush_every.unwrap_or(Duration::from_secs(3600));
    let mut next = Instant::now() + pause;
    let mut clock = Clock::new();
    loop {
        let stopping = session.stopping.load(Ordering::Acquire);
        let due = Instant::now() >= next;
        if stopping || due && session.switch.take_flush() {
            if gpu.api.flush(stopping).is_err() {
                session.counters.flush_refused.fetch_add(1, Ordering::Relaxed);
            }
            session.wake();
        }
        if due {
            next = Instant::now() + pause;
        }
        if stopping {
            session.flushed.store(true, Ordering::Release);
            session.wake();
            return;
        }
        let mut wake_at = next;
        if session.is_dormant() && !session.switch.awaits_flush() {
            // The next window wakes this thread.
            wake_at += Duration::from_secs(3600);
        }
        if let Some(limit) = session.options.armed_limit
            && let Some(armed) = session.requested_for()
        {
            if armed >= limit {
                session.withdraw(WindowCause::Limit);
            } else {
                wake_at = wake_at.min(Instant::now() + (limit - armed));
            }
        }
        if let Some(cycle) = &session.cycle {
            let turn = clock.turn(cycle);
            if let Some(on) = turn.set {
                // A refused turn is made up for by the next one.
                let _ = session.set(on, WindowCause::Time);
            }
            wake_at = wake_at.min(turn.next);
        }
        std::thread::park_timeout(wake_at.saturating_duration_since(Instant::now()));
    }
}
