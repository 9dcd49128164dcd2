//! From a call to the innermost range or operator around it, and GPU time as a tree of them.
//!
//! The rule is that of [`Contexts`](super::Contexts): an item encloses a call that it starts and ends with or outlasts.

use super::{NO_CALL, launching_calls};
use crate::names::{Family, family, operator_name};
use crate::stages::StageIndex;
use crate::timeline::Grouped;
use roofgap_trace::{NameId, Ns, OpKind, Range, RangeStyle, ThreadId, Trace, range_name};

use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// A range, an operator or a module on its thread.
#[derive(Debug, Clone, Copy)]
pub struct Scope<K> {
    /// Thread.
    pub thread: ThreadId,
    /// Start, ns.
    pub start: Ns,
    /// End, ns.
    pub end: Ns,
    /// Identity below the item around it.
    pub key: K,
}

impl<K> Scope<K> {
    /// Creates the scope of a range.
    pub fn of_range(range: &Range, key: K) -> Self {
        Self { thread: range.thread, start: range.start, end: range.end, key }
    }

    /// Returns the order of nesting: an item comes before those inside it.
    pub fn order(&self) -> (ThreadId, Ns, Reverse<Ns>) {
        (self.thread, self.start, Reverse(self.end))
    }
}

/// Iterates over the push/pop ranges and operators of a trace in the order of nesting, with the keys that the functions give them.
pub fn scopes<'t, K: Copy + 't>(
    trace: &'t Trace,
    range_key: impl Fn(&Range) -> K + 't,
    operator_key: impl Fn(NameId) -> K + 't,
) -> impl Iterator<Item = Scope<K>> + 't {
    let mut ranges = range_scopes(trace, range_key).peekable();
    let mut operators = operator_scopes(trace, operator_key).peekable();
    std::iter::from_fn(move || {
        let operator = operators.peek().map(Scope::order);
        ranges
            .next_if(|range| operator.is_none_or(|operator| range.order() <= operator))
            .or_else(|| operators.next())
    })
}

/// Iterates over the push/pop ranges of a trace in the order of nesting.
pub fn range_scopes<'t, K: 't>(
    trace: &'t Trace,
    key: impl Fn(&Range) -> K + 't,
) -> impl Iterator<Item = Scope<K>> + 't {
    let rows = &trace.ranges.rows;
    let nested = (0u32..).zip(rows).filter(|(_, range)| range.style == RangeStyle::PushPop);
    let mut order: Vec<u32> = nested.map(|(row, _)| row).collect();
    // Mostly they are in this order on each thread. Rows keep the order of ranges with equal times.
    order.sort_by_key(|&row| rows[row as usize].thread);
    order.sort_unstable_by_key(|&row| (Scope::of_range(&rows[row as usize], ()).order(), row));
    order.into_iter().map(move |row| {
        let range = &rows[row as usize];
        Scope::of_range(range, key(range))
    })
}

/// Iterates over the operators of a trace in the order of nesting.
pub fn operator_scopes<'t, K: 't>(
    trace: &'t Trace,
    key: impl Fn(NameId) -> K + 't,
) -> impl Iterator<Item = Scope<K>> + 't {
    let cpu = &trace.cpu_ops;
    (0..cpu.len()).map(move |row| Scope {
        thread: cpu.thread[row],
        start: cpu.start[row],
        end: cpu.end[row],
        key: key(cpu.name[row]),
    })
}

/// Iterates over the calls that launched something, as rows of `Trace::calls`, each with the node of the innermost item around it. The rest
/// is as for [`innermost`].
pub fn around_calls<K: Copy, N: Copy>(
    trace: &Trace,
    call_of_op: &[u32],
    items: impl Iterator<Item = Scope<K>>,
    deepest: usize,
    root: N,
    child: impl FnMut(N, K) -> N,
) -> impl Iterator<Item = (usize, N)> {
    let calls = &trace.calls;
    let rows: Vec<u32> = launching_calls(trace, call_of_op).into_iter().flatten().collect();
    let spans = rows.iter().map(|&call| call as usize);
    let spans = spans.map(|call| (calls.thread[call], calls.start[call], calls.end[call]));
    let nodes = innermost(items, spans, deepest, root, child);
    rows.into_iter().map(|call| call as usize).zip(nodes)
}

