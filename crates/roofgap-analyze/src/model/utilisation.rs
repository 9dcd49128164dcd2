//! MFU and MBU: the work of a stage divided by what the device can do in its time.

use super::Architecture;
use super::work::{Misfit, StageWork, Term, Tokens};
use crate::gpu::{Dtype, GpuFacts};
use crate::names::Family;
use crate::numbers::time;
use crate::ranks::ModelShare;
use crate::result::{self, About, Analysis, Mbu, Mfu, Reason, StageKind, Whole};
use crate::stages::StageIndex;

/// A value that MFU and MBU need is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoUtilisation {
    #[error("{0}")]
    UnknownGpu(String),
    #[error("no dense {dtype} peak is known for {gpu}: set hardware.peak_tflops to give one")]
    NoPeak { dtype: Dtype, gpu: String },
    #[error("no memory bandwidth is known for {gpu}: set hardware.bandwidth_gbs to give one")]
    NoBandwidth { gpu: String },
    #[error("the wall time of the stage is 0")]
    NoTime,
}

impl NoUtilisation {
    /// Prefers the reason why the GPU is unknown.
    fn of(gpu: &GpuFacts, otherwise: Self) -> Self {
        gpu.unknown.clone().map_or(otherwise, Self::UnknownGpu)
    }
}

/// The time of a stage, all instances together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageTime {
    /// Sum of its ranges on the CPU.
    pub wall_ns: i64,
    /// Time the GPU was busy with it.
    pub busy_ns: Option<i64>,
    /// Mean length of a decode step.
    pub step_ns: Option<i64>,
}

/// Computes the model FLOPs utilisation: FLOPs of the model divided by what the device can do in that time.
pub fn mfu(work: &StageWork, gpu: &GpuFacts, dtype: Dtype, time: StageTime) -> Result<Mfu, NoUtilisation> {
    let name = gpu.name.clone();
    let peak =
        gpu.peak(dtype).ok_or_else(|| NoUtilisation::of(gpu, NoUtilisation::NoPeak { dtype, gpu: name }))?;
    let wall = seconds(time.wall_ns).ok_or(NoUtilisation::NoTime)?;
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
    Ok(Mfu {
        flops,
        peak_flops_per_s: peak.flops_per_s,
        dtype: dtype.name().to_owned(),
        peak_source: peak.source,
        by_wall_pct: percent(wall * devices),
        by_busy_pct: time.busy_ns.and_then(seconds).map(percent),
        terms: work.terms.iter().filter(|term| term.flops > 0.0).map(analysis_term).collect(),
        assumptions,
    })
}

/// Computes the memory bandwidth utilisation: bytes that must move divided by what the memory can move in that time.
pub fn mbu(work: &StageWork, gpu: &GpuFacts, time: StageTime) -> Result<Mbu, NoUtilisation> {
    let name = gpu.name.clone();
    let (bandwidth, source) =
        gpu.bandwidth().ok_or_else(|| NoUtilisation::of(gpu, NoUtilisation::NoBandwidth { gpu: name }))?;
    let wall = seconds(time.wall_ns).ok_or(NoUtilisation::NoTime)?;
    let bytes = work.moved_bytes();
    let devices = f64::from(work.devices.max(1));
    let percent = |seconds: f64| 100.0 * bytes / (seconds * bandwidth);
    Ok(Mbu {
        bytes,
        bandwidth_bytes_per_s: bandwidth,
        bandwidth_source: source.to_owned(),
        by_wall_pct: percent(wall * devices),
        by_busy_pct: time.busy_ns.and_then(seconds).map(percent),
        floor_step_ns: work.floor_step_ns(bandwidth * devices).map(|ns| ns.round() as i64),
        step_ns: time.step_ns,
        terms: work.terms.iter().filter(|term| term.moved_bytes() > 0.0).map(analysis_term).collect(),
        assumptions: work.assumptions.clone(),
    })
}

/// The reason for a utilisation above the peak of the device.
const BEYOND_PEAK: &str = "more than 100 % of the peak: the named model does not match this capture";

/// The reason for no utilisation of a GPU that works with others.
const ONE_OF_SEVERAL: &str = "its kernels exchange data with other GPUs and the capture has one GPU: the part of the model on it is \
                              unknown";

