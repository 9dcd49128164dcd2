//! The facts of one GPU, and what the device or the user says over them.

use super::{Dtype, lookup};
use roofgap_trace::Device;
use roofgap_trace::account::Account;
use serde::{Deserialize, Serialize};

/// Peaks by number format, in TFLOP/s (TOP/s for int8). What no source states is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TensorPeaks {
    /// 64-bit on the CUDA cores.
    pub fp64: Option<f64>,
    /// 64-bit on the tensor cores.
    pub fp64_tensor: Option<f64>,
    /// 32-bit on the CUDA cores.
    pub fp32: Option<f64>,
    /// TF32 on the tensor cores.
    pub tf32: Option<f64>,
    /// fp16 on the tensor cores, with fp32 accumulation.
    pub fp16: Option<f64>,
    /// bf16 on the tensor cores, with fp32 accumulation.
    pub bf16: Option<f64>,
    /// int8 on the tensor cores.
    pub int8: Option<f64>,
    /// fp8 on the tensor cores, with fp32 accumulation.
    pub fp8: Option<f64>,
    /// fp4 on the tensor cores.
    pub fp4: Option<f64>,
}

impl TensorPeaks {
    /// The best rate for a format, in TFLOP/s.
    #[must_use]
    pub fn tflops(&self, dtype: Dtype) -> Option<f64> {
        match dtype {
            Dtype::Fp64 => self.fp64_tensor.or(self.fp64),
            Dtype::Fp32 => self.fp32,
            Dtype::Tf32 => self.tf32,
            Dtype::Fp16 => self.fp16,
            Dtype::Bf16 => self.bf16,
            Dtype::Int8 => self.int8,
            Dtype::Fp8 => self.fp8,
            Dtype::Fp4 => self.fp4,
        }
    }
}

/// The facts of one GPU model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuFacts {
    /// Our name for the model.
    pub name: String,
    /// The names under which drivers and tools report it.
    #[serde(skip_serializing, default)]
    pub reported: Vec<String>,
    /// Compute capability, major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// Streaming multiprocessors.
    pub sms: Option<u32>,
    /// The boost clock the peaks belong to.
    pub clock_mhz: Option<f64>,
    /// Memory, as marketed.
    pub memory_gb: Option<f64>,
    /// Second-level cache.
    pub l2_mib: Option<f64>,
    /// Bandwidth of the device memory, in GB/s.
    pub bandwidth_gbs: Option<f64>,
    /// Link to the host: PCIe generation and lanes, or `NVLink-C2C`; `None` where the platform decides.
    #[serde(default)]
    pub host_link: Option<String>,
    /// Bandwidth of NVLink in both directions together, in GB/s; 0 without NVLink, `None` where a bridge is optional or it is unknown.
    #[serde(default, skip_serializing)]
    pub nvlink_gbs: Option<f64>,
    /// Peaks without sparsity.
    pub dense_tflops: TensorPeaks,
    /// Peaks with 2:4 structured sparsity, for reference only: no ratio is taken against them.
    pub sparse_tflops: TensorPeaks,
    /// Source of the figures.
    pub source: String,
    /// Notes on the peaks.
    #[serde(default)]
    pub notes: Option<String>,
    /// Source of the bandwidth, when not `source`.
    #[serde(default)]
    pub bandwidth_source: Option<String>,
    /// One peak for the format in use that comes before the table, in TFLOP/s: set by the user, or measured.
    #[serde(default)]
    pub stated_tflops: Option<f64>,
    /// Source of that peak.
    #[serde(default)]
    pub stated_source: Option<String>,
    /// Reason why the device is not in the table.
    #[serde(default)]
    pub unknown: Option<String>,
    /// Ratio of the device's own clock to the published one; 1 where unknown.
    #[serde(skip_deserializing, default = "one")]
    pub clock_ratio: f64,
}

fn one() -> f64 {
    1.0
}

