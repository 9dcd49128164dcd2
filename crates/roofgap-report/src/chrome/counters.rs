//! Counters along the timeline.

use super::event::Writer;
use super::tracks::device;
use roofgap_analyze::{Analysis, CounterRow, Launches, NO_CALL};
use roofgap_trace::{Ns, OpKind, Trace};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the number of operations of each device that were launched and have not ended.
pub fn waiting<W: Write>(trace: &Trace, launches: &Launches, writer: &mut Writer<'_, W>) -> io::Result<()> {
    let ops = &trace.ops;
    let mut changes: BTreeMap<u16, Vec<(Ns, i64)>> = BTreeMap::new();
    for row in 0..ops.len() {
        let call = launches.call_of_op.get(row).copied().unwrap_or(NO_CALL);
        let launched = trace.calls.start.get(call as usize).copied();
        let from = launched.unwrap_or(ops.start[row]).min(ops.start[row]);
        let list = changes.entry(ops.device[row].0).or_default();
        list.push((from, 1));
        list.push((ops.end[row], -1));
    }
    for (index, mut list) in changes {
        list.sort_unstable();
        let mut level = 0;
        let mut at = 0;
        while let Some(&(time, _)) = list.get(at) {
            while let Some((_, change)) = list.get(at).filter(|c| c.0 == time) {
                level += change;
                at += 1;
            }
            writer.counter(device(index as usize), "launched and not ended", time, level as f64)?;
        }
    }
    Ok(())
}

/// The name of a measured percentage and its value in a row.
type Measure = (&'static str, fn(&CounterRow) -> Option<f64>);

const MEASURES: [Measure; 3] = [
    ("SM % measured for the launch shape", |r| r.sm_pct),
    ("DRAM % measured for the launch shape", |r| r.dram_pct),
    ("occupancy % measured for the launch shape", |r| r.occupancy_pct),
];

/// Writes the measured percentages for every launch of the same kernel and shape.
pub fn measured<W: Write>(analysis: &Analysis, trace: &Trace, writer: &mut Writer<'_, W>) -> io::Result<()> {
    let mut rows: BTreeMap<(&str, [u32; 3], [u32; 3]), &CounterRow> = BTreeMap::new();
    for row in &analysis.counters {
        rows.entry((&row.kernel, row.grid, row.block)).or_insert(row);
    }
    if rows.is_empty() {
        return Ok(());
    }
    let ops = &trace.ops;
    for op in (0..ops.len()).filter(|&op| ops.kind[op] == OpKind::Kernel) {
        let shape = ops.shape_of(op);
        let Some(row) = rows.get(&(trace.names.get(ops.name[op]), shape.grid, shape.block)) else {
            continue;
        };
        for (name, value) in MEASURES {
            if let Some(value) = value(row) {
                writer.counter(device(ops.device[op].index()), name, ops.start[op], value)?;
                writer.counter(device(ops.device[op].index()), name, ops.end[op], 0.0)?;
            }
        }
    }
    Ok(())
}
