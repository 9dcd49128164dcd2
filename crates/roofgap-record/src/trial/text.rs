//! The plan, the result and the history of trials for people.

use std::fmt::Write;
use std::time::Duration;

use roofgap_analyze::{OutputCheck, TimeChange, Trial, TrialRow, TrialState};
use roofgap_base::numbers::{decimal, significant};
use roofgap_report::{Screen, columns, count, size, time};

use super::history::History;
use super::plan::{Candidate, TrialPlan};
use roofgap_runs::config::Span;

/// Placeholder for an unknown value.
const NONE: &str = "–";

/// Formats a ratio of time before to time after.
fn ratio(value: f64) -> String {
    format!("{}x", significant(value))
}

fn interval((low, high): (f64, f64)) -> String {
    format!("{} to {}", significant(low), significant(high))
}

fn ns(value: u64) -> String {
    time(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Renders the plan and its cost.
pub fn plan(plan: &TrialPlan, screen: Screen) -> String {
    let row = |candidate: &Candidate| {
        let findings = candidate.finding_ids();
        [
            candidate.knob.id.clone(),
            candidate.knob.title.clone(),
            if findings.is_empty() { NONE.to_owned() } else { findings.join(", ") },
            candidate.knob.output.as_str().to_owned(),
        ]
    };
    let mut out = columns(
        ["change", "what it does", "finding", "effect on the output"],
        plan.candidates.iter().map(row),
        screen,
    );
    let cost = match (plan.run_ns, plan.first_ns) {
        (Some(run), Some(all)) => format!(" of about {} each: {}", ns(run), ns(all)),
        _ => ", of unknown length: the run has no baseline".to_owned(),
    };
    let _ = writeln!(
        out,
        "\nat least {} runs without a profiler{cost}; combinations and a profiled run of the winner follow within the budget of {}",
        count(plan.first_runs),
        Span(Duration::from_nanos(plan.budget_ns))
    );
    if plan.first_ns.is_some_and(|all| all > plan.budget_ns) {
        let at_once = plan.at_once();
        let order = match (at_once < plan.candidates.len(), at_once) {
            (false, _) => String::new(),
            (true, 1) => "; the first change is tried before the others".to_owned(),
            (true, some) => format!("; the first {some} changes are tried before the others"),
        };
        let _ = writeln!(out, "the budget is too short for all of them{order}; raise it with --budget");
    }
    out
}

/// Renders the result of a trial.
pub fn result(trial: &Trial, screen: Screen) -> String {
    let mut out = columns(
        [
            "change",
            "result",
            "time",
            "before>",
            "after>",
            "faster>",
            "95 % interval>",
            "at most>",
            "tokens",
            "memory>",
        ],
        trial.rows.iter().flat_map(rows),
        screen,
    );
    if let Some(reason) = &trial.base.times_reason {
        let _ = writeln!(out, "\n{reason}");
    }
    if trial.base.deterministic == Some(false) {
        let _ =
            writeln!(out, "\nthe tokens differ from run to run without any change, so they are not compared");
    }
    let mut reasons = String::new();
    for row in &trial.rows {
        if let Some(reason) = &row.reason {
            let _ = writeln!(reasons, "{}: {}: {reason}", name(row), row.verdict.word());
        }
        if let Some(tail) = &row.log_tail {
            reasons.extend(tail.lines().map(|line| format!("  | {line}\n")));
        }
    }
    if !reasons.is_empty() {
        let _ = write!(out, "\n{reasons}");
    }
    for note in &trial.notes {
        let _ = writeln!(out, "\n{note}");
    }
    let _ = write!(out, "\n{}", ending(trial));
    out
}

/// Returns the name of a row: its change, and what it is on top of.
fn name(row: &TrialRow) -> String {
    match &row.knob {
        Some(knob) if row.on_top_of.is_empty() => knob.id.clone(),
        Some(knob) => format!("{} on top of {}", knob.id, row.on_top_of.join(" + ")),
        None => row.knobs.join(" + "),
    }
}

/// Formats a row as a line a measured time. Only the first has what belongs to all of them.
fn rows(row: &TrialRow) -> Vec<[String; 10]> {
    let line = |at: usize, change: Option<&TimeChange>| {
        let first = |text: String| if at == 0 { text } else { String::new() };
        let of = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        let mean = |values: &[i64]| {
            let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
            let mean = sum.checked_div(values.len() as i128)?;
            Some(time(i64::try_from(mean).unwrap_or(i64::MAX)))
        };
        [
            first(name(row)),
            first(row.verdict.word().to_owned()),
            of(change.map(|change| change.of.name().to_owned())),
            of(change.and_then(|change| mean(&change.before_ns))),
            of(change.and_then(|change| mean(&change.after_ns))),
            of(change.and_then(|change| change.ratio).map(ratio)),
            of(change.and_then(|change| change.interval).map(interval)),
            of(change.and_then(|change| change.bound_ratio).map(ratio)),
            first(
                match row.output {
                    OutputCheck::Identical => "identical",
                    OutputCheck::Different => "different",
                    OutputCheck::NotKnown { .. } => "not compared",
                }
                .to_owned(),
            ),
            first(of(row.device_memory_bytes.map(size))),
        ]
    };
    if row.times.is_empty() {
        return vec![line(0, None)];
    }
    let lines = row.times.iter().enumerate();
    lines.map(|(at, change)| line(at, Some(change))).collect()
}

/// Says what is kept and how.
fn ending(trial: &Trial) -> String {
    let mut out = String::new();
    if trial.state == TrialState::Running {
        let _ = writeln!(out, "the trial is in progress, or was killed");
    }
    if let Some(reason) = &trial.reason {
        let _ = writeln!(out, "{reason}");
    }
    if let Some(tail) = &trial.log_tail {
        out.extend(tail.lines().map(|line| format!("  | {line}\n")));
    }
    let Some(winner) = &trial.winner else {
        let _ = writeln!(out, "nothing is kept");
        return out;
    };
    let gain = trial.winner_row().and_then(TrialRow::deciding).and_then(|change| {
        let (measured, range) = (change.ratio?, change.interval?);
        Some(format!(": {} {} (interval {})", change.of.name(), ratio(measured), interval(range)))
    });
    let _ = writeln!(
        out,
        "kept: {}{}",
        winner.knobs.join(" + "),
        gain.unwrap_or_else(|| ", not measured together".to_owned())
    );
    let _ = writeln!(out, "command: {}", winner.command);
    if let Some(row) = trial.winner_row().filter(|row| row.command != winner.command) {
        let _ = writeln!(out, "program: {}", row.command);
    }
    if let Some(path) = &winner.watched_run {
        let _ = writeln!(out, "profiled: {path}");
    }
    if let Some(reason) = &winner.watched_reason {
        let _ = writeln!(out, "profiled run: {reason}");
    }
    if let Some(command) = &winner.compare_command {
        let _ = writeln!(out, "compare: {command}");
    }
    out
}

/// Renders predicted against measured gains.
pub fn history(history: &History, screen: Screen) -> String {
    let mut out = if history.rows.is_empty() {
        "no trial has a predicted bound; `roofgap try RUN` makes one\n".to_owned()
    } else {
        columns(
            ["run", "change", "finding", "time", "at most>", "measured>", "95 % interval>", "within"],
            history.rows.iter().map(|row| {
                [
                    row.run_id.clone(),
                    row.knobs.join(" + "),
                    row.findings.join(", "),
                    row.of.name().to_owned(),
                    ratio(row.bound_ratio),
                    ratio(row.ratio),
                    interval(row.interval),
                    if row.within_bound { "yes" } else { "no" }.to_owned(),
                ]
            }),
            screen,
        )
    };
    if let Some(share) = history.within_pct {
        let _ = writeln!(
            out,
            "\n{} of {} measurements are within their bounds ({} %)",
            count(history.within),
            count(history.rows.len() as u64),
            decimal(share, 0)
        );
    }
    if history.without_bound > 0 {
        let _ = writeln!(out, "measured without a predicted bound: {}", count(history.without_bound));
    }
    for problem in &history.unreadable {
        let _ = writeln!(out, "not read: {problem}");
    }
    out
}
