//! The picture that is read: made from the seed, since no file is needed to have something to profile.

use ndarray::{Array2, Array3};

use crate::source;

/// Colour channels of an image.
pub const CHANNELS: usize = 3;

/// A square image, channel by row by column, values near `-1..1`.
#[derive(Debug)]
pub struct Image {
    pixels: Array3<f32>,
}

impl Image {
    /// Draws a page with dark lines of random glyphs on a bright ground.
    pub fn page(size: usize, seed: u64) -> Image {
        let mut state = source::mix(seed ^ 0x1ea9);
        let mut pixels = Array3::from_elem((CHANNELS, size, size), 1.0);
        let line = (size / 32).max(2);
        for row in (line..size.saturating_sub(line)).step_by(2 * line) {
            for column in (line..size.saturating_sub(line)).step_by(line) {
                let ink = 1.0 - 2.0 * source::unit(&mut state);
                for y in row..row + line {
                    for x in column..column + line / 2 {
                        for channel in 0..CHANNELS {
                            pixels[[channel, y, x]] = ink;
                        }
                    }
                }
            }
        }
        Image { pixels }
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
