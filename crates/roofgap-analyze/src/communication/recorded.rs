//! Recorded communication: kernels on the devices, and calls that run on the CPU.

use crate::names::{Family, family, kernel_names, short_name};
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
    fn new(kind: Option<CollectiveKind>, name: NameId) -> Self {
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

/// Lists the communication of a capture: kernels, then calls on the CPU, each in the order of their start.
pub fn recorded<'t>(trace: &'t Trace, index: &StageIndex) -> Vec<Communication<'t>> {
    let (ops, ranges) = (&trace.ops, &trace.ranges.collectives);
    let is_named = |name: &NameId| family(trace.names.get(*name)) == Family::Communication;
    let by_name: FxHashMap<NameId, Performed> = kernel_names(trace)
        .into_iter()
        .filter(is_named)
        .map(|name| (name, Performed::new(CollectiveKind::of_kernel(trace.names.get(name)), name)))
        .collect();
    let named = |op: usize| by_name.get(&ops.name[op]).filter(|_| ops.kind[op] == OpKind::Kernel).copied();
    let computes = |op: usize| matches!(ops.kind[op], OpKind::Kernel | OpKind::Graph) && named(op).is_none();
    let of_framework = |collective: &Collective| {
        Performed::new(CollectiveKind::of_framework(trace.names.get(collective.name)), collective.name)
    };
    let mut communications = Vec::new();
    if !by_name.is_empty() {
        let communication = IntervalSet::by_device(trace, |op| named(op).is_some());
        let compute = CoveredTime::beside(trace, &communication, computes);
        let mut taken = vec![false; ranges.len()];
        for (op, performed) in (0..ops.len()).filter_map(|op| Some((op, named(op)?))) {
            let (start, end) = (ops.start[op], ops.end[op]);
            // The first kernel that was launched in a range is that of its collective; the innermost range is the last.
            let at = |row: &u32| ranges.binary_search_by_key(row, |range| range.row).ok();
            let around = index.contexts().ranges(index.context_of_op(op)).iter().rev().find_map(at);
            let untaken = around.filter(|at| !std::mem::replace(&mut taken[*at], true));
            let ranged = untaken.map(|at| &ranges[at].collective);
            let described = ops.collectives.get(&(op as u32)).or(ranged);
            let hidden = compute.get(ops.device[op].index());
            communications.push(Communication {
                device: Some(ops.device[op]),
                performed: described.map_or(performed, of_framework),
                described,
                ranged,
                span: Some((start, end)),
                exposed_ns: end - start - hidden.map_or(0, |covered| covered.overlap(start, end)),
                stage: index.stage_of_op(op),
            });
        }
    }
    if ranges.iter().any(|range| range.on_host) {
        let spans = (0..ops.len()).filter(|op| computes(*op)).map(|op| (ops.start[op], ops.end[op]));
        let compute = CoveredTime::of(IntervalSet::of(spans.collect()));
        let on_host = ranges.iter().filter(|range| range.on_host);
        communications.extend(on_host.filter_map(|collective_range| {
            let range = trace.ranges.rows.get(collective_range.row as usize)?;
            // A range that was never closed has no end.
            let span = (collective_range.waits && !range.open).then_some((range.start, range.end));
            Some(Communication {
                device: None,
                performed: of_framework(&collective_range.collective),
                described: Some(&collective_range.collective),
                ranged: Some(&collective_range.collective),
                span,
                exposed_ns: span.map_or(0, |(start, end)| end - start - compute.overlap(start, end)),
                stage: stage_around(trace, index, range),
            })
        }));
    }
    communications
}

/// Returns the first stage with an instance around a range of the same process.
fn stage_around(trace: &Trace, index: &StageIndex, range: &Range) -> Option<usize> {
    let holds = |stage: &usize| {
        let instances = &index.spans(*stage).instances;
        let after = instances.partition_point(|span| span.start <= range.start);
        after.checked_sub(1).map(|at| instances[at]).is_some_and(|span| {
            let marked = span.range_in(trace);
            range.end <= span.end && marked.is_none_or(|marked| marked.process == range.process)
        })
    };
    (0..index.len()).find(holds)
}
/// A collective, or a transfer between two ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CollectiveKind {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast,
    Reduce,
    Gather,
    Scatter,
    Send,
    Receive,
    SendReceive,
    Barrier,
}

/// Lowercase letters and digits of names, and the collectives that they tell. The first that occurs decides.
const MARKS: [(&str, CollectiveKind); 8] = [
    ("reducescatter", CollectiveKind::ReduceScatter),
    ("allreduce", CollectiveKind::AllReduce),
    ("crossdevicereduce", CollectiveKind::AllReduce),
    ("allgather", CollectiveKind::AllGather),
    ("alltoall", CollectiveKind::AllToAll),
    ("all2all", CollectiveKind::AllToAll),
    ("sendrecv", CollectiveKind::SendReceive),
    ("broadcast", CollectiveKind::Broadcast),
];

