//! Running a child: its own process group, bounded logs, budgets, an orderly end, and nothing left behind.
//!
//! - [`job`]: what to run and how long it may take, and running it
//! - [`outcome`]: what came of it
//! - [`stop`]: how it is asked to end, and the cancel flag
//! - [`budget`]: time and disk
//! - `ending`: the steps of that, one after the other
//! - `sink`: its output, drained into files of bounded size
//! - `kin`: finding what it left behind
//! - [`mod@probe`]: a short question to a tool, answered in memory

pub mod budget;
mod ending;
pub mod job;
mod kin;
pub mod outcome;
pub mod probe;
mod sink;
pub mod stop;

pub use budget::{Budget, DiskBudget};
pub use job::{ChildError, Job, Tick, Watch, Watcher, run};
pub use outcome::{Ended, Leftover, LogFacts, Outcome, Usage};
pub use probe::{Answer, probe};
pub use sink::Sink;
pub use stop::{Cancel, StopPlan};
