//! Settings from the environment, and the place of the process in a distributed job: variables of its launcher, and its host.

use roofgap_wire::{FrameBuilder, Host, LauncherVariable, Record, Text};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a recording.
#[derive(Debug, Clone)]
pub struct Options {
    /// `ROOFGAP_NATIVE_DIR`: folder of the file. Without it nothing is recorded.
    pub folder: PathBuf,
    /// `ROOFGAP_NATIVE_COPIES`: copies and sets on the GPU (`0` leaves them out).
    pub copies: bool,
    /// `ROOFGAP_NATIVE_HARDWARE`: `1` has the GPU itself time kernels, where it can (Blackwell).
    pub hardware: bool,
    /// `ROOFGAP_NATIVE_GRAPH`: `graph` records a graph launch as a whole, `node` (the default) each kernel.
    pub whole_graphs: bool,
    /// `ROOFGAP_NATIVE_NODES`: recording of the nodes of graphs as they are created.
    pub nodes: Nodes,
    /// `ROOFGAP_NATIVE_FLUSH_MS`: interval of CUPTI flushes; 0 for none.
    pub flush_every: Option<Duration>,
    /// `ROOFGAP_NATIVE_MAX_MB`: size limit of the file.
    pub limit: u64,
    /// `ROOFGAP_NATIVE_MAX_S`: time limit of a window, after which GPU work is not recorded until the next request.
    pub armed_limit: Option<Duration>,
    /// `ROOFGAP_NATIVE_LAST_MS`: keeps only the last events, between this time and twice of it.
    pub keep_last: Option<Duration>,
    /// `ROOFGAP_NATIVE_DORMANT`: records no GPU work until it is requested.
    pub dormant: Option<Dormant>,
    /// `ROOFGAP_NATIVE_CONTROL`: private folder of the control sockets, one per process.
    pub control: Option<PathBuf>,
    /// `ROOFGAP_NATIVE_DUTY`, `_MS`, `_STEPS` and `_FIRST`: records a part of the steps or of the time.
    pub duty: Option<Duty>,
    /// Settings of CUPTI's buffers.
    pub buffers: Buffers,
}

/// Recording of the nodes of graphs as they are created, by which a kernel of a graph gets the ranges of its capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// `0`: never.
    Off,
    /// While GPU work is recorded.
    Armed,
    /// `always`: from the moment CUPTI is loaded. Engines capture their graphs as they start.
    Always,
}

/// State of CUPTI while a recording that starts dormant waits for its first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dormant {
    /// `1`: CUPTI is loaded and subscribed, and records nothing.
    Loaded,
    /// `lazy`: CUPTI is loaded on the first request.
    Lazy,
}

/// A duty cycle: `steps` steps in a row of `every` times as many, or one of `every` windows of time where the program has no step
/// ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duty {
    pub every: u32,
    pub window: Duration,
    /// Number of first steps of each kind that are all recorded.
    pub first: u32,
    /// Number of steps that are recorded in a row. Turning the recording on and off costs as much as a part of a step.
    pub steps: u32,
}

/// Settings of CUPTI's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// `ROOFGAP_NATIVE_BUFFER_KB`: length of a buffer for records, bytes.
    pub size: usize,
    /// `ROOFGAP_NATIVE_BUFFERS`: number of these buffers.
    pub count: usize,
}

/// Default flush interval, ms: little is lost when a program is killed, and the cost is negligible.
const FLUSH_MS: u64 = 1_000;
const MAX_MB: u64 = 4_096;

/// Default window of a duty cycle by time, ms.
const DUTY_MS: u64 = 50;

/// Default number of first steps that are all recorded: a program with few steps is recorded as a whole.
const DUTY_FIRST: u64 = 64;

/// Default number of steps that are recorded in a row.
const DUTY_STEPS: u64 = 8;

/// Default length of a buffer, KiB: about ten thousand kernels.
const BUFFER_KB: u64 = 2_048;

/// Default number of buffers. When all are full, CUPTI drops records and counts them.
const BUFFERS: u64 = 96;

impl Options {
    /// Returns true if GPU work is recorded from the start to the end.
    pub fn is_continuous(&self) -> bool {
        self.dormant.is_none() && self.duty.is_none() && self.control.is_none()
    }

