//! Sources of tensors: seeded random values, or none when parameters are only counted.
//!
//! The picture that is read: made from the seed, since no file is needed to have something to profile.

use ndarray::{Array1, Array2, Array3};
use rayon::prelude::*;

/// Gives the tensors of a model one after another and counts them.
///
/// The values of a tensor depend on the seed and its place in the order alone, never on the number of threads.
#[derive(Debug)]
pub struct Source {
    seed: Option<u64>,
    tensors: u64,
    parameters: u64,
}

impl Source {
    /// Creates a source of random tensors.
    pub fn seeded(seed: u64) -> Self {
        Self { seed: Some(seed), tensors: 0, parameters: 0 }
    }

    /// Creates a source of empty tensors, for counting parameters.
    pub fn counting() -> Self {
        Self { seed: None, tensors: 0, parameters: 0 }
    }

    /// Returns the number of parameters created.
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Creates uniform values with a variance of one over the number of columns, which keeps activations near one.
    pub fn matrix(&mut self, rows: usize, columns: usize) -> Array2<f32> {
        let Some(seed) = self.begin(rows * columns) else {
            return Array2::zeros((0, 0));
        };
        let bound = (3.0 / columns.max(1) as f32).sqrt();
        let mut matrix = Array2::zeros((rows, columns));
        if let Some(values) = matrix.as_slice_mut() {
            fill(values, seed, bound);
        }
        matrix
    }

    /// Creates a vector of one value, for norms and biases.
    pub fn constant(&mut self, length: usize, value: f32) -> Array1<f32> {
        match self.begin(length) {
            Some(_) => Array1::from_elem(length, value),
            None => Array1::zeros(0),
        }
    }

    fn begin(&mut self, count: usize) -> Option<u64> {
        self.tensors += 1;
        self.parameters += count as u64;
        self.seed.map(|seed| mix(seed ^ mix(self.tensors)))
    }
}

/// Fills with uniform values in `-bound..bound`, in blocks that each have a generator of their own.
pub fn fill(values: &mut [f32], seed: u64, bound: f32) {
    const BLOCK: usize = 1 << 14;
    values.par_chunks_mut(BLOCK).enumerate().for_each(|(block, values)| {
        let mut state = mix(seed ^ mix(block as u64 + 1));
        for value in values {
            *value = (unit(&mut state) * 2.0 - 1.0) * bound;
        }
    });
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

/// Colour channels of an image.
pub const CHANNELS: usize = 3;

/// A square image, channel by row by column, values near `-1..1`.
#[derive(Debug)]
pub struct Image {
    pixels: Array3<f32>,
}

impl Image {
    /// Draws a page with dark lines of random glyphs on a bright ground.
    pub fn page(size: usize, seed: u64) -> Self {
        let mut state = mix(seed ^ 0x1ea9);
        let mut pixels = Array3::from_elem((CHANNELS, size, size), 1.0);
        let line = (size / 32).max(2);
        for row in (line..size.saturating_sub(line)).step_by(2 * line) {
            for column in (line..size.saturating_sub(line)).step_by(line) {
                let ink = 1.0 - 2.0 * unit(&mut state);
                for y in row..row + line {
                    for x in column..column + line / 2 {
                        for channel in 0..CHANNELS {
                            pixels[[channel, y, x]] = ink;
                        }
                    }
                }
            }
        }
        Self { pixels }
    }

    /// Returns one row per patch: its pixels, channel by channel.
    pub fn patches(&self, patch: usize) -> Array2<f32> {
        let (_, height, width) = self.pixels.dim();
        let (rows, columns) = (height / patch, width / patch);
        let area = patch * patch;
        Array2::from_shape_fn((rows * columns, CHANNELS * area), |(cell, place)| {
            let (channel, inside) = (place / area, place % area);
            let y = cell / columns * patch + inside / patch;
            let x = cell % columns * patch + inside % patch;
            self.pixels[[channel, y, x]]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_hold_every_pixel_once() {
        let image = Image::page(32, 4);
        let patches = image.patches(8);
        assert_eq!(patches.dim(), (16, 3 * 64));
        assert!((patches.sum() - image.pixels.sum()).abs() < 1e-2);
        assert_eq!(patches[[5, 9]], image.pixels[[0, 9, 9]]);
    }

    #[test]
    fn another_seed_is_another_page() {
        assert_eq!(Image::page(64, 1).pixels, Image::page(64, 1).pixels);
        assert_ne!(Image::page(64, 1).pixels, Image::page(64, 2).pixels);
    }
}
