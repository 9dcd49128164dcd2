//! Times of a timeline: what ran when, idle time by cause, steps, and the numbers of each stage.

mod cold;
mod cold_calls;
mod idle;
mod interval;
mod stages;
mod steps;

pub use cold::find as find_cold;
pub use cold_calls::kind_of_call;
pub use idle::{
    Activity, HostGap, HostWork, IdleCause, IdlePart, IdleParts, LAUNCH_LATENCY_NS, LONG_WORK_NS, LaunchGaps,
    idle_parts,
};
pub use interval::{CoveredTime, Extent, IntervalSet};
pub use stages::StageMeter;
pub use steps::{
    DEVIATION, StepPeriod, StepPeriods, expected, sample_deviation, steady, step_summary, time_deviation,
};

use crate::gpu::{CopyLinks, UserLimits};
use crate::names::Naming;
use crate::result::{CopyKind, CopyRow, GraphRow, Kernel};
use roofgap_base::stats::median;
use roofgap_trace::{DeviceId, MemoryKind, NameId, OpKind, ProcessId, Trace};
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Returns the number by which the tool calls a device.
pub fn device_number(trace: &Trace, device: DeviceId) -> Option<u32> {
    trace.devices.get(device.index()).map(|device| device.number)
}

/// A list of items with distinct keys, in the order in which they were first seen.
pub struct Grouped<K, T> {
    pub items: Vec<T>,
    pub keys: Vec<K>,
    /// Position of the item of each key.
    pub positions: FxHashMap<K, usize>,
    /// Position that was returned last for each hint.
    recent: Vec<usize>,
}

impl<K, T> Default for Grouped<K, T> {
    fn default() -> Self {
        Self { items: Vec::new(), keys: Vec::new(), positions: FxHashMap::default(), recent: Vec::new() }
    }
}

impl<K: Clone + Hash + Eq, T> Grouped<K, T> {
    /// Returns the position of the item of a key, or of a new one.
    pub fn position(&mut self, key: K, new: impl FnOnce() -> T) -> usize {
        *self.positions.entry(key).or_insert_with_key(|key| {
            self.items.push(new());
            self.keys.push(key.clone());
            self.items.len() - 1
        })
    }

    /// Returns the same. A key that repeats under a hint, which is a small number, is found without the map.
    #[inline]
    pub fn position_near(&mut self, hint: usize, key: K, new: impl FnOnce() -> T) -> usize {
        if let Some(&recent) = self.recent.get(hint)
            && self.keys.get(recent) == Some(&key)
        {
            return recent;
        }
        let at = self.position(key, new);
        if self.recent.len() <= hint {
            self.recent.resize(hint + 1, 0);
        }
        self.recent[hint] = at;
        at
    }

    /// Returns the item of a key, or a new one.
    pub fn entry(&mut self, key: K, new: impl FnOnce() -> T) -> &mut T {
        let at = self.position(key, new);
        &mut self.items[at]
    }
}

/// Groups the kernels among `rows` of `Trace::ops` by name and device.
pub fn kernel_table(trace: &Trace, rows: impl Iterator<Item = usize>, naming: &mut Naming) -> Vec<Kernel> {
    let ops = &trace.ops;
    let mut groups: Grouped<(NameId, DeviceId), Vec<i64>> = Grouped::default();
    for row in rows.filter(|&row| ops.kind[row] == OpKind::Kernel) {
        let key = (ops.name[row], ops.device[row]);
        let at = groups.position_near(key.0.index(), key, Vec::new);
        groups.items[at].push(ops.duration(row));
    }
    let named = groups.keys.into_iter().zip(groups.items);
    let named =
        named.map(|((name, device), list)| (trace.names.get(name), device_number(trace, device), list));
    from_durations(named, naming)
}

/// Builds the table of kernels from the durations of each on a device.
pub fn from_durations<'a>(
    groups: impl Iterator<Item = (&'a str, Option<u32>, Vec<i64>)>,
    naming: &mut Naming,
) -> Vec<Kernel> {
    let row = |(name, device, mut durations): (&str, _, Vec<i64>)| Kernel {
        device,
        min_ns: durations.iter().copied().min(),
        max_ns: durations.iter().copied().max(),
        median_ns: median(&mut durations),
        ..kernel(name, durations.iter().sum(), durations.len() as u64, naming)
    };
    sorted(groups.map(row).collect())
}

