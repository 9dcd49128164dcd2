//! LMDeploy with its PyTorch engine.
//!
//! `lmdeploy/pytorch/backends/cuda/graph_runner.py` puts `torch.profiler.record_function` around the forward pass of the model; the
//! output head (`get_logits`) and sampling (`sampling_logits`) run after it. A graph is used for decode only. A prefill runs
//! without one, and so does a decode step in eager mode or of a model without graphs. The names have no requests and no tokens.

use super::{Engine, GaugeNames, Grammar, Scheduled};

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
