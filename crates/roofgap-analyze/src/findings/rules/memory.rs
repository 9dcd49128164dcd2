//! Memory-bound: at the roof only fewer bytes help, far from it better access does, and below a cache fewer accesses.

use crate::counters::{Bound, Measured, NEAR_ROOF_PCT};
use crate::findings::builder::FindingBuilder;
use crate::findings::{Explanation, View};
use crate::numbers::{count, time};
use crate::result::{Finding, Stage};
use std::collections::BTreeMap;

/// Share of the bandwidth, in %, from which on a kernel or a stage is at the memory roof, as ncu has it. From
/// [`NEAR_ROOF_PCT`] on it is near it.
const AT_ROOF_PCT: f64 = 80.0;
/// Share of wall time, in %, from which on it is the GPU that holds a stage back.
const BUSY_PCT: f64 = 60.0;

const FEWER_BYTES: &str = "Move fewer bytes: weights in 8 or 4 bits, more sequences a step so that a weight read serves more \
                           tokens, a smaller or grouped cache of keys and values. The bound is for half the bytes.";
const BETTER_ACCESS: &str = "Get nearer to the roof before buying bandwidth: wider and contiguous loads, a layout that the kernel \
                             reads in order, larger pages of the cache, kernels fused so that a value is read once.";
const FEWER_FROM_L1: &str = "Ask less of L1 and shared memory: keep values in registers (larger tiles of each thread), wider loads, no \
                             bank conflicts, warp shuffles. The bound is for the same accesses at the peak of the cache; fewer \
                             of them save more.";
const FEWER_FROM_L2: &str = "Ask less of L2: keep what a block reads again in shared memory or registers (larger tiles), order blocks so \
                             that neighbours read the same data, fuse kernels. The bound is for the same accesses at the peak of \
                             the cache; fewer of them save more.";

/// Kernels at or near the roof of DRAM by their counters, or without counters a stage whose model needs most of the bandwidth. The
/// bound is half their time: weights or cache at half the bits.
pub fn at_the_roof(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let kernels: Vec<&Measured> = view.counters().filter(|row| row.bound == Some(Bound::Dram)).collect();
    if let Some((largest, total_ns)) = largest(&kernels) {
        let reached = largest.reached_pct.unwrap_or_default();
        let name = view.short_names.get(&largest.row.kernel);
        let at = |row: &&&Measured| row.reached_pct.is_some_and(|pct| pct >= AT_ROOF_PCT);
        let place = match kernels.iter().filter(at).count() {
            0 => "near",
            all if all == kernels.len() => "at",
            _ => "at or near",
        };
        let title = format!(
            "{} {place} the memory roof, {name} at {reached:.0} % of DRAM bandwidth: {}",
            kernels_that(kernels.len(), stage.spoken(), ["runs", "run"]),
            time(total_ns)
        );
        FindingBuilder::summed("memory-at-roof", stage, total_ns / 2)
            .with("kernels", kernels.len())
            .with("kernel_ns", total_ns)
            .with("largest", name)
            .with_number("largest_dram_pct", reached)
            .finish(title, FEWER_BYTES.to_owned(), findings);
    } else if let Some((by_busy, busy_ns, bytes)) = by_model(view, stage)
        && by_busy >= NEAR_ROOF_PCT
    {
        let place = if by_busy >= AT_ROOF_PCT { "at" } else { "near" };
        let title = format!(
            "{} runs {place} the memory roof: while busy the GPU moves what the model needs at {by_busy:.0} % of its bandwidth",
            stage.spoken()
        );
        FindingBuilder::summed("memory-at-roof", stage, busy_ns / 2)
            .with_number("mbu_by_busy_pct", by_busy)
            .with("bytes", bytes)
            .with("busy_ns", busy_ns)
            .finish(title, FEWER_BYTES.to_owned(), findings);
    }
}

