//! Steps of a stage: the time of each, the time that their work explains, and their summary.
//!
//! A range on the CPU may close long before its GPU work is done. The time of a step therefore runs on the GPU: from its first operation, or
//! from its start on the CPU while the GPU runs nothing before that, to the same moment of the next step. Steps of an engine run from
//! first operation to first operation. The end of a step that no step follows is estimated: see [`Habits`].

use super::divide;
use super::idle::{Activity, LONG_WORK_NS};
use super::interval::Extent;
use crate::engines::EngineStep;
use crate::result::{CpuSteps, StageKind, Steady, SteadyUnit, Steps, Tail};
use crate::stages::{Span, StageIndex};
use roofgap_base::stats::{median, percentile};
use roofgap_trace::{Ns, OpKind, Trace};
use rustc_hash::FxHashMap;

/// The time of one step.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepPeriod {
    /// Time of the step, ns.
    pub time_ns: Ns,
    /// Start and end of that time on the GPU; `None` for a step without GPU work.
    pub span: Option<(Ns, Ns)>,
    /// Device that ends last.
    pub device: usize,
    /// Time after its last operation in which the GPU ran nothing, ns.
    pub idle_after_ns: Ns,
    /// Time after its last operation in which the GPU ran other work, ns.
    pub busy_after_ns: Ns,
    /// Time of its GPU operations, ns.
    pub gpu_ns: Ns,
    /// Threads of its kernels, which grow with the shapes of its inputs.
    pub threads: f64,
    /// Tokens that an engine scheduled; 0 where unknown.
    pub tokens: f64,
}

/// The times of the steps of a stage.
#[derive(Debug, Clone, Default)]
pub struct StepPeriods {
    pub each: Vec<StepPeriod>,
    /// True if any step has GPU work.
    pub on_gpu: bool,
    /// True if the last step has no known end: steps of an engine end where the next one begins.
    is_open: bool,
}

/// A step on the GPU: the device that ends last, its beginning and its work there, and the beginning of the next step.
#[derive(Debug, Clone, Copy)]
struct Placed {
    device: usize,
    begin: Ns,
    work: Extent,
    next: Option<Ns>,
    last_call: Ns,
}

/// Fewest steps with kernels of the same size that show what such a step takes.
const LEAST_SAME: usize = 4;

