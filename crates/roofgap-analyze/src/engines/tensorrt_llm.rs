//! TensorRT-LLM with its PyTorch executor.

use super::step::{Phases, quantity};
use super::{Engine, Grammar, Scheduled};

pub static TENSORRT_LLM: Engine = Engine {
    name: "TensorRT-LLM",
    commands: &["tensorrt_llm", "trtllm"],
    package: Some("tensorrt_llm"),
    metrics: Some("trtllm_"),
    grammars: &[Grammar {
        example: "[Executor] _forward_step 100: 2 ctx reqs, 4096 ctx tokens, 30 gen reqs",
        seen: "TensorRT-LLM 0.20 to 1.2",
        parse: forward_step,
    }],
    uses_graphs: true,
    ..Engine::UNKNOWN
};

/// Reads `[Executor] _forward_step 100: 2 ctx reqs, 4096 ctx tokens, 30 gen reqs`. Older versions lack the prefix, the number or the
/// tokens; the C++ runtime writes `executeStep: 2 ctx reqs, 30 gen reqs`.
fn forward_step(name: &str) -> Option<Phases> {
    let rest = name.strip_prefix("[Executor] ").unwrap_or(name);
    let rest = rest.strip_prefix("_forward_step").or_else(|| rest.strip_prefix("executeStep"))?;
    let (number, counts) = rest.split_once(':')?;
    if !number.trim().is_empty() {
        number.trim().parse::<u64>().ok()?;
    }
    let (mut context, mut generation) = (Scheduled::default(), Scheduled::default());
    for count in counts.split(',') {
        let (value, unit) = count.trim().split_once(' ')?;
        let value = Some(quantity(value)?);
        match unit.trim() {
            "ctx reqs" => context.requests = value,
            "ctx tokens" => context.tokens = value,
            "gen reqs" => generation.requests = value,
            "gen tokens" => generation.tokens = value,
            _ => {}
        }
    }
    let phase = |phase: Scheduled| Some(if phase.requests? == 0 { Scheduled::NONE } else { phase });
    Some((phase(context)?, phase(generation)?))
}
