//! Waits for the GPU: of threads, and of streams for events that were recorded on others.

use super::{DeviceId, LossKind, ProcessId, Trace};
use rustc_hash::FxHashMap;

/// Kind of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitKind {
    /// A thread waits for all work of a device or context.
    Device,
    /// A thread waits for a stream.
    Stream,
    /// A thread waits for an event.
    Event,
    /// A stream waits for an event.
    StreamForEvent,
}

impl WaitKind {
    /// Returns the kind of the wait that a call makes, by its name; `None` for a call of another purpose.
    ///
    /// ```
    /// use roofgap_trace::WaitKind;
    /// assert_eq!(WaitKind::from_name("cudaStreamWaitEvent_v3020"), Some(WaitKind::StreamForEvent));
    /// assert_eq!(WaitKind::from_name("cuCtxSynchronize"), Some(WaitKind::Device));
    /// assert_eq!(WaitKind::from_name("cudaEventQuery_v3020"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        const NAMES: [(&str, WaitKind); 4] = [
            ("StreamWaitEvent", WaitKind::StreamForEvent),
            ("EventSynchronize", WaitKind::Event),
            ("StreamSynchronize", WaitKind::Stream),
            ("Synchronize", WaitKind::Device),
        ];
        NAMES.iter().find(|(part, _)| name.contains(part)).map(|(_, kind)| *kind)
    }

    /// Returns the name that the PyTorch profiler gives to such a wait.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Device => "Context Sync",
            Self::Stream => "Stream Sync",
            Self::Event => "Event Sync",
            Self::StreamForEvent => "Stream Wait Event",
        }
    }

    /// Returns the kind that the PyTorch profiler names so.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        let all = [Self::Device, Self::Stream, Self::Event, Self::StreamForEvent];
        all.into_iter().find(|kind| kind.as_str().as_bytes() == name)
    }

    /// Returns the kind of a record of CUPTI by its number.
    pub(crate) fn from_cupti(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Event),
            2 => Some(Self::StreamForEvent),
            3 => Some(Self::Stream),
            4 => Some(Self::Device),
            _ => None,
        }
    }
}

/// A wait that the tool recorded: of a thread for the GPU, or of a stream for an event of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The process.
    pub process: ProcessId,
    /// Correlation id of the call that waits, or makes the stream wait.
    pub correlation: u32,
    /// Kind.
    pub kind: WaitKind,
    /// Stream that is waited for, or, for [`WaitKind::StreamForEvent`], that waits; `None` where the tool does not say.
    pub stream: Option<u32>,
    /// Device of the stream, or that is waited for, where it is known.
    pub device: Option<DeviceId>,
    /// Record of the event; `None` without an event or where the tool does not say.
    pub event: Option<RecordedEvent>,
}

/// A call that recorded an event on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedEvent {
    /// Correlation id of the call; 0 where it is not known.
    pub correlation: u32,
    /// The stream.
    pub stream: u32,
}

impl Trace {
    /// Returns the recorded wait of a call. Rows are in order.
    pub fn wait_of(&self, process: ProcessId, correlation: u32) -> Option<&Wait> {
        let key = |wait: &Wait| (wait.process, wait.correlation);
        let at = self.waits.binary_search_by_key(&(process, correlation), key).ok()?;
        self.waits.get(at)
    }
}

/// Number by which CUPTI says that a record has no stream or no event.
const NONE: u32 = u32::MAX;

/// Returns the stream of a record of CUPTI; `None` where it has none.
pub(crate) fn stated_stream(stream: u32) -> Option<u32> {
    (stream != NONE).then_some(stream)
}

/// An event as the tool names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventKey {
    pub id: u64,
    pub context: u32,
    /// Number that a record and the waits for it share; `None` before CUPTI 12.8 and for an event that was never recorded.
    pub sync: Option<u64>,
}

impl EventKey {
    /// Returns the event of a record of CUPTI; `None` where it has none.
    pub fn stated(id: u32, context: u32, sync: u64) -> Option<Self> {
        let sync = Some(sync).filter(|sync| ![0, u64::from(NONE), u64::MAX].contains(sync));
        (id != NONE).then_some(Self { id: id.into(), context, sync })
    }
}

