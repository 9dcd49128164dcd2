//! Idle time of the GPU by cause: what the launching thread did in each gap.

use super::cold_calls::ColdCalls;
use super::copy_kind;
use super::interval::{CoveredTime, IntervalSet};
use crate::attribution::{NO_CALL, is_migration, rows_by_thread};
use crate::result::{CopyKind, Idle, IdleDetail, LaunchAfter, StageKind};
use crate::stages::{DATA_LOADER, StageIndex};
use roofgap_base::stats::median;
use roofgap_trace::{CallClass, DeviceId, NameId, Ns, OpKind, Range, ThreadId, Trace};
use rustc_hash::{FxHashMap, FxHashSet};

/// Times at which each thread was waiting for the device or copying, and at which each device was busy with anything.
pub struct Activity {
    /// Waits and copies by position of the thread.
    sync: Vec<IntervalSet>,
    copy: Vec<IntervalSet>,
    devices: Vec<CoveredTime>,
}

/// Positions of the last gap of a device and of the last waits of the threads that launch on it, where the next search starts.
#[derive(Default, Clone)]
pub struct Near {
    device: usize,
    sync: usize,
    copy: usize,
}

impl Activity {
    /// Collects them from the whole trace.
    pub fn of(trace: &Trace) -> Self {
        let calls = &trace.calls;
        let (mut sync, mut copy) = (Vec::new(), Vec::new());
        for (row, class) in calls.class.iter().enumerate() {
            let threads = match class {
                CallClass::Sync => &mut sync,
                CallClass::Copy => &mut copy,
                _ => continue,
            };
            let thread = calls.thread[row].index();
            if threads.len() <= thread {
                threads.resize(thread + 1, IntervalSet::default());
            }
            threads[thread].add(calls.start[row], calls.end[row]);
        }
        let devices = IntervalSet::by_device(trace, |_| true);
        Self { sync, copy, devices: devices.into_iter().map(CoveredTime::of).collect() }
    }

    /// Returns the busy time, summed over devices, ns.
    pub fn busy_ns(&self) -> Ns {
        self.devices.iter().map(|device| device.set.length()).sum()
    }

    /// Returns the busy time of a device in a span of time, ns.
    pub fn busy_in(&self, device: usize, start: Ns, end: Ns) -> Ns {
        let busy = self.devices.get(device).filter(|_| start < end);
        busy.map_or(0, |busy| busy.overlap(start, end))
    }

    /// Returns the moment from which on a device ran nothing until a later one; the later one if it was busy then.
    pub fn idle_since(&self, device: usize, moment: Ns) -> Ns {
        let busy = self.devices.get(device).map_or(&[][..], |busy| busy.set.intervals());
        let before = busy.partition_point(|(start, _)| *start < moment).checked_sub(1);
        before.and_then(|at| busy.get(at)).map_or(Ns::MIN, |(_, end)| (*end).min(moment))
    }

    /// Returns the time in which one of the devices was busy.
    pub fn joined(&self, devices: &[usize]) -> CoveredTime {
        let sets = devices.iter().filter_map(|device| self.devices.get(*device));
        let all = sets.flat_map(|device| device.set.intervals().iter().copied()).collect();
        CoveredTime::of(IntervalSet::of(all))
    }

    /// Returns the time from one moment to another in which a thread neither waits for a device nor is in a call that copies, ns.
    pub fn working_ns(&self, thread: ThreadId, from: Ns, to: Ns) -> Ns {
        let waits = [&self.sync, &self.copy];
        let waited =
            waits.iter().filter_map(|sets| sets.get(thread.index())).map(|set| set.overlap(from, to));
        (to - from - waited.sum::<Ns>()).max(0)
    }

