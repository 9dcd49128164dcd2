//! Steps of a stage: the time of each, their summary, and the cold start before them.
//!
//! A range on the CPU may close long before its GPU work is done. The time of a step therefore runs from its first GPU operation to
//! the first one of the next step, or to its own last one where no step follows. If the GPU is idle for long before the first operation of
//! a step, as it is while data is loaded, such a last step would be too short: see [`Closing`].

use super::idle::Activity;
use super::interval::Extent;
use super::tables::divide;
use crate::result::{ColdStart, CpuSteps, Steps};
use crate::stages::{Span, StageIndex};
use roofgap_base::stats::{median, percentile};
use roofgap_trace::{Ns, ProcessId, Trace};
use rustc_hash::FxHashMap;

/// The time of one step.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepPeriod {
    /// Time of the step, ns.
    pub time_ns: Ns,
    /// Start and end of that time on the GPU; `None` for a step without GPU work.
    pub span: Option<(Ns, Ns)>,
    /// Time after its last operation in which the GPU ran nothing, ns.
    pub idle_after_ns: Ns,
    /// Time after its last operation in which the GPU ran other work, ns.
    pub busy_after_ns: Ns,
}

/// The times of the steps of a stage.
#[derive(Debug, Default)]
pub struct StepPeriods {
    pub each: Vec<StepPeriod>,
    /// True if any step has GPU work.
    pub on_gpu: bool,
}

impl StepPeriods {
    /// Measures the steps of a stage. Steps of an engine follow one another across its stages, other steps within an instance.
    pub fn measure(trace: &Trace, index: &StageIndex, activity: &Activity, stage: usize) -> Self {
        let spans = index.spans(stage);
        if spans.steps.is_empty() {
            return Self::default();
        }
        let engine = !index.engine_steps(stage).is_empty();
        let sequence: &[Span] = if engine { index.engine_spans() } else { &spans.steps };
        let works = StepWork::of(trace, index, stage, sequence);
        let process =
            |span: &Span| -> Option<ProcessId> { Some(trace.ranges.rows.get(span.range? as usize)?.process) };
        let window = |span: &Span| trace.window_of(process(span)?, span.start, span.end);
        let instance = |span: &Span| match engine {
            true => 0,
            false => {
                spans.instances.partition_point(|instance| instance.start <= span.start).saturating_sub(1)
            }
        };
        let key = |span: &Span| (process(span), instance(span), window(span));
        let followers = works.followers(sequence, key);
        // The periods of an engine add up to the time of its stage as they are.
        let closing = (!engine).then(|| Closing::of(&works, activity, sequence, key));
        let period = |step: &Span| {
            let at = sequence
                .binary_search_by_key(&(step.start, step.range), |span| (span.start, span.range))
                .ok();
            let on_cpu = StepPeriod { time_ns: step.length(), ..StepPeriod::default() };
            let own = at.map(|at| (at, works.chunk(at)));
            // On several GPUs the one that ends last decides.
            let last = own.and_then(|(at, own)| {
                let with_work = own.iter().enumerate().filter(|(_, work)| work.length().is_some());
                let (device, work) = with_work.max_by_key(|(_, work)| work.1)?;
                Some((at, device, *work))
            });
            let Some((at, device, extent)) = last else {
                return on_cpu;
            };
            let next = followers.get(at * works.devices + device).copied().flatten();
            let next = next.filter(|next| *next > extent.0);
            let end = next.unwrap_or(extent.1);
            let gap = (end - extent.1).max(0);
            let busy_after_ns = activity.busy_in(device, extent.1, extent.1 + gap).min(gap);
            let missing = match (&closing, next) {
                (Some(closing), None) => closing.missing(at, &key(step), (step.end, device, extent.1)),
                _ => 0,
            };
            let time_ns = end - extent.0;
            let much = missing > (time_ns + missing) / 100 * MUCH_PCT;
            StepPeriod {
                time_ns: time_ns + if much { missing } else { 0 },
                span: Some((extent.0, end)),
                idle_after_ns: gap - busy_after_ns,
                busy_after_ns,
            }
        };
        let each: Vec<StepPeriod> = spans.steps.iter().map(period).collect();
        Self { on_gpu: each.iter().any(|step| step.span.is_some()), each }
    }
}

/// Idle time at the edges of a step, in % of its time, from which on it counts in a last step.
const MUCH_PCT: Ns = 10;

