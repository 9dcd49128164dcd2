//! Times of a timeline: what ran when, idle time by cause, steps, and the numbers of each stage.

mod cold;
mod idle;
mod interval;
mod stages;
mod steps;
mod tables;

pub use cold::find as find_cold;
pub use idle::{Activity, HostGap, HostWork, IdleCause, IdlePart, LaunchGaps, idle_parts};
pub use interval::{CoveredTime, Extent, IntervalSet};
pub use stages::StageMeter;
pub use steps::{StepPeriod, StepPeriods, expected, sample_deviation, steady, step_summary};
pub use tables::{
    CopyMeter, Grouped, device_number, divide, from_durations, from_totals, graph_table, kernel_table,
};
