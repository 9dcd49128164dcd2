//! Counters that were sampled while the program ran, divided between stages and kernels.
//!
//! Samples are of the whole device. [`windows`] says which operation ran in which sample, [`fit`] divides the samples between the
//! kernels, and this file makes rows of counters and the numbers of stages.

mod fit;
mod windows;

use super::join::{Joined, Measured, Shape};
use super::readings::{Readings, Verdict, verdict};
use crate::gpu::GpuFacts;
use crate::result::{
    About, Analysis, CounterRow, CounterSource, MbuMeasured, Reason, SampledInterval, Stage, StageKind,
};
use crate::stages::StageIndex;
use fit::WIDE;
use fit::{Design, Fit};
pub use fit::{Groups, Limits, Overlap};
use roofgap_base::stats::median_f64;
use roofgap_trace::{LossKind, NameId, Ns, OpKind, SampledCounters, SampledMetric, Trace};
use rustc_hash::FxHashMap;
use windows::{Alignment, align, usable};
pub use windows::{DeviceOps, overlaps};

/// Most kernels of a device that get rates of their own; those with the least time share one.
const MOST_KERNELS: usize = 300;

/// Least launches of a kernel in the samples for a row.
const LEAST_LAUNCHES: u64 = 20;

/// Least windows for any number.
const LEAST_WINDOWS: usize = 50;

/// Traffic of a window without any operation, as a share of that of the others, from which on another program uses the device.
const FOREIGN: f64 = 0.05;

/// Least windows without an operation to tell that.
const LEAST_IDLE: usize = 50;

/// Half of the widest interval of a share that is used, points.
const MOST_HALF_PCT: f64 = 15.0;

/// Widest interval of a count that is used: its half, as a share of the count.
const MOST_HALF: f64 = 0.5;

/// Ratios of measured to modelled traffic between which the two agree. A stage that moves fewer than this many caches a step may find its
/// weights in the cache.
const LEAST_OF_MODEL: f64 = 0.8;
const MOST_OF_MODEL: f64 = 3.0;
const BEYOND_CACHE: f64 = 4.0;

/// A number that samples give: bytes of DRAM, or % times ns of an activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    Dram,
    Tensor,
    Issue,
    SmActive,
    L2,
}

const SIGNALS: [Signal; 5] = [Signal::Dram, Signal::Tensor, Signal::Issue, Signal::SmActive, Signal::L2];

/// Adds the rows of sampled counters, and the numbers of stages. A row of ncu for the same kernel, shape and stage stays alone.
pub fn add(
    joined: &mut Joined,
    trace: &Trace,
    index: &StageIndex,
    analysis: &mut Analysis,
    gpu: Option<&GpuFacts>,
) {
    if trace.sampled.is_empty() {
        return;
    }
    let (mut lanes, mut rows) = (Vec::new(), Vec::new());
    for counters in &trace.sampled {
        let lane = Lane::from_samples(trace, index, counters, gpu);
        let Some(lane) = lane.filter(|lane| lane.windows.len() >= LEAST_WINDOWS) else { continue };
        if lane.is_foreign() {
            joined.losses.add(LossKind::SamplesForeign, 1);
            continue;
        }
        let lane = lane.without_background();
        rows.extend(lane.kernels(trace, index, gpu));
        lanes.push((lane.stages(index.len()), lane));
    }
    let l2_bytes = trace.devices.iter().filter_map(|device| device.l2_bytes).max().unwrap_or(0);
    for (at, stage) in analysis.stages.iter_mut().enumerate().take(index.len()) {
        let sums = lanes.iter().map(|(sums, lane)| (&sums[at], lane));
        let measured = measured(&sums.filter(|(sum, _)| sum.samples > 0).collect::<Vec<_>>(), stage);
        let contradicts = measured.as_ref().is_some_and(|row| contradicts_model(row, stage, l2_bytes));
        joined.losses.add(LossKind::SampledContradicts, u64::from(contradicts));
        stage.mbu_measured = measured;
    }
    rows.retain(|row| !by_ncu(joined, row));
    if rows.is_empty() && joined.measured.is_empty() {
        let why = "the samples of counters do not cover the kernels, or another program used the GPU at the same time";
        analysis.reasons.push(Reason::new(About::Counters, why));
    }
    joined.measured.extend(rows);
}