    /// Splits one gap of a device by cause, and returns the time in which the device ran other work, which is not idle time. `call` launched
    /// the operation that ended the gap. `near` speeds up gaps that follow one another.
    ///
    /// Until the launch call returned, and [`LAUNCH_LATENCY_NS`] longer, the gap counts as `launch`, less the time in which the
    /// launching thread waited (`sync`) or copied (`copy`) before that call. Time after that is `other`: the operation waits for
    /// another one, or in a queue. So is a gap before an operation that was launched in time.
    ///
    /// A thread that waited when the device ran dry could have launched instead: as much of what is left of the gap as it had
    /// waited until then is added to `launch_after`; it stays a part of `launch`.
    pub fn split(
        &self,
        trace: &Trace,
        device: DeviceId,
        (from, to): (Ns, Ns),
        call: u32,
        near: &mut Near,
        sums: &mut IdleSums,
    ) -> Ns {
        let IdleSums { idle, launch_after: after, detail, .. } = sums;
        let busy = self.devices.get(device.index());
        let mut busy_in =
            |from: Ns, to: Ns| busy.map_or(0, |busy| busy.set.overlap_near(from, to, &mut near.device));
        let Some(Launch { thread, until, arrived }) = Launch::from_call(trace, (from, to), call) else {
            let elsewhere = busy_in(from, to);
            let other = to - from - elsewhere;
            idle.other_ns += other;
            detail.after_launch_ns += if call == NO_CALL { 0 } else { other };
            return elsewhere;
        };
        // The time that the thread waited in the gap, and had waited when the gap began.
        let during = |threads: &[IntervalSet], near: &mut usize| {
            threads.get(thread.index()).map_or((0, 0), |waits| {
                let inside = waits.overlap_near(from, until, near);
                let at = waits.intervals().get(*near).filter(|(start, end)| *start <= from && from < *end);
                (inside, at.map_or(0, |(start, _)| from - start))
            })
        };
        let (sync, before_sync) = during(&self.sync, &mut near.sync);
        let (copy, before_copy) = during(&self.copy, &mut near.copy);
        let copy = copy.min(until - from - sync);
        // The device was not idle while it ran other work.
        let busy_before = busy_in(from, arrived);
        let mut rest = busy_before;
        let mut left = |part: Ns| {
            let taken = part.min(rest);
            rest -= taken;
            part - taken
        };
        let before = left(until - from - sync - copy);
        let inside = left(arrived - until);
        let (copy, sync) = (left(copy), left(sync));
        let busy_after = if arrived < to { busy_in(arrived, to) } else { 0 };
        let waiting = to - arrived - busy_after;
        let launch = before + inside;
        idle.sync_ns += sync;
        idle.copy_ns += copy;
        idle.launch_ns += launch;
        idle.other_ns += waiting;
        detail.before_launch_ns += before;
        detail.in_launch_ns += inside;
        detail.after_launch_ns += waiting;
        let after_sync = before_sync.min(launch);
        after.sync_ns += after_sync;
        after.copy_ns += before_copy.min(launch - after_sync);
        busy_before + busy_after
    }
}

/// Idle time of a device for which a launching thread is responsible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostGap {
    /// Launching thread, where it is known.
    pub thread: Option<ThreadId>,
    pub start: Ns,
    pub end: Ns,
    /// The thread waits for the device or is in a copy call.
    pub waits: bool,
}

impl Activity {
    /// Lists the part of a gap that [`Activity::split`] counts as launch, sync and copy; all of it with `to_its_end`.
    pub fn host_gaps(
        &self,
        trace: &Trace,
        device: usize,
        (from, to): (Ns, Ns),
        (call, to_its_end): (u32, bool),
        list: &mut Vec<HostGap>,
    ) {
        let launch = Launch::from_call(trace, (from, to), call);
        let (until, arrived) = launch.as_ref().map_or((to, from), |launch| (launch.until, launch.arrived));
        let thread = trace.calls.thread.get(call as usize).copied();
        let none = IntervalSet::default();
        let [sync, copy] = [&self.sync, &self.copy]
            .map(|sets| thread.and_then(|thread| sets.get(thread.index())).unwrap_or(&none));
        let busy = self.devices.get(device).map_or(&none, |busy| &busy.set);
        let mut push = |start: Ns, end: Ns, waits: bool| list.push(HostGap { thread, start, end, waits });
        busy.pieces(from, if to_its_end { to } else { arrived }, |start, end, busy| {
            let before = end.min(until).max(start);
            if !busy {
                sync.pieces(start, before, |start, end, syncs| match syncs {
                    true => push(start, end, true),
                    false => copy.pieces(start, end, &mut push),
                });
                none.pieces(before, end, &mut push);
            }
        });
    }
}

/// The launch that ended a gap.
struct Launch {
    thread: ThreadId,
    /// Start of the call, in the gap.
    until: Ns,
    /// End of the call and of the time that a launch takes to reach the device, in the gap.
    arrived: Ns,
}

