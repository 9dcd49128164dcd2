//! Clocks and energy of stages, from the vitals that were sampled beside the program.
//!
//! The energy counter moves several times a second. Readings make windows; a window's energy is the idle power for its length, and the
//! rest is divided between the stages that ran in it, by the power of each that fits all windows best without negative values. So the
//! parts add up to the meter. Stages that the windows do not tell apart share their energy by their time.

use crate::analyze::Prices;
use crate::counters::{Design, DeviceOps, Overlap, overlaps};
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

/// Least windows for energy, and least windows without work for the idle power.
const LEAST_WINDOWS: usize = 5;

/// Readings on each side of one that tell how late it is.
const NEAR: usize = 10;

/// Share of the median gap of readings by which one may differ from it, and the least share of gaps that must not.
const EVEN: f64 = 0.2;
const LEAST_EVEN: f64 = 0.8;

/// Power of a stage, in highest powers that the driver stated, above which the fit is wrong.
const MOST_POWER: f64 = 1.05;

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

/// Adds the activity that NVML or DCGM counted to the stages for which no counters were sampled.
pub fn add_activity(analysis: &mut Analysis, trace: &Trace, index: &StageIndex) {
    let mut times: Vec<(Ns, Ns, u32)> = Vec::new();
    for stage in 0..index.len() {
        times.extend(index.spans(stage).instances.iter().map(|span| (span.start, span.end, stage as u32)));
    }
    let gpus = of_devices(trace);
    let source = gpus.first().map(|(_, own)| own.activity_source.to_owned());
    let gpus: Vec<Vec<MbuMeasured>> =
        gpus.iter().filter_map(|(_, own)| activity(&own.activity, &times, index.len())).collect();
    let mean = |at: usize, value: fn(&MbuMeasured) -> Option<f64>| {
        let sum: Option<f64> = gpus.iter().map(|own| value(&own[at])).sum();
        sum.map(|sum| sum / gpus.len() as f64)
    };
    let stages = analysis.stages.iter_mut().enumerate().take(index.len());
    for (at, stage) in stages.filter(|(_, stage)| stage.mbu_measured.is_none()) {
        let (Some(first), Some(busy)) =
            (gpus.first(), stage.warm().busy_share().filter(|share| *share > 0.0))
        else {
            continue;
        };
        let while_busy = |pct: f64| (pct / busy).min(100.0);
        let by_wall_pct = mean(at, |own| own.by_wall_pct);
        let measured = MbuMeasured {
            by_wall_pct,
            by_busy_pct: by_wall_pct.map(while_busy),
            sm_active_pct: mean(at, |own| own.sm_active_pct).map(while_busy),
            tensor_active_pct: mean(at, |own| own.tensor_active_pct).map(while_busy),
            source: source.clone(),
            ..first[at].clone()
        };
        if measured.by_wall_pct.or(measured.sm_active_pct).is_some() {
            stage.mbu_measured = Some(measured);
            if let Some(warm) = &mut stage.warm {
                warm.mbu_measured = stage.mbu_measured.clone();
            }
        }
    }
}

/// Share of a sample, %, from which on it is of one stage.
const OF_ONE_STAGE_PCT: i64 = 95;