impl StepPeriods {
    /// Measures the steps of a stage. Steps of an engine follow one another across its stages, other steps within an instance.
    pub fn measure(trace: &Trace, index: &StageIndex, activity: &Activity, stage: usize) -> Self {
        let spans = index.spans(stage);
        if spans.steps.is_empty() {
            return Self::default();
        }
        let engine_steps = index.engine_steps(stage);
        let engine = !engine_steps.is_empty();
        // Cold steps follow the others too.
        let all = index.spans_with_cold(stage);
        let sequence: &[Span] = if engine { index.engine_spans() } else { &all.steps };
        let mut works = StepWork::add_up(trace, index, stage, sequence);
        if !engine {
            works.begin_on_cpu(sequence, activity);
        }
        let process = |span: &Span| Some(span.range_in(trace)?.process);
        let window = |span: &Span| trace.window_of(process(span)?, span.start, span.end);
        let instance = |span: &Span| match engine {
            true => 0,
            false => all.instances.partition_point(|instance| instance.start <= span.start).saturating_sub(1),
        };
        let key = |span: &Span| (process(span), instance(span), window(span));
        let placed = works.placed(sequence, key);
        let first = placed
            .iter()
            .position(Option::is_some)
            .filter(|_| matches!(index.kind(stage), StageKind::Whole | StageKind::Loop));
        let mut habits: FxHashMap<_, Habits> = FxHashMap::default();
        // The periods of an engine add up to the time of its stage as they are.
        for (span, step) in sequence.iter().zip(&placed).filter(|_| !engine) {
            if let Some(step) = step {
                habits.entry(key(span)).or_default().add(span, step);
            }
        }
        let period = |(number, step): (usize, &Span)| {
            let at = sequence
                .binary_search_by_key(&(step.start, step.range), |span| (span.start, span.range))
                .unwrap_or(sequence.len());
            let Some(place) = placed.get(at).copied().flatten() else {
                return StepPeriod { time_ns: step.length(), ..StepPeriod::default() };
            };
            let habit = habits.get(&key(step));
            let end = match (place.next, habit) {
                (Some(next), _) => next,
                (None, Some(habit)) => {
                    // Steps take no longer than their instance.
                    let instance = all.instances.get(instance(step)).map_or(Ns::MAX, |instance| instance.end);
                    habit.end_of(step, &place).min(instance.max(place.work.1))
                }
                (None, None) => place.work.1,
            };
            // A single step takes as long as its range, even where the GPU runs earlier work first. So does the first step of a program for
            // which the GPU has waited then.
            let waited = || first == Some(at) && place.work.0 - place.begin >= LONG_WORK_NS;
            let alone = habit.is_some_and(|habit| habit.lead.is_empty() || waited());
            let begin =
                if alone { (end - step.length()).max(step.start).min(place.begin) } else { place.begin };
            let gap = place.next.map_or(0, |next| (next - place.work.1).max(0));
            let busy_after_ns = activity.busy_in(place.device, place.work.1, place.work.1 + gap).min(gap);
            StepPeriod {
                time_ns: end - begin,
                span: Some((begin, end)),
                device: place.device,
                idle_after_ns: gap - busy_after_ns,
                busy_after_ns,
                gpu_ns: works.gpu_ns.get(at).copied().unwrap_or(0),
                threads: works.threads.get(at).copied().unwrap_or(0.0),
                tokens: engine_steps.get(number).and_then(scheduled).unwrap_or(0.0),
            }
        };
        let each: Vec<StepPeriod> = spans.steps.iter().enumerate().map(period).collect();
        let last = sequence.last().zip(spans.steps.last());
        let is_open =
            engine && last.is_some_and(|(last, step)| (last.start, last.range) == (step.start, step.range));
        Self { on_gpu: each.iter().any(|step| step.span.is_some()), each, is_open }
    }

    /// Returns the number of steps that show how long a step takes: all, or all but a last one without a known end.
    pub fn complete(&self) -> usize {
        self.each.len() - usize::from(self.is_open && self.each.len() > 1)
    }

    /// Returns the time of each step that its tokens or the size of its kernels explain, or that steps with kernels of the same size
    /// take, ns.
    pub fn expected(&self) -> Vec<Ns> {
        let times: Vec<Ns> = self.each.iter().map(|step| step.time_ns).collect();
        let by = |work: fn(&StepPeriod) -> f64| {
            expected(&times, &self.each.iter().map(work).collect::<Vec<f64>>())
        };
        let (tokens, threads) = (by(|step| step.tokens), by(|step| step.threads));
        let mut same: FxHashMap<u64, Vec<Ns>> = FxHashMap::default();
        for step in self.each.iter().filter(|step| step.threads > 0.0) {
            same.entry(step.threads.to_bits()).or_default().push(step.time_ns);
        }
        same.retain(|_, times| times.len() >= LEAST_SAME);
        let same: FxHashMap<u64, Option<Ns>> =
            same.into_iter().map(|(threads, mut times)| (threads, median(&mut times))).collect();
        let usual = |step: &StepPeriod| same.get(&step.threads.to_bits()).copied().flatten().unwrap_or(0);
        let lines = tokens.into_iter().zip(threads);
        lines.zip(&self.each).map(|((tokens, threads), step)| tokens.max(threads).max(usual(step))).collect()
    }
}

/// Returns the tokens of a step, or its requests where it does not name tokens.
fn scheduled(step: &EngineStep) -> Option<f64> {
    let of = |phase: &crate::engines::Scheduled| phase.tokens.or(phase.requests);
    Some((of(&step.context)? + of(&step.generation)?) as f64)
}

