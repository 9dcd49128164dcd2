//! MFU and MBU: the work of a stage divided by what the device can do in its time.

use super::Architecture;
use super::work::{StageWork, Term, Tokens};
use crate::gpu::{Dtype, GpuFacts};
use crate::names::Family;
use crate::numbers::time;
use crate::ranks::ModelShare;
use crate::result::{About, Analysis, Mbu, Mfu, NotKnown, Reason, Stage, StageKind, Whole};
use crate::stages::{AllOfStage, StageIndex};

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

impl StageTime {
    /// Returns an amount of work in % of what `devices` of this rate do in the wall time, and one in the busy time. More than 100 %
    /// is an error.
    fn percent(&self, amount: f64, rate: f64, devices: f64) -> Result<(f64, Option<f64>), NotKnown> {
        let percent = |ns: i64, devices: f64| {
            let seconds = ns as f64 / 1e9;
            (ns > 0).then(|| 100.0 * amount / (seconds * devices * rate))
        };
        let wall = percent(self.wall_ns, devices).ok_or("the wall time of the stage is 0")?;
        let busy = self.busy_ns.and_then(|ns| percent(ns, 1.0));
        match wall > 100.0 || busy.is_some_and(|pct| pct > 100.0) {
            true => Err(BEYOND_PEAK.into()),
            false => Ok((wall, busy)),
        }
    }
}

/// Computes the model FLOPs utilisation: FLOPs of the model divided by what the device can do in that time.
///
/// # Errors
/// Says which value is missing.
pub fn mfu(work: &StageWork, gpu: &GpuFacts, dtype: Dtype, time: StageTime) -> Result<Mfu, NotKnown> {
    let peak = gpu.peak(dtype).ok_or_else(|| {
        gpu.why_unknown(|name| {
            format!("no dense {dtype} peak is known for {name}: set hardware.peak_tflops to give one")
        })
    })?;
    let flops = work.flops();
    let devices = f64::from(work.devices.max(1));
    let (by_wall_pct, by_busy_pct) = time.percent(flops, peak.flops_per_s, devices)?;
    let mut assumptions = work.assumptions.clone();
    if devices > 1.0 {
        assumptions.push(format!("by wall time the peak of {devices} devices counts"));
    }
    assumptions.extend(gpu.notes.as_ref().map(|notes| format!("{}: {notes}", gpu.name)));
    Ok(Mfu {
        flops,
        peak_flops_per_s: peak.flops_per_s,
        dtype: dtype.name().to_owned(),
        peak_source: peak.source,
        by_wall_pct,
        by_busy_pct,
        terms: work.terms.iter().filter(|term| term.flops > 0.0).cloned().collect(),
        assumptions,
    })
}

/// Computes the memory bandwidth utilisation: bytes that must move divided by what the memory can move in that time.
///
/// # Errors
/// Says which value is missing.
pub fn mbu(work: &StageWork, gpu: &GpuFacts, time: StageTime) -> Result<Mbu, NotKnown> {
    let (bandwidth, source) = gpu.bandwidth().ok_or_else(|| {
        gpu.why_unknown(|name| {
            format!("no memory bandwidth is known for {name}: set hardware.bandwidth_gbs to give one")
        })
    })?;
    let bytes = work.moved_bytes();
    let devices = f64::from(work.devices.max(1));
    let (by_wall_pct, by_busy_pct) = time.percent(bytes, bandwidth, devices)?;
    Ok(Mbu {
        bytes,
        bandwidth_bytes_per_s: bandwidth,
        bandwidth_source: source.to_owned(),
        by_wall_pct,
        by_busy_pct,
        floor_step_ns: work.floor_step_ns(bandwidth * devices).map(|ns| ns.round() as i64),
        step_ns: time.step_ns,
        terms: work.terms.iter().filter(|term: &&Term| term.bytes > 0.0).cloned().collect(),
        assumptions: work.assumptions.clone(),
    })
}

/// The reason for a utilisation above the peak of the device.
const BEYOND_PEAK: &str =
    "more than 100 % of the peak: the named model, its number format or its tokens do not match this capture";

/// The reason for a utilisation above a peak that the program measured itself.
const PEAK_TOO_LOW: &str = "more than 100 % of the peak that was measured on this machine: other programs used the machine during the \
                            measurement, or its caches hold the data, so the peak is not known";