/// The reason for no utilisation of a stage recorded in part whose time is not known.
const PART_CLOSES_EARLY: &str =
    "only a part of its steps was recorded, and its ranges close before the GPU has finished";

fn beyond_peak(by_wall_pct: f64, by_busy_pct: Option<f64>) -> bool {
    by_wall_pct > 100.0 || by_busy_pct.is_some_and(|pct| pct > 100.0)
}

/// Adds MFU and MBU to every stage whose work is known, and their sum; adds a reason for every other stage.
pub fn add_utilisation(
    analysis: &mut Analysis,
    model: Result<&Architecture, impl ToString + Copy>,
    gpu: Result<&GpuFacts, impl ToString + Copy>,
    tokens: &Tokens,
    dtype: Option<Dtype>,
    share: &ModelShare,
    index: &StageIndex,
) {
    let mut reasons = Vec::new();
    let mut parts = Vec::new();
    let one_device = analysis.devices.len() < 2;
    for (at, stage) in analysis.stages.iter_mut().enumerate() {
        let engine = stage.tokens.is_some().then(|| index.engine_steps(at));
        let (no_mfu, no_mbu) = (About::StageMfu(stage.name.clone()), About::StageMbu(stage.name.clone()));
        let mut missing = |what: &[&About], why: &str| {
            reasons.extend(what.iter().map(|about| Reason::new((*about).clone(), why)));
        };
        if engine.is_none() && !matches!(stage.kind, StageKind::Prefill | StageKind::Decode) {
            missing(&[&no_mfu, &no_mbu], &Misfit::OtherStage.to_string());
            continue;
        }
        let share_known = matches!(share, ModelShare::TensorParallel { .. });
        if one_device && !share_known && stage.kernels.iter().any(|k| k.family == Family::Communication) {
            missing(&[&no_mfu, &no_mbu], ONE_OF_SEVERAL);
            continue;
        }
        // The names of an engine's steps have the work of the recorded part. For others the work of all is known, and the time of all,
        // because ranges are recorded all the time.
        let all = index.all_of(at).filter(|_| engine.is_none());
        if all.is_some() && stage.closes_early() {
            missing(&[&no_mfu, &no_mbu], PART_CLOSES_EARLY);
            continue;
        }
        let steps = stage.steps.as_ref().map(|s| s.count);
        let known = model.map_err(|why| why.to_string()).and_then(|model| {
            let gpu = gpu.map_err(|why| why.to_string())?;
            if let ModelShare::Unknown(why) = share {
                return Err(why.clone());
            }
            let work = match engine {
                Some(steps) => model.engine_work(steps),
                None => {
                    let instances = all.map_or(stage.instances, |all| all.instances);
                    let steps = steps.map(|steps| all.map_or(steps, |all| all.count));
                    model.stage_work(stage.kind, tokens, instances, steps)
                }
            };
            Ok((model, gpu, work.map_err(|why| why.to_string())?))
        });
        let (model, gpu, work) = match known {
            Ok(known) => known,
            Err(why) => {
                missing(&[&no_mfu, &no_mbu], &why);
                continue;
            }
        };
        let mut work = match share {
            ModelShare::TensorParallel { ranks } => work.split_over(*ranks),
            _ => work,
        }
        .on_devices(stage.device_count as u32);
        if stage.closes_early() {
            work.assumptions.push(format!(
                "the ranges of {} end {} before its GPU work, so the time to the end of that work counts",
                stage.name,
                time(stage.late_ns)
            ));
        }
        let time = StageTime {
            wall_ns: all.map_or(stage.elapsed_ns(), |all| all.elapsed_ns),
            busy_ns: stage.busy_ns.filter(|_| all.is_none()),
            step_ns: stage.steps.as_ref().map(|s| s.mean_ns),
        };
        match mfu(&work, gpu, dtype.unwrap_or(model.dtype), time) {
            Ok(value) if beyond_peak(value.by_wall_pct, value.by_busy_pct) => {
                missing(&[&no_mfu], BEYOND_PEAK)
            }
            Ok(value) => stage.mfu = Some(value),
            Err(why) => missing(&[&no_mfu], &why.to_string()),
        }
        match mbu(&work, gpu, time) {
            Ok(value) if beyond_peak(value.by_wall_pct, value.by_busy_pct) => {
                missing(&[&no_mbu], BEYOND_PEAK)
            }
            Ok(value) => stage.mbu = Some(value),
            Err(why) => missing(&[&no_mbu], &why.to_string()),
        }
        // In the sum, GPU work after the end of a stage would count twice.
        let time = StageTime {
            wall_ns: match all {
                Some(all) => all.elapsed_ns,
                None => stage.period_ns.unwrap_or(stage.wall_ns),
            },
            ..time
        };
        parts.push((stage.name.clone(), work, time));
    }
    if let (Ok(model), Ok(gpu), true) = (model, gpu, parts.len() > 1) {
        analysis.whole = Some(whole(&parts, gpu, dtype.unwrap_or(model.dtype)));
    }
    analysis.reasons.extend(reasons);
}

