//! Launches whose work follows from the recorded shapes of their operator.

use super::sums::{RoofSums, RoofTime};
use super::work::OperatorWork;
use crate::gpu::GpuFacts;
use crate::result::RoofSource;
use crate::stages::StageIndex;
use crate::timeline::NO_CALL;
use roofgap_trace::{NameId, OpKind, ShapedOperator, Trace};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Adds the launches of operators with recorded shapes that launch exactly one kernel. Kernels that were measured in their stage
/// are left to the counters.
pub fn add_modelled(sums: &mut RoofSums, trace: &Trace, index: &StageIndex, gpu: &GpuFacts) {
    let mut shaped: Vec<&ShapedOperator> = trace.shaped.iter().collect();
    shaped.sort_by_key(|op| (op.thread, op.start, Reverse(op.end)));
    // Launches of a kernel in a stage, by the operator and its shapes; `None` where those do not give the work.
    type Key = (Option<usize>, NameId, (NameId, NameId, NameId));
    let text = |id| trace.names.get(id);
    let mut groups: FxHashMap<Key, Option<Launches>> = FxHashMap::default();
    for (operator, row) in single_kernels(trace, &shaped, index) {
        let Some(op) = shaped.get(operator) else { continue };
        let stage = index.stage_of_op(row);
        let key = (stage, trace.ops.name[row], (op.name, op.dims, op.types));
        let launches = groups.entry(key).or_insert_with(|| {
            let work = OperatorWork::of(text(op.name), text(op.dims), text(op.types))?;
            Some(Launches::at(roof_ns(&work, gpu)?))
        });
        if let Some(launches) = launches {
            launches.add(trace.ops.duration(row));
        }
    }
    let mut modelled: Vec<(Option<&str>, &str, RoofTime)> = Vec::new();
    for ((stage, kernel, _), launches) in groups {
        if let Some(launches) = launches {
            let took = RoofTime {
                total_ns: launches.total_ns,
                roof_ns: launches.roof_ns,
                source: RoofSource::Modelled,
            };
            modelled.push((stage.map(|stage| index.name(stage)), text(kernel), took));
        }
    }
    modelled.retain(|(stage, kernel, _)| !sums.has(*stage, kernel));
    for (stage, kernel, took) in modelled {
        sums.add(stage, kernel, took);
    }
}

/// Launches with the same work.
struct Launches {
    /// Roof of one launch, ns.
    each_ns: f64,
    total_ns: i64,
    roof_ns: f64,
}

impl Launches {
    fn at(each_ns: f64) -> Self {
        Self { each_ns, total_ns: 0, roof_ns: 0.0 }
    }

    /// Adds a launch. One that is faster than its roof is at the roof.
    fn add(&mut self, took_ns: i64) {
        self.total_ns += took_ns;
        self.roof_ns += self.each_ns.min(took_ns as f64);
    }
}

/// Returns the time of the work at the roof, ns.
fn roof_ns(work: &OperatorWork, gpu: &GpuFacts) -> Option<f64> {
    let (bandwidth, _) = gpu.bandwidth()?;
    let compute = work.flops / gpu.peak(work.dtype)?.flops_per_s;
    Some(1e9 * compute.max(work.bytes / bandwidth)).filter(|ns| ns.is_finite() && *ns > 0.0)
}

/// Returns the operators that launch exactly one kernel, with the row of that kernel.
fn single_kernels(trace: &Trace, shaped: &[&ShapedOperator], index: &StageIndex) -> Vec<(usize, usize)> {
    if shaped.is_empty() {
        return Vec::new();
    }
    let mut kernels: Vec<(u32, usize)> = vec![(0, 0); shaped.len()];
    let calls = &index.launches().call_of_op;
    let rows = trace.ops.kind.iter().zip(calls).enumerate();
    for (row, (kind, call)) in rows {
        if *kind != OpKind::Kernel || *call == NO_CALL {
            continue;
        }
        let call = *call as usize;
        let at = (trace.calls.thread[call], trace.calls.start[call]);
        let after = shaped.partition_point(|op| (op.thread, op.start) <= at);
        let found = after.checked_sub(1).filter(|found| {
            let op = shaped[*found];
            op.thread == at.0 && op.end >= at.1
        });
        if let Some(slot) = found.and_then(|found| kernels.get_mut(found)) {
            *slot = (slot.0 + 1, row);
        }
    }
    let single = kernels.iter().enumerate().filter(|(_, (count, _))| *count == 1);
    single.map(|(operator, (_, row))| (operator, *row)).collect()
}
