//! Collectives that run on the CPU, without a kernel: the ranges of their calls.

use super::collective::CollectiveKind;
use super::kernels::performed_by_name;
use crate::stages::StageIndex;
use crate::timeline::{CoveredTime, IntervalSet};
use roofgap_trace::{Collective, Ns, OpKind, Range, RangeCollective, Trace};

/// The collectives of a trace that run on the CPU, and the time in which its devices compute.
pub struct HostCollectives<'t> {
    trace: &'t Trace,
    compute: CoveredTime,
}

/// One collective on the CPU.
pub struct HostCollective<'t> {
    pub collective: &'t Collective,
    pub kind: Option<CollectiveKind>,
    /// Time of the call in which it ran; `None` where the call returns before its end.
    pub span: Option<(Ns, Ns)>,
    /// Part of the span in which no device computes, ns.
    pub exposed_ns: Ns,
    /// Range of the call.
    pub range: &'t Range,
}

impl<'t> HostCollectives<'t> {
    /// Finds the collectives; `None` without any.
    pub fn of(trace: &'t Trace) -> Option<Self> {
        trace.ranges.collectives.iter().find(|collective| collective.on_host)?;
        let ops = &trace.ops;
        let communicate = performed_by_name(trace);
        let computes = |op: &usize| match ops.kind[*op] {
            OpKind::Kernel => !communicate.contains_key(&ops.name[*op]),
            OpKind::Graph => true,
            OpKind::Copy | OpKind::Set => false,
        };
        let spans = (0..ops.len()).filter(computes);
        let spans = spans.map(|op| (ops.start[op], ops.end[op])).collect();
        Some(Self { trace, compute: CoveredTime::of(IntervalSet::of(spans)) })
    }

    /// Iterates over the collectives in the order of their start.
    pub fn iter(&self) -> impl Iterator<Item = HostCollective<'t>> {
        let trace = self.trace;
        let on_host = trace.ranges.collectives.iter().filter(|found| found.on_host);
        on_host.filter_map(|found: &RangeCollective| {
            let range = trace.ranges.rows.get(found.row as usize)?;
            // A range that was never closed has no end.
            let span = (found.waits && !range.open).then_some((range.start, range.end));
            Some(HostCollective {
                collective: &found.collective,
                kind: CollectiveKind::of_framework(trace.names.get(found.collective.name)),
                span,
                exposed_ns: span.map_or(0, |(start, end)| end - start - self.compute.overlap(start, end)),
                range,
            })
        })
    }
}

/// Returns the first stage with an instance around a range of the same process.
pub fn stage_of(range: &Range, trace: &Trace, index: &StageIndex) -> Option<usize> {
    let holds = |stage: &usize| {
        let instances = &index.spans(*stage).instances;
        let after = instances.partition_point(|span| span.start <= range.start);
        let last = after.checked_sub(1).map(|at| instances[at]);
        last.is_some_and(|span| {
            let marked = span.range.and_then(|row| trace.ranges.rows.get(row as usize));
            range.end <= span.end && marked.is_none_or(|marked| marked.process == range.process)
        })
    };
    (0..index.len()).find(holds)
}
