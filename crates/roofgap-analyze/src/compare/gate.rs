//! Limits on a change: `5%`, `decode=5%`, `decode.wall=3%`, `busy=2ms`, `total.kernel=1%`.
//!
//! A gate breaks when the head is worse by more than the limit **and** by more than the noise. Without a metric it is held
//! against the wall, unprofiled, busy and kernel time of a stage, each by itself: in a stage that waits for the CPU, kernels can
//! get much slower before the wall time shows it. Without a stage it is held against the time from the first stage to the last,
//! too. Where the two sides had different tokens, it is held against the time of a step and of a token. Different models are
//! judged by a metric that the gate names, and by no other.

use super::comparison::{Basis, Comparison, GateOutcome, GateResult, Judgement, StageChange};
use super::noise::is_doubled;
use super::stage::{Kind, METRICS, Metric};
use crate::numbers::{decimal, time};
use roofgap_base::error::Error;
use std::str::FromStr;

/// Name of the stage that is the whole trace.
pub const TOTAL: &str = "total";

/// A limit on a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// The gate as it was asked for.
    pub text: String,
    /// The stage; `None` is every stage, `total` the whole trace.
    pub stage: Option<String>,
    /// The number; `None` is wall, unprofiled, busy and kernel time.
    pub metric: Option<&'static Metric>,
    /// Limit.
    pub limit: Limit,
}

/// The largest change for the worse.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// In percent of the base.
    Percent(f64),
    /// In nanoseconds; for times only.
    Ns(f64),
}

impl FromStr for Gate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let gate = text.trim();
        let (about, limit) = gate.rsplit_once('=').unwrap_or(("", gate));
        let wrong_limit = "write a percentage such as 5% or a time such as 2ms";
        let parsed = Limit::parse(limit.trim()).ok_or_else(|| {
            Error::new(format!(
                "cannot read the limit {:?} of the gate {gate:?}; {wrong_limit}",
                limit.trim()
            ))
        })?;
        let (stage, metric) = subject(about.trim()).ok_or_else(|| {
            let known: Vec<&str> = METRICS.iter().map(Metric::name).collect();
            let how = "after the stage, as in decode.wall=3%";
            Error::new(format!("no metric in the gate {gate:?}; one of {} {how}", known.join(", ")))
        })?;
        match metric {
            Some(metric) if matches!(parsed, Limit::Ns(_)) && !metric.is_time() => {
                let name = metric.name();
                Err(Error::new(format!("the gate {gate:?} limits {name} by a time; write a percentage")))
            }
            _ => Ok(Gate { text: gate.to_owned(), stage, metric, limit: parsed }),
        }
    }
}

/// The stage and the metric that the left side of a gate names.
fn subject(about: &str) -> Option<(Option<String>, Option<&'static Metric>)> {
    let stage = |stage: &str| Some(stage.to_owned()).filter(|stage| !stage.is_empty());
    if let Some(metric) = Metric::parse(about) {
        return Some((None, Some(metric)));
    }
    if !about.contains('.') {
        return Some((stage(about), None));
    }
    let mut splits = about.match_indices('.').map(|(at, _)| about.split_at(at));
    splits.find_map(|(name, metric)| Some((Some(stage(name)?), Some(Metric::parse(metric.get(1..)?)?))))
}

impl Limit {
    /// Parses a percentage, or a time with its unit.
    fn parse(text: &str) -> Option<Self> {
        const UNITS: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
        let number =
            |text: &str| text.trim().parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
        if let Some(percent) = text.strip_suffix('%') {
            return number(percent).map(Self::Percent);
        }
        let (value, unit) = UNITS.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)))?;
        Some(Self::Ns(number(value)? * unit))
    }
}

impl Gate {
    /// Reads several, with commas between them.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, Error> {
        text.split(',').map(str::parse).collect()
    }

    fn unmeasured(&self, stage: Option<&str>, metric: &str, why: String) -> GateResult {
        GateResult {
            gate: self.text.clone(),
            stage: stage.filter(|stage| *stage != TOTAL).map(str::to_owned),
            metric: metric.to_owned(),
            worse_pct: None,
            outcome: GateOutcome::NotMeasured,
            why,
        }
    }
}

