//! GPU time by the ranges and operators around its launches, and idle time by the stack of the CPU, as nested lists drawn like flame
//! graphs.

use super::class;
use crate::document::explanation;
use maud::{Markup, html};
use roofgap_analyze::{CallKind, CallNode, HostStack};
use roofgap_base::numbers::{all_counted, count, time};
use roofgap_base::text::cut;
use roofgap_trace::{Ns, OpKind};

/// The least share of all GPU time that is drawn, %.
const LEAST: f64 = 0.25;
/// The most levels.
const DEEPEST: usize = 24;

/// Renders the tree; `None` without GPU work inside ranges or operators.
pub fn flame(tree: &[CallNode]) -> Option<Markup> {
    let all: Ns = tree.iter().map(|node| node.gpu_ns).sum();
    let named = |node: &CallNode| matches!(node.kind, CallKind::Range | CallKind::Operator);
    if all <= 0 || !tree.iter().any(named) {
        return None;
    }
    Some(graph(tree, explanation("flame")))
}

/// Renders the idle time of each stage by stack of its launching threads; `None` without stacks.
pub fn idle(stages: &[(&str, Vec<HostStack>)]) -> Option<Markup> {
    let of_stage = |(name, stacks): &(&str, Vec<HostStack>)| {
        let mut rows: Vec<(&[String], Ns)> =
            stacks.iter().map(|stack| (&stack.functions[..], stack.ns)).collect();
        rows.sort_unstable();
        let gpu_ns = rows.iter().map(|(_, ns)| ns).sum();
        CallNode { name: (*name).to_owned(), kind: CallKind::Range, gpu_ns, ops: 0, children: calls(&rows) }
    };
    let tree: Vec<CallNode> = stages.iter().filter(|(_, stacks)| !stacks.is_empty()).map(of_stage).collect();
    (!tree.is_empty()).then(|| graph(&tree, explanation("idle-flame")))
}

/// Makes a level of boxes of stacks in the order of their functions, the longest box first.
fn calls(rows: &[(&[String], Ns)]) -> Vec<CallNode> {
    let same = |a: &(&[String], Ns), b: &(&[String], Ns)| a.0.first() == b.0.first();
    let node = |rows: &[(&[String], Ns)]| {
        let name = rows.first()?.0.first()?.clone();
        let inner: Vec<(&[String], Ns)> =
            rows.iter().filter_map(|(functions, ns)| Some((functions.get(1..)?, *ns))).collect();
        let gpu_ns = rows.iter().map(|(_, ns)| ns).sum();
        Some(CallNode { name, kind: CallKind::Operator, gpu_ns, ops: 0, children: calls(&inner) })
    };
    let mut nodes: Vec<CallNode> = rows.chunk_by(same).filter_map(node).collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(node.gpu_ns));
    nodes
}

/// Renders a tree with a sentence about its widths.
fn graph(tree: &[CallNode], what: &str) -> Markup {
    let all: Ns = tree.iter().map(|node| node.gpu_ns).sum();
    let mut hidden = 0;
    let list = nodes(tree, all, all, 0, &mut hidden);
    html! {
        p.hint {
            (what) " Select a box to widen it, and again to go back."
            @if hidden > 0 { " Not drawn: " (all_counted([(hidden, "box", "boxes")])) " below " (LEAST) " % or deeper than " (DEEPEST) " levels." }
        }
        div.scroll { div.flame { (list) } }
    }
}

fn nodes(list: &[CallNode], parent: Ns, all: Ns, depth: usize, hidden: &mut u64) -> Markup {
    let drawn = |node: &&CallNode| 100.0 * node.gpu_ns as f64 >= LEAST * all as f64 && depth < DEEPEST;
    let (shown, left_out): (Vec<&CallNode>, Vec<&CallNode>) = list.iter().partition(drawn);
    *hidden += boxes(left_out);
    let items: Vec<Markup> = shown
        .iter()
        .map(|node| {
            let width = 100.0 * node.gpu_ns as f64 / parent.max(1) as f64;
            let share = 100.0 * node.gpu_ns as f64 / all as f64;
            let numbers = format!("{} ({share:.1} %)", time(node.gpu_ns));
            let name = cut(&node.name, 160);
            html! {
                li style=(format!("width:{width:.3}%")) {
                    button type="button" class={ "f-" (color(node.kind)) } title={ (name) ": " (numbers) @if node.ops > 0 { ", " (count(node.ops)) " operations" } } {
                        (name) " " small { (numbers) }
                    }
                    @if !node.children.is_empty() { (nodes(&node.children, node.gpu_ns, all, depth + 1, hidden)) }
                }
            }
        })
        .collect();
    html! { @if !items.is_empty() { ul { @for item in items { (item) } } } }
}

/// Counts nodes and all that is below them.
fn boxes(mut open: Vec<&CallNode>) -> u64 {
    let mut count = 0;
    while let Some(node) = open.pop() {
        count += 1;
        open.extend(&node.children);
    }
    count
}

fn color(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Range => "range",
        CallKind::Operator => "operator",
        CallKind::Kernels(family) => class::css(family.as_str()),
        CallKind::Other(OpKind::Set) => "memset",
        CallKind::Other(OpKind::Graph) => "graph",
        CallKind::Other(_) => "memcpy",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, kind: CallKind, gpu_ns: Ns, children: Vec<CallNode>) -> CallNode {
        CallNode { name: name.into(), kind, gpu_ns, ops: 1, children }
    }

    #[test]
    fn widths_are_shares_of_the_parent_and_small_boxes_are_counted() {
        let leaf = |ns| node("gemm", CallKind::Kernels(roofgap_analyze::family("gemm")), ns, Vec::new());
        let small = node("small", CallKind::Operator, 2, vec![leaf(1), leaf(1)]);
        let step = node("step", CallKind::Range, 600, vec![leaf(150), small]);
        let tree = [step, node("<b>", CallKind::Other(OpKind::Copy), 400, Vec::new())];
        let shown = flame(&tree).unwrap().into_string();
        assert!(shown.contains("width:60.000%") && shown.contains("width:25.000%"), "{shown}");
        assert!(shown.contains("Not drawn: 3 boxes below 0.25 %") && shown.contains("&lt;b&gt;"));
        assert!(flame(&[leaf(5)]).is_none());
    }

    #[test]
    fn idle_time_is_drawn_by_stage_and_function() {
        let stack = |functions: &[&str], ns| HostStack {
            functions: functions.iter().map(|name| (*name).to_owned()).collect(),
            ns,
        };
        let decode = vec![stack(&["run", "item"], 60), stack(&["load"], 20), stack(&["run", "log"], 20)];
        let shown = idle(&[("prefill", Vec::new()), ("decode", decode)]).unwrap().into_string();
        let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("{text}: {shown}"));
        assert!(
            at("decode") < at("run")
                && at("run") < at("item")
                && at("item") < at("log")
                && at("log") < at("load")
        );
        assert!(
            shown.contains("width:80.000%") && shown.contains("width:75.000%") && !shown.contains("prefill")
        );
        assert!(idle(&[("decode", Vec::new())]).is_none());
    }
}
