//! One stage on both sides: its numbers, and the parts that the change of its wall time is the sum of.

use super::comparison::{Basis, Change, Numbers, Part, SideName, StageChange};
use super::kernels::{self, by_instance};
use super::noise::{self, GPU_PCT, UNMEASURED_PCT, WALL_PCT, WallNoise};
use crate::result::{Idle, Stage};
use roofgap_base::stats::median;
use std::collections::BTreeMap;

/// A number of a stage.
#[derive(Debug)]
pub struct Metric {
    /// Field of a stage in the JSON; the ending is the unit.
    pub field: &'static str,
    /// Label of its row in a table.
    pub label: &'static str,
    /// Source of its noise.
    pub(super) kind: Kind,
    /// True if it compares although the sides did different work.
    pub(super) of_any_work: bool,
    value: Value,
}

type Value = fn(StageSide<'_>) -> Option<f64>;

/// The noise of a number, and the clock: recordings that differ distort the times of the CPU more than those of the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A time on the CPU.
    Wall,
    /// A time on the CPU without outlier steps.
    Step,
    /// A part of a time on the CPU in which the GPU is idle.
    IdleTime,
    /// A rate by the clock of the CPU; more is better.
    Rate,
    /// A time on the GPU.
    Gpu,
    /// A time without a profiler.
    Unprofiled,
    Count,
}

impl Kind {
    /// Returns the change for the worse.
    pub fn worse(self, base: f64, head: f64) -> f64 {
        if self == Self::Rate { base - head } else { head - base }
    }
}

/// A stage with what else is known of it.
#[derive(Clone, Copy)]
pub struct StageSide<'a> {
    pub stage: &'a Stage,
    /// Times without a profiler, one per repeat, ns.
    pub repeats: &'a [i64],
    /// Time of a step, ns.
    step_ns: Option<f64>,
}

impl<'a> StageSide<'a> {
    pub fn new(stage: &'a Stage, repeats: &'a [i64]) -> Self {
        Self { stage, repeats, step_ns: None }
    }

    /// Returns a sum as that of one instance.
    pub(super) fn one(self, total: i64) -> f64 {
        by_instance(total, self.stage.instances) as f64
    }

    fn idle(self, part: fn(&Idle) -> i64) -> Option<f64> {
        Some(self.one(part(self.stage.idle.as_ref()?)))
    }

    /// Returns a count of something by instance.
    fn each(self, count: u64) -> f64 {
        count as f64 / self.stage.instances.max(1) as f64
    }

    /// Returns the CPU time before the first and after the last GPU operation, where all of its GPU work is known.
    fn outside_gpu(self) -> Option<f64> {
        let Stage { wall_ns, projected_ns, busy_ns, kernel_ns, idle, .. } = self.stage;
        (*busy_ns).and(*kernel_ns).and(*idle)?;
        Some(self.one(*wall_ns) - self.one((*projected_ns)?))
    }
}

const fn metric(
    field: &'static str,
    label: &'static str,
    kind: Kind,
    of_any_work: bool,
    value: Value,
) -> Metric {
    Metric { field, label, kind, of_any_work, value }
}

