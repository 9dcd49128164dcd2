//! `roofgap try`: applies changes to the workload of a run, measures each in pairs of runs with the unchanged workload, and keeps the best
//! or none.
//!
//! - [`mod@plan`]: the changes to try, what trying them costs, and the gain that findings predict;
//! - `variant`: a workload with changes, as overrides of its configuration and as a command;
//! - `sample`: one run of a workload without a profiler, and its times;
//! - `judge`: the verdict on a change from its pairs of runs;
//! - [`mod@run`]: the whole trial, and `try.json` on disk.

pub mod plan;
pub mod run;

mod judge;
mod sample;
mod variant;

pub use plan::{TrialPlan, TrialProps, plan};
pub use run::{TrialEvent, TrialOutcome, run};
