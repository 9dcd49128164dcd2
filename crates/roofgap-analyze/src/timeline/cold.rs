//! Cold instances and steps: the first of repeated ones, and those with one-time work.

use super::cold_calls::{ColdPart, LONG_LAUNCH_NS};
use super::idle::HostWork;
use super::interval::IntervalSet;
use super::steps::{StepPeriod, StepPeriods, steady};
use crate::result::{ColdCause, ColdStart, StageKind, SteadyUnit, Tail};
use crate::stages::{Cold, StageIndex};
use crate::verdict::{LEAST_NS, LEAST_SHORT_OPERATIONS};
use roofgap_base::stats::median;
use roofgap_trace::{Ns, OpKind, Trace};
use std::cmp::Reverse;

/// Time of a cold unit over that of the others, at least.
const LONGER: Ns = 2;

/// GPU time of a cold unit over that of the others, at most, in %. More GPU work is another task, such as a longer prompt.
const SAME_WORK_PCT: Ns = 150;

/// Fewest steps of an instance that show that all of it is slow.
const SHOWN_BY_STEPS: usize = 4;

/// Share of the time of a stage, in %, from which on its cold calls are a cold start where nothing else repeats.
const LEAST_COLD_PCT: Ns = 10;

/// Part of the time of all steps, 1 in so many, from which on the time that no work explains is a pause.
const PAUSE: Ns = 20;

/// Most steps that are pauses, 1 in so many. More than that is normal.
const RARE: usize = 8;

/// Time of an instance or a step.
#[derive(Debug, Clone, Default)]
pub struct Unit {
    /// Time, ns.
    pub time: Ns,
    /// Time that its work explains, ns; 0 where unknown.
    pub expected: Ns,
    /// Time of its GPU operations, ns.
    pub gpu: Ns,
    /// Idle time of the GPU in which the CPU was cold, ns.
    pub cold: Ns,
    causes: Vec<(ColdPart, u64)>,
}

impl Unit {
    fn add(&mut self, part: ColdPart) {
        self.cold += part.ns;
        match self.causes.iter_mut().find(|(known, _)| known.kind == part.kind) {
            Some((known, calls)) => {
                let call = if part.ns > known.ns { part.call } else { known.call };
                (*known, *calls) = (ColdPart { ns: known.ns + part.ns, call, ..*known }, *calls + 1);
            }
            None => self.causes.push((part, 1)),
        }
    }

    /// Tells whether it took more than twice the time that is expected, for about the same GPU work.
    fn is_longer(&self, time: Ns, gpu: Ns) -> bool {
        self.time > LONGER.saturating_mul(time)
            && self.gpu.saturating_mul(100) <= gpu.saturating_mul(SAME_WORK_PCT)
    }

    /// Tells whether cold calls take most of the time beyond the expected one.
    fn is_explained(&self, time: Ns) -> bool {
        self.cold > 0 && self.cold.saturating_mul(2) >= self.time - time
    }
}

/// Finds the cold instances and steps of a stage, whose steps were measured; `None` without any.
pub fn find(
    trace: &Trace,
    index: &StageIndex,
    work: &HostWork,
    stage: usize,
    periods: &StepPeriods,
) -> Option<Cold> {
    let spans = index.spans(stage);
    let engine = !index.engine_steps(stage).is_empty();
    let mut units = Units {
        instances: spans
            .instances
            .iter()
            .map(|span| Unit { time: span.length(), ..Unit::default() })
            .collect(),
        steps: steps(periods),
    };
    units.add_work(trace, index, work, stage);
    let of_step: Vec<usize> = spans
        .steps
        .iter()
        .map(|step| {
            spans.instances.partition_point(|instance| instance.start <= step.start).saturating_sub(1)
        })
        .collect();
    let repeats = !engine && !matches!(index.kind(stage), StageKind::Whole | StageKind::Loop);
    let cold_instances = if repeats {
        cold_instances(&units.instances, units.steps.len() / units.instances.len().max(1))
    } else {
        0
    };
    let instances: Vec<usize> = (0..cold_instances).collect();
    let warm = |step: &usize| of_step.get(*step).is_none_or(|instance| *instance >= cold_instances);
    let steps: Vec<usize> = (0..units.steps.len()).filter(warm).collect();
    let cold = cold_steps(&units.steps, &steps, &of_step, engine);
    let counting: Vec<usize> = steps.into_iter().filter(|step| !cold.contains(step)).collect();
    let (paused, tail) = if engine { Default::default() } else { paused_steps(&units.steps, &counting) };
    let startup_ns = startup_ns(trace, index, stage);
    let parts = units.result(trace, instances, cold);
    let (instances, steps, mut start) = parts.unwrap_or_default();
    if startup_ns > 0 {
        let known = start.unwrap_or_default();
        // What is cold as a whole is so because of the start.
        let (causes, left_out) = (known.causes.clone(), true);
        let known = if known.left_out { known } else { ColdStart::default() };
        start = Some(ColdStart { startup_ns, left_out, causes, ..known });
    }
    let steps: Vec<usize> = steps.into_iter().chain(paused).collect();
    (start.is_some() || tail.is_some()).then_some(Cold { instances, steps, start, tail })
}

