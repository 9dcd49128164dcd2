//! The library inside a program: loaded as the driver and NVTX load it, fed by a stand-in CUPTI, ended in every way.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "asks for the user")]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may panic"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use roofgap_wire::{
    CutReason, EndKind, Ending, EventKind, HEADER_LEN, Message, Reader, Record, Status, WindowCause,
    note_path, older_segment,
};

/// Builds the programs that the tests run, once.
fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(build)
}

struct Built {
    program: PathBuf,
    cupti: PathBuf,
    old_cupti: PathBuf,
    library: PathBuf,
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
        cc.args(["-O1", "-o"])
            .arg(&unfinished)
            .arg(&source)
            .args(flags)
            .args(["-ldl", "-lpthread"]);
        let done = cc.output().expect("a C compiler");
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.success(),
            "{} does not compile: {stderr}",
            source.display()
        );
        std::fs::rename(&unfinished, &out).unwrap();
        out
    };
    // Cargo puts the cdylib beside the test's own executable.
    let library = tests.with_file_name("libroofgap_inject.so");
    assert!(library.exists(), "{} is missing", library.display());
    Built {
        program: compile("native-program", "program.c", &[]),
        cupti: compile("libcupti-standin.so", "cupti.c", &["-shared", "-fPIC"]),
        old_cupti: compile(
            "libcupti-old.so",
            "cupti.c",
            &["-shared", "-fPIC", "-DOLD", "-DSMALL"],
        ),
        library,
    }
}

/// One run of the program and the folder its captures went to.
struct Run {
    folder: tempfile::TempDir,
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

/// Longest wait for a capture to have what a test needs.
const PATIENCE: Duration = Duration::from_secs(120);

fn run(how: &str, environment: &[(&str, &str)]) -> Run {
    run_until(how, environment, |_| true)
}

/// Runs the program, which waits for the end of its input where it awaits the test; that comes when a capture is `ready`.
fn run_until(how: &str, environment: &[(&str, &str)], ready: fn(&Capture) -> bool) -> Run {
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
        while !files(folder.path())
            .iter()
            .filter(|path| written(path))
            .any(|path| ready(&read(path)))
        {
            assert!(
                Instant::now() < deadline,
                "{how}: the capture never has what is awaited"
            );
            assert!(child.try_wait().unwrap().is_none(), "{how}: ended too early");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    drop(child.stdin.take());
    let done = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Run {
        folder,
        status: done.status,
        stdout: text(done.stdout),
        stderr: text(done.stderr),
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    files
}

/// Returns the names of the kernels of a capture, each once, in the order of their first launch.
fn kernel_names(capture: &Capture) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for kernel in &capture.kernels {
        if !names.contains(&kernel.0.as_str()) {
            names.push(&kernel.0);
        }
    }
    names
}

/// Returns true once the work that precedes every scenario is in the capture.
fn has_work(capture: &Capture) -> bool {
    capture.kernels.len() == 10 && capture.ranges == RANGES
}

impl Run {
    fn files(&self) -> Vec<PathBuf> {
        files(self.folder.path())
    }

    /// The only capture.
    fn capture(&self) -> Capture {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?} {}", self.stderr);
        read(&files[0])
    }
}

/// What a capture says, put together.
#[derive(Debug, Default)]
struct Capture {
    /// Kernel name, grid, whether a driver call launched it, graph node.
    kernels: Vec<(String, u32, bool, u64)>,
    /// Kernels whose call is not in the capture.
    without_call: usize,
    calls: Vec<String>,
    copies: Vec<(u8, u64)>,
    sets: Vec<u64>,
    syncs: Vec<u32>,
    graphs: usize,
    devices: Vec<String>,
    /// Closed push/pop ranges as `domain@name`, in the order of their ends.
    ranges: Vec<String>,
    open: Vec<String>,
    started: Vec<String>,
    ended: usize,
    marks: Vec<String>,
    threads: Vec<u32>,
    losses: BTreeMap<String, (u64, String)>,
    malformed: usize,
    /// Edges of the recorded windows: where one begins, and the cause.
    edges: Vec<(bool, WindowCause)>,
    /// Variables of the launcher.
    launcher: Vec<(String, u32)>,
    host: String,
    version: u16,
    status: Option<Status>,
    ending: Option<Ending>,
}

fn read(path: &Path) -> Capture {
    let mut reader = Reader::open(BufReader::new(File::open(path).unwrap())).unwrap();
    let mut capture = Capture {
        status: reader.header().status,
        version: reader.header().version,
        ..Capture::default()
    };
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
                    assert!(kernel.end > kernel.start);
                    kernels.push((name.clone(), shape.grid[0], kernel.correlation, kernel.node));
                }
                Record::Memcpy(copy) => capture.copies.push((copy.kind, copy.bytes)),
                Record::Memset(set) => capture.sets.push(set.bytes),
                Record::Synchronization(sync) => capture.syncs.push(sync.kind),
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
                    // Only a file that begins in the middle has a pop without its push.
                    let begins_late = capture.edges.first() == Some(&(true, WindowCause::Begin));
                    assert!(range.is_some() || begins_late, "a pop has its push");
                    capture.ranges.extend(range);
                }
                Record::NvtxEnd(_) => capture.ended += 1,
                Record::Loss(loss) => {
                    let value = (loss.count, loss.detail.to_str().into_owned());
                    capture.losses.insert(loss.id.to_str().into_owned(), value);
                }
                Record::Window(window) => {
                    let cause = WindowCause::from_u8(window.cause);
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
    capture.without_call = kernels
        .iter()
        .filter(|kernel| !launches.contains_key(&kernel.2))
        .count();
    capture.kernels = kernels
        .into_iter()
        .map(|(name, grid, id, node)| (name, grid, launches.get(&id).copied().unwrap_or(false), node))
        .collect();
    capture.open = stacks.into_values().flatten().collect();
    capture.ending = reader.ending();
    assert_eq!(capture.malformed, 0);
    capture
}