/// Returns the time of each unit that its work explains: the line through the units by the weighted median of slopes, which a few
/// outliers do not move. Without work, or where more work does not take longer, that is the median.
pub fn expected(times: &[Ns], work: &[f64]) -> Vec<Ns> {
    let Some(middle) = median(&mut times.to_vec()) else {
        return Vec::new();
    };
    let mut order: Vec<(f64, Ns)> = work.iter().copied().zip(times.iter().copied()).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (low, high) = order.split_at(order.len() / 2);
    let upper = high.get(high.len().saturating_sub(low.len())..).unwrap_or_default();
    let pairs = low.iter().zip(upper).filter(|(a, b)| b.0 > a.0);
    let mut slopes: Vec<(f64, f64)> =
        pairs.map(|(a, b)| ((b.1 - a.1) as f64 / (b.0 - a.0), b.0 - a.0)).collect();
    slopes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = slopes.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let slope = slopes.iter().find(|(_, weight)| {
        sum += weight;
        sum >= half
    });
    let Some(slope) = slope.map(|(slope, _)| *slope).filter(|slope| *slope > 0.0) else {
        return vec![middle; times.len()];
    };
    let mut rest: Vec<Ns> = order.iter().map(|(work, time)| time - (slope * work) as Ns).collect();
    let base = median(&mut rest).unwrap_or(0);
    work.iter().map(|work| (base + (slope * work) as Ns).max(1)).collect()
}

/// The time at which the steps of a sequence usually end, for its last step: it has no next one. Medians over the steps that have.
#[derive(Debug, Default)]
struct Habits {
    /// Time from the end of the range to the first operation of the next step, ns; negative where that runs before.
    lead: Vec<Ns>,
    /// Time from the last launch to the end of the range, ns.
    rest: Vec<Ns>,
    /// Time from the last operation to the first one of the next step, ns; negative where they overlap.
    gap: Vec<Ns>,
}

impl Habits {
    fn add(&mut self, span: &Span, step: &Placed) {
        if let Some(next) = step.next {
            self.lead.push(next - span.end);
            self.rest.push(span.end - step.last_call);
            self.gap.push(next - step.work.1);
        }
    }

    /// Returns the end of a step that no step follows. It ends with its range or with its GPU work, whichever comes later, as the others
    /// do. A range that goes on for longer than theirs after its last launch, as while a profiler stops, counts in part. A single
    /// step takes as long as its range, or as its GPU work if that takes longer.
    fn end_of(&self, span: &Span, step: &Placed) -> Ns {
        let middle = |values: &[Ns]| median(&mut values.to_vec());
        let (Some(lead), Some(rest), Some(gap)) = (middle(&self.lead), middle(&self.rest), middle(&self.gap))
        else {
            return step.work.1.max(step.begin + span.length());
        };
        let range_end = span.end.min(step.last_call + rest.max(0));
        (range_end + lead).max(step.work.1 + gap).max(step.begin)
    }
}

/// The GPU work of each step.
struct StepWork {
    devices: usize,
    /// Extent on each device, device by device within a step.
    extents: Vec<Extent>,
    /// Beginning of the step on each device.
    begins: Vec<Ns>,
    /// Time of its operations, ns.
    gpu_ns: Vec<Ns>,
    /// Threads of its kernels.
    threads: Vec<f64>,
    /// End of its last launch call.
    last_call: Vec<Ns>,
}

impl StepWork {
    fn add_up(trace: &Trace, index: &StageIndex, stage: usize, spans: &[Span]) -> Self {
        let ops = &trace.ops;
        let devices = trace.devices.len().max(1);
        let of_call = index.step_of_call(trace, stage, spans);
        let mut works = Self {
            devices,
            extents: vec![Extent::EMPTY; spans.len() * devices],
            begins: Vec::new(),
            gpu_ns: vec![0; spans.len()],
            threads: vec![0.0; spans.len()],
            last_call: spans.iter().map(|span| span.start).collect(),
        };
        let size = |sides: [u32; 3]| sides.iter().map(|side| f64::from(*side)).product::<f64>();
        let threads: Vec<f64> = ops.shapes.iter().map(|shape| size(shape.grid) * size(shape.block)).collect();
        for op in (0..ops.len()).filter(|op| !index.is_early(*op)) {
            let call = index.launches().call_of_op[op] as usize;
            let Some(at) = of_call.get(call).map(|at| *at as usize).filter(|at| *at < spans.len()) else {
                continue;
            };
            if let Some(extent) = works.extents.get_mut(at * devices + ops.device[op].index()) {
                extent.add(ops.start[op], ops.end[op]);
            }
            works.gpu_ns[at] += ops.duration(op);
            works.last_call[at] = works.last_call[at].max(trace.calls.end[call]);
            if ops.kind[op] == OpKind::Kernel {
                works.threads[at] += threads.get(ops.shape[op].index()).copied().unwrap_or(0.0);
            }
        }
        works.begins = works.extents.iter().map(|extent| extent.0).collect();
        works
    }