/// Kernels that wait for memory and are far from the roof of DRAM, or without counters a busy decode whose model needs little
/// of the bandwidth. The bound is the time that the roof would not need.
pub fn far_from_the_roof(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let kernels: Vec<&Measured> = view.counters().filter(|row| waits_for_memory(row)).collect();
    if let Some((largest, _)) = largest(&kernels) {
        let dram = |row: &Measured| row.row.dram_pct.unwrap_or_default();
        let lost = lost_ns(view, &kernels, dram);
        let name = view.short_names.get(&largest.row.kernel);
        let title = format!(
            "{} for memory far from its roof, {name} at {:.0} % of DRAM bandwidth",
            kernels_that(kernels.len(), stage.spoken(), ["waits", "wait"]),
            dram(largest)
        );
        FindingBuilder::summed("memory-below-roof", stage, lost as i64)
            .with("kernels", kernels.len())
            .with("largest", name)
            .with_number("largest_dram_pct", dram(largest))
            .with("largest_bound", largest.row.bound.clone())
            .finish(title, BETTER_ACCESS.to_owned(), findings);
    } else if let (Some((by_busy, busy_ns, bytes)), Some(steps)) = (by_model(view, stage), &stage.steps)
        && by_busy < NEAR_ROOF_PCT
    {
        let bound = busy_ns as f64 * (1.0 - by_busy / 100.0);
        let title = format!(
            "{} keeps the GPU busy, yet moves what the model needs at {by_busy:.0} % of the bandwidth",
            stage.spoken()
        );
        FindingBuilder::summed("memory-below-roof", stage, bound as i64)
            .with_number("mbu_by_busy_pct", by_busy)
            .with("bytes", bytes)
            .with("busy_ns", busy_ns)
            .with("steps", steps.count)
            .with("floor_step_ns", stage.mbu.as_ref().and_then(|mbu| mbu.floor_step_ns))
            .finish(title, BETTER_ACCESS.to_owned(), findings);
    }
}

/// Kernels that a cache holds back. The bound is the time that its peak would not need.
pub fn bound_by_a_cache(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let kernels: Vec<&Measured> =
        view.counters().filter(|row| matches!(row.bound, Some(Bound::L1 | Bound::L2))).collect();
    let Some((largest, total_ns)) = largest(&kernels) else {
        return;
    };
    let of_level = |row: &Measured| match row.bound {
        Some(Bound::L1) => row.row.l1_pct,
        _ => row.row.l2_pct,
    };
    let reached = |row: &Measured| of_level(row).or(row.reached_pct).unwrap_or_default();
    // DRAM may be a little busier than the cache that is named.
    let busiest = |row: &Measured| reached(row).max(row.row.dram_pct.unwrap_or_default());
    let lost = lost_ns(view, &kernels, busiest);
    let name = view.short_names.get(&largest.row.kernel);
    let (level, action) = match largest.bound {
        Some(Bound::L1) => ("L1", FEWER_FROM_L1),
        _ => ("L2", FEWER_FROM_L2),
    };
    let title = format!(
        "{} held back by a cache, {name} at {:.0} % of the peak of {level}: {}",
        kernels_that(kernels.len(), stage.spoken(), ["is", "are"]),
        reached(largest),
        time(total_ns)
    );
    FindingBuilder::summed("cache-bound", stage, lost as i64)
        .with("kernels", kernels.len())
        .with("kernel_ns", total_ns)
        .with("largest", name)
        .with("largest_bound", largest.row.bound.clone())
        .with_number("largest_reached_pct", reached(largest))
        .finish(title, action.to_owned(), findings);
}

/// Adds up the time that kernels at their peak would not need, where `reached` returns the share of the peak, %. For no kernel is it
/// more than its time above the roof, where all of its time has a roof.
fn lost_ns(view: &View<'_>, rows: &[&Measured], reached: impl Fn(&Measured) -> f64) -> f64 {
    let mut by_kernel: BTreeMap<&str, f64> = BTreeMap::new();
    for row in rows {
        let lost = row.timeline_total_ns as f64 * (1.0 - reached(row) / 100.0).max(0.0);
        *by_kernel.entry(row.row.kernel.as_str()).or_default() += lost;
    }
    // Without a timeline the kernels are in no stage.
    let listed = [&view.stage.kernels, &view.inputs.analysis.kernels];
    let kernels = listed.into_iter().find(|kernels| !kernels.is_empty());
    let above = |name: &str| {
        let own = || kernels.into_iter().flatten().filter(|kernel| kernel.name == name);
        let covered: i64 = own().filter_map(|kernel| kernel.roof.roof_covered_ns).sum();
        let total: i64 = own().map(|kernel| kernel.total_ns).sum();
        let above: Option<i64> = own().map(|kernel| kernel.roof.above_roof_ns).sum();
        above.filter(|_| total > 0 && covered >= total)
    };
    by_kernel.into_iter().map(|(name, lost)| above(name).map_or(lost, |above| lost.min(above as f64))).sum()
}

