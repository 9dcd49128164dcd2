//! The point of a kernel under the roofline of its device.

use super::readings::Readings;
use crate::gpu::GpuFacts;

/// A point under a roofline.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// Operations a byte of DRAM traffic.
    pub intensity: f64,
    /// Operations a second.
    pub achieved_flops_per_s: f64,
    /// Attainable rate at this intensity: the lower of peak and bandwidth x intensity.
    pub attainable_flops_per_s: f64,
    /// True if the bandwidth is the lower of the two.
    pub under_bandwidth: bool,
    /// The peak that was used, in words.
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
        let peak = gpu.peak(kind.dtype()?)?;
        let (bandwidth, _) = gpu.bandwidth()?;
        let intensity = flops / bytes;
        let by_bandwidth = intensity * bandwidth;
        let under_bandwidth = by_bandwidth < peak.flops_per_s;
        let roof = if under_bandwidth {
            format!("{:.0} GB/s", bandwidth / 1e9)
        } else {
            format!("{} peak", kind.name())
        };
        Some(Self {
            intensity,
            achieved_flops_per_s: flops / seconds,
            attainable_flops_per_s: by_bandwidth.min(peak.flops_per_s),
            under_bandwidth,
            roof,
        })
    }

    /// Returns the achieved share of the attainable rate, %.
    pub fn reached_pct(&self) -> f64 {
        100.0 * self.achieved_flops_per_s / self.attainable_flops_per_s
    }
}
