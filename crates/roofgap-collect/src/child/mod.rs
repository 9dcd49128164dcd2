//! Child processes: started in their own process group, with bounded logs and budgets, and stopped completely.
//!
//! - `output`: exit status, resource usage and output of a child
//! - `shutdown`: cancellation and the interrupt, terminate, kill sequence
//! - `process_tree`: finding and signalling all descendants
//! - `guardian`: a process that kills the children when this one dies

mod guardian;
mod output;
mod process_tree;
mod shutdown;

pub use guardian::{Guardian, guard};
pub use output::{CapturedOutput, EndReason, Outcome, OutputTarget, ProcessName, Usage};
pub use shutdown::{Cancel, StopPlan};

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use roofgap_base::clock;
use roofgap_base::text::cut;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use wait4::Wait4;

use crate::command::CommandLine;
use output::{Log, ns};
use process_tree::ProcessTree;
use shutdown::Shutdown;

/// Decision of a watcher after a line of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Keep running.
    Continue,
    /// Stop: the profiler has measured enough. The program behind it gets SIGTERM, so that the profiler can finish.
    Stop,
}

/// Callback for each line of a child's output.
pub type Watcher = Box<dyn FnMut(&str) -> Watch + Send>;

/// A command to run and its limits.
pub struct ChildSpec<'a> {
    /// Command line.
    pub command: &'a CommandLine,
    /// Destination of stdout.
    pub stdout: OutputTarget,
    /// Destination of stderr.
    pub stderr: OutputTarget,
    /// Time and disk limits.
    pub budget: Budget,
    /// Grace periods of a shutdown.
    pub stop: StopPlan,
    /// Cancellation flag.
    pub cancel: Cancel,
    /// Callback for each line of output.
    pub watch: Option<Watcher>,
}

impl<'a> ChildSpec<'a> {
    /// Creates a child without limits.
    pub fn new(command: &'a CommandLine, stdout: OutputTarget, stderr: OutputTarget) -> Self {
        ChildSpec {
            command,
            stdout,
            stderr,
            budget: Budget::default(),
            stop: StopPlan::default(),
            cancel: Cancel::new(),
            watch: None,
        }
    }
}

/// Progress of a running child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// A shutdown is in progress.
    pub stopping: bool,
}

/// Failure to run a child. A child that ran and failed is an [`Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// A log file cannot be created.
    #[error("cannot write the log {path}: {source}; choose a writable folder")]
    Log {
        /// Path of the log.
        path: String,
        /// Cause.
        source: io::Error,
    },
    /// The program cannot be started.
    #[error("cannot start {program}: {source}{hint}")]
    Start {
        /// Path or name of the program.
        program: String,
        /// Cause.
        source: io::Error,
        /// Remedy, or empty.
        hint: &'static str,
    },
    /// Waiting for the child failed.
    #[error("waiting for {program} failed: {source}")]
    Wait {
        /// Name of the program.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// The child survived SIGKILL.
    #[error("{program} (process {pid}) survived SIGKILL; it is stuck in the kernel")]
    Stuck {
        /// Name of the program.
        program: String,
        /// Process id.
        pid: u32,
    },
}

/// Interval between checks of budgets and cancellation.
const TICK: Duration = Duration::from_millis(100);
/// Interval between checks of disk usage, which walk a folder.
const DISK_TICK: Duration = Duration::from_secs(1);

/// Monotonic and wall-clock time of an exit.
type Exit = io::Result<(Instant, Timestamp)>;

enum ChildEvent {
    Exited(Exit),
    /// The system stopped the child, because it is not in the foreground of the terminal that it uses.
    NoTerminal,
    StopRequested,
}

