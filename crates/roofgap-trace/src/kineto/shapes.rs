//! Operators whose shapes tell their work: matrix products and attention.

use super::rows::ShapeRow;
use crate::{NameId, ShapedOperator, Trace};

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
pub fn is_kept(operator: &[u8], dims: &[u8]) -> bool {
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
