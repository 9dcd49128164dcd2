//! The verdict on a change from its pairs of runs.

use roofgap_analyze::{
    BaseRuns, MeanTime, MeasuredTime, OutputCheck, OutputEffect, TimeChange, TrialRow, TrialVerdict,
};
use roofgap_base::stats::PairedRatio;

use super::sample::Sample;

/// Largest half width of an interval that is narrow enough, as a logarithm: 2 %.
const NARROW: f64 = 0.02;

/// Largest half width relative to the gain itself: an interval from 7.2 to 8.9 leaves no doubt.
const NARROW_OF_GAIN: f64 = 0.05;

/// Compares the times of pairs of runs, before and after a change, in the order of the first, each with its predicted bound. An interval
/// that is above the bound entirely is an error of the prediction.
pub fn compare_times(
    before: &[Sample],
    after: &[Sample],
    bound: impl Fn(&MeasuredTime) -> Option<f64>,
) -> Vec<TimeChange> {
    let change = |of: &MeasuredTime| {
        let pairs = before.iter().zip(after);
        let pairs: Option<Vec<(f64, f64)>> =
            pairs.map(|(before, after)| Some((before.time(of)?, after.time(of)?))).collect();
        let pairs = pairs.filter(|pairs| !pairs.is_empty())?;
        let logs = pairs.iter().map(|(before, after)| (before / after).ln());
        let mean = logs.sum::<f64>() / pairs.len() as f64;
        let interval = PairedRatio::of(&pairs).map(|found| (found.low, found.high));
        let bound_ratio = bound(of);
        Some(TimeChange {
            of: of.clone(),
            before_ns: pairs.iter().map(|pair| rounded(pair.0)).collect(),
            after_ns: pairs.iter().map(|pair| rounded(pair.1)).collect(),
            ratio: mean.is_finite().then(|| mean.exp()),
            interval,
            bound_ratio,
            within_bound: bound_ratio.zip(interval).map(|(bound, (low, _))| low <= bound),
        })
    };
    before.first().into_iter().flat_map(|sample| &sample.times).filter_map(|(of, _)| change(of)).collect()
}

/// Tells whether more pairs would not tell more: the interval is narrow, or far from 1 for its width.
pub fn is_narrow(change: &TimeChange) -> bool {
    change.interval.is_some_and(|(low, high)| {
        let half = (high / low).ln() / 2.0;
        let gain = (high * low).ln().abs() / 2.0;
        half <= NARROW.max(NARROW_OF_GAIN * gain)
    })
}

/// Compares the output of a changed workload with the one it changes.
pub fn compare_output(before: &[Sample], after: &[Sample]) -> OutputCheck {
    let not_known = |why: &str| OutputCheck::NotKnown { why: why.to_owned() };
    let Some(expected) = before.first().and_then(|sample| sample.token_hash.as_ref()) else {
        return not_known("the program reports no hash of its tokens");
    };
    if after.is_empty() {
        return not_known("it did not run to its end");
    }
    let same = |sample: &Sample| sample.token_hash.as_ref() == Some(expected);
    if !before.iter().all(same) {
        return not_known("the tokens differ from run to run without the change");
    }
    if after.iter().any(|sample| sample.token_hash.is_none()) {
        return not_known("with the change the program reports no hash of its tokens");
    }
    if after.iter().all(same) {
        OutputCheck::Identical
    } else if before.len() < 2 {
        not_known("the tokens differ, but without the change it ran only once")
    } else {
        OutputCheck::Different
    }
}

/// Returns the reason to refuse a changed workload, whatever its times; `None` where it does the same work.
pub fn refusal(
    before: &[Sample],
    after: &[Sample],
    output: &OutputCheck,
    effect: OutputEffect,
) -> Option<String> {
    if *output == OutputCheck::Different && effect == OutputEffect::None {
        return Some("its tokens differ from those without the change".to_owned());
    }
    let hashed = |sample: &Sample| sample.token_hash.is_some();
    if !before.is_empty() && before.iter().all(hashed) && !after.iter().all(hashed) {
        return Some("it reports no hash of its tokens, and the workload without the change does".to_owned());
    }
    let fewer = |what: &str, of: fn(&Sample) -> Option<u64>| {
        let expected = before.iter().filter_map(of).min()?;
        let found = after.iter().map(|sample| of(sample).unwrap_or(0)).min()?;
        (found < expected).then(|| format!("it {what} {found} instead of {expected}"))
    };
    fewer("generated fewer tokens:", |sample| sample.output_tokens)
        .or_else(|| fewer("answered fewer requests:", |sample| sample.requests))
}

