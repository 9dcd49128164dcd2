//! Kernels by layer of the model.

use super::numbers::{NONE, ms, or_none};
use super::table::Table;
use roofgap_analyze::{About, Analysis, LayerRow};

/// Explains the columns of the table of layers.
pub const LAYERS: &str = "Shares are of the kernel time of the stage. A kernel counts for the innermost module around its launch, or, in a \
     CUDA graph, around the capture of its node.";

/// Columns for a terminal.
pub const TEXT: [&str; 8] =
    ["stage", "layer", "layers", "kernel ms", "share %", "kernels", "calls", "ms per layer"];

/// Builds the table of layers; empty where the capture names no modules.
pub fn table(analysis: &Analysis) -> Table {
    Table::of(&analysis.layers)
        .text("stage", |row: &LayerRow| row.stage.clone())
        .text("layer", |row| row.layer.clone().unwrap_or_else(|| "(no module)".into()))
        .count("layers", |row| row.layers)
        .ms("kernel", |row| row.kernel_ns)
        .decimal("share %", |row| Some(row.share_pct))
        .count("kernels", |row| row.kernel_count)
        .count("calls", |row| row.calls)
        .number("ms per layer", |row| {
            or_none(row.spread.as_ref(), |spread| format!("{} to {}", ms(spread.min_ns), ms(spread.max_ns)))
        })
        .text("longest", |row| {
            let spread = row.spread.as_ref();
            spread.map_or_else(|| NONE.into(), |spread| spread.longest.clone())
        })
        .build()
}

/// Returns the reason for kernels without a layer.
pub fn unnamed(analysis: &Analysis) -> Option<&str> {
    analysis.reason(&About::Other("layers".into()))
}
