//! Tests of the binary: what it prints, on which stream, and its exit status.

// clippy allows these in #[test] functions only, not in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod agreement;
mod analyze;
mod architecture;
mod broken;
mod examples;
mod hostile;
mod inputs;
#[cfg(feature = "mcp")]
mod mcp;
mod meta;
mod native_ranks;
mod open;
#[cfg(feature = "embedded")]
mod profile;
mod ranks;
mod readme;
mod runs;
#[cfg(all(feature = "serve", feature = "embedded"))]
mod serve;
mod server;
mod support;
mod terminal;
mod trust;
mod try_finding;
#[cfg(target_os = "linux")]
mod watch;
