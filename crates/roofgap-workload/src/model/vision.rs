//! The vision towers: SAM-like and CLIP-like transformers over the patches of an image.

use ndarray::{Array2, ArrayView2, Axis, s};
use rayon::prelude::*;

use super::{Linear, Mlp, Norm};
use crate::exec::Exec;
use crate::ops;
use crate::props::{MLP_RATIO, Shape, TowerShape};
use crate::source::{CHANNELS, Image, Source};

/// The SAM-like tower: patches, windowed and global attention, and convolutions that shrink the grid.
#[derive(Debug)]
pub struct Sam {
    patch: usize,
    grid: usize,
    embed: Linear,
    position: Array2<f32>,
    blocks: Vec<Block>,
    neck: Neck,
}

#[derive(Debug)]
struct Neck {
    narrow: Linear,
    norm1: Norm,
    smooth: Convolution,
    norm2: Norm,
    halve: [Convolution; 2],
}

impl Sam {
    pub fn new(source: &mut Source, shape: &Shape) -> Self {
        let sam = &shape.sam;
        let (width, grid) = (sam.tower.width, shape.grid());
        Self {
            patch: sam.patch,
            grid,
            embed: Linear::with_bias(source, CHANNELS * sam.patch * sam.patch, width),
            position: source.matrix(grid * grid, width),
            blocks: (0..sam.tower.layers)
                .map(|layer| {
                    let window = (!sam.global_layers.contains(&layer)).then_some(sam.window);
                    let side = Some(window.unwrap_or(grid));
                    Block::new(source, &sam.tower, side, window, ops::gelu)
                })
                .collect(),
            neck: Neck {
                narrow: Linear::new(source, width, sam.neck),
                norm1: Norm::layer(source, sam.neck),
                smooth: Convolution::new(source, sam.neck, sam.neck, 1),
                norm2: Norm::layer(source, sam.neck),
                halve: [
                    Convolution::new(source, sam.neck, sam.halved, 2),
                    Convolution::new(source, sam.halved, shape.clip.width, 2),
                ],
            },
        }
    }

    /// Computes a token per cell of the reduced grid, as wide as the CLIP-like tower.
    pub fn forward(&self, exec: &mut Exec<'_>, image: &Image) -> Array2<f32> {
        let patches = exec.op("patches", || image.patches(self.patch));
        let mut x = self.embed.forward(exec, &patches);
        exec.op("add", || x += &self.position);
        for block in &self.blocks {
            x = block.forward(exec, x, self.grid);
        }
        let x = self.neck.narrow.forward(exec, &x);
        let x = self.neck.norm1.forward(exec, &x);
        let x = self.neck.smooth.forward(exec, &x, self.grid);
        let mut x = self.neck.norm2.forward(exec, &x);
        let mut side = self.grid;
        for halve in &self.neck.halve {
            x = halve.forward(exec, &x, side);
            side = side.div_ceil(2);
        }
        x
    }
}

/// A 3 x 3 convolution with one cell of padding, as a product over unfolded neighbourhoods.
#[derive(Debug)]
struct Convolution {
    weight: Array2<f32>,
    stride: usize,
}

impl Convolution {
    const SIDE: usize = 3;

    fn new(source: &mut Source, input: usize, output: usize, stride: usize) -> Self {
        Self { weight: source.matrix(output, input * Self::SIDE * Self::SIDE), stride }
    }

    fn forward(&self, exec: &mut Exec<'_>, x: &Array2<f32>, side: usize) -> Array2<f32> {
        exec.op("convolution", || {
            let unfolded = unfold(x, side, self.stride);
            ops::matmul(unfolded.view(), self.weight.view())
        })
    }
}

/// Unfolds the nine cells around each output cell into a row; cells outside the grid are zero.
fn unfold(x: &Array2<f32>, side: usize, stride: usize) -> Array2<f32> {
    let channels = x.ncols();
    let out_side = side.div_ceil(stride);
    let mut out = Array2::zeros((out_side * out_side, 9 * channels));
    for (cell, mut row) in out.rows_mut().into_iter().enumerate() {
        let (top, left) = (cell / out_side * stride, cell % out_side * stride);
        for place in 0..9 {
            // One cell of padding: the neighbourhood starts one above and one to the left.
            let (y, x_at) = (top + place / 3, left + place % 3);
            if (1..=side).contains(&y) && (1..=side).contains(&x_at) {
                let from = place * channels;
                row.slice_mut(s![from..from + channels]).assign(&x.row((y - 1) * side + x_at - 1));
            }
        }
    }
    out
}

/// The CLIP-like tower, over the tokens the SAM-like one leaves.
#[derive(Debug)]
pub struct Clip {
    class: Array2<f32>,
    position: Array2<f32>,
    norm: Norm,
    blocks: Vec<Block>,
}

impl Clip {
    pub fn new(source: &mut Source, shape: &Shape) -> Self {
        let width = shape.clip.width;
        let tokens = shape.vision_grid() * shape.vision_grid();
        Self {
            class: source.matrix(1, width),
            position: source.matrix(tokens + 1, width),
            norm: Norm::layer(source, width),
            blocks: (0..shape.clip.layers)
                .map(|_| Block::new(source, &shape.clip, None, None, ops::quick_gelu))
                .collect(),
        }
    }

