//! Kernels with few warps: the occupancy that a launch can reach, and its limit.

use super::measured::{LOW_PCT, WARP, beyond_shortest_ns, is_long, keeps_data};
use crate::counters::{Measured, NEAR_ROOF_PCT};
use crate::findings::evidence::{ShapeUse, blocks_of, threads_of};
use crate::findings::rule::{View, fill, percent};
use crate::gpu::multiprocessor_slots;
use crate::names::{Family, is_closed_source};
use crate::numbers::counted;
use crate::result::Finding;

/// Share of the stage's kernel time, in %, from which on a kernel is worth a line.
const LEAST_KERNEL_PCT: f64 = 5.0;
/// Words by which ncu says that a launch has too few blocks for the device.
const SMALL_GRID: &str = "grid is too small to fill";

/// Kernels whose counters show a low occupancy and no roof near, with the resources that limit it by their launch shape.
/// The bound is their time less what the better of their two throughputs explains.
pub fn low_occupancy(view: &View<'_>) -> Vec<Finding> {
    view.counters().filter_map(|measured| of_kernel(view, measured)).collect()
}

/// Part of the possible occupancy, 1 in so many, below which the work of the warps is the limit.
const UNEVEN: f64 = 2.0;

/// Least gain in occupancy that a larger grid must allow to be the remedy.
const LARGER: f64 = 1.5;

fn of_kernel(view: &View<'_>, measured: &Measured) -> Option<Finding> {
    let stage = view.stage;
    let (kernel_ns, row) = (stage.kernel_ns?, &measured.row);
    let (achieved, roof) = (row.occupancy_pct?, row.sm_pct?.max(row.memory_pct?).min(100.0));
    let share = percent(measured.timeline_total_ns, kernel_ns);
    let too_small = measured.advice.iter().any(|advice| advice.text.contains(SMALL_GRID));
    let is_long = is_long(measured.timeline_total_ns, measured.timeline_calls);
    if !(is_long && (too_small || achieved < LOW_PCT)) || roof >= NEAR_ROOF_PCT || share < LEAST_KERNEL_PCT {
        return None;
    }
    let shape = view.evidence.and_then(|evidence| shape_of(&evidence.shapes, measured));
    let known = shape.and_then(|shape| {
        let (capability, sms) = (shape.compute_capability?, shape.sms?);
        let ShapeUse { blocks, threads, registers, shared_bytes, .. } = *shape;
        let of = |blocks| occupancy(capability, sms, blocks, threads, registers, shared_bytes);
        let (mut possible, larger) = (of(blocks)?, of(u64::MAX)?);
        if achieved < possible.pct / UNEVEN {
            possible.limits = vec![Limit::Work];
        } else if larger.pct >= LARGER * possible.pct && too_small {
            possible.limits = vec![Limit::Grid];
        } else if larger.pct < LARGER * possible.pct
            && (achieved >= LOW_PCT || blocks as f64 * LARGER > f64::from(sms))
        {
            possible.limits = larger.limits;
        }
        Some((possible, shape, sms))
    });
    let limited = |is: fn(&Limit) -> bool| {
        known.as_ref().is_some_and(|(occupancy, ..)| occupancy.limits.iter().all(is))
    };
    let by_design = keeps_data(&row.kernel) && limited(Limit::is_of_code);
    // Enough warps run, whatever ncu says of the grid.
    if by_design || achieved >= LOW_PCT && limited(|limit| *limit != Limit::Grid) {
        return None;
    }
    let limit = match &known {
        Some((possible, ..)) => {
            Some(possible.limits.iter().map(|limit| limit.name()).collect::<Vec<_>>().join(" and "))
        }
        None => too_small.then(|| Limit::Grid.name().to_owned()),
    };
    let action = match &known {
        Some((possible, shape, sms)) => action(view, &possible.limits, shape, *sms),
        None if too_small => view.action("grid").to_owned(),
        None => view.action("not known").to_owned(),
    };
    let name = view.short_names.get(&row.kernel);
    let limited = limit.as_ref().map_or_else(String::new, |limit| format!(", limited by {limit}"));
    let title = format!("{name} of {} reaches {achieved:.0} % occupancy{limited}", stage.spoken());
    let total_ns = measured.timeline_total_ns;
    let least_ns = total_ns - beyond_shortest_ns(total_ns, measured.timeline_calls);
    let explained = total_ns as f64 * roof / 100.0;
    view.saves_on_devices(&[
        ("kernel time", total_ns),
        ("that the busier of compute and memory explains", -(explained.ceil() as i64).max(least_ns)),
    ])
    .with("kernel", row.kernel.as_str())
    .with_number("occupancy_pct", achieved)
    .with_number("possible_occupancy_pct", known.map(|(possible, ..)| possible.pct))
    .with("limit", limit)
    .with("registers", shape.map(|shape| shape.registers))
    .with("shared_bytes", shape.map(|shape| shape.shared_bytes))
    .with("blocks", blocks_of(row.grid))
    .with("threads", threads_of(row.block))
    .with_number("nearest_roof_pct", roof)
    .with("kernel_ns", measured.timeline_total_ns)
    .finish(title, action)
}

