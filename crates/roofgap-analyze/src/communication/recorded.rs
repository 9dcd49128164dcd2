//! Recorded communication: kernels on the devices, and calls that run on the CPU.

use super::collective::CollectiveKind;
use crate::names::{Family, family};
use crate::stages::StageIndex;
use crate::timeline::{CoveredTime, IntervalSet};
use roofgap_trace::{Collective, DeviceId, NameId, Ns, OpKind, Range, Trace};
use rustc_hash::FxHashMap;

/// The collective of a row: a known one, or the name of a kernel or collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Performed {
    Known(CollectiveKind),
    Named(NameId),
}

impl Performed {
    fn of(kind: Option<CollectiveKind>, name: NameId) -> Self {
        kind.map_or(Self::Named(name), Self::Known)
    }
}

/// One communication of a capture.
pub struct Communication<'t> {
    /// Device; `None` on the CPU.
    pub device: Option<DeviceId>,
    pub performed: Performed,
    /// Description by the framework or by the range around the call.
    pub described: Option<&'t Collective>,
    /// Description by the range around the call.
    pub ranged: Option<&'t Collective>,
    /// Time in which it ran; `None` for a call that returns before its end.
    pub span: Option<(Ns, Ns)>,
    /// Part of the span in which the device, or any device for a call on the CPU, computes nothing, ns.
    pub exposed_ns: Ns,
    /// Position of its stage.
    pub stage: Option<usize>,
}

impl Communication<'_> {
    /// Returns the kind; `None` for one that is not known.
    pub fn kind(&self) -> Option<CollectiveKind> {
        match self.performed {
            Performed::Known(kind) => Some(kind),
            Performed::Named(_) => None,
        }
    }

    /// Returns the message size, bytes.
    pub fn bytes(&self) -> Option<u64> {
        self.described.and_then(Collective::message_bytes)
    }
}

/// All communication of a capture, and the time in which its devices compute.
pub struct Recorded<'t> {
    trace: &'t Trace,
    index: &'t StageIndex,
    /// Names of communication kernels, and the collective that each name tells.
    by_name: FxHashMap<NameId, Performed>,
    /// Collective of the range around the launch of a kernel.
    by_range: FxHashMap<u32, &'t Collective>,
    /// Computation beside communication, by device.
    compute: Vec<CoveredTime>,
    /// Computation on any device; empty without communication on the CPU.
    any_compute: CoveredTime,
}

impl<'t> Recorded<'t> {
    /// Finds the communication of a capture.
    pub fn of(trace: &'t Trace, index: &'t StageIndex) -> Self {
        let ops = &trace.ops;
        let by_name: FxHashMap<NameId, Performed> = kernel_names(trace)
            .into_iter()
            .filter(|name| family(trace.names.get(*name)) == Family::Communication)
            .map(|name| (name, Performed::of(CollectiveKind::of_kernel(trace.names.get(name)), name)))
            .collect();
        let mut found = Self {
            trace,
            index,
            by_name,
            by_range: FxHashMap::default(),
            compute: Vec::new(),
            any_compute: CoveredTime::default(),
        };
        let computes = |op: usize| match ops.kind[op] {
            OpKind::Kernel => !found.by_name.contains_key(&ops.name[op]),
            OpKind::Graph => true,
            OpKind::Copy | OpKind::Set => false,
        };
        if !found.by_name.is_empty() {
            let communication = IntervalSet::by_device(trace, |op| found.is_communication(op));
            found.compute = CoveredTime::beside(trace, &communication, computes);
            found.by_range = found.in_ranges();
        }
        if trace.ranges.collectives.iter().any(|collective| collective.on_host) {
            let spans = (0..ops.len()).filter(|op| computes(*op)).map(|op| (ops.start[op], ops.end[op]));
            found.any_compute = CoveredTime::of(IntervalSet::of(spans.collect()));
        }
        found
    }

    fn is_communication(&self, op: usize) -> bool {
        self.trace.ops.kind[op] == OpKind::Kernel && self.by_name.contains_key(&self.trace.ops.name[op])
    }

