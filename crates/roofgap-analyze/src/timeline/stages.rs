//! The numbers of each stage: time, GPU work, idle time by cause, steps and notes.

use super::idle::{Activity, GapEnd, HostGap, HostWork, IdleSums, LAUNCH_LATENCY_NS, LaunchGaps, Near};
use super::interval::{CoveredTime, Extent, IntervalSet};
use super::steps::{StepPeriods, expected, steady, step_summary, time_deviation, with_cpu};
use super::{CopyMeter, Grouped, copy_kind, divide, graph_table, kernel_table};
use crate::attribution::NO_CALL;
use crate::engines::{EngineStep, Scheduled};
use crate::names::Naming;
use crate::result::{
    BeforeFirst, ColdStart, CopyKind, Estimate, ForeignWork, Note, PhaseCounts, Stage, StageCoverage,
    SteadyUnit, Steps,
};
use crate::stages::{Span, StageIndex};
use roofgap_base::stats::median;
use roofgap_trace::{CallClass, DeviceId, Ns, OpKind, ThreadId, Trace, range_name};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Launches of a turn, on the mean of all, from which on threads launch by turns, as those of the forward and the backward pass do.
const LEAST_TURN: usize = 16;

/// Busy time of a stage and its gaps by cause.
#[derive(Default)]
struct Sums {
    busy_ns: Ns,
    idle: IdleSums,
    /// Time in which the devices ran other work, ns.
    foreign_ns: Ns,
    /// Time of cold steps between the others, ns.
    cold_ns: Ns,
}

/// Tells whether an operation copies between host and device.
fn is_host_copy(trace: &Trace, op: usize) -> bool {
    let kind = || copy_kind(trace.names.get(trace.ops.name[op]));
    trace.ops.kind[op] == OpKind::Copy && matches!(kind(), CopyKind::HostToDevice | CopyKind::DeviceToHost)
}

/// The work of an instance on one device.
struct InstanceWork {
    span: Span,
    device: usize,
    extent: Extent,
    /// Its first operation.
    first: usize,
}

/// The GPU operations of a stage, and the time that they take.
struct Members<'a> {
    ops: Cow<'a, [u32]>,
    /// The same with the operations of cold steps, which are in no other number.
    with_cold: &'a [u32],
    /// Number of devices of the trace.
    devices: usize,
    /// Extent of the work of each instance.
    extents: Vec<Extent>,
    /// The same on each device, device by device within an instance.
    device_extents: Vec<Extent>,
    /// First operation of each instance on each device.
    first_ops: Vec<u32>,
}

impl<'a> Members<'a> {
    fn of(meter: &StageMeter<'a>, stage: usize) -> Self {
        let ops = &meter.trace.ops;
        let instances = &meter.index.spans(stage).instances;
        let devices = meter.trace.devices.len().max(1);
        let with_cold = meter.members.get(stage).map_or(&[][..], Vec::as_slice);
        let held = meter.index.held(stage, with_cold);
        let mut members = Self {
            ops: Cow::Borrowed(&[]),
            with_cold,
            devices,
            extents: vec![Extent::EMPTY; instances.len()],
            device_extents: vec![Extent::EMPTY; instances.len() * devices],
            first_ops: vec![u32::MAX; instances.len() * devices],
        };
        for op in held.iter().map(|op| *op as usize) {
            let Some(at) = meter.index.instance_of(stage, op) else {
                continue;
            };
            members.extents[at].add(ops.start[op], ops.end[op]);
            let slot = at * devices + ops.device[op].index();
            if let (Some(extent), Some(first)) =
                (members.device_extents.get_mut(slot), members.first_ops.get_mut(slot))
            {
                extent.add(ops.start[op], ops.end[op]);
                *first = (*first).min(op as u32);
            }
        }
        members.ops = held;
        members
    }

    /// Iterates over the work of the instances on each device.
    fn with_work(&self, instances: &[Span]) -> impl Iterator<Item = InstanceWork> {
        let slots = self.device_extents.iter().zip(&self.first_ops).enumerate();
        slots.filter(|(_, (extent, _))| extent.length().is_some()).filter_map(|(at, (extent, first))| {
            let span = *instances.get(at / self.devices)?;
            Some(InstanceWork { span, device: at % self.devices, extent: *extent, first: *first as usize })
        })
    }

