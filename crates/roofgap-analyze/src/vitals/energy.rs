//! Energy of stages and kernels.
//!
//! The energy counter moves several times a second. Readings make windows; a window's energy is the idle power for its length, and the
//! rest is divided between the classes (stages, or kernels) that ran in it, by the power of each that fits all windows best without
//! negative values. So the parts add up to the meter. Classes that the windows do not tell apart share their energy by their time.

use super::Baseline;
use crate::counters::{DeviceOps, Groups, Limits, Overlap, WIDE, overlaps};
use crate::names::kernel_names;
use crate::result::*;
use crate::stages::StageIndex;
use crate::timeline::IntervalSet;
use roofgap_base::stats::median_f64;
use roofgap_trace::account::Account;
use roofgap_trace::vitals::{GpuUser, GpuVitals};
use roofgap_trace::{DeviceId, Ns, OpKind, Trace};
use rustc_hash::FxHashMap;

/// Least windows for energy, and least windows without work for the idle power.
const LEAST_WINDOWS: usize = 5;

/// Readings on each side of one that tell how late it is.
const NEAR: usize = 10;

/// Share of the median gap of readings by which one may differ from it, and the least share of gaps that must not.
const EVEN: f64 = 0.2;
const LEAST_EVEN: f64 = 0.8;

/// Power of a stage, in highest powers that the driver stated, above which the fit is wrong.
const MOST_POWER: f64 = 1.05;

/// Least windows with work for the energy of kernels, and the share of the time from which on a kernel has a power of its own.
const LEAST_WORKING: usize = 20;
const LEAST_SHARE: f64 = 0.05;

/// Windows of a part of the time that is left out of a fit to see how well it predicts them.
const HELD_OUT: u32 = 5;

/// Error of the windows that were left out, %, above which the energy of kernels is not known.
const MOST_HELD_OUT_PCT: f64 = 15.0;

