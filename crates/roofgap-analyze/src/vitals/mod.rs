//! Clocks and activity of stages, from the vitals that were sampled beside the program. Their energy is in [`energy`].

mod energy;

use crate::gpu::GpuFacts;
use crate::result::*;
use crate::roof::{self, RoofSums};
use crate::shapes::ShapedKernels;
use crate::stages::{StageIndex, StageSpans};
use crate::timeline::{Grouped, IntervalSet};
use roofgap_base::stats::median_f64;
use roofgap_trace::account::Account;
use roofgap_trace::vitals::{GpuActivity, GpuState, GpuUser, GpuVitals, busy_mhz};
use roofgap_trace::{Ns, Trace};

/// Least samples of a stage for its clock.
const LEAST_SAMPLES: usize = 3;

/// Least samples of a stage for its activity.
const LEAST_ACTIVITY: usize = 5;

/// Share of the median clock of a stage below which its beginning is slow.
const RAMP: f64 = 0.9;

/// Share of the highest clock from which on a sample without a stated reason is at it.
const AT_HIGHEST: f64 = 0.99;

/// The unprofiled run.
pub struct Baseline<'a> {
    /// Vitals while it ran.
    pub vitals: &'a [GpuVitals],
    /// Account with the times of its stages.
    pub account: Option<&'a Account>,
}

/// Adds the vitals to an analysis, if there are any of the time of the trace.
pub fn attach(
    analysis: &mut Analysis,
    trace: &Trace,
    index: &StageIndex,
    gpu: Option<&GpuFacts>,
    baseline: &Baseline<'_>,
) {
    let gpus = of_devices(trace);
    if gpus.is_empty() {
        return;
    }
    let Some(span) = trace.span() else { return };
    if !trace.ops.is_empty() {
        for (at, stage) in analysis.stages.iter_mut().enumerate().take(index.len()) {
            let clocks = stage_clocks(&times(index.spans(at)), &gpus, gpu, stage);
            stage.vitals = (clocks.samples > 0).then_some(clocks);
        }
    }
    let energy = energy::add_stages(analysis, trace, index, &gpus, baseline);
    let gpus = gpus.iter().map(|gpu| gpu_row(trace, gpu, span)).collect();
    analysis.vitals = Some(Vitals { gpus, energy });
}

/// Returns the times in which a stage runs.
fn times(stage: &StageSpans) -> IntervalSet {
    IntervalSet::of(stage.instances.iter().map(|span| (span.start, span.end)).collect())
}

/// Adds the distance of the stages to the roof at their clocks. `counted` has the roofs of measured launches.
pub fn add_roofs(
    analysis: &mut Analysis,
    trace: &Trace,
    index: &StageIndex,
    gpu: Option<&GpuFacts>,
    shaped: &ShapedKernels,
    counted: impl Fn(&GpuFacts) -> RoofSums,
) {
    for stage in &mut analysis.stages {
        let Some(vitals) = &mut stage.vitals else { continue };
        let slower = gpu.zip(vitals.sm_mhz).and_then(|(gpu, mhz)| gpu.at_clock(mhz));
        vitals.roof_at_clock_pct = slower.and_then(|gpu| {
            let mut roofs = counted(&gpu);
            roof::add_modelled(&mut roofs, trace, index, &gpu, shaped);
            roofs.of_stage(&stage.name).distance().roof_pct
        });
    }
}

