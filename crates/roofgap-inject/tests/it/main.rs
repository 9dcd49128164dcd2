//! The collector inside a program with a stand-in of CUPTI.

#![cfg(target_os = "linux")]
// clippy allows these in #[test] functions only, not in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(unsafe_code, reason = "asks for the user")]

mod cupti;
mod endings;
mod graph_nodes;
mod recording;
mod sampler;
mod support;
mod windows;
