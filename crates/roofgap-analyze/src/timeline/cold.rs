//! Cold instances and steps: the first of repeated ones, and those in which a program does what it does once.

use super::idle::HostWork;
use super::interval::IntervalSet;
use super::repeats::{LEAST_PASS, busy_from, loaded_from, repeated_from};
use super::steps::{StepPeriod, StepPeriods, steady};
use crate::attribution::NO_CALL;
use crate::result::{ColdCause, ColdKind, ColdStart, StageKind, SteadyUnit, Tail};
use crate::stages::{Cold, StageIndex};
use crate::verdict::{LEAST_NS, LEAST_SHORT_OPERATIONS};
use roofgap_base::stats::median;
use roofgap_trace::{CallClass, NameId, Ns, OpKind, ProcessId, ThreadId, Trace};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;

/// Shortest call that a program makes once, ns.
const LONG_LAUNCH_NS: Ns = 1_000_000;

/// Shortest first launch call of a kernel that loads code, ns. Others take some microseconds, and some tens under a profiler.
const FIRST_LAUNCH_NS: Ns = 100_000;

/// The same of a kernel that ran before, ns.
const VERY_LONG_LAUNCH_NS: Ns = 100_000_000;

/// Shortest time that a compiler takes to make a kernel, ns: some tens of milliseconds.
const COMPILE_NS: Ns = 20_000_000;

/// Beginnings of the names of kernels that a program compiles while it runs.
const COMPILED: [&str; 4] = ["triton_", "fused_", "cupy_", "nvfuser_"];

/// Fewest calls that allocate memory again and again, the time from which on each of them counts, ns, and the mean time from which on all
/// do, since a pool answers in some microseconds, and the part of them, 1 in so many, in the last quarter of the trace at least.
const AGAIN: usize = 16;
const LONG_ALLOCATION_NS: Ns = 100_000;
const MEAN_ALLOCATION_NS: Ns = 10_000;
const LATE: usize = 8;

/// Fewest calls that free memory before others that allocate it anew and take long, and fewest of those.
const FREED: usize = 4;
const ANEW: usize = 2;

/// Most long calls for each one that frees memory, where memory is allocated again and again.
const NOT_FREED: usize = 8;

/// Longest time from the last launch before a graph is recorded until its recording begins, ns. PyTorch cleans up, launches a kernel for
/// the state of its random numbers, and begins.
const BEFORE_CAPTURE_NS: Ns = 100_000;

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

/// Most steps that are pauses, 1 in so many. More of them are how the program works.
const RARE: usize = 8;

