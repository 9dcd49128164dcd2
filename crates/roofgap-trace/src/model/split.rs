//! One rank out of a trace that holds several, such as an nsys report of a launcher and its processes.

use super::order::Order;
use super::{ProcessId, Trace};

impl Trace {
    /// Lists the ranks of a trace that holds several, in order; empty for any other.
    pub fn ranks(&self) -> Vec<u32> {
        let mut ranks: Vec<u32> = self.process_ranks.iter().filter_map(|(_, job)| job.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Copies a trace with the events of one of its ranks only. Processes, threads, names and losses stay.
    pub fn of_rank(&self, rank: u32) -> Self {
        let of_rank = self.process_ranks.iter().filter(|(_, job)| job.rank == Some(rank));
        let processes: Vec<ProcessId> = of_rank.clone().map(|(process, _)| *process).collect();
        let mut own = self.clone();
        own.distributed = of_rank.map(|(_, job)| job.clone()).next();
        own.process_ranks.clear();
        own.keep_processes(|process| processes.contains(&process));
        own
    }

    /// Copies a trace with the events of the processes that tell no rank, of a trace that holds several.
    pub fn without_ranks(&self) -> Self {
        let mut own = self.clone();
        own.distributed = None;
        own.process_ranks.clear();
        own.keep_processes(|process| self.process_ranks.iter().all(|(known, _)| *known != process));
        own
    }

    fn keep_processes(&mut self, keep: impl Fn(ProcessId) -> bool) {
        let rows = |keeps: &mut dyn Iterator<Item = bool>| {
            let rows = keeps.zip(0_u32..).filter_map(|(keep, row)| keep.then_some(row));
            Order::All(rows.collect())
        };
        let process_of =
            |thread: super::ThreadId| self.threads.get(thread.index()).map(|thread| thread.process);
        let ops = rows(&mut self.ops.process.iter().map(|process| keep(*process)));
        let calls = rows(&mut self.calls.process.iter().map(|process| keep(*process)));
        let cpu_ops =
            rows(&mut self.cpu_ops.thread.iter().map(|thread| process_of(*thread).is_some_and(&keep)));
        let marks = |mark: &super::Mark| process_of(mark.thread).is_some_and(&keep);
        self.ranges.marks.retain(marks);
        self.ops.take(&ops);
        self.calls.take(&calls);
        self.cpu_ops.take(&cpu_ops);
        let ranges = &mut self.ranges;
        let mut new_row = Vec::with_capacity(ranges.rows.len());
        let mut kept = 0_u32;
        for range in &ranges.rows {
            let keep = keep(range.process);
            new_row.push(keep.then_some(kept));
            kept += u32::from(keep);
        }
        ranges.rows.retain(|range| keep(range.process));
        ranges.collectives.retain_mut(|collective| match new_row.get(collective.row as usize) {
            Some(Some(row)) => {
                collective.row = *row;
                true
            }
            _ => false,
        });
        self.recorded.retain(|recorded| keep(recorded.process));
    }
}
