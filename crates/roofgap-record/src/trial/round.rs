//! Interleaved runs of a workload and of changed ones.
//!
//! A block runs each once. In a trial the order of every second block is reversed, in a search the order is random. So slow changes of
//! the machine affect both sides of a pair alike.
//!
//! The state of a trial while it runs, and `try.json` or `tune.json` on disk. Every decision follows from the runs: given the runs of an earlier
//! call, the same steps come to where it ended, and go on from there.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use roofgap_analyze::{
    Failure, Knob, MeasuredTime, Sample, TRY_SCHEMA, Trial, TrialRun, TrialVerdict, Trials,
};
use roofgap_collect::child::Cancel;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::run_dir::folder::write_json;
use roofgap_runs::run_dir::{Layout, RunRef, read_trial_file};
use tempfile::TempDir;

use super::judge::{
    Rule, base_runs, compare_output, compare_times, hindrance, is_narrow, refusal, set_bound, verdict,
};
use super::plan::{Candidate, TrialPlan, bound_ratio};
use super::sample::{Unmeasured, Variant, attempt, decide_by};
use super::search::{MOST_PROOF_PAIRS, QUALIFYING_PAIRS};
use super::{TrialEvent, TrialProps};
use crate::run::{Event, Outcome, profile};
use roofgap_base::clock::ns;
use roofgap_base::error::Error;
use roofgap_base::numbers::{counted, time};

/// Most pairs of runs, as a multiple of the fewest. A noisier time is decided by what these show.
const MOST_PAIRS: u32 = 4;

/// A changed workload that is measured.
#[derive(Debug)]
pub struct Contender {
    pub variant: Variant,
    /// Index of its row.
    pub row: usize,
    /// Runs by block; `None` where it did not run.
    samples: Vec<Option<Sample>>,
    took: Option<Duration>,
    pub open: bool,
}

impl Contender {
    /// Starts without runs.
    pub fn new(variant: Variant, row: usize) -> Self {
        Self { variant, row, samples: Vec::new(), took: None, open: true }
    }
}

impl<'a> TrialContext<'a> {
    /// Measures changed workloads against `reference` until each has a verdict, or the trial must stop. Either way each row has what
    /// was measured.
    pub fn measure(
        &mut self,
        reference: &Variant,
        contenders: &mut [Contender],
        rule: Rule,
    ) -> Result<(), Stop> {
        let most = match rule {
            Rule::Estimate => self.props.repeats.saturating_mul(MOST_PAIRS) as usize,
            Rule::Qualify => QUALIFYING_PAIRS,
            Rule::Prove(_) => MOST_PROOF_PAIRS,
        };
        let mut before: Vec<Option<Sample>> = Vec::new();
        contenders.iter_mut().for_each(|contender| contender.samples.clear());
        let mut end = Ok(());
        for block in 0..most {
            if end.is_err() || contenders.iter().all(|contender| !contender.open) {
                break;
            }
            before.push(None);
            contenders.iter_mut().for_each(|contender| contender.samples.push(None));
            end = self.run_block(reference, &mut before, contenders, block, rule);
            if rule != Rule::Estimate && end.is_ok() {
                self.thin_out(contenders, rule);
            }
            for contender in contenders.iter_mut().filter(|contender| contender.open) {
                if rule == Rule::Estimate && self.is_decided(contender) {
                    self.close(contender, None);
                }
            }
        }
        if rule != Rule::Qualify || end.is_err() {
            self.abandon(contenders, end.as_ref().err());
        }
        self.save()?;
        end
    }

    /// Ends the contenders that have no verdict yet.
    pub fn abandon(&mut self, contenders: &mut [Contender], stop: Option<&Stop>) {
        for contender in contenders.iter_mut().filter(|contender| contender.open) {
            self.close(contender, stop);
        }
    }

