//! Stopping a child: cancellation, and the interrupt, terminate, kill sequence.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::process_tree::ProcessTree;

/// Cancellation flag shared with the signal handler.
///
/// The first request stops children gracefully; the second one kills them. Both flags are plain atomics, so a signal
/// handler may set them.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    /// Stop children gracefully.
    pub stop: Arc<AtomicBool>,
    /// Kill children at once.
    pub force: Arc<AtomicBool>,
}

impl Cancel {
    /// Creates a flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests cancellation; a second call forces it.
    pub fn request(&self) {
        if self.stop.swap(true, Ordering::SeqCst) {
            self.force.store(true, Ordering::SeqCst);
        }
    }

    /// Returns true once cancellation was requested.
    pub fn is_requested(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Returns true once cancellation is forced.
    pub fn is_forced(&self) -> bool {
        self.force.load(Ordering::SeqCst)
    }
}

/// Grace periods of the steps that stop a child. A step of zero length is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopPlan {
    /// Time after SIGINT.
    pub interrupt: Duration,
    /// Time for a profiler to write its report after the program behind it was killed; zero for a child without a
    /// profiler.
    pub report: Duration,
    /// Time after SIGTERM.
    pub terminate: Duration,
    /// Time for the child's own children to exit after the child itself.
    pub settle: Duration,
}

impl Default for StopPlan {
    fn default() -> Self {
        Self {
            interrupt: Duration::from_secs(10),
            report: Duration::ZERO,
            terminate: Duration::from_secs(5),
            settle: Duration::from_secs(2),
        }
    }
}

impl StopPlan {
    /// Returns the plan for a profiler, which writes a large report after an interrupt.
    pub fn for_profiler() -> Self {
        Self { report: Duration::from_secs(60), ..Self::default() }
    }

    /// Returns this plan with shares of `grace`, within which a child ends whatever it does with signals. Only a profiler
    /// that writes its report takes longer.
    #[must_use]
    pub fn within(self, grace: Duration) -> Self {
        Self { interrupt: grace / 2, terminate: grace / 6, ..self }
    }

    /// Returns the time for the children of a child that was stopped, or that ended by itself, to exit.
    pub(super) fn settle_after(&self, stopped: bool) -> Duration {
        if stopped { self.settle.min(self.terminate) } else { self.settle }
    }
}

/// Processes that a step signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The child's process group.
    Group,
    /// The child and all its descendants.
    Tree,
    /// The program behind a profiler, but not the profiler, which then finishes by itself.
    Program,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    target: Target,
    signal: Signal,
    grace: Duration,
}

/// The last step. A process in uninterruptible sleep (dead network disk, hung driver) survives even SIGKILL, so it has
/// a time limit as well.
const KILL: Step = Step { target: Target::Tree, signal: Signal::KILL, grace: Duration::from_secs(30) };

/// A shutdown in progress.
#[derive(Debug)]
pub struct Shutdown {
    /// Remaining steps in reverse order.
    remaining: Vec<Step>,
    current: Step,
    since: Instant,
    /// Processes of the program that were already signalled.
    signalled: HashSet<i32>,
}

impl Shutdown {
    /// Performs the first step.
    pub(super) fn begin(tree: &ProcessTree, plan: &StopPlan, program_first: bool, now: Instant) -> Self {
        let mut remaining = steps(plan, program_first);
        let current = remaining.pop().unwrap_or(KILL);
        let mut shutdown = Self { remaining, current, since: now, signalled: HashSet::new() };
        shutdown.send(tree);
        shutdown
    }

    /// Performs the next step when it is due. Returns false when the child survived SIGKILL.
    pub(super) fn advance(&mut self, tree: &ProcessTree, now: Instant, force: bool) -> bool {
        let expired = now.duration_since(self.since) > self.current.grace;
        if self.current == KILL {
            // Repeated for processes that appeared between listing and killing.
            self.send(tree);
            return !expired;
        }
        if expired || force {
            if force {
                self.remaining.truncate(1);
            }
            self.current = self.remaining.pop().unwrap_or(KILL);
            self.since = now;
            self.signalled.clear();
            self.send(tree);
        } else if self.current.target == Target::Program {
            // Repeated for processes of the program that started since.
            self.send(tree);
        }
        true
    }

    fn send(&mut self, tree: &ProcessTree) {
        match self.current.target {
            Target::Tree => tree.signal_all(self.current.signal),
            Target::Group => tree.signal_group(self.current.signal),
            Target::Program => tree.signal_program(self.current.signal, &mut self.signalled),
        }
    }
}

/// Returns the steps in reverse order. Steps without grace are left out, except the kill.
fn steps(plan: &StopPlan, program_first: bool) -> Vec<Step> {
    let step = |target, signal, grace| Step { target, signal, grace };
    let mut steps = vec![
        KILL,
        step(Target::Group, Signal::TERM, plan.terminate),
        step(Target::Program, Signal::KILL, plan.report),
        step(Target::Group, Signal::INT, plan.interrupt),
    ];
    if program_first {
        // A profiler writes its report in this time.
        let grace = plan.interrupt.max(plan.report);
        steps.push(step(Target::Program, Signal::TERM, grace));
    }
    steps.retain(|step| !step.grace.is_zero());
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(plan: &StopPlan, program_first: bool) -> Vec<(Target, Signal)> {
        steps(plan, program_first).iter().rev().map(|step| (step.target, step.signal)).collect()
    }

    #[test]
    fn a_program_behind_a_profiler_is_killed_before_the_profiler_is_terminated() {
        assert_eq!(
            order(&StopPlan::for_profiler(), false),
            [
                (Target::Group, Signal::INT),
                (Target::Program, Signal::KILL),
                (Target::Group, Signal::TERM),
                (Target::Tree, Signal::KILL),
            ]
        );
    }

    #[test]
    fn a_stop_takes_no_longer_than_its_grace() {
        let grace = Duration::from_secs(12);
        let plan = StopPlan::default().within(grace);
        let steps = plan.interrupt + plan.report + plan.terminate;
        assert!(steps + plan.settle_after(true) + plan.terminate <= grace, "{plan:?}");
        assert_eq!(plan.settle_after(false), StopPlan::default().settle);
    }

    #[test]
    fn interrupt_then_terminate_then_kill() {
        let plan = StopPlan::default();
        let all = [(Target::Group, Signal::INT), (Target::Group, Signal::TERM), (Target::Tree, Signal::KILL)];
        assert_eq!(order(&plan, false), all);
        let program_first = order(&plan, true);
        assert_eq!(program_first.first(), Some(&(Target::Program, Signal::TERM)));
        assert_eq!(program_first.get(1..), Some(&all[..]));
    }

    #[test]
    fn a_step_without_grace_is_left_out_but_never_the_kill() {
        let none = Duration::ZERO;
        let plan = StopPlan { interrupt: none, report: none, terminate: none, settle: none };
        assert_eq!(order(&plan, true), [(Target::Tree, Signal::KILL)]);
    }

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
