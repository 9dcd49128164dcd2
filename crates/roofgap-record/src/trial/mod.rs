//! `roofgap try`: applies changes to the workload of a run, measures each in pairs of runs with the unchanged workload, then those that help
//! together, and keeps the best or none. The result is `try.json`.
//!
//! Runs of the unchanged and the changed workload alternate, and the order of every second pair is reversed, so slow changes of the machine
//! affect both sides of a pair alike.
//!
//! - [`mod@plan`]: the changes to try, what trying them costs, and the gain that findings predict;
//! - `variant`: a workload with changes, as overrides of its configuration and as a command;
//! - `sample`: one run of a workload without a profiler, and its times;
//! - `judge`: the verdict on a change from its pairs of runs.

pub mod plan;

mod judge;
mod sample;
mod variant;

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use roofgap_analyze::{
    OutputCheck, TRY_SCHEMA, TimeChange, Trial, TrialRow, TrialState, TrialVerdict, Winner,
};
use roofgap_base::clock::{self, ns};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::numbers::{decimal, time};
use roofgap_collect::child::Cancel;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::config::{Config, Span};
use roofgap_runs::run_dir::Layout;
use roofgap_runs::run_dir::folder::write_json;

use crate::distinct;
use crate::run::write_reports;
use judge::{base_runs, compare_output, compare_times, hindrance, is_narrow, refusal, verdict};
use plan::{Candidate, bound_ratio};
use sample::{Failure, Sample, Stop, attempt};
use variant::{Variant, conflict};

pub use plan::{TrialPlan, TrialProps, plan};

/// Most pairs of runs, as a multiple of the fewest. A noisier time is decided by what these show.
const MOST_PAIRS: u32 = 4;

/// Folder of the measured runs within the run directory.
const SCRATCH: &str = ".try-runs";

/// Progress of a trial.
#[derive(Debug)]
pub enum TrialEvent<'a> {
    /// What is in progress, until the next event; sent several times a second.
    Status(&'a str),
    /// A run or a changed workload has ended.
    Line(&'a str),
}

/// Result of a trial.
#[derive(Debug, Clone)]
pub struct TrialOutcome {
    /// The trial, as on disk.
    pub trial: Trial,
    /// Exit status.
    pub exit: Exit,
}

/// Runs a trial and writes its result to `try.json` of the run, in place of that of an earlier trial.
///
/// # Errors
/// Fails when another trial of the run is in progress, or its record cannot be written.
pub fn run(
    props: &TrialProps,
    plan: &TrialPlan,
    cancel: &Cancel,
    events: &mut dyn FnMut(TrialEvent<'_>),
) -> Result<TrialOutcome, Error> {
    let folder = &props.run.path;
    let _lock = lock(folder)?;
    let scratch = folder.join(SCRATCH);
    // The lock is held: what lies there was left by a trial that was killed.
    let _ = std::fs::remove_dir_all(&scratch);
    std::fs::create_dir(&scratch).map_err(Error::io("write", &scratch))?;
    let mut context = TrialContext {
        props,
        plan,
        cancel,
        events,
        scratch,
        trial: Trial {
            schema: TRY_SCHEMA.to_owned(),
            run_id: props.run.id.clone(),
            roofgap_version: props.session.version.clone(),
            started: clock::now().to_string(),
            budget_ns: ns(props.budget),
            repeats: props.repeats,
            ..Trial::default()
        },
        spent: Duration::ZERO,
        base: Vec::new(),
        base_took: plan.run_ns.map(Duration::from_nanos).unwrap_or_default(),
    };
    let end = context.steps();
    let _ = std::fs::remove_dir_all(&context.scratch);
    let exit = context.conclude(end)?;
    // The reports show the trial.
    if let Err(error) = write_reports(folder) {
        context.trial.notes.push(format!("the reports do not show it: {error}"));
        context.save()?;
    }
    Ok(TrialOutcome { trial: context.trial, exit })
}

/// A changed workload that is measured.
struct Contender<'a> {
    /// Index of its row.
    row: usize,
    variant: Variant<'a>,
}

/// State of a trial while it runs.
struct TrialContext<'a> {
    props: &'a TrialProps,
    plan: &'a TrialPlan,
    cancel: &'a Cancel,
    events: &'a mut dyn FnMut(TrialEvent<'_>),
    scratch: PathBuf,
    trial: Trial,
    spent: Duration,
    /// Runs of the unchanged workload.
    base: Vec<Sample>,
    /// Wall time of the last session of the unchanged workload, zero where it is not known.
    base_took: Duration,
}

