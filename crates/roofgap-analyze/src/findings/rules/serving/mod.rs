//! A server under load: latency that clients see, joined with the steps of its engine.
//!
//! These rules need engine steps in the timeline and, but for `graphs`, requests in the account.

mod batch;
mod gaps;
mod graphs;
mod kv_cache;
mod latency;
mod prefill;

pub use batch::BATCH_TOO_SMALL;
pub use batch::small_batch;
pub use gaps::GAPS_BETWEEN_STEPS;
pub use gaps::between_steps;
pub use graphs::EAGER_BATCHES;
pub use graphs::eager_batches;
pub use kv_cache::KV_CACHE_FULL;
pub use kv_cache::kv_cache_full;
pub use latency::LATENCY_OUTSIDE_STEPS;
pub use latency::outside_steps;
pub use prefill::DECODE_STARVED;
pub use prefill::starved_decode;

use crate::engines::{Advice, Engine};
use crate::findings::View;
use crate::result::{RequestStats, Stage, StageKind, Steps};

/// Engine steps of a stage and the requests that they served.
struct ServedStage<'a> {
    requests: &'a RequestStats,
    steps: &'a Steps,
    advice: &'static Advice,
}

/// Returns the advice for the engine of a view.
fn advice(view: &View<'_>) -> &'static Advice {
    Engine::of(view.inputs.analysis.engine.as_ref()).map_or(&Advice::GENERIC, |engine| &engine.advice)
}

impl<'a> ServedStage<'a> {
    /// Returns the serving facts of a stage; `None` without requests, or for a stage without engine steps.
    fn of(view: &View<'a>) -> Option<Self> {
        let requests = view.inputs.analysis.requests.as_ref();
        Some(Self {
            requests: requests.filter(|found| found.completed > 0)?,
            steps: engine_steps(view.stage)?,
            advice: advice(view),
        })
    }

    /// Returns the mean number of requests in flight: their rate times their mean time.
    fn in_flight(&self) -> Option<f64> {
        let seconds = self.requests.e2e_ns?.mean as f64 / 1e9;
        Some(self.requests.requests_per_s? * seconds)
    }
}

fn engine_steps(stage: &Stage) -> Option<&Steps> {
    stage.requests?;
    stage.steps.as_ref().filter(|steps| steps.count > 0 && steps.p50_ns > 0)
}

/// Finds the engine steps of a kind.
fn steps_of<'a>(view: &View<'a>, kind: StageKind) -> Option<&'a Steps> {
    let stages = &view.inputs.analysis.stages;
    stages.iter().find(|stage| stage.kind == kind).and_then(engine_steps)
}
