//! Clocks, costs and activity of stages, from the vitals that were sampled beside the program. Their energy is in [`energy`].

mod energy;

use crate::analyze::Prices;
use crate::gpu::GpuFacts;
use crate::result::*;
use crate::roof::{self, RoofSums};
use crate::stages::StageIndex;
use crate::timeline::IntervalSet;
use roofgap_base::stats::median_f64;
use roofgap_trace::account::Account;
use roofgap_trace::vitals::{GpuActivity, GpuState, GpuUser, GpuVitals};
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
    let Some((first, last)) = trace.span() else { return };
    let mut vitals = Vitals::default();
    for (device, own) in &gpus {
        vitals.gpus.push(gpu_row(trace, *device, own, (first, last)));
    }
    let stages = analysis.stages.iter_mut().take(index.len());
    for (at, stage) in stages.enumerate() {
        let clocks = stage_clocks(index, at, trace, &gpus, gpu, stage);
        stage.vitals = (clocks.samples > 0).then_some(clocks);
    }
    let used: Vec<u32> = gpus.iter().map(|(_, own)| own.number).collect();
    let profiled: Vec<_> = gpus.iter().filter_map(|own| energy::of_profiled(trace, index, own)).collect();
    vitals.energy = energy::add_stages(analysis, index, &used, &profiled, baseline);
    if !profiled.is_empty() {
        match energy::of_kernels(analysis, trace, &profiled) {
            Ok(kernels) => vitals.kernels = Some(kernels),
            Err(reason) => analysis.reasons.push(reason),
        }
    }
    analysis.vitals = Some(vitals);
}

/// Adds the distance of the stages to the roof at their clocks. `counted` has the roofs of measured launches.
pub fn add_roofs(
    analysis: &mut Analysis,
    trace: &Trace,
    index: &StageIndex,
    gpu: Option<&GpuFacts>,
    counted: impl Fn(&GpuFacts) -> RoofSums,
) {
    for stage in &mut analysis.stages {
        let Some(vitals) = &mut stage.vitals else { continue };
        let slower = gpu.zip(vitals.sm_mhz).and_then(|(gpu, mhz)| gpu.at_clock(mhz));
        vitals.roof_at_clock_pct = slower.and_then(|gpu| {
            let mut roofs = counted(&gpu);
            roof::add_modelled(&mut roofs, trace, index, &gpu);
            roofs.of_stage(&stage.name).distance().roof_pct
        });
    }
}

/// Adds the cost of tokens to the stages whose rate of tokens, or energy of a token, is known.
pub fn add_costs(analysis: &mut Analysis, prices: Prices) {
    let slower: Vec<(String, f64)> =
        analysis.timeline_overhead().map(|own| (own.stage.clone(), own.ratio.max(1.0))).collect();
    for stage in &mut analysis.stages {
        // Without the profiler tokens come faster.
        let slower = slower.iter().find(|(name, _)| *name == stage.name).map_or(1.0, |(_, ratio)| *ratio);
        let rate = stage.tokens_per_s.filter(|rate| *rate > 0.0).map(|rate| rate * slower);
        let token_j = stage.vitals.as_ref().and_then(|own| own.energy.as_ref()?.token_j);
        let gpus = stage.devices_per_instance.max(1.0);
        let gpu = prices.per_gpu_hour.zip(rate).map(|(price, rate)| price * gpus / 3600.0 * 1e6 / rate);
        let energy = prices.per_kwh.zip(token_j).map(|(price, joules)| price * joules * 1e6 / 3.6e6);
        let sum = gpu.unwrap_or(0.0) + energy.unwrap_or(0.0);
        stage.cost = gpu.or(energy).map(|_| TokenCost { million_tokens: sum, gpu, energy });
    }
}