    /// Computes a token for each input token; the class token is dropped at the end.
    pub fn forward(&self, exec: &mut Exec<'_>, tokens: &Array2<f32>) -> Array2<f32> {
        let mut x = exec.op("add", || {
            let mut x = self.position.clone();
            x.slice_mut(s![..1, ..]).scaled_add(1.0, &self.class);
            x.slice_mut(s![1.., ..]).scaled_add(1.0, tokens);
            x
        });
        x = self.norm.forward(exec, &x);
        for block in &self.blocks {
            x = block.forward(exec, x, 0);
        }
        x.slice_move(s![1.., ..])
    }
}

/// A layer of a vision transformer.
#[derive(Debug)]
struct Block {
    /// Side of its attention windows; `None` attends over the whole grid.
    window: Option<usize>,
    norm1: Norm,
    attention: VisionAttention,
    norm2: Norm,
    mlp: Mlp,
}

impl Block {
    /// Creates a layer. `side` is that of the grid of its relative positions, if it has any.
    fn new(
        source: &mut Source,
        tower: &TowerShape,
        side: Option<usize>,
        window: Option<usize>,
        activation: fn(f32) -> f32,
    ) -> Self {
        let width = tower.width;
        Self {
            window,
            norm1: Norm::layer(source, width),
            attention: VisionAttention::new(source, width, tower.heads, side),
            norm2: Norm::layer(source, width),
            mlp: Mlp::new(source, width, MLP_RATIO * width, activation),
        }
    }

    /// Computes the tokens of a grid with `grid` tokens per side.
    fn forward(&self, exec: &mut Exec<'_>, mut x: Array2<f32>, grid: usize) -> Array2<f32> {
        let normed = self.norm1.forward(exec, &x);
        let mixed = match self.window {
            Some(window) => {
                let windows = exec.op("window", || into_windows(&normed, grid, window));
                let mixed = self.attention.forward(exec, &windows, window * window);
                exec.op("window", || from_windows(&mixed, grid, window))
            }
            None => self.attention.forward(exec, &normed, normed.nrows()),
        };
        exec.op("add", || x += &mixed);
        let normed = self.norm2.forward(exec, &x);
        let changed = self.mlp.forward(exec, &normed);
        exec.op("add", || x += &changed);
        x
    }
}

/// Query rows that one task computes.
const ROWS: usize = 64;

/// Self-attention in which every token of a sequence sees every other.
#[derive(Debug)]
struct VisionAttention {
    qkv: Linear,
    out: Linear,
    heads: usize,
    position: Option<RelativePosition>,
}

impl VisionAttention {
    fn new(source: &mut Source, width: usize, heads: usize, side: Option<usize>) -> Self {
        Self {
            qkv: Linear::with_bias(source, width, 3 * width),
            out: Linear::with_bias(source, width, width),
            heads,
            position: side.map(|side| RelativePosition::new(source, side, width / heads)),
        }
    }

    /// Attends within each run of `length` rows of `x`.
    fn forward(&self, exec: &mut Exec<'_>, x: &Array2<f32>, length: usize) -> Array2<f32> {
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
    fn new(source: &mut Source, side: usize, head_width: usize) -> Self {
        Self {
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
fn into_windows(x: &Array2<f32>, side: usize, window: usize) -> Array2<f32> {
    let padded = side.div_ceil(window) * window;
    let mut out = Array2::zeros((padded * padded, x.ncols()));
    for (place, row) in window_places(side, window).into_iter().zip(x.rows()) {
        out.row_mut(place).assign(&row);
    }
    out
}

/// Puts the windows back into the grid and drops the padding.
fn from_windows(windows: &Array2<f32>, side: usize, window: usize) -> Array2<f32> {
    windows.select(Axis(0), &window_places(side, window))
}

/// Returns the place of each token of a grid in its windows.
fn window_places(side: usize, window: usize) -> Vec<usize> {
    let place = |token: usize| {
        let (row, column) = (token / side, token % side);
        let index = (row / window) * side.div_ceil(window) + column / window;
        (index * window + row % window) * window + column % window
    };
    (0..side * side).map(place).collect()
}

/// Lays out the grid: each row ends in the newline token, all of it in the separator.
pub fn as_lines(
    tokens: &Array2<f32>,
    side: usize,
    newline: &Array2<f32>,
    separator: &Array2<f32>,
) -> Array2<f32> {
    let mut out = Array2::zeros((side * (side + 1) + 1, tokens.ncols()));
    for (line, mut to) in
        tokens.axis_chunks_iter(Axis(0), side).zip(out.axis_chunks_iter_mut(Axis(0), side + 1))
    {
        to.slice_mut(s![..side, ..]).assign(&line);
        to.slice_mut(s![side.., ..]).assign(newline);
    }
    out.slice_mut(s![side * (side + 1).., ..]).assign(separator);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_neighbourhood_is_the_cell_itself() {
        let x = Array2::from_shape_fn((16, 2), |(i, j)| (10 * i + j) as f32);
        let same = unfold(&x, 4, 1);
        assert_eq!(same.slice(s![.., 8..10]), x);
        assert_eq!(same.slice(s![0, ..8]).sum(), 0.0, "above the first row");
        let halved = unfold(&x, 4, 2);
        assert_eq!(halved.nrows(), 4);
        assert_eq!(halved.slice(s![3, 8..10]), x.row(10));
    }

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
