//! Turns the recording of GPU work on and off while the program runs, and keeps the edges of the recorded windows.
//!
//! Annotations are recorded all the time: they cost little, and a window then knows the ranges that were open when it began.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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
}

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

    /// Refuses all further requests.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
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

    /// Stops recording GPU work on request.
    pub(crate) fn withdraw(&'static self) {
        if let Some(cycle) = &self.cycle {
            cycle.set_active(false);
        }
        self.disarm(WindowCause::Request);
    }

    /// Stops recording GPU work.
    pub(crate) fn disarm(&'static self, cause: WindowCause) {
        self.end_window(&mut self.switch.lock(), cause);
    }

    /// Turns the recording of GPU work on or off for the duty cycle. Waits for another thread that does that now, but not for
    /// ever: a signal handler may have interrupted it.
    pub(crate) fn set(&'static self, on: bool, cause: WindowCause) -> Result<(), Refused> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = loop {
            match self.switch.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(state)) => break state.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() > deadline => return Err(Refused::Busy),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        };
        // Steps may have begun meanwhile.
        if cause == WindowCause::Time && self.cycle.as_ref().is_some_and(Cycle::by_steps) {
            return Ok(());
        }
        if on {
            return self.begin_window(&mut state, cause);
        }
        self.end_window(&mut state, cause);
        Ok(())
    }

    /// Records kernels of several streams as they overlap, from now on.
    pub(crate) fn overlap_kernels(&'static self) {
        let _state = self.switch.lock();
        if let Some(gpu) = self.gpu() {
            gpu::overlap_kernels(self, gpu, self.switch.is_armed());
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
