//! Memory-bound: at the roof only fewer bytes help, far from it better access does.

use crate::analysis::{Finding, Kernel, Stage};
use crate::findings::View;
use crate::findings::draft::{Draft, ms, percent};

/// Share of the DRAM roof, in %, from which on a kernel is at it.
const AT_ROOF_PCT: f64 = 70.0;
/// Share of busy time, in %, from which on it is the GPU that holds a stage back.
const BUSY_PCT: f64 = 60.0;

/// Kernels of a stage that its counters call memory-bound, with their share of the roof that binds.
fn memory_bound(stage: &Stage) -> impl Iterator<Item = (&Kernel, f64)> {
    stage.kernels.iter().filter_map(|kernel| {
        let counters = kernel.counters.as_ref()?;
        let memory = counters.bound.as_deref()?.starts_with("memory");
        let roof = counters.dram_pct.or(counters.memory_pct)?;
        memory.then_some((kernel, roof))
    })
}

/// Kernels that already draw most of the DRAM bandwidth, or without counters a stage whose model does: only moving fewer
/// bytes helps. The bound is half their time: weights or cache at half the bits.
pub(in crate::findings) fn at_the_roof(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let action = "Move fewer bytes: weights in 8 or 4 bits, more sequences a step so that a weight read serves more tokens, a \
                  smaller or grouped cache of keys and values. The bound is for half the bytes.";
    let kernels: Vec<_> = memory_bound(stage)
        .filter(|(_, roof)| *roof >= AT_ROOF_PCT)
        .collect();
    let total_ns: i64 = kernels.iter().map(|(kernel, _)| kernel.total_ns).sum();
    if let Some((first, roof)) = kernels.first() {
        let title = format!(
            "{} kernels of {} run at the memory roof ({} at {roof:.0} % of DRAM bandwidth): {}",
            kernels.len(),
            stage.name,
            first.short_name,
            ms(total_ns)
        );
        Draft::new("memory-at-roof", stage, total_ns / 2)
            .with("kernels", kernels.len())
            .with("kernel_ns", total_ns)
            .with("largest", first.short_name.as_str())
            .with_number("largest_dram_pct", *roof)
            .say(title, action.to_owned(), findings);
        return;
    }
    let (Some(mbu), Some(busy_ns)) = (&stage.mbu, stage.busy_ns) else {
        return;
    };
    let Some(by_busy) = mbu.by_busy_pct else { return };
    if by_busy >= AT_ROOF_PCT && percent(busy_ns, stage.wall_ns) >= BUSY_PCT {
        let title = format!(
            "{} runs at the memory roof: while busy the GPU moves what the model needs at {by_busy:.0} % of its bandwidth",
            stage.name
        );
        Draft::new("memory-at-roof", stage, busy_ns / 2)
            .with_number("mbu_by_busy_pct", by_busy)
            .with("bytes", mbu.bytes)
            .with("busy_ns", busy_ns)
            .say(title, action.to_owned(), findings);
    }
}

/// Kernels that are memory-bound and yet far from the roof, or without counters a busy decode whose model needs little of the
/// bandwidth. The bound is the time that the roof would not need.
pub(in crate::findings) fn far_from_the_roof(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let action = "Get nearer to the roof before buying bandwidth: wider and contiguous loads, a layout that the kernel reads in \
                  order, larger pages of the cache, kernels fused so that a value is read once.";
    let kernels: Vec<_> = memory_bound(stage)
        .filter(|(_, roof)| *roof < AT_ROOF_PCT)
        .collect();
    if let Some((first, roof)) = kernels.first() {
        let lost: f64 = kernels
            .iter()
            .map(|(kernel, roof)| kernel.total_ns as f64 * (1.0 - roof / 100.0))
            .sum();
        let title = format!(
            "{} memory-bound kernels of {} are far from the roof ({} at {roof:.0} % of DRAM bandwidth)",
            kernels.len(),
            stage.name,
            first.short_name
        );
        Draft::new("memory-below-roof", stage, lost as i64)
            .with("kernels", kernels.len())
            .with("largest", first.short_name.as_str())
            .with_number("largest_dram_pct", *roof)
            .say(title, action.to_owned(), findings);
        return;
    }
    let (Some(mbu), Some(busy_ns), Some(steps)) = (&stage.mbu, stage.busy_ns, &stage.steps) else {
        return;
    };
    let Some(by_busy) = mbu.by_busy_pct else { return };
    let has_counters = stage.kernels.iter().any(|kernel| kernel.counters.is_some());
    if has_counters || by_busy >= AT_ROOF_PCT || percent(busy_ns, stage.wall_ns) < BUSY_PCT {
        return;
    }
    let bound = busy_ns as f64 * (1.0 - by_busy / 100.0);
    let title = format!(
        "{} keeps the GPU busy, yet moves what the model needs at {by_busy:.0} % of the bandwidth",
        stage.name
    );
    Draft::new("memory-below-roof", stage, bound as i64)
        .with_number("mbu_by_busy_pct", by_busy)
        .with("bytes", mbu.bytes)
        .with("busy_ns", busy_ns)
        .with("steps", steps.count)
        .with("floor_step_ns", mbu.floor_step_ns)
        .say(title, action.to_owned(), findings);
}
