//! Calls into the runtime and the driver, read in parts and straight into columns.

use super::columns::{Distinct, append, replace};
use super::identity::Identity;
use super::strings::Strings;
use crate::sqlite::{Database, Value};
use crate::{CallClass, LossKind, NameId, Ns, ReadError, Trace};

/// Rows collected by one part of the scan.
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
pub fn calls(
    db: &Database,
    strings: &Strings,
    who: &mut Identity,
    trace: &mut Trace,
) -> Result<(), ReadError> {
    let columns = ["start", "end", "globalTid", "nameId", "correlationId"];
    let unnamed = trace.names.intern("");
    let parts = db.scan("CUPTI_ACTIVITY_KIND_RUNTIME", &columns, Part::with_room, |part, row| {
        part.add(row, strings, unnamed)
    })?;
    let mut classes = vec![None; trace.names.len()];
    for part in parts {
        part.append(&mut classes, who, trace);
    }
    Ok(())
}

impl Part {
    fn with_room(rows: usize) -> Self {
        Self {
            start: Vec::with_capacity(rows),
            end: Vec::with_capacity(rows),
            name: Vec::with_capacity(rows),
            correlation: Vec::with_capacity(rows),
            thread: Vec::with_capacity(rows),
            ..Self::default()
        }
    }

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
        calls.class.extend(self.name.iter().map(|&name| match classes.get_mut(name.index()) {
            Some(class) => *class.get_or_insert_with(|| CallClass::of(names.get(name))),
            None => CallClass::Other,
        }));
        let (processes, threads): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
        append(&mut calls.process, self.thread.iter().map(|&at| processes[at as usize]).collect());
        append(&mut calls.thread, replace(self.thread, &threads));
        append(&mut calls.start, self.start);
        append(&mut calls.end, self.end);
        append(&mut calls.name, self.name);
        append(&mut calls.correlation, self.correlation);
    }
}