/// Part of the time of a trace, 1 in so many, from which on what comes before its first step is told apart.
const STARTUP: Ns = 20;

/// Returns the time of a trace before its loop, or before the work of a trace without one, where that matters and enough is left to judge, ns.
fn startup_ns(trace: &Trace, index: &StageIndex, stage: usize) -> Ns {
    let [instance] = &index.spans(stage).instances[..] else { return 0 };
    let begin = trace.ops.start.first().copied().unwrap_or(instance.start).min(instance.start);
    let (from, first) = match index.kind(stage) {
        StageKind::Loop => (begin, Some(instance.start)),
        StageKind::Whole if trace.recorded.is_empty() => {
            (instance.start, busy_from(trace, index).or_else(|| loaded_from(trace, index)))
        }
        _ => return 0,
    };
    // What is left of a short trace must not be too little to judge.
    let shows = |first: &Ns| {
        let left = || trace.ops.start.iter().filter(|start| *start >= first).count();
        instance.end - first >= LEAST_NS || left() >= LEAST_SHORT_OPERATIONS as usize
    };
    let before = first.filter(shows).map_or(0, |first| first - from);
    if before > (instance.end - from) / STARTUP { before } else { 0 }
}

/// Returns the steps as units, with the time that their work explains.
fn steps(periods: &StepPeriods) -> Vec<Unit> {
    let expected = periods.expected();
    let unit = |(step, expected): (&StepPeriod, Ns)| Unit {
        time: if step.span.is_some() { step.time_ns } else { 0 },
        gpu: step.gpu_ns,
        expected,
        ..Unit::default()
    };
    periods.each.iter().zip(expected).map(unit).collect()
}

/// Cold instances and steps, and their description.
type ColdUnits = (Vec<usize>, Vec<usize>, Option<ColdStart>);

/// The instances and steps of a stage.
struct Units {
    instances: Vec<Unit>,
    steps: Vec<Unit>,
}

impl Units {
    /// Adds the GPU time of instances, and the cold part of the gaps to instances and steps.
    fn add_work(&mut self, trace: &Trace, index: &StageIndex, work: &HostWork, stage: usize) {
        let ops = &trace.ops;
        let cold = work.cold_calls();
        let spans = index.spans(stage);
        let step_of_call = match cold.is_empty() {
            true => Vec::new(),
            false => index.step_of_call(trace, stage, &spans.steps),
        };
        let mut devices: Vec<Option<Ns>> = vec![None; trace.devices.len().max(1)];
        // Of several devices only the time counts in which none works.
        let several = ops.device.windows(2).any(|pair| pair[0] != pair[1]);
        let times = || ops.start.iter().copied().zip(ops.end.iter().copied());
        let busy = several.then(|| IntervalSet::of(times().collect()));
        let mut counted = Ns::MIN;
        for op in 0..ops.len() {
            let (start, end) = (ops.start[op], ops.end[op]);
            let Some(covered) = devices.get_mut(ops.device[op].index()) else {
                continue;
            };
            let until = covered.unwrap_or(Ns::MIN);
            *covered = Some(until.max(end));
            let Some(at) = index.instance_of(stage, op) else {
                continue;
            };
            let (Some(instance), Some(span)) = (self.instances.get_mut(at), spans.instances.get(at)) else {
                continue;
            };
            instance.gpu += end - start;
            let gap = (until.max(span.start).min(start), start);
            let call = index.call_of_op(op);
            if let Some(mut part) = cold.during(trace, gap, call) {
                if let Some(busy) = &busy {
                    let (from, to) = (gap.0.max(counted), gap.0 + part.ns);
                    part.ns = (to - from - busy.overlap(from, to.max(from))).max(0);
                    counted = counted.max(to);
                    if part.ns == 0 {
                        continue;
                    }
                }
                instance.add(part);
                let step =
                    step_of_call.get(call as usize).and_then(|step| self.steps.get_mut(*step as usize));
                if let Some(step) = step {
                    step.add(part);
                }
            }
        }
    }

