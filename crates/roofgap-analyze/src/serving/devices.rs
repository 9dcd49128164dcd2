//! The devices of each step, and the time in which one of them was busy.

use crate::timeline::{Activity, CoveredTime};
use roofgap_trace::Ns;
use rustc_hash::{FxHashMap, FxHashSet};

/// Most sets of devices whose busy time is joined. Programs have one or two.
const MOST_SETS: usize = 16;

/// The devices that ran work of each step.
pub struct StepDevices {
    first: Vec<Option<usize>>,
    /// Devices beside the first, by step.
    others: FxHashSet<(usize, usize)>,
}

impl StepDevices {
    pub fn new(steps: usize) -> Self {
        Self { first: vec![None; steps], others: FxHashSet::default() }
    }

    /// Adds a device of a step.
    pub fn add(&mut self, step: usize, device: usize) {
        if let Some(first) = self.first.get_mut(step)
            && *first.get_or_insert(device) != device
        {
            self.others.insert((step, device));
        }
    }

    /// Prepares questions about busy time.
    pub fn busy(self, activity: &Activity) -> BusyTime<'_> {
        let mut several: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (step, device) in self.others {
            let first = self.first.get(step).copied().flatten();
            several.entry(step).or_insert_with(|| first.into_iter().collect()).push(device);
        }
        several.values_mut().for_each(|devices| devices.sort_unstable());
        BusyTime { activity, first: self.first, several, joined: FxHashMap::default() }
    }
}

/// Busy time of the devices of each step.
pub struct BusyTime<'a> {
    activity: &'a Activity,
    first: Vec<Option<usize>>,
    /// All devices of the steps that have several, sorted.
    several: FxHashMap<usize, Vec<usize>>,
    /// Time in which one of several devices was busy.
    joined: FxHashMap<Vec<usize>, CoveredTime>,
}

impl BusyTime<'_> {
    /// Returns the time in `start..end` in which a device of a step was busy, ns; with very many different sets of devices that of the
    /// busiest device.
    pub fn within(&mut self, step: usize, start: Ns, end: Ns) -> Ns {
        let one = |device: usize| self.activity.busy_in(device, start, end);
        let Some(devices) = self.several.get(&step) else {
            return self.first.get(step).copied().flatten().map_or(0, one);
        };
        if !self.joined.contains_key(devices) && self.joined.len() < MOST_SETS {
            self.joined.insert(devices.clone(), self.activity.joined(devices));
        }
        match self.joined.get(devices) {
            Some(covered) => covered.overlap(start, end),
            None => devices.iter().map(|device| one(*device)).max().unwrap_or(0),
        }
    }
}
