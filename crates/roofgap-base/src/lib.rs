//! Helpers that every crate shares, each defined once.
//!
//! - [`file`]: bounded reads, atomic writes, hashes, and files that may be compressed
//! - [`numbers`]: numbers formatted for people
//! - [`stats`]: medians, percentiles, quantiles
//! - [`text`]: short forms and encodings of text
//! - [`clock`]: the time of day; [`error`]: the error above the libraries; [`exit`]: the exit statuses

pub mod clock;
pub mod error;
pub mod exit;
pub mod file;
pub mod numbers;
pub mod stats;
pub mod text;