/// The part of a period that a last step does not have: the time until the range ends, and the time that a next step would take until
/// its first operation. The first step of the sequence shows the latter, so that the steps add up to the time in which they ran.
struct Closing<'a, K> {
    activity: &'a Activity,
    /// Idle time of each step from its start on the CPU to its first operation, ns; `None` without GPU work.
    leads: Vec<Option<Ns>>,
    /// That of the first step of each sequence.
    first: FxHashMap<K, Ns>,
}

impl<'a, K: std::hash::Hash + Eq> Closing<'a, K> {
    fn of(works: &StepWork, activity: &'a Activity, spans: &[Span], key: impl Fn(&Span) -> K) -> Self {
        let lead = |(step, span): (usize, &Span)| {
            let with_work = works.chunk(step).iter().enumerate();
            let (device, work) =
                with_work.filter(|(_, work)| work.length().is_some()).min_by_key(|(_, work)| work.0)?;
            Some(idle_in(activity, device, span.start, work.0))
        };
        let leads: Vec<Option<Ns>> = spans.iter().enumerate().map(lead).collect();
        let mut first = FxHashMap::default();
        for (span, lead) in spans.iter().zip(&leads) {
            if let Some(lead) = lead {
                first.entry(key(span)).or_insert(*lead);
            }
        }
        Self { activity, leads, first }
    }

    /// Returns the missing time of a step whose range ends at `range_end` and whose work ends at `work_end`, ns. A first step that took
    /// longer to begin than the last one, as while it compiles, does not count in full.
    fn missing(&self, step: usize, key: &K, (range_end, device, work_end): (Ns, usize, Ns)) -> Ns {
        let own = self.leads.get(step).copied().flatten().unwrap_or(0);
        let first = self.first.get(key).copied().unwrap_or(0);
        idle_in(self.activity, device, work_end, range_end) + own.min(first)
    }
}

/// Returns the time in which a device ran nothing in a span of time, ns; 0 for an empty one.
fn idle_in(activity: &Activity, device: usize, from: Ns, to: Ns) -> Ns {
    ((to - from).max(0) - activity.busy_in(device, from, to)).max(0)
}

/// The extent of the GPU work of each step on each device.
struct StepWork {
    devices: usize,
    extents: Vec<Extent>,
}

impl StepWork {
    fn of(trace: &Trace, index: &StageIndex, stage: usize, spans: &[Span]) -> Self {
        let ops = &trace.ops;
        let devices = trace.devices.len().max(1);
        let of_call = index.step_of_call(trace, stage, spans);
        let mut extents = vec![Extent::EMPTY; spans.len() * devices];
        for op in 0..ops.len() {
            let call = index.launches().call_of_op[op];
            let at = of_call.get(call as usize).map(|at| *at as usize);
            let at = at.filter(|at| *at < spans.len());
            if let Some(extent) = at.and_then(|at| extents.get_mut(at * devices + ops.device[op].index())) {
                extent.add(ops.start[op], ops.end[op]);
            }
        }
        Self { devices, extents }
    }

    /// Returns, for each step and device, the start of the work of the next step with the same key that has work on that device.
    fn followers<K: std::hash::Hash + Eq>(
        &self,
        spans: &[Span],
        key: impl Fn(&Span) -> K,
    ) -> Vec<Option<Ns>> {
        let mut followers = vec![None; self.extents.len()];
        let mut next: FxHashMap<K, Vec<Option<Ns>>> = FxHashMap::default();
        for (step, span) in spans.iter().enumerate().rev() {
            let starts = next.entry(key(span)).or_insert_with(|| vec![None; self.devices]);
            let own = followers.iter_mut().skip(step * self.devices);
            for ((follower, start), extent) in own.zip(starts).zip(self.chunk(step)) {
                *follower = *start;
                if extent.length().is_some() {
                    *start = Some(extent.0);
                }
            }
        }
        followers
    }

    /// Returns the extents of one step by device.
    fn chunk(&self, step: usize) -> &[Extent] {
        let from = step * self.devices;
        self.extents.get(from..from + self.devices).unwrap_or_default()
    }
}

/// Returns the standard deviation of a sample; `None` for fewer than two values.
pub fn sample_deviation(values: &[Ns]) -> Option<Ns> {
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().map(|&value| value as f64).sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|&value| (value as f64 - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt().round() as Ns)
}

/// Mean and percentiles of step times; `None` without steps.
pub fn step_summary(each_ns: Vec<i64>, launches_per_step: Option<f64>) -> Option<Steps> {
    let mut sorted = each_ns.clone();
    sorted.sort_unstable();
    Some(Steps {
        count: sorted.len() as u64,
        mean_ns: divide(sorted.iter().sum(), sorted.len() as i64),
        p50_ns: percentile(&sorted, 0.5)?,
        p90_ns: percentile(&sorted, 0.9)?,
        p99_ns: percentile(&sorted, 0.99)?,
        launches_per_step,
        each_ns,
        cpu: None,
    })
}

