//! Stages: their table, the sentences on each, and the parts of their time.

use super::gpu_work;
use super::numbers::{NONE, count, counted, or_none, percent, share, time};
use super::roof;
use super::table::Table;
use roofgap_analyze::{Analysis, CpuSteps, Idle, Note, Stage, StageCoverage, StageKind, StageOrigin, Steps};

/// Columns of a table of stages for the time outside its operations: [`OUTSIDE`] and the parts after it.
pub const REST: [&str; 4] = ["outside ms", "queued ms", "other work ms", "shared ms"];

/// Builds the table of all stages. A report picks its columns. GPU busy, idle and the columns of [`REST`] add up to the time of a
/// stage.
pub fn table(analysis: &Analysis) -> Table {
    let stages = &analysis.stages;
    let gpu = |stage: &Stage, n: u64| stage.busy_ns.map(|_| n);
    let idle = |f: fn(&Idle) -> i64| move |s: &Stage| s.idle.as_ref().map(|idle| s.each_device(f(idle)));
    let used = used_parts(stages);
    let rest = |at: usize| {
        let shown = used.contains(&at);
        move |s: &Stage| parts(s).map(|parts| parts[at]).filter(|_| shown)
    };
    let two_clocks = two_clocks(stages);
    let only = move |shown: bool, ns: i64| shown.then_some(ns);
    Table::of(stages)
        .text("stage", |s: &Stage| s.name.clone())
        .count("instances", |s| s.instances)
        .ms("wall", |s| only(!two_clocks, s.wall_ns))
        .ms("time", |s| only(two_clocks, s.elapsed_ns()))
        .ms("CPU wall", |s| only(two_clocks, s.wall_ns))
        .ms("GPU busy", |s| s.busy_ns.map(|ns| s.each_device(ns)))
        .number("busy %", busy_percent)
        .ms("idle", idle(Idle::total_ns))
        .ms("kernel", |s| s.kernel_ns)
        .count("kernels", move |s| gpu(s, s.kernel_count))
        .count("launches", move |s| gpu(s, s.launch_count))
        .ms("idle: launch", idle(|i| i.launch_ns))
        .ms("sync", idle(|i| i.sync_ns))
        .ms("copy", idle(|i| i.copy_ns))
        .ms("other", idle(|i| i.other_ns))
        .ms("outside", rest(OUTSIDE))
        .ms("queued", rest(QUEUED))
        .ms("other work", rest(FOREIGN))
        .ms("shared", rest(SHARED))
        .number("MFU %", |s| or_none(s.mfu.as_ref(), |m| share(m.by_wall_pct)))
        .number("MBU %", |s| or_none(s.mbu.as_ref(), |m| share(m.by_wall_pct)))
        .number(roof::COLUMNS[0], |s| roof::pct(&s.roof))
        .number(roof::COLUMNS[1], |s| roof::above(&s.roof))
        .build()
        .measured()
}

/// Tells whether the time of a stage is not the wall time of its ranges: it has the periods of engine steps, or GPU work after its
/// ranges of over 1 %.
pub fn two_clocks(stages: &[Stage]) -> bool {
    stages.iter().any(|s| s.period_ns.is_some() || s.late_ns > s.wall_ns / 100)
}

/// Explains the columns of the table of stages: the two times of a stage, and times on several GPUs.
pub fn columns_note(stages: &[Stage]) -> Option<String> {
    let mut lines = Vec::new();
    if two_clocks(stages) {
        lines.push(
            "Time is that of the GPU work: the periods of an engine's steps, or the ranges with the work that goes on after them; CPU \
             wall is the time of the ranges.",
        );
    }
    if stages.iter().any(|s| s.devices_per_instance > 1.0) {
        lines.push(
            "GPU busy, idle and outside are averages over the GPUs of a stage; kernel time, kernels and launches are sums over them.",
        );
    }
    (!lines.is_empty()).then(|| lines.join(" "))
}

/// Says how much kernel time lies outside the stages that were found.
pub fn outside(analysis: &Analysis) -> Option<String> {
    // Stages that the user named may overlap.
    let apart = |kind| matches!(kind, StageKind::Prefill | StageKind::Decode | StageKind::Mixed);
    let stages = &analysis.stages;
    if stages.is_empty() || !stages.iter().all(|s| apart(s.kind) && !own_times(s)) {
        return None;
    }
    let inside: i64 = stages.iter().filter_map(|s| s.kernel_ns).sum();
    let total = analysis.totals.kernel_ns;
    let rest = total.checked_sub(inside).filter(|rest| *rest > 0)?;
    Some(format!(
        "outside the stages: {} of kernel time ({} % of the trace)",
        time(rest),
        percent(rest, total)
    ))
}

/// Formats the share of a stage's time in which its GPUs were busy, in %.
pub fn busy_percent(stage: &Stage) -> String {
    let busy = stage.busy_ns.and_then(|_| stage.busy_share());
    or_none(busy, |share| format!("{:.1}", 100.0 * share))
}

