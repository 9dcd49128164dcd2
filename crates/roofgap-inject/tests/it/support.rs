//! Runs the stand-in program with the library inside, as the driver and NVTX load it, and reads its captures.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(unreachable_pub, reason = "a module of several test files")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use roofgap_wire::{
    Ending, EventKind, HEADER_LEN, Message, Reader, Record, Status, WindowCause, older_segment,
};

/// Builds the programs that the tests run, once.
pub fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(build)
}

pub struct Built {
    pub program: PathBuf,
    pub cupti: PathBuf,
    pub old_cupti: PathBuf,
    pub library: PathBuf,
    pub pm: PathBuf,
    pub nvml: PathBuf,
}

fn build() -> Built {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand-in");
    let to = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let tests = std::env::current_exe().unwrap();
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let compile = |out: &str, source: &str, flags: &[&str]| {
        let (out, source) = (to.join(out), sources.join(source));
        if changed(&out) > changed(&source).max(changed(&tests)) {
            return out;
        }
        // Other test processes may compile the same file, or use it already.
        let unfinished = out.with_extension(std::process::id().to_string());
        let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        cc.args(["-O1", "-o"]).arg(&unfinished).arg(&source).args(flags).args(["-ldl", "-lpthread"]);
        let done = cc.output().expect("a C compiler");
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{} does not compile: {stderr}", source.display());
        std::fs::rename(&unfinished, &out).unwrap();
        out
    };
    // Cargo puts the cdylib beside the test's own executable.
    let library = tests.with_file_name("libroofgap_inject.so");
    assert!(library.exists(), "{} is missing", library.display());
    Built {
        program: compile("native-program", "program.c", &[]),
        cupti: compile("libcupti-standin.so", "cupti.c", &["-shared", "-fPIC"]),
        old_cupti: compile("libcupti-old.so", "cupti.c", &["-shared", "-fPIC", "-DOLD", "-DSMALL"]),
        library,
        pm: compile("libpm-standin.so", "pm.c", &["-shared", "-fPIC"]),
        nvml: compile("libnvml-standin.so", "nvml.c", &["-shared", "-fPIC"]),
    }
}

