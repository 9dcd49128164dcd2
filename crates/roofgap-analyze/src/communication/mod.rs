//! Communication with other GPUs: time by collective and group, the part that no computation hides, and bus bandwidth.

mod recorded;

use crate::gpu::{CopyLinks, UserLimits};
use crate::names::{is_expert, kernel_names, short_name};
use crate::result::CommunicationRow;
use crate::timeline::{Grouped, device_number};
use recorded::{CollectiveKind, Performed};
pub use recorded::{Communication, recorded};
use roofgap_base::stats::median;
use roofgap_trace::{DeviceId, NameId, Ns, OpKind, Trace};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// A collective that no rank ends before every rank has started it, as one rank ran it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankCollective {
    /// Process group; `None` where unknown.
    pub group: Option<NameId>,
    /// Number of ranks in the group; 0 where unknown.
    pub group_size: u32,
    /// Collective, as in the JSON.
    pub collective: &'static str,
    /// Number within the group, where the capture has it.
    pub sequence: Option<u64>,
    /// First moment on the device, in the clock of the rank.
    pub start: Ns,
    /// Last moment on the device, in the clock of the rank.
    pub end: Ns,
    /// Part in which the device computes nothing, ns.
    pub exposed_ns: Ns,
    /// Message size, bytes.
    pub bytes: Option<u64>,
    /// Position of its stage.
    pub stage: Option<usize>,
    /// Time of the kernels of experts since the collective before it, ns.
    pub experts_ns: Ns,
}

