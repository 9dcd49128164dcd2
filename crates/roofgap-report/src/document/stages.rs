//! Stages: their table, the sentences on each, the parts of their time, their MFU and MBU, the functions of the CPU in their idle time, and
//! the ranges of a capture without stages.

use super::table::Table;
use super::{Block, Document, Form, Item, Section, explanation, gpu_work, joined, joined_any, maybe, roof};
use roofgap_analyze::{
    About, Analysis, BesideRanges, ColdCause, CostSource, CpuSteps, KernelSum, Mbu, Mfu, Note, RangeInfo,
    Stage, StageCoverage, StageKind, StageLimit, StageOrigin, Steps, Term, verdict,
};
use roofgap_base::numbers::{count, counted, or_none, percent, share, si, time};
use roofgap_base::text::cut;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Columns that are sums of others, and those, after the stage: what a narrow terminal or a report shows of a stage adds up to its time.
const SUMS: [&str; 2] = ["idle ms", "rest ms"];
const SUMMANDS: [&str; 9] = [
    "stage",
    "idle: launch ms",
    "sync ms",
    "copy ms",
    "other ms",
    "outside ms",
    "queued ms",
    "other work ms",
    "shared ms",
];

/// Most characters of the name of a range.
const RANGE_NAME: usize = 100;

impl Document<'_> {
    /// Tabulates the stages, with a verdict on each; says why there are none.
    pub(super) fn stages(&self) -> Section {
        let (analysis, stages) = (self.analysis, &self.analysis.stages);
        let section = Section::new("stages", "Stages");
        if stages.is_empty() {
            return section.with(self.no_stages());
        }
        let table = table(stages);
        let whole_rows = table.without(&SUMS);
        let is_narrow = self.text().screen.width.is_some_and(|width| whole_rows.width() > width);
        let tables = match self.form {
            Form::Text(_) if !is_narrow => vec![whole_rows],
            Form::Text(_) => vec![table.without(&SUMMANDS[1..])],
            _ => vec![table.without(&SUMMANDS[1..]), table.pick(&SUMMANDS)],
        };
        let has_parts = |table: &Table| table.headings.len() > 1;
        let section = section
            .with(tables.into_iter().filter(has_parts).map(Block::Table))
            .with(columns_note(stages).map(Block::Note))
            .with([Block::List(stages.iter().map(stage_item).collect())]);
        if !self.is_text() {
            return section;
        }
        // Without a model no stage has them, and the table has no columns for them.
        let modelled = analysis.workload.as_ref().is_some_and(|workload| workload.model.is_some());
        let missing = missing(analysis).into_iter().filter(|_| modelled);
        // Stages that are not shown are not outside.
        let outside = outside(analysis).filter(|_| !self.text().stages_only);
        let whole = stages.iter().all(Stage::is_unnamed);
        section
            .with(missing.map(|line| Block::Line(format!("no MFU or MBU of {line}"))))
            .with(outside.map(Block::Line))
            .with(whole.then(|| self.no_stages()).into_iter().flatten())
    }

    /// Says why no stage was found and lists the ranges that are there.
    fn no_stages(&self) -> Vec<Block> {
        let mut blocks = vec![self.missing(&About::Stages)];
        let rows = ranges(self.analysis);
        if !rows.is_empty() {
            let table = Table::of(&rows)
                .text("domain", |r| &r.domain)
                .text("range", |r| cut(&r.name, RANGE_NAME))
                .number("count", |r| r.instances)
                .ms("wall", |r| r.wall_ns)
                .number("kernels", |r| r.kernel_count)
                .build();
            blocks.push(Block::line("Ranges in the input:"));
            blocks.extend(Block::first_rows(table, if self.is_text() { 20 } else { 30 }));
        }
        blocks
    }

    /// Tabulates MFU and MBU by stage and for all stages together, and says why some are missing.
    pub(super) fn utilisation(&self) -> Section {
        let analysis = self.analysis;
        let stages = analysis.stages.iter().map(|s| (s.name.as_str(), s.mfu.as_ref(), s.mbu.as_ref()));
        let all = analysis.whole.iter().map(|all| ("whole", all.mfu.as_ref(), all.mbu.as_ref()));
        let rows: Vec<(&str, Option<&Mfu>, Option<&Mbu>)> = stages.chain(all).collect();
        let peak = |m: &Mfu| format!("{} ({})", si(m.peak_flops_per_s).trim_end(), m.dtype);
        let table = Table::of(&rows)
            .text("stage", |r| r.0)
            .number("FLOPs", |r| Some(si(r.1?.flops)))
            .number("peak FLOP/s", |r| r.1.map(peak))
            .number("MFU by wall %", |r| Some(share(r.1?.by_wall_pct)))
            .number("MFU by busy %", |r| r.1?.by_busy_pct.map(share))
            .number("bytes", |r| Some(si(r.2?.bytes)))
            .number("bandwidth B/s", |r| Some(si(r.2?.bandwidth_bytes_per_s)))
            .number("MBU by wall %", |r| Some(share(r.2?.by_wall_pct)))
            .number("MBU by busy %", |r| r.2?.by_busy_pct.map(share))
            .number("step floor", |r| r.2?.floor_step_ns.map(time))
            .number("step without outliers", |r| r.2?.step_ns.map(time))
            .build();
        let measured = analysis.stages.iter().filter_map(sampled);
        let lines = sources(analysis).into_iter().chain(missing(analysis)).chain(measured);
        let terms = analysis.stages.iter().flat_map(terms);
        Section::new("mfu", "MFU and MBU").with(Block::table(table)).with(Block::list(lines)).with(terms)
    }
}

