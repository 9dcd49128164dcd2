//! The steps of a serving engine together: rates over their whole span, batches over time, and the latency of requests by its parts.
//!
//! - `devices`: the devices of each step;
//! - `steps`: the recorded steps with their GPU work;
//! - `over_time`: slices of time, and decode steps by batch;
//! - `stalls`: waits of requests that generate for prompts of others;
//! - `latency`: requests joined with steps by time.

mod devices;
mod latency;
mod over_time;
mod stalls;
mod steps;

use crate::result::{About, Reason, RequestStats, Serving};
use crate::stages::StageIndex;
use crate::timeline::Activity;
use roofgap_trace::{SourceFormat, Trace};
use steps::{Step, Steps};

/// Measures the steps of an engine; `None` without any. `requests` were sent while the steps were recorded. Returns the reasons for
/// values that are missing too.
pub fn measure(
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
    let replicas = steps.replicas(replicas);
    let stalls = stalls::find(&main);
    let latency = requests.map(|requests| {
        let native = |source: &roofgap_trace::Source| source.format == SourceFormat::Native;
        if !trace.sources.iter().any(native) {
            return Err(latency::NotJoined::OtherClock);
        }
        match replicas {
            Some(1) => {}
            Some(_) => return Err(latency::NotJoined::SeveralReplicas),
            None => return Err(latency::NotJoined::ReplicasUnknown),
        }
        let latency = latency::join(&main, requests)?;
        Ok((latency, latency::token_time(&main, requests)))
    });
    let latency = match latency {
        Some(Ok((mut latency, token_time))) => {
            match token_time {
                Ok(parts) => latency.token_time = parts,
                Err(why) => missing("serving.latency.token_time", why.to_string()),
            }
            Some(latency)
        }
        Some(Err(why)) => {
            missing("serving.latency", why.to_string());
            None
        }
        None => None,
    };
    let complete = (0..index.len()).all(|stage| index.all_of(stage).is_none());
    if !complete {
        let why = "only a part of the steps was recorded";
        missing("serving.generation_tokens_per_s", why.to_owned());
    } else if replicas.is_none() {
        let why = format!(
            "{} processes ran steps, and nothing tells whether they share one copy of the model or have one each",
            steps.processes()
        );
        missing("serving.generation_tokens_per_s", why);
    }
    let rate = |tokens: fn(&Step) -> Option<u64>| steps.rate(replicas.filter(|_| complete)?, tokens);
    let serving = Serving {
        span_ns: steps::span_ns(&main),
        replicas,
        context_tokens_per_s: rate(|step| step.scheduled.context.tokens),
        generation_tokens_per_s: rate(|step| step.scheduled.generation.tokens),
        over_time: over_time::slices(&main),
        batches: over_time::batches(&main),
        stalls,
        latency,
    };
    (Some(serving), reasons)
}