    /// Runs each open workload once.
    fn run_block(
        &mut self,
        reference: &Variant,
        before: &mut [Option<Sample>],
        contenders: &mut [Contender],
        block: usize,
        rule: Rule,
    ) -> Result<(), Stop> {
        let pair = block + 1;
        let mut order: Vec<Option<usize>> =
            std::iter::once(None).chain((0..contenders.len()).map(Some)).collect();
        if self.trial.search.is_some() {
            self.rng.shuffle(&mut order);
        } else if block % 2 == 1 {
            order.reverse();
        }
        for who in order {
            match who {
                None if contenders.iter().any(|contender| contender.open) => {
                    let sample = self.sample(reference, pair, self.expected())?;
                    let sample = sample.and_then(|(sample, _)| self.check_base().map(|()| sample));
                    let failed = |failure| Stop::Failed { label: reference.label(), failure };
                    before[block] = Some(sample.map_err(failed)?);
                }
                None => {}
                Some(at) => {
                    let contender = &mut contenders[at];
                    if !contender.open {
                        continue;
                    }
                    let expected = contender.took.unwrap_or_else(|| self.expected());
                    match self.sample(&contender.variant, pair, expected)? {
                        Ok((sample, took)) => {
                            contender.took = Some(took);
                            contender.samples[block] = Some(sample);
                        }
                        Err(failure) => self.fail(contender, failure),
                    }
                }
            }
            for contender in contenders.iter_mut().filter(|contender| contender.open) {
                self.update(reference, before, contender, rule);
            }
            self.save()?;
        }
        Ok(())
    }

    /// Computes the row of a contender from its pairs so far. A contender that cannot be compared, or is refused, is closed.
    fn update(
        &mut self,
        reference: &Variant,
        before: &[Option<Sample>],
        contender: &mut Contender,
        rule: Rule,
    ) {
        let pairs: Vec<(&Sample, &Sample)> = before
            .iter()
            .zip(&contender.samples)
            .filter_map(|(before, after)| before.as_ref().zip(after.as_ref()))
            .collect();
        let known: Vec<&Sample> = before.iter().flatten().collect();
        let own: Vec<&Sample> = contender.samples.iter().flatten().collect();
        let mut times = compare_times(&pairs, rule);
        if reference.knobs.is_empty() {
            let changes: Vec<&Candidate> = self.candidates(&contender.variant);
            let means: Vec<(MeasuredTime, f64)> =
                self.trial.base.times.iter().map(|mean| (mean.of.clone(), mean.mean_ns as f64)).collect();
            let config = self.config();
            let closed_loop = config.workload.kind == WorkloadKind::Server && config.load.rate.is_none();
            for change in &mut times {
                let bound = bound_ratio(&change.of, &changes, &self.plan.stages, &means, closed_loop);
                set_bound(change, bound);
            }
        }
        let decides = known.first().and_then(|sample| sample.times.first()).map(|(of, _)| of);
        let clocks: Option<Vec<(f64, f64)>> =
            pairs.iter().map(|(before, after)| before.sm_mhz.zip(after.sm_mhz)).collect();
        let comparable = pairs.is_empty() || times.first().map(|change| &change.of) == decides;
        let output = compare_output(&known, &own);
        let refused = refusal(&known, &own, &output, contender.variant.effect(), self.trial.search.as_ref());
        let row = &mut self.trial.rows[contender.row];
        row.runs = own.len() as u64;
        row.times = times;
        row.output = output;
        row.clocks_mhz = clocks.filter(|clocks| !clocks.is_empty()).map(|clocks| {
            let (before, after): (Vec<f64>, Vec<f64>) = clocks.into_iter().unzip();
            let mean = |clocks: Vec<f64>| clocks.iter().sum::<f64>() / clocks.len() as f64;
            (mean(before), mean(after))
        });
        row.device_memory_bytes = own.iter().filter_map(|sample| sample.device_memory_bytes).max();
        if !comparable {
            let why = "the program reports other times with the change than without";
            self.fail(contender, Failure::new(why));
        } else if refused.is_some() {
            row.verdict = TrialVerdict::Refused;
            row.reason = refused;
            self.close(contender, None);
        }
    }