    /// Describes the cold ones. Where there are none, a stage whose time goes to cold calls is cold as a whole.
    fn result(self, trace: &Trace, instances: Vec<usize>, steps: Vec<usize>) -> Option<ColdUnits> {
        let pick = |units: &[Unit], cold: &[usize]| {
            let (mut gone, mut rest) = (Vec::new(), Vec::new());
            for (at, unit) in units.iter().enumerate() {
                if cold.contains(&at) { gone.push(unit.clone()) } else { rest.push(unit.clone()) }
            }
            (gone, rest)
        };
        let (mut cold, rest) = pick(&self.instances, &instances);
        let (of_steps, other_steps) = pick(&self.steps, &steps);
        let left_out = !cold.is_empty() || !of_steps.is_empty();
        let (mean_ns, warm_mean_ns) = match (left_out, cold.is_empty()) {
            (true, false) => (mean(&cold), mean(&rest)),
            (true, true) => (mean(&of_steps), mean(&other_steps)),
            (false, _) => {
                let (time, once): (Ns, Ns) =
                    rest.iter().fold((0, 0), |(time, once), unit| (time + unit.time, once + unit.cold));
                if once <= 0 || once < time / 100 * LEAST_COLD_PCT {
                    return None;
                }
                cold.extend(rest.iter().filter(|unit| unit.cold > 0).cloned());
                let count = cold.len().max(1) as Ns;
                (mean(&cold), mean(&cold) - once / count)
            }
        };
        let count = cold.len() as u64;
        cold.extend(of_steps.iter().cloned());
        let start = ColdStart {
            instances: count,
            mean_ns,
            warm_mean_ns,
            steps: of_steps.len() as u64,
            total_ns: cold.iter().map(|unit| unit.time).sum(),
            left_out,
            startup_ns: 0,
            causes: causes(trace, &cold),
        };
        Some((instances, steps, Some(start)))
    }
}

/// Adds up the causes of cold units, most time first.
fn causes(trace: &Trace, cold: &[Unit]) -> Vec<ColdCause> {
    let mut all = Unit::default();
    for (part, calls) in cold.iter().flat_map(|unit| &unit.causes) {
        all.add(*part);
        if let Some((_, sum)) = all.causes.iter_mut().find(|(known, _)| known.kind == part.kind) {
            *sum += calls - 1;
        }
    }
    all.causes.sort_by_key(|(part, _)| Reverse(part.ns));
    let named = |(part, calls): &(ColdPart, u64)| {
        let call = trace.names.get(part.call).to_owned();
        ColdCause { kind: part.kind, call, calls: *calls, ns: part.ns }
    };
    all.causes.iter().map(named).collect()
}

fn mean(units: &[Unit]) -> Ns {
    units.iter().map(|unit| unit.time).sum::<Ns>() / (units.len().max(1) as Ns)
}

fn middle(units: &[&Unit], of: fn(&Unit) -> Ns) -> Option<Ns> {
    median(&mut units.iter().map(|unit| of(unit)).collect::<Vec<Ns>>())
}

