//! Messages as rows: which event belongs to which table of an export, and which field is which column.

use crate::protobuf::{Fields, Malformed, Wire};
use crate::sqlite::Value;
use std::sync::LazyLock;

/// Number of a field that no message has: the number of the row.
const ROW_NUMBER: u64 = 0;

/// The tables that messages are sorted into, in the order of `messages.tsv`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowKind {
    Kernel,
    Copy,
    Set,
    Graph,
    Wait,
    EventRecord,
    /// Calls into CUDA.
    Call,
    /// Calls into the system libraries.
    SystemCall,
    GraphNode,
    Nvtx,
    Sample,
    /// Times at which a thread began or ceased to run.
    Switch,
    Diagnostic,
    /// Processes with their command and, later, their name.
    Process,
    ThreadName,
    Gpu,
    /// GPUs as versions before 2021 have them.
    OldGpu,
    /// The number of a GPU in a process.
    CudaDevice,
}

/// A table: its name in an export, and its columns by name, number of a field, and number of a field inside that one, or 0. Of two columns
/// with one name, the later field counts.
type MessageTable = (&'static str, Vec<(&'static str, u64, u64)>);

pub static TABLES: LazyLock<Vec<MessageTable>> = LazyLock::new(|| {
    let column = |text: &'static str| {
        let (name, place) = text.split_once(':')?;
        let (field, inner) = place.split_once('.').unwrap_or((place, "0"));
        Some((name, field.parse().ok()?, inner.parse().ok()?))
    };
    let table = |line: &'static str| {
        let (name, columns) = line.split_once('\t')?;
        Some((name, columns.split(' ').filter_map(column).collect()))
    };
    include_str!("messages.tsv").lines().filter_map(table).collect()
});

/// Destination of an event.
pub enum Route {
    /// A row of a table.
    Row(RowKind),
    /// Not needed for anything that is said of a trace.
    Passed,
    /// A kind of event that is not read: the number of its message, or of the class of its call.
    Unread(Unread),
}

/// A kind of event that is not read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unread {
    Event(u64),
    Gpu(u64),
    Call(u64),
}

impl Unread {
    /// Names the events for a message.
    pub fn name(self) -> String {
        let (what, number, known): (_, _, &[(u64, &str)]) = match self {
            Self::Event(number) => ("events", number, &EVENTS),
            Self::Gpu(number) => ("GPU events", number, &[]),
            Self::Call(number) => ("calls", number, &CLASSES),
        };
        match known.iter().find(|(known, _)| *known == number) {
            Some((_, name)) => format!("{what}: {name}"),
            None => format!("{what} of kind {number}"),
        }
    }
}

/// Events that are not read, by the number of their message.
const EVENTS: [(u64, &str); 15] = [
    (105, "power"),
    (111, "memory bandwidth"),
    (112, "OpenGL debug marks"),
    (114, "GPU context switches"),
    (115, "imported NVTX text"),
    (119, "CPU counters"),
    (120, "OpenACC"),
    (121, "unit trace"),
    (122, "uncore counters"),
    (123, "GPU memory usage"),
    (124, "page faults of the CPU in unified memory"),
    (125, "page faults of the GPU in unified memory"),
    (126, "network counters"),
    (129, "memory pools"),
    (130, "video engine"),
];

/// Calls that are not read, by their class.
const CLASSES: [(u64, &str); 8] = [
    (2, "OpenGL"),
    (28, "cuDNN"),
    (29, "cuBLAS"),
    (41, "DX12"),
    (48, "OpenACC"),
    (53, "Vulkan"),
    (78, "OpenMP"),
    (98, "OpenCL"),
];

/// The last class of calls, and the last message of an event, with a known meaning. Later ones may matter.
const LAST_CLASS: u64 = 111;
const LAST_EVENT: u64 = 133;

/// Finds the table of an event and the message that is its row.
pub fn route(event: &[u8]) -> Result<(Route, &[u8]), Malformed> {
    let mut routed = (Route::Passed, &event[..0]);
    for field in Fields::new(event) {
        let (number @ 100.., Wire::Bytes(message)) = field? else { continue };
        let route = match number {
            102 => Route::Row(RowKind::Nvtx),
            104 => Route::Row(RowKind::Sample),
            106 => Route::Row(RowKind::Switch),
            107 => gpu_work(message)?,
            108 => call(message)?,
            110 => Route::Row(RowKind::Diagnostic),
            113 => Route::Row(RowKind::Process),
            _ if number > LAST_EVENT || EVENTS.iter().any(|(known, _)| *known == number) => {
                Route::Unread(Unread::Event(number))
            }
            _ => Route::Passed,
        };
        routed = (route, message);
    }
    Ok(routed)
}

