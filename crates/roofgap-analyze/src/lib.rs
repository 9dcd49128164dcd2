//! Pure functions from a trace (and facts about the GPU and the model) to an analysis.

pub mod analysis;

pub use analysis::*;
