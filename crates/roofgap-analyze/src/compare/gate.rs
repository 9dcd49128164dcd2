//! Limits on a change: `5%`, `decode=5%`, `decode.wall=3%`, `busy=2ms`, `total.kernel=1%`.
//!
//! A gate breaks when the head is worse by more than the limit **and** by more than the noise. Without a metric it is held
//! against the wall, busy and kernel time of a stage, each by itself: in a stage that waits for the CPU, kernels can get much
//! slower before the wall time shows it. Where the two sides did different work (model or tokens), it is held against the
//! time of a step and of a token.

use super::comparison::{Basis, Comparison, GateOutcome, GateResult, Judgement, StageChange};
use super::noise::{Better, is_doubled};
use super::stage::{METRICS, Metric};
use crate::numbers::{decimal, time};
use std::str::FromStr;

/// The stage name that means the whole trace.
const TOTAL: &str = "total";

/// A limit on a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// The gate as it was asked for.
    pub text: String,
    /// The stage; `None` is every stage, `total` the whole trace.
    pub stage: Option<String>,
    /// The number; `None` is wall, busy and kernel time.
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

/// Why a text is no gate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GateError(String);

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let gate = text.trim();
        let (about, limit) = gate.rsplit_once('=').unwrap_or(("", gate));
        let wrong_limit = "write a percentage such as 5% or a time such as 2ms";
        let parsed = Limit::parse(limit.trim()).ok_or_else(|| {
            GateError(format!("cannot read the limit {:?} of the gate {gate:?}; {wrong_limit}", limit.trim()))
        })?;
        let (stage, metric) = subject(about.trim()).ok_or_else(|| {
            let known: Vec<&str> = METRICS.iter().map(Metric::name).collect();
            let how = "after the stage, as in decode.wall=3%";
            GateError(format!("no metric in the gate {gate:?}; one of {} {how}", known.join(", ")))
        })?;
        match metric {
            Some(metric) if matches!(parsed, Limit::Ns(_)) && !metric.is_time() => {
                let name = metric.name();
                Err(GateError(format!("the gate {gate:?} limits {name} by a time; write a percentage")))
            }
            _ => Ok(Gate { text: gate.to_owned(), stage, metric, limit: parsed }),
        }
    }
}

/// The stage and the metric that the left side of a gate names.
fn subject(about: &str) -> Option<(Option<String>, Option<&'static Metric>)> {
    let metric = Metric::parse(about);
    if about.is_empty() || metric.is_some() {
        return Some((None, metric));
    }
    let parts = about.match_indices('.').filter_map(|(at, _)| about.split_at_checked(at));
    let mut named = parts.filter(|(stage, _)| !stage.is_empty());
    let named = named.find_map(|(stage, rest)| Some((stage, Some(Metric::parse(rest.get(1..)?)?))));
    let (stage, metric) = named.or_else(|| (!about.contains('.')).then_some((about, None)))?;
    Some((Some(stage.to_owned()), metric))
}

impl Limit {
    /// Parses a percentage, or a time with its unit.
    fn parse(text: &str) -> Option<Self> {
        const UNITS: [(&str, fn(f64) -> Limit); 6] = [
            ("%", Limit::Percent),
            ("ns", Limit::Ns),
            ("us", |us| Limit::Ns(us * 1e3)),
            ("µs", |us| Limit::Ns(us * 1e3)),
            ("ms", |ms| Limit::Ns(ms * 1e6)),
            ("s", |s| Limit::Ns(s * 1e9)),
        ];
        let (value, limit) =
            UNITS.iter().find_map(|(unit, limit)| Some((text.strip_suffix(unit)?, limit)))?;
        value.trim().parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0).map(limit)
    }
}

impl Gate {
    /// Reads several, with commas between them.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, GateError> {
        text.split(',').map(str::parse).collect()
    }

    /// Returns the name of its metric, or of the first of those that it has without one.
    fn metric_name(&self) -> &'static str {
        self.metric.map_or("wall", Metric::name)
    }

    /// Returns its metric, or those that it has without one.
    fn metrics(&self, usual: &'static [&str]) -> impl Iterator<Item = &'static Metric> {
        let metric = self.metric;
        METRICS.iter().filter(move |one| metric.map_or(usual.contains(&one.name()), |metric| metric == *one))
    }

    fn unmeasured(&self, stage: Option<&str>, metric: &str, why: String) -> GateResult {
        GateResult {
            gate: self.text.clone(),
            stage: stage.map(str::to_owned),
            metric: metric.to_owned(),
            worse_pct: None,
            outcome: GateOutcome::NotMeasured,
            why,
        }
    }
}

/// Metrics of a gate without one.
const USUAL: &[&str] = &["wall", "busy", "kernel"];

/// Metrics of a gate without one where the sides did different work.
const OF_DIFFERENT_WORK: &[&str] = &["step", "token"];

