//! Facts of GPUs: peaks, bandwidth and sizes from the publications of their makers, by the name that a tool reports; counters and limits
//! of each architecture.
//!
//! An unknown GPU has no peak: [`lookup`] answers with a reason instead of a guess.

mod arch;
mod lookup;

pub(crate) use arch::{Arch, SCALAR, WorkKind, multiprocessor_slots, scalar_metric};
pub use lookup::{UnknownGpu, lookup};

use crate::result::{Analysis, CopyKind, DeviceInfo};
use roofgap_trace::Device;
use roofgap_trace::account::Account;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Dense or sparse peaks by number format, in TFLOP/s (TOP/s for int8): `fp64` and `fp32` on the CUDA cores, `fp64_tensor` and the others on
/// the tensor cores, with fp32 accumulation. What no source states is missing.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct TensorPeaks(BTreeMap<String, f64>);

impl TensorPeaks {
    /// Returns the best rate for a format, in TFLOP/s.
    pub fn tflops(&self, dtype: Dtype) -> Option<f64> {
        let on_tensor_cores = self.0.get("fp64_tensor").filter(|_| dtype == Dtype::Fp64);
        on_tensor_cores.copied().or_else(|| self.on_cuda_cores(dtype))
    }

    /// Returns the rate of double precision without tensor cores, and the best of other formats, in TFLOP/s.
    fn on_cuda_cores(&self, dtype: Dtype) -> Option<f64> {
        self.0.get(dtype.name()).copied()
    }
}

/// The facts of one GPU model.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuFacts {
    /// Our name for the model.
    pub name: String,
    /// The names under which drivers and tools report it.
    #[serde(default)]
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
    pub host_link: Option<String>,
    /// Bandwidth of NVLink in both directions together, in GB/s; 0 without NVLink, `None` where a bridge is optional or it is unknown.
    pub nvlink_gbs: Option<f64>,
    /// Peaks without sparsity.
    pub dense_tflops: TensorPeaks,
    /// Peaks with 2:4 structured sparsity, for reference only: no ratio is taken against them.
    pub sparse_tflops: TensorPeaks,
    /// Source of the figures.
    pub source: String,
    /// Notes on the peaks.
    pub notes: Option<String>,
    /// Source of the bandwidth, when not `source`.
    pub bandwidth_source: Option<String>,
    /// One peak for the format in use that comes before the table, in TFLOP/s: set by the user, or measured.
    pub stated_tflops: Option<f64>,
    /// Source of that peak.
    pub stated_source: Option<String>,
    /// Reason why the device is not in the table.
    pub unknown: Option<String>,
    /// Ratio of the clock of the device to the published one; 1 where unknown.
    #[serde(skip, default = "one")]
    pub clock_ratio: f64,
    /// Part of that ratio that is the clock, and not the number of multiprocessors.
    #[serde(skip, default = "one")]
    pub(crate) own_clock: f64,
}

fn one() -> f64 {
    1.0
}

/// A dense peak with where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Peak {
    /// Operations per second.
    pub flops_per_s: f64,
    /// The format it holds for.
    pub dtype: Dtype,
    /// Source in words.
    pub source: String,
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
    fn is_set(&self) -> bool {
        usable(self.peak_tflops).or(usable(self.bandwidth_gbs)).is_some()
    }
}

const SET_BY_USER: &str = "set by the user";

fn usable(value: Option<f64>) -> Option<f64> {
    value.filter(|v| v.is_finite() && *v > 0.0)
}

