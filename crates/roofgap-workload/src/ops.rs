//! The arithmetic: pure functions over matrices, in parallel by blocks of a fixed size.
//!
//! A block never depends on how many threads there are, and every sum is done in one order, so a result is the same on any number of them.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, ArrayViewMut2, Axis};
use rayon::prelude::*;

/// Rows or columns of a product that one task computes.
const BLOCK: usize = 64;
/// From this many rows on, a product is split by rows, below it by columns.
const MANY_ROWS: usize = 2 * BLOCK;

/// Multiplies `x` with the transpose of `weight`, which is stored as output by input.
pub fn matmul(x: ArrayView2<'_, f32>, weight: ArrayView2<'_, f32>) -> Array2<f32> {
    let mut out = Array2::zeros((x.nrows(), weight.nrows()));
    if x.nrows() >= MANY_ROWS {
        out.axis_chunks_iter_mut(Axis(0), BLOCK)
            .into_par_iter()
            .zip(x.axis_chunks_iter(Axis(0), BLOCK))
            .for_each(|(mut out, x)| general_mat_mul(1.0, &x, &weight.t(), 0.0, &mut out));
    } else {
        out.axis_chunks_iter_mut(Axis(1), BLOCK)
            .into_par_iter()
            .zip(weight.axis_chunks_iter(Axis(0), BLOCK))
            .for_each(|(mut out, weight)| {
                if x.nrows() > 1 {
                    general_mat_mul(1.0, &x, &weight.t(), 0.0, &mut out);
                    return;
                }
                // One row touches every weight once: packing blocks of weights would only read them twice.
                for (out, row) in out.iter_mut().zip(weight.rows()) {
                    *out = dot(x.row(0), row);
                }
            });
    }
    out
}

