//! Self-attention of the vision towers, over the whole grid or inside windows.

use ndarray::{Array2, ArrayView2, Axis, s};
use rayon::prelude::*;

use super::layers::Linear;
use crate::exec::Exec;
use crate::ops;
use crate::source::Source;

/// Query rows that one task computes.
const ROWS: usize = 64;

/// Self-attention in which every token of a sequence sees every other.
#[derive(Debug)]
pub struct VisionAttention {
    qkv: Linear,
    out: Linear,
    heads: usize,
    position: Option<RelativePosition>,
}

impl VisionAttention {
    pub fn new(source: &mut Source, width: usize, heads: usize, side: Option<usize>) -> VisionAttention {
        VisionAttention {
            qkv: Linear::with_bias(source, width, 3 * width),
            out: Linear::with_bias(source, width, width),
            heads,
            position: side.map(|side| RelativePosition::new(source, side, width / heads)),
        }
    }

    /// Attends within each run of `length` rows of `x`.
    pub fn forward(&self, exec: &mut Exec<'_>, x: &Array2<f32>, length: usize) -> Array2<f32> {
        let qkv = self.qkv.forward(exec, x);
        let mixed = exec.op("attention", || self.attend(&qkv, length));
        self.out.forward(exec, &mixed)
    }

    fn attend(&self, qkv: &Array2<f32>, length: usize) -> Array2<f32> {
        let width = qkv.ncols() / 3;
        let head_width = width / self.heads;
        let mut out = Array2::zeros((qkv.nrows(), width));
        let mut tasks = Vec::new();
        for (sequence, out) in out.axis_chunks_iter_mut(Axis(0), length).enumerate() {
            for (head, out) in ops::parts(out, Axis(1), head_width).into_iter().enumerate() {
                for (block, out) in ops::parts(out, Axis(0), ROWS).into_iter().enumerate() {
                    tasks.push((sequence * length, head * head_width, block * ROWS, out));
                }
            }
        }
        tasks.into_par_iter().for_each(|(row, column, first, out)| {
            let part = |of: usize| {
                let from = of * width + column;
                qkv.slice(s![row..row + length, from..from + head_width])
            };
            let (q, k, v) = (part(0), part(1), part(2));
            let q = q.slice_move(s![first..first + out.nrows(), ..]);
            let bias = self.position.as_ref().map(|p| p.bias(q, first));
            ops::attend(q, k, v, bias.as_ref().map(|b| b.view()), None, out);
        });
        out
    }
}

/// SAM's position term: a learnt vector per row distance and per column distance, multiplied with the query.
#[derive(Debug)]
struct RelativePosition {
    side: usize,
    rows: Array2<f32>,
    columns: Array2<f32>,
}

impl RelativePosition {
    fn new(source: &mut Source, side: usize, head_width: usize) -> RelativePosition {
        RelativePosition {
            side,
            rows: source.matrix(2 * side - 1, head_width),
            columns: source.matrix(2 * side - 1, head_width),
        }
    }

    /// Computes the bias of the scores of queries `first..` against all keys of the grid.
    fn bias(&self, q: ArrayView2<'_, f32>, first: usize) -> Array2<f32> {
        let side = self.side;
        let mut bias = Array2::zeros((q.nrows(), side * side));
        let mut by_row = vec![0.0; side];
        let mut by_column = vec![0.0; side];
        for (i, (q, mut bias)) in q.rows().into_iter().zip(bias.rows_mut()).enumerate() {
            let (row, column) = ((first + i) / side, (first + i) % side);
            for (key, (r, c)) in by_row.iter_mut().zip(&mut by_column).enumerate() {
                *r = ops::dot(q, self.rows.row(row + side - 1 - key));
                *c = ops::dot(q, self.columns.row(column + side - 1 - key));
            }
            let keys = by_row.iter().flat_map(|r| by_column.iter().map(move |c| r + c));
            for (bias, value) in bias.iter_mut().zip(keys) {
                *bias = value;
            }
        }
        bias
    }
}

/// Cuts a grid of `side` squared tokens into windows, padded with zeros at the right and the bottom.
pub fn into_windows(x: &Array2<f32>, side: usize, window: usize) -> Array2<f32> {
    let mut out = Array2::zeros((padded_tokens(side, window), x.ncols()));
    for (token, row) in x.rows().into_iter().enumerate() {
        let place = window_place(token / side, token % side, side, window);
        out.row_mut(place).assign(&row);
    }
    out
}

/// Puts the windows back into the grid and drops the padding.
pub fn from_windows(windows: &Array2<f32>, side: usize, window: usize) -> Array2<f32> {
    let mut out = Array2::zeros((side * side, windows.ncols()));
    for (token, mut row) in out.rows_mut().into_iter().enumerate() {
        let place = window_place(token / side, token % side, side, window);
        row.assign(&windows.row(place));
    }
    out
}

fn padded_tokens(side: usize, window: usize) -> usize {
    let padded = side.div_ceil(window) * window;
    padded * padded
}

fn window_place(row: usize, column: usize, side: usize, window: usize) -> usize {
    let index = (row / window) * side.div_ceil(window) + column / window;
    (index * window + row % window) * window + column % window
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_come_back_as_the_grid_they_were_cut_from() {
        for (side, window) in [(8, 3), (8, 4), (5, 7)] {
            let grid = Array2::from_shape_fn((side * side, 2), |(i, j)| (2 * i + j + 1) as f32);
            let windows = into_windows(&grid, side, window);
            assert_eq!(windows.nrows() % (window * window), 0);
            assert_eq!(windows.sum(), grid.sum(), "padding is zero, nothing is lost");
            assert_eq!(from_windows(&windows, side, window), grid);
        }
    }

    #[test]
    fn a_window_holds_neighbours() {
        let grid = Array2::from_shape_fn((16, 1), |(i, _)| i as f32);
        let windows = into_windows(&grid, 4, 2);
        let second: Vec<f32> = windows.slice(s![4..8, 0]).to_vec();
        assert_eq!(second, [2.0, 3.0, 6.0, 7.0]);
    }

    #[test]
    fn position_depends_on_the_distance_alone() {
        let mut source = Source::seeded(5);
        let position = RelativePosition::new(&mut source, 3, 4);
        let q = Array2::from_elem((9, 4), 0.5);
        let bias = position.bias(q.view(), 0);
        // From (0,0) to (1,1), and from (1,1) to (2,2).
        assert_eq!(bias[[0, 4]], bias[[4, 8]]);
        assert_ne!(bias[[0, 4]], bias[[4, 0]]);
    }
}
