//! Steps of a stage in numbers.

use super::kernels::divide;
use crate::result::{CpuSteps, Steps};
use roofgap_base::stats::percentile;

/// Mean and percentiles of step times; `None` without steps.
pub fn summary(each_ns: Vec<i64>, launches_per_step: Option<f64>) -> Option<Steps> {
    let mut sorted = each_ns.clone();
    sorted.sort_unstable();
    Some(Steps {
        count: sorted.len() as u64,
        mean_ns: divide(sorted.iter().sum(), sorted.len() as i64),
        p50_ns: percentile(&sorted, 0.5)?,
        p90_ns: percentile(&sorted, 0.9)?,
        p99_ns: percentile(&sorted, 0.99)?,
        launches_per_step,
        each_ns,
        cpu: None,
    })
}

/// Adds the time of the steps on the CPU.
pub fn with_cpu(mut steps: Steps, each_ns: Vec<i64>) -> Steps {
    steps.cpu = summary(each_ns, None).map(|cpu| CpuSteps {
        mean_ns: cpu.mean_ns,
        p50_ns: cpu.p50_ns,
        each_ns: cpu.each_ns,
    });
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let steps = summary((1..=10).rev().map(|i| i * 10).collect(), Some(2.5)).unwrap();
        assert_eq!(
            (steps.count, steps.mean_ns, steps.p50_ns, steps.p90_ns, steps.p99_ns),
            (10, 55, 50, 90, 100)
        );
        assert_eq!(steps.each_ns[0], 100, "in order of time, not of size");
        assert_eq!(summary(Vec::new(), None), None);
    }
}
