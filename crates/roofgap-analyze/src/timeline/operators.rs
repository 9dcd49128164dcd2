//! Operators of the framework, or ranges where there are none: own and total time on CPU and GPU.

use super::launches::launching_calls;
use crate::names::operator_name;
use crate::result::Operator;
use roofgap_trace::{NameId, Ns, RangeStyle, ThreadId, Trace, range_name};
use rustc_hash::FxHashMap;

/// The domain and the name; operators of a framework have no domain.
type Key = (Option<NameId>, NameId);

/// Something that was entered and left on a thread.
struct Item {
    thread: ThreadId,
    start: Ns,
    end: Ns,
    key: Key,
}

/// Adds up operators. Without any in the trace, its push/pop ranges stand in.
pub fn table(trace: &Trace, call_of_op: &[u32]) -> Vec<Operator> {
    let ops = &trace.cpu_ops;
    let mut items: Vec<Item> = (0..ops.len())
        .map(|i| Item {
            thread: ops.thread[i],
            start: ops.start[i],
            end: ops.end[i],
            key: (None, ops.name[i]),
        })
        .collect();
    if items.is_empty() {
        let ranges = trace.ranges.rows.iter().filter(|r| r.style == RangeStyle::PushPop);
        items = ranges
            .map(|r| Item { thread: r.thread, start: r.start, end: r.end, key: (Some(r.domain), r.name) })
            .collect();
        items.sort_by_key(|i| (i.thread, i.start, std::cmp::Reverse(i.end)));
    }
    let gpu_ns = gpu_time_of_calls(trace, call_of_op);
    let launches = launching_calls(trace, call_of_op);
    let gpu = !trace.ops.is_empty();
    let mut sums: FxHashMap<Key, Operator> = FxHashMap::default();
    let mut next = 0;
    let mut stack: Vec<Open> = Vec::new();
    // Number of open operators of each key: one inside itself is the same time again.
    let mut open: FxHashMap<Key, u32> = FxHashMap::default();
    let mut calls = launches.iter().flatten().peekable();
    let flush = |stack: &mut Vec<Open>,
                 open: &mut FxHashMap<Key, u32>,
                 until: Option<(ThreadId, Ns)>,
                 sums: &mut FxHashMap<_, Operator>| {
        while let Some(top) = stack.last() {
            if until.is_some_and(|(thread, at)| top.thread == thread && top.end > at) {
                break;
            }
            let Some(done) = stack.pop() else { break };
            if let Some(parent) = stack.last_mut() {
                parent.children_ns += done.end.min(parent.end) - done.start;
                parent.gpu_total_ns += done.gpu_total_ns;
            }
            let depth = open.entry(done.key).or_insert(1);
            *depth = depth.saturating_sub(1);
            let outermost = *depth == 0;
            let sum = sums.entry(done.key).or_default();
            sum.calls += 1;
            sum.self_cpu_ns += (done.end - done.start - done.children_ns).max(0);
            if outermost {
                sum.total_cpu_ns += done.end - done.start;
            }
            if gpu {
                *sum.self_gpu_ns.get_or_insert(0) += done.gpu_self_ns;
                *sum.total_gpu_ns.get_or_insert(0) += if outermost { done.gpu_total_ns } else { 0 };
            }
        }
    };
    loop {
        let item = items.get(next);
        let item_at = item.map(|i| (i.thread, i.start));
        // Calls before the next operator belong to what is open now.
        let launch = calls.peek().map(|&&row| {
            let row = row as usize;
            (trace.calls.thread[row], trace.calls.start[row], gpu_ns[row])
        });
        match (launch, item_at) {
            (Some((thread, at, gpu_ns)), after) if after.is_none_or(|after| (thread, at) < after) => {
                flush(&mut stack, &mut open, Some((thread, at)), &mut sums);
                if let Some(top) = stack.last_mut() {
                    top.gpu_self_ns += gpu_ns;
                    top.gpu_total_ns += gpu_ns;
                }
                calls.next();
            }
            (_, Some((thread, at))) => {
                flush(&mut stack, &mut open, Some((thread, at)), &mut sums);
                if let Some(i) = item {
                    *open.entry(i.key).or_default() += 1;
                    stack.push(Open::new(i));
                }
                next += 1;
            }
            (_, None) => break,
        }
    }
    flush(&mut stack, &mut open, None, &mut sums);
    let mut operators = by_name(trace, sums);
    sort_operators(&mut operators);
    operators
}

/// Adds up the sums of names that differ only in what torch appends to them.
fn by_name(trace: &Trace, sums: FxHashMap<Key, Operator>) -> Vec<Operator> {
    let mut named: FxHashMap<String, Operator> = FxHashMap::default();
    for ((domain, name), sum) in sums {
        let domain = domain.map_or("", |domain| trace.names.get(domain));
        let name = range_name(domain, operator_name(trace.names.get(name)));
        let total = named.entry(name).or_default();
        total.calls += sum.calls;
        total.self_cpu_ns += sum.self_cpu_ns;
        total.total_cpu_ns += sum.total_cpu_ns;
        if let (Some(own), Some(all)) = (sum.self_gpu_ns, sum.total_gpu_ns) {
            *total.self_gpu_ns.get_or_insert(0) += own;
            *total.total_gpu_ns.get_or_insert(0) += all;
        }
    }
    named.into_iter().map(|(name, sum)| Operator { name, ..sum }).collect()
}

/// Sorts operators by their own GPU time, then CPU time, longest first.
pub fn sort_operators(operators: &mut [Operator]) {
    operators.sort_by(|a, b| {
        (b.self_gpu_ns, b.self_cpu_ns).cmp(&(a.self_gpu_ns, a.self_cpu_ns)).then_with(|| a.name.cmp(&b.name))
    });
}

/// An operator that was entered and not left yet.
struct Open {
    thread: ThreadId,
    start: Ns,
    end: Ns,
    key: Key,
    children_ns: Ns,
    gpu_self_ns: Ns,
    gpu_total_ns: Ns,
}

impl Open {
    fn new(item: &Item) -> Self {
        let Item { thread, start, end, key } = *item;
        Self { thread, start, end, key, children_ns: 0, gpu_self_ns: 0, gpu_total_ns: 0 }
    }
}

/// Returns the GPU time that each call caused, ns.
fn gpu_time_of_calls(trace: &Trace, call_of_op: &[u32]) -> Vec<Ns> {
    let mut gpu_ns = vec![0; trace.calls.len()];
    for (row, &call) in call_of_op.iter().enumerate() {
        if let Some(sum) = gpu_ns.get_mut(call as usize) {
            *sum += trace.ops.duration(row);
        }
    }
    gpu_ns
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let operators = table(&trace, &[]);
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
        let operators = table(&trace, &[]);
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
        let operators = table(&trace, &[]);
        assert_eq!(
            named(&operators),
            [("LLM@decode", 1, 100), ("aten::linear", 1, 100), ("aten::mm", 2, 50)]
        );
        assert_eq!(operators[1].self_cpu_ns, 50, "without its two products");
    }
}