/// All metrics, in the order of tables.
pub static METRICS: &[Metric] = {
    use Kind::{Count, Gpu, IdleTime, Rate, Step, Unprofiled, Wall};
    &[
        metric("wall_ns", "wall ms", Wall, false, |side| {
            Some(side.one(side.stage.wall_ns)).filter(|ns| *ns != 0.0)
        }),
        metric("unwatched_ns", "unprofiled ms", Unprofiled, false, |side| {
            median(&mut side.repeats.to_vec()).map(|ns| ns as f64)
        }),
        metric("step_ns", "step ms", Step, true, |side| side.step_ns),
        metric("busy_ns", "GPU busy ms", Gpu, false, |side| Some(side.one(side.stage.busy_ns?))),
        metric("kernel_ns", "kernels ms", Gpu, false, |side| Some(side.one(side.stage.kernel_ns?))),
        metric("idle_ns", "idle ms", IdleTime, false, |side| side.idle(Idle::total_ns)),
        metric("idle_launch_ns", "  not launched yet", IdleTime, false, |side| {
            side.idle(|own| own.launch_ns)
        }),
        metric("idle_sync_ns", "  waiting for the device", IdleTime, false, |side| {
            side.idle(|own| own.sync_ns)
        }),
        metric("idle_copy_ns", "  in a copy call", IdleTime, false, |side| side.idle(|own| own.copy_ns)),
        metric("idle_other_ns", "  other", IdleTime, false, |side| side.idle(|own| own.other_ns)),
        metric("token_ns", "per token µs", Wall, true, |side| side.stage.token_ns.map(|ns| ns as f64)),
        metric("launches", "launches", Count, false, |side| {
            side.stage.busy_ns.map(|_| side.each(side.stage.launch_count))
        }),
        metric("launches_per_step", "launches per step", Count, true, |side| {
            side.stage.steps.as_ref()?.launches_per_step
        }),
        metric("mfu_pct", "MFU %", Rate, true, |side| Some(side.stage.mfu.as_ref()?.by_wall_pct)),
        metric("mbu_pct", "MBU %", Rate, true, |side| Some(side.stage.mbu.as_ref()?.by_wall_pct)),
        metric("mbu_measured_pct", "measured MBU %", Rate, true, |side| {
            side.stage.mbu_measured.as_ref()?.by_wall_pct
        }),
    ]
};

impl Metric {
    /// Returns the name in a gate: the field without its unit.
    pub fn name(&self) -> &'static str {
        let unit = |ending| self.field.strip_suffix(ending);
        unit("_ns").or_else(|| unit("_pct")).unwrap_or(self.field)
    }

    /// Tells whether it is a time.
    pub fn is_time(&self) -> bool {
        self.field.ends_with("_ns")
    }

    /// Reads a name (`idle_launch`, or `idle.launch` as in metrics.json), or the JSON field (`wall_ns`, `mfu_pct`).
    pub(super) fn parse(text: &str) -> Option<&'static Self> {
        let text = text.replace('.', "_");
        METRICS.iter().find(|metric| [metric.name(), metric.field].contains(&text.as_str()))
    }

    /// Returns the number of a stage.
    pub fn of(&self, numbers: &Numbers) -> Change {
        numbers.get(self.field).copied().unwrap_or_default()
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.field == other.field
    }
}

/// Tells whether one side alone recorded CUDA graphs whole, so that their kernels are on the other side only.
pub fn has_whole_graphs(base: &Stage, head: &Stage) -> bool {
    base.graphs.is_empty() != head.graphs.is_empty()
}

/// Compares a stage of both sides.
pub fn change(mut base: StageSide<'_>, mut head: StageSide<'_>) -> StageChange {
    let (old, new) = (base.stage, head.stage);
    let wall = WallNoise::of(base, head);
    let (base_odd, base_mean) = wall.without_outliers(SideName::Base, old);
    let (head_odd, head_mean) = wall.without_outliers(SideName::Head, new);
    [base.step_ns, head.step_ns] = match (old.step_ns(), new.step_ns()) {
        (Some(base), Some(head)) => [base, head].map(|ns| Some(ns as f64)),
        _ => [base_mean, head_mean],
    };
    let whole_graphs = has_whole_graphs(old, new);
    let kernels = match (old.kernel_ns, new.kernel_ns) {
        (Some(_), Some(_)) if !whole_graphs => {
            kernels::changes([(&old.kernels, old.instances), (&new.kernels, new.instances)])
        }
        // What was not measured is not gone.
        _ => Vec::new(),
    };
    let gpu_time = old.busy_ns.or(old.kernel_ns).map_or(0.0, |ns| base.one(ns));
    let gpu_noise = kernels::noise_of_sum(&kernels).max(noise::share(gpu_time, GPU_PCT));
    let number = |metric: &Metric| {
        let sides = [base, head].map(metric.value);
        let value = sides[0].unwrap_or(0.0);
        let of_wall = wall.ns * (value / base.one(old.wall_ns).max(1.0));
        let (noise, odd) = match metric.kind {
            Kind::Wall | Kind::Rate => (of_wall, [base_odd, head_odd]),
            Kind::Step => (of_wall, [0.0; 2]),
            Kind::IdleTime => (wall.ns.hypot(gpu_noise), [0.0; 2]),
            Kind::Gpu => (gpu_noise, [0.0; 2]),
            Kind::Unprofiled => {
                let noise = noise::of_repeats(base.repeats, head.repeats);
                let floor = noise::share(value, if noise.is_some() { WALL_PCT } else { UNMEASURED_PCT });
                (noise.unwrap_or(0.0).max(floor), [0.0; 2])
            }
            Kind::Count => (noise::share(value, GPU_PCT), [0.0; 2]),
        };
        let noise = if metric.is_time() { noise.ceil() } else { noise };
        (metric.field.to_owned(), noise::change(metric.kind, sides, noise, odd))
    };
    let numbers: Numbers = METRICS.iter().map(number).collect();
    StageChange {
        name: old.name.clone(),
        instances: [old.instances, new.instances],
        basis: Basis::Whole,
        parts: parts([base, head], &numbers, whole_graphs, [wall.ns, gpu_noise]),
        numbers,
        wall_noise_from: wall.how,
        outliers: wall.outliers,
        kernels,
    }
}

