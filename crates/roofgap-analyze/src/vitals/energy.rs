//! Energy of stages.
//!
//! The energy counter moves several times a second. Readings make windows; a window's energy is the idle power for its length, and the
//! rest is divided between the stages that ran in it, by the power of each that fits all windows best without negative values. So the
//! parts add up to the meter. Stages that the windows do not tell apart share their energy by their time.

use super::{Baseline, DeviceVitals, times};
use crate::counters::{DeviceOps, Groups, Limits, Overlap, overlaps};
use crate::result::*;
use crate::stages::StageIndex;
use crate::timeline::IntervalSet;
use roofgap_base::stats::median_f64;
use roofgap_trace::account::Account;
use roofgap_trace::vitals::{GpuUser, GpuVitals};
use roofgap_trace::{Ns, Trace};

/// Least windows for energy, and least windows without work for the idle power.
const LEAST_WINDOWS: usize = 5;

/// Readings on each side of one that tell how late it is.
const NEAR: usize = 10;

/// Share of the median gap of readings by which one may differ from it, and the least share of gaps that must not.
const EVEN: f64 = 0.2;
const LEAST_EVEN: f64 = 0.8;

/// Power of a stage, in highest powers that the driver stated, above which the fit is wrong.
const MOST_POWER: f64 = 1.05;

/// Start, end and stage of work.
type Work = (Ns, Ns, u32);

/// Adds the energy of the stages: of the unprofiled run where the times of its stages are known, else of the recorded one.
pub fn add_stages(
    analysis: &mut Analysis,
    trace: &Trace,
    index: &StageIndex,
    gpus: &[DeviceVitals],
    baseline: &Baseline<'_>,
) -> Option<MeterEnergy> {
    let names: Vec<&str> = (0..index.len()).map(|stage| index.name(stage)).collect();
    let profiled: Vec<Metered> = gpus.iter().filter_map(|gpu| Metered::profiled(trace, index, gpu)).collect();
    let baseline_times = baseline.account.map(|account| stage_times(account, &names)).unwrap_or_default();
    let unprofiled = |vitals: &GpuVitals| {
        let has_context = |gpu: &&Metered| gpu.number == vitals.number && gpu.idle.in_context;
        let idle = profiled.iter().find(has_context).map(|gpu| gpu.idle);
        Metered::unprofiled(vitals, &baseline_times, names.len(), idle)
    };
    let used =
        baseline.vitals.iter().filter(|vitals| gpus.iter().any(|gpu| gpu.vitals.number == vitals.number));
    let unprofiled: Vec<Metered> = used.filter_map(unprofiled).collect();
    let (run, metered) = match unprofiled.is_empty() {
        true => (EnergyRun::Profiled, profiled),
        false => (EnergyRun::Baseline, unprofiled),
    };
    let outside = Part::of_class(&metered, names.len());
    let whole = MeterEnergy {
        run,
        meter_j: metered.iter().map(|gpu| gpu.meter_j).sum(),
        meter_ns: metered.iter().map(|gpu| gpu.meter_ns).max()?,
        idle_w: metered.iter().map(|gpu| gpu.idle.watts).sum(),
        idle_in_context: metered.iter().all(|gpu| gpu.idle.in_context),
        outside_idle_j: outside.idle_j,
        outside_dynamic_j: outside.dynamic_j,
    };
    for (at, stage) in analysis.stages.iter_mut().enumerate().take(index.len()) {
        let part = Part::of_class(&metered, at);
        if part.ns <= 0.0 {
            continue;
        }
        let instances = match run {
            EnergyRun::Profiled => stage.instances,
            EnergyRun::Baseline => baseline_times.iter().filter(|(.., of)| *of as usize == at).count() as u64,
        };
        let tokens = stage.tokens_per_s.map(|rate| rate * stage.elapsed_ns() as f64 / 1e9);
        let tokens = tokens.map(|all| all / stage.instances.max(1) as f64 * instances as f64);
        let joules = part.idle_j + part.dynamic_j;
        let others = part.together.iter().map(|other| names.get(*other).copied().unwrap_or("outside"));
        let others: Vec<&str> = others.collect();
        stage.vitals.get_or_insert_default().energy = Some(StageEnergy {
            run,
            joules,
            idle_j: part.idle_j,
            dynamic_j: part.dynamic_j,
            error_j: Some(part.error_j).filter(|error| error.is_finite() && others.is_empty()),
            together_with: (!others.is_empty()).then(|| others.join(" and ")),
            watts: joules * 1e9 / part.ns * metered.len() as f64,
            token_j: tokens.filter(|count| *count > 0.0).map(|count| joules / count),
        });
    }
    Some(whole)
}