/// A dense peak with where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Peak {
    /// Operations per second.
    pub flops_per_s: f64,
    /// The format it holds for.
    pub dtype: Dtype,
    /// Source in words.
    pub source: String,
}

/// The device as the capture reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DeviceReport {
    /// Memory bandwidth in bytes per second.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Highest clock of the multiprocessors in hertz.
    pub clock_hz: Option<u64>,
    /// Multiprocessors the program could use.
    pub sms: Option<u32>,
}

/// Figures set by the user (`hardware.peak_tflops`, `hardware.bandwidth_gbs`).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct UserLimits {
    /// Dense peak of the format in use, in TFLOP/s.
    pub peak_tflops: Option<f64>,
    /// Memory bandwidth in GB/s.
    pub bandwidth_gbs: Option<f64>,
}

impl UserLimits {
    /// Tells whether the user set a usable (positive, finite) number.
    pub(crate) fn is_set(&self) -> bool {
        usable(self.peak_tflops).is_some() || usable(self.bandwidth_gbs).is_some()
    }
}

const SET_BY_USER: &str = "set by the user";

fn usable(value: Option<f64>) -> Option<f64> {
    value.filter(|v| v.is_finite() && *v > 0.0)
}

impl GpuFacts {
    /// Facts of a device that only the user knows.
    pub(crate) fn set_by_user(name: &str, limits: UserLimits) -> Self {
        Self {
            name: name.to_owned(),
            reported: Vec::new(),
            compute_capability: None,
            sms: None,
            clock_mhz: None,
            memory_gb: None,
            l2_mib: None,
            bandwidth_gbs: None,
            host_link: None,
            nvlink_gbs: None,
            dense_tflops: TensorPeaks::default(),
            sparse_tflops: TensorPeaks::default(),
            source: SET_BY_USER.to_owned(),
            notes: None,
            bandwidth_source: None,
            stated_tflops: None,
            stated_source: None,
            unknown: None,
            clock_ratio: 1.0,
        }
        .with_user_limits(limits)
    }

    /// All that is known of a device: the row of the table where there is one, over it what the capture says of the device, over
    /// that what the user set. A device that the table does not know has no peak unless the user gives one, and says why.
    pub(crate) fn of_device(
        name: &str,
        compute_capability: Option<(u32, u32)>,
        memory_bytes: Option<u64>,
        report: &DeviceReport,
        limits: UserLimits,
    ) -> Self {
        let known = match lookup(name, compute_capability, memory_bytes) {
            Ok(row) => row.clone(),
            Err(why) => Self {
                source: "not in the table".to_owned(),
                unknown: Some(why.to_string()),
                ..Self::set_by_user(name, UserLimits::default())
            },
        };
        known.on_device(report).with_user_limits(limits)
    }

    /// Facts of a device whose limits the program measured itself (a CPU, for one).
    pub(crate) fn measured(
        name: &str,
        flops_per_s: Option<f64>,
        bytes_per_s: Option<f64>,
        how: &str,
    ) -> Self {
        let limits = UserLimits {
            peak_tflops: flops_per_s.map(|peak| peak / 1e12),
            bandwidth_gbs: bytes_per_s.map(|bytes| bytes / 1e9),
        };
        let source = match how.starts_with("measured") {
            true => how.to_owned(),
            false => format!("measured: {how}"),
        };
        let mut facts = Self::set_by_user(name, limits);
        facts.stated_source = facts.stated_tflops.map(|_| source.clone());
        facts.bandwidth_source = facts.bandwidth_gbs.map(|_| source.clone());
        facts.source = source;
        facts
    }

    /// The same facts with the user's figures over them.
    pub(crate) fn with_user_limits(mut self, limits: UserLimits) -> Self {
        if let Some(peak) = usable(limits.peak_tflops) {
            self.stated_tflops = Some(peak);
            self.stated_source = Some(SET_BY_USER.to_owned());
        }
        if let Some(bandwidth) = usable(limits.bandwidth_gbs) {
            self.bandwidth_gbs = Some(bandwidth);
            self.bandwidth_source = Some(SET_BY_USER.to_owned());
        }
        self
    }

