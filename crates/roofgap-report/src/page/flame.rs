//! GPU time by the ranges and operators around its launches, as a nested list drawn like a flame graph.

use super::class;
use maud::{Markup, html};
use roofgap_analyze::{CallKind, CallNode};
use roofgap_base::numbers::{count, time};
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
    let mut hidden = 0;
    let list = nodes(tree, all, all, 0, &mut hidden);
    Some(html! {
        p.hint {
            "The width is the time of the GPU operations that were launched inside a range or operator, summed over all its \
             occurrences; the lowest boxes are families of kernels. Select a box to widen it, and again to go back."
            @if hidden > 0 { " " (count(hidden)) " boxes below " (LEAST) " % or deeper than " (DEEPEST) " levels are not drawn." }
        }
        div.scroll { div.flame { (list) } }
    })
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
                    button type="button" class={ "f-" (color(node.kind)) } title={ (name) ": " (numbers) ", " (count(node.ops)) " operations" } {
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
    let mut found = 0;
    while let Some(node) = open.pop() {
        found += 1;
        open.extend(&node.children);
    }
    found
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
        assert!(shown.contains("3 boxes below 0.25 %") && shown.contains("&lt;b&gt;"));
        assert!(flame(&[leaf(5)]).is_none());
    }
}
