//! The steps of a serving engine together: rates over their whole span, batches over time, and the latency of requests by its parts.
//!
//! - `steps`: the recorded steps with their GPU work;
//! - `receipts`: GPU time of each request;
//! - `latency`: requests joined with steps by time, and waits of requests that generate for prompts of others.

mod latency;
mod receipts;
mod steps;

pub use receipts::add_energy;

use crate::result::{
    About, BatchRow, ColdKind, CopyKind, Reason, RequestStats, Serving, ServingSlice, StageKind, Startup,
};
use crate::stages::StageIndex;
use crate::timeline::{Activity, copy_kind, kind_of_call};
use roofgap_trace::{Ns, OpKind, SourceFormat, ThreadId, Trace};
use rustc_hash::FxHashMap;
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
            return Err(
                "the recording does not have the wall clock of the load generator; the native collector does",
            );
        }
        match replicas {
            Some(1) => {}
            Some(_) => {
                return Err("the engine ran several copies of the model, and nothing tells which one served a request");
            }
            None => {
                return Err("several processes ran steps, and nothing tells whether they share one copy of the model");
            }
        }
        let mut latency = latency::join(&main, requests)?;
        match latency::token_time(&main, requests) {
            Ok(parts) => latency.token_time = parts,
            Err(why) => missing("serving.latency.token_time", why),
        }
        Ok(latency)
    });
    let latency =
        latency.and_then(|joined| joined.map_err(|why| missing("serving.latency", why.to_owned())).ok());
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
        startup: startup(trace, &main),
        receipts: receipts::receipts(trace, &main, requests),
    };
    (Some(serving), reasons)
}

/// Least time before the first step that is a start of the engine: one in so many parts of the span of the steps.
const STARTUP: i64 = 10;

/// Measures the work before the first step; `None` where there is little time or no work.
fn startup(trace: &Trace, steps: &[Step]) -> Option<Startup> {
    let (ops, calls) = (&trace.ops, &trace.calls);
    let first = steps.iter().map(|step| step.cpu.0).min()?;
    let begin = ops.start.iter().chain(&calls.start).copied().min()?;
    let mut found = Startup { elapsed_ns: first - begin, ..Startup::default() };
    for op in (0..ops.len()).filter(|&op| ops.end[op] <= first) {
        let time = ops.duration(op);
        match ops.kind[op] {
            OpKind::Kernel | OpKind::Graph => {
                found.kernel_count += 1;
                found.kernel_ns += time;
            }
            OpKind::Copy if copy_kind(trace.names.get(ops.name[op])) == CopyKind::HostToDevice => {
                found.copied_bytes += ops.transfers.get(&(op as u32)).map_or(0, |transfer| transfer.bytes);
                found.copy_ns += time;
            }
            _ => {}
        }
    }
    let mut capturing: FxHashMap<ThreadId, Ns> = FxHashMap::default();
    for call in (0..calls.len()).filter(|&call| calls.end[call] <= first) {
        let name = trace.names.get(calls.name[call]);
        let (start, end) = (calls.start[call], calls.end[call]);
        match kind_of_call(name) {
            Some((ColdKind::ModuleLoad, least)) if end - start >= least => found.loading_ns += end - start,
            Some((ColdKind::GraphInstantiation, _)) if name.contains("BeginCapture") => {
                capturing.insert(calls.thread[call], start);
            }
            Some((ColdKind::GraphInstantiation, _)) => {
                let begun = capturing.remove(&calls.thread[call]);
                found.captured_graphs += u64::from(begun.is_some());
                found.capture_ns += end - begun.unwrap_or(start);
            }
            _ => {}
        }
    }
    let works = found.kernel_count > 0 || found.copied_bytes > 0 || found.captured_graphs > 0;
    (works && found.elapsed_ns > span_ns(steps) / STARTUP).then_some(found)
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
