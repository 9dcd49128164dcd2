//! Limits on a change: `5%`, `decode=5%`, `decode.wall=3%`, `busy=2ms`, `total.kernel=1%`.
//!
//! A gate breaks when the head is worse by more than the limit **and** by more than the noise. Without a metric it is held
//! against the wall, busy and kernel time of a stage, each by itself: in a stage that waits for the CPU, kernels can get much
//! slower before the wall time shows it. Where the two sides did different work (model or tokens), it is held against the
//! time of a step and of a token.

use super::comparison::{
    Basis, Better, Change, Comparison, GateOutcome, GateResult, Judgement, METRICS, Metric, StageChange,
};

use super::noise::is_doubled;
use crate::numbers::{decimal, time};
use std::fmt;
use std::str::FromStr;

/// The stage name that means the whole trace.
const TOTAL: &str = "total";

/// A limit on a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
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

/// An invalid gate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// The limit is no number with a unit.
    #[error(
        "cannot read the limit {limit:?} of the gate {gate:?}; write a percentage such as 5% or a time such as 2ms"
    )]
    Limit {
        /// The gate.
        gate: String,
        /// Limit.
        limit: String,
    },
    /// The metric is not known.
    #[error("no metric in the gate {gate:?}; one of {known} after the stage, as in decode.wall=3%")]
    Metric {
        /// The gate.
        gate: String,
        /// Known metrics.
        known: String,
    },
    /// A time as the limit of something that is none.
    #[error("the gate {gate:?} limits {metric} by a time; write a percentage")]
    NotTime {
        /// The gate.
        gate: String,
        /// The metric.
        metric: &'static str,
    },
}

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let gate = text.trim();
        let (about, limit) = gate.rsplit_once('=').unwrap_or(("", gate));
        let (about, limit) = (about.trim(), limit.trim());
        let limit = Limit::parse(limit)
            .ok_or_else(|| GateError::Limit { gate: gate.to_owned(), limit: limit.to_owned() })?;
        let (stage, metric) = subject(about).ok_or_else(|| GateError::Metric {
            gate: gate.to_owned(),
            known: METRICS.iter().map(Metric::name).collect::<Vec<_>>().join(", "),
        })?;
        if let (Limit::Ns(_), Some(metric)) = (limit, metric)
            && !metric.is_time()
        {
            return Err(GateError::NotTime { gate: gate.to_owned(), metric: metric.name() });
        }
        Ok(Gate { stage, metric, limit })
    }
}

impl Gate {
    /// Reads several, with commas between them.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, GateError> {
        text.split(',').map(str::parse).collect()
    }
}

/// The stage and the metric that the left side of a gate names.
fn subject(about: &str) -> Option<(Option<String>, Option<&'static Metric>)> {
    if about.is_empty() {
        return Some((None, None));
    }
    if let Some(metric) = Metric::parse(about) {
        return Some((None, Some(metric)));
    }
    for (at, _) in about.match_indices('.') {
        let (stage, metric) = (about.get(..at)?, about.get(at + 1..)?);
        if let Some(metric) = Metric::parse(metric).filter(|_| !stage.is_empty()) {
            return Some((Some(stage.to_owned()), Some(metric)));
        }
    }
    (!about.contains('.')).then(|| (Some(about.to_owned()), None))
}

impl Limit {
    /// Parses a percentage, or a time with its unit.
    fn parse(text: &str) -> Option<Self> {
        const UNITS: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
        let number =
            |text: &str| text.trim().parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
        if let Some(value) = text.strip_suffix('%') {
            return number(value).map(Self::Percent);
        }
        let (value, ns) = UNITS.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)))?;
        number(value).map(|value| Self::Ns(value * ns))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Percent(value) => write!(f, "{value}%"),
            Limit::Ns(value) if *value >= 1e6 => write!(f, "{}ms", value / 1e6),
            Limit::Ns(value) if *value >= 1e3 => write!(f, "{}us", value / 1e3),
            Limit::Ns(value) => write!(f, "{value}ns"),
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.stage, self.metric) {
            (None, None) => {}
            (Some(stage), None) => write!(f, "{stage}=")?,
            (None, Some(metric)) => write!(f, "{}=", metric.name())?,
            (Some(stage), Some(metric)) => write!(f, "{stage}.{}=", metric.name())?,
        }
        write!(f, "{}", self.limit)
    }
}

/// Metrics of a gate without one.
const USUAL: &[&str] = &["wall", "busy", "kernel"];

/// Metrics of a gate without one where the sides did different work.
const OF_DIFFERENT_WORK: &[&str] = &["step", "token"];