/// Builds the table of kernels from the totals that another tool added up.
pub fn from_totals(trace: &Trace, naming: &mut Naming) -> Vec<Kernel> {
    let row = |total: &roofgap_trace::KernelTotal| Kernel {
        median_ns: total.median_ns.map(|m| m.round() as i64),
        min_ns: total.min_ns,
        max_ns: total.max_ns,
        ..kernel(trace.names.get(total.name), total.total_ns, total.calls, naming)
    };
    sorted(trace.kernel_totals.iter().map(row).collect())
}

fn kernel(name: &str, total_ns: i64, calls: u64, naming: &mut Naming) -> Kernel {
    let (short_name, family) = naming.of_kernel(name);
    let mean_ns = divide(total_ns, calls as i64);
    Kernel { name: name.to_owned(), short_name, family, total_ns, calls, mean_ns, ..Kernel::default() }
}

fn sorted(mut kernels: Vec<Kernel>) -> Vec<Kernel> {
    kernels.sort_by(|a, b| (b.total_ns, &a.name, a.device).cmp(&(a.total_ns, &b.name, b.device)));
    kernels
}

/// `a / b` to the nearest integer; 0 for an empty group.
pub fn divide(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { (a as f64 / b as f64).round() as i64 }
}

/// Measures copies against the kernels beside them and the links of their devices.
pub struct CopyMeter<'a> {
    trace: &'a Trace,
    /// Times of the kernels and graphs beside copies, by device.
    kernels: Vec<CoveredTime>,
    links: Vec<CopyLinks>,
    kinds: FxHashMap<NameId, CopyKind>,
}

/// Sums of one row.
#[derive(Default)]
struct Sum {
    calls: u64,
    total_ns: i64,
    overlapped_ns: i64,
    /// Amount of the copies whose size is recorded, bytes, and their time, ns.
    sized: (u64, i64),
}

impl<'a> CopyMeter<'a> {
    pub fn new(trace: &'a Trace, limits: UserLimits) -> Self {
        let ops = &trace.ops;
        let copies = |op: usize| ops.kind[op] == OpKind::Copy;
        let mut kinds = FxHashMap::default();
        for op in (0..ops.len()).filter(|&op| copies(op)) {
            let name = ops.name[op];
            kinds.entry(name).or_insert_with(|| copy_kind(trace.names.get(name)));
        }
        let computes = |op: usize| matches!(ops.kind[op], OpKind::Kernel | OpKind::Graph);
        let kernels = match kinds.is_empty() {
            true => Vec::new(),
            false => CoveredTime::beside(trace, &IntervalSet::by_device(trace, copies), computes),
        };
        Self {
            trace,
            kernels,
            links: trace.devices.iter().map(|device| CopyLinks::on_device(device, limits)).collect(),
            kinds,
        }
    }

    /// Groups the copies among `rows` of `Trace::ops`, most time first.
    pub fn table(&self, rows: impl Iterator<Item = usize>) -> Vec<CopyRow> {
        let ops = &self.trace.ops;
        let mut sums: FxHashMap<(DeviceId, CopyKind, Option<bool>), Sum> = FxHashMap::default();
        for op in rows.filter(|&op| ops.kind[op] == OpKind::Copy) {
            let transfer = ops.transfers.get(&(op as u32)).copied().unwrap_or_default();
            let kind = self.kinds.get(&ops.name[op]).copied().unwrap_or_default();
            let device = ops.device[op];
            let sum = sums.entry((device, kind, is_pinned(transfer.memory))).or_default();
            sum.calls += 1;
            sum.total_ns += ops.duration(op);
            // A copy moves something; 0 stands for a size that was not recorded.
            if transfer.bytes > 0 {
                sum.sized.0 = sum.sized.0.saturating_add(transfer.bytes);
                sum.sized.1 += ops.duration(op);
            }
            let kernels = self.kernels.get(device.index());
            sum.overlapped_ns += kernels.map_or(0, |times| times.overlap(ops.start[op], ops.end[op]));
        }
        let mut table: Vec<CopyRow> = sums
            .into_iter()
            .map(|((device, kind, pinned), sum)| {
                let (bytes, ns) = sum.sized;
                let bandwidth = (ns > 0).then(|| bytes as f64 * 1e9 / ns as f64);
                let link = self.links.get(device.index()).and_then(|links| links.peak(kind));
                let peak = link.as_ref().map(|link| link.bytes_per_s);
                CopyRow {
                    device: device_number(self.trace, device),
                    kind,
                    bytes: Some(bytes).filter(|bytes| *bytes > 0),
                    total_ns: sum.total_ns,
                    calls: sum.calls,
                    bandwidth_bytes_per_s: bandwidth,
                    pinned,
                    overlapped_ns: sum.overlapped_ns,
                    peak_pct: bandwidth
                        .zip(peak)
                        .map(|(rate, peak)| 100.0 * rate / peak)
                        .filter(|pct| *pct <= 100.0),
                    peak_bytes_per_s: peak,
                    link: link.map(|link| link.name),
                }
            })
            .collect();
        table.sort_by_key(|row| (-row.total_ns, row.device, row.kind, row.pinned));
        table
    }
}

