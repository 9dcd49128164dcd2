//! Clocks and energy of stages, from the vitals that were sampled beside the program.
//!
//! The energy counter moves several times a second. Readings make windows; a window's energy is the idle power for its length, and the
//! rest is divided between the stages that ran in it, by the power of each that fits all windows best without negative values. So the
//! parts add up to the meter.

use crate::counters::{Design, DeviceOps, Overlap, overlaps};
use crate::gpu::GpuFacts;
use crate::result::*;
use crate::roof::{self, RoofSums};
use crate::stages::StageIndex;
use crate::timeline::IntervalSet;
use roofgap_base::stats::median_f64;
use roofgap_trace::account::Account;
use roofgap_trace::vitals::{GpuState, GpuVitals};
use roofgap_trace::{Ns, Trace};

/// Least samples of a stage for its clock.
const LEAST_SAMPLES: usize = 3;

/// Least windows for energy, and least windows without work for the idle power.
const LEAST_WINDOWS: usize = 5;

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
    let Some((first, last)) = trace.span().filter(|_| !gpus.is_empty()) else { return };
    let mut vitals = Vitals::default();
    for (device, own) in &gpus {
        vitals.gpus.push(gpu_row(trace, *device, own, (first, last)));
    }
    let stages = analysis.stages.iter_mut().take(index.len());
    for (at, stage) in stages.enumerate() {
        let clocks = stage_clocks(index, at, trace, &gpus, gpu, stage);
        stage.vitals = (clocks.samples > 0).then_some(clocks);
    }
    vitals.energy = add_energy(analysis, trace, index, &gpus, baseline);
    for stage in &mut analysis.stages {
        if let Some(warm) = &mut stage.warm {
            warm.vitals = stage.vitals.clone();
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

/// Pairs the devices of a trace that ran operations with their vitals in the time of the trace.
fn of_devices(trace: &Trace) -> Vec<(usize, GpuVitals)> {
    let used = trace.used_devices();
    let Some(span) = trace.span() else { return Vec::new() };
    let mut found = Vec::new();
    for (at, device) in trace.devices.iter().enumerate().filter(|(_, device)| used.contains(device)) {
        let same = |own: &&GpuVitals| match (&device.uuid, &own.uuid) {
            (Some(one), Some(other)) => one.trim_start_matches("GPU-").eq_ignore_ascii_case(other),
            _ => own.number == device.number,
        };
        let own = trace.vitals.iter().find(same).map(|own| shifted(own, trace.utc_offset));
        let is_now = |own: &GpuVitals| own.states.iter().any(|state| (span.0..=span.1).contains(&state.at));
        found.extend(own.filter(is_now).map(|own| (at, own)));
    }
    found
}

/// Puts vitals on the clock of a trace.
fn shifted(own: &GpuVitals, offset: Ns) -> GpuVitals {
    let mut own = own.clone();
    own.energy.iter_mut().for_each(|(at, _)| *at -= offset);
    own.states.iter_mut().for_each(|state| state.at -= offset);
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
        ..StageVitals::default()
    }
}

/// Adds the energy of the stages: of the unprofiled run where the times of its stages are known, else of the recorded one.
fn add_energy(
    analysis: &mut Analysis,
    trace: &Trace,
    index: &StageIndex,
    gpus: &[(usize, GpuVitals)],
    baseline: &Baseline<'_>,
) -> Option<MeterEnergy> {
    let names: Vec<&str> = (0..index.len()).map(|stage| index.name(stage)).collect();
    let profiled: Vec<Metered> = gpus.iter().filter_map(|own| of_profiled(trace, index, own)).collect();
    let idle = |own: &GpuVitals| {
        let same = gpus.iter().position(|(_, other)| other.number == own.number)?;
        profiled.get(same).map(|metered| metered.idle_w)
    };
    let used = |own: &&GpuVitals| gpus.iter().any(|(_, other)| other.number == own.number);
    let of_baseline = baseline.account.map(|account| stage_times(account, &names)).unwrap_or_default();
    let unprofiled = baseline.vitals.iter().filter(used);
    let unprofiled: Vec<Metered> =
        unprofiled.filter_map(|own| of_baseline_run(own, &of_baseline, names.len(), idle(own))).collect();
    let (run, metered) = match unprofiled.is_empty() {
        true => (EnergyRun::Profiled, profiled),
        false => (EnergyRun::Baseline, unprofiled),
    };
    let outside = Part::sum(&metered, names.len());
    let whole = MeterEnergy {
        run,
        meter_j: metered.iter().map(|own| own.meter_j).sum(),
        meter_ns: metered.iter().map(|own| own.meter_ns).max()?,
        idle_w: metered.iter().map(|own| own.idle_w).sum(),
        outside_idle_j: outside.idle_j,
        outside_dynamic_j: outside.dynamic_j,
    };
    for (at, stage) in analysis.stages.iter_mut().enumerate().take(index.len()) {
        let part = Part::sum(&metered, at);
        if part.ns <= 0.0 {
            continue;
        }
        let instances = match run {
            EnergyRun::Profiled => stage.instances,
            EnergyRun::Baseline => of_baseline.iter().filter(|(.., own)| *own as usize == at).count() as u64,
        };
        let tokens = stage.tokens_per_s.map(|rate| rate * stage.elapsed_ns() as f64 / 1e9);
        let tokens = tokens.map(|all| all / stage.instances.max(1) as f64 * instances as f64);
        let joules = part.idle_j + part.dynamic_j;
        let energy = StageEnergy {
            run,
            joules,
            idle_j: part.idle_j,
            dynamic_j: part.dynamic_j,
            error_j: part.error_j.is_finite().then_some(part.error_j),
            watts: joules * 1e9 / part.ns * metered.len() as f64,
            token_j: tokens.filter(|count| *count > 0.0).map(|count| joules / count),
        };
        stage.vitals.get_or_insert_default().energy = Some(energy);
    }
    Some(whole)
}

/// Lists the measured stages of an account with absolute times, by their position in `names`.
fn stage_times(account: &Account, names: &[&str]) -> Vec<(Ns, Ns, u32)> {
    let measured = account.repeats.iter().filter(|repeat| !repeat.warmup).flat_map(|repeat| &repeat.stages);
    let mut times: Vec<(Ns, Ns, u32)> = measured
        .filter_map(|stage| {
            let at = names.iter().position(|name| *name == stage.name)?;
            let start = stage.start_ns?;
            Some((start, start.saturating_add(stage.wall_ns.max(0)), at as u32))
        })
        .collect();
    times.sort_unstable();
    times
}

/// The energy of one GPU, divided.
struct Metered {
    meter_j: f64,
    meter_ns: Ns,
    idle_w: f64,
    /// Parts of the stages, and the rest.
    parts: Vec<Part>,
}

/// Energy of a stage on one GPU.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// Time of the stage, ns.
    ns: f64,
    idle_j: f64,
    dynamic_j: f64,
    error_j: f64,
}

