//! Analyses of real and synthetic captures.

// clippy allows these in #[test] functions only, not in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod compare;
mod counters_alone;
mod engines;
mod frames;
mod gpu_work;
mod host;
mod layers;
mod loops;
mod planted;
mod programs;
mod roof;
mod sampled;
mod spikes;
mod steady;
mod synth;
mod transfers;
mod truth;
mod vitals;
mod windows;
