//! The noise of a number, estimated from the runs themselves.

use super::comparison::{Change, Judgement, Outlier, SideName};
use super::stage::{Kind, StageSide};
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

/// The noise of the wall time of one instance.
#[derive(Debug, Default, PartialEq)]
pub struct WallNoise {
    /// Noise, ns.
    pub ns: f64,
    /// Source of the noise.
    pub how: String,
    /// Steps that are not part of it.
    pub outliers: Vec<Outlier>,
}

impl WallNoise {
    /// Estimates it from steps and repeats; it is assumed where there are neither.
    pub fn of(base: StageSide<'_>, head: StageSide<'_>) -> Self {
        let wall = base.one(base.stage.wall_ns);
        let mut found = of_steps(base.stage, head.stage).unwrap_or_default();
        if let Some(noise) = of_repeats(base.repeats, head.repeats) {
            // Repeats are timed unwatched: their relative spread is taken over.
            let mean = base.repeats.iter().sum::<i64>() as f64 / base.repeats.len() as f64;
            let ns = wall * noise / mean.max(1.0);
            if found.how.is_empty() || ns > found.ns {
                found.ns = ns;
                found.how = format!("{} and {} unwatched repeats", base.repeats.len(), head.repeats.len());
            }
        }
        let least = share(wall, WALL_PCT);
        if found.how.is_empty() {
            found.ns = share(wall, UNMEASURED_PCT);
            found.how =
                format!("not measured (neither steps nor repeats on both sides): {UNMEASURED_PCT} % assumed");
        } else if found.ns < least {
            found.ns = least;
            found.how += &format!("; at least {WALL_PCT} %");
        }
        found
    }

    /// Returns the share of the time of a stage that its outliers add, 0 to 1, and the mean time of its other steps, ns.
    pub fn without_outliers(&self, side: SideName, stage: &Stage) -> (f64, Option<f64>) {
        let own = || self.outliers.iter().filter(|outlier| outlier.side == side);
        let excess: i64 = own().map(|outlier| outlier.excess_ns).sum();
        let share = excess as f64 / stage.elapsed_ns().max(1) as f64;
        let mean = stage.steps.as_ref().map(|steps| {
            let all = steps.each_ns.len().max(1);
            let others =
                steps.mean_ns as f64 * all as f64 - own().map(|outlier| outlier.ns as f64).sum::<f64>();
            (others / all.saturating_sub(own().count()).max(1) as f64).round()
        });
        (share.clamp(0.0, 1.0), mean)
    }
}

/// Estimates the noise of the steps of two sides; `None` with fewer than three steps.
///
/// Steps in the same place are held against one another, so that what all runs share (a longer first step, a growing cache)
/// does not count. A step far from all others is an outlier: it says nothing about the noise of the others. Many are a part of
/// the distribution, and of the change where one side alone has them.
pub fn of_steps(base: &Stage, head: &Stage) -> Option<WallNoise> {
    let (b, h) = (base.steps.as_ref()?, head.steps.as_ref()?);
    let pairs: Vec<(i64, i64)> = b.each_ns.iter().copied().zip(h.each_ns.iter().copied()).collect();
    if pairs.len() < 3 {
        return None;
    }
    let mut offsets: Vec<f64> = pairs.iter().map(|(b, h)| h.saturating_sub(*b) as f64).collect();
    let middle = median_f64(&mut offsets.clone()).unwrap_or(0.0);
    offsets.iter_mut().for_each(|off| *off -= middle);
    let mut distances: Vec<f64> = offsets.iter().map(|off| off.abs()).collect();
    // The factor makes it the standard deviation of a normal distribution.
    let far = FAR * 1.4826 * median_f64(&mut distances).unwrap_or(0.0);
    let far = far.max(LEAST_OUTLIER * (b.p50_ns as f64).abs());
    let mut outliers = Vec::new();
    for ((&(base_ns, head_ns), off), step) in
        pairs.iter().zip(&offsets).zip(1..).filter(|row| row.0.1.abs() > far)
    {
        let (side, ns) = if *off > 0.0 { (SideName::Head, head_ns) } else { (SideName::Base, base_ns) };
        outliers.push(Outlier { side, step, ns, excess_ns: off.abs().round() as i64 });
    }
    let is_many = outliers.len() * STEPS_PER_OUTLIER > pairs.len();
    // Several on one side alone are the change that is looked for, not noise that both have.
    let is_change = outliers.len() > 1 && outliers.windows(2).all(|pair| pair[0].side == pair[1].side);
    if !is_many || is_change {
        offsets.retain(|off| off.abs() <= far);
    }
    if is_many {
        outliers.clear();
    }
    let of_sum = sample_deviation(&offsets)? * (b.each_ns.len() as f64).sqrt() / base.instances.max(1) as f64;
    let ns = student_t(offsets.len() - 1, Confidence::Pct99) * of_sum;
    let how = format!("the differences of {} steps in the same place", offsets.len());
    Some(WallNoise { ns, how, outliers })
}