/// Tells whether ncu measured the kernel of a row.
fn by_ncu(joined: &Joined, sampled: &Measured) -> bool {
    let sampled_row = &sampled.row;
    joined.measured.iter().any(|other| {
        let row = &other.row;
        let place = row.stage.is_none() || row.stage == sampled_row.stage;
        other.matched
            && place
            && row.kernel == sampled_row.kernel
            && (row.grid, row.block) == (sampled_row.grid, sampled_row.block)
    })
}

/// Tells whether a stage moved much less than its model must, although that does not fit the cache, or a decode much more.
fn contradicts_model(measured: &MbuMeasured, stage: &Stage, l2_bytes: u64) -> bool {
    let units = stage.steps.as_ref().map_or(stage.instances, |steps| steps.count).max(1) as f64;
    let is_cached = stage.mbu.as_ref().is_none_or(|mbu| mbu.bytes / units < BEYOND_CACHE * l2_bytes as f64);
    let most = if stage.kind == StageKind::Decode { MOST_OF_MODEL } else { f64::INFINITY };
    !is_cached && measured.to_model.is_some_and(|ratio| !(LEAST_OF_MODEL..=most).contains(&ratio))
}

/// Kernel of a column: stage, name and shape; `None` for copies and the like, and for kernels with little time.
type Key = Option<(Option<usize>, NameId, Shape)>;

/// The samples of a device beside its operations.
struct Lane {
    windows: Vec<(Ns, Ns)>,
    /// Values of each signal, one a window.
    signals: Vec<(Signal, Vec<f64>)>,
    ops: DeviceOps,
    keys: Vec<Key>,
    /// Stage of each column.
    stages: Vec<Option<usize>>,
    overlaps: Vec<Overlap>,
    alignment: Alignment,
    /// Bandwidth of the device, bytes per ns; 1 where DRAM was sampled as a share of the peak.
    bandwidth: Option<f64>,
    /// True if bytes of DRAM were counted. Shares of its peak are whole percents in nsys, and of a peak that nsys does not state.
    counts_bytes: bool,
}

impl Lane {
    fn from_samples(
        trace: &Trace,
        index: &StageIndex,
        counters: &SampledCounters,
        gpu: Option<&GpuFacts>,
    ) -> Option<Self> {
        let device = trace.devices.get(counters.device.index())?;
        let recorded = device.bandwidth_bytes_per_s.map(|rate| rate as f64);
        let bandwidth =
            gpu.and_then(GpuFacts::bandwidth).map(|(rate, _)| rate).or(recorded).map(|rate| rate * 1e-9);
        let (ops, keys, stages) = columns(trace, index, counters);
        let used = usable(trace, &ops, counters);
        let mut windows: Vec<(Ns, Ns)> = used.iter().map(|at| counters.windows[*at]).collect();
        let counts_bytes = counters.values(SampledMetric::DramReadBytes).is_some();
        let bandwidth = if counts_bytes { bandwidth } else { Some(1.0) };
        let values = |signal: Signal| Some((signal, signal_values(signal, counters, &used)?));
        let signals: Vec<(Signal, Vec<f64>)> = SIGNALS.into_iter().filter_map(values).collect();
        // Multiprocessors are active exactly while kernels run.
        let sharpest = [Signal::SmActive, Signal::Dram, Signal::Tensor];
        let sharpest = sharpest.iter().find_map(|wanted| signals.iter().find(|(signal, _)| signal == wanted));
        let alignment = sharpest.map_or(Alignment::default(), |(_, values)| align(&ops, &windows, values));
        for window in &mut windows {
            *window = (window.0 + alignment.shift, window.1 + alignment.shift);
        }
        let overlaps = overlaps(&ops, &windows, 0);
        Some(Self { windows, signals, ops, keys, stages, overlaps, alignment, bandwidth, counts_bytes })
    }

    fn values(&self, signal: Signal) -> Option<&[f64]> {
        self.signals.iter().find(|(listed, _)| *listed == signal).map(|(_, values)| values.as_slice())
    }

