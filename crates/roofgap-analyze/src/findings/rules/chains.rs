//! Elementwise kernels in a row that could be one.

use crate::findings::View;
use crate::findings::builder::{FindingBuilder, count, ms};
use crate::result::Finding;

/// Runs of three or more kernels that only move and combine elements. The bound is their time without the longest of each
/// run; the launches they cost are in the launch-bound finding.
pub(in crate::findings) fn unfused(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let Some(chains) = view.evidence.map(|evidence| evidence.chains) else {
        return;
    };
    if chains.count == 0 {
        return;
    }
    let title = format!(
        "{} runs {} kernels in {} unfused {} of elementwise work, {} in all",
        stage.name,
        count(chains.kernels),
        count(chains.count),
        if chains.count == 1 { "chain" } else { "chains" },
        ms(chains.ns)
    );
    let action = format!(
        "Fuse them: torch.compile, or a fused norm, rotary embedding and activation; the longest chain has {} kernels. Each \
         kernel of a chain reads and writes what the one before it had in registers.",
        chains.longest
    );
    FindingBuilder::summed("unfused-elementwise", stage, chains.beyond_longest_ns)
        .with("chains", chains.count)
        .with("kernels_in_chains", chains.kernels)
        .with("kernels", stage.kernel_count)
        .with("chain_ns", chains.ns)
        .with("longest_chain", chains.longest)
        .finish(title, action, findings);
}
