//! The steps of a serving engine together: rates over their whole span, batches over time, and the latency of requests by its parts.
//!
//! - `steps`: the recorded steps with their GPU work;
//! - `latency`: requests joined with steps by time, and waits of requests that generate for prompts of others.

mod latency;
mod steps;

use crate::result::{About, BatchRow, Reason, RequestStats, Serving, ServingSlice, StageKind};
use crate::stages::StageIndex;
use crate::timeline::Activity;
use roofgap_trace::{SourceFormat, Trace};
use std::collections::BTreeMap;
use steps::{Step, Steps, span_ns};

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
    let stalls = latency::stalls(&main);
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
        span_ns: span_ns(&main),
        replicas,
        context_tokens_per_s: rate(|step| step.scheduled.context.tokens),
        generation_tokens_per_s: rate(|step| step.scheduled.generation.tokens),
        over_time: slices(&main),
        batches: batches(&main),
        stalls,
        latency,
    };
    (Some(serving), reasons)
}

/// Most slices.
const SLICES: usize = 12;

/// Cuts the span of the steps into slices of equal length.
fn slices(steps: &[Step]) -> Vec<ServingSlice> {
    let span = span_ns(steps);
    let Some(first) = steps.iter().map(|step| step.cpu.0).min().filter(|_| span > 0) else {
        return Vec::new();
    };
    let count = SLICES.min(steps.len());
    let length = span / count as i64 + 1;
    let mut groups: Vec<Vec<&Step>> = vec![Vec::new(); count];
    for step in steps {
        let at = ((step.cpu.0 - first) / length) as usize;
        if let Some(group) = groups.get_mut(at) {
            group.push(step);
        }
    }
    let slice = |(at, group): (usize, Vec<&Step>)| {
        let of_kind = |kind: StageKind| group.iter().filter(|step| step.kind == kind).count() as u64;
        let requests = group.iter().map(|step| {
            let scheduled = &step.scheduled;
            Some(scheduled.context.requests? + scheduled.generation.requests?)
        });
        let requests = requests.sum::<Option<u64>>().filter(|_| !group.is_empty());
        ServingSlice {
            start_ns: at as i64 * length,
            length_ns: length,
            prefill_steps: of_kind(StageKind::Prefill),
            mixed_steps: of_kind(StageKind::Mixed),
            decode_steps: of_kind(StageKind::Decode),
            requests_per_step: requests.map(|sum| sum as f64 / group.len() as f64),
            context_tokens: group.iter().map(|step| step.scheduled.context.tokens).sum(),
            generation_tokens: group.iter().map(|step| step.scheduled.generation.tokens).sum(),
        }
    };
    groups.into_iter().enumerate().map(slice).collect()
}

/// Groups the decode steps by the number of requests in them, smallest first.
fn batches(steps: &[Step]) -> Vec<BatchRow> {
    let mut groups: BTreeMap<u64, Vec<&Step>> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.kind == StageKind::Decode) {
        if let Some(requests) = step.generating() {
            groups.entry(requests).or_default().push(step);
        }
    }
    let row = |(requests, group): (u64, Vec<&Step>)| {
        let by_graph = |step: &&&Step| step.graph_kernels > 0 && step.graph_kernels >= step.eager_kernels;
        let times: Vec<i64> =
            group.iter().filter_map(|step| step.gpu).map(|(start, end)| end - start).collect();
        let eager = group.iter().filter(|step| step.eager_kernels > 0 && !by_graph(step));
        BatchRow {
            requests,
            steps: group.len() as u64,
            graph_steps: group.iter().filter(by_graph).count() as u64,
            mean_ns: times.iter().sum::<i64>().checked_div(times.len() as i64),
            eager_idle_ns: eager
                .filter_map(|step| step.gpu.map(|(start, end)| (end - start - step.busy_ns).max(0)))
                .sum(),
        }
    };
    groups.into_iter().map(row).collect()
}