/// Adds the activity that NVML counted to the stages for which no counters were sampled.
pub fn add_activity(analysis: &mut Analysis, trace: &Trace, index: &StageIndex) {
    let gpus = of_devices(trace);
    let stages = analysis.stages.iter_mut().enumerate().take(index.len());
    for (at, stage) in stages.filter(|(_, stage)| stage.mbu_measured.is_none()) {
        let spans = times(index.spans(at));
        let measured: Vec<Activity> = gpus.iter().filter_map(|gpu| activity(&gpu.vitals, &spans)).collect();
        let (Some(first), Some(busy)) =
            (measured.first(), stage.warm().busy_share().filter(|share| *share > 0.0))
        else {
            continue;
        };
        let [sm, tensor, dram] = [0, 1, 2].map(|metric| {
            let pcts = measured.iter().map(|gpu| gpu.pct[metric]);
            Some(pcts.sum::<Option<f64>>()? / measured.len() as f64)
        });
        let while_busy = |pct: f64| (pct / busy).min(100.0);
        if dram.or(sm).is_some() {
            stage.mbu_measured = Some(MbuMeasured {
                by_wall_pct: dram,
                by_busy_pct: dram.map(while_busy),
                sm_active_pct: sm.map(while_busy),
                tensor_active_pct: tensor.map(while_busy),
                source: Some("NVML GPM".to_owned()),
                samples: first.samples,
                interval_ns: first.interval_ns,
                covered_pct: first.covered_pct,
                ..MbuMeasured::default()
            });
        }
    }
}

/// Share of a sample, %, from which on it is of one stage.
const OF_ONE_STAGE_PCT: i64 = 95;

/// Activity of a GPU in a stage.
struct Activity {
    /// Means of the metrics of [`GpuActivity`], %.
    pct: [Option<f64>; 3],
    samples: u64,
    interval_ns: i64,
    /// Share of the stage in which there are samples, %.
    covered_pct: f64,
}

/// Returns the mean activity of a GPU over the samples that lie in a stage. A sample may still count the interval before it, so that
/// interval has to be of the stage, too.
fn activity(vitals: &GpuVitals, stage: &IntervalSet) -> Option<Activity> {
    let length = |(start, end): (Ns, Ns)| end - start;
    let mut lengths: Vec<f64> = vitals.activity.iter().map(|sample| length(sample.span) as f64).collect();
    let interval_ns = median_f64(&mut lengths)? as i64;
    let is_inside = |sample: &&GpuActivity| {
        let (start, end) = (sample.span.0 - interval_ns, sample.span.1);
        let share = length((start, end)).saturating_mul(OF_ONE_STAGE_PCT);
        stage.overlap(start, end).saturating_mul(100) >= share
    };
    let inside: Vec<&GpuActivity> = vitals.activity.iter().filter(is_inside).collect();
    let mean = |metric: usize| {
        let values: Vec<f64> = inside.iter().filter_map(|sample| sample.pct[metric]).collect();
        let sum: f64 = values.iter().sum();
        (values.len() >= LEAST_ACTIVITY).then(|| (sum / values.len() as f64).min(100.0))
    };
    let covered: Ns = inside.iter().map(|sample| length(sample.span)).sum();
    Some(Activity {
        pct: [0, 1, 2].map(mean),
        samples: inside.len() as u64,
        interval_ns,
        covered_pct: (100.0 * covered as f64 / stage.length().max(1) as f64).min(100.0),
    })
}

/// Vitals of a device of a trace, on the clock of the trace.
pub struct DeviceVitals {
    /// Position in `Trace::devices`.
    pub device: usize,
    /// Vitals.
    pub vitals: GpuVitals,
}

/// Share of the usual clock below which kernels take longer because of it.
const CLOCK_DROP: f64 = 0.85;

/// Time before and after a span in which vitals still tell about it, ns: they are read several times a second.
const AROUND_NS: Ns = 200_000_000;

/// Least use of the multiprocessors by another program that matters, %.
const LEAST_TENANT_PCT: u64 = 5;