/// Lists the collectives whose ranks wait for one another, in the order of their start.
pub fn collectives(trace: &Trace, recorded: &[Communication<'_>]) -> Vec<RankCollective> {
    let collective = recorded.iter().filter_map(|communication| {
        let kind = communication.kind().filter(|kind| kind.synchronises())?;
        let (start, end) = communication.span?;
        Some(RankCollective {
            group: communication.described.map(|collective| collective.group),
            group_size: communication.described.map_or(0, |collective| collective.group_size),
            collective: kind.as_str(),
            sequence: communication.described.and_then(|collective| collective.sequence),
            start,
            end,
            exposed_ns: communication.exposed_ns,
            bytes: communication.bytes(),
            stage: communication.stage,
            experts_ns: 0,
        })
    });
    let mut collectives: Vec<RankCollective> = collective.collect();
    collectives.sort_by_key(|collective| collective.start);
    add_expert_times(trace, &mut collectives);
    collectives
}
/// Returns the exposed time in which the GPUs of a capture wait for one another in the collectives of each stage, ns. It is known where
/// all GPUs of a group are in the capture and ran the same number of its collectives: a GPU waits until the last one has arrived.
pub fn waiting(recorded: &[Communication<'_>], stages: usize) -> Vec<Option<Ns>> {
    type Arrival = (Ns, Ns, Option<usize>);
    type Key = (Performed, Option<(NameId, u32)>);
    let mut groups: FxHashMap<Key, BTreeMap<DeviceId, Vec<Arrival>>> = FxHashMap::default();
    for communication in recorded {
        if let (Some(device), Some((start, _)), Some(true)) =
            (communication.device, communication.span, communication.kind().map(|kind| kind.synchronises()))
        {
            let group = communication.described.map(|collective| (collective.group, collective.group_size));
            let devices = groups.entry((communication.performed, group)).or_default();
            devices.entry(device).or_default().push((start, communication.exposed_ns, communication.stage));
        }
    }
    let mut waits = vec![None; stages];
    let mut unknown = vec![false; stages];
    for ((_, group), devices) in &groups {
        let calls = devices.values().next().map_or(0, Vec::len);
        let size = group.map_or(0, |(_, size)| size as usize);
        let all = devices.len() >= 2
            && (size == 0 || size == devices.len())
            && devices.values().all(|arrivals_on| arrivals_on.len() == calls);
        for at in 0..calls {
            let arrivals = || devices.values().filter_map(|arrivals_on| arrivals_on.get(at));
            let last = arrivals().map(|(start, ..)| *start).max().unwrap_or(0);
            for (start, exposed, stage) in arrivals() {
                let slots = stage.and_then(|stage| Some((waits.get_mut(stage)?, unknown.get_mut(stage)?)));
                if let Some((sum, unknown)) = slots {
                    *sum.get_or_insert(0) += (last - start).min(*exposed);
                    *unknown |= !all;
                }
            }
        }
    }
    waits.into_iter().zip(unknown).map(|(sum, unknown)| sum.filter(|_| !unknown)).collect()
}

/// First collectives of a kind, which wait for ranks that arrive later.
const FIRST_CALLS: usize = 2;

/// Such a collective takes so many times as long as others of its kind and size, and this time at least, ns.
const LATE: Ns = 5;
const LEAST_LATE_NS: Ns = 1_000_000;

/// Fewest collectives of a kind and size that show how long one takes.
const LEAST_ALIKE: usize = 4;

/// Returns the number of collectives of each stage that are the first of their kind and size and took far longer than the others, and
/// their exposed time beyond that of the others, ns: they waited for ranks that arrived later, such as those that began to record later.
pub fn late(recorded: &[Communication<'_>], stages: usize) -> Vec<(u64, Ns)> {
    type Key = (DeviceId, Performed, Option<NameId>, Option<u64>);
    let mut alike: FxHashMap<Key, Vec<(Ns, Ns, Option<usize>)>> = FxHashMap::default();
    for communication in recorded {
        if let (Some(device), Some((start, end))) = (communication.device, communication.span) {
            let group = communication.described.map(|collective| collective.group);
            let calls =
                alike.entry((device, communication.performed, group, communication.bytes())).or_default();
            calls.push((end - start, communication.exposed_ns, communication.stage));
        }
    }
    let mut late = vec![(0, 0); stages];
    for calls in alike.values().filter(|calls| calls.len() >= LEAST_ALIKE) {
        let mut times: Vec<Ns> = calls.iter().map(|(ns, ..)| *ns).collect();
        let usual = median(&mut times).unwrap_or_default();
        for (ns, exposed, stage) in calls.iter().take(FIRST_CALLS) {
            let is_late = *ns > LATE.saturating_mul(usual) && *ns > LEAST_LATE_NS;
            if let Some((count, sum)) = stage.filter(|_| is_late).and_then(|stage| late.get_mut(stage)) {
                *count += 1;
                *sum += (ns - usual).min(*exposed);
            }
        }
    }
    late
}

/// Marks the names of kernels that compute experts; `None` without any.
pub fn expert_names(trace: &Trace) -> Option<FxHashSet<NameId>> {
    let experts = kernel_names(trace).into_iter().filter(|name| is_expert(trace.names.get(*name)));
    Some(experts.collect()).filter(|experts: &FxHashSet<NameId>| !experts.is_empty())
}

/// Sums the time of expert kernels from the start of each collective to that of the next, for the later of the two. Operations and
/// collectives are in the order of their start.
fn add_expert_times(trace: &Trace, collectives: &mut [RankCollective]) {
    let Some(experts) = expert_names(trace) else {
        return;
    };
    let ops = &trace.ops;
    let mut all = (0..ops.len()).peekable();
    for collective in collectives {
        while let Some(op) = all.next_if(|op| ops.start[*op] < collective.start) {
            if ops.kind[op] == OpKind::Kernel && experts.contains(&ops.name[op]) {
                collective.experts_ns += ops.duration(op);
            }
        }
    }
}

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
pub fn transfers(recorded: &[Communication<'_>]) -> Vec<RankTransfer> {
    let transfer = recorded.iter().filter_map(|communication| {
        let sends = match communication.kind()? {
            CollectiveKind::Send => true,
            CollectiveKind::Receive => false,
            _ => return None,
        };
        let (start, end) = communication.span?;
        let described = communication.described?;
        Some(RankTransfer {
            peer: described.peer?,
            sends,
            group: described.group,
            sequence: communication.ranged.and_then(|range| range.sequence),
            start,
            end,
            exposed_ns: communication.exposed_ns,
            bytes: described.message_bytes(),
        })
    });
    let mut transfers: Vec<RankTransfer> = transfer.collect();
    transfers.sort_by_key(|transfer| transfer.start);
    transfers
}

/// Builds the table of communication, most time first: a row for each device (or the CPU), collective and group.
pub fn table(trace: &Trace, recorded: &[Communication<'_>], limits: UserLimits) -> Vec<CommunicationRow> {
    // Sums of each row, with its first communication, and the size and time of the messages whose time is known.
    let mut sums: Grouped<_, (CommunicationRow, &Communication<'_>, (u64, Ns))> = Grouped::default();
    for communication in recorded {
        let group =
            communication.described.map(|communication| (communication.group, communication.group_size));
        let new = || (CommunicationRow::default(), communication, (0, 0));
        let (row, _, sized) = sums.entry((communication.device, communication.performed, group), new);
        let length = communication.span.map(|(start, end)| end - start);
        row.calls += 1;
        row.untimed_calls += u64::from(length.is_none());
        row.total_ns += length.unwrap_or(0);
        row.exposed_ns += communication.exposed_ns;
        if let Some(bytes) = communication.bytes() {
            row.bytes = Some(row.bytes.unwrap_or(0).saturating_add(bytes));
            *sized = length.map_or(*sized, |ns| (sized.0.saturating_add(bytes), sized.1 + ns));
        }
    }
    let rank = trace.distributed.as_ref().and_then(|job| job.rank);
    let links = trace.devices.iter().filter(|_| !recorded.is_empty());
    let links: Vec<CopyLinks> = links.map(|device| CopyLinks::on_device(device, limits)).collect();
    let finish = |(row, first, (bytes, ns)): (CommunicationRow, &Communication<'_>, (u64, Ns))| {
        let size = first.described.map(|first| first.group_size).filter(|size| *size > 0);
        let factor = first.kind().and_then(|kind| kind.bus_factor(size?));
        let algorithm = (bytes > 0 && ns > 0).then(|| bytes as f64 * 1e9 / ns as f64);
        let bus = factor.zip(algorithm).map(|(factor, algorithm)| factor * algorithm);
        let link = first.device.and_then(|device| links.get(device.index())?.peer.as_ref());
        let group = first.described.map(|first| trace.names.get(first.group).to_owned());
        CommunicationRow {
            rank,
            device: first.device.and_then(|device| device_number(trace, device)),
            on: if first.device.is_some() { "gpu" } else { "cpu" }.to_owned(),
            collective: match first.performed {
                Performed::Known(kind) => kind.as_str().to_owned(),
                Performed::Named(name) if first.described.is_some() => trace.names.get(name).to_owned(),
                Performed::Named(name) => short_name(trace.names.get(name)),
            },
            group: group.filter(|name| !name.is_empty()),
            group_size: size,
            bytes: row.bytes.filter(|bytes| *bytes > 0),
            bus_bandwidth_bytes_per_s: bus,
            algorithm_bandwidth_bytes_per_s: algorithm,
            peak_pct: bus.zip(link).map(|(bus, link)| 100.0 * bus / link.bytes_per_s),
            peak_bytes_per_s: link.map(|link| link.bytes_per_s),
            link: link.map(|link| link.name.clone()),
            ..row
        }
    };
    let mut rows: Vec<CommunicationRow> = sums.items.into_iter().map(finish).collect();
    rows.sort_by(|a, b| {
        let (order, other) = ((b.total_ns, a.device, &a.collective), (a.total_ns, b.device, &b.collective));
        order.cmp(&other).then_with(|| a.group.cmp(&b.group))
    });
    rows
}
