//! One stage on both sides, and the parts that the change of its wall time is the sum of.

use super::comparison::{
    Basis, Better, Change, Explanation, FunctionChange, KernelChange, KernelStatus, Part, PartKind, SideName,
    StageChange,
};
use super::kernels::{self, by_instance};

use super::noise::{self, Floors, Odd, StepNoise};
use crate::result::{Idle, Note, Stage};
use crate::timeline::Grouped;
use roofgap_base::stats::median;

/// Times of a stage without a profiler, one per repeat, ns.
pub type Repeats<'a> = &'a [i64];

/// A stage with what else is known of it.
#[derive(Clone, Copy)]
pub struct StageSide<'a> {
    pub stage: &'a Stage,
    pub repeats: Repeats<'a>,
}

/// Times of one instance.
struct Values {
    wall: i64,
    projected: Option<i64>,
    busy: Option<i64>,
    kernel: Option<i64>,
    idle: Option<Idle>,
}

impl Values {
    fn of(stage: &Stage) -> Self {
        let one = |total: i64| by_instance(total, stage.instances);
        Values {
            wall: one(stage.wall_ns),
            projected: stage.projected_ns.map(one),
            busy: stage.busy_ns.map(one),
            kernel: stage.kernel_ns.map(one),
            idle: stage.idle.map(|idle| Idle {
                launch_ns: one(idle.launch_ns),
                sync_ns: one(idle.sync_ns),
                copy_ns: one(idle.copy_ns),
                other_ns: one(idle.other_ns),
            }),
        }
    }

    /// Returns the times of [`GPU_PARTS`], where all are known.
    fn gpu(&self) -> Option<[i64; 6]> {
        let (idle, busy) = (self.idle?, self.busy?);
        Some([
            busy.saturating_sub(self.kernel?),
            idle.launch_ns,
            idle.sync_ns,
            idle.copy_ns,
            idle.other_ns,
            self.wall.saturating_sub(self.projected?),
        ])
    }
}

/// Compares a stage of both sides.
pub fn change(base: StageSide<'_>, head: StageSide<'_>, floors: &Floors) -> StageChange {
    let (b, h) = (Values::of(base.stage), Values::of(head.stage));
    let steps = wall_noise(base, head, b.wall, floors);
    let wall_noise = steps.ns;
    let odd = [steps.share(SideName::Base, base.stage), steps.share(SideName::Head, head.stage)];
    let kernels = kernels::of_stage(base.stage, head.stage, floors);
    let gpu_noise =
        kernels::noise_of_sum(&kernels).max(noise::share(b.busy.or(b.kernel).unwrap_or(0), floors.gpu_pct));
    let idle = |get: fn(&Idle) -> i64| {
        noise::part(b.idle.as_ref().map(get), h.idle.as_ref().map(get), wall_noise.hypot(gpu_noise))
    };
    let relative_noise = wall_noise / b.wall.max(1) as f64;
    let part = |b: Option<i64>, h: Option<i64>, odd: Odd| {
        noise::time(b, h, b.map_or(0.0, |ns| relative_noise * ns as f64), odd)
    };
    let count = |get: fn(&Stage) -> Option<f64>| {
        let (b, h) = (get(base.stage), get(head.stage));
        noise::number(b, h, b.unwrap_or(0.0) * floors.gpu_pct / 100.0, Better::Lower, Odd::default())
    };
    let utilisation = |get: fn(&Stage) -> Option<f64>| {
        let (b, h) = (get(base.stage), get(head.stage));
        noise::number(b, h, relative_noise * b.unwrap_or(0.0), Better::Higher, odd)
    };
    let of_step = match (base.stage.step_ns(), head.stage.step_ns()) {
        (Some(base), Some(head)) => [Some(base), Some(head)],
        _ => [steps.mean_ns(SideName::Base, base.stage), steps.mean_ns(SideName::Head, head.stage)],
    };
    let step_ns = part(of_step[0], of_step[1], Odd::default());
    let rate = |stage: &Stage| Some(stage.steps.as_ref()?.count as f64 / stage.instances.max(1) as f64);
    StageChange {
        name: base.stage.name.clone(),
        instances: [base.stage.instances, head.stage.instances],
        steps: [rate(base.stage), rate(head.stage)],
        wall_noise_from: steps.how,
        wall_ns: noise::time(Some(b.wall), Some(h.wall), wall_noise, odd),
        step_ns,
        token_ns: part(base.stage.token_ns, head.stage.token_ns, odd),
        basis: Basis::Whole,
        unwatched_ns: unwatched(base.repeats, head.repeats, floors),
        busy_ns: noise::time(b.busy, h.busy, gpu_noise, Odd::default()),
        kernel_ns: noise::time(b.kernel, h.kernel, gpu_noise, Odd::default()),
        idle_ns: idle(Idle::total_ns),
        idle_launch_ns: idle(|idle| idle.launch_ns),
        idle_sync_ns: idle(|idle| idle.sync_ns),
        idle_copy_ns: idle(|idle| idle.copy_ns),
        idle_other_ns: idle(|idle| idle.other_ns),
        launches: count(|stage| {
            stage.busy_ns.map(|_| stage.launch_count as f64 / stage.instances.max(1) as f64)
        }),
        launches_per_step: count(|stage| stage.steps.as_ref()?.launches_per_step),
        mfu_pct: utilisation(|stage| Some(stage.mfu.as_ref()?.by_wall_pct)),
        mbu_pct: utilisation(|stage| Some(stage.mbu.as_ref()?.by_wall_pct)),
        mbu_measured_pct: utilisation(|stage| stage.mbu_measured.as_ref()?.by_wall_pct),
        explanation: explain(base.stage, head.stage, (&b, &h), &kernels, (wall_noise, gpu_noise)),
        functions: functions(base.stage, head.stage, relative_noise),
        outliers: steps.outliers,
        kernels,
    }
}

