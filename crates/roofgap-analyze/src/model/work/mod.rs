//! The FLOPs and bytes of a stage of a model, term by term.
//!
//! `stage` holds the terms and their sums, `decoder` the language model, `engine` the steps of a serving engine, `vision` the encoders, `run` fits a stage of a trace
//! to the tokens of a run.

mod decoder;
mod engine;
mod run;
mod stage;
mod vision;

#[cfg(test)]
mod tests;

pub use decoder::{DecodeInput, PrefillInput, distinct_experts};
pub use run::{Misfit, Tokens};
pub use stage::{StageWork, Term};
pub use vision::View;
