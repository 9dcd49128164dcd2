//! Changes of the workload that `roofgap try` and `roofgap tune` measured.

use super::table::Table;
use super::{Block, Document, Item, Section, capitalized, maybe};
use crate::render::screen::Screen;
use crate::render::text;
use roofgap_analyze::compare::OTHER_CLOCK;
use roofgap_analyze::{
    MeasuredTime, OutputCheck, OutputEffect, Search, TimeChange, Trial, TrialRow, TrialState, TrialVerdict,
    Trials, Winner,
};
use roofgap_base::numbers::{NONE, counted, or_none, significant, size, time};

/// Meaning of the tables.
const MEANING: &str = "Unwatched runs of the workload, changed and unchanged in turn. A factor of 2 is twice as fast; its \
     interval holds the true factor with 95 % confidence. The prediction is an upper bound from the findings.";

/// Meaning of the tables of a search.
const SEARCH_MEANING: &str = "A search: unwatched runs of the best workload so far and of changed ones in random order. A factor of 2 is twice \
     as good; one without an interval is a first look, from which nothing is claimed. A kept change is proven with new pairs; the lower \
     ends of the intervals of all proofs hold together with 95 % confidence.";

impl Document<'_> {
    /// Describes the changes that were tried.
    pub(super) fn tried(&self) -> Section {
        let trial = self.context.trials.as_ref().and_then(Trials::latest);
        let title = if trial.is_some_and(|trial| trial.search.is_some()) { "Tuned" } else { "Tried" };
        let drawing = trial.and_then(|_| self.on_page(Block::Drawing));
        Section::new("tried", title).with(drawing).with(self.context.trials.iter().flat_map(blocks))
    }
}

/// Renders the latest trial for a terminal.
pub fn tried_text(trials: &Trials, screen: Screen) -> String {
    text::blocks(&blocks(trials), screen)
}

fn blocks(trials: &Trials) -> Vec<Block> {
    let Some(trial) = trials.latest() else {
        return Vec::new();
    };
    let changes = trial.rows.iter().filter_map(change_item);
    let more = trial.notes.iter().cloned().chain([cost(trial)]).map(Item::from);
    let items = changes.chain(sentences(trial).into_iter().map(Item::from)).chain(state(trial)).chain(more);
    let meaning = if trial.search.is_some() { SEARCH_MEANING } else { MEANING };
    let first = headline(trials).map(Block::Line).into_iter().chain([Block::note(meaning)]);
    first.chain(Block::table(table(trial).measured())).chain([Block::List(items.collect())]).collect()
}

/// Returns the line for a manager: what the kept changes gave together. `None` before anything was measured.
pub fn headline(trials: &Trials) -> Option<String> {
    let trial = trials.latest()?;
    // A change by itself that ran.
    let is_tried = |row: &&TrialRow| {
        let ran = row.runs > 0 || row.verdict == TrialVerdict::Failed;
        row.knob.is_some() && row.on_top_of.is_empty() && ran
    };
    let tried = trial.rows.iter().filter(is_tried).count() as u64;
    if tried == 0 {
        return None;
    }
    let Some(winner) = &trial.winner else {
        return Some(format!("{} tried: none is kept.", counted(tried, "change")));
    };
    let kept = counted(winner.knobs.len() as u64, "change");
    let measured =
        trial.winner_row().and_then(|row| Some((row, row.deciding().filter(|time| time.ratio.is_some())?)));
    Some(match measured {
        Some((row, time)) => {
            let output = match &row.output {
                OutputCheck::Identical => "the output is identical".to_owned(),
                OutputCheck::Different => "the output differs".to_owned(),
                OutputCheck::NotKnown { why } => format!("the output was not compared: {why}"),
            };
            format!("{} by {kept}; {output}.", faster(time))
        }
        None => format!("{kept} kept of {tried} tried; together they were not measured."),
    })
}

/// Formats a factor with its interval.
fn faster(time: &TimeChange) -> String {
    let interval = maybe(time.interval, |(low, high)| {
        format!("; 95 % interval {} to {}", significant(low), significant(high))
    });
    let factor = or_none(time.ratio, significant);
    let how = if time.of == MeasuredTime::Energy { "good" } else { "fast" };
    format!("{factor} times as {how} ({}{interval})", time.of.name())
}