impl GpuFacts {
    /// Returns the facts of the device of a run: its first GPU, or the CPU whose peak the program measured.
    ///
    /// # Errors
    /// When nothing names the device.
    pub(crate) fn of_run(
        device: Option<&Device>,
        account: Option<&Account>,
        limits: UserLimits,
    ) -> Result<Self, &'static str> {
        let ran_on = account.and_then(|account| account.device.as_ref());
        let is_cpu = ran_on.and_then(|device| device.kind.as_deref()) == Some("cpu");
        if let Some(peak) = account.filter(|_| is_cpu).and_then(|account| account.peak.as_ref()) {
            let name = ran_on.and_then(|device| device.name.as_deref()).unwrap_or("this CPU");
            let measured = Self::measured(name, peak.flops_per_s, peak.bytes_per_s, &peak.how);
            return Ok(measured.with_user_limits(limits));
        }
        match device {
            Some(device) => Ok(Self::of_device(device, limits)),
            None if limits.is_set() => Ok(Self::named("the device", SET_BY_USER).with_user_limits(limits)),
            None => Err("the capture does not name its GPU"),
        }
    }

    /// Returns all that is known of a device: the row of the table where there is one, over it what the capture says of the device, over
    /// that what the user set. A device that the table does not know has no peak unless the user gives one, and says why.
    pub(crate) fn of_device(device: &Device, limits: UserLimits) -> Self {
        let known = match lookup::row_of(device) {
            Ok(row) => row.clone(),
            Err(why) => {
                let name = device.name.as_deref().unwrap_or("");
                Self { unknown: Some(why.to_string()), ..Self::named(name, "not in the table") }
            }
        };
        known.on_device(device).with_user_limits(limits)
    }

    /// Facts of a device of which only the name is known.
    fn named(name: &str, source: &str) -> Self {
        Self {
            name: name.to_owned(),
            source: source.to_owned(),
            clock_ratio: 1.0,
            own_clock: 1.0,
            ..Self::default()
        }
    }

    /// Facts of a device whose limits the program measured itself (a CPU, for one).
    fn measured(name: &str, flops_per_s: Option<f64>, bytes_per_s: Option<f64>, how: &str) -> Self {
        let source = match how.starts_with("measured") {
            true => how.to_owned(),
            false => format!("measured: {how}"),
        };
        let stated_tflops = usable(flops_per_s.map(|peak| peak / 1e12));
        let bandwidth_gbs = usable(bytes_per_s.map(|bytes| bytes / 1e9));
        Self {
            stated_tflops,
            stated_source: stated_tflops.map(|_| source.clone()),
            bandwidth_gbs,
            bandwidth_source: bandwidth_gbs.map(|_| source.clone()),
            ..Self::named(name, &source)
        }
    }

    /// Tells whether its limits are those that the program measured itself.
    pub(crate) fn is_measured(&self) -> bool {
        self.stated_source.as_ref().is_some_and(|source| source.starts_with("measured"))
    }

    /// The same facts with the user's figures over them.
    fn with_user_limits(mut self, limits: UserLimits) -> Self {
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

    /// The same facts with what the capture says of its device: its bandwidth replaces the published one, and the
    /// peaks follow its clock and its number of multiprocessors where the published ones are known too.
    pub(crate) fn on_device(mut self, device: &Device) -> Self {
        if let Some(bandwidth) = usable(device.bandwidth_bytes_per_s.map(|b| b as f64 / 1e9)) {
            self.bandwidth_gbs = Some(bandwidth);
            self.bandwidth_source = Some("as the device reports it".to_owned());
        }
        let ratio = |reported: Option<f64>, published: Option<f64>| {
            usable(reported).zip(usable(published)).map_or(1.0, |(reported, published)| reported / published)
        };
        let clock = ratio(device.clock_hz.map(|hertz| hertz as f64 / 1e6), self.clock_mhz);
        self.own_clock = clock;
        self.clock_ratio = clock * ratio(device.sms.map(f64::from), self.sms.map(f64::from));
        self
    }

    /// The dense peak for a format, or `None` where no source states one.
    pub fn peak(&self, dtype: Dtype) -> Option<Peak> {
        self.peak_at(dtype, self.dense_tflops.tflops(dtype))
    }

    /// The peak of a kind of work, which for double precision depends on the units that do it.
    pub(crate) fn peak_of(&self, kind: WorkKind) -> Option<Peak> {
        let dtype = kind.dtype()?;
        let peaks = &self.dense_tflops;
        self.peak_at(dtype, if kind.is_tensor() { peaks.tflops(dtype) } else { peaks.on_cuda_cores(dtype) })
    }

    fn peak_at(&self, dtype: Dtype, tflops: Option<f64>) -> Option<Peak> {
        if let Some(tflops) = self.stated_tflops {
            let source = self.stated_source.clone().unwrap_or_else(|| SET_BY_USER.to_owned());
            return Some(Peak { flops_per_s: tflops * 1e12, dtype, source });
        }
        let tflops = tflops?;
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

    /// Returns the clock that the peak of a format belongs to, MHz: a multiprocessor does a power of two of operations a clock.
    /// `None` where the table does not tell it, or the peak was stated.
    pub(crate) fn peak_mhz(&self, dtype: Dtype) -> Option<f64> {
        let tflops = self.dense_tflops.tflops(dtype).filter(|_| self.stated_tflops.is_none())?;
        let (sms, boost_mhz) = (f64::from(self.sms?), usable(self.clock_mhz)?);
        let at_boost = tflops * 1e6 / (sms * boost_mhz);
        // Published figures are rounded.
        let in_a_clock = (at_boost * 0.98).log2().ceil().exp2();
        Some(tflops * 1e6 / (sms * in_a_clock) * self.own_clock)
    }

    /// Returns the same GPU with the peaks of another clock of the multiprocessors.
    pub(crate) fn at_clock(&self, mhz: f64) -> Option<Self> {
        let slower = mhz / self.peak_mhz(Dtype::Bf16)?;
        Some(Self { clock_ratio: self.clock_ratio * slower, ..self.clone() })
    }

    /// Memory bandwidth in bytes per second, with where it comes from.
    pub fn bandwidth(&self) -> Option<(f64, &str)> {
        let gbs = self.bandwidth_gbs?;
        Some((gbs * 1e9, self.bandwidth_source.as_deref().unwrap_or(&self.source)))
    }

    /// Returns the time of work at the roof, ns: the greater of its FLOPs at their peak and its bytes at the bandwidth. `None` where a
    /// limit is not known. Work without FLOPs needs no peak.
    pub(crate) fn roof_ns(&self, flops: f64, bytes: f64, peak: Option<Peak>) -> Option<f64> {
        let (bandwidth, _) = self.bandwidth()?;
        let compute = if flops > 0.0 { flops / peak?.flops_per_s } else { 0.0 };
        Some(1e9 * compute.max(bytes / bandwidth)).filter(|ns| ns.is_finite() && *ns > 0.0)
    }

    /// Returns the reason why the device is not in the table, else the one that is given for its name.
    pub(crate) fn why_unknown(&self, otherwise: impl FnOnce(&str) -> String) -> String {
        self.unknown.clone().unwrap_or_else(|| otherwise(&self.name))
    }
}

/// A number format that GPUs have a peak for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 64-bit floating point.
    Fp64,
    /// 32-bit floating point, on the CUDA cores.
    Fp32,
    /// 19-bit TensorFloat, stored in 32 bits.
    Tf32,
    /// 16-bit IEEE floating point.
    Fp16,
    /// 16-bit brain floating point.
    Bf16,
    /// 8-bit floating point, either layout.
    Fp8,
    /// 8-bit integer.
    Int8,
    /// 4-bit floating point.
    Fp4,
}

