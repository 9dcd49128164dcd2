//! Tests of the binary on folders: what it writes, what it answers, and its exit status.

// clippy allows these in #[test] functions only, not in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod add;
mod answers;
mod care;
mod support;
