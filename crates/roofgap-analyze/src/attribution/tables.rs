//! Operators of the framework and ranges of the program, with the GPU work launched inside them.

use super::launching_calls;
use super::nesting::{Scope, operator_scopes, range_scopes};
use crate::names::operator_name;
use crate::result::{Operator, RangeInfo};
use crate::stages::StageIndex;
use crate::timeline::{Extent, Grouped};
use roofgap_trace::{NameId, Ns, OpKind, RangeStyle, ThreadId, Trace, range_name};
use rustc_hash::FxHashMap;

/// The domain and the name; operators of a framework have no domain.
type Key = (Option<NameId>, NameId);

/// Adds up operators: self and total time on CPU and GPU. Without any in the trace, those that a framework writes as ranges count: they are
/// in the default domain, and their names have a namespace, as `aten::mm`.
pub fn operator_table(trace: &Trace, call_of_op: &[u32]) -> Vec<Operator> {
    let mut nested = Nested { gpu: !trace.ops.is_empty(), ..Nested::default() };
    if trace.cpu_ops.is_empty() {
        let ranges = range_scopes(trace, |range| (Some(range.domain), range.name));
        let is_operator = |scope: &Scope<Key>| {
            let (domain, name) = scope.key;
            domain.is_none_or(|domain| trace.names.get(domain).is_empty())
                && trace.names.get(name).contains("::")
        };
        nested.add_all(trace, call_of_op, ranges.filter(is_operator));
    } else {
        nested.add_all(trace, call_of_op, operator_scopes(trace, |name| (None, name)));
    }
    // Names that differ only in what torch appends to them are one.
    let mut named: FxHashMap<String, Operator> = FxHashMap::default();
    for ((domain, name), KeySum { sum, .. }) in nested.sums.keys.iter().zip(&nested.sums.items) {
        let domain = domain.map_or("", |domain| trace.names.get(domain));
        let name = range_name(domain, operator_name(trace.names.get(*name)));
        add_operator(named.entry(name).or_default(), sum);
    }
    let operators = named.into_iter().map(|(name, sum)| Operator { name, ..sum });
    sorted_operators(operators.collect())
}

/// Adds the numbers of an operator to a sum.
pub fn add_operator(sum: &mut Operator, operator: &Operator) {
    sum.calls = sum.calls.saturating_add(operator.calls);
    sum.self_cpu_ns += operator.self_cpu_ns;
    sum.total_cpu_ns += operator.total_cpu_ns;
    for (sum, operator) in
        [(&mut sum.self_gpu_ns, operator.self_gpu_ns), (&mut sum.total_gpu_ns, operator.total_gpu_ns)]
    {
        if let Some(operator) = operator {
            *sum.get_or_insert(0) += operator;
        }
    }
}

/// Sorts operators by their self GPU time, then CPU time, longest first.
pub fn sorted_operators(mut operators: Vec<Operator>) -> Vec<Operator> {
    operators.sort_by(|a, b| {
        (b.self_gpu_ns, b.self_cpu_ns, &a.name).cmp(&(a.self_gpu_ns, a.self_cpu_ns, &b.name))
    });
    operators
}

/// Items that are open, and the sums of those that ended.
#[derive(Default)]
struct Nested {
    gpu: bool,
    open: Vec<Open>,
    sums: Grouped<Key, KeySum>,
}

/// An item that was entered and not left yet.
struct Open {
    item: Scope<()>,
    /// Position of its sum.
    sum: usize,
    children_ns: Ns,
    gpu_self_ns: Ns,
    gpu_total_ns: Ns,
}

/// The sum of the items of one key.
#[derive(Default)]
struct KeySum {
    /// Number of open items: one inside itself is the same time again.
    open: u32,
    sum: Operator,
}

impl Nested {
    fn add_all(&mut self, trace: &Trace, call_of_op: &[u32], items: impl Iterator<Item = Scope<Key>>) {
        let calls = &trace.calls;
        let mut gpu_ns = vec![0; calls.len()];
        for (row, &call) in call_of_op.iter().enumerate() {
            if let Some(sum) = gpu_ns.get_mut(call as usize) {
                *sum += trace.ops.duration(row);
            }
        }
        let launches = launching_calls(trace, call_of_op);
        let launches = launches.iter().flatten().map(|&row| row as usize);
        let mut launches = launches.map(|row| (calls.thread[row], calls.start[row], gpu_ns[row])).peekable();
        for Scope { thread, start, end, key } in items {
            // Calls before the next item belong to what is open now.
            while let Some(launch) = launches.next_if(|(on, at, _)| (*on, *at) < (thread, start)) {
                self.launch(launch);
            }
            self.close(Some((thread, start)));
            let sum = self.sums.position_near(key.1.index(), key, KeySum::default);
            self.sums.items[sum].open += 1;
            let item = Scope { thread, start, end, key: () };
            self.open.push(Open { item, sum, children_ns: 0, gpu_self_ns: 0, gpu_total_ns: 0 });
        }
        launches.for_each(|launch| self.launch(launch));
        self.close(None);
    }

