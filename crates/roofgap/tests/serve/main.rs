//! Tests of `roofgap serve`: real clients against a running server with the embedded model.

// clippy allows these in #[test] functions only, not in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod artifacts;
mod contract;
mod load;
mod openapi;
mod sessions;
mod support;
mod timeline;
