//! The counters of single launches, whichever input they came from.

use super::NcuError;
use super::unit::{Base, Quantity, Unit};
use crate::model::{Device, LaunchShape, LossKind, Losses, NameId, Names, RangeStyle, is_within};
use rustc_hash::{FxHashMap, FxHashSet};

/// A metric's name, held once in its [`CounterSet`].
pub type MetricId = NameId;

/// One number of one launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Metric.
    pub id: MetricId,
    /// Unit.
    pub unit: Unit,
    /// The number, in that unit.
    pub value: f64,
}

/// A range that was open when the kernel was launched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NvtxRange {
    /// The domain; `None` is the default domain.
    pub domain: Option<String>,
    /// The range's name.
    pub name: String,
    /// Push/pop or start/end.
    pub kind: RangeStyle,
}

/// Kind of a result of ncu's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleKind {
    /// Something could be faster.
    Optimization,
    /// A remark.
    Info,
    /// The data may mislead.
    Warning,
    /// The rule failed.
    Error,
    /// Nothing to say.
    Ok,
}

/// Base of an estimated speed-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpeedupScope {
    /// The kernel's whole duration.
    Global,
    /// The part that the rule looks at.
    Local,
}

/// ncu's estimate of the time that following a rule saves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speedup {
    /// Of what.
    pub scope: SpeedupScope,
    /// Percent of it.
    pub percent: f64,
}

impl Speedup {
    /// Tells whether a rule can save this percentage.
    pub(super) fn is_possible(percent: &f64) -> bool {
        (0.0..=100.0).contains(percent)
    }
}

/// A result of one of ncu's rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The launch it is about: an index into [`CounterSet::launches`].
    pub launch: usize,
    /// The identifier of the section.
    pub section: String,
    /// The identifier of the rule.
    pub name: String,
    /// Kind.
    pub kind: RuleKind,
    /// Message.
    pub text: String,
    /// Estimated speed-up.
    pub speedup: Option<Speedup>,
}

/// The counters of one launch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaunchCounters {
    /// The number ncu gave it.
    pub id: u64,
    /// The process id.
    pub process: Option<u32>,
    /// The device, as ncu numbers them.
    pub device: Option<u32>,
    /// The kernel as the tool printed it.
    pub kernel: String,
    /// The kernel's mangled name, where the input has it.
    pub mangled: Option<String>,
    /// Blocks in the grid.
    pub grid: Option<[u32; 3]>,
    /// Threads in a block.
    pub block: Option<[u32; 3]>,
    /// Compute capability, major and minor.
    pub compute_capability: Option<(u8, u8)>,
    /// True if ncu locked the clocks to base; durations then do not compare with those of a timeline.
    pub clocks_locked: Option<bool>,
    /// The ranges that enclosed the launch.
    pub nvtx: Vec<NvtxRange>,
    /// The numbers, by [`MetricId`].
    pub metrics: Vec<Metric>,
    /// The words, by [`MetricId`].
    pub texts: Vec<(MetricId, Box<str>)>,
    /// Requested metrics without a value (`n/a`), often because the architecture does not have them.
    pub missing: Vec<MetricId>,
}

/// Every launch that one input holds.
#[derive(Clone, Debug, Default)]
pub struct CounterSet {
    /// The version of Nsight Compute; `None` for a CSV page.
    pub tool_version: Option<String>,
    /// The launches, in the order of the input.
    pub launches: Vec<LaunchCounters>,
    /// Results of ncu's rules, in the order of the launches.
    pub rules: Vec<Rule>,
    /// Declared losses.
    pub losses: Losses,
    pub(super) names: Names,
}

impl CounterSet {
    /// Returns the name of a metric.
    pub fn name(&self, id: MetricId) -> &str {
        self.names.get(id)
    }

    /// Returns the id of a name, if any launch has it.
    pub fn id(&self, name: &str) -> Option<MetricId> {
        self.names.find(name)
    }

    /// Returns a number of a launch with its unit.
    pub fn quantity(&self, launch: &LaunchCounters, name: &str) -> Option<Quantity> {
        let id = self.id(name)?;
        let at = launch.metrics.binary_search_by_key(&id, |metric| metric.id).ok()?;
        launch.metrics.get(at).map(|metric| Quantity { value: metric.value, unit: metric.unit })
    }

    /// Returns a number of a launch; `None` if it has another unit.
    pub fn value(&self, launch: &LaunchCounters, name: &str, unit: Unit) -> Option<f64> {
        self.quantity(launch, name).filter(|quantity| quantity.unit == unit).map(|quantity| quantity.value)
    }

