//! The rows of `counters[]`: every kernel and launch shape that ncu measured, beside the same in the timeline.

use super::readings::{Bound, NEAR_ROOF_PCT, Readings, Verdict, verdict};
use super::{CanonicalNames, advice, canonical};
use crate::gpu::GpuFacts;
use crate::result::{CounterRow, CounterSource, Kernel, NcuRule, RoofSource};
use crate::roof::{RoofSums, RoofTime};
use crate::stages::{NamedPlace, StageIndex, StageSet};
use crate::timeline::Grouped;
use roofgap_base::stats::median_f64;
use roofgap_trace::ncu::{CounterSet, LaunchCounters};
use roofgap_trace::{LossKind, Losses, NameId, OpKind, Trace};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Durations under ncu within this ratio of the timeline's are taken for the same behaviour.
pub const REPRESENTATIVE: RangeInclusive<f64> = 0.67..=1.5;

/// A row of counters with what findings need beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The row as it is printed.
    pub row: CounterRow,
    /// Limiting resource.
    pub bound: Option<Bound>,
    /// The share of its peak that the binding unit reached.
    pub reached_pct: Option<f64>,
    /// True if the duration under ncu is close to the timeline's; `None` without a timeline.
    pub representative: Option<bool>,
    /// True if the timeline has the kernel and launch shape.
    pub matched: bool,
    /// Launches of it in the timeline.
    pub timeline_calls: u64,
    /// Time of it in the timeline.
    pub timeline_total_ns: i64,
    /// The counters by meaning.
    pub readings: Readings,
    /// Advice of ncu's own rules.
    pub advice: Vec<NcuRule>,
}

/// Counters joined with a timeline.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// The rows: stage by stage in the order of the stages, most time first.
    pub measured: Vec<Measured>,
    /// Counters that could not be read or matched.
    pub losses: Losses,
}

impl Joined {
    /// Puts the rows in their order.
    pub fn sort(&mut self, stages: &StageSet) {
        self.measured.sort_by_cached_key(|measured| {
            let row = &measured.row;
            let mut rules = stages.stages.iter();
            let stage = rules.position(|rule| Some(&rule.name) == row.stage.as_ref()).unwrap_or(usize::MAX);
            let own_ns = if measured.matched { 0 } else { row.duration_ns.unwrap_or(0) };
            (stage, Reverse(measured.timeline_total_ns.max(own_ns)), row.kernel.clone(), row.grid)
        });
    }

    /// The rows as they are printed.
    pub fn rows(&self) -> Vec<CounterRow> {
        self.measured.iter().map(|measured| measured.row.clone()).collect()
    }
}

/// Launches of one kernel and launch shape in one place.
struct Group<'a> {
    stage: NamedPlace,
    /// Canonical name.
    form: Rc<str>,
    shape: Option<Shape>,
    samples: Vec<(&'a CounterSet, usize, &'a LaunchCounters)>,
}

/// Merges the pages of one report, which describe the same launches.
pub fn merge(sets: &[CounterSet]) -> Cow<'_, [CounterSet]> {
    if sets.len() < 2 {
        return Cow::Borrowed(sets);
    }
    let mut report = CounterSet::default();
    sets.iter().for_each(|set| report.absorb(set.clone()));
    Cow::Owned(vec![report])
}

/// Joins counters with a timeline, which may be empty. Rows that match nothing are there too.
pub fn join(sets: &[CounterSet], timeline: &Timeline, stages: &StageSet, gpu: Option<&GpuFacts>) -> Joined {
    // Counted apart, pages of one report would pass for more samples.
    let sets = merge(sets);
    let mut forms = CanonicalNames::default();
    let mut groups: Grouped<_, Group<'_>> = Grouped::default();
    let mut joined = Joined::default();
    for set in sets.iter() {
        joined.losses.merge(&set.losses);
        for (at, launch) in set.launches.iter().enumerate() {
            let (stage, form) = (stages.place(&launch.nvtx), forms.form(&launch.kernel));
            let shape = launch.grid.zip(launch.block);
            let group = groups.entry((stage, Rc::clone(&form), shape), || Group {
                stage,
                form,
                shape,
                samples: Vec::new(),
            });
            group.samples.push((set, at, launch));
        }
    }
    joined.measured = groups.items.iter().map(|group| measure(group, timeline, stages, gpu)).collect();
    let unmatched = joined.measured.iter().filter(|measured| !measured.matched).count();
    if !timeline.is_empty() {
        joined.losses.add(LossKind::CounterUnmatched, unmatched as u64);
    }
    joined.sort(stages);
    joined
}