    /// Adds the GPU time of a call to the innermost item around it.
    fn launch(&mut self, (thread, at, gpu_ns): (ThreadId, Ns, Ns)) {
        self.close(Some((thread, at)));
        if let Some(top) = self.open.last_mut() {
            top.gpu_self_ns += gpu_ns;
            top.gpu_total_ns += gpu_ns;
        }
    }

    /// Leaves the items that ended before a moment on a thread; all without one.
    fn close(&mut self, until: Option<(ThreadId, Ns)>) {
        let ended =
            |top: &mut Open| until.is_none_or(|(thread, at)| top.item.thread != thread || top.item.end <= at);
        while let Some(done) = self.open.pop_if(ended) {
            let Scope { start, end, .. } = done.item;
            if let Some(parent) = self.open.last_mut() {
                parent.children_ns += end.min(parent.item.end) - start;
                parent.gpu_total_ns += done.gpu_total_ns;
            }
            let KeySum { open, sum, .. } = &mut self.sums.items[done.sum];
            *open = open.saturating_sub(1);
            let outermost = Ns::from(*open == 0);
            let closed = Operator {
                calls: 1,
                self_cpu_ns: (end - start - done.children_ns).max(0),
                total_cpu_ns: outermost * (end - start),
                self_gpu_ns: self.gpu.then_some(done.gpu_self_ns),
                total_gpu_ns: self.gpu.then_some(outermost * done.gpu_total_ns),
                ..Operator::default()
            };
            add_operator(sum, &closed);
        }
    }
}

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
    for (sum, launches) in of_context.iter_mut().zip(&contexts.launches) {
        sum.launches = *launches;
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
        (b.wall_ns, &a.domain, &a.name, &a.style).cmp(&(a.wall_ns, &b.domain, &b.name, &b.style))
    });
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::{Contexts, Launches};
    use crate::stages::StageSet;
    use roofgap_trace::Losses;
    use roofgap_trace::Range;

    fn named(operators: &[Operator]) -> Vec<(&str, u64, Ns)> {
        operators.iter().map(|o| (o.name.as_str(), o.calls, o.total_cpu_ns)).collect()
    }

    #[test]
    fn operators_have_no_domain() {
        let mut trace = Trace::default();
        // The first name of a trace is any; here no name is empty.
        let names = ["aten::mm", "aten::embedding"].map(|name| trace.names.intern(name));
        let thread = ThreadId(0);
        trace.cpu_ops.push(0, 10, names[1], thread);
        trace.cpu_ops.push(20, 25, names[0], thread);
        let operators = operator_table(&trace, &[]);
        assert_eq!(named(&operators), [("aten::embedding", 1, 10), ("aten::mm", 1, 5)]);
    }

    #[test]
    fn an_operator_inside_itself_counts_its_time_once() {
        let mut trace = Trace::default();
        let [outer, inner] = ["aten::to", "aten::copy_"].map(|name| trace.names.intern(name));
        let thread = ThreadId(0);
        trace.cpu_ops.push(0, 100, outer, thread);
        trace.cpu_ops.push(10, 90, inner, thread);
        trace.cpu_ops.push(20, 80, outer, thread);
        trace.cpu_ops.push(200, 230, outer, thread);
        let operators = operator_table(&trace, &[]);
        assert_eq!(named(&operators), [("aten::to", 3, 130), ("aten::copy_", 1, 80)]);
        assert_eq!(operators[0].self_cpu_ns, 20 + 60 + 30);
    }

    #[test]
    fn ranges_of_emit_nvtx_are_one_operator_each() {
        let mut trace = Trace::default();
        let process = trace.add_process(1, "python");
        let thread = trace.add_thread(process, 1, "");
        let mut push = |domain: &str, name: &str, start: Ns, end: Ns| {
            let (domain, name) = (trace.names.intern(domain), trace.names.intern(name));
            trace.ranges.rows.push(Range {
                start,
                end,
                domain,
                name,
                process,
                thread,
                end_thread: thread,
                style: RangeStyle::PushPop,
                open: false,
            });
        };
        push("", "aten::linear, op_id = 1", 0, 100);
        push("", "aten::mm, seq = 1, op_id = 2", 10, 40);
        push("", "aten::mm, seq = 2, op_id = 3, sizes = [[2, 3], [3, 4]]", 50, 70);
        push("LLM", "decode", 200, 300);
        push("", "roofgap:gc", 300, 310);
        push("CCCL", "cub::DeviceScan", 320, 330);
        let operators = operator_table(&trace, &[]);
        assert_eq!(named(&operators), [("aten::linear", 1, 100), ("aten::mm", 2, 50)]);
        assert_eq!(operators[0].self_cpu_ns, 50, "without its two products");
    }

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