/// Name in reports, bits of a stored value, and the names that torch, safetensors and Hugging Face configurations use; in the order of the
/// formats.
const FORMATS: [(Dtype, &str, f64, &[&str]); 8] = [
    (Dtype::Fp64, "fp64", 64.0, &["float64", "double", "f64"]),
    (Dtype::Fp32, "fp32", 32.0, &["float32", "float", "f32"]),
    (Dtype::Tf32, "tf32", 32.0, &[]),
    (Dtype::Fp16, "fp16", 16.0, &["float16", "half", "f16"]),
    (Dtype::Bf16, "bf16", 16.0, &["bfloat16"]),
    (Dtype::Fp8, "fp8", 8.0, &["float8", "float8_e4m3fn", "float8_e5m2", "f8_e4m3", "f8_e5m2"]),
    (Dtype::Int8, "int8", 8.0, &["i8"]),
    (Dtype::Fp4, "fp4", 4.0, &["mxfp4", "nvfp4"]),
];

/// A name that no known number format has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown number format {0:?}: expected one of fp64, fp32, tf32, fp16, bf16, fp8, int8, fp4")]
pub struct UnknownDtype(pub String);

impl Dtype {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        FORMATS[self as usize].1
    }

    /// Bits that one stored value takes.
    pub fn bits(self) -> f64 {
        FORMATS[self as usize].2
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dtype {
    type Err = UnknownDtype;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.trim().to_ascii_lowercase();
        let wanted = lower.strip_prefix("torch.").unwrap_or(&lower);
        let format = FORMATS.iter().find(|(_, name, _, others)| *name == wanted || others.contains(&wanted));
        format.map(|(dtype, ..)| *dtype).ok_or_else(|| UnknownDtype(text.to_owned()))
    }
}

