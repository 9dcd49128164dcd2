//! Graphs that were recorded as one operation.

use super::device_number;
use crate::result::GraphRow;
use roofgap_trace::{DeviceId, OpKind, ProcessId, Trace};
use rustc_hash::FxHashMap;

/// Groups the whole graphs among `rows` of `Trace::ops` by device and graph, most time first.
pub fn table(trace: &Trace, rows: impl Iterator<Item = usize>) -> Vec<GraphRow> {
    let ops = &trace.ops;
    // Ids of graphs repeat across processes.
    let mut sums: FxHashMap<(DeviceId, ProcessId, u64), (u64, i64)> = FxHashMap::default();
    for op in rows.filter(|&op| ops.kind[op] == OpKind::Graph) {
        let sum = sums.entry((ops.device[op], ops.process[op], ops.graph_node[op])).or_default();
        *sum = (sum.0 + 1, sum.1 + ops.duration(op));
    }
    let mut table: Vec<GraphRow> = sums
        .into_iter()
        .map(|((device, _, graph), (launches, total_ns))| GraphRow {
            device: device_number(trace, device),
            graph: Some(graph).filter(|graph| *graph != 0),
            launches,
            total_ns,
        })
        .collect();
    table.sort_by_key(|row| (-row.total_ns, row.device, row.graph, row.launches));
    table
}
