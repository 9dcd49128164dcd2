//! vLLM.

use super::knob::{self, KnobRule, flag, raised, switch, without_switch};
use super::step::{Phases, phases, quantity};
use super::{Engine, Grammar, Scheduled};

const EAGER: &str = "--enforce-eager";
/// Batch sizes of graphs are multiples of this above the smallest.
const GRAPH_SIZE_STEP: u64 = 8;

pub static VLLM: Engine = Engine {
    name: "vLLM",
    commands: &["vllm"],
    package: Some("vllm"),
    metrics: Some("vllm:"),
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
        changes: |case| Some(vec![without_switch(case.program()?, EAGER)?]),
    },
    KnobRule {
        id: "vllm.cuda_graphs",
        changes: |case| {
            let program = case.command()?;
            let eager = without_switch(program, EAGER)?;
            let free = program.flag("--compilation-config").is_none();
            let graphs = flag("--compilation-config", r#"{"mode":0,"cudagraph_mode":"FULL"}"#);
            free.then(|| vec![eager, graphs])
        },
    },
    KnobRule {
        id: "vllm.graph_sizes",
        changes: |case| {
            let (largest, by_graph) = case.eager_batches()?;
            let is_free = case.command()?.flag("--cudagraph-capture-sizes").is_none();
            // A smaller batch without a graph has another cause.
            let size = largest.checked_next_multiple_of(GRAPH_SIZE_STEP)?;
            (is_free && largest > by_graph).then(|| vec![flag("--max-cudagraph-capture-size", size)])
        },
    },
    KnobRule { id: "vllm.max_num_seqs", changes: |case| raised(case, "--max-num-seqs") },
    KnobRule {
        id: "vllm.max_num_batched_tokens",
        changes: |case| knob::quartered(case, "--max-num-batched-tokens"),
    },
    KnobRule {
        id: "vllm.async_scheduling",
        changes: |case| {
            let program = case.command()?;
            if let Some(off) = without_switch(program, "--no-async-scheduling") {
                return Some(vec![off]);
            }
            let unset = program.flag("--async-scheduling").is_none();
            unset.then(|| vec![switch("--async-scheduling")])
        },
    },
    KnobRule { id: "vllm.kv_cache_dtype", changes: |case| knob::unset(case, "--kv-cache-dtype", "fp8") },
    KnobRule {
        id: "vllm.gpu_memory_utilization",
        changes: |case| {
            // The default of vLLM is 0.9 or a little above it.
            let memory = case.command()?.flag("--gpu-memory-utilization");
            let share: f64 = memory.and_then(|memory| memory.value?.parse().ok()).unwrap_or(0.9);
            (share < 0.95).then(|| vec![flag("--gpu-memory-utilization", "0.95")])
        },
    },
];
