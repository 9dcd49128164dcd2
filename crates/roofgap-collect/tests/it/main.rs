//! Children and tools, real ones and stand-ins.

// clippy allows these in #[test] functions only, not in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod child;
mod odd_tools;
mod stand_in;
mod tools;