/// The kernels of the timeline that a row is about.
#[derive(Default)]
struct Match<'a> {
    kernels: Vec<&'a TimelineKernel>,
    /// The timeline knows the name, not the launch shape.
    by_name_only: bool,
}

impl<'a> Match<'a> {
    fn find(group: &Group<'_>, timeline: &'a Timeline, stage: Option<&str>) -> Self {
        let sample = group.samples.first();
        let spelled = sample.map_or("", |(_, _, launch)| launch.kernel.as_str());
        let named = timeline.find(spelled, &group.form);
        let of_shape = |shape: Option<Shape>| -> Vec<&TimelineKernel> {
            named.iter().filter(|kernel| kernel.shape == shape).copied().collect()
        };
        let shaped = group.shape.map_or_else(Vec::new, |shape| of_shape(Some(shape)));
        if shaped.is_empty() {
            return Self { by_name_only: !named.is_empty(), kernels: of_shape(None) };
        }
        // Those of the stage; of a launch without one, those in any.
        let in_stage = |kernel: &&&TimelineKernel| match stage {
            Some(_) => kernel.stage.as_deref() == stage,
            None => kernel.stage.is_some(),
        };
        let staged: Vec<&TimelineKernel> = shaped.iter().filter(in_stage).copied().collect();
        let kernels = if staged.is_empty() { shaped } else { staged };
        Self { kernels, by_name_only: false }
    }

    /// The one stage in which it occurs.
    fn stage(&self) -> Option<&'a str> {
        let first = self.kernels.first()?.stage.as_deref();
        self.kernels.iter().all(|kernel| kernel.stage.as_deref() == first).then_some(first).flatten()
    }

    /// The median of the group with the most launches: medians of medians mean nothing.
    fn median_ns(&self) -> Option<f64> {
        let largest = self.kernels.iter().max_by_key(|kernel| kernel.calls)?;
        Some(largest.median_ns).filter(|ns| *ns > 0.0)
    }
}

fn measure(group: &Group<'_>, timeline: &Timeline, stages: &StageSet, gpu: Option<&GpuFacts>) -> Measured {
    let own_stage = match group.stage {
        NamedPlace::Stage(at) => stages.stages.get(at).map(|rule| rule.name.as_str()),
        NamedPlace::Step(name) => Some(name),
        NamedPlace::Warmup | NamedPlace::Outside => None,
    };
    let matched = Match::find(group, timeline, own_stage);
    let readings = Readings::mean(
        group.samples.iter().map(|(set, _, launch)| Readings::from_launch(set, launch)).collect(),
    );
    let blocks = group.shape.map(|(grid, _)| grid.iter().map(|n| u64::from(*n)).product());
    let sms = readings.sms.map(|sms| sms as u64).or_else(|| gpu.and_then(|gpu| gpu.sms).map(u64::from));
    let mut verdict = verdict(&readings, blocks, sms);
    let point = gpu.and_then(|gpu| Roofline::from_readings(&readings, gpu));
    near_peak(&mut verdict, point.as_ref());
    let timeline_ratio =
        readings.duration_ns.zip(matched.median_ns()).map(|(measured, timed)| measured / timed);
    let stage = if group.stage == NamedPlace::Outside { matched.stage() } else { own_stage };
    let mut reasons = vec![verdict.reason];
    reasons.extend(notes(group, &readings, point.as_ref()));
    reasons.extend(match_note(group, &matched, timeline, timeline_ratio));
    let first = group.samples.first();
    let name = matched.kernels.first().map(|kernel| &kernel.name);
    let (grid, block) = group.shape.unwrap_or_default();
    Measured {
        row: CounterRow {
            stage: stage.map(str::to_owned),
            kernel: name.or(first.map(|(_, _, launch)| &launch.kernel)).cloned().unwrap_or_default(),
            grid,
            block,
            samples: group.samples.len() as u64,
            timeline_ratio,
            bound: verdict.bound.map(|bound| bound.to_string()),
            reason: reasons.join("; "),
            ..readings.row()
        },
        bound: verdict.bound,
        reached_pct: verdict.reached_pct,
        representative: timeline_ratio.map(|ratio| REPRESENTATIVE.contains(&ratio)),
        matched: !matched.kernels.is_empty(),
        timeline_calls: matched.kernels.iter().map(|kernel| kernel.calls).sum(),
        timeline_total_ns: matched.kernels.iter().map(|kernel| kernel.total_ns).sum(),
        advice: first.map(|(set, at, _)| advice(set, *at)).unwrap_or_default(),
        readings,
    }
}