/// Adds the activity that NVML counted to the stages for which no counters were sampled.
pub fn add_activity(analysis: &mut Analysis, trace: &Trace, index: &StageIndex) {
    let gpus = of_devices(trace);
    let stages = analysis.stages.iter_mut().enumerate().take(index.len());
    for (at, stage) in stages.filter(|(_, stage)| stage.mbu_measured.is_none()) {
        let spans: Vec<(Ns, Ns)> =
            index.spans(at).instances.iter().map(|span| (span.start, span.end)).collect();
        let gpus: Vec<MbuMeasured> = gpus.iter().filter_map(|(_, own)| activity(own, &spans)).collect();
        let (Some(first), Some(busy)) =
            (gpus.first(), stage.warm().busy_share().filter(|share| *share > 0.0))
        else {
            continue;
        };
        let mean = |value: fn(&MbuMeasured) -> Option<f64>| {
            Some(gpus.iter().map(value).sum::<Option<f64>>()? / gpus.len() as f64)
        };
        let while_busy = |pct: f64| (pct / busy).min(100.0);
        let by_wall_pct = mean(|own| own.by_wall_pct);
        let measured = MbuMeasured {
            by_wall_pct,
            by_busy_pct: by_wall_pct.map(while_busy),
            sm_active_pct: mean(|own| own.sm_active_pct).map(while_busy),
            tensor_active_pct: mean(|own| own.tensor_active_pct).map(while_busy),
            ..first.clone()
        };
        if measured.by_wall_pct.or(measured.sm_active_pct).is_some() {
            stage.mbu_measured = Some(measured);
        }
    }
}

/// Share of a sample, %, from which on it is of one stage.
const OF_ONE_STAGE_PCT: i64 = 95;

/// Returns the activity of a GPU in the spans of a stage: the mean of the samples that lie in them. A sample may tell of the time of the one
/// before, so that time has to be of the stage, too.
fn activity(own: &GpuVitals, spans: &[(Ns, Ns)]) -> Option<MbuMeasured> {
    let length = |(start, end): (Ns, Ns)| end - start;
    let mut lengths: Vec<f64> = own.activity.iter().map(|own| length(own.span) as f64).collect();
    let interval_ns = median_f64(&mut lengths)? as i64;
    let set = IntervalSet::of(spans.to_vec());
    let is_inside = |own: &&GpuActivity| {
        let (start, end) = (own.span.0 - interval_ns, own.span.1);
        let share = length((start, end)).saturating_mul(OF_ONE_STAGE_PCT);
        set.overlap(start, end).saturating_mul(100) >= share
    };
    let inside: Vec<&GpuActivity> = own.activity.iter().filter(is_inside).collect();
    let [sm, tensor, dram] = [0, 1, 2].map(|metric| {
        let values: Vec<f64> = inside.iter().filter_map(|own| own.pct[metric]).collect();
        let sum: f64 = values.iter().sum();
        (values.len() >= LEAST_ACTIVITY).then(|| (sum / values.len() as f64).min(100.0))
    });
    let covered: Ns = inside.iter().map(|own| length(own.span)).sum();
    let all = spans.iter().copied().map(length).sum::<Ns>().max(1);
    Some(MbuMeasured {
        by_wall_pct: dram,
        sm_active_pct: sm,
        tensor_active_pct: tensor,
        source: Some("NVML GPM".to_owned()),
        samples: inside.len() as u64,
        interval_ns,
        covered_pct: (100.0 * covered as f64 / all as f64).min(100.0),
        ..MbuMeasured::default()
    })
}

