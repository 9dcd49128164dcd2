//! Recording a part of a program that runs: [`watch()`] starts it with a dormant collector, [`capture()`] records a window, and
//! [`add_requests`] joins it with the load that a server had meanwhile.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use roofgap_base::exit::Exit;
use roofgap_base::file::{read_document, write_atomic};
use roofgap_collect::child::Cancel;
use roofgap_collect::command::{CommandLine, folders_in_variable, word_of_text, word_text};
use roofgap_collect::entries;
use roofgap_collect::program::{Annotation, ProgramContext, Scripts};
use roofgap_collect::tool::ToolError;
use roofgap_collect::watch::{
    ControlError, Hold, ProgramLock, Registry, Watched, WatchedProcess, ask, hold, status,
};
use roofgap_runs::config::{ConfigProps, compose};
use roofgap_runs::open::read_each;
use roofgap_runs::open::run::account_at;
use roofgap_runs::run_dir::folder::RunDir;
use roofgap_runs::run_dir::{Layout, PhaseName, PhaseStatus, SessionRecord};
use roofgap_trace::account::{Account, SCHEMA};
use roofgap_trace::native::older_segment;

use super::conclude;
use super::context::PhaseContext;
use super::phases::preflight::find_program;
use super::phases::{ORDER, Results, Sampler, Stop, run_phase};
use super::program::sampler;
use super::props::{Event, Outcome, ProfileProps};
use super::tools::NativeLibrary;
use roofgap_base::error::Error;

/// Size limit of the two files of a process, MB. Half of it is the limit of a window.
const MAX_MB: u64 = 16_384;

/// Length of one of the two files of a ring, and the size limit of both, MB.
const RING: Duration = Duration::from_secs(10);
const RING_MB: u64 = 24;

/// Time beyond the longest window after which the collector turns itself off.
const ARMED_MARGIN: Duration = Duration::from_secs(10);

/// A program to watch.
#[derive(Debug)]
pub struct WatchPlan {
    /// Command line with the collector in its environment.
    pub command: CommandLine,
    /// Registration.
    pub watched: Watched,
    /// Locks that the program inherits.
    pub lock: ProgramLock,
}

/// Registers this process as the program and writes the files that it needs. The caller then becomes the program, so that
/// standard streams, signals and exit status are the program's own, or starts it to record its last seconds. `None` if there are no
/// words. One of `duty` steps is recorded, in captures or in the ring.
pub fn watch(
    registry: &Registry,
    words: &[OsString],
    library: &NativeLibrary,
    (duty, ring): (NonZeroU32, bool),
) -> Result<Option<WatchPlan>, Error> {
    let Some((program, args)) = words.split_first() else {
        return Ok(None);
    };
    find_program(Path::new(program), None, &folders_in_variable("PATH"))
        .map_err(|error| error.with_exit(Exit::Usage))?;
    let command_line = words.iter().map(|word| word_text(word)).collect();
    let (watched, lock) = registry.register(command_line)?;
    let files = &watched.registration.files;
    std::fs::create_dir_all(watched.captures()).map_err(Error::io("write", files))?;
    let collector = files.join("libroofgap_inject.so");
    write_atomic(&collector, library.bytes).map_err(Error::io("write", &collector))?;
    let scripts = Scripts::install(&files.join("scripts")).map_err(Error::io("write", files))?;
    let program = CommandLine::new(program).args(args);
    let command = command(program, &watched, &collector, &scripts, (duty, ring));
    Ok(Some(WatchPlan { command, watched, lock }))
}

/// Loads the collector into a program.
fn command(
    program: CommandLine,
    watched: &Watched,
    collector: &Path,
    scripts: &Scripts,
    (duty, ring): (NonZeroU32, bool),
) -> CommandLine {
    let context = ProgramContext {
        run_dir: watched.registration.files.clone(),
        phase: NAME.as_str(),
        account: watched.account(),
        ..ProgramContext::default()
    };
    let line = context
        .apply(Annotation::from_env(&scripts.annotate, false).apply(program))
        .env("CUDA_INJECTION64_PATH", collector)
        .env("NVTX_INJECTION64_PATH", collector)
        .env("ROOFGAP_NATIVE_DIR", watched.captures())
        .env("ROOFGAP_NATIVE_CONTROL", &watched.sockets)
        .env("ROOFGAP_NATIVE_DUTY", duty.to_string());
    if ring {
        return line
            .env("ROOFGAP_NATIVE_LAST_MS", RING.as_millis().to_string())
            .env("ROOFGAP_NATIVE_MAX_MB", RING_MB.to_string());
    }
    line
        // The first capture loads CUPTI. Kernels of CUDA graphs from before are recorded, too.
        .env("ROOFGAP_NATIVE_DORMANT", "lazy")
        // Annotations are recorded all the time. Files that a window does not need are dropped, but not within a window.
        .env("ROOFGAP_NATIVE_LAST_MS", (6 * LONGEST_WINDOW.as_millis()).to_string())
        .env("ROOFGAP_NATIVE_MAX_MB", MAX_MB.to_string())
        // A capture that hangs keeps the collector armed.
        .env("ROOFGAP_NATIVE_MAX_S", (LONGEST_WINDOW + ARMED_MARGIN).as_secs().to_string())
}

