//! Numbers of a timeline: launches joined with GPU operations, ranges around launches, idle time, kernels, copies,
//! graphs, operators and call trees.

mod call_tree;
mod cold_start;
mod contexts;
mod copies;
mod gaps;
mod idle;
mod interval;
mod launch_gaps;
mod launches;
mod nesting;
mod range_table;
mod stage_metrics;
pub mod step_periods;

pub mod graphs;
pub mod kernels;
pub mod operators;
pub mod steps;

pub use call_tree::{CallKind, CallNode, call_tree};
pub use contexts::Contexts;
pub use copies::CopyMeter;
pub use gaps::{IdleCause, IdlePart, idle_parts};
pub use idle::Activity;
pub use interval::CoveredTime;
pub use interval::IntervalSet;
pub use launch_gaps::LaunchGaps;
pub use launches::launching_calls;
pub use launches::{LaunchCount, Launches, NO_CALL, launch_counts};
pub use nesting::{Scope, innermost, scopes};
pub use operators::sort_operators;
pub use range_table::range_table;
pub use stage_metrics::{ByName, StageMeter};

use roofgap_trace::{DeviceId, Trace};

/// Returns the number by which the tool calls a device.
pub fn device_number(trace: &Trace, device: DeviceId) -> Option<u32> {
    trace.devices.get(device.index()).map(|device| device.number)
}
