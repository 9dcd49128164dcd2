//! SGLang.

use super::knob::{self, KnobRule, flag, raised, without_switch};
use super::step::{self, Phases, quantity};
use super::{Engine, Grammar, Scheduled};
use crate::result::KnobChange;

pub static SGLANG: Engine = Engine {
    name: "SGLang",
    commands: &["sglang"],
    package: Some("sglang"),
    metrics: Some("sglang:"),
    grammars: &[Grammar { example: "step[EXTEND bs=15 toks=15360]", seen: "SGLang 0.5.10 to 0.5.23", parse }],
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
        changes: |case| {
            let program = case.program()?;
            let switches = ["--disable-cuda-graph", "--disable-decode-cuda-graph"].into_iter();
            let backend = || {
                let backend = program.flag("--cuda-graph-backend-decode")?;
                let is_off = backend.value == Some("disabled");
                is_off.then(|| KnobChange::RemoveFlag { flag: backend.spelled.to_owned(), takes_value: true })
            };
            Some(vec![switches.filter_map(|name| without_switch(program, name)).next().or_else(backend)?])
        },
    },
    KnobRule {
        id: "sglang.graph_sizes",
        changes: |case| {
            let (program, (largest, by_graph)) = (case.command()?, case.eager_batches()?);
            if largest > by_graph {
                // Versions since 0.5.14 have a flag for each phase; those since 0.5.20 refuse the old one.
                let size_limit = program.flag("--cuda-graph-max-bs");
                let name = size_limit.map_or("--cuda-graph-max-bs-decode", |size_limit| size_limit.spelled);
                return Some(vec![flag(name, largest)]);
            }
            // A batch between captured sizes runs without a graph unless it is padded.
            Some(vec![without_switch(program, "--disable-cuda-graph-padding")?])
        },
    },
    KnobRule {
        id: "sglang.overlap_schedule",
        changes: |case| Some(vec![without_switch(case.program()?, "--disable-overlap-schedule")?]),
    },
    KnobRule { id: "sglang.max_running_requests", changes: |case| raised(case, "--max-running-requests") },
    KnobRule {
        id: "sglang.chunked_prefill_size",
        changes: |case| knob::quartered(case, "--chunked-prefill-size"),
    },
    KnobRule {
        id: "sglang.kv_cache_dtype",
        changes: |case| knob::unset(case, "--kv-cache-dtype", "fp8_e5m2"),
    },
];