/// An item that has not ended, with its node.
struct Open<K, N> {
    end: Ns,
    key: K,
    node: N,
}

/// The items that are open on a thread, outermost first.
struct OpenScopes<K, N> {
    thread: Option<ThreadId>,
    open: Vec<Open<K, N>>,
    root: N,
}

/// Returns the node of the innermost item around each call. `items` are in the order of nesting. `calls` have a thread, a start and an
/// end, ns, and are in the order of thread and start. `child` gives the node of an item below a node; at most `deepest` items lie
/// above each other, deeper ones are left out.
///
/// Items may overlap without one enclosing the other, as ranges of two domains do: an item that ended is not around a later call, even if
/// one inside it goes on.
pub fn innermost<K: Copy, N: Copy>(
    items: impl Iterator<Item = Scope<K>>,
    calls: impl Iterator<Item = (ThreadId, Ns, Ns)>,
    deepest: usize,
    root: N,
    mut child: impl FnMut(N, K) -> N,
) -> Vec<N> {
    let mut items = items.peekable();
    let mut open = OpenScopes { thread: None, open: Vec::new(), root };
    let node_of = |(thread, start, end): (ThreadId, Ns, Ns)| {
        while let Some(item) = items.next_if(|item| (item.thread, item.start) <= (thread, start)) {
            open.close(item.thread, item.start, &mut child);
            if open.open.len() < deepest {
                open.push(item.end, item.key, &mut child);
            }
        }
        open.close(thread, start, &mut child);
        open.around(end, &mut child)
    };
    calls.map(node_of).collect()
}

impl<K: Copy, N: Copy> OpenScopes<K, N> {
    /// Returns the node of the innermost item.
    fn last(&self) -> N {
        self.open.last().map_or(self.root, |item| item.node)
    }

    fn push(&mut self, end: Ns, key: K, child: &mut impl FnMut(N, K) -> N) {
        let node = child(self.last(), key);
        self.open.push(Open { end, key, node });
    }

    /// Drops the items of other threads and those that ended before a moment.
    fn close(&mut self, thread: ThreadId, at: Ns, child: &mut impl FnMut(N, K) -> N) {
        if self.thread != Some(thread) {
            self.open.clear();
            self.thread = Some(thread);
        }
        if let Some(first) = self.open.iter().position(|item| item.end < at) {
            // What is inside an item that ended goes on without it.
            let inside = self.open.split_off(first);
            for item in inside.into_iter().filter(|item| item.end >= at) {
                self.push(item.end, item.key, child);
            }
        }
    }

    /// Returns the node of the innermost item that ends at a moment or later.
    fn around(&self, end: Ns, child: &mut impl FnMut(N, K) -> N) -> N {
        if self.open.iter().all(|item| item.end >= end) {
            return self.last();
        }
        let around = self.open.iter().filter(|item| item.end >= end);
        around.fold(self.root, |node, item| child(node, item.key))
    }
}

/// The deepest level of ranges and operators; deeper ones belong to their ancestor on it.
const DEEPEST: usize = 48;

/// The kind of a node of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// A range of the program.
    Range,
    /// An operator of the framework.
    Operator,
    /// Kernels of one family.
    Kernels(Family),
    /// Copies, sets and whole graphs.
    Other(OpKind),
}

/// A node of the tree: GPU work with the same names around its launches.
#[derive(Debug, Clone, PartialEq)]
pub struct CallNode {
    /// Name of the range or operator; family of the kernels.
    pub name: String,
    /// Kind.
    pub kind: CallKind,
    /// Total time of its GPU operations, ns.
    pub gpu_ns: Ns,
    /// Number of its GPU operations.
    pub ops: u64,
    /// Nodes inside it, the longest first.
    pub children: Vec<CallNode>,
}

/// The identity of a node below its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Range(NameId, NameId),
    Operator(NameId),
    Kernels(Family),
    Other(OpKind),
    Operation(NameId, OpKind),
}

#[derive(Default)]
struct Node {
    parent: usize,
    key: Option<Key>,
    gpu_ns: Ns,
    ops: u64,
}

