//! Limits on a change: `5%`, `decode=5%`, `decode.wall=3%`, `busy=2ms`, `total.kernel=1%`.
//!
//! A gate breaks when the head is worse by more than the limit **and** by more than the noise. Without a metric it is held
//! against the wall, busy and kernel time of a stage, each by itself: in a stage that waits for the CPU, kernels can get much
//! slower before the wall time shows it. Where the two sides did different work (model or tokens), it is held against the
//! time of a step and of a token.

use super::comparison::{
    Basis, Change, Comparison, GateOutcome, GateResult, Judgement, StageChange, TotalsChange,
};
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
    pub metric: Option<Metric>,
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

/// A number of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Time on the CPU.
    Wall,
    /// Time of a step.
    Step,
    /// Time per token.
    Token,
    /// Time without a profiler.
    Unwatched,
    /// Time in which the GPU worked.
    Busy,
    /// Sum of kernel durations.
    Kernel,
    /// All idle time.
    Idle,
    /// Idle: not launched yet.
    IdleLaunch,
    /// Idle: waiting for the device.
    IdleSync,
    /// Idle: in a copy call.
    IdleCopy,
    /// Idle: another reason.
    IdleOther,
    /// Launches of an instance.
    Launches,
    /// Launches of a step.
    LaunchesPerStep,
    /// Model FLOPs utilisation; lower is worse.
    Mfu,
    /// Memory bandwidth utilisation; lower is worse.
    Mbu,
}

impl Metric {
    /// All of them with their names.
    pub const ALL: [(Metric, &'static str); 15] = [
        (Metric::Wall, "wall"),
        (Metric::Step, "step"),
        (Metric::Token, "token"),
        (Metric::Unwatched, "unwatched"),
        (Metric::Busy, "busy"),
        (Metric::Kernel, "kernel"),
        (Metric::Idle, "idle"),
        (Metric::IdleLaunch, "idle_launch"),
        (Metric::IdleSync, "idle_sync"),
        (Metric::IdleCopy, "idle_copy"),
        (Metric::IdleOther, "idle_other"),
        (Metric::Launches, "launches"),
        (Metric::LaunchesPerStep, "launches_per_step"),
        (Metric::Mfu, "mfu"),
        (Metric::Mbu, "mbu"),
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(metric, _)| *metric == self).map_or("wall", |(_, name)| name)
    }

    /// Reads a name, or the JSON field (`wall_ns`, `mfu_pct`).
    fn parse(text: &str) -> Option<Self> {
        let plain = text.replace('.', "_");
        let plain = plain.strip_suffix("_ns").or(plain.strip_suffix("_pct")).unwrap_or(&plain);
        Self::ALL.iter().find(|(_, name)| *name == plain).map(|(metric, _)| *metric)
    }