/// States the verdict on a stage, and its details.
fn stage_item(stage: &Stage) -> Item {
    let verdict = verdict(stage);
    let source = if own_times(stage) { " (times reported by the program)" } else { "" };
    Item {
        name: stage.name.clone(),
        word: Some((verdict.label.as_str(), verdict.label.into())),
        text: format!(": {}{source}", verdict.why),
        lines: details(stage),
    }
}

/// Describes the sampled counters of a stage.
fn sampled(stage: &Stage) -> Option<String> {
    let sampled = stage.mbu_measured.as_ref()?;
    let unit = if sampled.step_dram_bytes.is_some() { " a step" } else { "" };
    let share_of = |pct: Option<f64>, what: &str| pct.map(|pct| format!("{what} {} %", share(pct)));
    let parts = [
        sampled
            .step_dram_bytes
            .or(sampled.dram_bytes)
            .map(|bytes| format!("{}B of DRAM traffic{unit}", si(bytes))),
        share_of(sampled.by_busy_pct, "bandwidth used while busy"),
        share_of(sampled.tensor_active_pct, "tensor pipe active"),
        share_of(sampled.sm_active_pct, "multiprocessors active"),
        sampled.to_model.map(|ratio| format!("{ratio:.2} times the bytes of the model")),
    ];
    let parts = joined(parts.into_iter().flatten(), ", ");
    let (interval, covered) = (time(sampled.interval_ns), share(sampled.covered_pct));
    Some(match &sampled.source {
        Some(source) => format!(
            "{}, measured by {source}: {parts}. Samples of {interval} over {covered} % of its time.",
            stage.name
        ),
        None => format!(
            "{}, measured: {parts}. Samples of {interval} over {covered} % of its busy time, their clock known to {}.",
            stage.name,
            time(sampled.clock_error_ns)
        ),
    })
}