/// Counts the instances before the first repeatable one. The later half of the instances is the reference, and two of them are
/// needed to show that they repeat. One is enough where the first has cold calls, or many steps.
fn cold_instances(instances: &[Unit], steps: usize) -> usize {
    let Some(warm) = instances.get(instances.len() / 2..).filter(|warm| warm.len() < instances.len()) else {
        return 0;
    };
    let warm: Vec<&Unit> = warm.iter().collect();
    let (Some(time), Some(gpu)) = (middle(&warm, |unit| unit.time), middle(&warm, |unit| unit.gpu)) else {
        return 0;
    };
    if gpu <= 0 || warm.iter().any(|unit| unit.time > LONGER.saturating_mul(time)) {
        return 0;
    }
    let shown = |unit: &Unit| warm.len() >= 2 || steps >= SHOWN_BY_STEPS || unit.is_explained(time);
    instances.iter().take_while(|unit| unit.is_longer(time, gpu) && shown(unit)).count()
}

/// Returns the cold steps among those that count: the first ones of the first instance, unless the first step of others is as long,
/// and those with cold calls. Steps of an engine have different work from the beginning on, so only cold calls show them.
fn cold_steps(units: &[Unit], counting: &[usize], instance_of: &[usize], engine: bool) -> Vec<usize> {
    let known: Vec<(usize, &Unit)> = counting
        .iter()
        .filter_map(|at| Some((*at, units.get(*at)?)))
        .filter(|(_, unit)| unit.time > 0)
        .collect();
    let all: Vec<&Unit> = known.iter().map(|(_, unit)| *unit).collect();
    let (Some(time), Some(gpu)) = (middle(&all, |unit| unit.time), middle(&all, |unit| unit.gpu)) else {
        return Vec::new();
    };
    if known.len() < 3 || gpu <= 0 {
        return Vec::new();
    }
    // Steps of an engine, and those with more work than the median, take as long as their work.
    let more_work = |unit: &Unit| unit.expected > time && unit.gpu > gpu / 100 * SAME_WORK_PCT;
    let expected = |unit: &Unit| if engine || more_work(unit) { unit.expected.max(1) } else { time };
    let work = |unit: &Unit| match time > 0 {
        true => (gpu as f64 * expected(unit) as f64 / time as f64) as Ns,
        false => gpu,
    };
    let is_longer = |unit: &Unit| {
        unit.is_longer(expected(unit), work(unit)) && unit.time - expected(unit) > LONG_LAUNCH_NS
    };
    let first_of = |pair: &[(usize, &Unit)]| match pair {
        [(before, _), (at, _)] => instance_of.get(*before) != instance_of.get(*at),
        _ => false,
    };
    // A first step that is long in every instance is so for another reason.
    let always = known
        .windows(2)
        .filter(|pair| first_of(pair))
        .any(|pair| pair.last().is_some_and(|(_, unit)| is_longer(unit)));
    let leading = match engine || always {
        true => 0,
        false => known.iter().take_while(|(_, unit)| is_longer(unit)).count(),
    };
    let leading = if leading <= (known.len() / 4).max(1) { leading } else { 0 };
    let cold = known
        .iter()
        .enumerate()
        .filter(|(at, (_, unit))| is_longer(unit) && (*at < leading || unit.is_explained(expected(unit))));
    let cold: Vec<usize> = cold.map(|(_, (at, _))| *at).collect();
    if cold.len() <= known.len() / 2 { cold } else { Vec::new() }
}

