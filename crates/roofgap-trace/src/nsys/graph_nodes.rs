//! Nodes of CUDA graphs as they were created and cloned, with the ranges around their creation.

use super::identity::Identity;
use crate::sqlite::{Tables, ints};
use crate::{GraphNodes, NameId, Ns, ProcessId, Range, RangeStyle, ReadError, ThreadId, Trace};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// A node that was created, or cloned from `original`.
struct Node {
    thread: ThreadId,
    start: Ns,
    process: ProcessId,
    id: u64,
    original: Option<u64>,
}

/// Reads the nodes. The ranges of the export have been read.
pub fn graph_nodes(db: &impl Tables, who: &mut Identity, trace: &mut Trace) -> Result<(), ReadError> {
    let columns = ["start", "globalTid", "graphNodeId", "originalGraphNodeId"];
    let mut nodes: Vec<Node> = Vec::new();
    // Versions up to 2023 have the first name.
    for table in ["CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS"] {
        db.each(table, &columns, |row| {
            let Some([start, thread, id]) = ints(row) else { return };
            nodes.push(Node {
                thread: who.thread(thread as u64, trace),
                start,
                process: who.process(thread as u64, trace),
                id: id as u64,
                original: row[3].int().filter(|id| *id != 0).map(|id| id as u64),
            });
        })?;
    }
    if nodes.is_empty() {
        return Ok(());
    }
    nodes.sort_by_key(|node| (node.thread, node.start));
    let is_nested = |range: &&Range| range.style == RangeStyle::PushPop;
    let mut ranges: Vec<&Range> = trace.ranges.rows.iter().filter(is_nested).collect();
    ranges.sort_by_key(|range| (range.thread, range.start, Reverse(range.end)));
    // Nodes between two edges of ranges share a stack.
    let mut stacks: Vec<Vec<NameId>> = Vec::new();
    let mut stack_of: FxHashMap<(ProcessId, u64), usize> = FxHashMap::default();
    let mut next = ranges.into_iter().peekable();
    let mut open = OpenRanges::default();
    for node in nodes.iter().filter(|node| node.original.is_none()) {
        while let Some(range) = next.next_if(|range| (range.thread, range.start) <= (node.thread, node.start))
        {
            open.push(range);
        }
        open.close(node.thread, node.start);
        if std::mem::take(&mut open.changed) || stacks.is_empty() {
            stacks.push(open.ranges.iter().map(|range| range.name).collect());
        }
        stack_of.insert((node.process, node.id), stacks.len() - 1);
    }
    let originals: FxHashMap<(ProcessId, u64), u64> =
        nodes.iter().filter_map(|node| Some(((node.process, node.id), node.original?))).collect();
    for node in &nodes {
        let stack = stack_of.get(&root(&originals, node.process, node.id));
        if let Some(names) = stack.and_then(|stack| stacks.get(*stack)) {
            trace.graph_nodes.insert(node.process, node.id, names);
        }
    }
    Ok(())
}

/// The open ranges of a thread, outermost first.
#[derive(Default)]
struct OpenRanges<'t> {
    ranges: Vec<&'t Range>,
    /// A range was added or dropped.
    changed: bool,
}

impl<'t> OpenRanges<'t> {
    /// Adds a range unless it is too deep.
    fn push(&mut self, range: &'t Range) {
        self.close(range.thread, range.start);
        if self.ranges.len() < GraphNodes::DEEPEST {
            self.ranges.push(range);
            self.changed = true;
        }
    }

    /// Drops the ranges of other threads and those that ended before a moment.
    fn close(&mut self, thread: ThreadId, at: Ns) {
        let before = self.ranges.len();
        self.ranges.retain(|range| range.thread == thread && range.end >= at);
        self.changed |= self.ranges.len() < before;
    }
}

/// Longest chain of clones that is followed. A broken export may have a circle.
const MOST_CLONES: usize = 16;

/// Returns the node that a node was cloned from, in the end.
fn root(originals: &FxHashMap<(ProcessId, u64), u64>, process: ProcessId, node: u64) -> (ProcessId, u64) {
    let mut at = (process, node);
    for _ in 0..MOST_CLONES {
        match originals.get(&at) {
            Some(original) => at = (process, *original),
            None => break,
        }
    }
    at
}
