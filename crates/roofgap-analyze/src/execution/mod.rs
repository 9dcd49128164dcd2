//! The execution of a program as a graph of what starts after what, replayed with changes.
//!
//! `graph` builds it, `replay` replays it, `window` chooses the steps of a stage, `edits` are changes of a program, and `predict` tells the
//! time of a step with them. `corrected` takes the cost of the profiler off, fitted to the times that `unprofiled` finds in a run
//! without it.

mod corrected;
mod edits;
mod graph;
mod predict;
mod replay;
#[cfg(test)]
mod tests;
pub mod unprofiled;
mod window;

pub use corrected::{Uncorrected, correct};
pub use edits::{Edit, LIGHT, UnknownEdit};
pub use predict::{Engine, what_if};