const RANGES: [&str; 5] = [
    "@sam",
    "LLM@prefill",
    "LLM@decode_step",
    "LLM@decode_step",
    "LLM@decode_all",
];

#[test]
fn a_program_that_ends_in_order_is_recorded_whole() {
    let run = run("exit", &[("ROOFGAP_NATIVE_SYNC", "1")]);
    assert!(run.status.success(), "{}", run.stderr);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("done\n", ""));
    let capture = run.capture();
    let names: Vec<(&str, u32, bool)> = capture.kernels.iter().map(|k| (k.0.as_str(), k.1, k.2)).collect();
    assert_eq!(
        names,
        [
            ("kernel_a", 1, false),
            ("kernel_b", 2, false),
            ("kernel_a", 3, false),
            ("kernel_b", 1, false),
            ("kernel_a", 2, true),
            ("kernel_c", 9, false),
            ("kernel_c", 9, false),
            ("graph_kernel", 4, false),
            ("graph_kernel", 4, false),
            ("graph_kernel", 4, false),
        ]
    );
    assert_eq!(
        capture
            .kernels
            .iter()
            .map(|k| k.3)
            .filter(|&node| node > 0)
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert!(
        !capture.calls.iter().any(|name| name.contains("GetDevice")),
        "{:?}",
        capture.calls
    );
    assert_eq!(capture.copies, [(1, 4096), (10, 4097)]);
    assert_eq!(
        (capture.sets, capture.syncs, capture.graphs),
        (vec![4098], vec![3], 0)
    );
    assert_eq!(capture.devices, ["Stand-in H200"]);
    assert_eq!(capture.ranges, RANGES);
    assert_eq!(
        (capture.started, capture.ended),
        (vec!["@request".to_string()], 1)
    );
    assert_eq!(capture.marks, ["@done"]);
    assert!(capture.losses.is_empty(), "{:?}", capture.losses);
    assert_eq!(capture.ending, Some(Ending::Complete { how: EndKind::Exit }));
}

#[test]
fn copies_and_graph_nodes_can_be_left_out() {
    let run = run(
        "exit",
        &[("ROOFGAP_NATIVE_COPIES", "0"), ("ROOFGAP_NATIVE_GRAPH", "graph")],
    );
    let capture = run.capture();
    assert!(capture.copies.is_empty() && capture.sets.is_empty());
    assert_eq!((capture.graphs, capture.kernels.len()), (1, 7));
}

#[test]
fn an_older_cupti_has_its_calls_timed_in_callbacks() {
    let built = built();
    let cupti = built.old_cupti.to_str().unwrap();
    let run = run("exit", &[("CUPTI_LIBRARY", cupti)]);
    let capture = run.capture();
    let launches = |name: &str| capture.calls.iter().filter(|call| call.contains(name)).count();
    // Reading the capture has found the call of every kernel; the driver's part of a runtime launch is not one more.
    assert_eq!(capture.kernels.len(), 10);
    assert_eq!((launches("cudaLaunchKernel"), launches("cuLaunchKernel")), (6, 1));
    assert_eq!(launches("GetDevice"), 0);
    assert!(capture.losses.is_empty(), "{:?}", capture.losses);
}

