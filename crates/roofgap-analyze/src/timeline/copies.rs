//! Copies by device, direction and kind of host memory.

use super::device_number;
use super::interval::{CoveredTime, IntervalSet};
use crate::gpu::{CopyLinks, UserLimits};
use crate::result::{CopyKind, CopyRow};
use roofgap_trace::{DeviceId, MemoryKind, NameId, OpKind, Trace};
use rustc_hash::FxHashMap;

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
        let mut kinds = FxHashMap::default();
        for op in (0..ops.len()).filter(|&op| ops.kind[op] == OpKind::Copy) {
            let name = ops.name[op];
            kinds.entry(name).or_insert_with(|| copy_kind(trace.names.get(name)));
        }
        let copies = |op: usize| ops.kind[op] == OpKind::Copy;
        let computes = |op: usize| matches!(ops.kind[op], OpKind::Kernel | OpKind::Graph);
        let kernels = match kinds.is_empty() {
            true => Vec::new(),
            false => CoveredTime::beside(trace, &IntervalSet::by_device(trace, copies), computes),
        };
        Self {
            trace,
            kernels,
            links: trace.devices.iter().map(|device| CopyLinks::of(device, limits)).collect(),
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
                        .map(|(bandwidth, peak)| 100.0 * bandwidth / peak)
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
fn copy_kind(name: &str) -> CopyKind {
    let inner = name.strip_prefix("[CUDA memcpy ").and_then(|rest| rest.strip_suffix(']'));
    let direction = match inner {
        Some(inner) => inner,
        None => name.strip_prefix("Memcpy ").and_then(|rest| rest.split(' ').next()).unwrap_or_default(),
    };
    match direction {
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