    /// The same facts with what the capture says of its own device: its bandwidth replaces the published one, and the
    /// peaks follow its clock and its number of multiprocessors where the published ones are known too.
    pub(crate) fn on_device(mut self, report: &DeviceReport) -> Self {
        if let Some(bandwidth) = usable(report.bandwidth_bytes_per_s.map(|b| b as f64 / 1e9)) {
            self.bandwidth_gbs = Some(bandwidth);
            self.bandwidth_source = Some("as the device reports it".to_owned());
        }
        let clock = match (report.clock_hz, self.clock_mhz) {
            (Some(own), Some(published)) if own > 0 && published > 0.0 => own as f64 / 1e6 / published,
            _ => 1.0,
        };
        let sms = match (report.sms, self.sms) {
            (Some(own), Some(published)) if own > 0 && published > 0 => f64::from(own) / f64::from(published),
            _ => 1.0,
        };
        self.clock_ratio = clock * sms;
        self
    }

    /// The dense peak for a format, or `None` where no source states one.
    #[must_use]
    pub fn peak(&self, dtype: Dtype) -> Option<Peak> {
        if let Some(tflops) = self.stated_tflops {
            let source = self.stated_source.clone().unwrap_or_else(|| SET_BY_USER.to_owned());
            return Some(Peak { flops_per_s: tflops * 1e12, dtype, source });
        }
        let tflops = self.dense_tflops.tflops(dtype)?;
        // Below half a per cent the ratio is rounding of the published clock.
        let ratio = if (self.clock_ratio - 1.0).abs() < 0.005 { 1.0 } else { self.clock_ratio };
        let source = if ratio == 1.0 {
            format!("{tflops} TFLOP/s dense: {}", self.source)
        } else {
            format!(
                "{tflops} TFLOP/s dense ({}) times {ratio:.3} for the clock and multiprocessors the device reports",
                self.source
            )
        };
        Some(Peak { flops_per_s: tflops * 1e12 * ratio, dtype, source })
    }

    /// Memory bandwidth in bytes per second, with where it comes from.
    #[must_use]
    pub fn bandwidth(&self) -> Option<(f64, &str)> {
        let gbs = self.bandwidth_gbs?;
        Some((gbs * 1e9, self.bandwidth_source.as_deref().unwrap_or(&self.source)))
    }
}

/// The capture does not name its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the capture does not name its GPU")]
pub struct NoDevice;

impl GpuFacts {
    /// Returns the facts of the device of a run: its first GPU, or the CPU whose peak the program measured.
    pub(crate) fn of_run(
        device: Option<&Device>,
        account: Option<&Account>,
        limits: UserLimits,
    ) -> Result<Self, NoDevice> {
        let measured = account.filter(|a| a.device.as_ref().and_then(|d| d.kind.as_deref()) == Some("cpu"));
        if let Some(peak) = measured.and_then(|a| a.peak.as_ref()) {
            let name =
                account.and_then(|a| a.device.as_ref()?.name.clone()).unwrap_or_else(|| "this CPU".into());
            return Ok(GpuFacts::measured(&name, peak.flops_per_s, peak.bytes_per_s, &peak.how)
                .with_user_limits(limits));
        }
        let Some(device) = device else {
            if limits.is_set() {
                return Ok(GpuFacts::set_by_user("the device", limits));
            }
            return Err(NoDevice);
        };
        Ok(GpuFacts::of_trace_device(device, limits))
    }