    /// Returns the planned changes of a variant.
    fn candidates(&self, variant: &Variant) -> Vec<&'a Candidate> {
        let has = |candidate: &&Candidate| variant.knobs.contains(&candidate.knob);
        self.plan.candidates.iter().filter(has).collect()
    }

    /// Tells whether a contender has enough pairs. More than the fewest are run only for a change that can be kept, and only in the
    /// first half of the budget: the second is for combinations and the winner.
    fn is_decided(&self, contender: &Contender) -> bool {
        let props = self.props;
        let row = &self.trial.rows[contender.row];
        let Some(change) = row.deciding() else {
            return false;
        };
        let enough = change.after_ns.len() as u64 >= u64::from(props.repeats);
        let hindered = hindrance(row, contender.variant.effect(), props.accept_changed_output).is_some();
        enough && (is_narrow(change) || hindered || self.left() < props.budget / 2)
    }

    /// Ends a contender that failed.
    fn fail(&mut self, contender: &mut Contender, failure: Failure) {
        let row = &mut self.trial.rows[contender.row];
        row.verdict = TrialVerdict::Failed;
        row.reason = Some(failure.why);
        row.log_tail = failure.log_tail;
        self.close(contender, None);
    }

    /// Ends a contender with its verdict.
    pub fn close(&mut self, contender: &mut Contender, stop: Option<&Stop>) {
        contender.open = false;
        let row = &mut self.trial.rows[contender.row];
        row.verdict = verdict(row, self.props.repeats);
        if row.verdict == TrialVerdict::Unfinished {
            let pairs = row.deciding().map_or(0, |change| change.after_ns.len());
            let why = match stop {
                Some(Stop::Cancelled) => "interrupted",
                Some(Stop::Budget) => "the budget was spent",
                Some(Stop::Failed { .. }) => "the workload without the change failed",
                Some(Stop::Record(_)) | None => "the trial ended",
            };
            row.reason = Some(match self.trial.search {
                Some(_) => format!("{why} after {} of runs, without a proof", counted(pairs as u64, "pair")),
                None => format!("{why} after {pairs} of at least {} pairs of runs", self.props.repeats),
            });
        }
        let verdict = match row.verdict {
            // What is kept is decided when all are measured.
            TrialVerdict::Faster => "faster",
            verdict => verdict.word(),
        };
        let name = if row.knobs.is_empty() { "base again".to_owned() } else { row.knobs.join(" + ") };
        (self.events)(TrialEvent::Line(&format!("{name}: {verdict}")));
    }
}

/// Prefix of the folders of runs within the run directory.
const SCRATCH: &str = ".try-";

/// Reason to end a trial early.
#[derive(Debug)]
pub enum Stop {
    /// The user cancelled it.
    Cancelled,
    /// The budget is spent.
    Budget,
    /// The workload that changes are compared with failed.
    Failed { label: String, failure: Failure },
    /// `try.json` cannot be written.
    Record(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Record(error)
    }
}

/// Runs of a trial: of the program, or of a stand-in that replays or simulates them.
pub trait Runner {
    /// Runs a workload once.
    fn run(
        &mut self,
        variant: &Variant,
        limit: Duration,
        tick: &mut dyn FnMut(Duration),
    ) -> (Result<Sample, Unmeasured>, Duration);

    /// Writes the trial as it stands.
    fn save(&mut self, _: &Trial) -> Result<(), Error> {
        Ok(())
    }

    /// Profiles a workload as the run was profiled.
    fn watch(&mut self, _: Vec<String>, _: &mut dyn FnMut(Event<'_>)) -> Result<Outcome, Error> {
        Err(Error::new("nothing is profiled here"))
    }

    /// Returns the changes that others proposed since the last call.
    fn proposals(&mut self) -> Vec<Knob> {
        Vec::new()
    }

    /// Returns true once the user cancelled the trial.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Runs the program of a run.
pub struct Program<'a> {
    props: &'a TrialProps,
    /// Record on disk: `try.json`, in which earlier trials stay, or `tune.json`, which has one search. None for runs that are not
    /// recorded.
    journal: Option<(PathBuf, Trials)>,
    /// Overrides of every run.
    overrides: Vec<String>,
    cancel: &'a Cancel,
    scratch: TempDir,
    /// Lock of the run directory, held until this is dropped.
    _lock: File,
}

impl<'a> Program<'a> {
    /// Locks the run and starts or continues its record, if it has one.
    pub fn begin(
        props: &'a TrialProps,
        cancel: &'a Cancel,
        trial: &Trial,
        is_recorded: bool,
    ) -> Result<Self, Error> {
        let folder = &props.run.path;
        let _lock = lock(folder)?;
        let journal = is_recorded.then(|| open_journal(&props.run, trial)).transpose()?;
        // The lock is held: what lies here was left by a trial that was killed.
        remove_leftovers(folder);
        let scratch = tempfile::Builder::new().prefix(SCRATCH).tempdir_in(folder);
        let scratch = scratch.map_err(Error::io("write", folder))?;
        let overrides = trial.search.iter().flat_map(super::search::overrides).collect();
        Ok(Self { props, journal, overrides, cancel, scratch, _lock })
    }
}

impl Runner for Program<'_> {
    fn run(
        &mut self,
        variant: &Variant,
        limit: Duration,
        tick: &mut dyn FnMut(Duration),
    ) -> (Result<Sample, Unmeasured>, Duration) {
        let began = Instant::now();
        let config = &self.props.session.composed.config;
        let mut overrides = variant.overrides(config);
        overrides.extend_from_slice(&self.overrides);
        let found = attempt(
            self.props,
            overrides,
            self.scratch.path(),
            config.run.timeout.0.min(limit),
            self.cancel,
            tick,
        );
        (found, began.elapsed())
    }

