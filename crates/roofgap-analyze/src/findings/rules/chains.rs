//! Elementwise kernels in a row that could be one.

use crate::findings::builder::FindingBuilder;
use crate::findings::{Explanation, View};
use crate::numbers::{count, time};
use crate::result::Finding;

/// Runs of three or more kernels that only move and combine elements. The bound is their time without the longest of each
/// run; the launches they cost are in the launch-bound finding.
pub fn unfused(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let Some(chains) = view.evidence.map(|evidence| evidence.chains) else {
        return;
    };
    if chains.count == 0 {
        return;
    }
    let title = format!(
        "{} runs {} kernels in {} unfused {} of elementwise work, {} in all",
        stage.spoken(),
        count(chains.kernels),
        count(chains.count),
        if chains.count == 1 { "chain" } else { "chains" },
        time(chains.ns)
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

/// Explains `unfused-elementwise`.
pub const UNFUSED: Explanation = Explanation {
    id: "unfused-elementwise",
    remedy: "fused elementwise kernels",
    meaning: "Several kernels in a row only move or combine elements. Each reads from memory what the one before \
              it has just written.",
    computed: "Runs of three or more elementwise kernels on one stream. The bound is their time without the longest \
              kernel of each run; gaps between their launches belong to another finding.",
    fix: "Let torch.compile fuse them, or use fused kernels for norms, rotary embeddings and activations.",
    links: &["https://docs.pytorch.org/docs/stable/generated/torch.compile.html"],
};
