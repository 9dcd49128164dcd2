//! Memory-bound: at the roof only fewer bytes help, far from it better access does, and below a cache fewer accesses.

use crate::counters::{Bound, Measured, NEAR_ROOF_PCT};
use crate::findings::rule::{Cause, Find, Needs, Rows, Rule, View};
use crate::names::{Family, family};
use crate::numbers::{count, time};
use crate::result::{Confidence, Finding};
use crate::roof::Keeps;
use std::collections::BTreeMap;

/// Share of the bandwidth, in %, from which on a kernel is at the memory roof, as ncu has it.
const AT_ROOF_PCT: f64 = 80.0;
/// Share of wall time, in %, from which on it is the GPU that holds a stage back.
const BUSY_PCT: f64 = 60.0;

const BETTER_ACCESS: &str = "Get nearer to the roof: wider and contiguous loads, more of them in flight, a \
                             layout that the kernel reads in order, kernels fused so that a value is read once.";
const FEWER_FROM_L1: &str = "Ask less of L1 and shared memory: keep values in registers (larger tiles of each thread), wider loads, no \
                             bank conflicts, warp shuffles. The bound is for the same accesses at the peak of the cache; fewer \
                             of them save more.";
const FEWER_FROM_L2: &str = "Ask less of L2: keep what a block reads again in shared memory or registers (larger tiles), order blocks so \
                             that neighbours read the same data, fuse kernels. The bound is for the same accesses at the peak of \
                             the cache; fewer of them save more.";