/// Lists the parts of the change of the wall time. The last one closes the sum, so that it is exact.
fn parts(
    sides: [StageSide<'_>; 2],
    numbers: &Numbers,
    whole_graphs: bool,
    [wall_noise, gpu_noise]: [f64; 2],
) -> Vec<Part> {
    let delta = |field: &str| numbers.get(field).and_then(|change| change.delta).unwrap_or(0.0) as i64;
    let part = |name: &str, delta_ns: i64, noise: f64| {
        let beyond_noise = delta_ns.unsigned_abs() as f64 > noise;
        Part { name: name.to_owned(), delta_ns, beyond_noise }
    };
    let mut parts = Vec::new();
    match sides.map(StageSide::outside_gpu) {
        [Some(old), Some(new)] => {
            // Kernels of one side are in the graphs of the other: they are a part of all other work.
            let (kernels, other) = match whole_graphs {
                true => (0, "all GPU work; its kernels do not compare"),
                false => (delta("kernel_ns"), "copies, sets and graphs, less what ran at once"),
            };
            parts.push(part("kernels", kernels, gpu_noise));
            parts.push(part(other, delta("busy_ns").saturating_sub(kernels), gpu_noise));
            for metric in METRICS.iter().filter(|metric| metric.label.starts_with(' ')) {
                let name = format!("idle: {}", metric.label.trim());
                parts.push(part(&name, delta(metric.field), wall_noise));
            }
            let name = "CPU before the first and after the last GPU operation";
            parts.push(part(name, (new - old) as i64, wall_noise));
        }
        [None, None] => {
            let mut notes: BTreeMap<&str, i64> = BTreeMap::new();
            for (side, sign) in sides.into_iter().zip([-1.0, 1.0]) {
                for note in &side.stage.notes {
                    let delta_ns = notes.entry(&note.name).or_default();
                    *delta_ns = delta_ns.saturating_add((sign * side.one(note.wall_ns)) as i64);
                }
            }
            parts.extend(notes.into_iter().map(|(name, delta_ns)| part(name, delta_ns, wall_noise)));
        }
        // Only one side has GPU work of this stage.
        _ => {}
    }
    let name = if parts.is_empty() { "all of it: the two sides have no parts in common" } else { "the rest" };
    let sum = parts.iter().fold(0i64, |sum, part| sum.saturating_add(part.delta_ns));
    parts.push(part(name, delta("wall_ns").saturating_sub(sum), wall_noise));
    parts.retain(|part| part.delta_ns != 0);
    parts.sort_by(|a, b| (b.delta_ns.unsigned_abs(), &a.name).cmp(&(a.delta_ns.unsigned_abs(), &b.name)));
    parts
}