/// Runs a child to its end; calls `progress` several times a second.
pub fn run(mut spec: ChildSpec<'_>, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, ChildError> {
    let stdout_log = open(&spec.stdout)?;
    let stderr_log = open(&spec.stderr)?;
    let program = spec.command.name();
    process_tree::adopt_orphans();
    let started = clock::now();
    let start = Instant::now();
    let (mut child, tree) =
        ProcessTree::start(&mut command(spec.command)).map_err(|source| ChildError::Start {
            program: spec.command.program.display().to_string(),
            hint: start_hint(&source, spec.command),
            source,
        })?;
    let pid = child.id();

    let (events, received) = channel();
    let watch = spec.watch.take().map(|watcher| Arc::new(Mutex::new(watcher)));
    let is_over = Arc::new(AtomicBool::new(false));
    let out = child.stdout.take().map(|pipe| spawn_drain(pipe, stdout_log, &is_over, &watch, &events));
    let err = child.stderr.take().map(|pipe| spawn_drain(pipe, stderr_log, &is_over, &watch, &events));
    spawn_waiter(tree.leader(), events);

    let mut gpu_use = GpuUse::new(start);
    let mut observe = |tick: Progress| {
        gpu_use.observe(&tree, start + tick.elapsed);
        progress(tick);
    };
    let (ended, exit) = supervise(&spec, &tree, &received, start, &mut observe)
        .ok_or_else(|| ChildError::Stuck { program: program.clone(), pid })?;
    // The child is still a zombie, so its process id and group cannot have been reused.
    let settle = if spec.cancel.is_forced() {
        Duration::ZERO
    } else {
        spec.stop.settle_after(ended != EndReason::Exited)
    };
    let leftovers = tree.end_leftovers(settle, spec.stop.terminate);
    let wait_error = |source| ChildError::Wait { program: program.clone(), source };
    let reaped = child.wait4();
    is_over.store(true, Ordering::SeqCst);
    let (stdout, stderr) = (join(out, &spec.stdout), join(err, &spec.stderr));
    let (end, finished) = exit.map_err(wait_error)?;
    let reaped = reaped.map_err(wait_error)?;
    Ok(Outcome {
        ended,
        code: reaped.status.code(),
        signal: reaped.status.signal(),
        started: started.to_string(),
        finished: finished.to_string(),
        wall: end.saturating_duration_since(start),
        usage: Usage {
            user_ns: ns(reaped.rusage.utime),
            system_ns: ns(reaped.rusage.stime),
            max_rss_bytes: reaped.rusage.maxrss,
        },
        stdout,
        stderr,
        leftovers,
        gpu_processes: gpu_use.into_processes(),
    })
}

/// Waits for the child to end, and stops it when a limit is exceeded; `None` if it survives SIGKILL.
fn supervise(
    spec: &ChildSpec<'_>,
    tree: &ProcessTree,
    received: &Receiver<ChildEvent>,
    start: Instant,
    progress: &mut dyn FnMut(Progress),
) -> Option<(EndReason, Exit)> {
    let mut ended = EndReason::Exited;
    let mut shutdown: Option<Shutdown> = None;
    let mut disk_due = start + DISK_TICK;
    loop {
        let mut reason = None;
        match received.recv_timeout(TICK) {
            Ok(ChildEvent::Exited(exit)) => return Some((ended, exit)),
            Ok(ChildEvent::StopRequested) => reason = Some(EndReason::StoppedByWatcher),
            Ok(ChildEvent::NoTerminal) => reason = Some(EndReason::NoTerminal),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Some((ended, Err(io::Error::other("the waiting thread ended"))));
            }
        }
        let now = Instant::now();
        progress(Progress { elapsed: now.saturating_duration_since(start), stopping: shutdown.is_some() });
        if let Some(shutdown) = &mut shutdown {
            if spec.cancel.is_requested() && ended != EndReason::Cancelled {
                // The user does not wait for a profiler that finishes at its own pace.
                ended = EndReason::Cancelled;
                *shutdown = Shutdown::begin(tree, &spec.stop, false, now);
                continue;
            }
            if !shutdown.advance(tree, now, spec.cancel.is_forced()) {
                return None;
            }
            continue;
        }
        if spec.cancel.is_requested() {
            reason = Some(EndReason::Cancelled);
        } else if let Some(limit) = spec.budget.time.filter(|limit| now.duration_since(start) >= *limit) {
            reason = Some(EndReason::TimeBudget { limit_ns: ns(limit) });
        } else if let Some(disk) = spec.budget.disk.as_ref().filter(|_| now >= disk_due) {
            disk_due = now + DISK_TICK;
            reason = disk.exceeded().map(|found| EndReason::DiskBudget { found }).or(reason);
        }
        if let Some(reason) = reason {
            let program_first = reason == EndReason::StoppedByWatcher;
            shutdown = Some(Shutdown::begin(tree, &spec.stop, program_first, now));
            if reason == EndReason::NoTerminal {
                // A stopped process acts on a signal once it goes on.
                tree.signal_group(Signal::CONT);
            }
            ended = reason;
        }
    }
}

fn command(line: &CommandLine) -> Command {
    let mut command = line.to_command();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command
}

