//! Kernel x grid x block: what ncu can measure once and what then stands for all its launches.

use std::collections::HashMap;

use roofgap_analyze::attribute::{Contexts, Launches, NO_CALL};
use roofgap_analyze::{Stage, StageSet};
use roofgap_trace::{Losses, NameId, OpKind, ShapeId, Trace, range_name};

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
pub fn of(trace: &Trace, stages: &[Stage], set: &StageSet) -> Vec<Stratum> {
    let launches = Launches::join(trace, &mut Losses::default());
    let contexts = Contexts::build(trace, &launches.call_of_op);
    let stage_of_context: Vec<Option<usize>> = (0..contexts.len() as u32)
        .map(|context| stage_of(trace, contexts.ranges(context), stages, set))
        .collect();
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
            launches
                .call_of_op
                .get(op)
                .filter(|call| **call != NO_CALL)
                .and_then(|call| contexts.of_call.get(*call as usize))
                .and_then(|context| stage_of_context.get(*context as usize).copied().flatten())
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

/// The stage in which a set of enclosing ranges lies; none inside a warm-up.
fn stage_of(trace: &Trace, ranges: &[u32], stages: &[Stage], set: &StageSet) -> Option<usize> {
    let names: Vec<(&str, &str)> = ranges
        .iter()
        .filter_map(|row| trace.ranges.rows.get(*row as usize))
        .map(|range| (trace.names.get(range.domain), trace.names.get(range.name)))
        .collect();
    if names
        .iter()
        .any(|(domain, name)| set.warmup.iter().any(|pattern| pattern.matches(domain, name)))
    {
        return None;
    }
    stages.iter().position(|stage| {
        names
            .iter()
            .any(|(domain, name)| stage.ranges.contains(&range_name(domain, name)))
    })
}

/// Whether a kernel talks to other GPUs. Replaying one rank alone would wait for the others for ever.
pub fn is_communication(kernel: &str) -> bool {
    const MARKS: [&str; 9] = [
        "nccl",
        "nvshmem",
        "allreduce",
        "all_reduce",
        "allgather",
        "all_gather",
        "reduce_scatter",
        "cross_device_reduce",
        "multimem",
    ];
    let lower = kernel.to_ascii_lowercase();
    MARKS.iter().any(|mark| lower.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::is_communication;

    #[test]
    fn collectives_are_known_by_name() {
        for name in [
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)",
            "void tensorrt_llm::kernels::oneShotAllReduceKernel<float>()",
        ] {
            assert!(is_communication(name), "{name}");
        }
        for name in [
            "void at::native::reduce_kernel<512, 1>()",
            "sm90_xmma_gemm_bf16bf16_bf16f32",
        ] {
            assert!(!is_communication(name), "{name}");
        }
    }
}
