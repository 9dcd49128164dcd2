//! The arithmetic of a launch, from the counters that were collected.

use roofgap_trace::ncu::{Base, CounterSet, LaunchCounters, Unit};

use super::arch::{Arch, Counter, PACKED, SCALAR, WorkKind};

/// The arithmetic of a launch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Operations by kind, for the kinds that were counted.
    pub by_kind: Vec<(WorkKind, f64)>,
    /// Tensor instructions ran, and no counter of what they did was collected: the sum would be far too small.
    pub tensor_uncounted: bool,
}

impl Work {
    /// Reads the work of a launch; `None` where no counter of work was collected.
    pub fn of(set: &CounterSet, launch: &LaunchCounters) -> Option<Self> {
        let arch = launch.compute_capability.and_then(Arch::of);
        let mut work = Self::default();
        let mut tensor_counted = false;
        let mut instructions = 0.0;
        for counter in SCALAR.iter().chain(PACKED) {
            if let Some(count) = count(set, launch, counter.metric) {
                work.add(counter.kind, count * counter.factor);
                if counter.metric.ends_with("_hfma_pred_on") {
                    instructions = count;
                }
            }
        }
        let tensor: Vec<Counter> = match arch {
            Some(arch) => arch.tensor_counters().to_vec(),
            None => all_tensor_counters(),
        };
        let counted: Vec<(Counter, f64)> = tensor
            .into_iter()
            .filter_map(|counter| Some((counter, tensor_count(set, launch, &counter)?)))
            .collect();
        for (counter, count) in &counted {
            tensor_counted = true;
            // `src_fp8_dst_fp32` is a part of `src_fp8` where a device has both.
            let is_part =
                |whole: &str| counter.metric.strip_prefix(whole).is_some_and(|rest| rest.starts_with('_'));
            if !counted.iter().any(|(other, _)| is_part(other.metric)) {
                work.add(counter.kind, count * counter.factor);
            }
        }
        let ran = set.value(launch, "sm__inst_executed_pipe_tensor.sum", Unit::INSTRUCTION).unwrap_or(0.0);
        // From Ampere on, half-precision instructions run in the tensor pipe; 32 threads make one of its instructions.
        work.tensor_uncounted = !tensor_counted && ran > instructions / 32.0 + 0.5;
        (!work.by_kind.is_empty()).then_some(work)
    }

    /// Floating-point operations in all; `None` where the tensor cores' part is missing.
    pub fn flops(&self) -> Option<f64> {
        (!self.tensor_uncounted).then(|| self.by_kind.iter().map(|(_, flops)| flops).sum())
    }

    /// Operations of the tensor cores.
    pub fn tensor_flops(&self) -> f64 {
        self.by_kind.iter().filter(|(kind, _)| kind.is_tensor()).map(|(_, flops)| flops).sum()
    }

    /// The kind with the most operations.
    pub fn main_kind(&self) -> Option<WorkKind> {
        let most = self.by_kind.iter().filter(|(_, flops)| *flops > 0.0).max_by(|a, b| a.1.total_cmp(&b.1));
        most.map(|(kind, _)| *kind)
    }

    fn add(&mut self, kind: WorkKind, flops: f64) {
        match self.by_kind.iter_mut().find(|(own, _)| *own == kind) {
            Some((_, sum)) => *sum += flops,
            None => self.by_kind.push((kind, flops)),
        }
    }
}

fn all_tensor_counters() -> Vec<Counter> {
    let mut all: Vec<Counter> = Vec::new();
    for arch in [Arch::Volta, Arch::Turing, Arch::Ada, Arch::Hopper, Arch::BlackwellConsumer] {
        for counter in arch.tensor_counters() {
            if !all.iter().any(|own| own.metric == counter.metric) {
                all.push(*counter);
            }
        }
    }
    all
}

/// The whole, or dense and sparse apart where only those were collected.
fn tensor_count(set: &CounterSet, launch: &LaunchCounters, counter: &Counter) -> Option<f64> {
    count(set, launch, counter.metric).or_else(|| {
        let part = |suffix: &str| count(set, launch, &format!("{}_{suffix}", counter.metric));
        match (part("sparsity_off"), part("sparsity_on")) {
            (None, None) => None,
            (off, on) => Some(off.unwrap_or(0.0) + on.unwrap_or(0.0)),
        }
    })
}

/// A count over the whole launch: as such, or from its rate and the time or cycles.
fn count(set: &CounterSet, launch: &LaunchCounters, metric: &str) -> Option<f64> {
    let get = |name: &str| {
        let found = set.quantity(launch, name)?;
        matches!(found.unit.of, Base::One | Base::Instruction | Base::Operation).then_some(found.value)
    };
    if let Some(sum) = get(&format!("{metric}.sum")) {
        return Some(sum);
    }
    let quarter = metric.replacen("sm__", "smsp__", 1);
    if let Some(sum) = get(&format!("{quarter}.sum")) {
        return Some(sum);
    }
    if let Some(rate) = get(&format!("{metric}.sum.per_second")) {
        let ns = set.value(launch, "gpu__time_duration.sum", Unit::NANOSECOND)?;
        return Some(rate * ns * 1e-9);
    }
    let rate = get(&format!("{quarter}.sum.per_cycle_elapsed"))
        .or_else(|| get(&format!("{metric}.sum.per_cycle_elapsed")))?;
    let cycles = ["smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg", "gpc__cycles_elapsed.max"]
        .iter()
        .find_map(|name| set.value(launch, name, Unit::CYCLE))?;
    Some(rate * cycles)
}