/// Checks a gate against a comparison: one result per number, at least one.
pub(super) fn results(gate: &Gate, comparison: &Comparison) -> Vec<GateResult> {
    let Comparison { stages, stages_gone: gone, total, .. } = comparison;
    let wanted = |name: &str| gate.stage.as_deref().is_none_or(|stage| stage == name);
    let stages: Vec<&StageChange> = match gate.stage.as_deref() {
        Some(TOTAL) => vec![total],
        None if stages.is_empty() && gone.is_empty() => vec![total],
        _ => stages.iter().filter(|stage| wanted(&stage.name)).collect(),
    };
    if let (None, Some(other)) = (gate.metric, comparison.other_model()) {
        let (stage, how) = (gate.stage.as_deref(), "; name a number to compare all the same, as in step=5%");
        return vec![gate.unmeasured(stage, "wall", format!("not the same model: {other}{how}"))];
    }
    let mut results = Vec::new();
    for &stage in &stages {
        let is_of_other_work =
            gate.metric.is_none() && stage.basis == Basis::StepAndToken && stage.name != TOTAL;
        let usual: &[&str] =
            if is_of_other_work { &["step", "token"] } else { &["wall", "unwatched", "busy", "kernel"] };
        let is_known = |stage: &StageChange, metric: &Metric| {
            let change = metric.of(&stage.numbers);
            let is_expected = !is_of_other_work && metric.kind != Kind::Unprofiled;
            change.delta.is_some() || is_expected && change.is_on_a_side()
        };
        let is_asked =
            |metric: &&Metric| gate.metric.map_or(usual.contains(&metric.name()), |own| own == *metric);
        let asked: Vec<&Metric> = METRICS.iter().filter(is_asked).collect();
        let known: Vec<&Metric> = asked.iter().copied().filter(|metric| is_known(stage, metric)).collect();
        // A gate on the steps of every stage is about those that have steps, where any has.
        let is_for_others = gate.metric.is_some_and(|own| stages.iter().any(|other| is_known(other, own)));
        let checked = if known.is_empty() && !is_for_others { asked } else { known };
        results.extend(checked.into_iter().map(|metric| judge(gate, metric, stage, comparison)));
    }
    if let (None, None, Some(wall)) = (&gate.stage, gate.metric, Metric::parse("wall"))
        && !stages.iter().any(|stage| stage.name == TOTAL)
        && wall.of(&total.numbers).judgement != Judgement::Unknown
    {
        results.push(judge(gate, wall, total, comparison));
    }
    let name = gate.metric.map_or("wall", Metric::name);
    for stage in gone.iter().filter(|stage| wanted(stage)) {
        results.push(gate.unmeasured(Some(stage), name, format!("the head has no stage {stage}")));
    }
    if let (true, Some(stage)) = (results.is_empty(), &gate.stage) {
        let known: Vec<&str> = comparison.stages.iter().map(|stage| stage.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let why = format!("no stage {stage} on the base; both have: {known}");
        results.push(gate.unmeasured(Some(stage), name, why));
    }
    results
}

/// Judges a number of a stage.
fn judge(gate: &Gate, metric: &Metric, stage: &StageChange, comparison: &Comparison) -> GateResult {
    let name = format!("{}.{}", stage.name, metric.name());
    let unmeasured = |why: String| gate.unmeasured(Some(&stage.name), metric.name(), why);
    let change = metric.of(&stage.numbers);
    let of_other_work = stage.basis == Basis::StepAndToken && !metric.of_any_work;
    if of_other_work || change.delta.is_some() && change.judgement == Judgement::Unknown {
        let rest = if of_other_work && stage.name != TOTAL { "; step and token do" } else { "" };
        return unmeasured(format!("{name} does not compare: {}{rest}", comparison.because(&stage.name)));
    }
    let (Some(base), Some(head)) = (change.base, change.head) else {
        let side = match (change.base, change.head) {
            (None, None) => "measured on neither side",
            (None, _) => "not measured on the base",
            _ => "not measured on the head",
        };
        let because = match stage.basis {
            Basis::StepAndToken => {
                format!(", and nothing else compares: {}", comparison.because(&stage.name))
            }
            _ => String::new(),
        };
        return unmeasured(format!("{name} was {side}{because}"));
    };
    let worse = metric.kind.worse(base, head);
    let worse_pct = change.delta_pct.map(|pct| metric.kind.worse(0.0, pct));
    let is_over = match gate.limit {
        // From nothing to something is over any share of nothing.
        Limit::Percent(limit) => worse_pct.map_or(worse > 0.0, |pct| pct > limit),
        Limit::Ns(limit) => worse > limit,
    };
    let is_doubled = is_doubled(base, head);
    let outcome = match (is_over, change.judgement) {
        (false, _) => GateOutcome::Held,
        (true, Judgement::Worse) => GateOutcome::Broken,
        // A small part that doubled within the noise of the whole cannot be told.
        (true, _) if is_doubled => GateOutcome::NotMeasured,
        (true, _) => GateOutcome::WithinNoise,
    };
    let by_outliers = match change.judgement {
        Judgement::Unclear if !is_doubled => ", without outlier steps it did not change",
        _ => "",
    };
    let show = |value: f64| {
        if metric.is_time() { time(value.round() as i64) } else { decimal(value, 2) }
    };
    let pct = match worse_pct {
        None => String::new(),
        Some(0.0) => " (no change)".to_owned(),
        Some(pct) => format!(" ({:.1} % {})", pct.abs(), if pct > 0.0 { "worse" } else { "better" }),
    };
    let why = format!(
        "{name} went from {} to {}{pct}; limit {}, noise {}{by_outliers}",
        show(base),
        show(head),
        gate.text.rsplit('=').next().unwrap_or_default().trim(),
        show(change.noise.unwrap_or(0.0)),
    );
    GateResult { worse_pct, outcome, ..unmeasured(why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(text: &str) -> Gate {
        text.parse().unwrap()
    }

    #[test]
    fn gates_are_read_and_shown() {
        let read = |text: &str| {
            let gate = gate(text);
            (gate.stage, gate.metric.map(Metric::name), gate.limit)
        };
        let stage = |name: &str| Some(name.to_owned());
        assert_eq!(read("5%"), (None, None, Limit::Percent(5.0)));
        assert_eq!(read(" decode = 3 % "), (stage("decode"), None, Limit::Percent(3.0)));
        assert_eq!(read("wall=3%"), (None, Some("wall"), Limit::Percent(3.0)));
        assert_eq!(read("decode.wall=2.5%"), (stage("decode"), Some("wall"), Limit::Percent(2.5)));
        assert_eq!(read("kernel_ns=1ms"), (None, Some("kernel"), Limit::Ns(1e6)));
        assert_eq!(read("a.b.idle_launch=50us"), (stage("a.b"), Some("idle_launch"), Limit::Ns(5e4)));
        assert_eq!(read("a.b.idle.launch=50us"), read("a.b.idle_launch=50us"));
        assert_eq!(read("idle.launch=5%"), (None, Some("idle_launch"), Limit::Percent(5.0)));
        assert_eq!(read("decode.mfu_pct=1%"), (stage("decode"), Some("mfu"), Limit::Percent(1.0)));
        for text in ["5%", "decode=3%", "wall=2ms", "total.kernel=50us", "decode.launches_per_step=0%"] {
            assert_eq!(gate(text).text, text);
        }
        assert_eq!(Gate::parse_list("5%, decode.wall=3%").unwrap().len(), 2);
    }

    #[test]
    fn wrong_gates_say_what_is_right() {
        for (text, hint) in [
            ("5", "5%"),
            ("", "5%"),
            ("-5%", "5%"),
            ("inf%", "5%"),
            ("NaN%", "5%"),
            ("decode.speed=5%", "launches_per_step"),
            (".wall=5%", "decode.wall=3%"),
            ("decode.mfu=5ms", "percentage"),
        ] {
            let error = text.parse::<Gate>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