/// A function and its file.
type Function<'a> = (&'a str, Option<&'a str>);

/// Compares the idle time of a step or instance by function. Lines move between versions, so those of a function count together.
fn functions(base: &Stage, head: &Stage, relative_noise: f64) -> Vec<FunctionChange> {
    if base.host_idle.is_none() || head.host_idle.is_none() {
        return Vec::new();
    }
    // Times of both sides and the sum of the squares of the halves of their intervals, ns.
    let mut sums: Grouped<Function<'_>, (Function<'_>, [i64; 2], f64)> = Grouped::default();
    for (side, stage) in [base, head].into_iter().enumerate() {
        let units = stage.steps.as_ref().map_or(stage.instances, |steps| steps.count);
        for row in &stage.host {
            let key = (row.function.as_str(), row.file.as_deref());
            let (_, ns, square) = sums.entry(key, || (key, [0; 2], 0.0));
            ns[side] += by_instance(row.self_ns, units);
            let half = row.interval_ns.map_or(0, |[low, high]| by_instance(high - low, units) / 2);
            *square += (half as f64).powi(2);
        }
    }
    let change = |((function, file), [base, head], square): (Function<'_>, [i64; 2], f64)| {
        let noise = square.sqrt().hypot(relative_noise * base as f64);
        let idle_ns = noise::time(Some(base), Some(head), noise, Odd::default());
        FunctionChange { function: function.to_owned(), file: file.map(str::to_owned), idle_ns }
    };
    let mut list: Vec<FunctionChange> = sums.items.into_iter().map(change).collect();
    list.sort_by_key(|change| std::cmp::Reverse(change.idle_ns.delta.unwrap_or(0).unsigned_abs()));
    list
}

/// Noise of the wall time of an instance, and where it comes from.
fn wall_noise(base: StageSide<'_>, head: StageSide<'_>, wall: i64, floors: &Floors) -> StepNoise {
    let from_steps = noise::of_steps(base.stage, head.stage);
    let from_repeats = noise::of_repeats(base.repeats, head.repeats).map(|noise| {
        // Repeats are timed unwatched: their relative spread is taken over.
        let mean = base.repeats.iter().sum::<i64>() as f64 / base.repeats.len().max(1) as f64;
        let how = format!("{} and {} unwatched repeats", base.repeats.len(), head.repeats.len());
        (wall as f64 * noise / mean.max(1.0), how)
    });
    let is_measured = from_steps.is_some() || from_repeats.is_some();
    let mut found = from_steps.unwrap_or_default();
    if let Some((ns, how)) = from_repeats.filter(|repeats| found.how.is_empty() || repeats.0 > found.ns) {
        (found.ns, found.how) = (ns, how);
    }
    let least = noise::share(wall, floors.wall_pct);
    if !is_measured {
        found.ns = noise::share(wall, floors.unmeasured_wall_pct);
        found.how = format!(
            "not measured (neither steps nor repeats on both sides): {} % assumed",
            floors.unmeasured_wall_pct
        );
    } else if found.ns < least {
        found.ns = least;
        found.how.push_str(&format!("; at least {} %", floors.wall_pct));
    }
    found
}