/// Longest window. A busy program fills a disk in a longer one.
pub const LONGEST_WINDOW: Duration = Duration::from_secs(600);

/// Interval between looks at the program. Each wakes a thread in it, so that a window by time has few.
const LOOK: Duration = Duration::from_millis(200);

/// Interval between looks at a program whose steps are counted.
const LOOK_AT_STEPS: Duration = Duration::from_millis(20);

/// Time for work that was launched in the window to end, before the records are collected for the last time.
const SETTLE: Duration = Duration::from_millis(250);

/// Longest time until samplers sample.
const LONGEST_START: Duration = Duration::from_secs(10);

pub(super) const NAME: PhaseName = PhaseName::Timeline;

/// File of the vitals until the run has it.
const VITALS: &str = "vitals.jsonl";

/// Mode of a run without a baseline and counters.
const MODE: &str = "light";

/// Input of a capture.
#[derive(Debug, Clone)]
pub struct CaptureProps {
    /// Program.
    pub watched: Watched,
    /// Length of the window, or the longest time to wait for its steps.
    pub limit: Duration,
    /// Steps of the window, of the process that makes most of them; `None` for a window by time.
    pub steps: Option<u64>,
    /// Samples of the stacks of its Python processes, times a second.
    pub stacks_hz: Option<NonZeroU32>,
    /// Interval between samples of the hardware counters of all GPUs, us.
    pub counters_us: Option<NonZeroU32>,
    /// This program, which samples them and vitals in processes of its own.
    pub executable: PathBuf,
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
    /// Right to record it. The collector is dormant again once it is gone.
    _hold: Hold,
}

