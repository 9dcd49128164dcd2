//! The phases of a profiling run: configuration, order, degrading, status and the bundle it leaves.

pub mod config;
