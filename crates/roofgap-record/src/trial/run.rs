//! The whole trial: each change alone, then the best together, then the winner under the profilers.

use crate::distinct;
use std::path::Path;
use std::time::{Duration, Instant};

use roofgap_analyze::{Knob, OutputCheck, Trial, TrialRow, TrialState, TrialVerdict, Winner};
use roofgap_base::clock::{self, ns};
use roofgap_base::numbers::{decimal, time};
use roofgap_collect::child::Cancel;
use roofgap_collect::command::CommandLine;

use super::judge::{Rule, hindrance};
use super::plan::{Candidate, TrialPlan};
use super::round::{Contender, Program, Stop, TrialContext};
use super::sample::{OWN_RUN, Variant, quoted};
use super::{TrialEvent, TrialOutcome, TrialProps};
use crate::run::write_reports;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_runs::config::Span;
use roofgap_runs::run_dir::Layout;
use roofgap_runs::run_dir::layout::job_of_node;

/// Runs a trial and writes its result to `try.json` of the run, that of a search to `tune.json`.
///
/// # Errors
/// Fails when another trial of the run is in progress, or its record cannot be read or written.
pub fn run(
    props: &TrialProps,
    plan: &TrialPlan,
    cancel: &Cancel,
    events: &mut dyn FnMut(TrialEvent<'_>),
) -> Result<TrialOutcome, Error> {
    let trial = match &props.search {
        Some(_) => super::search::start(props, plan)?,
        None => new_trial(props),
    };
    let mut program = Program::begin(props, cancel, &trial, true)?;
    let layout = Layout::of(&props.run.path);
    let path = if props.search.is_some() { layout.search() } else { layout.trials() };
    let mut context = TrialContext::begin(props, plan, &mut program, events, trial);
    let exit = context.execute()?;
    // The reports show the trial.
    if let Err(error) = write_reports(&props.run.path) {
        context.trial.notes.push(format!("the reports do not show it: {error}"));
        context.save()?;
    }
    Ok(TrialOutcome { path, trial: context.trial, exit })
}

/// Makes a trial without runs.
pub fn new_trial(props: &TrialProps) -> Trial {
    Trial {
        roofgap_version: props.session.version.clone(),
        started: clock::now().to_string(),
        budget_ns: ns(props.budget),
        repeats: props.repeats,
        ..Trial::default()
    }
}

impl TrialContext<'_> {
    /// Runs everything that the budget allows, and records how it ended.
    pub fn execute(&mut self) -> Result<Exit, Error> {
        let end = self.steps();
        self.conclude(end)
    }

    /// Runs everything that the budget allows. Returns the reason why a search ended.
    fn steps(&mut self) -> Result<Option<String>, Stop> {
        let mut kept = Variant::default();
        let reason = self.race(&mut kept)?;
        self.together(&mut kept)?;
        self.watch(&kept)?;
        Ok(reason)
    }

    /// Measures all kept changes together against the unchanged workload. Where that shows no gain that may be kept, the best change
    /// alone stays.
    fn together(&mut self, kept: &mut Variant) -> Result<(), Stop> {
        let measured = self.trial.winner.as_ref().is_none_or(|winner| winner.row.is_some());
        if kept.knobs.len() < 2 || measured {
            return Ok(());
        }
        // A search has a row of what the budget left no time for.
        if self.trial.search.is_none() && !self.has_room() {
            let note = format!("the budget left no time to measure {} together", kept.label());
            self.trial.notes.push(note);
            return Ok(());
        }
        let rows = self.trial.rows.iter().filter(|row| row.verdict == TrialVerdict::Kept);
        let findings = distinct(rows.flat_map(|row| row.findings.clone()));
        let row = self.push_row(None, &Variant::default(), kept, findings);
        let mut contender = Contender::new(kept.clone(), row);
        let rule = self.next_proof().map_or(Rule::Estimate, Rule::Prove);
        let end = self.measure(&Variant::default(), std::slice::from_mut(&mut contender), rule);
        let verdict = self.trial.rows[row].verdict;
        match verdict {
            TrialVerdict::Faster if self.may_keep(&contender) => {
                self.trial.rows[row].verdict = TrialVerdict::Kept;
                if let Some(winner) = &mut self.trial.winner {
                    winner.row = Some(row);
                }
            }
            TrialVerdict::Unfinished | TrialVerdict::Dropped => {}
            _ => self.keep_best_alone(kept, verdict),
        }
        self.save()?;
        end
    }

    /// Keeps what was measured against the unchanged workload, and drops the changes on top of it.
    fn keep_best_alone(&mut self, kept: &mut Variant, verdict: TrialVerdict) {
        let label = kept.label();
        let is_first = |row: &TrialRow| row.verdict == TrialVerdict::Kept && row.on_top_of.is_empty();
        let Some(first) = self.trial.rows.iter().position(is_first) else {
            return;
        };
        let is_best = |knob: &Knob| self.trial.rows[first].knobs.contains(&knob.id);
        let (knobs, dropped): (Vec<Knob>, Vec<Knob>) = kept.knobs.drain(..).partition(is_best);
        for row in &mut self.trial.rows {
            if row.knob.as_ref().is_some_and(|knob| dropped.contains(knob)) {
                if row.verdict == TrialVerdict::Kept {
                    row.verdict = TrialVerdict::Faster;
                }
                row.reason = Some(format!("{label}, measured together: {}", verdict.word()));
            }
        }
        self.keep(kept, &Contender::new(Variant { knobs }, first));
    }

    /// Returns the row of a change that was measured alone.
    pub fn alone_row(&self, knob: &Knob) -> Option<usize> {
        let is_alone = |row: &TrialRow| row.on_top_of.is_empty() && row.knob.as_ref() == Some(knob);
        self.trial.rows.iter().position(is_alone)
    }

    /// Profiles the winner as the run was profiled.
    fn watch(&mut self, kept: &Variant) -> Result<(), Stop> {
        if kept.knobs.is_empty() {
            return Ok(());
        }
        let expected = self.plan.watched_ns.map(Duration::from_nanos).unwrap_or_default();
        let (left, props) = (self.left(), self.props);
        let run = &props.run.path;
        let result = if left.is_zero() || expected > left {
            let (left, took) = (time(ns(left)), time(ns(expected)));
            Err(Error::new(format!("the budget left {left} for it, and the run took {took}")))
        } else {
            let folder = std::fs::canonicalize(run).unwrap_or_else(|_| run.clone());
            let folder = runs_around(&folder).to_string_lossy().into_owned();
            let mut overrides = kept.overrides(self.config());
            overrides.extend([OWN_RUN.to_owned(), format!("artifacts.stage2_dir={}", quoted(&folder))]);
            let (events, began) = (&mut *self.events, Instant::now());
            let outcome = self.runner.watch(overrides, &mut |event| events(TrialEvent::Watched(event)));
            self.spent += began.elapsed();
            outcome
        };
        let Some(winner) = &mut self.trial.winner else {
            return Ok(());
        };
        match result {
            Ok(outcome) => {
                let path = outcome.run_dir.display().to_string();
                let compare = CommandLine::new("roofgap").arg("compare").arg(run).arg(&path);
                winner.compare_command = Some(compare.to_string());
                winner.watched_run = Some(path);
                winner.watched_reason = match outcome.record.missing.as_slice() {
                    [] => None,
                    missing => Some(format!("missing: {}", missing.join("; "))),
                };
            }
            Err(error) => winner.watched_reason = Some(error.to_string()),
        }
        self.save()?;
        if self.runner.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        Ok(())
    }

    /// Adds the row of a change on top of others.
    pub fn contender(&mut self, reference: &Variant, knob: &Knob) -> Contender {
        let candidate = self.plan.candidates.iter().find(|candidate| candidate.knob == *knob);
        let findings = candidate.map(Candidate::finding_ids).unwrap_or_default();
        let variant = reference.with(knob);
        let row = self.push_row(Some(knob), reference, &variant, findings);
        Contender::new(variant, row)
    }

    /// Adds a row without measurements. Returns its index.
    pub fn push_row(
        &mut self,
        knob: Option<&Knob>,
        reference: &Variant,
        variant: &Variant,
        findings: Vec<String>,
    ) -> usize {
        let command = variant.command(&self.props.run.path, self.config());
        self.trial.rows.push(TrialRow {
            knob: knob.cloned(),
            on_top_of: reference.ids(),
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
            command,
        });
        self.trial.rows.len() - 1
    }

    /// Tells whether a faster change can be kept; its row says why not.
    pub fn may_keep(&mut self, contender: &Contender) -> bool {
        let row = &mut self.trial.rows[contender.row];
        row.reason = hindrance(row, contender.variant.effect(), self.props.accept_changed_output);
        row.reason.is_none()
    }

    /// Keeps the changes of a contender.
    pub fn keep(&mut self, kept: &mut Variant, contender: &Contender) {
        kept.clone_from(&contender.variant);
        let row = &mut self.trial.rows[contender.row];
        row.verdict = TrialVerdict::Kept;
        self.trial.winner = Some(Winner {
            knobs: kept.ids(),
            // What was measured on top of other changes is measured against the unchanged workload at the end.
            row: row.on_top_of.is_empty().then_some(contender.row),
            command: kept.profile_command(&self.props.run.path, self.config()),
            ..Winner::default()
        });
    }

    /// Gives the row of a faster change that is not kept itself its reason.
    pub fn explain(&mut self, row: Option<usize>, reason: String) {
        if let Some(row) = row {
            self.trial.rows[row].reason.get_or_insert(reason);
        }
    }

    /// Tells whether the budget allows another change to be measured.
    pub fn has_room(&self) -> bool {
        let runs = self.props.repeats.saturating_mul(2);
        self.expected().saturating_mul(runs) <= self.left()
    }

    /// Records how the trial ended. Returns the exit status.
    fn conclude(&mut self, end: Result<Option<String>, Stop>) -> Result<Exit, Error> {
        let (state, reason, exit) = match end {
            Ok(reason) => (TrialState::Done, reason, Exit::Done),
            Err(Stop::Budget) => {
                let reason = format!("the budget of {} was spent", Span(self.props.budget));
                (TrialState::Done, Some(reason), Exit::Partial)
            }
            Err(Stop::Cancelled) => {
                let reason = "interrupted by the user".to_owned();
                (TrialState::Interrupted, Some(reason), Exit::Interrupted)
            }
            Err(Stop::Failed { label, failure }) => {
                self.trial.log_tail = failure.log_tail;
                let reason = format!("{label}: {}", failure.why);
                (TrialState::Failed, Some(reason), Exit::ProgramFailed)
            }
            Err(Stop::Record(error)) => return Err(error),
        };
        if let Some(winner) = self.trial.winner.as_mut().filter(|winner| winner.watched_run.is_none()) {
            winner.watched_reason = winner.watched_reason.take().or(reason.clone());
        }
        let notes = above_bounds(&self.trial, self.props);
        self.trial.notes.extend(notes);
        self.trial.state = state;
        self.trial.reason = reason;
        self.trial.finished = Some(clock::now().to_string());
        self.save()?;
        Ok(exit)
    }
}

/// Returns the folder for a new run beside a run: not among the nodes of a job.
fn runs_around(run: &Path) -> &Path {
    let outermost = job_of_node(run).unwrap_or(run);
    outermost.parent().unwrap_or(outermost)
}

/// Lists the gains above their predicted bounds, each with the command that packs the run for a report.
fn above_bounds(trial: &Trial, props: &TrialProps) -> Vec<String> {
    let mut notes = Vec::new();
    for row in trial.rows.iter().filter(|row| row.is_comparison()) {
        for change in &row.times {
            let (Some(false), Some(bound), Some((low, high))) =
                (change.within_bound, change.bound_ratio, change.interval)
            else {
                continue;
            };
            let pack = CommandLine::new("roofgap")
                .args(["runs", "scrub"])
                .arg(&props.run.path)
                .args(["--pack", "run.tar.gz"]);
            notes.push(format!(
                "{} with {} is {} to {} times as fast, above the bound of {} that {} predicts: an error of roofgap's model; please report it with the archive of `{pack}`",
                change.of.name(),
                row.knobs.join(" + "),
                decimal(low, 2),
                decimal(high, 2),
                decimal(bound, 2),
                row.findings.join(", "),
            ));
        }
    }
    notes
}
