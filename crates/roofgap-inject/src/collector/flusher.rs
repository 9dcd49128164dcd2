//! The flush thread.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::duty::Clock;
use super::session::Session;
use roofgap_wire::WindowCause;

/// Flushes CUPTI at intervals, and completely at the end; runs the duty cycle by time and ends windows at their limit. It has
/// its own thread, because a flush can block while the rings must be drained.
pub fn run(session: &'static Session) {
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