fn start_hint(error: &io::Error, line: &CommandLine) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound if line.cwd.as_ref().is_some_and(|folder| !folder.is_dir()) => {
            "; its working folder does not exist"
        }
        io::ErrorKind::NotFound => "; install it, or put it on the PATH",
        io::ErrorKind::PermissionDenied => "; make it executable (chmod +x), or name its interpreter",
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            "; it is neither a binary for this machine nor a script that starts with #!"
        }
        _ => "",
    }
}

fn open(target: &OutputTarget) -> Result<Log, ChildError> {
    Log::open(target).map_err(|source| ChildError::Log {
        path: target.path().map(|path| path.display().to_string()).unwrap_or_default(),
        source,
    })
}

fn spawn_drain<P>(
    pipe: P,
    log: Log,
    is_over: &Arc<AtomicBool>,
    watch: &Option<Arc<Mutex<Watcher>>>,
    events: &Sender<ChildEvent>,
) -> JoinHandle<CapturedOutput>
where
    P: io::Read + std::os::fd::AsFd + Send + 'static,
{
    let is_over = Arc::clone(is_over);
    let line = watch.clone().map(|watcher| {
        let events = events.clone();
        move |line: &str| {
            let decision = watcher.lock().unwrap_or_else(PoisonError::into_inner)(line);
            if decision == Watch::Stop {
                let _ = events.send(ChildEvent::StopRequested);
            }
        }
    });
    std::thread::spawn(move || output::drain(pipe, log, &is_over, line))
}

/// Spawns a thread that reports the exit without polling and without reaping the child, and a stop for want of the terminal.
fn spawn_waiter(leader: i32, events: Sender<ChildEvent>) {
    let ends = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let terminal = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw);
    std::thread::spawn(move || {
        let exit = loop {
            let Some(pid) = Pid::from_raw(leader) else {
                break Err(io::Error::other("no process id"));
            };
            match rustix::process::waitid(WaitId::Pid(pid), ends | WaitIdOptions::STOPPED) {
                Ok(Some(status)) if status.stopped() => {
                    // Reported once.
                    let taken = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
                    let _ = rustix::process::waitid(WaitId::Pid(pid), taken);
                    if status.stopping_signal().is_some_and(|signal| terminal.contains(&signal)) {
                        let _ = events.send(ChildEvent::NoTerminal);
                    }
                }
                Ok(_) => break Ok((Instant::now(), clock::now())),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => break Err(error.into()),
            }
        };
        let _ = events.send(ChildEvent::Exited(exit));
    });
}

fn join(drain: Option<JoinHandle<CapturedOutput>>, target: &OutputTarget) -> CapturedOutput {
    drain.and_then(|thread| thread.join().ok()).unwrap_or_else(|| CapturedOutput {
        path: target.path().cloned(),
        bytes: 0,
        left_out: 0,
        tail: String::new(),
        write_error: Some("reading the output failed".to_owned()),
    })
}

/// Limits of a child; unlimited by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budget {
    /// Maximum run time.
    pub time: Option<Duration>,
    /// Disk space limits.
    pub disk: Option<DiskBudget>,
}

/// Disk space limits of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskBudget {
    /// Folder the child writes to.
    pub folder: PathBuf,
    /// Maximum size of that folder, bytes.
    pub max_bytes: u64,
    /// Minimum free space on its file system, bytes.
    pub min_free_bytes: u64,
}

impl DiskBudget {
    /// Describes the exceeded limit; `None` within the limits, or when usage is unknown.
    fn exceeded(&self) -> Option<String> {
        let (folder, limit, least) = (self.folder.display(), self.max_bytes, self.min_free_bytes);
        let used = folder_bytes(&self.folder);
        if used > limit {
            return Some(format!("{folder} holds {used} bytes, over its limit of {limit}"));
        }
        let free = free_bytes(&self.folder).filter(|free| *free < least)?;
        Some(format!("only {free} bytes are free at {folder}, and {least} must stay free"))
    }
}

/// Returns the bytes an unprivileged user may still write on the file system of `path`; `None` if unknown.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let facts = rustix::fs::statvfs(path).ok()?;
    facts.f_bavail.checked_mul(facts.f_frsize)
}

/// Sums the sizes of all files below `folder`. Links are not followed; files that vanish meanwhile count as 0.
fn folder_bytes(folder: &Path) -> u64 {
    let mut total = 0_u64;
    let mut pending = vec![folder.to_path_buf()];
    while let Some(current) = pending.pop() {
        let Ok(entries) = std::fs::read_dir(&current) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(facts) = entry.metadata() else { continue };
            if facts.is_dir() {
                pending.push(entry.path());
            } else if facts.is_file() {
                total = total.saturating_add(facts.len());
            }
        }
    }
    total
}

