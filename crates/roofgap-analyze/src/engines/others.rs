//! Programs that name their steps, and engines of which little is known.

use super::step::phases;
use super::{Engine, Grammar, Scheduled};

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
