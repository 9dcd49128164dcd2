//! The rows of `counters[]`: every kernel and launch shape that ncu measured, beside the same in the timeline.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use roofgap_trace::ncu::{CounterSet, LaunchCounters};
use roofgap_trace::{LossKind, Losses};
use rustc_hash::FxHashMap;

use super::advice::Advice;
use super::bound::{Bound, Inputs, verdict};
use super::names::canonical;
use super::readings::Readings;
use super::roofline::Roofline;
use super::timeline::{Timeline, TimelineKernel};
use crate::gpu::GpuFacts;
use crate::result::{CounterRow, Kernel};
use crate::stages::{NamedPlace, StageSet};

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
    /// Point under the roofline, where the device's roofs are known.
    pub roofline: Option<Roofline>,
    /// Advice of ncu's own rules.
    pub advice: Vec<Advice>,
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
    /// The rows as they are printed.
    pub fn rows(&self) -> Vec<CounterRow> {
        self.measured.iter().map(|measured| measured.row.clone()).collect()
    }
}

/// The key of a row; launches with the same key are its samples.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    stage: NamedPlace,
    kernel: String,
    shape: Option<([u32; 3], [u32; 3])>,
}

struct Group<'a> {
    key: Key,
    samples: Vec<(&'a CounterSet, usize, &'a LaunchCounters)>,
}

/// Merges the pages of one report, which describe the same launches.
pub fn merge(sets: &[CounterSet]) -> Cow<'_, [CounterSet]> {
    if sets.len() < 2 {
        return Cow::Borrowed(sets);
    }
    let mut whole = CounterSet::default();
    sets.iter().for_each(|set| whole.absorb(set.clone()));
    Cow::Owned(vec![whole])
}

