//! Knobs of the embedded model.

use super::facts::WorkloadFacts;
use super::rule::{Case, KnobRule, set};
use crate::result::{KnobChange, OutputEffect};

pub const KNOBS: [KnobRule; 2] = [
    KnobRule {
        id: "embedded.kv_cache",
        title: "keep keys and values of earlier positions",
        findings: &["context-recomputed"],
        output: OutputEffect::Rounding,
        applies: "workload.kv_cache is false",
        changes: |case| uncached(case).map(|_| vec![set("workload.kv_cache", true)]),
    },
    KnobRule {
        id: "embedded.context_limit",
        title: "read a quarter of the context again",
        findings: &["context-recomputed"],
        output: OutputEffect::Changes,
        applies: "workload.kv_cache is false, and workload.context_limit is not set",
        changes: shorter_context,
    },
];

/// Returns the context limit of a model without a KV cache.
fn uncached(case: &Case<'_>) -> Option<Option<u64>> {
    match case.workload {
        WorkloadFacts::Embedded { kv_cache: false, context_limit } => Some(*context_limit),
        _ => None,
    }
}

fn shorter_context(case: &Case<'_>) -> Option<Vec<KnobChange>> {
    if uncached(case)?.is_some() {
        return None;
    }
    let quarter = (case.evidence("mean_context_tokens")? / 4.0).max(1.0) as u64;
    Some(vec![set("workload.context_limit", quarter)])
}
