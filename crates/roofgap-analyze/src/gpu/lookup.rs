//! The table of GPUs (`gpus.json`, read once), and the row of the name that a driver or tool reports.

use super::GpuFacts;
use roofgap_trace::Device;
use std::sync::LazyLock;

/// Why a device has no facts: never the nearest row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownGpu(String);

/// Every GPU in the table, which the tests read.
pub static TABLE: LazyLock<Vec<GpuFacts>> =
    LazyLock::new(|| serde_json::from_str(include_str!("gpus.json")).unwrap_or_default());

/// Finds the facts of a device by the name it reports, checked against its compute capability and memory where known.
///
/// # Errors
/// An [`UnknownGpu`] that says why no row holds: never the nearest row.
///
/// ```
/// use roofgap_analyze::gpu::lookup;
/// assert_eq!(lookup("NVIDIA H100 80GB HBM3", Some((9, 0)), None).unwrap().sms, Some(132));
/// assert!(lookup("H100", None, None).is_err());
/// ```
pub fn lookup(
    name: &str,
    compute_capability: Option<(u32, u32)>,
    memory_bytes: Option<u64>,
) -> Result<&'static GpuFacts, UnknownGpu> {
    row_of(&Device { name: Some(name.to_owned()), compute_capability, memory_bytes, ..Device::default() })
}

/// Finds the facts of a device, as [`lookup`] does. Multiprocessors tell apart what shares a name, and with the memory a device without one.
pub(super) fn row_of(device: &Device) -> Result<&'static GpuFacts, UnknownGpu> {
    let name = device.name.as_deref().unwrap_or("");
    let Device { compute_capability, memory_bytes, sms, .. } = *device;
    let wanted = canonical(name);
    if let ("", Some(bytes), Some(_)) = (wanted.as_str(), memory_bytes, sms) {
        let is_same = |row: &&GpuFacts| {
            (row.sms, row.compute_capability) == (sms, compute_capability) && memory_fits(row, bytes)
        };
        let mut rows = TABLE.iter().filter(is_same);
        if let (Some(only), None) = (rows.next(), rows.next()) {
            return Ok(only);
        }
    }
    if is_slice(&wanted) {
        return Err(UnknownGpu(format!(
            "{name:?} is a slice of a GPU (MIG or virtual GPU), whose peak depends on the slice: set hardware.peak_tflops and \
             hardware.bandwidth_gbs"
        )));
    }
    let reported = |is: &dyn Fn(&str) -> bool| -> Vec<&'static GpuFacts> {
        TABLE.iter().filter(|row| row.reported.iter().any(|name| is(&canonical(name)))).collect()
    };
    let ambiguous = |rows: &[&GpuFacts]| {
        let candidates = rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>().join(", ");
        UnknownGpu(format!(
            "the GPU name {name:?} could be any of {candidates}: set hardware.peak_tflops and hardware.bandwidth_gbs"
        ))
    };
    let named = reported(&|reported| reported == wanted);
    let Some(first) = named.first() else {
        // A name that begins several rows ("H100") is ambiguous; any other is unlisted.
        let candidates = reported(&|reported| reported.starts_with(&format!("{wanted} ")));
        if !wanted.is_empty() && !candidates.is_empty() {
            return Err(ambiguous(&candidates));
        }
        return Err(UnknownGpu(format!(
            "no peak is known for the GPU {name:?}: set hardware.peak_tflops and hardware.bandwidth_gbs to give one"
        )));
    };
    let fits = |row: &&GpuFacts| {
        let is_capable = compute_capability
            .is_none_or(|capability| row.compute_capability.is_none_or(|row| row == capability));
        is_capable && memory_bytes.is_none_or(|bytes| memory_fits(row, bytes))
    };
    let mut fitting: Vec<&GpuFacts> = named.iter().copied().filter(fits).collect();
    if fitting.len() > 1 && fitting.iter().any(|row| row.sms == sms) {
        fitting.retain(|row| row.sms == sms);
    }
    match fitting.as_slice() {
        [row] => Ok(row),
        [] => Err(UnknownGpu(format!(
            "{name:?} reports another compute capability or memory than {} has: a slice or another variant, so no peak is assumed",
            first.name
        ))),
        several => Err(ambiguous(several)),
    }
}