/// Tabulates the terms of MFU and MBU of a stage, each once, with their derivations and assumptions.
fn terms(stage: &Stage) -> Vec<Block> {
    let (mfu, mbu) = (stage.mfu.as_ref(), stage.mbu.as_ref());
    let mut names = HashSet::new();
    let all = mfu.iter().flat_map(|m| &m.terms).chain(mbu.iter().flat_map(|m| &m.terms));
    let terms: Vec<&Term> = all.filter(|term| names.insert(&term.name)).collect();
    if terms.is_empty() {
        return Vec::new();
    }
    let derived = terms.iter().map(|term| format!("{}: {}", term.name, term.how));
    let assumed = mfu.iter().flat_map(|m| &m.assumptions).chain(mbu.iter().flat_map(|m| &m.assumptions));
    let lines = once_each(derived.chain(assumed.map(|assumption| format!("assumed: {assumption}"))));
    let amount = |value: f64| Some(value).filter(|value| *value != 0.0).map(si);
    let table = Table::of(&terms)
        .text("term", |t| &t.name)
        .number("FLOPs", |t| amount(t.flops))
        .number("bytes", |t| amount(t.bytes))
        .build();
    let title = Block::Line(format!("Work of {}, term by term:", stage.name));
    [title, Block::Table(table)].into_iter().chain(Block::list(lines)).collect()
}

