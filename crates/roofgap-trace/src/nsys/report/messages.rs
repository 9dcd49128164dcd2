//! Messages as rows: which event belongs to which table of an export, and which field is which column.

use crate::protobuf::{Fields, Malformed, Wire};
use crate::sqlite::Value;

/// A column: its name, the number of a field, and the number of a field inside that one, or 0.
type Column = (&'static str, u64, u64);

/// Number of a field that no message has: the number of the row.
const ROW_NUMBER: u64 = 0;

macro_rules! tables {
    ($($(#[$doc:meta])* $kind:ident, $name:literal, $columns:expr;)*) => {
        /// The tables that messages are sorted into.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Name of the table in an export, and its columns. Of two columns with one name, the later field counts.
            fn table(self) -> (&'static str, &'static [&'static [Column]]) {
                match self { $(Self::$kind => ($name, $columns),)* }
            }
        }
    };
}

tables! {
    Kernel, "CUPTI_ACTIVITY_KIND_KERNEL", &[GPU_WORK, &[
        ("demangledName", 101, 1), ("shortName", 101, 2), ("mangledName", 101, 3), ("gridX", 101, 10), ("gridY", 101, 11),
        ("gridZ", 101, 12), ("blockX", 101, 13), ("blockY", 101, 14), ("blockZ", 101, 15), ("staticSharedMemory", 101, 16),
        ("dynamicSharedMemory", 101, 17), ("registersPerThread", 101, 21), ("graphNodeId", 101, 27),
    ]];
    Copy, "CUPTI_ACTIVITY_KIND_MEMCPY", &[GPU_WORK, &[
        ("bytes", 102, 1), ("copyKind", 102, 2), ("srcKind", 102, 4), ("dstKind", 102, 5), ("graphNodeId", 102, 11),
    ]];
    Set, "CUPTI_ACTIVITY_KIND_MEMSET", &[GPU_WORK, &[("bytes", 103, 1), ("graphNodeId", 103, 3), ("memKind", 103, 4)]];
    Graph, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", &[GPU_WORK, &[("graphId", 107, 1)]];
    /// Calls into CUDA.
    Call, "CUPTI_ACTIVITY_KIND_RUNTIME", &[CALL];
    /// Calls into the system libraries.
    SystemCall, "OSRT_API", &[CALL];
    GraphNode, "CUDA_GRAPH_NODE_EVENTS", &[CALL, &[("graphNodeId", 33, 1), ("originalGraphNodeId", 33, 2)]];
    Nvtx, "NVTX_EVENTS", &[&[
        ("eventType", 1, 0), ("start", 2, 0), ("text", 7, 0), ("globalTid", 9, 0), ("end", 10, 0), ("endGlobalTid", 11, 0),
        ("textId", 12, 0), ("domainId", 13, 0),
    ]];
    Sample, "COMPOSITE_EVENTS", &[&[("id", ROW_NUMBER, 0), ("start", 1, 0), ("globalTid", 11, 0)]];
    /// Times at which a thread began or ceased to run.
    Switch, "SCHED_EVENTS", &[&[("start", 1, 0), ("isSchedIn", 4, 0), ("globalTid", 6, 0)]];
    Diagnostic, "DIAGNOSTIC_EVENT", &[&[("severity", 3, 0), ("text", 4, 0)]];
    /// Processes with their command and, later, their name.
    Process, "PROCESSES", &[&[("globalPid", 2, 0), ("name", 5, 0), ("name", 6, 0)]];
    ThreadName, "ThreadNames", &[&[("nameId", 2, 0), ("globalTid", 4, 0)]];
    Gpu, "TARGET_INFO_GPU", &[&[
        ("id", 1, 0), ("name", 2, 0), ("uuid", 5, 0), ("l2CacheSize", 10, 0), ("totalMemory", 11, 0), ("memoryBandwidth", 12, 0),
        ("clockRate", 13, 0), ("smCount", 14, 0), ("computeMajor", 41, 0), ("computeMinor", 42, 0),
    ]];
    /// GPUs as versions before 2021 have them.
    OldGpu, "TARGET_INFO_CUDA_GPU", &[&[
        ("name", 1, 0), ("globalMemorySize", 3, 0), ("l2CacheSize", 5, 0), ("numMultiprocessors", 9, 0),
        ("computeCapabilityMajor", 22, 0), ("computeCapabilityMinor", 23, 0), ("deviceId", 24, 0),
    ]];
    /// The number of a GPU in a process.
    CudaDevice, "TARGET_INFO_CUDA_DEVICE", &[&[("gpuId", 1, 0), ("cudaId", 2, 0), ("pid", 3, 0)]];
}

const GPU_WORK: &[Column] = &[
    ("start", 1, 0),
    ("end", 2, 0),
    ("correlationId", 3, 0),
    ("deviceId", 4, 0),
    ("streamId", 6, 0),
    ("globalPid", 8, 0),
];

const CALL: &[Column] =
    &[("start", 1, 0), ("end", 2, 0), ("correlationId", 3, 0), ("nameId", 7, 0), ("globalTid", 13, 0)];

impl Kind {
    /// Finds the table with a name of an export.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.table().0 == name)
    }

    /// Iterates over the columns.
    fn columns(self) -> impl Iterator<Item = &'static Column> {
        self.table().1.iter().copied().flatten()
    }

    pub fn has_column(self, name: &str) -> bool {
        self.columns().any(|column| column.0 == name)
    }
}

/// Destination of an event.
pub enum Route {
    /// A row of a table.
    Row(Kind),
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
    let mut found = (Route::Passed, &event[..0]);
    for field in Fields::of(event) {
        let (number @ 100.., Wire::Bytes(message)) = field? else { continue };
        let route = match number {
            102 => Route::Row(Kind::Nvtx),
            104 => Route::Row(Kind::Sample),
            106 => Route::Row(Kind::Switch),
            107 => gpu_work(message)?,
            108 => call(message)?,
            110 => Route::Row(Kind::Diagnostic),
            113 => Route::Row(Kind::Process),
            _ if number > LAST_EVENT || EVENTS.iter().any(|(known, _)| *known == number) => {
                Route::Unread(Unread::Event(number))
            }
            _ => Route::Passed,
        };
        found = (route, message);
    }
    Ok(found)
}

fn gpu_work(message: &[u8]) -> Result<Route, Malformed> {
    for field in Fields::of(message) {
        let (number @ 100.., Wire::Bytes(_)) = field? else { continue };
        return Ok(match number {
            101 => Route::Row(Kind::Kernel),
            102 => Route::Row(Kind::Copy),
            103 => Route::Row(Kind::Set),
            // Synchronisation and records of events.
            105 | 106 => Route::Passed,
            107 => Route::Row(Kind::Graph),
            _ => Route::Unread(Unread::Gpu(number)),
        });
    }
    Ok(Route::Unread(Unread::Gpu(0)))
}

fn call(message: &[u8]) -> Result<Route, Malformed> {
    for field in Fields::of(message) {
        let (6, Wire::Varint(class)) = field? else { continue };
        return Ok(match class {
            0 | 1 => Route::Row(Kind::Call),
            27 => Route::Row(Kind::SystemCall),
            77 => Route::Row(Kind::GraphNode),
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
    /// Number of a field, number inside it, position in the row.
    columns: Vec<(u64, u64, usize)>,
    width: usize,
}

impl Plan {
    pub fn new(kind: Kind, wanted: &[&str]) -> Self {
        let position = |name: &str| wanted.iter().position(|wanted| *wanted == name);
        let columns =
            kind.columns().filter_map(|&(name, field, inner)| Some((field, inner, position(name)?)));
        Self { columns: columns.collect(), width: wanted.len() }
    }

    /// Steps through messages that stand behind their lengths, the first of which is row `first`.
    pub fn rows(
        &self,
        messages: &[u8],
        first: u64,
        mut row: impl FnMut(&[Value<'_>]),
    ) -> Result<(), Malformed> {
        let mut values = vec![Value::Null; self.width];
        let mut cursor = Fields::of(messages);
        for number in first.. {
            if cursor.is_empty() {
                break;
            }
            let message = cursor.delimited()?;
            values.fill(Value::Null);
            self.fill(ROW_NUMBER, Wire::Varint(number), &mut values)?;
            for field in Fields::of(message) {
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
            for own in Fields::of(message) {
                let (own, value) = own?;
                for &(_, _, position) in
                    self.columns.iter().filter(|column| (column.0, column.1) == (field, own))
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