/// Says whether the times of a stage are the program's own.
pub fn own_times(stage: &Stage) -> bool {
    stage.from == StageOrigin::Workload
}

/// Lists the sentences on a stage: GPU work after its ranges, steps, notes.
pub fn details(stage: &Stage) -> Vec<String> {
    let mut lines: Vec<String> = stage.coverage.as_ref().map(coverage).into_iter().collect();
    if stage.closes_early() {
        lines.push(format!(
            "the ranges of {} close before the GPU has finished: GPU work goes on for {} more; \
             synchronize with the device at the end of the range to time all of it",
            stage.name,
            time(stage.late_ns)
        ));
    }
    lines.extend(scheduled(stage));
    lines.extend(queued(stage));
    lines.extend(roof::of_stage(stage));
    lines.extend(gpu_work::graphs_of_stage(stage));
    lines.extend(gpu_work::copies_of_stage(stage));
    lines.extend(cold_start(stage));
    lines.extend(stage.steps.as_ref().map(steps));
    lines.extend(foreign(stage));
    lines.extend(stage.notes.iter().map(|n| note(stage, n)));
    lines
}

/// Describes the recorded part of a stage, and what is estimated from it.
pub fn coverage(part: &StageCoverage) -> String {
    let kernel = part.kernel_ns.map(|estimate| {
        let interval = estimate.low.zip(estimate.high);
        let interval = interval.map(|(low, high)| format!(" (95 %: {} to {})", time(low), time(high)));
        format!(", with an estimated kernel time of {}{}", time(estimate.value), interval.unwrap_or_default())
    });
    format!(
        "recorded in part: {} of {}; all took {} on the CPU{}",
        count(part.recorded),
        count(part.all),
        time(part.wall_ns),
        kernel.unwrap_or_default()
    )
}

/// Describes the steps of a stage.
pub fn steps(steps: &Steps) -> String {
    let launches = steps
        .launches_per_step
        .map(|launches| format!(", {} per step", gpu_work::launches(launches.round() as u64)));
    let times = match steps.count {
        1 => time(steps.mean_ns),
        _ => format!(
            "mean {}, p50 {}, p90 {}, p99 {}",
            time(steps.mean_ns),
            time(steps.p50_ns),
            time(steps.p90_ns),
            time(steps.p99_ns)
        ),
    };
    format!("{}: {times}{}", counted(steps.count, "step"), launches.unwrap_or_default()) + &cpu_steps(steps)
}

/// Adds the time of the steps on the CPU where it differs by more than 10 %.
fn cpu_steps(steps: &Steps) -> String {
    let differs = |cpu: &&CpuSteps| (cpu.p50_ns - steps.p50_ns).abs() > steps.p50_ns / 10;
    let cpu = steps.cpu.as_ref().filter(differs);
    cpu.map_or_else(String::new, |cpu| match steps.count {
        1 => format!("; on the CPU {}", time(cpu.mean_ns)),
        _ => format!("; on the CPU mean {}, p50 {}", time(cpu.mean_ns), time(cpu.p50_ns)),
    })
}

/// Describes the requests and tokens that an engine scheduled in a stage.
fn scheduled(stage: &Stage) -> Option<String> {
    let (requests, tokens) = (stage.requests?, stage.tokens?);
    let phase = |name: &str, requests: Option<u64>, tokens: Option<u64>| match (requests, tokens) {
        (Some(0), _) => None,
        (Some(requests), Some(tokens)) => {
            Some(format!("{} {name} tokens for {}", count(tokens), counted(requests, "request")))
        }
        (Some(requests), None) => Some(format!("{} in {name}", counted(requests, "request"))),
        (None, _) => None,
    };
    let phases = [
        phase("context", requests.context, tokens.context),
        phase("generation", requests.generation, tokens.generation),
    ];
    let rate = stage.tokens_per_s.map(|rate| format!("{} tokens/s", count(rate.round() as u64)));
    let parts: Vec<String> = phases.into_iter().flatten().chain(rate).collect();
    (!parts.is_empty()).then(|| format!("scheduled: {}", parts.join(", ")))
}

/// Says how long a stage waited for earlier work, from 1 % of its time on.
fn queued(stage: &Stage) -> Option<String> {
    let queued = stage.outside().queued_ns;
    let elapsed = stage.elapsed_ns();
    (queued > 0 && queued >= elapsed / 100).then(|| {
        format!(
            "queued: for {} ({} % of its time) the GPU worked on what came before the stage",
            time(queued),
            percent(queued, elapsed)
        )
    })
}

/// Describes the cold instances of a stage apart from the others.
fn cold_start(stage: &Stage) -> Option<String> {
    let cold = stage.cold_start?;
    let others = stage.instances.saturating_sub(cold.instances);
    Some(format!(
        "cold start: the first {} took {} on average, the {} after that {}, with about the same GPU work",
        counted(cold.instances, "instance"),
        time(cold.mean_ns),
        count(others),
        time(cold.warm_mean_ns)
    ))
}