/// Makes a launch whose operations are near their peak one that arithmetic holds back: the counters of some GPUs leave out units that do it.
fn near_peak(verdict: &mut Verdict, point: Option<&Roofline>) {
    let near = point.filter(|point| point.of_compute && point.reached_pct >= NEAR_ROOF_PCT);
    if let Some(point) = near.filter(|_| verdict.bound == Some(Bound::Latency)) {
        let reason = format!("its operations are at {NEAR_ROOF_PCT} % of their peak or more");
        let reached_pct = Some(point.reached_pct.min(100.0));
        *verdict = Verdict { bound: Some(Bound::Compute), reached_pct, reason };
    }
}

/// Says what else is known of a row, and what is not.
fn notes(group: &Group<'_>, readings: &Readings, point: Option<&Roofline>) -> Vec<String> {
    let reached =
        point.map(|at| format!("{:.1} % of what the roofline allows ({})", at.reached_pct, at.roof));
    let unknown = match &readings.work {
        Some(work) if work.tensor_uncounted => {
            Some("flops unknown: tensor instructions ran and their operations were not counted")
        }
        None => Some("flops unknown: no counter of work was collected"),
        Some(_) => None,
    };
    let warmup = (group.stage == NamedPlace::Warmup).then_some("launched inside a warm-up");
    reached.into_iter().chain([unknown, warmup].into_iter().flatten().map(str::to_owned)).collect()
}

fn match_note(
    group: &Group<'_>,
    matched: &Match<'_>,
    timeline: &Timeline,
    ratio: Option<f64>,
) -> Option<String> {
    let note = match (matched.kernels.is_empty(), matched.by_name_only) {
        _ if timeline.is_empty() => return None,
        (true, true) => "not in the timeline with this grid and block",
        (true, false) => "not in the timeline",
        (false, by_name) => {
            if let Some(ratio) = ratio.filter(|ratio| !REPRESENTATIVE.contains(ratio)) {
                let locked = group.samples.iter().any(|(_, _, launch)| launch.clocks_locked == Some(true));
                let why = if locked { "; ncu held the clocks at base" } else { "" };
                let (low, high) = (REPRESENTATIVE.start(), REPRESENTATIVE.end());
                return Some(format!(
                    "not representative: {ratio:.2} times the timeline's median, outside {low} to {high}{why}"
                ));
            }
            by_name.then_some("matched by name alone: the timeline has no launch shapes")?
        }
    };
    Some(note.to_owned())
}

/// Puts beside each kernel of a table the row of its launch shape with the most time, of the table's stage.
pub fn attach(kernels: &mut [Kernel], joined: &Joined, stage: Option<&str>) {
    let mut longest: FxHashMap<&str, &Measured> = FxHashMap::default();
    let in_stage = joined
        .measured
        .iter()
        .filter(|measured| measured.matched && (stage.is_none() || measured.row.stage.as_deref() == stage));
    for measured in in_stage {
        let known = longest.entry(&measured.row.kernel).or_insert(measured);
        if measured.timeline_total_ns >= known.timeline_total_ns {
            *known = measured;
        }
    }
    for kernel in kernels {
        kernel.counters = longest.get(kernel.name.as_str()).map(|measured| measured.row.clone());
    }
}

/// Blocks of a grid, and threads of a block.
pub type Shape = ([u32; 3], [u32; 3]);

/// One kernel with one launch shape in one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineKernel {
    /// The stage; `None` outside of all.
    pub stage: Option<String>,
    /// The name as the timeline has it.
    pub name: String,
    /// Launch shape; `None` where the timeline does not say.
    pub shape: Option<Shape>,
    /// Median duration.
    pub median_ns: f64,
    /// Launches.
    pub calls: u64,
    /// Time in all.
    pub total_ns: i64,
}

