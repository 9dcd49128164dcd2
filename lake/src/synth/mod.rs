//! Synthetic lakes of any size with known answers, for tests and measurements.
//!
//! - [`planted`]: the answers;
//! - `make`: the rows of one run;
//! - [`write`](mod@write): the files.

pub mod planted;
pub mod write;

mod make;
