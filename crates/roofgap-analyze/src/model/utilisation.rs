//! Work against time: MFU and MBU of a stage.

use super::work::{StageWork, Term};
use crate::gpu::{Dtype, GpuFacts};
use crate::result::{self};

/// How long a stage took, all instances together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageTime {
    /// Sum of its ranges on the CPU.
    pub wall_ns: i64,
    /// Time the GPU was busy with it.
    pub busy_ns: Option<i64>,
    /// Mean length of a decode step.
    pub step_ns: Option<i64>,
}

/// Model FLOPs utilisation: FLOPs of the model over what the device could have done in that time.
///
/// # Errors
/// The reason why there is no number.
pub fn mfu(work: &StageWork, gpu: &GpuFacts, dtype: Dtype, time: StageTime) -> Result<result::Mfu, String> {
    let peak = gpu.peak(dtype).ok_or_else(|| {
        gpu.unknown.clone().unwrap_or_else(|| {
            format!(
                "no dense {dtype} peak is known for {}: set hardware.peak_tflops to give one",
                gpu.name
            )
        })
    })?;
    let wall = seconds(time.wall_ns).ok_or("the stage took no time on the clock")?;
    let flops = work.flops();
    let devices = f64::from(work.devices.max(1));
    let percent = |seconds: f64| 100.0 * flops / (seconds * peak.flops_per_s);
    let mut assumptions = work.assumptions.clone();
    if devices > 1.0 {
        assumptions.push(format!("by wall time the peak of {devices} devices counts"));
    }
    if let Some(notes) = &gpu.notes {
        assumptions.push(format!("{}: {notes}", gpu.name));
    }
    Ok(result::Mfu {
        flops,
        peak_flops_per_s: peak.flops_per_s,
        dtype: dtype.name().to_owned(),
        peak_source: peak.source,
        by_wall_pct: percent(wall * devices),
        by_busy_pct: time.busy_ns.and_then(seconds).map(percent),
        terms: work
            .terms
            .iter()
            .filter(|term| term.flops > 0.0)
            .map(analysis_term)
            .collect(),
        assumptions,
    })
}

/// Memory bandwidth utilisation: bytes that must move over what the memory could have moved in that time.
///
/// # Errors
/// The reason why there is no number.
pub fn mbu(work: &StageWork, gpu: &GpuFacts, time: StageTime) -> Result<result::Mbu, String> {
    let (bandwidth, source) = gpu.bandwidth().ok_or_else(|| {
        gpu.unknown.clone().unwrap_or_else(|| {
            format!(
                "no memory bandwidth is known for {}: set hardware.bandwidth_gbs to give one",
                gpu.name
            )
        })
    })?;
    let wall = seconds(time.wall_ns).ok_or("the stage took no time on the clock")?;
    let bytes = work.moved_bytes();
    let devices = f64::from(work.devices.max(1));
    let percent = |seconds: f64| 100.0 * bytes / (seconds * bandwidth);
    Ok(result::Mbu {
        bytes,
        bandwidth_bytes_per_s: bandwidth,
        bandwidth_source: source.to_owned(),
        by_wall_pct: percent(wall * devices),
        by_busy_pct: time.busy_ns.and_then(seconds).map(percent),
        floor_step_ns: work
            .floor_step_ns(bandwidth * devices)
            .map(|ns| ns.round() as i64),
        step_ns: time.step_ns,
        terms: work
            .terms
            .iter()
            .filter(|term| term.moved_bytes() > 0.0)
            .map(analysis_term)
            .collect(),
        assumptions: work.assumptions.clone(),
    })
}

fn seconds(ns: i64) -> Option<f64> {
    (ns > 0).then(|| ns as f64 / 1e9)
}

