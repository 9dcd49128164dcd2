//! Changes of the workload that `roofgap try` measured.

use super::table::Table;
use super::{Block, Document, Item, Section, capitalized, maybe};
use crate::render::screen::Screen;
use crate::render::text;
use roofgap_analyze::compare::OTHER_CLOCK;
use roofgap_analyze::{
    OutputCheck, OutputEffect, TimeChange, Trial, TrialRow, TrialState, TrialVerdict, Winner,
};
use roofgap_base::numbers::{NONE, counted, or_none, significant, size, time};

/// Meaning of the table.
const MEANING: &str = "Unwatched runs of the workload, changed and unchanged in turn. A factor of 2 is twice as fast; its \
     interval holds the true factor with 95 % confidence. The prediction is an upper bound from the findings.";

impl Document<'_> {
    /// Describes the changes that were tried.
    pub(super) fn tried(&self) -> Section {
        Section::new("tried", "Tried").with(self.context.trial.iter().flat_map(blocks))
    }
}

/// Renders a trial for a terminal.
pub fn tried_text(trial: &Trial, screen: Screen) -> String {
    text::blocks(&blocks(trial), screen)
}

fn blocks(trial: &Trial) -> Vec<Block> {
    let changes = trial.rows.iter().filter_map(change_item);
    let more = trial.notes.iter().cloned().chain([cost(trial)]).map(Item::from);
    let items = changes.chain(sentences(trial).into_iter().map(Item::from)).chain(state(trial)).chain(more);
    let first = headline(trial).map(Block::Line).into_iter().chain([Block::Note(MEANING.to_owned())]);
    first.chain(Block::table(table(trial).measured())).chain([Block::List(items.collect())]).collect()
}

/// Returns the line for a manager: what the kept changes gave together. `None` before anything was measured.
pub fn headline(trial: &Trial) -> Option<String> {
    // A change by itself that ran.
    let ran = |row: &&TrialRow| row.runs > 0 || row.verdict == TrialVerdict::Failed;
    let tried = trial.rows.iter().filter(|row| row.knob.is_some()).filter(ran).count() as u64;
    if tried == 0 {
        return None;
    }
    let kept = trial.winner.as_ref().zip(trial.winner_row());
    let Some((winner, row, time)) = kept.and_then(|(winner, row)| Some((winner, row, row.deciding()?)))
    else {
        return Some(format!("{} tried: none is kept.", counted(tried, "change")));
    };
    let output = match &row.output {
        OutputCheck::Identical => "the output is identical".to_owned(),
        OutputCheck::Different => "the output differs".to_owned(),
        OutputCheck::NotKnown { why } => format!("the output was not compared: {why}"),
    };
    let interval = maybe(time.interval, |(low, high)| {
        format!("; 95 % interval {} to {}", significant(low), significant(high))
    });
    let (factor, name) = (or_none(time.ratio, significant), time.of.name());
    let kept = counted(winner.knobs.len() as u64, "change");
    Some(format!("{factor} times as fast ({name}{interval}) by {kept}; {output}."))
}

/// Tabulates every compared time of every change, the one that decides first; one row for a change without a time.
fn table(trial: &Trial) -> Table {
    let rows = trial.rows.iter().flat_map(|row| {
        let none = row.times.is_empty().then_some((row, None));
        row.times.iter().map(move |time| (row, Some(time))).chain(none)
    });
    let rows: Vec<(&TrialRow, Option<&TimeChange>)> = rows.collect();
    let interval = |(low, high): (f64, f64)| format!("{}–{}", significant(low), significant(high));
    let mean = |values: &[i64]| values.iter().sum::<i64>().checked_div(values.len() as i64);
    Table::of(&rows)
        .text("change", |(row, _)| match &row.knob {
            Some(knob) => knob.id.clone(),
            None => format!("together: {}", row.knobs.join(", ")),
        })
        .text("outcome", |(row, _)| row.verdict.word())
        .text("time", |(_, time)| time.map(|time| time.of.name()))
        .ms("before", |(_, time)| mean(&(*time)?.before_ns))
        .ms("after", |(_, time)| mean(&(*time)?.after_ns))
        .number("factor", |(_, time)| time.and_then(|time| time.ratio).map(significant))
        .number("interval", |(_, time)| time.and_then(|time| time.interval).map(interval))
        .number("predicted at most", |(_, time)| time.and_then(|time| time.bound_ratio).map(significant))
        .text("output", |(row, _)| match row.output {
            OutputCheck::Identical => "identical",
            OutputCheck::Different => "differs",
            OutputCheck::NotKnown { .. } => NONE,
        })
        .number("memory", |(row, _)| row.device_memory_bytes.map(size))
        .number("runs", |(row, _)| row.runs.to_string())
        .build()
}

