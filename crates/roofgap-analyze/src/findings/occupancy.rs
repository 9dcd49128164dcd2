//! The possible occupancy of a launch, and its limit.

use crate::gpu::multiprocessor_slots;

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
}

impl Limit {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Registers => "registers",
            Self::SharedMemory => "shared memory",
            Self::Blocks => "blocks a multiprocessor",
            Self::Warps => "warps a multiprocessor",
            Self::Grid => "the size of the grid",
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
    const WARP: u32 = 32;
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
    let smallest = candidates.iter().filter(|(own, _)| *own == fit);
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
