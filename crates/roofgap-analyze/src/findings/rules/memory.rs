//! Memory-bound: at the roof only fewer bytes help, far from it better access does, and below a cache fewer accesses.

use super::measured::{CLEARLY, LOW_PCT, WARP, above_roof_ns, busiest_pct, full_pipe, is_long, keeps_data};
use crate::counters::{Bound, Measured, NEAR_ROOF_PCT, Pipe, SAME_PCT};
use crate::findings::rule::{FindingBuilder, View};
use crate::findings::threads_of;
use crate::names::{Family, family, is_closed_source};
use crate::numbers::{count, time};
use crate::result::{Confidence, CounterRow, Finding, NcuRule, StageKind};
use crate::roof::Keeps;
use std::collections::{BTreeMap, BTreeSet};

/// Share of the bandwidth, in %, from which on a kernel is at the memory roof, as ncu has it.
const AT_ROOF_PCT: f64 = 80.0;
/// Share of the peak of the memory system, in %, below which a kernel does not wait for its bandwidth.
const LEAST_MEMORY_PCT: f64 = 20.0;

/// Share of wall time, in %, from which on it is the GPU that holds a stage back.
const BUSY_PCT: f64 = 60.0;

/// Says how a kernel moves fewer bytes, or a model.
fn fewer_bytes(view: &View<'_>, row: Option<&Measured>) -> &'static str {
    let kernel = row.map(|row| row.row.kernel.as_str());
    let is_llm = view.program.generates
        || matches!(view.stage.kind, StageKind::Prefill | StageKind::Decode | StageKind::Mixed);
    let is_library = |kernel: &str| is_closed_source(kernel) || kernel.contains("cutlass");
    let is_own = |kernel: &str| !view.program.is_torch && !is_llm && !is_library(kernel);
    match kernel.map_or(Family::Gemm, family) {
        Family::Gemm | Family::Gemv | Family::Moe if view.program.trains => view.action("training"),
        Family::Gemm if kernel.is_some_and(is_own) => view.action("products"),
        _ if row.is_some_and(wastes_bytes) => view.action("wasted bytes"),
        Family::Gemm | Family::Gemv | Family::Moe => view.action("weights"),
        Family::Attention => view.action("cache"),
        Family::CopyLayout => view.action("layout"),
        _ => view.action("other kernels"),
    }
}

/// Kernels at the roof of DRAM by their counters, or without counters a stage whose model needs most of the bandwidth, more than of the
/// compute peak. The bound is half their time: weights or cache at half the bits.
pub fn at_the_roof(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let at_roof = |row: &&Measured| {
        row.bound == Some(Bound::Dram) && row.reached_pct.is_some_and(|pct| pct >= AT_ROOF_PCT)
    };
    if let Some(group) = Group::find(view, at_roof) {
        let Group { rows, largest, total_ns, name } = &group;
        let reached = largest.reached_pct.unwrap_or_default().min(100.0);
        let title = format!(
            "{} at the memory roof, {name} at {reached:.0} % of DRAM bandwidth: {}",
            group.that(view, ["runs", "run"]),
            time(*total_ns)
        );
        // With half the bytes the multiprocessors may be the limit.
        let left: f64 = rows
            .iter()
            .map(|row| {
                row.timeline_total_ns as f64 * row.row.sm_pct.unwrap_or(0.0).clamp(50.0, 100.0) / 100.0
            })
            .sum();
        return group
            .draft(view, "with half the bytes", -(left.round() as i64))
            .with("kernel_ns", *total_ns)
            .with_number("largest_dram_pct", reached)
            .finish(title, fewer_bytes(view, Some(largest)));
    }
    let model = ByModel::from_view(view).filter(|model| model.mbu_pct >= NEAR_ROOF_PCT)?;
    let title = format!(
        "{} is memory-bound: while busy the GPU moves what the model needs at {:.0} % of its bandwidth",
        stage.spoken(),
        model.mbu_pct
    );
    view.saves_on_devices(&[("busy time", model.busy_ns), ("with half the bytes", -model.busy_ns / 2)])
        .with_number("mbu_by_busy_pct", model.mbu_pct)
        .with("bytes", model.bytes)
        .with("busy_ns", model.busy_ns)
        .finish(title, fewer_bytes(view, None))
}

/// Kernels that wait for memory and are below the roof of DRAM, or without counters a busy decode whose model needs little
/// of the bandwidth and even less of the compute peak. The bound is the time that the roof would not need.
pub fn far_from_the_roof(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    if let Some(group) = Group::find(view, |row| waits_for_memory(row)) {
        let Group { rows, largest, total_ns, name } = &group;
        let dram = |row: &Measured| row.row.dram_pct.unwrap_or_default().min(100.0);
        let lost_ns = lost_ns(view, rows, |row| busiest_pct(&row.row)).round() as i64;
        // L1 or L2 may be busier.
        let memory = largest.row.memory_pct.filter(|memory| *memory > CLEARLY * dram(largest));
        let memory = memory.map_or_else(String::new, |pct| format!("{pct:.0} % of the memory system, "));
        let title = format!(
            "{} for memory below its roof, {name} at {memory}{:.0} % of DRAM bandwidth",
            group.that(view, ["waits", "wait"]),
            dram(largest)
        );
        return group
            .draft(view, "time at the roof", lost_ns - total_ns)
            .with_number("largest_dram_pct", dram(largest))
            .with("largest_bound", largest.row.bound.clone())
            .finish(title, by_rules(largest, view.action("access")));
    }
    let (model, steps) =
        (ByModel::from_view(view).filter(|m| m.mbu_pct < NEAR_ROOF_PCT)?, stage.steps.as_ref()?);
    let title = format!(
        "{} keeps the GPU busy, yet moves what the model needs at {:.0} % of the bandwidth",
        stage.spoken(),
        model.mbu_pct
    );
    let roof_ns = (model.busy_ns as f64 * model.mbu_pct / 100.0) as i64;
    view.saves_on_devices(&[("busy time", model.busy_ns), ("bytes of the model at the bandwidth", -roof_ns)])
        .with_number("mbu_by_busy_pct", model.mbu_pct)
        .with("bytes", model.bytes)
        .with("busy_ns", model.busy_ns)
        .with("steps", steps.count)
        .with("floor_step_ns", stage.mbu.as_ref().and_then(|mbu| mbu.floor_step_ns))
        .finish(title, view.action("without counters"))
}

/// Kernels that a cache holds back. The bound is their time above the roof, and where that is not known the time that compute and DRAM
/// would not need.
pub fn bound_by_a_cache(view: &View<'_>) -> Option<Finding> {
    let group = Group::find(view, |row| matches!(row.bound, Some(Bound::L1 | Bound::L2)))?;
    let Group { rows, largest, total_ns, name } = &group;
    let of_level = |row: &Measured| match row.bound {
        Some(Bound::L1) => row.row.l1_pct,
        _ => row.row.l2_pct,
    };
    let reached = |row: &Measured| of_level(row).or(row.reached_pct).unwrap_or_default().min(100.0);
    let names: BTreeSet<&str> = rows.iter().map(|row| row.row.kernel.as_str()).collect();
    let above: Option<f64> = names.iter().map(|name| above_roof_ns(view, name)).sum();
    // Without bytes, compute or DRAM at its peak stands for the roof.
    let others = |row: &Measured| {
        if row.readings.waits_for_load_instructions() {
            return beside_pipe_pct(row);
        }
        // Where the two are the same, it is the pipe of loads and stores that is busy, not that of arithmetic.
        let loads = |sm: &f64| row.row.memory_pct.is_some_and(|memory| (memory - sm).abs() < SAME_PCT);
        let compute = row.row.sm_pct.filter(|sm| !loads(sm));
        [compute, row.row.dram_pct].into_iter().flatten().fold(0.0, f64::max)
    };
    let (lost_ns, where_to) = match above {
        Some(above) => (above.min(*total_ns as f64), "at the roof"),
        None => (lost_ns(view, rows, others), "with compute or DRAM at its peak"),
    };
    let lost_ns = lost_ns.round() as i64;
    let (level, action) = match largest.bound {
        Some(Bound::L1) => ("L1", view.action("from L1")),
        _ => ("L2", view.action("from L2")),
    };
    // What is used once gains nothing from being kept.
    let moves = family(&largest.row.kernel) == Family::CopyLayout;
    let action = match wastes(largest) || l1_alone(&largest.row) {
        _ if moves => view.action("strided"),
        true => view.action("scattered"),
        false => action,
    };
    let (what, level, action) = match largest.readings.waits_for_load_instructions() {
        true => ("instructions that load, store or shuffle", "their pipe", view.action("load instructions")),
        false => ("a cache", level, action),
    };
    let title = format!(
        "{} held back by {what}, {name} at {:.0} % of the peak of {level}: {}",
        group.that(view, ["is", "are"]),
        reached(largest),
        time(*total_ns)
    );
    group
        .draft(view, where_to, lost_ns - total_ns)
        .with("kernel_ns", *total_ns)
        .with("largest_bound", largest.row.bound.clone())
        .with_number("largest_reached_pct", reached(largest))
        .finish(title, by_rules(largest, action))
}

/// Estimate of ncu, %, from which on bytes that nobody asked for matter.
const LEAST_WASTE_PCT: f64 = 20.0;

/// Tells whether the threads of a launch need much less than moves to and from DRAM: L2 may join what neighbouring warps move of a sector.
fn wastes_bytes(row: &Measured) -> bool {
    let needed_pct =
        row.readings.needed_bytes.zip(row.readings.dram_bytes).map(|(needed, all)| 100.0 * needed / all);
    wastes(row) && needed_pct.is_some_and(|pct| pct <= 100.0 - LEAST_WASTE_PCT)
}

/// Parts of the names of ncu's rules about addresses that lie apart.
const SCATTERED: [&str; 2] = ["UncoalescedGlobal", "MemoryCacheAccessPattern"];

/// Tells whether L1 is busy alone, as with threads that use addresses apart: data that is used again would come with arithmetic.
fn l1_alone(row: &CounterRow) -> bool {
    let is_low = |pct: Option<f64>| pct.is_some_and(|pct| pct < LEAST_MEMORY_PCT);
    row.l1_pct.is_some_and(|pct| pct >= AT_ROOF_PCT)
        && [row.sm_pct, row.l2_pct, row.dram_pct].into_iter().all(is_low)
}

/// Tells whether neighbouring threads of a launch do not use neighbouring addresses, so that much of what a cache moves is not used.
fn wastes(row: &Measured) -> bool {
    let is_large = |pct: f64| pct >= LEAST_WASTE_PCT;
    row.advice.iter().any(|advice| {
        SCATTERED.iter().any(|part| advice.rule.contains(part)) && advice.speedup_pct.is_some_and(is_large)
    })
}

/// Returns the most use of anything but the busiest pipe of the multiprocessors, %.
fn beside_pipe_pct(row: &Measured) -> f64 {
    let next = row.readings.busiest_pipe().map(|busiest| busiest.next_pct);
    [next, row.row.dram_pct, row.row.l2_pct].into_iter().flatten().fold(0.0, f64::max)
}

/// Kernels that one pipe of the multiprocessors holds back. The bound is the time that everything else would not need at its peak.
pub fn bound_by_a_pipe(view: &View<'_>) -> Option<Finding> {
    let group = Group::find(view, |row| full_pipe(view, row).is_some())?;
    let Group { rows, largest, total_ns, name } = &group;
    let busiest = full_pipe(view, largest)?;
    let (what, action) = match busiest.pipe {
        Pipe::Fp64 => ("arithmetic in double precision", view.action("double precision")),
        Pipe::Special => ("special functions and conversions", view.action("special functions")),
        Pipe::Integer => ("integer and logic instructions", view.action("fewer instructions")),
        _ => ("the number of instructions", view.action("fewer instructions")),
    };
    let left = |row: &Measured| row.timeline_total_ns as f64 * beside_pipe_pct(row).min(100.0) / 100.0;
    let left_ns = rows.iter().copied().map(left).sum::<f64>().round() as i64;
    let title = format!(
        "{} held back by {what}, {name} at {:.0} % of what the GPU can do of them: {}",
        group.that(view, ["is", "are"]),
        busiest.pct,
        time(*total_ns)
    );
    group
        .draft(view, "everything else at its peak", -left_ns)
        .with("kernel_ns", *total_ns)
        .with_number("largest_pipe_pct", busiest.pct)
        .with_number("largest_next_pct", busiest.next_pct)
        .finish(title, action)
}

/// Causes that rules of ncu name for a launch: part of the name of the rule, of its text where newer versions tell the kind of a stall there
/// alone, and the cause.
const CAUSES: &str = include_str!("../../../texts/ncu.tsv");

/// Says what ncu's rules name as causes for a launch; `None` where none does.
fn named_causes(row: &Measured) -> Option<String> {
    let says = |name: &str, text: &str| {
        let is = |advice: &NcuRule| {
            advice.rule.contains(name)
                || !text.is_empty() && advice.rule == "CPIStall" && advice.text.contains(text)
        };
        let is_large = |advice: &NcuRule| effect_pct(advice).is_none_or(|pct| pct >= LEAST_CAUSE_PCT);
        row.advice.iter().any(|advice| is(advice) && is_large(advice))
    };
    let cause = |line: &'static str| {
        let (name, rest) = line.split_once('\t')?;
        let (text, cause) = rest.split_once('\t')?;
        says(name, text).then_some(cause)
    };
    let mut causes: Vec<&str> = CAUSES.lines().filter_map(cause).collect();
    causes.dedup();
    (!causes.is_empty()).then(|| format!("By ncu's rules {}.", causes.join(", ")))
}

