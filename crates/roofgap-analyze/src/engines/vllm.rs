//! vLLM.

use super::step::{Phases, phases, quantity};
use super::{Engine, GaugeNames, Grammar, Scheduled};
use crate::knobs::{self, KnobRule, flag, raised, switch, without_switch};
use crate::result::OutputEffect;
use roofgap_trace::frames;

const EAGER: &str = "--enforce-eager";
/// Batch sizes of graphs are multiples of this above the smallest.
const GRAPH_SIZE_STEP: u64 = 8;

pub static VLLM: Engine = Engine {
    name: "vLLM",
    commands: &["vllm"],
    package: Some("vllm"),
    metrics: Some("vllm:"),
    gauges: GaugeNames {
        // The second name is that of versions before 0.10.
        cache_usage: &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
        running: &["vllm:num_requests_running"],
        waiting: &["vllm:num_requests_waiting"],
        evictions: &["vllm:num_preemptions_total"],
    },
    grammars: &[
        Grammar {
            example: "execute_context_2(768)_generation_14(14)",
            seen: "vLLM 0.14 to 0.33",
            parse: context_and_generation,
        },
        Grammar { example: "execute_new_2_cached_14", seen: "vLLM 0.11.1 to 0.13", parse: new_and_cached },
        Grammar {
            example: "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)",
            seen: "vLLM with detailed_trace_annotation, 2026",
            parse: context_and_generation,
        },
    ],
    lends_names: true,
    doubt: Some(
        "the names of these vLLM steps have no tokens: the later parts of a prompt that is read in several steps count as decode",
    ),
    is_capture,
    frames: frames::VLLM,
    parts: &[
        ("vllm/v1/core/", "", "scheduler"),
        ("vllm/v1/engine/output_processor", "", "output processor"),
        ("vllm/v1/engine/", "", "engine core"),
        ("vllm/v1/sample/", "", "sampler"),
        ("vllm/v1/worker/", "_prepare_inputs", "input preparation"),
        ("vllm/v1/worker/", "_update_states", "input preparation"),
        ("vllm/v1/worker/gpu_input_batch", "", "input preparation"),
        // The model runner of newer versions.
        ("vllm/v1/worker/gpu/", "prepare_inputs", "input preparation"),
        ("vllm/v1/worker/gpu/", "add_requests", "input preparation"),
        ("vllm/v1/worker/gpu/", "update_requests", "input preparation"),
        ("vllm/v1/worker/gpu/input_batch", "", "input preparation"),
        ("vllm/v1/worker/gpu/states", "", "input preparation"),
        ("vllm/v1/worker/gpu/attn_utils", "", "attention metadata"),
        ("vllm/v1/worker/gpu/sample/", "", "sampler"),
        ("vllm/v1/attention/", "", "attention metadata"),
        ("vllm/v1/worker/", "", "model runner"),
        ("vllm/compilation/", "", "compiled graphs"),
        ("vllm/model_executor/", "", "model"),
    ],
    knobs: &KNOBS,
    uses_graphs: true,
    compiles_for_graphs: true,
    ..Engine::UNKNOWN
};

/// Reads `execute_[TOTAL_]context_N(...)_generation_M(...)`.
fn context_and_generation(name: &str) -> Option<Phases> {
    let rest = name.strip_prefix("execute_")?;
    phases(match rest.strip_prefix("context_") {
        Some(rest) => rest,
        None => {
            let (total, rest) = rest.split_once("_context_")?;
            total.parse::<u64>().ok()?;
            rest
        }
    })
}

/// Reads `execute_new_N_cached_M`, which has no tokens. A request is new in its first step only: the later steps of a prompt that is
/// read in several count as generation.
fn new_and_cached(name: &str) -> Option<Phases> {
    let (new, cached) = name.strip_prefix("execute_new_")?.split_once("_cached_")?;
    Some((Scheduled::requests(quantity(new)?), Scheduled::requests(quantity(cached)?)))
}

/// Tells whether a range is the capture of a CUDA graph, such as `capture_32_FULL`.
fn is_capture(name: &str) -> bool {
    let parts = name.strip_prefix("capture_").and_then(|rest| rest.split_once('_'));
    parts.is_some_and(|(size, mode)| {
        let is_mode = mode.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        size.parse::<u64>().is_ok() && !mode.is_empty() && is_mode
    })
}

const KNOBS: [KnobRule; 8] = [
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
        changes: |case| Some(vec![without_switch(case.program()?, EAGER)?]),
    },
    KnobRule {
        id: "vllm.cuda_graphs",
        title: "use CUDA graphs of the whole model without compiling it",
        applies: "--enforce-eager is set; graphs take memory",
        changes: |case| {
            let program = case.command()?;
            let eager = without_switch(program, EAGER)?;
            let free = program.flag("--compilation-config").is_none();
            let graphs = flag("--compilation-config", r#"{"mode":0,"cudagraph_mode":"FULL"}"#);
            free.then(|| vec![eager, graphs])
        },
        ..knobs::GRAPHS
    },
    KnobRule {
        id: "vllm.graph_sizes",
        applies: "batches larger than the captured graphs; graphs take memory and time at the start",
        changes: |case| {
            let (largest, by_graph) = case.eager_batches()?;
            let is_free = case.command()?.flag("--cudagraph-capture-sizes").is_none();
            // A smaller batch without a graph has another cause.
            let size = largest.checked_next_multiple_of(GRAPH_SIZE_STEP)?;
            (is_free && largest > by_graph).then(|| vec![flag("--max-cudagraph-capture-size", size)])
        },
        ..knobs::GRAPH_SIZES
    },
    KnobRule {
        id: "vllm.max_num_seqs",
        applies: "--max-num-seqs is below the number of requests in flight",
        changes: |case| raised(case, "--max-num-seqs"),
        ..knobs::MORE_REQUESTS
    },
    KnobRule {
        id: "vllm.max_num_batched_tokens",
        changes: |case| knobs::quartered(case, "--max-num-batched-tokens"),
        ..knobs::FEWER_PROMPT_TOKENS
    },
    KnobRule {
        id: "vllm.async_scheduling",
        applies: "vLLM versions and features that support it; newer ones do it by default",
        changes: |case| {
            let program = case.command()?;
            if let Some(off) = without_switch(program, "--no-async-scheduling") {
                return Some(vec![off]);
            }
            let unset = program.flag("--async-scheduling").is_none();
            unset.then(|| vec![switch("--async-scheduling")])
        },
        ..knobs::OVERLAP
    },
    KnobRule {
        id: "vllm.kv_cache_dtype",
        changes: |case| knobs::unset(case, "--kv-cache-dtype", "fp8"),
        ..knobs::SMALLER_CACHE
    },
    KnobRule {
        id: "vllm.gpu_memory_utilization",
        title: "give the KV cache more of the GPU's memory",
        findings: &["kv-cache-full"],
        output: OutputEffect::Rounding,
        applies: "--gpu-memory-utilization is below 0.95, and no other program needs the memory",
        changes: |case| {
            // The default of vLLM is 0.9 or a little above it.
            let found = case.command()?.flag("--gpu-memory-utilization");
            let share: f64 = found.and_then(|found| found.value?.parse().ok()).unwrap_or(0.9);
            (share < 0.95).then(|| vec![flag("--gpu-memory-utilization", "0.95")])
        },
    },
];
