//! Calls that a program makes once: they load code, capture graphs, create contexts or allocate memory.

use super::interval::IntervalSet;
use crate::attribution::NO_CALL;
use crate::result::ColdKind;
use roofgap_trace::{CallClass, NameId, Ns, OpKind, ProcessId, ThreadId, Trace};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::LazyLock;

/// Shortest call that a program makes once, ns.
pub const LONG_LAUNCH_NS: Ns = 1_000_000;

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

/// Calls that a program makes once: their kind, the time from which on they count, ns, and the beginnings of their names without `cuda`,
/// `cu` or `hip`.
static ONCE: LazyLock<Vec<(&str, ColdKind, Ns)>> = LazyLock::new(|| {
    let row = |line: &'static str| {
        let (kind, rest) = line.split_once('\t')?;
        let (least, names) = rest.split_once('\t')?;
        let least = least.parse().ok()?;
        let kind = match kind {
            "code" => ColdKind::ModuleLoad,
            "graph" => ColdKind::GraphInstantiation,
            _ => ColdKind::Allocation,
        };
        Some(names.split(' ').map(move |name| (name, kind, least)))
    };
    include_str!("once.tsv").lines().filter_map(row).flatten().collect()
});

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

impl ColdCalls {
    /// Collects them from a trace, and the times in which threads allocate or free memory again and again, which is not cold.
    pub fn collect(trace: &Trace, call_of_op: &[u32]) -> (Self, FxHashMap<ThreadId, IntervalSet>) {
        let calls = &trace.calls;
        let mut kinds: FxHashMap<NameId, (ColdKind, Ns)> =
            trace.names.iter().filter_map(|(id, name)| Some((id, kind_of_call(name)?))).collect();
        let allocating = repeated_allocations(trace, &mut kinds);
        let mut cold = Self::default();
        if !kinds.is_empty() {
            let columns = calls.name.iter().zip(&calls.start).zip(&calls.end).zip(&calls.thread);
            for (((name, start), end), thread) in columns {
                if let Some((kind, _)) = kinds.get(name).filter(|(_, least)| end - start >= *least) {
                    let thread_calls: &mut Vec<(Ns, Ns, ColdKind, NameId)> =
                        cold.threads.entry(*thread).or_default();
                    let early = if *kind == ColdKind::GraphInstantiation { BEFORE_CAPTURE_NS } else { 0 };
                    let after = thread_calls.last().map_or(Ns::MIN, |before| before.1).min(*start);
                    thread_calls.push(((start - early).max(after), *end, *kind, *name));
                }
            }
        }
        let mut seen = FxHashSet::default();
        for (op, call) in call_of_op.iter().enumerate() {
            let name = trace.ops.name.get(op).filter(|_| trace.ops.kind.get(op) == Some(&OpKind::Kernel));
            let Some(name) = name else { continue };
            let (row, first) = (*call as usize, seen.insert(*name));
            let least = if first { FIRST_LAUNCH_NS } else { VERY_LONG_LAUNCH_NS };
            if let (Some(start), Some(end)) = (calls.start.get(row), calls.end.get(row))
                && end - start > least
                && matches!(calls.class.get(row), Some(CallClass::Launch | CallClass::GraphLaunch))
            {
                cold.launches.insert(*call);
            }
            let text = trace.names.get(*name);
            let alone = calls.class.get(row) == Some(&CallClass::Launch);
            if first && alone && COMPILED.iter().any(|begin| text.starts_with(begin)) {
                cold.compiled.insert(*call);
            }
        }
        (cold, allocating)
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
        let calls_of_thread = self.threads.get(calls.thread.get(row)?).map_or(&[][..], Vec::as_slice);
        let first = calls_of_thread.partition_point(|(_, end, ..)| *end <= gap.0);
        let last = calls_of_thread.partition_point(|(start, ..)| *start < until);
        let inside = calls_of_thread.get(first..last.max(first)).unwrap_or_default();
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

/// The cold part of a gap.
#[derive(Debug, Clone, Copy)]
pub struct ColdPart {
    pub ns: Ns,
    pub kind: ColdKind,
    /// Call with the most time.
    pub call: NameId,
    /// Part of it with which the gap begins, ns.
    pub covered_ns: Ns,
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

#[cfg(test)]
mod tests {
    use super::*;

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
