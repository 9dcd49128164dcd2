//! Finding the profilers, building their command lines, running children, and the run directory.
//!
//! This crate hands over files only: what it builds is a [`command::CommandLine`] (a plain value), what it runs is a
//! [`child::Job`], and what it leaves is a [`rundir::RunDir`]. It knows nothing of what the files mean.

pub mod child;
pub mod command;
pub mod doctor;
pub mod ncu;
pub mod nsys;
mod process;
pub mod program;
pub mod provenance;
pub mod range;
pub mod rundir;
pub mod tool;