    fn save(&mut self, trial: &Trial) -> Result<(), Error> {
        let Some((path, trials)) = &mut self.journal else { return Ok(()) };
        if let Some(last) = trials.trials.last_mut() {
            last.clone_from(trial);
        }
        write_json(path, trials)
    }

    fn watch(&mut self, overrides: Vec<String>, events: &mut dyn FnMut(Event<'_>)) -> Result<Outcome, Error> {
        profile(&self.props.session_with(overrides)?, self.cancel, events)
    }

    fn proposals(&mut self) -> Vec<Knob> {
        let accepts = self.props.search.as_ref().is_some_and(|search| search.accepts_proposals);
        if accepts { super::search::read_proposals(&self.props.run.path) } else { Vec::new() }
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.is_requested()
    }
}

/// State of a trial while it runs.
pub struct TrialContext<'a> {
    pub props: &'a TrialProps,
    pub plan: &'a TrialPlan,
    pub runner: &'a mut dyn Runner,
    pub events: &'a mut dyn FnMut(TrialEvent<'_>),
    pub trial: Trial,
    /// Number of runs that decisions know. Those of the trial beyond it were measured by an earlier call.
    pub cursor: usize,
    pub spent: Duration,
    /// Runs of the unchanged workload.
    base: Vec<Sample>,
    /// Wall time of the last session of the unchanged workload.
    base_took: Option<Duration>,
    /// Draws the orders of a search: one generator for all, so that they do not depend on one another.
    rng: fastrand::Rng,
}