/// Time from the start to the first look.
const FIRST: Duration = Duration::from_millis(300);
/// Longest time between two looks. Each reads the list of all processes.
const LONGEST: Duration = Duration::from_secs(2);

/// Processes of a child with the driver, looked for at growing intervals.
struct GpuUse {
    start: Instant,
    due: Instant,
    processes: Vec<ProcessName>,
}

impl GpuUse {
    fn new(start: Instant) -> Self {
        Self { start, due: start + FIRST, processes: Vec::new() }
    }

    /// Adds the processes that loaded the driver since the last look, if it is time for one.
    fn observe(&mut self, tree: &ProcessTree, now: Instant) {
        if now < self.due {
            return;
        }
        self.due = now + now.duration_since(self.start).clamp(FIRST, LONGEST);
        for process in tree.program() {
            let is_known = self.processes.iter().any(|known| known.pid == process.pid);
            if !is_known && loads_driver(process.pid) {
                self.processes.push(ProcessName { pid: process.pid, name: process.name });
            }
        }
    }

    fn into_processes(self) -> Vec<ProcessName> {
        self.processes
    }
}

/// Returns true when `libcuda.so` is mapped into a process.
fn loads_driver(pid: i32) -> bool {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    String::from_utf8_lossy(&maps).contains("/libcuda.so")
}

/// Output of a tool that was queried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOutput {
    /// The tool exited by itself with status 0.
    pub success: bool,
    /// The tool exited by itself, with any status.
    pub exited: bool,
    /// Description of the end, such as `ended with status 1`.
    pub ended: String,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl ProbeOutput {
    /// Returns both streams: tools disagree on where an answer belongs.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Returns the first line, shortened and quoted for a message.
    pub fn summary(&self) -> String {
        let text = self.text();
        let Some(line) = text.lines().map(str::trim).find(|line| !line.is_empty()) else {
            return "no output".to_owned();
        };
        let plain = |c: &char| !c.is_control() && *c != char::REPLACEMENT_CHARACTER;
        let line: String = line.chars().filter(plain).collect();
        format!("output {:?}", cut(&line, SUMMARY_CHARS))
    }
}

/// Characters of the output that a message quotes.
const SUMMARY_CHARS: usize = 160;

/// Cancellation flag of all probes.
static CANCEL: OnceLock<Cancel> = OnceLock::new();

/// Lets `cancel` end all probes of this process. Only the first call has an effect.
pub fn cancel_probes_with(cancel: &Cancel) {
    let _ = CANCEL.set(cancel.clone());
}

/// Runs a command for at most `limit` and returns its output.
pub fn probe(command: &CommandLine, limit: Duration) -> Result<ProbeOutput, ChildError> {
    let memory = || OutputTarget::Memory { max_bytes: 4 << 20 };
    let spec = ChildSpec {
        cancel: CANCEL.get().cloned().unwrap_or_default(),
        budget: Budget { time: Some(limit), disk: None },
        stop: StopPlan {
            interrupt: Duration::ZERO,
            report: Duration::ZERO,
            terminate: Duration::from_secs(1),
            settle: Duration::from_millis(200),
        },
        ..ChildSpec::new(command, memory(), memory())
    };
    let outcome = run(spec, &mut |_| {})?;
    Ok(ProbeOutput {
        success: outcome.is_success(),
        exited: outcome.ended == EndReason::Exited && outcome.code.is_some(),
        ended: outcome.describe(),
        stdout: outcome.stdout.tail,
        stderr: outcome.stderr.tail,
    })
}

#[cfg(test)]
mod budget_tests {
    use super::*;

    #[test]
    fn a_folder_is_counted_with_what_is_below_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/x"), [0; 100]).unwrap();
        std::fs::write(folder.path().join("y"), [0; 11]).unwrap();
        assert_eq!(folder_bytes(folder.path()), 111);

        let mut budget = DiskBudget { folder: folder.path().into(), max_bytes: 111, min_free_bytes: 0 };
        assert_eq!(budget.exceeded(), None);
        budget.max_bytes = 110;
        assert!(budget.exceeded().unwrap().contains("holds 111 bytes"));
        budget.max_bytes = u64::MAX;
        budget.min_free_bytes = u64::MAX;
        assert!(budget.exceeded().unwrap().contains("must stay free"));
    }
}