    /// Iterates over all operations in the order of their start, with whether they are of a cold step.
    fn in_order(&self) -> impl Iterator<Item = (u32, bool)> {
        let mut warm = self.ops.iter().peekable();
        self.with_cold.iter().map(move |op| (*op, warm.next_if_eq(&op).is_none()))
    }

    /// Iterates over the extents of the work of the instances on one device.
    fn on_device(&self, device: usize) -> impl Iterator<Item = &Extent> {
        let extents = self.device_extents.iter().skip(device).step_by(self.devices);
        extents.filter(|extent| extent.length().is_some())
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
    pub host: &'a HostWork,
    pub copies: &'a CopyMeter<'a>,
    /// GPU operations of each stage, and of each without its cold part.
    pub members: &'a [Vec<u32>],
    /// Steps of each stage, where they were measured before.
    pub periods: &'a [StepPeriods],
}

impl StageMeter<'_> {
    /// Measures every stage, and the launch gaps of its warm part, in the order of the index.
    pub fn stages(&self, naming: &mut Naming) -> Vec<(Stage, LaunchGaps)> {
        let each = (0..self.index.len()).map(|at| {
            let (stage, gaps) = self.stage(at, naming);
            match self.index.warm(at) {
                warm if warm == at => (stage, gaps),
                warm => {
                    let (mut warm, warm_gaps) = self.stage(warm, naming);
                    let most_ns = warm.wall_ns.saturating_mul(warm.device_count.max(1) as Ns);
                    // Without time of its own the rest shows nothing.
                    if warm.wall_ns <= 0 || warm.busy_ns.is_some_and(|busy| busy > most_ns) {
                        let cold_start = stage.cold_start.map(|cold| ColdStart { left_out: false, ..cold });
                        return (Stage { cold_start, ..stage }, gaps);
                    }
                    warm.after_startup = stage.startup_ns() > 0;
                    if let (Some(steady), Some(tail)) = (&mut warm.steady, self.index.tail(at)) {
                        steady.count += tail.units;
                        steady.tail = Some(tail);
                    }
                    (Stage { steady: warm.steady.clone(), warm: Some(Box::new(warm)), ..stage }, warm_gaps)
                }
            }
        });
        each.collect()
    }

