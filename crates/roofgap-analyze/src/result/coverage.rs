//! The recorded part of a program that was not recorded all the time.

use roofgap_base::stats::{Confidence, student_t};
use serde::{Deserialize, Serialize};

/// The recorded part of a capture with gaps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Coverage {
    /// Number of steps that were recorded as a whole; null where no stage has steps.
    pub recorded_steps: Option<u64>,
    /// Number of all steps; null where no stage has steps.
    pub all_steps: Option<u64>,
    /// Recorded time, summed over processes, ns.
    pub recorded_ns: i64,
    /// Time with the gaps, summed over processes, ns.
    pub all_ns: i64,
}

/// The recorded part of a stage. Its other numbers are of this part.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct StageCoverage {
    /// Number of steps, or of instances where it has none, that were recorded as a whole.
    pub recorded: u64,
    /// Number of all.
    pub all: u64,
    /// CPU time of all, ns. It is measured: ranges are recorded all the time.
    pub wall_ns: i64,
    /// Kernel time of all, estimated, ns; null where nothing was recorded.
    pub kernel_ns: Option<Estimate>,
}

/// An estimate from a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Estimate {
    /// Estimate.
    pub value: i64,
    /// Lower end of the interval of 95 %; null for a single sample.
    pub low: Option<i64>,
    /// Upper end of the interval of 95 %; null for a single sample.
    pub high: Option<i64>,
}

impl Estimate {
    /// Estimates the sum of `all` values. The first `leading` of them are known. The rest of `known` is a sample of the others, taken in
    /// groups of values that are alike because they follow each other; `group` has the group of each value.
    pub fn after(known: &[i64], group: &[usize], leading: u64, all: u64) -> Option<Self> {
        let (first, sample) = known.split_at(known.len().min(leading as usize));
        let mut groups: Vec<Group> = Vec::new();
        let mut rest = sample;
        for same in group.get(first.len()..)?.chunk_by(|a, b| a == b) {
            let (values, others) = rest.split_at(rest.len().min(same.len()));
            groups.push(Group::of(values));
            rest = others;
        }
        let sum: i64 = first.iter().sum();
        match Self::of_groups(&groups, all.saturating_sub(first.len() as u64)) {
            Some(rest) => Some(Self {
                value: sum + rest.value,
                low: rest.low.map(|low| sum + low),
                high: rest.high.map(|high| sum + high),
            }),
            // Nothing is known of the spread of the others.
            None if first.is_empty() => None,
            None => Self::of_groups(&[Group::of(first)], all),
        }
    }

    /// Estimates the sum of `all` values from groups of known ones. Every value counts alike; the spread is that of the groups.
    fn of_groups(groups: &[Group], all: u64) -> Option<Self> {
        let known: f64 = groups.iter().map(|group| group.count).sum();
        if known <= 0.0 {
            return None;
        }
        let all = (all as f64).max(known);
        let mean = groups.iter().map(|group| group.sum).sum::<f64>() / known;
        let value = mean * all;
        let margin = (groups.len() > 1).then(|| {
            let distance = |group: &Group| (group.sum - mean * group.count).powi(2);
            let squares: f64 = groups.iter().map(distance).sum();
            let count = groups.len() as f64;
            let deviation = (squares * count / (count - 1.0)).sqrt() / known;
            let unknown = (1.0 - known / all).max(0.0);
            student_t(groups.len() - 1, Confidence::Pct95) * all * deviation * unknown.sqrt()
        });
        Some(Self {
            value: value.round() as i64,
            low: margin.map(|margin| (value - margin).max(0.0).round() as i64),
            high: margin.map(|margin| (value + margin).round() as i64),
        })
    }
}

/// Known values that are alike because they follow each other.
#[derive(Debug, Clone, Copy)]
struct Group {
    sum: f64,
    count: f64,
}

impl Group {
    fn of(values: &[i64]) -> Self {
        Self { sum: values.iter().map(|&value| value as f64).sum(), count: values.len() as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Estimates a sum from values that are each a group of their own.
    fn of_sample(sample: &[i64], all: u64) -> Option<Estimate> {
        let group: Vec<usize> = (0..sample.len()).collect();
        Estimate::after(sample, &group, 0, all)
    }

    #[test]
    fn the_first_values_are_known_and_no_sample_of_the_others() {
        // Two values of 100, then groups of two values around 10.
        let known = [100, 100, 10, 12, 10, 12];
        let estimate = Estimate::after(&known, &[0, 0, 1, 1, 2, 2], 2, 14).unwrap();
        assert_eq!(
            (estimate.value, estimate.low, estimate.high),
            (332, Some(332), Some(332)),
            "the groups are alike"
        );
        let single = Estimate::after(&known, &[0, 0, 1, 1, 1, 1], 2, 14).unwrap();
        assert_eq!((single.value, single.low), (332, None), "one group has no spread");
        assert_eq!(Estimate::after(&[7, 7], &[0, 0], 2, 10), of_sample(&[7], 10));
        assert_eq!(Estimate::after(&[], &[], 0, 10), None);
    }

    #[test]
    fn a_long_group_counts_more_than_a_short_one() {
        // Nine values of 10 and one of 110: 20 on average.
        let known = [10, 10, 10, 10, 10, 10, 10, 10, 10, 110];
        let group = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let estimate = Estimate::after(&known, &group, 0, 1_000).unwrap();
        assert_eq!(estimate.value, 20_000);
        // Sums of the groups are 90 away from the mean: 12.706 * 1000 * sqrt(2 * 2 * 90^2) / 10 * sqrt(0.99).
        assert_eq!((estimate.low, estimate.high), (Some(0), Some(247_562)));
    }

    #[test]
    fn a_sum_is_estimated_from_a_sample() {
        let single = of_sample(&[7], 10).unwrap();
        assert_eq!((single.value, single.low, single.high), (70, None, None));
        let same = of_sample(&[5, 5, 5], 30).unwrap();
        assert_eq!((same.value, same.low, same.high), (150, Some(150), Some(150)));
        // Mean 20, deviation 10; 4.303 * 100 * 10 / sqrt(3) * sqrt(0.97).
        let spread = of_sample(&[10, 20, 30], 100).unwrap();
        assert_eq!(spread.value, 2000);
        assert_eq!((spread.low, spread.high), (Some(0), Some(4447)));
        let all = of_sample(&[10, 20, 30], 3).unwrap();
        assert_eq!((all.value, all.low, all.high), (60, Some(60), Some(60)));
    }
}
