//! The end of a child, one step after the other.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::kin::Kin;
use super::stop::StopPlan;

/// Whom a step signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    /// The child's group.
    Group,
    /// The child and all that came of it, wherever it went.
    All,
    /// Only the program behind a profiler, which is left to finish by itself.
    Program,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    whom: Whom,
    signal: Signal,
    grace: Duration,
}

/// How long a killed process may still take to go: one in uninterruptible sleep (a dead network disk, a wedged driver)
/// cannot be ended by anybody.
const KILL_WAIT: Duration = Duration::from_secs(30);

/// An end under way.
#[derive(Debug)]
pub(super) struct Ending {
    /// Steps still to come, the next one last.
    rest: Vec<Step>,
    now: Step,
    since: Instant,
    /// Processes of the program that were signalled.
    told: HashSet<i32>,
}

impl Ending {
    /// Takes the first step.
    pub(super) fn begin(kin: &Kin, plan: &StopPlan, enough: bool, now: Instant) -> Self {
        let mut rest = steps(plan, enough);
        let first = rest.pop().unwrap_or(KILL);
        let mut ending = Ending {
            rest,
            now: first,
            since: now,
            told: HashSet::new(),
        };
        ending.take(kin);
        ending
    }

    /// Takes the next step where it is due; false where nothing helped.
    pub(super) fn go_on(&mut self, kin: &Kin, now: Instant, force: bool) -> bool {
        let over = now.duration_since(self.since) > self.now.grace;
        if self.now == KILL {
            // Again, for those that appeared between looking and killing.
            self.take(kin);
            return !over;
        }
        if over || force {
            if force {
                self.rest.truncate(1);
            }
            self.now = self.rest.pop().unwrap_or(KILL);
            self.since = now;
            self.take(kin);
        } else if self.now.whom == Whom::Program {
            // Those of the program that were not there yet.
            self.take(kin);
        }
        true
    }

    fn take(&mut self, kin: &Kin) {
        match self.now.whom {
            Whom::All => kin.signal_all(self.now.signal),
            Whom::Group => kin.signal_group(self.now.signal),
            Whom::Program => kin.signal_program(self.now.signal, &mut self.told),
        }
    }
}

const KILL: Step = Step {
    whom: Whom::All,
    signal: Signal::KILL,
    grace: KILL_WAIT,
};

/// The steps, the first one last; a step without grace is left out, the kill never.
fn steps(plan: &StopPlan, enough: bool) -> Vec<Step> {
    let mut steps = vec![
        KILL,
        Step {
            whom: Whom::Group,
            signal: Signal::TERM,
            grace: plan.terminate,
        },
        Step {
            whom: Whom::Group,
            signal: Signal::INT,
            grace: plan.interrupt,
        },
    ];
    if enough {
        steps.push(Step {
            whom: Whom::Program,
            signal: Signal::TERM,
            grace: plan.interrupt,
        });
    }
    steps.retain(|step| !step.grace.is_zero());
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(plan: &StopPlan, enough: bool) -> Vec<(Whom, Signal)> {
        steps(plan, enough)
            .iter()
            .rev()
            .map(|step| (step.whom, step.signal))
            .collect()
    }

    #[test]
    fn interrupt_then_terminate_then_kill() {
        let plan = StopPlan::default();
        let all = [
            (Whom::Group, Signal::INT),
            (Whom::Group, Signal::TERM),
            (Whom::All, Signal::KILL),
        ];
        assert_eq!(order(&plan, false), all);
        let enough = order(&plan, true);
        assert_eq!(enough.first(), Some(&(Whom::Program, Signal::TERM)));
        assert_eq!(enough.get(1..), Some(&all[..]));
    }

    #[test]
    fn a_step_without_grace_is_left_out_but_never_the_kill() {
        let none = Duration::ZERO;
        let plan = StopPlan {
            interrupt: none,
            terminate: none,
            settle: none,
        };
        assert_eq!(order(&plan, true), [(Whom::All, Signal::KILL)]);
    }
}
