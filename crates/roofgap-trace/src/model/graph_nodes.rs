//! Ranges that were open when the nodes of CUDA graphs were created.

use super::{NameId, ProcessId};
use rustc_hash::FxHashMap;

/// The nodes of CUDA graphs, each with the names of the ranges around its creation.
#[derive(Debug, Clone, Default)]
pub struct GraphNodes {
    stacks: Vec<Vec<NameId>>,
    ids: FxHashMap<Vec<NameId>, u32>,
    of_node: FxHashMap<(ProcessId, u64), u32>,
}

impl GraphNodes {
    /// Most ranges around a node. Ranges inside that many are left out, so that ranges that stay open do not make the cost quadratic.
    pub(crate) const DEEPEST: usize = 128;

    /// Adds a node with the names of the ranges around its creation, outermost first.
    pub fn insert(&mut self, process: ProcessId, node: u64, ranges: &[NameId]) {
        let id = match self.ids.get(ranges) {
            Some(id) => *id,
            None => {
                let id = self.stacks.len() as u32;
                self.stacks.push(ranges.to_vec());
                self.ids.insert(ranges.to_vec(), id);
                id
            }
        };
        self.of_node.insert((process, node), id);
    }

    /// Returns the number of the stack of ranges around the creation of a node; `None` for a node whose creation was not recorded.
    pub fn stack_of(&self, process: ProcessId, node: u64) -> Option<usize> {
        self.of_node.get(&(process, node)).map(|id| *id as usize)
    }

    /// Returns the distinct stacks of range names, each outermost first.
    pub fn stacks(&self) -> &[Vec<NameId>] {
        &self.stacks
    }

    /// Returns true if no creation of a node was recorded.
    pub fn is_empty(&self) -> bool {
        self.of_node.is_empty()
    }
}
