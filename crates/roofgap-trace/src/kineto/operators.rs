//! Operators that are joined with others: backward operators with their forward operators by autograd sequence number, and operators
//! whose shapes tell their work.

use super::rows::{SequenceRow, ShapeRow};
use crate::{BackwardLink, NameId, ShapedOperator, Trace};
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

/// Operators that launch a kernel of known work themselves. None of them encloses another.
const OPERATORS: [&[u8]; 6] = [
    b"aten::mm",
    b"aten::addmm",
    b"aten::bmm",
    b"aten::_scaled_dot_product_flash_attention",
    b"aten::_scaled_dot_product_efficient_attention",
    b"aten::_scaled_dot_product_cudnn_attention",
];

/// The longest text of shapes that is kept, bytes.
const LONGEST: usize = 400;

/// Tells whether the shapes of an operator are kept.
pub fn has_kept_shapes(operator: &[u8], dims: &[u8]) -> bool {
    operator.starts_with(b"aten::") && OPERATORS.contains(&operator) && dims.len() <= LONGEST
}

/// Shapes of operators, by row in the trace.
#[derive(Debug, Default)]
pub struct Shapes(Vec<(usize, NameId, NameId)>);

impl Shapes {
    /// Adds the shapes of a block whose first operator has row `first`.
    pub fn add(&mut self, rows: &[ShapeRow], first: usize, mut name: impl FnMut(u32) -> NameId) {
        for row in rows {
            self.0.push((first + row.op, name(row.dims), name(row.types)));
        }
    }

    /// Adds the operators to the trace. Rows of operators are still those of the file.
    pub fn link(&self, trace: &mut Trace) {
        let ops = &trace.cpu_ops;
        let shaped = self.0.iter().filter_map(|&(op, dims, types)| {
            Some(ShapedOperator {
                thread: *ops.thread.get(op)?,
                start: *ops.start.get(op)?,
                end: *ops.end.get(op)?,
                name: *ops.name.get(op)?,
                dims,
                types,
            })
        });
        let shaped: Vec<ShapedOperator> = shaped.collect();
        trace.shaped.extend(shaped);
    }
}
