//! Matrices and their arithmetic.
//!
//! Work is divided between threads by rows of the result, and each value is summed in one order, so a result is the same on any number of
//! threads.

use std::ops::Range;
use std::sync::Mutex;
use std::thread;

/// A matrix, row after row.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    pub columns: usize,
    pub values: Vec<f32>,
}

/// Some columns of a matrix.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    values: &'a [f32],
    stride: usize,
    width: usize,
}

impl Matrix {
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self { columns, values: vec![0.0; rows * columns] }
    }

    pub fn height(&self) -> usize {
        self.values.len() / self.columns.max(1)
    }

    pub fn rows(&self) -> std::slice::ChunksExact<'_, f32> {
        self.values.chunks_exact(self.columns.max(1))
    }

    pub fn rows_mut(&mut self) -> std::slice::ChunksExactMut<'_, f32> {
        self.values.chunks_exact_mut(self.columns.max(1))
    }

    pub fn view(&self) -> Columns<'_> {
        Columns { values: &self.values, stride: self.columns, width: self.columns }
    }

    /// Copies rows by their numbers; `None` gives a row of zeros.
    pub fn gather(&self, rows: impl IntoIterator<Item = Option<usize>>) -> Self {
        let mut values = Vec::new();
        for row in rows {
            match row {
                Some(row) => values.extend_from_slice(self.view().row(row)),
                None => values.resize(values.len() + self.columns, 0.0),
            }
        }
        Self { columns: self.columns, values }
    }

    /// Puts the rows of another matrix below.
    pub fn append(mut self, below: &Self) -> Self {
        self.values.extend_from_slice(&below.values);
        self
    }

    pub fn add(&mut self, other: &Self) {
        add_scaled(&mut self.values, 1.0, &other.values);
    }
}

impl<'a> Columns<'a> {
    fn row(&self, row: usize) -> &'a [f32] {
        self.values.get(row * self.stride..).and_then(|rest| rest.get(..self.width)).unwrap_or_default()
    }

    /// Returns `width` columns from `column` on, without the first rows.
    pub fn part(&self, row: usize, column: usize, width: usize) -> Self {
        let values = self.values.get(row * self.stride + column..).unwrap_or_default();
        Self { values, stride: self.stride, width }
    }
}

/// Calculations that are worth another thread: starting one takes about as long as a tenth of them.
const WORTH_A_THREAD: usize = 1 << 20;