fn analysis_term(term: &Term) -> result::Term {
    result::Term {
        name: term.name.clone(),
        flops: term.flops,
        bytes: term.moved_bytes(),
        how: term.how.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{DeviceReport, UserLimits, lookup};
    use crate::model::{DecodeInput, preset};

    const DOCUMENT: &str = include_str!("../../../../docs/mfu.md");

    fn h200() -> GpuFacts {
        let report = DeviceReport {
            bandwidth_bytes_per_s: Some(4_814_304_000_000),
            ..DeviceReport::default()
        };
        lookup("NVIDIA H200", Some((9, 0)), None)
            .unwrap()
            .clone()
            .on_device(&report)
    }

    fn grouped(value: f64) -> String {
        let digits = format!("{value:.0}");
        let mut text = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text
    }

    /// Repeats the worked example of the documentation, and checks that the document states what comes out.
    #[test]
    fn the_worked_example() {
        let work = preset("deepseek_ocr2").unwrap().decode(&DecodeInput {
            batch: 1,
            context: 512,
            steps: 8,
        });
        let time = StageTime {
            wall_ns: 239_255_000,
            busy_ns: Some(17_863_000),
            step_ns: Some(29_906_875),
        };
        let mfu = mfu(&work, &h200(), Dtype::Bf16, time).unwrap();
        let mbu = mbu(&work, &h200(), time).unwrap();
        assert_eq!(mfu.flops, 9_439_395_840.0);
        assert!((mbu.bytes - 9_439_928_320.0).abs() < 1.0, "{}", mbu.bytes);
        assert_eq!(mfu.peak_flops_per_s, 989.4e12);
        assert_eq!(mbu.floor_step_ns, Some(245_101));
        for stated in [
            grouped(mfu.flops),
            grouped(mbu.bytes),
            format!("{:.5} % by wall", mfu.by_wall_pct),
            format!("kernels {:.5} %", mfu.by_busy_pct.unwrap()),
            format!("{:.4} % by wall", mbu.by_wall_pct),
            format!("kernels {:.2} %", mbu.by_busy_pct.unwrap()),
            "245.1 us".to_owned(),
            "29.9 ms, 122 times".to_owned(),
        ] {
            assert!(DOCUMENT.contains(&stated), "the document does not state {stated}");
        }
        assert_eq!((29_906_875.0_f64 / 245_101.0).round(), 122.0);
        let terms: f64 = mfu.terms.iter().map(|term| term.flops).sum();
        assert_eq!(terms, mfu.flops);
        assert!(!mfu.assumptions.is_empty() && mfu.terms.iter().all(|term| !term.how.is_empty()));
    }

    #[test]
    fn a_device_more_counts_by_wall_time_alone() {
        let work = preset("llama3_8b").unwrap().decode(&DecodeInput {
            batch: 1,
            context: 8,
            steps: 4,
        });
        let time = StageTime {
            wall_ns: 9_000_000,
            busy_ns: Some(8_000_000),
            step_ns: None,
        };
        let on = |devices| {
            let work = work.clone().on_devices(devices);
            (
                mfu(&work, &h200(), Dtype::Bf16, time).unwrap(),
                mbu(&work, &h200(), time).unwrap(),
            )
        };
        let (one, two) = (on(1), on(2));
        assert!((one.0.by_wall_pct / two.0.by_wall_pct - 2.0).abs() < 1e-12);
        assert_eq!(
            one.0.by_busy_pct, two.0.by_busy_pct,
            "busy time is already summed over devices"
        );
        assert!((one.1.by_wall_pct / two.1.by_wall_pct - 2.0).abs() < 1e-12);
        assert!(two.1.floor_step_ns < one.1.floor_step_ns);
        assert!(two.0.assumptions.iter().any(|text| text.contains("2 devices")));
    }

    #[test]
    fn what_is_not_known_has_a_reason() {
        let work = preset("llama3_8b").unwrap().decode(&DecodeInput {
            batch: 1,
            context: 8,
            steps: 1,
        });
        let time = StageTime {
            wall_ns: 1_000_000,
            busy_ns: None,
            step_ns: None,
        };
        let reason = mfu(&work, &h200(), Dtype::Fp4, time).unwrap_err();
        assert_eq!(
            reason,
            "no dense fp4 peak is known for H200 SXM: set hardware.peak_tflops to give one"
        );
        let user = GpuFacts::set_by_user(
            "own",
            UserLimits {
                peak_tflops: Some(10.0),
                bandwidth_gbs: None,
            },
        );
        assert!(
            mbu(&work, &user, time)
                .unwrap_err()
                .contains("hardware.bandwidth_gbs")
        );
        assert_eq!(mfu(&work, &user, Dtype::Bf16, time).unwrap().by_busy_pct, None);
        assert!(mfu(&work, &user, Dtype::Bf16, StageTime::default()).is_err());
    }
}
