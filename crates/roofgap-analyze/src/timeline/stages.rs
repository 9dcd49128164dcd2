//! The numbers of each stage: time, GPU work, idle time by cause, steps and notes.

use super::idle::{Activity, DataLoading, LaunchGaps, Near};
use super::interval::{CoveredTime, Extent, IntervalSet};
use super::steps::{InstanceTime, StepPeriods, cold_start, sample_deviation, step_summary, with_cpu};
use super::tables::{CopyMeter, Grouped, divide, graph_table, kernel_table};
use crate::attribution::NO_CALL;
use crate::engines::{EngineStep, Scheduled};
use crate::names::Naming;
use crate::result::{
    Estimate, ForeignWork, Idle, LaunchAfter, Note, PhaseCounts, Stage, StageCoverage, Steps,
};
use crate::stages::{Span, StageIndex};
use roofgap_trace::{Ns, OpKind, ThreadId, Trace, range_name};
use rustc_hash::FxHashMap;

/// Busy time of a stage and its gaps by cause.
#[derive(Default)]
struct Sums {
    busy_ns: Ns,
    idle: Idle,
    launch_after: LaunchAfter,
    /// Time in which the devices ran other work, ns.
    foreign_ns: Ns,
    gaps: LaunchGaps,
}

impl Sums {
    /// Returns the idle time for launches that does not follow a wait or a copy, ns.
    fn launch_ns(&self) -> Ns {
        self.idle.launch_ns - self.launch_after.sync_ns - self.launch_after.copy_ns
    }
}

/// The GPU operations of a stage, and the time that they take.
struct Members<'a> {
    ops: &'a [u32],
    /// Number of devices of the trace.
    devices: usize,
    /// Extent of the work of each instance.
    extents: Vec<Extent>,
    /// The same on each device, device by device within an instance.
    device_extents: Vec<Extent>,
    instance_times: Vec<InstanceTime>,
}

impl<'a> Members<'a> {
    fn of(meter: &StageMeter<'a>, stage: usize) -> Self {
        let ops = &meter.trace.ops;
        let instances = &meter.index.spans(stage).instances;
        let devices = meter.trace.devices.len().max(1);
        let mut members = Self {
            ops: meter.members.get(stage).map_or(&[], |members| members),
            devices,
            extents: vec![Extent::EMPTY; instances.len()],
            device_extents: vec![Extent::EMPTY; instances.len() * devices],
            instance_times: instances.iter().map(InstanceTime::of).collect(),
        };
        for op in members.ops.iter().map(|op| *op as usize) {
            let Some(at) = meter.index.instance_of(stage, op) else {
                continue;
            };
            members.instance_times[at].gpu += ops.duration(op);
            members.extents[at].add(ops.start[op], ops.end[op]);
            let on_device = members.device_extents.get_mut(at * devices + ops.device[op].index());
            if let Some(extent) = on_device {
                extent.add(ops.start[op], ops.end[op]);
            }
        }
        members
    }

    /// Iterates over instance, device and extent of the work on each device.
    fn with_work(&self) -> impl Iterator<Item = (usize, usize, Extent)> {
        let all = self.device_extents.iter().enumerate();
        all.filter(|(_, extent)| extent.length().is_some())
            .map(|(at, extent)| (at / self.devices, at % self.devices, *extent))
    }

    /// Iterates over the extents of the work of the instances on one device.
    fn on_device(&self, device: usize) -> impl Iterator<Item = &Extent> {
        let own = self.device_extents.iter().skip(device).step_by(self.devices);
        own.filter(|extent| extent.length().is_some())
    }

    /// Returns the time from the end of each instance on the CPU to the end of its GPU work, ns.
    fn late_ns(&self, instances: &[Span]) -> Ns {
        let with_work = instances.iter().zip(&self.extents).filter(|(_, extent)| extent.length().is_some());
        with_work.map(|(span, extent)| extent.1.saturating_sub(span.end).max(0)).sum()
    }
}

/// Measures the stages of an index.
pub struct StageMeter<'a> {
    pub trace: &'a Trace,
    pub index: &'a StageIndex,
    pub activity: &'a Activity,
    pub copies: &'a CopyMeter<'a>,
    /// GPU operations of each stage.
    pub members: &'a [Vec<u32>],
}

