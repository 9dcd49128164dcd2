//! How a child is asked to end: interrupt, terminate, kill, with grace between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The wish to stop, shared with whoever catches Ctrl-C and SIGTERM.
///
/// A first wish stops children with grace; a second one (`force`) kills them at once. Both flags are plain atomics, so
/// a signal handler may set them.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    /// Set: children are asked to end.
    pub stop: Arc<AtomicBool>,
    /// Set as well: children are killed without waiting.
    pub force: Arc<AtomicBool>,
}

impl Cancel {
    /// A flag nobody has raised.
    pub fn new() -> Self {
        Cancel::default()
    }

    /// Asks for the end; asked again, forces it.
    pub fn request(&self) {
        if self.stop.swap(true, Ordering::SeqCst) {
            self.force.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the end was asked for.
    pub fn is_requested(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Whether it is to be forced.
    pub fn is_forced(&self) -> bool {
        self.force.load(Ordering::SeqCst)
    }
}

impl From<Arc<AtomicBool>> for Cancel {
    fn from(stop: Arc<AtomicBool>) -> Self {
        Cancel {
            stop,
            force: Arc::default(),
        }
    }
}

/// The grace given at each step of an orderly end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopPlan {
    /// After SIGINT: a profiler stops recording and writes its report in this time. Zero leaves the step out.
    pub interrupt: Duration,
    /// After SIGTERM. Zero leaves the step out.
    pub terminate: Duration,
    /// After the program itself has ended: how long its own children may take to follow by themselves.
    pub settle: Duration,
}

impl Default for StopPlan {
    fn default() -> Self {
        StopPlan {
            interrupt: Duration::from_secs(10),
            terminate: Duration::from_secs(5),
            settle: Duration::from_secs(2),
        }
    }
}

impl StopPlan {
    /// For a profiler, which writes a large report after it is interrupted.
    pub fn patient() -> Self {
        StopPlan {
            interrupt: Duration::from_secs(60),
            ..StopPlan::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_request_forces() {
        let cancel = Cancel::new();
        assert!(!cancel.is_requested());
        cancel.request();
        assert!(cancel.is_requested() && !cancel.is_forced());
        cancel.request();
        assert!(cancel.is_forced());
    }
}
