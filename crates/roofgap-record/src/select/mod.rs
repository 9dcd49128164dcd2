//! Selects the kernels for ncu within a time budget.
//!
//! - [`mod@launch_groups`]: launches grouped by stage, kernel, grid and block;
//! - [`plan`]: the selection and its result, `ncu/plan.json`;
//! - [`mangled`]: kernel names that ncu and the timeline share.

pub mod launch_groups;
pub mod mangled;
pub mod plan;

pub use launch_groups::{LaunchGroup, launch_groups};
pub use plan::{LeftOut, Limits, Measured, Plan, PlannedGroup, Policies, StageCover, choose};