/// The kernels of a timeline, found by any tool's name for them.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub kernels: Vec<TimelineKernel>,
    /// Positions by the name as the timeline has it.
    by_name: FxHashMap<String, Vec<usize>>,
    /// Positions by canonical name.
    by_form: FxHashMap<String, Vec<usize>>,
}

impl Timeline {
    /// Indexes kernels.
    pub fn new(kernels: Vec<TimelineKernel>) -> Self {
        let mut forms = CanonicalNames::default();
        let mut timeline = Self::default();
        for (at, kernel) in kernels.iter().enumerate() {
            timeline.by_name.entry(kernel.name.clone()).or_default().push(at);
            timeline.by_form.entry(forms.form(&kernel.name).to_string()).or_default().push(at);
        }
        Self { kernels, ..timeline }
    }

    /// Groups the kernels of a trace by the stages of its index.
    pub fn of_stages(trace: &Trace, index: &StageIndex) -> Self {
        let ops = &trace.ops;
        let mut groups: FxHashMap<(Option<&str>, NameId, Shape), Vec<i64>> = FxHashMap::default();
        for row in (0..ops.len()).filter(|row| ops.kind[*row] == OpKind::Kernel) {
            let (stage, shape) = (index.stage_of_op(row), ops.shape_of(row));
            let key = (stage.map(|stage| index.name(stage)), ops.name[row], (shape.grid, shape.block));
            groups.entry(key).or_default().push(ops.duration(row));
        }
        let mut kernels: Vec<TimelineKernel> = groups
            .into_iter()
            .map(|((stage, name, shape), durations)| TimelineKernel {
                stage: stage.map(str::to_owned),
                name: trace.names.get(name).to_owned(),
                shape: Some(shape).filter(|(grid, _)| *grid != [0; 3]),
                calls: durations.len() as u64,
                total_ns: durations.iter().sum(),
                median_ns: median_f64(&mut durations.iter().map(|ns| *ns as f64).collect::<Vec<_>>())
                    .unwrap_or_default(),
            })
            .collect();
        kernels.extend(trace.kernel_totals.iter().filter(|_| ops.is_empty()).filter_map(|total| {
            Some(TimelineKernel {
                stage: None,
                name: trace.names.get(total.name).to_owned(),
                shape: None,
                median_ns: total.median_ns?,
                calls: total.calls,
                total_ns: total.total_ns,
            })
        }));
        kernels.sort_by(|a, b| (&a.stage, &a.name, a.shape).cmp(&(&b.stage, &b.name, b.shape)));
        Self::new(kernels)
    }

    /// Tells whether there are no kernels.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// Finds the kernels of a name. Two kernels may share a canonical name; the one that is spelled the same is meant then.
    pub fn find(&self, spelled: &str, form: &str) -> Vec<&TimelineKernel> {
        let positions = self.by_name.get(spelled).or_else(|| self.by_form.get(form));
        positions.into_iter().flatten().filter_map(|at| self.kernels.get(*at)).collect()
    }
}

/// A point under a roofline.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// Achieved share of the rate that is attainable at its intensity: the lower of peak and bandwidth x intensity, %.
    pub reached_pct: f64,
    /// The peak is the lower of the two.
    pub of_compute: bool,
    /// The lower of the two, in words.
    pub roof: String,
}

impl Roofline {
    /// The point of a launch; `None` where work, bytes, time or a roof is not known.
    pub fn from_readings(readings: &Readings, gpu: &GpuFacts) -> Option<Self> {
        let work = readings.work.as_ref()?;
        let flops = work.flops().filter(|flops| *flops > 0.0)?;
        let bytes = readings.dram_bytes.filter(|bytes| *bytes > 0.0)?;
        let seconds = readings.duration_ns.filter(|ns| *ns > 0.0)? * 1e-9;
        let kind = work.main_kind()?;
        let peak = gpu.peak_of(kind)?.flops_per_s;
        let (bandwidth, _) = gpu.bandwidth()?;
        let by_bandwidth = flops / bytes * bandwidth;
        Some(Self {
            reached_pct: 100.0 * (flops / seconds) / by_bandwidth.min(peak),
            of_compute: peak <= by_bandwidth,
            roof: match by_bandwidth < peak {
                true => format!("{:.0} GB/s", bandwidth / 1e9),
                false => format!("{} peak", kind.name()),
            },
        })
    }
}

