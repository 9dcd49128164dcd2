//! The whole trial: each change alone, then the best together, then the winner under the profilers.

use crate::ns;
use std::path::Path;
use std::time::Duration;

use roofgap_analyze::{
    BaseRuns, Knob, OutputCheck, OutputEffect, Trial, TrialRow, TrialState, TrialVerdict, Winner,
};
use roofgap_base::clock;
use roofgap_base::numbers::{decimal, time};
use roofgap_collect::child::Cancel;
use roofgap_collect::command::CommandLine;

use super::judge::hindrance;
use super::plan::{Candidate, TrialPlan};
use super::round::{Contender, Stop, TrialContext, abandon, measure};
use super::sample::{OWN_RUN, Variant, conflict, quoted};
use super::{TrialEvent, TrialOutcome, TrialProps};
use crate::run::{ProfileProps, profile, write_reports};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_runs::config::{ConfigProps, Span, compose};
use roofgap_runs::run_dir::Layout;
use roofgap_runs::run_dir::layout::job_of_node;

/// Runs a trial and writes its result to `try.json` of the run.
///
/// # Errors
/// Fails when another trial of the run is in progress, or `try.json` cannot be read or written.
pub fn run(
    props: &TrialProps,
    plan: &TrialPlan,
    cancel: &Cancel,
    events: &mut dyn FnMut(TrialEvent<'_>),
) -> Result<TrialOutcome, Error> {
    let trial = Trial {
        roofgap_version: props.session.version.clone(),
        started: clock::now().to_string(),
        finished: None,
        state: TrialState::Running,
        reason: None,
        log_tail: None,
        budget_ns: ns(props.budget),
        spent_ns: 0,
        repeats: props.repeats,
        base: BaseRuns::default(),
        rows: Vec::new(),
        winner: None,
        notes: Vec::new(),
    };
    let mut context = TrialContext::begin(props, plan, cancel, events, trial)?;
    let end = steps(&mut context);
    let exit = conclude(&mut context, end)?;
    // The reports show the trial.
    if let Err(error) = write_reports(&props.run.path) {
        context.trial.notes.push(format!("the reports do not show it: {error}"));
        context.save()?;
    }
    Ok(TrialOutcome { path: context.journal.path().to_owned(), trial: context.trial, exit })
}

/// Runs everything that the budget allows.
fn steps(context: &mut TrialContext<'_>) -> Result<(), Stop> {
    let mut kept = Variant::default();
    let others = alone(context, &mut kept)?;
    for knob in others {
        on_top(context, &mut kept, &knob)?;
    }
    together(context, &mut kept)?;
    watch(context, &kept)
}

/// Measures each change alone and keeps the best. Returns the others that are worth trying on top of it.
fn alone(context: &mut TrialContext<'_>, kept: &mut Variant) -> Result<Vec<Knob>, Stop> {
    let base = Variant::default();
    let knobs: Vec<Knob> = context.plan.candidates.iter().map(|candidate| candidate.knob.clone()).collect();
    let mut contenders: Vec<Contender> = knobs.iter().map(|knob| contender(context, &base, knob)).collect();
    let mut end = Ok(());
    for some in contenders.chunks_mut(context.plan.at_once()) {
        match &end {
            Ok(()) => end = measure(context, &base, some),
            Err(stop) => abandon(context, some, Some(stop)),
        }
    }
    let mut faster: Vec<(f64, &Contender, &Knob)> = Vec::new();
    let mut same = Vec::new();
    for (contender, knob) in contenders.iter().zip(&knobs) {
        match context.trial.rows.get(contender.row) {
            Some(row) if row.verdict == TrialVerdict::Faster => {
                let ratio = row.deciding().and_then(|change| change.ratio).unwrap_or(1.0);
                faster.push((ratio, contender, knob));
            }
            Some(row) if row.verdict == TrialVerdict::Same => same.push(knob),
            _ => {}
        }
    }
    faster.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut others = Vec::new();
    for (_, contender, knob) in faster {
        if !may_keep(context, contender) {
            continue;
        }
        if kept.knobs.is_empty() {
            keep(context, kept, knob, contender.row);
        } else {
            others.push(knob);
        }
    }
    context.save()?;
    end?;
    if kept.knobs.is_empty() {
        return Ok(Vec::new());
    }
    others.extend(same);
    Ok(others.into_iter().cloned().collect())
}

/// Measures a change on top of those kept so far, and keeps it if it helps.
fn on_top(context: &mut TrialContext<'_>, kept: &mut Variant, knob: &Knob) -> Result<(), Stop> {
    let alone = alone_row(context, knob);
    let reason = if let Some(same) = kept.knobs.iter().find(|other| conflict(other, knob)) {
        Some(format!("it changes the same setting as {}, which is kept", same.id))
    } else if !has_room(context) {
        Some(format!("the budget left no time to try it on top of {}", kept.label()))
    } else {
        None
    };
    if let Some(reason) = reason {
        explain(context, alone, reason);
        return Ok(());
    }
    let reference = kept.clone();
    let mut contenders = [contender(context, &reference, knob)];
    let end = measure(context, &reference, &mut contenders);
    for contender in &contenders {
        let faster = verdict_of(context, contender.row) == Some(TrialVerdict::Faster);
        let reason = if faster && may_keep(context, contender) {
            keep(context, kept, knob, contender.row);
            format!("kept on top of {}", reference.label())
        } else {
            format!("not kept on top of {}", reference.label())
        };
        explain(context, alone, reason);
    }
    context.save()?;
    end
}

/// Measures all kept changes together against the unchanged workload. Where that shows no gain that may be kept, the best change
/// alone stays.
fn together(context: &mut TrialContext<'_>, kept: &mut Variant) -> Result<(), Stop> {
    if kept.knobs.len() < 2 {
        return Ok(());
    }
    if !has_room(context) {
        let note = format!("the budget left no time to measure {} together", kept.label());
        context.trial.notes.push(note);
        return Ok(());
    }
    let mut findings: Vec<String> = Vec::new();
    for row in &context.trial.rows {
        for id in &row.findings {
            if row.verdict == TrialVerdict::Kept && !findings.contains(id) {
                findings.push(id.clone());
            }
        }
    }
    let effect = kept.knobs.iter().fold(OutputEffect::None, |most, knob| larger(most, knob.output));
    let row = push_row(context, None, &Variant::default(), kept, findings);
    let mut contender = Contender::new(kept.clone(), effect, row);
    let end = measure(context, &Variant::default(), std::slice::from_mut(&mut contender));
    match verdict_of(context, row) {
        Some(TrialVerdict::Faster) if may_keep(context, &contender) => {
            if let Some(row) = context.trial.rows.get_mut(row) {
                row.verdict = TrialVerdict::Kept;
            }
            if let Some(winner) = &mut context.trial.winner {
                winner.row = Some(row);
            }
        }
        Some(TrialVerdict::Unfinished) | None => {}
        Some(verdict) => keep_best_alone(context, kept, verdict),
    }
    context.save()?;
    end
}

/// Keeps the first of several changes, which was measured against the unchanged workload, and drops those on top of it.
fn keep_best_alone(context: &mut TrialContext<'_>, kept: &mut Variant, verdict: TrialVerdict) {
    let label = kept.label();
    let mut knobs = std::mem::take(&mut kept.knobs).into_iter();
    let Some(best) = knobs.next() else {
        return;
    };
    let dropped: Vec<Knob> = knobs.collect();
    for row in &mut context.trial.rows {
        if row.knob.as_ref().is_some_and(|knob| dropped.contains(knob)) {
            if row.verdict == TrialVerdict::Kept {
                row.verdict = TrialVerdict::Faster;
            }
            row.reason = Some(format!("{label}, measured together: {}", verdict.word()));
        }
    }
    if let Some(row) = alone_row(context, &best) {
        keep(context, kept, &best, row);
    }
}

/// Returns the row of a change that was measured alone.
fn alone_row(context: &TrialContext<'_>, knob: &Knob) -> Option<usize> {
    let is_alone = |row: &TrialRow| row.on_top_of.is_empty() && row.knob.as_ref() == Some(knob);
    context.trial.rows.iter().position(is_alone)
}

/// Profiles the winner as the run was profiled.
fn watch(context: &mut TrialContext<'_>, kept: &Variant) -> Result<(), Stop> {
    if kept.knobs.is_empty() {
        return Ok(());
    }
    let expected = context.plan.watched_ns.map(Duration::from_nanos).unwrap_or_default();
    let (left, props) = (context.left(), context.props);
    let run = &props.run.path;
    let result = if left.is_zero() || expected > left {
        Err(format!("the budget left {} for it, and the run took {}", time(ns(left)), time(ns(expected))))
    } else {
        let folder = std::fs::canonicalize(run).unwrap_or_else(|_| run.clone());
        let folder = runs_around(&folder).to_string_lossy().into_owned();
        let mut overrides = kept.overrides(context.config());
        overrides.extend([OWN_RUN.to_owned(), format!("artifacts.stage2_dir={}", quoted(&folder))]);
        let composed = compose(&ConfigProps {
            config: Some(Layout::of(run).config()),
            overrides,
            ..ConfigProps::default()
        });
        let events = &mut *context.events;
        composed.map_err(|error| error.to_string()).and_then(|composed| {
            let session = ProfileProps { composed, ..props.session.clone() };
            profile(&session, context.cancel, &mut |event| events(TrialEvent::Watched(event)))
                .map_err(|error| error.to_string())
        })
    };
    let Some(winner) = &mut context.trial.winner else {
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
        Err(why) => winner.watched_reason = Some(why),
    }
    context.save()?;
    if context.cancel.is_requested() {
        return Err(Stop::Cancelled);
    }
    Ok(())
}

/// Returns the folder for a new run beside a run: not among the nodes of a job.
fn runs_around(run: &Path) -> &Path {
    let outermost = job_of_node(run).unwrap_or(run);
    outermost.parent().unwrap_or(outermost)
}

/// Adds the row of a change on top of others.
fn contender(context: &mut TrialContext<'_>, reference: &Variant, knob: &Knob) -> Contender {
    let candidate = context.plan.candidates.iter().find(|candidate| candidate.knob == *knob);
    let findings = candidate.map(Candidate::finding_ids).unwrap_or_default();
    let variant = reference.with(knob);
    let row = push_row(context, Some(knob), reference, &variant, findings);
    Contender::new(variant, knob.output, row)
}

/// Adds a row without measurements. Returns its index.
fn push_row(
    context: &mut TrialContext<'_>,
    knob: Option<&Knob>,
    reference: &Variant,
    variant: &Variant,
    findings: Vec<String>,
) -> usize {
    let command = variant.command(&context.props.run.path, context.config());
    context.trial.rows.push(TrialRow {
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
        command,
    });
    context.trial.rows.len() - 1
}

fn verdict_of(context: &TrialContext<'_>, row: usize) -> Option<TrialVerdict> {
    context.trial.rows.get(row).map(|row| row.verdict)
}

/// Tells whether a faster change can be kept; its row says why not.
fn may_keep(context: &mut TrialContext<'_>, contender: &Contender) -> bool {
    let accept = context.props.accept_changed_output;
    let Some(row) = context.trial.rows.get_mut(contender.row) else {
        return false;
    };
    row.reason = hindrance(row, contender.effect, accept);
    row.reason.is_none()
}

/// Keeps a change.
fn keep(context: &mut TrialContext<'_>, kept: &mut Variant, knob: &Knob, row: usize) {
    *kept = kept.with(knob);
    if let Some(row) = context.trial.rows.get_mut(row) {
        row.verdict = TrialVerdict::Kept;
    }
    context.trial.winner = Some(Winner {
        knobs: kept.ids(),
        // Several changes together are measured against the unchanged workload at the end.
        row: (kept.knobs.len() == 1).then_some(row),
        command: kept.profile_command(&context.props.run.path, context.config()),
        ..Winner::default()
    });
}

/// Gives the row of a faster change that is not kept itself its reason.
fn explain(context: &mut TrialContext<'_>, row: Option<usize>, reason: String) {
    if let Some(row) = row.and_then(|row| context.trial.rows.get_mut(row))
        && row.reason.is_none()
    {
        row.reason = Some(reason);
    }
}

/// Tells whether the budget allows another change to be measured.
fn has_room(context: &TrialContext<'_>) -> bool {
    let runs = context.props.repeats.saturating_mul(2);
    context.expected().saturating_mul(runs) <= context.left()
}

fn larger(a: OutputEffect, b: OutputEffect) -> OutputEffect {
    match (a, b) {
        (OutputEffect::Changes, _) | (_, OutputEffect::Changes) => OutputEffect::Changes,
        (OutputEffect::Rounding, _) | (_, OutputEffect::Rounding) => OutputEffect::Rounding,
        (OutputEffect::None, OutputEffect::None) => OutputEffect::None,
    }
}

/// Records how the trial ended. Returns the exit status.
fn conclude(context: &mut TrialContext<'_>, end: Result<(), Stop>) -> Result<Exit, Error> {
    let (state, reason, exit) = match end {
        Ok(()) => (TrialState::Done, None, Exit::Done),
        Err(Stop::Budget) => {
            let reason = format!("the budget of {} was spent", Span(context.props.budget));
            (TrialState::Done, Some(reason), Exit::Partial)
        }
        Err(Stop::Cancelled) => {
            let reason = "interrupted by the user".to_owned();
            (TrialState::Interrupted, Some(reason), Exit::Interrupted)
        }
        Err(Stop::Failed { label, failure }) => {
            context.trial.log_tail = failure.log_tail;
            let reason = format!("{label} failed: {}", failure.why);
            (TrialState::Failed, Some(reason), Exit::ProgramFailed)
        }
        Err(Stop::Record(error)) => return Err(error),
    };
    if let (Some(winner), Some(reason)) = (&mut context.trial.winner, &reason)
        && winner.watched_run.is_none()
        && winner.watched_reason.is_none()
    {
        winner.watched_reason = Some(reason.clone());
    }
    let notes = above_bounds(&context.trial, context.props);
    context.trial.notes.extend(notes);
    context.trial.state = state;
    context.trial.reason = reason;
    context.trial.finished = Some(clock::now().to_string());
    context.save()?;
    Ok(exit)
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