fn gpu_work(message: &[u8]) -> Result<Route, Malformed> {
    for field in Fields::new(message) {
        let (number @ 100.., Wire::Bytes(_)) = field? else { continue };
        return Ok(match number {
            101 => Route::Row(RowKind::Kernel),
            102 => Route::Row(RowKind::Copy),
            103 => Route::Row(RowKind::Set),
            105 => Route::Row(RowKind::Wait),
            106 => Route::Row(RowKind::EventRecord),
            107 => Route::Row(RowKind::Graph),
            _ => Route::Unread(Unread::Gpu(number)),
        });
    }
    Ok(Route::Unread(Unread::Gpu(0)))
}

fn call(message: &[u8]) -> Result<Route, Malformed> {
    for field in Fields::new(message) {
        let (6, Wire::Varint(class)) = field? else { continue };
        return Ok(match class {
            0 | 1 => Route::Row(RowKind::Call),
            27 => Route::Row(RowKind::SystemCall),
            77 => Route::Row(RowKind::GraphNode),
            _ if class > LAST_CLASS || CLASSES.iter().any(|(known, _)| *known == class) => {
                Route::Unread(Unread::Call(class))
            }
            _ => Route::Passed,
        });
    }
    Ok(Route::Passed)
}

/// Columns to be taken from the messages of a table.
pub struct Plan {
    /// Position in [`TABLES`].
    pub table: usize,
    /// Number of a field, number inside it, position in the row.
    pub columns: Vec<(u64, u64, usize)>,
    width: usize,
}

impl Plan {
    /// Plans the reading of some columns of a table; `None` for a table without messages.
    pub fn new(table: &str, wanted: &[&str]) -> Option<Self> {
        let table = TABLES.iter().position(|(name, _)| *name == table)?;
        let position = |name: &str| wanted.iter().position(|wanted| *wanted == name);
        let columns =
            TABLES[table].1.iter().filter_map(|&(name, field, inner)| Some((field, inner, position(name)?)));
        Some(Self { table, columns: columns.collect(), width: wanted.len() })
    }

    /// Steps through messages that stand behind their lengths, the first of which is row `first`.
    pub fn rows(
        &self,
        messages: &[u8],
        first: u64,
        mut row: impl FnMut(&[Value<'_>]),
    ) -> Result<(), Malformed> {
        let mut values = vec![Value::Null; self.width];
        let mut cursor = Fields::new(messages);
        for number in first.. {
            if cursor.is_empty() {
                break;
            }
            let message = cursor.delimited()?;
            values.fill(Value::Null);
            self.fill(ROW_NUMBER, Wire::Varint(number), &mut values)?;
            for field in Fields::new(message) {
                let (field, value) = field?;
                self.fill(field, value, &mut values)?;
            }
            row(&values);
        }
        Ok(())
    }

    fn fill<'a>(&self, field: u64, value: Wire<'a>, values: &mut [Value<'a>]) -> Result<(), Malformed> {
        let mut inside = false;
        for &(_, inner, position) in self.columns.iter().filter(|column| column.0 == field) {
            inside |= inner != 0;
            if let (0, Some(place)) = (inner, values.get_mut(position)) {
                *place = cell(value);
            }
        }
        if let (true, Wire::Bytes(message)) = (inside, value) {
            for inner_field in Fields::new(message) {
                let (inner_field, value) = inner_field?;
                for &(_, _, position) in
                    self.columns.iter().filter(|column| (column.0, column.1) == (field, inner_field))
                {
                    if let Some(place) = values.get_mut(position) {
                        *place = cell(value);
                    }
                }
            }
        }
        Ok(())
    }
}

fn cell(value: Wire<'_>) -> Value<'_> {
    match value {
        Wire::Varint(number) | Wire::Fixed64(number) => Value::Int(number as i64),
        Wire::Fixed32(number) => Value::Int(i64::from(number)),
        Wire::Bytes(text) => Value::Text(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the kind moved in 2025, when events got a number that a record and its waits share.
    #[test]
    fn a_wait_has_its_kind_in_old_and_new_reports() {
        let row = |table: &str, message: &[u8]| {
            let plan = Plan::new(table, &["eventId", "eventSyncId", "syncType"]).unwrap();
            let mut row = Vec::new();
            let messages = [&[message.len() as u8], message].concat();
            plan.rows(&messages, 0, |values| row = values.iter().map(|value| value.int()).collect()).unwrap();
            row
        };
        let wait = |inner: &[u8]| {
            row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", &[&[0xca, 6, inner.len() as u8], inner].concat())
        };
        assert_eq!(wait(&[8, 5, 16, 1]), [Some(5), None, Some(1)]);
        assert_eq!(wait(&[8, 5, 24, 9, 32, 2]), [Some(5), Some(9), Some(2)]);
        let record = [0xd2, 6, 4, 8, 5, 16, 9];
        assert_eq!(row("CUPTI_ACTIVITY_KIND_CUDA_EVENT", &record), [Some(5), Some(9), None]);
    }
}