    fn is_time(self) -> bool {
        !matches!(self, Metric::Launches | Metric::LaunchesPerStep | Metric::Mfu | Metric::Mbu)
    }
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
        let limit = limit
            .parse::<Limit>()
            .map_err(|()| GateError::Limit { gate: gate.to_owned(), limit: limit.to_owned() })?;
        let (stage, metric) = subject(about).ok_or_else(|| GateError::Metric {
            gate: gate.to_owned(),
            known: Metric::ALL.map(|(_, name)| name).join(", "),
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
fn subject(about: &str) -> Option<(Option<String>, Option<Metric>)> {
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

impl FromStr for Limit {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        const UNITS: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
        let number = |text: &str| {
            let value: f64 = text.trim().parse().map_err(|_| ())?;
            if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(()) }
        };
        if let Some(value) = text.strip_suffix('%') {
            return number(value).map(Limit::Percent);
        }
        let unit = UNITS.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)));
        let (value, ns) = unit.ok_or(())?;
        number(value).map(|value| Limit::Ns(value * ns))
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

/// A number on both sides, of whatever type.
struct Held {
    base: Option<f64>,
    head: Option<f64>,
    noise: f64,
    judgement: Judgement,
    higher_is_better: bool,
    is_time: bool,
}

fn of_time(change: &Change<i64>) -> Held {
    Held {
        base: change.base.map(|ns| ns as f64),
        head: change.head.map(|ns| ns as f64),
        noise: change.noise.unwrap_or(0) as f64,
        judgement: change.judgement,
        higher_is_better: false,
        is_time: true,
    }
}

fn of_number(change: &Change<f64>, higher_is_better: bool) -> Held {
    Held {
        base: change.base,
        head: change.head,
        noise: change.noise.unwrap_or(0.0),
        judgement: change.judgement,
        higher_is_better,
        is_time: false,
    }
}

fn of_stage(stage: &StageChange, metric: Metric) -> Held {
    match metric {
        Metric::Wall => of_time(&stage.wall_ns),
        Metric::Step => of_time(&stage.step_ns),
        Metric::Token => of_time(&stage.token_ns),
        Metric::Unwatched => of_time(&stage.unwatched_ns),
        Metric::Busy => of_time(&stage.busy_ns),
        Metric::Kernel => of_time(&stage.kernel_ns),
        Metric::Idle => of_time(&stage.idle_ns),
        Metric::IdleLaunch => of_time(&stage.idle_launch_ns),
        Metric::IdleSync => of_time(&stage.idle_sync_ns),
        Metric::IdleCopy => of_time(&stage.idle_copy_ns),
        Metric::IdleOther => of_time(&stage.idle_other_ns),
        Metric::Launches => of_number(&stage.launches, false),
        Metric::LaunchesPerStep => of_number(&stage.launches_per_step, false),
        Metric::Mfu => of_number(&stage.mfu_pct, true),
        Metric::Mbu => of_number(&stage.mbu_pct, true),
    }
}

fn of_totals(totals: &TotalsChange, metric: Metric) -> Option<Held> {
    match metric {
        Metric::Busy => Some(of_time(&totals.busy_ns)),
        Metric::Kernel => Some(of_time(&totals.kernel_ns)),
        _ => None,
    }
}

/// Metrics of a gate without one.
const USUAL: [Metric; 3] = [Metric::Wall, Metric::Busy, Metric::Kernel];

/// Metrics of a gate without one where the sides did different work.
const OF_DIFFERENT_WORK: [Metric; 2] = [Metric::Step, Metric::Token];

/// Metrics that compare where the sides did different work.
const INDEPENDENT_OF_WORK: [Metric; 5] =
    [Metric::Step, Metric::Token, Metric::LaunchesPerStep, Metric::Mfu, Metric::Mbu];

/// Checks a gate against a comparison: one result per number, at least one.
pub(super) fn results(gate: &Gate, comparison: &Comparison) -> Vec<GateResult> {
    let of_whole = gate.stage.as_deref() == Some(TOTAL)
        || (gate.stage.is_none() && comparison.stages.is_empty() && comparison.stages_gone.is_empty());
    let mut found = Vec::new();
    if of_whole {
        let metrics = gate.metric.map_or(USUAL.to_vec(), |metric| vec![metric]);
        for metric in metrics {
            if comparison.basis != Basis::Whole && of_totals(&comparison.totals, metric).is_some() {
                let why =
                    format!("{TOTAL}.{} does not compare: {}", metric.name(), because(comparison, None));
                found.push(unmeasured(gate, None, metric, why));
            } else if let Some(held) = of_totals(&comparison.totals, metric)
                && (gate.metric.is_some() || held.base.is_some() || held.head.is_some())
            {
                found.push(judge(gate, TOTAL, metric, &held));
            }
        }
    } else {
        let wanted = |name: &str| gate.stage.as_deref().is_none_or(|stage| stage == name);
        let known = |stage: &StageChange, metric| {
            let held = of_stage(stage, metric);
            held.base.is_some() || held.head.is_some()
        };
        for stage in comparison.stages.iter().filter(|stage| wanted(&stage.name)) {
            match gate.metric {
                // A gate on the steps of every stage is about those that have steps, where any has.
                Some(metric)
                    if gate.stage.is_none()
                        && !known(stage, metric)
                        && comparison.stages.iter().any(|other| known(other, metric)) => {}
                Some(metric)
                    if stage.basis == Basis::StepAndToken && !INDEPENDENT_OF_WORK.contains(&metric) =>
                {
                    let why = format!(
                        "{}.{} does not compare: {}; step and token do",
                        stage.name,
                        metric.name(),
                        because(comparison, Some(&stage.name))
                    );
                    found.push(unmeasured(gate, Some(&stage.name), metric, why));
                }
                Some(metric) => found.push(judge(gate, &stage.name, metric, &of_stage(stage, metric))),
                None if stage.basis == Basis::StepAndToken => {
                    found.extend(of_different_work(gate, stage, comparison));
                }
                // Values that neither side has are not part of the gate.
                None => found.extend(
                    USUAL
                        .into_iter()
                        .filter(|&metric| known(stage, metric))
                        .map(|metric| judge(gate, &stage.name, metric, &of_stage(stage, metric))),
                ),
            }
        }
        for name in comparison.stages_gone.iter().filter(|name| wanted(name)) {
            let metric = gate.metric.unwrap_or(Metric::Wall);
            let why = format!("the head has no stage {name}");
            found.push(unmeasured(gate, Some(name), metric, why));
        }
    }
    if found.is_empty() {
        let metric = gate.metric.unwrap_or(Metric::Wall);
        let why = match &gate.stage {
            Some(stage) if stage != TOTAL => {
                let known: Vec<&str> = comparison.stages.iter().map(|s| s.name.as_str()).collect();
                format!("no stage {stage} on the base; both have: {}", or_none(&known))
            }
            _ => format!("{} is not known of a whole trace, and there are no stages", metric.name()),
        };
        found.push(unmeasured(gate, gate.stage.as_ref(), metric, why));
    }
    found
}

/// Checks a gate without a metric against a stage in which the sides did different work: the time of a step and of a token.
fn of_different_work(gate: &Gate, stage: &StageChange, comparison: &Comparison) -> Vec<GateResult> {
    let both = |metric: &Metric| {
        let held = of_stage(stage, *metric);
        held.base.is_some() && held.head.is_some()
    };
    let known = OF_DIFFERENT_WORK.into_iter().filter(both);
    let mut found: Vec<GateResult> =
        known.map(|metric| judge(gate, &stage.name, metric, &of_stage(stage, metric))).collect();
    if found.is_empty() {
        let why = format!(
            "{} does not compare: {}, and the time of a step or a token is not known on both sides",
            stage.name,
            because(comparison, Some(&stage.name))
        );
        found.push(unmeasured(gate, Some(&stage.name), Metric::Token, why));
    }
    found
}

/// Names the differences for which a stage, or the whole, does not compare.
fn because(comparison: &Comparison, stage: Option<&str>) -> String {
    let own = |what: &str| match (what.rsplit_once('.'), stage) {
        (Some((of, _)), Some(stage)) => of == stage,
        _ => true,
    };
    let what: Vec<&str> = comparison
        .not_whole_because()
        .iter()
        .map(|difference| difference.what.as_str())
        .filter(|what| own(what))
        .collect();
    format!("different {}", what.join(", "))
}

fn or_none(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn unmeasured(gate: &Gate, stage: Option<&String>, metric: Metric, why: String) -> GateResult {
    GateResult {
        gate: gate.to_string(),
        stage: stage.cloned(),
        metric: metric.name().to_owned(),
        worse_pct: None,
        outcome: GateOutcome::NotMeasured,
        why,
    }
}

fn judge(gate: &Gate, stage: &str, metric: Metric, held: &Held) -> GateResult {
    let (Some(base), Some(head)) = (held.base, held.head) else {
        let side = match (held.base, held.head) {
            (None, None) => "measured on neither side",
            (None, _) => "not measured on the base",
            _ => "not measured on the head",
        };
        let why = format!("{stage}.{} was {side}", metric.name());
        return unmeasured(gate, Some(&stage.to_owned()), metric, why);
    };
    let worse = if held.higher_is_better { base - head } else { head - base };
    let worse_pct = if base != 0.0 {
        Some(100.0 * worse / base.abs())
    } else if worse == 0.0 {
        Some(0.0)
    } else {
        None
    };
    let over = match gate.limit {
        // From nothing to something is over any share of nothing.
        Limit::Percent(limit) => worse_pct.map_or(worse > 0.0, |pct| pct > limit),
        Limit::Ns(limit) => worse > limit,
    };
    let outcome = match (over, held.judgement) {
        (false, _) => GateOutcome::Held,
        (true, Judgement::Worse) => GateOutcome::Broken,
        (true, _) => GateOutcome::WithinNoise,
    };
    let show = |value: f64| {
        if held.is_time { time(value.round() as i64) } else { decimal(value, 2) }
    };
    let pct = match worse_pct {
        None => String::new(),
        Some(0.0) => " (no change)".to_owned(),
        Some(pct) => format!(" ({:.1} % {})", pct.abs(), if pct > 0.0 { "worse" } else { "better" }),
    };
    let why = format!(
        "{stage}.{} went from {} to {}{}; limit {}, noise {}",
        metric.name(),
        show(base),
        show(head),
        pct,
        gate.limit,
        show(held.noise),
    );
    GateResult {
        gate: gate.to_string(),
        stage: (stage != TOTAL).then(|| stage.to_owned()),
        metric: metric.name().to_owned(),
        worse_pct,
        outcome,
        why,
    }
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
            (gate.stage, gate.metric, gate.limit)
        };
        let stage = |name: &str| Some(name.to_owned());
        assert_eq!(read("5%"), (None, None, Limit::Percent(5.0)));
        assert_eq!(read(" decode = 3 % "), (stage("decode"), None, Limit::Percent(3.0)));
        assert_eq!(read("wall=3%"), (None, Some(Metric::Wall), Limit::Percent(3.0)));
        assert_eq!(read("decode.wall=2.5%"), (stage("decode"), Some(Metric::Wall), Limit::Percent(2.5)));
        assert_eq!(read("kernel_ns=1ms"), (None, Some(Metric::Kernel), Limit::Ns(1e6)));
        assert_eq!(read("a.b.idle.launch=50us"), (stage("a.b"), Some(Metric::IdleLaunch), Limit::Ns(5e4)));
        assert_eq!(read("decode.mfu_pct=1%"), (stage("decode"), Some(Metric::Mfu), Limit::Percent(1.0)));
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
