//! The activity of a rank over time.

use crate::names::{Family, family};
use crate::result::RankActivity;
use crate::timeline::IntervalSet;
use roofgap_trace::{NameId, Ns, OpKind, Trace};
use rustc_hash::FxHashMap;

/// Number of parts.
const PARTS: i64 = 240;

/// Divides the time of a trace into parts and tells how busy its devices are in each; `None` without GPU operations.
pub fn activity(trace: &Trace) -> Option<RankActivity> {
    let ops = &trace.ops;
    let begin_ns = ops.start.iter().copied().min()?;
    let end = ops.end.iter().copied().max()?;
    let part_ns = ((end - begin_ns) / PARTS + 1).max(1);
    let parts = ((end - begin_ns) / part_ns + 1) as usize;
    let mut communicates: FxHashMap<NameId, bool> = FxHashMap::default();
    for op in (0..ops.len()).filter(|op| ops.kind[*op] == OpKind::Kernel) {
        let is = || family(trace.names.get(ops.name[op])) == Family::Communication;
        communicates.entry(ops.name[op]).or_insert_with(is);
    }
    let talks = |op: usize| ops.kind[op] == OpKind::Kernel && communicates.get(&ops.name[op]) == Some(&true);
    let compute = IntervalSet::by_device(trace, |op| !talks(op));
    let all = IntervalSet::by_device(trace, |_| true);
    let devices = all.iter().filter(|set| !set.intervals().is_empty()).count().max(1) as i64;
    let spread = |sets: &[IntervalSet]| {
        let mut busy = vec![0; parts];
        let intervals = sets.iter().flat_map(|set| set.intervals());
        intervals.for_each(|(start, end)| add(&mut busy, begin_ns, part_ns, *start, *end));
        busy
    };
    let (compute, all) = (spread(&compute), spread(&all));
    let percent = |ns: Ns| (100 * ns / (part_ns * devices)).clamp(0, 100) as u8;
    let exposed = all.iter().zip(&compute).map(|(all, compute)| all - compute);
    Some(RankActivity {
        begin_ns,
        part_ns,
        exposed_pct: exposed.map(percent).collect(),
        compute_pct: compute.iter().copied().map(percent).collect(),
    })
}

/// Adds an interval to the parts that it covers.
fn add(busy: &mut [Ns], begin: Ns, part: Ns, start: Ns, end: Ns) {
    let mut at = start;
    while at < end {
        let number = (at - begin) / part;
        let until = end.min(begin + (number + 1) * part);
        if let Some(busy) = busy.get_mut(number as usize) {
            *busy += until - at;
        }
        at = until;
    }
}
