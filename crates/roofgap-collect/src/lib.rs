//! Finding the profilers, building their command lines, running children, and the run directory.
//!
//! This crate produces files and knows nothing of their contents. It builds [`command::CommandLine`] values, runs them as
//! [`child::Job`]s, and writes into a [`rundir::RunDir`].

pub mod child;
pub mod clock;
pub mod command;
pub mod doctor;
pub mod file;
pub mod ncu;
pub mod nsys;
mod process;
pub mod program;
pub mod provenance;
pub mod range;
pub mod rundir;
#[cfg(test)]
mod test_support;
pub mod tool;
pub mod watch;
