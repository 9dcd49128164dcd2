//! Medians, percentiles and quantiles, each by one definition.

use std::cmp::Ordering;

/// Returns the median of integers; of an even number of values the mean of the middle two, with a half rounded up.
pub fn median(values: &mut [i64]) -> Option<i64> {
    let (low, high) = middle(values, i64::cmp)?;
    Some(low.saturating_add_unsigned(high.abs_diff(low).div_ceil(2)))
}

/// Returns the median; of an even number of values the mean of the middle two.
pub fn median_f64(values: &mut [f64]) -> Option<f64> {
    middle(values, f64::total_cmp).map(|(low, high)| low.midpoint(high))
}

/// Returns the middle two values, which are the same one in an odd number of values.
fn middle<T: Copy>(values: &mut [T], order: impl Fn(&T, &T) -> Ordering) -> Option<(T, T)> {
    let half = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let is_even = values.len().is_multiple_of(2);
    let (below, &mut high, _) = values.select_nth_unstable_by(half, &order);
    let low = below.iter().copied().max_by(|a, b| order(a, b)).filter(|_| is_even);
    Some((low.unwrap_or(high), high))
}

/// Returns the percentile of sorted values by nearest rank: the smallest value that at least `share` of them, 0 to 1, do not
/// exceed.
pub fn percentile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Confidence of a two-sided interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confidence {
    /// 95 %.
    Pct95,
    /// 99 %.
    Pct99,
}

/// Returns the quantile of Student's t distribution for a two-sided interval, infinite without a degree of freedom.
pub fn student_t(degrees: usize, confidence: Confidence) -> f64 {
    if degrees == 0 {
        return f64::INFINITY;
    }
    let rows = STUDENT_T.map(|(degrees, pct95, pct99)| match confidence {
        Confidence::Pct95 => (f64::from(degrees), pct95),
        Confidence::Pct99 => (f64::from(degrees), pct99),
    });
    interpolate(&rows, degrees as f64)
}

/// Returns the half-width of the 95 % confidence interval of ln(a / b), from repeats of a and of b. `None` with fewer than two repeats on
/// a side, or where a time is not above 0.
pub fn ratio_error(times: &[f64], others: &[f64]) -> Option<f64> {
    let degrees = (times.len() + others.len()).checked_sub(2)?;
    let variance = |times: &[f64]| {
        let logs: Vec<f64> = times.iter().map(|time| time.ln()).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0) / count
    };
    let error = student_t(degrees, Confidence::Pct95) * (variance(times) + variance(others)).sqrt();
    error.is_finite().then_some(error)
}

/// Returns the 95 % confidence interval of a share, 0 to 1, of which `part` in `all` trials are known (Wilson's).
pub fn proportion_interval(part: f64, all: f64) -> (f64, f64) {
    if all <= 0.0 {
        return (0.0, 1.0);
    }
    let square = 1.96 * 1.96;
    let share = (part / all).clamp(0.0, 1.0);
    let middle = (share + square / (2.0 * all)) / (1.0 + square / all);
    let spread =
        (share * (1.0 - share) / all + square / (4.0 * all * all)).sqrt() * 1.96 / (1.0 + square / all);
    ((middle - spread).max(0.0), (middle + spread).min(1.0))
}