    /// Returns a text value of a launch.
    pub fn text<'a>(&self, launch: &'a LaunchCounters, name: &str) -> Option<&'a str> {
        let id = self.id(name)?;
        let at = launch.texts.binary_search_by_key(&id, |(known, _)| *known).ok()?;
        launch.texts.get(at).map(|(_, text)| &**text)
    }

    /// Returns the results of ncu's rules for one launch.
    pub fn rules_of(&self, launch: usize) -> impl Iterator<Item = &Rule> {
        let first = self.rules.partition_point(|rule| rule.launch < launch);
        let rules = self.rules[first..].iter();
        rules.take_while(move |rule| rule.launch == launch)
    }

    /// Takes in another input. Launches that both have (process, number, kernel, grid and block are the same: pages of
    /// one report) become one with the metrics of both; the value of this set wins.
    pub fn absorb(&mut self, other: Self) {
        let renamed: Vec<MetricId> = other.names.iter().map(|(_, name)| self.intern(name)).collect();
        let renamed = |id: MetricId| renamed.get(id.index()).copied().unwrap_or(id);
        let mut known: FxHashMap<LaunchKey, usize> = FxHashMap::default();
        for (index, launch) in self.launches.iter().enumerate() {
            known.entry(launch.key()).or_insert(index);
        }
        let had_rules: FxHashSet<usize> = self.rules.iter().map(|rule| rule.launch).collect();
        let mut moved = Vec::with_capacity(other.launches.len());
        for mut launch in other.launches {
            launch.metrics.iter_mut().for_each(|metric| metric.id = renamed(metric.id));
            launch.texts.iter_mut().for_each(|(id, _)| *id = renamed(*id));
            launch.missing.iter_mut().for_each(|id| *id = renamed(*id));
            match known.get(&launch.key()) {
                Some(&index) => {
                    self.launches[index].take_in(launch);
                    moved.push(index);
                }
                None => {
                    launch.sort();
                    moved.push(self.launches.len());
                    self.launches.push(launch);
                }
            }
        }
        for rule in other.rules {
            if let Some(&launch) = moved.get(rule.launch).filter(|launch| !had_rules.contains(launch)) {
                self.rules.push(Rule { launch, ..rule });
            }
        }
        self.rules.sort_by_key(|rule| rule.launch);
        self.losses.merge(&other.losses);
    }

    /// Checks and sorts what a reader pushed to a launch. Values and shapes that cannot be are missing then, and counted.
    pub(super) fn check(&mut self, launch: &mut LaunchCounters) {
        let before = launch.metrics.len();
        let missing = &mut launch.missing;
        launch.metrics.retain(|metric| {
            let possible = (0.0..=most(self.name(metric.id), metric.unit)).contains(&metric.value);
            if !possible {
                missing.push(metric.id);
            }
            possible
        });
        let mut impossible = before - launch.metrics.len();
        for (shape, most) in
            [(&mut launch.grid, LaunchShape::MOST_BLOCKS), (&mut launch.block, LaunchShape::MOST_THREADS)]
        {
            if shape.is_some_and(|shape| !is_within(shape, most)) {
                *shape = None;
                impossible += 1;
            }
        }
        self.losses.add(LossKind::CounterMalformed, impossible as u64);
        launch.sort();
    }

    /// Leaves out the launches that failed, and counts them. A set without launches is an error.
    pub(super) fn finished(mut self) -> Result<Self, NcuError> {
        let (mut positions, mut kept) = (Vec::with_capacity(self.launches.len()), 0);
        self.launches.retain(|launch| {
            let keeps = !launch.failed();
            positions.push(keeps.then_some(kept));
            kept += usize::from(keeps);
            keeps
        });
        self.losses.add(LossKind::CounterFailed, (positions.len() - kept) as u64);
        self.rules.retain_mut(|rule| {
            let position = positions.get(rule.launch).copied().flatten();
            rule.launch = position.unwrap_or_default();
            position.is_some()
        });
        match (positions.len(), kept) {
            (0, _) => Err(NcuError::NoLaunches),
            (launches, 0) => Err(NcuError::AllFailed { launches }),
            _ => Ok(self),
        }
    }

    pub(super) fn intern(&mut self, name: &str) -> MetricId {
        self.names.intern(name)
    }
}