/// Tells why kernels of a device take longer in a span of time: at a lower clock than usual, or beside another program.
pub fn slower(
    trace: &Trace,
    gpus: &[DeviceVitals],
    device: usize,
    (begin, end): (Ns, Ns),
) -> Option<(SpikeCause, String)> {
    let vitals = &gpus.iter().find(|gpu| gpu.device == device)?.vitals;
    let around = (begin - AROUND_NS)..=(end + AROUND_NS);
    let clock =
        |is_wanted: &dyn Fn(Ns) -> bool| busy_mhz(vitals.states.iter().filter(|state| is_wanted(state.at)));
    let usual = clock(&|_| true);
    let now = clock(&|at| (begin..=end).contains(&at)).or_else(|| clock(&|at| around.contains(&at)));
    if let Some((now, usual)) = now.zip(usual).filter(|(now, usual)| *now < CLOCK_DROP * usual) {
        return Some((SpikeCause::ClockDrop, format!("{now:.0} MHz for {usual:.0} MHz")));
    }
    let lists = vitals.processes.iter().filter(|(at, _)| around.contains(at));
    let mut users = lists.flat_map(|(_, users)| users);
    let other = users.find(|user| is_other(trace, user) && user.sm_pct >= Some(LEAST_TENANT_PCT))?;
    let name = other.name.clone().unwrap_or_else(|| format!("process {}", other.pid));
    Some((SpikeCause::OtherTenant, name))
}

/// Tells whether a process on a GPU is not of the program.
fn is_other(trace: &Trace, user: &GpuUser) -> bool {
    user.of_session == Some(false) && trace.processes.iter().all(|process| process.pid != user.pid)
}

/// Lists the devices of a trace that ran operations and have vitals in the time of the trace.
pub fn of_devices(trace: &Trace) -> Vec<DeviceVitals> {
    if trace.vitals.is_empty() {
        return Vec::new();
    }
    let Some((first, last)) = trace.span() else { return Vec::new() };
    let used = trace.used_devices();
    let devices = trace.devices.iter().enumerate().filter(|(_, device)| used.contains(device));
    let vitals_now = |(at, device)| {
        let vitals = shifted(trace.vitals_of(device)?, trace.utc_offset);
        // Some files have activity or energy alone.
        let states = vitals.states.iter().map(|state| state.at);
        let activity = vitals.activity.iter().map(|sample| sample.span.0);
        let energy = vitals.energy.iter().map(|(at, _)| *at);
        let is_now = states.chain(activity).chain(energy).any(|at| (first..=last).contains(&at));
        is_now.then_some(DeviceVitals { device: at, vitals })
    };
    devices.filter_map(vitals_now).collect()
}

/// Puts vitals on the clock of a trace.
fn shifted(vitals: &GpuVitals, offset: Ns) -> GpuVitals {
    let mut vitals = vitals.clone();
    vitals.energy.iter_mut().for_each(|(at, _)| *at -= offset);
    vitals.states.iter_mut().for_each(|state| state.at -= offset);
    vitals
        .activity
        .iter_mut()
        .for_each(|sample| sample.span = (sample.span.0 - offset, sample.span.1 - offset));
    vitals.celsius.iter_mut().for_each(|(at, _)| *at -= offset);
    vitals.processes.iter_mut().for_each(|(at, _)| *at -= offset);
    vitals
}

fn gpu_row(trace: &Trace, gpu: &DeviceVitals, (first, last): (Ns, Ns)) -> VitalsGpu {
    let vitals = &gpu.vitals;
    let is_now = |at: Ns| (first..=last).contains(&at);
    let median = |value: fn(&GpuState) -> Option<f64>| {
        let states = vitals.states.iter().filter(|state| is_now(state.at));
        median_f64(&mut states.filter_map(value).collect::<Vec<f64>>())
    };
    let celsius = vitals.celsius.iter().filter(|(at, _)| is_now(*at));
    let lists: Vec<&Vec<GpuUser>> =
        vitals.processes.iter().filter(|(at, _)| is_now(*at)).map(|(_, users)| users).collect();
    let mut others: Grouped<u32, OtherTenant> = Grouped::default();
    for user in lists.iter().copied().flatten().filter(|user| is_other(trace, user)) {
        let Some(used) = user.sm_pct.filter(|pct| *pct > 0) else { continue };
        let new = || OtherTenant { pid: user.pid, name: user.name.clone(), sm_pct: 0.0 };
        others.entry(user.pid, new).sm_pct += used as f64 / lists.len() as f64;
    }
    VitalsGpu {
        device: trace.devices[gpu.device].number,
        name: vitals.name.clone(),
        max_sm_mhz: vitals.max_sm_mhz,
        sm_mhz: median(|state| state.sm_mhz),
        power_w: median(|state| state.watts),
        limit_w: vitals.limit_w,
        default_limit_w: vitals.default_limit_w,
        celsius: celsius.map(|(_, degrees)| *degrees).reduce(f64::max),
        mig: vitals.is_mig,
        others: others.items,
    }
}

