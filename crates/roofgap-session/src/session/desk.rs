//! What every phase works with, and running a child in a phase.

use std::path::Path;
use std::time::Duration;

use roofgap_collect::child::{
    self, Budget, Cancel, DiskBudget, Job, Outcome, OutputTarget, StopPlan, Watcher,
};
use roofgap_collect::command::CommandLine;
use roofgap_collect::rundir::RunDir;

use super::layout::Layout;
use super::props::Event;
use crate::config::Config;
use crate::record::{Ledger, PhaseName, PhaseStatus};

/// What every phase works with.
pub(super) struct Desk<'a> {
    pub(super) config: &'a Config,
    pub(super) run_dir: &'a RunDir,
    pub(super) layout: Layout,
    pub(super) ledger: Ledger<'a>,
    pub(super) cancel: &'a Cancel,
    pub(super) events: &'a mut dyn FnMut(Event<'_>),
}

/// How a child of a phase is run.
pub(super) struct Errand<'a> {
    /// The command.
    pub(super) line: &'a CommandLine,
    /// Folder and start of the names of its logs.
    pub(super) log: (&'a Path, &'a str),
    /// The longest it may run.
    pub(super) time: Duration,
    /// Whether it is a profiler, which needs time to write its report when it is ended.
    pub(super) profiler: bool,
    /// Its output is a file to keep whole, not a log.
    pub(super) stdout_to: Option<&'a Path>,
    /// Who looks at its output.
    pub(super) watch: Option<Watcher>,
}

impl<'a> Errand<'a> {
    /// A command with its logs in `folder` under `name`.
    pub(super) fn new(line: &'a CommandLine, folder: &'a Path, name: &'a str, time: Duration) -> Self {
        Errand {
            line,
            log: (folder, name),
            time,
            profiler: false,
            stdout_to: None,
            watch: None,
        }
    }
}

/// The most of a CSV that a tool writes to its standard output: far beyond any real one, and not a full disk.
const CSV_CAP: u64 = 4 << 30;

impl Desk<'_> {
    /// Run a child, with its command, times and end in the record. An error is one of running it at all.
    pub(super) fn run(&mut self, phase: PhaseName, errand: Errand<'_>) -> Result<Outcome, String> {
        self.ledger.command_begins(phase, errand.line);
        (self.events)(Event::CommandBegins {
            phase,
            line: errand.line,
        });
        let (folder, name) = errand.log;
        let stdout = match errand.stdout_to {
            Some(path) => OutputTarget::File {
                path: path.to_owned(),
                max_bytes: CSV_CAP,
            },
            None => OutputTarget::file(folder.join(format!("{name}.out.log"))),
        };
        let mut job = Job::new(
            errand.line,
            stdout,
            OutputTarget::file(folder.join(format!("{name}.err.log"))),
        );
        job.budget = Budget {
            time: Some(errand.time),
            disk: Some(DiskBudget {
                folder: self.run_dir.path().to_owned(),
                max_bytes: Some(self.config.retention.max_run_bytes.0),
                min_free_bytes: Some(RESERVE),
            }),
        };
        job.stop = stop_plan(errand.profiler, self.config.run.grace.0);
        job.cancel = self.cancel.clone();
        job.watch = errand.watch;
        let events = &mut *self.events;
        let outcome = child::run(job, &mut |tick| {
            events(Event::Tick {
                phase,
                elapsed: tick.elapsed,
                stopping: tick.stopping,
            });
        });
        match outcome {
            Ok(outcome) => {
                self.ledger.command_ends(phase, Ok(&outcome));
                for left in &outcome.leftovers {
                    self.ledger.note(
                        phase,
                        format!(
                            "ended {} (process {}), which was left behind",
                            left.name, left.pid
                        ),
                    );
                }
                Ok(outcome)
            }
            Err(error) => {
                self.ledger.command_ends(phase, Err(error.to_string()));
                Err(error.to_string())
            }
        }
    }

    /// Begin a phase.
    pub(super) fn begin(&mut self, phase: PhaseName) {
        self.ledger.phase_begins(phase);
        (self.events)(Event::PhaseBegins(phase));
    }

    /// End a phase.
    pub(super) fn end(&mut self, phase: PhaseName, status: PhaseStatus) {
        (self.events)(Event::PhaseEnds {
            phase,
            status: &status,
        });
        self.ledger.phase_ends(phase, status);
    }

    /// Leave a phase out; `asked` says whether that is a loss.
    pub(super) fn skip(&mut self, phase: PhaseName, asked: bool, why: impl Into<String>) {
        self.ledger.asked(phase, asked);
        self.end(phase, PhaseStatus::skipped(why));
    }

    /// Whether the user wants the end.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_requested()
    }
}

/// How a child is ended: the program gets the grace of the configuration, a profiler at least what its report needs.
fn stop_plan(profiler: bool, grace: Duration) -> StopPlan {
    if profiler {
        let patient = StopPlan::for_profiler();
        StopPlan {
            interrupt: patient.interrupt.max(grace),
            ..patient
        }
    } else {
        StopPlan {
            interrupt: grace,
            terminate: grace,
            ..StopPlan::default()
        }
    }
}

/// What must stay free on the disk while children run: room for the record and the reports.
const RESERVE: u64 = 64 << 20;
