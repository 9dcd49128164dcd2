//! The noise of a number, estimated from the runs themselves.

use super::comparison::{Change, Judgement};
use super::metric::Better;
use crate::result::{Kernel, Steps};
use roofgap_base::stats::{Confidence, interpolate, student_t};

/// What is taken for noise where nothing was measured, and the least that is taken for it anywhere: within one run there is
/// nothing to be seen of what differs between two (clocks, neighbours, addresses).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floors {
    /// Least noise of times on the CPU, % of the base.
    pub wall_pct: f64,
    /// Least noise of times on the GPU.
    pub gpu_pct: f64,
    /// Noise of times on the CPU where neither steps nor repeats show any.
    pub unmeasured_wall_pct: f64,
    /// Noise of a kernel that ran once.
    pub unmeasured_gpu_pct: f64,
}

impl Default for Floors {
    fn default() -> Self {
        Self { wall_pct: 2.0, gpu_pct: 1.0, unmeasured_wall_pct: 5.0, unmeasured_gpu_pct: 5.0 }
    }
}

/// A share of a number.
pub fn share(value: i64, pct: f64) -> f64 {
    value.unsigned_abs() as f64 * pct / 100.0
}

/// Noise of the sum of the steps of one instance, and where it comes from.
///
/// Steps in the same place are held against one another, so that what all runs share (a longer first step, a growing cache)
/// does not count. `None` with fewer than three steps.
pub fn of_steps(base: (&Steps, u64), head: (&Steps, u64)) -> Option<(f64, String)> {
    let ((base, base_instances), (head, head_instances)) = (base, head);
    let (b, h) = (&base.each_ns, &head.each_ns);
    if b.len() < 3 || h.len() < 3 {
        return None;
    }
    if b.len() == h.len() && base_instances == head_instances {
        let differences: Vec<f64> = b.iter().zip(h).map(|(b, h)| h.saturating_sub(*b) as f64).collect();
        let n = differences.len();
        let spread = deviation(&differences) * (n as f64).sqrt() / base_instances.max(1) as f64;
        let how = format!("the differences of {n} steps in the same place");
        return Some((student_t(n - 1, Confidence::Pct99) * spread, how));
    }
    let variance = |each: &[i64], instances: u64| {
        let values: Vec<f64> = each.iter().map(|&ns| ns as f64).collect();
        let spread = deviation(&values) / instances.max(1) as f64;
        spread * spread * values.len() as f64
    };
    let sum = variance(b, base_instances) + variance(h, head_instances);
    let how = format!("the spread of {} and {} steps", b.len(), h.len());
    Some((student_t(b.len().min(h.len()) - 1, Confidence::Pct99) * sum.sqrt(), how))
}

/// Noise of the difference of two means of repeats. `None` with fewer than two repeats on a side.
pub fn of_repeats(base: &[i64], head: &[i64]) -> Option<f64> {
    if base.len() < 2 || head.len() < 2 {
        return None;
    }
    let variance = |each: &[i64]| {
        let values: Vec<f64> = each.iter().map(|&ns| ns as f64).collect();
        let spread = deviation(&values);
        spread * spread / values.len() as f64
    };
    let freedom = base.len() + head.len() - 2;
    Some(student_t(freedom, Confidence::Pct99) * (variance(base) + variance(head)).sqrt())
}

/// Variance of the sum of a kernel's calls; from the range of their lengths, which is what an analysis keeps of them.
pub fn of_kernel(kernel: &Kernel, floors: &Floors) -> f64 {
    let calls = kernel.calls as f64;
    match (kernel.min_ns, kernel.max_ns) {
        (Some(min), Some(max)) if kernel.calls > 1 => {
            let spread = max.saturating_sub(min) as f64 / expected_range(calls);
            spread * spread * calls
        }
        _ => {
            // Stated as what three deviations come to, as everywhere.
            let spread = share(kernel.total_ns, floors.unmeasured_gpu_pct) / DEVIATIONS;
            spread * spread
        }
    }
}

/// Number of standard deviations of a sum of calls that count as noise.
pub const DEVIATIONS: f64 = 3.0;

/// The range of `n` normally distributed values, in standard deviations.
fn expected_range(n: f64) -> f64 {
    const KNOWN: [(f64, f64); 10] = [
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
    interpolate(&KNOWN, n)
}

/// Standard deviation of a sample; 0 with fewer than two values.
fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// A time on both sides with its noise.
pub fn time(base: Option<i64>, head: Option<i64>, noise: f64) -> Change<i64> {
    let (Some(b), Some(h)) = (base, head) else {
        return Change { base, head, ..Change::default() };
    };
    let (delta, noise) = (h.saturating_sub(b), noise.ceil() as i64);
    Change {
        base,
        head,
        delta: Some(delta),
        delta_pct: percent(delta as f64, b as f64),
        noise: Some(noise),
        judgement: judge(delta as f64, noise as f64, Better::Lower),
    }
}

/// A number on both sides with its noise.
pub fn number(base: Option<f64>, head: Option<f64>, noise: f64, better: Better) -> Change<f64> {
    let (Some(b), Some(h)) = (base, head) else {
        return Change { base, head, ..Change::default() };
    };
    Change {
        base,
        head,
        delta: Some(h - b),
        delta_pct: percent(h - b, b),
        noise: Some(noise),
        judgement: judge(h - b, noise, better),
    }
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

/// A change in percent of the base; `None` where the base is nothing.
fn percent(delta: f64, base: f64) -> Option<f64> {
    (base != 0.0).then(|| 100.0 * delta / base.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(each: &[i64]) -> Steps {
        crate::timeline::step_summary(each.to_vec(), None).unwrap()
    }

    #[test]
    fn what_both_runs_share_is_not_noise() {
        // A long first step and a growing cache on both sides, everything 10 % longer on the head.
        let base = [3000, 1000, 1010, 1020, 1030, 1040, 1050, 1060];
        let head = base.map(|ns| ns + ns / 10);
        let (noise, _) = of_steps((&steps(&base), 1), (&steps(&head), 1)).unwrap();
        let delta: i64 = head.iter().sum::<i64>() - base.iter().sum::<i64>();
        assert!(noise < delta as f64, "{noise} {delta}");
    }

    #[test]
    fn a_hiccup_in_one_step_is_noise() {
        let base = [1000, 1003, 998, 1001, 1002, 999, 1000, 1001];
        let mut head = base;
        head[3] += 400;
        let (noise, _) = of_steps((&steps(&base), 1), (&steps(&head), 1)).unwrap();
        assert!(noise > 400.0, "{noise}");
        assert_eq!(of_steps((&steps(&[1, 2]), 1), (&steps(&[1, 2]), 1)), None);
    }

    #[test]
    fn runs_of_other_lengths_compare_by_their_spread() {
        let (noise, how) =
            of_steps((&steps(&[100, 110, 90, 100]), 1), (&steps(&[100, 110, 90, 100, 100]), 1)).unwrap();
        assert!(noise > 50.0 && noise < 250.0, "{noise}");
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
        assert_eq!([1.0, 2.0, 1e9].map(expected_range), [1.128, 1.128, 9.8]);
        assert!((1.693..2.326).contains(&expected_range(4.0)));
    }
}