/// The peak of a link for one kind of copy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LinkPeak {
    /// Name of the link.
    pub name: String,
    /// Bytes copied per second.
    pub bytes_per_s: f64,
}

/// The links of a device, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CopyLinks {
    host: Option<LinkPeak>,
    memory: Option<LinkPeak>,
    pub peer: Option<LinkPeak>,
}

impl CopyLinks {
    /// Finds the links of a device in the table of GPUs.
    pub fn on_device(device: &Device, limits: UserLimits) -> Self {
        let facts = GpuFacts::of_device(device, limits);
        let host = facts
            .host_link
            .as_deref()
            .and_then(|name| Some(LinkPeak { bytes_per_s: host_bytes_per_s(name)?, name: name.to_owned() }));
        let memory = facts.bandwidth().map(|(bytes_per_s, _)| LinkPeak {
            name: "device memory".to_owned(),
            // Every byte is read and written.
            bytes_per_s: bytes_per_s / 2.0,
        });
        let peer = match facts.nvlink_gbs {
            // One of the two directions.
            Some(gbs) if gbs > 0.0 => {
                Some(LinkPeak { name: "NVLink".to_owned(), bytes_per_s: gbs * 1e9 / 2.0 })
            }
            Some(_) => host.clone(),
            None => None,
        };
        Self { host, memory, peer }
    }

    /// Returns the peak for a kind of copy; `None` where unknown.
    pub fn peak(&self, kind: CopyKind) -> Option<LinkPeak> {
        match kind {
            CopyKind::HostToDevice
            | CopyKind::DeviceToHost
            | CopyKind::ManagedToDevice
            | CopyKind::ManagedToHost => self.host.clone(),
            CopyKind::DeviceToDevice => self.memory.clone(),
            CopyKind::PeerToPeer | CopyKind::HostToHost | CopyKind::ManagedToPeer | CopyKind::Unknown => None,
        }
    }
}

/// Returns the peak of a link to the host in one direction: of PCIe by its generation and lanes, after line coding.
fn host_bytes_per_s(link: &str) -> Option<f64> {
    if link == "NVLink-C2C" {
        // 900 GB/s in both directions together.
        return Some(450e9);
    }
    let (generation, lanes) = link.strip_prefix("PCIe ")?.split_once(" x")?;
    // Transfers per second and lane; 128 of 130 bits are data.
    let rate = match generation {
        "3.0" => 8e9,
        "4.0" => 16e9,
        "5.0" => 32e9,
        _ => return None,
    };
    Some(rate * lanes.parse::<f64>().ok()? * 128.0 / 130.0 / 8.0)
}

/// Words and phrases of CUDA, and those of ROCm in their place. PyTorch calls its module `torch.cuda` on both. Counters of ROCm are not
/// read, so that no text may ask for them.
const ROCM: &str = include_str!("../../texts/rocm.tsv");

/// Puts texts of this program into the words of the vendor of the devices.
pub fn reword<'a>(devices: &[DeviceInfo], texts: impl IntoIterator<Item = &'a mut String>) {
    let is_amd = |device: &DeviceInfo| {
        let name = device.name.as_deref().unwrap_or_default();
        let model =
            name.strip_prefix("MI").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        model || ["AMD", "Instinct", "Radeon", "gfx"].iter().any(|word| name.contains(word))
    };
    if !devices.iter().any(is_amd) {
        return;
    }
    for text in texts {
        for (cuda, rocm) in ROCM.lines().filter_map(|line| line.split_once('\t')) {
            *text = replaced(text, cuda, rocm);
        }
    }
}