#[test]
fn recording_every_call_says_so() {
    let run = run("exit", &[("ROOFGAP_NATIVE_CALLS", "all")]);
    let capture = run.capture();
    assert_eq!(capture.kernels.len(), 10);
    assert!(capture.calls.iter().any(|name| name.contains("GetDevice")));
    assert!(capture.losses.contains_key("cupti.all_calls"));
}

#[test]
fn another_profiler_leaves_the_annotations_and_a_loss() {
    let run = run("exit", &[("STANDIN_SUBSCRIBE", "39")]);
    assert!(run.status.success());
    let capture = run.capture();
    assert!(capture.kernels.is_empty());
    assert_eq!(capture.ranges, RANGES);
    assert!(
        capture.losses.contains_key("cupti.other_profiler"),
        "{:?}",
        capture.losses
    );
}

#[test]
fn a_cupti_that_refuses_or_is_missing_is_a_loss() {
    let refused = run("exit", &[("STANDIN_REFUSE", "38"), ("ROOFGAP_NATIVE_SYNC", "1")]);
    let capture = refused.capture();
    assert_eq!(capture.kernels.len(), 10);
    assert!(
        capture.losses["cupti.kind_refused"].1.contains("waits"),
        "{:?}",
        capture.losses
    );
    let missing = run("exit", &[("CUPTI_LIBRARY", "/nowhere/libcupti.so")]);
    assert!(missing.status.success());
    let capture = missing.capture();
    assert!(
        capture.losses["cupti.missing"].1.contains("/nowhere/libcupti.so"),
        "{:?}",
        capture.losses
    );
    assert_eq!(capture.ranges, RANGES);
}

#[test]
fn without_a_folder_nothing_happens() {
    let absent = run("exit", &[("ROOFGAP_NATIVE_DIR", "")]);
    assert!(absent.status.success());
    assert_eq!((absent.stdout.as_str(), absent.stderr.as_str()), ("done\n", ""));
    assert!(absent.files().is_empty());
    let nowhere = run("exit", &[("ROOFGAP_NATIVE_DIR", "/nowhere/at/all")]);
    assert!(nowhere.status.success());
    assert_eq!((nowhere.stdout.as_str(), nowhere.stderr.as_str()), ("done\n", ""));
}

#[test]
fn a_program_that_never_touches_cuda_is_left_alone() {
    let run = run("nothing", &[]);
    assert!(run.status.success());
    assert_eq!(run.stdout, "done\n");
    assert!(run.files().is_empty());
}

#[test]
fn annotations_alone_are_recorded() {
    let run = run("nvtx-only", &[]);
    let capture = run.capture();
    assert_eq!(capture.ranges, RANGES);
    assert!(capture.kernels.is_empty() && capture.losses.is_empty());
    assert_eq!(capture.ending, Some(Ending::Complete { how: EndKind::Exit }));
}

#[test]
fn the_place_in_a_distributed_job_is_recorded() {
    let run = run(
        "nvtx-only",
        &[
            ("RANK", "3"),
            ("WORLD_SIZE", "8"),
            ("SLURM_PROCID", "not a number"),
            ("HF_TOKEN", "4711"),
        ],
    );
    let capture = run.capture();
    let has = |name: &str| capture.launcher.iter().any(|(known, _)| known == name);
    assert!(capture.launcher.contains(&("RANK".to_owned(), 3)));
    assert!(capture.launcher.contains(&("WORLD_SIZE".to_owned(), 8)));
    assert!(!has("SLURM_PROCID") && !has("HF_TOKEN"));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(capture.host, host.trim());
}

#[test]
fn work_alone_is_recorded() {
    let run = run("cuda-only", &[]);
    let capture = run.capture();
    assert_eq!(capture.kernels.len(), 10);
    assert!(capture.ranges.is_empty());
    assert_eq!(capture.threads.len(), 1, "the thread that started CUDA is known");
}

#[test]
fn a_program_that_ends_abruptly_leaves_a_capture_without_an_end() {
    for how in ["_exit", "kill", "term", "crash"] {
        let run = run_until(how, &[], |capture| has_work(capture) && !capture.open.is_empty());
        assert!(!run.status.success());
        let capture = run.capture();
        assert_eq!(capture.kernels.len(), 10, "{how}");
        assert_eq!(capture.ranges, RANGES, "{how}");
        assert_eq!(capture.open, ["@never closed"], "{how}");
        assert_without_end(&capture, how);
    }
}

