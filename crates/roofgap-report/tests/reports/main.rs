//! The reports of fixtures, of a made-up trace and of one with hostile names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod fixtures;
mod gpu_work;
mod hostile;
mod html;
mod job;
mod layers;
mod measured;
#[cfg(feature = "parquet")]
mod parquet;
mod schema;
mod selection;
mod snapshots;
mod stacks;
mod stages;
mod timeline;
mod tried;
mod window;
