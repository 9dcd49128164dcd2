//! Communication kernels: their collectives, by the framework, by the range around their launch or by their names.

use super::collective::CollectiveKind;
use crate::names::{Family, family};
use crate::stages::StageIndex;
use crate::timeline::{CoveredTime, IntervalSet};
use roofgap_trace::{Collective, NameId, Ns, OpKind, Trace};
use rustc_hash::FxHashMap;

/// The collective of a row: a known one, or the name of a kernel or collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Performed {
    Known(CollectiveKind),
    Named(NameId),
}

/// The communication kernels of a trace, and the time in which its devices compute.
pub struct Kernels<'t> {
    trace: &'t Trace,
    by_name: FxHashMap<NameId, Performed>,
    /// Collective of the range around the launch of a kernel.
    by_range: FxHashMap<u32, &'t Collective>,
    compute: Vec<CoveredTime>,
}

impl<'t> Kernels<'t> {
    /// Finds the communication kernels; `None` without any.
    pub fn of(trace: &'t Trace, index: &StageIndex) -> Option<Self> {
        let ops = &trace.ops;
        let by_name = performed_by_name(trace);
        if by_name.is_empty() {
            return None;
        }
        let computes = |op: usize| match ops.kind[op] {
            OpKind::Kernel => !by_name.contains_key(&ops.name[op]),
            OpKind::Graph => true,
            OpKind::Copy | OpKind::Set => false,
        };
        let communicates = |op: usize| ops.kind[op] == OpKind::Kernel && by_name.contains_key(&ops.name[op]);
        let communication = IntervalSet::by_device(trace, communicates);
        let compute = CoveredTime::beside(trace, &communication, computes);
        let mut kernels = Self { trace, by_name, by_range: FxHashMap::default(), compute };
        kernels.by_range = kernels.in_ranges(index);
        Some(kernels)
    }

    /// Iterates over the communication kernels in the order of their start.
    pub fn ops(&self) -> impl Iterator<Item = usize> {
        let ops = &self.trace.ops;
        let communicates =
            |op: &usize| ops.kind[*op] == OpKind::Kernel && self.by_name.contains_key(&ops.name[*op]);
        (0..ops.len()).filter(communicates)
    }

    /// Finds the kernel of each range of a collective: the first that was launched in it.
    fn in_ranges(&self, index: &StageIndex) -> FxHashMap<u32, &'t Collective> {
        let ranges = &self.trace.ranges.collectives;
        let mut found = FxHashMap::default();
        if ranges.is_empty() {
            return found;
        }
        let mut taken = vec![false; ranges.len()];
        for op in self.ops() {
            let context = index.context_of_op(op);
            let at = |row: u32| ranges.binary_search_by_key(&row, |range| range.row).ok();
            // The innermost range is the last.
            let Some(at) = index.contexts().ranges(context).filter_map(at).last() else {
                continue;
            };
            if !std::mem::replace(&mut taken[at], true) {
                found.insert(op as u32, &ranges[at].collective);
            }
        }
        found
    }

    /// Returns the description of a kernel by the framework or by the range around its launch.
    pub fn described(&self, op: usize) -> Option<&'t Collective> {
        let op = op as u32;
        let own = self.trace.ops.collectives.get(&op);
        own.or_else(|| self.by_range.get(&op).copied())
    }

    /// Returns the description of a kernel by the range around its launch.
    pub fn described_by_range(&self, op: usize) -> Option<&'t Collective> {
        self.by_range.get(&(op as u32)).copied()
    }

    /// Returns the collective of a kernel, by the framework or by its name.
    pub fn performed(&self, op: usize) -> Performed {
        match self.described(op) {
            Some(collective) => CollectiveKind::of_framework(self.trace.names.get(collective.name))
                .map_or(Performed::Named(collective.name), Performed::Known),
            None => self.by_name[&self.trace.ops.name[op]],
        }
    }

    /// Returns the part of a kernel in which its device computes nothing, ns.
    pub fn exposed_ns(&self, op: usize) -> Ns {
        let ops = &self.trace.ops;
        let hidden = self.compute.get(ops.device[op].index());
        let hidden = hidden.map_or(0, |covered| covered.overlap(ops.start[op], ops.end[op]));
        ops.duration(op) - hidden
    }
}

/// Finds the names of communication kernels, and the collective that each name tells.
pub fn performed_by_name(trace: &Trace) -> FxHashMap<NameId, Performed> {
    let ops = &trace.ops;
    let mut seen = vec![false; trace.names.len()];
    let mut found = FxHashMap::default();
    for op in (0..ops.len()).filter(|&op| ops.kind[op] == OpKind::Kernel) {
        let name = ops.name[op];
        let Some(seen) = seen.get_mut(name.index()).filter(|seen| !**seen) else {
            continue;
        };
        *seen = true;
        let text = trace.names.get(name);
        if family(text) == Family::Communication {
            let kind = CollectiveKind::of_kernel(text);
            found.insert(name, kind.map_or(Performed::Named(name), Performed::Known));
        }
    }
    found
}