/// Lists the measured stages of an account with absolute times, by their position in `names`.
fn stage_times(account: &Account, names: &[&str]) -> Vec<Work> {
    let measured = account.repeats.iter().filter(|repeat| !repeat.warmup).flat_map(|repeat| &repeat.stages);
    let mut times: Vec<Work> = measured
        .filter_map(|stage| {
            let at = names.iter().position(|name| *name == stage.name)?;
            let start = stage.start_ns?;
            Some((start, start.saturating_add(stage.wall_ns.max(0)), at as u32))
        })
        .collect();
    times.sort_unstable();
    times
}

/// Power of an idle GPU.
#[derive(Clone, Copy)]
struct Idle {
    watts: f64,
    /// True if the program had a context then.
    in_context: bool,
}

/// The energy of one GPU, divided.
struct Metered {
    /// Number of the GPU.
    number: u32,
    meter_j: f64,
    meter_ns: Ns,
    idle: Idle,
    /// Parts of the stages, and the rest.
    parts: Vec<Part>,
}

/// Energy of a stage on one GPU.
#[derive(Debug, Clone, Default)]
struct Part {
    /// Time of the stage, ns.
    ns: f64,
    idle_j: f64,
    dynamic_j: f64,
    error_j: f64,
    /// Stages that it is not told apart from.
    together: Vec<usize>,
}

impl Part {
    /// Adds up the parts that a stage has on all GPUs.
    fn of_class(metered: &[Metered], at: usize) -> Self {
        let mut sum = Self::default();
        for part in metered.iter().filter_map(|gpu| gpu.parts.get(at)) {
            sum.ns += part.ns;
            sum.idle_j += part.idle_j;
            sum.dynamic_j += part.dynamic_j;
            sum.error_j += part.error_j;
            sum.together.extend(&part.together);
        }
        sum.together.sort_unstable();
        sum.together.dedup();
        sum
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
    fn of_meter(vitals: &GpuVitals) -> Option<Self> {
        let mut readings = on_beat(&vitals.energy);
        // Readings of one moment are one, with the energy of the last.
        readings.dedup_by(|next, last| {
            let is_same = next.0 <= last.0;
            if is_same {
                last.1 = next.1;
            }
            is_same
        });
        let (spans, joules): (Vec<_>, _) =
            readings.windows(2).map(|pair| ((pair[0].0, pair[1].0), pair[1].1 - pair[0].1)).unzip();
        let most_w = vitals.states.iter().filter_map(|state| state.watts).reduce(f64::max);
        let most_w = most_w.unwrap_or(f64::INFINITY);
        (spans.len() >= LEAST_WINDOWS).then_some(Self { spans, joules, most_w })
    }

    /// Returns the time of stages in the windows. `work` is in the order of its starts.
    fn overlaps(&self, work: Vec<Work>) -> Vec<Overlap> {
        overlaps(&DeviceOps::new(work), &self.spans, 0)
    }

    /// Returns the part of the energy of a window that the idle GPU uses, J.
    fn idle_j(&self, at: usize, idle: Idle) -> f64 {
        (idle.watts * self.length(at) / 1e9).min(self.joules[at])
    }

    fn length(&self, at: usize) -> f64 {
        (self.spans[at].1 - self.spans[at].0) as f64
    }

    /// Returns the lowest power over some of these windows in a row.
    fn lowest_power(&self, is_wanted: impl Fn(usize) -> bool) -> Option<f64> {
        let rows = (LEAST_WINDOWS..=self.spans.len()).map(|end| end - LEAST_WINDOWS..end);
        let wanted = rows.filter(|row| row.clone().all(&is_wanted));
        let power = wanted.map(|row| {
            let ns = self.spans[row.end - 1].1 - self.spans[row.start].0;
            self.joules[row].iter().sum::<f64>() * 1e9 / ns as f64
        });
        power.reduce(f64::min)
    }

    /// Returns the idle power: that of windows without work while the program has a `context`, if there are any.
    fn idle_power(&self, busy: &[Overlap], context: Option<(Ns, Ns)>) -> Idle {
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
            Some(watts) => {
                let watts = self.lowest_power(|at| within(&self.spans[at])).unwrap_or(watts);
                Idle { watts, in_context: true }
            }
            None => Idle { watts: self.lowest_power(|_| true).unwrap_or(0.0), in_context: false },
        }
    }
}

