//! Memory-bound: at the roof only fewer bytes help, far from it better access does.

use crate::counters::{Bound, Measured};
use crate::findings::builder::FindingBuilder;
use crate::findings::{Explanation, View};
use crate::numbers::{count, time};
use crate::result::{Finding, Stage};

/// Share of the bandwidth, in %, from which on a stage without counters is at the memory roof.
const AT_ROOF_PCT: f64 = 70.0;
/// Share of wall time, in %, from which on it is the GPU that holds a stage back.
const BUSY_PCT: f64 = 60.0;

const FEWER_BYTES: &str = "Move fewer bytes: weights in 8 or 4 bits, more sequences a step so that a weight read serves more \
                           tokens, a smaller or grouped cache of keys and values. The bound is for half the bytes.";
const BETTER_ACCESS: &str = "Get nearer to the roof before buying bandwidth: wider and contiguous loads, a layout that the kernel \
                             reads in order, larger pages of the cache, kernels fused so that a value is read once.";

/// Kernels at the roof of DRAM by their counters, or without counters a stage whose model needs most of the bandwidth. The
/// bound is half their time: weights or cache at half the bits.
pub(in crate::findings) fn at_the_roof(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let kernels: Vec<&Measured> = view
        .counters()
        .filter(|row| row.bound == Some(Bound::Dram))
        .collect();
    if let Some((largest, total_ns)) = largest(&kernels) {
        let reached = largest.reached_pct.unwrap_or_default();
        let name = view.short_names.get(&largest.row.kernel);
        let title = format!(
            "{} at the memory roof, {name} at {reached:.0} % of DRAM bandwidth: {}",
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
        && by_busy >= AT_ROOF_PCT
    {
        let title = format!(
            "{} runs at the memory roof: while busy the GPU moves what the model needs at {by_busy:.0} % of its bandwidth",
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
pub(in crate::findings) fn far_from_the_roof(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let kernels: Vec<&Measured> = view.counters().filter(|row| waits_for_memory(row)).collect();
    if let Some((largest, _)) = largest(&kernels) {
        let dram = |row: &Measured| row.row.dram_pct.unwrap_or_default();
        let lost: f64 = kernels
            .iter()
            .map(|row| row.timeline_total_ns as f64 * (1.0 - dram(row) / 100.0))
            .sum();
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
        && by_busy < AT_ROOF_PCT
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
            .with(
                "floor_step_ns",
                stage.mbu.as_ref().and_then(|mbu| mbu.floor_step_ns),
            )
            .finish(title, BETTER_ACCESS.to_owned(), findings);
    }
}

/// Bound by a cache, or by latency with the memory system busier than the multiprocessors.
fn waits_for_memory(row: &Measured) -> bool {
    match row.bound {
        Some(Bound::L2 | Bound::L1) => row.row.dram_pct.is_some(),
        Some(Bound::Latency) => match (row.row.dram_pct, row.row.memory_pct, row.row.sm_pct) {
            (Some(_), Some(memory), Some(sm)) => memory > sm,
            _ => false,
        },
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
pub(in crate::findings) const AT_ROOF: Explanation = Explanation {
    id: "memory-at-roof",
    remedy: "moving fewer bytes",
    meaning: "Kernels read and write memory about as fast as the GPU can. They cannot get faster with the same \
              bytes.",
    computed: "By counters: kernels that DRAM bandwidth binds. Without counters: a busy stage whose model needs at \
              least 70 % of the bandwidth. The bound is half their time, as for weights or cache of half the size.",
    fix: "Quantise weights to 8 or 4 bits, quantise or group the cache of keys and values, serve more \
              sequences in a step, or decode speculatively, so that a weight that is read serves more tokens.",
    links: &["https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#roofline-charts"],
};

/// Explains `memory-below-roof`.
pub(in crate::findings) const BELOW_ROOF: Explanation = Explanation {
    id: "memory-below-roof",
    remedy: "memory access nearer to the roof",
    meaning: "Kernels wait for memory, yet DRAM is far from its bandwidth: latency, caches or the access pattern \
              hold them back.",
    computed: "By counters: kernels bound by L2, L1 or latency in which memory is busier than compute. Without \
              counters: a busy decode whose model needs less than 70 % of the bandwidth. The bound is the time \
              that the same bytes would not need at full bandwidth.",
    fix: "Read contiguous, wide and aligned; choose a layout that the kernel reads in order; use larger pages \
              of the cache; fuse kernels so that a value is read once; raise occupancy so that more loads are in \
              flight.",
    links: &[
        "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#coalesced-access-to-global-memory",
    ],
};
