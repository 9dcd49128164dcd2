//! Command lines and output of ncu.
//!
//! - `profile`: `ncu`, measuring kernel launches of a program
//! - `kernel_filter`: kernel names as one `--kernel-name` expression
//! - `metrics`: metrics that exist for a chip
//! - `output`: progress lines, failures, and report pages as CSV

mod kernel_filter;
mod metrics;
mod output;
mod profile;

pub use kernel_filter::NameBase;
pub use metrics::{chip_name, split_supported};
pub use output::{NcuFailure, Page, ProfiledLaunch, import};
pub use profile::{CacheControl, ClockControl, NcuProfile, ReplayMode, TargetProcesses};