/// Robust standard deviations from the median beyond which a value is an outlier.
const FAR: f64 = 6.0;

/// Share of a usual step by which an outlier is off at least.
const LEAST_OUTLIER: f64 = 0.2;

/// Steps for each outlier: more of them are a part of the distribution.
const STEPS_PER_OUTLIER: usize = 5;

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

/// A number on both sides with its noise. `odd` is the part of the time of each side that outlier steps add, 0 to 1.
pub fn change(kind: Kind, [base, head]: [Option<f64>; 2], noise: f64, odd: [f64; 2]) -> Change {
    let (Some(b), Some(h)) = (base, head) else {
        return Change { base, head, ..Change::default() };
    };
    let judge = |b: f64, h: f64, noise: f64| match kind.worse(b, h) {
        worse if worse.abs() <= noise => Judgement::Same,
        worse if worse < 0.0 => Judgement::Better,
        _ => Judgement::Worse,
    };
    // Without its outliers a time is shorter, and a rate higher.
    let steady = |value: f64, odd: f64| match kind {
        Kind::Rate => value / (1.0 - odd).max(f64::EPSILON),
        _ => value * (1.0 - odd),
    };
    let judgement = match judge(b, h, noise) {
        // A part of a time that doubled within the noise of the whole.
        Judgement::Same if kind == Kind::IdleTime && is_doubled(b, h) => Judgement::Unclear,
        _ if is_doubled(b, h) => judge(b, h, 0.0),
        Judgement::Same => Judgement::Same,
        real if judge(steady(b, odd[0]), steady(h, odd[1]), noise) == real => real,
        _ => Judgement::Unclear,
    };
    // A change in percent of nothing is not known.
    let delta_pct = (b != 0.0).then(|| 100.0 * (h - b) / b.abs());
    Change { base, head, delta: Some(h - b), delta_pct, noise: Some(noise), judgement }
}

/// Tells whether one number is at least twice the other, so that they are not the same in any noise.
pub fn is_doubled(a: f64, b: f64) -> bool {
    let (a, b) = (a.abs(), b.abs());
    a != b && a.max(b) >= 2.0 * a.min(b)
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
        let WallNoise { ns, outliers, .. } = of_steps(&stage(&base), &stage(&head)).unwrap();
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
        let [mut slow, mut head] = [base; 2];
        (slow[3], head[6]) = (1900, 1900);
        let WallNoise { ns, outliers, .. } = of_steps(&stage(&slow), &stage(&head)).unwrap();
        assert!(ns > 1800.0 && outliers.is_empty(), "{ns} {outliers:?}");
        head[3] = 1900;
        let WallNoise { ns, outliers, .. } = of_steps(&stage(&base), &stage(&head)).unwrap();
        assert!(ns < 20.0 && outliers.is_empty(), "the head alone has them: {ns} {outliers:?}");
    }

    #[test]
    fn twice_as_long_is_never_the_same() {
        let judged = |base, head| change(Kind::Wall, [Some(base), Some(head)], 1e9, [0.0; 2]).judgement;
        assert_eq!(judged(100.0, 199.0), Judgement::Same);
        assert_eq!((judged(100.0, 200.0), judged(200.0, 100.0)), (Judgement::Worse, Judgement::Better));
        assert_eq!(judged(0.0, 0.0), Judgement::Same);
        let idle = |base, head| change(Kind::IdleTime, [Some(base), Some(head)], 1e9, [0.0; 2]).judgement;
        assert_eq!((idle(1.0, 3.0), idle(100.0, 120.0)), (Judgement::Unclear, Judgement::Same));
        let rate = change(Kind::Rate, [Some(1.0), Some(3.0)], 10.0, [0.0; 2]);
        assert_eq!(rate.judgement, Judgement::Better);
    }

    #[test]
    fn a_change_by_outliers_alone_is_unclear() {
        let judged = |head, odd| change(Kind::Wall, [Some(1000.0), Some(head)], 20.0, odd).judgement;
        assert_eq!(judged(1400.0, [0.0, 0.28]), Judgement::Unclear);
        assert_eq!(judged(1400.0, [0.0, 0.1]), Judgement::Worse);
        assert_eq!(judged(4000.0, [0.0, 0.75]), Judgement::Worse, "beyond a factor of two it counts");
    }

    #[test]
    fn runs_of_other_lengths_compare_the_steps_that_both_have() {
        let WallNoise { ns, how, .. } =
            of_steps(&stage(&[100, 110, 90, 100]), &stage(&[110, 100, 100, 90, 100])).unwrap();
        assert!(ns > 50.0 && ns < 250.0, "{ns}");
        assert!(how.contains("4 steps"), "{how}");
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