    /// Reads the environment through `get`; `None` when nothing is to be recorded.
    pub fn read(get: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<Self> {
        let folder = get("ROOFGAP_NATIVE_DIR").filter(|value| !value.is_empty()).map(PathBuf::from)?;
        let text = |name: &str| get(name).and_then(|value| value.into_string().ok());
        let is = |name: &str, value: &str| get(name).is_some_and(|given| given == value);
        let number = |name: &str, otherwise: u64| {
            text(name).and_then(|value| value.trim().parse().ok()).unwrap_or(otherwise)
        };
        let some = |name: &str| Some(number(name, 0)).filter(|&value| value > 0);
        let whole_graphs = is("ROOFGAP_NATIVE_GRAPH", "graph");
        let flush = number("ROOFGAP_NATIVE_FLUSH_MS", FLUSH_MS);
        let kib = |value: u64| usize::try_from(value.saturating_mul(1 << 10)).unwrap_or(usize::MAX);
        let window = Duration::from_millis(number("ROOFGAP_NATIVE_DUTY_MS", DUTY_MS).max(1));
        let count = |name: &str, otherwise| u32::try_from(number(name, otherwise)).unwrap_or(u32::MAX);
        let first = count("ROOFGAP_NATIVE_DUTY_FIRST", DUTY_FIRST);
        let steps = count("ROOFGAP_NATIVE_DUTY_STEPS", DUTY_STEPS).max(1);
        Some(Self {
            folder,
            copies: !is("ROOFGAP_NATIVE_COPIES", "0"),
            hardware: is("ROOFGAP_NATIVE_HARDWARE", "1"),
            whole_graphs,
            nodes: match text("ROOFGAP_NATIVE_NODES").as_deref() {
                // Whole graphs have no kernels.
                _ if whole_graphs => Nodes::Off,
                Some("0") => Nodes::Off,
                Some("always") => Nodes::Always,
                _ => Nodes::Armed,
            },
            flush_every: (flush > 0).then(|| Duration::from_millis(flush)),
            limit: number("ROOFGAP_NATIVE_MAX_MB", MAX_MB).max(1).saturating_mul(1 << 20),
            armed_limit: some("ROOFGAP_NATIVE_MAX_S").map(Duration::from_secs),
            keep_last: some("ROOFGAP_NATIVE_LAST_MS").map(Duration::from_millis),
            dormant: match text("ROOFGAP_NATIVE_DORMANT").as_deref() {
                Some("1") => Some(Dormant::Loaded),
                Some("lazy") => Some(Dormant::Lazy),
                _ => None,
            },
            control: get("ROOFGAP_NATIVE_CONTROL").filter(|value| !value.is_empty()).map(PathBuf::from),
            duty: u32::try_from(number("ROOFGAP_NATIVE_DUTY", 0))
                .ok()
                .filter(|&every| every > 1)
                .map(|every| Duty { every, window, first, steps }),
            buffers: Buffers {
                // At least one page, and whole pages, so that every buffer is aligned.
                size: kib(number("ROOFGAP_NATIVE_BUFFER_KB", BUFFER_KB).clamp(4, 1 << 20)) & !0xfff,
                count: number("ROOFGAP_NATIVE_BUFFERS", BUFFERS).clamp(2, 4_096) as usize,
            },
        })
    }
}

/// Variables of torchrun, Open MPI, MPICH and Slurm. No other variable is recorded.
const VARIABLES: [&str; 11] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
];

/// Rank variables and host name, as they were when the recording began.
pub struct Launcher {
    variables: Vec<(&'static str, u32)>,
    host: Vec<u8>,
}

impl Launcher {
    /// Reads the variables that hold a number, and the host name.
    pub fn read(get: impl Fn(&str) -> Option<OsString>) -> Self {
        let number = |name: &'static str| Some((name, get(name)?.to_str()?.parse().ok()?));
        let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            variables: VARIABLES.into_iter().filter_map(number).collect(),
            host: host.trim_ascii_end().to_vec(),
        }
    }