    /// Returns the mean of a signal per window without any operation, and per other window; `None` with too few of the former. Windows beside
    /// operations are others: caches write later.
    fn idle_and_busy(&self, signal: Signal) -> Option<(f64, f64)> {
        let values = self.values(signal)?;
        let mut idle = vec![true; self.windows.len()];
        for overlap in &self.overlaps {
            let at = overlap.window as usize;
            let beside = at.saturating_sub(2)..(at + 3).min(idle.len());
            idle[beside].fill(false);
        }
        let mean = |wanted: bool| {
            let wanted_values = idle.iter().zip(values).filter(|(idle, _)| **idle == wanted);
            let (count, sum) =
                wanted_values.fold((0, 0.0), |(count, sum), (_, value)| (count + 1, sum + value));
            (count >= LEAST_IDLE).then(|| sum / count as f64)
        };
        mean(true).zip(mean(false))
    }

    /// Tells whether the device moved data while it ran no recorded operation.
    fn is_foreign(&self) -> bool {
        self.idle_and_busy(Signal::Dram).is_some_and(|(idle, busy)| idle > FOREIGN * busy)
    }

    /// Takes the little that the device moves by itself away.
    fn without_background(mut self) -> Self {
        if let Some((idle, _)) = self.idle_and_busy(Signal::Dram) {
            let memory = self.signals.iter_mut().filter(|(signal, _)| *signal == Signal::Dram);
            memory.for_each(|(_, values)| values.iter_mut().for_each(|value| *value -= idle));
        }
        self
    }

    /// Adds up the samples by stage: a window counts for a stage by the share of the operations in it.
    fn stages(&self, stages: usize) -> Vec<StageSum> {
        let mut sums = vec![StageSum::default(); stages];
        for window in self.overlaps.chunk_by(|a, b| a.window == b.window) {
            let at = window[0].window as usize;
            let (start, end) = self.windows[at];
            let all: f64 = window.iter().map(|overlap| overlap.ns).sum();
            let parallel = ((end - start) as f64 / all).min(1.0);
            let mut last = None;
            for overlap in window {
                let Some(stage) = self.stages[overlap.kernel as usize] else { continue };
                let sum = &mut sums[stage];
                sum.busy_ns += overlap.ns * parallel;
                sum.samples += u64::from(last.replace(stage) != Some(stage));
                for (signal, values) in &self.signals {
                    sum.signals[*signal as usize] += values[at] * overlap.ns / all;
                }
            }
        }
        sums
    }