/// Lists the sentences on the unchanged workload and on what is kept.
fn sentences(trial: &Trial) -> Vec<String> {
    let unsteady = "Outputs of the unchanged workload differ from run to run, so they cannot be compared.";
    let unsteady = (trial.base.deterministic == Some(false)).then(|| unsteady.to_owned());
    let times = trial.base.times_reason.as_ref().map(|why| format!("Times are of the whole process: {why}."));
    let kept = trial.winner.iter().flat_map(|winner| keep(winner, trial.winner_row()));
    unsteady.into_iter().chain(times).chain(kept).collect()
}

/// Describes one change and the reason of its outcome.
fn change_item(row: &TrialRow) -> Option<Item> {
    let knob = row.knob.as_ref()?;
    let ran = !matches!(row.verdict, TrialVerdict::Failed | TrialVerdict::Refused);
    let effect = match knob.output {
        OutputEffect::Rounding if ran => "; the same computation in another order",
        OutputEffect::Changes if ran => "; changes the output",
        _ => "",
    };
    let why = maybe(row.reason.as_ref(), |why| format!("; {}: {why}", row.verdict.word()));
    let output = match &row.output {
        OutputCheck::NotKnown { why } => format!("; output not compared: {why}"),
        _ => String::new(),
    };
    let clocks = maybe(row.clocks_mhz, |(before, after)| {
        let is_other = (after / before).max(before / after) >= OTHER_CLOCK;
        let part = if is_other { ", so a part of the difference may be the clock's" } else { "" };
        format!("; SM clock {before:.0} MHz before and {after:.0} MHz after{part}")
    });
    let text = format!("{}: {} ({}){effect}{why}{output}{clocks}.", knob.id, knob.title, knob.spoken());
    Some(Item { text, lines: quoted(&row.log_tail), ..Item::default() })
}

fn quoted(log_tail: &Option<String>) -> Vec<String> {
    log_tail.iter().flat_map(|tail| tail.lines()).map(|line| format!("| {line}")).collect()
}

/// Names what is kept, and lists the commands that keep it and explain it.
fn keep<'a>(winner: &'a Winner, row: Option<&'a TrialRow>) -> impl Iterator<Item = String> {
    let program = row.map(|row| &row.command).filter(|program| **program != winner.command);
    let lines = [
        ("Kept", Some(winner.knobs.join(" + "))),
        ("To keep it", Some(winner.command.clone())),
        ("Its program", program.cloned()),
    ];
    lines.into_iter().filter_map(|(what, text)| Some(format!("{what}: {}", text?)))
}

/// Describes a trial that did not end by itself.
fn state(trial: &Trial) -> Option<Item> {
    let why = trial.reason.as_deref();
    let what = match trial.state {
        TrialState::Done => capitalized(why?),
        TrialState::Interrupted => {
            "The trial was interrupted; the rows are what was measured until then".to_owned()
        }
        TrialState::Failed => {
            format!("The unchanged workload failed{}", maybe(why, |why| format!(": {why}")))
        }
        _ => "The trial has not ended".to_owned(),
    };
    Some(Item { text: what + ".", lines: quoted(&trial.log_tail), ..Item::default() })
}