/// Checks a gate against a comparison: one result per number, at least one.
pub(super) fn results(gate: &Gate, comparison: &Comparison) -> Vec<GateResult> {
    let (stages, gone) = (&comparison.stages, &comparison.stages_gone);
    let wanted = |name: &str| gate.stage.as_deref().is_none_or(|stage| stage == name);
    let mut results = Vec::new();
    if gate.stage.as_deref() == Some(TOTAL) || (gate.stage.is_none() && stages.is_empty() && gone.is_empty())
    {
        let always = gate.metric.is_some() || comparison.basis != Basis::Whole;
        let known = gate.metrics(USUAL).filter(|metric| {
            let change = comparison.totals.get(metric.field);
            change.is_some_and(|change| always || change.is_on_a_side())
        });
        results.extend(known.map(|metric| judge(gate, metric, None, comparison)));
    } else {
        for stage in stages.iter().filter(|stage| wanted(&stage.name)) {
            results.extend(of_stage(gate, stage, comparison));
        }
        for name in gone.iter().filter(|name| wanted(name)) {
            let why = format!("the head has no stage {name}");
            results.push(gate.unmeasured(Some(name), gate.metric_name(), why));
        }
    }
    if results.is_empty() {
        let why = match &gate.stage {
            Some(stage) if stage != TOTAL => {
                let known: Vec<&str> = stages.iter().map(|s| s.name.as_str()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                format!("no stage {stage} on the base; both have: {known}")
            }
            _ => format!("{} is not known of a whole trace, and there are no stages", gate.metric_name()),
        };
        results.push(gate.unmeasured(gate.stage.as_deref(), gate.metric_name(), why));
    }
    results
}

/// Checks a gate against a stage. Without a metric, only numbers that are known are part of it.
fn of_stage(gate: &Gate, stage: &StageChange, comparison: &Comparison) -> Vec<GateResult> {
    let of_other_work = gate.metric.is_none() && stage.basis == Basis::StepAndToken;
    let is_known = |metric: &Metric| {
        let known = |stage: &StageChange| metric.of(&stage.numbers).is_on_a_side();
        match gate.metric {
            // A gate on the steps of every stage is about those that have steps, where any has.
            Some(_) => gate.stage.is_some() || known(stage) || !comparison.stages.iter().any(known),
            None if of_other_work => metric.of(&stage.numbers).delta.is_some(),
            None => known(stage),
        }
    };
    let metrics = gate.metrics(if of_other_work { OF_DIFFERENT_WORK } else { USUAL });
    let known = metrics.filter(|metric| is_known(metric));
    let mut results: Vec<GateResult> =
        known.map(|metric| judge(gate, metric, Some(stage), comparison)).collect();
    if of_other_work && results.is_empty() {
        let because = comparison.because(Some(&stage.name));
        let unknown = "and the time of a step or a token is not known on both sides";
        let why = format!("{} does not compare: {because}, {unknown}", stage.name);
        results.push(gate.unmeasured(Some(&stage.name), "token", why));
    }
    results
}

/// Judges a number of a stage, or of the whole trace.
fn judge(gate: &Gate, metric: &Metric, stage: Option<&StageChange>, comparison: &Comparison) -> GateResult {
    let stage_name = stage.map(|stage| stage.name.as_str());
    let name = format!("{}.{}", stage_name.unwrap_or(TOTAL), metric.name());
    let unmeasured = |why: String| gate.unmeasured(stage_name, metric.name(), why);
    let (change, of_other_work) = match stage {
        Some(StageChange { numbers, basis, .. }) => {
            (metric.of(numbers), *basis == Basis::StepAndToken && !metric.of_any_work)
        }
        None => (metric.of(&comparison.totals), comparison.basis != Basis::Whole),
    };
    if of_other_work || change.delta.is_some() && change.judgement == Judgement::Unknown {
        let because = comparison.because(stage_name);
        let rest = if of_other_work && stage.is_some() { "; step and token do" } else { "" };
        return unmeasured(format!("{name} does not compare: {because}{rest}"));
    }
    let (base, head) = match (change.base, change.head) {
        (Some(base), Some(head)) => (base, head),
        (None, None) => return unmeasured(format!("{name} was measured on neither side")),
        (None, _) => return unmeasured(format!("{name} was not measured on the base")),
        _ => return unmeasured(format!("{name} was not measured on the head")),
    };
    let worse = if metric.better() == Better::Higher { base - head } else { head - base };
    let worse_pct = match base {
        0.0 => (worse == 0.0).then_some(0.0),
        base => Some(100.0 * worse / base.abs()),
    };
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
        assert_eq!(read("a.b.idle.launch=50us"), (stage("a.b"), Some("idle_launch"), Limit::Ns(5e4)));
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
