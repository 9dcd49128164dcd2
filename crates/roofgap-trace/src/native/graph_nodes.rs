//! Joins the nodes of CUDA graphs with the ranges that were open when they were created, and follows their clones.

use super::annotations::Annotations;
use crate::{NameId, ProcessId, Trace};
use roofgap_wire::GraphNode;
use rustc_hash::FxHashMap;

/// The graph nodes of one process.
#[derive(Debug, Default)]
pub struct NodeRanges {
    /// Open ranges by their number, outermost first; nodes share them.
    stacks: Vec<Vec<usize>>,
    of_node: FxHashMap<u64, u32>,
    /// The last stack of each thread, and the number of range edges at that moment.
    last: FxHashMap<u32, (u64, u32)>,
}

impl NodeRanges {
    /// Adds a node. The events of its thread before it have been read.
    pub fn add(&mut self, node: &GraphNode, annotations: &Annotations) {
        if node.original != 0 {
            // The original of a graph that was captured before the recording is unknown, and so is its clone.
            match self.of_node.get(&node.original).copied() {
                Some(stack) => self.of_node.insert(node.node, stack),
                None => self.of_node.remove(&node.node),
            };
            return;
        }
        let edges = annotations.edges();
        let stack = match self.last.get(&node.tid) {
            Some((at, stack)) if *at == edges => *stack,
            _ => {
                self.stacks.push(annotations.open_on(node.tid));
                self.stacks.len() as u32 - 1
            }
        };
        self.last.insert(node.tid, (edges, stack));
        self.of_node.insert(node.node, stack);
    }

    /// Puts the nodes into the trace.
    pub fn settle(self, process: ProcessId, annotations: &Annotations, trace: &mut Trace) {
        let names = |stack: &Vec<usize>| -> Vec<NameId> {
            stack.iter().filter_map(|range| annotations.name_of(*range)).collect()
        };
        let stacks: Vec<Vec<NameId>> = self.stacks.iter().map(names).collect();
        for (node, stack) in self.of_node {
            if let Some(ranges) = stacks.get(stack as usize) {
                trace.graph_nodes.insert(process, node, ranges);
            }
        }
    }
}
