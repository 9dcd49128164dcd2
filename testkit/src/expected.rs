//! Expected results of an analysis of the capture.

use serde::Serialize;

/// Expected results.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Expected {
    /// Totals.
    pub totals: ExpectedTotals,
    /// Stages.
    pub stages: Vec<ExpectedStage>,
    /// Kernels by name and device, most time first.
    pub kernels: Vec<ExpectedKernel>,
}

/// Totals of the capture; field names are those of `roofgap.analysis/1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct ExpectedTotals {
    pub kernel_count: u64,
    pub kernel_ns: i64,
    pub busy_ns: i64,
    pub memcpy_ns: i64,
    pub memset_ns: i64,
    pub unattributed_count: u64,
}

/// A stage; field names are those of `roofgap.analysis/1`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct ExpectedStage {
    pub name: String,
    pub instances: u64,
    pub wall_ns: i64,
    pub projected_ns: i64,
    pub kernel_ns: i64,
    pub busy_ns: i64,
    pub kernel_count: u64,
    pub gpu_op_count: u64,
    pub launch_count: u64,
    /// Duration of each step in order of start, ns.
    pub steps_ns: Vec<i64>,
    /// Launches inside steps.
    pub step_launches: u64,
    pub notes: Vec<ExpectedNote>,
}

/// A part of a stage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct ExpectedNote {
    pub name: String,
    pub instances: u64,
    pub wall_ns: i64,
    pub kernel_ns: i64,
    pub kernel_count: u64,
}

/// A kernel on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct ExpectedKernel {
    pub name: String,
    pub device: u32,
    pub calls: u64,
    pub total_ns: i64,
}
