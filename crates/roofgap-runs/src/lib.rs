//! Everything that reads a run, without what records one.
//!
//! - [`config`]: presets, user files and overrides composed into one typed configuration;
//! - [`run_dir`]: the files of a run and the record in `session.json`;
//! - [`open`]: opening captures and runs;
//! - [`cache`]: opened inputs, kept for the next question;
//! - [`runs`]: commands on finished runs (list, show, artifacts, prune, scrub).

pub mod cache;
pub mod config;
pub mod open;
pub mod run_dir;
pub mod runs;
