//! Backward operators, joined with their forward operators by autograd sequence number.

use super::rows::SequenceRow;
use crate::{BackwardLink, Trace};
use rustc_hash::FxHashMap;

/// Sequence numbers of operators, by row in the trace.
#[derive(Debug, Default)]
pub struct Sequences {
    forward: Vec<(u64, usize)>,
    backward: Vec<(u64, usize)>,
}

impl Sequences {
    /// Adds the numbers of a block whose first operator has row `first`.
    pub fn add(&mut self, rows: &[SequenceRow], first: usize) {
        for row in rows {
            let list = match row.backward {
                true => &mut self.backward,
                false => &mut self.forward,
            };
            list.push((row.number, first + row.op));
        }
    }

    /// Adds the links to the trace. Rows of operators are still those of the file.
    pub fn link(&self, trace: &mut Trace) {
        if self.backward.is_empty() {
            return;
        }
        let ops = &trace.cpu_ops;
        // Operators that call one another share a number. Every thread counts by itself, so a number of two threads says nothing.
        let mut forward: FxHashMap<u64, Option<usize>> = FxHashMap::default();
        for &(number, op) in &self.forward {
            let known = forward.entry(number).or_insert(Some(op));
            *known = known.filter(|known| ops.thread[*known] == ops.thread[op]).map(|known| {
                match ops.start[op] > ops.start[known] {
                    true => op,
                    false => known,
                }
            });
        }
        let links = self.backward.iter().filter_map(|(number, op)| {
            let forward = (*forward.get(number)?)?;
            Some(BackwardLink {
                thread: ops.thread[*op],
                start: ops.start[*op],
                end: ops.end[*op],
                forward_thread: ops.thread[forward],
                forward_start: ops.start[forward],
                forward_end: ops.end[forward],
            })
        });
        let links: Vec<BackwardLink> = links.collect();
        trace.backward.extend(links);
    }
}