/// The nodes of a tree; the first is the root.
type Arena = Grouped<(usize, Key), Node>;

impl Arena {
    /// Returns the position of a node below another one. Nodes of a name mostly have the same parent as the one before.
    fn child(&mut self, parent: usize, key: Key, name: NameId) -> usize {
        let new = || Node { parent, key: Some(key), ..Node::default() };
        self.position_near(name.index(), (parent, key), new)
    }
}

/// Adds up the GPU operations by the push/pop ranges and operators around their launch calls. Work without a launch call stands at
/// the top.
pub fn call_tree(trace: &Trace, index: &StageIndex) -> Vec<CallNode> {
    let ops = &trace.ops;
    let mut families: FxHashMap<NameId, Family> = FxHashMap::default();
    let leaf = |op: usize| match ops.kind[op] {
        OpKind::Kernel => {
            let name = ops.name[op];
            Key::Kernels(*families.entry(name).or_insert_with(|| family(trace.names.get(name))))
        }
        kind => Key::Other(kind),
    };
    tree(trace, index, leaf)
}

/// Adds up the GPU operations in the same way, with each operation by its name.
pub fn operation_tree(trace: &Trace, index: &StageIndex) -> Vec<CallNode> {
    tree(trace, index, |op| Key::Operation(trace.ops.name[op], trace.ops.kind[op]))
}

fn tree(trace: &Trace, index: &StageIndex, mut leaf: impl FnMut(usize) -> Key) -> Vec<CallNode> {
    let ops = &trace.ops;
    let call_of_op = &index.launches().call_of_op;
    let mut arena = Arena::default();
    // No node is below this one.
    arena.position((usize::MAX, Key::Other(OpKind::Kernel)), Node::default);
    let items = scopes(
        trace,
        |range| (Key::Range(range.domain, range.name), range.name),
        |name| (Key::Operator(name), name),
    );
    let child = |parent: u32, (key, name): (Key, NameId)| arena.child(parent as usize, key, name) as u32;
    let mut node_of_call = vec![0; trace.calls.len()];
    for (call, node) in around_calls(trace, call_of_op, items, DEEPEST, 0, child) {
        node_of_call[call] = node;
    }
    for op in 0..ops.len() {
        let call = call_of_op.get(op).copied().unwrap_or(NO_CALL);
        let parent = node_of_call.get(call as usize).copied().unwrap_or(0) as usize;
        let at = arena.child(parent, leaf(op), ops.name[op]);
        arena.items[at].gpu_ns += ops.duration(op);
        arena.items[at].ops += 1;
    }
    build(trace, arena)
}

