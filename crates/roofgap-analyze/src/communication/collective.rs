//! Collectives: their names in frameworks and kernels, and the bus factors of nccl-tests.

use crate::names::short_name;

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