    /// Divides the samples between the kernels.
    fn kernels(&self, trace: &Trace, index: &StageIndex, gpu: Option<&GpuFacts>) -> Vec<Measured> {
        let Some((_, first)) = self.signals.first() else { return Vec::new() };
        let limits = Limits { wide: WIDE, most: f64::INFINITY };
        let Groups { members, overlaps, fit } =
            Groups::told_apart(&self.overlaps, self.ops.columns, self.windows.len(), first, limits);
        let place: FxHashMap<usize, usize> = members
            .iter()
            .enumerate()
            .flat_map(|(at, columns)| columns.iter().map(move |column| (*column, at)))
            .collect();
        let design = Design::new(&overlaps, members.len(), self.windows.len());
        let others = self.signals.iter().skip(1).map(|(signal, values)| {
            let mut fit = design.fit(values);
            design.conserve(values, &mut fit);
            (*signal, fit)
        });
        let fits: Vec<(Signal, Fit)> = std::iter::once((self.signals[0].0, fit)).chain(others).collect();
        let launches = self.launches();
        let total = self.ops.total_ns();
        let mut calls = vec![0u64; self.ops.columns];
        self.ops.rows.iter().for_each(|row| calls[row.2 as usize] += 1);
        let mut rows = Vec::new();
        for (column, key) in self.keys.iter().enumerate() {
            let (Some((stage, name, shape)), Some(&at)) = (key, place.get(&column)) else { continue };
            if launches[column] < LEAST_LAUNCHES {
                continue;
            }
            let others = members[at].iter().filter(|other| **other != column);
            let others: Vec<String> = others.map(|other| self.name(trace, *other)).collect();
            let duration_ns = total[column] as f64 / calls[column].max(1) as f64;
            let (readings, sampled, dram_pct) = self.readings(&fits, at, duration_ns, others);
            let (launches, (grid, block)) = (launches[column], *shape);
            let blocks = (grid != [0; 3]).then(|| grid.iter().map(|n| u64::from(*n)).product());
            let mut verdict = verdict(&readings, blocks, gpu.and_then(|gpu| gpu.sms).map(u64::from));
            if !sampled.together_with.is_empty() {
                let reason = together(&sampled.together_with, dram_pct);
                verdict = Verdict { bound: None, reached_pct: None, reason };
            }
            rows.push(Measured {
                row: CounterRow {
                    stage: stage.map(|stage| index.name(stage).to_owned()),
                    kernel: trace.names.get(*name).to_owned(),
                    grid,
                    block,
                    source: CounterSource::Sampled,
                    samples: launches,
                    bound: verdict.bound.map(|bound| bound.to_string()),
                    reason: format!(
                        "{}; sampled while {launches} launches ran; flops are not sampled",
                        verdict.reason
                    ),
                    sampled: Some(sampled),
                    ..readings.row()
                },
                bound: verdict.bound,
                reached_pct: verdict.reached_pct,
                representative: Some(true),
                matched: true,
                timeline_calls: calls[column],
                timeline_total_ns: total[column],
                readings,
                advice: Vec::new(),
            });
        }
        rows
    }

    /// Returns the readings of a launch of `ns`, in the group `at` of the fits, that stand on a narrow interval, and their intervals. Those of a
    /// kernel that is not told apart from others are unknown; the last number is the traffic of all of them, % of the bandwidth.
    fn readings(
        &self,
        fits: &[(Signal, Fit)],
        at: usize,
        ns: f64,
        others: Vec<String>,
    ) -> (Readings, SampledInterval, Option<f64>) {
        let alone = others.is_empty();
        let rate = |wanted: Signal| {
            let (_, fit) = fits.iter().find(|(signal, _)| *signal == wanted)?;
            let mut rate = *fit.rates.get(at)?;
            // Whole percents of a window are many of a kernel that fills little of it.
            if !self.counts_bytes {
                let percent = if wanted == Signal::Dram { 0.01 } else { 1.0 };
                rate.half += percent * (self.alignment.interval as f64 / ns.max(1.0)).max(1.0);
            }
            Some(rate).filter(|rate| rate.half.is_finite())
        };
        let end = |value: f64| value.clamp(0.0, 100.0);
        let share = |signal: Signal| {
            Some(end(rate(signal).filter(|rate| alone && rate.half <= MOST_HALF_PCT)?.value))
        };
        let with_ends = |signal: Signal| {
            let rate = rate(signal).filter(|_| alone)?;
            Some([end(rate.value), end(rate.value - rate.half), end(rate.value + rate.half)])
        };
        let [tensor_pct, issue_pct, l2_pct] = [Signal::Tensor, Signal::Issue, Signal::L2].map(share);
        let mut interval = SampledInterval {
            dram_bytes: None,
            tensor_pct: with_ends(Signal::Tensor),
            sm_active_pct: with_ends(Signal::SmActive),
            together_with: others,
        };
        let (mut dram_bytes, mut dram_pct, mut together_pct) = (None, None, None);
        let pct = |rate: f64| self.bandwidth.map(|peak| 100.0 * rate / peak);
        match rate(Signal::Dram) {
            Some(rate) if alone => {
                let half_pct = pct(rate.half).unwrap_or(f64::INFINITY);
                if self.counts_bytes {
                    // Little traffic is known by its share of the peak.
                    let is_narrow = half_pct <= MOST_HALF_PCT / 3.0 || rate.half <= MOST_HALF * rate.value;
                    let ends = [(rate.value - rate.half).max(0.0) * ns, (rate.value + rate.half) * ns];
                    interval.dram_bytes = Some(ends);
                    dram_bytes = is_narrow.then_some(rate.value * ns);
                }
                dram_pct = pct(rate.value).filter(|_| half_pct <= MOST_HALF_PCT);
            }
            rate => together_pct = rate.and_then(|rate| pct(rate.value)),
        }
        let most = |one: Option<f64>, other: Option<f64>| one.zip(other).map(|(one, other)| one.max(other));
        // Its floating-point operations are at most the executed instructions, and those of the tensor pipe take as long as that is
        // active; where neither exceeds the share of the bandwidth, memory is the roof.
        let at_roof = most(dram_pct, tensor_pct).map(|reached| reached.min(100.0));
        let readings = Readings {
            duration_ns: Some(ns),
            sm_pct: most(tensor_pct, issue_pct),
            memory_pct: most(dram_pct, l2_pct),
            dram_pct,
            l2_pct,
            dram_bytes,
            roof_pct: at_roof.filter(|reached| *reached >= issue_pct.unwrap_or(f64::INFINITY)),
            ..Readings::default()
        };
        (readings, interval, together_pct)
    }