impl Launch {
    /// Returns the launch of the operation that ended a gap; `None` if it was launched before the gap, or its call is not known.
    fn from_call(trace: &Trace, (from, to): (Ns, Ns), call: u32) -> Option<Self> {
        let calls = &trace.calls;
        let (start, end) = (*calls.start.get(call as usize)?, *calls.end.get(call as usize)?);
        (end > from).then(|| Self {
            thread: calls.thread[call as usize],
            until: start.clamp(from, to),
            arrived: end.saturating_add(LAUNCH_LATENCY_NS).clamp(from, to),
        })
    }
}

/// Longest time that an operation takes to start on an idle GPU after its launch call returned, ns.
pub const LAUNCH_LATENCY_NS: Ns = 10_000;

/// Idle time by cause, its parts, and its gaps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IdleSums {
    pub idle: Idle,
    pub launch_after: LaunchAfter,
    pub detail: IdleDetail,
    pub gaps: LaunchGaps,
}

/// Time that a fault of the CPU takes before its piece moves at most, ns, beside one ns for each byte: on an H200 pieces of 370 KB took
/// 54 us each, 96 us under nsys, and of some no record was left.
const FAULT_NS: Ns = 100_000;

impl IdleSums {
    /// Divides the gap before a piece of managed memory, which added `gap_ns` to the other idle time, into paging and, of a piece that the
    /// CPU asked for, its work until then. Returns that work, ns.
    pub fn divide_paging(&mut self, trace: &Trace, op: usize, gap_ns: Ns) -> Ns {
        if !is_migration(trace, op) {
            return 0;
        }
        let to_host = copy_kind(trace.names.get(trace.ops.name[op])) == CopyKind::ManagedToHost;
        let bytes = u32::try_from(op)
            .ok()
            .and_then(|op| trace.ops.transfers.get(&op))
            .map_or(0, |transfer| transfer.bytes);
        let fault_ns = FAULT_NS.saturating_add_unsigned(bytes);
        let paging_ns = if to_host { gap_ns.min(fault_ns) } else { gap_ns };
        // Until the program asks for it, nothing of it moves.
        let (calls, start) = (&trace.calls, trace.ops.start[op]);
        let earlier = (0..calls.start.partition_point(|call| *call < start)).rev();
        let mut asked = earlier
            .map(|call| (calls.start[call], calls.name[call]))
            .take_while(|(call, _)| *call > start - gap_ns);
        let asked = asked.find(|(_, name)| trace.names.get(*name).contains("MemPrefetch"));
        let paging_ns = asked.map_or(paging_ns, |(call, _)| start - call).min(paging_ns);
        let away_ns = gap_ns - paging_ns;
        self.idle.other_ns -= away_ns;
        self.idle.launch_ns += away_ns;
        self.detail.paging_ns += paging_ns;
        self.detail.before_launch_ns += away_ns;
        self.detail.host_work_ns += away_ns;
        if away_ns > 0 {
            self.detail.host_gaps += 1;
            self.gaps.host_longest = self.gaps.host_longest.max((away_ns, Some(op)));
            self.gaps.managed_ns += away_ns;
        }
        away_ns
    }
}

/// The cause of idle time, as in [`Idle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdleCause {
    /// The CPU had not launched the next operation yet, or was launching it.
    Launch,
    /// The launching thread was waiting for the device.
    Sync,
    /// The launching thread was in a copy call.
    Copy,
    /// Launched and not started, or without a known launch.
    Other,
}

impl IdleCause {
    /// Every cause, in the order of the reports.
    pub const ALL: [Self; 4] = [Self::Launch, Self::Sync, Self::Copy, Self::Other];
}

/// A part of a gap of a device with one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdlePart {
    /// Device that ran nothing.
    pub device: DeviceId,
    /// Start, ns on the clock of the trace.
    pub start: Ns,
    /// End, ns on the clock of the trace.
    pub end: Ns,
    /// Cause.
    pub cause: IdleCause,
}

/// Parts of gaps in columns, as there are about as many as operations.
#[derive(Debug, Clone, Default)]
pub struct IdleParts {
    /// Devices that ran nothing, and causes.
    pub of: Vec<(DeviceId, IdleCause)>,
    /// Starts, ns on the clock of the trace.
    pub start: Vec<Ns>,
    /// Ends, ns on the clock of the trace.
    pub end: Vec<Ns>,
}