/// Records a window of every process of a watched program, which runs on, and writes the reports. A cancelled capture ends its
/// window early and keeps it.
pub fn capture(
    props: &CaptureProps,
    cancel: &Cancel,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome, Error> {
    if props.limit > LONGEST_WINDOW {
        let (seconds, longest) = (props.limit.as_secs(), LONGEST_WINDOW.as_secs());
        let why = format!("a window of {seconds} s is too long; the longest is {longest} s");
        return Err(Error::new(why));
    }
    let samplers = Samplers::start(props, cancel)?;
    let mut processes = begin(&props.watched)?;
    write_run(props, cancel, events, |context| {
        wait(context, props, &mut processes);
        collect(context, props, &processes, samplers)
    })
}

/// Samplers beside the program, and the folder of their captures until the run has one.
pub(super) struct Samplers {
    list: Vec<Sampler>,
    folder: PathBuf,
}

impl Samplers {
    /// Starts them, and waits until they sample: that takes longer than to turn the recording on.
    fn start(props: &CaptureProps, cancel: &Cancel) -> Result<Self, Error> {
        let name = format!("samples-{}", std::process::id());
        let own = Self::begin(props, &name)?;
        let began = Instant::now();
        while !own.are_ready() && !cancel.is_requested() && began.elapsed() < LONGEST_START {
            std::thread::sleep(LOOK_AT_STEPS);
        }
        Ok(own)
    }

    /// Starts them with a folder of this name.
    pub(super) fn begin(props: &CaptureProps, name: &str) -> Result<Self, Error> {
        let registration = &props.watched.registration;
        let pid = registration.pid.unsigned_abs();
        let folder = registration.files.join(name);
        std::fs::create_dir_all(&folder).map_err(Error::io("write", &folder))?;
        let counters = props.counters_us.map(|interval_us| {
            let line = sampler(&props.executable, interval_us, &folder);
            Sampler::counters(line.arg("--near").arg(pid.to_string()), &folder)
        });
        let stacks = props.stacks_hz.map(|hz| Sampler::stacks(folder.clone(), pid, hz));
        let vitals = Sampler::vitals(&props.executable, &folder.join(VITALS), counters.is_some());
        Ok(Self { list: [vitals].into_iter().chain(counters).chain(stacks).collect(), folder })
    }

    /// Ends the sampling and keeps the files. Returns what was not sampled, and why.
    pub(super) fn pause(&mut self) -> Vec<String> {
        self.list.drain(..).filter_map(Sampler::finish).collect()
    }

    /// Lists the captures of stacks and counters, and the vitals.
    pub(super) fn outputs(&self) -> Vec<PathBuf> {
        let is_output = |file: &PathBuf| file.extension().is_some_and(|end| end == "rgcap" || end == "jsonl");
        entries(&self.folder).into_iter().filter(is_output).collect()
    }

    fn are_ready(&self) -> bool {
        let ended = self.list.iter().filter(|sampler| sampler.has_ended()).count();
        self.outputs().len() + ended >= self.list.len()
    }

    /// Ends the sampling, and copies its files into the run directory.
    fn end(mut self, context: &mut PhaseContext<'_>) {
        for sampler in self.list.drain(..) {
            sampler.end(context);
        }
        for why in self.copy(context, "") {
            context.warn(why);
        }
    }

    /// Copies the files into the run directory; vitals are added to those of earlier samplers. Returns what could not be copied.
    pub(super) fn copy(&self, context: &mut PhaseContext<'_>, prefix: &str) -> Vec<String> {
        let mut failed = Vec::new();
        for file in entries(&self.folder) {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let copied = if name == VITALS {
                let to = context.layout.vitals(NAME);
                let folder = context.run_dir.folder("vitals").map_err(io::Error::other);
                folder.and_then(|_| append_vitals(&file, &to)).map(|()| _ = context.output(&to))
            } else {
                let to = context.layout.native().join(format!("{prefix}{name}"));
                std::fs::copy(&file, to).map(|_| ())
            };
            failed.extend(copied.err().map(|error| format!("{name}: {error}")));
        }
        failed
    }
}

/// Adds vitals to those from before, which have the description of the GPUs.
fn append_vitals(from: &Path, to: &Path) -> io::Result<()> {
    let text = std::fs::read_to_string(from)?;
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(to)?;
    let is_new = file.metadata()?.len() == 0;
    for line in text.split_inclusive('\n').filter(|line| is_new || line.starts_with("{\"at\"")) {
        file.write_all(line.as_bytes())?;
    }
    Ok(())
}

impl Drop for Samplers {
    fn drop(&mut self) {
        self.list.clear();
        // The folder of the program goes with its registration.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Makes an error of a program that cannot be recorded now.
fn partial(why: String) -> Error {
    Error::new(why).with_exit(Exit::Partial)
}

/// Turns the recording on in every process.
fn begin(watched: &Watched) -> Result<Vec<Recorded>, Error> {
    let pid = watched.registration.pid;
    let found = watched.processes();
    if found.is_empty() {
        return Err(partial(format!(
            "process {pid} has not loaded the collector: it has used neither CUDA nor NVTX yet, or it was started without the \
             environment of `roofgap watch`"
        )));
    }
    let mut held = Vec::new();
    for process in found {
        match hold(&process.socket) {
            Ok(hold) => held.push((process, hold)),
            Err(ControlError::Refused { why }) => {
                return Err(partial(format!("process {} cannot be captured: {why}", process.pid)));
            }
            // It has ended meanwhile.
            Err(ControlError::Io { .. }) => {}
        }
    }
    let (mut processes, mut why) = (Vec::new(), Vec::new());
    for (process, hold) in held {
        match arm(process, hold) {
            Ok(recorded) => {
                why.extend(recorded.refused.clone());
                processes.push(recorded);
            }
            Err(error) => why.push(error.to_string()),
        }
    }
    if processes.iter().all(|recorded: &Recorded| recorded.refused.is_some()) {
        why.dedup();
        return Err(partial(format!("process {pid} cannot be recorded: {}", why.join("; "))));
    }
    Ok(processes)
}

/// Begins a new file in a process and turns the recording on.
fn arm(process: WatchedProcess, hold: Hold) -> Result<Recorded, ControlError> {
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
    Ok(Recorded { process, file: before.file, steps_before: before.steps, refused, _hold: hold })
}

/// Writes the run directory of a part of a program: `fill` puts its recordings there, and the reports follow.
pub(super) fn write_run(
    props: &CaptureProps,
    cancel: &Cancel,
    events: &mut dyn FnMut(Event<'_>),
    fill: impl FnOnce(&mut PhaseContext<'_>) -> PhaseStatus,
) -> Result<Outcome, Error> {
    let composed = compose(&ConfigProps {
        program: props.watched.registration.command.clone(),
        overrides: vec![format!("run.mode={MODE}")],
        ..ConfigProps::default()
    })?;
    let session = ProfileProps {
        composed,
        command_line: props.command_line.clone(),
        executable: PathBuf::new(),
        version: props.version.clone(),
        search_path: Vec::new(),
        native: Err(ToolError("a capture uses the collector of the program".to_owned())),
    };
    let base = props.base.as_ref().unwrap_or(&session.composed.config.artifacts.stage2_dir);
    let run_dir = RunDir::create(base)?;
    let mut words = props.command_line.iter().map(|word| word_of_text(word));
    let repeat = CommandLine::new(words.next().unwrap_or_default()).args(words).to_string();
    let mut context = PhaseContext::begin_session(&session, &run_dir, repeat, cancel, events)?;
    run_dir.folder("native")?;
    for phase in ORDER.iter().filter(|phase| !phase.is_conclusion() && phase.name() != NAME) {
        context.record.requested(phase.name(), false);
        let why = "a capture of a running program records its timeline only";
        context.record.phase_ends(phase.name(), PhaseStatus::skipped(why));
    }
    context.begin(NAME, None);
    context.tool("native");
    let status = fill(&mut context);
    context.end(status);
    let mut found = Results::default();
    for phase in ORDER.iter().filter(|phase| phase.is_conclusion()) {
        // Its failure is in the record.
        let _ = run_phase(*phase, &mut context, &mut found);
    }
    let end = if context.is_cancelled() { Err(Stop::Cancelled) } else { Ok(()) };
    Ok(conclude(context, end, found))
}

/// Waits until the window is over. Processes that the program starts meanwhile are recorded too.
fn wait(context: &mut PhaseContext<'_>, props: &CaptureProps, processes: &mut Vec<Recorded>) {
    let began = Instant::now();
    let limit = props.limit;
    let look = if props.steps.is_some() { LOOK_AT_STEPS } else { LOOK };
    while began.elapsed() < limit && !context.is_cancelled() {
        std::thread::sleep(look.min(limit.saturating_sub(began.elapsed())));
        let found = props.watched.processes();
        if found.is_empty() {
            context.warn("the program ended before the window did");
            return;
        }
        let is_new = |process: &WatchedProcess| processes.iter().all(|known| known.process != *process);
        let new: Vec<WatchedProcess> = found.into_iter().filter(is_new).collect();
        let begun = new.into_iter().filter_map(|process| {
            let hold = hold(&process.socket).ok()?;
            arm(process, hold).ok()
        });
        processes.extend(begun);
        if props.steps.is_some_and(|count| steps(processes) >= count) {
            return;
        }
        (context.events)(Event::Tick { phase: NAME, elapsed: began.elapsed(), stopping: false });
    }
    if let Some(count) = props.steps.filter(|_| !context.is_cancelled()) {
        let why = match steps(processes) {
            0 => "the program marked no steps; use --for to record a time".to_owned(),
            found => format!("the program made {found} of {count} steps"),
        };
        context.warn(format!("{why} (in {} s)", limit.as_secs_f64()));
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
fn collect(
    context: &mut PhaseContext<'_>,
    props: &CaptureProps,
    processes: &[Recorded],
    samplers: Samplers,
) -> PhaseStatus {
    for command in ["disarm", "flush"] {
        for recorded in processes {
            // A process that has ended has written its capture.
            let _ = ask(&recorded.process.socket, command);
        }
    }
    samplers.end(context);
    std::thread::sleep(SETTLE);
    for recorded in processes {
        let socket = &recorded.process.socket;
        let _ = ask(socket, "flush");
        let is_cut = ask(socket, "cut").is_ok();
        if let Err(error) = take(context, &recorded.file, is_cut) {
            context.warn(format!("{}: {error}", recorded.file.display()));
        }
    }
    take_account(context, props);
    for recorded in processes {
        if let Some(why) = &recorded.refused {
            context.note(format!("process {}: {why}", recorded.process.pid));
        }
    }
    check(context)
}

/// Copies the program's account of itself into the run directory.
pub(super) fn take_account(context: &mut PhaseContext<'_>, props: &CaptureProps) {
    let account = props.watched.account();
    // A server that `roofgap load` started has its account beside that of the load.
    let accounts = [account.clone(), crate::traffic::server_account_path(&account)];
    if let Some(account) = accounts.iter().find(|path| path.is_file()) {
        let copied = std::fs::copy(account, context.layout.native_account());
        context.note_output(copied.map(|_| context.layout.native_account()));
    }
}

/// Tells whether the captures in the run directory have GPU work.
pub(super) fn check(context: &mut PhaseContext<'_>) -> PhaseStatus {
    let mut captures = context.layout.native_captures();
    captures.retain(|capture| context.output(capture));
    let mut unreadable = Vec::new();
    let input = read_each(&captures, &mut unreadable);
    if input.trace.ops.is_empty() {
        unreadable.insert(0, "no GPU work was recorded in the window".to_owned());
        return PhaseStatus::failed(unreadable.join("; "), None);
    }
    PhaseStatus::Ok
}

/// Copies the window of a process into the run directory: the file before the cut, or the last one of a process that has ended.
fn take(context: &PhaseContext<'_>, file: &Path, is_cut: bool) -> std::io::Result<()> {
    let name = file.file_name().ok_or_else(|| std::io::Error::other("a capture without a name"))?;
    let to = context.layout.native().join(name);
    let source = if is_cut { older_segment(file) } else { file.to_owned() };
    std::fs::copy(&source, &to)?;
    if is_cut {
        // It is in the run directory now.
        let _ = std::fs::remove_file(&source);
    }
    Ok(())
}

/// Adds the requests in the account that `roofgap load --account` wrote to a run of `roofgap capture`.
pub fn add_requests(run_dir: &Path, load: &Path) -> Result<(), Error> {
    let wrong =
        |why: &dyn Display| Error::new(format!("cannot add the requests of {}: {why}", load.display()));
    let record = SessionRecord::read(run_dir).map_err(|error| wrong(&error))?;
    let baseline = record.phase(PhaseName::Baseline);
    if baseline.is_some_and(|phase| phase.requested) {
        return Err(wrong(&"the run is not one of `roofgap capture`"));
    }
    let text = read_document(load).map_err(|error| wrong(&error))?;
    let account = Account::from_json(&text).map_err(|error| wrong(&error))?;
    if account.requests.is_none() {
        return Err(wrong(&"the account has no requests; `roofgap load --account FILE` writes them"));
    }
    let path = Layout::of(run_dir).native_account();
    let joined = Account {
        schema: SCHEMA.to_owned(),
        requests: account.requests,
        ..account_at(path.clone()).unwrap_or_default()
    };
    let text = joined.to_json().map_err(|error| wrong(&error))?;
    write_atomic(&path, &text).map_err(Error::io("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_collect::watch::Registration;
    use roofgap_runs::config::settings::DUTY;
    use std::ffi::OsStr;

    #[test]
    fn the_collector_is_in_the_environment_and_dormant() {
        let watched = Watched {
            registration: Registration {
                pid: 7,
                start: 1,
                started: String::new(),
                command: Vec::new(),
                socket: "/run/7-1/7.sock".into(),
                files: "/tmp/7-1".into(),
            },
            sockets: "/run/7-1".into(),
        };
        let scripts = Scripts { driver: "/s/driver.py".into(), annotate: "/s/annotate".into() };
        let program = CommandLine::new("vllm").args(["serve", "m"]);
        let collector = Path::new("/tmp/7-1/lib.so");
        let line = command(program.clone(), &watched, collector, &scripts, (DUTY, false));
        assert_eq!(line.argv(), ["vllm", "serve", "m"]);
        for (name, value) in [
            ("CUDA_INJECTION64_PATH", "/tmp/7-1/lib.so"),
            ("NVTX_INJECTION64_PATH", "/tmp/7-1/lib.so"),
            ("ROOFGAP_NATIVE_DIR", "/tmp/7-1/captures"),
            ("ROOFGAP_NATIVE_CONTROL", "/run/7-1"),
            ("ROOFGAP_NATIVE_DORMANT", "lazy"),
            ("ROOFGAP_NATIVE_DUTY", "16"),
            ("ROOFGAP_NATIVE_LAST_MS", "3600000"),
            ("ROOFGAP_NATIVE_MAX_S", "610"),
            ("ROOFGAP_WORKLOAD_JSON", "/tmp/7-1/workload.json"),
        ] {
            assert_eq!(line.env_value(name), Some(Some(OsStr::new(value))), "{name}");
        }
        // A ring is recorded from the start, for as long as the program runs.
        let ring = command(program, &watched, collector, &scripts, (NonZeroU32::MIN, true));
        for (name, value) in
            [("DUTY", Some("1")), ("LAST_MS", Some("10000")), ("DORMANT", None), ("MAX_S", None)]
        {
            let found = ring.env_value(&format!("ROOFGAP_NATIVE_{name}"));
            assert_eq!(found.flatten(), value.map(OsStr::new), "{name}");
        }
    }
}
