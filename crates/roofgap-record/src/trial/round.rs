//! Interleaved runs of a workload and of changed ones.
//!
//! A block runs each once; the order of every second block is reversed. So slow changes of the machine affect both sides of a
//! pair alike.
//!
//! The state of a trial while it runs, and `try.json` on disk.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use roofgap_analyze::{MeasuredTime, OutputCheck, OutputEffect, TRY_SCHEMA, Trial, TrialVerdict, Trials};
use roofgap_collect::child::Cancel;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::run_dir::folder::write_json;
use roofgap_runs::run_dir::{Layout, RunRef, read_trials};
use tempfile::TempDir;

use super::judge::{base_runs, compare_output, compare_times, hindrance, is_narrow, set_bound, verdict};
use super::plan::{Candidate, TrialPlan, bound_ratio};
use super::sample::{Failure, Sample, Unmeasured, Variant, attempt};
use super::{TrialEvent, TrialProps};
use roofgap_base::error::Error;

/// Most pairs of runs, as a multiple of the fewest. A noisier time is decided by what these show.
const MOST_PAIRS: u32 = 4;

/// A changed workload that is measured.
#[derive(Debug)]
pub struct Contender {
    pub variant: Variant,
    /// Effect of its changes on the output.
    pub effect: OutputEffect,
    /// Index of its row.
    pub row: usize,
    /// Runs by block; `None` where it did not run.
    samples: Vec<Option<Sample>>,
    took: Option<Duration>,
    open: bool,
}

impl Contender {
    /// Starts without runs.
    pub fn new(variant: Variant, effect: OutputEffect, row: usize) -> Self {
        Self { variant, effect, row, samples: Vec::new(), took: None, open: true }
    }
}

