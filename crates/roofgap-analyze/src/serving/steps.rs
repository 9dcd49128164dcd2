//! The recorded steps of an engine with their GPU work, and the devices of each.

use crate::engines::EngineStep;
use crate::result::StageKind;
use crate::stages::StageIndex;
use crate::timeline::{Activity, CoveredTime};
use roofgap_trace::{CallClass, Ns, OpKind, ProcessId, Trace};
use rustc_hash::FxHashMap;

/// One step of an engine.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub process: ProcessId,
    pub kind: StageKind,
    /// Requests and tokens in it.
    pub scheduled: EngineStep,
    /// Start and end on the CPU.
    pub cpu: (Ns, Ns),
    /// Start of its first and end of its last GPU operation.
    pub gpu: Option<(Ns, Ns)>,
    /// Time between those in which one of its GPUs ran something, ns.
    pub busy_ns: Ns,
    /// Kernels that CUDA graphs launched; a whole graph counts as one.
    pub graph_kernels: u64,
    /// Kernels that were launched one by one.
    pub eager_kernels: u64,
}

impl Step {
    /// Returns the time of the step: that of its GPU work, else that on the CPU.
    pub fn time(&self) -> (Ns, Ns) {
        self.gpu.unwrap_or(self.cpu)
    }

    /// Returns the requests that generate in it.
    pub fn generating(&self) -> Option<u64> {
        self.scheduled.generation.requests
    }
}

/// The steps of all processes, in the order of start.
pub struct Steps {
    steps: Vec<Step>,
    processes: Vec<ProcessId>,
}

impl Steps {
    /// Finds the steps of an engine; `None` without any.
    pub fn find(trace: &Trace, index: &StageIndex, activity: &Activity) -> Option<Self> {
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
            let several = devices.len() > 1 && (joined.len() < MOST_SETS || joined.contains_key(&devices));
            step.busy_ns = match several {
                true => {
                    let busy = joined.entry(devices).or_insert_with_key(|devices| activity.joined(devices));
                    busy.overlap(start, end)
                }
                false => {
                    devices.iter().map(|device| activity.busy_in(*device, start, end)).max().unwrap_or(0)
                }
            };
        }
        let steps: Vec<Step> = steps.into_iter().flatten().collect();
        let mut processes: Vec<ProcessId> = steps.iter().map(|step| step.process).collect();
        processes.sort_unstable();
        processes.dedup();
        (!steps.is_empty()).then_some(Self { steps, processes })
    }

    fn of(&self, process: ProcessId) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(move |step| step.process == process)
    }

    /// Returns the steps of the process that has the most.
    pub fn main(&self) -> Vec<Step> {
        let most = self.processes.iter().rev().max_by_key(|process| self.of(**process).count());
        most.map(|process| self.of(*process).copied().collect()).unwrap_or_default()
    }

    /// Returns the number of copies of the model: that of the engine, at most one for each process. Of several processes it is unknown
    /// unless stated: equal steps do not tell parts of one model from copies with equal load, nor different ones copies from parts of
    /// which one was recorded for longer.
    pub fn replicas(&self, stated: Option<u64>) -> Option<u64> {
        let most = self.processes.len().max(1) as u64;
        let known = if most == 1 { Some(1) } else { stated };
        known.map(|replicas| replicas.clamp(1, most))
    }

    /// Returns the number of processes with steps.
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// Returns the tokens per second of the span of the steps, added over the copies of the model; `None` where a step does not name
    /// its tokens.
    pub fn rate(&self, replicas: u64, tokens: impl Fn(&Step) -> Option<u64>) -> Option<f64> {
        let of = |process: &ProcessId| {
            let own: Vec<Step> = self.of(*process).copied().collect();
            let sum = own.iter().map(&tokens).sum::<Option<u64>>()?;
            let span = span_ns(&own);
            (span > 0).then(|| sum as f64 * 1e9 / span as f64)
        };
        let sum = self.processes.iter().map(of).sum::<Option<f64>>()?;
        Some(sum * replicas as f64 / self.processes.len() as f64)
    }
}

/// Returns the time from the start of the first step to the end of the last, on CPU and GPU, ns.
pub fn span_ns(steps: &[Step]) -> Ns {
    let start = |step: &Step| step.gpu.map_or(step.cpu.0, |gpu| gpu.0.min(step.cpu.0));
    let end = |step: &Step| step.gpu.map_or(step.cpu.1, |gpu| gpu.1.max(step.cpu.1));
    let (first, last) = (steps.iter().map(start).min(), steps.iter().map(end).max());
    first.zip(last).map_or(0, |(first, last)| last - first)
}

/// Most sets of devices whose busy time is joined; for more, that of the busiest device counts. Programs have one or two.
const MOST_SETS: usize = 16;
