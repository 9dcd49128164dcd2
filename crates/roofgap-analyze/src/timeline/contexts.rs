//! From a call to the ranges that enclose it on its thread.
//!
//! Calls between two edges of ranges share the same set of enclosing ranges. Such a set is a context; a call holds the number
//! of its context, so the cost does not grow with how deep ranges nest.

use super::launches::NO_CALL;
use roofgap_trace::{Ns, ThreadId, Trace};

/// Stands for "this call launched nothing".
const NO_CONTEXT: u32 = u32::MAX;

/// For each call that launched something the set of ranges that enclose it.
#[derive(Debug, Default)]
pub struct Contexts {
    /// Context of each row in `Trace::calls`; [`NO_CONTEXT`] for calls that launched nothing.
    pub of_call: Vec<u32>,
    /// Rows in `Trace::ranges`, outermost first, of each context.
    members: Vec<u32>,
    offsets: Vec<usize>,
}

impl Contexts {
    /// The ranges of a context, outermost first.
    pub fn ranges(&self, context: u32) -> &[u32] {
        let at = context as usize;
        match (self.offsets.get(at), self.offsets.get(at + 1)) {
            (Some(&from), Some(&to)) => self.members.get(from..to).unwrap_or(&[]),
            _ => &[],
        }
    }

    /// The context of a call; [`NO_CONTEXT`] for no call.
    pub fn of(&self, call: u32) -> u32 {
        self.of_call.get(call as usize).copied().unwrap_or(NO_CONTEXT)
    }

    /// Returns the number of contexts.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Tells whether there is no context.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sweeps over calls and ranges thread by thread. `call_of_op` says which calls launched something.
    pub fn build(trace: &Trace, call_of_op: &[u32]) -> Self {
        let mut launched = vec![false; trace.calls.len()];
        for &call in call_of_op {
            if call != NO_CALL
                && let Some(flag) = launched.get_mut(call as usize)
            {
                *flag = true;
            }
        }
        let mut found = Self {
            of_call: vec![NO_CONTEXT; trace.calls.len()],
            members: Vec::new(),
            offsets: vec![0],
        };
        let threads = trace.threads.len();
        let calls = by_thread(
            threads,
            launched
                .iter()
                .enumerate()
                .filter(|(_, l)| **l)
                .map(|(row, _)| row),
            |row| trace.calls.thread[row],
        );
        let ranges = ranges_by_thread(trace, threads);
        for (calls, ranges) in calls.iter().zip(&ranges) {
            found.sweep(trace, calls, ranges);
        }
        found
    }

    /// One thread: calls and ranges are both in the order of their start.
    fn sweep(&mut self, trace: &Trace, calls: &[u32], ranges: &[u32]) {
        let rows = &trace.ranges.rows;
        let mut active: Vec<u32> = Vec::new();
        let mut next = 0;
        let mut current = None;
        let mut first_end = Ns::MAX;
        for &call in calls {
            let (start, end) = (trace.calls.start[call as usize], trace.calls.end[call as usize]);
            while let Some(&range) = ranges.get(next)
                && rows[range as usize].start <= start
            {
                active.push(range);
                first_end = first_end.min(rows[range as usize].end);
                next += 1;
                current = None;
            }
            if first_end < start {
                active.retain(|&r| rows[r as usize].end >= start);
                first_end = active
                    .iter()
                    .map(|&r| rows[r as usize].end)
                    .min()
                    .unwrap_or(Ns::MAX);
                current = None;
            }
            // A call that outlasts a range is not enclosed by it, though the next call might be by an equal set.
            let context = if first_end < end {
                self.add(active.iter().copied().filter(|&r| rows[r as usize].end >= end))
            } else {
                *current.get_or_insert_with(|| self.add(active.iter().copied()))
            };
            self.of_call[call as usize] = context;
        }
    }

    fn add(&mut self, members: impl Iterator<Item = u32>) -> u32 {
        self.members.extend(members);
        self.offsets.push(self.members.len());
        self.offsets.len() as u32 - 2
    }
}

fn by_thread(
    threads: usize,
    rows: impl Iterator<Item = usize>,
    thread: impl Fn(usize) -> ThreadId,
) -> Vec<Vec<u32>> {
    let mut lists = vec![Vec::new(); threads];
    for row in rows {
        if let Some(list) = lists.get_mut(thread(row).index()) {
            list.push(row as u32);
        }
    }
    lists
}

/// Ranges of each thread in the order of their start. One that was closed on another thread belongs to both.
fn ranges_by_thread(trace: &Trace, threads: usize) -> Vec<Vec<u32>> {
    let mut lists: Vec<Vec<u32>> = vec![Vec::new(); threads];
    for (row, range) in trace.ranges.rows.iter().enumerate() {
        if let Some(list) = lists.get_mut(range.thread.index()) {
            list.push(row as u32);
        }
        if range.end_thread != range.thread
            && let Some(list) = lists.get_mut(range.end_thread.index())
        {
            list.push(row as u32);
        }
    }
    lists
}