/// The launches that were measured, by kernel and shape.
fn shape_of<'a>(shapes: &'a [ShapeUse], measured: &Measured) -> Option<&'a ShapeUse> {
    let blocks = blocks_of(measured.row.grid);
    let threads = threads_of(measured.row.block);
    shapes.iter().find(|s| s.name == measured.row.kernel && s.blocks == blocks && s.threads == threads)
}

fn action(view: &View<'_>, limits: &[Limit], shape: &ShapeUse, sms: u32) -> String {
    if limits.iter().any(Limit::is_of_code) && is_closed_source(&shape.name) {
        return view.action("library").to_owned();
    }
    let each = limits.iter().map(|limit| of_one(view, *limit, shape, sms));
    let each = each.collect::<Vec<_>>().join(" ");
    if limits.len() > 1 { format!("Each is limiting, so change them together. {each}") } else { each }
}

fn of_one(view: &View<'_>, limit: Limit, shape: &ShapeUse, sms: u32) -> String {
    match limit {
        Limit::Registers => format!(
            "Use fewer than its {} registers a thread: a smaller tile, __launch_bounds__, or another variant of the kernel.",
            shape.registers
        ),
        Limit::SharedMemory => fill(view.action("shared memory"), &[&shape.shared_bytes]),
        Limit::Grid => {
            let how = match shape.family {
                Family::Gemm | Family::Gemv => "a larger batch, or a split of the inner dimension",
                _ => "less work for each, or more of it at once",
            };
            format!("Give it more than {} for {sms} multiprocessors: {how}.", counted(shape.blocks, "block"))
        }
        Limit::Blocks => format!("Use more than {} threads a block.", shape.threads),
        Limit::Work => view.action("uneven work").to_owned(),
        Limit::Warps => view.action("uneven warps").to_owned(),
    }
}

/// The resource that keeps more blocks off a multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Registers of its threads.
    Registers,
    /// Shared memory of its blocks.
    SharedMemory,
    /// The multiprocessor's slots for blocks.
    Blocks,
    /// The multiprocessor's slots for warps: it is full.
    Warps,
    /// The launch has fewer blocks than the device could hold.
    Grid,
    /// The work of its warps: they end long before the kernel does.
    Work,
}

impl Limit {
    /// Tells whether the code of the kernel decides on it.
    fn is_of_code(&self) -> bool {
        matches!(self, Self::Registers | Self::SharedMemory | Self::Blocks)
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Registers => "registers",
            Self::SharedMemory => "shared memory",
            Self::Blocks => "blocks a multiprocessor",
            Self::Warps => "warps a multiprocessor",
            Self::Grid => "the size of the grid",
            Self::Work => "warps that end early",
        }
    }
}

/// Occupancy that a launch can reach at most.
#[derive(Debug, Clone, PartialEq)]
pub struct Occupancy {
    /// Warps in % of what a multiprocessor holds.
    pub pct: f64,
    /// Limiting resources: one, or several that limit it equally.
    pub limits: Vec<Limit>,
}