/// Returns the verdict on a row whose runs have ended.
pub fn verdict(row: &TrialRow, repeats: u32) -> TrialVerdict {
    if matches!(row.verdict, TrialVerdict::Failed | TrialVerdict::Refused) {
        return row.verdict;
    }
    let decided = row.deciding().filter(|change| change.after_ns.len() as u64 >= u64::from(repeats));
    match decided.and_then(|change| change.interval) {
        None => TrialVerdict::Unfinished,
        Some((low, _)) if low > 1.0 => TrialVerdict::Faster,
        Some((_, high)) if high < 1.0 => TrialVerdict::Slower,
        Some(_) => TrialVerdict::Same,
    }
}

/// Returns the reason not to keep a faster row; `None` where it can be kept.
pub fn hindrance(row: &TrialRow, effect: OutputEffect, accept_changed_output: bool) -> Option<String> {
    let accepted = "--accept-changed-output keeps it";
    match (&row.output, effect) {
        _ if accept_changed_output && effect != OutputEffect::None => None,
        (OutputCheck::Identical, _) | (OutputCheck::NotKnown { .. }, OutputEffect::None) => None,
        (OutputCheck::Different, _) => Some(format!("its tokens differ; {accepted}")),
        (OutputCheck::NotKnown { why }, _) => {
            Some(format!("it may change the output, which was not compared: {why}; {accepted}"))
        }
    }
}

/// Summarises the runs of the unchanged workload.
pub fn base_runs(samples: &[Sample]) -> BaseRuns {
    let Some(first) = samples.first() else {
        return BaseRuns::default();
    };
    let mean = |of: &MeasuredTime| {
        let times: Vec<f64> = samples.iter().filter_map(|sample| sample.time(of)).collect();
        let mean_ns = rounded(times.iter().sum::<f64>() / times.len() as f64);
        MeanTime { of: of.clone(), mean_ns }
    };
    let same = samples.iter().all(|sample| sample.token_hash == first.token_hash);
    let whole_process = matches!(first.times.as_slice(), [(MeasuredTime::Process, _)]);
    BaseRuns {
        runs: samples.len() as u64,
        token_hash: first.token_hash.clone().filter(|_| same),
        deterministic: (samples.len() > 1 && first.token_hash.is_some()).then_some(same),
        device_memory_bytes: samples.iter().filter_map(|sample| sample.device_memory_bytes).max(),
        times: first.times.iter().map(|(of, _)| mean(of)).collect(),
        times_reason: whole_process.then(|| {
            "the program reports no times of its stages, so the whole process is compared, start-up included"
                .to_owned()
        }),
    }
}