/// Describes the GPU work of other ranges and threads in the time of a stage.
fn foreign(stage: &Stage) -> Option<String> {
    let work = stage.foreign.as_ref().filter(|work| work.kernel_count > 0)?;
    let thread = work.thread.as_ref().map_or_else(String::new, |thread| {
        format!(", {} of them launched by thread {thread}", count(work.thread_kernel_count))
    });
    Some(format!(
        "the GPU also ran {} from outside the stage in this time ({} without work of the stage){thread}",
        counted(work.kernel_count, "kernel"),
        time(work.busy_ns)
    ))
}

fn note(stage: &Stage, note: &Note) -> String {
    let kernels =
        note.kernel_ns.map(|ns| format!(", {} in {}", time(ns), counted(note.kernel_count, "kernel")));
    format!(
        "of which {}: {} wall ({} % of the stage){}",
        note.name,
        time(note.wall_ns),
        percent(note.wall_ns, stage.wall_ns),
        kernels.unwrap_or_default()
    )
}

/// A part of a stage's time.
#[derive(Debug, Clone, Copy)]
pub struct TimePart {
    /// Class in the style sheet.
    pub class: &'static str,
    pub name: &'static str,
    pub meaning: &'static str,
}

/// The parts of a stage's time, in the order of [`parts`].
pub const PARTS: [TimePart; 9] = [
    part("busy", "GPU busy", "at least one operation ran"),
    part("idle-launch", "idle: launch", "the CPU had not launched the next operation yet"),
    part("idle-sync", "idle: sync", "the launching thread was waiting for the device"),
    part("idle-copy", "idle: copy", "the launching thread was inside a copy call"),
    part("idle-other", "idle: other", "launched and not started"),
    part("outside", "outside", "before the first and after the last GPU operation of the stage"),
    part("queued", "queued", "the GPU worked on what came before the stage"),
    part("foreign", "other work", "the GPU ran only work from outside the stage"),
    part("shared", "shared", "concurrent instances on one GPU, whose time counts once"),
];

const fn part(class: &'static str, name: &'static str, meaning: &'static str) -> TimePart {
    TimePart { class, name, meaning }
}

/// Position of the time before the first and after the last operation, and of the parts that only some programs have.
const OUTSIDE: usize = 5;
const QUEUED: usize = 6;
const FOREIGN: usize = 7;
const SHARED: usize = 8;

/// Returns the duration of each part of a stage, ns; `None` without GPU work.
pub fn parts(stage: &Stage) -> Option<[i64; 9]> {
    let (busy, idle) = (stage.busy_ns?, stage.idle?);
    let each = |ns| stage.each_device(ns);
    let elapsed = stage.elapsed_ns();
    let outside = stage.outside();
    let foreign = each(stage.foreign_ns());
    let known = each(busy + idle.total_ns()) + outside.idle_ns + outside.queued_ns + foreign;
    // Less than one per cent is rounding at the edges of instances.
    let shared = Some(elapsed - known).filter(|rest| *rest > elapsed / 100);
    Some([
        each(busy),
        each(idle.launch_ns),
        each(idle.sync_ns),
        each(idle.copy_ns),
        each(idle.other_ns),
        outside.idle_ns,
        outside.queued_ns,
        foreign,
        shared.unwrap_or(0),
    ])
}

/// Returns the positions of the parts to show: those that every program can have, and others that a stage has.
pub fn used_parts(stages: &[Stage]) -> Vec<usize> {
    let has = |part: usize| stages.iter().any(|s| parts(s).is_some_and(|p| p[part] > 0));
    (0..PARTS.len()).filter(|part| *part <= OUTSIDE || has(*part)).collect()
}

/// Tells whether the parts of a stage add up to more than its time.
pub fn parts_exceed_time(stage: &Stage) -> bool {
    let elapsed = stage.elapsed_ns();
    parts(stage).is_some_and(|p| p.iter().sum::<i64>() > elapsed + elapsed / 50)
}

/// Names the stages of a kernel, or a dash.
pub fn joined(names: &[&str]) -> String {
    if names.is_empty() { NONE.to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::Estimate;

    #[test]
    fn a_stage_recorded_in_part_says_so_first() {
        let mut part = StageCoverage::default();
        (part.recorded, part.all, part.wall_ns) = (3, 24, 48_000_000);
        let mut stage = Stage::default();
        stage.coverage = Some(part.clone());
        let bare = "recorded in part: 3 of 24; all took 48.0 ms on the CPU";
        assert_eq!(details(&stage)[0], bare);
        let (value, low, high) = (24_000_000, Some(23_000_000), Some(25_000_000));
        part.kernel_ns = Some(Estimate { value, low, high });
        let estimated = coverage(&part);
        let expected = ", with an estimated kernel time of 24.0 ms (95 %: 23.0 ms to 25.0 ms)";
        assert_eq!(estimated.strip_prefix(bare), Some(expected));
    }
}