/// The reason for no utilisation of a GPU that works with others.
const ONE_OF_SEVERAL: &str = "its kernels exchange data with other GPUs and the capture has one GPU: the part of the model on it is \
                              unknown";

/// The reason for no utilisation of a stage recorded in part whose time is not known.
const PART_CLOSES_EARLY: &str =
    "only a part of its steps was recorded, and its ranges close before the GPU has finished";

const OTHER_STAGE: &str =
    "the work of a model is known for prefill, for decode and for the steps of an engine only";

/// What the work of a stage follows from, and the device that does it.
pub struct WorkFacts<'a> {
    /// The model, or why it is not known.
    pub model: &'a Result<Architecture, NotKnown>,
    /// The device, or why it is not known.
    pub gpu: Result<&'a GpuFacts, &'a str>,
    /// Tokens of a run.
    pub tokens: &'a Tokens,
    /// Number format in use, where it is not that of the model.
    pub dtype: Option<Dtype>,
    /// The part of the model on the devices of the capture.
    pub share: &'a ModelShare,
    /// The stages.
    pub index: &'a StageIndex,
}

impl<'a> WorkFacts<'a> {
    /// Adds MFU and MBU to every stage whose work is known, and their sum; adds a reason for every other stage.
    pub fn add_utilisation(&self, analysis: &mut Analysis) {
        let mut parts = Vec::new();
        let one_device = analysis.devices.len() < 2;
        for (at, stage) in analysis.stages.iter_mut().enumerate() {
            if let Some((work, time)) = self.add_to(at, stage, one_device, &mut analysis.reasons) {
                // In the sum, GPU work after the end of a stage would count twice.
                let wall_ns = match self.all_of(at, stage) {
                    Some(_) => time.wall_ns,
                    None => stage.period_ns.unwrap_or(stage.wall_ns),
                };
                parts.push((work, StageTime { wall_ns, ..time }));
            }
            if let Some(warm) = &mut stage.warm {
                // The reasons are those of the whole stage.
                self.add_to(self.index.warm(at), warm, one_device, &mut Vec::new());
            }
        }
        if let (Ok(model), Ok(gpu), true) = (self.model, self.gpu, parts.len() > 1) {
            let dtype = self.dtype.unwrap_or(model.dtype);
            // A model that does not match a stage does not match the whole.
            let matches = analysis.reasons.iter().all(|reason| reason.why != BEYOND_PEAK);
            let mut sum = whole(&parts, gpu, dtype, &mut analysis.reasons);
            if !matches {
                let lost = [("mfu", sum.mfu.take().is_some()), ("mbu", sum.mbu.take().is_some())];
                for (name, _) in lost.into_iter().filter(|(_, lost)| *lost) {
                    analysis.reasons.push(Reason::new(About::Other(format!("whole.{name}")), BEYOND_PEAK));
                }
            }
            analysis.whole = Some(sum);
        }
        if self.gpu.is_ok_and(GpuFacts::is_measured) {
            for reason in analysis.reasons.iter_mut().filter(|reason| reason.why == BEYOND_PEAK) {
                reason.why = PEAK_TOO_LOW.to_owned();
            }
        }
    }

    /// Adds MFU and MBU to a stage, or the reason why they are not known. Returns its work and its time.
    fn add_to(
        &self,
        at: usize,
        stage: &mut Stage,
        one_device: bool,
        reasons: &mut Vec<Reason>,
    ) -> Option<(StageWork, StageTime)> {
        let known = self.stage_work(at, stage, one_device);
        let (mfu, mbu) = match &known {
            Ok((work, gpu, dtype, time)) => (mfu(work, gpu, *dtype, *time), mbu(work, gpu, *time)),
            Err(why) => (Err(why.clone()), Err(why.clone())),
        };
        let (about_mfu, about_mbu) =
            (About::StageMfu(stage.name.clone()), About::StageMbu(stage.name.clone()));
        stage.mfu = known_or(reasons, about_mfu, mfu);
        stage.mbu = known_or(reasons, about_mbu, mbu);
        known.ok().map(|(work, _, _, time)| (work, time))
    }

    /// Returns the extent of a stage that was recorded in part. The names of an engine's steps have the work of the recorded part. For
    /// others the work of all is known, and the time of all, because ranges are recorded all the time.
    fn all_of(&self, at: usize, stage: &Stage) -> Option<AllOfStage> {
        self.index.all_of(at).filter(|_| stage.tokens.is_none())
    }

