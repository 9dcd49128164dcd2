//! Utilisation of compute and memory bandwidth.

use serde::{Deserialize, Serialize};

/// The sum of the stages whose work is known.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Whole {
    /// Total wall time, ns.
    pub wall_ns: i64,
    /// Total busy time, ns.
    pub busy_ns: Option<i64>,
    /// Model FLOPs utilisation.
    pub mfu: Option<Mfu>,
    /// Memory bandwidth utilisation.
    pub mbu: Option<Mbu>,
}

/// A term of the work of a stage, with its formula so that a reader can check it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Term {
    /// Name.
    pub name: String,
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes that must move.
    pub bytes: f64,
    /// The formula with its numbers.
    pub how: String,
}

/// Model FLOPs utilisation of a stage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Mfu {
    /// Model FLOPs of all instances.
    pub flops: f64,
    /// Dense peak, FLOPs per second.
    pub peak_flops_per_s: f64,
    /// Number format of the peak.
    pub dtype: String,
    /// Source of the peak.
    pub peak_source: String,
    /// Utilisation over wall time, %.
    pub by_wall_pct: f64,
    /// Utilisation over busy time, %.
    pub by_busy_pct: Option<f64>,
    /// Terms of the FLOPs.
    pub terms: Vec<Term>,
    /// Assumptions.
    pub assumptions: Vec<String>,
}

/// Memory bandwidth utilisation of a stage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Mbu {
    /// Bytes that must move in all instances.
    pub bytes: f64,
    /// Memory bandwidth, bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// Source of the bandwidth.
    pub bandwidth_source: String,
    /// Utilisation over wall time, %.
    pub by_wall_pct: f64,
    /// Utilisation over busy time, %.
    pub by_busy_pct: Option<f64>,
    /// Lower bound of a decode step at that bandwidth, ns.
    pub floor_step_ns: Option<i64>,
    /// Mean time of a step, ns.
    pub step_ns: Option<i64>,
    /// Terms of the bytes.
    pub terms: Vec<Term>,
    /// Assumptions.
    pub assumptions: Vec<String>,
}
