//! Records a window of a watched program into a run directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use roofgap_base::clock;
use roofgap_collect::child::Cancel;
use roofgap_collect::command::{CommandLine, word_of_text};
use roofgap_collect::watch::{ControlError, Watched, WatchedProcess, ask, status};
use roofgap_runs::run_dir::folder::RunDir;
use roofgap_trace::native::older_segment;

use super::error::AttachError;
use crate::run::context::PhaseContext;
use crate::run::phases::report;
use crate::run::props::{Event, Outcome};
use crate::run::{Stop, conclude};
use roofgap_runs::config::{ConfigProps, compose};
use roofgap_runs::open::read_each;
use roofgap_runs::run_dir::record::SCHEMA;
use roofgap_runs::run_dir::{Layout, PhaseName, PhaseStatus, RecordWriter, SessionRecord, SessionState};

/// Longest window. A busy program fills a disk in a longer one.
pub const LONGEST_WINDOW: Duration = Duration::from_secs(600);

/// Interval between looks at the program. Each wakes a thread in it, so that a window by time has few.
const LOOK: Duration = Duration::from_millis(200);

/// Interval between looks at a program whose steps are counted.
const LOOK_AT_STEPS: Duration = Duration::from_millis(20);

/// Time for work that was launched in the window to end, before the records are collected for the last time.
const SETTLE: Duration = Duration::from_millis(250);

const PHASE: PhaseName = PhaseName::Timeline;

/// Mode of a run without a baseline and counters.
const MODE: &str = "light";

/// Length of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowLength {
    /// A time.
    Time(Duration),
    /// A number of steps of the process that makes most of them, and the longest time to wait for them.
    Steps {
        /// Steps.
        count: u64,
        /// Time limit.
        limit: Duration,
    },
}

impl WindowLength {
    fn limit(self) -> Duration {
        match self {
            Self::Time(limit) | Self::Steps { limit, .. } => limit,
        }
    }

    fn look(self) -> Duration {
        match self {
            Self::Time(_) => LOOK,
            Self::Steps { .. } => LOOK_AT_STEPS,
        }
    }
}

/// Input of a capture.
#[derive(Debug, Clone)]
pub struct CaptureProps {
    /// Program.
    pub watched: Watched,
    /// Window.
    pub length: WindowLength,
    /// Folder of the runs; `None` for the configured one.
    pub base: Option<PathBuf>,
    /// Command line as typed, program name first.
    pub command_line: Vec<String>,
    /// Version of this binary.
    pub version: String,
}

/// A process of the program in a capture.
struct Recorded {
    process: WatchedProcess,
    /// Path of its capture.
    file: PathBuf,
    /// Steps before the window.
    steps_before: u64,
    /// Refusal, where GPU work is not recorded.
    refused: Option<String>,
}

