//! Gauges: numbers of a run with their units and labels. A number that was not measured has no point.

use roofgap_analyze::{Analysis, Stage};

/// The unit of a gauge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    /// A share from 0 to 1, or a quotient.
    Ratio,
    /// Tokens per second.
    TokensPerSecond,
    /// A number of things.
    Count,
}

/// A number and its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

/// A gauge with all its points.
#[derive(Debug, Clone, PartialEq)]
pub struct Gauge {
    /// Words of the name, without the unit.
    pub name: &'static [&'static str],
    pub unit: Unit,
    pub help: &'static str,
    pub points: Vec<Point>,
}

/// Collects the gauges that have points.
pub fn gauges(analysis: &Analysis) -> Vec<Gauge> {
    let mut all = stage_gauges(&analysis.stages);
    all.extend(run_gauges(analysis));
    all.retain(|gauge| !gauge.points.is_empty());
    all
}

fn stage_gauges(stages: &[Stage]) -> Vec<Gauge> {
    let of = |name, unit, help, value: fn(&Stage) -> Option<f64>| Gauge {
        name,
        unit,
        help,
        points: stages
            .iter()
            .filter_map(|stage| {
                Some(Point { labels: vec![("stage", stage.name.clone())], value: value(stage)? })
            })
            .collect(),
    };
    let idle = stages.iter().filter_map(|stage| Some((stage, stage.causes()?)));
    let idle = idle.flat_map(|(stage, idle)| {
        let causes = [
            ("launch", idle.launch_ns),
            ("sync", idle.sync_ns),
            ("copy", idle.copy_ns),
            ("other", idle.other_ns),
        ];
        causes.map(|(cause, ns)| Point {
            labels: vec![("stage", stage.name.clone()), ("cause", cause.to_owned())],
            value: seconds(ns),
        })
    });
    vec![
        of(&["stage", "time"], Unit::Seconds, "Time of a stage, all instances together.", |stage| {
            Some(seconds(stage.elapsed_ns()))
        }),
        of(&["stage", "instances"], Unit::Count, "Number of instances of a stage.", |stage| {
            Some(stage.instances as f64)
        }),
        of(
            &["stage", "gpu", "busy"],
            Unit::Seconds,
            "Time with at least one GPU operation of a stage, summed over devices.",
            |stage| stage.busy_ns.map(seconds),
        ),
        of(&["stage", "kernel"], Unit::Seconds, "Kernel time of a stage.", |stage| {
            stage.kernel_ns.map(seconds)
        }),
        Gauge {
            name: &["stage", "gpu", "idle"],
            unit: Unit::Seconds,
            help: "Time between the first and the last GPU operation of a stage in which the GPU ran nothing, by cause.",
            points: idle.collect(),
        },
        of(&["stage", "launches"], Unit::Count, "Number of calls that launched GPU work.", |stage| {
            stage.busy_ns.map(|_| stage.launch_count as f64)
        }),
        of(&["stage", "step"], Unit::Seconds, "Mean time of a step.", |stage| {
            stage.steps.as_ref().map(|steps| seconds(steps.mean_ns))
        }),
        of(&["stage", "token"], Unit::Seconds, "Time per token, all sequences together.", |stage| {
            stage.token_ns.map(seconds)
        }),
        of(
            &["stage", "tokens"],
            Unit::TokensPerSecond,
            "Tokens per second, all sequences together.",
            |stage| stage.tokens_per_s,
        ),
        of(&["stage", "mfu"], Unit::Ratio, "Model FLOPs utilisation over wall time.", |stage| {
            stage.mfu.as_ref().map(|mfu| mfu.by_wall_pct / 100.0)
        }),
        of(&["stage", "mbu"], Unit::Ratio, "Memory bandwidth utilisation over wall time.", |stage| {
            stage.mbu.as_ref().map(|mbu| mbu.by_wall_pct / 100.0)
        }),
    ]
}

fn run_gauges(analysis: &Analysis) -> Vec<Gauge> {
    let one = |value: Option<f64>| {
        let point = value.map(|value| Point { labels: Vec::new(), value });
        point.into_iter().collect()
    };
    let ttft = analysis.per_run.as_ref().and_then(|run| run.ttft_ns);
    let overhead = analysis.overhead.iter().map(|overhead| Point {
        labels: vec![("stage", overhead.stage.clone()), ("tool", overhead.tool.as_str().to_owned())],
        value: overhead.ratio,
    });
    let findings = analysis.findings.iter().map(|finding| Point {
        labels: vec![("finding", finding.id.clone()), ("stage", finding.stage.clone().unwrap_or_default())],
        value: seconds(finding.bound_ns),
    });
    let totals = &analysis.totals;
    let recorded = |value: f64| one((totals.kernel_count > 0).then_some(value));
    vec![
        Gauge {
            name: &["kernel"],
            unit: Unit::Seconds,
            help: "Kernel time of the whole trace.",
            points: recorded(seconds(totals.kernel_ns)),
        },
        Gauge {
            name: &["kernels"],
            unit: Unit::Count,
            help: "Number of kernels in the whole trace.",
            points: recorded(totals.kernel_count as f64),
        },
        Gauge {
            name: &["time", "to", "first", "token"],
            unit: Unit::Seconds,
            help: "Prefill and the first step of decode, mean over runs.",
            points: one(ttft.map(seconds)),
        },
        Gauge {
            name: &["profiler", "overhead"],
            unit: Unit::Ratio,
            help: "Time under a profiler divided by the time without it.",
            points: overhead.collect(),
        },
        Gauge {
            name: &["finding", "saving"],
            unit: Unit::Seconds,
            help: "Upper bound on what fixing a finding saves; bounds overlap.",
            points: largest(findings.collect()),
        },
    ]
}

/// Keeps the largest point of those with the same labels: a series has one value.
fn largest(points: Vec<Point>) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::new();
    for point in points {
        match kept.iter_mut().find(|known| known.labels == point.labels) {
            Some(known) => known.value = known.value.max(point.value),
            None => kept.push(point),
        }
    }
    kept
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
