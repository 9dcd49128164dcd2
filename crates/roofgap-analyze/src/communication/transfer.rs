//! Transfers between two ranks, as one of them ran them.

use super::collective::CollectiveKind;
use super::host::HostCollectives;
use super::kernels::{Kernels, Performed};
use crate::stages::StageIndex;
use roofgap_trace::{Collective, NameId, Ns, Trace};

/// A send or receive with a known other rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankTransfer {
    /// The other rank.
    pub peer: u32,
    /// True for a send.
    pub sends: bool,
    /// Process group.
    pub group: NameId,
    /// Number among the transfers from one of the two ranks to the other in the group, where the capture has it. Ranges of this project
    /// count like that; PyTorch counts all transfers of a rank, so that its numbers differ between the two ranks.
    pub sequence: Option<u64>,
    /// First moment, in the clock of the rank.
    pub start: Ns,
    /// Last moment, in the clock of the rank.
    pub end: Ns,
    /// Part in which the device computes nothing, ns.
    pub exposed_ns: Ns,
    /// Message size, bytes.
    pub bytes: Option<u64>,
}

/// Lists the transfers of a rank whose other rank and whose time are known, in the order of their start.
pub fn transfers(trace: &Trace, index: &StageIndex) -> Vec<RankTransfer> {
    let in_ranges = trace.ranges.collectives.iter().map(|range| &range.collective);
    let mut described = trace.ops.collectives.values().chain(in_ranges);
    // Most jobs have none.
    if described.all(|collective| collective.peer.is_none()) {
        return Vec::new();
    }
    let transfer = |kind: CollectiveKind, collective: &Collective, (start, end): (Ns, Ns), exposed_ns: Ns| {
        let sends = match kind {
            CollectiveKind::Send => true,
            CollectiveKind::Receive => false,
            _ => return None,
        };
        Some(RankTransfer {
            peer: collective.peer?,
            sends,
            group: collective.group,
            sequence: collective.sequence,
            start,
            end,
            exposed_ns,
            bytes: collective.message_bytes(),
        })
    };
    let mut found: Vec<RankTransfer> = Vec::new();
    if let Some(kernels) = Kernels::of(trace, index) {
        found.extend(kernels.ops().filter_map(|op| {
            let Performed::Known(kind) = kernels.performed(op) else {
                return None;
            };
            let span = (trace.ops.start[op], trace.ops.end[op]);
            let transfer = transfer(kind, kernels.described(op)?, span, kernels.exposed_ns(op))?;
            Some(RankTransfer {
                sequence: kernels.described_by_range(op).and_then(|range| range.sequence),
                ..transfer
            })
        }));
    }
    if let Some(on_host) = HostCollectives::of(trace) {
        let own = on_host.iter();
        found.extend(
            own.filter_map(|host| transfer(host.kind?, host.collective, host.span?, host.exposed_ns)),
        );
        found.sort_by_key(|transfer| transfer.start);
    }
    found
}