/// Tabulates every compared time of every change, the one that decides first; one row for a change without a time.
fn table(trial: &Trial) -> Table {
    let rows = trial.rows.iter().flat_map(|row| {
        let deciding = row.deciding();
        let others =
            row.times.iter().filter(move |time| deciding.is_none_or(|own| !std::ptr::eq(own, *time)));
        let mut times: Vec<Option<&TimeChange>> = deciding.into_iter().chain(others).map(Some).collect();
        if times.is_empty() {
            times.push(None);
        }
        times.into_iter().map(move |time| (row, time))
    });
    let rows: Vec<(&TrialRow, Option<&TimeChange>)> = rows.collect();
    let interval = |(low, high): (f64, f64)| format!("{}–{}", significant(low), significant(high));
    Table::of(&rows)
        .text("change", |(row, _)| name(row))
        .text("outcome", |(row, _)| row.verdict.word())
        .text("time", |(_, time)| time.map(|time| time.of.name()))
        .ms("before", |(_, time)| mean(*time, |time| &time.before_ns))
        .ms("after", |(_, time)| mean(*time, |time| &time.after_ns))
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

/// Names a change, and what it is measured on top of.
pub fn name(row: &TrialRow) -> String {
    let own = match &row.knob {
        Some(knob) => knob.id.clone(),
        None if row.knobs.is_empty() => "base against base".to_owned(),
        None => format!("together: {}", row.knobs.join(", ")),
    };
    if row.on_top_of.is_empty() { own } else { format!("{own}, on top of {}", row.on_top_of.join(", ")) }
}

/// Returns the mean of values of a time; `None` for energy.
fn mean(time: Option<&TimeChange>, values: fn(&TimeChange) -> &Vec<i64>) -> Option<i64> {
    let time = time.filter(|time| time.of != MeasuredTime::Energy)?;
    values(time).iter().sum::<i64>().checked_div(values(time).len() as i64)
}

/// Lists the sentences on the unchanged workload and on what is kept.
fn sentences(trial: &Trial) -> Vec<String> {
    let unsteady = "Outputs of the unchanged workload differ from run to run, so they cannot be compared.";
    let unsteady = (trial.base.deterministic == Some(false)).then(|| unsteady.to_owned());
    let times = trial.base.times_reason.as_ref().map(|why| format!("Times are of the whole process: {why}."));
    let kept = trial.winner.iter().flat_map(|winner| keep(winner, trial.winner_row()));
    let search = trial.search.iter().flat_map(|search| evidence(search, trial));
    unsteady.into_iter().chain(times).chain(kept).chain(search).collect()
}

/// States the evidence of a search.
fn evidence(search: &Search, trial: &Trial) -> impl Iterator<Item = String> {
    let kept = || trial.rows.iter().filter(|row| row.verdict == TrialVerdict::Kept);
    // All together against the base is a step only where nothing came before it.
    let all = trial.winner_row().filter(|all| kept().any(|row| row.knobs.len() < all.knobs.len()));
    let path = kept().filter(|row| all.is_none_or(|all| !std::ptr::eq(*row, all)));
    let steps: Vec<String> = path
        .filter_map(|row| Some(format!("{} ({}x)", name(row), significant(row.deciding()?.ratio?))))
        .collect();
    let known = trial.winner_row().and_then(|row| row.deciding()?.ratio);
    let gain = if trial.winner.is_some() { known } else { Some(1.0) };
    [
        Some(format!("Goal: {}; {} begun", search.goal, counted(search.proofs, "proof"))),
        (!steps.is_empty()).then(|| format!("Path of the best: base, then {}", steps.join(", then "))),
        search.noise_ratio.map(|noise| format!("Noise of base against base: {}x", significant(noise))),
        search.roof_ratio.zip(gain).map(|(roof, gain)| {
            let left = (roof / gain).max(1.0);
            format!("Distance to the roof: at most {}x is left", significant(left))
        }),
    ]
    .into_iter()
    .flatten()
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
        ("Profiled run", winner.watched_run.clone()),
        ("To see why", winner.compare_command.clone()),
        ("Profile of the kept changes", winner.watched_reason.clone()),
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
            format!("The workload to compare with failed{}", maybe(why, |why| format!(": {why}")))
        }
        _ => "The trial has not ended".to_owned(),
    };
    Some(Item { text: what + ".", lines: quoted(&trial.log_tail), ..Item::default() })
}

