//! Totals that another tool had already added up.

use super::NameId;

/// A kernel's totals from a summary table: no times of single launches, no ranges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelTotal {
    /// Kernel name.
    pub name: NameId,
    /// Sum of durations, ns.
    pub total_ns: i64,
    /// Number of launches.
    pub calls: u64,
    /// Median duration, ns, where the table has it.
    pub median_ns: Option<f64>,
    /// Shortest, ns.
    pub min_ns: Option<i64>,
    /// Longest, ns.
    pub max_ns: Option<i64>,
}