    /// Measures the steps of a stage.
    pub fn periods(&self, stage: usize) -> Cow<'_, StepPeriods> {
        let measure = || StepPeriods::measure(self.trace, self.index, self.activity, stage);
        self.periods.get(stage).map_or_else(|| Cow::Owned(measure()), Cow::Borrowed)
    }

    fn stage(&self, stage: usize, naming: &mut Naming) -> (Stage, LaunchGaps) {
        let trace = self.trace;
        let spans = self.index.spans(stage);
        let instances = &spans.instances;
        let members = Members::of(self, stage);
        let rows = || members.ops.iter().map(|&op| op as usize);
        let kernels = kernel_table(trace, rows(), naming);
        let Sums { busy_ns, idle, foreign_ns, cold_ns } = self.busy_and_idle(stage, &members, |_, _, _| {});
        let engine_steps = self.index.engine_steps(stage);
        let periods = self.periods(stage);
        let elapsed = self.elapsed(stage, &members, &periods, foreign_ns);
        let tokens = phase_counts(engine_steps, |phase| phase.tokens);
        let all_tokens = tokens.and_then(|tokens| Some(tokens.context? + tokens.generation?));
        let tokens_per_s = all_tokens
            .zip(elapsed.period_ns.filter(|time| *time > 0))
            .map(|(tokens, time)| tokens as f64 * 1e9 / time as f64);
        let copies = self.copies.table(rows());
        let (before, queued_ns) = self.before(instances, &members);
        let with_work = |list: &[Extent]| list.iter().filter(|extent| extent.length().is_some()).count();
        let gpu = !members.ops.is_empty();
        let measured = !trace.ops.is_empty();
        let mut stage = Stage {
            name: self.index.name(stage).to_owned(),
            title: self.index.title(stage).map(str::to_owned),
            kind: self.index.kind(stage),
            ranges: self.range_names(instances),
            instances: instances.len() as u64,
            wall_ns: instances.iter().map(Span::length).sum(),
            projected_ns: gpu.then(|| members.extents.iter().filter_map(|extent| extent.length()).sum()),
            kernel_ns: measured.then(|| kernels.iter().map(|k| k.total_ns).sum()),
            busy_ns: measured.then_some(busy_ns),
            kernel_count: kernels.iter().map(|k| k.calls).sum(),
            gpu_op_count: members.ops.len() as u64,
            launch_count: self.index.launches_in(stage),
            device_count: (0..members.devices).filter(|&at| members.on_device(at).next().is_some()).count()
                as u64,
            devices_per_instance: with_work(&members.device_extents) as f64
                / with_work(&members.extents).max(1) as f64,
            memcpy_ns: measured.then(|| copies.iter().map(|row| row.total_ns).sum()),
            queued_ns,
            late_ns: members.late_ns(instances),
            before,
            idle: gpu.then_some(idle.idle),
            idle_detail: idle.detail,
            launch_after: idle.launch_after,
            data_loading_ns: idle.gaps.data_loading_ns,
            steps: self.steps(stage, &spans.steps, &periods),
            kernels,
            notes: self.notes(&spans.notes),
            requests: phase_counts(engine_steps, |phase| phase.requests),
            tokens,
            tokens_per_s,
            copies,
            graphs: graph_table(trace, rows()),
            coverage: self.coverage(stage, &members.ops),
            cold_start: self.index.cold(stage).cloned(),
            beside_ranges: self.index.beside_ranges(trace, stage),
            launching_ns: self.launching_ns(instances, &members),
            ..elapsed
        };
        // Cold steps between the others are no part of the stage.
        let cold_ns = stage.each_device(cold_ns);
        stage.wall_ns -= cold_ns.min(stage.wall_ns);
        stage.projected_ns = stage.projected_ns.map(|ns| ns - cold_ns.min(ns));
        let instances = stage.instances.max(1) as i64;
        stage.mean_ns = stage.mean_ns.map(|mean| mean - (cold_ns / instances).min(mean));
        (stage, idle.gaps)
    }

    /// Returns the time in which the thread that launches works, or threads that do so by turns, up to the last launch of each instance,
    /// ns: without its waits, and without what its launch calls take longer than a launch, as with a full queue.
    fn launching_ns(&self, instances: &[Span], members: &Members<'_>) -> Ns {
        let calls = &self.trace.calls;
        let mut rows: Vec<u32> = members.ops.iter().map(|op| self.index.call_of_op(*op as usize)).collect();
        rows.sort_unstable();
        rows.dedup();
        if rows.last().is_none_or(|row| *row as usize >= calls.start.len()) {
            return 0;
        }
        let thread = |row: u32| calls.thread[row as usize];
        let turns: Vec<&[u32]> = rows.chunk_by(|a, b| thread(*a) == thread(*b)).collect();
        if turns.len() > 1 && turns.len() * LEAST_TURN > rows.len() {
            return 0;
        }
        let works = |span: &Span| {
            let before =
                |turn: &&[u32]| turn.last().is_some_and(|row| calls.start[*row as usize] < span.start);
            let (mut from, mut sum) = (span.start, 0);
            for turn in &turns[turns.partition_point(before)..] {
                let inside = turn.partition_point(|row| calls.start[*row as usize] < span.end);
                let Some(row) = inside.checked_sub(1).map(|at| turn[at] as usize) else { break };
                let until = calls.end[row].min(span.end).max(from);
                sum += self.activity.working_ns(calls.thread[row], from, until);
                from = until;
            }
            sum
        };
        let launches = rows.iter().map(|row| *row as usize);
        let launches = launches.filter(|row| !matches!(calls.class[*row], CallClass::Copy | CallClass::Sync));
        let blocked = launches.map(|row| (calls.end[row] - calls.start[row] - LAUNCH_LATENCY_NS).max(0));
        (instances.iter().map(works).sum::<Ns>() - blocked.sum::<Ns>()).max(0)
    }

    /// Measures the idle time before the first operation of each instance. Returns the time too in which the GPU ran earlier work, ns: what
    /// was recorded, and where nothing was, all of the time after the launch.
    fn before(&self, instances: &[Span], members: &Members<'_>) -> (BeforeFirst, Ns) {
        let (mut before, mut queued_ns) = (BeforeFirst::default(), 0);
        for InstanceWork { span, device, extent, first } in members.with_work(instances) {
            let gap = (span.start, self.arrived(first, (span.start, extent.0)));
            let after_launch_ns = self.after_launch_ns(device, gap, extent.0);
            let busy_ns = self.activity.busy_in(device, gap.0, gap.1);
            let idle_ns = (gap.1 - gap.0 - busy_ns).max(0);
            let call = self.index.call_of_op(first);
            let (loading, cold) = self.host.parts(self.trace, gap, call, idle_ns);
            queued_ns += busy_ns + extent.0 - gap.1 - after_launch_ns;
            before.after_launch_ns += after_launch_ns;
            before.idle_ns += idle_ns;
            before.data_loading_ns += loading;
            before.cold_ns += cold;
        }
        (before, queued_ns)
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
                let pairs = members.extents.iter().zip(instances);
                let times = pairs.map(|(extent, span)| (extent.0, extent.1.max(span.end)));
                (instances.iter().map(Span::length).collect(), times.collect())
            }
        };
        let total: Ns = each.iter().sum();
        let steady = if steps.is_empty() {
            steady(SteadyUnit::Instance, &each, &expected(&each, &vec![0.0; each.len()]))
        } else {
            let complete = periods.complete();
            let times: Vec<Ns> = steps.iter().take(complete).map(|step| step.time_ns).collect();
            let expected = periods.expected();
            steady(SteadyUnit::Step, &times, expected.get(..complete).unwrap_or(&expected))
        };
        let after_ns = if in_steps { 0 } else { self.other_work_after(stage, members) };
        let after_steps = steps.iter().filter(|_| in_steps).map(|step| step.busy_after_ns);
        let foreign_ns = foreign_ns + after_ns + after_steps.sum::<Ns>();
        Stage {
            period_ns: in_steps.then_some(total),
            between_ns: steps.iter().filter(|_| in_steps).map(|step| step.idle_after_ns).sum(),
            after_ns,
            foreign: (foreign_ns > 0).then(|| self.foreign(stage, times, foreign_ns)),
            mean_ns: (!each.is_empty()).then(|| divide(total, each.len() as i64)),
            std_ns: time_deviation(&each),
            steady,
            ..Stage::default()
        }
    }

    /// Returns the time from the arrival of a launch to the start of its operation in which a device ran nothing, ns. Before the first
    /// operation that was recorded it may have run anything.
    fn after_launch_ns(&self, device: usize, (begin, arrived): (Ns, Ns), end: Ns) -> Ns {
        match self.activity.idle_since(device, begin) {
            Ns::MIN => 0,
            _ => end - arrived - self.activity.busy_in(device, arrived, end),
        }
    }

    /// Returns the moment of a span, which ends with the start of an operation, at which its launch had reached the GPU: the beginning
    /// where it was launched before the recording, and the end where no launches are known.
    fn arrived(&self, op: usize, (begin, end): (Ns, Ns)) -> Ns {
        let call = self.index.call_of_op(op);
        let is_kernel = self.trace.ops.kind.get(op) == Some(&OpKind::Kernel);
        match self.trace.calls.end.get(call as usize) {
            Some(call) => call.saturating_add(LAUNCH_LATENCY_NS).clamp(begin.min(end), end),
            None if is_kernel && self.launches_are_known() => begin.min(end),
            None => end,
        }
    }

    /// Tells whether most operations have their launch.
    fn launches_are_known(&self) -> bool {
        let calls = &self.index.launches().call_of_op;
        2 * calls.iter().filter(|call| **call != NO_CALL).count() > calls.len()
    }

    /// Returns the time from the last operation to the end of each instance in which the GPU ran work of others, ns.
    fn other_work_after(&self, stage: usize, members: &Members<'_>) -> Ns {
        let instances = &self.index.spans(stage).instances;
        let tails = members.with_work(instances).filter(|work| work.extent.1 < work.span.end);
        let tails = tails.map(|work| (work.device, work.extent.1, work.span.end));
        let tails: Vec<(usize, Ns, Ns)> = tails.collect();
        let busy = |(device, from, to): &(usize, Ns, Ns)| self.activity.busy_in(*device, *from, *to);
        let all: Ns = tails.iter().map(busy).sum();
        if all == 0 {
            return 0;
        }
        // Other instances of the stage may run at the same time.
        let mut times = vec![Vec::new(); members.devices];
        for (device, from, to) in &tails {
            times[*device].push((*from, *to));
        }
        let times: Vec<IntervalSet> = times.into_iter().map(IntervalSet::of).collect();
        let covered = CoveredTime::beside(self.trace, &times, |op| self.index.holds(stage, op));
        let in_stage = |(device, from, to): &(usize, Ns, Ns)| {
            covered.get(*device).map_or(0, |set| set.overlap(*from, *to))
        };
        all - tails.iter().map(in_stage).sum::<Ns>()
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
        let window =
            |span: &Span| self.trace.window_of(span.range_in(self.trace)?.process, span.start, span.end);
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
        for &(from, to) in inside.intervals() {
            let first = ops.start.partition_point(|start| *start < from);
            let began = (first..ops.len()).take_while(|op| ops.start[*op] <= to);
            let enclosed = began.filter(|op| ops.kind[*op] == OpKind::Kernel && ops.end[*op] <= to);
            for op in enclosed.filter(|op| !self.index.holds(stage, *op)) {
                let call = self.index.call_of_op(op);
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

    /// Returns the first operations of the steps that have one in the stage, in order, each with the start of its step on the CPU.
    fn step_starts(&self, stage: usize, members: &Members<'_>) -> Vec<(u32, Ns)> {
        let steps = &self.index.spans(stage).steps;
        let mut starts = Vec::new();
        if steps.is_empty() {
            return starts;
        }
        let step_of_call = self.index.step_of_call(self.trace, stage, steps);
        let mut seen = vec![false; steps.len()];
        for op in members.ops.iter() {
            let step =
                step_of_call.get(self.index.call_of_op(*op as usize) as usize).map(|step| *step as usize);
            if let Some((span, seen)) = step.and_then(|step| Some((steps.get(step)?, seen.get_mut(step)?)))
                && !std::mem::replace(seen, true)
            {
                starts.push((*op, span.start));
            }
        }
        starts
    }

    /// Lists the idle time of a stage for which launching threads are responsible, as [`HostIdle`](crate::result::HostIdle) counts it.
    pub fn host_gaps(&self, stage: usize) -> Vec<HostGap> {
        let (trace, activity) = (self.trace, self.activity);
        let members = Members::of(self, stage);
        let mut list = Vec::new();
        self.busy_and_idle(stage, &members, |device, (start, end), call| match call {
            Some(call) => activity.host_gaps(trace, device.index(), (start, end), (call, false), &mut list),
            None => list.push(HostGap { thread: None, start, end, waits: false }),
        });
        if self.index.engine_steps(stage).is_empty() {
            let works = members.with_work(&self.index.spans(stage).instances);
            for InstanceWork { span, device, extent, first } in
                works.filter(|work| work.span.start < work.extent.0)
            {
                let arrived = self.arrived(first, (span.start, extent.0));
                let call = self.index.call_of_op(first);
                activity.host_gaps(trace, device, (span.start, arrived), (call, true), &mut list);
            }
        } else if !members.ops.is_empty() {
            for step in &self.periods(stage).each {
                let after_ns = step.idle_after_ns + step.busy_after_ns;
                if let Some((_, end)) = step.span.filter(|_| after_ns > 0) {
                    // The next step begins with an operation that starts then.
                    let first = trace.ops.start.partition_point(|start| *start < end);
                    let next = (first..trace.ops.len()).take_while(|op| trace.ops.start[*op] == end);
                    let next = next.into_iter().find(|op| trace.ops.device[*op].index() == step.device);
                    let call = next.map_or(NO_CALL, |op| self.index.call_of_op(op));
                    activity.host_gaps(trace, step.device, (end - after_ns, end), (call, true), &mut list);
                }
            }
        }
        list
    }

    /// Adds up the busy time of a stage and its gaps by cause, and passes the device of each gap, its time and the call that ended it; no
    /// call with time in which the CPU works until it touches managed memory. Operations are in the order of their start.
    fn busy_and_idle(
        &self,
        stage: usize,
        members: &Members<'_>,
        mut each_gap: impl FnMut(DeviceId, (Ns, Ns), Option<u32>),
    ) -> Sums {
        let ops = &self.trace.ops;
        let mut sums = Sums::default();
        struct Sweep {
            inside: IntervalSet,
            covered: Option<Ns>,
            /// The last operation is that of a cold step.
            cold: bool,
            /// The last operation is a copy between host and device.
            copied: bool,
            near_inside: usize,
            near: Near,
        }
        let sweep = |device: usize| Sweep {
            // Time between two instances does not belong to the stage.
            inside: IntervalSet::of(members.on_device(device).map(|extent| (extent.0, extent.1)).collect()),
            covered: None,
            cold: false,
            copied: false,
            near_inside: 0,
            near: Near::default(),
        };
        let mut sweeps: Vec<Sweep> = (0..members.devices).map(sweep).collect();
        let mut step_starts = self.step_starts(stage, members).into_iter().peekable();
        for (row, is_cold) in members.in_order() {
            let op = row as usize;
            let step_start = step_starts.next_if(|(first, _)| *first == row).map(|(_, start)| start);
            let (start, end, device) = (ops.start[op], ops.end[op], ops.device[op]);
            let Some(sweep) = sweeps.get_mut(device.index()) else {
                continue;
            };
            let until = sweep.covered.unwrap_or(start);
            let inside = sweep.inside.encloses_near(until.min(start), start, &mut sweep.near_inside);
            let copies = is_host_copy(self.trace, op);
            let copied = std::mem::replace(&mut sweep.copied, copies);
            if is_cold {
                // A cold step before all others is outside.
                if inside && sweep.covered.is_some() {
                    sums.cold_ns += (end - until).max(0);
                    (sweep.covered, sweep.cold) = (Some(until.max(end)), true);
                }
                continue;
            }
            if start > until && inside && sweep.cold {
                sums.cold_ns += start - until;
            } else if start > until && inside && self.follows_earlier_work(op, until) {
                sums.foreign_ns += start - until;
            } else if start > until && inside {
                let call = self.index.call_of_op(op);
                let (gap, before) = ((until, start), sums.idle);
                each_gap(device, gap, Some(call));
                sums.foreign_ns +=
                    self.activity.split(self.trace, device, gap, call, &mut sweep.near, &mut sums.idle);
                let end = GapEnd { op, call, between_copies: copied && copies, step_start };
                self.host.add(self.trace, gap, end, &before, &mut sums.idle);
                if call == NO_CALL {
                    let gap_ns = sums.idle.idle.other_ns - before.idle.other_ns;
                    let away_ns = sums.idle.divide_paging(self.trace, op, gap_ns);
                    each_gap(device, (until, until + away_ns), None);
                }
            }
            sums.busy_ns += (end - start.max(until)).max(0);
            (sweep.covered, sweep.cold) = (Some(until.max(end)), false);
        }
        sums
    }

    /// Tells whether the device may have worked on what was launched before the recording from a moment until an operation: that was
    /// launched before anything recorded ran, and nothing recorded ran on its stream before that moment.
    fn follows_earlier_work(&self, op: usize, until: Ns) -> bool {
        let (ops, calls, call) = (&self.trace.ops, &self.trace.calls, self.index.call_of_op(op) as usize);
        let before = || (0..op).filter(|other| ops.device[*other] == ops.device[op]);
        let begun = |start: Ns| before().next().is_none_or(|first| ops.start[first] <= start);
        let launched = calls.start.get(call).zip(calls.end.get(call));
        launched.is_some_and(|(start, end)| *end <= until && !begun(*start))
            && !before().any(|other| ops.stream[other] == ops.stream[op] && ops.start[other] < until)
    }

    fn steps(&self, stage: usize, spans: &[Span], periods: &StepPeriods) -> Option<Steps> {
        let on_cpu: Vec<Ns> = spans.iter().map(Span::length).collect();
        let each: Vec<Ns> = periods.each.iter().map(|step| step.time_ns).collect();
        let known = !self.trace.ops.is_empty() && !each.is_empty();
        let per_step = known.then(|| {
            let step_of_call = self.index.step_of_call(self.trace, stage, spans);
            step_of_call.iter().filter(|at| **at != u32::MAX).count() as f64 / each.len() as f64
        });
        let mut complete: Vec<Ns> = each.iter().take(periods.complete()).copied().collect();
        let steps = Steps { p50_ns: median(&mut complete)?, ..step_summary(each, per_step)? };
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
            let Some(range) = span.range_in(self.trace) else {
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
        let ranges = spans.iter().filter_map(|span| span.range_in(self.trace));
        let names_of_ranges = ranges.map(|range| range_name(names.get(range.domain), names.get(range.name)));
        names_of_ranges.collect::<BTreeSet<String>>().into_iter().collect()
    }
}

/// Adds up a count of each phase over engine steps; `None` without any. A phase is unknown if one of its steps does not give it.
fn phase_counts(steps: &[EngineStep], count: fn(&Scheduled) -> Option<u64>) -> Option<PhaseCounts> {
    (!steps.is_empty()).then(|| PhaseCounts {
        context: steps.iter().map(|step| count(&step.context)).sum(),
        generation: steps.iter().map(|step| count(&step.generation)).sum(),
    })
}
