//! Sessions with stand-in programs and tools.

// clippy allows these in #[test] functions only, not in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod config;
mod counters_rank;
mod hydra;
mod launches;
mod process;
mod runs;
mod selection;
mod session;
mod several_processes;
mod stage1_runner;
mod support;
mod tools;
mod traffic;