/// Returns the few steps that pause for much of the time of all, for the same GPU work, and the tail that they are. Such a pause does
/// not show what holds the others back.
fn paused_steps(units: &[Unit], counting: &[usize]) -> (Vec<usize>, Option<Tail>) {
    let known: Vec<(usize, &Unit)> = counting.iter().filter_map(|at| Some((*at, units.get(*at)?))).collect();
    let all: Vec<&Unit> = known.iter().map(|(_, unit)| *unit).collect();
    let (times, expected): (Vec<Ns>, Vec<Ns>) = all.iter().map(|unit| (unit.time, unit.expected)).unzip();
    let tail = steady(SteadyUnit::Step, &times, &expected).and_then(|steady| steady.tail);
    let (Some(tail), Some(gpu)) = (tail, middle(&all, |unit| unit.gpu)) else {
        return Default::default();
    };
    let long: Vec<(usize, &Unit)> =
        known.iter().filter(|(_, unit)| unit.time > LONGER.saturating_mul(unit.expected)).copied().collect();
    let rare = long.len() * RARE <= known.len() && tail.beyond_ns.saturating_mul(PAUSE) > times.iter().sum();
    if !rare || !long.iter().all(|(_, unit)| unit.is_longer(unit.expected, gpu)) {
        return Default::default();
    }
    let slowest = known.get(tail.slowest as usize - 1).map_or(tail.slowest, |(at, _)| *at as u64 + 1);
    (long.iter().map(|(at, _)| *at).collect(), Some(Tail { slowest, ..tail }))
}

/// Least operations of a whole pass, which is not a layer.
const LEAST_PASS: usize = 200;

/// Share of the time, in %, from which a GPU counts as busy.
const BUSY_PCT: Ns = 90;

/// Least operations that show that a GPU has its work.
const LEAST_WORK: usize = 20;

/// Returns the time at which the CPU launched the first operation after which the GPU is busy until the end of the trace, where that
/// is at least half of it and several operations, and the GPU is idle for most of the time before; `None` for several GPUs, or where
/// launches are not known.
pub fn busy_from(trace: &Trace, index: &StageIndex) -> Option<Ns> {
    let ops = &trace.ops;
    ops.device.first().filter(|first| ops.device.iter().all(|device| device == *first))?;
    let (begin, mut until) = (*ops.start.first()?, *ops.start.first()?);
    // Operations that follow a gap, and the gap.
    let mut after: Vec<(usize, Ns)> = Vec::new();
    for row in 0..ops.len() {
        if ops.start[row] > until {
            after.push((row, ops.start[row] - until));
        }
        until = until.max(ops.end[row]);
    }
    let mut idle: Ns = after.iter().map(|(_, gap)| gap).sum();
    let all = idle;
    let (row, _) = after.into_iter().find(|(row, gap)| {
        idle -= gap;
        100 * idle <= (100 - BUSY_PCT) * (until - ops.start[*row])
    })?;
    let start = ops.start[row];
    let settles = 2 * (start - begin) <= until - begin && 2 * (all - idle) > start - begin;
    let settles = settles && ops.len() - row >= LEAST_WORK;
    settles.then(|| trace.calls.start.get(index.call_of_op(row) as usize).copied()).flatten()
}

/// Fewest copies that load what a program works with, tensor by tensor.
const LEAST_LOADS: usize = 64;

