//! Hugging Face transformers. Steps of its continuous batching have names; those of `generate` are marked by Python frames. The knobs are
//! those of the driver.

use super::knob::{Case, HfFacts, KnobRule, set};
use super::step::phases;
use super::{Engine, Grammar};
use crate::result::KnobChange;

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
    knobs: &KNOBS,
    in_process: true,
    ..Engine::UNKNOWN
};

const KNOBS: [KnobRule; 6] = [
    KnobRule {
        id: "hf.cuda_graphs",
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
        changes: |case| {
            let hf = case.hf_decode()?;
            (!hf.compile).then(|| vec![set("workload.compile", true)])
        },
    },
    KnobRule {
        id: "hf.experts",
        changes: |case| {
            let hf = case.hf_decode()?;
            Some(vec![batched_experts(case, hf)?])
        },
    },
    KnobRule {
        id: "hf.attention",
        changes: |case| {
            let eager = case.hf()?.attention.as_deref() == Some("eager");
            eager.then(|| vec![set("model.attention", "sdpa")])
        },
    },
    KnobRule {
        id: "hf.batch",
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
