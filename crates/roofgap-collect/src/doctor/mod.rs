//! What this machine has for profiling, what it lacks, and what to do about it.
//!
//! - [`findings`]: looking at the machine
//! - [`checks`]: judging what was found
//! - [`counters`]: who may read the GPU's counters
//! - [`cupti`]: the library the native collector needs

pub mod checks;
pub mod counters;
pub mod cupti;
pub mod findings;

pub use checks::{Check, Status};
pub use counters::CounterAccess;
pub use findings::{Disk, DoctorProps, Findings};