impl Part {
    fn sum(metered: &[Metered], at: usize) -> Self {
        let parts = metered.iter().filter_map(|own| own.parts.get(at));
        parts.fold(Self::default(), |sum, own| Self {
            ns: sum.ns + own.ns,
            idle_j: sum.idle_j + own.idle_j,
            dynamic_j: sum.dynamic_j + own.dynamic_j,
            error_j: sum.error_j + own.error_j,
        })
    }
}

/// Windows, and the energy of each, J.
type Windows = (Vec<(Ns, Ns)>, Vec<f64>);

/// Returns the windows between readings of a meter.
fn windows(own: &GpuVitals) -> Option<Windows> {
    let pairs = || own.energy.windows(2).filter(|pair| pair[1].0 > pair[0].0);
    let windows: Vec<(Ns, Ns)> = pairs().map(|pair| (pair[0].0, pair[1].0)).collect();
    let joules = pairs().map(|pair| pair[1].1 - pair[0].1).collect();
    (windows.len() >= LEAST_WINDOWS).then_some((windows, joules))
}

/// Divides the energy of a GPU while the trace was recorded.
fn of_profiled(trace: &Trace, index: &StageIndex, (device, own): &(usize, GpuVitals)) -> Option<Metered> {
    let (windows, joules) = windows(own)?;
    let stages = index.len();
    let mut spans: Vec<(Ns, Ns, u32)> = Vec::new();
    for stage in 0..stages {
        let instances = &index.spans_with_cold(stage).instances;
        let all = IntervalSet::of(instances.iter().map(|span| (span.start, span.end)).collect());
        spans.extend(all.intervals().iter().map(|(start, end)| (*start, *end, stage as u32)));
    }
    spans.sort_unstable();
    // Work that was not recorded is that of the stage that ran.
    let mut busy = if trace.recorded.is_empty() { Vec::new() } else { spans.clone() };
    for stage in (0..=stages).filter(|_| trace.recorded.is_empty()) {
        let of_stage = |row: usize| index.stage_of_op(row).unwrap_or(stages) == stage;
        let ops = IntervalSet::by_device(trace, of_stage);
        busy.extend(ops[*device].intervals().iter().map(|(start, end)| (*start, *end, stage as u32)));
    }
    busy.sort_unstable();
    let all = DeviceOps::new(busy);
    let overlaps = overlaps(&all, &windows, 0);
    let idle_w = idle_power(&windows, &joules, &overlaps, all.span()?);
    Some(divide(&windows, &joules, &overlaps, &spans, stages, idle_w))
}

