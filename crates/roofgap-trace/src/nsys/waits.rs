//! Waits for the GPU, and the records of the events that are waited for.

use super::identity::Identity;
use crate::model::{EventKey, EventRow, WaitRow, WaitRows, stated_stream};
use crate::sqlite::{Tables, Value, ints};
use crate::{LossKind, ProcessId, ReadError, RecordedEvent, Trace, WaitKind};

/// Columns of both tables.
const COLUMNS: [&str; 7] =
    ["correlationId", "contextId", "eventId", "streamId", "eventSyncId", "globalPid", "deviceId"];

/// What both tables say of a row.
struct Row {
    process: ProcessId,
    correlation: u32,
    stream: u32,
    event: Option<EventKey>,
}

impl Row {
    /// Takes the columns of a row; `None` for one of a process without calls, or one that is counted as malformed.
    fn new(row: &[Value<'_>], who: &Identity, trace: &mut Trace) -> Option<Self> {
        let numbers = ints::<4>(row).map(|numbers| numbers.map(u32::try_from));
        let Some([Ok(correlation), Ok(context), Ok(id), Ok(stream)]) = numbers else {
            trace.losses.add(LossKind::EventMalformed, 1);
            return None;
        };
        let process = who.known_process(global_pid(row))?;
        let sync = row[4].int().and_then(|sync| u64::try_from(sync).ok());
        Some(Self { process, correlation, stream, event: EventKey::stated(id, context, sync.unwrap_or(0)) })
    }
}

fn global_pid(row: &[Value<'_>]) -> u64 {
    row[5].int().map_or(0, |process| process as u64)
}

/// Reads the waits of the trace, whose work and calls are read before.
pub fn waits(db: &impl Tables, who: &Identity, trace: &mut Trace) -> Result<(), ReadError> {
    let mut rows = WaitRows::default();
    db.each("CUPTI_ACTIVITY_KIND_CUDA_EVENT", &COLUMNS, |row| {
        if let Some(Row { process, correlation, stream, event: Some(event) }) = Row::new(row, who, trace) {
            rows.records.push(EventRow { process, event, recorded: RecordedEvent { correlation, stream } });
        }
    })?;
    let columns: Vec<&str> = COLUMNS.into_iter().chain(["syncType"]).collect();
    db.each("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", &columns, |row| {
        let Some(Row { process, correlation, stream, event }) = Row::new(row, who, trace) else {
            return;
        };
        let small = |i: usize| row[i].int().and_then(|number| u32::try_from(number).ok());
        rows.waits.push(WaitRow {
            process,
            correlation,
            // Some versions give waits for a stream the number of waits of a stream.
            kind: small(7).and_then(WaitKind::from_cupti).map(|kind| match event {
                None if kind == WaitKind::StreamForEvent => WaitKind::Stream,
                _ => kind,
            }),
            stream: stated_stream(stream),
            device: small(6).and_then(|number| who.known_device(global_pid(row), number)),
            event,
            recorded: None,
        });
    })?;
    rows.settle(0, trace);
    Ok(())
}