    /// Lets steps begin on the CPU where the GPU runs nothing from then to their first operation.
    fn begin_on_cpu(&mut self, spans: &[Span], activity: &Activity) {
        let slots = self.begins.iter_mut().zip(&self.extents).enumerate();
        for (slot, (begin, work)) in slots.filter(|(_, (_, work))| work.length().is_some()) {
            if let Some(span) = spans.get(slot / self.devices) {
                let idle = activity.idle_since(slot % self.devices, work.0);
                *begin = span.start.max(idle).min(work.0);
            }
        }
    }

    /// Returns the place of each step on the GPU; `None` for a step without work. On several GPUs the one that ends last decides. The
    /// next step is the one with the same key that has work on that device.
    fn placed<K: std::hash::Hash + Eq>(
        &self,
        spans: &[Span],
        key: impl Fn(&Span) -> K,
    ) -> Vec<Option<Placed>> {
        let mut placed = vec![None; spans.len()];
        let mut next: FxHashMap<K, Vec<Option<Ns>>> = FxHashMap::default();
        for (at, span) in spans.iter().enumerate().rev() {
            let starts = next.entry(key(span)).or_insert_with(|| vec![None; self.devices]);
            let slots_of = at * self.devices..(at + 1) * self.devices;
            let slots = self.extents[slots_of.clone()].iter().zip(&self.begins[slots_of]).enumerate();
            let with_work = slots.filter(|(_, (work, _))| work.length().is_some());
            if let Some((device, (work, &begin))) = with_work.clone().max_by_key(|(_, (work, _))| work.1) {
                let next = starts[device].filter(|next| *next > begin);
                placed[at] = Some(Placed { device, begin, work: *work, next, last_call: self.last_call[at] });
            }
            for (device, (_, begin)) in with_work {
                starts[device] = Some(*begin);
            }
        }
        placed
    }
}

/// Returns the standard deviation of a sample; `None` for fewer than two values.
pub fn sample_deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// Returns the standard deviation of times, as [`sample_deviation`] does.
pub fn time_deviation(times: &[Ns]) -> Option<Ns> {
    let times: Vec<f64> = times.iter().map(|&time| time as f64).collect();
    Some(sample_deviation(&times)?.round() as Ns)
}

/// Mean and percentiles of step times; `None` without steps.
pub fn step_summary(each_ns: Vec<i64>, launches_per_step: Option<f64>) -> Option<Steps> {
    let mut sorted = each_ns.clone();
    sorted.sort_unstable();
    Some(Steps {
        count: sorted.len() as u64,
        mean_ns: divide(sorted.iter().sum(), sorted.len() as i64),
        p50_ns: median(&mut sorted.clone())?,
        p90_ns: percentile(&sorted, 0.9)?,
        p99_ns: percentile(&sorted, 0.99)?,
        launches_per_step,
        each_ns,
        cpu: None,
    })
}

/// Adds the time of the steps on the CPU.
pub fn with_cpu(steps: Steps, each_ns: Vec<i64>) -> Steps {
    let cpu = step_summary(each_ns, None);
    let cpu = cpu.map(|Steps { mean_ns, p50_ns, each_ns, .. }| CpuSteps { mean_ns, p50_ns, each_ns });
    Steps { cpu, ..steps }
}

/// Fewest units of which some can be a tail.
const LEAST_UNITS: usize = 5;

/// Part of the units, 1 in so many, from which on those that take longer are no exception.
const COMMON: usize = 3;

/// Factor from a median distance to a standard deviation.
pub const DEVIATION: f64 = 1.4826;

