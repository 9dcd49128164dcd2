//! Counters without a timeline: kernels, devices and evidence from the measured launches themselves.

use super::join::{Joined, Measured, Shape};
use super::readings::DURATION;
use super::{CanonicalNames, canonical};
use crate::findings::{ShapeUse, StageEvidence, blocks_of, threads_of};
use crate::names::{Naming, family};
use crate::result::{Kernel, Stage};
use crate::timeline::{Grouped, from_durations};
use roofgap_trace::Device;
use roofgap_trace::ncu::{CounterSet, LaunchCounters, Unit};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// Name of the measured launches in sentences.
const NAME: &str = "the measured launches";

/// Returns the devices of the launches, in the order of their numbers.
pub fn devices(sets: &[CounterSet]) -> Vec<Device> {
    let mut devices: Vec<Device> = sets.iter().flat_map(CounterSet::devices).collect();
    devices.sort_by_key(|device| device.number);
    devices.dedup_by_key(|device| device.number);
    // A details page has no attributes of the device, but may have its number of multiprocessors.
    for device in devices.iter_mut().filter(|device| device.sms.is_none()) {
        let counted = |set: &CounterSet| {
            let is_on = |launch: &&LaunchCounters| launch.device.unwrap_or_default() == device.number;
            set.quantity(set.launches.iter().find(is_on)?, "launch__sm_count")
        };
        device.sms = sets.iter().find_map(counted).map(|sms| sms.value as u32);
    }
    devices
}

/// Groups the launches with a duration by kernel and device, most time first.
pub fn kernels(sets: &[CounterSet]) -> Vec<Kernel> {
    let mut forms = CanonicalNames::default();
    let mut groups: Grouped<_, (&str, u32, Vec<i64>)> = Grouped::default();
    for (set, launch) in launches(sets) {
        if let Some(ns) = set.value(launch, DURATION, Unit::NANOSECOND) {
            let (name, device) = (launch.kernel.as_str(), launch.device.unwrap_or_default());
            let group = groups.entry((forms.form(name), device), || (name, device, Vec::new()));
            group.2.push(ns.round() as i64);
        }
    }
    let mut naming = Naming::of_names(groups.items.iter().map(|(name, ..)| *name));
    let groups = groups.items.into_iter().map(|(name, device, list)| (name, Some(device), list));
    from_durations(groups, &mut naming)
}

fn launches(sets: &[CounterSet]) -> impl Iterator<Item = (&CounterSet, &LaunchCounters)> {
    sets.iter().flat_map(|set| set.launches.iter().map(move |launch| (set, launch)))
}

/// Puts beside each kernel the row of its launch shape with the most time.
pub fn attach(kernels: &mut [Kernel], joined: &Joined) {
    let mut largest: FxHashMap<String, &Measured> = FxHashMap::default();
    for measured in &joined.measured {
        let form = canonical(&measured.row.kernel);
        let known = largest.entry(form).or_insert(measured);
        if total_ns(measured) > total_ns(known) {
            *known = measured;
        }
    }
    for kernel in kernels {
        let row = largest.get(&canonical(&kernel.name));
        kernel.counters = row.map(|measured| measured.row.clone());
    }
}

/// Total duration of the samples of a row, ns.
fn total_ns(measured: &Measured) -> i64 {
    let samples = i64::try_from(measured.row.samples).unwrap_or(i64::MAX);
    measured.row.duration_ns.unwrap_or(0).saturating_mul(samples)
}

/// The measured launches as a stage, with what the rules of the findings need.
pub struct MeasuredLaunches {
    /// The launches together.
    pub stage: Stage,
    /// Launch shapes.
    pub evidence: StageEvidence,
    /// The rows, in the stage.
    pub rows: Vec<Measured>,
}

impl MeasuredLaunches {
    /// Takes all measured launches for one stage; `None` where no launch has a duration.
    pub fn from_counters(
        sets: &[CounterSet],
        joined: &Joined,
        kernels: &[Kernel],
        devices: &[Device],
    ) -> Option<Self> {
        let total: i64 = kernels.iter().map(|kernel| kernel.total_ns).sum();
        if total <= 0 {
            return None;
        }
        let calls = kernels.iter().map(|kernel| kernel.calls).sum();
        let stage = Stage {
            name: NAME.to_owned(),
            instances: 1,
            wall_ns: total,
            kernel_ns: Some(total),
            busy_ns: Some(total),
            kernel_count: calls,
            gpu_op_count: calls,
            launch_count: calls,
            device_count: 1,
            devices_per_instance: 1.0,
            kernels: kernels.to_vec(),
            ..Stage::default()
        };
        let timed = joined.measured.iter().filter(|row| row.row.duration_ns.is_some());
        let rows: Vec<Measured> = timed.map(in_stage).collect();
        let evidence = StageEvidence {
            stage: NAME.to_owned(),
            shapes: shapes(sets, &rows, devices),
            ..StageEvidence::default()
        };
        Some(Self { stage, evidence, rows })
    }
}

/// Returns a row whose launches stand for themselves instead of for launches in a timeline.
fn in_stage(measured: &Measured) -> Measured {
    let mut row = measured.clone();
    row.row.stage = Some(NAME.to_owned());
    row.matched = true;
    row.timeline_calls = row.row.samples;
    row.timeline_total_ns = total_ns(measured);
    row
}

/// Describes the launch shape of each row, by its first launch.
fn shapes(sets: &[CounterSet], rows: &[Measured], devices: &[Device]) -> Vec<ShapeUse> {
    type Launches<'a> = FxHashMap<(Rc<str>, Option<Shape>), (&'a CounterSet, &'a LaunchCounters)>;
    let mut first: Launches<'_> = FxHashMap::default();
    let mut forms = CanonicalNames::default();
    for (set, launch) in launches(sets) {
        first.entry((forms.form(&launch.kernel), launch.grid.zip(launch.block))).or_insert((set, launch));
    }
    let describe = |row: &Measured| {
        let key = (canonical(&row.row.kernel).into(), Some((row.row.grid, row.row.block)));
        let (set, launch) = first.get(&key)?;
        let number = |name: &str| set.quantity(launch, name).map(|quantity| quantity.value as u32);
        let registers = number("launch__registers_per_thread");
        let shared = number("launch__shared_mem_per_block_static")
            .zip(number("launch__shared_mem_per_block_dynamic"))
            .map(|(fixed, dynamic)| fixed.saturating_add(dynamic));
        let device = devices.iter().find(|device| device.number == launch.device.unwrap_or_default());
        let sms = row.readings.sms.map(|sms| sms as u32);
        // The limit of occupancy is only told where every resource of the launch is known.
        let capability = registers.zip(shared).and(launch.compute_capability);
        Some(ShapeUse {
            name: row.row.kernel.clone(),
            family: family(&row.row.kernel),
            sms: sms.or_else(|| device?.sms),
            compute_capability: capability.map(|(major, minor)| (major.into(), minor.into())),
            blocks: blocks_of(row.row.grid),
            threads: threads_of(row.row.block),
            registers: registers.unwrap_or_default(),
            shared_bytes: shared.unwrap_or_default(),
            calls: row.row.samples,
            total_ns: row.timeline_total_ns,
            ..ShapeUse::default()
        })
    };
    rows.iter().filter_map(describe).collect()
}
