//! The ratio of two times that were measured in pairs.

use roofgap_base::stats::{Confidence, student_t};

/// Ratio of paired times with its 95 % confidence interval.
///
/// It is computed from the logarithms of the ratios of the pairs, so that slow changes of the machine, which both times of a pair
/// share, cancel out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedRatio {
    /// Geometric mean of the ratios.
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl PairedRatio {
    /// Computes the ratio of the first time of each pair to the second. `None` with fewer than two pairs, or where a time is not
    /// above 0.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let degrees = pairs.len().checked_sub(1).filter(|degrees| *degrees > 0)?;
        let logs: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt() * student_t(degrees, Confidence::Pct95);
        (mean.is_finite() && error.is_finite()).then(|| PairedRatio {
            ratio: mean.exp(),
            low: (mean - error).exp(),
            high: (mean + error).exp(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_student() {
        // Logarithms of 2 ± 0.1: mean 2, standard error 0.1, one degree of freedom.
        let pairs = [(1.9f64.exp(), 1.0), (2.1f64.exp(), 1.0)];
        let found = PairedRatio::of(&pairs).unwrap();
        assert!((found.ratio.ln() - 2.0).abs() < 1e-12, "{found:?}");
        assert!((found.high.ln() - 3.2706).abs() < 1e-9, "{found:?}");
        assert!((found.low.ln() - 0.7294).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn one_pair_and_times_of_zero_have_no_ratio() {
        assert_eq!(PairedRatio::of(&[(2.0, 1.0)]), None);
        assert_eq!(PairedRatio::of(&[]), None);
        assert_eq!(PairedRatio::of(&[(2.0, 1.0), (2.0, 0.0)]), None);
        assert_eq!(PairedRatio::of(&[(2.0, 1.0), (-2.0, 1.0)]), None);
    }
}