impl CollectiveKind {
    /// Returns the collective of a framework's name, such as `_allgather_base`.
    pub fn of_framework(name: &str) -> Option<Self> {
        let name = letters(name);
        Self::marked(&name).or(match name.trim_end_matches("oop") {
            "reduce" => Some(Self::Reduce),
            "gather" => Some(Self::Gather),
            "scatter" => Some(Self::Scatter),
            "send" => Some(Self::Send),
            "recv" => Some(Self::Receive),
            "barrier" => Some(Self::Barrier),
            _ => None,
        })
    }

    /// Returns the collective that the name of a kernel tells.
    pub fn of_kernel(name: &str) -> Option<Self> {
        // Parameters and template arguments name types.
        let function = letters(&short_name(name));
        let of_nccl = ["nccldevkernel", "ncclkernel"].iter().find_map(|prefix| function.strip_prefix(prefix));
        Self::marked(&function).or(of_nccl.filter(|rest| rest.starts_with("reduce")).map(|_| Self::Reduce))
    }

    fn marked(letters: &str) -> Option<Self> {
        let mark = MARKS.iter().find(|(mark, _)| letters.contains(mark));
        mark.map(|(_, kind)| *kind)
    }

    /// Returns the name in the JSON; whether no rank ends it before every rank of the group has started it; and the ratio of bus bandwidth
    /// to message size over time as nccl-tests defines it, with whether it counts the other ranks of the group alone.
    fn row(self) -> (&'static str, bool, Option<(f64, bool)>) {
        const ALL: Option<(f64, bool)> = Some((1.0, false));
        const OTHERS: Option<(f64, bool)> = Some((1.0, true));
        match self {
            Self::AllReduce => ("all_reduce", true, Some((2.0, true))),
            Self::AllGather => ("all_gather", true, OTHERS),
            Self::ReduceScatter => ("reduce_scatter", true, OTHERS),
            Self::AllToAll => ("all_to_all", true, OTHERS),
            Self::Broadcast => ("broadcast", false, ALL),
            Self::Reduce => ("reduce", false, ALL),
            Self::Gather => ("gather", false, OTHERS),
            Self::Scatter => ("scatter", false, OTHERS),
            Self::Send => ("send", false, ALL),
            Self::Receive => ("recv", false, ALL),
            Self::SendReceive => ("send_recv", false, ALL),
            Self::Barrier => ("barrier", true, None),
        }
    }

    /// Returns the name in the JSON.
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// Tells whether no rank ends it before every rank of the group has started it.
    pub fn synchronises(self) -> bool {
        self.row().1
    }

    /// Returns the ratio of bus bandwidth to message size over time for `ranks` ranks; `None` where it has none or the number of ranks is
    /// unknown.
    pub fn bus_factor(self, ranks: u32) -> Option<f64> {
        let n = f64::from(ranks);
        let (ratio, others) = self.row().2.filter(|_| ranks > 1)?;
        Some(if others { ratio * (n - 1.0) / n } else { ratio })
    }
}

/// Keeps letters and digits, in lower case.
fn letters(name: &str) -> String {
    let kept = name.chars().filter(char::is_ascii_alphanumeric);
    kept.map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use CollectiveKind::*;

    #[test]
    fn names_of_frameworks() {
        for (name, kind) in [
            ("allreduce", AllReduce),
            ("allreduce_coalesced", AllReduce),
            ("_allgather_base", AllGather),
            ("allgather_into_tensor_coalesced", AllGather),
            ("_reduce_scatter_base", ReduceScatter),
            ("all_to_allv", AllToAll),
            ("broadcast", Broadcast),
            ("_broadcast_oop", Broadcast),
            ("_reduce_oop", Reduce),
            ("send", Send),
            ("recv", Receive),
            ("barrier", Barrier),
        ] {
            assert_eq!(CollectiveKind::of_framework(name), Some(kind), "{name}");
        }
        assert_eq!(CollectiveKind::of_framework("coalesced"), None);
    }

    #[test]
    fn names_of_kernels() {
        for (name, kind) in [
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Some(AllReduce)),
            ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", Some(SendReceive)),
            ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclWork*)", Some(Reduce)),
            ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclWork*)", Some(ReduceScatter)),
            ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", Some(AllReduce)),
            (
                "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
                Some(AllReduce),
            ),
            ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", None),
            ("void deep_ep::internode::dispatch<false, 8>(int4*)", None),
        ] {
            assert_eq!(CollectiveKind::of_kernel(name), kind, "{name}");
        }
    }

    #[test]
    fn factors_are_those_of_nccl_tests() {
        assert_eq!(AllReduce.bus_factor(8), Some(1.75));
        assert_eq!(AllGather.bus_factor(8), Some(0.875));
        assert_eq!(ReduceScatter.bus_factor(4), Some(0.75));
        assert_eq!(AllToAll.bus_factor(2), Some(0.5));
        assert_eq!(Broadcast.bus_factor(8), Some(1.0));
        assert_eq!(AllReduce.bus_factor(1), None, "a group of one moves nothing");
        assert_eq!(AllReduce.bus_factor(0), None);
    }
}