impl IdleParts {
    /// Iterates over the parts.
    pub fn iter(&self) -> impl Iterator<Item = IdlePart> {
        let times = self.start.iter().zip(&self.end);
        let part = |(&(device, cause), (&start, &end))| IdlePart { device, start, end, cause };
        self.of.iter().zip(times).map(part)
    }
}

/// Lists the time in which each device ran nothing between its first and its last operation, in the order of the operations that
/// ended it. The launch of that operation decides on the cause, by the rule of the stages' idle time. The parts of a gap with
/// several causes follow each other: waits, then copies, then the launch. Time that was not recorded is left out.
pub fn idle_parts(trace: &Trace, index: &StageIndex) -> IdleParts {
    let ops = &trace.ops;
    let activity = Activity::of(trace);
    let mut devices: Vec<(Option<Ns>, Near)> = vec![Default::default(); trace.devices.len().max(1)];
    // Room that is not used takes no memory.
    let times = || Vec::with_capacity(ops.len());
    let mut parts = IdleParts { start: times(), end: times(), ..IdleParts::default() };
    for op in 0..ops.len() {
        let (start, end, device, process) = (ops.start[op], ops.end[op], ops.device[op], ops.process[op]);
        let Some((covered, near)) = devices.get_mut(device.index()) else {
            continue;
        };
        let until = covered.unwrap_or(start);
        *covered = Some(until.max(end));
        if start <= until || trace.window_of(process, until, start).is_none() {
            continue;
        }
        let call = index.call_of_op(op);
        let mut sums = IdleSums::default();
        activity.split(trace, device, (until, start), call, near, &mut sums);
        if call == NO_CALL {
            sums.divide_paging(trace, op, start - until);
        }
        let idle = sums.idle;
        let mut from = until;
        for (cause, ns) in [
            (IdleCause::Sync, idle.sync_ns),
            (IdleCause::Copy, idle.copy_ns),
            (IdleCause::Launch, idle.launch_ns),
            (IdleCause::Other, idle.other_ns),
        ] {
            if ns > 0 {
                parts.of.push((device, cause));
                parts.start.push(from);
                from += ns;
                parts.end.push(from);
            }
        }
    }
    parts
}

/// Time without a call from which on a thread does other work than launching, ns. An operator takes some microseconds to launch, and
/// some hundreds under a profiler.
pub const LONG_WORK_NS: Ns = 1_000_000;

/// Calls before a gap of which one may reach into it, with those that it makes itself.
const NESTED_CALLS: usize = 4;

/// The launch gaps of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaunchGaps {
    /// Launch time of the longest gap without data loading and cold calls, ns, and the operation that ended it.
    pub longest: (Ns, Option<usize>),
    /// Launch time in which the launching thread was getting data, summed over gaps, ns.
    pub data_loading_ns: Ns,
    /// Other work of the launching thread in the gap with most of it, ns, and the operation that ended it.
    pub host_longest: (Ns, Option<usize>),
    /// Other work before pieces of managed memory, summed over gaps, ns.
    pub managed_ns: Ns,
}

/// The operation that ended a gap.
pub struct GapEnd {
    pub op: usize,
    /// Call that launched it.
    pub call: u32,
    /// It is a copy after another one: the launch of a short gap belongs to them.
    pub between_copies: bool,
    /// Start on the CPU of the step of which it is the first operation.
    pub step_start: Option<Ns>,
}

/// Times in which each thread did work other than launching: it got data from a data loader, did what a program does once, managed
/// memory, or made no calls.
pub struct HostWork {
    loading: FxHashMap<ThreadId, IntervalSet>,
    /// Messages to other processes.
    messages: FxHashMap<ThreadId, IntervalSet>,
    allocating: FxHashMap<ThreadId, IntervalSet>,
    cold: ColdCalls,
    /// Time until which a program without steps has hardly begun on the GPU, and the least time of work before that, ns.
    begun: (Ns, Ns),
    /// Rows of the calls of each thread, in the order of their start.
    calls: Vec<Vec<u32>>,
    /// Time without a call from which on a thread does other work, ns.
    long_ns: Ns,
}

/// Time without a call of a program of its own kernels from which on its thread does other work, over the median, and at least, ns.
const MUCH_LONGER: Ns = 20;
const LEAST_WORK_NS: Ns = 50_000;

