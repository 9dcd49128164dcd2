//! Making room: older runs are compressed, large ones cut to what cannot be made again. Reports stay as they are.
//!
//! - [`plan`]: what would be done, and how much it wins; nothing is touched;
//! - [`carry`]: doing it, one file after another, each step such that a kill loses nothing;
//! - `gzip`: one file compressed.

pub mod carry;
pub mod plan;

mod gzip;

pub use carry::{PruneOutcome, carry_out};
pub use plan::{Action, Deed, PrunePlan, PruneProps, RunPlan, plan};

pub(super) use plan::is_packed_trace;

#[cfg(test)]
mod tests;
