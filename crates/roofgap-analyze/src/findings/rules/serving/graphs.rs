//! Decode steps without CUDA graphs in an engine that uses them.

use super::advice;
use crate::findings::builder::FindingBuilder;
use crate::findings::{Explanation, View};
use crate::numbers::{count, time};
use crate::result::{BatchRow, Finding, StageKind};

/// Most batch sizes that are named.
const NAMED: usize = 8;

/// Decode steps that launch their kernels one by one, while others of the same engine replay graphs: their batch size was not
/// captured. The bound is the idle time inside these steps.
pub fn eager_batches(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let serving = view.inputs.analysis.serving.as_ref();
    let Some(serving) = serving.filter(|_| stage.kind == StageKind::Decode && stage.requests.is_some())
    else {
        return;
    };
    let by_graph: u64 = serving.batches.iter().map(|batch| batch.graph_steps).sum();
    let is_eager = |batch: &&BatchRow| batch.graph_steps == 0 && batch.eager_idle_ns > 0;
    let eager: Vec<&BatchRow> = serving.batches.iter().filter(is_eager).collect();
    let steps: u64 = eager.iter().map(|batch| batch.steps).sum();
    if by_graph == 0 || steps == 0 {
        return;
    }
    let idle_ns = eager.iter().map(|batch| batch.eager_idle_ns).sum();
    let mut sizes: Vec<String> = eager.iter().take(NAMED).map(|batch| batch.requests.to_string()).collect();
    if eager.len() > NAMED {
        sizes.push(format!("{} more", eager.len() - NAMED));
    }
    let title = format!(
        "{} of {} decode steps launch their kernels one by one, and the GPU is idle for {} in them: no CUDA graph was used for these \
         batch sizes: {}",
        count(steps),
        count(serving.batches.iter().map(|batch| batch.steps).sum()),
        time(idle_ns),
        sizes.join(", ")
    );
    let setting = advice(view).graph_sizes;
    let largest =
        serving.batches.iter().filter(|batch| batch.graph_steps > 0).map(|batch| batch.requests).max();
    FindingBuilder::new("graphs-not-used", stage, idle_ns)
        .with("steps", steps)
        .with("graph_steps", by_graph)
        .with("batch_sizes", eager.iter().map(|batch| batch.requests).collect::<Vec<u64>>())
        .with("largest_graph_batch", largest)
        .with("idle_ns", idle_ns)
        .finish(
            title,
            format!(
                "Capture graphs for these batch sizes: {setting}. Graphs take memory and time at the start."
            ),
            findings,
        );
}

pub const EAGER_BATCHES: Explanation = Explanation {
    id: "graphs-not-used",
    remedy: "CUDA graphs for every batch size",
    meaning: "The engine replays decode steps as CUDA graphs, except for some batch sizes. Their steps launch kernels one by \
              one, and the GPU waits for the CPU.",
    computed: "Decode steps are grouped by their number of requests. A group without a graph launch counts if other groups have \
              some. The bound is the idle time inside the steps of such groups.",
    fix: "Capture graphs up to the largest batch that the server runs, or let the engine pad a batch to the next captured size.",
    links: &["https://docs.vllm.ai/en/latest/design/cuda_graphs.html"],
};
