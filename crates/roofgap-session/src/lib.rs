//! The phases of a profiling run: configuration, order, degrading, status and the bundle it leaves.

pub mod config;
pub mod exit;
pub mod inputs;
pub mod native;
pub mod overhead;
pub mod record;
pub mod runs;
pub mod select;
pub mod session;