/// Adds the time of the steps on the CPU.
pub fn with_cpu(mut steps: Steps, each_ns: Vec<i64>) -> Steps {
    steps.cpu = step_summary(each_ns, None).map(|cpu| CpuSteps {
        mean_ns: cpu.mean_ns,
        p50_ns: cpu.p50_ns,
        each_ns: cpu.each_ns,
    });
    steps
}

/// Wall time of a cold instance over that of the later ones, at least.
const LONGER: f64 = 2.0;
/// GPU time of a cold instance over that of the later ones, at most. More GPU work is another task, such as a longer prompt.
const SAME_WORK: f64 = 1.5;

/// Time of an instance, and of the GPU operations in it, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceTime {
    pub wall: Ns,
    pub gpu: Ns,
}

impl InstanceTime {
    /// Creates the time of an instance without GPU operations.
    pub fn of(span: &Span) -> Self {
        InstanceTime { wall: span.length(), gpu: 0 }
    }
}

/// Finds the instances before the first repeatable one. The later half of the instances is the reference, and two of them are
/// needed to show that they repeat.
pub fn cold_start(instances: &[InstanceTime]) -> Option<ColdStart> {
    let warm = instances.get(instances.len() / 2..).filter(|warm| warm.len() >= 2)?;
    let middle = |of: fn(&InstanceTime) -> Ns| median(&mut warm.iter().map(of).collect::<Vec<Ns>>());
    let (wall, gpu) = (middle(|time| time.wall)?, middle(|time| time.gpu)?);
    let is_longer = |time: &InstanceTime| time.wall as f64 > LONGER * wall as f64;
    if warm.iter().any(is_longer) {
        return None;
    }
    let is_cold = |time: &&InstanceTime| is_longer(time) && time.gpu as f64 <= SAME_WORK * gpu as f64;
    let count = instances.iter().take_while(is_cold).count();
    let (cold, rest) = instances.split_at_checked(count)?;
    (gpu > 0 && count > 0).then(|| ColdStart {
        instances: count as u64,
        mean_ns: mean(cold),
        warm_mean_ns: mean(rest),
    })
}

fn mean(times: &[InstanceTime]) -> Ns {
    times.iter().map(|time| time.wall).sum::<Ns>() / (times.len().max(1) as Ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(sample_deviation(&[2, 4, 4, 4, 5, 5, 7, 9]), Some(2));
        assert_eq!(sample_deviation(&[10, 30]), Some(14));
        assert_eq!(sample_deviation(&[10]), None);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let steps = step_summary((1..=10).rev().map(|i| i * 10).collect(), Some(2.5)).unwrap();
        assert_eq!(
            (steps.count, steps.mean_ns, steps.p50_ns, steps.p90_ns, steps.p99_ns),
            (10, 55, 50, 90, 100)
        );
        assert_eq!(steps.each_ns[0], 100, "in order of time, not of size");
        assert_eq!(step_summary(Vec::new(), None), None);
    }

    fn found(times: &[(Ns, Ns)]) -> Option<ColdStart> {
        let times: Vec<InstanceTime> = times.iter().map(|&(wall, gpu)| InstanceTime { wall, gpu }).collect();
        cold_start(&times)
    }

    #[test]
    fn the_first_instance_is_cold_if_it_takes_longer_for_the_same_work() {
        let cold = found(&[(1000, 60), (100, 50), (110, 50)]);
        let expected = ColdStart { instances: 1, mean_ns: 1000, warm_mean_ns: 105 };
        assert_eq!(cold, Some(expected));
        let both = found(&[(1000, 50), (800, 50), (100, 50), (110, 50), (90, 50)]).unwrap();
        assert_eq!((both.instances, both.mean_ns, both.warm_mean_ns), (2, 900, 100));
    }

    #[test]
    fn other_patterns_are_no_cold_start() {
        // A longer prompt; a slow one in the middle; too few; no repeatable ones; no GPU work.
        assert_eq!(found(&[(1000, 500), (100, 50), (110, 50)]), None);
        assert_eq!(found(&[(100, 50), (900, 50), (100, 50), (110, 50), (100, 50)]), None);
        assert_eq!(found(&[(1000, 50), (100, 50)]), None);
        assert_eq!(found(&[(1000, 50), (100, 50), (900, 50)]), None);
        assert_eq!(found(&[(1000, 0), (100, 0), (110, 0)]), None);
        assert_eq!(found(&[]), None);
    }
}
