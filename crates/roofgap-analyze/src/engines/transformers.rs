//! Hugging Face transformers. Steps of its continuous batching have names; those of `generate` are marked by Python frames. The knobs are
//! those of the driver.

use super::step::phases;
use super::{Engine, Grammar};
use crate::knobs::{Case, HfFacts, KnobRule, set};
use crate::result::{KnobChange, OutputEffect};
use roofgap_trace::frames;

/// Experts as batched products: the fastest for few tokens, and what a CUDA graph can hold.
const BATCHED: &str = "batched_mm";

/// Findings about kernels, which a graph alone does not change.
const OF_KERNELS: [&str; 3] = ["small-kernels", "unfused-elementwise", "memory-below-roof"];

/// Largest factor by which a batch grows in one trial.
const MOST_GROWTH: f64 = 16.0;

pub static TRANSFORMERS: Engine = Engine {
    name: "transformers",
    package: Some("transformers"),
    grammars: &[Grammar {
        example: "transformers_context_3(14)_generation_5(5)",
        seen: "the annotation of this project, transformers 5.17",
        parse: |name| phases(name.strip_prefix("transformers_context_")?),
    }],
    frames: frames::TRANSFORMERS,
    knobs: &KNOBS,
    in_process: true,
    ..Engine::UNKNOWN
};

const KNOBS: [KnobRule; 6] = [
    KnobRule {
        id: "hf.cuda_graphs",
        title: "replay each decode step as a CUDA graph",
        findings: &[
            "launch-bound",
            "sync-in-step",
            "host-copies",
            "experts-one-by-one",
            "small-kernels",
            "unfused-elementwise",
            "memory-below-roof",
        ],
        output: OutputEffect::Rounding,
        applies: "decode on a CUDA device, prompts of one length; uses a static cache, and batched experts in a mixture of experts",
        changes: |case| {
            let hf = case.hf_decode().filter(|hf| !hf.cuda_graphs)?;
            let experts = batched_experts(case, hf);
            if experts.is_none() && OF_KERNELS.contains(&case.finding.id.as_str()) {
                return None;
            }
            Some(std::iter::once(set("workload.cuda_graphs", true)).chain(experts).collect())
        },
    },
    KnobRule {
        id: "hf.compile",
        title: "compile the decode step with torch.compile",
        findings: &["launch-bound", "unfused-elementwise", "small-kernels", "memory-below-roof"],
        output: OutputEffect::Rounding,
        applies: "decode; compiling takes time in the warm-up, and uses a static cache",
        changes: |case| {
            let hf = case.hf_decode()?;
            (!hf.compile).then(|| vec![set("workload.compile", true)])
        },
    },
    KnobRule {
        id: "hf.experts",
        title: "run the experts of a layer as one batched product",
        findings: &[
            "experts-one-by-one",
            "launch-bound",
            "small-kernels",
            "unfused-elementwise",
            "memory-below-roof",
        ],
        output: OutputEffect::Rounding,
        applies: "a mixture of experts in transformers 5 or later; each token gets a copy of its experts' weights, which takes memory",
        changes: |case| {
            let hf = case.hf_decode()?;
            Some(vec![batched_experts(case, hf)?])
        },
    },
    KnobRule {
        id: "hf.attention",
        title: "use fused attention (scaled_dot_product_attention)",
        findings: &[
            "unfused-attention",
            "launch-bound",
            "unfused-elementwise",
            "small-kernels",
            "memory-below-roof",
        ],
        output: OutputEffect::Rounding,
        applies: "model.attention is eager",
        changes: |case| {
            let eager = case.hf()?.attention.as_deref() == Some("eager");
            eager.then(|| vec![set("model.attention", "sdpa")])
        },
    },
    KnobRule {
        id: "hf.batch",
        title: "decode more sequences at once",
        findings: &["small-kernels", "memory-at-roof"],
        output: OutputEffect::Changes,
        applies: "there are more sequences to decode; the times to compare are those of a token, and the output has more sequences",
        changes: |case| {
            let hf = case.hf_decode()?;
            let blocks = case.evidence("largest_blocks").filter(|blocks| *blocks > 0.0);
            // As many sequences as would give the largest kernel a block on every multiprocessor.
            let fill = blocks.and_then(|blocks| Some(case.evidence("multiprocessors")? / blocks));
            let growth = fill.unwrap_or(4.0).clamp(2.0, MOST_GROWTH) as u64;
            let growth = growth.checked_next_power_of_two()?;
            Some(vec![set("workload.batch", hf.batch.max(1).checked_mul(growth)?)])
        },
    },
    KnobRule {
        id: "hf.dtype",
        title: "keep the weights in bf16",
        findings: &["tensor-cores-idle", "memory-at-roof"],
        output: OutputEffect::Changes,
        applies: "the weights are in 32 bits",
        changes: |case| {
            let wide = ["fp32", "f32", "float32"].contains(&case.hf()?.dtype.as_str());
            wide.then(|| vec![set("model.dtype", "bf16")])
        },
    },
];

/// Returns the change to batched experts; `None` for a model without experts, or where they are batched already.
fn batched_experts(case: &Case<'_>, hf: &HfFacts) -> Option<KnobChange> {
    let batched = hf.experts.as_deref() == Some(BATCHED);
    (case.has_experts && !batched).then(|| set("model.experts", BATCHED))
}
