//! Kernels in a row that could be one: elementwise work, and attention in separate kernels.

use crate::findings::evidence::ChainUse;
use crate::findings::rule::{Cause, Find, Rows, Rule, View};
use crate::names::Family;
use crate::numbers::{count, counted, time};
use crate::result::{Confidence, Finding};
use crate::roof::Keeps;

/// Runs of three or more kernels that only move and combine elements. The bound is their time without the longest of each
/// run; the launches they cost are in the launch-bound finding.
fn unfused(view: &View<'_>) -> Option<Finding> {
    let chains = used(view.evidence?.chains)?;
    let title = format!(
        "{} runs {} kernels in {} of elementwise work, {} in all",
        view.stage.spoken(),
        count(chains.kernels),
        counted(chains.count, "unfused chain"),
        time(chains.ns)
    );
    let action = format!(
        "Fuse them: {}; the longest chain has {} kernels. Each kernel of a chain reads and writes what the one before it had in \
         registers.",
        view.program.fusing(),
        chains.longest
    );
    found(view, &chains, title, action)
}

/// Attention as a product, a softmax among elementwise kernels and another product, which move the scores through memory.
fn unfused_attention(view: &View<'_>) -> Option<Finding> {
    let (chains, program) = (used(view.evidence?.attention)?, view.program);
    let title = format!(
        "{} runs attention in separate kernels {}: product, softmax and product take {}",
        view.stage.spoken(),
        crate::numbers::times(chains.count),
        time(chains.ns)
    );
    let library = if program.is_hopper { "FlashAttention 3 or cuDNN" } else { "FlashAttention 2" };
    let action = match program.engine {
        _ if !program.is_torch => format!("Use a fused attention kernel ({library}), which keeps the scores on the chip."),
        Some(engine) if engine.in_process => {
            "Use fused attention, which keeps the scores on the chip: attn_implementation=\"sdpa\" instead of \"eager\".".to_owned()
        }
        _ => format!(
            "Use torch.nn.functional.scaled_dot_product_attention ({library} where the masks allow it), which keeps the scores on the \
             chip."
        ),
    };
    found(view, &chains, title, action)
}

/// Families that a compiler can fold into one another.
const LIGHT: [Family; 6] = [
    Family::Elementwise,
    Family::CopyLayout,
    Family::Reduction,
    Family::Norm,
    Family::Softmax,
    Family::Quantization,
];

fn used(chains: ChainUse) -> Option<ChainUse> {
    (chains.count > 0).then_some(chains)
}

fn found(view: &View<'_>, chains: &ChainUse, title: String, action: String) -> Option<Finding> {
    let longest_ns = chains.ns - chains.beyond_longest_ns;
    view.saves_on_devices(&[
        ("kernels of the chains", chains.ns),
        ("the longest of each chain", -longest_ns),
        ("gaps between queued kernels of a chain", chains.gaps_ns),
    ])
    .with("chains", chains.count)
    .with("kernels_in_chains", chains.kernels)
    .with("kernels", view.stage.kernel_count)
    .with("chain_ns", chains.ns)
    .with("longest_chain", chains.longest)
    .finish(title, action)
}

pub const UNFUSED: Rule = Rule {
    find: Find::One(unfused),
    cause: Cause::Fusion,
    keeps: Keeps::Flops,
    rows: Rows::Kernels(&LIGHT),
    confidence: Confidence::Bounded,
    id: "unfused-elementwise",
    remedy: "fused elementwise kernels",
    meaning: "Several kernels in a row only move or combine elements. Each reads from memory what the one before \
              it has just written.",
    computed: "Runs of three or more elementwise kernels on one stream. The bound is their time without the longest \
              kernel of each run, and the gaps of up to 5 µs between them; longer gaps are those before a launch.",
    fix: "Let torch.compile fuse them, or use fused kernels for norms, rotary embeddings and activations.",
    disproof: "The kernels of a chain work on different data, so that a fused kernel moves as many bytes.",
    links: &["https://docs.pytorch.org/docs/stable/generated/torch.compile.html"],
    ..Rule::BASE
};

pub const UNFUSED_ATTENTION: Rule = Rule {
    find: Find::One(unfused_attention),
    cause: Cause::Attention,
    keeps: Keeps::Flops,
    rows: Rows::Kernels(&[Family::Softmax, Family::Gemm, Family::Gemv, Family::Elementwise]),
    confidence: Confidence::Bounded,
    id: "unfused-attention",
    remedy: "fused attention",
    meaning: "Attention runs as separate kernels: a product for the scores, scaling, mask and softmax, and a product with the values. \
              Each of them moves the scores, which grow with the square of the context, through memory.",
    computed: "A matrix product, then elementwise kernels with a softmax among them, then a matrix product, on one stream. The bound is \
              their time without the longest kernel of each group.",
    fix: "Use scaled_dot_product_attention or a FlashAttention kernel; attn_implementation=\"sdpa\" in transformers.",
    disproof: "The softmax is not that of attention, such as one over experts or classes between two layers.",
    links: &[
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
    ],
    ..Rule::BASE
};
