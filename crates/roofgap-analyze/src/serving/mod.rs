//! The steps of a serving engine together: rates over their whole span, batches over time, and the latency of requests by its parts.
//!
//! - `gauges`: gauges of the server by their meaning;
//! - `steps`: the recorded steps with their GPU work;
//! - `over_time`: slices of time, and decode steps by batch;
//! - `stalls`: waits of requests that generate for prompts of others;
//! - `latency`: requests joined with steps by time.

mod gauges;
mod latency;
mod over_time;
mod stalls;
mod steps;

pub use gauges::ServerGauges;

use crate::result::{About, Reason, RequestStats, Serving};
use crate::stages::StageIndex;
use crate::timeline::Activity;
use roofgap_trace::{SourceFormat, Trace};
use steps::{Step, Steps};

/// Measures the steps of an engine; `None` without any. `requests` were sent while the steps were recorded. Returns the reasons for
/// values that are missing too.
pub(crate) fn measure(
    trace: &Trace,
    index: &StageIndex,
    activity: &Activity,
    replicas: Option<u64>,
    requests: Option<&RequestStats>,
) -> (Option<Serving>, Vec<Reason>) {
    let Some(steps) = Steps::find(trace, index, activity) else {
        return (None, Vec::new());
    };
    let mut reasons = Vec::new();
    let mut missing = |path: &str, why: String| {
        reasons.push(Reason::new(About::Other(path.to_owned()), why));
    };
    let main = steps.main();
    let stalls = stalls::find(&main);
    let latency = requests.map(|requests| {
        let native = |source: &roofgap_trace::Source| source.format == SourceFormat::Native;
        if !trace.sources.iter().any(native) {
            return Err(latency::NotJoined::OtherClock);
        }
        if steps.replicas(replicas) > 1 {
            return Err(latency::NotJoined::SeveralReplicas);
        }
        latency::join(&main, requests)
    });
    let latency = match latency {
        Some(Ok(latency)) => Some(latency),
        Some(Err(why)) => {
            missing("serving.latency", why.to_string());
            None
        }
        None => None,
    };
    let complete = (0..index.len()).all(|stage| index.all_of(stage).is_none());
    if !complete {
        let why =
            "only a part of the steps was recorded, so tokens per second of the whole span are not known";
        missing("serving.generation_tokens_per_s", why.to_owned());
    }
    let rate = |tokens: fn(&Step) -> Option<u64>| complete.then(|| steps.rate(replicas, tokens)).flatten();
    let serving = Serving {
        span_ns: steps::span_ns(&main),
        replicas: steps.replicas(replicas),
        context_tokens_per_s: rate(|step| step.scheduled.context.tokens),
        generation_tokens_per_s: rate(|step| step.scheduled.generation.tokens),
        over_time: over_time::slices(&main),
        batches: over_time::batches(&main),
        stalls,
        latency,
    };
    (Some(serving), reasons)
}