/// Returns the clock of a stage, the reasons for it, and the utilisation of the peak at that clock.
fn stage_clocks(
    spans: &IntervalSet,
    gpus: &[DeviceVitals],
    gpu: Option<&GpuFacts>,
    stage: &Stage,
) -> StageVitals {
    let mut clocks = Vec::new();
    let mut times = vec![0_u64; ThrottleReason::ALL.len()];
    let mut samples = 0_u64;
    for vitals in gpus.iter().map(|gpu| &gpu.vitals) {
        let highest = vitals.max_sm_mhz.unwrap_or(0.0) * AT_HIGHEST;
        for state in vitals.states.iter().filter(|state| spans.encloses(state.at, state.at)) {
            samples += 1;
            clocks.extend(state.sm_mhz);
            let mut is_stated = false;
            for (_, reason) in ThrottleReason::BITS.iter().filter(|(bit, _)| state.reasons & bit != 0) {
                times[*reason as usize] += 1;
                is_stated = true;
            }
            let is_lower = !state.is_idle() && state.sm_mhz.is_some_and(|mhz| mhz < highest);
            times[ThrottleReason::Unstated as usize] += u64::from(!is_stated && is_lower);
        }
    }
    let share = |(reason, time): (&ThrottleReason, &u64)| {
        let pct = 100.0 * *time as f64 / samples as f64;
        (*time > 0).then_some(ThrottleTime { reason: *reason, pct })
    };
    let mut throttle: Vec<ThrottleTime> = ThrottleReason::ALL.iter().zip(&times).filter_map(share).collect();
    throttle.sort_by(|a, b| b.pct.total_cmp(&a.pct));
    // The beginning of several instances or GPUs is not one time.
    let in_order = if stage.instances == 1 && gpus.len() == 1 { clocks.clone() } else { Vec::new() };
    let sm_mhz = (clocks.len() >= LEAST_SAMPLES).then(|| median_f64(&mut clocks)).flatten();
    let mfu = stage.mfu.as_ref();
    let peak_mhz = gpu.zip(mfu).and_then(|(gpu, mfu)| gpu.peak_mhz(mfu.dtype.parse().ok()?));
    let ratio = peak_mhz.zip(sm_mhz).filter(|(_, mhz)| *mhz > 0.0).map(|(peak, mhz)| peak / mhz);
    StageVitals {
        samples,
        sm_mhz,
        peak_mhz,
        mfu_at_clock_pct: ratio.zip(mfu).map(|(ratio, mfu)| ratio * mfu.by_wall_pct),
        throttle,
        ramp: sm_mhz.and_then(|mhz| ramp(&in_order, mhz)),
        energy: None,
        roof_at_clock_pct: None,
    }
}

/// Returns the beginning of a stage at a clock below its median.
fn ramp(clocks: &[f64], median_mhz: f64) -> Option<ClockRamp> {
    let slow: Vec<f64> = clocks.iter().copied().take_while(|mhz| *mhz < RAMP * median_mhz).collect();
    let count = slow.len() as f64;
    (slow.len() >= LEAST_SAMPLES).then(|| ClockRamp {
        pct: 100.0 * count / clocks.len() as f64,
        sm_mhz: slow.iter().sum::<f64>() / count,
    })
}