fn assert_without_end(capture: &Capture, how: &str) {
    let without_end = matches!(
        capture.ending,
        Some(Ending::Cut {
            why: CutReason::NoEnd,
            ..
        })
    );
    assert!(without_end, "{how}: {:?}", capture.ending);
}

#[test]
fn a_program_that_closes_the_descriptor_gets_no_byte_in_its_own_file() {
    for how in ["close", "reuse"] {
        let elsewhere = tempfile::tempdir().unwrap();
        let victim = elsewhere.path().join("victim");
        let run = run_until(how, &[("VICTIM", victim.to_str().unwrap())], has_work);
        assert!(run.status.success(), "{how}: {:?}", run.status);
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("done\n", ""));
        if how == "reuse" {
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious data");
        }
        let files = run.files();
        assert_eq!(files.len(), 2, "{files:?}");
        let capture = read(&files[0]);
        assert!(has_work(&capture), "{how}: {capture:?}");
        assert_without_end(&capture, how);
        assert_eq!(files[1], note_path(&files[0]));
        let note = std::fs::read_to_string(&files[1]).unwrap();
        assert!(
            note.starts_with("The program closed the descriptor of "),
            "{note}"
        );
    }
}

#[test]
fn a_daemon_has_a_file_of_its_own_and_keeps_its_files() {
    let elsewhere = tempfile::tempdir().unwrap();
    let victim = elsewhere.path().join("victim");
    let run = run_until("daemon", &[("VICTIM", victim.to_str().unwrap())], |capture| {
        !capture.ranges.is_empty()
    });
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious data");
    let captures: Vec<Capture> = run.files().iter().map(|path| read(path)).collect();
    assert_eq!(captures.len(), 2);
    let (daemon, parent): (Vec<_>, Vec<_>) = captures.iter().partition(|capture| has_work(capture));
    assert_eq!(daemon[0].ending, Some(Ending::Complete { how: EndKind::Exit }));
    assert_eq!(parent[0].ranges, ["@before"]);
    assert_without_end(parent[0], "the parent calls _exit");
}

#[test]
fn another_program_does_not_inherit_the_file() {
    let run = run("exec-check", &[]);
    assert!(run.status.success(), "{:?}", run.status);
    assert_eq!(run.stdout, "none\n");
}

#[test]
fn threads_that_end_during_a_launch_leave_the_others_whole() {
    let built = built();
    for cupti in [&built.cupti, &built.old_cupti] {
        let run = run("end-in-launch", &[("CUPTI_LIBRARY", cupti.to_str().unwrap())]);
        assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
        let capture = run.capture();
        assert_eq!(capture.kernels.len(), 10 + 10 * 8 * 3);
        assert_eq!(capture.open, ["@ending"; 80]);
        assert!(capture.losses.is_empty(), "{:?}", capture.losses);
        assert_eq!(capture.ending, Some(Ending::Complete { how: EndKind::Exit }));
    }
}

#[test]
fn a_program_that_becomes_another_leaves_two_files() {
    let run = run_until("exec", &[], has_work);
    assert!(run.status.success(), "{}", run.stderr);
    let captures: Vec<Capture> = run.files().iter().map(|path| read(path)).collect();
    assert_eq!(captures.len(), 2);
    assert_eq!(
        captures
            .iter()
            .filter(|c| matches!(c.ending, Some(Ending::Complete { .. })))
            .count(),
        1
    );
    assert_eq!(captures.iter().filter(|c| c.kernels.len() == 10).count(), 1);
}

#[test]
fn a_forked_child_does_not_write_into_its_parents_file() {
    let run = run("fork", &[]);
    assert!(run.status.success());
    let capture = run.capture();
    assert_eq!(capture.ranges.last().unwrap(), "@after the fork");
    assert_eq!(capture.ranges.len(), RANGES.len() + 1);
    assert_eq!(capture.losses["process.forked"].0, 1);
    assert_eq!(capture.ending, Some(Ending::Complete { how: EndKind::Exit }));
}

