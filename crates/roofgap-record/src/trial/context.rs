//! The state of a trial while it runs.

use std::path::Path;
use std::time::{Duration, Instant};

use roofgap_analyze::Trial;
use roofgap_collect::child::Cancel;
use tempfile::TempDir;

use super::journal::{Journal, cannot_write};
use super::judge::base_runs;
use super::plan::TrialPlan;
use super::props::{TrialEvent, TrialProps};
use super::sample::{Attempt, Failure, Sample, attempt};
use super::variant::Variant;
use crate::error::Error;
use roofgap_runs::config::Config;
use roofgap_runs::run_dir::Layout;

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
        Stop::Record(error)
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
            .map_err(|source| cannot_write(folder, &source))?;
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
        self.trial.spent_ns = i64::try_from(self.began.elapsed().as_nanos()).unwrap_or(i64::MAX);
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
        let events = &mut *self.events;
        let config = self.props.session.composed.config.run.timeout.0;
        let attempt = attempt(
            &self.props.session,
            &Layout::of(&self.props.run.path).config(),
            &variant.overrides(&self.props.session.composed.config),
            self.scratch.path(),
            config.min(left),
            self.cancel,
            &mut |elapsed| {
                events(TrialEvent::Tick { label: &label, pair, elapsed });
            },
        );
        match attempt {
            Attempt::Cancelled => Err(Stop::Cancelled),
            // The budget ended it, not the program.
            Attempt::Failed(_) if self.left().is_zero() => Err(Stop::Budget),
            Attempt::Failed(failure) => {
                (self.events)(TrialEvent::RunFails { label: &label, why: &failure.why });
                Ok(Err(failure))
            }
            Attempt::Measured(sample) => {
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
