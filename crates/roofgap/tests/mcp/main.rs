//! Tests of `roofgap mcp`: a client asks through the protocol.

// clippy allows these in #[test] functions only, not in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod client;
mod python_sdk;
mod questions;
mod tools;