/// Records a window of every process of a watched program, which runs on, and writes the reports. A cancelled capture ends its
/// window early and keeps it.
pub fn capture(
    props: &CaptureProps,
    cancel: &Cancel,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome, AttachError> {
    let limit = props.length.limit();
    if limit > LONGEST_WINDOW {
        return Err(AttachError::LongWindow { seconds: limit.as_secs(), longest: LONGEST_WINDOW.as_secs() });
    }
    let mut processes = begin(&props.watched)?;
    let run = record(props, cancel, events, &mut processes);
    // Whatever happened, the program is left dormant.
    for recorded in &processes {
        let _ = ask(&recorded.process.socket, "disarm");
    }
    run
}

/// Turns the recording on in every process.
fn begin(watched: &Watched) -> Result<Vec<Recorded>, AttachError> {
    let pid = watched.registration.pid;
    let found = watched.processes();
    if found.is_empty() {
        return Err(AttachError::NotLoaded { pid });
    }
    for process in &found {
        if status(&process.socket).is_ok_and(|status| status.armed) {
            return Err(AttachError::Busy { pid: process.pid });
        }
    }
    let (mut processes, mut why) = (Vec::new(), Vec::new());
    for process in found {
        match arm(process) {
            Ok(recorded) => {
                why.extend(recorded.refused.clone());
                processes.push(recorded);
            }
            Err(error) => why.push(error.to_string()),
        }
    }
    if processes.iter().all(|recorded: &Recorded| recorded.refused.is_some()) {
        for recorded in &processes {
            let _ = ask(&recorded.process.socket, "disarm");
        }
        why.dedup();
        let why = why.join("; ");
        return Err(AttachError::Refused { pid, why });
    }
    Ok(processes)
}

/// Begins a new file in a process and turns the recording on.
fn arm(process: WatchedProcess) -> Result<Recorded, ControlError> {
    // Records of an earlier window that CUPTI still holds belong to the earlier file.
    ask(&process.socket, "flush")?;
    ask(&process.socket, "cut")?;
    let before = status(&process.socket)?;
    // Nothing of it is mistaken for the window, if the cut at its end fails.
    let _ = std::fs::remove_file(older_segment(&before.file));
    let refused = match ask(&process.socket, "arm") {
        Ok(_) => None,
        Err(ControlError::Refused { why }) => Some(why),
        Err(error) => return Err(error),
    };
    Ok(Recorded { process, file: before.file, steps_before: before.steps, refused })
}

fn record(
    props: &CaptureProps,
    cancel: &Cancel,
    events: &mut dyn FnMut(Event<'_>),
    processes: &mut Vec<Recorded>,
) -> Result<Outcome, AttachError> {
    let composed = compose(&ConfigProps {
        program: props.watched.registration.command.clone(),
        overrides: vec![format!("run.mode={MODE}")],
        ..ConfigProps::default()
    })?;
    let base = props.base.as_ref().unwrap_or(&composed.config.artifacts.stage2_dir);
    let run_dir = RunDir::create(base)?;
    run_dir.write("config.yaml", composed.to_yaml().as_bytes())?;
    run_dir.folder("native")?;
    events(Event::Started { run_id: run_dir.id().as_str(), path: run_dir.path() });
    let mut context = PhaseContext {
        config: &composed.config,
        run_dir: &run_dir,
        layout: Layout::of(run_dir.path()),
        record: RecordWriter::begin(&run_dir, new_record(props, &run_dir)),
        cancel,
        events,
        program_failures: Vec::new(),
        module_config: None,
    };
    for phase in [
        PhaseName::Preflight,
        PhaseName::Baseline,
        PhaseName::Operators,
        PhaseName::Select,
        PhaseName::Counters,
    ] {
        context.record.requested(phase, false);
        let why = "a capture of a running program records its timeline only";
        context.record.phase_ends(phase, PhaseStatus::skipped(why));
    }
    context.begin(PHASE);
    context.record.tool(PHASE, "native");
    wait(&mut context, props, processes);
    let status = collect(&mut context, props, processes);
    context.end(PHASE, status);
    report::run(&mut context);
    let end = if context.is_cancelled() { Err(Stop::Cancelled) } else { Ok(None) };
    let (exit, missing) = conclude(&context, end);
    context.record.session_ends(exit, missing);
    Ok(Outcome { run_dir: run_dir.path().to_owned(), exit, record: context.record.into_record(), job: None })
}

/// Waits until the window is over. Processes that the program starts meanwhile are recorded too.
fn wait(context: &mut PhaseContext<'_>, props: &CaptureProps, processes: &mut Vec<Recorded>) {
    let began = Instant::now();
    let limit = props.length.limit();
    while began.elapsed() < limit && !context.is_cancelled() {
        std::thread::sleep(props.length.look().min(limit.saturating_sub(began.elapsed())));
        let found = props.watched.processes();
        if found.is_empty() {
            context.warn(PHASE, "the program ended before the window did".to_owned());
            return;
        }
        let is_new = |process: &WatchedProcess| processes.iter().all(|known| known.process != *process);
        let new: Vec<WatchedProcess> = found.into_iter().filter(is_new).collect();
        processes.extend(new.into_iter().filter_map(|process| arm(process).ok()));
        if let WindowLength::Steps { count, .. } = props.length
            && steps(processes) >= count
        {
            return;
        }
        (context.events)(Event::Tick { phase: PHASE, elapsed: began.elapsed(), stopping: false });
    }
    if let WindowLength::Steps { count, limit } = props.length
        && !context.is_cancelled()
    {
        let why = match steps(processes) {
            0 => "the program marked no steps; use --for to record a time".to_owned(),
            found => format!("the program made {found} of {count} steps"),
        };
        context.warn(PHASE, format!("{why} (in {} s)", limit.as_secs_f64()));
    }
}

/// Returns the number of steps in the window, of the process that made most.
fn steps(processes: &[Recorded]) -> u64 {
    let of = |recorded: &Recorded| {
        let now = status(&recorded.process.socket).ok()?;
        Some(now.steps.saturating_sub(recorded.steps_before))
    };
    processes.iter().filter_map(of).max().unwrap_or(0)
}

/// Ends the window and moves the captures into the run directory.
fn collect(context: &mut PhaseContext<'_>, props: &CaptureProps, processes: &[Recorded]) -> PhaseStatus {
    for command in ["disarm", "flush"] {
        for recorded in processes {
            // A process that has ended has written its capture.
            let _ = ask(&recorded.process.socket, command);
        }
    }
    std::thread::sleep(SETTLE);
    let mut captures = Vec::new();
    for recorded in processes {
        let socket = &recorded.process.socket;
        let _ = ask(socket, "flush");
        let is_cut = ask(socket, "cut").is_ok();
        match take(context, &recorded.file, is_cut) {
            Ok(capture) => captures.push(capture),
            Err(error) => context.warn(PHASE, format!("{}: {error}", recorded.file.display())),
        }
    }
    let account = props.watched.account();
    // A server that `roofgap load` started has its account beside that of the load.
    let accounts = [account.clone(), crate::traffic::server_account_path(&account)];
    if let Some(account) = accounts.iter().find(|path| path.is_file()) {
        let copied = std::fs::copy(account, context.layout.native_account());
        context.note_output(PHASE, copied.map(|_| context.layout.native_account()));
    }
    captures.retain(|capture| context.output(PHASE, capture));
    let mut unreadable = Vec::new();
    let input = read_each(&captures, &mut unreadable);
    let refused = processes.iter().filter_map(|recorded| {
        let why = recorded.refused.as_ref()?;
        Some(format!("process {}: {why}", recorded.process.pid))
    });
    for note in refused {
        context.record.note(PHASE, note);
    }
    if input.trace.ops.is_empty() {
        unreadable.insert(0, "no GPU work was recorded in the window".to_owned());
        return PhaseStatus::failed(unreadable.join("; "), None);
    }
    PhaseStatus::Ok
}

/// Copies the window of a process into the run directory: the file before the cut, or the last one of a process that has ended.
fn take(context: &PhaseContext<'_>, file: &Path, is_cut: bool) -> std::io::Result<PathBuf> {
    let name = file.file_name().ok_or_else(|| std::io::Error::other("a capture without a name"))?;
    let to = context.layout.native().join(name);
    let source = if is_cut { older_segment(file) } else { file.to_owned() };
    std::fs::copy(&source, &to)?;
    if is_cut {
        // It is in the run directory now.
        let _ = std::fs::remove_file(&source);
    }
    Ok(to)
}

/// Quotes the command line for a shell.
fn repeat_command(words: &[String]) -> String {
    let (program, args) =
        words.split_first().map_or(("", &[][..]), |(program, args)| (program.as_str(), args));
    let args = args.iter().map(|word| word_of_text(word));
    CommandLine::new(word_of_text(program)).args(args).to_string()
}

fn new_record(props: &CaptureProps, run_dir: &RunDir) -> SessionRecord {
    SessionRecord {
        schema: SCHEMA.to_owned(),
        run_id: run_dir.id().to_string(),
        roofgap_version: props.version.clone(),
        command_line: props.command_line.clone(),
        repeat_command: repeat_command(&props.command_line),
        mode: MODE.to_owned(),
        workload: "command".to_owned(),
        started: clock::now().to_string(),
        finished: None,
        state: SessionState::Running,
        exit_status: None,
        missing: Vec::new(),
        phases: Vec::new(),
    }
}