#[test]
fn a_child_that_starts_cuda_itself_has_a_file_of_its_own() {
    let run = run("fork-first", &[]);
    assert!(run.status.success());
    let captures: Vec<Capture> = run.files().iter().map(|path| read(path)).collect();
    assert_eq!(captures.len(), 2);
    let child = captures
        .iter()
        .find(|capture| !capture.kernels.is_empty())
        .unwrap();
    // The domain was created before the fork; its name is known in the child's file too.
    assert_eq!(child.ranges, ["LLM@child"]);
    assert!(captures.iter().any(|capture| capture.ranges == ["LLM@parent"]));
    assert!(
        captures
            .iter()
            .all(|capture| capture.ending == Some(Ending::Complete { how: EndKind::Exit }))
    );
}

#[test]
fn threads_come_and_go() {
    let run = run("threads", &[]);
    let capture = run.capture();
    assert_eq!(
        capture.ranges.iter().filter(|range| *range == "@worker").count(),
        40 * 8 * 50
    );
    assert_eq!(capture.threads.len(), 1 + 40 * 8);
    assert!(capture.losses.is_empty(), "{:?}", capture.losses);
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    let run = run_until("full", &[], has_work);
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    assert_eq!(run.stdout, "done\n");
    let capture = run.capture();
    assert!(
        matches!(
            capture.ending,
            Some(Ending::Cut {
                why: CutReason::WriteFailed(_),
                ..
            })
        ),
        "{:?}",
        capture.ending
    );
    assert!(capture.status.unwrap().lost > 0);
    assert_eq!(capture.kernels.len(), 10);
}

#[test]
fn many_launches_lose_nothing() {
    let run = run("many", &[]);
    let capture = run.capture();
    assert_eq!((capture.kernels.len(), capture.calls.len()), (100_000, 100_000));
    assert_eq!(capture.ranges.len(), 2_000);
    assert!(capture.losses.is_empty(), "{:?}", capture.losses);
}

#[test]
fn a_continuous_capture_suits_older_readers() {
    let run = run("exit", &[]);
    let capture = run.capture();
    assert_eq!((capture.version, capture.edges.len()), (1, 0));
    assert_eq!(capture.without_call, 0);
}

#[test]
fn only_the_armed_windows_are_recorded() {
    for dormant in ["1", "lazy"] {
        let built = built();
        for cupti in [&built.cupti, &built.old_cupti] {
            let cupti = cupti.to_str().unwrap();
            let run = run(
                "windows",
                &[("ROOFGAP_NATIVE_DORMANT", dormant), ("CUPTI_LIBRARY", cupti)],
            );
            assert!(run.status.success(), "{dormant}: {:?} {}", run.status, run.stderr);
            let capture = run.capture();
            assert_eq!(kernel_names(&capture), ["kernel_seen"]);
            assert_eq!((capture.kernels.len(), capture.without_call), (6, 0));
            assert_eq!(capture.copies.len(), 4);
            assert_eq!(
                capture.ranges,
                ["LLM@decode_all"],
                "ranges are recorded all the time"
            );
            let (on, off) = ((true, WindowCause::Request), (false, WindowCause::Request));
            assert_eq!(
                capture.edges,
                [(false, WindowCause::Begin), on, off, on, off],
                "{dormant}"
            );
            assert_eq!(capture.version, 2);
            assert_eq!(capture.devices, ["Stand-in H200"]);
            assert!(capture.losses.is_empty(), "{:?}", capture.losses);
        }
    }
}

#[test]
fn a_recording_that_is_turned_off_says_when_it_began() {
    let run = run_until("serve", &[("ROOFGAP_NATIVE_MAX_S", "1")], |capture| {
        !capture.edges.is_empty()
    });
    assert!(run.status.success(), "{:?}", run.status);
    let capture = run.capture();
    assert_eq!(
        capture.edges,
        [(true, WindowCause::Begin), (false, WindowCause::Limit)]
    );
    assert!(has_work(&capture));
    assert_eq!(capture.version, 2);
}

#[test]
fn cupti_is_loaded_on_the_first_request() {
    let run = run("lazy", &[("ROOFGAP_NATIVE_DORMANT", "lazy")]);
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    assert_eq!(kernel_names(&run.capture()), ["kernel_seen"]);
}