/// Computes the inner product over lanes that a compiler can keep in vector registers.
pub fn dot(a: ArrayView1<'_, f32>, b: ArrayView1<'_, f32>) -> f32 {
    const LANES: usize = 32;
    let (Some(a), Some(b)) = (a.as_slice(), b.as_slice()) else {
        return a.dot(&b);
    };
    let mut sums = [0.0f32; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// Cuts a view along an axis into parts that can be written at once.
pub fn parts<'a>(mut rest: ArrayViewMut2<'a, f32>, axis: Axis, size: usize) -> Vec<ArrayViewMut2<'a, f32>> {
    let mut parts = Vec::new();
    while rest.len_of(axis) > size {
        let (part, after) = rest.split_at(axis, size);
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// Computes attention of some rows of one head: `out = softmax(scale * q k^T + bias) v`.
///
/// With `seen`, row `i` sees the first `seen + i` keys only.
pub fn attend(
    q: ArrayView2<'_, f32>,
    k: ArrayView2<'_, f32>,
    v: ArrayView2<'_, f32>,
    bias: Option<ArrayView2<'_, f32>>,
    seen: Option<usize>,
    mut out: ArrayViewMut2<'_, f32>,
) {
    let scale = 1.0 / (q.ncols() as f32).sqrt();
    let mut scores = Array2::zeros((q.nrows(), k.nrows()));
    general_mat_mul(scale, &q, &k.t(), 0.0, &mut scores);
    if let Some(bias) = bias {
        scores += &bias;
    }
    for (i, mut row) in scores.rows_mut().into_iter().enumerate() {
        let visible = seen.map_or(row.len(), |seen| (seen + i).min(row.len()));
        if let Some(row) = row.as_slice_mut() {
            let (visible, hidden) = row.split_at_mut(visible);
            softmax(visible);
            hidden.fill(0.0);
        }
    }
    general_mat_mul(1.0, &scores, &v, 0.0, &mut out);
}

/// Applies softmax in place.
pub fn softmax(values: &mut [f32]) {
    let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for value in values.iter_mut() {
        *value = (*value - most).exp();
        sum += *value;
    }
    for value in values {
        *value /= sum;
    }
}

/// Applies layer norm to every row.
pub fn layer_norm(x: &Array2<f32>, weight: &Array1<f32>, bias: &Array1<f32>) -> Array2<f32> {
    rows(x, |row| {
        let n = row.len().max(1) as f32;
        let mean = row.iter().sum::<f32>() / n;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / n;
        let scale = 1.0 / (variance + 1e-6).sqrt();
        for ((v, w), b) in row.iter_mut().zip(weight).zip(bias) {
            *v = (*v - mean) * scale * w + b;
        }
    })
}

/// Applies root-mean-square norm to every row.
pub fn rms_norm(x: &Array2<f32>, weight: &Array1<f32>) -> Array2<f32> {
    rows(x, |row| {
        let n = row.len().max(1) as f32;
        let square = row.iter().map(|v| v * v).sum::<f32>() / n;
        let scale = 1.0 / (square + 1e-6).sqrt();
        for (v, w) in row.iter_mut().zip(weight) {
            *v *= scale * w;
        }
    })
}

fn rows(x: &Array2<f32>, change: impl Fn(&mut [f32]) + Sync) -> Array2<f32> {
    let mut out = x.clone();
    out.axis_chunks_iter_mut(Axis(0), BLOCK).into_par_iter().for_each(|mut block| {
        for mut row in block.rows_mut() {
            if let Some(row) = row.as_slice_mut() {
                change(row);
            }
        }
    });
    out
}

/// Changes every value by itself.
pub fn each(x: &mut Array2<f32>, change: impl Fn(f32) -> f32 + Sync) {
    x.axis_chunks_iter_mut(Axis(0), BLOCK).into_par_iter().for_each(|mut block| block.mapv_inplace(&change));
}

/// Computes `silu(gate) * up` into `gate`.
pub fn gated(gate: &mut Array2<f32>, up: &Array2<f32>) {
    gate.zip_mut_with(up, |gate, up| *gate = *gate / (1.0 + (-*gate).exp()) * up);
}

/// Computes GELU by its tanh approximation, with `tanh` written as one exponential.
pub fn gelu(x: f32) -> f32 {
    x / (1.0 + (-1.595_769 * (x + 0.044_715 * x * x * x)).exp())
}

/// Computes the faster GELU that CLIP uses.
pub fn quick_gelu(x: f32) -> f32 {
    x / (1.0 + (-1.702 * x).exp())
}

/// Returns the index of the largest value, the first of equal ones.
pub fn argmax(values: ArrayView1<'_, f32>) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, &value) in values.iter().enumerate() {
        if value > best.1 {
            best = (i, value);
        }
    }
    best.0
}

/// Returns the indices of the `k` largest values, largest first, the earlier of equal ones.
pub fn top_k(values: &[f32], k: usize) -> Vec<usize> {
    let mut order: Vec<(usize, f32)> = values.iter().copied().enumerate().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    order.truncate(k);
    order.into_iter().map(|(place, _)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use ndarray::{array, s};

    fn naive(x: &Array2<f32>, w: &Array2<f32>) -> Array2<f32> {
        Array2::from_shape_fn((x.nrows(), w.nrows()), |(i, j)| {
            x.row(i).iter().zip(w.row(j)).map(|(a, b)| a * b).sum()
        })
    }

    #[test]
    fn every_way_to_split_a_product_gives_the_product() {
        let mut source = Source::seeded(7);
        let w = source.matrix(150, 70);
        for rows in [1, 2, 63, 64, 127, 128, 200] {
            let x = source.matrix(rows, 70);
            let (got, want) = (matmul(x.view(), w.view()), naive(&x, &w));
            let worst = (&got - &want).mapv(f32::abs).into_iter().fold(0.0, f32::max);
            assert!(worst < 1e-5, "{rows} rows: off by {worst}");
        }
    }

    #[test]
    fn a_row_sees_no_key_after_its_own() {
        let mut source = Source::seeded(3);
        let (q, k, mut v) = (source.matrix(4, 8), source.matrix(6, 8), source.matrix(6, 8));
        let run = |v: &Array2<f32>| {
            let mut out = Array2::zeros((4, 8));
            attend(q.view(), k.view(), v.view(), None, Some(3), out.view_mut());
            out
        };
        let before = run(&v);
        v.row_mut(4).fill(100.0);
        let after = run(&v);
        assert_eq!(before.slice(s![..2, ..]), after.slice(s![..2, ..]));
        assert_ne!(before.row(2), after.row(2));
    }

    #[test]
    fn softmax_sums_to_one_and_keeps_order() {
        let mut values = [1.0, 3.0, 2.0, -50.0];
        softmax(&mut values);
        assert!((values.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!(values[1] > values[2] && values[2] > values[0] && values[0] > values[3]);
    }

    #[test]
    fn top_k_gives_the_largest_and_the_earlier_of_equals() {
        assert_eq!(top_k(&[0.1, 0.5, 0.5, 0.9, 0.2], 3), [3, 1, 2]);
        assert_eq!(argmax(array![0.1, 0.9, 0.9].view()), 1);
    }

    #[test]
    fn gelu_is_the_usual_approximation() {
        for x in [-4.0f32, -1.0, -0.1, 0.0, 0.3, 1.0, 5.0] {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            let want = 0.5 * x * (1.0 + inner.tanh());
            assert!((gelu(x) - want).abs() < 1e-5, "{x}: {} {want}", gelu(x));
        }
    }

    #[test]
    fn norms_leave_unit_scale() {
        let x = array![[1.0, 2.0, 3.0, 4.0]];
        let one = Array1::ones(4);
        let normed = layer_norm(&x, &one, &Array1::zeros(4));
        assert!(normed.sum().abs() < 1e-5);
        assert!((normed.mapv(|v| v * v).sum() - 4.0).abs() < 1e-3);
        assert!((rms_norm(&x, &one).mapv(|v| v * v).sum() - 4.0).abs() < 1e-3);
    }
}
