//! A profiling session from configuration to reports, and everything that reads a run afterwards.
//!
//! - [`config`]: presets, user files and overrides composed into one typed configuration;
//! - [`run`]: one session, phase by phase;
//! - [`select`]: the plan for ncu;
//! - [`run_dir`]: the files of a run and the record in `session.json`;
//! - [`load`]: the one loader of captures and runs;
//! - [`cache`]: loaded inputs, kept for the next question;
//! - [`runs`]: commands on finished runs (list, show, artifacts, prune, scrub);
//! - [`trial`]: the actions of findings, tried and measured;
//! - [`exit`]: the exit statuses.

pub mod cache;
pub mod config;
pub mod exit;
pub mod load;
pub mod run;
pub mod run_dir;
pub mod runs;
pub mod select;
pub mod trial;
