//! Communication with other GPUs: time by collective and group, the part that no computation hides, and bus bandwidth.

mod collective;

use crate::names::{Family, family, short_name};
use crate::result::CommunicationRow;
use crate::timeline::{CoveredTime, device_number};
use collective::CollectiveKind;
use roofgap_trace::{DeviceId, NameId, OpKind, Trace};
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

/// Builds the table of communication, most time first.
pub(crate) fn table(trace: &Trace) -> Vec<CommunicationRow> {
    let ops = &trace.ops;
    let kernels = performed_by_name(trace);
    if kernels.is_empty() {
        return Vec::new();
    }
    let communicates = |op: usize| ops.kind[op] == OpKind::Kernel && kernels.contains_key(&ops.name[op]);
    let computes = |op: usize| match ops.kind[op] {
        OpKind::Kernel => !kernels.contains_key(&ops.name[op]),
        OpKind::Graph => true,
        OpKind::Copy | OpKind::Set => false,
    };
    let compute = CoveredTime::beside(trace, communicates, computes);
    let no_group = (NameId::default(), 0);
    let mut sums: FxHashMap<(DeviceId, Performed, bool, (NameId, u32)), Sum> = FxHashMap::default();
    for op in (0..ops.len()).filter(|&op| communicates(op)) {
        let described = ops.collectives.get(&(op as u32));
        let performed = match described {
            Some(collective) => CollectiveKind::of_framework(trace.names.get(collective.name))
                .map_or(Performed::Named(collective.name), Performed::Known),
            None => kernels[&ops.name[op]],
        };
        let group = described.map_or(no_group, |collective| (collective.group, collective.group_size));
        let sum = sums
            .entry((ops.device[op], performed, described.is_some(), group))
            .or_default();
        let size = described.and_then(|collective| collective.input_bytes.max(collective.output_bytes));
        sum.calls += 1;
        if let Some(size) = size {
            sum.sized.0 = sum.sized.0.saturating_add(size);
            sum.sized.1 += ops.duration(op);
        }
        sum.total_ns += ops.duration(op);
        let hidden = compute.get(ops.device[op].index());
        let hidden = hidden.map_or(0, |covered| covered.overlap(ops.start[op], ops.end[op]));
        sum.exposed_ns += ops.duration(op) - hidden;
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
