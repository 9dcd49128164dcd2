//! The table of range names.

use super::interval::Extent;
use crate::names::operator_name;
use crate::result::RangeInfo;
use crate::stages::StageIndex;
use roofgap_trace::{Ns, OpKind, RangeStyle, Trace};
use rustc_hash::FxHashMap;

/// Adds up every range name with the GPU work launched inside it, longest first. Operators that torch's `emit_nvtx` numbers are one
/// name. A range inside itself counts as an instance; its time counts once.
pub fn range_table(trace: &Trace, index: &StageIndex) -> Vec<RangeInfo> {
    let (ops, contexts) = (&trace.ops, index.contexts());
    #[derive(Clone, Copy)]
    struct Sum {
        kernels: u64,
        kernel_ns: Ns,
        ops: u64,
        launches: u64,
        extent: Extent,
    }
    const NONE: Sum = Sum { kernels: 0, kernel_ns: 0, ops: 0, launches: 0, extent: Extent::EMPTY };
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
    let mut plain_names: FxHashMap<_, &str> = FxHashMap::default();
    // End of the range of a name that is open on a thread.
    let mut open: FxHashMap<_, Ns> = FxHashMap::default();
    for (range, sum) in trace.ranges.rows.iter().zip(&of_range) {
        let name =
            *plain_names.entry(range.name).or_insert_with(|| operator_name(trace.names.get(range.name)));
        let info = groups.entry((range.domain, name, range.style)).or_insert_with(|| RangeInfo {
            domain: trace.names.get(range.domain).to_owned(),
            name: name.to_owned(),
            style: if range.style == RangeStyle::PushPop { "push_pop" } else { "start_end" }.into(),
            ..RangeInfo::default()
        });
        info.instances += 1;
        // A range inside one of its name is the same time and the same work again. Start/end ranges of a name overlap without
        // being nested.
        if range.style == RangeStyle::PushPop {
            let end = open.entry((range.thread, range.domain, name)).or_insert(Ns::MIN);
            if range.end <= *end {
                continue;
            }
            *end = range.end;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::StageSet;
    use crate::timeline::{Contexts, Launches};
    use roofgap_trace::{Losses, Range};

    /// Returns the table of ranges of one thread, given as name, start, end and style.
    fn table_of(ranges: &[(&str, Ns, Ns, RangeStyle)]) -> Vec<RangeInfo> {
        let mut trace = Trace::default();
        let process = trace.add_process(1, "python");
        let thread = trace.add_thread(process, 1, "");
        let domain = trace.names.intern("");
        for &(name, start, end, style) in ranges {
            let name = trace.names.intern(name);
            trace.ranges.rows.push(Range {
                start,
                end,
                domain,
                name,
                process,
                thread,
                end_thread: thread,
                style,
                open: false,
            });
        }
        let launches = Launches::join(&trace, &mut Losses::default());
        let contexts = Contexts::build(&trace, &launches.call_of_op);
        let (index, _) = StageIndex::build(&trace, launches, contexts, &StageSet::default());
        range_table(&trace, &index)
    }

    #[test]
    fn a_range_inside_itself_counts_its_time_once() {
        let table = table_of(&[
            ("layer", 0, 100, RangeStyle::PushPop),
            ("layer", 10, 60, RangeStyle::PushPop),
            ("layer", 20, 30, RangeStyle::PushPop),
            ("layer", 100, 140, RangeStyle::PushPop),
            ("layer", 200, 300, RangeStyle::StartEnd),
            ("layer", 210, 290, RangeStyle::StartEnd),
        ]);
        let rows: Vec<(&str, u64, Ns)> =
            table.iter().map(|r| (r.style.as_str(), r.instances, r.wall_ns)).collect();
        assert_eq!(rows, [("start_end", 2, 180), ("push_pop", 4, 140)]);
    }

    #[test]
    fn numbered_operators_are_one_name() {
        let table = table_of(&[
            ("aten::mm, op_id = 1", 0, 10, RangeStyle::PushPop),
            ("aten::mm, seq = 4, op_id = 9", 100, 110, RangeStyle::PushPop),
            ("aten::add, op_id = 3", 200, 210, RangeStyle::PushPop),
        ]);
        let rows: Vec<(&str, u64, Ns)> =
            table.iter().map(|r| (r.name.as_str(), r.instances, r.wall_ns)).collect();
        assert_eq!(rows, [("aten::mm", 2, 20), ("aten::add", 1, 10)]);
    }
}
