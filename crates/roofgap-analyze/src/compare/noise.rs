//! The noise of a number, estimated from the runs themselves.

use super::comparison::{Change, Judgement, Outlier, SideName};
use crate::result::{Kernel, Stage};
use crate::timeline::sample_deviation;
use roofgap_base::stats::{Confidence, interpolate, median_f64, student_t};

// The least noise of a number, % of the base: within one run there is nothing to be seen of what differs between two (clocks,
// neighbours, addresses).
/// Least noise of times on the CPU, %.
pub const WALL_PCT: f64 = 2.0;
/// Least noise of times on the GPU and of counts, %.
pub const GPU_PCT: f64 = 1.0;
/// Noise of times on the CPU where neither steps nor repeats show any, and of a kernel that ran once, %.
pub const UNMEASURED_PCT: f64 = 5.0;

/// A share of a number.
pub fn share(value: f64, pct: f64) -> f64 {
    value.abs() * pct / 100.0
}

/// The noise of the steps of a stage.
#[derive(Debug, Default, PartialEq)]
pub struct StepNoise {
    /// Noise of the sum of the steps of one instance, ns.
    pub ns: f64,
    /// Source of the noise.
    pub how: String,
    /// Steps that are not part of it.
    pub outliers: Vec<Outlier>,
}

impl StepNoise {
    fn outliers_of(&self, side: SideName) -> impl Iterator<Item = &Outlier> {
        self.outliers.iter().filter(move |outlier| outlier.side == side)
    }

    /// Returns the share of the time of a stage that its outliers add, 0 to 1.
    pub fn share(&self, side: SideName, stage: &Stage) -> f64 {
        let excess: f64 = self.outliers_of(side).map(|outlier| outlier.excess_ns as f64).sum();
        (excess / stage.elapsed_ns().max(1) as f64).clamp(0.0, 1.0)
    }

    /// Returns the mean time of the steps of a stage that are no outliers, ns.
    pub fn mean_ns(&self, side: SideName, stage: &Stage) -> Option<f64> {
        let steps = stage.steps.as_ref()?;
        let outliers: Vec<f64> = self.outliers_of(side).map(|outlier| outlier.ns as f64).collect();
        let kept = steps.each_ns.len().saturating_sub(outliers.len()) as f64;
        if outliers.is_empty() || kept == 0.0 {
            return Some(steps.mean_ns as f64);
        }
        let all: f64 = steps.each_ns.iter().map(|ns| *ns as f64).sum();
        Some(((all - outliers.iter().sum::<f64>()) / kept).round())
    }
}

/// Estimates the noise of the steps of two sides; `None` with fewer than three steps.
///
/// Steps in the same place are held against one another, so that what all runs share (a longer first step, a growing cache)
/// does not count. A step far from all others is an outlier: it says nothing about the noise of the others.
pub fn of_steps(base: &Stage, head: &Stage) -> Option<StepNoise> {
    let (b, h) = (base.steps.as_ref()?, head.steps.as_ref()?);
    if b.each_ns.len() < 3 || h.each_ns.len() < 3 {
        return None;
    }
    let outlier = |side, &(at, excess): &(usize, f64)| {
        let each = if side == SideName::Base { &b.each_ns } else { &h.each_ns };
        let ns = each.get(at).copied().unwrap_or_default();
        Outlier { side, step: at as u64 + 1, ns, excess_ns: excess.abs().round() as i64 }
    };
    let of_sum = |spread: &Spread, stage: &Stage, n: usize| {
        spread.deviation * (n as f64).sqrt() / stage.instances.max(1) as f64
    };
    let (kept, sum, how, outliers) = if b.each_ns.len() == h.each_ns.len() && base.instances == head.instances
    {
        let pairs = b.each_ns.iter().zip(&h.each_ns);
        let spread = Spread::of(pairs.map(|(b, h)| h.saturating_sub(*b) as f64), b.p50_ns as f64);
        let how = format!("the differences of {} steps in the same place", spread.kept);
        let side = |excess: f64| if excess > 0.0 { SideName::Head } else { SideName::Base };
        let outliers = spread.outliers.iter().map(|found| outlier(side(found.1), found)).collect();
        (spread.kept, of_sum(&spread, base, b.each_ns.len()), how, outliers)
    } else {
        let [of_base, of_head] =
            [b, h].map(|steps| Spread::of(steps.each_ns.iter().map(|ns| *ns as f64), steps.p50_ns as f64));
        let sum = of_sum(&of_base, base, b.each_ns.len()).hypot(of_sum(&of_head, head, h.each_ns.len()));
        let how = format!("the spread of {} and {} steps", of_base.kept, of_head.kept);
        let base_outliers = of_base.outliers.iter().map(|found| outlier(SideName::Base, found));
        let head_outliers = of_head.outliers.iter().map(|found| outlier(SideName::Head, found));
        (of_base.kept.min(of_head.kept), sum, how, base_outliers.chain(head_outliers).collect())
    };
    Some(StepNoise { ns: student_t(kept - 1, Confidence::Pct99) * sum, how, outliers })
}