/// Returns the time of a launch at the roof, ns; `None` where its operations, its bytes or a peak are not known.
fn roof_ns(readings: &Readings, gpu: &GpuFacts) -> Option<f64> {
    if let Some(pct) = readings.roof_pct {
        return Some(readings.duration_ns? * pct / 100.0);
    }
    let work = readings.work.as_ref()?;
    let peak = work.main_kind().and_then(|kind| gpu.peak_of(kind));
    gpu.roof_ns(work.flops()?, readings.dram_bytes?, peak)
}

/// Adds up the launches of a timeline whose kernel and launch shape were measured in their stage.
pub fn roofs(joined: &Joined, timeline: &Timeline, gpu: &GpuFacts) -> RoofSums {
    let mut known: FxHashMap<(Option<&str>, &str, Shape), (f64, RoofSource)> = FxHashMap::default();
    for measured in &joined.measured {
        let usable = measured.matched && measured.representative != Some(false);
        if let Some(ns) = roof_ns(&measured.readings, gpu).filter(|_| usable) {
            let row = &measured.row;
            let source = match row.source {
                CounterSource::Ncu => RoofSource::Counters,
                CounterSource::Sampled => RoofSource::Sampled,
            };
            known.insert((row.stage.as_deref(), &row.kernel, (row.grid, row.block)), (ns, source));
        }
    }
    let mut sums = RoofSums::default();
    for kernel in timeline.kernels.iter().filter(|_| !known.is_empty()) {
        let (stage, name) = (kernel.stage.as_deref(), kernel.name.as_str());
        let Some(shape) = kernel.shape else { continue };
        // Counters without ranges do not tell the stage.
        let time = known.get(&(stage, name, shape)).or_else(|| known.get(&(None, name, shape)));
        if let Some(&(ns, source)) = time {
            let roof_ns = ns * kernel.calls as f64;
            let took = RoofTime { total_ns: kernel.total_ns, roof_ns, source };
            sums.add(stage, name, took);
        }
    }
    sums
}

