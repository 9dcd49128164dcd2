//! The context shared by all phases, the commands they run, and the failure of an attempt to run a phase.

use super::props::{Event, ProfileProps};
use crate::stage1::ComposedConfig;
use roofgap_base::clock;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::child::{
    self, Budget, Cancel, ChildError, ChildSpec, DiskBudget, EndReason, Outcome, OutputTarget, StopPlan,
    Watcher,
};
use roofgap_collect::command::CommandLine;
use roofgap_runs::config::Config;
use roofgap_runs::run_dir::folder::RunDir;
use roofgap_runs::run_dir::record::SCHEMA;
use roofgap_runs::run_dir::{Layout, PhaseName, PhaseStatus, RecordWriter, SessionRecord, SessionState};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Context shared by all phases of a session.
pub struct PhaseContext<'a> {
    pub props: &'a ProfileProps,
    pub config: &'a Config,
    pub run_dir: &'a RunDir,
    pub layout: Layout,
    pub record: RecordWriter<'a>,
    /// Phase that runs, or ran last.
    pub phase: PhaseName,
    pub cancel: &'a Cancel,
    pub events: &'a mut dyn FnMut(Event<'_>),
    /// Failures of the program under a profiler that still wrote its output, with the phase.
    pub program_failures: Vec<String>,
    /// Configuration of a Hydra module as it runs.
    pub module_config: Option<ComposedConfig>,
}

/// A command of a phase, described before it runs. A session runs it, `--dry-run` prints it.
#[derive(Debug, Clone)]
pub struct PhaseCommand {
    pub line: CommandLine,
    /// Folder of the logs.
    folder: PathBuf,
    /// Prefix of the names of the logs.
    log: &'static str,
    /// Time limit.
    limit: Duration,
    /// True for a profiler, which needs time to write its report when it is stopped.
    is_profiler: bool,
    /// File for the standard output, where it is a result and not a log.
    stdout: Option<PathBuf>,
}

/// Commands of a phase with notes on them, as `--dry-run` prints them.
#[derive(Debug, Default)]
pub struct PhaseDescription {
    pub commands: Vec<PhaseCommand>,
    pub notes: Vec<String>,
}

impl PhaseCommand {
    /// Describes a command with logs in `folder`, their names starting with `log`.
    pub fn new(line: CommandLine, folder: PathBuf, log: &'static str, limit: Duration) -> Self {
        Self { line, folder, log, limit, is_profiler: false, stdout: None }
    }

    /// Marks the command as a profiler.
    pub fn profiler(mut self) -> Self {
        self.is_profiler = true;
        self
    }

    /// Writes the standard output to a file.
    pub fn stdout_to(mut self, path: PathBuf) -> Self {
        self.stdout = Some(path);
        self
    }
}

impl From<PhaseCommand> for PhaseDescription {
    fn from(command: PhaseCommand) -> Self {
        Self { commands: vec![command], notes: Vec::new() }
    }
}

/// Maximum size of a CSV on standard output, bytes: above any real one, below a full disk.
const CSV_CAP: u64 = 4 << 30;

/// Disk space kept free while commands run, for the record and the reports, bytes.
const RESERVE: u64 = 64 << 20;