/// Returns the time at which the CPU launched the first kernel, where many copies came before it and took most of that time, and a whole
/// pass of operations follows; `None` elsewhere, and where launches are not known.
pub fn loaded_from(trace: &Trace, index: &StageIndex) -> Option<Ns> {
    let ops = &trace.ops;
    let first = (0..ops.len()).find(|op| ops.kind[*op] != OpKind::Copy)?;
    let copied: Ns = (0..first).map(|op| ops.duration(op)).sum();
    let loads = first >= LEAST_LOADS && 2 * copied > ops.start[first] - ops.start[0];
    let kernels = ops.kind[first..].iter().filter(|kind| **kind == OpKind::Kernel).count();
    let loads = loads && kernels >= LEAST_PASS;
    loads.then(|| trace.calls.start.get(index.call_of_op(first) as usize).copied()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(times: &[(Ns, Ns)]) -> Vec<Unit> {
        times.iter().map(|&(time, gpu)| Unit { time, gpu, ..Unit::default() }).collect()
    }

    #[test]
    fn the_first_instance_is_cold_if_it_takes_longer_for_the_same_work() {
        let found = |times: &[(Ns, Ns)]| cold_instances(&units(times), 0);
        assert_eq!(found(&[(1000, 60), (100, 50), (110, 50)]), 1);
        assert_eq!(found(&[(1000, 50), (800, 50), (100, 50), (110, 50), (90, 50)]), 2);
        // A longer prompt; a slow one in the middle; too few; no repeatable ones; no GPU work.
        assert_eq!(found(&[(1000, 500), (100, 50), (110, 50)]), 0);
        assert_eq!(found(&[(100, 50), (900, 50), (100, 50), (110, 50), (100, 50)]), 0);
        assert_eq!(found(&[(1000, 50), (100, 50)]), 0);
        assert_eq!(found(&[(1000, 50), (100, 50), (900, 50)]), 0);
        assert_eq!(found(&[(1000, 0), (100, 0), (110, 0)]), 0);
        assert_eq!(found(&[]), 0);
        // One warm instance is enough with many steps, or with cold calls.
        assert_eq!(cold_instances(&units(&[(1000, 50), (100, 50)]), 16), 1);
        let mut loading = units(&[(1000, 50), (100, 50)]);
        loading[0].cold = 600;
        assert_eq!(cold_instances(&loading, 0), 1);
    }

    #[test]
    fn steps_are_cold_at_the_beginning_or_by_their_calls() {
        const MS: Ns = 1_000_000;
        let steps = |times: &[Ns], cold: Option<usize>, instances: &[usize], engine: bool| {
            let mut list = units(&times.iter().map(|time| (time * MS, 10 * MS)).collect::<Vec<_>>());
            list.iter_mut().for_each(|unit| unit.expected = 20 * MS);
            if let Some(unit) = cold.and_then(|at| list.get_mut(at)) {
                unit.cold = unit.time - 20 * MS;
            }
            cold_steps(&list, &(0..list.len()).collect::<Vec<_>>(), instances, engine)
        };
        assert_eq!(steps(&[900, 20, 21, 20, 20], None, &[0; 5], false), [0]);
        assert_eq!(steps(&[20, 20, 900, 20, 20], None, &[0; 5], false), Vec::<usize>::new(), "a tail");
        assert_eq!(steps(&[20, 20, 900, 20, 20], Some(2), &[0; 5], false), [2]);
        assert_eq!(steps(&[900, 20, 20, 900, 20, 20], None, &[0, 0, 0, 1, 1, 1], false), Vec::<usize>::new());
        assert_eq!(steps(&[900, 20, 21, 20, 20], None, &[0; 5], true), Vec::<usize>::new(), "a long prompt");
        assert_eq!(steps(&[900, 20, 21, 20, 20], Some(0), &[0; 5], true), [0]);
        // A step of more work than the median is cold where it takes longer than that work explains.
        let mut list = units(&[(770, 190), (230, 190), (70, 60), (70, 60), (70, 60), (70, 60), (70, 60)]);
        for unit in &mut list {
            (unit.time, unit.gpu) = (unit.time * MS, unit.gpu * MS);
            unit.expected = if unit.gpu > 100 * MS { 230 * MS } else { 70 * MS };
        }
        list[0].cold = 370 * MS;
        assert_eq!(cold_steps(&list, &[0, 1, 2, 3, 4, 5, 6], &[0; 7], false), [0]);
    }

    #[test]
    fn a_rare_pause_is_no_part_of_the_others() {
        let steps = |times: &[Ns]| {
            let mut list = units(&times.iter().map(|time| (*time, 10)).collect::<Vec<_>>());
            list.iter_mut().for_each(|unit| unit.expected = 20);
            let (paused, tail) = paused_steps(&list, &(1..list.len()).collect::<Vec<_>>());
            (paused, tail.map(|tail| (tail.slowest, tail.beyond_ns)))
        };
        // The first step is cold and does not count, but it has a number.
        assert_eq!(steps(&[900, 20, 20, 900, 20, 20, 20, 20, 20]), (vec![3], Some((4, 880))));
        assert_eq!(steps(&[20, 20, 900, 20, 20, 20, 20, 900, 20]), (vec![], None), "two of eight");
        assert_eq!(steps(&[20, 20, 900, 20]), (vec![], None), "one of three");
        let mut many = vec![20; 200];
        many[100] = 90;
        assert_eq!(steps(&many), (vec![], None), "too short to matter");
    }
}