/// Checks a gate against a comparison: one result per number, at least one.
pub(super) fn results(gate: &Gate, comparison: &Comparison) -> Vec<GateResult> {
    let (stages, totals) = (&comparison.stages, &comparison.totals);
    let wanted = |name: &str| gate.stage.as_deref().is_none_or(|stage| stage == name);
    let mut found = Vec::new();
    if gate.stage.as_deref() == Some(TOTAL)
        || (gate.stage.is_none() && stages.is_empty() && comparison.stages_gone.is_empty())
    {
        let always = gate.metric.is_some() || comparison.basis != Basis::Whole;
        let counts = |change: Change<f64>| always || change.is_on_a_side();
        let known = gate.metrics(USUAL).filter(|metric| metric.of_totals(totals).is_some_and(counts));
        found.extend(known.map(|metric| judge(gate, metric, None, comparison)));
    } else {
        for stage in stages.iter().filter(|stage| wanted(&stage.name)) {
            found.extend(of_stage(gate, stage, comparison));
        }
        for name in comparison.stages_gone.iter().filter(|name| wanted(name)) {
            let why = format!("the head has no stage {name}");
            found.push(unmeasured(gate, Some(name), gate.metric_name(), why));
        }
    }
    if found.is_empty() {
        let why = match &gate.stage {
            Some(stage) if stage != TOTAL => {
                let known: Vec<&str> = stages.iter().map(|s| s.name.as_str()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                format!("no stage {stage} on the base; both have: {known}")
            }
            _ => format!("{} is not known of a whole trace, and there are no stages", gate.metric_name()),
        };
        found.push(unmeasured(gate, gate.stage.as_deref(), gate.metric_name(), why));
    }
    found
}

impl Gate {
    /// Returns the name of its metric, or of the first of those that it has without one.
    fn metric_name(&self) -> &'static str {
        self.metric.map_or("wall", Metric::name)
    }

    /// Returns its metric, or those that it has without one.
    fn metrics(&self, usual: &'static [&str]) -> impl Iterator<Item = &'static Metric> {
        let metric = self.metric;
        METRICS.iter().filter(move |one| metric.map_or(usual.contains(&one.name()), |metric| metric == *one))
    }
}

/// Checks a gate against a stage. Without a metric, only numbers that are known are part of it.
fn of_stage(gate: &Gate, stage: &StageChange, comparison: &Comparison) -> Vec<GateResult> {
    let is_known = |metric: &Metric| {
        let known = |stage: &StageChange| metric.of(stage).is_on_a_side();
        match (gate.metric, stage.basis) {
            // A gate on the steps of every stage is about those that have steps, where any has.
            (Some(_), _) => gate.stage.is_some() || known(stage) || !comparison.stages.iter().any(known),
            (None, Basis::StepAndToken) => metric.of(stage).is_on_both_sides(),
            (None, _) => known(stage),
        }
    };
    let of_other_work = gate.metric.is_none() && stage.basis == Basis::StepAndToken;
    let metrics = gate.metrics(if of_other_work { OF_DIFFERENT_WORK } else { USUAL });
    let mut found: Vec<GateResult> = metrics
        .filter(|metric| is_known(metric))
        .map(|metric| judge(gate, metric, Some(stage), comparison))
        .collect();
    if of_other_work && found.is_empty() {
        let because = comparison.because(Some(&stage.name));
        let unknown = "and the time of a step or a token is not known on both sides";
        let why = format!("{} does not compare: {because}, {unknown}", stage.name);
        found.push(unmeasured(gate, Some(&stage.name), "token", why));
    }
    found
}

fn unmeasured(gate: &Gate, stage: Option<&str>, metric: &str, why: String) -> GateResult {
    GateResult {
        gate: gate.to_string(),
        stage: stage.map(str::to_owned),
        metric: metric.to_owned(),
        worse_pct: None,
        outcome: GateOutcome::NotMeasured,
        why,
    }
}

/// Judges a number of a stage, or of the whole trace.
fn judge(gate: &Gate, metric: &Metric, stage: Option<&StageChange>, comparison: &Comparison) -> GateResult {
    let of = stage.map_or(TOTAL, |stage| stage.name.as_str());
    let name = format!("{of}.{}", metric.name());
    let unmeasured = |why: String| unmeasured(gate, Some(of).filter(|of| *of != TOTAL), metric.name(), why);
    let change = match stage {
        Some(stage) => metric.of(stage),
        None => metric.of_totals(&comparison.totals).unwrap_or_default(),
    };
    let of_other_work = match stage {
        Some(stage) => stage.basis == Basis::StepAndToken && !metric.of_any_work,
        None => comparison.basis != Basis::Whole,
    };
    let is_known = change.is_on_both_sides();
    if of_other_work || is_known && change.judgement == Judgement::Unknown {
        let because = comparison.because(stage.map(|stage| stage.name.as_str()));
        let rest = if of_other_work && stage.is_some() { "; step and token do" } else { "" };
        return unmeasured(format!("{name} does not compare: {because}{rest}"));
    }
    let (base, head) = match (change.base, change.head) {
        (Some(base), Some(head)) => (base, head),
        (None, None) => return unmeasured(format!("{name} was measured on neither side")),
        (base, _) => {
            let side = if base.is_none() { "base" } else { "head" };
            return unmeasured(format!("{name} was not measured on the {side}"));
        }
    };
    let worse = if metric.better == Better::Higher { base - head } else { head - base };
    let worse_pct = match base {
        0.0 => (worse == 0.0).then_some(0.0),
        base => Some(100.0 * worse / base.abs()),
    };
    let over = match gate.limit {
        // From nothing to something is over any share of nothing.
        Limit::Percent(limit) => worse_pct.map_or(worse > 0.0, |pct| pct > limit),
        Limit::Ns(limit) => worse > limit,
    };
    let outcome = match (over, change.judgement) {
        (false, _) => GateOutcome::Held,
        (true, Judgement::Worse) => GateOutcome::Broken,
        // A small part that doubled within the noise of the whole cannot be told.
        (true, _) if is_doubled(base, head) => GateOutcome::NotMeasured,
        (true, _) => GateOutcome::WithinNoise,
    };
    let by_outliers = match change.judgement {
        Judgement::Unclear if !is_doubled(base, head) => ", without outlier steps it did not change",
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
        gate.limit,
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
            assert_eq!(gate(text).to_string(), text);
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