#[test]
fn one_of_n_steps_is_recorded() {
    let run = run(
        "steps",
        &[("ROOFGAP_NATIVE_DUTY", "4"), ("ROOFGAP_NATIVE_DUTY_MS", "600000")],
    );
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    let capture = run.capture();
    let mut by_grid: BTreeMap<u32, usize> = BTreeMap::new();
    for kernel in capture.kernels.iter().filter(|kernel| kernel.0 == "kernel_step") {
        *by_grid.entry(kernel.1).or_default() += 1;
    }
    // Steps 0, 4 and 8; a grid is the number of its step plus 1.
    assert_eq!(by_grid, BTreeMap::from([(1, 4), (5, 4), (9, 4)]));
    assert_eq!(kernel_names(&capture), ["kernel_prefill", "kernel_step"]);
    let steps = capture.ranges.iter().filter(|range| *range == "LLM@decode_step");
    assert_eq!(steps.count(), 10, "every step is marked");
    let by_steps = capture.edges.iter().filter(|edge| edge.1 == WindowCause::Steps);
    // Off before step 1, on before 4, off before 5, on before 8, off before 9; on before the prefill unless time had armed it.
    assert!((5..=6).contains(&by_steps.count()), "{:?}", capture.edges);
    assert_eq!(capture.without_call, 0);
}