/// Tells whether the host memory of a copy is pinned; `None` without host memory or where unknown.
fn is_pinned((source, target): (MemoryKind, MemoryKind)) -> Option<bool> {
    match (source, target) {
        (MemoryKind::Pageable, _) | (_, MemoryKind::Pageable) => Some(false),
        (MemoryKind::Pinned, _) | (_, MemoryKind::Pinned) => Some(true),
        _ => None,
    }
}

/// Returns the direction of a copy by its name, as nsys, the native collector and Kineto write it.
pub fn copy_kind(name: &str) -> CopyKind {
    let inner = name.strip_prefix("[CUDA memcpy ").and_then(|rest| rest.strip_suffix(']'));
    let of_torch = || name.strip_prefix("Memcpy ")?.split(' ').next();
    match inner.or_else(of_torch).unwrap_or_default() {
        "Host-to-Device" | "Host-to-Array" | "HtoD" | "HtoA" => CopyKind::HostToDevice,
        "Device-to-Host" | "Array-to-Host" | "DtoH" | "AtoH" => CopyKind::DeviceToHost,
        "Device-to-Device" | "Array-to-Array" | "Array-to-Device" | "Device-to-Array" => {
            CopyKind::DeviceToDevice
        }
        "DtoD" | "AtoA" | "AtoD" | "DtoA" => CopyKind::DeviceToDevice,
        "Host-to-Host" | "HtoH" => CopyKind::HostToHost,
        "Peer-to-Peer" | "PtoP" => CopyKind::PeerToPeer,
        "Unified Host-to-Device" => CopyKind::ManagedToDevice,
        "Unified Device-to-Host" => CopyKind::ManagedToHost,
        "Unified Device-to-Device" => CopyKind::ManagedToPeer,
        _ => CopyKind::Unknown,
    }
}

/// Groups the whole graphs among `rows` of `Trace::ops` by device and graph, most time first.
pub fn graph_table(trace: &Trace, rows: impl Iterator<Item = usize>) -> Vec<GraphRow> {
    let ops = &trace.ops;
    // Ids of graphs repeat across processes.
    let mut sums: FxHashMap<(DeviceId, ProcessId, u64), (u64, i64)> = FxHashMap::default();
    for op in rows.filter(|&op| ops.kind[op] == OpKind::Graph) {
        let sum = sums.entry((ops.device[op], ops.process[op], ops.graph_node(op))).or_default();
        *sum = (sum.0 + 1, sum.1 + ops.duration(op));
    }
    let rows = sums.into_iter().map(|((device, _, graph), (launches, total_ns))| GraphRow {
        device: device_number(trace, device),
        graph: Some(graph).filter(|graph| *graph != 0),
        launches,
        total_ns,
    });
    let mut table: Vec<GraphRow> = rows.collect();
    table.sort_by_key(|row| (-row.total_ns, row.device, row.graph, row.launches));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_by_name() {
        for (name, kind) in [
            ("[CUDA memcpy Host-to-Device]", CopyKind::HostToDevice),
            ("[CUDA memcpy Device-to-Array]", CopyKind::DeviceToDevice),
            ("[CUDA memcpy Unified Host-to-Device]", CopyKind::ManagedToDevice),
            ("[CUDA memcpy]", CopyKind::Unknown),
            ("Memcpy HtoD (Pageable -> Device)", CopyKind::HostToDevice),
            ("Memcpy DtoH (Device -> Host)", CopyKind::DeviceToHost),
            ("Memcpy PtoP (Device -> Device)", CopyKind::PeerToPeer),
            ("Memcpy", CopyKind::Unknown),
        ] {
            assert_eq!(copy_kind(name), kind, "{name}");
        }
    }

    #[test]
    fn pageable_memory_on_either_side_is_not_pinned() {
        use MemoryKind::*;
        assert_eq!(is_pinned((Pageable, Device)), Some(false));
        assert_eq!(is_pinned((Device, Pinned)), Some(true));
        assert_eq!(is_pinned((Device, Device)), None);
        assert_eq!(is_pinned((Unknown, Device)), None);
    }
}