/// Returns the time without a call from which on a thread does other work, ns. A framework takes longer to launch than a program of its
/// own kernels.
fn long_work_ns(trace: &Trace, calls: &[Vec<u32>]) -> Ns {
    let framework = |name: &str| name.contains("at::native") || name.starts_with("triton_");
    let is_python = trace.processes.iter().any(|process| trace.names.get(process.name).contains("python"));
    if is_python || !trace.cpu_ops.is_empty() || trace.names.iter().any(|(_, name)| framework(name)) {
        return LONG_WORK_NS;
    }
    let (start, end) = (&trace.calls.start, &trace.calls.end);
    let between = |pair: &[u32]| start[pair[1] as usize] - end[pair[0] as usize];
    let mut free: Vec<Ns> =
        calls.iter().flat_map(|rows| rows.windows(2).map(between)).filter(|ns| *ns > 0).collect();
    let usual = median(&mut free).unwrap_or(LONG_WORK_NS);
    usual.saturating_mul(MUCH_LONGER).clamp(LEAST_WORK_NS, LONG_WORK_NS)
}

/// Start of the names of ranges in which processes exchange messages.
const MESSAGES: &str = "MPI";

/// Share of the GPU time, 1 in so many, before which a program has hardly begun, and the part of the time of a trace, 1 in so many, for
/// which it prepares at least.
const HARDLY: Ns = 50;
const PREPARES: Ns = 20;

/// Returns the start of the operation before which a trace without steps has hardly run anything on its GPUs, and not all of its kernels,
/// and the least time of work before that, ns.
fn begun(trace: &Trace, index: &StageIndex) -> (Ns, Ns) {
    let has_steps = |stage| index.kind(stage) != StageKind::Whole || !index.spans(stage).steps.is_empty();
    if (0..index.len()).any(has_steps) {
        return (Ns::MIN, 0);
    }
    let ops = &trace.ops;
    let length = ops.start.first().zip(ops.end.last()).map_or(0, |(first, last)| last - first);
    let all: Ns = (0..ops.len()).map(|op| ops.duration(op)).sum();
    let mut left = all / HARDLY;
    // A program of which every kernel has run has begun.
    let mut unseen: FxHashSet<NameId> =
        (0..ops.len()).filter(|op| ops.kind[*op] == OpKind::Kernel).map(|op| ops.name[op]).collect();
    let first = (0..ops.len()).find(|op| {
        left -= ops.duration(*op);
        left < 0 || unseen.remove(&ops.name[*op]) && unseen.is_empty()
    });
    let begun = first.map(|op| ops.start[op]).filter(|begun| !works_on(trace, *begun));
    (begun.unwrap_or(Ns::MIN), length / PREPARES)
}

/// Tells whether the function of the program itself that the samples before a time after the first operation show most runs later, too,
/// for half as long at least.
fn works_on(trace: &Trace, until: Ns) -> bool {
    let (host, from) = (&trace.stacks, trace.ops.start.first().copied().unwrap_or(Ns::MAX));
    let mut functions: FxHashMap<NameId, [u64; 2]> = FxHashMap::default();
    for sample in host.samples.iter().filter(|sample| sample.at >= from) {
        let Some((_, frame)) = sample.stack.index().checked_sub(1).and_then(|at| host.stacks().get(at))
        else {
            continue;
        };
        let frame = host.frame(*frame);
        let is_own =
            |id| !trace.names.get(id).contains(".so") && !trace.names.get(id).starts_with(['[', '(']);
        if is_own(frame.file) && is_own(frame.function) {
            functions.entry(frame.function).or_default()[usize::from(sample.at >= until)] += 1;
        }
    }
    functions.values().max().is_some_and(|[before, later]| *before > 0 && 2 * later >= *before)
}