impl<'a> TrialContext<'a> {
    fn config(&self) -> &'a Config {
        &self.props.session.composed.config
    }

    fn left(&self) -> Duration {
        self.props.budget.saturating_sub(self.spent)
    }

    /// Writes the trial as it stands.
    fn save(&mut self) -> Result<(), Error> {
        self.trial.spent_ns = ns(self.spent);
        write_json(&Layout::of(&self.props.run.path).trial(), &self.trial)
    }

    /// Runs everything that the budget allows.
    fn steps(&mut self) -> Result<(), Stop> {
        let alone: Vec<Contender<'_>> =
            self.plan.candidates.iter().map(|change| self.enter(vec![change])).collect();
        let mut end = Ok(());
        for contender in &alone {
            if end.is_ok() {
                end = self.measure(contender);
            }
            self.close(contender, end.as_ref().err());
        }
        let helpful = self.helpful(alone);
        let Some((best, others)) = helpful.split_first() else {
            return end;
        };
        self.keep(best);
        if end.is_err() || others.is_empty() {
            return end;
        }
        let together =
            self.enter(helpful.iter().flat_map(|contender| contender.variant.changes.clone()).collect());
        let end = self.measure(&together);
        self.close(&together, end.as_ref().err());
        self.prefer(&together, best, others);
        end
    }

    /// Adds the row of some changes without measurements.
    fn enter(&mut self, changes: Vec<&'a Candidate>) -> Contender<'a> {
        let knob = match changes.as_slice() {
            [change] => Some(change.knob.clone()),
            _ => None,
        };
        let findings = distinct(changes.iter().flat_map(|change| change.finding_ids()));
        let variant = Variant { changes };
        self.trial.rows.push(TrialRow {
            knob,
            knobs: variant.ids(),
            findings,
            verdict: TrialVerdict::Unfinished,
            reason: None,
            log_tail: None,
            runs: 0,
            times: Vec::new(),
            output: OutputCheck::NotKnown { why: "it did not run to its end".to_owned() },
            device_memory_bytes: None,
            clocks_mhz: None,
            command: variant.command(&self.props.run.path, self.config()),
        });
        Contender { row: self.trial.rows.len() - 1, variant }
    }

    /// Measures a changed workload against the unchanged one until its row is decided.
    fn measure(&mut self, contender: &Contender<'_>) -> Result<(), Stop> {
        let unchanged = Variant::default();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut took = self.base_took;
        for pair in 1..=self.props.repeats.saturating_mul(MOST_PAIRS) {
            for is_changed in [pair % 2 == 0, pair % 2 == 1] {
                if is_changed {
                    match self.sample(&contender.variant, pair, took) {
                        Ok((sample, ran)) => {
                            after.push(sample);
                            took = ran;
                        }
                        Err(Stop::Failed(failure)) => self.fail(contender, failure),
                        Err(stop) => return Err(stop),
                    }
                } else {
                    let (sample, ran) = self.sample(&unchanged, pair, self.base_took)?;
                    self.base_took = ran;
                    self.base.push(sample.clone());
                    self.trial.base = base_runs(&self.base);
                    before.push(sample);
                }
                self.update(contender, &before, &after);
                self.save().map_err(Stop::Record)?;
                if self.trial.rows[contender.row].verdict != TrialVerdict::Unfinished {
                    return Ok(());
                }
            }
            if self.is_decided(contender) {
                break;
            }
        }
        Ok(())
    }

    /// Runs a workload once. Returns its measurements with the time it took.
    fn sample(
        &mut self,
        variant: &Variant<'_>,
        pair: u32,
        expected: Duration,
    ) -> Result<(Sample, Duration), Stop> {
        let left = self.left();
        if self.cancel.is_requested() {
            return Err(Stop::Cancelled);
        }
        if left.is_zero() || expected > left {
            return Err(Stop::Budget);
        }
        let label = variant.label();
        (self.events)(TrialEvent::Status(&format!("pair {pair}: {label}")));
        let (began, limit) = (Instant::now(), self.config().run.timeout.0.min(left));
        let overrides = variant.overrides(self.config());
        let events = &mut *self.events;
        let tick = &mut |elapsed: Duration| {
            let (elapsed, left) = (time(ns(elapsed)), time(ns(left.saturating_sub(elapsed))));
            events(TrialEvent::Status(&format!("pair {pair}: {label} ... {elapsed}, {left} left")));
        };
        let result = attempt(self.props, overrides, &self.scratch, limit, self.cancel, tick);
        let took = began.elapsed();
        self.spent += took;
        match result {
            // The budget ended it, not the program.
            Err(Stop::Failed(_)) if took >= left => Err(Stop::Budget),
            Err(Stop::Failed(failure)) => {
                (self.events)(TrialEvent::Line(&format!("{label}: failed: {}", failure.why)));
                Err(Stop::Failed(failure))
            }
            Err(stop) => Err(stop),
            Ok(sample) => {
                if let Some((of, ns)) = sample.times.first() {
                    let (name, ns) = (of.name(), time(ns.round() as i64));
                    (self.events)(TrialEvent::Line(&format!("pair {pair}: {label}: {name} {ns}")));
                }
                Ok((sample, took))
            }
        }
    }

    /// Computes a row from its runs so far. One that cannot be compared, or is refused, has its verdict.
    fn update(&mut self, contender: &Contender<'_>, before: &[Sample], after: &[Sample]) {
        let config = self.config();
        let closed_loop = config.workload.kind == WorkloadKind::Server && config.load.rate.is_none();
        let (stages, base) = (&self.plan.stages, &self.trial.base.times);
        let bound = |of: &_| bound_ratio(of, &contender.variant.changes, stages, base, closed_loop);
        let times = compare_times(before, after, bound);
        let decides = before.first().and_then(|sample| sample.times.first()).map(|(of, _)| of);
        let is_comparable =
            before.is_empty() || after.is_empty() || times.first().map(|change| &change.of) == decides;
        let output = compare_output(before, after);
        let refused = refusal(before, after, &output, contender.variant.effect());
        let clocks: Option<Vec<_>> =
            before.iter().zip(after).map(|(before, after)| before.sm_mhz.zip(after.sm_mhz)).collect();
        let row = &mut self.trial.rows[contender.row];
        row.runs = after.len() as u64;
        row.times = times;
        row.output = output;
        row.clocks_mhz = clocks.filter(|clocks| !clocks.is_empty()).map(|clocks| {
            let mean = |of: fn(&(f64, f64)) -> f64| clocks.iter().map(of).sum::<f64>() / clocks.len() as f64;
            (mean(|pair| pair.0), mean(|pair| pair.1))
        });
        row.device_memory_bytes = after.iter().filter_map(|sample| sample.device_memory_bytes).max();
        if row.verdict == TrialVerdict::Failed {
            return;
        }
        if !is_comparable {
            let why = "the program reports other times with the change than without".to_owned();
            self.fail(contender, Failure { why, log_tail: None });
        } else if refused.is_some() {
            row.verdict = TrialVerdict::Refused;
            row.reason = refused;
        }
    }

    fn fail(&mut self, contender: &Contender<'_>, failure: Failure) {
        let row = &mut self.trial.rows[contender.row];
        row.verdict = TrialVerdict::Failed;
        row.reason = Some(failure.why);
        row.log_tail = failure.log_tail;
    }

    /// Tells whether a row needs no more pairs. More than the fewest are run only for a change that can be kept, and only in the first half
    /// of the budget: the second is for other changes.
    fn is_decided(&self, contender: &Contender<'_>) -> bool {
        let Some(change) = self.trial.rows[contender.row].deciding() else {
            return false;
        };
        let enough = change.after_ns.len() as u64 >= u64::from(self.props.repeats);
        let hindered = self.hindrance(contender).is_some();
        enough && (is_narrow(change) || hindered || self.left() < self.props.budget / 2)
    }

    /// Returns the reason not to keep a faster change.
    fn hindrance(&self, contender: &Contender<'_>) -> Option<String> {
        let row = &self.trial.rows[contender.row];
        hindrance(row, contender.variant.effect(), self.props.accept_changed_output)
    }

    /// Ends a row with its verdict.
    fn close(&mut self, contender: &Contender<'_>, stop: Option<&Stop>) {
        let row = &mut self.trial.rows[contender.row];
        row.verdict = verdict(row, self.props.repeats);
        if row.verdict == TrialVerdict::Unfinished {
            let pairs = row.deciding().map_or(0, |change| change.after_ns.len());
            let why = match stop {
                Some(Stop::Cancelled) => "interrupted",
                Some(Stop::Budget) => "the budget was spent",
                Some(Stop::Failed(_)) => "the workload without the change failed",
                Some(Stop::Record(_)) | None => "the trial ended",
            };
            let least = self.props.repeats;
            row.reason = Some(format!("{why} after {pairs} of at least {least} pairs of runs"));
        }
        let verdict = match row.verdict {
            // What is kept is decided when all are measured.
            TrialVerdict::Faster => "faster",
            verdict => verdict.word(),
        };
        (self.events)(TrialEvent::Line(&format!("{}: {verdict}", contender.variant.label())));
    }

    /// Returns the changes that help, may be kept and do not exclude one another, the largest gain first. The rows of others that are faster
    /// say why they are not among them.
    fn helpful(&mut self, mut contenders: Vec<Contender<'a>>) -> Vec<Contender<'a>> {
        let ratio = |row: &TrialRow| row.deciding().and_then(|change| change.ratio).unwrap_or_default();
        contenders.retain(|one| self.trial.rows[one.row].verdict == TrialVerdict::Faster);
        contenders.sort_by(|a, b| ratio(&self.trial.rows[b.row]).total_cmp(&ratio(&self.trial.rows[a.row])));
        let mut helpful: Vec<Contender<'a>> = Vec::new();
        for contender in contenders {
            let mut changes = helpful.iter().flat_map(|better| &better.variant.changes);
            let same = changes.find(|better| conflict(&better.knob, &contender.variant.changes[0].knob));
            let same = same
                .map(|better| format!("it changes the same setting as {}, which gives more", better.knob.id));
            let reason = self.hindrance(&contender).or(same);
            if reason.is_none() {
                helpful.push(contender);
            } else {
                self.trial.rows[contender.row].reason = reason;
            }
        }
        helpful
    }

    /// Keeps a changed workload.
    fn keep(&mut self, contender: &Contender<'_>) {
        self.trial.rows[contender.row].verdict = TrialVerdict::Kept;
        self.trial.winner = Some(Winner {
            knobs: contender.variant.ids(),
            row: contender.row,
            command: contender.variant.profile_command(&self.props.run.path, self.config()),
        });
    }

    /// Keeps all changes together where they are faster than the best alone.
    fn prefer(&mut self, together: &Contender<'_>, best: &Contender<'_>, others: &[Contender<'_>]) {
        let rows = &self.trial.rows;
        let alone = rows[best.row].deciding().and_then(|change| change.ratio);
        let low = rows[together.row].deciding().and_then(|change| change.interval).map(|(low, _)| low);
        if rows[together.row].verdict == TrialVerdict::Faster {
            let no_gain = || format!("no gain over {} alone is shown", best.variant.label());
            let reason = self.hindrance(together).or_else(|| (low <= alone).then(no_gain));
            if reason.is_none() {
                self.keep(together);
            }
            self.trial.rows[together.row].reason = reason;
        }
        let verdict = self.trial.rows[together.row].verdict;
        for other in others {
            let row = &mut self.trial.rows[other.row];
            if verdict == TrialVerdict::Kept {
                row.verdict = verdict;
            } else {
                row.reason =
                    Some(format!("{}, measured together: {}", together.variant.label(), verdict.word()));
            }
        }
    }

    /// Records how the trial ended. Returns the exit status.
    fn conclude(&mut self, end: Result<(), Stop>) -> Result<Exit, Error> {
        let (state, reason, exit) = match end {
            Ok(()) => (TrialState::Done, None, Exit::Done),
            Err(Stop::Budget) => {
                let reason = format!("the budget of {} was spent", Span(self.props.budget));
                (TrialState::Done, Some(reason), Exit::Partial)
            }
            Err(Stop::Cancelled) => {
                let reason = "interrupted by the user".to_owned();
                (TrialState::Interrupted, Some(reason), Exit::Interrupted)
            }
            Err(Stop::Failed(failure)) => {
                self.trial.log_tail = failure.log_tail;
                (TrialState::Failed, Some(failure.why), Exit::ProgramFailed)
            }
            Err(Stop::Record(error)) => return Err(error),
        };
        let above =
            self.trial.rows.iter().flat_map(|row| row.times.iter().filter_map(|it| above_bound(row, it)));
        self.trial.notes = above.collect();
        self.trial.state = state;
        self.trial.reason = reason;
        self.trial.finished = Some(clock::now().to_string());
        self.save()?;
        Ok(exit)
    }
}

/// Describes a gain above its predicted bound.
fn above_bound(row: &TrialRow, change: &TimeChange) -> Option<String> {
    use TrialVerdict::{Faster, Kept, Same, Slower};
    let is_measured = matches!(row.verdict, Faster | Kept | Same | Slower);
    let (low, bound) = (change.interval?.0, change.bound_ratio?);
    (is_measured && change.within_bound == Some(false)).then(|| {
        format!(
            "{} with {} is at least {} times as fast, above the bound of {} that {} predicts: an error of roofgap's model; please report it",
            change.of.name(),
            row.knobs.join(" + "),
            decimal(low, 2),
            decimal(bound, 2),
            row.findings.join(", "),
        )
    })
}

/// Locks a run for a trial.
fn lock(folder: &Path) -> Result<File, Error> {
    let lock = File::open(folder).map_err(Error::io("write", folder))?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err(Error::new(format!("another trial of {} is in progress", folder.display())))
        }
        // A file system without locks must not prevent a trial.
        Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => {
            Err(Error::io("write", folder)(error))
        }
        _ => Ok(lock),
    }
}
