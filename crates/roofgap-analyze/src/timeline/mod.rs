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
pub(crate) mod step_periods;

pub(crate) mod graphs;
pub(crate) mod kernels;
pub(crate) mod operators;
pub(crate) mod steps;

pub use call_tree::{CallKind, CallNode, call_tree};
pub use contexts::Contexts;
pub(crate) use copies::CopyMeter;
pub use gaps::{IdleCause, IdlePart, idle_parts};
pub(crate) use idle::Activity;
pub(crate) use interval::CoveredTime;
pub use interval::IntervalSet;
pub(crate) use launch_gaps::LaunchGaps;
pub(crate) use launches::launching_calls;
pub use launches::{LaunchCount, Launches, NO_CALL, launch_counts};
pub use nesting::{Scope, innermost, scopes};
pub(crate) use operators::sort_operators;
pub(crate) use range_table::range_table;
pub(crate) use stage_metrics::{ByName, StageMeter};

use roofgap_trace::{DeviceId, Trace};

/// Returns the number by which the tool calls a device.
pub(crate) fn device_number(trace: &Trace, device: DeviceId) -> Option<u32> {
    trace.devices.get(device.index()).map(|device| device.number)
}