    /// Iterates over the communication kernels in the order of their start.
    fn kernels(&self) -> impl Iterator<Item = usize> {
        let none = self.by_name.is_empty();
        (0..if none { 0 } else { self.trace.ops.len() }).filter(|&op| self.is_communication(op))
    }

    /// Finds the kernel of each range of a collective: the first that was launched in it.
    fn in_ranges(&self) -> FxHashMap<u32, &'t Collective> {
        let ranges = &self.trace.ranges.collectives;
        let mut found = FxHashMap::default();
        let mut taken = vec![false; ranges.len()];
        for op in self.kernels().filter(|_| !ranges.is_empty()) {
            let at = |row: u32| ranges.binary_search_by_key(&row, |range| range.row).ok();
            // The innermost range is the last.
            let context = self.index.context_of_op(op);
            let Some(at) = self.index.contexts().ranges(context).filter_map(at).last() else {
                continue;
            };
            if !std::mem::replace(&mut taken[at], true) {
                found.insert(op as u32, &ranges[at].collective);
            }
        }
        found
    }

    /// Iterates over kernels, then over calls on the CPU, each in the order of their start.
    pub fn iter(&self) -> impl Iterator<Item = Communication<'t>> {
        let on_host = self.trace.ranges.collectives.iter().filter(|found| found.on_host);
        let on_host = on_host.filter_map(|found| {
            let range = self.trace.ranges.rows.get(found.row as usize)?;
            // A range that was never closed has no end.
            let span = (found.waits && !range.open).then_some((range.start, range.end));
            Some(self.on_host(&found.collective, range, span))
        });
        self.kernels().map(|op| self.kernel(op)).chain(on_host)
    }

    fn kernel(&self, op: usize) -> Communication<'t> {
        let (trace, ops) = (self.trace, &self.trace.ops);
        let (start, end) = (ops.start[op], ops.end[op]);
        let ranged = self.by_range.get(&(op as u32)).copied();
        let described = ops.collectives.get(&(op as u32)).or(ranged);
        let hidden = self.compute.get(ops.device[op].index());
        Communication {
            device: Some(ops.device[op]),
            performed: match described {
                Some(own) => Performed::of(CollectiveKind::of_framework(trace.names.get(own.name)), own.name),
                None => self.by_name[&ops.name[op]],
            },
            described,
            ranged,
            span: Some((start, end)),
            exposed_ns: end - start - hidden.map_or(0, |covered| covered.overlap(start, end)),
            stage: self.index.stage_of_op(op),
        }
    }

    fn on_host(
        &self,
        collective: &'t Collective,
        range: &Range,
        span: Option<(Ns, Ns)>,
    ) -> Communication<'t> {
        let kind = CollectiveKind::of_framework(self.trace.names.get(collective.name));
        let exposed = |(start, end): (Ns, Ns)| end - start - self.any_compute.overlap(start, end);
        Communication {
            device: None,
            performed: Performed::of(kind, collective.name),
            described: Some(collective),
            ranged: Some(collective),
            span,
            exposed_ns: span.map_or(0, exposed),
            stage: self.stage_around(range),
        }
    }

    /// Returns the first stage with an instance around a range of the same process.
    fn stage_around(&self, range: &Range) -> Option<usize> {
        let holds = |stage: &usize| {
            let instances = &self.index.spans(*stage).instances;
            let after = instances.partition_point(|span| span.start <= range.start);
            after.checked_sub(1).map(|at| instances[at]).is_some_and(|span| {
                let marked = span.range_in(self.trace);
                range.end <= span.end && marked.is_none_or(|marked| marked.process == range.process)
            })
        };
        (0..self.index.len()).find(holds)
    }
}

/// Returns the names of all kernels.
pub fn kernel_names(trace: &Trace) -> Vec<NameId> {
    let mut seen = vec![false; trace.names.len()];
    let mut names = Vec::new();
    for (_, name) in trace.ops.kind.iter().zip(&trace.ops.name).filter(|(kind, _)| **kind == OpKind::Kernel) {
        if let Some(seen) = seen.get_mut(name.index()).filter(|seen| !**seen) {
            *seen = true;
            names.push(*name);
        }
    }
    names
}
