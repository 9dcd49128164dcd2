//! Flags of vLLM.

use super::rule::{Case, KnobRule, flag, raised, switch, without_switch};
use crate::result::{KnobChange, OutputEffect};

const ENGINE: &str = "vLLM";
const EAGER: &str = "--enforce-eager";
/// Batch sizes of graphs are multiples of this above the smallest.
const GRAPH_SIZE_STEP: u64 = 8;
/// Prompt tokens of a step from which on a smaller limit is worth a trial; vLLM serves with 2048 or more by default.
const PROMPT_TOKENS: u64 = 2048;

pub const KNOBS: [KnobRule; 8] = [
    KnobRule {
        id: "vllm.no_enforce_eager",
        title: "let vLLM compile the model and use CUDA graphs",
        findings: &[
            "launch-bound",
            "gaps-between-steps",
            "sync-in-step",
            "host-copies",
            "unfused-elementwise",
            "small-kernels",
            "memory-below-roof",
        ],
        output: OutputEffect::Rounding,
        applies: "--enforce-eager is set; starting takes longer, and graphs take memory",
        changes: |case| Some(vec![without_switch(case.program_of(ENGINE)?, EAGER)?]),
    },
    KnobRule {
        id: "vllm.cuda_graphs",
        title: "use CUDA graphs of the whole model without compiling it",
        findings: &["launch-bound", "gaps-between-steps", "sync-in-step", "host-copies"],
        output: OutputEffect::Rounding,
        applies: "--enforce-eager is set; graphs take memory",
        changes: |case| {
            let program = case.command_of(ENGINE)?;
            let eager = without_switch(program, EAGER)?;
            let free = program.flag("--compilation-config").is_none();
            let graphs = flag("--compilation-config", r#"{"mode":0,"cudagraph_mode":"FULL"}"#);
            free.then(|| vec![eager, graphs])
        },
    },
    KnobRule {
        id: "vllm.graph_sizes",
        title: "capture CUDA graphs up to the largest batch that ran",
        findings: &["graphs-not-used"],
        output: OutputEffect::Rounding,
        applies: "batches larger than the captured graphs; graphs take memory and time at the start",
        changes: larger_graphs,
    },
    KnobRule {
        id: "vllm.max_num_seqs",
        title: "allow as many requests in a step as are in flight",
        findings: &["batch-too-small"],
        output: OutputEffect::Rounding,
        applies: "--max-num-seqs is below the number of requests in flight",
        changes: |case| {
            let program = case.command_of(ENGINE)?;
            let in_flight = case.evidence("requests_in_flight")?;
            Some(vec![raised(program, "--max-num-seqs", in_flight)?])
        },
    },
    KnobRule {
        id: "vllm.max_num_batched_tokens",
        title: "read fewer prompt tokens in a step",
        findings: &["decode-starved"],
        output: OutputEffect::Rounding,
        applies: "requests that generate wait for prompts; costs time to first token",
        changes: fewer_prompt_tokens,
    },
    KnobRule {
        id: "vllm.async_scheduling",
        title: "schedule the next step while the GPU runs this one",
        findings: &["gaps-between-steps", "launch-bound"],
        output: OutputEffect::Rounding,
        applies: "vLLM versions and features that support it; newer ones do it by default",
        changes: |case| {
            let program = case.command_of(ENGINE)?;
            if let Some(off) = without_switch(program, "--no-async-scheduling") {
                return Some(vec![off]);
            }
            let unset = program.flag("--async-scheduling").is_none();
            unset.then(|| vec![switch("--async-scheduling")])
        },
    },
    KnobRule {
        id: "vllm.kv_cache_dtype",
        title: "store the KV cache in 8 bits",
        findings: &["kv-cache-full", "memory-at-roof"],
        output: OutputEffect::Changes,
        applies: "--kv-cache-dtype is not set; the device and the attention backend support fp8",
        changes: |case| {
            let unset = case.command_of(ENGINE)?.flag("--kv-cache-dtype").is_none();
            unset.then(|| vec![flag("--kv-cache-dtype", "fp8")])
        },
    },
    KnobRule {
        id: "vllm.gpu_memory_utilization",
        title: "give the KV cache more of the GPU's memory",
        findings: &["kv-cache-full"],
        output: OutputEffect::Rounding,
        applies: "--gpu-memory-utilization is below 0.95, and no other program needs the memory",
        changes: |case| {
            // The default of vLLM is 0.9 or a little above it.
            let found = case.command_of(ENGINE)?.flag("--gpu-memory-utilization");
            let share: f64 = found.and_then(|found| found.value?.parse().ok()).unwrap_or(0.9);
            (share < 0.95).then(|| vec![flag("--gpu-memory-utilization", "0.95")])
        },
    },
];

fn larger_graphs(case: &Case<'_>) -> Option<Vec<KnobChange>> {
    let program = case.command_of(ENGINE)?;
    if program.flag("--cudagraph-capture-sizes").is_some() {
        return None;
    }
    let sizes = case.finding.evidence.get("batch_sizes")?.as_array()?;
    let largest = sizes.iter().filter_map(serde_json::Value::as_u64).max()?;
    let by_graph = case.evidence("largest_graph_batch").unwrap_or(0.0);
    // A smaller batch without a graph has another cause.
    (largest as f64 > by_graph).then_some(())?;
    let size = largest.checked_next_multiple_of(GRAPH_SIZE_STEP)?;
    Some(vec![flag("--max-cudagraph-capture-size", size)])
}

fn fewer_prompt_tokens(case: &Case<'_>) -> Option<Vec<KnobChange>> {
    let found = case.command_of(ENGINE)?.flag("--max-num-batched-tokens");
    let now = match found {
        Some(found) => found.value?.parse().ok()?,
        None => PROMPT_TOKENS,
    };
    (now >= PROMPT_TOKENS).then(|| vec![flag("--max-num-batched-tokens", now / 4)])
}
