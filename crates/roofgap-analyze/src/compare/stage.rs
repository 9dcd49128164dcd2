//! One stage on both sides: its numbers, and the parts that the change of its wall time is the sum of.

use super::comparison::{
    Basis, Change, Explanation, FunctionChange, KernelChange, KernelStatus, Numbers, Part, PartKind,
    SideName, StageChange,
};
use super::kernels::{self, by_instance};
use super::noise::{self, Better, GPU_PCT, Odd, StepNoise, UNMEASURED_PCT, WALL_PCT};
use crate::result::{Idle, Stage};
use crate::timeline::Grouped;
use roofgap_base::stats::median;

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
pub(super) enum Kind {
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

/// A stage with what else is known of it.
#[derive(Clone, Copy)]
pub struct StageSide<'a> {
    pub stage: &'a Stage,
    /// Times without a profiler, one per repeat, ns.
    pub repeats: &'a [i64],
    /// Time of a step, ns.
    pub step_ns: Option<f64>,
}

impl StageSide<'_> {
    /// Returns a sum as that of one instance.
    fn one(self, total: i64) -> f64 {
        by_instance(total, self.stage.instances) as f64
    }

    fn idle(self, part: fn(&Idle) -> i64) -> Option<f64> {
        Some(self.one(part(self.stage.idle.as_ref()?)))
    }

    /// Returns a count of something by instance.
    fn each(self, count: u64) -> f64 {
        count as f64 / self.stage.instances.max(1) as f64
    }

    fn steps(self) -> Option<f64> {
        Some(self.each(self.stage.steps.as_ref()?.count))
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
        metric("wall_ns", "wall ms", Wall, false, |side| Some(side.one(side.stage.wall_ns))),
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

    /// Reads a name, or the JSON field (`wall_ns`, `mfu_pct`).
    pub(super) fn parse(text: &str) -> Option<&'static Self> {
        let plain = text.replace('.', "_");
        METRICS.iter().find(|metric| [metric.name(), metric.field].contains(&plain.as_str()))
    }

    /// Returns the direction that is better.
    pub(super) fn better(&self) -> Better {
        if self.kind == Kind::Rate { Better::Higher } else { Better::Lower }
    }

    /// Returns the number of a stage or of a whole trace.
    pub fn of(&self, numbers: &Numbers) -> Change {
        numbers.get(self.field).copied().unwrap_or_default()
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.field == other.field
    }
}

/// Compares a stage of both sides.
pub fn change(mut base: StageSide<'_>, mut head: StageSide<'_>) -> StageChange {
    let (old, new) = (base.stage, head.stage);
    let wall = base.one(old.wall_ns);
    let steps = wall_noise(base, head, wall);
    let odd = [steps.share(SideName::Base, old), steps.share(SideName::Head, new)];
    [base.step_ns, head.step_ns] = match (old.step_ns(), new.step_ns()) {
        (Some(base), Some(head)) => [base, head].map(|ns| Some(ns as f64)),
        _ => [steps.mean_ns(SideName::Base, old), steps.mean_ns(SideName::Head, new)],
    };
    let whole = kernels::whole_graphs(&old.graphs, &new.graphs);
    let kernels = match (old.kernel_ns, new.kernel_ns) {
        (Some(_), Some(_)) => {
            kernels::changes((&old.kernels, old.instances), (&new.kernels, new.instances), whole)
        }
        // What was not measured is not gone.
        _ => Vec::new(),
    };
    let gpu_time = old.busy_ns.or(old.kernel_ns).map_or(0.0, |ns| base.one(ns));
    let gpu_noise = kernels::noise_of_sum(&kernels).max(noise::share(gpu_time, GPU_PCT));
    let relative_noise = |value: f64| steps.ns * (value / wall.max(1.0));
    let number = |metric: &Metric| {
        let (b, h) = ((metric.value)(base), (metric.value)(head));
        let value = b.unwrap_or(0.0);
        let change = match metric.kind {
            Kind::Wall => noise::time(b, h, relative_noise(value), odd),
            Kind::Step => noise::time(b, h, relative_noise(value), Odd::default()),
            Kind::IdleTime => noise::part(b, h, steps.ns.hypot(gpu_noise)),
            Kind::Rate => noise::change(b, h, relative_noise(value), Better::Higher, odd),
            Kind::Gpu => noise::time(b, h, gpu_noise, Odd::default()),
            Kind::Unprofiled => {
                let noise = noise::of_repeats(base.repeats, head.repeats);
                let floor = noise::share(value, if noise.is_some() { WALL_PCT } else { UNMEASURED_PCT });
                noise::time(b, h, noise.unwrap_or(0.0).max(floor), Odd::default())
            }
            Kind::Count => noise::change(b, h, noise::share(value, GPU_PCT), Better::Lower, Odd::default()),
        };
        (metric.field.to_owned(), change)
    };
    let numbers: Numbers = METRICS.iter().map(number).collect();
    StageChange {
        name: old.name.clone(),
        instances: [old.instances, new.instances],
        steps: [base.steps(), head.steps()],
        basis: Basis::Whole,
        explanation: explain([base, head], &numbers, &kernels, whole, [steps.ns, gpu_noise]),
        functions: functions(old, new, relative_noise),
        numbers,
        wall_noise_from: steps.how,
        outliers: steps.outliers,
        kernels,
    }
}

