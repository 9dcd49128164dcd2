//! GPU time by the ranges and operators around the launches, as a tree.

use super::launches::{NO_CALL, launching_calls};
use super::nesting::{innermost, scopes};
use crate::names::{Family, family, operator_name};
use crate::stages::StageIndex;
use roofgap_trace::{NameId, Ns, OpKind, Trace, range_name};
use rustc_hash::FxHashMap;

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
}

struct Node {
    parent: usize,
    key: Option<Key>,
    gpu_ns: Ns,
    ops: u64,
}

/// The nodes found so far. The first is the root.
struct Arena {
    nodes: Vec<Node>,
    known: FxHashMap<(usize, Key), usize>,
}

impl Arena {
    fn child(&mut self, parent: usize, key: Key) -> usize {
        let next = self.nodes.len();
        let at = *self.known.entry((parent, key)).or_insert(next);
        if at == next {
            self.nodes.push(Node { parent, key: Some(key), gpu_ns: 0, ops: 0 });
        }
        at
    }
}

/// Adds up the GPU operations by the push/pop ranges and operators around their launch calls. Work without a launch call stands at
/// the top.
pub fn call_tree(trace: &Trace, index: &StageIndex) -> Vec<CallNode> {
    let ops = &trace.ops;
    let call_of_op = &index.launches().call_of_op;
    let mut arena =
        Arena { nodes: vec![Node { parent: 0, key: None, gpu_ns: 0, ops: 0 }], known: FxHashMap::default() };
    let mut families: Vec<Option<Family>> = vec![None; trace.names.len()];
    let mut leaf = |op: usize| match ops.kind[op] {
        OpKind::Kernel => {
            let name = ops.name[op];
            let known = families.get_mut(name.index());
            let of = || family(trace.names.get(name));
            Key::Kernels(known.map_or_else(of, |slot| *slot.get_or_insert_with(of)))
        }
        kind => Key::Other(kind),
    };
    let node_of_call = nodes_of_calls(trace, call_of_op, &mut arena);
    for op in 0..ops.len() {
        let call = call_of_op.get(op).copied().unwrap_or(NO_CALL);
        let parent = node_of_call.get(call as usize).copied().unwrap_or(0) as usize;
        let at = arena.child(parent, leaf(op));
        if let Some(node) = arena.nodes.get_mut(at) {
            node.gpu_ns += ops.duration(op);
            node.ops += 1;
        }
    }
    build(trace, arena)
}

/// Finds the node of the innermost range or operator around each call that launched something.
fn nodes_of_calls(trace: &Trace, call_of_op: &[u32], arena: &mut Arena) -> Vec<u32> {
    let calls = &trace.calls;
    let mut node_of_call = vec![0u32; calls.len()];
    let launches = launching_calls(trace, call_of_op);
    let around = launches.iter().flatten().map(|&call| {
        let call = call as usize;
        (calls.thread[call], calls.start[call], calls.end[call])
    });
    let child = |parent: u32, key: Key| arena.child(parent as usize, key) as u32;
    let items = scopes(trace, |range| Key::Range(range.domain, range.name), Key::Operator);
    let nodes = innermost(items, around, DEEPEST, 0, child);
    for (call, node) in launches.iter().flatten().zip(nodes) {
        node_of_call[*call as usize] = node;
    }
    node_of_call
}

/// Turns the nodes with GPU work into a tree, from the last to the first: a child comes after its parent.
fn build(trace: &Trace, arena: Arena) -> Vec<CallNode> {
    let mut children: Vec<Vec<CallNode>> = arena.nodes.iter().map(|_| Vec::new()).collect();
    for (at, node) in arena.nodes.iter().enumerate().skip(1).rev() {
        let mut own = std::mem::take(&mut children[at]);
        own.sort_by(|a, b| b.gpu_ns.cmp(&a.gpu_ns).then_with(|| a.name.cmp(&b.name)));
        let gpu_ns = node.gpu_ns + own.iter().map(|child| child.gpu_ns).sum::<Ns>();
        let ops = node.ops + own.iter().map(|child| child.ops).sum::<u64>();
        let Some(key) = node.key.filter(|_| ops > 0) else {
            continue;
        };
        let text = |id: NameId| trace.names.get(id);
        let (name, kind) = match key {
            Key::Range(domain, name) => (range_name(text(domain), text(name)), CallKind::Range),
            Key::Operator(name) => (operator_name(text(name)).to_owned(), CallKind::Operator),
            Key::Kernels(family) => (family.as_str().to_owned(), CallKind::Kernels(family)),
            Key::Other(kind) => (
                match kind {
                    OpKind::Copy => "copies",
                    OpKind::Set => "memory sets",
                    OpKind::Graph => "whole graphs",
                    OpKind::Kernel => "kernels",
                }
                .to_owned(),
                CallKind::Other(kind),
            ),
        };
        children[node.parent].push(CallNode { name, kind, gpu_ns, ops, children: own });
    }
    let mut top = children.into_iter().next().unwrap_or_default();
    top.sort_by(|a, b| b.gpu_ns.cmp(&a.gpu_ns).then_with(|| a.name.cmp(&b.name)));
    top
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, analyze};
    use roofgap_trace::RangeStyle;
    use std::cmp::Reverse;

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