/// Summarises repeated units robustly; `None` without any. `expected` is the time of each that its work explains, ns.
pub fn steady(unit: SteadyUnit, times: &[Ns], expected: &[Ns]) -> Option<Steady> {
    let median_ns = median(&mut times.to_vec())?;
    let spread = |distances: &mut [Ns]| Some((median(distances)? as f64 * DEVIATION).round() as Ns);
    let spread_ns = spread(&mut times.iter().map(|time| (time - median_ns).abs()).collect::<Vec<Ns>>())?;
    let pairs = || times.iter().copied().zip(expected.iter().copied());
    let around = spread(&mut pairs().map(|(time, expected)| (time - expected).abs()).collect::<Vec<Ns>>())?;
    let stands_out = |time: Ns, expected: Ns| time - expected > (3 * around).max(expected / 5);
    let enough = times.len() >= LEAST_UNITS;
    let (mut tail, mut sum, mut count) = (Tail::default(), 0, 0);
    for (at, (time, expected)) in pairs().enumerate() {
        if !enough || !stands_out(time, expected) {
            (sum, count) = (sum + time, count + 1);
        }
        if !enough || time <= 2 * expected {
            continue;
        }
        tail.units += 1;
        tail.beyond_ns += time - expected;
        if time - expected > tail.slowest_ns - tail.expected_ns {
            (tail.slowest, tail.slowest_ns, tail.expected_ns) = (at as u64 + 1, time, expected);
        }
    }
    // What every third does is how the program runs, and times that differ much by themselves have no tail.
    let often = times.len() - count as usize > times.len() / COMMON || 2 * spread_ns > median_ns;
    if often {
        (sum, count, tail) = (times.iter().sum(), times.len() as i64, Tail::default());
    }
    Some(Steady {
        unit,
        count: times.len() as u64,
        time_ns: if count > 0 && (enough || count < 3) { divide(sum, count) } else { median_ns },
        median_ns,
        spread_ns,
        unprofiled_ns: None,
        tail: (tail.units > 0).then_some(tail),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(time_deviation(&[2, 4, 4, 4, 5, 5, 7, 9]), Some(2));
        assert_eq!(time_deviation(&[10, 30]), Some(14));
        assert_eq!(time_deviation(&[10]), None);
    }

    #[test]
    fn a_percentile_is_a_value_that_occurred_and_the_median_is_in_the_middle() {
        let steps = step_summary((1..=10).rev().map(|i| i * 10).collect(), Some(2.5)).unwrap();
        assert_eq!(
            (steps.count, steps.mean_ns, steps.p50_ns, steps.p90_ns, steps.p99_ns),
            (10, 55, 55, 90, 100)
        );
        assert_eq!(steps.each_ns[0], 100, "in order of time, not of size");
        assert_eq!(step_summary(Vec::new(), None), None);
    }

    #[test]
    fn more_work_explains_a_longer_step() {
        // Nine decode steps of 64 tokens in 10 ms, one with a prompt of 8,000 tokens in 180 ms, and one that is slow for no reason.
        let mut times = vec![10_000; 9];
        let mut tokens = vec![64.0; 9];
        for (time, work) in [(180_000, 8_000.0), (176_000, 7_800.0), (100_000, 64.0)] {
            times.push(time);
            tokens.push(work);
        }
        let expected = expected(&times, &tokens);
        let steady = steady(SteadyUnit::Step, &times, &expected).unwrap();
        let tail = steady.tail.unwrap();
        assert_eq!((tail.units, tail.slowest, tail.slowest_ns), (1, 12, 100_000));
        assert!((tail.expected_ns - 10_000).abs() < 2_000, "{}", tail.expected_ns);
        assert_eq!(steady.median_ns, 10_000);
        // The tail is not in the step time; what the work explains is.
        assert_eq!(steady.time_ns, (9 * 10_000 + 180_000 + 176_000) / 11);
    }

    #[test]
    fn steps_of_the_same_size_are_compared_with_each_other() {
        // A benchmark of three sizes, whose time does not grow with the threads of their kernels, and a slow step of the last.
        let sizes = [(1.0, 150), (2.0, 24_000), (3.0, 600)];
        let step = |threads, time_ns| StepPeriod { time_ns, threads, ..StepPeriod::default() };
        let mut each: Vec<StepPeriod> =
            sizes.iter().flat_map(|&(threads, time)| vec![step(threads, time); 30]).collect();
        each[70].time_ns = 90_000;
        let slow = |expected: &[Ns]| {
            let slow = each.iter().zip(expected).filter(|(step, expected)| step.time_ns > 2 * **expected);
            slow.map(|(step, _)| step.time_ns).collect::<Vec<_>>()
        };
        let (times, work): (Vec<Ns>, Vec<f64>) = each.iter().map(|step| (step.time_ns, step.threads)).unzip();
        assert!(slow(&expected(&times, &work)).contains(&24_000), "a line does not do");
        assert_eq!(
            slow(&StepPeriods { each: each.clone(), on_gpu: true, is_open: false }.expected()),
            [90_000]
        );
    }

    #[test]
    fn a_last_step_without_a_known_end_is_left_out_of_several() {
        let whole = |steps: usize, is_open| {
            StepPeriods { each: vec![StepPeriod::default(); steps], on_gpu: true, is_open }.complete()
        };
        assert_eq!((whole(5, true), whole(5, false), whole(2, true), whole(1, true)), (4, 5, 1, 1));
    }

    #[test]
    fn steps_that_alternate_have_no_tail() {
        let mut times: Vec<Ns> = [8, 250].repeat(30);
        times[7] = 700;
        let tail = |times: &[Ns]| {
            steady(SteadyUnit::Step, times, &expected(times, &vec![0.0; times.len()])).unwrap().tail
        };
        assert_eq!(tail(&times), None);
        let usual = |times: &[Ns]| step_summary(times.to_vec(), None).unwrap().usual_ns();
        assert_eq!(usual(&times), divide(29 * 258 + 8 + 700, 60), "the mean");
        assert_eq!((usual(&[8, 250, 8, 8, 8, 8]), usual(&[8, 8, 8, 250, 250, 250, 8])), (8, 8), "no turns");
        times.iter_mut().filter(|time| **time == 8).for_each(|time| *time = 240);
        assert_eq!(tail(&times).map(|tail| tail.slowest), Some(8));
    }

    #[test]
    fn without_work_the_median_is_expected() {
        assert_eq!(expected(&[10, 12, 11, 90, 10], &[0.0; 5]), vec![11; 5]);
        // More work that takes no longer explains nothing.
        assert_eq!(expected(&[10, 10, 10, 10], &[1.0, 2.0, 3.0, 4.0]), vec![10; 4]);
        let few = steady(SteadyUnit::Step, &[10, 90], &[50, 50]).unwrap();
        assert_eq!((few.time_ns, few.tail), (50, None));
        assert_eq!(steady(SteadyUnit::Step, &[], &[]), None);
    }

    #[test]
    fn a_last_step_ends_as_the_others_do() {
        let span = |start, end| Span { start, end, range: None };
        let step = |from, to, next, last_call| Placed {
            begin: from,
            device: 0,
            work: Extent(from, to),
            next,
            last_call,
        };
        let mut habits = Habits::default();
        assert_eq!(
            habits.end_of(&span(0, 47), &step(15, 50, None, 40)),
            62,
            "a single one is as long as its range"
        );
        // Work runs on beside the next step.
        habits.add(&span(0, 100), &step(2, 260, Some(102), 99));
        habits.add(&span(100, 200), &step(102, 360, Some(202), 199));
        assert_eq!(habits.end_of(&span(200, 300), &step(202, 460, None, 299)), 302);
        // A profiler stops in the last range.
        assert_eq!(habits.end_of(&span(200, 900), &step(202, 460, None, 299)), 302);
        let mut behind = Habits::default();
        // The GPU is behind, and more so with every step.
        behind.add(&span(0, 16), &step(30, 49, Some(49), 15));
        behind.add(&span(16, 32), &step(49, 68, Some(68), 31));
        assert_eq!(behind.end_of(&span(32, 48), &step(68, 87, None, 47)), 87);
    }
}
