//! Numbers of a timeline: launches joined with GPU operations, ranges around launches, idle time, kernels and operators.

mod contexts;
mod idle;
mod interval;
mod launches;
mod range_table;
mod stage_metrics;
pub(crate) mod step_periods;

pub(crate) mod kernels;
pub(crate) mod operators;
pub(crate) mod steps;

pub use contexts::Contexts;
pub(crate) use idle::Activity;
pub use interval::IntervalSet;
pub use launches::{Launches, NO_CALL};
pub(crate) use operators::sort_operators;
pub(crate) use range_table::range_table;
pub(crate) use stage_metrics::{StageMeter, find_or_push};
