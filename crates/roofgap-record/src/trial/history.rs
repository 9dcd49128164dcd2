//! Predicted against measured gains of all runs.

use std::path::Path;

use roofgap_analyze::{MeasuredTime, Trials};
use serde::Serialize;

use crate::error::Error;
use roofgap_runs::run_dir::{Layout, locate, trials};

/// Schema of the history.
pub const SCHEMA: &str = "roofgap.try-history/1";

/// Predicted against measured gains of all runs in a folder.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct History {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// Gains with a predicted bound, the oldest first.
    pub rows: Vec<HistoryRow>,
    /// Number of gains within their bounds.
    pub within: u64,
    /// Share of gains within their bounds, %; `None` without any.
    pub within_pct: Option<f64>,
    /// Number of changes that were measured without a predicted bound.
    pub without_bound: u64,
    /// Files that are not readable, with the reason.
    pub unreadable: Vec<String>,
}

/// A measured gain and its predicted bound.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryRow {
    /// Id of the run.
    pub run_id: String,
    /// Start of the trial.
    pub started: String,
    /// Ids of the knobs.
    pub knobs: Vec<String>,
    /// Ids of the findings.
    pub findings: Vec<String>,
    /// Measured quantity.
    pub of: MeasuredTime,
    /// Predicted bound of the ratio.
    pub bound_ratio: f64,
    /// Measured ratio of time before to time after.
    pub ratio: f64,
    /// Ends of its 95 % confidence interval.
    pub interval: (f64, f64),
    /// False where the whole interval is above the bound.
    pub within_bound: bool,
}

/// Collects the trials of all runs in a folder.
///
/// # Errors
/// Fails when the runs cannot be listed. A run whose trials are not readable is named.
pub fn history(base: &Path) -> Result<History, Error> {
    let mut all = Vec::new();
    let mut unreadable = Vec::new();
    for run in locate::all(base)? {
        match trials::read(&Layout::of(&run.path)) {
            Ok(found) => all.extend(found),
            Err(error) => unreadable.push(error.to_string()),
        }
    }
    Ok(History { unreadable, ..collect(&all) })
}

/// Lists the gains that have a predicted bound. Whole runs and tokens follow from the stages, so that only stages count, or what
/// decides where no stage was measured.
fn collect(all: &[Trials]) -> History {
    let mut rows = Vec::new();
    let mut without_bound = 0;
    for trials in all {
        for trial in &trials.trials {
            for row in trial.rows.iter().filter(|row| row.is_comparison()) {
                let is_stage = |of: &MeasuredTime| matches!(of, MeasuredTime::Stage(_));
                let by_stage = row.times.iter().any(|change| is_stage(&change.of));
                let before = rows.len();
                for change in &row.times {
                    if let (Some(bound_ratio), Some(ratio), Some(interval), Some(within_bound)) =
                        (change.bound_ratio, change.ratio, change.interval, change.within_bound)
                        && is_stage(&change.of) == by_stage
                    {
                        rows.push(HistoryRow {
                            run_id: trials.run_id.clone(),
                            started: trial.started.clone(),
                            knobs: row.knobs.clone(),
                            findings: row.findings.clone(),
                            of: change.of.clone(),
                            bound_ratio,
                            ratio,
                            interval,
                            within_bound,
                        });
                    }
                }
                let measured = row.deciding().is_some_and(|change| change.interval.is_some());
                without_bound += u64::from(measured && rows.len() == before);
            }
        }
    }
    let within = rows.iter().filter(|row| row.within_bound).count() as u64;
    History {
        schema: SCHEMA,
        within,
        within_pct: (!rows.is_empty()).then(|| 100.0 * within as f64 / rows.len() as f64),
        without_bound,
        unreadable: Vec::new(),
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::{OutputCheck, TRY_SCHEMA, TimeChange, Trial, TrialRow, TrialVerdict};

    fn change(of: MeasuredTime, bound: Option<f64>, within: Option<bool>) -> TimeChange {
        TimeChange {
            of,
            before_ns: vec![20, 20],
            after_ns: vec![10, 10],
            ratio: Some(2.0),
            interval: Some((1.9, 2.1)),
            bound_ratio: bound,
            within_bound: within,
        }
    }

    fn row(times: Vec<TimeChange>) -> TrialRow {
        TrialRow {
            knob: None,
            on_top_of: Vec::new(),
            knobs: vec!["k".to_owned()],
            findings: vec!["f".to_owned()],
            verdict: TrialVerdict::Kept,
            reason: None,
            log_tail: None,
            runs: 2,
            times,
            output: OutputCheck::Identical,
            device_memory_bytes: None,
            command: String::new(),
        }
    }

    #[test]
    fn each_stage_with_a_bound_counts_once() {
        let decode = || MeasuredTime::Stage("decode".to_owned());
        let trials = Trials {
            schema: TRY_SCHEMA.to_owned(),
            run_id: "r".to_owned(),
            trials: vec![Trial {
                rows: vec![
                    row(vec![
                        change(MeasuredTime::Run, Some(3.0), Some(true)),
                        change(decode(), Some(3.0), Some(true)),
                        change(MeasuredTime::Token, Some(3.0), Some(true)),
                    ]),
                    row(vec![
                        change(MeasuredTime::Run, None, None),
                        change(decode(), Some(1.5), Some(false)),
                    ]),
                    row(vec![change(MeasuredTime::Token, Some(3.0), Some(true))]),
                    row(vec![change(MeasuredTime::Process, None, None)]),
                ],
                ..Trial::default()
            }],
        };
        let history = collect(&[trials]);
        assert_eq!((history.rows.len(), history.within), (3, 2));
        assert_eq!(history.without_bound, 1);
        assert!((history.within_pct.unwrap() - 66.666).abs() < 0.01);
        assert_eq!(collect(&[]).within_pct, None);
    }

    #[test]
    fn only_finished_measurements_against_the_unchanged_workload_count() {
        let kept = || row(vec![change(MeasuredTime::Run, Some(3.0), Some(true))]);
        let with = |verdict| TrialRow { verdict, ..kept() };
        let on_top = TrialRow {
            on_top_of: vec!["other".to_owned()],
            ..row(vec![change(MeasuredTime::Run, None, None)])
        };
        let trials = Trials {
            trials: vec![Trial {
                rows: vec![
                    kept(),
                    with(TrialVerdict::Slower),
                    with(TrialVerdict::Unfinished),
                    with(TrialVerdict::Refused),
                    with(TrialVerdict::Failed),
                    on_top,
                ],
                ..Trial::default()
            }],
            ..Trials::default()
        };
        let history = collect(&[trials]);
        assert_eq!((history.rows.len(), history.without_bound), (2, 0));
    }

    #[test]
    fn a_damaged_file_is_named_and_the_others_count() {
        let base = tempfile::tempdir().unwrap();
        for (id, text) in [("20260101-000000", "{"), ("20260101-000001", "")] {
            let run = base.path().join(id);
            std::fs::create_dir(&run).unwrap();
            if !text.is_empty() {
                std::fs::write(run.join("try.json"), text).unwrap();
            }
        }
        let history = history(base.path()).unwrap();
        assert_eq!(history.unreadable.len(), 1);
        assert!(history.unreadable[0].contains("20260101-000000"), "{history:?}");
    }
}