/// Position of a device in a trace, and its vitals on the clock of the trace.
pub type DeviceVitals = (usize, GpuVitals);

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
    let (_, own) = gpus.iter().find(|(at, _)| *at == device)?;
    let around = (begin - AROUND_NS)..=(end + AROUND_NS);
    let busy = || own.states.iter().filter(|state| state.reasons & 1 == 0);
    let inside = || busy().filter(|state| (begin..=end).contains(&state.at));
    let near = || busy().filter(|state| around.contains(&state.at));
    let middle = |mut clocks: Vec<f64>| median_f64(&mut clocks);
    let usual = middle(busy().filter_map(|state| state.sm_mhz).collect());
    let now = middle(inside().filter_map(|state| state.sm_mhz).collect());
    let now = now.or_else(|| middle(near().filter_map(|state| state.sm_mhz).collect()));
    if let Some((now, usual)) = now.zip(usual).filter(|(now, usual)| *now < CLOCK_DROP * usual) {
        return Some((SpikeCause::ClockDrop, format!("{now:.0} MHz for {usual:.0} MHz")));
    }
    let is_other = |user: &&GpuUser| {
        let known = trace.processes.iter().any(|process| process.pid == user.pid);
        user.own == Some(false) && !known && user.sm_pct.is_some_and(|pct| pct >= LEAST_TENANT_PCT)
    };
    let lists = own.processes.iter().filter(|(at, _)| around.contains(at));
    let other = lists.flat_map(|(_, users)| users).find(is_other)?;
    let name = other.name.clone().unwrap_or_else(|| format!("process {}", other.pid));
    Some((SpikeCause::OtherTenant, name))
}

/// Pairs the devices of a trace that ran operations with their vitals in the time of the trace.
pub fn of_devices(trace: &Trace) -> Vec<DeviceVitals> {
    if trace.vitals.is_empty() {
        return Vec::new();
    }
    let used = trace.used_devices();
    let Some(span) = trace.span() else { return Vec::new() };
    let mut found = Vec::new();
    for (at, device) in trace.devices.iter().enumerate().filter(|(_, device)| used.contains(device)) {
        let own = trace.vitals_of(device).map(|own| shifted(own, trace.utc_offset));
        // Some files have activity or energy alone.
        let is_now = |own: &GpuVitals| {
            let states = own.states.iter().map(|state| state.at);
            let others = own.activity.iter().map(|own| own.span.0).chain(own.energy.iter().map(|own| own.0));
            states.chain(others).any(|at| (span.0..=span.1).contains(&at))
        };
        found.extend(own.filter(is_now).map(|own| (at, own)));
    }
    found
}

/// Puts vitals on the clock of a trace.
fn shifted(own: &GpuVitals, offset: Ns) -> GpuVitals {
    let mut own = own.clone();
    own.energy.iter_mut().for_each(|(at, _)| *at -= offset);
    own.states.iter_mut().for_each(|state| state.at -= offset);
    own.activity.iter_mut().for_each(|own| own.span = (own.span.0 - offset, own.span.1 - offset));
    own.celsius.iter_mut().for_each(|(at, _)| *at -= offset);
    own.processes.iter_mut().for_each(|(at, _)| *at -= offset);
    own
}

fn gpu_row(trace: &Trace, device: usize, own: &GpuVitals, (first, last): (Ns, Ns)) -> VitalsGpu {
    let within = || own.states.iter().filter(|state| (first..=last).contains(&state.at));
    let median = |value: fn(&GpuState) -> Option<f64>| {
        median_f64(&mut within().filter_map(value).collect::<Vec<f64>>())
    };
    let celsius = own.celsius.iter().filter(|(at, _)| (first..=last).contains(at));
    let lists = || own.processes.iter().filter(|(at, _)| (first..=last).contains(at));
    let seconds = lists().count() as f64;
    let is_other = |pid: u32| trace.processes.iter().all(|process| process.pid != pid);
    let mut others: Vec<OtherTenant> = Vec::new();
    for user in lists().flat_map(|(_, users)| users) {
        let used = user.sm_pct.filter(|pct| *pct > 0 && user.own == Some(false) && is_other(user.pid));
        let Some(sm_pct) = used.map(|pct| pct as f64 / seconds) else { continue };
        match others.iter_mut().find(|other| other.pid == user.pid) {
            Some(other) => other.sm_pct += sm_pct,
            None => others.push(OtherTenant { pid: user.pid, name: user.name.clone(), sm_pct }),
        }
    }
    VitalsGpu {
        device: trace.devices[device].number,
        name: own.name.clone(),
        max_sm_mhz: own.max_sm_mhz,
        sm_mhz: median(|state| state.sm_mhz),
        power_w: median(|state| state.watts),
        limit_w: own.limit_w,
        default_limit_w: own.default_limit_w,
        celsius: celsius.map(|(_, degrees)| *degrees).reduce(f64::max),
        mig: own.is_mig,
        others,
    }
}

