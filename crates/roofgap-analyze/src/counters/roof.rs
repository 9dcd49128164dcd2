//! The roof of measured kernels: their point under the roofline, and their time at the roof.

use super::canonical;
use super::join::{Joined, Measured, Shape, Timeline};
use super::readings::Readings;
use crate::gpu::GpuFacts;
use crate::result::{CounterSource, Kernel, RoofSource};
use crate::roof::{RoofSums, RoofTime};
use rustc_hash::FxHashMap;

/// A point under a roofline.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// Achieved share of the rate that is attainable at its intensity: the lower of peak and bandwidth x intensity, %.
    pub reached_pct: f64,
    /// The lower of the two, in words.
    pub roof: String,
}

impl Roofline {
    /// The point of a launch; `None` where work, bytes, time or a roof is not known.
    pub fn of(readings: &Readings, gpu: &GpuFacts) -> Option<Self> {
        let work = readings.work.as_ref()?;
        let flops = work.flops().filter(|flops| *flops > 0.0)?;
        let bytes = readings.dram_bytes.filter(|bytes| *bytes > 0.0)?;
        let seconds = readings.duration_ns.filter(|ns| *ns > 0.0)? * 1e-9;
        let kind = work.main_kind()?;
        let peak = gpu.peak(kind.dtype()?)?.flops_per_s;
        let (bandwidth, _) = gpu.bandwidth()?;
        let by_bandwidth = flops / bytes * bandwidth;
        Some(Self {
            reached_pct: 100.0 * (flops / seconds) / by_bandwidth.min(peak),
            roof: match by_bandwidth < peak {
                true => format!("{:.0} GB/s", bandwidth / 1e9),
                false => format!("{} peak", kind.name()),
            },
        })
    }
}

/// Returns the time of a launch at the roof, ns; `None` where its operations, its bytes or a peak are not known.
fn roof_ns(readings: &Readings, gpu: &GpuFacts) -> Option<f64> {
    if let Some(pct) = readings.roof_pct {
        return Some(readings.duration_ns? * pct / 100.0);
    }
    let work = readings.work.as_ref()?;
    gpu.roof_ns(work.flops()?, readings.dram_bytes?, work.main_kind().and_then(|kind| kind.dtype()))
}

/// Adds up the launches of a timeline whose kernel and launch shape were measured in their stage.
pub fn roofs(joined: &Joined, timeline: &Timeline, gpu: &GpuFacts) -> RoofSums {
    let mut known: FxHashMap<(Option<&str>, &str, Shape), (f64, RoofSource)> = FxHashMap::default();
    for measured in &joined.measured {
        let usable = measured.matched && measured.representative != Some(false);
        if let Some(ns) = roof_ns(&measured.readings, gpu).filter(|_| usable) {
            let row = &measured.row;
            let source = match row.source {
                CounterSource::Ncu => RoofSource::Counters,
                CounterSource::Sampled => RoofSource::Sampled,
            };
            known.insert((row.stage.as_deref(), &row.kernel, (row.grid, row.block)), (ns, source));
        }
    }
    let mut sums = RoofSums::default();
    for kernel in timeline.kernels.iter().filter(|_| !known.is_empty()) {
        let (stage, name) = (kernel.stage.as_deref(), kernel.name.as_str());
        let Some(shape) = kernel.shape else { continue };
        // Counters without ranges do not tell the stage.
        let found = known.get(&(stage, name, shape)).or_else(|| known.get(&(None, name, shape)));
        if let Some(&(ns, source)) = found {
            let roof_ns = ns * kernel.calls as f64;
            let took = RoofTime { total_ns: kernel.total_ns, roof_ns, source };
            sums.add(stage, name, took);
        }
    }
    sums
}

