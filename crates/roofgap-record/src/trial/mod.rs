//! `roofgap try`: applies the actions of findings, measures each in pairs of runs, and keeps what helps.
//!
//! - [`props`]: input, events and outcome of a trial;
//! - [`mod@plan`]: the changes to try, and what trying them costs;
//! - `variant`: a workload with changes, as overrides and as a command;
//! - `sample`: one run of a workload without a profiler;
//! - `bounds`: the gain that findings predict; `judge`: a row from its pairs of runs;
//! - `context`: the state of a trial; `round`: interleaved runs; `journal`: `try.json` on disk;
//! - [`mod@run`]: the whole trial: each change alone, then the best together, then the winner under the profilers;
//! - [`mod@history`]: predicted against measured gains of all runs;
//! - [`text`]: the plan and the history for people.

pub mod history;
pub mod plan;
pub mod props;
pub mod run;
pub mod text;

mod bounds;
mod context;
mod journal;
mod judge;
mod round;
mod sample;
mod variant;

pub use history::{History, history};
pub use plan::{TrialPlan, plan};
pub use props::{TrialEvent, TrialOutcome, TrialProps};
pub use run::run;
