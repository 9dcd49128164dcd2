//! Kernels by layer of the model.

use serde::{Deserialize, Serialize};

/// The kernels of the layers of one kind in one stage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LayerRow {
    /// Stage name.
    pub stage: String,
    /// Module name, with `*` for the numbers in which the layers of the kind differ; `None` for kernels outside every named module.
    pub layer: Option<String>,
    /// Number of layers of the kind; `None` for kernels outside every named module.
    pub layers: Option<u64>,
    /// Kernel time, ns. A kernel counts for the innermost module around it.
    pub kernel_ns: i64,
    /// Number of kernels.
    pub kernel_count: u64,
    /// Number of times the layers ran; `None` for kernels outside every named module.
    pub calls: Option<u64>,
    /// Kernel time, % of the kernel time of the stage.
    pub share_pct: f64,
    /// Kernel time of the single layers; `None` for a layer that is alone of its kind.
    pub spread: Option<LayerSpread>,
}

/// Kernel time of the single layers of a kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LayerSpread {
    /// Shortest, ns.
    pub min_ns: i64,
    /// Median, ns.
    pub median_ns: i64,
    /// Longest, ns.
    pub max_ns: i64,
    /// Name of the layer with the longest time.
    pub longest: String,
}
