//! Kernels of CUDA graphs at the edges of recorded windows.
//!
//! CUPTI gives a kernel of a graph that runs while recording ends the end time of a later launch of the same graph, and one that runs
//! while recording begins the start time of an earlier launch. Kernels launched one by one have their own times.

use crate::{LossKind, Ns, OpKind, RecordedWindows, Trace};
use rustc_hash::FxHashSet;

/// Removes operations of graphs that are not inside one window. A window whose last graph launches lost kernels ends before the first of them, so
/// that no step counts as recorded without all of its kernels. `first`: first operation and first call of the capture.
pub fn settle(first: (usize, usize), recorded: &mut RecordedWindows, trace: &mut Trace) {
    let ops = &trace.ops;
    let is_cut = |row: usize| {
        row >= first.0
            && ops.kind[row] != OpKind::Graph
            && ops.graph_node[row] != 0
            && recorded.window_of(ops.start[row], ops.end[row]).is_none()
    };
    let (cut, kept): (Vec<u32>, Vec<u32>) = (0..ops.len() as u32).partition(|&row| is_cut(row as usize));
    if cut.is_empty() {
        return;
    }
    let launches: FxHashSet<u32> = cut.iter().map(|&row| ops.correlation[row as usize]).collect();
    let calls = &trace.calls;
    let mut ends: Vec<Ns> = recorded.windows.iter().map(|window| window.1).collect();
    for row in first.1..calls.len() {
        let at = calls.start[row];
        if launches.contains(&calls.correlation[row])
            && let Some(end) = recorded.window_of(at, at).and_then(|window| ends.get_mut(window))
        {
            *end = (*end).min(at.saturating_sub(1));
        }
    }
    for (window, end) in recorded.windows.iter_mut().zip(ends) {
        window.1 = end.max(window.0);
    }
    trace.losses.add(LossKind::WindowEdge, cut.len() as u64);
    trace.ops.keep_rows(kept);
}
