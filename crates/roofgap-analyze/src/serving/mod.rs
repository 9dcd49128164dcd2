//! The steps of a serving engine together: rates over their whole span, batches over time, and the latency of requests by its parts.
//!
//! `requests` joins requests with steps by time: their latency by its parts, their waits for the prompts of others, and their GPU time.

mod requests;

pub use requests::add_energy;

use crate::engines::EngineStep;
use crate::result::{
    About, BatchRow, ColdKind, CopyKind, Reason, RequestStats, Serving, ServingSlice, StageKind, Startup,
};
use crate::stages::StageIndex;
use crate::timeline::{Activity, CoveredTime, copy_kind, kind_of_call};
use roofgap_trace::{CallClass, Ns, OpKind, ProcessId, SourceFormat, ThreadId, Trace};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

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
    let stalls = requests::stalls(&main);
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
        let mut latency = requests::join(&main, requests)?;
        match requests::token_time(&main, requests) {
            Ok(parts) => latency.token_time = parts,
            Err(why) => missing("serving.latency.token_time", why.into()),
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
            steps.processes.len()
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
        receipts: requests::receipts(trace, &main, requests),
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
    let mut startup = Startup { elapsed_ns: first - begin, ..Startup::default() };
    for op in (0..ops.len()).filter(|&op| ops.end[op] <= first) {
        let time = ops.duration(op);
        match ops.kind[op] {
            OpKind::Kernel | OpKind::Graph => {
                startup.kernel_count += 1;
                startup.kernel_ns += time;
            }
            OpKind::Copy if copy_kind(trace.names.get(ops.name[op])) == CopyKind::HostToDevice => {
                startup.copied_bytes += ops.transfers.get(&(op as u32)).map_or(0, |transfer| transfer.bytes);
                startup.copy_ns += time;
            }
            _ => {}
        }
    }
    let mut capturing: FxHashMap<ThreadId, Ns> = FxHashMap::default();
    for call in (0..calls.len()).filter(|&call| calls.end[call] <= first) {
        let name = trace.names.get(calls.name[call]);
        let (start, end) = (calls.start[call], calls.end[call]);
        match kind_of_call(name) {
            Some((ColdKind::ModuleLoad, least)) if end - start >= least => startup.loading_ns += end - start,
            Some((ColdKind::GraphInstantiation, _)) if name.contains("BeginCapture") => {
                capturing.insert(calls.thread[call], start);
            }
            Some((ColdKind::GraphInstantiation, _)) => {
                let begun = capturing.remove(&calls.thread[call]);
                startup.captured_graphs += u64::from(begun.is_some());
                startup.capture_ns += end - begun.unwrap_or(start);
            }
            _ => {}
        }
    }
    let works = startup.kernel_count > 0 || startup.copied_bytes > 0 || startup.captured_graphs > 0;
    (works && startup.elapsed_ns > span_ns(steps) / STARTUP).then_some(startup)
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

/// One step of an engine.
#[derive(Debug, Clone, Copy)]
struct Step {
    process: ProcessId,
    kind: StageKind,
    /// Requests and tokens in it.
    scheduled: EngineStep,
    /// Start and end on the CPU.
    cpu: (Ns, Ns),
    /// Start of its first and end of its last GPU operation.
    gpu: Option<(Ns, Ns)>,
    /// Time between those in which one of its GPUs ran something, ns.
    busy_ns: Ns,
    /// Kernels that CUDA graphs launched; a whole graph counts as one.
    graph_kernels: u64,
    /// Kernels that were launched one by one.
    eager_kernels: u64,
}

impl Step {
    /// Returns the time of the step: that of its GPU work, else that on the CPU.
    fn time(&self) -> (Ns, Ns) {
        self.gpu.unwrap_or(self.cpu)
    }

    /// Returns the requests that generate in it.
    fn generating(&self) -> Option<u64> {
        self.scheduled.generation.requests
    }
}

/// The steps of all processes, in the order of start.
struct Steps {
    steps: Vec<Step>,
    processes: Vec<ProcessId>,
}

impl Steps {
    /// Finds the steps of an engine; `None` without any.
    fn find(trace: &Trace, index: &StageIndex, activity: &Activity) -> Option<Self> {
        let spans = index.engine_spans();
        if spans.is_empty() {
            return None;
        }
        let mut steps: Vec<Option<Step>> = vec![None; spans.len()];
        for stage in 0..index.len() {
            let instances = &index.spans(stage).instances;
            for (span, scheduled) in instances.iter().zip(index.engine_steps(stage)) {
                let at = spans.binary_search_by_key(&(span.start, span.range), |s| (s.start, s.range));
                let range = span.range_in(trace);
                if let (Ok(at), Some(range)) = (at, range)
                    && let Some(slot) = steps.get_mut(at)
                {
                    *slot = Some(Step {
                        process: range.process,
                        kind: index.kind(stage),
                        scheduled: *scheduled,
                        cpu: (span.start, span.end),
                        gpu: None,
                        busy_ns: 0,
                        graph_kernels: 0,
                        eager_kernels: 0,
                    });
                }
            }
        }
        let step_of_context = index.span_of_context(spans);
        let mut devices: Vec<Vec<usize>> = vec![Vec::new(); spans.len()];
        let ops = &trace.ops;
        for op in 0..ops.len() {
            let at = step_of_context.get(index.context_of_op(op) as usize);
            let at = at.map_or(usize::MAX, |at| *at as usize);
            let Some(step) = steps.get_mut(at).and_then(Option::as_mut) else {
                continue;
            };
            let (start, end) = step.gpu.unwrap_or((Ns::MAX, Ns::MIN));
            step.gpu = Some((start.min(ops.start[op]), end.max(ops.end[op])));
            let device = ops.device[op].index();
            if !devices[at].contains(&device) {
                devices[at].push(device);
            }
            // Older PyTorch traces have no graph nodes, but the call that launched the graph.
            let call = trace.calls.class.get(index.call_of_op(op) as usize);
            let in_graph = ops.graph_node(op) != 0 || call == Some(&CallClass::GraphLaunch);
            match ops.kind[op] {
                OpKind::Graph => step.graph_kernels += 1,
                OpKind::Kernel if in_graph => step.graph_kernels += 1,
                OpKind::Kernel => step.eager_kernels += 1,
                _ => {}
            }
        }
        let mut joined: FxHashMap<Vec<usize>, CoveredTime> = FxHashMap::default();
        for (step, mut devices) in steps.iter_mut().zip(devices) {
            let Some(step) = step else { continue };
            let (start, end) = step.gpu.unwrap_or_default();
            devices.sort_unstable();
            step.busy_ns = match devices[..] {
                [device] => activity.busy_in(device, start, end),
                // Programs have one or two sets of devices.
                _ => {
                    let busy = joined.entry(devices).or_insert_with_key(|devices| activity.joined(devices));
                    busy.overlap(start, end)
                }
            };
        }
        let steps: Vec<Step> = steps.into_iter().flatten().collect();
        let mut processes: Vec<ProcessId> = steps.iter().map(|step| step.process).collect();
        processes.sort_unstable();
        processes.dedup();
        (!steps.is_empty()).then_some(Self { steps, processes })
    }

    fn of_process(&self, process: ProcessId) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(move |step| step.process == process)
    }

    /// Returns the steps of the process that has the most.
    fn main(&self) -> Vec<Step> {
        let most = self.processes.iter().rev().max_by_key(|process| self.of_process(**process).count());
        most.map(|process| self.of_process(*process).copied().collect()).unwrap_or_default()
    }

    /// Returns the number of copies of the model: that of the engine, at most one for each process. Of several processes it is unknown
    /// unless stated: equal steps do not tell parts of one model from copies with equal load, nor different ones copies from parts of
    /// which one was recorded for longer.
    fn replicas(&self, stated: Option<u64>) -> Option<u64> {
        let most = self.processes.len().max(1) as u64;
        let known = if most == 1 { Some(1) } else { stated };
        known.map(|replicas| replicas.clamp(1, most))
    }

    /// Returns the tokens per second of the span of the steps, added over the copies of the model; `None` where a step does not name
    /// its tokens.
    fn rate(&self, replicas: u64, tokens: impl Fn(&Step) -> Option<u64>) -> Option<f64> {
        let of = |process: &ProcessId| {
            let steps: Vec<Step> = self.of_process(*process).copied().collect();
            let sum = steps.iter().map(&tokens).sum::<Option<u64>>()?;
            let span = span_ns(&steps);
            (span > 0).then(|| sum as f64 * 1e9 / span as f64)
        };
        let sum = self.processes.iter().map(of).sum::<Option<f64>>()?;
        Some(sum * replicas as f64 / self.processes.len() as f64)
    }
}

/// Returns the time from the start of the first step to the end of the last, on CPU and GPU, ns.
fn span_ns(steps: &[Step]) -> Ns {
    let start = |step: &Step| step.gpu.map_or(step.cpu.0, |gpu| gpu.0.min(step.cpu.0));
    let end = |step: &Step| step.gpu.map_or(step.cpu.1, |gpu| gpu.1.max(step.cpu.1));
    let (first, last) = (steps.iter().map(start).min(), steps.iter().map(end).max());
    first.zip(last).map_or(0, |(first, last)| last - first)
}