/// Returns the estimate of a rule, or the part of the sectors that are moved in vain, which the text of some has: %.
fn effect_pct(advice: &NcuRule) -> Option<f64> {
    let number = |from: &str, to: char| advice.text.split_once(from)?.1.split_once(to)?.0.parse::<f64>().ok();
    let times =
        || advice.text.split_once(" got ")?.1.split_once('(')?.1.split_once("x)")?.0.parse::<f64>().ok();
    let times = || times().map(|times| 100.0 * (times - 1.0));
    advice.speedup_pct.or_else(|| number("excessive sectors (", '%')).or_else(times)
}

/// Puts what ncu's rules name as causes before an action.
fn by_rules(row: &Measured, action: &str) -> String {
    named_causes(row).map_or_else(|| action.to_owned(), |causes| format!("{causes} {action}"))
}

/// Estimate of a rule of ncu, %, from which on it names a cause.
const LEAST_CAUSE_PCT: f64 = 10.0;

/// Use of the busiest unit, % of its peak, below which the warps of a long kernel do nothing for most of the time.
const AT_REST_PCT: f64 = 10.0;

/// Kernels that use nothing at its peak, wait for no memory and have warps enough. The bound is the time that their busiest unit at its
/// peak would not need.
pub fn below_every_peak(view: &View<'_>) -> Option<Finding> {
    let is_unclassified = |row: &&Measured| {
        let occupancy = row.row.occupancy_pct.unwrap_or(100.0);
        matches!(row.bound, Some(Bound::Compute | Bound::Latency))
            && !waits_for_memory(row)
            && full_pipe(view, row).is_none()
            && (occupancy >= LOW_PCT || busiest_pct(&row.row) >= NEAR_ROOF_PCT || keeps_data(&row.row.kernel))
            && busiest_pct(&row.row) < AT_ROOF_PCT
            && is_long(row.timeline_total_ns, row.timeline_calls)
    };
    let group = Group::find(view, is_unclassified)?;
    let Group { rows, largest, total_ns, name } = &group;
    let lost_ns = lost_ns(view, rows, |row| busiest_pct(&row.row)).round() as i64;
    let row = &largest.row;
    let is_idle = busiest_pct(row) < AT_REST_PCT;
    // Of each shape there is a row.
    let same = rows.iter().filter(|other| other.row.kernel == row.kernel);
    let title = format!(
        "{} no GPU unit, {name} takes {} with compute at {:.0} % and memory at {:.0} %",
        group.that(view, ["saturates", "saturate"]),
        time(same.map(|other| other.timeline_total_ns).sum()),
        row.sm_pct?,
        row.memory_pct?
    );
    let draft = group.draft(view, "with the busiest unit at its peak", lost_ns - total_ns);
    draft
        .with("kernel_ns", *total_ns)
        .with_number("sm_pct", row.sm_pct)
        .with_number("memory_pct", row.memory_pct)
        .with_number("occupancy_pct", row.occupancy_pct)
        .confidence(if is_idle { Confidence::Bounded } else { view.rule.confidence })
        .finish(
            title,
            match named_causes(largest) {
                _ if is_idle => by_rules(largest, view.action("waits")),
                Some(causes) => format!("{causes} {}", view.action("begin there")),
                None => view.action("stalls").to_owned(),
            },
        )
}

