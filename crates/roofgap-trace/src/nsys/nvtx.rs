//! NVTX ranges and marks with their domains.

use super::identity::{Identity, PROCESS_BITS, Strings};
use crate::sqlite::Tables;
use crate::{LossKind, Mark, NameId, Ns, Range, RangeStyle, ReadError, Trace};
use rustc_hash::FxHashMap;

// Kinds of row; the second of each pair comes from imported text logs.
const PUSH_POP: [i64; 2] = [59, 70];
const START_END: [i64; 2] = [60, 71];
const MARK: i64 = 34;
const CATEGORY: i64 = 33;
const THREAD_NAME: i64 = 39;
const DOMAIN_CREATE: i64 = 75;
const DOMAIN_DESTROY: i64 = 76;

struct Row {
    start: Ns,
    end: Option<Ns>,
    kind: i64,
    name: Option<NameId>,
    thread: u64,
    end_thread: Option<u64>,
    domain: i64,
}

/// Reads ranges and marks. A range without an end is given `i64::MAX` and marked open; the reader closes it when it knows
/// when the capture ended.
pub fn ranges(
    db: &impl Tables,
    strings: &Strings,
    who: &mut Identity,
    trace: &mut Trace,
) -> Result<(), ReadError> {
    let columns = ["start", "end", "eventType", "text", "textId", "globalTid", "endGlobalTid", "domainId"];
    let mut domains: FxHashMap<(u64, i64), (Ns, NameId)> = FxHashMap::default();
    let mut rows = Vec::new();
    db.each("NVTX_EVENTS", &columns, |row| {
        let (Some(start), Some(kind)) = (row[0].int(), row[2].int()) else {
            return trace.losses.add(LossKind::EventMalformed, 1);
        };
        let thread = row[5].int().map_or(0, |v| v as u64);
        let domain = row[7].int().unwrap_or(0);
        if kind == DOMAIN_CREATE {
            let text = row[3].text().map(|t| trace.names.intern(&t));
            if let Some(name) = text.or_else(|| row[4].int().and_then(|id| strings.get(id))) {
                let at = domains.entry((thread & PROCESS_BITS, domain)).or_insert((start, name));
                if start < at.0 {
                    *at = (start, name);
                }
            }
            return;
        }
        if !(PUSH_POP.contains(&kind) || START_END.contains(&kind) || kind == MARK) {
            if ![CATEGORY, THREAD_NAME, DOMAIN_DESTROY].contains(&kind) {
                trace.losses.add(LossKind::NvtxUnknown, 1);
            }
            return;
        }
        // A registered string wins over text, as in reports of NVIDIA.
        let name = row[4].int().and_then(|id| strings.get(id));
        let name = name.or_else(|| row[3].text().map(|t| trace.names.intern(&t)));
        rows.push(Row {
            start,
            // Exports up to 2021 have no nulls: what is not there is 0. Reports up to 2020 have a time without end.
            end: row[1].int().filter(|end| (*end != 0 || start == 0) && *end < Ns::MAX / 2),
            kind,
            name,
            thread,
            end_thread: row[6].int().filter(|v| *v != 0).map(|v| v as u64),
            domain,
        });
    })?;
    add(rows, &domains, who, trace);
    Ok(())
}

/// Adds ranges and marks to the trace, with the names of their domains.
fn add(rows: Vec<Row>, domains: &FxHashMap<(u64, i64), (Ns, NameId)>, who: &mut Identity, trace: &mut Trace) {
    let default = trace.names.intern("");
    for row in rows {
        let domain = match domains.get(&(row.thread & PROCESS_BITS, row.domain)) {
            Some(&(_, name)) => name,
            None => {
                trace.losses.add(LossKind::RangeNoDomain, u64::from(row.domain != 0));
                default
            }
        };
        trace.losses.add(LossKind::RangeNoName, u64::from(row.name.is_none()));
        let name = row.name.unwrap_or(default);
        let thread = who.thread(row.thread, trace);
        if row.kind == MARK {
            trace.ranges.marks.push(Mark { at: row.start, domain, name, thread });
            continue;
        }
        if row.end.is_some_and(|end| end < row.start) {
            trace.losses.add(LossKind::RangeNegative, 1);
            continue;
        }
        let end_thread = row.end_thread.map_or(thread, |t| who.thread(t, trace));
        trace.losses.add(LossKind::RangeOpen, u64::from(row.end.is_none()));
        trace.losses.add(LossKind::RangeCrossThread, u64::from(end_thread != thread));
        let style = if PUSH_POP.contains(&row.kind) { RangeStyle::PushPop } else { RangeStyle::StartEnd };
        let process = who.process(row.thread, trace);
        trace.ranges.rows.push(Range {
            start: row.start,
            end: row.end.unwrap_or(Ns::MAX),
            domain,
            name,
            process,
            thread,
            end_thread,
            style,
            open: row.end.is_none(),
        });
    }
}
