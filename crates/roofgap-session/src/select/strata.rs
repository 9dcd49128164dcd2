//! Kernel x grid x block: what ncu can measure once and what then stands for all its launches.

use std::collections::HashMap;

use roofgap_analyze::Analyzed;
use roofgap_trace::{NameId, OpKind, ShapeId, Trace};

/// The name of the one stage of a program that marks none.
pub const WHOLE: &str = "all";

/// The launches of one kernel with one grid and block in one stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stratum {
    /// The stage.
    pub stage: String,
    /// Kernel name as the timeline has it.
    pub kernel: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Sum of its durations.
    pub total_ns: i64,
    /// How often it was launched.
    pub launches: u64,
}

/// Stage, kernel, grid and block.
type Key<'a> = (usize, &'a str, [u32; 3], [u32; 3]);

/// The strata of every stage that was found; of the whole program where none was.
pub fn of(trace: &Trace, analyzed: &Analyzed) -> Vec<Stratum> {
    let stages = &analyzed.analysis.stages;
    let mut sums: HashMap<(usize, NameId, ShapeId), (i64, u64)> = HashMap::new();
    let ops = &trace.ops;
    for (op, _) in ops
        .kind
        .iter()
        .enumerate()
        .filter(|(_, kind)| **kind == OpKind::Kernel)
    {
        let stage = if stages.is_empty() {
            Some(0)
        } else {
            analyzed.stages.stage_of_op(op)
        };
        let (Some(stage), Some(name), Some(shape)) = (stage, ops.name.get(op), ops.shape.get(op)) else {
            continue;
        };
        let sum = sums.entry((stage, *name, *shape)).or_default();
        sum.0 += ops.duration(op);
        sum.1 += 1;
    }
    // Launch shapes differ in registers and shared memory too; ncu tells them apart by grid and block only.
    let mut merged: HashMap<Key<'_>, (i64, u64)> = HashMap::new();
    for ((stage, name, shape), (total_ns, count)) in sums {
        let launch = ops.shapes.get(shape.index()).copied().unwrap_or_default();
        let sum = merged
            .entry((stage, trace.names.get(name), launch.grid, launch.block))
            .or_default();
        sum.0 += total_ns;
        sum.1 += count;
    }
    let mut found: Vec<(usize, Stratum)> = merged
        .into_iter()
        .map(|((stage, kernel, grid, block), (total_ns, launches))| {
            let name = stages.get(stage).map_or(WHOLE, |stage| &stage.name);
            (
                stage,
                Stratum {
                    stage: name.to_owned(),
                    kernel: kernel.to_owned(),
                    grid,
                    block,
                    total_ns,
                    launches,
                },
            )
        })
        .collect();
    found.sort_by(|(a, x), (b, y)| {
        (a, y.total_ns, &x.kernel, x.grid, x.block).cmp(&(b, x.total_ns, &y.kernel, y.grid, y.block))
    });
    found.into_iter().map(|(_, stratum)| stratum).collect()
}