    /// Adds the records to a frame.
    pub fn put(&self, frame: &mut FrameBuilder) {
        for (name, value) in &self.variables {
            frame.put(&Record::LauncherVariable(LauncherVariable {
                value: *value,
                name: Text(name.as_bytes()),
            }));
        }
        if !self.host.is_empty() {
            frame.put(&Record::Host(Host { name: Text(&self.host) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Option<Options> {
        Options::read(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.into()))
    }

    #[test]
    fn without_a_folder_nothing_is_recorded() {
        assert!(read(&[]).is_none());
        assert!(read(&[("ROOFGAP_NATIVE_DIR", "")]).is_none());
    }

    #[test]
    fn defaults_record_everything() {
        let options = read(&[("ROOFGAP_NATIVE_DIR", "/x")]).unwrap();
        assert!(options.copies && !options.whole_graphs);
        assert_eq!(options.flush_every, Some(Duration::from_secs(1)));
        assert_eq!(options.limit, 4 << 30);
        assert_eq!((options.dormant, options.duty, options.keep_last), (None, None, None));
        assert_eq!((options.buffers.size, options.buffers.count), (2 << 20, 96));
        assert_eq!(options.nodes, Nodes::Armed);
    }

    #[test]
    fn nodes_of_graphs_are_recorded_as_requested() {
        let nodes = |value: &str, graph: &str| {
            let pairs = [
                ("ROOFGAP_NATIVE_DIR", "/x"),
                ("ROOFGAP_NATIVE_NODES", value),
                ("ROOFGAP_NATIVE_GRAPH", graph),
            ];
            read(&pairs).unwrap().nodes
        };
        assert_eq!(nodes("0", "node"), Nodes::Off);
        assert_eq!(nodes("always", "node"), Nodes::Always);
        assert_eq!(nodes("nonsense", "node"), Nodes::Armed);
        assert_eq!(nodes("always", "graph"), Nodes::Off);
    }

    #[test]
    fn a_part_of_the_program_can_be_recorded() {
        let options = read(&[
            ("ROOFGAP_NATIVE_DIR", "/x"),
            ("ROOFGAP_NATIVE_DORMANT", "lazy"),
            ("ROOFGAP_NATIVE_CONTROL", "/run/x"),
            ("ROOFGAP_NATIVE_DUTY", "8"),
            ("ROOFGAP_NATIVE_DUTY_MS", "20"),
            ("ROOFGAP_NATIVE_MAX_S", "60"),
            ("ROOFGAP_NATIVE_LAST_MS", "10000"),
        ])
        .unwrap();
        let window = Duration::from_millis(20);
        assert_eq!(options.dormant, Some(Dormant::Lazy));
        assert_eq!(options.control, Some(PathBuf::from("/run/x")));
        let duty = |first, steps| Duty { every: 8, window, first, steps };
        assert_eq!(options.duty, Some(duty(64, 8)));
        assert_eq!(options.armed_limit, Some(Duration::from_secs(60)));
        assert_eq!(options.keep_last, Some(Duration::from_secs(10)));
        let none_first = [
            ("ROOFGAP_NATIVE_DIR", "/x"),
            ("ROOFGAP_NATIVE_DUTY", "8"),
            ("ROOFGAP_NATIVE_DUTY_MS", "20"),
            ("ROOFGAP_NATIVE_DUTY_FIRST", "0"),
            ("ROOFGAP_NATIVE_DUTY_STEPS", "0"),
        ];
        assert_eq!(read(&none_first).unwrap().duty, Some(duty(0, 1)));
        let every_step = [("ROOFGAP_NATIVE_DIR", "/x"), ("ROOFGAP_NATIVE_DUTY", "1")];
        assert_eq!(read(&every_step).unwrap().duty, None);
    }

    #[test]
    fn the_cost_of_recording_can_be_chosen() {
        let options = read(&[
            ("ROOFGAP_NATIVE_DIR", "/x"),
            ("ROOFGAP_NATIVE_BUFFER_KB", "6"),
            ("ROOFGAP_NATIVE_BUFFERS", "1"),
        ])
        .unwrap();
        let expected = Buffers { size: 4 << 10, count: 2 };
        assert_eq!(options.buffers, expected);
    }

    #[test]
    fn each_setting_is_heard_and_nonsense_is_not() {
        let options = read(&[
            ("ROOFGAP_NATIVE_DIR", "/x"),
            ("ROOFGAP_NATIVE_COPIES", "0"),
            ("ROOFGAP_NATIVE_GRAPH", "graph"),
            ("ROOFGAP_NATIVE_FLUSH_MS", "0"),
            ("ROOFGAP_NATIVE_MAX_MB", "many"),
        ])
        .unwrap();
        assert!(!options.copies && options.whole_graphs);
        assert_eq!(options.flush_every, None);
        assert_eq!(options.limit, 4 << 30);
    }

    #[test]
    fn only_numbers_of_known_variables_are_kept() {
        let get = |name: &str| {
            let value = match name {
                "RANK" => "3",
                "WORLD_SIZE" => "8",
                "SLURM_PROCID" => "three",
                "PMI_RANK" => "-1",
                "OMPI_COMM_WORLD_RANK" => return None,
                _ => "",
            };
            Some(OsString::from(value))
        };
        let launcher = Launcher::read(get);
        assert_eq!(launcher.variables, [("RANK", 3), ("WORLD_SIZE", 8)]);
    }
}
