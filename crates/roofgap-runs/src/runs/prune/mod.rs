//! Frees disk space: compresses old runs and drops the files of large runs that can be regenerated. Reports are kept.
//!
//! - [`mod@plan`]: plans the steps without touching a file;
//! - [`mod@execute`]: executes them file by file, so that a kill loses nothing;
//! - `gzip`: compresses one file in place.

pub mod execute;
pub mod plan;

mod gzip;

pub use execute::{FailedFile, PruneOutcome, PrunedFile, execute};
pub use plan::{Action, PrunePlan, PruneProps, PruneStep, RunPlan, plan};

#[cfg(test)]
mod tests;
