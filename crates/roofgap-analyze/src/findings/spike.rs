//! Steps that took longer than their work explains, each with the cause that has most of its excess.
//!
//! The time of a step is divided by what took it: kernels and copies on the GPU, and in its gaps the calls and the code of the thread
//! that launches. What steps of the usual length have of each does not count. A cause has at least half of the excess.

use crate::host;
use crate::names::{Family, family};
use crate::result::{ColdKind, HostKind, Spike, SpikeCause, Tail};
use crate::timeline::{Grouped, HostGap, IntervalSet, StageMeter, StepPeriod, StepPeriods};
use crate::vitals;
use roofgap_base::stats::{median, median_f64};
use roofgap_trace::{CallClass, MemoryKind, NameId, Ns, OpKind, ProcessId, ThreadId, Trace};
use rustc_hash::FxHashMap;

/// Fewest steps of which some can be slow, and the part of them, 1 in so many, from which on they are no exception.
const LEAST_STEPS: usize = 5;
const COMMON: usize = 3;

/// Most slow steps of a stage that are listed, and most usual ones that they are compared with.
const MOST: usize = 32;
const MOST_USUAL: usize = 16;

/// Longest launch of a kernel over that in usual steps from which on it is the cause alone.
const FAR_LONGER: Ns = 4;

/// Shortest gap of which samples tell whether the thread ran, ns.
const LONG_NS: Ns = 1_000_000;

/// Calls before a step among which one may still run.
const CALLS_BEFORE: usize = 256;

/// Range in which Python collects garbage, as the annotation of a program names it.
const COLLECTION: &str = "roofgap:gc";

/// Lists the steps of a stage that took more than twice the time that their work explains, in order. That of `tail` is among them.
pub fn spikes(meter: &StageMeter<'_>, stage: usize, tail: Option<Tail>) -> Vec<Spike> {
    let periods = meter.periods(stage);
    let expected = explained(&periods);
    let is_slow = |at: usize| periods.each[at].time_ns > 2 * expected[at];
    let excess = |at: &usize| periods.each[*at].time_ns - expected[*at];
    let mut slow: Vec<usize> = (0..periods.each.len()).filter(|at| is_slow(*at)).collect();
    if periods.each.len() < LEAST_STEPS || slow.len() * COMMON > periods.each.len() {
        slow.retain(|at| tail.is_some_and(|tail| tail.slowest_ns == periods.each[*at].time_ns));
    }
    if slow.is_empty() {
        return Vec::new();
    }
    slow.sort_by_key(|at| std::cmp::Reverse(excess(at)));
    slow.truncate(MOST);
    slow.sort_unstable();
    let causes = Causes::of(meter);
    let usual: Vec<&StepPeriod> =
        (0..periods.each.len()).filter(|at| !is_slow(*at)).map(|at| &periods.each[at]).collect();
    let every = usual.len().div_ceil(MOST_USUAL).max(1);
    let usual: Vec<StepTimes> = usual.iter().step_by(every).filter_map(|step| causes.times(step)).collect();
    let begin = meter.index.span().map_or(0, |span| span.0);
    let spike = |at: usize| {
        let (step, excess) = (&periods.each[at], excess(&at));
        let main = causes.times(step).and_then(|times| causes.main(step, &times, &usual));
        let part = main.clone().filter(|part| 2 * part.ns >= excess).unwrap_or_default();
        Spike {
            step: at as u64 + 1,
            start_ns: step.span.map(|span| span.0 - begin),
            unix_ns: step.span.and_then(|span| meter.trace.unix_ns(span.0)),
            time_ns: step.time_ns,
            expected_ns: expected[at],
            missing: causes.missing(part.cause).map(str::to_owned),
            cause: part.cause,
            evidence_ns: part.ns.min(excess),
            what: (!part.what.is_empty()).then_some(part.what),
        }
    };
    slow.into_iter().map(spike).collect()
}

/// Returns the time of each step that its work explains, ns. One step alone shows no growth: its time may be at most twice in proportion to
/// its work.
fn explained(periods: &StepPeriods) -> Vec<Ns> {
    let middle = |of: fn(&StepPeriod) -> f64| {
        median_f64(&mut periods.each.iter().map(of).collect::<Vec<f64>>()).unwrap_or(0.0)
    };
    let (time, tokens, threads) =
        (middle(|step| step.time_ns as f64), middle(|step| step.tokens), middle(|step| step.threads));
    let ratio = |part: f64, middle: f64| if middle > 0.0 { part / middle } else { 1.0 };
    let most = |step: &StepPeriod| {
        let more = ratio(step.tokens, tokens).max(ratio(step.threads, threads)).max(1.0);
        (2.0 * time * more) as Ns
    };
    periods.expected().into_iter().zip(&periods.each).map(|(ns, step)| ns.min(most(step))).collect()
}

/// Time of a step that had one cause.
#[derive(Debug, Clone, Default)]
struct Part {
    cause: SpikeCause,
    ns: Ns,
    /// Call, function or kernel with the most of it, and its time, ns.
    what: String,
    most_ns: Ns,
}