/// Returns the activity of a GPU in each stage: the mean of the samples that lie in it. A sample may tell of the time of the one before,
/// so that time has to be of the stage, too.
fn activity(own: &[GpuActivity], times: &[(Ns, Ns, u32)], stages: usize) -> Option<Vec<MbuMeasured>> {
    let length = |(start, end): (Ns, Ns)| end - start;
    let mut lengths: Vec<f64> = own.iter().map(|own| length(own.span) as f64).collect();
    let interval_ns = median_f64(&mut lengths)? as i64;
    let of_stage = |at: usize| {
        let spans = || times.iter().filter(|time| time.2 as usize == at).map(|time| (time.0, time.1));
        let inside = IntervalSet::of(spans().collect());
        let is_inside = |own: &&GpuActivity| {
            let (start, end) = (own.span.0 - interval_ns, own.span.1);
            let share = length((start, end)).saturating_mul(OF_ONE_STAGE_PCT);
            inside.overlap(start, end).saturating_mul(100) >= share
        };
        let inside: Vec<&GpuActivity> = own.iter().filter(is_inside).collect();
        let [sm, tensor, dram] = [0, 1, 2].map(|metric| {
            let values: Vec<f64> = inside.iter().filter_map(|own| own.pct[metric]).collect();
            let sum: f64 = values.iter().sum();
            (values.len() >= LEAST_WINDOWS).then(|| (sum / values.len() as f64).min(100.0))
        });
        let covered: Ns = inside.iter().map(|own| length(own.span)).sum();
        MbuMeasured {
            by_wall_pct: dram,
            sm_active_pct: sm,
            tensor_active_pct: tensor,
            samples: inside.len() as u64,
            interval_ns,
            covered_pct: (100.0 * covered as f64 / spans().map(length).sum::<Ns>().max(1) as f64).min(100.0),
            ..MbuMeasured::default()
        }
    };
    Some((0..stages).map(of_stage).collect())
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
    let used = trace.used_devices();
    let Some(span) = trace.span() else { return Vec::new() };
    let mut found = Vec::new();
    for (at, device) in trace.devices.iter().enumerate().filter(|(_, device)| used.contains(device)) {
        let own = trace.vitals_of(device).map(|own| shifted(own, trace.utc_offset));
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

/// Adds the energy of the stages: of the unprofiled run where the times of its stages are known, else of the recorded one.
fn add_energy(
    analysis: &mut Analysis,
    trace: &Trace,
    index: &StageIndex,
    gpus: &[(usize, GpuVitals)],
    baseline: &Baseline<'_>,
) -> Option<MeterEnergy> {
    let names: Vec<&str> = (0..index.len()).map(|stage| index.name(stage)).collect();
    let profiled = gpus.iter().filter_map(|own| Some((own.1.number, of_profiled(trace, index, own)?)));
    let (numbers, profiled): (Vec<u32>, Vec<Metered>) = profiled.unzip();
    let idle = |own: &GpuVitals| {
        let same = numbers.iter().position(|number| *number == own.number)?;
        profiled.get(same).filter(|metered| metered.idle_in_context).map(|metered| metered.idle_w)
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
        idle_in_context: metered.iter().all(|own| own.idle_in_context),
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
            together_with: part
                .together
                .map(|other| names.get(other).map_or("outside", |name| name).to_owned()),
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
    idle_in_context: bool,
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
    /// Stage that it is not told apart from.
    together: Option<usize>,
}

impl Part {
    fn sum(metered: &[Metered], at: usize) -> Self {
        let parts = metered.iter().filter_map(|own| own.parts.get(at));
        parts.fold(Self::default(), |sum, own| Self {
            ns: sum.ns + own.ns,
            idle_j: sum.idle_j + own.idle_j,
            dynamic_j: sum.dynamic_j + own.dynamic_j,
            error_j: sum.error_j + own.error_j,
            together: sum.together.or(own.together),
        })
    }
}

/// Windows between readings of a meter, and the energy of each, J.
struct Windows {
    spans: Vec<(Ns, Ns)>,
    joules: Vec<f64>,
    /// Highest power that the driver stated, W.
    most_w: f64,
}

impl Windows {
    fn of(own: &GpuVitals) -> Option<Self> {
        let mut readings = on_beat(&own.energy);
        // Readings of one moment are one, with the energy of the last.
        readings.dedup_by(|next, last| {
            let is_same = next.0 <= last.0;
            if is_same {
                last.1 = next.1;
            }
            is_same
        });
        let pairs = || readings.windows(2);
        let spans: Vec<(Ns, Ns)> = pairs().map(|pair| (pair[0].0, pair[1].0)).collect();
        let joules = pairs().map(|pair| pair[1].1 - pair[0].1).collect();
        let most_w = own.states.iter().filter_map(|state| state.watts).reduce(f64::max);
        (spans.len() >= LEAST_WINDOWS).then(|| Self {
            spans,
            joules,
            most_w: most_w.unwrap_or(f64::INFINITY),
        })
    }

    fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns the lowest power over some of these windows in a row.
    fn lowest_power(&self, is_wanted: impl Fn(usize) -> bool) -> Option<f64> {
        let rows = (LEAST_WINDOWS..=self.len()).map(|end| end - LEAST_WINDOWS..end);
        let wanted = rows.filter(|row| row.clone().all(&is_wanted));
        let power = wanted.map(|row| {
            let ns = self.spans[row.end - 1].1 - self.spans[row.start].0;
            self.joules[row].iter().sum::<f64>() * 1e9 / ns as f64
        });
        power.reduce(f64::min)
    }

    /// Returns the idle power, and whether it is that of windows without work while the program has a `context`. There may be none.
    fn idle_power(&self, busy: &[Overlap], context: Option<(Ns, Ns)>) -> (f64, bool) {
        let within = |span: &(Ns, Ns)| context.is_some_and(|(first, last)| span.0 >= first && span.1 <= last);
        let mut is_idle: Vec<bool> = self.spans.iter().map(within).collect();
        for overlap in busy {
            // The energy of a window may be counted late.
            let at = overlap.window as usize;
            let beside = at.saturating_sub(1)..(at + 2).min(is_idle.len());
            is_idle[beside].fill(false);
        }
        match self.lowest_power(|at| is_idle[at]) {
            // What ran there may not be known; other work never uses less than the idle GPU.
            Some(watts) => (self.lowest_power(|at| within(&self.spans[at])).unwrap_or(watts), true),
            None => (self.lowest_power(|_| true).unwrap_or(0.0), false),
        }
    }
}

/// Puts readings where the counter changed: it changes at even times, and a reading is late by what the sampler does, never early.
fn on_beat(readings: &[(Ns, f64)]) -> Vec<(Ns, f64)> {
    let mut gaps: Vec<f64> = readings.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64).collect();
    let gap = median_f64(&mut gaps).unwrap_or(0.0);
    let even = gaps.iter().filter(|own| (*own - gap).abs() <= EVEN * gap).count();
    // The first and the last reading are made when the sampler starts and ends, not when the counter changes.
    let inner = 1..readings.len().saturating_sub(1);
    if gap <= 0.0 || (even as f64) < LEAST_EVEN * gaps.len() as f64 || inner.len() < 2 {
        return readings.to_vec();
    }
    let times = readings[inner.clone()].windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64);
    let (sum, beats) = times.fold((0.0, 0.0), |(sum, beats), own| (sum + own, beats + (own / gap).round()));
    let beat = sum / f64::max(beats, 1.0);
    let changed = |(at, (time, joules)): (usize, &(Ns, f64))| {
        let near = readings.iter().enumerate().skip(at.saturating_sub(NEAR)).take(2 * NEAR + 1);
        let near = near.filter(|(other, _)| inner.contains(other) && inner.contains(&at));
        let same = near.map(|(_, (other, _))| other - (((other - time) as f64 / beat).round() * beat) as Ns);
        // A reading that seems late by more than some of a beat is of another one.
        let same = same.filter(|same| (0..=(EVEN * beat) as Ns).contains(&(time - same)));
        (same.min().unwrap_or(*time), *joules)
    };
    readings.iter().enumerate().map(changed).collect()
}

/// Returns the time in which a process of the program is known to have a context on a GPU.
fn context(own: &GpuVitals, is_program: impl Fn(&GpuUser) -> bool) -> Option<(Ns, Ns)> {
    let mut times =
        own.processes.iter().filter(|(_, users)| users.iter().any(&is_program)).map(|(at, _)| *at);
    let first = times.next()?;
    Some((first, times.last().unwrap_or(first)))
}

/// Divides the energy of a GPU while the trace was recorded.
fn of_profiled(trace: &Trace, index: &StageIndex, (device, own): &(usize, GpuVitals)) -> Option<Metered> {
    let windows = Windows::of(own)?;
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
    let overlaps = overlaps(&all, &windows.spans, 0);
    let span = all.span()?;
    let is_program =
        |user: &GpuUser| user.own == Some(true) || trace.processes.iter().any(|own| own.pid == user.pid);
    let (first, last) = context(own, is_program).unwrap_or(span);
    let idle = windows.idle_power(&overlaps, Some((first.min(span.0), last.max(span.1))));
    Some(divide(&windows, &overlaps, &spans, stages, idle))
}

/// Divides the energy of a GPU in a run of which only the times of the stages are known.
fn of_baseline_run(
    own: &GpuVitals,
    times: &[(Ns, Ns, u32)],
    stages: usize,
    idle_w: Option<f64>,
) -> Option<Metered> {
    let windows = Windows::of(own)?;
    let (first, last) = (windows.spans.first()?.0, windows.spans.last()?.1);
    if times.is_empty() || times.iter().any(|(start, end, _)| *start < first || *end > last) {
        return None;
    }
    let overlaps = overlaps(&DeviceOps::new(times.to_vec()), &windows.spans, 0);
    let own_idle = || windows.idle_power(&overlaps, context(own, |user| user.own == Some(true)));
    let idle = idle_w.map_or_else(own_idle, |watts| (watts, true));
    Some(divide(&windows, &overlaps, times, stages, idle))
}

/// Divides windows between the stages and the rest, which is the last part. `busy` has the time of the work of each.
fn divide(
    windows: &Windows,
    busy: &[Overlap],
    spans: &[(Ns, Ns, u32)],
    stages: usize,
    (idle_w, idle_in_context): (f64, bool),
) -> Metered {
    let length = |at: usize| (windows.spans[at].1 - windows.spans[at].0) as f64;
    let idle_j = |at: usize| (idle_w * length(at) / 1e9).min(windows.joules[at]);
    let dynamic: Vec<f64> = (0..windows.len()).map(|at| windows.joules[at] - idle_j(at)).collect();
    let mut parts = vec![Part::default(); stages + 1];
    let mut used_ns = vec![0.0; windows.len()];
    for overlap in overlaps(&DeviceOps::new(spans.to_vec()), &windows.spans, 0) {
        let at = overlap.window as usize;
        // Stages may overlap; their time counts once.
        let ns = overlap.ns.min(length(at) - used_ns[at]);
        used_ns[at] += ns;
        let part = &mut parts[overlap.kernel as usize];
        part.ns += ns;
        part.idle_j += idle_j(at) * ns / length(at);
    }
    let most = (MOST_POWER * windows.most_w - idle_w) / 1e9;
    let mut left: f64 = dynamic.iter().sum();
    for (at, own) in dynamic_parts(busy, &dynamic, stages, most).into_iter().enumerate() {
        let part = &mut parts[at];
        (part.dynamic_j, part.error_j, part.together) = (own.dynamic_j, own.error_j, own.together);
        left -= part.dynamic_j;
    }
    let meter_j: f64 = windows.joules.iter().sum();
    let of_stages: f64 = parts.iter().map(|part| part.idle_j).sum();
    let rest = &mut parts[stages];
    (rest.dynamic_j, rest.idle_j) = (left, meter_j - dynamic.iter().sum::<f64>() - of_stages);
    let meter_ns = windows.spans[windows.len() - 1].1 - windows.spans[0].0;
    Metered { meter_j, meter_ns, idle_w, idle_in_context, parts }
}

/// Divides the dynamic energy of windows between the stages. One that the windows do not tell apart, or that would need more than `most`
/// J/ns, shares that of the stage that it runs beside by their times.
fn dynamic_parts(busy: &[Overlap], dynamic: &[f64], stages: usize, most: f64) -> Vec<Part> {
    let mut ns = vec![0.0; stages + 1];
    busy.iter().for_each(|own| ns[own.kernel as usize] += own.ns);
    let design = Design::new(busy, stages + 1, dynamic.len());
    let mut fit = design.fit(dynamic);
    let mut halves: Vec<f64> = fit.rates.iter().map(|rate| rate.half).collect();
    design.conserve(dynamic, &mut fit);
    let mut rates: Vec<f64> = fit.rates.iter().map(|rate| rate.value).collect();
    let mut together = vec![None; stages + 1];
    let told: Vec<bool> =
        halves.iter().zip(&rates).map(|(half, rate)| half.is_finite() && *rate <= most).collect();
    for at in (0..stages).filter(|at| ns[*at] > 0.0 && !told[*at]) {
        let Some(other) = design.nearest(at).filter(|other| ns[*other] > 0.0) else { continue };
        let mean = (rates[at] * ns[at] + rates[other] * ns[other]) / (ns[at] + ns[other]);
        for (one, beside) in [(at, other), (other, at)] {
            (rates[one], halves[one], together[one]) = (mean, f64::INFINITY, Some(beside));
        }
    }
    let part = |at: usize| match ns[at] > 0.0 {
        true => Part {
            dynamic_j: rates[at] * ns[at],
            error_j: halves[at] * ns[at],
            together: together[at],
            ..Part::default()
        },
        false => Part::default(),
    };
    (0..stages).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;

    /// Windows of 100 ms at 100 W, with 400 W more while `busy`, whose classes are 0 and 1.
    fn metered(busy: &[(Ns, Ns, u32)], more_w: [f64; 2], windows: usize) -> Metered {
        let spans: Vec<(Ns, Ns)> =
            (0..windows as Ns).map(|at| (at * 100 * MS, (at + 1) * 100 * MS)).collect();
        let overlaps = overlaps(&DeviceOps::new(busy.to_vec()), &spans, 0);
        let mut joules = vec![10.0; windows];
        for own in &overlaps {
            joules[own.window as usize] += more_w[own.kernel as usize] * own.ns / 1e9;
        }
        let context = Some((0, spans[windows - 1].1));
        let windows = Windows { spans, joules, most_w: 800.0 };
        divide(&windows, &overlaps, busy, 2, windows.idle_power(&overlaps, context))
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
        let [first, second, _] = found.parts.as_slice() else { panic!("{}", found.parts.len()) };
        assert!(first.error_j.is_infinite() && second.error_j.is_infinite(), "{:?}", found.parts);
        assert_eq!((first.together, second.together), (Some(1), Some(0)));
        // They have one power: a fifth of the time, a fifth of the energy.
        assert!((second.dynamic_j / first.dynamic_j - 4.0).abs() < 1e-9, "{:?}", found.parts);
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

    #[test]
    fn a_power_that_the_driver_never_saw_is_not_of_one_stage() {
        // 10 ms of the second stage, beside the first.
        let busy = [(0, 300 * MS, 0), (1_000 * MS, 1_010 * MS, 1), (1_010 * MS, 3_000 * MS, 0)];
        let found = metered(&busy, [200.0, 5_000.0], 40);
        assert_eq!(found.parts[1].together, Some(0), "{:?}", found.parts);
    }

    #[test]
    fn late_readings_are_put_where_the_counter_changed() {
        let late = |at: Ns| if at % 7 == 3 { 18 * MS } else { at % 3 * MS };
        let readings: Vec<(Ns, f64)> = (0..60).map(|at| (at * 100 * MS + late(at), at as f64)).collect();
        let gaps = |readings: &[(Ns, f64)]| -> Vec<Ns> {
            on_beat(readings)[1..59].windows(2).map(|pair| pair[1].0 - pair[0].0).collect()
        };
        let found = gaps(&readings);
        assert!(found.iter().all(|gap| (gap - 100 * MS).abs() < 2 * MS), "{found:?}");
        // The last reading is at the end of the program, at any time.
        let ended: Vec<(Ns, f64)> = readings.into_iter().chain([(5_970 * MS, 60.0)]).collect();
        let found = gaps(&ended);
        assert!(found.iter().all(|gap| (gap - 100 * MS).abs() < 3 * MS), "{found:?}");
        let uneven: Vec<(Ns, f64)> = (0..60).map(|at| (at * at * MS, 0.0)).collect();
        assert_eq!(on_beat(&uneven), uneven);
    }

    #[test]
    fn idle_power_is_that_with_a_context_where_there_is_such_a_time() {
        // 80 W before the context, 300 W in two seconds of work, 130 W after it.
        let watts = |at: Ns| {
            if at < 20 {
                80.0
            } else if at < 40 {
                300.0
            } else {
                130.0
            }
        };
        let mut joules = 0.0;
        let mut own = GpuVitals::default();
        for at in 0..60 {
            own.energy.push((at * 100 * MS, joules));
            joules += watts(at) / 10.0;
        }
        let user = GpuUser { own: Some(true), ..GpuUser::default() };
        own.processes = (2..6).map(|at| (at * 1_000 * MS, vec![user.clone()])).collect();
        let times = [(2_000 * MS, 4_000 * MS, 0)];
        let found = of_baseline_run(&own, &times, 1, None).unwrap();
        assert!(found.idle_in_context && (found.idle_w - 130.0).abs() < 1e-6, "{}", found.idle_w);
        own.processes.clear();
        let found = of_baseline_run(&own, &times, 1, None).unwrap();
        assert!(!found.idle_in_context && (found.idle_w - 80.0).abs() < 1e-6, "{}", found.idle_w);
    }
}
