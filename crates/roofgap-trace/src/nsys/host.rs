//! Stacks of the threads that call CUDA: samples of the CPU, calls into the system libraries, and the times at which the system did not
//! run a thread or nsys itself worked on it.

use super::identity::{Identity, Strings};
use crate::sqlite::{Tables, ints};
use crate::{
    FrameId, HostFrame, HostSample, HostSpan, NOT_RUNNING, NameId, Ns, ReadError, StackId, ThreadId, Trace,
};
use rustc_hash::{FxHashMap, FxHashSet};

/// Functions further out than this are left out of a stack.
const DEEPEST: i64 = 256;

/// Reads stacks. Those of threads without calls are left out: they launch nothing.
pub fn stacks(
    db: &impl Tables,
    strings: &Strings,
    who: &Identity,
    trace: &mut Trace,
) -> Result<(), ReadError> {
    let calling: FxHashSet<ThreadId> = trace.calls.thread.iter().copied().collect();
    let thread = |global: i64| who.known_thread(global as u64).filter(|id| calling.contains(id));
    let file = trace.names.intern("");
    db.each("OSRT_API", &["start", "end", "globalTid", "nameId"], |row| {
        if let Some([start, end, global, name]) = ints(row)
            && let (Some(thread), Some(function)) = (thread(global), strings.get(name))
            && start < end
        {
            let frame = trace.stacks.intern(HostFrame { function, file, line: 0 });
            trace.stacks.spans.push(HostSpan { thread, start, end, frame });
        }
    })?;
    db.each("PROFILER_OVERHEAD", &["start", "end", "globalTid"], |row| {
        if let Some([start, end, global]) = ints(row)
            && start < end
            && thread(global).is_some()
        {
            trace.profiler.push((start, end));
        }
    })?;
    let mut switches: Vec<(ThreadId, Ns, bool)> = Vec::new();
    db.each("SCHED_EVENTS", &["start", "isSchedIn", "globalTid"], |row| {
        if let Some([at, is_in, global]) = ints(row)
            && let Some(thread) = thread(global)
        {
            switches.push((thread, at, is_in != 0));
        }
    })?;
    switches.sort_unstable();
    let function = trace.names.intern(NOT_RUNNING);
    for pair in switches.windows(2) {
        if let [(thread, start, false), (same, end, true)] = *pair
            && thread == same
        {
            let frame = trace.stacks.intern(HostFrame { function, file, line: 0 });
            trace.stacks.spans.push(HostSpan { thread, start, end, frame });
        }
    }
    name_driver_calls(trace, file);
    samples(db, strings, thread, trace)
}

/// Names the call into CUDA for locks and waits inside it: they are those of the driver.
fn name_driver_calls(trace: &mut Trace, file: NameId) {
    let (calls, stacks) = (&trace.calls, &mut trace.stacks);
    let threads: FxHashSet<ThreadId> = stacks.spans.iter().map(|span| span.thread).collect();
    let mut by_thread: FxHashMap<ThreadId, Vec<(Ns, Ns, NameId)>> = FxHashMap::default();
    for row in (0..calls.len()).filter(|row| threads.contains(&calls.thread[*row])) {
        let call = (calls.start[row], calls.end[row], calls.name[row]);
        by_thread.entry(calls.thread[row]).or_default().push(call);
    }
    by_thread.values_mut().for_each(|calls| calls.sort_unstable());
    for at in 0..stacks.spans.len() {
        let HostSpan { thread, start, end, .. } = stacks.spans[at];
        let calls = by_thread.get(&thread).map_or(&[][..], |calls| calls);
        let before = calls.partition_point(|call| call.0 <= start);
        if let Some(call) = calls[..before].last().filter(|call| end <= call.1) {
            stacks.spans[at].frame = stacks.intern(HostFrame { function: call.2, file, line: 0 });
        }
    }
}

/// Reads the samples of some threads with their call chains.
fn samples(
    db: &impl Tables,
    strings: &Strings,
    thread: impl Fn(i64) -> Option<ThreadId>,
    trace: &mut Trace,
) -> Result<(), ReadError> {
    let mut rows: FxHashMap<i64, u32> = FxHashMap::default();
    db.each("COMPOSITE_EVENTS", &["id", "start", "globalTid"], |row| {
        if let Some([id, at, global]) = ints(row)
            && let Some(thread) = thread(global)
        {
            rows.insert(id, trace.stacks.samples.len() as u32);
            trace.stacks.samples.push(HostSample { thread, at, stack: StackId::default() });
        }
    })?;
    if rows.is_empty() {
        return Ok(());
    }
    // Sample, depth and function.
    let mut chains: Vec<(u32, u16, FrameId)> = Vec::new();
    let unresolved = trace.names.intern("[unresolved]");
    let columns = ["id", "symbol", "module", "stackDepth", "unresolved"];
    db.each("SAMPLING_CALLCHAINS", &columns, |row| {
        let name = |at: usize| row[at].int().and_then(|id| strings.get(id));
        let sample = row[0].int().and_then(|id| rows.get(&id));
        let depth = row[3].int().filter(|depth| (0..DEEPEST).contains(depth));
        let (Some(sample), Some(symbol), Some(depth)) = (sample, name(1), depth) else {
            return;
        };
        let function = if row[4].int().is_some_and(|flag| flag != 0) { unresolved } else { symbol };
        let file = name(2).unwrap_or(symbol);
        chains.push((*sample, depth as u16, trace.stacks.intern(HostFrame { function, file, line: 0 })));
    })?;
    chains.sort_unstable();
    for chain in chains.chunk_by(|a, b| a.0 == b.0) {
        let outermost_first = chain.iter().rev().map(|(_, _, frame)| *frame);
        let stack =
            outermost_first.fold(StackId::default(), |caller, frame| trace.stacks.call(caller, frame));
        if let Some(sample) = chain.first().and_then(|row| trace.stacks.samples.get_mut(row.0 as usize)) {
            sample.stack = stack;
        }
    }
    Ok(())
}