/// Adds up the time that kernels at their peak would not need, where `reached` returns the share of the peak, %. For no kernel is it
/// more than its time above the roof, where all of its time has a roof.
fn lost_ns(view: &View<'_>, rows: &[&Measured], reached: impl Fn(&Measured) -> f64) -> f64 {
    let mut by_kernel: BTreeMap<&str, f64> = BTreeMap::new();
    for row in rows {
        let lost = row.timeline_total_ns as f64 * (1.0 - reached(row) / 100.0).max(0.0);
        *by_kernel.entry(row.row.kernel.as_str()).or_default() += lost;
    }
    by_kernel
        .into_iter()
        .map(|(name, lost)| above_roof_ns(view, name).map_or(lost, |above| lost.min(above)))
        .sum()
}

/// Bound by DRAM below its roof, or by latency with the memory system busier than the multiprocessors.
fn waits_for_memory(row: &Measured) -> bool {
    match (row.bound, row.row.dram_pct, row.row.memory_pct, row.row.sm_pct) {
        // Blocks of less than a warp load for few threads at a time.
        _ if (1..WARP).contains(&threads_of(row.row.block)) => false,
        (Some(Bound::Dram), ..) => row.reached_pct.is_some_and(|pct| pct < AT_ROOF_PCT),
        (Some(Bound::Latency), Some(_), Some(memory), Some(sm)) => {
            // A busy L1 alone is no memory to wait for.
            let beyond_l1 = row.row.dram_pct.zip(row.row.l2_pct).map(|(dram, l2)| dram.max(l2));
            memory > CLEARLY * sm
                && beyond_l1.unwrap_or(memory) >= LEAST_MEMORY_PCT
                && is_long(row.timeline_total_ns, row.timeline_calls)
        }
        _ => false,
    }
}