/// The occupancy that a launch can reach by its registers, shared memory, block size and grid. `None` for a device whose limits
/// are not known, or a launch without threads.
pub fn occupancy(
    compute_capability: (u32, u32),
    sms: u32,
    blocks: u64,
    threads: u32,
    registers: u32,
    shared_bytes: u32,
) -> Option<Occupancy> {
    const REGISTERS: u32 = 65_536;
    let (thread_slots, block_slots, shared) = multiprocessor_slots(compute_capability)?;
    if threads == 0 || blocks == 0 || sms == 0 {
        return None;
    }
    let warps = threads.div_ceil(WARP);
    let warp_slots = thread_slots / WARP;
    // Registers are given to a warp in units of 256.
    let per_warp = (registers.clamp(1, 1024) * WARP).next_multiple_of(256);
    let by_registers = REGISTERS / per_warp / warps;
    // From Volta's successors on the system takes 1 KiB of a block's shared memory.
    let reserved = if compute_capability.0 >= 8 { 1024 } else { 0 };
    let by_shared = if shared_bytes == 0 { u32::MAX } else { shared / shared_bytes.saturating_add(reserved) };
    let by_warps = warp_slots / warps;
    let by_grid = u32::try_from(blocks.div_ceil(u64::from(sms))).unwrap_or(u32::MAX);
    let candidates = [
        (by_warps, Limit::Warps),
        (by_registers, Limit::Registers),
        (by_shared, Limit::SharedMemory),
        (block_slots, Limit::Blocks),
        (by_grid, Limit::Grid),
    ];
    let fit = candidates.iter().map(|(fit, _)| *fit).min()?;
    let smallest = candidates.iter().filter(|(blocks, _)| *blocks == fit);
    let mut limits: Vec<Limit> = smallest.map(|(_, limit)| *limit).collect();
    if by_grid == fit && blocks <= u64::from(sms) {
        // There is no second block for any multiprocessor, so that no other resource matters.
        limits = vec![Limit::Grid];
    } else if by_warps == fit {
        limits = vec![Limit::Warps];
    }
    let pct = 100.0 * f64::from(fit * warps) / f64::from(warp_slots);
    Some(Occupancy { pct: pct.min(100.0), limits })
}

/// Returns the part of the warps that a device could hold of a kernel which a launch of fewer blocks than multiprocessors has.
pub fn filled(shape: &ShapeUse, sms: u32) -> Option<f64> {
    let ShapeUse { threads, registers, shared_bytes, .. } = *shape;
    let of = |blocks| occupancy(shape.compute_capability?, sms, blocks, threads, registers, shared_bytes);
    let (reached, most) = (of(shape.blocks)?.pct, of(u64::MAX)?.pct);
    (most > 0.0).then(|| shape.blocks as f64 / f64::from(sms) * reached / most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_in_turn() {
        let h200 = |blocks, threads, registers, shared| {
            occupancy((9, 0), 132, blocks, threads, registers, shared).unwrap()
        };
        assert_eq!(h200(100_000, 256, 32, 0), Occupancy { pct: 100.0, limits: vec![Limit::Warps] });
        // 168 registers x 384 threads: one block of 12 warps of 64.
        assert_eq!(h200(10_000, 384, 168, 0), Occupancy { pct: 18.75, limits: vec![Limit::Registers] });
        assert_eq!(
            h200(10_000, 128, 32, 100 << 10),
            Occupancy { pct: 12.5, limits: vec![Limit::SharedMemory] }
        );
        assert_eq!(h200(10_000, 32, 32, 0), Occupancy { pct: 50.0, limits: vec![Limit::Blocks] });
        assert_eq!(h200(4, 128, 32, 0).limits, [Limit::Grid]);
    }

    #[test]
    fn resources_that_limit_equally_are_all_named() {
        // One block by registers (168 of 384 threads) and by shared memory.
        let both = occupancy((9, 0), 132, 10_000, 384, 168, 200 << 10).unwrap();
        assert_eq!(both.limits, [Limit::Registers, Limit::SharedMemory]);
        // With 264 blocks there are two for each multiprocessor, and registers leave room for two.
        let two = |blocks| occupancy((9, 0), 132, blocks, 384, 80, 0).unwrap().limits;
        assert_eq!(two(264), [Limit::Registers, Limit::Grid]);
        assert_eq!(two(1_000), [Limit::Registers]);
        // No second block exists, so that registers do not matter.
        let small = |blocks| occupancy((9, 0), 132, blocks, 384, 168, 200 << 10).unwrap().limits;
        assert_eq!(small(132), [Limit::Grid]);
        assert_eq!(small(133), [Limit::Registers, Limit::SharedMemory]);
    }

    #[test]
    fn an_unknown_device_has_none() {
        assert_eq!(occupancy((6, 1), 20, 1, 128, 32, 0), None);
        assert_eq!(occupancy((9, 0), 132, 0, 128, 32, 0), None);
    }
}