/// Adds up stages.
fn whole(parts: &[(String, StageWork, StageTime)], gpu: &GpuFacts, dtype: Dtype) -> Whole {
    let work = StageWork::together(parts.iter().map(|(name, work, _)| (name.as_str(), work)));
    let time = StageTime {
        wall_ns: parts.iter().map(|(_, _, time)| time.wall_ns).sum(),
        busy_ns: parts.iter().map(|(_, _, time)| time.busy_ns).sum(),
        step_ns: None,
    };
    Whole {
        wall_ns: time.wall_ns,
        busy_ns: time.busy_ns,
        mfu: mfu(&work, gpu, dtype, time).ok(),
        mbu: mbu(&work, gpu, time).ok(),
    }
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
    use crate::model::preset;
    use crate::model::work::DecodeInput;

    const DOCUMENT: &str = include_str!("../../../../docs/mfu.md");

    fn h200() -> GpuFacts {
        let report =
            DeviceReport { bandwidth_bytes_per_s: Some(4_814_304_000_000), ..DeviceReport::default() };
        lookup("NVIDIA H200", Some((9, 0)), None).unwrap().clone().on_device(&report)
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
        let work = preset("deepseek_ocr2").unwrap().decode(&DecodeInput { batch: 1, context: 512, steps: 8 });
        let time = StageTime { wall_ns: 239_255_000, busy_ns: Some(17_863_000), step_ns: Some(29_906_875) };
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
        let work = preset("llama3_8b").unwrap().decode(&DecodeInput { batch: 1, context: 8, steps: 4 });
        let time = StageTime { wall_ns: 9_000_000, busy_ns: Some(8_000_000), step_ns: None };
        let on = |devices| {
            let work = work.clone().on_devices(devices);
            (mfu(&work, &h200(), Dtype::Bf16, time).unwrap(), mbu(&work, &h200(), time).unwrap())
        };
        let (one, two) = (on(1), on(2));
        assert!((one.0.by_wall_pct / two.0.by_wall_pct - 2.0).abs() < 1e-12);
        assert_eq!(one.0.by_busy_pct, two.0.by_busy_pct, "busy time is already summed over devices");
        assert!((one.1.by_wall_pct / two.1.by_wall_pct - 2.0).abs() < 1e-12);
        assert!(two.1.floor_step_ns < one.1.floor_step_ns);
        assert!(two.0.assumptions.iter().any(|text| text.contains("2 devices")));
    }

    #[test]
    fn what_is_not_known_has_a_reason() {
        let work = preset("llama3_8b").unwrap().decode(&DecodeInput { batch: 1, context: 8, steps: 1 });
        let time = StageTime { wall_ns: 1_000_000, busy_ns: None, step_ns: None };
        let reason = mfu(&work, &h200(), Dtype::Fp4, time).unwrap_err();
        assert_eq!(
            reason.to_string(),
            "no dense fp4 peak is known for H200 SXM: set hardware.peak_tflops to give one"
        );
        let user = GpuFacts::set_by_user("own", UserLimits { peak_tflops: Some(10.0), bandwidth_gbs: None });
        assert!(mbu(&work, &user, time).unwrap_err().to_string().contains("hardware.bandwidth_gbs"));
        assert_eq!(mfu(&work, &user, Dtype::Bf16, time).unwrap().by_busy_pct, None);
        assert!(mfu(&work, &user, Dtype::Bf16, StageTime::default()).is_err());
    }
}