impl StageMeter<'_> {
    /// Measures every stage and its launch gaps, in the order of the index.
    pub fn stages(&self, naming: &mut Naming) -> Vec<(Stage, LaunchGaps)> {
        let loading = DataLoading::of(self.trace);
        (0..self.index.len()).map(|stage| self.stage(stage, naming, &loading)).collect()
    }

    fn stage(&self, stage: usize, naming: &mut Naming, loading: &DataLoading) -> (Stage, LaunchGaps) {
        let trace = self.trace;
        let spans = self.index.spans(stage);
        let instances = &spans.instances;
        let members = Members::of(self, stage);
        let rows = || members.ops.iter().map(|&op| op as usize);
        let kernels = kernel_table(trace, rows(), naming);
        let Sums { busy_ns, idle, launch_after, foreign_ns, gaps } = self.busy_and_idle(&members, loading);
        let engine_steps = self.index.engine_steps(stage);
        let periods = StepPeriods::measure(trace, self.index, self.activity, stage);
        let elapsed = self.elapsed(stage, &members, &periods, foreign_ns);
        let tokens = phase_counts(engine_steps, |phase| phase.tokens);
        let all_tokens = tokens.and_then(|tokens| Some(tokens.context? + tokens.generation?));
        let tokens_per_s = all_tokens
            .zip(elapsed.period_ns.filter(|time| *time > 0))
            .map(|(tokens, time)| tokens as f64 * 1e9 / time as f64);
        let calls = self.index.contexts().of_call.iter();
        let launches = calls.filter(|context| self.index.instance_of_context(stage, **context).is_some());
        let copies = self.copies.table(rows());
        let with_work = |list: &[Extent]| list.iter().filter(|extent| extent.length().is_some()).count();
        let gpu = !members.ops.is_empty();
        let measured = !trace.ops.is_empty();
        let stage = Stage {
            name: self.index.name(stage).to_owned(),
            kind: self.index.kind(stage),
            ranges: self.range_names(instances),
            instances: instances.len() as u64,
            wall_ns: instances.iter().map(Span::length).sum(),
            projected_ns: gpu.then(|| members.extents.iter().filter_map(|extent| extent.length()).sum()),
            kernel_ns: measured.then(|| kernels.iter().map(|k| k.total_ns).sum()),
            busy_ns: measured.then_some(busy_ns),
            kernel_count: kernels.iter().map(|k| k.calls).sum(),
            gpu_op_count: members.ops.len() as u64,
            launch_count: launches.count() as u64,
            device_count: (0..members.devices).filter(|&at| members.on_device(at).next().is_some()).count()
                as u64,
            devices_per_instance: with_work(&members.device_extents) as f64
                / with_work(&members.extents).max(1) as f64,
            memcpy_ns: measured.then(|| copies.iter().map(|row| row.total_ns).sum()),
            queued_ns: self.queued_ns(instances, &members),
            late_ns: members.late_ns(instances),
            idle: gpu.then_some(idle),
            launch_after,
            data_loading_ns: gaps.data_loading_ns,
            steps: self.steps(stage, &spans.steps, &periods),
            kernels,
            notes: self.notes(&spans.notes),
            requests: phase_counts(engine_steps, |phase| phase.requests),
            tokens,
            tokens_per_s,
            copies,
            graphs: graph_table(trace, rows()),
            coverage: self.coverage(stage, members.ops),
            // Steps of an engine differ in size, and its preparation has ranges of its own.
            cold_start: cold_start(&members.instance_times).filter(|_| engine_steps.is_empty()),
            ..elapsed
        };
        (stage, gaps)
    }

    /// Measures the time of instances and of the work of others in it. `foreign_ns` is the time of such work in the gaps of the stage.
    fn elapsed(&self, stage: usize, members: &Members<'_>, periods: &StepPeriods, foreign_ns: Ns) -> Stage {
        let instances = &self.index.spans(stage).instances;
        let steps = &periods.each;
        let in_steps = !self.index.engine_steps(stage).is_empty() && !members.ops.is_empty();
        let (each, times): (Vec<Ns>, Vec<(Ns, Ns)>) = match in_steps {
            true => (
                steps.iter().map(|step| step.time_ns).collect(),
                steps.iter().filter_map(|step| step.span).collect(),
            ),
            false => {
                let both = members.extents.iter().zip(instances);
                let times = both.map(|(extent, span)| (extent.0, extent.1.max(span.end)));
                (instances.iter().map(Span::length).collect(), times.collect())
            }
        };
        let total: Ns = each.iter().sum();
        let after_ns = if in_steps { 0 } else { self.other_work_after(stage, members) };
        let after_steps = steps.iter().filter(|_| in_steps).map(|step| step.busy_after_ns);
        let foreign_ns = foreign_ns + after_ns + after_steps.sum::<Ns>();
        Stage {
            period_ns: in_steps.then_some(total),
            between_ns: steps.iter().filter(|_| in_steps).map(|step| step.idle_after_ns).sum(),
            after_ns,
            foreign: (foreign_ns > 0).then(|| self.foreign(stage, times, foreign_ns)),
            mean_ns: (!each.is_empty()).then(|| divide(total, each.len() as i64)),
            std_ns: sample_deviation(&each),
            ..Stage::default()
        }
    }

    /// Returns the time before the first operation of each instance in which the GPU ran earlier work, ns.
    fn queued_ns(&self, instances: &[Span], members: &Members<'_>) -> Ns {
        let queued = |(at, device, extent): (usize, usize, Extent)| {
            Some(self.activity.busy_in(device, instances.get(at)?.start, extent.0))
        };
        members.with_work().filter_map(queued).sum()
    }

    /// Returns the time from the last operation to the end of each instance in which the GPU ran work of others, ns.
    fn other_work_after(&self, stage: usize, members: &Members<'_>) -> Ns {
        let instances = &self.index.spans(stage).instances;
        let rest = |(at, device, extent): (usize, usize, Extent)| {
            let end = instances.get(at)?.end;
            (extent.1 < end).then_some((device, extent.1, end))
        };
        let rests: Vec<(usize, Ns, Ns)> = members.with_work().filter_map(rest).collect();
        let busy = |(device, from, to): &(usize, Ns, Ns)| self.activity.busy_in(*device, *from, *to);
        let all: Ns = rests.iter().map(busy).sum();
        if all == 0 {
            return 0;
        }
        // Other instances of the stage may run at the same time.
        let mut times = vec![Vec::new(); members.devices];
        for (device, from, to) in &rests {
            times[*device].push((*from, *to));
        }
        let times: Vec<IntervalSet> = times.into_iter().map(IntervalSet::of).collect();
        let own = CoveredTime::beside(self.trace, &times, |op| self.index.holds(stage, op));
        let own = |(device, from, to): &(usize, Ns, Ns)| {
            own.get(*device).map_or(0, |covered| covered.overlap(*from, *to))
        };
        all - rests.iter().map(own).sum::<Ns>()
    }

    /// Estimates the numbers of a stage that was recorded in part.
    fn coverage(&self, stage: usize, members: &[u32]) -> Option<StageCoverage> {
        let all = self.index.all_of(stage)?;
        let ops = &self.trace.ops;
        let mut each = vec![0; self.index.spans(stage).instances.len()];
        for op in members.iter().map(|&op| op as usize) {
            let at = self.index.instance_of(stage, op);
            if let (OpKind::Kernel, Some(sum)) = (ops.kind[op], at.and_then(|at| each.get_mut(at))) {
                *sum += ops.duration(op);
            }
        }
        let instances = &self.index.spans(stage).instances;
        let window = |span: &Span| {
            let range = self.trace.ranges.rows.get(span.range? as usize)?;
            self.trace.window_of(range.process, span.start, span.end)
        };
        let windows: Vec<usize> = instances.iter().map(|span| window(span).unwrap_or_default()).collect();
        Some(StageCoverage {
            recorded: each.len() as u64,
            all: all.count,
            wall_ns: all.wall_ns,
            kernel_ns: Estimate::after(&each, &windows, all.leading, all.count).filter(|_| !ops.is_empty()),
        })
    }

    /// Describes the GPU work of other ranges and threads in the times of a stage.
    fn foreign(&self, stage: usize, times: Vec<(Ns, Ns)>, busy_ns: Ns) -> ForeignWork {
        let (ops, calls) = (&self.trace.ops, &self.trace.calls);
        let inside = IntervalSet::of(times.into_iter().filter(|time| time.0 <= time.1).collect());
        let mut by_thread: FxHashMap<Option<ThreadId>, u64> = FxHashMap::default();
        let mut near = 0;
        for op in (0..ops.len()).filter(|&op| ops.kind[op] == OpKind::Kernel) {
            if !self.index.holds(stage, op) && inside.encloses_near(ops.start[op], ops.end[op], &mut near) {
                let call = self.index.launches().call_of_op[op];
                let thread = (call != NO_CALL).then(|| calls.thread[call as usize]);
                *by_thread.entry(thread).or_default() += 1;
            }
        }
        let most = by_thread.iter().max_by_key(|(thread, count)| (**count, **thread));
        let (thread, count) = most.map_or((None, 0), |(thread, count)| (*thread, *count));
        let name = thread.and_then(|id| self.trace.threads.get(id.index())).map(|thread| {
            let number = thread.tid.to_string();
            match self.trace.names.get(thread.name) {
                "" => number,
                // Some tools include the number in the name.
                name if name.contains(&number) => name.trim_start_matches("thread ").to_owned(),
                name => format!("{number} ({name})"),
            }
        });
        ForeignWork {
            busy_ns,
            kernel_count: by_thread.values().sum(),
            thread: name,
            thread_kernel_count: count,
        }
    }

    /// Adds up the busy time of a stage and its gaps by cause. Operations are in the order of their start.
    fn busy_and_idle(&self, members: &Members<'_>, loading: &DataLoading) -> Sums {
        let ops = &self.trace.ops;
        let mut sums = Sums::default();
        struct Sweep {
            inside: IntervalSet,
            covered: Option<Ns>,
            near_inside: usize,
            near: Near,
        }
        let sweep = |device: usize| Sweep {
            // Time between two instances does not belong to the stage.
            inside: IntervalSet::of(members.on_device(device).map(|extent| (extent.0, extent.1)).collect()),
            covered: None,
            near_inside: 0,
            near: Near::default(),
        };
        let mut sweeps: Vec<Sweep> = (0..members.devices).map(sweep).collect();
        for &op in members.ops {
            let op = op as usize;
            let (start, end, device) = (ops.start[op], ops.end[op], ops.device[op]);
            let Some(sweep) = sweeps.get_mut(device.index()) else {
                continue;
            };
            let until = sweep.covered.unwrap_or(start);
            if start > until && sweep.inside.encloses_near(until, start, &mut sweep.near_inside) {
                let call = self.index.launches().call_of_op[op];
                let before = sums.launch_ns();
                sums.foreign_ns += self.activity.split(
                    self.trace,
                    device,
                    (until, start),
                    call,
                    &mut sweep.near,
                    (&mut sums.idle, &mut sums.launch_after),
                );
                let launch_ns = sums.launch_ns() - before;
                if launch_ns > 0 {
                    let loading_ns = loading.during(self.trace, (until, start), call);
                    sums.gaps.add(op, launch_ns, loading_ns);
                }
            }
            sums.busy_ns += (end - start.max(until)).max(0);
            sweep.covered = Some(until.max(end));
        }
        sums
    }

    fn steps(&self, stage: usize, spans: &[Span], periods: &StepPeriods) -> Option<Steps> {
        let on_cpu: Vec<Ns> = spans.iter().map(Span::length).collect();
        let each: Vec<Ns> = periods.each.iter().map(|step| step.time_ns).collect();
        let step_of_call = self.index.step_of_call(self.trace, stage, spans);
        let launches = step_of_call.iter().filter(|at| **at != u32::MAX);
        let known = !self.trace.ops.is_empty() && !each.is_empty();
        let per_step = known.then(|| launches.count() as f64 / each.len() as f64);
        let steps = step_summary(each, per_step)?;
        Some(if periods.on_gpu { with_cpu(steps, on_cpu) } else { steps })
    }

    fn notes(&self, spans: &[Span]) -> Vec<Note> {
        let ops = &self.trace.ops;
        let note = self.index.span_of_context(spans);
        let mut work = vec![(0u64, 0i64); spans.len()];
        if !spans.is_empty() {
            for op in (0..ops.len()).filter(|&op| ops.kind[op] == OpKind::Kernel) {
                let at = note.get(self.index.context_of_op(op) as usize);
                if let Some(sum) = at.and_then(|at| work.get_mut(*at as usize)) {
                    *sum = (sum.0 + 1, sum.1 + ops.duration(op));
                }
            }
        }
        let mut notes: Grouped<&str, Note> = Grouped::default();
        for (span, &(count, ns)) in spans.iter().zip(&work) {
            let Some(range) = span.range.and_then(|row| self.trace.ranges.rows.get(row as usize)) else {
                continue;
            };
            let name = self.trace.names.get(range.name);
            let note = notes.entry(name, || Note { name: name.to_owned(), ..Note::default() });
            note.instances += 1;
            note.wall_ns += span.length();
            note.kernel_count += count;
            if !ops.is_empty() {
                *note.kernel_ns.get_or_insert(0) += ns;
            }
        }
        notes.items
    }

    /// Returns the distinct names of the ranges that mark the instances of a stage.
    fn range_names(&self, spans: &[Span]) -> Vec<String> {
        let names = &self.trace.names;
        let rows = spans.iter().filter_map(|span| span.range);
        let mut found: Vec<String> = rows
            .filter_map(|row| self.trace.ranges.rows.get(row as usize))
            .map(|range| range_name(names.get(range.domain), names.get(range.name)))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Adds up a count of each phase over engine steps; `None` without any. A phase is unknown if one of its steps does not give it.
fn phase_counts(steps: &[EngineStep], count: fn(&Scheduled) -> Option<u64>) -> Option<PhaseCounts> {
    (!steps.is_empty()).then(|| PhaseCounts {
        context: steps.iter().map(|step| count(&step.context)).sum(),
        generation: steps.iter().map(|step| count(&step.generation)).sum(),
    })
}
