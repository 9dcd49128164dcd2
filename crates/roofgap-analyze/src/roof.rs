//! The distance of kernels and stages to the roof of the device: [`RoofDistance`] has the rule.
//!
//! [`RoofSums`] adds up launches whose work is known. Their work comes from `counters`, or from the recorded `shapes` of operators.

use crate::gpu::GpuFacts;
use crate::result::{Analysis, Kernel, RoofDistance, RoofSource, Stage};
use crate::shapes::ShapedKernels;
use crate::stages::StageIndex;
use roofgap_trace::{NameId, Trace};
use rustc_hash::FxHashMap;

/// Puts the distance to the roof beside every kernel and stage whose work is known.
pub fn attach(analysis: &mut Analysis, sums: &RoofSums) {
    distances(&mut analysis.kernels, None, sums);
    for stage in &mut analysis.stages {
        distances(&mut stage.kernels, Some(&stage.name), sums);
        stage.roof = sums.of_stage(&stage.name).distance();
        if let Some(warm) = &mut stage.warm {
            distances(&mut warm.kernels, Some(&stage.name), sums);
            for kernel in &mut warm.kernels {
                let whole = stage.kernels.iter().find(|whole| whole.name == kernel.name);
                kernel.roof = kernel.roof.part(kernel.total_ns, whole.map_or(0, |whole| whole.total_ns));
            }
            warm.roof = stage.roof.part(warm.kernel_ns.unwrap_or(0), stage.kernel_ns.unwrap_or(0));
        }
    }
}

/// Puts the distance beside each kernel of a table. The launches of one name on several devices are not told apart.
fn distances(kernels: &mut [Kernel], stage: Option<&str>, sums: &RoofSums) {
    let mut rows: FxHashMap<String, u32> = FxHashMap::default();
    for kernel in kernels.iter() {
        *rows.entry(kernel.name.clone()).or_default() += 1;
    }
    for kernel in kernels.iter_mut().filter(|kernel| rows[&kernel.name] == 1) {
        kernel.roof = sums.of_kernel(stage, &kernel.name).distance();
    }
}

/// The least time of a stage by each of its roofs, ns; 0 for a roof that is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageRoofs {
    /// FLOPs of the model at the dense peak.
    pub compute_ns: i64,
    /// Bytes of the model at the memory bandwidth.
    pub memory_ns: i64,
    /// Messages at the peak of the link.
    pub communication_ns: i64,
    /// Work of the thread that launches.
    pub launch_ns: i64,
}

/// The work that is left without the cause of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// All of it: every roof holds.
    Work,
    /// The FLOPs, with fewer bytes: the memory roof does not hold.
    Flops,
    /// The bytes, with other FLOPs: the compute roof does not hold.
    Bytes,
    /// Less of both: neither of these roofs holds.
    Neither,
}

impl StageRoofs {
    /// Returns the roofs of a stage that its model tells.
    pub fn of(stage: &Stage) -> Self {
        let at_peak = |by_wall_pct: Option<f64>| {
            let share = by_wall_pct.filter(|pct| pct.is_finite()).unwrap_or(0.0) / 100.0;
            (stage.elapsed_ns() as f64 * share.clamp(0.0, 1.0)) as i64
        };
        Self {
            compute_ns: at_peak(stage.mfu.as_ref().map(|mfu| mfu.by_wall_pct)),
            memory_ns: at_peak(stage.mbu.as_ref().map(|mbu| mbu.by_wall_pct)),
            communication_ns: 0,
            launch_ns: if stage.period_ns.is_none() { stage.launching_ns } else { 0 },
        }
    }

    /// Returns the highest roof that holds, by name, and its time, ns. That of the launching thread holds for faster kernels.
    pub fn highest(self, keeps: Keeps, keeps_launches: bool) -> (&'static str, i64) {
        let holds = |roof: bool, ns: i64| if roof { ns } else { 0 };
        let roofs = [
            ("the compute roof", holds(matches!(keeps, Keeps::Work | Keeps::Flops), self.compute_ns)),
            ("the memory roof", holds(matches!(keeps, Keeps::Work | Keeps::Bytes), self.memory_ns)),
            ("the communication roof", holds(keeps == Keeps::Work, self.communication_ns)),
            ("the work of the launching thread", holds(keeps_launches, self.launch_ns)),
        ];
        roofs.into_iter().filter(|(_, ns)| *ns > 0).max_by_key(|(_, ns)| *ns).unwrap_or(("zero", 0))
    }
}

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

/// Sums by stage and kernel: of a kernel in the whole trace and in each stage, and of each stage.
#[derive(Debug, Default)]
pub struct RoofSums(FxHashMap<(Option<String>, Option<String>), RoofSum>);

impl RoofSums {
    /// Adds launches of a kernel.
    pub fn add(&mut self, stage: Option<&str>, kernel: &str, took: RoofTime) {
        let mut keys = vec![(None, Some(kernel))];
        keys.extend(stage.iter().flat_map(|_| [(stage, Some(kernel)), (stage, None)]));
        for (stage, kernel) in keys {
            self.0.entry((stage.map(str::to_owned), kernel.map(str::to_owned))).or_default().add(took);
        }
    }

    fn sum(&self, stage: Option<&str>, kernel: Option<&str>) -> RoofSum {
        self.0.get(&(stage.map(str::to_owned), kernel.map(str::to_owned))).copied().unwrap_or_default()
    }

    /// Returns the sum of a kernel in a stage, or in the whole trace.
    pub fn of_kernel(&self, stage: Option<&str>, kernel: &str) -> RoofSum {
        self.sum(stage, Some(kernel))
    }

    /// Returns the sum of a stage.
    pub fn of_stage(&self, stage: &str) -> RoofSum {
        self.sum(Some(stage), None)
    }
}

/// Adds the kernels of operators with known shapes. Kernels that were measured in their stage are left to the counters.
pub fn add_modelled(
    sums: &mut RoofSums,
    trace: &Trace,
    index: &StageIndex,
    gpu: &GpuFacts,
    shaped: &ShapedKernels,
) {
    // Launches of a kernel in a stage by the operator, with the roof of one; `None` where the GPU has no peak for its type.
    type Key = (Option<usize>, NameId, usize);
    let mut groups: FxHashMap<Key, Option<(f64, RoofTime)>> = FxHashMap::default();
    for &(row, operator) in &shaped.rows {
        let key = (index.stage_of_op(row), trace.ops.name[row], operator);
        let launches = groups.entry(key).or_insert_with(|| {
            let work = shaped.operators[operator].work;
            let each_ns = gpu.roof_ns(work.flops, work.bytes, gpu.peak(work.dtype))?;
            Some((each_ns, RoofTime { total_ns: 0, roof_ns: 0.0, source: RoofSource::Modelled }))
        });
        if let Some((each_ns, took)) = launches {
            // A launch that is faster than its roof is at the roof.
            let took_ns = trace.ops.duration(row);
            took.total_ns += took_ns;
            took.roof_ns += each_ns.min(took_ns as f64);
        }
    }
    let modelled = groups.into_iter().filter_map(|((stage, kernel, _), launches)| {
        Some((stage.map(|stage| index.name(stage)), trace.names.get(kernel), launches?.1))
    });
    let new = |(stage, kernel, _): &(Option<&str>, &str, RoofTime)| {
        sums.of_kernel(*stage, kernel) == RoofSum::default()
    };
    let modelled: Vec<_> = modelled.filter(new).collect();
    for (stage, kernel, took) in modelled {
        sums.add(stage, kernel, took);
    }
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
