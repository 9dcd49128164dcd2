//! SGLang.

use super::step::{self, Phases, quantity};
use super::{Engine, GaugeNames, Grammar, Scheduled};
use crate::knobs::{self, KnobRule, flag, raised, without_switch};
use crate::result::KnobChange;
use roofgap_trace::frames;

pub static SGLANG: Engine = Engine {
    name: "SGLang",
    commands: &["sglang"],
    package: Some("sglang"),
    metrics: Some("sglang:"),
    gauges: GaugeNames {
        cache_usage: &["sglang:token_usage"],
        running: &["sglang:num_running_reqs"],
        waiting: &["sglang:num_queue_reqs"],
        evictions: &["sglang:num_retracted_requests_total"],
    },
    grammars: &[Grammar { example: "step[EXTEND bs=15 toks=15360]", seen: "SGLang 0.5.10 to 0.5.23", parse }],
    frames: frames::SGLANG,
    parts: &[
        ("sglang/srt/managers/scheduler_output_processor", "", "output processor"),
        ("sglang/srt/managers/scheduler_components/batch_result_processor", "", "output processor"),
        ("sglang/srt/managers/scheduler_components/output_", "", "output processor"),
        ("sglang/srt/managers/sched", "", "scheduler"),
        ("sglang/srt/mem_cache/", "", "KV cache"),
        ("sglang/srt/layers/sampler", "", "sampler"),
        ("sglang/srt/layers/attention/", "", "attention metadata"),
        ("sglang/srt/model_executor/", "", "model runner"),
        ("sglang/srt/layers/", "", "model"),
    ],
    knobs: &KNOBS,
    uses_graphs: true,
    ..Engine::UNKNOWN
};

/// Reads `step[MODE bs=N toks=T c_sq=.. g_sk=..]`.
fn parse(name: &str) -> Option<Phases> {
    let inside = name.strip_prefix("step[")?.strip_suffix(']')?;
    let mode = inside.split_ascii_whitespace().next()?;
    let text = |key: &str| step::field(inside, key);
    let field = |key: &str| quantity(text(key)?);
    let batch = field("raw_bs").or_else(|| field("bs"))?;
    let phase = |requests: Option<u64>, tokens: Option<u64>, prefix: &str| Scheduled {
        requests,
        tokens: field(&format!("{prefix}_sq")).or(tokens),
        sequence_tokens: field(&format!("{prefix}_sk")),
        query_key_pairs: text(&format!("{prefix}_sqsk")).and_then(|pairs| pairs.parse().ok()),
    };
    Some(match mode {
        "EXTEND" | "SPLIT_PREFILL" | "DLLM_EXTEND" => {
            (phase(Some(batch), field("toks"), "c"), Scheduled::NONE)
        }
        // One new token for each request.
        "DECODE" => (Scheduled::NONE, phase(Some(batch), Some(batch), "g")),
        "MIXED" => (phase(field("c"), None, "c"), phase(field("g"), None, "g")),
        // Speculative decoding: a step is from check to check, and holds the drafts (`DRAFT`, which is no step). How many tokens it
        // yields is not in the name. Versions before 0.5.20 write `TARGET_VERIFY`.
        "VERIFY" | "TARGET_VERIFY" => (
            Scheduled::NONE,
            Scheduled { requests: Some(batch), sequence_tokens: field("g_sk"), ..Scheduled::default() },
        ),
        "IDLE" | "PREBUILT" => (Scheduled::NONE, Scheduled::NONE),
        _ => return None,
    })
}

const KNOBS: [KnobRule; 6] = [
    KnobRule {
        id: "sglang.cuda_graphs",
        title: "let SGLang use CUDA graphs",
        applies: "--disable-cuda-graph, or its newer form for decode, is set; starting takes longer, and graphs take memory",
        changes: |case| {
            let program = case.program()?;
            let switches = ["--disable-cuda-graph", "--disable-decode-cuda-graph"].into_iter();
            let backend = || {
                let found = program.flag("--cuda-graph-backend-decode")?;
                let is_off = found.value == Some("disabled");
                is_off.then(|| KnobChange::RemoveFlag { flag: found.spelled.to_owned(), takes_value: true })
            };
            Some(vec![switches.filter_map(|name| without_switch(program, name)).next().or_else(backend)?])
        },
        ..knobs::GRAPHS
    },
    KnobRule {
        id: "sglang.graph_sizes",
        applies: "batches without a graph; graphs take memory and time at the start",
        changes: |case| {
            let (program, (largest, by_graph)) = (case.command()?, case.eager_batches()?);
            if largest > by_graph {
                // Versions since 0.5.14 have a flag for each phase; those since 0.5.20 refuse the old one.
                let found = program.flag("--cuda-graph-max-bs");
                let name = found.map_or("--cuda-graph-max-bs-decode", |found| found.spelled);
                return Some(vec![flag(name, largest)]);
            }
            // A batch between captured sizes runs without a graph unless it is padded.
            Some(vec![without_switch(program, "--disable-cuda-graph-padding")?])
        },
        ..knobs::GRAPH_SIZES
    },
    KnobRule {
        id: "sglang.overlap_schedule",
        applies: "--disable-overlap-schedule is set",
        changes: |case| Some(vec![without_switch(case.program()?, "--disable-overlap-schedule")?]),
        ..knobs::OVERLAP
    },
    KnobRule {
        id: "sglang.max_running_requests",
        applies: "--max-running-requests is below the number of requests in flight",
        changes: |case| raised(case, "--max-running-requests"),
        ..knobs::MORE_REQUESTS
    },
    KnobRule {
        id: "sglang.chunked_prefill_size",
        changes: |case| knobs::quartered(case, "--chunked-prefill-size"),
        ..knobs::FEWER_PROMPT_TOKENS
    },
    KnobRule {
        id: "sglang.kv_cache_dtype",
        changes: |case| knobs::unset(case, "--kv-cache-dtype", "fp8_e5m2"),
        ..knobs::SMALLER_CACHE
    },
];