/// Joins counters with a timeline, which may be empty. Rows that match nothing are there too.
pub fn join(sets: &[CounterSet], timeline: &Timeline, stages: &StageSet, gpu: Option<&GpuFacts>) -> Joined {
    // Counted apart, pages of one report would pass for more samples.
    let sets = merge(sets);
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut index: FxHashMap<Key, usize> = FxHashMap::default();
    let mut joined = Joined::default();
    for set in sets.iter() {
        joined.losses.merge(&set.losses);
        for (at, launch) in set.launches.iter().enumerate() {
            let key = || Key {
                stage: stages.place(&launch.nvtx),
                kernel: canonical(&launch.kernel),
                shape: launch.grid.zip(launch.block),
            };
            let group = *index.entry(key()).or_insert_with(|| {
                groups.push(Group { key: key(), samples: Vec::new() });
                groups.len() - 1
            });
            if let Some(group) = groups.get_mut(group) {
                group.samples.push((set, at, launch));
            }
        }
    }
    joined.measured = groups.iter().map(|group| measure(group, timeline, stages, gpu)).collect();
    let unmatched = joined.measured.iter().filter(|measured| !measured.matched).count();
    if !timeline.is_empty() {
        joined.losses.add(LossKind::CounterUnmatched, unmatched as u64);
    }
    let order = |stage: &Option<String>| {
        stages.stages.iter().position(|rule| Some(&rule.name) == stage.as_ref()).unwrap_or(usize::MAX)
    };
    joined.measured.sort_by(|a, b| {
        let time = |m: &Measured| {
            m.timeline_total_ns.max(if m.matched { 0 } else { m.row.duration_ns.unwrap_or(0) })
        };
        (order(&a.row.stage), std::cmp::Reverse(time(a)), &a.row.kernel, a.row.grid).cmp(&(
            order(&b.row.stage),
            std::cmp::Reverse(time(b)),
            &b.row.kernel,
            b.row.grid,
        ))
    });
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
        let find = |shape| timeline.find(spelled, &group.key.kernel, shape);
        let shaped = group.key.shape.and_then(|shape| find(Some(shape)));
        let shaped = shaped.unwrap_or_default();
        if shaped.is_empty() {
            let shapeless = find(None);
            return Self { by_name_only: shapeless.is_some(), kernels: shapeless.unwrap_or_default() };
        }
        let staged: Vec<&TimelineKernel> = shaped
            .iter()
            .copied()
            .filter(|kernel| stage.is_some() && kernel.stage.as_deref() == stage)
            .collect();
        let in_stages: Vec<&TimelineKernel> =
            shaped.iter().copied().filter(|kernel| kernel.stage.is_some()).collect();
        let kernels = match (staged.is_empty(), in_stages.is_empty()) {
            (false, _) => staged,
            (true, false) if stage.is_none() => in_stages,
            _ => shaped,
        };
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
    let own_stage = match group.key.stage {
        NamedPlace::Stage(at) => stages.stages.get(at).map(|rule| rule.name.as_str()),
        NamedPlace::Step(name) => Some(name),
        NamedPlace::Warmup | NamedPlace::Outside => None,
    };
    let found = Match::find(group, timeline, own_stage);
    let all: Vec<Readings> = group.samples.iter().map(|(set, _, launch)| Readings::of(set, launch)).collect();
    let readings = Readings::mean(&all);
    let (grid, block) = group.key.shape.unwrap_or_default();
    let blocks = group.key.shape.map(|(grid, _)| grid.iter().map(|n| u64::from(*n)).product());
    let sms = readings.sms.map(|sms| sms as u64).or_else(|| gpu.and_then(|gpu| gpu.sms).map(u64::from));
    let verdict = verdict(&Inputs {
        sm_pct: readings.sm_pct,
        memory_pct: readings.memory_pct,
        dram_pct: readings.dram_pct,
        l2_pct: readings.l2_pct,
        l1_pct: readings.l1_pct,
        blocks,
        sms,
    });
    let roofline = gpu.and_then(|gpu| Roofline::of(&readings, gpu));
    let timeline_ratio = readings.duration_ns.zip(found.median_ns()).map(|(own, other)| own / other);
    let representative = timeline_ratio.map(|ratio| REPRESENTATIVE.contains(&ratio));
    let matched = !found.kernels.is_empty();
    let flops = readings.flops();
    let dram_bytes = readings.dram_bytes;
    let stage = match group.key.stage {
        NamedPlace::Stage(_) | NamedPlace::Step(_) => own_stage,
        NamedPlace::Warmup => None,
        NamedPlace::Outside => found.stage(),
    };
    let clocks_locked = group.samples.iter().any(|(_, _, launch)| launch.clocks_locked == Some(true));
    let mut reasons = vec![verdict.reason];
    if let Some(point) = &roofline {
        reasons.push(format!("{:.1} % of what the roofline allows ({})", point.reached_pct(), point.roof));
    }
    if readings.work.as_ref().is_some_and(|work| work.tensor_uncounted) {
        reasons
            .push("flops unknown: tensor instructions ran and their operations were not counted".to_owned());
    } else if readings.work.is_none() {
        reasons.push("flops unknown: no counter of work was collected".to_owned());
    }
    if group.key.stage == NamedPlace::Warmup {
        reasons.push("launched inside a warm-up".to_owned());
    }
    reasons.extend(match_note(&found, timeline, timeline_ratio, clocks_locked));
    let first = group.samples.first();
    let name = found.kernels.first().map(|kernel| kernel.name.clone());
    Measured {
        row: CounterRow {
            stage: stage.map(str::to_owned),
            kernel: name.or_else(|| first.map(|(_, _, launch)| launch.kernel.clone())).unwrap_or_default(),
            grid,
            block,
            samples: group.samples.len() as u64,
            duration_ns: readings.duration_ns.map(|ns| ns.round() as i64),
            timeline_ratio,
            sm_pct: readings.sm_pct,
            memory_pct: readings.memory_pct,
            dram_pct: readings.dram_pct,
            l2_pct: readings.l2_pct,
            l1_pct: readings.l1_pct,
            occupancy_pct: readings.occupancy_pct,
            dram_bytes: dram_bytes.map(|bytes| bytes.round() as u64),
            flops: flops.map(|flops| flops.round() as u64),
            intensity: flops.zip(dram_bytes.filter(|bytes| *bytes > 0.0)).map(|(flops, bytes)| flops / bytes),
            achieved_flops_per_s: flops
                .zip(readings.duration_ns.filter(|ns| *ns > 0.0))
                .map(|(flops, ns)| flops / (ns * 1e-9)),
            bound: verdict.bound.map(|bound| bound.to_string()),
            reason: reasons.join("; "),
            caches: readings.caches,
        },
        bound: verdict.bound,
        reached_pct: verdict.reached_pct,
        representative,
        matched,
        timeline_calls: found.kernels.iter().map(|kernel| kernel.calls).sum(),
        timeline_total_ns: found.kernels.iter().map(|kernel| kernel.total_ns).sum(),
        advice: first.map(|(set, at, _)| Advice::of(set, *at)).unwrap_or_default(),
        readings,
        roofline,
    }
}

fn match_note(
    found: &Match<'_>,
    timeline: &Timeline,
    ratio: Option<f64>,
    clocks_locked: bool,
) -> Option<String> {
    if timeline.is_empty() {
        return None;
    }
    if found.kernels.is_empty() {
        return Some(if found.by_name_only {
            "not in the timeline with this grid and block".to_owned()
        } else {
            "not in the timeline".to_owned()
        });
    }
    if let Some(ratio) = ratio.filter(|ratio| !REPRESENTATIVE.contains(ratio)) {
        let why = if clocks_locked { "; ncu held the clocks at base" } else { "" };
        let (low, high) = (REPRESENTATIVE.start(), REPRESENTATIVE.end());
        return Some(format!(
            "not representative: {ratio:.2} times the timeline's median, outside {low} to {high}{why}"
        ));
    }
    found.by_name_only.then(|| "matched by name alone: the timeline has no launch shapes".to_owned())
}

/// Puts beside each kernel of a table the row of its launch shape with the most time, of the table's stage.
pub fn attach(kernels: &mut [Kernel], joined: &Joined, stage: Option<&str>) {
    let mut longest: FxHashMap<&str, &Measured> = FxHashMap::default();
    let own = joined
        .measured
        .iter()
        .filter(|measured| measured.matched && (stage.is_none() || measured.row.stage.as_deref() == stage));
    for measured in own {
        let known = longest.entry(&measured.row.kernel).or_insert(measured);
        if measured.timeline_total_ns >= known.timeline_total_ns {
            *known = measured;
        }
    }
    for kernel in kernels {
        kernel.counters = longest.get(kernel.name.as_str()).map(|measured| measured.row.clone());
    }
}