/// Beginnings of the names of calls that a program makes once, without `cuda`, `cu` or `hip`, and the time from which on they count, ns.
const ONCE: [(&str, ColdKind, Ns); 22] = [
    ("ModuleLoad", ColdKind::ModuleLoad, 0),
    ("LibraryLoad", ColdKind::ModuleLoad, 0),
    ("LinkComplete", ColdKind::ModuleLoad, 0),
    ("GraphInstantiate", ColdKind::GraphInstantiation, 0),
    ("StreamBeginCapture", ColdKind::GraphInstantiation, 0),
    ("StreamEndCapture", ColdKind::GraphInstantiation, 0),
    ("Init", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("CtxCreate", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("DevicePrimaryCtxRetain", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("Malloc", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("MemAlloc", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("MemHost", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("MemFree", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("MemCreate", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("MemMap", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("MemSetAccess", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("Host", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("Free", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("EventCreate", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("StreamCreate", ColdKind::Allocation, LONG_LAUNCH_NS),
    ("FuncGetAttributes", ColdKind::ModuleLoad, LONG_LAUNCH_NS),
    ("OccupancyMaxActive", ColdKind::ModuleLoad, LONG_LAUNCH_NS),
];

/// Returns the kind of a call that a program makes once, and the time from which on it counts, ns.
pub fn kind_of_call(name: &str) -> Option<(ColdKind, Ns)> {
    let name = name.trim_start_matches('_');
    let base = ["cuda", "cu", "hip"].iter().find_map(|prefix| name.strip_prefix(prefix))?;
    ONCE.iter().find(|(begin, ..)| base.starts_with(begin)).map(|(_, kind, least)| (*kind, *least))
}

/// Calls that load code, capture graphs or create a context, and launch calls of kernels that ran for the first time and took milliseconds.
#[derive(Debug, Default)]
pub struct ColdCalls {
    /// Start, end and row of the calls of each thread, in the order of start.
    threads: FxHashMap<ThreadId, Vec<(Ns, Ns, ColdKind, NameId)>>,
    /// Long launch calls, as rows of `Trace::calls`.
    launches: FxHashSet<u32>,
    /// First launches of kernels that are compiled while the program runs.
    compiled: FxHashSet<u32>,
}

/// The cold part of a gap.
#[derive(Debug, Clone, Copy)]
pub struct ColdPart {
    pub ns: Ns,
    pub kind: ColdKind,
    /// Call with the most time.
    pub call: NameId,
    /// Part of it with which the gap begins, ns.
    covered_ns: Ns,
}

impl ColdCalls {
    /// Collects them from a trace, and the times in which threads allocate or free memory again and again, which is not cold.
    pub fn of(trace: &Trace, call_of_op: &[u32]) -> (Self, FxHashMap<ThreadId, IntervalSet>) {
        let calls = &trace.calls;
        let mut kinds: FxHashMap<NameId, (ColdKind, Ns)> =
            trace.names.iter().filter_map(|(id, name)| Some((id, kind_of_call(name)?))).collect();
        let allocating = repeated_allocations(trace, &mut kinds);
        let mut found = Self::default();
        if !kinds.is_empty() {
            let columns = calls.name.iter().zip(&calls.start).zip(&calls.end).zip(&calls.thread);
            for (((name, start), end), thread) in columns {
                if let Some((kind, _)) = kinds.get(name).filter(|(_, least)| end - start >= *least) {
                    let own: &mut Vec<(Ns, Ns, ColdKind, NameId)> = found.threads.entry(*thread).or_default();
                    let early = if *kind == ColdKind::GraphInstantiation { BEFORE_CAPTURE_NS } else { 0 };
                    let after = own.last().map_or(Ns::MIN, |before| before.1).min(*start);
                    own.push(((start - early).max(after), *end, *kind, *name));
                }
            }
        }
        let mut seen = vec![false; trace.names.len()];
        for (op, call) in call_of_op.iter().enumerate() {
            let name = trace.ops.name.get(op).filter(|_| trace.ops.kind.get(op) == Some(&OpKind::Kernel));
            let Some(seen) = name.and_then(|name| seen.get_mut(name.index())) else {
                continue;
            };
            let row = *call as usize;
            let first = !std::mem::replace(seen, true);
            let least = if first { FIRST_LAUNCH_NS } else { VERY_LONG_LAUNCH_NS };
            if let (Some(start), Some(end)) = (calls.start.get(row), calls.end.get(row))
                && end - start > least
                && matches!(calls.class.get(row), Some(CallClass::Launch | CallClass::GraphLaunch))
            {
                found.launches.insert(*call);
            }
            let begins =
                |name: &NameId| COMPILED.iter().any(|begin| trace.names.get(*name).starts_with(begin));
            let alone = calls.class.get(row) == Some(&CallClass::Launch);
            if first && alone && name.is_some_and(begins) {
                found.compiled.insert(*call);
            }
        }
        (found, allocating)
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.launches.is_empty() && self.compiled.is_empty()
    }

    /// Returns the time until which a gap is cold from its beginning on; its beginning where it is not.
    pub fn covered_until(&self, trace: &Trace, gap: (Ns, Ns), call: u32) -> Ns {
        gap.0 + self.during(trace, gap, call).map_or(0, |part| part.covered_ns)
    }

    /// Returns the part of a gap in which the thread of the call that ended it was cold: until the end of the last call before that
    /// that prepares code, since code is compiled before it is loaded, and in the calls after it that allocate memory, or in the launch
    /// call alone.
    pub fn during(&self, trace: &Trace, gap: (Ns, Ns), call: u32) -> Option<ColdPart> {
        if self.is_empty() || call == NO_CALL {
            return None;
        }
        let calls = &trace.calls;
        let row = call as usize;
        let (start, end) = (*calls.start.get(row)?, *calls.end.get(row)?);
        let until = end.min(gap.1);
        let own = self.threads.get(calls.thread.get(row)?).map_or(&[][..], |own| own);
        let first = own.partition_point(|(_, end, ..)| *end <= gap.0);
        let last = own.partition_point(|(start, ..)| *start < until);
        let inside = own.get(first..last.max(first)).unwrap_or_default();
        let longest = inside.iter().max_by_key(|(start, end, ..)| end - start);
        // Code is compiled before it is loaded, a graph is captured before it is instantiated; memory is allocated at once.
        let prepared = inside.iter().rfind(|(_, _, kind, _)| *kind != ColdKind::Allocation);
        let from_start = prepared.is_some();
        let loads = longest.map(|(_, _, kind, name)| {
            let covered = match prepared {
                // Code that a launch loads is for that launch.
                Some((begin, ..)) if *begin >= start => until,
                Some((_, end, ..)) => (*end).min(gap.1),
                None => gap.0,
            };
            let later =
                |(start, end, ..): &(Ns, Ns, _, _)| ((*end).min(gap.1) - (*start).max(covered)).max(0);
            let (covered_ns, later) = (covered - gap.0, inside.iter().map(later).sum::<Ns>());
            ColdPart { ns: covered_ns + later, kind: *kind, call: *name, covered_ns }
        });
        let compiled = self.compiled.contains(&call) && start - gap.0 >= COMPILE_NS;
        let launch = (compiled || self.launches.contains(&call)).then(|| {
            let from_start = compiled || from_start;
            let from = if from_start { gap.0 } else { start.max(gap.0) };
            let (ns, name) = ((until - from).max(0), calls.name.get(row).copied().unwrap_or_default());
            let covered_ns = if from_start { ns } else { 0 };
            ColdPart { ns, kind: ColdKind::FirstLaunch, call: name, covered_ns }
        });
        let longer = loads.iter().chain(&launch).copied().max_by_key(|part| part.ns)?;
        // Memory that is allocated before the launch takes its own time.
        let sum: Ns = loads.iter().chain(&launch).map(|part| part.ns).sum();
        let ns = if from_start || compiled { longer.ns } else { sum.min(until - gap.0) };
        Some(ColdPart { ns, ..longer }).filter(|part| part.ns > 0)
    }
}

/// Takes the calls that allocate or free memory throughout a trace from those that are made once, and returns their times by thread.
fn repeated_allocations(
    trace: &Trace,
    kinds: &mut FxHashMap<NameId, (ColdKind, Ns)>,
) -> FxHashMap<ThreadId, IntervalSet> {
    let calls = &trace.calls;
    let rows = || calls.name.iter().zip(&calls.start).zip(&calls.end).zip(&calls.thread);
    let (Some(begin), Some(end)) = (calls.start.first(), calls.start.last()) else {
        return FxHashMap::default();
    };
    let late = end - (end - begin) / 4;
    let mut counts: FxHashMap<NameId, Allocations> = FxHashMap::default();
    let mut frees: FxHashMap<Option<ProcessId>, usize> = FxHashMap::default();
    for (((name, start), end), thread) in rows() {
        if kinds.get(name).is_some_and(|(kind, _)| *kind == ColdKind::Allocation) {
            let process = trace.threads.get(thread.index()).map(|thread| thread.process);
            let freed = frees.entry(process).or_default();
            let after_frees = (*freed >= FREED).then_some(process);
            counts.entry(*name).or_default().add(end - start, *start >= late, after_frees);
            *freed += usize::from(trace.names.get(*name).contains("Free"));
        }
    }
    // Much memory that is not freed is allocated once.
    let long: usize = counts.values().map(|calls| calls.long.len()).sum();
    let freed: usize = frees.values().sum();
    if freed == 0 {
        return FxHashMap::default();
    }
    let kept = long > NOT_FREED * freed;
    let most: FxHashMap<NameId, Ns> =
        counts.into_iter().filter_map(|(name, calls)| Some((name, calls.longest_again(kept)?))).collect();
    for (name, (_, least)) in kinds.iter_mut() {
        *least = most.get(name).map_or(*least, |most| (*least).max(*most));
    }
    let mut threads: FxHashMap<ThreadId, IntervalSet> = FxHashMap::default();
    for (((name, start), end), thread) in rows() {
        if most.get(name).is_some_and(|most| end - start < *most) {
            threads.entry(*thread).or_default().add(*start, *end);
        }
    }
    threads
}

/// The calls of one name that allocate or free memory.
#[derive(Debug, Default)]
struct Allocations {
    /// Times of the long ones, ns, and whether memory was freed before.
    long: Vec<(Ns, bool)>,
    late_long: usize,
    /// Calls that take less than one that is made once, those of them that are late, and their time, ns.
    short: (usize, usize, Ns),
    /// Those that take as long as one that is made once, after others that free memory, by process.
    after_frees: FxHashMap<Option<ProcessId>, usize>,
}

impl Allocations {
    fn add(&mut self, ns: Ns, late: bool, after_frees: Option<Option<ProcessId>>) {
        if ns >= LONG_ALLOCATION_NS {
            self.long.push((ns, after_frees.is_some()));
            self.late_long += usize::from(late);
        }
        if ns < LONG_LAUNCH_NS {
            let (calls, lates, time) = self.short;
            self.short = (calls + 1, lates + usize::from(late), time + ns);
        } else if let Some(process) = after_frees {
            *self.after_frees.entry(process).or_default() += 1;
        }
    }

    /// Returns the time below which a call is one of those that are made again and again, ns; `None` where there are none. Long
    /// ones are not where memory is `kept`.
    fn longest_again(mut self, kept: bool) -> Option<Ns> {
        let spread = |calls: usize, late: usize| calls >= AGAIN && late * LATE >= calls;
        let anew = self.after_frees.values().any(|calls| *calls >= ANEW);
        if anew || !kept && spread(self.long.len(), self.late_long) {
            // One that takes a quarter of the time of all that are not longer sets up the device.
            self.long.sort_unstable();
            let mut left: Ns = self.long.iter().map(|(ns, _)| ns).sum();
            let mut most = Ns::MAX;
            let sets_up = |&(ns, freed): &(Ns, bool), left: Ns| !freed && ns >= (left / 4).max(COMPILE_NS);
            while let Some((longest, _)) = self.long.pop().filter(|call| sets_up(call, left)) {
                (most, left) = (longest, left - longest);
            }
            return Some(most);
        }
        let (calls, late, ns) = self.short;
        (spread(calls, late) && ns >= MEAN_ALLOCATION_NS * calls as Ns).then_some(LONG_LAUNCH_NS)
    }
}

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
    let repeats = !engine && index.kind(stage) != StageKind::Whole;
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
    let startup_ns = startup_ns(trace, index, stage, counting.len());
    let found = units.result(trace, instances, cold);
    let (instances, steps, mut start) = found.unwrap_or_default();
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

/// Share of the time of a trace, in %, from which on work that repeats shows how it goes on.
const LEAST_REPEATED_PCT: Ns = 40;

/// Part of the time of a trace, 1 in so many, from which on what comes before its first step is told apart.
const STARTUP: Ns = 20;

/// Returns the time of a whole trace before its first step, or before the work that repeats, where that matters and enough of it shows
/// how it goes on, ns.
fn startup_ns(trace: &Trace, index: &StageIndex, stage: usize, warm: usize) -> Ns {
    let spans = index.spans(stage);
    let ([whole], StageKind::Whole) = (&spans.instances[..], index.kind(stage)) else {
        return 0;
    };
    let first = match spans.steps.first() {
        Some(step) => (warm >= 2).then_some(step.start),
        // What repeats for a small part of the time may be the layers of one pass, where it is short.
        None if trace.recorded.is_empty() => repeated_from(trace, index)
            .filter(|(first, operations)| {
                *operations >= LEAST_PASS || whole.end - first >= whole.length() / 100 * LEAST_REPEATED_PCT
            })
            .map(|(first, _)| first)
            .or_else(|| busy_from(trace, index))
            .or_else(|| loaded_from(trace, index)),
        None => None,
    };
    // What is left of a short trace must not be too little to judge.
    let shows = |first: &Ns| {
        let left = || trace.ops.start.iter().filter(|start| *start >= first).count();
        whole.end - first >= LEAST_NS || left() >= LEAST_SHORT_OPERATIONS as usize
    };
    let before = first.filter(shows).map_or(0, |first| first - whole.start);
    if before > whole.length() / STARTUP { before } else { 0 }
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
            let (mut own, mut rest) = (Vec::new(), Vec::new());
            for (at, unit) in units.iter().enumerate() {
                if cold.contains(&at) { own.push(unit.clone()) } else { rest.push(unit.clone()) }
            }
            (own, rest)
        };
        let (mut cold, rest) = pick(&self.instances, &instances);
        let (of_steps, other_steps) = pick(&self.steps, &steps);
        let left_out = !cold.is_empty() || !of_steps.is_empty();
        let (mean_ns, warm_mean_ns) = match (left_out, cold.is_empty()) {
            (true, false) => (mean(&cold), mean(&rest)),
            (true, true) => (mean(&of_steps), mean(&other_steps)),
            (false, _) => {
                let (time, own): (Ns, Ns) =
                    rest.iter().fold((0, 0), |(time, own), unit| (time + unit.time, own + unit.cold));
                if own <= 0 || own < time / 100 * LEAST_COLD_PCT {
                    return None;
                }
                cold.extend(rest.iter().filter(|unit| unit.cold > 0).cloned());
                let count = cold.len().max(1) as Ns;
                (mean(&cold), mean(&cold) - own / count)
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

    #[test]
    fn memory_is_allocated_again_where_it_was_freed() {
        const MS: Ns = 1_000_000;
        let again = |calls: &[Ns], freed: bool, kept: bool| {
            let mut all = Allocations::default();
            for (at, ns) in calls.iter().enumerate() {
                all.add(*ns, 4 * at >= 3 * calls.len(), freed.then_some(None));
            }
            all.longest_again(kept)
        };
        let mut many = [MS / 5; 32];
        assert_eq!(again(&many, false, false), Some(Ns::MAX));
        assert_eq!(again(&[2 * MS; 32], false, true), None, "a cache that grows");
        (many[7], many[9]) = (320 * MS, 66 * MS);
        assert_eq!(again(&many, false, false), Some(66 * MS), "two calls set up the device");
        assert_eq!(again(&many, true, false), Some(Ns::MAX), "a full device");
        assert_eq!(
            (again(&[9 * MS; 4], true, true), again(&[9 * MS; 4], false, false)),
            (Some(Ns::MAX), None)
        );
    }

    #[test]
    fn calls_that_are_made_once() {
        assert_eq!(kind_of_call("cuModuleLoadDataEx").map(|(kind, _)| kind), Some(ColdKind::ModuleLoad));
        assert_eq!(
            kind_of_call("cudaGraphInstantiate_v12000").map(|(kind, _)| kind),
            Some(ColdKind::GraphInstantiation)
        );
        assert_eq!(kind_of_call("hipModuleLaunchKernel"), None);
        assert_eq!(kind_of_call("cudaLaunchKernel"), None);
    }
}