/// One run of the program and the folder its captures went to.
pub struct Run {
    pub folder: tempfile::TempDir,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Longest wait for a capture to have what a test needs.
pub const PATIENCE: Duration = Duration::from_secs(300);

pub fn run(how: &str, environment: &[(&str, &str)]) -> Run {
    run_until(how, environment, |_| true)
}

/// Runs the program, which waits for the end of its input where it awaits the test; that comes when a capture is `ready`.
pub fn run_until(how: &str, environment: &[(&str, &str)], ready: fn(&Capture) -> bool) -> Run {
    let built = built();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(&built.program);
    command
        .arg(how)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("CUDA_INJECTION64_PATH", &built.library)
        .env("NVTX_INJECTION64_PATH", &built.library)
        .env("CUPTI_LIBRARY", &built.cupti)
        .env("ROOFGAP_NATIVE_DIR", folder.path())
        .env("ROOFGAP_NATIVE_FLUSH_MS", "100");
    for (name, value) in environment {
        match *value {
            "" => command.env_remove(name),
            value => command.env(name, value),
        };
    }
    let mut child = command.spawn().unwrap();
    if !ready(&Capture::default()) {
        let deadline = Instant::now() + PATIENCE;
        let written = |path: &PathBuf| path.metadata().is_ok_and(|file| file.len() >= HEADER_LEN as u64);
        while !files(folder.path()).iter().filter(|path| written(path)).any(|path| ready(&read(path))) {
            assert!(Instant::now() < deadline, "{how}: the capture never has what is awaited");
            assert!(child.try_wait().unwrap().is_none(), "{how}: ended too early");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    drop(child.stdin.take());
    let done = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Run { folder, status: done.status, stdout: text(done.stdout), stderr: text(done.stderr) }
}

pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

/// Returns the names of the kernels of a capture, each once, in the order of their first launch.
pub fn kernel_names(capture: &Capture) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for kernel in &capture.kernels {
        if !names.contains(&kernel.0.as_str()) {
            names.push(&kernel.0);
        }
    }
    names
}

/// Returns true once the work that precedes every scenario is in the capture.
pub fn has_work(capture: &Capture) -> bool {
    capture.kernels.len() == 10 && capture.ranges == RANGES
}

impl Run {
    pub fn files(&self) -> Vec<PathBuf> {
        files(self.folder.path())
    }

    /// The only capture.
    pub fn capture(&self) -> Capture {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?} {}", self.stderr);
        read(&files[0])
    }
}

/// What a capture says, put together.
#[derive(Debug, Default)]
pub struct Capture {
    /// Kernel name, grid, whether a driver call launched it, graph node.
    pub kernels: Vec<(String, u32, bool, u64)>,
    /// Kernels whose call is not in the capture.
    pub without_call: usize,
    pub calls: Vec<String>,
    /// Kind, stream and event.
    pub syncs: Vec<(u8, u32, u64)>,
    pub copies: Vec<(u8, u64)>,
    pub sets: Vec<u64>,
    pub graphs: usize,
    pub devices: Vec<String>,
    /// Closed push/pop ranges as `domain@name`, in the order of their ends.
    pub ranges: Vec<String>,
    pub open: Vec<String>,
    pub started: Vec<String>,
    pub ended: usize,
    pub marks: Vec<String>,
    pub threads: Vec<u32>,
    pub losses: BTreeMap<String, (u64, String)>,
    pub malformed: usize,
    /// Edges of the recorded windows: where one begins, and the cause.
    pub edges: Vec<(bool, WindowCause)>,
    /// Variables of the launcher.
    pub launcher: Vec<(String, u32)>,
    pub host: String,
    pub version: u16,
    pub status: Option<Status>,
    pub ending: Option<Ending>,
}

pub fn read(path: &Path) -> Capture {
    // Only a file that follows another one may begin inside a range.
    let is_segment = path.extension().is_some_and(|end| end == "old") || older_segment(path).exists();
    let mut reader = Reader::open(BufReader::new(File::open(path).unwrap())).unwrap();
    let mut capture =
        Capture { status: reader.header().status, version: reader.header().version, ..Capture::default() };
    let (mut texts, mut shapes, mut call_names) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut domains, mut strings) = (BTreeMap::from([(0, String::new())]), BTreeMap::new());
    let mut launches = BTreeMap::new();
    let mut kernels = Vec::new();
    let mut stacks: BTreeMap<(u32, u32), Vec<String>> = BTreeMap::new();
    while let Some(records) = reader.next_frame().unwrap() {
        for record in records {
            match record {
                Record::TextEntry(entry) => drop(texts.insert(entry.id, entry.text.to_str().into_owned())),
                Record::LaunchShape(shape) => {
                    drop(shapes.insert(shape.id, (texts[&shape.name].clone(), shape)))
                }
                Record::CallName(entry) => {
                    drop(call_names.insert(entry.api, entry.name.to_str().into_owned()))
                }
                Record::Domain(entry) => drop(domains.insert(entry.id, entry.name.to_str().into_owned())),
                Record::Registered(entry) => drop(strings.insert(entry.id, entry.text.to_str().into_owned())),
                Record::Call(call) => {
                    launches.insert(call.correlation, call.api >> 31 == 1);
                    capture.calls.push(call_names[&call.api].clone());
                }
                Record::Kernel(kernel) => {
                    let (name, shape) = &shapes[&kernel.shape];
                    assert!(kernel.end > kernel.start, "every kernel has times");
                    kernels.push((name.clone(), shape.grid[0], kernel.correlation, kernel.node));
                }
                Record::SyncCall(sync) => {
                    assert!(sync.context == 1 && sync.correlation > 0 && sync.at > 0);
                    capture.syncs.push((sync.kind, sync.stream, sync.event));
                }
                Record::Memcpy(copy) => capture.copies.push((copy.kind, copy.bytes)),
                Record::Memset(set) => capture.sets.push(set.bytes),
                Record::GraphLaunch(_) => capture.graphs += 1,
                Record::Device(device) => capture.devices.push(device.name.to_str().into_owned()),
                Record::Thread(thread) => capture.threads.push(thread.tid),
                Record::NvtxEvent(event) => {
                    let text = match event.message {
                        Message::Inline(text) => text.to_str().into_owned(),
                        Message::Registered(id) => strings[&id].clone(),
                        Message::None => "(none)".into(),
                    };
                    let name = format!("{}@{text}", domains[&event.domain]);
                    match event.kind {
                        EventKind::Push => stacks.entry((event.tid, event.domain)).or_default().push(name),
                        EventKind::Start => capture.started.push(name),
                        EventKind::Mark => capture.marks.push(name),
                    }
                }
                Record::NvtxPop(pop) => {
                    let range = stacks.get_mut(&(pop.tid, pop.domain)).and_then(Vec::pop);
                    assert!(range.is_some() || is_segment, "a pop has its push");
                    capture.ranges.extend(range);
                }
                Record::NvtxEnd(_) => capture.ended += 1,
                Record::Loss(loss) => {
                    let value = (loss.count, loss.detail.to_str().into_owned());
                    capture.losses.insert(loss.id.to_str().into_owned(), value);
                }
                Record::Window(window) => {
                    use WindowCause::{Begin, Limit, Request, Steps, Time};
                    let causes = [Begin, Request, Steps, Time, Limit];
                    let cause = *causes.iter().find(|cause| cause.to_u8() == window.cause).unwrap();
                    capture.edges.push((window.on == 1, cause));
                }
                Record::LauncherVariable(variable) => {
                    let name = variable.name.to_str().into_owned();
                    capture.launcher.push((name, variable.value));
                }
                Record::Host(host) => capture.host = host.name.to_str().into_owned(),
                Record::Malformed(_) | Record::Unknown(_) => capture.malformed += 1,
                _ => {}
            }
        }
    }
    capture.without_call = kernels.iter().filter(|kernel| !launches.contains_key(&kernel.2)).count();
    capture.kernels = kernels
        .into_iter()
        .map(|(name, grid, id, node)| (name, grid, launches.get(&id).copied().unwrap_or(false), node))
        .collect();
    capture.open = stacks.into_values().flatten().collect();
    capture.ending = reader.ending();
    assert_eq!(capture.malformed, 0);
    capture
}

/// Waits, and records of events, of the program.
pub const SYNCS: [(u8, u32, u64); 5] =
    [(0, 7, 0x1000), (2, 13, 0x1000), (0, 13, 0x1000), (1, u32::MAX, 0x1000), (3, 7, 0)];

pub const RANGES: [&str; 5] = ["@sam", "LLM@prefill", "LLM@decode_step", "LLM@decode_step", "LLM@decode_all"];
