//! Work that repeats in a trace whose steps nothing marks: a kernel that comes again after the same number of kernels.

use crate::attribution::NO_CALL;
use crate::stages::StageIndex;
use roofgap_base::stats::median;
use roofgap_trace::{NameId, Ns, OpKind, Trace};

/// Fewest repetitions, and fewest kernels of one.
const LEAST_REPEATS: usize = 4;
const LEAST_KERNELS: usize = 8;

/// Least operations of a repetition that is a whole pass, not a layer, and the fewest repetitions of it.
pub const LEAST_PASS: usize = 200;
const LEAST_PASSES: usize = 2;

/// Most repetitions at the beginning that are slow because they are the first.
const MOST_COLD: usize = 3;

/// Occurrences of a kernel.
#[derive(Clone, Copy, Default)]
struct Seen {
    count: usize,
    last: usize,
    /// Kernels from the last occurrence but one to the last.
    gap: usize,
    /// Number of gaps that equal the one before.
    same: usize,
}

/// Returns the time at which the CPU began the work that repeats until near the end of the trace, and how many operations a repetition
/// has; `None` where nothing shows it, or where the GPU computes for half of the time before it. Kernels show it better than copies.
pub fn repeated_from(trace: &Trace, index: &StageIndex) -> Option<(Ns, usize)> {
    let runs = |kind| matches!(kind, OpKind::Kernel | OpKind::Graph);
    repeated(trace, index, runs).or_else(|| repeated(trace, index, |_| true))
}

fn repeated(trace: &Trace, index: &StageIndex, counts: fn(OpKind) -> bool) -> Option<(Ns, usize)> {
    let ops = &trace.ops;
    let rows: Vec<usize> = (0..ops.len()).filter(|row| counts(ops.kind[*row])).collect();
    let device = ops.device[*rows.get(rows.len() / 2)?];
    let rows: Vec<usize> = rows.into_iter().filter(|row| ops.device[*row] == device).collect();
    let name = |at: usize| ops.name[rows[at]];
    let period = longest_period(rows.iter().map(|row| ops.name[*row]), trace.names.len())?;
    let repeats = |at: &usize| name(*at) == name(at + period);
    let last = rows.len().checked_sub(period)?;
    // A whole period that comes again shows the repetition. It began where the kernels before are the same, too.
    let mut length = 0;
    let shown = (0..last).find(|at| {
        length = if repeats(at) { length + 1 } else { 0 };
        length == period
    })?;
    let first = shown + 1 - period;
    let start = |at: usize| ops.start[rows[at]];
    let mut units: Vec<Ns> = (first..last).step_by(period).map(|at| start(at + period) - start(at)).collect();
    let distances = units.len();
    // The last one shows how long the others should take, too.
    let end = first + (distances + 1) * period;
    units.extend(rows.get(end - 1).map(|row| ops.end[*row] - start(end - period)));
    let usual = median(&mut units.clone())?;
    let cold = units.iter().take(MOST_COLD).take_while(|ns| **ns > 2 * usual).count();
    let known = if cold > 0 { units.len() } else { distances };
    if known < cold + if period >= LEAST_PASS { LEAST_PASSES } else { LEAST_REPEATS } {
        return None;
    }
    let (begin, first) = (start(0), first + cold * period);
    let computed: Ns = rows[..first].iter().map(|row| ops.duration(*row)).sum();
    let call = index.call_of_op(rows[first]);
    let launched = if call == NO_CALL { None } else { trace.calls.start.get(call as usize) };
    (2 * computed < start(first) - begin).then(|| (launched.copied().unwrap_or(start(first)), period))
}

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

/// Returns the number of kernels after which most of a sequence repeats, the largest where several do.
fn longest_period(names: impl Iterator<Item = NameId>, known: usize) -> Option<usize> {
    let mut seen = vec![Seen::default(); known];
    let mut length = 0;
    for (at, name) in names.enumerate() {
        length = at + 1;
        let Some(kernel) = seen.get_mut(name.index()) else {
            continue;
        };
        let gap = at - kernel.last;
        kernel.same += usize::from(kernel.count > 1 && gap == kernel.gap);
        *kernel = Seen { count: kernel.count + 1, last: at, gap, ..*kernel };
    }
    let regular = |kernel: &&Seen| {
        kernel.gap >= LEAST_KERNELS
            && kernel.same >= if kernel.gap >= LEAST_PASS { LEAST_PASSES - 1 } else { LEAST_REPEATS - 2 }
            && kernel.same * 3 >= (kernel.count - 2) * 2
            && 2 * kernel.gap * (kernel.same + 1) >= length
    };
    seen.iter().filter(regular).map(|kernel| kernel.gap).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_repetition_counts() {
        let id = |name: usize| NameId(name as u32);
        // Start-up, then five steps of three layers of ten kernels each, between a first and a last kernel.
        let layer = || (3..13).map(id);
        let step = || [id(1)].into_iter().chain((0..3).flat_map(move |_| layer())).chain([id(2)]);
        let start_up = || (20..40).map(id);
        let all = || start_up().chain((0..5).flat_map(move |_| step()));
        assert_eq!(longest_period(all(), 40), Some(32));
        assert_eq!(longest_period(start_up(), 40), None);
        assert_eq!(longest_period(start_up().chain(step()), 40), None);
        // Three of a whole pass show it, three of a layer do not.
        let three = |kernels: usize| longest_period((0..3).flat_map(|_| (0..kernels).map(id)), kernels);
        assert_eq!((three(LEAST_PASS), three(LEAST_PASS - 1)), (Some(LEAST_PASS), None));
    }
}