impl<'a> TrialContext<'a> {
    /// Starts a trial, or continues one that has runs.
    pub fn begin(
        props: &'a TrialProps,
        plan: &'a TrialPlan,
        runner: &'a mut dyn Runner,
        events: &'a mut dyn FnMut(TrialEvent<'_>),
        trial: Trial,
    ) -> Self {
        let seed = trial.search.as_ref().map_or(0, |search| search.seed);
        TrialContext {
            props,
            plan,
            runner,
            events,
            trial,
            cursor: 0,
            spent: Duration::ZERO,
            base: Vec::new(),
            base_took: plan.run_ns.map(Duration::from_nanos),
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// Returns the configuration of the unchanged workload.
    pub fn config(&self) -> &'a Config {
        &self.props.session.composed.config
    }

    /// Returns the budget that is left.
    pub fn left(&self) -> Duration {
        self.props.budget.saturating_sub(self.spent)
    }

    /// Returns the expected time of a run: that of the unchanged workload. Zero where it is not known.
    pub fn expected(&self) -> Duration {
        self.base_took.unwrap_or_default()
    }

    /// Returns true while runs of an earlier call are left.
    pub fn is_replay(&self) -> bool {
        self.cursor < self.trial.runs.len()
    }

    /// Writes the trial as it stands.
    pub fn save(&mut self) -> Result<(), Error> {
        self.trial.spent_ns = ns(self.spent);
        if self.is_replay() { Ok(()) } else { self.runner.save(&self.trial) }
    }

    /// Runs a workload once, or takes the run of an earlier call. Returns its measurements with the time it took, or its failure.
    pub fn sample(
        &mut self,
        variant: &Variant,
        pair: usize,
        expected: Duration,
    ) -> Result<Result<(Sample, Duration), Failure>, Stop> {
        if !self.is_replay() {
            let run = self.run_now(variant, pair, expected)?;
            self.trial.runs.push(run);
        }
        let run = self.trial.runs.get(self.cursor).filter(|run| run.knobs == variant.ids()).cloned();
        let run = run.ok_or_else(|| {
            Error::new(format!("run {} of the record is not of {}", self.cursor + 1, variant.label()))
        })?;
        self.cursor += 1;
        let took = Duration::from_nanos(run.took_ns.unsigned_abs());
        self.spent += took;
        let Some(sample) = run.sample else {
            return Ok(Err(run.failure.unwrap_or_default()));
        };
        if variant.knobs.is_empty() {
            self.base_took = Some(took);
            self.base.push(sample.clone());
            self.trial.base = base_runs(&self.base);
        }
        Ok(Ok((sample, took)))
    }

    /// Runs a workload once.
    fn run_now(&mut self, variant: &Variant, pair: usize, expected: Duration) -> Result<TrialRun, Stop> {
        let left = self.left();
        if self.runner.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        if left.is_zero() || expected > left {
            return Err(Stop::Budget);
        }
        let label = variant.label();
        (self.events)(TrialEvent::Status(&format!("pair {pair}: {label}")));
        let events = &mut *self.events;
        let tick = &mut |elapsed: Duration| {
            let (elapsed, left) = (time(ns(elapsed)), time(ns(left.saturating_sub(elapsed))));
            events(TrialEvent::Status(&format!("pair {pair}: {label} ... {elapsed}, {left} left")));
        };
        let (found, took) = self.runner.run(variant, left, tick);
        let goal = self.trial.search.as_ref().map(|search| search.goal);
        let found = found.and_then(|mut sample| {
            goal.map_or(Ok(()), |goal| decide_by(&mut sample, goal)).map_err(Unmeasured::Failed)?;
            Ok(sample)
        });
        let run = TrialRun { knobs: variant.ids(), took_ns: ns(took), ..TrialRun::default() };
        match found {
            Err(Unmeasured::Cancelled) => Err(Stop::Cancelled),
            // The budget ended it, not the program.
            Err(Unmeasured::Failed(_)) if took >= left => Err(Stop::Budget),
            Err(Unmeasured::Failed(failure)) => {
                (self.events)(TrialEvent::Line(&format!("{label}: failed: {}", failure.why)));
                Ok(TrialRun { failure: Some(failure), ..run })
            }
            Ok(sample) => {
                if let Some((of, ns)) = sample.times.first() {
                    let (name, amount) = (of.name(), of.amount(ns.round() as i64));
                    (self.events)(TrialEvent::Line(&format!("pair {pair}: {label}: {name} {amount}")));
                }
                Ok(TrialRun { sample: Some(sample), ..run })
            }
        }
    }
}

/// Removes the folders that a killed trial left.
fn remove_leftovers(run: &Path) {
    for entry in std::fs::read_dir(run).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(SCRATCH) {
            // It is a nuisance only, and a full disk is reported by what is written next.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Locks a run for a trial.
fn lock(folder: &Path) -> Result<File, Error> {
    let lock = File::open(folder).map_err(Error::io("write", folder))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            Err(Error::new(format!("another trial of {} is in progress", folder.display())))
        }
        // A file system without locks must not prevent a trial.
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => Ok(lock),
        Err(TryLockError::Error(error)) => Err(Error::io("write", folder)(error)),
    }
}

/// Adds a trial to the earlier ones.
fn open_journal(run: &RunRef, trial: &Trial) -> Result<(PathBuf, Trials), Error> {
    let layout = Layout::of(&run.path);
    let path = if trial.search.is_some() { layout.search() } else { layout.trials() };
    let mut trials = read_trial_file(&path)
        .map_err(|error| Error::new(format!("{error}; rename it to start a new record")))?
        .unwrap_or_else(|| Trials {
            schema: TRY_SCHEMA.to_owned(),
            run_id: run.id.clone(),
            trials: Vec::new(),
        });
    if trial.search.is_some() {
        trials.trials.clear();
    }
    trials.trials.push(trial.clone());
    write_json(&path, &trials)?;
    Ok((path, trials))
}
