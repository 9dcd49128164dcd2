//! The axes of the roofline.

/// Width of the drawing.
pub const WIDTH: f64 = 900.0;
/// Height of the drawing.
pub const HEIGHT: f64 = 460.0;
/// Left, top, right and bottom of the plot.
pub const PLOT: (f64, f64, f64, f64) = (70.0, 16.0, 884.0, 412.0);

/// Formats a coordinate.
pub fn at(value: f64) -> String {
    format!("{value:.1}")
}

/// Two logarithmic axes, each from a power of ten to a power of ten.
pub struct Scale {
    pub x: (f64, f64),
    pub y: (f64, f64),
}

impl Scale {
    /// Makes axes that hold all values.
    pub fn around(xs: impl Iterator<Item = f64>, ys: impl Iterator<Item = f64>) -> Self {
        Self { x: around(xs), y: around(ys) }
    }

    /// Returns the place of a point in the drawing.
    pub fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let part = |v: f64, (low, high): (f64, f64)| (v / low).log10() / (high / low).log10();
        (
            PLOT.0 + (PLOT.2 - PLOT.0) * part(x, self.x),
            PLOT.3 - (PLOT.3 - PLOT.1) * part(y, self.y).clamp(0.0, 1.0),
        )
    }

    /// Lists the powers of ten of an axis, at most 12.
    pub fn decades((low, high): (f64, f64)) -> Vec<f64> {
        let (from, to) = (low.log10().round() as i32, high.log10().round() as i32);
        // At most 12 lines per axis.
        let step = ((to - from) / 12 + 1).max(1);
        (from..=to).step_by(step as usize).map(|e| 10f64.powi(e)).collect()
    }
}

/// Returns the powers of ten around some values.
fn around(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::MAX, f64::MIN_POSITIVE), |(l, h), v| (l.min(v), h.max(v)));
    (10f64.powf(low.log10().floor()), 10f64.powf((high * 1.2).log10().ceil()))
}
