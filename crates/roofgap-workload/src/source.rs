//! Sources of tensors: seeded random values, or none when parameters are only counted.

use ndarray::{Array1, Array2};
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
    pub fn seeded(seed: u64) -> Source {
        Source { seed: Some(seed), tensors: 0, parameters: 0 }
    }

    /// Creates a source of empty tensors, for counting parameters.
    pub fn counting() -> Source {
        Source { seed: None, tensors: 0, parameters: 0 }
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