/// Kernels of a stage with one limit.
struct Group<'a> {
    rows: Vec<&'a Measured>,
    /// Row with the most time in the stage, and its short name.
    largest: &'a Measured,
    name: String,
    /// Time of all in the stage, summed over devices, ns.
    total_ns: i64,
}

impl<'a> Group<'a> {
    /// Collects the kernels with a limit; `None` without any.
    fn find(view: &View<'a>, has_limit: impl Fn(&&'a Measured) -> bool) -> Option<Self> {
        let rows: Vec<&Measured> = view.counters().filter(has_limit).collect();
        let largest = rows.iter().copied().max_by_key(|row| row.timeline_total_ns)?;
        let total_ns = rows.iter().map(|row| row.timeline_total_ns).sum();
        Some(Self { rows, largest, name: view.short_names.get(&largest.row.kernel), total_ns })
    }

    /// Names the kernels by their number and what it or they do, with the verb in both forms. A kernel may have several rows, one for each
    /// shape of its launches.
    fn that(&self, view: &View<'_>, [one, several]: [&str; 2]) -> String {
        let names: BTreeSet<&str> = self.rows.iter().map(|row| row.row.kernel.as_str()).collect();
        let stage = view.stage.spoken();
        match names.len() {
            1 => format!("one kernel of {stage} {one}"),
            kernels => format!("{} kernels of {stage} {several}", count(kernels as u64)),
        }
    }

    /// Begins a finding that saves their time but for what stays.
    fn draft(&self, view: &View<'_>, what_stays: &str, ns: i64) -> FindingBuilder {
        view.saves_on_devices(&[("kernel time", self.total_ns), (what_stays, ns)])
            .with("kernels", self.rows.len())
            .with("largest", self.name.as_str())
    }
}

/// The memory traffic of a stage by its model.
struct ByModel {
    /// MBU by busy time, %.
    mbu_pct: f64,
    busy_ns: i64,
    bytes: f64,
}

impl ByModel {
    /// Returns the traffic of a stage that keeps the GPU busy, was not measured by counters, and whose memory roof is the highest.
    fn from_view(view: &View<'_>) -> Option<Self> {
        let stage = view.stage;
        let (mbu, busy_ns) = (stage.mbu.as_ref()?, stage.busy_ns?);
        let is_busy = 100.0 * stage.busy_share()? >= BUSY_PCT;
        let is_highest = view.roofs.highest(Keeps::Work, false).1 <= view.roofs.memory_ns;
        let is_counted = view.counters().next().is_some();
        let memory = Self { mbu_pct: mbu.by_busy_pct?, busy_ns, bytes: mbu.bytes };
        (is_busy && is_highest && !is_counted).then_some(memory)
    }
}