/// Adds up measured launches without a timeline, under the names of the table of kernels.
pub fn roofs_alone(joined: &Joined, kernels: &[Kernel], gpu: &GpuFacts) -> RoofSums {
    let names: FxHashMap<String, &str> =
        kernels.iter().map(|kernel| (canonical(&kernel.name), kernel.name.as_str())).collect();
    let mut sums = RoofSums::default();
    for Measured { row, readings, .. } in &joined.measured {
        if let (Some(ns), Some(roof_ns), Some(name)) =
            (row.duration_ns, roof_ns(readings, gpu), names.get(&canonical(&row.kernel)))
        {
            let (total_ns, roof_ns) = (ns.saturating_mul(row.samples as i64), roof_ns * row.samples as f64);
            sums.add(None, name, RoofTime { total_ns, roof_ns, source: RoofSource::Counters });
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::super::join::TimelineKernel;
    use super::super::readings::Work;
    use super::*;
    use crate::gpu::WorkKind;
    use crate::result::CounterRow;

    /// A device of 100 TFLOP/s and 1000 GB/s.
    fn gpu() -> GpuFacts {
        let mut gpu = crate::gpu::lookup("NVIDIA H200", Some((9, 0)), None).expect("in the table").clone();
        (gpu.stated_tflops, gpu.bandwidth_gbs) = (Some(100.0), Some(1000.0));
        gpu
    }

    fn readings(flops: f64, bytes: f64) -> Readings {
        Readings {
            dram_bytes: Some(bytes),
            work: Some(Work { by_kind: vec![(WorkKind::TensorBf16, flops)], tensor_uncounted: false }),
            ..Readings::default()
        }
    }

    fn measured(stage: Option<&str>, grid: u32, readings: Readings) -> Measured {
        Measured {
            row: CounterRow {
                stage: stage.map(str::to_owned),
                kernel: "gemm".to_owned(),
                grid: [grid, 1, 1],
                block: [128, 1, 1],
                samples: 2,
                duration_ns: Some(4_000),
                ..CounterRow::default()
            },
            bound: None,
            reached_pct: None,
            representative: Some(true),
            matched: true,
            timeline_calls: 1,
            timeline_total_ns: 1,
            readings,
            advice: Vec::new(),
        }
    }

    fn launched(stage: &str, grid: u32, calls: u64, total_ns: i64) -> TimelineKernel {
        TimelineKernel {
            stage: Some(stage.to_owned()),
            name: "gemm".to_owned(),
            shape: Some(([grid, 1, 1], [128, 1, 1])),
            median_ns: 1.0,
            calls,
            total_ns,
        }
    }

    #[test]
    fn the_greater_of_compute_and_memory_is_the_roof() {
        // 2e8 FLOPs at 1e14 per second take 2 µs; 1e6 bytes at 1e12 per second take 1 µs.
        assert_eq!(roof_ns(&readings(2e8, 1e6), &gpu()), Some(2_000.0));
        assert_eq!(roof_ns(&readings(2e8, 5e6), &gpu()), Some(5_000.0));
        assert_eq!(roof_ns(&readings(0.0, 5e6), &gpu()), Some(5_000.0));
        let mut unknown = readings(2e8, 1e6);
        unknown.dram_bytes = None;
        assert_eq!(roof_ns(&unknown, &gpu()), None);
        let mut uncounted = readings(2e8, 1e6);
        uncounted.work.as_mut().expect("work").tensor_uncounted = true;
        assert_eq!(roof_ns(&uncounted, &gpu()), None);
        let mut no_peaks = gpu();
        no_peaks.bandwidth_gbs = None;
        assert_eq!(roof_ns(&readings(2e8, 1e6), &no_peaks), None);
    }

    #[test]
    fn launches_count_once_and_only_where_their_shape_was_measured() {
        let joined = Joined {
            measured: vec![
                measured(Some("decode"), 8, readings(2e8, 1e6)),
                measured(None, 16, readings(0.0, 3e6)),
            ],
            ..Joined::default()
        };
        let timeline = Timeline::new(vec![
            // 10 launches of 2 µs at the roof took 50 µs.
            launched("decode", 8, 10, 50_000),
            // Of a shape that was measured without a stage: 5 launches of 3 µs took 20 µs.
            launched("decode", 16, 5, 20_000),
            launched("prefill", 8, 1, 9_000),
            launched("decode", 32, 1, 9_000),
        ]);
        let sums = roofs(&joined, &timeline, &gpu());
        let decode = sums.of_stage("decode").distance();
        assert_eq!(decode.above_roof_ns, Some(30_000 + 5_000));
        assert_eq!(decode.roof_covered_ns, Some(70_000));
        assert_eq!(decode.roof_pct, Some(50.0));
        assert_eq!(sums.of_kernel(None, "gemm").distance(), decode);
        assert_eq!(sums.of_stage("prefill").distance().roof_pct, None);
    }

    #[test]
    fn measured_launches_without_a_timeline_take_their_own_time() {
        let joined = Joined { measured: vec![measured(None, 8, readings(2e8, 1e6))], ..Joined::default() };
        let kernel = Kernel { name: "gemm".to_owned(), ..Kernel::default() };
        let sums = roofs_alone(&joined, &[kernel], &gpu());
        let gemm = sums.of_kernel(None, "gemm").distance();
        assert_eq!((gemm.roof_covered_ns, gemm.above_roof_ns), (Some(8_000), Some(4_000)));
    }
}