/// Puts readings where the counter changed: it changes at even times, and a reading is late by what the sampler does, never early.
fn on_beat(readings: &[(Ns, f64)]) -> Vec<(Ns, f64)> {
    let mut gaps: Vec<f64> = readings.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64).collect();
    let gap = median_f64(&mut gaps).unwrap_or(0.0);
    let even = gaps.iter().filter(|other| (*other - gap).abs() <= EVEN * gap).count();
    // The first and the last reading are made when the sampler starts and ends, not when the counter changes.
    let inner = 1..readings.len().saturating_sub(1);
    if gap <= 0.0 || (even as f64) < LEAST_EVEN * gaps.len() as f64 || inner.len() < 2 {
        return readings.to_vec();
    }
    let times = readings[inner.clone()].windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64);
    let (sum, beats) =
        times.fold((0.0, 0.0), |(sum, beats), time| (sum + time, beats + (time / gap).round()));
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
fn context(vitals: &GpuVitals, is_program: impl Fn(&GpuUser) -> bool) -> Option<(Ns, Ns)> {
    let mut times =
        vitals.processes.iter().filter(|(_, users)| users.iter().any(&is_program)).map(|(at, _)| *at);
    let first = times.next()?;
    Some((first, times.last().unwrap_or(first)))
}

impl Metered {
    /// Divides the energy of a GPU between the stages while the trace was recorded.
    fn profiled(trace: &Trace, index: &StageIndex, gpu: &DeviceVitals) -> Option<Self> {
        let windows = Windows::of_meter(&gpu.vitals)?;
        let stages = index.len();
        let work_of = |spans: &IntervalSet, stage: usize| -> Vec<Work> {
            spans.intervals().iter().map(|(start, end)| (*start, *end, stage as u32)).collect()
        };
        let with_cold = |stage| work_of(&times(index.spans_with_cold(stage)), stage);
        let mut spans: Vec<Work> = (0..stages).flat_map(with_cold).collect();
        spans.sort_unstable();
        // Work that was not recorded is that of the stage that ran.
        let mut busy = if trace.recorded.is_empty() { Vec::new() } else { spans.clone() };
        for stage in (0..=stages).filter(|_| trace.recorded.is_empty()) {
            let is_of_stage = |row: usize| index.stage_of_op(row).unwrap_or(stages) == stage;
            busy.extend(work_of(&IntervalSet::by_device(trace, is_of_stage)[gpu.device], stage));
        }
        busy.sort_unstable();
        let (first_busy, last_busy) = (busy.first()?.0, busy.iter().map(|work| work.1).max()?);
        let busy = windows.overlaps(busy);
        let is_program = |user: &GpuUser| {
            user.of_session == Some(true) || trace.processes.iter().any(|process| process.pid == user.pid)
        };
        let (first, last) = context(&gpu.vitals, is_program).unwrap_or((first_busy, last_busy));
        let idle = windows.idle_power(&busy, Some((first.min(first_busy), last.max(last_busy))));
        Some(Self::divide(gpu.vitals.number, &windows, &busy, &windows.overlaps(spans), stages, idle))
    }

    /// Divides the energy of a GPU in a run of which only the times of the stages are known.
    fn unprofiled(vitals: &GpuVitals, times: &[Work], stages: usize, idle: Option<Idle>) -> Option<Self> {
        let windows = Windows::of_meter(vitals)?;
        let (first, last) = (windows.spans.first()?.0, windows.spans.last()?.1);
        if times.is_empty() || times.iter().any(|(start, end, _)| *start < first || *end > last) {
            return None;
        }
        let busy = windows.overlaps(times.to_vec());
        let idle = idle.unwrap_or_else(|| {
            windows.idle_power(&busy, context(vitals, |user| user.of_session == Some(true)))
        });
        Some(Self::divide(vitals.number, &windows, &busy, &busy, stages, idle))
    }