    /// Returns the work of a stage, the device that does it, the number format and the time.
    fn stage_work(
        &self,
        at: usize,
        stage: &Stage,
        one_device: bool,
    ) -> Result<(StageWork, &'a GpuFacts, Dtype, StageTime), NotKnown> {
        let engine = stage.tokens.is_some().then(|| self.index.engine_steps(at));
        let kind = match stage.kind {
            kind @ (StageKind::Decode | StageKind::Prefill) => kind,
            _ if engine.is_some() => StageKind::Prefill,
            _ => return Err(OTHER_STAGE.into()),
        };
        let share_known = matches!(self.share, ModelShare::TensorParallel { .. });
        if one_device && !share_known && stage.kernels.iter().any(|k| k.family == Family::Communication) {
            return Err(ONE_OF_SEVERAL.into());
        }
        let all = self.all_of(at, stage);
        if all.is_some() && stage.closes_early() {
            return Err(PART_CLOSES_EARLY.into());
        }
        let (model, gpu) = (self.model.as_ref().map_err(NotKnown::clone)?, self.gpu?);
        if let ModelShare::Unknown(why) = self.share {
            return Err(why.as_str().into());
        }
        let work = match engine {
            Some(steps) => model.engine_work(&stage.name, steps)?,
            None => {
                let instances = all.map_or(stage.instances, |all| all.instances);
                let steps = stage.steps.as_ref().map(|steps| all.map_or(steps.count, |all| all.count));
                model.stage_work(kind, self.tokens, instances, steps)?
            }
        };
        let work = match self.share {
            ModelShare::TensorParallel { ranks } => work.split_over(*ranks),
            _ => work,
        };
        let mut work = work.on_devices(stage.device_count as u32);
        work.stage.clone_from(&stage.name);
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
            step_ns: stage.step_ns(),
        };
        Ok((work, gpu, self.dtype.unwrap_or(model.dtype), time))
    }
}

/// Returns a utilisation, or notes the reason why it is not known.
fn known_or<T>(reasons: &mut Vec<Reason>, about: About, value: Result<T, NotKnown>) -> Option<T> {
    value.map_err(|why| reasons.push(Reason::new(about, why))).ok()
}

/// Adds up stages.
fn whole(parts: &[(StageWork, StageTime)], gpu: &GpuFacts, dtype: Dtype, reasons: &mut Vec<Reason>) -> Whole {
    let works: Vec<&StageWork> = parts.iter().map(|p| &p.0).collect();
    let work = StageWork::together("whole", &works);
    let time = StageTime {
        wall_ns: parts.iter().map(|p| p.1.wall_ns).sum(),
        busy_ns: parts.iter().map(|p| p.1.busy_ns).sum(),
        step_ns: None,
    };
    Whole {
        wall_ns: time.wall_ns,
        busy_ns: time.busy_ns,
        mfu: known_or(reasons, About::Other("whole.mfu".into()), mfu(&work, gpu, dtype, time)),
        mbu: known_or(reasons, About::Other("whole.mbu".into()), mbu(&work, gpu, time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::lookup;
    use crate::model::preset;
    use crate::model::work::DecodeInput;
    use roofgap_trace::Device;

    const DOCUMENT: &str = include_str!("../../../../docs/mfu.md");

    fn h200() -> GpuFacts {
        let report = Device { bandwidth_bytes_per_s: Some(4_814_304_000_000), ..Device::default() };
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
        let time = StageTime { wall_ns: 90_000_000, busy_ns: Some(80_000_000), step_ns: None };
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
        let time = StageTime { wall_ns: 10_000_000, busy_ns: None, step_ns: None };
        let reason = mfu(&work, &h200(), Dtype::Fp4, time).unwrap_err();
        assert_eq!(
            reason.to_string(),
            "no dense fp4 peak is known for H200 SXM: set hardware.peak_tflops to give one"
        );
        let user = GpuFacts { name: "own".into(), stated_tflops: Some(10.0), ..GpuFacts::default() };
        assert!(mbu(&work, &user, time).unwrap_err().to_string().contains("hardware.bandwidth_gbs"));
        assert_eq!(mfu(&work, &user, Dtype::Bf16, time).unwrap().by_busy_pct, None);
        assert!(mfu(&work, &user, Dtype::Bf16, StageTime::default()).is_err());
    }
}
