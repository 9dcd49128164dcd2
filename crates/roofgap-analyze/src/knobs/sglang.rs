//! Flags of SGLang.

use super::rule::{Case, KnobRule, flag, raised, without_switch};
use crate::result::{KnobChange, OutputEffect};

const ENGINE: &str = "SGLang";
/// Prompt tokens of a step from which on a smaller limit is worth a trial; the default is 2048 or more.
const PROMPT_TOKENS: u64 = 2048;

pub const KNOBS: [KnobRule; 6] = [
    KnobRule {
        id: "sglang.cuda_graphs",
        title: "let SGLang use CUDA graphs",
        findings: &["launch-bound", "gaps-between-steps", "sync-in-step", "host-copies"],
        output: OutputEffect::Rounding,
        applies: "--disable-cuda-graph is set; starting takes longer, and graphs take memory",
        changes: |case| Some(vec![without_switch(case.program_of(ENGINE)?, "--disable-cuda-graph")?]),
    },
    KnobRule {
        id: "sglang.graph_sizes",
        title: "capture CUDA graphs up to the largest batch that ran",
        findings: &["graphs-not-used"],
        output: OutputEffect::Rounding,
        applies: "batches without a graph; graphs take memory and time at the start",
        changes: larger_graphs,
    },
    KnobRule {
        id: "sglang.overlap_schedule",
        title: "schedule the next step while the GPU runs this one",
        findings: &["gaps-between-steps", "launch-bound"],
        output: OutputEffect::Rounding,
        applies: "--disable-overlap-schedule is set",
        changes: |case| Some(vec![without_switch(case.program_of(ENGINE)?, "--disable-overlap-schedule")?]),
    },
    KnobRule {
        id: "sglang.max_running_requests",
        title: "allow as many requests in a step as are in flight",
        findings: &["batch-too-small"],
        output: OutputEffect::Rounding,
        applies: "--max-running-requests is below the number of requests in flight",
        changes: |case| {
            let program = case.command_of(ENGINE)?;
            let in_flight = case.evidence("requests_in_flight")?;
            Some(vec![raised(program, "--max-running-requests", in_flight)?])
        },
    },
    KnobRule {
        id: "sglang.chunked_prefill_size",
        title: "read fewer prompt tokens in a step",
        findings: &["decode-starved"],
        output: OutputEffect::Rounding,
        applies: "requests that generate wait for prompts; costs time to first token",
        changes: |case| {
            let now = match case.command_of(ENGINE)?.flag("--chunked-prefill-size") {
                // A negative size turns chunks off.
                Some(found) => u64::try_from(found.value?.parse::<i64>().ok()?).unwrap_or(4 * PROMPT_TOKENS),
                None => PROMPT_TOKENS,
            };
            (now >= PROMPT_TOKENS).then(|| vec![flag("--chunked-prefill-size", now / 4)])
        },
    },
    KnobRule {
        id: "sglang.kv_cache_dtype",
        title: "store the KV cache in 8 bits",
        findings: &["kv-cache-full", "memory-at-roof"],
        output: OutputEffect::Changes,
        applies: "--kv-cache-dtype is not set; the device and the attention backend support fp8",
        changes: |case| {
            let unset = case.command_of(ENGINE)?.flag("--kv-cache-dtype").is_none();
            unset.then(|| vec![flag("--kv-cache-dtype", "fp8_e5m2")])
        },
    },
];

fn larger_graphs(case: &Case<'_>) -> Option<Vec<KnobChange>> {
    let program = case.command_of(ENGINE)?;
    let sizes = case.finding.evidence.get("batch_sizes")?.as_array()?;
    let largest = sizes.iter().filter_map(serde_json::Value::as_u64).max()?;
    let by_graph = case.evidence("largest_graph_batch").unwrap_or(0.0);
    if largest as f64 > by_graph {
        // Newer versions have one flag for each phase, and accept the old one for decode.
        let name = match program.flag("--cuda-graph-max-bs-decode") {
            Some(found) => found.spelled,
            None => "--cuda-graph-max-bs",
        };
        return Some(vec![flag(name, largest)]);
    }
    // A batch between captured sizes runs without a graph unless it is padded.
    Some(vec![without_switch(program, "--disable-cuda-graph-padding")?])
}