#[test]
fn the_socket_controls_a_running_program() {
    use std::io::{BufRead, Write};
    use std::os::unix::net::UnixStream;

    let built = built();
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let captures = folder.path().join("captures");
    std::fs::create_dir(&captures).unwrap();
    let mut child = Command::new(&built.program)
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .env("CUDA_INJECTION64_PATH", &built.library)
        .env("NVTX_INJECTION64_PATH", &built.library)
        .env("CUPTI_LIBRARY", &built.cupti)
        .env("ROOFGAP_NATIVE_DIR", &captures)
        .env("ROOFGAP_NATIVE_CONTROL", &control)
        .env("ROOFGAP_NATIVE_DORMANT", "lazy")
        .spawn()
        .unwrap();
    let path = control.join(format!("{}.sock", child.id()));
    let deadline = Instant::now() + PATIENCE;
    let stream = loop {
        match UnixStream::connect(&path) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut ask = |command: &str| {
        (&stream).write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    // The program may not have started CUDA yet.
    while ask("arm") != "ok armed" {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(ask("status").starts_with("ok armed windows=1 steps=0 cupti=loaded file="));
    assert_eq!(ask("disarm"), "ok dormant");
    assert!(ask("status").starts_with("ok dormant windows=1 "));
    assert_eq!(ask("flush"), "ok flushed");
    assert!(ask("dance").starts_with("error unknown command"));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!path.exists(), "the socket is removed");
    let files = files(&captures);
    let capture = read(&files[0]);
    let on = capture.edges.iter().filter(|edge| edge.0).count();
    assert_eq!((files.len(), on), (1, 1), "{:?}", capture.edges);
}

#[test]
fn a_window_is_cut_out_of_a_running_program() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    let built = built();
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let captures = folder.path().join("captures");
    std::fs::create_dir(&captures).unwrap();
    let mut child = Command::new(&built.program)
        .arg("loop")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .env("CUDA_INJECTION64_PATH", &built.library)
        .env("NVTX_INJECTION64_PATH", &built.library)
        .env("CUPTI_LIBRARY", &built.cupti)
        .env("ROOFGAP_NATIVE_DIR", &captures)
        .env("ROOFGAP_NATIVE_CONTROL", &control)
        .env("ROOFGAP_NATIVE_DORMANT", "lazy")
        .spawn()
        .unwrap();
    let path = control.join(format!("{}.sock", child.id()));
    let deadline = Instant::now() + PATIENCE;
    // Each command has its own connection.
    let ask = |command: &str| {
        let stream = loop {
            match UnixStream::connect(&path) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        (&stream).write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut BufReader::new(&stream), &mut line).unwrap();
        line.trim_end().to_owned()
    };
    let steps = || {
        let status = ask("status");
        let word = status
            .split_whitespace()
            .find_map(|word| word.strip_prefix("steps="));
        word.unwrap().parse::<u64>().unwrap()
    };
    for _ in 0..2 {
        while !ask("arm").starts_with("ok") {
            assert!(Instant::now() < deadline);
        }
        // Records that CUPTI still holds would come after the cut.
        for command in ["disarm", "flush", "cut"] {
            assert!(ask(command).starts_with("ok"), "{command}");
        }
        let before = steps();
        assert_eq!(ask("arm"), "ok armed");
        while steps() < before + 5 {
            assert!(Instant::now() < deadline);
        }
        assert_eq!(
            (ask("disarm"), ask("flush")),
            ("ok dormant".into(), "ok flushed".into())
        );
        let counted = steps() - before;
        assert_eq!(ask("cut"), "ok cut");
        let newest = files(&captures).into_iter().next().unwrap();
        let capture = read(&older_segment(&newest));
        assert_eq!(
            capture.ending,
            Some(Ending::Complete {
                how: EndKind::Other(2)
            })
        );
        let on = capture.edges.iter().filter(|edge| edge.0).count();
        assert_eq!(on, 1, "only the last window: {:?}", capture.edges);
        let kernels = capture.kernels.len() as u64;
        // Two kernels a step, and a step may be open at both ends.
        assert!(
            kernels.abs_diff(2 * counted) <= 2,
            "{kernels} kernels in {counted} steps"
        );
    }
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn a_shared_folder_gets_no_socket() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = run(
        "exit",
        &[("ROOFGAP_NATIVE_CONTROL", folder.path().to_str().unwrap())],
    );
    assert!(run.status.success());
    assert!(files(folder.path()).is_empty());
    let capture = run.capture();
    assert!(
        capture.losses["control.refused"].1.contains("0700"),
        "{:?}",
        capture.losses
    );
    assert_eq!(capture.kernels.len(), 10);
}

#[test]
fn the_other_profiler_is_named() {
    let run = run("exit", &[("STANDIN_SUBSCRIBE", "39")]);
    let capture = run.capture();
    assert!(
        capture.losses["cupti.other_profiler"]
            .1
            .contains("CUPTI for Monitor"),
        "{:?}",
        capture.losses
    );
}

#[test]
fn cheaper_ways_of_recording_have_the_same_kernels() {
    let expected: Vec<(String, u32)> = {
        let run = run("exit", &[]);
        run.capture().kernels.into_iter().map(|k| (k.0, k.1)).collect()
    };
    for settings in [
        &[("ROOFGAP_NATIVE_KERNELS", "serial")][..],
        &[("ROOFGAP_NATIVE_CALLS", "launches")],
        &[("ROOFGAP_NATIVE_CALLS", "none")],
        &[("ROOFGAP_NATIVE_BUFFER_KB", "8"), ("ROOFGAP_NATIVE_BUFFERS", "4")],
        &[("ROOFGAP_NATIVE_ZEROED", "0")],
        &[
            ("ROOFGAP_NATIVE_DEVICE_BUFFER_KB", "64"),
            ("ROOFGAP_NATIVE_DEVICE_BUFFERS", "2"),
            ("ROOFGAP_NATIVE_PINNED", "1"),
        ],
    ] {
        let run = run("exit", settings);
        assert!(run.status.success(), "{settings:?}");
        let capture = run.capture();
        let kernels: Vec<(String, u32)> = capture.kernels.iter().map(|k| (k.0.clone(), k.1)).collect();
        assert_eq!(kernels, expected, "{settings:?}");
        let calls = settings.iter().find(|pair| pair.0 == "ROOFGAP_NATIVE_CALLS");
        match calls.map(|pair| pair.1) {
            Some("none") => assert!(capture.calls.is_empty()),
            Some("launches") => {
                assert_eq!(capture.without_call, 0);
                let waits = capture.calls.iter().filter(|name| name.contains("Synchronize"));
                assert_eq!(waits.count(), 0);
            }
            _ => assert_eq!(capture.without_call, 0, "{settings:?}"),
        }
        assert!(capture.losses.is_empty(), "{settings:?}: {:?}", capture.losses);
    }
    let refused = run(
        "exit",
        &[("ROOFGAP_NATIVE_PINNED", "1"), ("STANDIN_REFUSE_ATTRIBUTE", "8")],
    );
    let capture = refused.capture();
    assert_eq!(capture.losses["cupti.attribute_refused"].1, "pinned memory");
    assert_eq!(capture.kernels.len(), 10);
}

#[test]
fn only_the_last_events_are_kept() {
    // By size: the whole capture has several MB. When a segment ends by time depends on the load of the machine.
    let settings = [
        ("ROOFGAP_NATIVE_LAST_MS", "3600000"),
        ("ROOFGAP_NATIVE_MAX_MB", "1"),
    ];
    let run = run("many", &settings);
    assert!(run.status.success());
    let sizes = run.files().into_iter().map(|path| path.metadata().unwrap().len());
    let bytes: u64 = sizes.sum();
    // Half of the limit in each file, and the frame that exceeds it.
    assert!(bytes < 2 << 20, "{bytes}");
    let files = run.files();
    assert_eq!(files.len(), 2, "{files:?}");
    assert_eq!(files[1], older_segment(&files[0]));
    let (new, old) = (read(&files[0]), read(&files[1]));
    let kernels = new.kernels.len() + old.kernels.len();
    assert!(kernels < 100_000, "{kernels}");
    // Each file can be read by itself.
    for capture in [&new, &old] {
        assert!(capture.kernels.iter().all(|kernel| kernel.0 == "kernel_many"));
        assert_eq!(capture.version, 2);
        assert_eq!(capture.edges.first(), Some(&(true, WindowCause::Begin)));
    }
    assert_eq!(new.ending, Some(Ending::Complete { how: EndKind::Exit }));
}

/// Returns true if the tests run as root, who may change users and roots.
fn is_root() -> bool {
    // SAFETY: only answers.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn a_program_that_changes_its_user_or_its_root_is_recorded_to_the_end() {
    if !is_root() {
        return;
    }
    for how in ["setuid", "chroot"] {
        let jail = tempfile::tempdir().unwrap();
        let run = run_until(how, &[("JAIL", jail.path().to_str().unwrap())], has_work);
        assert!(run.status.success(), "{how}: {:?}", run.status);
        let capture = run.capture();
        assert_eq!(capture.ranges.last().map(String::as_str), Some("@after"), "{how}");
        assert_eq!(capture.kernels.len(), 11, "{how}");
        assert_eq!(
            capture.ending,
            Some(Ending::Complete { how: EndKind::Exit }),
            "{how}"
        );
        assert!(files(jail.path()).is_empty(), "{how}");
    }
}

#[test]
fn a_program_with_more_rights_than_its_user_is_not_recorded() {
    use std::os::unix::fs::PermissionsExt;

    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("program");
    std::fs::copy(&built().program, &program).unwrap();
    std::os::unix::fs::chown(&program, Some(65534), Some(65534)).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let captures = folder.path().join("captures");
    std::fs::create_dir(&captures).unwrap();
    std::fs::set_permissions(&captures, std::fs::Permissions::from_mode(0o777)).unwrap();
    let run = |program: &Path| {
        let done = Command::new(program)
            .arg("secure")
            .env("CUDA_INJECTION64_PATH", &built().library)
            .env("CUPTI_LIBRARY", &built().cupti)
            .env("ROOFGAP_NATIVE_DIR", &captures)
            .output()
            .unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    // A file system that ignores the bit gives no rights, and then there is nothing to test. 99: the other user cannot read
    // the library.
    match run(&program).as_str() {
        "1 1\n" | "1 99\n" => assert!(files(&captures).is_empty()),
        other => assert!(other.starts_with("0 "), "{other}"),
    }
    assert_eq!(run(&built().program), "0 0\n");
    assert_eq!(files(&captures).len(), 1);
}

#[test]
fn a_long_program_is_accounted_for_in_flat_memory() {
    let small = [
        ("ROOFGAP_NATIVE_BUFFER_KB", "64"),
        ("ROOFGAP_NATIVE_BUFFERS", "8"),
    ];
    let length = [
        ("SOAK_LAUNCHES", "200000"),
        ("SOAK_WINDOW", "20000"),
        ("ROOFGAP_NATIVE_DORMANT", "1"),
    ];
    let settings: Vec<(&str, &str)> = small.into_iter().chain(length).collect();
    let run = run("soak", &settings);
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    let mut numbers = run
        .stdout
        .split_whitespace()
        .map(|word| word.parse::<i64>().unwrap());
    let (recorded, grown) = (numbers.next().unwrap(), numbers.next().unwrap());
    let capture = run.capture();
    let count = |id: &str| capture.losses.get(id).map_or(0, |loss| loss.0);
    // A kernel and its call are two records; CUPTI drops what finds no buffer, and counts it.
    let written = capture.kernels.len() + capture.calls.len();
    assert_eq!(written as u64 + count("cupti.dropped"), 2 * recorded as u64);
    assert_eq!(recorded, 100_000);
    assert!(grown < 16 << 10, "{grown} KiB");
    assert_eq!(capture.edges.len(), 11);
    assert_eq!(capture.ending, Some(Ending::Complete { how: EndKind::Exit }));
}

#[test]
fn serial_records_give_way_to_a_second_stream() {
    let settings = [("ROOFGAP_NATIVE_KERNELS", "auto")];
    let run = run_until("serve", &settings, |capture| {
        capture.losses.contains_key("cupti.serial_kernels")
    });
    assert!(run.status.success());
    let capture = run.capture();
    assert_eq!(capture.kernels.len(), 10);
    assert_eq!(capture.losses.len(), 1, "{:?}", capture.losses);
}
