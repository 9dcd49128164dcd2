//! Helpers that every crate shares, each defined once.

pub mod clock;
pub mod error;
pub mod exit;
pub mod file;
