//! Recording: sessions, running programs, load for servers, and trials of changes.
//!
//! - [`run`]: one session, phase by phase;
//! - [`select`]: the plan for ncu;
//! - [`traffic`]: requests to a server and their latency;
//! - [`trial`]: the actions of findings, tried and measured.

pub mod run;
pub mod select;
pub mod traffic;
pub mod trial;
