//! Synthetic and damaged captures against the readers and the analysis.

// clippy allows these in #[test] functions only, not in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod damaged;
mod job;
mod judged;
mod written;