/// Adds up measured launches without a timeline, under the names of the table of kernels.
pub fn roofs_alone(joined: &Joined, kernels: &[Kernel], gpu: &GpuFacts) -> RoofSums {
    let names: FxHashMap<String, &str> =
        kernels.iter().map(|kernel| (canonical(&kernel.name), kernel.name.as_str())).collect();
    let mut sums = RoofSums::default();
    for Measured { row, readings, .. } in &joined.measured {
        if let (Some(ns), Some(roof_ns), Some(name)) =
            (row.duration_ns, roof_ns(readings, gpu), names.get(&canonical(&row.kernel)))
        {
            let (total_ns, roof_ns) = (ns.saturating_mul(row.samples as i64), roof_ns * row.samples as f64);
            sums.add(None, name, RoofTime { total_ns, roof_ns, source: RoofSource::Counters });
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::super::join::TimelineKernel;
    use super::super::readings::Work;
    use super::*;
    use crate::gpu::WorkKind;
    use crate::result::CounterRow;

    /// A device of 100 TFLOP/s and 1000 GB/s.
    fn gpu() -> GpuFacts {
        let mut gpu = crate::gpu::lookup("NVIDIA H200", Some((9, 0)), None).expect("in the table").clone();
        (gpu.stated_tflops, gpu.bandwidth_gbs) = (Some(100.0), Some(1000.0));
        gpu
    }

    fn readings(flops: f64, bytes: f64) -> Readings {
        Readings {
            dram_bytes: Some(bytes),
            work: Some(Work { by_kind: vec![(WorkKind::TensorBf16, flops)], tensor_uncounted: false }),
            ..Readings::default()
        }
    }

    fn measured(stage: Option<&str>, grid: u32, readings: Readings) -> Measured {
        Measured {
            row: CounterRow {
                stage: stage.map(str::to_owned),
                kernel: "gemm".to_owned(),
                grid: [grid, 1, 1],
                block: [128, 1, 1],
                samples: 2,
                duration_ns: Some(4_000),
                ..CounterRow::default()
            },
            bound: None,
            reached_pct: None,
            representative: Some(true),
            matched: true,
            timeline_calls: 1,
            timeline_total_ns: 1,
            readings,
            advice: Vec::new(),
        }
    }

    fn launched(stage: &str, grid: u32, calls: u64, total_ns: i64) -> TimelineKernel {
        TimelineKernel {
            stage: Some(stage.to_owned()),
            name: "gemm".to_owned(),
            shape: Some(([grid, 1, 1], [128, 1, 1])),
            median_ns: 1.0,
            calls,
            total_ns,
        }
    }

    /// Some GPUs do not count all units that do arithmetic.
    #[test]
    fn operations_near_their_peak_are_the_limit() {
        let bound = |mut readings: Readings| {
            (readings.sm_pct, readings.dram_pct, readings.duration_ns) =
                (Some(40.0), Some(30.0), Some(2_500.0));
            let mut verdict = verdict(&readings, Some(4096), Some(132));
            let point = Roofline::from_readings(&readings, &gpu());
            near_peak(&mut verdict, point.as_ref());
            verdict.bound
        };
        assert_eq!(bound(readings(2e8, 1e3)), Some(Bound::Compute));
        assert_eq!(bound(readings(1e8, 1e3)), Some(Bound::Latency));
        assert_eq!(bound(readings(2e8, 2.4e6)), Some(Bound::Latency), "at the bandwidth");
    }

    #[test]
    fn the_greater_of_compute_and_memory_is_the_roof() {
        // 2e8 FLOPs at 1e14 per second take 2 µs; 1e6 bytes at 1e12 per second take 1 µs.
        assert_eq!(roof_ns(&readings(2e8, 1e6), &gpu()), Some(2_000.0));
        assert_eq!(roof_ns(&readings(2e8, 5e6), &gpu()), Some(5_000.0));
        assert_eq!(roof_ns(&readings(0.0, 5e6), &gpu()), Some(5_000.0));
        let mut unknown = readings(2e8, 1e6);
        unknown.dram_bytes = None;
        assert_eq!(roof_ns(&unknown, &gpu()), None);
        let mut uncounted = readings(2e8, 1e6);
        uncounted.work.as_mut().expect("work").tensor_uncounted = true;
        assert_eq!(roof_ns(&uncounted, &gpu()), None);
        let mut no_peaks = gpu();
        no_peaks.bandwidth_gbs = None;
        assert_eq!(roof_ns(&readings(2e8, 1e6), &no_peaks), None);
    }

    #[test]
    fn launches_count_once_and_only_where_their_shape_was_measured() {
        let joined = Joined {
            measured: vec![
                measured(Some("decode"), 8, readings(2e8, 1e6)),
                measured(None, 16, readings(0.0, 3e6)),
            ],
            ..Joined::default()
        };
        let timeline = Timeline::new(vec![
            // 10 launches of 2 µs at the roof took 50 µs.
            launched("decode", 8, 10, 50_000),
            // Of a shape that was measured without a stage: 5 launches of 3 µs took 20 µs.
            launched("decode", 16, 5, 20_000),
            launched("prefill", 8, 1, 9_000),
            launched("decode", 32, 1, 9_000),
        ]);
        let sums = roofs(&joined, &timeline, &gpu());
        let decode = sums.of_stage("decode").distance();
        assert_eq!(decode.above_roof_ns, Some(30_000 + 5_000));
        assert_eq!(decode.roof_covered_ns, Some(70_000));
        assert_eq!(decode.roof_pct, Some(50.0));
        assert_eq!(sums.of_kernel(None, "gemm").distance(), decode);
        assert_eq!(sums.of_stage("prefill").distance().roof_pct, None);
    }

    #[test]
    fn measured_launches_without_a_timeline_take_their_own_time() {
        let joined = Joined { measured: vec![measured(None, 8, readings(2e8, 1e6))], ..Joined::default() };
        let kernel = Kernel { name: "gemm".to_owned(), ..Kernel::default() };
        let sums = roofs_alone(&joined, &[kernel], &gpu());
        let gemm = sums.of_kernel(None, "gemm").distance();
        assert_eq!((gemm.roof_covered_ns, gemm.above_roof_ns), (Some(8_000), Some(4_000)));
    }
}
