//! Checks of this machine: tools, driver, counter access, Python and disk, each with a remedy.
//!
//! - `facts`: collecting the facts
//! - `checks`: judging them
//! - `counters`: access to performance counters

mod checks;
mod counters;
mod facts;

pub use checks::{Check, Status, checks};
pub use counters::CounterAccess;
pub use facts::{Disk, DoctorProps, SystemFacts};