fn unwatched(base: Repeats<'_>, head: Repeats<'_>, floors: &Floors) -> Change<i64> {
    let middle = |repeats: Repeats<'_>| median(&mut repeats.to_vec());
    let (b, h) = (middle(base), middle(head));
    let value = b.unwrap_or(0);
    let noise = match noise::of_repeats(base, head) {
        Some(noise) => noise.max(noise::share(value, floors.wall_pct)),
        None => noise::share(value, floors.unmeasured_wall_pct),
    };
    noise::time(b, h, noise, Odd::default())
}

/// The parts of the change of the wall time. The last one closes the sum, so that it is exact.
fn explain(
    base: &Stage,
    head: &Stage,
    values: (&Values, &Values),
    kernels: &[KernelChange],
    noise: (f64, f64),
) -> Explanation {
    let (b, h) = values;
    let (wall_noise, gpu_noise) = noise;
    let wall_delta_ns = h.wall.saturating_sub(b.wall);
    let mut parts = Vec::new();
    let mut why_not = None;
    let part = |kind, name: &str, delta_ns: i64, noise: f64| Part {
        kind,
        name: name.to_owned(),
        delta_ns,
        beyond_noise: delta_ns.unsigned_abs() as f64 > noise,
    };
    match (b.gpu(), h.gpu()) {
        (Some(mut old), Some(mut new)) => {
            let whole = kernels::whole_graphs(&base.graphs, &head.graphs);
            match whole {
                None => parts.extend(kernels.iter().map(|kernel| Part {
                    kind: PartKind::Kernel,
                    name: kernel.short_name.clone(),
                    delta_ns: kernel.delta_ns,
                    beyond_noise: kernel.status != KernelStatus::Same,
                })),
                // Kernels of one side are in the graphs of the other: only the sum of all work has a part.
                Some(_) => [old[0], new[0]] = [b.busy.unwrap_or(0), h.busy.unwrap_or(0)],
            }
            let name = |name: &str| match whole {
                Some(side) => format!(
                    "all GPU work; its kernels do not compare, the {} recorded CUDA graphs whole",
                    side.as_str()
                ),
                None => name.to_owned(),
            };
            parts.extend(old.iter().zip(new).zip(GPU_PARTS).map(|((b, h), (kind, own))| {
                let delta = h.saturating_sub(*b);
                match kind {
                    PartKind::OtherGpuWork => part(*kind, &name(own), delta, gpu_noise),
                    _ => part(*kind, own, delta, wall_noise),
                }
            }));
        }
        (None, None) => {
            parts.extend(notes(base, head, wall_noise));
            if parts.is_empty() {
                why_not = Some("neither side has GPU work or named parts of this stage".to_owned());
            }
        }
        _ => why_not = Some("only one side has GPU work of this stage".to_owned()),
    }
    let sum = parts.iter().fold(0i64, |sum, part| sum.saturating_add(part.delta_ns));
    let rest = wall_delta_ns.saturating_sub(sum);
    if rest != 0 {
        parts.push(part(PartKind::Rest, "the rest", rest, wall_noise));
    }
    parts.retain(|part| part.delta_ns != 0);
    parts.sort_by(|a, b| (b.delta_ns.unsigned_abs(), &a.name).cmp(&(a.delta_ns.unsigned_abs(), &b.name)));
    Explanation { wall_delta_ns, parts, why_not }
}

/// Parts of an instance on the GPU, beside its kernels.
const GPU_PARTS: &[(PartKind, &str)] = &[
    (PartKind::OtherGpuWork, "copies, sets and graphs, less what ran at once"),
    (PartKind::IdleLaunch, "idle: not launched yet"),
    (PartKind::IdleSync, "idle: waiting for the device"),
    (PartKind::IdleCopy, "idle: in a copy call"),
    (PartKind::IdleOther, "idle: launched, not started"),
    (PartKind::OutsideGpu, "CPU before the first and after the last GPU operation"),
];

fn notes(base: &Stage, head: &Stage, wall_noise: f64) -> Vec<Part> {
    let value = |stage: &Stage, note: &Note| by_instance(note.wall_ns, stage.instances);
    let gone = base.notes.iter().map(|note| (&note.name, value(base, note).saturating_neg()));
    let added = head.notes.iter().map(|note| (&note.name, value(head, note)));
    let mut parts: Grouped<&str, Part> = Grouped::default();
    for (name, delta_ns) in gone.chain(added) {
        let new = || Part { kind: PartKind::Note, name: name.clone(), delta_ns: 0, beyond_noise: false };
        let part = parts.entry(name, new);
        part.delta_ns = part.delta_ns.saturating_add(delta_ns);
        part.beyond_noise = part.delta_ns.unsigned_abs() as f64 > wall_noise;
    }
    parts.items
}