    /// Divides windows between the stages and the rest, which is the last part. `busy` has the time of the work of each, `spans` the
    /// time for which each has its idle energy.
    fn divide(
        number: u32,
        windows: &Windows,
        busy: &[Overlap],
        spans: &[Overlap],
        stages: usize,
        idle: Idle,
    ) -> Self {
        let count = windows.spans.len();
        let dynamic: Vec<f64> = (0..count).map(|at| windows.joules[at] - windows.idle_j(at, idle)).collect();
        let mut parts = vec![Part::default(); stages + 1];
        let mut used_ns = vec![0.0; count];
        for overlap in spans {
            let (at, length) = (overlap.window as usize, windows.length(overlap.window as usize));
            // Stages may overlap; their time counts once.
            let ns = overlap.ns.min(length - used_ns[at]);
            used_ns[at] += ns;
            let part = &mut parts[overlap.kernel as usize];
            part.ns += ns;
            part.idle_j += windows.idle_j(at, idle) * ns / length;
        }
        let limits = Limits { wide: f64::INFINITY, most: (MOST_POWER * windows.most_w - idle.watts) / 1e9 };
        let groups = Groups::told_apart(busy, stages + 1, count, &dynamic, limits);
        let mut busy_ns = vec![0.0; stages + 1];
        busy.iter().for_each(|overlap| busy_ns[overlap.kernel as usize] += overlap.ns);
        for (members, rate) in groups.members.iter().zip(&groups.fit.rates) {
            for at in members.iter().filter(|at| busy_ns[**at] > 0.0) {
                let part = &mut parts[*at];
                (part.dynamic_j, part.error_j) = (rate.value * busy_ns[*at], rate.half * busy_ns[*at]);
                part.together = members.iter().filter(|other| *other != at).copied().collect();
            }
        }
        let meter_j: f64 = windows.joules.iter().sum();
        let all_dynamic: f64 = dynamic.iter().sum();
        let given_idle: f64 = parts.iter().map(|part| part.idle_j).sum();
        let given_dynamic: f64 = parts[..stages].iter().map(|part| part.dynamic_j).sum();
        parts[stages].idle_j = meter_j - all_dynamic - given_idle;
        parts[stages].dynamic_j = all_dynamic - given_dynamic;
        let meter_ns = windows.spans[count - 1].1 - windows.spans[0].0;
        Self { number, meter_j, meter_ns, idle, parts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;

    /// Windows of 100 ms at 100 W, with 400 W more while `busy`, whose classes are 0 and 1.
    fn divided(busy: &[(Ns, Ns, u32)], more_w: [f64; 2], windows: usize) -> Metered {
        let spans: Vec<(Ns, Ns)> =
            (0..windows as Ns).map(|at| (at * 100 * MS, (at + 1) * 100 * MS)).collect();
        let overlaps = overlaps(&DeviceOps::new(busy.to_vec()), &spans, 0);
        let mut joules = vec![10.0; windows];
        for overlap in &overlaps {
            joules[overlap.window as usize] += more_w[overlap.kernel as usize] * overlap.ns / 1e9;
        }
        let context = Some((0, spans[windows - 1].1));
        let windows = Windows { spans, joules, most_w: 800.0 };
        let idle = windows.idle_power(&overlaps, context);
        Metered::divide(0, &windows, &overlaps, &overlaps, 2, idle)
    }

    #[test]
    fn stages_shorter_than_a_window_are_told_apart_and_add_up_to_the_meter() {
        // 20 ms of the first in each 150 ms, then 80 ms of the second, and a second of nothing at the end.
        let busy = (0..40).flat_map(|at| {
            let start = at * 150 * MS;
            [(start, start + 20 * MS, 0), (start + 20 * MS, start + 100 * MS, 1)]
        });
        let metered = divided(&busy.collect::<Vec<_>>(), [600.0, 200.0], 70);
        assert!((metered.idle.watts - 100.0).abs() < 1e-6, "{}", metered.idle.watts);
        let [first, second, rest] = metered.parts.as_slice() else { panic!("{}", metered.parts.len()) };
        assert!((first.dynamic_j - 40.0 * 0.02 * 600.0).abs() < 1.0, "{first:?}");
        assert!((second.dynamic_j - 40.0 * 0.08 * 200.0).abs() < 1.0, "{second:?}");
        assert!((first.idle_j - 40.0 * 0.02 * 100.0).abs() < 1e-6 && rest.dynamic_j.abs() < 1e-6, "{rest:?}");
        let sum: f64 = metered.parts.iter().map(|part| part.idle_j + part.dynamic_j).sum();
        assert!((sum - metered.meter_j).abs() < 1e-6, "{sum} of {}", metered.meter_j);
    }

    #[test]
    fn stages_that_always_run_together_are_not_told_apart() {
        let busy = (0..40).flat_map(|at| {
            let start = at * 100 * MS;
            [(start, start + 20 * MS, 0), (start + 20 * MS, start + 100 * MS, 1)]
        });
        let metered = divided(&busy.collect::<Vec<_>>(), [600.0, 200.0], 50);
        let [first, second, _] = metered.parts.as_slice() else { panic!("{}", metered.parts.len()) };
        assert_eq!((&first.together, &second.together), (&vec![1], &vec![0]));
        // They have one power: a fifth of the time, a fifth of the energy.
        assert!((second.dynamic_j / first.dynamic_j - 4.0).abs() < 1e-9, "{:?}", metered.parts);
        let sum: f64 = metered.parts.iter().map(|part| part.idle_j + part.dynamic_j).sum();
        assert!((sum - metered.meter_j).abs() < 1e-6);
    }

    #[test]
    fn the_unprofiled_run_counts_only_with_its_own_times() {
        let energy = (0..60).map(|at| (at * 100 * MS, 20.0 * at as f64)).collect();
        let vitals = GpuVitals { energy, ..GpuVitals::default() };
        let times = [(MS, 2_000 * MS, 0), (2_000 * MS, 5_000 * MS, 1)];
        let metered =
            Metered::unprofiled(&vitals, &times, 2, Some(Idle { watts: 50.0, in_context: true })).unwrap();
        let [first, second, _] = metered.parts.as_slice() else { panic!("{}", metered.parts.len()) };
        // 200 W all the time, of which 50 W are idle.
        assert!((first.idle_j - 1.999 * 50.0).abs() < 1e-6, "{first:?}");
        assert!((second.idle_j + second.dynamic_j - 3.0 * 200.0).abs() < 1.0, "{second:?}");
        assert!(Metered::unprofiled(&vitals, &[(MS, 9_000 * MS, 0)], 2, None).is_none(), "another run");
    }

    #[test]
    fn a_power_that_the_driver_never_saw_is_not_of_one_stage() {
        // 10 ms of the second stage, beside the first.
        let busy = [(0, 300 * MS, 0), (1_000 * MS, 1_010 * MS, 1), (1_010 * MS, 3_000 * MS, 0)];
        let metered = divided(&busy, [200.0, 5_000.0], 40);
        assert_eq!(metered.parts[1].together, [0], "{:?}", metered.parts);
    }

    #[test]
    fn late_readings_are_put_where_the_counter_changed() {
        let late = |at: Ns| if at % 7 == 3 { 18 * MS } else { at % 3 * MS };
        let readings: Vec<(Ns, f64)> = (0..60).map(|at| (at * 100 * MS + late(at), at as f64)).collect();
        let gaps = |readings: &[(Ns, f64)]| -> Vec<Ns> {
            on_beat(readings)[1..59].windows(2).map(|pair| pair[1].0 - pair[0].0).collect()
        };
        let spaced = gaps(&readings);
        assert!(spaced.iter().all(|gap| (gap - 100 * MS).abs() < 2 * MS), "{spaced:?}");
        // The last reading is at the end of the program, at any time.
        let ended: Vec<(Ns, f64)> = readings.into_iter().chain([(5_970 * MS, 60.0)]).collect();
        let spaced = gaps(&ended);
        assert!(spaced.iter().all(|gap| (gap - 100 * MS).abs() < 3 * MS), "{spaced:?}");
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
        let mut vitals = GpuVitals::default();
        for at in 0..60 {
            vitals.energy.push((at * 100 * MS, joules));
            joules += watts(at) / 10.0;
        }
        let user = GpuUser { of_session: Some(true), ..GpuUser::default() };
        vitals.processes = (2..6).map(|at| (at * 1_000 * MS, vec![user.clone()])).collect();
        let times = [(2_000 * MS, 4_000 * MS, 0)];
        let metered = Metered::unprofiled(&vitals, &times, 1, None).unwrap();
        assert!(
            metered.idle.in_context && (metered.idle.watts - 130.0).abs() < 1e-6,
            "{}",
            metered.idle.watts
        );
        vitals.processes.clear();
        let metered = Metered::unprofiled(&vitals, &times, 1, None).unwrap();
        assert!(
            !metered.idle.in_context && (metered.idle.watts - 80.0).abs() < 1e-6,
            "{}",
            metered.idle.watts
        );
    }
}