impl<'a> TrialContext<'a> {
    /// Measures changed workloads against `reference` until each has a verdict, or the trial must stop. Either way each row has what
    /// was measured.
    pub fn measure(&mut self, reference: &Variant, contenders: &mut [Contender]) -> Result<(), Stop> {
        let most = self.props.repeats.saturating_mul(MOST_PAIRS) as usize;
        let mut before: Vec<Option<Sample>> = Vec::new();
        let mut end = Ok(());
        for block in 0..most {
            if end.is_err() || contenders.iter().all(|contender| !contender.open) {
                break;
            }
            before.push(None);
            contenders.iter_mut().for_each(|contender| contender.samples.push(None));
            end = self.run_block(reference, &mut before, contenders, block);
            for contender in contenders.iter_mut().filter(|contender| contender.open) {
                if self.is_decided(contender) {
                    self.close(contender, None);
                }
            }
        }
        self.abandon(contenders, end.as_ref().err());
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
    ) -> Result<(), Stop> {
        let pair = block + 1;
        let mut order: Vec<Option<usize>> =
            std::iter::once(None).chain((0..contenders.len()).map(Some)).collect();
        if block % 2 == 1 {
            order.reverse();
        }
        for who in order {
            match who {
                None if contenders.iter().any(|contender| contender.open) => {
                    let expected = self.expected();
                    match self.sample(reference, pair, expected)? {
                        Ok((sample, _)) => before[block] = Some(sample),
                        Err(failure) => return Err(Stop::Failed { label: reference.label(), failure }),
                    }
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
                self.update(reference, before, contender);
            }
            self.save()?;
        }
        Ok(())
    }

    /// Computes the row of a contender from its pairs so far. A contender that cannot be compared, or is refused, is closed.
    fn update(&mut self, reference: &Variant, before: &[Option<Sample>], contender: &mut Contender) {
        let pairs: Vec<(&Sample, &Sample)> = before
            .iter()
            .zip(&contender.samples)
            .filter_map(|(before, after)| before.as_ref().zip(after.as_ref()))
            .collect();
        let known: Vec<&Sample> = before.iter().flatten().collect();
        let own: Vec<&Sample> = contender.samples.iter().flatten().collect();
        let mut times = compare_times(&pairs);
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
        let comparable = pairs.is_empty() || times.first().map(|change| &change.of) == decides;
        let output = compare_output(&known, &own);
        let refused = output == OutputCheck::Different && contender.effect == OutputEffect::None;
        let row = &mut self.trial.rows[contender.row];
        row.runs = own.len() as u64;
        row.times = times;
        row.output = output;
        row.device_memory_bytes = own.iter().filter_map(|sample| sample.device_memory_bytes).max();
        if refused {
            row.reason = Some("its tokens differ from those without the change".to_owned());
        }
        if !comparable {
            let why = "the program reports other times with the change than without";
            self.fail(contender, Failure::new(why));
        } else if refused {
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
        let hindered = hindrance(row, contender.effect, props.accept_changed_output).is_some();
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
    fn close(&mut self, contender: &mut Contender, stop: Option<&Stop>) {
        contender.open = false;
        let row = &mut self.trial.rows[contender.row];
        row.verdict = verdict(row, contender.effect, self.props.repeats);
        if row.verdict == TrialVerdict::Unfinished {
            let pairs = row.deciding().map_or(0, |change| change.after_ns.len());
            let why = match stop {
                Some(Stop::Cancelled) => "interrupted",
                Some(Stop::Budget) => "the budget was spent",
                Some(Stop::Failed { .. }) => "the workload without the change failed",
                Some(Stop::Record(_)) | None => "the trial ended",
            };
            row.reason =
                Some(format!("{why} after {pairs} of at least {} pairs of runs", self.props.repeats));
        }
        (self.events)(TrialEvent::RowEnds(row));
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

/// State of a trial while it runs.
pub struct TrialContext<'a> {
    pub props: &'a TrialProps,
    pub plan: &'a TrialPlan,
    pub cancel: &'a Cancel,
    pub events: &'a mut dyn FnMut(TrialEvent<'_>),
    pub trial: Trial,
    pub journal: Journal,
    began: Instant,
    scratch: TempDir,
    /// Runs of the unchanged workload.
    base: Vec<Sample>,
    /// Wall time of the last session of the unchanged workload.
    base_took: Option<Duration>,
}

impl<'a> TrialContext<'a> {
    /// Locks the run and starts its record.
    pub fn begin(
        props: &'a TrialProps,
        plan: &'a TrialPlan,
        cancel: &'a Cancel,
        events: &'a mut dyn FnMut(TrialEvent<'_>),
        trial: Trial,
    ) -> Result<Self, Error> {
        let folder = &props.run.path;
        let journal = Journal::open(&props.run, &trial)?;
        // The lock is held: what lies here was left by a trial that was killed.
        remove_leftovers(folder);
        let scratch = tempfile::Builder::new()
            .prefix(SCRATCH)
            .tempdir_in(folder)
            .map_err(Error::io("write", folder))?;
        Ok(TrialContext {
            props,
            plan,
            cancel,
            events,
            trial,
            journal,
            began: Instant::now(),
            scratch,
            base: Vec::new(),
            base_took: plan.run_ns.map(Duration::from_nanos),
        })
    }

    /// Returns the configuration of the unchanged workload.
    pub fn config(&self) -> &'a Config {
        &self.props.session.composed.config
    }

    /// Returns the budget that is left.
    pub fn left(&self) -> Duration {
        self.props.budget.saturating_sub(self.began.elapsed())
    }

    /// Returns the expected time of a run: that of the unchanged workload. Zero where it is not known.
    pub fn expected(&self) -> Duration {
        self.base_took.unwrap_or_default()
    }

    /// Writes `try.json` as it stands.
    pub fn save(&mut self) -> Result<(), Error> {
        self.trial.spent_ns = crate::ns(self.began.elapsed());
        self.journal.write(&self.trial)
    }

    /// Runs a workload once. Returns its measurements with the time it took, or its failure.
    pub fn sample(
        &mut self,
        variant: &Variant,
        pair: usize,
        expected: Duration,
    ) -> Result<Result<(Sample, Duration), Failure>, Stop> {
        let left = self.left();
        if self.cancel.is_requested() {
            return Err(Stop::Cancelled);
        }
        if left.is_zero() || expected > left {
            return Err(Stop::Budget);
        }
        let label = variant.label();
        (self.events)(TrialEvent::RunBegins { label: &label, pair });
        let began = Instant::now();
        let (events, config) = (&mut *self.events, &self.props.session.composed.config);
        let attempt = attempt(
            &self.props.session,
            &Layout::of(&self.props.run.path).config(),
            variant.overrides(config),
            self.scratch.path(),
            config.run.timeout.0.min(left),
            self.cancel,
            &mut |elapsed| events(TrialEvent::Tick { label: &label, pair, elapsed }),
        );
        match attempt {
            Err(Unmeasured::Cancelled) => Err(Stop::Cancelled),
            // The budget ended it, not the program.
            Err(Unmeasured::Failed(_)) if self.left().is_zero() => Err(Stop::Budget),
            Err(Unmeasured::Failed(failure)) => {
                (self.events)(TrialEvent::RunFails { label: &label, why: &failure.why });
                Ok(Err(failure))
            }
            Ok(sample) => {
                if let Some((of, ns)) = sample.times.first() {
                    (self.events)(TrialEvent::RunEnds {
                        label: &label,
                        pair,
                        time: (of.name(), ns.round() as i64),
                    });
                }
                let took = began.elapsed();
                if variant.knobs.is_empty() {
                    self.base_took = Some(took);
                    self.base.push(sample.clone());
                    self.trial.base = base_runs(&self.base);
                }
                Ok(Ok((sample, took)))
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

/// Writer of `try.json`. The trials that it had before stay.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    trials: Trials,
    /// Lock of the run directory, held until this is dropped.
    _lock: File,
}

impl Journal {
    /// Locks the run for a trial and reads its earlier trials.
    pub fn open(run: &RunRef, trial: &Trial) -> Result<Self, Error> {
        let folder = &run.path;
        let lock = File::open(folder).map_err(Error::io("write", folder))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(format!("another trial of {} is in progress", folder.display())));
            }
            // A file system without locks must not prevent a trial.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(Error::io("write", folder)(error)),
        }
        let layout = Layout::of(folder);
        let mut trials = read_trials(&layout)
            .map_err(|error| Error::new(format!("{error}; rename it to start a new record")))?
            .unwrap_or_else(|| Trials {
                schema: TRY_SCHEMA.to_owned(),
                run_id: run.id.clone(),
                trials: Vec::new(),
            });
        trials.trials.push(trial.clone());
        let journal = Self { path: layout.trials(), trials, _lock: lock };
        journal.save()?;
        Ok(journal)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the trial as it stands.
    pub fn write(&mut self, trial: &Trial) -> Result<(), Error> {
        if let Some(last) = self.trials.trials.last_mut() {
            last.clone_from(trial);
        }
        self.save()
    }

    fn save(&self) -> Result<(), Error> {
        write_json(&self.path, &self.trials)
    }
}

#[cfg(test)]
mod journal_tests {
    use super::*;

    fn run() -> (tempfile::TempDir, RunRef) {
        let folder = tempfile::tempdir().unwrap();
        let run = RunRef::at(folder.path());
        (folder, run)
    }

    #[test]
    fn earlier_trials_stay_and_the_last_is_replaced() {
        let (folder, run) = run();
        assert_eq!(read_trials(&Layout::of(folder.path())).unwrap(), None);
        for number in 1..=2 {
            let mut trial = Trial::default();
            let mut journal = Journal::open(&run, &trial).unwrap();
            trial.repeats = number;
            journal.write(&trial).unwrap();
        }
        let trials = read_trials(&Layout::of(folder.path())).unwrap().unwrap().trials;
        let repeats: Vec<u32> = trials.iter().map(|trial| trial.repeats).collect();
        assert_eq!(repeats, [1, 2]);
    }

    #[test]
    fn two_trials_of_a_run_do_not_collide() {
        let (_folder, run) = run();
        let first = Journal::open(&run, &Trial::default()).unwrap();
        let second = Journal::open(&run, &Trial::default()).unwrap_err();
        assert!(second.to_string().starts_with("another trial of "), "{second}");
        drop(first);
        Journal::open(&run, &Trial::default()).unwrap();
    }

    #[test]
    fn a_damaged_record_is_not_overwritten() {
        let (folder, run) = run();
        let path = folder.path().join("try.json");
        for (text, schema) in
            [("{", false), (r#"{"schema": "roofgap.try/9", "run_id": "", "trials": []}"#, true)]
        {
            std::fs::write(&path, text).unwrap();
            let error = Journal::open(&run, &Trial::default()).unwrap_err();
            assert_eq!(error.to_string().contains("roofgap.try/9"), schema, "{error}");
            assert!(error.to_string().ends_with("; rename it to start a new record"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