/// Divides the energy of a GPU in a run of which only the times of the stages are known.
fn of_baseline_run(
    own: &GpuVitals,
    times: &[(Ns, Ns, u32)],
    stages: usize,
    idle_w: Option<f64>,
) -> Option<Metered> {
    let (windows, joules) = windows(own)?;
    let (first, last) = (windows.first()?.0, windows.last()?.1);
    if times.is_empty() || times.iter().any(|(start, end, _)| *start < first || *end > last) {
        return None;
    }
    let overlaps = overlaps(&DeviceOps::new(times.to_vec()), &windows, 0);
    let idle_w = idle_w.unwrap_or_else(|| lowest_power(&windows, &joules));
    Some(divide(&windows, &joules, &overlaps, times, stages, idle_w))
}

fn watts((start, end): (Ns, Ns), joules: f64) -> f64 {
    joules * 1e9 / (end - start) as f64
}

/// Returns the power of windows without work between the first and the last; the lowest of all where there are too few.
fn idle_power(windows: &[(Ns, Ns)], joules: &[f64], busy: &[Overlap], (first, last): (Ns, Ns)) -> f64 {
    let mut is_idle: Vec<bool> = windows.iter().map(|(start, end)| *start >= first && *end <= last).collect();
    for overlap in busy {
        // The reading of a window may be late.
        let at = overlap.window as usize;
        let beside = at.saturating_sub(1)..(at + 2).min(is_idle.len());
        is_idle[beside].fill(false);
    }
    let idle = windows.iter().zip(joules).zip(&is_idle).filter(|(_, idle)| **idle);
    let mut idle: Vec<f64> = idle.map(|((window, joules), _)| watts(*window, *joules)).collect();
    let lowest = lowest_power(windows, joules);
    match idle.len() >= LEAST_WINDOWS {
        true => median_f64(&mut idle).unwrap_or(lowest),
        false => lowest,
    }
}

/// Returns the lowest power over some windows in a row.
fn lowest_power(windows: &[(Ns, Ns)], joules: &[f64]) -> f64 {
    let rows = windows.windows(LEAST_WINDOWS).zip(joules.windows(LEAST_WINDOWS));
    let power = rows
        .map(|(windows, joules)| watts((windows[0].0, windows[windows.len() - 1].1), joules.iter().sum()));
    power.reduce(f64::min).unwrap_or(0.0)
}