/// Reads a table, sorted by its first column, between its rows, in the logarithm of that column. Beyond its ends it has their
/// values.
pub fn interpolate(table: &[(f64, f64)], x: f64) -> f64 {
    let at = table.partition_point(|row| row.0 <= x);
    match (at.checked_sub(1).and_then(|below| table.get(below)), table.get(at)) {
        (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (x.ln() - a.0.ln()) / (b.0.ln() - a.0.ln()),
        (Some(only), None) | (None, Some(only)) => only.1,
        (None, None) => 1.0,
    }
}

/// Degrees of freedom with the quantiles of two-sided intervals of 95 % and 99 %.
#[rustfmt::skip]
const STUDENT_T: [(u32, f64, f64); 34] = [
    (1, 12.706, 63.657), (2, 4.303, 9.925), (3, 3.182, 5.841), (4, 2.776, 4.604), (5, 2.571, 4.032),
    (6, 2.447, 3.707), (7, 2.365, 3.499), (8, 2.306, 3.355), (9, 2.262, 3.250), (10, 2.228, 3.169),
    (11, 2.201, 3.106), (12, 2.179, 3.055), (13, 2.160, 3.012), (14, 2.145, 2.977), (15, 2.131, 2.947),
    (16, 2.120, 2.921), (17, 2.110, 2.898), (18, 2.101, 2.878), (19, 2.093, 2.861), (20, 2.086, 2.845),
    (21, 2.080, 2.831), (22, 2.074, 2.819), (23, 2.069, 2.807), (24, 2.064, 2.797), (25, 2.060, 2.787),
    (26, 2.056, 2.779), (27, 2.052, 2.771), (28, 2.048, 2.763), (29, 2.045, 2.756), (30, 2.042, 2.750),
    (40, 2.021, 2.704), (60, 2.000, 2.660), (120, 1.980, 2.617), (1_000, 1.962, 2.581),
];

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
    fn medians() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [5]), Some(5));
        assert_eq!(median(&mut [9, 1]), Some(5));
        assert_eq!(median(&mut [3, 1, 2]), Some(2));
        assert_eq!(median(&mut [4, 1, 3, 2]), Some(3), "2.5 is rounded up");
        let unix_ns = 1_790_000_000_000_000_000;
        assert_eq!(median(&mut [unix_ns + 3, unix_ns + 1]), Some(unix_ns + 2), "no precision is lost");
        assert_eq!(median(&mut [i64::MAX, i64::MIN]), Some(0));
        assert_eq!(median_f64(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median_f64(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median_f64(&mut []), None);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted: Vec<i64> = (1..=10).map(|i| i * 10).collect();
        assert_eq!(
            [0.5, 0.9, 0.99, 1.0].map(|share| percentile(&sorted, share)),
            [Some(50), Some(90), Some(100), Some(100)]
        );
        assert_eq!(percentile::<i64>(&[], 0.5), None);
    }

    #[test]
    fn quantiles_of_student() {
        assert_eq!(student_t(0, Confidence::Pct95), f64::INFINITY);
        assert_eq!([1, 30, 5_000].map(|n| student_t(n, Confidence::Pct95)), [12.706, 2.042, 1.962]);
        assert_eq!([1, 7, 60].map(|n| student_t(n, Confidence::Pct99)), [63.657, 3.499, 2.660]);
        assert!((2.021..2.042).contains(&student_t(35, Confidence::Pct95)));
        assert!(STUDENT_T.is_sorted_by(|a, b| a.0 < b.0 && a.1 > b.1 && a.2 > b.2));
    }

    #[test]
    fn the_interval_is_that_of_student() {
        // Logarithms of 2 ± 0.1: mean 2, standard error 0.1, one degree of freedom.
        let pairs = [(1.9f64.exp(), 1.0), (2.1f64.exp(), 1.0)];
        let paired = PairedRatio::of(&pairs).unwrap();
        assert!((paired.ratio.ln() - 2.0).abs() < 1e-12, "{paired:?}");
        assert!((paired.high.ln() - 3.2706).abs() < 1e-9, "{paired:?}");
        assert!((paired.low.ln() - 0.7294).abs() < 1e-9, "{paired:?}");
    }

    #[test]
    fn one_pair_and_times_of_zero_have_no_ratio() {
        assert_eq!(PairedRatio::of(&[(2.0, 1.0)]), None);
        assert_eq!(PairedRatio::of(&[]), None);
        assert_eq!(PairedRatio::of(&[(2.0, 1.0), (2.0, 0.0)]), None);
        assert_eq!(PairedRatio::of(&[(2.0, 1.0), (-2.0, 1.0)]), None);
    }
}
