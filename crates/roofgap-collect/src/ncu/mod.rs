//! Command lines of ncu, as values.
//!
//! - [`plan`]: which launches are measured, and how
//! - [`pattern`]: kernel names as one expression
//! - [`metrics`]: the counters wanted, and which of them exist
//! - [`page`]: reading a report as CSV
//! - [`said`]: what ncu says while it works, and what its errors mean

pub mod metrics;
pub mod page;
pub mod pattern;
pub mod plan;
pub mod said;

pub use page::{Page, import};
pub use pattern::NameBase;
pub use plan::{CacheControl, ClockControl, Plan, ReplayMode, Sampling, TargetProcesses};
pub use said::{Complaint, Profiled, complaint};
