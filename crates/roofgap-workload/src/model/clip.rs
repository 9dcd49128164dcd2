//! The CLIP-like tower, over the tokens the SAM-like one leaves.

use ndarray::{Array2, Axis, s};

use super::attention::VisionAttention;
use super::layers::{LayerNorm, Mlp};
use crate::exec::Exec;
use crate::ops;
use crate::shape::{MLP_RATIO, Shape};
use crate::source::Source;

/// The tower.
#[derive(Debug)]
pub struct Clip {
    class: Array2<f32>,
    position: Array2<f32>,
    norm: LayerNorm,
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct Block {
    norm1: LayerNorm,
    attention: VisionAttention,
    norm2: LayerNorm,
    mlp: Mlp,
}

impl Clip {
    pub fn new(source: &mut Source, shape: &Shape) -> Clip {
        let (width, heads) = (shape.clip.width, shape.clip.heads);
        let tokens = shape.vision_grid() * shape.vision_grid();
        Clip {
            class: source.matrix(1, width),
            position: source.matrix(tokens + 1, width),
            norm: LayerNorm::new(source, width),
            blocks: (0..shape.clip.layers)
                .map(|_| Block {
                    norm1: LayerNorm::new(source, width),
                    attention: VisionAttention::new(source, width, heads, None),
                    norm2: LayerNorm::new(source, width),
                    mlp: Mlp::new(source, width, MLP_RATIO * width, ops::quick_gelu),
                })
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
        let length = x.nrows();
        for block in &self.blocks {
            let normed = block.norm1.forward(exec, &x);
            let mixed = block.attention.forward(exec, &normed, length);
            exec.op("add", || x += &mixed);
            let normed = block.norm2.forward(exec, &x);
            let changed = block.mlp.forward(exec, &normed);
            exec.op("add", || x += &changed);
        }
        x.slice_move(s![1.., ..])
    }
}

/// Joins the tokens of both towers side by side, for the projector.
pub fn side_by_side(clip: &Array2<f32>, sam: &Array2<f32>) -> Array2<f32> {
    let mut out = Array2::zeros((clip.nrows(), clip.ncols() + sam.ncols()));
    out.slice_mut(s![.., ..clip.ncols()]).assign(clip);
    out.slice_mut(s![.., clip.ncols()..]).assign(sam);
    out
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
