//! Sums over launches whose work is known, by kernel and stage.

use crate::result::{RoofDistance, RoofSource};
use rustc_hash::FxHashMap;

/// The time of some launches, and the part of it beyond the roof.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RoofSum {
    covered_ns: i64,
    above_ns: f64,
    source: Option<RoofSource>,
}

impl RoofSum {
    /// Adds launches with the time that they took. Together they are not faster than the roof.
    fn add(&mut self, took: RoofTime) {
        self.covered_ns += took.total_ns;
        self.above_ns += (took.total_ns as f64 - took.roof_ns).max(0.0);
        self.source = match self.source {
            Some(source) if source != took.source => Some(RoofSource::Mixed),
            _ => Some(took.source),
        };
    }

    /// Returns the distance to the roof; empty without any launch.
    pub fn distance(&self) -> RoofDistance {
        if self.covered_ns <= 0 {
            return RoofDistance::default();
        }
        RoofDistance {
            roof_pct: Some(100.0 * (1.0 - self.above_ns / self.covered_ns as f64)),
            above_roof_ns: Some(self.above_ns.round() as i64),
            roof_covered_ns: Some(self.covered_ns),
            roof_source: self.source,
        }
    }
}

/// The time of launches beside the time of their work at the roof.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoofTime {
    /// Time that they took, ns.
    pub total_ns: i64,
    /// Time at the roof, ns.
    pub roof_ns: f64,
    /// Origin of the work.
    pub source: RoofSource,
}

/// Sums by kernel, of the whole trace and of each stage.
#[derive(Debug, Default)]
pub struct RoofSums {
    kernels: FxHashMap<String, RoofSum>,
    stages: FxHashMap<String, StageSums>,
}

/// Sums of a stage.
#[derive(Debug, Default)]
struct StageSums {
    all: RoofSum,
    kernels: FxHashMap<String, RoofSum>,
}

impl RoofSums {
    /// Adds launches of a kernel.
    pub fn add(&mut self, stage: Option<&str>, kernel: &str, took: RoofTime) {
        sum(&mut self.kernels, kernel).add(took);
        if let Some(stage) = stage {
            let stage = self.stages.entry(stage.to_owned()).or_default();
            stage.all.add(took);
            sum(&mut stage.kernels, kernel).add(took);
        }
    }

    /// Returns the sum of a kernel in a stage, or in the whole trace.
    pub fn of_kernel(&self, stage: Option<&str>, kernel: &str) -> RoofSum {
        let kernels = match stage {
            Some(stage) => self.stages.get(stage).map(|stage| &stage.kernels),
            None => Some(&self.kernels),
        };
        kernels.and_then(|kernels| kernels.get(kernel)).copied().unwrap_or_default()
    }

    /// Tells whether launches of a kernel were added in a stage, or at all.
    pub fn has(&self, stage: Option<&str>, kernel: &str) -> bool {
        self.of_kernel(stage, kernel) != RoofSum::default()
    }

    /// Returns the sum of a stage.
    pub fn of_stage(&self, stage: &str) -> RoofSum {
        self.stages.get(stage).map(|stage| stage.all).unwrap_or_default()
    }
}

fn sum<'a>(sums: &'a mut FxHashMap<String, RoofSum>, kernel: &str) -> &'a mut RoofSum {
    sums.entry(kernel.to_owned()).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_beyond_the_roof_adds_up() {
        let took = |total_ns, roof_ns, source| RoofTime { total_ns, roof_ns, source };
        let mut sums = RoofSums::default();
        sums.add(Some("decode"), "gemm", took(1_000, 400.0, RoofSource::Counters));
        // Faster than its roof: at the roof.
        sums.add(Some("decode"), "gemm", took(500, 600.0, RoofSource::Counters));
        sums.add(None, "gemm", took(500, 500.0, RoofSource::Counters));
        sums.add(Some("decode"), "copy", took(300, 100.0, RoofSource::Modelled));
        let gemm = sums.of_kernel(Some("decode"), "gemm").distance();
        assert_eq!(gemm.above_roof_ns, Some(600));
        assert_eq!(gemm.roof_covered_ns, Some(1_500));
        assert_eq!(gemm.roof_pct, Some(60.0));
        let whole = sums.of_kernel(None, "gemm").distance();
        assert_eq!((whole.above_roof_ns, whole.roof_covered_ns), (Some(600), Some(2_000)));
        let stage = sums.of_stage("decode").distance();
        assert_eq!((stage.above_roof_ns, stage.roof_covered_ns), (Some(800), Some(1_800)));
        assert_eq!(stage.roof_source, Some(RoofSource::Mixed));
        assert_eq!(sums.of_stage("prefill").distance(), RoofDistance::default());
    }
}