    fn name(&self, trace: &Trace, column: usize) -> String {
        let key = self.keys[column];
        key.map_or("copies, memory sets and rare kernels", |(_, name, _)| trace.names.get(name)).to_owned()
    }

    /// Counts the launches of each column in the windows.
    fn launches(&self) -> Vec<u64> {
        let mut launches = vec![0; self.ops.columns];
        let mut first = 0;
        for (start, end, column) in &self.ops.rows {
            while self.windows.get(first).is_some_and(|window| window.1 <= *start) {
                first += 1;
            }
            launches[*column as usize] +=
                u64::from(self.windows.get(first).is_some_and(|window| window.0 < *end));
        }
        launches
    }
}

fn together(others: &[String], dram_pct: Option<f64>) -> String {
    let named: Vec<&str> = others.iter().take(2).map(|name| name.get(..60).unwrap_or(name)).collect();
    let more = match others.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let dram = dram_pct.map_or(String::new(), |pct| format!("; together DRAM {pct:.1} %"));
    format!("the samples do not tell it apart from {}{more}{dram}", named.join(", "))
}

/// Numbers the operations of a device by stage, kernel and shape.
fn columns(
    trace: &Trace,
    index: &StageIndex,
    counters: &SampledCounters,
) -> (DeviceOps, Vec<Key>, Vec<Option<usize>>) {
    let ops = &trace.ops;
    let key = |row: usize| -> (Option<usize>, Key) {
        let (stage, shape) = (index.stage_of_op(row), ops.shape_of(row));
        let kernel =
            (ops.kind[row] == OpKind::Kernel).then(|| (stage, ops.name[row], (shape.grid, shape.block)));
        (stage, kernel)
    };
    let mut total: FxHashMap<(Option<usize>, Key), Ns> = FxHashMap::default();
    for row in (0..ops.len()).filter(|row| ops.device[*row] == counters.device) {
        *total.entry(key(row)).or_default() += ops.duration(row);
    }
    let mut order: Vec<((Option<usize>, Key), Ns)> = total.into_iter().collect();
    order.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    // The rest of each stage shares a column.
    let mut numbers: FxHashMap<(Option<usize>, Key), u32> = FxHashMap::default();
    let (mut keys, mut stages) = (Vec::new(), Vec::new());
    for (at, (key, _)) in order.into_iter().enumerate() {
        let shown = if at < MOST_KERNELS { key } else { (key.0, None) };
        let number = *numbers.entry(shown).or_insert_with(|| {
            keys.push(shown.1);
            stages.push(shown.0);
            keys.len() as u32 - 1
        });
        numbers.insert(key, number);
    }
    let number = |row: usize| numbers.get(&key(row)).copied().unwrap_or_default();
    (DeviceOps::of(trace, counters.device, number), keys, stages)
}