/// Returns the clock of a stage, its reasons, and the utilisation of the peak at that clock.
fn stage_clocks(
    index: &StageIndex,
    at: usize,
    trace: &Trace,
    gpus: &[(usize, GpuVitals)],
    gpu: Option<&GpuFacts>,
    stage: &Stage,
) -> StageVitals {
    let spans =
        IntervalSet::of(index.spans(at).instances.iter().map(|span| (span.start, span.end)).collect());
    let mut clocks = Vec::new();
    let mut times = vec![0_u64; ThrottleReason::ALL.len()];
    let mut samples = 0_u64;
    for (device, own) in gpus {
        let is_used = trace.ops.device.iter().any(|used| used.index() == *device);
        for state in own.states.iter().filter(|state| is_used && spans.encloses(state.at, state.at)) {
            samples += 1;
            clocks.extend(state.sm_mhz);
            let stated = ThrottleReason::BITS.iter().filter(|(bit, _)| state.reasons & bit != 0);
            let mut stated: Vec<ThrottleReason> = stated.map(|(_, reason)| *reason).collect();
            let highest = own.max_sm_mhz.unwrap_or(0.0) * AT_HIGHEST;
            // The first bit is that of an idle GPU.
            if stated.is_empty() && state.reasons & 1 == 0 && state.sm_mhz.is_some_and(|mhz| mhz < highest) {
                stated.push(ThrottleReason::Unstated);
            }
            stated.iter().for_each(|reason| times[*reason as usize] += 1);
        }
    }
    let throttle = ThrottleReason::ALL.iter().filter(|reason| times[**reason as usize] > 0);
    let pct = |reason: &ThrottleReason| 100.0 * times[*reason as usize] as f64 / samples.max(1) as f64;
    let mut throttle: Vec<ThrottleTime> =
        throttle.map(|reason| ThrottleTime { reason: *reason, pct: pct(reason) }).collect();
    throttle.sort_by(|a, b| b.pct.total_cmp(&a.pct));
    // The beginning of several instances or GPUs is not one time.
    let in_order = if stage.instances == 1 && gpus.len() == 1 { clocks.clone() } else { Vec::new() };
    let sm_mhz = (clocks.len() >= LEAST_SAMPLES).then(|| median_f64(&mut clocks)).flatten();
    let dtype = stage.mfu.as_ref().and_then(|mfu| mfu.dtype.parse().ok());
    let peak_mhz = gpu.zip(dtype).and_then(|(gpu, dtype)| gpu.peak_mhz(dtype));
    let ratio = peak_mhz.zip(sm_mhz).filter(|(_, own)| *own > 0.0).map(|(peak, own)| peak / own);
    let mfu = stage.mfu.as_ref().map(|mfu| mfu.by_wall_pct);
    StageVitals {
        samples,
        sm_mhz,
        peak_mhz,
        mfu_at_clock_pct: ratio.zip(mfu).map(|(ratio, mfu)| ratio * mfu),
        throttle,
        ramp: sm_mhz.and_then(|mhz| ramp(&in_order, mhz)),
        ..StageVitals::default()
    }
}

/// Returns the beginning of a stage at a clock below its median.
fn ramp(clocks: &[f64], median_mhz: f64) -> Option<ClockRamp> {
    let slow: Vec<f64> = clocks.iter().copied().take_while(|mhz| *mhz < RAMP * median_mhz).collect();
    let count = slow.len() as f64;
    let own =
        ClockRamp { pct: 100.0 * count / clocks.len() as f64, sm_mhz: slow.iter().sum::<f64>() / count };
    (slow.len() >= LEAST_SAMPLES).then_some(own)
}