/// Lower case, single spaces, without the words that tools put in or leave out.
fn canonical(name: &str) -> String {
    name.to_ascii_lowercase()
        .replace(['-', '_', '(', ')'], " ")
        .split_whitespace()
        .filter(|word| !matches!(*word, "nvidia" | "tesla" | "geforce" | "amd" | "instinct"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// MIG names carry `MIG` or a profile such as `3g.40gb`; virtual GPUs begin with `GRID` or end in a profile such as `24q`.
fn is_slice(canonical: &str) -> bool {
    let mut words = canonical.split(' ');
    let virtual_profile = |word: &str| {
        word.strip_suffix(['q', 'c', 'a', 'b'])
            .is_some_and(|size| !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit()))
    };
    words.clone().any(|word| word == "mig" || word == "grid" || word.contains("g.") && word.ends_with("gb"))
        || words.next_back().is_some_and(virtual_profile)
}

/// Marketed gigabytes lie between what ECC and the driver leave and the same number of gibibytes.
fn memory_fits(row: &GpuFacts, bytes: u64) -> bool {
    row.memory_gb.is_none_or(|gb| {
        let ratio = bytes as f64 / (gb * 1e9);
        (0.93..=1.10).contains(&ratio)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Dtype;

    const GIB: u64 = 1 << 30;

    fn why(name: &str) -> String {
        lookup(name, None, None).unwrap_err().to_string()
    }

    #[test]
    fn names_as_tools_report_them() {
        for (reported, expected) in [
            ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
            ("NVIDIA H100 PCIe", "H100 PCIe"),
            ("H100 PCIe", "H100 PCIe"),
            ("NVIDIA H100 NVL", "H100 NVL"),
            ("NVIDIA H200", "H200 SXM"),
            ("H200", "H200 SXM"),
            ("NVIDIA H200 NVL", "H200 NVL"),
            ("NVIDIA GH200 480GB", "GH200 96GB HBM3"),
            ("NVIDIA B200", "B200"),
            ("NVIDIA GB200", "GB200 (one of its two GPUs)"),
            ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
            ("NVIDIA A100-SXM4-40GB", "A100 SXM4 40GB"),
            ("A100-SXM4-40GB", "A100 SXM4 40GB"),
            ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
            ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40GB"),
            ("NVIDIA A800-SXM4-80GB", "A800 SXM4 80GB"),
            ("NVIDIA A800 80GB PCIe", "A800 PCIe 80GB"),
            ("Tesla V100-SXM2-16GB", "V100 SXM2 16GB"),
            ("Tesla V100-PCIE-32GB", "V100 PCIe 32GB"),
            ("Tesla T4", "T4"),
            ("NVIDIA L4", "L4"),
            ("NVIDIA L40", "L40"),
            ("NVIDIA L40S", "L40S"),
            ("NVIDIA A10", "A10"),
            ("NVIDIA A10G", "A10G"),
            ("NVIDIA RTX A6000", "RTX A6000"),
            ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Server"),
            ("NVIDIA GeForce RTX 3060", "GeForce RTX 3060 12GB"),
            ("NVIDIA GeForce RTX 4070 Ti SUPER", "GeForce RTX 4070 Ti SUPER"),
            ("NVIDIA GeForce RTX 5090", "GeForce RTX 5090"),
            ("RTX 5090", "GeForce RTX 5090"),
            ("NVIDIA GeForce RTX 4080 SUPER", "GeForce RTX 4080 SUPER"),
            ("NVIDIA GeForce RTX 4080", "GeForce RTX 4080"),
            ("NVIDIA GB10", "GB10 (DGX Spark)"),
            ("NVIDIA RTX A4000", "RTX A4000"),
            ("Quadro RTX 8000", "Quadro RTX 8000"),
            ("NVIDIA GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti"),
            ("AMD Instinct MI210", "MI210"),
            ("AMD Instinct MI300X", "MI300X"),
            ("AMD Instinct MI300X VF", "MI300X"),
        ] {
            assert_eq!(lookup(reported, None, None).unwrap().name, expected, "{reported}");
        }
    }

    #[test]
    fn near_names_are_not_the_same_gpu() {
        for name in [
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "NVIDIA GeForce RTX 4090 D",
            "NVIDIA H100 64GB HBM2",
            "NVIDIA A100X",
            "NVIDIA L40G",
            "NVIDIA X900",
            "AMD Instinct MI60",
            "Graphics Device",
            "",
        ] {
            assert!(why(name).starts_with("no peak is known"), "{name}");
        }
    }

    #[test]
    fn a_family_name_is_ambiguous() {
        for name in ["H100", "NVIDIA A100", "V100", "GH200", "RTX PRO 6000 Blackwell"] {
            assert!(why(name).contains("could be any of"), "{name}");
        }
        assert!(why("H100").contains("H100 PCIe"));
    }

    #[test]
    fn memory_tells_two_gpus_of_one_name_apart() {
        let name = "NVIDIA GeForce RTX 3080";
        assert_eq!(lookup(name, None, Some(10 * GIB)).unwrap().sms, Some(68));
        assert_eq!(lookup(name, None, Some(12 * GIB)).unwrap().sms, Some(70));
        // A Jetson has what the system leaves of the memory it shares.
        let orin = |gib: f64| lookup("Orin", Some((8, 7)), Some((gib * GIB as f64) as u64));
        assert_eq!(orin(61.4).unwrap().sms, Some(16));
        assert_eq!(orin(29.8).unwrap().sms, Some(14));
        assert!(orin(15.3).is_err(), "a module that is not listed");
        assert!(why(name).contains("could be any of"));
    }

    #[test]
    fn multiprocessors_tell_two_gpus_apart() {
        let device = |name: &str, sms, gib: u64| Device {
            name: Some(name.to_owned()),
            sms: Some(sms),
            memory_bytes: Some(gib * GIB),
            ..Device::default()
        };
        let named = |name, sms, gib| row_of(&device(name, sms, gib)).map(|row| row.name.as_str());
        assert_eq!(named("AMD Instinct MI250X / MI250", 110, 64), Ok("MI250X (one of its two GPUs)"));
        assert_eq!(named("AMD Instinct MI250X / MI250", 104, 64), Ok("MI250 (one of its two GPUs)"));
        assert!(named("AMD Instinct MI250X / MI250", 7, 64).is_err());
        // Some versions of ROCm leave the name empty.
        assert_eq!(named("", 304, 192), Ok("MI300X"));
        assert_eq!(named("", 304, 256), Ok("MI325X"));
        assert!(named("", 304, 64).is_err());
        assert!(named("", 104, 64).is_err(), "two GPUs have as many");
        let hopper = Device { compute_capability: Some((9, 0)), ..device("", 132, 141) };
        assert!(row_of(&hopper).is_err(), "H200 SXM and NVL");
    }

    #[test]
    fn slices_have_no_peak() {
        for name in [
            "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
            "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            "GRID A100-4C",
            "NVIDIA A10-24Q",
        ] {
            assert!(why(name).contains("is a slice"), "{name}");
        }
        // A MIG device may keep the whole GPU's name: its memory gives it away.
        let error = lookup("NVIDIA A100-SXM4-80GB", Some((8, 0)), Some(40 * GIB)).unwrap_err();
        assert!(
            error.to_string().contains("another compute capability or memory than A100 SXM4 80GB has"),
            "{error}"
        );
    }

    #[test]
    fn compute_capability_has_to_agree() {
        let error = lookup("NVIDIA H200", Some((8, 0)), None).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("\"NVIDIA H200\" reports another compute capability or memory than H200 SXM"),
            "{text}"
        );
    }

    #[test]
    fn memory_as_devices_report_it_fits() {
        for (name, bytes) in [
            ("NVIDIA H200", 150_109_880_320),
            ("NVIDIA H100 80GB HBM3", 85_024_112_640),
            ("NVIDIA GeForce RTX 5090", 33_668_988_928),
            ("Tesla T4", 15_634_661_376),
            ("NVIDIA B200", 191_514_542_080),
        ] {
            assert!(lookup(name, None, Some(bytes)).is_ok(), "{name}");
        }
    }

    #[test]
    fn every_row_is_found_by_every_name_it_lists() {
        for row in TABLE.iter() {
            let memory_bytes = row.memory_gb.map(|gb| (gb * 1e9) as u64);
            let device = Device {
                compute_capability: row.compute_capability,
                sms: row.sms,
                memory_bytes,
                ..Device::default()
            };
            for name in &row.reported {
                let device = Device { name: Some(name.clone()), ..device.clone() };
                assert_eq!(row_of(&device).unwrap().name, row.name, "{name}");
            }
        }
    }

    #[test]
    fn every_row_names_its_source_and_how_it_is_reported() {
        let rows = &*TABLE;
        assert!(rows.len() > 45);
        for row in rows {
            let is_amd = row.source.contains("AMD");
            assert!(is_amd || row.source.contains("NVIDIA"), "{}", row.name);
            assert!(!row.reported.is_empty(), "{}", row.name);
            assert!(row.bandwidth_gbs.is_some() && row.memory_gb.is_some(), "{}", row.name);
            assert_eq!(row.compute_capability.is_none(), is_amd, "{}", row.name);
            assert_eq!(row.clock_ratio, 1.0);
        }
    }

    /// Two lanes' operations a clock: 64 fp32 lanes a multiprocessor on Volta, Turing and GA100, 128 on the rest.
    #[test]
    fn fp32_follows_from_multiprocessors_and_clock() {
        let mut checked = 0;
        for row in TABLE.iter() {
            let (Some(sms), Some(mhz), Some(fp32)) =
                (row.sms, row.clock_mhz, row.dense_tflops.tflops(Dtype::Fp32))
            else {
                continue;
            };
            let lanes = match row.compute_capability {
                Some((7, _) | (8, 0)) => 64.0,
                _ => 128.0,
            };
            let expected = f64::from(sms) * lanes * 2.0 * mhz / 1e6;
            assert!((fp32 / expected - 1.0).abs() < 0.012, "{}: {fp32} against {expected}", row.name);
            checked += 1;
        }
        assert!(checked > 30, "{checked}");
    }

    #[test]
    fn peaks_are_those_of_known_formats() {
        let is_known = |name: &&String| *name == "fp64_tensor" || name.parse::<Dtype>().is_ok();
        for row in TABLE.iter() {
            let mut names = row.dense_tflops.0.keys().chain(row.sparse_tflops.0.keys());
            assert!(names.all(|name| is_known(&name)), "{}", row.name);
        }
    }

    #[test]
    fn sparse_is_twice_dense() {
        for row in TABLE.iter() {
            for dtype in [Dtype::Tf32, Dtype::Fp16, Dtype::Bf16, Dtype::Int8, Dtype::Fp8] {
                if let (Some(dense), Some(sparse)) =
                    (row.dense_tflops.tflops(dtype), row.sparse_tflops.tflops(dtype))
                {
                    assert!((sparse / dense / 2.0 - 1.0).abs() < 0.015, "{} {dtype}", row.name);
                }
            }
        }
    }

    #[test]
    fn sixteen_bit_formats_have_one_rate() {
        for row in TABLE.iter() {
            let peaks = [Dtype::Fp16, Dtype::Bf16].map(|dtype| row.dense_tflops.tflops(dtype));
            if let [Some(fp16), Some(bf16)] = peaks {
                assert_eq!(fp16, bf16, "{}", row.name);
            }
        }
    }

    /// Peaks of AMD follow from compute units, clock and FLOPs a clock of CDNA 2 and CDNA 3.
    #[test]
    fn peaks_of_amd_follow_from_units_and_clock() {
        let of_amd = TABLE.iter().filter(|gpu| gpu.name.starts_with("MI"));
        let mut found = 0;
        for gpu in of_amd {
            let cdna3 = gpu.name.starts_with("MI3");
            let clocks = f64::from(gpu.sms.unwrap()) * gpu.clock_mhz.unwrap() / 1e6;
            let (fp16, int8) = if cdna3 { (2048.0, 4096.0) } else { (1024.0, 1024.0) };
            for (format, flops) in
                [("fp64", 128.0), ("fp64_tensor", 256.0), ("fp32", 256.0), ("bf16", fp16), ("int8", int8)]
            {
                let stated = gpu.dense_tflops.0[format];
                assert!((stated / (clocks * flops) - 1.0).abs() < 2e-3, "{} {format} {stated}", gpu.name);
            }
            assert_eq!(
                gpu.dense_tflops.0.get("fp8"),
                cdna3.then(|| &gpu.dense_tflops.0["int8"]),
                "{}",
                gpu.name
            );
            found += 1;
        }
        assert_eq!(found, 6);
    }
}