/// The time of a step, by what took it.
#[derive(Default)]
struct StepTimes {
    /// All launches of each kernel, and the longest, ns.
    kernels: FxHashMap<NameId, (Ns, Ns)>,
    parts: Grouped<SpikeCause, Part>,
}

impl StepTimes {
    fn add(&mut self, cause: SpikeCause, ns: Ns, what: &str) {
        if ns <= 0 {
            return;
        }
        let part = self.parts.entry(cause, || Part { cause, ..Part::default() });
        part.ns += ns;
        if ns > part.most_ns {
            (part.what, part.most_ns) = (what.to_owned(), ns);
        }
    }

    fn of_cause(&self, cause: SpikeCause) -> Ns {
        self.parts.items.iter().find(|part| part.cause == cause).map_or(0, |part| part.ns)
    }
}

/// The causes in a trace.
struct Causes<'a> {
    meter: &'a StageMeter<'a>,
    /// Times in which the processes collect garbage.
    collections: FxHashMap<ProcessId, IntervalSet>,
    vitals: Vec<vitals::DeviceVitals>,
}

impl<'a> Causes<'a> {
    fn of(meter: &'a StageMeter<'a>) -> Self {
        let trace = meter.trace;
        let mut collections: FxHashMap<ProcessId, IntervalSet> = FxHashMap::default();
        if let Some(name) = trace.names.find(COLLECTION) {
            for range in trace.ranges.rows.iter().filter(|row| row.name == name) {
                collections.entry(range.process).or_default().add(range.start, range.end);
            }
        }
        Self { meter, collections, vitals: vitals::of_devices(trace) }
    }