/// Returns the values of a signal in windows; `None` where its counters were not sampled.
fn signal_values(signal: Signal, counters: &SampledCounters, used: &[usize]) -> Option<Vec<f64>> {
    let length = |at: usize| (counters.windows[at].1 - counters.windows[at].0) as f64;
    let of = |metric: SampledMetric| {
        let values = counters.values(metric)?;
        let value = |at: &usize| {
            let value = f64::from(values[*at]);
            let value = if metric.is_count() { value } else { value * length(*at) };
            if value.is_finite() { value } else { 0.0 }
        };
        Some(used.iter().map(value).collect::<Vec<f64>>())
    };
    let sum =
        |one: Vec<f64>, other: Vec<f64>| one.iter().zip(other).map(|(a, b)| a + b).collect::<Vec<f64>>();
    match signal {
        Signal::Dram => match (of(SampledMetric::DramReadBytes), of(SampledMetric::DramWrittenBytes)) {
            (Some(read), Some(written)) => Some(sum(read, written)),
            _ => {
                let parts = of(SampledMetric::DramReadPct).zip(of(SampledMetric::DramWrittenPct));
                let shares = parts.map(|(read, written)| sum(read, written));
                let shares = shares.or_else(|| of(SampledMetric::DramPct))?;
                Some(shares.into_iter().map(|share| share / 100.0).collect())
            }
        },
        Signal::Tensor => of(SampledMetric::TensorPct),
        Signal::Issue => of(SampledMetric::SmIssuePct),
        Signal::SmActive => of(SampledMetric::SmActivePct),
        Signal::L2 => of(SampledMetric::L2Pct),
    }
}

/// Samples of a stage on one device.
#[derive(Debug, Clone, Default)]
struct StageSum {
    busy_ns: f64,
    samples: u64,
    signals: [f64; 5],
}

/// Puts the devices of a stage together, and scales sums to the whole stage by its busy time.
fn measured(sums: &[(&StageSum, &Lane)], stage: &Stage) -> Option<MbuMeasured> {
    let sampled_ns: f64 = sums.iter().map(|(sum, _)| sum.busy_ns).sum();
    let (_, first) = sums.first().filter(|_| sampled_ns > 0.0)?;
    let busy_ns = stage.busy_ns.map_or(sampled_ns, |ns| (ns as f64).max(sampled_ns));
    let mean = |signal: Signal| {
        let known = sums.iter().all(|(_, lane)| lane.values(signal).is_some());
        known.then(|| sums.iter().map(|(sum, _)| sum.signals[signal as usize]).sum::<f64>() / sampled_ns)
    };
    let rate = mean(Signal::Dram);
    let pct = |rate: f64| first.bandwidth.map(|peak| 100.0 * rate / peak);
    let counted = rate.filter(|_| sums.iter().all(|(_, lane)| lane.counts_bytes));
    let dram_bytes = counted.map(|rate| rate * busy_ns);
    let elapsed_ns = stage.elapsed_ns() as f64 * sums.len() as f64;
    let steps = stage.steps.as_ref().filter(|steps| steps.count > 0);
    let modelled = stage.mbu.as_ref().map(|mbu| mbu.bytes).filter(|bytes| *bytes > 0.0);
    let mut intervals: Vec<f64> = sums.iter().map(|(_, lane)| lane.alignment.interval as f64).collect();
    Some(MbuMeasured {
        dram_bytes,
        source: None,
        step_dram_bytes: dram_bytes.zip(steps).map(|(bytes, steps)| bytes / steps.count as f64),
        bandwidth_bytes_per_s: counted.map(|rate| rate * 1e9),
        by_wall_pct: rate.filter(|_| elapsed_ns > 0.0).and_then(|rate| pct(rate * busy_ns / elapsed_ns)),
        by_busy_pct: rate.and_then(pct),
        sm_active_pct: mean(Signal::SmActive),
        tensor_active_pct: mean(Signal::Tensor),
        to_model: dram_bytes.zip(modelled).map(|(measured, modelled)| measured / modelled),
        samples: sums.iter().map(|(sum, _)| sum.samples).sum(),
        interval_ns: median_f64(&mut intervals).unwrap_or_default() as i64,
        covered_pct: 100.0 * sampled_ns / busy_ns,
        clock_shift_ns: first.alignment.shift,
        clock_error_ns: sums.iter().map(|(_, lane)| lane.alignment.error).max().unwrap_or_default(),
    })
}