/// Tabulates stages. A report picks its columns. GPU busy, idle and rest, or their parts from launch to shared, add up to the time of a
/// stage.
pub fn table(stages: &[Stage]) -> Table {
    let gpu = |stage: &Stage, n: u64| stage.busy_ns.map(|_| n);
    let used = used_parts(stages);
    let part = |at: usize| {
        let shown = used.contains(&at);
        move |s: &Stage| parts(s).map(|parts| parts[at]).filter(|_| shown)
    };
    let two_clocks = two_clocks(stages);
    let only = |shown: bool, ns: i64| shown.then_some(ns);
    Table::of(stages)
        .text("stage", |s| &s.name)
        .number("instances", |s| s.instances)
        .ms("wall", |s| only(!two_clocks, s.wall_ns))
        .ms("time", |s| only(two_clocks, s.elapsed_ns()))
        .ms("CPU wall", |s| only(two_clocks, s.wall_ns))
        .ms("GPU busy", |s| s.busy_ns.map(|ns| s.each_device(ns)))
        .number("busy %", |s| s.busy_ns.and_then(|_| s.busy_share()).map(|share| 100.0 * share))
        .ms("idle", |s| s.idle.map(|idle| s.each_device(idle.total_ns())))
        .ms("rest", |s| parts(s).map(|parts| parts[OUTSIDE..].iter().sum::<i64>()))
        .ms("idle: launch", part(1))
        .ms("sync", part(2))
        .ms("copy", part(3))
        .ms("other", part(4))
        .ms("outside", part(OUTSIDE))
        .ms("queued", part(OUTSIDE + 1))
        .ms("other work", part(OUTSIDE + 2))
        .ms("shared", part(OUTSIDE + 3))
        .ms("kernel", |s| s.kernel_ns)
        .number("kernels", |s| gpu(s, s.kernel_count))
        .number("launches", |s| gpu(s, s.launch_count))
        .number("MFU %", |s| Some(share(s.mfu.as_ref()?.by_wall_pct)))
        .number("MBU %", |s| Some(share(s.mbu.as_ref()?.by_wall_pct)))
        .number("measured MBU %", |s| s.mbu_measured.as_ref()?.by_wall_pct.map(share))
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
    let times = two_clocks(stages).then_some(explanation("two-clocks"));
    let averages = stages.iter().any(|s| s.devices_per_instance > 1.0).then_some(explanation("averages"));
    joined_any([times, averages].into_iter().flatten(), " ")
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

/// Says whether the times of a stage are the program's own.
pub fn own_times(stage: &Stage) -> bool {
    stage.from == StageOrigin::Workload
}

/// Lists the sentences on a stage: GPU work after its ranges, steps, notes.
fn details(stage: &Stage) -> Vec<String> {
    let late = stage.closes_early().then(|| {
        format!(
            "the ranges of {} close before the GPU has finished: GPU work goes on for {} more; \
             synchronize with the device at the end of the range to time all of it",
            stage.name,
            time(stage.late_ns)
        )
    });
    let lines = [
        stage.coverage.as_ref().map(coverage),
        late,
        scheduled(stage),
        roof::of_stage(stage),
        gpu_work::graphs_of_stage(stage),
        cold_start(stage),
        stage.steps.as_ref().map(steps),
        corrected(stage),
        stage.beside_ranges.map(beside_ranges),
        foreign(stage),
    ];
    lines.into_iter().flatten().chain(stage.notes.iter().map(|part| note(stage, part))).collect()
}

/// Describes the recorded part of a stage, and what is estimated from it.
pub fn coverage(part: &StageCoverage) -> String {
    let kernel = maybe(part.kernel_ns, |estimate| {
        let interval = estimate.low.zip(estimate.high);
        let interval = maybe(interval, |(low, high)| format!(" (95 %: {} to {})", time(low), time(high)));
        format!(", with an estimated kernel time of {}{interval}", time(estimate.value))
    });
    format!(
        "recorded in part: {} of {}; all took {} on the CPU{kernel}",
        count(part.recorded),
        count(part.all),
        time(part.wall_ns)
    )
}

/// Steps from which on their percentiles are told.
const MANY_STEPS: u64 = 20;

/// Describes the steps of a stage.
pub fn steps(steps: &Steps) -> String {
    let launches = maybe(steps.launches_per_step, |launches| {
        format!(", {} per step", gpu_work::launches(launches.round() as u64))
    });
    let times = match steps.count {
        1 => time(steps.mean_ns),
        _ => format!(
            "median {}, mean {}, {}",
            time(steps.p50_ns),
            time(steps.mean_ns),
            match steps.each_ns.iter().max() {
                // So few have no percentiles.
                Some(longest) if steps.count < MANY_STEPS => format!("longest {}", time(*longest)),
                _ => format!("p90 {}, p99 {}", time(steps.p90_ns), time(steps.p99_ns)),
            }
        ),
    };
    format!("{}: {times}{launches}{}", counted(steps.count, "step"), cpu_steps(steps))
}

/// Share of a stage, %, from which on the profiler's own work is worth a line.
const LEAST_PROFILER_PCT: i64 = 1;

/// Describes a stage without the profiler that recorded it, or else what the profiler says about itself.
pub fn corrected(stage: &Stage) -> Option<String> {
    let Some(corrected) = stage.corrected else {
        let corrected = stage.profiler_overhead_ns?;
        let line = || format!("the profiler itself worked for {} of it, by its own account", time(corrected));
        return (corrected > 0 && corrected >= stage.wall_ns / 100 * LEAST_PROFILER_PCT).then(line);
    };
    if corrected.cost_per_call_ns == 0 {
        return Some(format!("without {}: no cost of the profiler was found", corrected.tool));
    }
    let unit = if stage.warm().step_ns().is_some() { " a step" } else { "" };
    Some(format!(
        "without {}{}: about {}{unit} ({} to {}), GPU busy {} %{}; it costs about {} for each of {} recorded events{unit}",
        corrected.tool,
        if corrected.source == CostSource::Stated { ", by the stated time" } else { "" },
        time(corrected.step_ns),
        time(corrected.low_ns),
        time(corrected.high_ns),
        share(corrected.busy_pct),
        maybe(only_profiled(stage), |words| format!(", {words}")),
        time(corrected.cost_per_call_ns),
        count(corrected.calls)
    ))
}

/// Names the limit that a stage has only under its profiler, and the one without.
pub fn only_profiled(stage: &Stage) -> Option<String> {
    let (corrected, limit) = stage.corrected.zip(stage.limit)?;
    let is_sure = stage.steady.as_ref().is_some_and(|steady| steady.time_ns > corrected.high_ns);
    let is_known = !matches!(corrected.limit, StageLimit::NotMeasured | StageLimit::TooLittle);
    (corrected.limit != limit && is_sure && is_known)
        .then(|| format!("{limit} only under {}, {} without it", corrected.tool, corrected.limit))
}

/// Adds the time of the steps on the CPU where it differs by more than 10 %.
fn cpu_steps(steps: &Steps) -> String {
    let differs = |cpu: &&CpuSteps| (cpu.p50_ns - steps.p50_ns).abs() > steps.p50_ns / 10;
    maybe(steps.cpu.as_ref().filter(differs), |cpu| {
        format!("; on the CPU median {}, mean {}", time(cpu.p50_ns), time(cpu.mean_ns))
    })
}

/// Describes the requests and tokens that an engine scheduled in a stage.
fn scheduled(stage: &Stage) -> Option<String> {
    let (requests, tokens) = (stage.requests?, stage.tokens?);
    let steps = stage.steps.as_ref().map_or(stage.instances, |steps| steps.count).max(1);
    // The sum over the steps counts a request once for each step that it is in.
    let phase = |name: &str, requests: Option<u64>, tokens: Option<u64>| {
        let mean = requests.filter(|requests| *requests > 0)? as f64 / steps as f64;
        Some(format!("{} {name} tokens with {mean:.1} requests a step", or_none(tokens, count)))
    };
    let parts = [
        phase("context", requests.context, tokens.context),
        phase("generation", requests.generation, tokens.generation),
        stage.tokens_per_s.map(|rate| format!("{} tokens/s", count(rate.round() as u64))),
    ];
    joined_any(parts.into_iter().flatten(), ", ").map(|parts| format!("scheduled: {parts}"))
}

/// Describes the cold instances and steps of a stage apart from the others, with what made them cold.
fn cold_start(stage: &Stage) -> Option<String> {
    let cold = stage.cold_start.as_ref()?;
    let cause = |cause: &ColdCause| {
        format!("{} before and in {} of {}", time(cause.ns), counted(cause.calls, "call"), cause.call)
    };
    let causes = maybe(joined_any(cold.causes.iter().map(cause), ", "), |causes| format!(": {causes}"));
    let (mean, warm) = (time(cold.mean_ns), time(cold.warm_mean_ns));
    if !cold.left_out {
        // What is done once may take longer than the GPU had to wait for it.
        let warm = maybe((cold.warm_mean_ns > 0).then_some(warm), |warm| {
            format!(", and would take {warm} without what is done only once")
        });
        return Some(format!("cold start: it takes {mean}{warm}{causes}"));
    }
    let units =
        [(cold.instances, "instance"), (cold.steps, "step")].into_iter().filter(|(count, _)| *count > 0);
    let units = joined_any(units.map(|(number, unit)| counted(number, unit)), " and ");
    let slow = units.map(|units| {
        format!("{units} took {mean} on average where the others take {warm}, with about the same GPU work")
    });
    let startup = (cold.startup_ns > 0).then(|| format!("start-up took {}", time(cold.startup_ns)));
    let facts = joined(slow.into_iter().chain(startup), ", and ");
    Some(format!("cold start: {facts}; limit, findings and headline are without it{causes}"))
}

/// Describes the kernels by which a stage of engine steps differs from its ranges.
fn beside_ranges(beside: BesideRanges) -> String {
    let kernels = |sum: KernelSum, what: &str| {
        (sum.kernel_count > 0)
            .then(|| format!("{what} {} ({})", counted(sum.kernel_count, "kernel"), time(sum.kernel_ns)))
    };
    let with = kernels(beside.launched_after, "and")
        .map(|words| format!("{words} launched between one range and the next"));
    let without = kernels(beside.ran_before, "less")
        .map(|words| format!("{words} of the first step that ran before it began"));
    format!("its kernels are those of its ranges, {}", joined(with.into_iter().chain(without), ", "))
}

/// Describes the GPU work of other ranges and threads in the time of a stage.
fn foreign(stage: &Stage) -> Option<String> {
    let work = stage.foreign.as_ref().filter(|work| work.kernel_count > 0)?;
    let thread = maybe(work.thread.as_ref(), |thread| {
        format!(", {} of them launched by thread {thread}", count(work.thread_kernel_count))
    });
    Some(format!(
        "the GPU also ran {} from outside the stage in this time ({} without work of the stage){thread}",
        counted(work.kernel_count, "kernel"),
        time(work.busy_ns)
    ))
}

fn note(stage: &Stage, note: &Note) -> String {
    let Note { name, wall_ns, .. } = note;
    let kernels =
        maybe(note.kernel_ns, |ns| format!(", {} in {}", time(ns), counted(note.kernel_count, "kernel")));
    let pct = percent(*wall_ns, stage.wall_ns);
    format!("of which {name}: {} wall ({pct} % of the stage){kernels}", time(*wall_ns))
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

/// Position of the time before the first and after the last operation; the parts after it only some programs have.
const OUTSIDE: usize = 5;

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

/// States where the peaks of the table come from, each source once.
fn sources(analysis: &Analysis) -> Vec<String> {
    once_each(analysis.stages.iter().flat_map(|stage| {
        let peak = stage.mfu.iter().map(|mfu| {
            format!("peak of {}FLOP/s ({}): {}.", si(mfu.peak_flops_per_s), mfu.dtype, mfu.peak_source)
        });
        peak.chain(stage.mbu.iter().map(|mbu| {
            format!("bandwidth of {}B/s: {}.", si(mbu.bandwidth_bytes_per_s), mbu.bandwidth_source)
        }))
    }))
}

/// Returns lines without their repetitions.
pub fn once_each(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = HashSet::new();
    lines.filter(|line| seen.insert(line.clone())).collect()
}

/// Groups the stages without MFU or MBU by reason: one sentence a reason.
fn missing(analysis: &Analysis) -> Vec<String> {
    let mut reasons: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for reason in &analysis.reasons {
        if let About::StageMfu(stage) | About::StageMbu(stage) = &reason.about {
            reasons.entry(&reason.why).or_default().insert(stage);
        }
    }
    if reasons.is_empty() && analysis.stages.is_empty() && analysis.whole.is_none() {
        return vec!["No MFU: there is no stage of a known model.".into()];
    }
    reasons.into_iter().map(|(why, stages)| format!("{}: {why}.", joined(stages, ", "))).collect()
}

/// Lists the ranges, longest first. Names that differ only in numbers are one row, as the pattern that matches all of them.
fn ranges(analysis: &Analysis) -> Vec<RangeInfo> {
    let mut rows: BTreeMap<(&str, &str, String), RangeInfo> = BTreeMap::new();
    for range in &analysis.ranges {
        let key = (range.domain.as_str(), range.style.as_str(), pattern(&range.name));
        let name = key.2.clone();
        rows.entry(key)
            .and_modify(|sum| {
                sum.name = name;
                sum.instances += range.instances;
                sum.wall_ns += range.wall_ns;
                sum.kernel_count += range.kernel_count;
            })
            .or_insert_with(|| range.clone());
    }
    let mut rows: Vec<RangeInfo> = rows.into_values().collect();
    rows.sort_by_key(|row| Reverse(row.wall_ns));
    rows
}

/// Replaces numbers in a name by `*`.
fn pattern(name: &str) -> String {
    let mut pattern = name.replace(|c: char| c.is_ascii_digit(), "*");
    while pattern.contains("**") {
        pattern = pattern.replace("**", "*");
    }
    pattern
}

impl Document<'_> {
    /// Tabulates the functions of the launching threads in the idle time of each stage.
    pub(super) fn host(&self) -> Section {
        let section = Section::new("host", "CPU code in the idle time of the GPU");
        let most = if self.text().stages_only { 0 } else { self.most(60) };
        let stages = || self.analysis.stages.iter().filter(|stage| stage.host_idle.is_some() && most > 0);
        let rows = stages().flat_map(|stage| stage.host.iter().take(most).map(move |row| (stage, row)));
        let mut rows: Vec<_> = rows.collect();
        if self.is_page() {
            // The page shows the first rows of a long table.
            rows.sort_by_key(|(_, row)| Reverse(row.self_ns));
        }
        let table = Table::of(&rows)
            .text("stage", |(stage, _)| &stage.name)
            .text("function", |(_, row)| row.spoken())
            .text("kind", |(_, row)| row.kind.as_str())
            .ms("own", |(_, row)| row.self_ns)
            .number("share %", |(stage, row)| Some(percent(row.self_ns, stage.host_idle?.idle_ns)))
            .ms("all", |(_, row)| row.idle_ns)
            .text("mostly in", |(_, row)| row.mostly.as_ref().map(|call| &call.function))
            .number("samples", |(_, row)| row.samples)
            .text("part", |(_, row)| row.part.as_ref())
            .build();
        section.with(Block::table(table.measured())).with(Block::list(stages().filter_map(unexplained)))
    }
}

/// Says how much of the idle time of a stage is not in a known function.
fn unexplained(stage: &Stage) -> Option<String> {
    let idle = stage.host_idle?;
    let parts = [idle.idle_ns, idle.others_ns, idle.unknown_ns].map(time);
    let [all, others, unknown] = parts;
    Some(format!(
        "{}: the GPU waited {all} for the CPU; {others} of it in functions with less, {unknown} without a sample",
        stage.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::text::TextOptions;
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

    #[test]
    fn each_source_of_a_peak_is_named_once() {
        let mut stage = Stage::default();
        stage.mfu = Some(Mfu {
            peak_flops_per_s: 19.22e9,
            dtype: "fp32".to_owned(),
            peak_source: "measured on this CPU".to_owned(),
            ..Mfu::default()
        });
        let mut analysis = Analysis::default();
        analysis.stages = vec![stage.clone(), stage];
        assert_eq!(sources(&analysis), ["peak of 19.22 GFLOP/s (fp32): measured on this CPU."]);
    }

    fn with_ranges(names: &[(&str, i64)]) -> Analysis {
        let range = |(name, wall_ns): &(&str, i64)| RangeInfo {
            name: (*name).to_owned(),
            style: "push_pop".into(),
            instances: 2,
            wall_ns: *wall_ns,
            kernel_count: 5,
            ..RangeInfo::default()
        };
        let mut analysis = Analysis::default();
        analysis.ranges = names.iter().map(range).collect();
        analysis
    }

    #[test]
    fn names_that_differ_in_numbers_are_one_row() {
        let analysis = with_ranges(&[
            ("forward", 50),
            ("layer_10_forward", 30),
            ("layer_2_forward", 20),
            ("layer_1_forward", 10),
            ("batch 1", 3),
            ("batch 2", 2),
        ]);
        let rows = ranges(&analysis);
        let seen: Vec<(&str, u64, i64, u64)> =
            rows.iter().map(|r| (r.name.as_str(), r.instances, r.wall_ns, r.kernel_count)).collect();
        assert_eq!(seen, [("layer_*_forward", 6, 60, 15), ("forward", 2, 50, 5), ("batch *", 4, 5, 10),]);
    }

    #[test]
    fn ranges_of_another_style_are_rows_of_their_own() {
        let mut analysis = with_ranges(&[("batch 1", 4), ("batch 2", 3), ("batch 3", 2), ("batch 4", 1)]);
        analysis.ranges[3].style = "start_end".into();
        let rows = ranges(&analysis);
        let seen: Vec<(&str, i64)> = rows.iter().map(|r| (r.name.as_str(), r.wall_ns)).collect();
        assert_eq!(seen, [("batch *", 9), ("batch 4", 1)]);
    }

    #[test]
    fn a_long_name_is_cut() {
        let long = "x".repeat(5000);
        let analysis = with_ranges(&[(&long, 1)]);
        let shown = crate::render::text::render(&analysis, TextOptions::default());
        assert!(shown.contains("xx…") && shown.len() < 1000, "{shown}");
    }
}
