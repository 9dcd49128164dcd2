//! The SAM-like tower: patches, windowed and global attention, and convolutions that shrink the grid.

use ndarray::{Array2, s};

use super::attention::{VisionAttention, from_windows, into_windows};
use super::layers::{LayerNorm, Linear, Mlp};
use crate::exec::Exec;
use crate::image::{CHANNELS, Image};
use crate::ops;
use crate::shape::{MLP_RATIO, Shape};
use crate::source::Source;

/// The tower.
#[derive(Debug)]
pub struct Sam {
    patch: usize,
    grid: usize,
    window: usize,
    embed: Linear,
    position: Array2<f32>,
    blocks: Vec<Block>,
    neck: Neck,
}

#[derive(Debug)]
struct Block {
    windowed: bool,
    norm1: LayerNorm,
    attention: VisionAttention,
    norm2: LayerNorm,
    mlp: Mlp,
}

#[derive(Debug)]
struct Neck {
    narrow: Linear,
    norm1: LayerNorm,
    smooth: Convolution,
    norm2: LayerNorm,
    halve: [Convolution; 2],
}

impl Sam {
    pub fn new(source: &mut Source, shape: &Shape) -> Sam {
        let sam = &shape.sam;
        let (width, grid) = (sam.tower.width, shape.grid());
        Sam {
            patch: sam.patch,
            grid,
            window: sam.window,
            embed: Linear::with_bias(source, CHANNELS * sam.patch * sam.patch, width),
            position: source.matrix(grid * grid, width),
            blocks: (0..sam.tower.layers)
                .map(|layer| {
                    let windowed = !sam.global_layers.contains(&layer);
                    let side = if windowed { sam.window } else { grid };
                    Block {
                        windowed,
                        norm1: LayerNorm::new(source, width),
                        attention: VisionAttention::new(source, width, sam.tower.heads, Some(side)),
                        norm2: LayerNorm::new(source, width),
                        mlp: Mlp::new(source, width, MLP_RATIO * width, ops::gelu),
                    }
                })
                .collect(),
            neck: Neck {
                narrow: Linear::new(source, width, sam.neck),
                norm1: LayerNorm::new(source, sam.neck),
                smooth: Convolution::new(source, sam.neck, sam.neck, 1),
                norm2: LayerNorm::new(source, sam.neck),
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
            x = block.forward(exec, x, self.grid, self.window);
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

impl Block {
    fn forward(&self, exec: &mut Exec<'_>, mut x: Array2<f32>, grid: usize, window: usize) -> Array2<f32> {
        let normed = self.norm1.forward(exec, &x);
        let mixed = if self.windowed {
            let windows = exec.op("window", || into_windows(&normed, grid, window));
            let mixed = self.attention.forward(exec, &windows, window * window);
            exec.op("window", || from_windows(&mixed, grid, window))
        } else {
            self.attention.forward(exec, &normed, grid * grid)
        };
        exec.op("add", || x += &mixed);
        let normed = self.norm2.forward(exec, &x);
        let changed = self.mlp.forward(exec, &normed);
        exec.op("add", || x += &changed);
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

    fn new(source: &mut Source, input: usize, output: usize, stride: usize) -> Convolution {
        Convolution { weight: source.matrix(output, input * Self::SIDE * Self::SIDE), stride }
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
}