    fn trace(&self) -> &'a Trace {
        self.meter.trace
    }

    /// Divides the time of a step; `None` for a step without GPU work.
    fn times(&self, step: &StepPeriod) -> Option<StepTimes> {
        let (begin, end) = step.span?;
        let ops = &self.trace().ops;
        let (mut times, mut covered, mut gaps) = (StepTimes::default(), begin, Vec::new());
        let first = ops.start.partition_point(|start| *start < begin);
        for op in (first..ops.len()).filter(|op| ops.device[*op].index() == step.device) {
            let (start, until) = (ops.start[op].min(end), ops.end[op].min(end));
            if start > covered {
                gaps.push(((covered, start), self.meter.index.call_of_op(op)));
            }
            covered = covered.max(until);
            if start >= end {
                break;
            }
            let memory = ops.transfers.get(&(op as u32)).map(|transfer| transfer.memory).unwrap_or_default();
            let is_host = |kind| matches!(kind, MemoryKind::Pageable | MemoryKind::Pinned);
            if ops.kind[op] == OpKind::Copy && (is_host(memory.0) || is_host(memory.1)) {
                times.add(SpikeCause::HostCopy, until - start, self.trace().names.get(ops.name[op]));
            } else {
                let (all, longest) = times.kernels.entry(ops.name[op]).or_default();
                (*all, *longest) = (*all + until - start, (*longest).max(until - start));
            }
        }
        self.add_gaps(&mut times, (begin, end), &gaps);
        Some(times)
    }

    /// Divides the gaps of a step, each with the call that launched the operation after it.
    fn add_gaps(&self, times: &mut StepTimes, (begin, end): (Ns, Ns), gaps: &[((Ns, Ns), u32)]) {
        let (trace, calls) = (self.trace(), &self.trace().calls);
        let first = calls.start.partition_point(|start| *start < begin).saturating_sub(CALLS_BEFORE);
        let last = calls.start.partition_point(|start| *start < end);
        let (mut code, mut waits) = (Vec::new(), Vec::new());
        for (gap, call) in gaps.iter().copied() {
            let thread: Option<ThreadId> = calls.thread.get(call as usize).copied();
            // A thread that does not run is slow in whatever it does, also in a call.
            let whole = HostGap { thread, start: gap.0, end: gap.1, waits: false };
            let is_long = gap.1 - gap.0 >= LONG_NS;
            let kinds = if is_long { host::kinds_in(trace, vec![whole]) } else { Default::default() };
            let away = kinds.into_iter().find(|(kind, ..)| *kind == HostKind::Descheduled);
            if let Some((_, ns, what)) = away.filter(|(_, ns, _)| 2 * ns >= gap.1 - gap.0) {
                times.add(SpikeCause::Descheduled, ns, &what);
                continue;
            }
            let cold = self.meter.host.cold_calls().during(trace, gap, call);
            if let Some(cold) = &cold {
                let allocates = cold.kind == ColdKind::Allocation;
                let cause = if allocates { SpikeCause::Allocation } else { SpikeCause::FirstUse };
                times.add(cause, cold.ns, trace.names.get(cold.call));
            }
            let from = gap.0 + cold.map_or(0, |cold| cold.ns);
            let process = calls.process.get(call as usize);
            let collected = process.and_then(|process| self.collections.get(process));
            let mut now = from;
            let mut other = |from: Ns, to: Ns, times: &mut StepTimes| {
                let gc = collected.map_or(0, |set| set.overlap(from, to.max(from)));
                times.add(SpikeCause::GarbageCollection, gc, "the garbage collection of Python");
                if to - from > gc {
                    code.push(HostGap { thread, start: from + gc, end: to, waits: false });
                }
            };
            for row in (first..last).filter(|row| Some(calls.thread[*row]) == thread) {
                let (start, until) = (calls.start[row].max(now), calls.end[row].min(gap.1));
                if until <= start {
                    continue;
                }
                other(now, start, times);
                now = until;
                let name = trace.names.get(calls.name[row]);
                let cause = match calls.class[row] {
                    CallClass::Sync => {
                        waits.push((HostGap { thread, start, end: until, waits: true }, calls.name[row]));
                        continue;
                    }
                    CallClass::Copy => SpikeCause::HostCopy,
                    CallClass::Memory => SpikeCause::Allocation,
                    _ if name.contains("Alloc") || name.contains("Free") => SpikeCause::Allocation,
                    _ => SpikeCause::Call,
                };
                times.add(cause, until - start, name);
            }
            other(now, gap.1, times);
        }
        let kinds = host::kinds_in(trace, waits.iter().map(|(gap, _)| *gap).collect());
        let kinds = kinds.into_iter();
        let kinds = kinds.filter(|(kind, ..)| of_kind(*kind) != SpikeCause::Code && *kind != HostKind::Lock);
        let mut elsewhere = 0;
        for (kind, ns, what) in kinds {
            elsewhere += ns;
            times.add(of_kind(kind), ns, &what);
        }
        for (gap, name) in waits {
            let ns = gap.end - gap.start;
            let away = elsewhere.min(ns);
            elsewhere -= away;
            times.add(SpikeCause::Wait, ns - away, trace.names.get(name));
        }
        let mut unknown: Ns = code.iter().map(|gap| gap.end - gap.start).sum();
        for (kind, ns, what) in host::kinds_in(trace, code) {
            unknown -= ns;
            times.add(of_kind(kind), ns, &what);
        }
        times.add(SpikeCause::Unknown, unknown, "");
    }

    /// Returns the cause with most of the time that usual steps do not have.
    fn main(&self, step: &StepPeriod, times: &StepTimes, usual: &[StepTimes]) -> Option<Part> {
        let middle = |of: &dyn Fn(&StepTimes) -> Ns| {
            median(&mut usual.iter().map(of).collect::<Vec<Ns>>()).unwrap_or(0)
        };
        let beyond =
            |part: &Part| Part { ns: part.ns - middle(&|times| times.of_cause(part.cause)), ..part.clone() };
        let mut parts: Vec<Part> = times.parts.items.iter().map(beyond).collect();
        let mut kernels = Part { cause: SpikeCause::SlowKernels, ..Part::default() };
        let mut talks = Part { cause: SpikeCause::LateRank, ..Part::default() };
        let mut alone = false;
        for (name, (all, longest)) in &times.kernels {
            let of_name = |times: &StepTimes| times.kernels.get(name).copied().unwrap_or_default();
            let ns = all - middle(&|times| of_name(times).0);
            let text = self.trace().names.get(*name);
            let is_talk = family(text) == Family::Communication;
            let part = if is_talk { &mut talks } else { &mut kernels };
            part.ns += ns.max(0);
            if ns > part.most_ns || ns == part.most_ns && text < &part.what[..] {
                (part.what, part.most_ns) = (text.to_owned(), ns);
                if !is_talk {
                    alone = *longest > FAR_LONGER * middle(&|times| of_name(times).1) && 2 * longest >= ns;
                }
            }
        }
        if alone && 2 * kernels.most_ns >= kernels.ns {
            kernels.cause = SpikeCause::SlowKernel;
        } else if let Some((cause, what)) =
            step.span.and_then(|span| vitals::slower(self.trace(), &self.vitals, step.device, span))
        {
            (kernels.cause, kernels.what) = (cause, what);
        }
        parts.extend([kernels, talks]);
        // The order of a table of names must not decide.
        parts.into_iter().filter(|part| part.ns > 0).max_by_key(|part| (part.ns, part.cause as u8))
    }

    /// Returns what a recording needs so that an open cause is seen.
    fn missing(&self, cause: SpikeCause) -> Option<&'static str> {
        let trace = self.trace();
        match cause {
            SpikeCause::Unknown if trace.calls.is_empty() => Some("CUDA calls"),
            SpikeCause::Unknown if trace.stacks.is_empty() => Some("stacks of the CPU"),
            SpikeCause::SlowKernels if self.vitals.is_empty() => Some("vitals of the GPU"),
            _ => None,
        }
    }
}

/// Returns the cause that a kind of work of the CPU is.
fn of_kind(kind: HostKind) -> SpikeCause {
    match kind {
        HostKind::GarbageCollection => SpikeCause::GarbageCollection,
        HostKind::Lock => SpikeCause::Lock,
        HostKind::Descheduled => SpikeCause::Descheduled,
        _ => SpikeCause::Code,
    }
}