/// States the number of runs and the time of a trial.
fn cost(trial: &Trial) -> String {
    // The runs that a change on top of others is compared with are not those of the unchanged workload.
    let reference = |row: &TrialRow| match row.deciding() {
        Some(time) if !row.on_top_of.is_empty() => time.before_ns.len() as u64,
        _ => 0,
    };
    // A search looks at a change more than once.
    let runs = match trial.runs.len() {
        0 => trial.rows.iter().map(|row| row.runs + reference(row)).sum::<u64>() + trial.base.runs,
        runs => runs as u64,
    };
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
            on_top_of: Vec::new(),
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

    fn trials() -> Trials {
        let decode = MeasuredTime::Stage("decode".to_owned());
        let mut failed = row("hf.compile", TrialVerdict::Failed, Vec::new());
        failed.reason = Some("out of memory".to_owned());
        failed.output = OutputCheck::NotKnown { why: "no run ended".to_owned() };
        Trials {
            trials: vec![Trial {
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
                    row: Some(0),
                    command: "roofgap profile workload.cuda_graphs=true".to_owned(),
                    ..Winner::default()
                }),
                ..Trial::default()
            }],
            ..Trials::default()
        }
    }

    #[test]
    fn the_line_for_a_manager_counts_the_changes() {
        assert_eq!(
            headline(&trials()).as_deref(),
            Some(
                "2.90 times as fast (whole run; 95 % interval 2.80 to 3.00) by 1 change; the output is identical."
            )
        );
        let mut none = trials();
        none.trials[0].winner = None;
        assert_eq!(headline(&none).as_deref(), Some("2 changes tried: none is kept."));
        // A row without any run is not tried.
        none.trials[0].rows[0].runs = 0;
        assert_eq!(headline(&none).as_deref(), Some("1 change tried: none is kept."));
        none.trials[0].rows.clear();
        assert_eq!(headline(&none), None);
    }

    #[test]
    fn a_change_on_top_of_others_is_not_another_change() {
        let mut trials = trials();
        let trial = &mut trials.trials[0];
        assert!(cost(trial).starts_with("16 runs"), "{}", cost(trial));
        let mut on_top = row("hf.compile", TrialVerdict::Kept, vec![time(MeasuredTime::Run, 1.5)]);
        on_top.on_top_of = vec!["hf.cuda_graphs".to_owned()];
        trial.rows.push(on_top);
        // Five of its own, and two of what it is on top of.
        assert!(cost(trial).starts_with("23 runs"), "{}", cost(trial));
        if let Some(winner) = &mut trial.winner {
            winner.knobs.push("hf.compile".to_owned());
            winner.row = None;
        }
        assert_eq!(
            headline(&trials).as_deref(),
            Some("2 changes kept of 2 tried; together they were not measured.")
        );
    }

    #[test]
    fn a_reference_that_failed_need_not_be_the_unchanged_workload() {
        let mut trials = trials();
        let trial = &mut trials.trials[0];
        trial.state = TrialState::Failed;
        trial.reason = Some("hf.cuda_graphs failed: status 1".to_owned());
        let lines = tried_text(&trials, Screen::default());
        assert!(lines.contains("The workload to compare with failed: hf.cuda_graphs failed"), "{lines}");
    }

    #[test]
    fn a_trial_that_did_not_end_says_so() {
        let mut trials = trials();
        trials.trials[0].state = TrialState::Interrupted;
        trials.trials[0].winner = None;
        let lines = tried_text(&trials, Screen::default());
        assert!(lines.contains("was interrupted"), "{lines}");
    }
}