/// A function and its file.
type Function<'a> = (&'a str, Option<&'a str>);

/// Compares the idle time of a step or instance by function. Lines move between versions, so those of a function count together.
fn functions(base: &Stage, head: &Stage, relative_noise: impl Fn(f64) -> f64) -> Vec<FunctionChange> {
    if base.host_idle.is_none() || head.host_idle.is_none() {
        return Vec::new();
    }
    // Times of both sides and the sum of the squares of the halves of their intervals, ns.
    let mut sums: Grouped<Function<'_>, ([f64; 2], f64)> = Grouped::default();
    for (side, stage) in [base, head].into_iter().enumerate() {
        let units = stage.steps.as_ref().map_or(stage.instances, |steps| steps.count);
        for row in &stage.host {
            let (ns, squares) = sums.entry((&row.function, row.file.as_deref()), Default::default);
            ns[side] += by_instance(row.self_ns, units) as f64;
            let half = row.interval_ns.map_or(0, |[low, high]| by_instance(high - low, units) / 2);
            *squares += (half as f64).powi(2);
        }
    }
    let change = |((function, file), ([base, head], squares)): (Function<'_>, ([f64; 2], f64))| {
        let noise = squares.sqrt().hypot(relative_noise(base));
        let idle_ns = noise::time(Some(base), Some(head), noise, Odd::default());
        FunctionChange { function: function.to_owned(), file: file.map(str::to_owned), idle_ns }
    };
    let mut list: Vec<FunctionChange> = sums.keys.into_iter().zip(sums.items).map(change).collect();
    let size = |own: &FunctionChange| own.idle_ns.delta.unwrap_or(0.0).abs();
    list.sort_by(|a, b| size(b).total_cmp(&size(a)));
    list
}

/// Noise of the wall time of an instance, and where it comes from.
fn wall_noise(base: StageSide<'_>, head: StageSide<'_>, wall: f64) -> StepNoise {
    let from_steps = noise::of_steps(base.stage, head.stage);
    let from_repeats = noise::of_repeats(base.repeats, head.repeats);
    let is_measured = from_steps.is_some() || from_repeats.is_some();
    let mut measured = from_steps.unwrap_or_default();
    if let Some(noise) = from_repeats {
        // Repeats are timed unwatched: their relative spread is taken over.
        let mean = base.repeats.iter().sum::<i64>() as f64 / base.repeats.len() as f64;
        let ns = wall * noise / mean.max(1.0);
        if measured.how.is_empty() || ns > measured.ns {
            measured.ns = ns;
            measured.how = format!("{} and {} unwatched repeats", base.repeats.len(), head.repeats.len());
        }
    }
    let least = noise::share(wall, WALL_PCT);
    if !is_measured {
        measured.ns = noise::share(wall, UNMEASURED_PCT);
        measured.how =
            format!("not measured (neither steps nor repeats on both sides): {UNMEASURED_PCT} % assumed");
    } else if measured.ns < least {
        measured.ns = least;
        measured.how += &format!("; at least {WALL_PCT} %");
    }
    measured
}

