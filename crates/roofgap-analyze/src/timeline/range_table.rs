//! The table of range names.

use super::interval::Extent;
use crate::result::RangeInfo;
use crate::stages::StageIndex;
use roofgap_trace::{Ns, OpKind, RangeStyle, Trace};
use rustc_hash::FxHashMap;

/// Adds up every range name with the GPU work launched inside it, longest first.
pub(crate) fn range_table(trace: &Trace, index: &StageIndex) -> Vec<RangeInfo> {
    let (ops, contexts) = (&trace.ops, index.contexts());
    #[derive(Clone, Copy)]
    struct Sum {
        kernels: u64,
        kernel_ns: Ns,
        ops: u64,
        launches: u64,
        extent: Extent,
    }
    const NONE: Sum = Sum {
        kernels: 0,
        kernel_ns: 0,
        ops: 0,
        launches: 0,
        extent: Extent::EMPTY,
    };
    let mut of_context = vec![NONE; contexts.len()];
    for op in 0..ops.len() {
        let Some(sum) = of_context.get_mut(index.context_of_op(op) as usize) else {
            continue;
        };
        sum.ops += 1;
        sum.extent.add(ops.start[op], ops.end[op]);
        if ops.kind[op] == OpKind::Kernel {
            sum.kernels += 1;
            sum.kernel_ns += ops.duration(op);
        }
    }
    for &context in &contexts.of_call {
        if let Some(sum) = of_context.get_mut(context as usize) {
            sum.launches += 1;
        }
    }
    let of_range = contexts.sum_by_range(&of_context, trace.ranges.rows.len(), NONE, |total, sum| {
        total.kernels += sum.kernels;
        total.kernel_ns += sum.kernel_ns;
        total.ops += sum.ops;
        total.launches += sum.launches;
        if sum.extent.length().is_some() {
            total.extent.add(sum.extent.0, sum.extent.1);
        }
    });
    let mut groups: FxHashMap<_, RangeInfo> = FxHashMap::default();
    for (range, sum) in trace.ranges.rows.iter().zip(&of_range) {
        let info = groups
            .entry((range.domain, range.name, range.style))
            .or_insert_with(|| RangeInfo {
                domain: trace.names.get(range.domain).to_owned(),
                name: trace.names.get(range.name).to_owned(),
                style: if range.style == RangeStyle::PushPop {
                    "push_pop"
                } else {
                    "start_end"
                }
                .into(),
                ..RangeInfo::default()
            });
        info.instances += 1;
        info.wall_ns += range.end - range.start;
        info.projected_ns += sum.extent.length().unwrap_or(0);
        info.kernel_count += sum.kernels;
        info.kernel_ns += sum.kernel_ns;
        info.gpu_op_count += sum.ops;
        info.launch_count += sum.launches;
    }
    let mut list: Vec<RangeInfo> = groups.into_values().collect();
    list.sort_by(|a, b| {
        b.wall_ns
            .cmp(&a.wall_ns)
            .then_with(|| (&a.domain, &a.name, &a.style).cmp(&(&b.domain, &b.name, &b.style)))
    });
    list
}