/// Turns the nodes with GPU work into a tree, from the last to the first: a child comes after its parent.
fn build(trace: &Trace, arena: Arena) -> Vec<CallNode> {
    let longest_first = |nodes: &mut Vec<CallNode>| {
        nodes.sort_by(|a, b| (b.gpu_ns, &a.name).cmp(&(a.gpu_ns, &b.name)));
    };
    let mut children: Vec<Vec<CallNode>> = arena.items.iter().map(|_| Vec::new()).collect();
    for (at, node) in arena.items.iter().enumerate().skip(1).rev() {
        let mut inner = std::mem::take(&mut children[at]);
        longest_first(&mut inner);
        let gpu_ns = node.gpu_ns + inner.iter().map(|child| child.gpu_ns).sum::<Ns>();
        let ops = node.ops + inner.iter().map(|child| child.ops).sum::<u64>();
        let Some(key) = node.key.filter(|_| ops > 0) else {
            continue;
        };
        let text = |id: NameId| trace.names.get(id);
        let of_kind = |kind: OpKind| match kind {
            OpKind::Copy => "copies",
            OpKind::Set => "memory sets",
            OpKind::Graph => "whole graphs",
            OpKind::Kernel => "kernels",
        };
        let (name, kind) = match key {
            Key::Range(domain, name) => (range_name(text(domain), text(name)), CallKind::Range),
            Key::Operator(name) => (operator_name(text(name)).to_owned(), CallKind::Operator),
            Key::Operation(name, kind) => (text(name).to_owned(), CallKind::Other(kind)),
            Key::Kernels(family) => (family.as_str().to_owned(), CallKind::Kernels(family)),
            Key::Other(kind) => (of_kind(kind).to_owned(), CallKind::Other(kind)),
        };
        children[node.parent].push(CallNode { name, kind, gpu_ns, ops, children: inner });
    }
    let mut top = children.into_iter().next().unwrap_or_default();
    longest_first(&mut top);
    top
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, analyze};
    use roofgap_trace::RangeStyle;
    use std::cmp::Reverse;

    /// Returns the names around each call, outermost first. Items have a name, a start and an end.
    fn stacks(items: &[(&'static str, Ns, Ns)], calls: &[(Ns, Ns)], deepest: usize) -> Vec<String> {
        let thread = ThreadId(3);
        let items = items.iter().map(|&(key, start, end)| Scope { thread, start, end, key });
        let mut items: Vec<_> = items.collect();
        items.sort_by_key(Scope::order);
        let mut paths = vec![String::new()];
        let child = |node: usize, key: &str| {
            paths.push(format!("{}{key}", paths[node]));
            paths.len() - 1
        };
        let calls = calls.iter().map(|&(start, end)| (thread, start, end));
        let nodes = innermost(items.into_iter(), calls, deepest, 0, child);
        nodes.into_iter().map(|node| paths[node].clone()).collect()
    }

    #[test]
    fn nested_items_are_around_the_calls_inside_them() {
        let items = [("c", 3, 4), ("a", 0, 10), ("b", 2, 5), ("d", 6, 10)];
        let calls = [(1, 1), (3, 3), (5, 5), (6, 7), (9, 10), (11, 12)];
        assert_eq!(stacks(&items, &calls, 9), ["a", "abc", "ab", "ad", "ad", ""]);
        assert_eq!(stacks(&items, &calls, 1), ["a", "a", "a", "a", "a", ""]);
    }

    #[test]
    fn ranges_and_operators_come_in_the_order_of_nesting() {
        let mut trace = Trace::default();
        let process = trace.add_process(1, "");
        let threads = [1, 2].map(|tid| trace.add_thread(process, tid, ""));
        let mut range = |thread: usize, start: Ns, end: Ns, style: RangeStyle, name: &str| {
            let (domain, name) = (trace.names.intern(""), trace.names.intern(name));
            let (thread, end_thread) = (threads[thread], threads[thread]);
            trace.ranges.rows.push(Range {
                start,
                end,
                domain,
                name,
                process,
                thread,
                end_thread,
                style,
                open: false,
            });
        };
        range(1, 0, 50, RangeStyle::PushPop, "other thread");
        range(0, 0, 100, RangeStyle::PushPop, "outer");
        range(0, 10, 20, RangeStyle::StartEnd, "overlaps");
        range(0, 10, 20, RangeStyle::PushPop, "inner");
        range(0, 10, 20, RangeStyle::PushPop, "innermost");
        for (start, end, name) in [(0, 120, "all"), (10, 20, "operator"), (30, 40, "last")] {
            let name = trace.names.intern(name);
            trace.cpu_ops.push(start, end, name, threads[0]);
        }
        let names = scopes(&trace, |range| range.name, |name| name).map(|scope| trace.names.get(scope.key));
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["all", "outer", "inner", "innermost", "operator", "last", "other thread"]
        );
    }

    #[test]
    fn an_item_that_ended_is_around_nothing_later() {
        // Two domains: the first ends inside the second.
        let items = [("a", 0, 10), ("b", 5, 20), ("c", 6, 15)];
        let calls = [(7, 8), (12, 13), (16, 17)];
        assert_eq!(stacks(&items, &calls, 9), ["abc", "bc", "b"]);
    }

    #[test]
    fn a_call_that_outlasts_an_item_is_not_inside_it() {
        let items = [("a", 0, 30), ("b", 0, 10), ("c", 10, 20)];
        let calls = [(4, 10), (5, 11), (10, 10), (10, 12), (15, 25), (16, 18)];
        assert_eq!(stacks(&items, &calls, 9), ["ab", "a", "abc", "ac", "a", "ac"]);
    }

    #[test]
    fn the_work_is_bounded_by_the_depth() {
        // Every item ends soon after the last begins, from the outermost to the innermost.
        let count = 2_000;
        let items: Vec<(&str, Ns, Ns)> = (0..count).map(|at| ("x", at, count + at)).collect();
        let calls: Vec<(Ns, Ns)> = (0..count).map(|at| (count + at, count + at)).collect();
        let mut children = 0u64;
        let items = items.iter().map(|&(key, start, end)| Scope { thread: ThreadId(0), start, end, key });
        let calls = calls.iter().map(|&(start, end)| (ThreadId(0), start, end));
        innermost(items, calls, 16, 0, |node: u32, _| {
            children += 1;
            node + 1
        });
        assert!(children < 16 * 3 * count as u64, "{children}");
    }

    fn find<'a>(nodes: &'a [CallNode], name: &str) -> Option<&'a CallNode> {
        nodes.iter().find(|node| node.name == name)
    }

    #[test]
    fn the_tree_holds_all_gpu_time_below_the_ranges_around_it() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/h200/llama4.sqlite.gz");
        let trace = roofgap_trace::read(&[path.into()]).unwrap().trace;
        let analyzed = analyze(&trace, &Options::default());
        let tree = call_tree(&trace, &analyzed.stages);
        let all: Ns = (0..trace.ops.len()).map(|op| trace.ops.duration(op)).sum();
        assert_eq!(tree.iter().map(|node| node.gpu_ns).sum::<Ns>(), all);
        let decode = analyzed.analysis.stages.iter().find(|s| s.name == "decode").unwrap();
        let node = find(&tree, "LLM@decode_all").unwrap();
        assert_eq!(node.ops, decode.gpu_op_count);
        let step = find(&node.children, "LLM@decode_step").unwrap();
        let kernels = step.children.iter().filter(|n| matches!(n.kind, CallKind::Kernels(_)));
        let others = step.children.iter().filter(|n| matches!(n.kind, CallKind::Other(_)));
        let sum: Ns = kernels.chain(others).map(|node| node.gpu_ns).sum();
        assert_eq!(sum, step.gpu_ns);
        assert!(step.children.is_sorted_by_key(|node| Reverse(node.gpu_ns)));
    }

    #[test]
    fn a_range_that_ended_has_no_later_work() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/h200/llama4.sqlite.gz");
        let mut trace = roofgap_trace::read(&[path.into()]).unwrap().trace;
        let launched = analyze(&trace, &Options::default()).stages;
        let calls = launched.launches().call_of_op.iter();
        let mut starts: Vec<Ns> =
            calls.filter_map(|call| trace.calls.start.get(*call as usize).copied()).collect();
        starts.sort_unstable();
        let (first, middle) = (starts[0], starts[starts.len() / 2]);
        let mut ranges = std::mem::take(&mut trace.ranges.rows);
        ranges.retain(|range| range.style == RangeStyle::PushPop);
        ranges.truncate(2);
        // The first of two domains ends while work is launched, the second goes on.
        (ranges[0].start, ranges[0].end) = (first, middle);
        (ranges[1].start, ranges[1].end) = (first + 1, Ns::MAX);
        (ranges[0].name, ranges[1].name) = (trace.names.intern("first"), trace.names.intern("second"));
        trace.ranges.rows = ranges;
        let index = analyze(&trace, &Options::default()).stages;
        let tree = call_tree(&trace, &index);
        assert!(tree.iter().any(|node| node.name.ends_with("second")), "{tree:?}");
    }

    #[test]
    fn operators_stand_inside_ranges() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/h200/llama4.kineto.json.gz");
        let trace = roofgap_trace::read(&[path.into()]).unwrap().trace;
        let analyzed = analyze(&trace, &Options::default());
        let tree = call_tree(&trace, &analyzed.stages);
        fn depth(nodes: &[CallNode], kind: CallKind) -> usize {
            let below = nodes.iter().map(|node| depth(&node.children, kind));
            below.max().unwrap_or(0) + usize::from(nodes.iter().any(|node| node.kind == kind))
        }
        assert!(depth(&tree, CallKind::Operator) > 1);
        let all: Ns = (0..trace.ops.len()).map(|op| trace.ops.duration(op)).sum();
        assert_eq!(tree.iter().map(|node| node.gpu_ns).sum::<Ns>(), all);
    }
}