/// Robust standard deviations from the median beyond which a value is an outlier.
const FAR: f64 = 6.0;

/// Share of a usual step by which an outlier is off at least.
const LEAST_OUTLIER: f64 = 0.2;

/// Values for each outlier: more of them are a part of the distribution.
const VALUES_PER_OUTLIER: usize = 5;

/// The spread of values without their outliers.
struct Spread {
    /// Standard deviation of a sample.
    deviation: f64,
    /// Number of values that are no outliers, at least 2.
    kept: usize,
    /// Place and distance from the median of each outlier.
    outliers: Vec<(usize, f64)>,
}

impl Spread {
    /// Measures at least two values; `usual` is the time of a usual step.
    fn of(values: impl Iterator<Item = f64>, usual: f64) -> Self {
        let values: Vec<f64> = values.collect();
        let middle = median_f64(&mut values.clone()).unwrap_or(0.0);
        let offsets: Vec<f64> = values.iter().map(|value| value - middle).collect();
        let mut distances: Vec<f64> = offsets.iter().map(|off| off.abs()).collect();
        // The factor makes it the standard deviation of a normal distribution.
        let far = FAR * 1.4826 * median_f64(&mut distances).unwrap_or(0.0);
        let far = far.max(LEAST_OUTLIER * usual.abs());
        let mut outliers: Vec<(usize, f64)> =
            offsets.iter().copied().enumerate().filter(|(_, off)| off.abs() > far).collect();
        if outliers.len() * VALUES_PER_OUTLIER > values.len() {
            outliers.clear();
        }
        let is_kept = |off: &f64| outliers.is_empty() || off.abs() <= far;
        let kept: Vec<f64> = offsets.iter().copied().filter(is_kept).collect();
        Self { deviation: sample_deviation(&kept).unwrap_or(0.0), kept: kept.len(), outliers }
    }
}

/// Noise of the difference of two means of repeats. `None` with fewer than two repeats on a side.
pub fn of_repeats(base: &[i64], head: &[i64]) -> Option<f64> {
    let variance = |each: &[i64]| {
        let values: Vec<f64> = each.iter().map(|&ns| ns as f64).collect();
        Some(sample_deviation(&values)?.powi(2) / values.len() as f64)
    };
    let sum = variance(base)? + variance(head)?;
    Some(student_t(base.len() + head.len() - 2, Confidence::Pct99) * sum.sqrt())
}

/// Variance of the sum of a kernel's calls; from the range of their lengths, which is what an analysis keeps of them. A call of more
/// than twice the median is an outlier and widens the range no further.
pub fn of_kernel(kernel: &Kernel) -> f64 {
    let calls = kernel.calls as f64;
    match (kernel.min_ns, kernel.max_ns) {
        (Some(min), Some(max)) if kernel.calls > 1 => {
            let usual = kernel.median_ns.map_or(max, |median| median.saturating_mul(2));
            let spread = max.min(usual).saturating_sub(min) as f64 / interpolate(&EXPECTED_RANGE, calls);
            spread * spread * calls
        }
        // Stated as what three deviations come to, as everywhere.
        _ => (share(kernel.total_ns as f64, UNMEASURED_PCT) / DEVIATIONS).powi(2),
    }
}