/// States the number of runs and the time of a trial.
fn cost(trial: &Trial) -> String {
    let runs = trial.rows.iter().map(|row| row.runs).sum::<u64>() + trial.base.runs;
    format!("{} in {}.", capitalized(&counted(runs, "run")), time(trial.spent_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::{BaseRuns, Knob, KnobChange, MeasuredTime};

    fn time(of: MeasuredTime, ratio: f64) -> TimeChange {
        TimeChange {
            of,
            before_ns: vec![20_000_000, 22_000_000],
            after_ns: vec![10_000_000, 11_000_000],
            ratio: Some(ratio),
            interval: Some((ratio - 0.1, ratio + 0.1)),
            bound_ratio: Some(12.4),
            within_bound: Some(true),
        }
    }

    fn row(id: &str, verdict: TrialVerdict, times: Vec<TimeChange>) -> TrialRow {
        TrialRow {
            knob: Some(Knob {
                id: id.to_owned(),
                title: "replay each decode step as a CUDA graph".to_owned(),
                changes: vec![KnobChange::Setting {
                    key: "workload.cuda_graphs".to_owned(),
                    value: "true".to_owned(),
                }],
                output: OutputEffect::Rounding,
                applies: "decode".to_owned(),
            }),
            knobs: vec![id.to_owned()],
            findings: vec!["launch-bound".to_owned()],
            verdict,
            reason: None,
            log_tail: None,
            runs: 5,
            times,
            output: OutputCheck::Identical,
            device_memory_bytes: Some(2_000_000_000),
            clocks_mhz: None,
            command: "roofgap profile workload.cuda_graphs=true".to_owned(),
        }
    }

    fn trial() -> Trial {
        let decode = MeasuredTime::Stage("decode".to_owned());
        let mut failed = row("hf.compile", TrialVerdict::Failed, Vec::new());
        failed.reason = Some("out of memory".to_owned());
        failed.output = OutputCheck::NotKnown { why: "no run ended".to_owned() };
        Trial {
            state: TrialState::Done,
            spent_ns: 90_000_000_000,
            base: BaseRuns { runs: 6, ..BaseRuns::default() },
            rows: vec![
                row(
                    "hf.cuda_graphs",
                    TrialVerdict::Kept,
                    vec![time(MeasuredTime::Run, 2.9), time(decode, 8.1)],
                ),
                failed,
            ],
            winner: Some(Winner {
                knobs: vec!["hf.cuda_graphs".to_owned()],
                row: 0,
                command: "roofgap profile workload.cuda_graphs=true".to_owned(),
            }),
            ..Trial::default()
        }
    }

    #[test]
    fn the_line_for_a_manager_counts_the_changes() {
        assert_eq!(
            headline(&trial()).as_deref(),
            Some(
                "2.90 times as fast (whole run; 95 % interval 2.80 to 3.00) by 1 change; the output is identical."
            )
        );
        let mut none = trial();
        none.winner = None;
        assert_eq!(headline(&none).as_deref(), Some("2 changes tried: none is kept."));
        // A row without any run is not tried.
        none.rows[0].runs = 0;
        assert_eq!(headline(&none).as_deref(), Some("1 change tried: none is kept."));
        none.rows.clear();
        assert_eq!(headline(&none), None);
    }

    #[test]
    fn changes_together_are_not_another_change() {
        let mut trial = trial();
        assert!(cost(&trial).starts_with("16 runs"), "{}", cost(&trial));
        let mut together = row("", TrialVerdict::Kept, vec![time(MeasuredTime::Run, 4.5)]);
        together.knob = None;
        trial.rows.push(together);
        assert!(cost(&trial).starts_with("21 runs"), "{}", cost(&trial));
        trial.winner =
            Some(Winner { knobs: vec!["a".to_owned(), "b".to_owned()], row: 2, command: String::new() });
        let line = headline(&trial).unwrap();
        assert!(line.starts_with("4.50 times as fast") && line.contains("by 2 changes"), "{line}");
    }

    #[test]
    fn a_trial_that_did_not_end_says_so() {
        let mut trial = trial();
        (trial.state, trial.winner) = (TrialState::Interrupted, None);
        let lines = tried_text(&trial, Screen::default());
        assert!(lines.contains("was interrupted"), "{lines}");
        (trial.state, trial.reason) = (TrialState::Failed, Some("status 1".to_owned()));
        let lines = tried_text(&trial, Screen::default());
        assert!(lines.contains("The unchanged workload failed: status 1"), "{lines}");
    }
}
