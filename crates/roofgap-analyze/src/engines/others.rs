//! Programs that name their steps, and engines with step names and few settings.

use super::step::{self, Phases, phases, quantity};
use super::{Engine, Grammar, Scheduled};

/// ATOM, the serving engine of AMD.
///
/// Steps are named in `atom/model_engine/run_labels.py`, before 0.1.6 in `model_runner.py` beside it: the forward pass of a batch, which
/// either reads prompts or generates.
pub static ATOM: Engine = Engine {
    name: "ATOM",
    commands: &["atom"],
    package: Some("atom"),
    metrics: Some("atom:"),
    // As in `atom/entrypoints/openai/metrics.py`.
    grammars: &[
        Grammar {
            example: "prefill[bs=2 tok=14721 ctx=[7803, 6918]]",
            seen: "sources of ATOM 0.1.2 to 0.1.6",
            parse: forward,
        },
        Grammar {
            example: "decode[bs=117/128 tok=117 d=117]",
            seen: "sources of ATOM 0.1.6",
            parse: forward,
        },
    ],
    is_capture: |name| name.strip_prefix("capture_graph_bs_").is_some_and(|batch| quantity(batch).is_some()),
    uses_graphs: true,
    ..Engine::UNKNOWN
};

/// Reads `KIND[bs=N tok=T ...]`. A batch that a graph pads is `bs=N/SIZE`. A dummy batch keeps ranks without requests in step.
fn forward(name: &str) -> Option<Phases> {
    let (kind, inside) = name.strip_suffix(']')?.split_once('[')?;
    let text = |key: &str| step::field(inside, key);
    let field = |key: &str| quantity(text(key)?);
    let batch = Scheduled {
        requests: Some(quantity(text("bs")?.split('/').next()?)?),
        // Of the drafts that a speculative step checks, the name does not tell how many are kept.
        tokens: field("tok").filter(|_| text("spec").is_none()),
        sequence_tokens: field("sk"),
        query_key_pairs: text("sqsk").and_then(|pairs| pairs.parse().ok()),
    };
    Some(match kind {
        "prefill" => (batch, Scheduled::NONE),
        "decode" | "eager_decode" => match field("p") {
            None => (Scheduled::NONE, batch),
            Some(prompts) => (Scheduled::requests(prompts), Scheduled::requests(field("d")?)),
        },
        "dummy_prefill" | "dummy_decode" | "dummy_eager_decode" => (Scheduled::NONE, Scheduled::NONE),
        _ => return None,
    })
}

/// TensorRT-LLM with its PyTorch executor.
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

/// A program that names its steps, as `roofgap.step` of the Python package does.
pub static CUSTOM: Engine = Engine {
    name: "custom",
    grammars: &[Grammar {
        example: "roofgap_context_1(512)_generation_4(4)",
        seen: "the Python package of this project",
        parse: |name| phases(name.strip_prefix("roofgap_context_")?),
    }],
    ..Engine::UNKNOWN
};

/// llama.cpp. Its server exports metrics; its steps have no names.
pub static LLAMA_CPP: Engine = Engine { name: "llama.cpp", metrics: Some("llamacpp:"), ..Engine::UNKNOWN };

/// LMDeploy with its PyTorch engine.
///
/// `lmdeploy/pytorch/backends/cuda/graph_runner` puts `torch.profiler.record_function` around the forward pass of the model; the
/// output head (`get_logits`) and sampling (`sampling_logits`) run after it. A graph of the whole pass is used
/// for decode only. A prefill runs without one, or since 0.18 with graphs of its parts; a decode step in eager mode or of a model
/// without graphs runs without one too. The names have no requests and no tokens.
pub static LMDEPLOY: Engine = Engine {
    name: "LMDeploy",
    package: Some("lmdeploy"),
    metrics: Some("lmdeploy:"),
    // As in `lmdeploy/metrics/loggers.py`.
    grammars: &[
        Grammar {
            example: "forward_cudagraph",
            seen: "LMDeploy 0.9 to 0.18",
            parse: |name| (name == "forward_cudagraph").then_some((Scheduled::NONE, Scheduled::default())),
        },
        Grammar {
            example: "forward_eager",
            seen: "LMDeploy 0.9 to 0.18",
            parse: |name| (name == "forward_eager").then_some((Scheduled::default(), Scheduled::default())),
        },
        Grammar {
            example: "forward_piecewise_cudagraph",
            seen: "sources of LMDeploy 0.18",
            parse: |name| {
                (name == "forward_piecewise_cudagraph").then_some((Scheduled::default(), Scheduled::NONE))
            },
        },
    ],
    mixes: false,
    doubt: Some(
        "LMDeploy names its steps by how they run: one without a CUDA graph is a prefill, or a decode step that no graph serves",
    ),
    is_capture: |name| name == "capture_cudagraph",
    uses_graphs: true,
    ..Engine::UNKNOWN
};

#[cfg(test)]
mod tests {
    use super::super::EngineStep;
    use super::Scheduled;

    #[test]
    fn a_name_gives_requests_tokens_and_their_sums() {
        let parse = |name: &str| EngineStep::parse(name).map(|step| (step.context, step.generation));
        let of = |requests, tokens| Scheduled { requests: Some(requests), tokens, ..Scheduled::default() };
        let none = Scheduled::NONE;
        for (name, phases) in [
            ("prefill[bs=1 tok=8192 ctx=8192]", (of(1, Some(8192)), none)),
            ("prefill[bs=6 tok=17408 ctx=[4096, 4096, 4096]...+3 tbo=1]", (of(6, Some(17_408)), none)),
            ("decode[bs=64 tok=64 d=64]", (none, of(64, Some(64)))),
            ("decode[bs=117/128 tok=117 d=117 tbo=1]", (none, of(117, Some(117)))),
            ("eager_decode[bs=32 tok=32 ctx=[1025, 1030, 1100]...+29]", (none, of(32, Some(32)))),
            // Four drafts and one more token are checked for each request.
            ("decode[bs=4 tok=20 d=4 spec=4]", (none, of(4, None))),
            ("decode[bs=128 tok=128 p=2 d=126]", (of(2, None), of(126, None))),
            ("dummy_decode[bs=1]", (none, none)),
        ] {
            assert_eq!(parse(name), Some(phases), "{name}");
        }
        let detailed = "prefill[bs=1 tok=8192 ctx=8192 sqsq=67108864 sqsk=67108864 sk=8192]";
        let (context, _) = parse(detailed).unwrap();
        assert_eq!((context.sequence_tokens, context.query_key_pairs), (Some(8192), Some(67_108_864)));
        for other in ["prefill", "decode[3]", "draft[1/3 bs=4]", "decode[bs=99999999999]", "dspark[bs=4 T=3]"]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
