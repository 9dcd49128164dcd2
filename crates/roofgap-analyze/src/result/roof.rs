//! The distance of kernels and stages to the roof of the device.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Origin of the work that a roof is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoofSource {
    /// FLOPs and DRAM bytes that ncu measured.
    Counters,
    /// FLOPs and bytes of the recorded shapes of operators. Every operand counts as DRAM traffic, also one that is in a cache.
    Modelled,
    /// Both.
    Mixed,
}

impl RoofSource {
    /// Returns the name in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counters => "counters",
            Self::Modelled => "modelled",
            Self::Mixed => "mixed",
        }
    }
}

impl fmt::Display for RoofSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

/// The distance to the roof: the time that the work would take at the peaks of the device, beside the time it took.
///
/// The roof of a launch is the greater of its floating-point operations at the dense peak of their type and its DRAM bytes at the
/// bandwidth of the device. A launch that is faster than that counts as one at the roof: ncu empties the caches, so that it may
/// count more bytes than the launch moves in the program. Launches whose work was measured count together by launch shape, by
/// their mean.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RoofDistance {
    /// Time at the roof, % of the time of the launches whose work is known; `None` where none is.
    #[serde(default)]
    pub roof_pct: Option<f64>,
    /// Time beyond the roof of the launches whose work is known, ns.
    #[serde(default)]
    pub above_roof_ns: Option<i64>,
    /// Time of the launches whose work is known, ns.
    #[serde(default)]
    pub roof_covered_ns: Option<i64>,
    /// Origin of the work.
    #[serde(default)]
    pub roof_source: Option<RoofSource>,
}