/// Calls `run` with parts of `out`, each some whole rows of `width` values and the number of the first, on several threads where
/// there are as many calculations.
pub fn in_parallel(
    threads: usize,
    calculations: usize,
    out: &mut [f32],
    width: usize,
    run: impl Fn(usize, &mut [f32]) + Sync,
) {
    let threads = threads.min(calculations / WORTH_A_THREAD);
    if threads < 2 {
        return run(0, out);
    }
    let width = width.max(1);
    let rows = (out.len() / width).div_ceil(threads);
    let parts = Mutex::new(out.chunks_mut(rows.max(1) * width).enumerate());
    let next = || parts.lock().ok()?.next();
    let work = || {
        while let Some((index, part)) = next() {
            run(index * rows, part);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // What a thread that cannot be started would have done is left to the others.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

/// Rows of the second matrix that are multiplied at once, so that a result is read and written less often.
const TILE: usize = 8;

/// Multiplies `x` with a weight, which is stored as input by output.
pub fn product(threads: usize, x: &Matrix, weight: &Matrix) -> Matrix {
    let (rows, columns) = (x.height(), weight.columns);
    let mut out = Matrix::zeros(rows, columns);
    let calculations = rows * columns * x.columns;
    let (x, weight) = (x.view(), weight.view());
    // The columns of a single row are divided among threads, else the rows.
    let part_width = if rows == 1 { 1 } else { columns };
    in_parallel(threads, calculations, &mut out.values, part_width, |first, out| {
        if rows == 1 {
            multiply(x, weight.part(0, first, out.len()), out);
        } else {
            multiply(x.part(first, 0, x.width), weight, out);
        }
    });
    out
}

/// Adds the product of `x` and `y` to `out`.
fn multiply(x: Columns<'_>, y: Columns<'_>, out: &mut [f32]) {
    let last = x.width.saturating_sub(1);
    for first in (0..x.width).step_by(TILE) {
        // Beyond the last row it is taken again, with a factor of zero.
        let rows: [&[f32]; TILE] = std::array::from_fn(|row| y.row((first + row).min(last)));
        for (row, out) in out.chunks_exact_mut(y.width.max(1)).enumerate() {
            let mut factors = [0.0; TILE];
            for (factor, value) in factors.iter_mut().zip(x.row(row).iter().skip(first)) {
                *factor = *value;
            }
            add_rows(out, factors, rows);
        }
    }
}

/// Adds rows, each times a factor, to `out`. A plain loop over one index, which compilers turn into vector instructions.
fn add_rows(out: &mut [f32], x: [f32; TILE], rows: [&[f32]; TILE]) {
    let [a, b, c, d, e, f, g, h] = rows.map(|row| &row[..out.len()]);
    for (i, out) in out.iter_mut().enumerate() {
        let first = x[0] * a[i] + x[1] * b[i] + x[2] * c[i] + x[3] * d[i];
        let second = x[4] * e[i] + x[5] * f[i] + x[6] * g[i] + x[7] * h[i];
        *out += first + second;
    }
}

/// Adds `scale * values` to `to`.
pub fn add_scaled(to: &mut [f32], scale: f32, values: &[f32]) {
    for (to, value) in to.iter_mut().zip(values) {
        *to += scale * value;
    }
}

/// Computes attention, `softmax(q k / sqrt(width)) v` for each head, where `k` has a column for each key. `seen` gives the keys that a
/// row of `q` sees.
pub fn attend(
    threads: usize,
    heads: usize,
    [q, k, v]: [Columns<'_>; 3],
    rows: usize,
    seen: impl Fn(usize) -> Range<usize> + Sync,
) -> Matrix {
    let (width, head_width) = (q.width, q.width / heads.max(1));
    let mut out = Matrix::zeros(rows, width);
    let calculations = 2 * rows * width * seen(rows.saturating_sub(1)).len();
    in_parallel(threads, calculations, &mut out.values, width, |first, out| {
        let mut scores = Matrix::zeros(0, 0);
        for (row, out) in out.chunks_exact_mut(width.max(1)).enumerate() {
            let row = first + row;
            let keys = seen(row);
            scores.columns = keys.len();
            for (head, out) in out.chunks_exact_mut(head_width.max(1)).enumerate() {
                let column = head * head_width;
                scores.values.clear();
                scores.values.resize(keys.len(), 0.0);
                let q = q.part(row, column, head_width);
                multiply(q, k.part(column, keys.start, keys.len()), &mut scores.values);
                scores.values.iter_mut().for_each(|score| *score /= (head_width as f32).sqrt());
                softmax(&mut scores.values);
                multiply(scores.view(), v.part(keys.start, column, head_width), out);
            }
        }
    });
    out
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

/// Changes every value by itself.
pub fn each(threads: usize, mut x: Matrix, change: fn(f32) -> f32) -> Matrix {
    // An exponential takes about as long as sixteen multiplications.
    in_parallel(threads, 16 * x.values.len(), &mut x.values, 1, |_, part| {
        part.iter_mut().for_each(|value| *value = change(*value));
    });
    x
}

/// Divides rows by their root mean square.
pub fn norm(x: &Matrix, weight: &[f32]) -> Matrix {
    let mut out = x.clone();
    for row in out.rows_mut() {
        let square = row.iter().map(|v| v * v).sum::<f32>() / weight.len().max(1) as f32;
        let scale = 1.0 / (square + 1e-6).sqrt();
        row.iter_mut().zip(weight).for_each(|(value, weight)| *value *= scale * weight);
    }
    out
}

/// Computes GELU by its tanh approximation, with `tanh` written as one exponential.
pub fn gelu(x: f32) -> f32 {
    x / (1.0 + (-1.595_769 * (x + 0.044_715 * x * x * x)).exp())
}

/// Computes the gate of a gated network.
pub fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// Returns the indices of the `k` largest values, largest first, the earlier of equal ones.
pub fn top_k(values: &[f32], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
    order.truncate(k);
    order
}

/// Gives the tensors of a model one after another and counts them.
///
/// The values of a tensor depend on the seed and its place in the order alone.
#[derive(Debug)]
pub struct Source {
    seed: u64,
    tensors: u64,
    /// Number of values given so far.
    pub parameters: u64,
}

impl Source {
    /// Creates a source of random tensors.
    pub fn new(seed: u64) -> Self {
        Self { seed, tensors: 0, parameters: 0 }
    }

    /// Creates uniform values with a variance of one over the shorter side, which keeps activations moderate.
    pub fn matrix(&mut self, rows: usize, columns: usize) -> Matrix {
        self.tensors += 1;
        let bound = (3.0 / rows.min(columns).max(1) as f32).sqrt();
        let mut state = mix(self.seed ^ mix(self.tensors));
        let mut matrix = Matrix::zeros(rows, columns);
        matrix.values.fill_with(|| (unit(&mut state) * 2.0 - 1.0) * bound);
        self.parameters += matrix.values.len() as u64;
        matrix
    }

    /// Creates the weights of a norm.
    pub fn ones(&mut self, length: usize) -> Vec<f32> {
        self.parameters += length as u64;
        vec![1.0; length]
    }
}

/// Returns the next value in `0..1` of a SplitMix64 generator.
pub fn unit(state: &mut u64) -> f32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    // The top 24 bits are as many as an f32 holds exactly.
    (mix(*state) >> 40) as f32 / (1u32 << 24) as f32
}

/// Applies the finaliser of SplitMix64.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_divide_a_product_gives_the_product() {
        let mut source = Source::new(7);
        for (rows, columns) in [(1, 150), (2, 150), (63, 150), (200, 150), (1, 31_001)] {
            let (x, w) = (source.matrix(rows, 70), source.matrix(70, columns));
            let got = product(1, &x, &w);
            let naive = x.rows().flat_map(|x| {
                (0..columns).map(|at| x.iter().zip(w.rows()).map(|(x, w)| x * w[at]).sum::<f32>())
            });
            let worst =
                got.values.iter().zip(naive).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-5, "{rows} x {columns}: off by {worst}");
            for threads in [2, 3, 8] {
                assert_eq!(product(threads, &x, &w), got, "{rows} x {columns} on {threads} threads");
            }
        }
    }

    #[test]
    fn a_row_sees_no_key_after_its_own() {
        let mut source = Source::new(3);
        let (q, k, mut v) = (source.matrix(4, 8), source.matrix(8, 6), source.matrix(6, 8));
        let run = |v: &Matrix| attend(1, 2, [q.view(), k.view(), v.view()], 4, |row| 0..3 + row);
        let before = run(&v);
        v.values[4 * 8..5 * 8].fill(100.0);
        let after = run(&v);
        assert_eq!(before.values[..2 * 8], after.values[..2 * 8]);
        assert_ne!(before.values[2 * 8..], after.values[2 * 8..]);
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
    fn a_norm_leaves_unit_scale() {
        let normed = norm(&Matrix { columns: 4, values: vec![1.0, 2.0, 3.0, 4.0] }, &[1.0; 4]);
        assert!((normed.values.iter().map(|v| v * v).sum::<f32>() - 4.0).abs() < 1e-3);
    }
}
