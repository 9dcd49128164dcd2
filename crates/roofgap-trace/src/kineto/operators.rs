//! Operators that are joined with others: backward operators with their forward operators by autograd sequence number, and operators
//! whose shapes tell their work.

use super::rows::SequenceRow;
use crate::{BackwardLink, Trace};
use rustc_hash::FxHashMap;

/// Links each backward operator with the forward operator of its sequence number: the innermost, where all of that number are on one
/// thread.
pub fn link_backward(sequences: &[SequenceRow], trace: &mut Trace) {
    if sequences.iter().all(|row| !row.backward) {
        return;
    }
    let ops = &trace.cpu_ops;
    let mut forward: FxHashMap<u64, Option<usize>> = FxHashMap::default();
    for &SequenceRow { op, number, .. } in sequences.iter().filter(|row| !row.backward) {
        let known = forward.entry(number).or_insert(Some(op));
        let same_thread = known.filter(|known| ops.thread[*known] == ops.thread[op]);
        *known = same_thread.map(|known| if ops.start[op] > ops.start[known] { op } else { known });
    }
    for &SequenceRow { op, number, .. } in sequences.iter().filter(|row| row.backward) {
        if let Some(&Some(forward)) = forward.get(&number) {
            trace.backward.push(BackwardLink {
                thread: ops.thread[op],
                start: ops.start[op],
                end: ops.end[op],
                forward_thread: ops.thread[forward],
                forward_start: ops.start[forward],
                forward_end: ops.end[forward],
            });
        }
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