impl<'a> PhaseContext<'a> {
    /// Writes the first files of a session. `repeat_command` repeats it. A session whose configuration cannot be kept is not worth
    /// running.
    pub fn begin_session(
        props: &'a ProfileProps,
        run_dir: &'a RunDir,
        repeat_command: String,
        cancel: &'a Cancel,
        events: &'a mut dyn FnMut(Event<'_>),
    ) -> Result<Self, Error> {
        let config = &props.composed.config;
        run_dir.write("config.yaml", props.composed.to_yaml().as_bytes())?;
        for folder in ["nsys", "ncu"] {
            run_dir.folder(folder)?;
        }
        events(Event::Started { run_id: run_dir.id().as_str(), path: run_dir.path() });
        let record = SessionRecord {
            schema: SCHEMA.to_owned(),
            run_id: run_dir.id().to_string(),
            roofgap_version: props.version.clone(),
            command_line: props.command_line.clone(),
            repeat_command,
            mode: config.run.mode.as_str().to_owned(),
            workload: config.workload.kind.as_str().to_owned(),
            started: clock::now().to_string(),
            finished: None,
            state: SessionState::Running,
            exit_status: None,
            missing: Vec::new(),
            phases: Vec::new(),
        };
        let mut record = RecordWriter::begin(run_dir, record);
        for note in &props.composed.notes {
            record.note(PhaseName::Preflight, note);
        }
        Ok(PhaseContext {
            props,
            config,
            run_dir,
            layout: Layout::of(run_dir.path()),
            record,
            phase: PhaseName::Preflight,
            cancel,
            events,
            program_failures: Vec::new(),
            module_config: None,
        })
    }

    /// Runs a command and records it. An error means that it did not start.
    pub fn run(&mut self, command: &PhaseCommand) -> Result<Outcome, ChildError> {
        self.run_watched(command, None)
    }

    /// Runs a command with a watcher of its output.
    pub fn run_watched(
        &mut self,
        command: &PhaseCommand,
        watcher: Option<Watcher>,
    ) -> Result<Outcome, ChildError> {
        let phase = self.phase;
        self.record.command_begins(phase, &command.line);
        (self.events)(Event::CommandBegins { phase, line: &command.line });
        let log = |stream: &str| command.folder.join(format!("{}.{stream}.log", command.log));
        let stdout = match &command.stdout {
            Some(path) => OutputTarget::File { path: path.clone(), max_bytes: CSV_CAP },
            None => OutputTarget::file(log("out")),
        };
        let disk = DiskBudget {
            folder: self.run_dir.path().to_owned(),
            max_bytes: self.config.retention.max_run_bytes.0,
            min_free_bytes: RESERVE,
        };
        // All within the configured grace period, and time for a profiler to write its report.
        let stop = if command.is_profiler { StopPlan::for_profiler() } else { StopPlan::default() };
        let child = ChildSpec {
            budget: Budget { time: Some(command.limit), disk: Some(disk) },
            stop: stop.within(self.config.run.grace.0),
            cancel: self.cancel.clone(),
            watch: watcher,
            ..ChildSpec::new(&command.line, stdout, OutputTarget::file(log("err")))
        };
        let events = &mut *self.events;
        let outcome = child::run(child, &mut |tick| {
            events(Event::Tick { phase, elapsed: tick.elapsed, stopping: tick.stopping });
        });
        self.record.command_ends(phase, outcome.as_ref());
        for left in outcome.iter().flat_map(|outcome| &outcome.leftovers) {
            let note = format!("stopped {} (process {}), which was left behind", left.name, left.pid);
            self.record.note(phase, note);
        }
        outcome
    }

    /// Starts a phase. `expected` states the time that it can be expected to take.
    pub fn begin(&mut self, phase: PhaseName, expected: Option<String>) {
        self.phase = phase;
        self.record.phase_begins(phase);
        (self.events)(Event::PhaseBegins { phase, expected });
    }

    /// Ends the phase.
    pub fn end(&mut self, status: PhaseStatus) {
        (self.events)(Event::PhaseEnds { phase: self.phase, status: &status });
        self.record.phase_ends(self.phase, status);
    }

    /// Skips a phase. A requested phase that is skipped is missing from the result.
    pub fn skip(&mut self, phase: PhaseName, requested: bool, why: impl Into<String>) {
        self.phase = phase;
        self.record.requested(phase, requested);
        self.end(PhaseStatus::skipped(why));
    }

    /// Records the tool of the phase.
    pub fn tool(&mut self, tool: &str) {
        self.record.tool(self.phase, tool);
    }

    /// Adds a note to the phase.
    pub fn note(&mut self, text: impl Into<String>) {
        self.record.note(self.phase, text);
    }

    /// Adds a note and shows it as a warning.
    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        (self.events)(Event::Warning(&text));
        self.note(text);
    }

    /// Records that the program did not succeed under `tool`, although the tool wrote its output. Where the program failed by
    /// itself, the result is partial and its last words are shown.
    pub fn program_ended(&mut self, tool: &str, outcome: &Outcome) {
        if outcome.is_success() {
            return;
        }
        let phase = self.phase;
        let why = format!("under {tool} the program {}", outcome.describe());
        if outcome.ended == EndReason::Exited {
            let why = format!("{why}; the measurement may end there");
            (self.events)(Event::ProgramFailed { phase, why: &why, log_tail: outcome.output_tail() });
            self.program_failures.push(format!("{phase}: {why}"));
        }
        self.note(why);
    }

    /// Records an output that was written, or notes the error.
    pub fn note_output<E: std::fmt::Display>(&mut self, written: Result<PathBuf, E>) {
        match written {
            Ok(path) => {
                self.output(&path);
            }
            Err(error) => self.note(error.to_string()),
        }
    }

    /// Records an output file; returns false where it is missing or empty.
    pub fn output(&mut self, path: &Path) -> bool {
        self.record.output(self.phase, path)
    }

    /// Returns true once the user cancelled the session.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_requested()
    }
}

/// Failure of an attempt to run a phase: the reason, and the last lines of the log of the failed command.
///
/// It is built from any error by `?`, so it is not an error type itself.
#[derive(Debug)]
pub struct AttemptError {
    pub why: String,
    pub log_tail: Option<String>,
    /// True where nothing was attempted.
    pub skipped: bool,
    /// Exit status of a session that cannot continue.
    pub exit: Option<Exit>,
}

impl AttemptError {
    /// Creates a failure without a log.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), log_tail: None, skipped: false, exit: None }
    }

    /// Creates a failure with the log of a command.
    pub fn after(why: impl Into<String>, outcome: &Outcome) -> Self {
        Self { log_tail: Some(outcome.output_tail().to_owned()), ..Self::new(why) }
    }

    /// Creates the reason of a phase that attempted nothing.
    pub fn skipped(why: impl Into<String>) -> Self {
        Self { skipped: true, ..Self::new(why) }
    }

    /// Ends the session.
    pub fn ending(self, exit: Exit) -> Self {
        Self { exit: Some(exit), ..self }
    }

    /// Converts the failure to the status of the phase.
    pub fn status(&self) -> PhaseStatus {
        match self.skipped {
            true => PhaseStatus::skipped(&self.why),
            false => PhaseStatus::failed(&self.why, self.log_tail.as_deref()),
        }
    }
}

impl<E: std::error::Error> From<E> for AttemptError {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}