/// Adds the energy of the stages: of the unprofiled run where the times of its stages are known, else of the recorded one. `used` are the
/// numbers of the GPUs of the program.
pub fn add_stages(
    analysis: &mut Analysis,
    index: &StageIndex,
    used: &[u32],
    profiled: &[Profiled],
    baseline: &Baseline<'_>,
) -> Option<MeterEnergy> {
    let names: Vec<&str> = (0..index.len()).map(|stage| index.name(stage)).collect();
    let idle = |own: &GpuVitals| {
        let same = profiled.iter().find(|profiled| profiled.number == own.number)?;
        same.idle.1.then_some(same.idle.0)
    };
    let of_baseline = baseline.account.map(|account| stage_times(account, &names)).unwrap_or_default();
    let unprofiled = baseline.vitals.iter().filter(|own| used.contains(&own.number));
    let unprofiled: Vec<Metered> =
        unprofiled.filter_map(|own| of_baseline_run(own, &of_baseline, names.len(), idle(own))).collect();
    let (run, metered): (_, Vec<&Metered>) = match unprofiled.is_empty() {
        true => (EnergyRun::Profiled, profiled.iter().map(|own| &own.stages).collect()),
        false => (EnergyRun::Baseline, unprofiled.iter().collect()),
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
            error_j: Some(part.error_j).filter(|error| error.is_finite() && part.together.is_empty()),
            together_with: (!part.together.is_empty()).then(|| {
                let others =
                    part.together.iter().map(|other| names.get(*other).copied().unwrap_or("outside"));
                others.collect::<Vec<_>>().join(" and ")
            }),
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

/// A GPU while the trace was recorded.
pub struct Profiled {
    /// Device of the trace.
    device: usize,
    /// Number of the GPU.
    number: u32,
    windows: Windows,
    idle: (f64, bool),
    stages: Metered,
}

/// The energy of one GPU, divided.
struct Metered {
    meter_j: f64,
    meter_ns: Ns,
    idle_w: f64,
    idle_in_context: bool,
    /// Parts of the classes, and the rest.
    parts: Vec<Part>,
}

/// Energy of a class on one GPU.
#[derive(Debug, Clone, Default)]
struct Part {
    /// Time of the class, ns.
    ns: f64,
    idle_j: f64,
    dynamic_j: f64,
    error_j: f64,
    /// Classes that it is not told apart from.
    together: Vec<usize>,
}

impl Part {
    fn sum(metered: &[&Metered], at: usize) -> Self {
        let mut sum = Self::default();
        metered.iter().filter_map(|own| own.parts.get(at)).for_each(|own| sum.add(own));
        sum
    }

    fn add(&mut self, own: &Self) {
        self.ns += own.ns;
        self.idle_j += own.idle_j;
        self.dynamic_j += own.dynamic_j;
        self.error_j += own.error_j;
        self.together.extend(&own.together);
        self.together.sort_unstable();
        self.together.dedup();
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

    /// Returns the time of classes in the windows. `rows` are in the order of their starts.
    fn overlaps(&self, rows: Vec<(Ns, Ns, u32)>) -> Vec<Overlap> {
        overlaps(&DeviceOps::new(rows), &self.spans, 0)
    }

    /// Returns the part of the energy of a window that the idle GPU uses, J.
    fn idle_j(&self, at: usize, idle_w: f64) -> f64 {
        (idle_w * self.length(at) / 1e9).min(self.joules[at])
    }

    fn length(&self, at: usize) -> f64 {
        (self.spans[at].1 - self.spans[at].0) as f64
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

/// Divides the energy of a GPU between the stages while the trace was recorded.
pub fn of_profiled(
    trace: &Trace,
    index: &StageIndex,
    (device, own): &(usize, GpuVitals),
) -> Option<Profiled> {
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
    let of_stages = windows.overlaps(spans);
    let metered = divide(&windows, &overlaps, &of_stages, stages, idle, f64::INFINITY);
    Some(Profiled { device: *device, number: own.number, windows, idle, stages: metered })
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
    let overlaps = windows.overlaps(times.to_vec());
    let own_idle = || windows.idle_power(&overlaps, context(own, |user| user.own == Some(true)));
    let idle = idle_w.map_or_else(own_idle, |watts| (watts, true));
    Some(divide(&windows, &overlaps, &overlaps, stages, idle, f64::INFINITY))
}

/// Divides windows between the classes and the rest, which is the last part. `busy` has the time of the work of each, `spans` the time
/// for which each has its idle energy. Classes with intervals wider than `wide` are told apart only where their powers do not depend on each other.
fn divide(
    windows: &Windows,
    busy: &[Overlap],
    spans: &[Overlap],
    classes: usize,
    (idle_w, idle_in_context): (f64, bool),
    wide: f64,
) -> Metered {
    let dynamic: Vec<f64> =
        (0..windows.len()).map(|at| windows.joules[at] - windows.idle_j(at, idle_w)).collect();
    let mut parts = vec![Part::default(); classes + 1];
    let mut used_ns = vec![0.0; windows.len()];
    for overlap in spans {
        let (at, length) = (overlap.window as usize, windows.length(overlap.window as usize));
        // Classes may overlap; their time counts once.
        let ns = overlap.ns.min(length - used_ns[at]);
        used_ns[at] += ns;
        let part = &mut parts[overlap.kernel as usize];
        part.ns += ns;
        part.idle_j += windows.idle_j(at, idle_w) * ns / length;
    }
    let most = (MOST_POWER * windows.most_w - idle_w) / 1e9;
    let found = Groups::told_apart(busy, classes + 1, windows.len(), &dynamic, Limits { wide, most });
    let mut busy_ns = vec![0.0; classes + 1];
    busy.iter().for_each(|own| busy_ns[own.kernel as usize] += own.ns);
    for (members, rate) in found.members.iter().zip(&found.fit.rates) {
        for at in members.iter().filter(|at| busy_ns[**at] > 0.0) {
            let part = &mut parts[*at];
            (part.dynamic_j, part.error_j) = (rate.value * busy_ns[*at], rate.half * busy_ns[*at]);
            part.together = members.iter().filter(|other| *other != at).copied().collect();
        }
    }
    let sum = |parts: &[Part], value: fn(&Part) -> f64| -> f64 { parts.iter().map(value).sum() };
    let meter_j: f64 = windows.joules.iter().sum();
    let all_dynamic: f64 = dynamic.iter().sum();
    let idle_j = meter_j - all_dynamic - sum(&parts, |part| part.idle_j);
    let dynamic_j = all_dynamic - sum(&parts[..classes], |part| part.dynamic_j);
    parts[classes] = Part { idle_j, dynamic_j, ..std::mem::take(&mut parts[classes]) };
    let meter_ns = windows.spans[windows.len() - 1].1 - windows.spans[0].0;
    Metered { meter_j, meter_ns, idle_w, idle_in_context, parts }
}

/// Classes of GPU operations whose powers are fitted: the kernels with most time, and what is left of each family.
struct Classes<'a> {
    /// Family and kernel of each; `None` for the rest of a family.
    names: Vec<(&'a str, Option<&'a str>)>,
    /// Class of each name of a kernel.
    of_name: Vec<u32>,
}

/// Name of the class of copies and memory sets, the first one.
const COPIES: &str = "copies and memory sets";

impl<'a> Classes<'a> {
    fn of(kernels: &'a [Kernel], trace: &Trace) -> Self {
        let all: i64 = kernels.iter().map(|kernel| kernel.total_ns).sum();
        let mut names = vec![(COPIES, None)];
        let mut places = FxHashMap::default();
        for kernel in kernels {
            let is_own = kernel.total_ns as f64 >= LEAST_SHARE * all as f64;
            let class = (kernel.family.as_str(), is_own.then_some(kernel.short_name.as_str()));
            let known = names.iter().position(|name| *name == class);
            places.insert(kernel.name.as_str(), known.unwrap_or(names.len()) as u32);
            if known.is_none() {
                names.push(class);
            }
        }
        let mut of_name = vec![0; trace.names.len()];
        for name in kernel_names(trace) {
            of_name[name.index()] = places.get(trace.names.get(name)).copied().unwrap_or(0);
        }
        Self { names, of_name }
    }

    /// Sums the parts of the classes by the name that `key` gives them, most energy first.
    fn rows(
        &self,
        metered: &[&Metered],
        key: impl Fn(&(&'a str, Option<&'a str>)) -> Option<&'a str>,
    ) -> Vec<ClassEnergy> {
        let meter_j: f64 = metered.iter().map(|own| own.meter_j).sum();
        let mut names: Vec<&str> = self.names.iter().filter_map(&key).collect();
        names.sort_unstable();
        names.dedup();
        let row = |name: &str| {
            let is_own = |at: &usize| self.names.get(*at).and_then(&key) == Some(name);
            let mut part = Part::default();
            (0..self.names.len()).filter(is_own).for_each(|at| part.add(&Part::sum(metered, at)));
            let others = part.together.iter().filter(|at| !is_own(at)).filter_map(|at| self.names.get(*at));
            let mut together_with: Vec<String> =
                others.map(|class| key(class).unwrap_or(class.0).to_owned()).collect();
            together_with.sort_unstable();
            together_with.dedup();
            let joules = part.idle_j + part.dynamic_j;
            (part.ns > 0.0).then(|| ClassEnergy {
                name: name.to_owned(),
                joules,
                idle_j: part.idle_j,
                dynamic_j: part.dynamic_j,
                error_j: Some(part.error_j).filter(|error| error.is_finite() && together_with.is_empty()),
                together_with,
                watts: joules * 1e9 / part.ns,
                pct: 100.0 * joules / meter_j,
            })
        };
        let mut rows: Vec<ClassEnergy> = names.into_iter().filter_map(row).collect();
        rows.sort_by(|a, b| b.joules.total_cmp(&a.joules));
        rows
    }
}

/// Divides the energy of the recorded run between kernels and their families; else tells why not.
pub fn of_kernels(analysis: &Analysis, trace: &Trace, gpus: &[Profiled]) -> Result<KernelEnergy, Reason> {
    let withheld = |why: String| Reason::new(About::Other("vitals.kernels".to_owned()), why);
    if !trace.recorded.is_empty() {
        return Err(withheld(
            "only parts of the time were recorded, and the meter counts all of it".to_owned(),
        ));
    }
    if trace.ops.kind.contains(&OpKind::Graph) {
        return Err(withheld("CUDA graphs were recorded as a whole, without their kernels".to_owned()));
    }
    let classes = Classes::of(&analysis.kernels, trace);
    let count = classes.names.len();
    let (mut metered, mut error_j, mut predicted_j) = (Vec::new(), 0.0, 0.0);
    for own in gpus {
        let ops = &trace.ops;
        let class = |row: usize| match ops.kind[row] {
            OpKind::Kernel => classes.of_name[ops.name[row].index()],
            _ => 0,
        };
        let busy = DeviceOps::of(trace, DeviceId(own.device as u16), class).rows;
        let busy = own.windows.overlaps(busy);
        let working = busy.chunk_by(|a, b| a.window == b.window).count();
        if working < LEAST_WORKING {
            let why =
                format!("the meter was read {working} times while kernels ran; {LEAST_WORKING} are needed");
            return Err(withheld(why));
        }
        let (error, joules) = held_out(&own.windows, &busy, count, own.idle);
        (error_j, predicted_j) = (error_j + error, predicted_j + joules);
        metered.push(divide(&own.windows, &busy, &busy, count, own.idle, WIDE));
    }
    let held_out_pct = if predicted_j > 0.0 { 100.0 * error_j / predicted_j } else { 100.0 };
    if held_out_pct > MOST_HELD_OUT_PCT {
        let why =
            format!("the powers of kernels predict windows of the meter only within {held_out_pct:.0} %");
        return Err(withheld(why));
    }
    let metered: Vec<&Metered> = metered.iter().collect();
    let families = classes.rows(&metered, |class| Some(class.0));
    let kernels = classes.rows(&metered, |class| class.1);
    let rest = Part::sum(&metered, count);
    let meter_j = metered.iter().map(|own| own.meter_j).sum();
    Ok(KernelEnergy { meter_j, families, kernels, rest_j: rest.idle_j + rest.dynamic_j, held_out_pct })
}

/// Returns the error of windows that were left out of a fit, and their energy, J: each part of the time is predicted by the others.
fn held_out(windows: &Windows, busy: &[Overlap], classes: usize, idle: (f64, bool)) -> (f64, f64) {
    let is_out = |window: usize, turn: u32| (window as u32 / HELD_OUT) % 2 == turn;
    let (mut error, mut joules) = (0.0, 0.0);
    for turn in 0..2 {
        let kept: Vec<Overlap> =
            busy.iter().filter(|own| !is_out(own.window as usize, turn)).copied().collect();
        let fitted = divide(windows, &kept, &kept, classes, idle, WIDE);
        let mut kept_ns = vec![0.0; classes + 1];
        kept.iter().for_each(|own| kept_ns[own.kernel as usize] += own.ns);
        let rate = |at: usize| if kept_ns[at] > 0.0 { fitted.parts[at].dynamic_j / kept_ns[at] } else { 0.0 };
        for window in busy.chunk_by(|a, b| a.window == b.window) {
            let at = window[0].window as usize;
            if !is_out(at, turn) {
                continue;
            }
            let dynamic: f64 = window.iter().map(|own| own.ns * rate(own.kernel as usize)).sum();
            error += (windows.joules[at] - windows.idle_j(at, idle.0) - dynamic).abs();
            joules += windows.joules[at];
        }
    }
    (error, joules)
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
        let idle = windows.idle_power(&overlaps, context);
        divide(&windows, &overlaps, &overlaps, 2, idle, f64::INFINITY)
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
        assert_eq!((&first.together, &second.together), (&vec![1], &vec![0]));
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
        assert_eq!(found.parts[1].together, [0], "{:?}", found.parts);
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
