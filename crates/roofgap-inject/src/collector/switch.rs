//! Turns the recording of GPU work on and off while the program runs, and keeps the edges of the recorded windows.
//!
//! Annotations are recorded all the time: they cost little, and a window then knows the ranges that were open when it began.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::duty::Cycle;
use super::gpu;
use super::now;
use super::session::Session;
use roofgap_wire::{Window, WindowCause};

/// Flushes after a window, until the work that was launched in it has ended.
const FLUSHES_AFTER: u32 = 3;

/// Longest wait for another thread.
const PATIENCE: Duration = Duration::from_millis(20);

/// Reason GPU work cannot be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
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
pub(crate) struct Switch {
    state: Mutex<State>,
    armed: AtomicBool,
    /// True once the capture takes no more records.
    ended: AtomicBool,
    flushes_due: AtomicU32,
    windows: AtomicU32,
    edges: Mutex<Vec<Window>>,
    /// Planned kind of kernel records: [`NO_PLAN`], [`CONCURRENT`] or [`SERIAL`].
    plan: AtomicU8,
    /// Begin and end of the last change of that kind, ns.
    change: (AtomicU64, AtomicU64),
}

const NO_PLAN: u8 = 0;
const CONCURRENT: u8 = 1;
const SERIAL: u8 = 2;

#[derive(Default)]
struct State {
    /// True if GPU work is to be recorded as soon as there is CUDA.
    wanted: bool,
    /// True once the program has started CUDA.
    cuda: bool,
    /// Begin of the current window.
    since: Option<(Instant, u64)>,
    /// True once an edge was written; until then the capture is one window.
    has_edges: bool,
}

impl Switch {
    /// Creates the switch of a recording that begins with GPU work or without.
    pub(crate) fn new(armed: bool) -> Self {
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn edge(&self, on: bool, cause: WindowCause, at: u64) {
        self.windows.fetch_add(u32::from(on), Ordering::Relaxed);
        self.edges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Window {
                on: u8::from(on),
                cause: cause.to_u8(),
                at,
            });
    }

    /// Returns the edges since the last call.
    pub(crate) fn take_edges(&self) -> Vec<Window> {
        std::mem::take(&mut *self.edges.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true while GPU work is recorded.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Returns the number of windows that began.
    pub(crate) fn windows(&self) -> u32 {
        self.windows.load(Ordering::Relaxed)
    }

    /// Returns the length of the current window.
    pub(crate) fn armed_for(&self) -> Option<Duration> {
        self.lock().since.map(|(since, _)| since.elapsed())
    }

    /// Plans the kind of kernel records. It changes with the next window or step.
    pub(crate) fn plan_kernels(&self, serial: bool) {
        self.plan
            .store(if serial { SERIAL } else { CONCURRENT }, Ordering::Relaxed);
    }

    /// Returns true while a planned kind of kernel records is not in use yet.
    pub(crate) fn has_plan(&self) -> bool {
        self.plan.load(Ordering::Relaxed) != NO_PLAN
    }

    fn take_plan(&self) -> Option<bool> {
        match self.plan.swap(NO_PLAN, Ordering::Relaxed) {
            NO_PLAN => None,
            plan => Some(plan == SERIAL),
        }
    }

    fn changed(&self, begun: u64, done: u64) {
        self.change.0.store(begun, Ordering::Relaxed);
        self.change.1.store(done, Ordering::Release);
    }

    /// Returns begin and end of the last change of the kind of kernel records, ns.
    pub(crate) fn last_change(&self) -> (u64, u64) {
        let done = self.change.1.load(Ordering::Acquire);
        (self.change.0.load(Ordering::Relaxed), done)
    }

    /// Refuses all further requests.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Returns true if work of the last window may still have to be delivered.
    pub(crate) fn awaits_flush(&self) -> bool {
        self.flushes_due.load(Ordering::Relaxed) > 0
    }

    /// Returns true if CUPTI may have records to deliver.
    pub(crate) fn take_flush(&self) -> bool {
        if self.is_armed() {
            return true;
        }
        let due = self.flushes_due.load(Ordering::Relaxed);
        self.flushes_due.store(due.saturating_sub(1), Ordering::Relaxed);
        due > 0
    }
}

impl Session {
    /// Notes that the program has started CUDA, and begins to record if that was requested. `load`: loads CUPTI in any case.
    pub(crate) fn cuda_started(&'static self, load: bool) {
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
    pub(crate) fn request(&'static self) -> Result<(), Refused> {
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
    pub(crate) fn withdraw(&'static self, cause: WindowCause) {
        if let Some(cycle) = &self.cycle {
            cycle.set_active(false);
        }
        self.disarm(cause);
    }

    /// Stops recording GPU work.
    pub(crate) fn disarm(&'static self, cause: WindowCause) {
        self.end_window(&mut self.switch.lock(), cause);
    }

    /// Turns the recording of GPU work on or off for the duty cycle.
    pub(crate) fn set(&'static self, on: bool, cause: WindowCause) -> Result<(), Refused> {
        let mut state = self.try_state()?;
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

    /// Changes the kind of kernel records as planned. Calls stay on, so that those during the change are known.
    pub(crate) fn change_kernels(&'static self) -> Result<(), Refused> {
        let _state = self.try_state()?;
        if let Some((gpu, serial)) = self.gpu().zip(self.switch.take_plan()) {
            let begun = now();
            gpu::set_serial(self, gpu, serial, self.switch.is_armed());
            self.switch.changed(begun, now());
        }
        Ok(())
    }

    /// Waits for another thread that turns the recording on or off, but not for ever: a signal handler may have interrupted it.
    fn try_state(&'static self) -> Result<MutexGuard<'static, State>, Refused> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.switch.state.try_lock() {
                Ok(state) => return Ok(state),
                Err(TryLockError::Poisoned(state)) => return Ok(state.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() > deadline => return Err(Refused::Busy),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }

    fn begin_window(&'static self, state: &mut State, cause: WindowCause) -> Result<(), Refused> {
        if self.switch.ended.load(Ordering::Relaxed) || self.stopping.load(Ordering::Relaxed) {
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
        if let Some(serial) = self.switch.take_plan() {
            gpu::set_serial(self, gpu, serial, false);
        }
        gpu::enable(self, gpu);
        let at = now();
        state.since = Some((Instant::now(), at));
        if state.has_edges {
            self.switch.edge(true, cause, at);
        }
        self.switch.armed.store(true, Ordering::Relaxed);
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
        self.switch.armed.store(false, Ordering::Relaxed);
        self.switch.flushes_due.store(FLUSHES_AFTER, Ordering::Relaxed);
        gpu::disable(self, gpu);
    }
}