fn rounded(ns: f64) -> i64 {
    ns.round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(run: f64, hash: Option<&str>) -> Sample {
        Sample {
            times: vec![(MeasuredTime::Run, run), (MeasuredTime::Process, 1_000.0)],
            token_hash: hash.map(str::to_owned),
            device_memory_bytes: Some(run as u64),
            ..Sample::default()
        }
    }

    fn row(before: &[Sample], after: &[Sample]) -> TrialRow {
        TrialRow {
            knob: None,
            knobs: Vec::new(),
            findings: Vec::new(),
            verdict: TrialVerdict::Unfinished,
            reason: None,
            log_tail: None,
            runs: after.len() as u64,
            times: compare_times(before, after, |_| None),
            output: compare_output(before, after),
            device_memory_bytes: None,
            clocks_mhz: None,
            command: String::new(),
        }
    }

    fn samples(times: &[f64], hash: &str) -> Vec<Sample> {
        times.iter().map(|time| sample(*time, Some(hash))).collect()
    }

    const FIVE: [f64; 5] = [100.0; 5];

    #[test]
    fn the_interval_decides() {
        let base = samples(&[100.0, 110.0, 90.0, 105.0, 95.0], "a");
        let judge = |after: &[f64]| verdict(&row(&base, &samples(after, "a")), 5);
        assert_eq!(judge(&[10.0, 11.0, 9.0, 10.5, 9.5]), TrialVerdict::Faster);
        assert_eq!(judge(&[1_000.0; 5]), TrialVerdict::Slower);
        assert_eq!(judge(&[95.0, 100.0, 105.0, 90.0, 110.0]), TrialVerdict::Same);
        assert_eq!(judge(&[10.0, 11.0, 9.0, 10.5]), TrialVerdict::Unfinished);
    }

    #[test]
    fn equal_times_are_no_change_and_exact() {
        let same = row(&samples(&FIVE, "a"), &samples(&FIVE, "a"));
        assert_eq!(verdict(&same, 5), TrialVerdict::Same);
        assert!(is_narrow(&same.times[0]));
        assert_eq!(same.times[0].interval, Some((1.0, 1.0)));
    }

    #[test]
    fn one_pair_has_a_ratio_without_an_interval() {
        let row = row(&samples(&[100.0], "a"), &samples(&[50.0], "a"));
        assert_eq!((row.times[0].ratio, row.times[0].interval), (Some(2.0), None));
        assert!(!is_narrow(&row.times[0]));
    }

    #[test]
    fn output_is_compared_where_the_base_repeats_itself() {
        let base = samples(&FIVE, "a");
        let of = |before: &[Sample], after: &[Sample]| row(before, after).output;
        assert_eq!(of(&base, &base), OutputCheck::Identical);
        assert_eq!(of(&base, &samples(&FIVE, "b")), OutputCheck::Different);
        let mut unsteady = base.clone();
        unsteady[3].token_hash = Some("c".to_owned());
        let other = of(&unsteady, &samples(&FIVE, "b"));
        assert!(matches!(other, OutputCheck::NotKnown { .. }), "{other:?}");
        let silent: Vec<Sample> = FIVE.iter().map(|time| sample(*time, None)).collect();
        let other = of(&silent, &silent);
        assert!(matches!(other, OutputCheck::NotKnown { .. }), "{other:?}");
        let once = of(&base[..1], &samples(&FIVE[..1], "b"));
        assert!(matches!(once, OutputCheck::NotKnown { .. }), "{once:?}");
        assert_eq!(base_runs(&unsteady).deterministic, Some(false));
        assert_eq!(base_runs(&unsteady).token_hash, None);
        assert_eq!(base_runs(&base).token_hash.as_deref(), Some("a"));
        assert_eq!(base_runs(&silent).deterministic, None);
    }

    #[test]
    fn a_changed_output_is_refused_or_needs_consent() {
        let (before, after) = (samples(&FIVE, "a"), samples(&[10.0; 5], "b"));
        let row = row(&before, &after);
        let refused = |effect| refusal(&before, &after, &row.output, effect).is_some();
        assert!(refused(OutputEffect::None) && !refused(OutputEffect::Rounding));
        assert_eq!(verdict(&row, 5), TrialVerdict::Faster);
        assert!(hindrance(&row, OutputEffect::Rounding, false).is_some());
        assert_eq!(hindrance(&row, OutputEffect::Changes, true), None);
    }

    #[test]
    fn a_gain_above_its_bound_is_an_error_only_beyond_the_interval() {
        let (before, after) = (samples(&[100.0, 110.0, 90.0, 105.0, 95.0], "a"), samples(&[50.0; 5], "a"));
        let with = |bound| compare_times(&before, &after, |_| bound).remove(0);
        let (low, high) = with(None).interval.unwrap();
        for (bound, within) in [(high, true), ((low + high) / 2.0, true), (low * 0.99, false)] {
            assert_eq!(with(Some(bound)).within_bound, Some(within), "{bound}");
        }
        assert_eq!(with(None).within_bound, None);
    }

    #[test]
    fn less_work_is_refused() {
        let full = |run| Sample { output_tokens: Some(128), requests: Some(64), ..sample(run, Some("a")) };
        let before = [full(100.0), full(100.0)];
        let reason = |after: Sample| {
            let after = [after.clone(), after];
            refusal(&before, &after, &compare_output(&before, &after), OutputEffect::None)
        };
        assert_eq!(reason(full(50.0)), None);
        for (words, after) in [
            ("fewer tokens: 64 instead of 128", Sample { output_tokens: Some(64), ..full(50.0) }),
            ("fewer tokens: 0 instead of 128", Sample { output_tokens: None, ..full(50.0) }),
            ("fewer requests: 60 instead of 64", Sample { requests: Some(60), ..full(50.0) }),
            ("tokens differ", Sample { token_hash: Some("b".to_owned()), ..full(50.0) }),
            ("no hash", Sample { token_hash: None, ..full(50.0) }),
        ] {
            let reason = reason(after).unwrap();
            assert!(reason.contains(words), "{words}: {reason}");
        }
    }
}