/// Bound by latency with the memory system busier than the multiprocessors.
fn waits_for_memory(row: &Measured) -> bool {
    row.bound == Some(Bound::Latency)
        && match (row.row.dram_pct, row.row.memory_pct, row.row.sm_pct) {
            (Some(_), Some(memory), Some(sm)) => memory > sm,
            _ => false,
        }
}

/// The row with the most time in the stage, and the time of all.
fn largest<'a>(rows: &[&'a Measured]) -> Option<(&'a Measured, i64)> {
    let largest = rows.iter().copied().max_by_key(|row| row.timeline_total_ns)?;
    Some((largest, rows.iter().map(|row| row.timeline_total_ns).sum()))
}

/// Names a number of kernels of a stage and what it or they do, with the verb in both forms.
fn kernels_that(kernels: usize, stage: &str, [one, several]: [&str; 2]) -> String {
    if kernels == 1 {
        format!("one kernel of {stage} {one}")
    } else {
        format!("{} kernels of {stage} {several}", count(kernels as u64))
    }
}

/// MBU by busy time, busy time and bytes of a stage that keeps the GPU busy and was not measured by counters.
fn by_model(view: &View<'_>, stage: &Stage) -> Option<(f64, i64, f64)> {
    let (mbu, busy_ns) = (stage.mbu.as_ref()?, stage.busy_ns?);
    let counted = view.counters().next().is_some();
    let busy = 100.0 * stage.busy_share()? >= BUSY_PCT;
    (busy && !counted).then_some((mbu.by_busy_pct?, busy_ns, mbu.bytes))
}

/// Explains `memory-at-roof`.
pub const AT_ROOF: Explanation = Explanation {
    id: "memory-at-roof",
    remedy: "moving fewer bytes",
    meaning: "Kernels read and write memory at least at 60 % of the bandwidth of the GPU: near the roof, and at it from \
              80 % on, where they hardly get faster with the same bytes.",
    computed: "By counters: kernels that DRAM bandwidth binds. Without counters: a busy stage whose model needs at \
              least 60 % of the bandwidth. The bound is half their time, as for weights or cache of half the size.",
    fix: "Quantise weights to 8 or 4 bits, quantise or group the cache of keys and values, serve more \
              sequences in a step, or decode speculatively, so that a weight that is read serves more tokens.",
    links: &["https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#roofline-charts"],
};

/// Explains `memory-below-roof`.
pub const BELOW_ROOF: Explanation = Explanation {
    id: "memory-below-roof",
    remedy: "memory access nearer to the roof",
    meaning: "Kernels wait for memory, yet DRAM is far from its bandwidth: latency or the access pattern hold them \
              back.",
    computed: "By counters: kernels bound by latency in which memory is busier than compute. Without \
              counters: a busy decode whose model needs less than 60 % of the bandwidth. The bound is the time \
              that the same bytes would not need at full bandwidth, and for a kernel at most its time above the \
              roof.",
    fix: "Read contiguous, wide and aligned; choose a layout that the kernel reads in order; use larger pages \
              of the cache; fuse kernels so that a value is read once; raise occupancy so that more loads are in \
              flight.",
    links: &[
        "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#coalesced-access-to-global-memory",
    ],
};

/// Explains `cache-bound`.
pub const CACHE_BOUND: Explanation = Explanation {
    id: "cache-bound",
    remedy: "fewer accesses to a cache",
    meaning: "Kernels use the L1 cache (shared memory is a part of it) or the L2 cache at 60 % of its peak or more, and \
              nothing else as much.",
    computed: "By counters: kernels bound by L1 or L2. The bound is the time that the same accesses would not need at the \
              peak of the cache, and for a kernel at most its time above the roof. Fewer accesses can save more.",
    fix: "For L1: keep values in registers (larger tiles of each thread), load wider, avoid bank conflicts. For \
              L2: keep what is read again in shared memory, order blocks so that neighbours read the same data, \
              fuse kernels.",
    links: &["https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#shared-memory"],
};