/// Number of standard deviations of a sum of calls that count as noise.
pub const DEVIATIONS: f64 = 3.0;

/// The range of so many normally distributed values, in standard deviations.
const EXPECTED_RANGE: [(f64, f64); 10] = [
    (2.0, 1.128),
    (3.0, 1.693),
    (5.0, 2.326),
    (10.0, 3.078),
    (20.0, 3.735),
    (50.0, 4.498),
    (100.0, 5.015),
    (1_000.0, 6.483),
    (10_000.0, 7.7),
    (1_000_000.0, 9.8),
];

/// The part of the time of each side that outlier steps add, 0 to 1: base, then head.
pub type Odd = [f64; 2];

/// The direction that is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

/// A number on both sides with its noise.
pub fn change(base: Option<f64>, head: Option<f64>, noise: f64, better: Better, odd: Odd) -> Change {
    let (Some(b), Some(h)) = (base, head) else {
        return Change { base, head, ..Change::default() };
    };
    // Without its outliers a time is shorter, and a rate higher.
    let steady = |value: f64, odd: f64| match better {
        Better::Lower => value * (1.0 - odd),
        Better::Higher => value / (1.0 - odd).max(f64::EPSILON),
    };
    let delta = h - b;
    let raw = judge(delta, noise, better);
    let judgement = match is_doubled(b, h) {
        true => judge(delta, 0.0, better),
        false if raw == Judgement::Same => raw,
        false if judge(steady(h, odd[1]) - steady(b, odd[0]), noise, better) == raw => raw,
        false => Judgement::Unclear,
    };
    // A change in percent of nothing is not known.
    let delta_pct = (b != 0.0).then(|| 100.0 * delta / b.abs());
    Change { base, head, delta: Some(delta), delta_pct, noise: Some(noise), judgement }
}

/// A time on both sides with its noise.
pub fn time(base: Option<f64>, head: Option<f64>, noise: f64, odd: Odd) -> Change {
    change(base, head, noise.ceil(), Better::Lower, odd)
}

/// A part of a time, in which a change within the noise of the whole is unclear where it is beyond a factor of two.
pub fn part(base: Option<f64>, head: Option<f64>, noise: f64) -> Change {
    let mut part = time(base, head, noise, Odd::default());
    if part.judgement != Judgement::Same && part.delta.is_some_and(|delta| delta.abs() <= noise.ceil()) {
        part.judgement = Judgement::Unclear;
    }
    part
}

/// Tells whether one number is at least twice the other, so that they are not the same in any noise.
pub fn is_doubled(a: f64, b: f64) -> bool {
    let (a, b) = (a.abs(), b.abs());
    a != b && a.max(b) >= 2.0 * a.min(b)
}