impl HostWork {
    /// Collects them from the ranges and calls of a trace.
    pub fn of(trace: &Trace, index: &StageIndex) -> Self {
        let ranges = |begin: &'static str| {
            let begins = move |range: &&Range| trace.names.get(range.name).starts_with(begin);
            IntervalSet::by_thread(trace.ranges.rows.iter().filter(begins))
        };
        let (cold, allocating) = ColdCalls::collect(trace, &index.launches().call_of_op);
        let calls = rows_by_thread(trace, (0u32..).zip(trace.calls.thread.iter().copied()));
        Self {
            loading: ranges(DATA_LOADER),
            messages: ranges(MESSAGES),
            allocating,
            cold,
            begun: begun(trace, index),
            long_ns: long_work_ns(trace, &calls),
            calls,
        }
    }

    /// Returns the time of a span in which a thread made no call for [`LONG_WORK_NS`] or, in a program of its own kernels, much longer than
    /// usual, and did not get data, ns.
    fn away_ns(&self, trace: &Trace, thread: ThreadId, (from, to): (Ns, Ns)) -> Ns {
        let calls = &trace.calls;
        let time = |row: u32| Some((*calls.start.get(row as usize)?, *calls.end.get(row as usize)?));
        let rows = self.calls.get(thread.index()).filter(|_| to - from >= self.long_ns);
        let rows = rows.map_or(&[][..], |rows| rows);
        let first = rows.partition_point(|row| time(*row).is_some_and(|(start, _)| start < from));
        let inside = rows.get(first.saturating_sub(NESTED_CALLS)..).unwrap_or_default().iter();
        let inside = inside.filter_map(|row| time(*row)).take_while(|(start, _)| *start < to);
        let (mut free, mut away) = (from, 0);
        for (start, end) in inside.chain([(to, to)]) {
            if start - free >= self.long_ns {
                let loading = self.loading.get(&thread).map_or(0, |times| times.overlap(free, start));
                away += start - free - loading;
            }
            free = free.max(end);
        }
        away
    }

    /// Returns the calls that a program makes once.
    pub fn cold_calls(&self) -> &ColdCalls {
        &self.cold
    }

    /// Returns the parts of a gap before a launch call in which its thread was getting data, and in which it was cold, ns. They are
    /// at most `most` together.
    pub fn parts(&self, trace: &Trace, gap: (Ns, Ns), call: u32, most: Ns) -> (Ns, Ns) {
        let calls = &trace.calls;
        let Some(start) = calls.start.get(call as usize).filter(|_| most > 0) else {
            return (0, 0);
        };
        let (thread, until) = (&calls.thread[call as usize], (*start).clamp(gap.0, gap.1));
        let loading = self.loading.get(thread).map_or(0, |times| times.overlap(gap.0, until));
        let loading = loading.clamp(0, most);
        let cold = self.cold.during(trace, gap, call).map_or(0, |cold| cold.ns);
        (loading, cold.clamp(0, most - loading))
    }

    /// Adds what the CPU did in one gap to the idle time of a stage, which was `before` without the gap.
    ///
    /// Getting data and long work before a step take as long without a wait before them, so they are no part of `launch_after`.
    pub fn add(
        &self,
        trace: &Trace,
        gap: (Ns, Ns),
        GapEnd { op, call, between_copies, step_start }: GapEnd,
        before: &IdleSums,
        sums: &mut IdleSums,
    ) {
        let launch_ns = sums.idle.launch_ns - before.idle.launch_ns;
        let before = before.launch_after;
        if launch_ns == 0 {
            return;
        }
        let (loading, cold) = self.parts(trace, gap, call, launch_ns);
        let rest = launch_ns - loading;
        let calls = &trace.calls;
        let known = calls.start.get(call as usize).zip(calls.thread.get(call as usize));
        let launched = known.map(|(start, _)| (*start).clamp(gap.0, gap.1));
        let first = step_start.zip(launched).map_or(0, |(begun, until)| until - begun.max(gap.0));
        let mut first = first.clamp(0, rest);
        // What the thread did for long, after it had loaded code and before a step began.
        let (mut away, mut allocating) = (0, 0);
        let has_others = !self.allocating.is_empty() || !self.messages.is_empty();
        let of_copies = between_copies && launch_ns < LONG_WORK_NS;
        let is_long = rest - first >= self.long_ns && !of_copies || has_others && rest > first;
        if let Some((_, thread)) = known.filter(|_| is_long) {
            let from = self.cold.covered_until(trace, gap, call);
            let until = (launched.unwrap_or(gap.0) - first).max(from);
            let messages = self.messages.get(thread).map_or(0, |times| times.overlap(from, until) - cold);
            let free = if of_copies { 0 } else { self.away_ns(trace, *thread, (from, until)) };
            away = free.max(messages).min(rest - first);
            if let Some(times) = self.allocating.get(thread) {
                let in_step = times.overlap(until, launched.unwrap_or(until)).min(first);
                allocating = times.overlap(from, until).min(rest - first - away) + in_step;
                first -= in_step;
            }
        }
        // What a program does before its work happens once.
        let (cold, away) =
            if gap.1 <= self.begun.0 && away >= self.begun.1 { (cold + away, 0) } else { (cold, away) };
        let after = &mut sums.launch_after;
        let kept = if first >= self.long_ns { rest - first } else { rest } - away - allocating;
        if of_copies && cold == 0 {
            after.copy_ns = before.copy_ns + launch_ns;
        }
        after.sync_ns = after.sync_ns.min(before.sync_ns + kept);
        let waited = after.sync_ns - before.sync_ns;
        after.copy_ns = after.copy_ns.min(before.copy_ns + kept - waited);
        let launch_only = rest - waited - (after.copy_ns - before.copy_ns);
        let cold = cold.min(launch_only - away - allocating);
        let IdleSums { detail, gaps, .. } = sums;
        gaps.data_loading_ns += loading;
        detail.cold_ns += cold;
        detail.host_work_ns += away;
        detail.allocation_ns += allocating;
        if away > 0 {
            detail.host_gaps += 1;
            gaps.host_longest = gaps.host_longest.max((away, Some(op)));
        }
        let cold = cold + away + allocating;
        detail.host_first_ns += first.min(launch_only - cold);
        if launch_only - cold > gaps.longest.0 {
            gaps.longest = (launch_only - cold, Some(op));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, analyze};
    use proptest::prelude::*;
    use roofgap_trace::RecordedWindows;

    proptest! {
        #[test]
        fn the_busy_time_of_a_span_is_the_overlap(list in prop::collection::vec((0i64..200, 0i64..40), 0..40), from in -10i64..250, length in -5i64..90) {
            let set = IntervalSet::of(list.iter().map(|(start, length)| (*start, start + length)).collect());
            let activity = Activity { sync: Vec::new(), copy: Vec::new(), devices: vec![CoveredTime::of(set.clone())] };
            prop_assert_eq!(activity.busy_in(0, from, from + length), set.overlap(from, (from + length).max(from)));
            prop_assert_eq!(activity.busy_in(1, from, from + length), 0);
        }
    }

    fn fixture() -> Trace {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/h200/llama4.sqlite.gz");
        roofgap_trace::read(&[path.into()]).unwrap().trace
    }

    #[test]
    fn parts_inside_a_stage_add_up_to_its_idle_time() {
        let trace = fixture();
        let analyzed = analyze(&trace, &Options::default());
        let parts = idle_parts(&trace, &analyzed.stages);
        for (at, stage) in analyzed.analysis.stages.iter().enumerate() {
            let own = (0..trace.ops.len()).filter(|op| analyzed.stages.holds(at, *op));
            let (first, last) = own.fold((Ns::MAX, Ns::MIN), |(first, last), op| {
                (first.min(trace.ops.start[op]), last.max(trace.ops.end[op]))
            });
            let sum = |cause| {
                let inside = |part: &IdlePart| part.start >= first && part.end <= last && part.cause == cause;
                let parts = parts.iter().filter(inside);
                parts.map(|part| part.end - part.start).sum::<Ns>()
            };
            let idle = stage.idle.unwrap();
            assert!(idle.launch_ns > 0);
            assert_eq!(
                IdleCause::ALL.map(sum),
                [idle.launch_ns, idle.sync_ns, idle.copy_ns, idle.other_ns],
                "{}",
                stage.name
            );
        }
    }

    #[test]
    fn time_that_was_not_recorded_is_not_idle() {
        let mut trace = fixture();
        let analyzed = analyze(&trace, &Options::default());
        let before = idle_parts(&trace, &analyzed.stages);
        let longest = before.iter().max_by_key(|part| part.end - part.start).unwrap();
        let (first, last) = trace.span().unwrap();
        trace.recorded = vec![RecordedWindows {
            process: trace.ops.process[0],
            windows: vec![(first, longest.start + 1), (longest.end - 1, last)],
            span: (first, last),
        }];
        let after = idle_parts(&trace, &analyzed.stages);
        assert!(after.iter().all(|part| part != longest));
        assert!(after.of.len() < before.of.len() && !after.of.is_empty());
    }
}