    /// Returns the facts of a device of a trace.
    pub(crate) fn of_trace_device(device: &Device, limits: UserLimits) -> Self {
        let name = device.name.as_deref().unwrap_or("");
        let report = DeviceReport {
            bandwidth_bytes_per_s: device.bandwidth_bytes_per_s,
            clock_hz: device.clock_hz,
            sms: device.sms,
        };
        let (cc, memory) = (device.compute_capability, device.memory_bytes);
        GpuFacts::of_device(name, cc, memory, &report, limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> GpuFacts {
        lookup("NVIDIA H200", Some((9, 0)), Some(150_109_880_320)).unwrap().clone()
    }

    #[test]
    fn the_device_report_comes_before_the_table() {
        // As nsys recorded it on an H200.
        let report = DeviceReport {
            bandwidth_bytes_per_s: Some(4_814_304_000_000),
            clock_hz: Some(1_980_000_000),
            sms: Some(132),
        };
        let facts = h200().on_device(&report);
        assert_eq!(facts.bandwidth().unwrap(), (4_814_304_000_000.0, "as the device reports it"));
        assert_eq!(facts.peak(Dtype::Bf16).unwrap().flops_per_s, 989.4e12);
    }

    #[test]
    fn a_slower_clock_lowers_the_peak_and_says_so() {
        let report = DeviceReport { clock_hz: Some(990_000_000), ..DeviceReport::default() };
        let peak = h200().on_device(&report).peak(Dtype::Bf16).unwrap();
        assert_eq!(peak.flops_per_s, 989.4e12 / 2.0);
        assert!(peak.source.contains("times 0.500"), "{}", peak.source);
    }

    #[test]
    fn the_user_comes_before_everything() {
        let limits = UserLimits { peak_tflops: Some(100.0), bandwidth_gbs: Some(50.0) };
        let facts = h200().with_user_limits(limits);
        assert_eq!(facts.peak(Dtype::Fp4).unwrap().flops_per_s, 1e14);
        assert_eq!(facts.bandwidth().unwrap(), (5e10, "set by the user"));
        let own = GpuFacts::set_by_user("prototype", limits);
        assert_eq!(own.peak(Dtype::Bf16).unwrap().source, "set by the user");
        assert_eq!(own.bandwidth().unwrap().0, 5e10);
    }

    #[test]
    fn an_unknown_device_keeps_what_it_reports_and_what_the_user_sets() {
        let report =
            DeviceReport { bandwidth_bytes_per_s: Some(1_000_000_000_000), ..DeviceReport::default() };
        let of = |limits| GpuFacts::of_device("NVIDIA X900", Some((11, 0)), None, &report, limits);
        let facts = of(UserLimits::default());
        assert_eq!(facts.peak(Dtype::Bf16), None);
        assert!(facts.unknown.as_ref().unwrap().contains("X900"));
        assert_eq!(facts.bandwidth().unwrap(), (1e12, "as the device reports it"));
        let facts = of(UserLimits { peak_tflops: Some(500.0), bandwidth_gbs: None });
        assert_eq!(facts.peak(Dtype::Bf16).unwrap().flops_per_s, 5e14);
        let known = GpuFacts::of_device("NVIDIA H200", None, None, &report, UserLimits::default());
        assert_eq!((known.name.as_str(), known.unknown), ("H200 SXM", None));
        assert_eq!(known.bandwidth_gbs, Some(1000.0));
    }

    #[test]
    fn a_measured_device_says_how() {
        let cpu = GpuFacts::measured("cpu", Some(2e11), None, "a burst of fp32 matrix products");
        let peak = cpu.peak(Dtype::Fp32).unwrap();
        assert_eq!(peak.flops_per_s, 2e11);
        assert_eq!(peak.source, "measured: a burst of fp32 matrix products");
        assert_eq!(cpu.bandwidth(), None);
    }

    #[test]
    fn a_useless_user_figure_changes_nothing() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let limits = UserLimits { peak_tflops: Some(bad), bandwidth_gbs: Some(bad) };
            assert!(!limits.is_set());
            assert_eq!(h200().with_user_limits(limits), h200());
        }
    }

    #[test]
    fn a_format_without_a_published_peak_has_none() {
        assert_eq!(h200().peak(Dtype::Fp4), None);
    }
}