/// The parts of the change of the wall time. The last one closes the sum, so that it is exact.
fn explain(
    [base, head]: [StageSide<'_>; 2],
    numbers: &Numbers,
    kernels: &[KernelChange],
    whole: Option<SideName>,
    [wall_noise, gpu_noise]: [f64; 2],
) -> Explanation {
    let delta = |field| numbers.get(field).and_then(|change: &Change| change.delta).unwrap_or(0.0) as i64;
    let wall_delta_ns = delta("wall_ns");
    let mut parts = Vec::new();
    let mut why_not = None;
    let part = |kind, name: &str, delta_ns: i64| {
        let noise = if kind == PartKind::OtherGpuWork { gpu_noise } else { wall_noise };
        Part { kind, name: name.to_owned(), delta_ns, beyond_noise: delta_ns.unsigned_abs() as f64 > noise }
    };
    match (base.outside_gpu(), head.outside_gpu()) {
        (Some(old), Some(new)) => {
            let (name, delta_ns) = match whole {
                // Kernels of one side are in the graphs of the other: only the sum of all work has a part.
                Some(side) => {
                    let why = "its kernels do not compare";
                    (format!("all GPU work; {why}, the {side} recorded CUDA graphs whole"), delta("busy_ns"))
                }
                None => {
                    parts.extend(kernels.iter().map(|kernel| Part {
                        kind: PartKind::Kernel,
                        name: kernel.short_name.clone(),
                        delta_ns: kernel.delta_ns,
                        beyond_noise: kernel.status != KernelStatus::Same,
                    }));
                    let name = "copies, sets and graphs, less what ran at once".to_owned();
                    (name, delta("busy_ns").saturating_sub(delta("kernel_ns")))
                }
            };
            parts.push(part(PartKind::OtherGpuWork, &name, delta_ns));
            parts.extend(IDLE_PARTS.map(|(kind, field, name)| part(kind, name, delta(field))));
            let name = "CPU before the first and after the last GPU operation";
            parts.push(part(PartKind::OutsideGpu, name, (new - old) as i64));
        }
        (None, None) => {
            let mut notes: Grouped<&str, i64> = Grouped::default();
            for (side, sign) in [(base, -1.0), (head, 1.0)] {
                for note in &side.stage.notes {
                    let delta_ns = notes.entry(&note.name, || 0);
                    *delta_ns = delta_ns.saturating_add((sign * side.one(note.wall_ns)) as i64);
                }
            }
            let notes = notes.keys.into_iter().zip(notes.items);
            parts.extend(notes.map(|(name, delta_ns)| part(PartKind::Note, name, delta_ns)));
            if parts.is_empty() {
                why_not = Some("neither side has GPU work or named parts of this stage".to_owned());
            }
        }
        _ => why_not = Some("only one side has GPU work of this stage".to_owned()),
    }
    let sum = parts.iter().fold(0i64, |sum, part| sum.saturating_add(part.delta_ns));
    parts.push(part(PartKind::Rest, "the rest", wall_delta_ns.saturating_sub(sum)));
    parts.retain(|part| part.delta_ns != 0);
    parts.sort_by(|a, b| (b.delta_ns.unsigned_abs(), &a.name).cmp(&(a.delta_ns.unsigned_abs(), &b.name)));
    Explanation { wall_delta_ns, parts, why_not }
}

/// Idle parts of an instance by the field of their time.
const IDLE_PARTS: [(PartKind, &str, &str); 4] = [
    (PartKind::IdleLaunch, "idle_launch_ns", "idle: not launched yet"),
    (PartKind::IdleSync, "idle_sync_ns", "idle: waiting for the device"),
    (PartKind::IdleCopy, "idle_copy_ns", "idle: in a copy call"),
    (PartKind::IdleOther, "idle_other_ns", "idle: launched, not started"),
];