fn judge(delta: f64, noise: f64, better: Better) -> Judgement {
    if delta.abs() <= noise {
        Judgement::Same
    } else if (delta < 0.0) == (better == Better::Lower) {
        Judgement::Better
    } else {
        Judgement::Worse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(each: &[i64]) -> Stage {
        let steps = crate::timeline::step_summary(each.to_vec(), None);
        Stage { instances: 1, steps, ..Stage::default() }
    }

    #[test]
    fn what_both_runs_share_is_not_noise() {
        // A long first step and a growing cache on both sides, everything 10 % longer on the head.
        let base = [3000, 1000, 1010, 1020, 1030, 1040, 1050, 1060];
        let head = base.map(|ns| ns + ns / 10);
        let noise = of_steps(&stage(&base), &stage(&head)).unwrap().ns;
        let delta: i64 = head.iter().sum::<i64>() - base.iter().sum::<i64>();
        assert!(noise < delta as f64, "{noise} {delta}");
    }

    #[test]
    fn one_long_step_is_an_outlier_and_no_noise() {
        let base = [1000, 1003, 998, 1001, 1002, 999, 1000, 1001];
        let mut head = base;
        head[3] += 40_000;
        let StepNoise { ns, outliers, .. } = of_steps(&stage(&base), &stage(&head)).unwrap();
        assert!(ns < 20.0, "{ns}");
        assert_eq!(outliers, [Outlier { side: SideName::Head, step: 4, ns: 41_001, excess_ns: 40_000 }]);
        // The other way round it is a step of the base, and with another number of steps too.
        let other = of_steps(&stage(&head), &stage(&base)).unwrap();
        assert_eq!(other.outliers[0].side, SideName::Base);
        let unpaired = of_steps(&stage(&base[..7]), &stage(&head)).unwrap();
        assert!(unpaired.ns < 40.0 && unpaired.outliers.len() == 1, "{unpaired:?}");
        assert_eq!(of_steps(&stage(&[1, 2]), &stage(&[1, 2])), None);
    }

    #[test]
    fn many_long_steps_are_noise() {
        let base = [1000, 1003, 998, 1001, 1002, 999, 1000, 1001];
        let mut head = base;
        (head[3], head[6]) = (1900, 1900);
        let StepNoise { ns, outliers, .. } = of_steps(&stage(&base), &stage(&head)).unwrap();
        assert!(ns > 1800.0 && outliers.is_empty(), "{ns} {outliers:?}");
    }

    #[test]
    fn twice_as_long_is_never_the_same() {
        let judged = |base, head| time(Some(base), Some(head), 1e9, Odd::default()).judgement;
        assert_eq!(judged(100.0, 199.0), Judgement::Same);
        assert_eq!((judged(100.0, 200.0), judged(200.0, 100.0)), (Judgement::Worse, Judgement::Better));
        assert_eq!(judged(0.0, 0.0), Judgement::Same);
        let idle = |base, head| part(Some(base), Some(head), 1e9).judgement;
        assert_eq!((idle(1.0, 3.0), idle(100.0, 120.0)), (Judgement::Unclear, Judgement::Same));
        let rate = change(Some(1.0), Some(3.0), 10.0, Better::Higher, Odd::default());
        assert_eq!(rate.judgement, Judgement::Better);
    }

    #[test]
    fn a_change_by_outliers_alone_is_unclear() {
        let judged = |head, odd| time(Some(1000.0), Some(head), 20.0, odd).judgement;
        assert_eq!(judged(1400.0, [0.0, 0.28]), Judgement::Unclear);
        assert_eq!(judged(1400.0, [0.0, 0.1]), Judgement::Worse);
        assert_eq!(judged(4000.0, [0.0, 0.75]), Judgement::Worse, "beyond a factor of two it counts");
    }

    #[test]
    fn runs_of_other_lengths_compare_by_their_spread() {
        let StepNoise { ns, how, .. } =
            of_steps(&stage(&[100, 110, 90, 100]), &stage(&[100, 110, 90, 100, 100])).unwrap();
        assert!(ns > 50.0 && ns < 250.0, "{ns}");
        assert!(how.contains("4 and 5 steps"), "{how}");
    }

    #[test]
    fn few_repeats_prove_little() {
        let few = of_repeats(&[100, 110], &[100, 110]).unwrap();
        let many = of_repeats(&[100, 110, 100, 110, 100, 110], &[100, 110, 100, 110, 100, 110]).unwrap();
        assert!(few > 5.0 * many, "{few} {many}");
        assert_eq!(of_repeats(&[100], &[100, 110]), None);
    }

    #[test]
    fn tables_hold_between_and_beyond_their_rows() {
        assert_eq!([1.0, 2.0, 1e9].map(|n| interpolate(&EXPECTED_RANGE, n)), [1.128, 1.128, 9.8]);
        assert!((1.693..2.326).contains(&interpolate(&EXPECTED_RANGE, 4.0)));
    }
}