/// Says how a kernel of a family moves fewer bytes.
fn fewer_bytes(view: &View<'_>, family: Family) -> &'static str {
    match family {
        Family::Gemm | Family::Gemv | Family::Moe if view.program.trains => {
            "Move fewer bytes: a smaller number format (bf16, fp8), and a larger batch, so that a weight read serves more samples. The \
             bound is for half the bytes."
        }
        Family::Gemm | Family::Gemv | Family::Moe => {
            "Move fewer bytes: weights in 8 or 4 bits, and more sequences a step so that a weight read serves more tokens. The bound is \
             for half the bytes."
        }
        Family::Attention => {
            "Move fewer bytes: a KV cache in 8 bits, fewer heads of keys and values (grouped queries), shorter contexts. The bound is \
             for half the bytes."
        }
        Family::CopyLayout => {
            "Leave the copy out: keep the layout that the next kernel reads, or let that kernel read it as it is. The bound is for half \
             the bytes."
        }
        _ => {
            "Its speed is that of memory, so only fewer bytes help: fuse it with the kernels before and after it, so that their values \
             stay on the chip, or use a smaller number format. The bound is for half the bytes."
        }
    }
}

/// Kernels at the roof of DRAM by their counters, or without counters a stage whose model needs most of the bandwidth, more than of the
/// compute peak. The bound is half their time: weights or cache at half the bits.
fn at_the_roof(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let at_roof = |row: &&Measured| {
        row.bound == Some(Bound::Dram) && row.reached_pct.is_some_and(|pct| pct >= AT_ROOF_PCT)
    };
    let kernels: Vec<&Measured> = view.counters().filter(at_roof).collect();
    if let Some((largest, total_ns)) = largest(&kernels) {
        let reached = largest.reached_pct.unwrap_or_default().min(100.0);
        let name = view.short_names.get(&largest.row.kernel);
        let title = format!(
            "{} at the memory roof, {name} at {reached:.0} % of DRAM bandwidth: {}",
            kernels_that(kernels.len(), stage.spoken(), ["runs", "run"]),
            time(total_ns)
        );
        // With half the bytes the multiprocessors may be the limit.
        let left: f64 = kernels
            .iter()
            .map(|row| {
                row.timeline_total_ns as f64 * row.row.sm_pct.unwrap_or(0.0).clamp(50.0, 100.0) / 100.0
            })
            .sum();
        return view
            .saves_on_devices(&[("kernel time", total_ns), ("with half the bytes", -(left.round() as i64))])
            .with("kernels", kernels.len())
            .with("kernel_ns", total_ns)
            .with("largest", name)
            .with_number("largest_dram_pct", reached)
            .finish(title, fewer_bytes(view, family(&largest.row.kernel)));
    }
    let model = ByModel::of(view).filter(|model| model.mbu_pct >= NEAR_ROOF_PCT)?;
    let title = format!(
        "{} is memory-bound: while busy the GPU moves what the model needs at {:.0} % of its bandwidth",
        stage.spoken(),
        model.mbu_pct
    );
    view.saves_on_devices(&[("busy time", model.busy_ns), ("with half the bytes", -model.busy_ns / 2)])
        .with_number("mbu_by_busy_pct", model.mbu_pct)
        .with("bytes", model.bytes)
        .with("busy_ns", model.busy_ns)
        .finish(title, fewer_bytes(view, Family::Gemm))
}

/// Kernels that wait for memory and are below the roof of DRAM, or without counters a busy decode whose model needs little
/// of the bandwidth and even less of the compute peak. The bound is the time that the roof would not need.
fn far_from_the_roof(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let kernels: Vec<&Measured> = view.counters().filter(|row| waits_for_memory(row)).collect();
    if let Some((largest, total_ns)) = largest(&kernels) {
        let dram = |row: &Measured| row.row.dram_pct.unwrap_or_default().min(100.0);
        let busiest = |row: &Measured| dram(row).max(row.row.sm_pct.unwrap_or_default());
        let lost_ns = lost_ns(view, &kernels, busiest).round() as i64;
        let name = view.short_names.get(&largest.row.kernel);
        let title = format!(
            "{} for memory below its roof, {name} at {:.0} % of DRAM bandwidth",
            kernels_that(kernels.len(), stage.spoken(), ["waits", "wait"]),
            dram(largest)
        );
        return view
            .saves_on_devices(&[("kernel time", total_ns), ("time at the roof", lost_ns - total_ns)])
            .with("kernels", kernels.len())
            .with("largest", name)
            .with_number("largest_dram_pct", dram(largest))
            .with("largest_bound", largest.row.bound.clone())
            .finish(title, BETTER_ACCESS);
    }
    let (model, steps) = (ByModel::of(view).filter(|m| m.mbu_pct < NEAR_ROOF_PCT)?, stage.steps.as_ref()?);
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
        .finish(title, "Look at the kernels with most time: those that are not matrix products move what the model does not need \
                        (copies, casts, unfused elementwise work), and small ones leave the memory idle. Counters of ncu tell which.")
}

/// Kernels that a cache holds back. The bound is the time that its peak would not need.
fn bound_by_a_cache(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let kernels: Vec<&Measured> =
        view.counters().filter(|row| matches!(row.bound, Some(Bound::L1 | Bound::L2))).collect();
    let (largest, total_ns) = largest(&kernels)?;
    let of_level = |row: &Measured| match row.bound {
        Some(Bound::L1) => row.row.l1_pct,
        _ => row.row.l2_pct,
    };
    let reached = |row: &Measured| of_level(row).or(row.reached_pct).unwrap_or_default().min(100.0);
    // Another unit may be a little busier than the cache that is named.
    let busiest = |row: &Measured| {
        let others = [row.row.dram_pct, row.row.sm_pct].into_iter().flatten();
        others.fold(reached(row), f64::max)
    };
    let lost_ns = lost_ns(view, &kernels, busiest).round() as i64;
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
    view.saves_on_devices(&[("kernel time", total_ns), ("at the peak of the cache", lost_ns - total_ns)])
        .with("kernels", kernels.len())
        .with("kernel_ns", total_ns)
        .with("largest", name)
        .with("largest_bound", largest.row.bound.clone())
        .with_number("largest_reached_pct", reached(largest))
        .finish(title, action)
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

/// Returns the time of a kernel above its roof, ns, where all of its time has a roof.
pub fn above_roof_ns(view: &View<'_>, name: &str) -> Option<f64> {
    // Without a timeline the kernels are in no stage.
    let listed = [&view.stage.kernels, &view.inputs.analysis.kernels];
    let kernels = listed.into_iter().find(|kernels| !kernels.is_empty());
    let own = || kernels.into_iter().flatten().filter(|kernel| kernel.name == name);
    let covered: i64 = own().filter_map(|kernel| kernel.roof.roof_covered_ns).sum();
    let total: i64 = own().map(|kernel| kernel.total_ns).sum();
    let above: Option<i64> = own().map(|kernel| kernel.roof.above_roof_ns).sum();
    above.filter(|_| total > 0 && covered >= total).map(|ns| ns as f64)
}

/// Bound by DRAM below its roof, or by latency with the memory system busier than the multiprocessors.
fn waits_for_memory(row: &Measured) -> bool {
    match (row.bound, row.row.dram_pct, row.row.memory_pct, row.row.sm_pct) {
        (Some(Bound::Dram), ..) => row.reached_pct.is_some_and(|pct| pct < AT_ROOF_PCT),
        (Some(Bound::Latency), Some(_), Some(memory), Some(sm)) => memory > sm,
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

/// The memory traffic of a stage by its model.
struct ByModel {
    /// MBU by busy time, %.
    mbu_pct: f64,
    busy_ns: i64,
    bytes: f64,
}

impl ByModel {
    /// Returns the traffic of a stage that keeps the GPU busy, was not measured by counters, and whose memory roof is the highest.
    fn of(view: &View<'_>) -> Option<Self> {
        let stage = view.stage;
        let (mbu, busy_ns) = (stage.mbu.as_ref()?, stage.busy_ns?);
        let is_busy = 100.0 * stage.busy_share()? >= BUSY_PCT;
        let is_highest = view.roofs.highest(Keeps::Work).1 <= view.roofs.memory_ns;
        let is_counted = view.counters().next().is_some();
        let found = Self { mbu_pct: mbu.by_busy_pct?, busy_ns, bytes: mbu.bytes };
        (is_busy && is_highest && !is_counted).then_some(found)
    }
}

pub const AT_ROOF: Rule = Rule {
    find: Find::One(at_the_roof),
    needs: Needs::Counters,
    cause: Cause::Bytes,
    keeps: Keeps::Flops,
    rows: Rows::Kernels(&[]),
    confidence: Confidence::Bounded,
    id: "memory-at-roof",
    remedy: "moving fewer bytes",
    meaning: "Kernels read and write memory at 80 % of the bandwidth of the GPU or more, where they hardly get faster with the same \
              bytes; or a stage is bound by the bytes of its model.",
    computed: "By counters: kernels that DRAM bandwidth binds at 80 % of its peak. Without counters: a busy stage whose model needs at \
              least 60 % of the bandwidth, and less of the compute peak. The bound is half their time, as for weights or cache of \
              half the size.",
    fix: "Quantise weights to 8 or 4 bits, quantise or group the cache of keys and values, serve more \
              sequences in a step, or decode speculatively, so that a weight that is read serves more tokens. Kernels that only move \
              and combine values: fuse them with their neighbours.",
    disproof: "The kernels take as long with half the bytes, such as a smaller number format.",
    links: &["https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#roofline-charts"],
};

pub const BELOW_ROOF: Rule = Rule {
    find: Find::One(far_from_the_roof),
    needs: Needs::Counters,
    rows: Rows::Kernels(&[]),
    confidence: Confidence::Bounded,
    id: "memory-below-roof",
    remedy: "memory access nearer to the roof",
    meaning: "Kernels wait for memory, yet DRAM is below its bandwidth: latency or the access pattern hold them \
              back.",
    computed: "By counters: kernels bound by DRAM below 80 % of its peak, or by latency with memory busier than compute. Without \
              counters: a busy decode whose model needs less than 60 % of the bandwidth, and less of the compute peak. The bound is \
              the time that the same bytes would not need at full bandwidth, and for a kernel at most its time above the \
              roof.",
    fix: "Read contiguous, wide and aligned; choose a layout that the kernel reads in order; use larger pages \
              of the cache; fuse kernels so that a value is read once; raise occupancy so that more loads are in \
              flight.",
    disproof: "Another implementation of the same work has the same bandwidth; or the kernel moves more bytes than were counted.",
    links: &[
        "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#coalesced-access-to-global-memory",
    ],
    ..Rule::BASE
};

pub const CACHE_BOUND: Rule = Rule {
    find: Find::One(bound_by_a_cache),
    needs: Needs::Counters,
    rows: Rows::Kernels(&[]),
    confidence: Confidence::Bounded,
    id: "cache-bound",
    remedy: "fewer accesses to a cache",
    meaning: "Kernels use the L1 cache (shared memory is a part of it) or the L2 cache at 60 % of its peak or more, and \
              nothing else as much.",
    computed: "By counters: kernels bound by L1 or L2. The bound is the time that the same accesses would not need at the \
              peak of the cache, and for a kernel at most its time above the roof. Fewer accesses can save more.",
    fix: "For L1: keep values in registers (larger tiles of each thread), load wider, avoid bank conflicts. For \
              L2: keep what is read again in shared memory, order blocks so that neighbours read the same data, \
              fuse kernels.",
    disproof: "Fewer accesses to the cache leave the time of the kernel as it is.",
    links: &["https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#shared-memory"],
    ..Rule::BASE
};