/// A wait as a tool lists it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitRow {
    pub process: ProcessId,
    pub correlation: u32,
    pub kind: Option<WaitKind>,
    pub stream: Option<u32>,
    pub device: Option<DeviceId>,
    pub event: Option<EventKey>,
    /// Record of the event, where the tool names it.
    pub recorded: Option<RecordedEvent>,
}

/// A record of an event as a tool lists it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventRow {
    pub process: ProcessId,
    pub event: EventKey,
    pub recorded: RecordedEvent,
}

/// Waits and records of events of one file.
#[derive(Debug, Default)]
pub(crate) struct WaitRows {
    pub waits: Vec<WaitRow>,
    pub records: Vec<EventRow>,
}

impl WaitRows {
    /// Adds the waits to the trace, whose calls from row `first` on are those of the file.
    ///
    /// The name of a call tells its kind better than the number in its record. A query has a record too, and is no wait.
    pub fn settle(self, first: usize, trace: &mut Trace) {
        if self.waits.is_empty() {
            return;
        }
        let kind_by_name = |(_, name): (_, &str)| match WaitKind::from_name(name) {
            None if !name.contains("Query") => None,
            kind => Some(kind),
        };
        let names: Vec<Option<Option<WaitKind>>> = trace.names.iter().map(kind_by_name).collect();
        let calls = &trace.calls;
        let kind_of_call = |row: usize| {
            let kind = names.get(calls.name[row].index()).copied().flatten()?;
            Some(((calls.process[row], calls.correlation[row]), kind))
        };
        let by_call: FxHashMap<_, _> = (first..calls.len()).filter_map(kind_of_call).collect();
        let records = EventRecords::new(self.records);
        for row in &self.waits {
            let &WaitRow { process, correlation, stream, device, .. } = row;
            let kind = match by_call.get(&(process, correlation)) {
                Some(None) => continue,
                Some(kind) => *kind,
                None => row.kind,
            };
            let Some(kind) = kind else {
                trace.losses.add(LossKind::EventUnknown, 1);
                continue;
            };
            let event = row.recorded.or_else(|| records.before(row));
            let event = event.filter(|_| matches!(kind, WaitKind::Event | WaitKind::StreamForEvent));
            trace.waits.push(Wait { process, correlation, kind, stream, device, event });
        }
    }
}

/// The records of events, for the waits to find theirs.
struct EventRecords {
    /// By event, context and correlation.
    rows: Vec<EventRow>,
    by_sync: FxHashMap<(ProcessId, u64), RecordedEvent>,
}

impl EventRecords {
    fn new(mut rows: Vec<EventRow>) -> Self {
        rows.sort_unstable_by_key(|row| {
            (row.process, row.event.id, row.event.context, row.recorded.correlation)
        });
        let by_sync = rows.iter().filter_map(|row| Some(((row.process, row.event.sync?), row.recorded)));
        Self { by_sync: by_sync.collect(), rows }
    }

    /// Returns the record that a wait is for: the one with its number, or, in older recordings, the latest record of the event before it.
    fn before(&self, wait: &WaitRow) -> Option<RecordedEvent> {
        let event = wait.event?;
        if !self.by_sync.is_empty() {
            return self.by_sync.get(&(wait.process, event.sync?)).copied();
        }
        let key = |row: &EventRow| (row.process, row.event.id);
        let begin = self.rows.partition_point(|row| key(row) < (wait.process, event.id));
        let end = self.rows.partition_point(|row| key(row) <= (wait.process, event.id));
        let rows = &self.rows[begin..end];
        let (first, last) = (rows.first()?.event.context, rows.last()?.event.context);
        // A stream may wait for an event of another context. Contexts number their events on their own.
        let context = if first == last { first } else { event.context };
        let place = |row: &EventRow| (row.event.context, row.recorded.correlation);
        let before = rows.partition_point(|row| place(row) < (context, wait.correlation));
        rows[..before].last().filter(|row| row.event.context == context).map(|row| row.recorded)
    }
}
