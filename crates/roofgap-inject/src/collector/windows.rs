//! Turns the recording of GPU work on and off while the program runs, and the flush thread that does so by time.
//!
//! Annotations are recorded all the time: they cost little, and a window then knows the ranges that were open when it began.

use super::duty::{Clock, Cycle};
use super::options::Dormant;
use super::session::{Gpu, Session, SwitchState, finish_at_exit, spawn, wake};
use super::{gpu, now};
use roofgap_wire::WindowCause;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

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

/// Notes that the program has started CUDA, and begins to record if that was requested.
pub fn cuda_started(session: &'static Session) {
    let load_now = session.options.dormant == Some(Dormant::Loaded) || session.is_requested();
    let mut state = session.switch.lock();
    state.cuda = true;
    if load_now || state.wanted {
        load(session);
    }
    if state.wanted {
        // A failure is noted as a loss.
        let _ = begin_window(session, &mut state, WindowCause::Begin);
    }
}

/// Begins to record GPU work on request, all of it or by the duty cycle.
pub fn request(session: &'static Session) -> Result<(), Refused> {
    let Some(cycle) = &session.cycle else {
        return begin_window(session, &mut session.switch.lock(), WindowCause::Request);
    };
    cycle.set_active(true);
    let state = session.switch.lock();
    if !state.cuda {
        return Err(Refused::NoCuda);
    }
    load(session).ok_or(Refused::NoCupti)?;
    wake(&session.flusher);
    Ok(())
}

/// Stops recording GPU work, and the duty cycle.
pub fn withdraw(session: &Session, cause: WindowCause) {
    if let Some(cycle) = &session.cycle {
        cycle.set_active(false);
    }
    disarm(session, cause);
}

/// Stops recording GPU work.
pub fn disarm(session: &Session, cause: WindowCause) {
    end_window(session, &mut session.switch.lock(), cause);
}

/// Turns the recording of GPU work on or off for the duty cycle.
pub fn set(session: &'static Session, on: bool, cause: WindowCause) -> Result<(), Refused> {
    let mut state = session.switch.lock_soon().ok_or(Refused::Busy)?;
    // Meanwhile the cycle may have been stopped, or steps may have begun.
    let is_over = |cycle: &Cycle| !cycle.is_active() || cause == WindowCause::Time && cycle.by_steps();
    if session.cycle.as_ref().is_some_and(is_over) {
        return Ok(());
    }
    if on {
        return begin_window(session, &mut state, cause);
    }
    end_window(session, &mut state, cause);
    Ok(())
}

fn begin_window(
    session: &'static Session,
    state: &mut SwitchState,
    cause: WindowCause,
) -> Result<(), Refused> {
    if session.switch.has_ended() || session.stopping.load(Ordering::Relaxed) {
        return Err(Refused::Ended);
    }
    state.wanted = true;
    if !state.cuda {
        return Err(Refused::NoCuda);
    }
    if session.switch.is_armed() {
        return Ok(());
    }
    let gpu = load(session).ok_or(Refused::NoCupti)?;
    gpu::enable(session, gpu);
    let at = now();
    state.since = Some((Instant::now(), at));
    if state.has_edges {
        session.switch.edge(true, cause, at);
    }
    session.switch.set_armed(true);
    wake(&session.flusher);
    Ok(())
}

fn end_window(session: &Session, state: &mut SwitchState, cause: WindowCause) {
    state.wanted = false;
    let at = now();
    if !state.has_edges {
        // Until now the whole capture was recorded.
        state.has_edges = true;
        session.switch.edge(
            state.since.is_some(),
            WindowCause::Begin,
            state.since.map_or(at, |(_, begun)| begun),
        );
    }
    let Some(gpu) = session.gpu().filter(|_| session.switch.is_armed()) else {
        return;
    };
    state.since = None;
    session.switch.edge(false, cause, at);
    session.switch.set_armed(false);
    gpu::disable(session, gpu);
}

/// Sets CUPTI up, unless it is, and starts the flush thread. A failure is noted as a loss. The switch is locked meanwhile.
fn load(session: &'static Session) -> Option<&'static Gpu> {
    if session.gpu().is_none() {
        session.gpu.set(gpu::attach(session)?).ok()?;
        let gpu = session.gpu()?;
        session.flushed.store(false, Ordering::Release);
        match spawn("roofgap-flush", move || run_flusher(session, gpu)) {
            Ok(flusher) => _ = session.flusher.set(flusher),
            Err(error) => {
                session.flushed.store(true, Ordering::Release);
                session.note("cupti.no_flush", 1, &error.to_string());
            }
        }
        finish_at_exit();
        session.wake_writer();
        gpu::attached(session, gpu);
    }
    session.gpu()
}

/// Flushes CUPTI at intervals, and completely at the end; runs the duty cycle by time and ends windows at their limit. It has
/// its own thread, because a flush can block while the rings must be drained.
fn run_flusher(session: &'static Session, gpu: &Gpu) {
    const LONG: Duration = Duration::from_secs(3600);
    let pause = session.options.flush_every.unwrap_or(LONG);
    let mut next = Instant::now() + pause;
    let mut clock = Clock::new();
    loop {
        let stopping = session.stopping.load(Ordering::Acquire);
        let due = Instant::now() >= next;
        if stopping || due && session.switch.take_flush() {
            session.flush(gpu, stopping);
            session.wake_writer();
        }
        if due {
            next = Instant::now() + pause;
        }
        if stopping {
            session.flushed.store(true, Ordering::Release);
            session.wake_writer();
            return;
        }
        let mut wake_at = next;
        if session.is_dormant() && !session.switch.awaits_flush() {
            // The next window wakes this thread.
            wake_at += LONG;
        }
        if let Some(limit) = session.options.armed_limit
            && let Some(armed) = session.requested_for()
        {
            if armed >= limit {
                withdraw(session, WindowCause::Limit);
            } else {
                wake_at = wake_at.min(Instant::now() + (limit - armed));
            }
        }
        if let Some(cycle) = &session.cycle {
            let turn = clock.turn(cycle);
            if let Some(on) = turn.set {
                // A refused turn is made up for by the next one.
                let _ = set(session, on, WindowCause::Time);
            }
            wake_at = wake_at.min(turn.next);
        }
        std::thread::park_timeout(wake_at.saturating_duration_since(Instant::now()));
    }
}