/// Returns the largest value that a counter can have. No counter of ncu is negative, and sums of larger values are not finite.
fn most(name: &str, unit: Unit) -> f64 {
    match unit.of {
        // Passes of a replay differ a little, and so do the times by which a rate is divided.
        Base::Percent if name.ends_with(".pct_of_peak_sustained_elapsed") => 200.0,
        // Busy parts of a unit that was hardly active exceed 6,000 % in short kernels.
        Base::Percent => 1e6,
        // A year.
        Base::Nanosecond => 3.2e16,
        Base::Hertz => 1e12,
        _ => 1e24,
    }
}

impl LaunchCounters {
    /// Returns true if the kernel did not run: its grid or a block is empty, or none of its counters has a value.
    fn failed(&self) -> bool {
        let empty = |shape: Option<[u32; 3]>| shape.is_some_and(|dimensions| dimensions.contains(&0));
        empty(self.grid) || empty(self.block) || (self.metrics.is_empty() && !self.missing.is_empty())
    }

    /// Sorts what the readers pushed; the first value of a metric stays.
    fn sort(&mut self) {
        self.texts.sort_by_key(|(id, _)| *id);
        self.texts.dedup_by_key(|(id, _)| *id);
        self.metrics.sort_by_key(|metric| metric.id);
        self.metrics.dedup_by_key(|metric| metric.id);
        self.metrics.shrink_to_fit();
        self.missing.sort();
        self.missing.dedup();
    }

    fn key(&self) -> LaunchKey {
        (self.id, self.process, first_word(&self.kernel), self.grid, self.block)
    }

    fn take_in(&mut self, other: Self) {
        self.metrics.extend(other.metrics);
        self.texts.extend(other.texts);
        self.missing.extend(other.missing);
        self.sort();
        self.missing.retain(|id| self.metrics.binary_search_by_key(id, |metric| metric.id).is_err());
        if self.nvtx.is_empty() {
            self.nvtx = other.nvtx;
        }
        self.mangled = self.mangled.take().or(other.mangled);
        self.clocks_locked = self.clocks_locked.or(other.clocks_locked);
        self.compute_capability = self.compute_capability.or(other.compute_capability);
        self.device = self.device.or(other.device);
    }
}

/// Identity of a launch: number, process, kernel, grid and block.
type LaunchKey = (u64, Option<u32>, String, Option<[u32; 3]>, Option<[u32; 3]>);

/// Returns the name before the first bracket, without qualifiers: the part of a name that every version of ncu prints
/// alike (`burn<(int)200>` in a report is `burn<200>` on a page, and namespaces come and go).
fn first_word(kernel: &str) -> String {
    let plain = kernel.replace("<unnamed>::", "").replace("unnamed>::", "");
    let head = plain.split(['<', '(']).next().unwrap_or_default().trim_end();
    head.rsplit([':', ' ']).next().unwrap_or_default().to_owned()
}

impl CounterSet {
    /// Returns every device of the launches once. A details page has no device attributes, only the number and the compute
    /// capability.
    pub fn devices(&self) -> Vec<Device> {
        let mut devices: Vec<Device> = Vec::new();
        for launch in &self.launches {
            let number = launch.device.unwrap_or_default();
            if !devices.iter().any(|device| device.number == number) {
                devices.push(self.device_of(launch, number));
            }
        }
        devices
    }

    fn device_of(&self, launch: &LaunchCounters, number: u32) -> Device {
        let attribute = |name: &str| {
            let quantity = self.quantity(launch, &format!("device__attribute_{name}"))?;
            (quantity.value >= 1.0).then_some(quantity.value as u64)
        };
        let hertz = |name: &str| attribute(name).map(|khz| khz.saturating_mul(1000));
        // Twice the memory clock times the width of the bus, as CUDA defines the clock.
        let bandwidth = || {
            let clock = hertz("max_mem_frequency_khz").or_else(|| hertz("memory_clock_rate"))?;
            Some(clock.saturating_mul(2).saturating_mul(attribute("global_memory_bus_width")?) / 8)
        };
        Device {
            number,
            name: self.text(launch, "device__attribute_display_name").map(str::to_owned),
            compute_capability: launch.compute_capability.map(|(major, minor)| (major.into(), minor.into())),
            sms: attribute("multiprocessor_count").and_then(|count| u32::try_from(count).ok()),
            memory_bytes: attribute("total_memory"),
            bandwidth_bytes_per_s: bandwidth(),
            clock_hz: hertz("max_gpu_frequency_khz").or_else(|| hertz("clock_rate")),
            l2_bytes: attribute("l2_cache_size"),
            ..Device::default()
        }
    }
}
