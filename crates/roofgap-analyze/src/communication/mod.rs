//! Communication with other GPUs: time by collective and group, the part that no computation hides, and bus bandwidth.

mod collective;
mod experts;
mod host;
mod kernels;
mod transfer;

pub use experts::expert_names;
pub use transfer::{RankTransfer, transfers};

use crate::gpu::{CopyLinks, UserLimits};
use crate::names::short_name;
use crate::result::CommunicationRow;
use crate::stages::StageIndex;
use crate::timeline::device_number;
use host::{HostCollectives, stage_of};
use kernels::{Kernels, Performed};
use roofgap_trace::{Collective, DeviceId, NameId, Ns, Trace};
use rustc_hash::FxHashMap;

/// Sums of one row.
#[derive(Default)]
struct Sum {
    calls: u64,
    untimed_calls: u64,
    total_ns: i64,
    exposed_ns: i64,
    /// Size of the messages, bytes.
    bytes: u64,
    /// Size of the messages whose time is known, bytes, and that time, ns.
    timed: (u64, i64),
}

impl Sum {
    /// Adds a collective with its message size and its time, where they are known.
    fn add(&mut self, bytes: Option<u64>, length: Option<Ns>, exposed_ns: Ns) {
        self.calls += 1;
        self.untimed_calls += u64::from(length.is_none());
        self.total_ns += length.unwrap_or(0);
        self.exposed_ns += exposed_ns;
        self.bytes = self.bytes.saturating_add(bytes.unwrap_or(0));
        if let Some((bytes, ns)) = bytes.zip(length) {
            self.timed = (self.timed.0.saturating_add(bytes), self.timed.1 + ns);
        }
    }
}

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
pub fn collectives(trace: &Trace, index: &StageIndex) -> Vec<RankCollective> {
    let mut found = on_devices(trace, index);
    let on_devices = found.len();
    let on_host = HostCollectives::of(trace);
    found.extend(on_host.iter().flat_map(HostCollectives::iter).filter_map(|host| {
        let kind = host.kind.filter(|kind| kind.synchronises())?;
        let (start, end) = host.span?;
        Some(RankCollective {
            group: Some(host.collective.group),
            group_size: host.collective.group_size,
            collective: kind.as_str(),
            sequence: host.collective.sequence,
            start,
            end,
            exposed_ns: host.exposed_ns,
            bytes: host.collective.message_bytes(),
            stage: stage_of(host.range, trace, index),
            experts_ns: 0,
        })
    }));
    if on_devices > 0 && on_devices < found.len() {
        found.sort_by_key(|collective| collective.start);
    }
    let experts = experts::times_before(trace, found.iter().map(|collective| collective.start));
    for (collective, experts_ns) in found.iter_mut().zip(experts) {
        collective.experts_ns = experts_ns;
    }
    found
}

/// Lists those that run as kernels.
fn on_devices(trace: &Trace, index: &StageIndex) -> Vec<RankCollective> {
    let Some(kernels) = Kernels::of(trace, index) else {
        return Vec::new();
    };
    let collective = |op: usize| {
        let Performed::Known(kind) = kernels.performed(op) else {
            return None;
        };
        let described = kernels.described(op);
        kind.synchronises().then(|| RankCollective {
            group: described.map(|collective| collective.group),
            group_size: described.map_or(0, |collective| collective.group_size),
            collective: kind.as_str(),
            sequence: described.and_then(|collective| collective.sequence),
            start: trace.ops.start[op],
            end: trace.ops.end[op],
            exposed_ns: kernels.exposed_ns(op),
            bytes: described.and_then(Collective::message_bytes),
            stage: index.stage_of_op(op),
            experts_ns: 0,
        })
    };
    kernels.ops().filter_map(collective).collect()
}

/// Key of a row: device, or `None` on the CPU; the collective; whether it is described; and its group with its size.
type RowKey = (Option<DeviceId>, Performed, bool, (NameId, u32));

/// Builds the table of communication, most time first.
pub fn table(trace: &Trace, index: &StageIndex, limits: UserLimits) -> Vec<CommunicationRow> {
    let ops = &trace.ops;
    let no_group = (NameId::default(), 0);
    let mut sums: FxHashMap<RowKey, Sum> = FxHashMap::default();
    let kernels = Kernels::of(trace, index);
    for (kernels, op) in kernels.iter().flat_map(|kernels| kernels.ops().map(move |op| (kernels, op))) {
        let described = kernels.described(op);
        let group = described.map_or(no_group, |collective| (collective.group, collective.group_size));
        let device = Some(ops.device[op]);
        let sum = sums.entry((device, kernels.performed(op), described.is_some(), group)).or_default();
        let size = described.and_then(Collective::message_bytes);
        sum.add(size, Some(ops.duration(op)), kernels.exposed_ns(op));
    }
    let on_host = HostCollectives::of(trace);
    for host in on_host.iter().flat_map(HostCollectives::iter) {
        let collective = host.collective;
        let performed = host.kind.map_or(Performed::Named(collective.name), Performed::Known);
        let group = (collective.group, collective.group_size);
        let length = host.span.map(|(start, end)| end - start);
        let sum = sums.entry((None, performed, true, group)).or_default();
        sum.add(collective.message_bytes(), length, host.exposed_ns);
    }
    let rank = trace.distributed.as_ref().and_then(|job| job.rank);
    let links: Vec<CopyLinks> = match sums.is_empty() {
        true => Vec::new(),
        false => trace.devices.iter().map(|device| CopyLinks::of(device, limits)).collect(),
    };
    let mut rows: Vec<CommunicationRow> = sums
        .into_iter()
        .map(|((device, performed, described, (group, size)), sum)| {
            let factor = match performed {
                Performed::Known(kind) => kind.bus_factor(size),
                Performed::Named(_) => None,
            };
            let (sized, ns) = sum.timed;
            let algorithm = (sized > 0 && ns > 0).then(|| sized as f64 * 1e9 / ns as f64);
            let bus = factor.zip(algorithm).map(|(factor, algorithm)| factor * algorithm);
            let link = device.and_then(|device| links.get(device.index())?.peer());
            CommunicationRow {
                rank,
                device: device.and_then(|device| device_number(trace, device)),
                on: if device.is_some() { "gpu" } else { "cpu" }.to_owned(),
                collective: match performed {
                    Performed::Known(kind) => kind.as_str().to_owned(),
                    Performed::Named(name) if described => trace.names.get(name).to_owned(),
                    Performed::Named(name) => short_name(trace.names.get(name)),
                },
                group: Some(trace.names.get(group).to_owned()).filter(|name| described && !name.is_empty()),
                group_size: Some(size).filter(|size| *size > 0),
                calls: sum.calls,
                untimed_calls: sum.untimed_calls,
                bytes: Some(sum.bytes).filter(|bytes| *bytes > 0),
                total_ns: sum.total_ns,
                exposed_ns: sum.exposed_ns,
                bus_bandwidth_bytes_per_s: bus,
                algorithm_bandwidth_bytes_per_s: algorithm,
                peak_pct: bus.zip(link).map(|(bus, link)| 100.0 * bus / link.bytes_per_s),
                peak_bytes_per_s: link.map(|link| link.bytes_per_s),
                link: link.map(|link| link.name.clone()),
            }
        })
        .collect();
    rows.sort_by(|a, b| {
        let rest = |row: &CommunicationRow| (row.device, row.collective.clone(), row.group.clone());
        b.total_ns.cmp(&a.total_ns).then_with(|| rest(a).cmp(&rest(b)))
    });
    rows
}
