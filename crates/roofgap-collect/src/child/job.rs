//! One child: started, watched, ended and accounted for.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::process::{Pid, WaitId, WaitIdOptions};
use wait4::Wait4;

use super::budget::Budget;
use super::ending::Ending;
use super::kin::{self, Kin};
use super::outcome::{Ended, LogFacts, Outcome, Usage, ns};
use super::sink::{self, Flow, Log, Sink};
use super::stop::{Cancel, StopPlan};
use crate::command::CommandLine;

/// What a watcher says to a line of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Go on.
    Continue,
    /// The profiler has seen what it was started for: the program behind it is ended (SIGTERM), so that it can finish.
    Enough,
}

/// Looks at each line of a child's output.
pub type Watcher = Box<dyn FnMut(&str) -> Watch + Send>;

/// What to run, and within which limits.
pub struct Job<'a> {
    /// The command line.
    pub command: &'a CommandLine,
    /// Where its output goes.
    pub stdout: Sink,
    /// Where its error output goes.
    pub stderr: Sink,
    /// What it may use.
    pub budget: Budget,
    /// How it is ended.
    pub stop: StopPlan,
    /// Who may end it.
    pub cancel: Cancel,
    /// Who looks at its output.
    pub watch: Option<Watcher>,
}

impl<'a> Job<'a> {
    /// A job without limits.
    pub fn new(command: &'a CommandLine, stdout: Sink, stderr: Sink) -> Self {
        Job {
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

/// Where a child stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick {
    /// Since its start.
    pub elapsed: Duration,
    /// What it has written to both streams.
    pub output_bytes: u64,
    /// It has been asked to end.
    pub stopping: bool,
}

/// Why a child could not be run or accounted for. A child that ran and failed is an [`Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// A log could not be opened.
    #[error("could not write the log {path}: {source}; choose a folder that can be written")]
    Log {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The program could not be started.
    #[error("could not start {program}: {source}{hint}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// Its end could not be learned.
    #[error("could not learn how {program} ended: {source}")]
    Wait {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// Not even SIGKILL ended it.
    #[error("{program} (process {pid}) did not end even when killed; it is stuck in the kernel")]
    Stuck {
        /// The program.
        program: String,
        /// Its id.
        pid: u32,
    },
}

/// How often budgets, the cancel flag and progress are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How often the room on the disk is measured: walking a folder is not free.
const DISK_TICK: Duration = Duration::from_secs(1);

enum Event {
    Exited(io::Result<(Instant, Timestamp)>),
    Enough,
}

/// Runs a job to its end; `progress` is told several times a second where it stands.
pub fn run(mut job: Job<'_>, progress: &mut dyn FnMut(Tick)) -> Result<Outcome, ChildError> {
    let stdout_log = open(&job.stdout)?;
    let stderr_log = open(&job.stderr)?;
    let program = job.command.name();
    kin::adopt_orphans();
    let started = Timestamp::now();
    let start = Instant::now();
    let (mut child, kin) = Kin::start(&mut command(job.command)).map_err(|source| ChildError::Start {
        program: job.command.program.display().to_string(),
        hint: start_hint(&source, job.command),
        source,
    })?;
    let pid = child.id();

    let (events, inbox) = channel();
    let watch = job.watch.take().map(|watcher| Arc::new(Mutex::new(watcher)));
    let flow = Flow::default();
    let out = child
        .stdout
        .take()
        .map(|pipe| spawn_drain(pipe, stdout_log, &job.stdout, &flow, &watch, &events));
    let err = child
        .stderr
        .take()
        .map(|pipe| spawn_drain(pipe, stderr_log, &job.stderr, &flow, &watch, &events));
    spawn_waiter(kin.lead(), events);

    let (ended, exit) =
        supervise(&job, &kin, &inbox, start, &flow, progress).ok_or_else(|| ChildError::Stuck {
            program: program.clone(),
            pid,
        })?;
    // The child is a zombie still, so neither its id nor its group can have been taken over by another.
    let settle = if job.cancel.is_forced() {
        Duration::ZERO
    } else {
        job.stop.settle
    };
    let leftovers = kin.end_leftovers(settle, &job.stop);
    let wait_error = |source| ChildError::Wait {
        program: program.clone(),
        source,
    };
    let reaped = child.wait4();
    flow.stop.store(true, Ordering::SeqCst);
    let (stdout, stderr) = (join(out, &job.stdout), join(err, &job.stderr));
    let (end, finished) = exit.map_err(wait_error)?;
    let reaped = reaped.map_err(wait_error)?;
    let (code, signal) = Outcome::split(reaped.status);
    Ok(Outcome {
        ended,
        code,
        signal,
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
    })
}

/// The time and the clock when a child was seen to have ended.
type Exit = io::Result<(Instant, Timestamp)>;

/// Waits for the child's end and brings it about where a limit is met; `None` where even that does not help.
fn supervise(
    job: &Job<'_>,
    kin: &Kin,
    inbox: &Receiver<Event>,
    start: Instant,
    flow: &Flow,
    progress: &mut dyn FnMut(Tick),
) -> Option<(Ended, Exit)> {
    let mut ended = Ended::Itself;
    let mut ending: Option<Ending> = None;
    let mut disk_due = start + DISK_TICK;
    loop {
        let mut reason = None;
        match inbox.recv_timeout(TICK) {
            Ok(Event::Exited(exit)) => return Some((ended, exit)),
            Ok(Event::Enough) => reason = Some(Ended::Enough),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Some((ended, Err(io::Error::other("the waiting thread is gone"))));
            }
        }
        let now = Instant::now();
        progress(Tick {
            elapsed: now.saturating_duration_since(start),
            output_bytes: flow.seen.load(Ordering::Relaxed),
            stopping: ending.is_some(),
        });
        if let Some(ending) = &mut ending {
            if !ending.go_on(kin, now, job.cancel.is_forced()) {
                return None;
            }
            continue;
        }
        if job.cancel.is_requested() {
            reason = Some(Ended::Cancelled);
        } else if let Some(limit) = job
            .budget
            .time
            .filter(|limit| now.duration_since(start) >= *limit)
        {
            reason = Some(Ended::TimeBudget { limit_ns: ns(limit) });
        } else if let Some(disk) = job.budget.disk.as_ref().filter(|_| now >= disk_due) {
            disk_due = now + DISK_TICK;
            reason = disk
                .exceeded()
                .map(|found| Ended::DiskBudget { found })
                .or(reason);
        }
        if let Some(reason) = reason {
            ending = Some(Ending::begin(kin, &job.stop, reason == Ended::Enough, now));
            ended = reason;
        }
    }
}

fn command(line: &CommandLine) -> Command {
    let mut command = Command::new(&line.program);
    command
        .args(&line.args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(folder) = &line.cwd {
        command.current_dir(folder);
    }
    for (name, value) in &line.env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn start_hint(error: &io::Error, line: &CommandLine) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound if line.cwd.as_ref().is_some_and(|folder| !folder.is_dir()) => {
            "; the folder it was to run in does not exist"
        }
        io::ErrorKind::NotFound => "; is it installed, and on the PATH?",
        io::ErrorKind::PermissionDenied => "; it is not executable: chmod +x it, or name its interpreter",
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            "; it is neither a program of this machine nor a script that begins with #!"
        }
        _ => "",
    }
}

fn open(sink: &Sink) -> Result<Log, ChildError> {
    Log::open(sink).map_err(|source| ChildError::Log {
        path: match sink {
            Sink::File { path, .. } => path.display().to_string(),
            Sink::Memory { .. } => "in memory".to_owned(),
        },
        source,
    })
}

fn spawn_drain<P>(
    pipe: P,
    log: Log,
    sink: &Sink,
    flow: &Flow,
    watch: &Option<Arc<Mutex<Watcher>>>,
    events: &Sender<Event>,
) -> JoinHandle<LogFacts>
where
    P: io::Read + std::os::fd::AsFd + Send + 'static,
{
    let (cap, flow) = (sink::cap(sink), flow.clone());
    let line = watch.clone().map(|watcher| {
        let events = events.clone();
        move |line: &str| {
            let said = watcher.lock().unwrap_or_else(PoisonError::into_inner)(line);
            if said == Watch::Enough {
                let _ = events.send(Event::Enough);
            }
        }
    });
    std::thread::spawn(move || sink::drain(pipe, log, cap, &flow.stop, &flow.seen, line))
}

/// A thread learns of the end at once, without polling, and leaves the child to be reaped later.
fn spawn_waiter(lead: i32, events: Sender<Event>) {
    std::thread::spawn(move || {
        let exit = loop {
            let Some(pid) = Pid::from_raw(lead) else {
                break Err(io::Error::other("no process id"));
            };
            match rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(_) => break Ok((Instant::now(), Timestamp::now())),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => break Err(error.into()),
            }
        };
        let _ = events.send(Event::Exited(exit));
    });
}

fn join(drain: Option<JoinHandle<LogFacts>>, sink: &Sink) -> LogFacts {
    drain
        .and_then(|thread| thread.join().ok())
        .unwrap_or_else(|| LogFacts {
            path: match sink {
                Sink::File { path, .. } => Some(path.clone()),
                Sink::Memory { .. } => None,
            },
            bytes: 0,
            left_out: 0,
            tail: String::new(),
            write_error: Some("the output could not be read".to_owned()),
        })
}