/// Divides windows between the stages and the rest, which is the last part. `busy` has the time of the work of each.
fn divide(
    windows: &[(Ns, Ns)],
    joules: &[f64],
    busy: &[Overlap],
    spans: &[(Ns, Ns, u32)],
    stages: usize,
    idle_w: f64,
) -> Metered {
    let length = |at: usize| (windows[at].1 - windows[at].0) as f64;
    let idle_j = |at: usize| (idle_w * length(at) / 1e9).min(joules[at]);
    let dynamic: Vec<f64> = (0..windows.len()).map(|at| joules[at] - idle_j(at)).collect();
    let mut parts = vec![Part::default(); stages + 1];
    let mut used_ns = vec![0.0; windows.len()];
    for overlap in overlaps(&DeviceOps::new(spans.to_vec()), windows, 0) {
        let at = overlap.window as usize;
        // Stages may overlap; their time counts once.
        let ns = overlap.ns.min(length(at) - used_ns[at]);
        used_ns[at] += ns;
        let part = &mut parts[overlap.kernel as usize];
        part.ns += ns;
        part.idle_j += idle_j(at) * ns / length(at);
    }
    let design = Design::new(busy, stages + 1, windows.len());
    let mut fit = design.fit(&dynamic);
    let halves: Vec<f64> = fit.rates.iter().map(|rate| rate.half).collect();
    design.conserve(&dynamic, &mut fit);
    let mut left: f64 = dynamic.iter().sum();
    for (at, part) in parts.iter_mut().enumerate().take(stages) {
        let busy_ns: f64 = busy.iter().filter(|own| own.kernel as usize == at).map(|own| own.ns).sum();
        part.dynamic_j = if busy_ns > 0.0 { fit.rates[at].value * busy_ns } else { 0.0 };
        part.error_j = if busy_ns > 0.0 { halves[at] * busy_ns } else { 0.0 };
        left -= part.dynamic_j;
    }
    let meter_j: f64 = joules.iter().sum();
    let of_stages: f64 = parts.iter().map(|part| part.idle_j).sum();
    let rest = &mut parts[stages];
    (rest.dynamic_j, rest.idle_j) = (left, meter_j - dynamic.iter().sum::<f64>() - of_stages);
    let meter_ns = windows[windows.len() - 1].1 - windows[0].0;
    Metered { meter_j, meter_ns, idle_w, parts }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;

    /// Windows of 100 ms at 100 W, with 400 W more while `busy`, whose classes are 0 and 1.
    fn metered(busy: &[(Ns, Ns, u32)], more_w: [f64; 2], windows: usize) -> Metered {
        let windows: Vec<(Ns, Ns)> =
            (0..windows as Ns).map(|at| (at * 100 * MS, (at + 1) * 100 * MS)).collect();
        let overlaps = overlaps(&DeviceOps::new(busy.to_vec()), &windows, 0);
        let mut joules = vec![10.0; windows.len()];
        for own in &overlaps {
            joules[own.window as usize] += more_w[own.kernel as usize] * own.ns / 1e9;
        }
        let idle_w = idle_power(&windows, &joules, &overlaps, (0, windows[windows.len() - 1].1));
        divide(&windows, &joules, &overlaps, busy, 2, idle_w)
    }

    #[test]
    fn stages_shorter_than_a_window_are_told_apart_and_add_up_to_the_meter() {
        // 20 ms of the first in each 150 ms, then 80 ms of the second, and a second of nothing at the end.
        let busy = (0..40).flat_map(|at| {
            let start = at * 150 * MS;
            [(start, start + 20 * MS, 0), (start + 20 * MS, start + 100 * MS, 1)]
        });
        let found = metered(&busy.collect::<Vec<_>>(), [600.0, 200.0], 70);
        assert!((found.idle_w - 100.0).abs() < 1e-6, "{}", found.idle_w);
        let [first, second, rest] = found.parts.as_slice() else { panic!("{}", found.parts.len()) };
        assert!((first.dynamic_j - 40.0 * 0.02 * 600.0).abs() < 1.0, "{first:?}");
        assert!((second.dynamic_j - 40.0 * 0.08 * 200.0).abs() < 1.0, "{second:?}");
        assert!((first.idle_j - 40.0 * 0.02 * 100.0).abs() < 1e-6 && rest.dynamic_j.abs() < 1e-6, "{rest:?}");
        let sum: f64 = found.parts.iter().map(|part| part.idle_j + part.dynamic_j).sum();
        assert!((sum - found.meter_j).abs() < 1e-6, "{sum} of {}", found.meter_j);
    }

    #[test]
    fn stages_that_always_run_together_are_not_told_apart() {
        let busy = (0..40).flat_map(|at| {
            let start = at * 100 * MS;
            [(start, start + 20 * MS, 0), (start + 20 * MS, start + 100 * MS, 1)]
        });
        let found = metered(&busy.collect::<Vec<_>>(), [600.0, 200.0], 50);
        assert!(found.parts.iter().take(2).any(|part| part.error_j.is_infinite()), "{:?}", found.parts);
        let sum: f64 = found.parts.iter().map(|part| part.idle_j + part.dynamic_j).sum();
        assert!((sum - found.meter_j).abs() < 1e-6);
    }

    #[test]
    fn the_unprofiled_run_counts_only_with_its_own_times() {
        let energy = (0..60).map(|at| (at * 100 * MS, 20.0 * at as f64)).collect();
        let own = GpuVitals { energy, ..GpuVitals::default() };
        let times = [(MS, 2_000 * MS, 0), (2_000 * MS, 5_000 * MS, 1)];
        let found = of_baseline_run(&own, &times, 2, Some(50.0)).unwrap();
        let [first, second, _] = found.parts.as_slice() else { panic!("{}", found.parts.len()) };
        // 200 W all the time, of which 50 W are idle.
        assert!((first.idle_j - 1.999 * 50.0).abs() < 1e-6, "{first:?}");
        assert!((second.idle_j + second.dynamic_j - 3.0 * 200.0).abs() < 1.0, "{second:?}");
        assert!(of_baseline_run(&own, &[(MS, 9_000 * MS, 0)], 2, None).is_none(), "another run");
    }
}