/// Replaces a phrase where it is no part of a name of the program, such as `my_NCCL_kernel`.
fn replaced(text: &str, phrase: &str, new: &str) -> String {
    let is_joined = |c: char| c == '_' || c.is_alphanumeric();
    let (mut new_text, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once(phrase) {
        let inside = phrase.starts_with(is_joined) && before.ends_with(is_joined) || after.starts_with('_');
        new_text.extend([before, if inside { phrase } else { new }]);
        rest = after;
    }
    new_text + rest
}

/// Puts the findings and reasons of an analysis into the words of the vendor of its devices.
pub fn reword_analysis(analysis: &mut Analysis) {
    let findings = analysis.findings.iter_mut();
    let findings =
        findings.flat_map(|finding| [&mut finding.title, &mut finding.action, &mut finding.disproof]);
    reword(&analysis.devices, findings.chain(analysis.reasons.iter_mut().map(|reason| &mut reason.why)));
}

#[cfg(test)]
mod dtype_tests {
    use super::*;

    #[test]
    fn torch_and_short_names_mean_the_same() {
        for text in ["bf16", "bfloat16", "torch.bfloat16", "BF16", " bf16 "] {
            assert_eq!(text.parse(), Ok(Dtype::Bf16), "{text}");
        }
        assert_eq!("half".parse(), Ok(Dtype::Fp16));
        assert_eq!("bf17".parse::<Dtype>(), Err(UnknownDtype("bf17".into())));
    }

    #[test]
    fn the_table_is_in_the_order_of_the_formats() {
        for (at, (dtype, name, ..)) in FORMATS.iter().enumerate() {
            assert_eq!((*dtype as usize, serde_json::to_string(dtype).unwrap()), (at, format!("\"{name}\"")));
        }
    }

    #[test]
    fn json_uses_the_report_name() {
        assert_eq!(serde_json::to_string(&Dtype::Bf16).unwrap(), "\"bf16\"");
    }
}

#[cfg(test)]
mod link_tests {
    use super::*;

    #[test]
    fn peaks_of_links() {
        let gbs = |link: &str| host_bytes_per_s(link).map(|peak| (peak / 1e8).round() / 10.0);
        assert_eq!(gbs("PCIe 3.0 x16"), Some(15.8));
        assert_eq!(gbs("PCIe 4.0 x8"), Some(15.8));
        assert_eq!(gbs("PCIe 5.0 x16"), Some(63.0));
        assert_eq!(gbs("PCIe 9.0 x16"), None);
        assert_eq!(gbs("NVLink-C2C"), Some(450.0));
    }

    #[test]
    fn every_link_of_the_table_has_a_peak() {
        let rows = &*super::lookup::TABLE;
        let links: Vec<&str> = rows.iter().filter_map(|row| row.host_link.as_deref()).collect();
        assert!(links.len() > 35, "{}", links.len());
        for link in links {
            assert!(host_bytes_per_s(link).is_some(), "{link}");
        }
    }

    #[test]
    fn a_device_that_is_not_known_has_no_links() {
        let unknown = CopyLinks::on_device(&Device::default(), UserLimits::default());
        assert_eq!(unknown, CopyLinks::default());
        let h200 = Device {
            name: Some("NVIDIA H200".into()),
            compute_capability: Some((9, 0)),
            ..Device::default()
        };
        let links = CopyLinks::on_device(&h200, UserLimits::default());
        assert_eq!(links.peak(CopyKind::HostToDevice).unwrap().name, "PCIe 5.0 x16");
        assert_eq!(links.peak(CopyKind::DeviceToDevice).unwrap().bytes_per_s, 2.4e12);
        assert_eq!(links.peak(CopyKind::PeerToPeer), None);
        let peer = |name: &str, capability| {
            let device =
                Device { name: Some(name.into()), compute_capability: Some(capability), ..Device::default() };
            let links = CopyLinks::on_device(&device, UserLimits::default());
            links.peer.as_ref().map(|link| (link.name.clone(), (link.bytes_per_s / 1e9).round()))
        };
        assert_eq!(peer("NVIDIA H200", (9, 0)), Some(("NVLink".to_owned(), 450.0)));
        assert_eq!(peer("NVIDIA L40S", (8, 9)), Some(("PCIe 4.0 x16".to_owned(), 32.0)));
        assert_eq!(peer("NVIDIA H100 PCIe", (9, 0)), None, "its bridge is optional");
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
        let report = Device {
            bandwidth_bytes_per_s: Some(4_814_304_000_000),
            clock_hz: Some(1_980_000_000),
            sms: Some(132),
            ..Device::default()
        };
        let facts = h200().on_device(&report);
        assert_eq!(facts.bandwidth().unwrap(), (4_814_304_000_000.0, "as the device reports it"));
        assert_eq!(facts.peak(Dtype::Bf16).unwrap().flops_per_s, 989.4e12);
    }

    #[test]
    fn a_slower_clock_lowers_the_peak_and_says_so() {
        let report = Device { clock_hz: Some(990_000_000), ..Device::default() };
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
        let prototype = GpuFacts::named("prototype", SET_BY_USER).with_user_limits(limits);
        assert_eq!(prototype.peak(Dtype::Bf16).unwrap().source, "set by the user");
        assert_eq!(prototype.bandwidth().unwrap().0, 5e10);
    }

    #[test]
    fn an_unknown_device_keeps_what_it_reports_and_what_the_user_sets() {
        let device = |name: &str, compute_capability| Device {
            name: Some(name.to_owned()),
            compute_capability,
            bandwidth_bytes_per_s: Some(1_000_000_000_000),
            ..Device::default()
        };
        let of = |limits| GpuFacts::of_device(&device("NVIDIA X900", Some((11, 0))), limits);
        let facts = of(UserLimits::default());
        assert_eq!(facts.peak(Dtype::Bf16), None);
        assert!(facts.unknown.as_ref().unwrap().contains("X900"));
        assert_eq!(facts.bandwidth().unwrap(), (1e12, "as the device reports it"));
        let facts = of(UserLimits { peak_tflops: Some(500.0), bandwidth_gbs: None });
        assert_eq!(facts.peak(Dtype::Bf16).unwrap().flops_per_s, 5e14);
        let known = GpuFacts::of_device(&device("NVIDIA H200", None), UserLimits::default());
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
    fn double_precision_has_a_peak_for_each_of_its_units() {
        let flops = |kind| h200().peak_of(kind).unwrap().flops_per_s;
        assert_eq!((flops(WorkKind::Fp64), flops(WorkKind::TensorFp64)), (33.5 * 1e12, 66.9 * 1e12));
        assert_eq!(flops(WorkKind::TensorBf16), h200().peak(Dtype::Bf16).unwrap().flops_per_s);
    }

    #[test]
    fn a_format_without_a_published_peak_has_none() {
        assert_eq!(h200().peak(Dtype::Fp4), None);
    }
}

#[cfg(test)]
mod wording_tests {
    use super::*;
    use crate::findings::RULES;

    fn reworded(device: &str, text: &str) -> String {
        let device = DeviceInfo { name: Some(device.to_owned()), ..DeviceInfo::default() };
        let mut text = text.to_owned();
        reword(&[device], [&mut text]);
        text
    }

    #[test]
    fn amd_is_told_the_words_of_rocm() {
        let text = "replay it as a CUDA graph (torch.cuda.graph, cudaStreamBeginCapture)";
        assert_eq!(reworded("NVIDIA H200", text), text);
        let rocm = "replay it as a HIP graph (torch.cuda.graph, hipStreamBeginCapture)";
        assert_eq!(reworded("AMD Instinct MI300X", text), rocm);
        assert_eq!(
            reworded("MI300X", "NCCL and my_NCCL_kernel, NCCL_ring"),
            "RCCL and my_NCCL_kernel, NCCL_ring"
        );
        assert_eq!(reworded("MIG 1g.10gb", "NCCL"), "NCCL");
    }

    /// Advice for an AMD GPU names no tool of NVIDIA. Findings of whole graphs and of ncu are about captures of such tools.
    #[test]
    fn no_action_for_amd_needs_a_tool_of_nvidia() {
        let of_nvidia = ["graphs-whole", "ncu-*"];
        for rule in RULES.iter().filter(|rule| !of_nvidia.contains(&rule.id)) {
            let text = reworded("AMD Instinct MI300X", rule.fix);
            let foreign = ["nsys", "ncu", "CUDA ", "cudaM", "cudaS", "cudaH", "CUDA_VISIBLE", "NCCL"];
            assert!(!foreign.iter().any(|word| text.contains(word)), "{}: {text}", rule.id);
        }
    }
}
