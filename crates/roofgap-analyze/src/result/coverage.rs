//! The recorded part of a program that was not recorded all the time.

use serde::{Deserialize, Serialize};

/// The recorded part of a capture with gaps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Coverage {
    /// Number of steps that were recorded as a whole; `None` where no stage has steps.
    pub recorded_steps: Option<u64>,
    /// Number of all steps; `None` where no stage has steps.
    pub all_steps: Option<u64>,
    /// Recorded time, summed over processes, ns.
    pub recorded_ns: i64,
    /// Time with the gaps, summed over processes, ns.
    pub all_ns: i64,
}

/// The recorded part of a stage. Its other numbers are of this part.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StageCoverage {
    /// Number of steps, or of instances where it has none, that were recorded as a whole.
    pub recorded: u64,
    /// Number of all.
    pub all: u64,
    /// CPU time of all, ns. It is measured: ranges are recorded all the time.
    pub wall_ns: i64,
    /// Kernel time of all; `None` where nothing was recorded.
    pub kernel_ns: Option<Estimate>,
}

/// An estimate from a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Estimate {
    /// Estimate.
    pub value: i64,
    /// Lower end of the interval of 95 %; `None` for a single sample.
    pub low: Option<i64>,
    /// Upper end of the interval of 95 %; `None` for a single sample.
    pub high: Option<i64>,
}

impl Estimate {
    /// Estimates the sum of `all` values of which `sample` is known; `None` without a sample.
    ///
    /// The interval is that of Student's distribution, and narrower the larger the known part is.
    pub fn of_sum(sample: &[i64], all: u64) -> Option<Self> {
        let (count, all) = (sample.len() as f64, (all as f64).max(sample.len() as f64));
        if sample.is_empty() {
            return None;
        }
        let mean = sample.iter().map(|&value| value as f64).sum::<f64>() / count;
        let value = mean * all;
        let margin = (sample.len() > 1).then(|| {
            let squares: f64 = sample.iter().map(|&value| (value as f64 - mean).powi(2)).sum();
            let deviation = (squares / (count - 1.0)).sqrt();
            let unknown = (1.0 - count / all).max(0.0);
            student(sample.len() - 1) * all * deviation / count.sqrt() * unknown.sqrt()
        });
        Some(Self {
            value: value.round() as i64,
            low: margin.map(|margin| (value - margin).max(0.0).round() as i64),
            high: margin.map(|margin| (value + margin).round() as i64),
        })
    }
}

/// Returns the quantile 0.975 of Student's distribution, rounded up.
fn student(freedom: usize) -> f64 {
    const FEW: [f64; 10] = [12.71, 4.31, 3.19, 2.78, 2.58, 2.45, 2.37, 2.31, 2.27, 2.23];
    match freedom {
        0 => f64::INFINITY,
        1..=10 => FEW.get(freedom - 1).copied().unwrap_or(f64::INFINITY),
        11..=20 => 2.21,
        21..=30 => 2.09,
        31..=60 => 2.05,
        61..=120 => 2.00,
        _ => 1.98,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_estimated_from_a_sample() {
        assert_eq!(Estimate::of_sum(&[], 10), None);
        let single = Estimate::of_sum(&[7], 10).unwrap();
        assert_eq!((single.value, single.low, single.high), (70, None, None));
        let same = Estimate::of_sum(&[5, 5, 5], 30).unwrap();
        assert_eq!((same.value, same.low, same.high), (150, Some(150), Some(150)));
        // Mean 20, deviation 10; 4.31 * 100 * 10 / sqrt(3) * sqrt(0.97).
        let spread = Estimate::of_sum(&[10, 20, 30], 100).unwrap();
        assert_eq!(spread.value, 2000);
        assert_eq!((spread.low, spread.high), (Some(0), Some(4451)));
        let all = Estimate::of_sum(&[10, 20, 30], 3).unwrap();
        assert_eq!((all.value, all.low, all.high), (60, Some(60), Some(60)));
    }
}
