//! Communication with other GPUs: time by collective and group, the part that no computation hides, and bus bandwidth.

mod collective;

use crate::names::{Family, family, short_name};
use crate::result::CommunicationRow;
use crate::stages::StageIndex;
use crate::timeline::{CoveredTime, device_number};
use collective::CollectiveKind;
use roofgap_trace::{Collective, DeviceId, NameId, Ns, OpKind, Trace};
use rustc_hash::FxHashMap;

/// The collective of a row: a known one, or the name of a kernel or collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Performed {
    Known(CollectiveKind),
    Named(NameId),
}

/// Sums of one row.
#[derive(Default)]
struct Sum {
    calls: u64,
    total_ns: i64,
    exposed_ns: i64,
    /// Size of the messages whose size is recorded, bytes, and their time, ns.
    sized: (u64, i64),
}

/// The communication kernels of a trace, and the time in which its devices compute.
struct Kernels<'t> {
    trace: &'t Trace,
    by_name: FxHashMap<NameId, Performed>,
    compute: Vec<CoveredTime>,
}

impl<'t> Kernels<'t> {
    /// Finds the communication kernels; `None` without any.
    fn of(trace: &'t Trace) -> Option<Self> {
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
        let compute = CoveredTime::beside(trace, communicates, computes);
        Some(Self {
            trace,
            by_name,
            compute,
        })
    }

    /// Iterates over the communication kernels in the order of their start.
    fn ops(&self) -> impl Iterator<Item = usize> {
        let ops = &self.trace.ops;
        let communicates =
            |op: &usize| ops.kind[*op] == OpKind::Kernel && self.by_name.contains_key(&ops.name[*op]);
        (0..ops.len()).filter(communicates)
    }

    /// Returns the description of a kernel by the framework.
    fn described(&self, op: usize) -> Option<&'t Collective> {
        self.trace.ops.collectives.get(&(op as u32))
    }

    /// Returns the collective of a kernel, by the framework or by its name.
    fn performed(&self, op: usize) -> Performed {
        match self.described(op) {
            Some(collective) => CollectiveKind::of_framework(self.trace.names.get(collective.name))
                .map_or(Performed::Named(collective.name), Performed::Known),
            None => self.by_name[&self.trace.ops.name[op]],
        }
    }

    /// Returns the part of a kernel in which its device computes nothing, ns.
    fn exposed_ns(&self, op: usize) -> Ns {
        let ops = &self.trace.ops;
        let hidden = self.compute.get(ops.device[op].index());
        let hidden = hidden.map_or(0, |covered| covered.overlap(ops.start[op], ops.end[op]));
        ops.duration(op) - hidden
    }
}

/// A collective that no rank ends before every rank has started it, as one rank ran it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankCollective {
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
}

/// Lists the collectives whose ranks wait for one another, in the order of their start.
pub(crate) fn collectives(trace: &Trace, index: &StageIndex) -> Vec<RankCollective> {
    let Some(kernels) = Kernels::of(trace) else {
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
            bytes: described.and_then(|collective| collective.input_bytes.max(collective.output_bytes)),
            stage: index.stage_of_op(op),
        })
    };
    kernels.ops().filter_map(collective).collect()
}

/// Builds the table of communication, most time first.
pub(crate) fn table(trace: &Trace) -> Vec<CommunicationRow> {
    let ops = &trace.ops;
    let Some(kernels) = Kernels::of(trace) else {
        return Vec::new();
    };
    let no_group = (NameId::default(), 0);
    let mut sums: FxHashMap<(DeviceId, Performed, bool, (NameId, u32)), Sum> = FxHashMap::default();
    for op in kernels.ops() {
        let described = kernels.described(op);
        let group = described.map_or(no_group, |collective| (collective.group, collective.group_size));
        let sum = sums
            .entry((ops.device[op], kernels.performed(op), described.is_some(), group))
            .or_default();
        let size = described.and_then(|collective| collective.input_bytes.max(collective.output_bytes));
        sum.calls += 1;
        if let Some(size) = size {
            sum.sized.0 = sum.sized.0.saturating_add(size);
            sum.sized.1 += ops.duration(op);
        }
        sum.total_ns += ops.duration(op);
        sum.exposed_ns += kernels.exposed_ns(op);
    }
    let rank = trace.distributed.as_ref().and_then(|job| job.rank);
    let mut rows: Vec<CommunicationRow> = sums
        .into_iter()
        .map(|((device, performed, described, (group, size)), sum)| {
            let factor = match performed {
                Performed::Known(kind) => kind.bus_factor(size),
                Performed::Named(_) => None,
            };
            let (bytes, ns) = sum.sized;
            let bytes = Some(bytes).filter(|bytes| *bytes > 0);
            CommunicationRow {
                rank,
                device: device_number(trace, device),
                collective: match performed {
                    Performed::Known(kind) => kind.as_str().to_owned(),
                    Performed::Named(name) if described => trace.names.get(name).to_owned(),
                    Performed::Named(name) => short_name(trace.names.get(name)),
                },
                group: Some(trace.names.get(group).to_owned()).filter(|name| described && !name.is_empty()),
                group_size: Some(size).filter(|size| *size > 0),
                calls: sum.calls,
                bytes,
                total_ns: sum.total_ns,
                exposed_ns: sum.exposed_ns,
                bus_bandwidth_bytes_per_s: factor
                    .zip(bytes.filter(|_| ns > 0))
                    .map(|(factor, bytes)| factor * bytes as f64 * 1e9 / ns as f64),
            }
        })
        .collect();
    rows.sort_by(|a, b| {
        let rest = |row: &CommunicationRow| (row.device, row.collective.clone(), row.group.clone());
        b.total_ns.cmp(&a.total_ns).then_with(|| rest(a).cmp(&rest(b)))
    });
    rows
}

/// Finds the names of communication kernels, and the collective that each name tells.
fn performed_by_name(trace: &Trace) -> FxHashMap<NameId, Performed> {
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
