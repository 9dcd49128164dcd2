//! Calls into the runtime and the driver, read in parts and straight into columns.

use super::distinct::Distinct;
use super::identity::Identity;
use super::strings::Strings;
use crate::sqlite::{Database, Value};
use crate::{CallClass, LossKind, NameId, Ns, ReadError, Trace};

/// What one part of the scan collects.
#[derive(Default)]
struct Part {
    start: Vec<Ns>,
    end: Vec<Ns>,
    name: Vec<NameId>,
    correlation: Vec<u32>,
    /// Positions among `threads`.
    thread: Vec<u32>,
    threads: Distinct<u64>,
    malformed: u64,
    negative: u64,
    unnamed: u64,
}

/// Reads the calls.
pub(super) fn calls(
    db: &Database,
    strings: &Strings,
    who: &mut Identity,
    trace: &mut Trace,
) -> Result<(), ReadError> {
    let columns = ["start", "end", "globalTid", "nameId", "correlationId"];
    let unnamed = trace.names.intern("");
    let parts = db.scan(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        &columns,
        Part::default,
        |part, row| {
            part.add(row, strings, unnamed);
        },
    )?;
    let rows: usize = parts.iter().map(|part| part.start.len()).sum();
    let calls = &mut trace.calls;
    calls.start.reserve(rows);
    calls.end.reserve(rows);
    calls.name.reserve(rows);
    calls.class.reserve(rows);
    calls.process.reserve(rows);
    calls.thread.reserve(rows);
    calls.correlation.reserve(rows);
    let mut classes = vec![None; trace.names.len()];
    for part in parts {
        part.append(&mut classes, who, trace);
    }
    Ok(())
}

impl Part {
    fn add(&mut self, row: &[Value<'_>], strings: &Strings, unnamed: NameId) {
        let (Some(start), Some(end)) = (row[0].int(), row[1].int()) else {
            self.malformed += 1;
            return;
        };
        if end < start {
            self.negative += 1;
            return;
        }
        let name = row[3].int().and_then(|id| strings.get(id));
        self.unnamed += u64::from(name.is_none());
        self.start.push(start);
        self.end.push(end);
        self.name.push(name.unwrap_or(unnamed));
        self.correlation.push(row[4].int().map_or(0, |v| v as u32));
        let thread = row[2].int().map_or(0, |v| v as u64);
        self.thread.push(self.threads.number(thread, 0));
    }

    /// Appends the rows to the trace. `classes` remembers what each function does.
    fn append(self, classes: &mut [Option<CallClass>], who: &mut Identity, trace: &mut Trace) {
        trace.losses.add(LossKind::EventMalformed, self.malformed);
        trace.losses.add(LossKind::CallNegative, self.negative);
        trace.losses.add(LossKind::NameMissing, self.unnamed);
        let threads: Vec<_> = self
            .threads
            .values()
            .iter()
            .map(|&thread| (who.process(thread, trace), who.thread(thread, trace)))
            .collect();
        let (calls, names) = (&mut trace.calls, &trace.names);
        calls
            .class
            .extend(self.name.iter().map(|&name| match classes.get_mut(name.index()) {
                Some(class) => *class.get_or_insert_with(|| CallClass::of(names.get(name))),
                None => CallClass::Other,
            }));
        calls.start.extend_from_slice(&self.start);
        calls.end.extend_from_slice(&self.end);
        calls.name.extend_from_slice(&self.name);
        calls.correlation.extend_from_slice(&self.correlation);
        calls
            .process
            .extend(self.thread.iter().map(|&at| threads[at as usize].0));
        calls
            .thread
            .extend(self.thread.iter().map(|&at| threads[at as usize].1));
    }
}
