//! Programs that name their own steps, and engines of which little is known.

use super::step::phases;
use super::{Engine, GaugeNames, Grammar, Scheduled};

/// A program that names its own steps, as `roofgap.step` of the Python package does.
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
/// `lmdeploy/pytorch/backends/cuda/graph_runner.py` puts `torch.profiler.record_function` around the forward pass of the model; the
/// output head (`get_logits`) and sampling (`sampling_logits`) run after it. A graph is used for decode only. A prefill runs
/// without one, and so does a decode step in eager mode or of a model without graphs. The names have no requests and no tokens.
pub static LMDEPLOY: Engine = Engine {
    name: "LMDeploy",
    package: Some("lmdeploy"),
    metrics: Some("lmdeploy:"),
    // As in `lmdeploy/metrics/loggers.py`.
    gauges: GaugeNames {
        cache_usage: &["lmdeploy:gpu_cache_usage_perc"],
        running: &["lmdeploy:num_requests_running"],
        waiting: &["lmdeploy:num_requests_waiting"],
        evictions: &[],
    },
    grammars: &[
        Grammar {
            example: "forward_cudagraph",
            seen: "LMDeploy 0.9 to 0.16",
            parse: |name| (name == "forward_cudagraph").then_some((Scheduled::NONE, Scheduled::default())),
        },
        Grammar {
            example: "forward_eager",
            seen: "LMDeploy 0.9 to 0.16",
            parse: |name| (name == "forward_eager").then_some((Scheduled::default(), Scheduled::default())),
        },
    ],
    mixes: false,
    doubt: Some(
        "LMDeploy names its steps by how they run: one without a CUDA graph is a prefill, or a decode step that no graph serves",
    ),
    uses_graphs: true,
    ..Engine::UNKNOWN
};
