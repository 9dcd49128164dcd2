//! The main numbers of a run for monitoring: gauges in the text format of Prometheus and in the JSON format of OpenTelemetry, and requests
//! as spans.

use crate::Bundle;
use roofgap_analyze::{Analysis, Stage};
use roofgap_base::file::sha256;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::SystemTime;

use Points::{Labelled, OfRun, OfStages};

/// The unit of a gauge: the end of its name for Prometheus, and in UCUM, as OpenTelemetry asks for.
type Unit = (&'static str, &'static str);

const SECONDS: Unit = ("_seconds", "s");
/// A share from 0 to 1, or a quotient.
const RATIO: Unit = ("_ratio", "1");
const TOKENS_PER_SECOND: Unit = ("_per_second", "{token}/s");
const WATTS: Unit = ("_watts", "W");
const JOULES: Unit = ("_joules", "J");
const HERTZ: Unit = ("_hertz", "Hz");
/// A number of things.
const COUNT: Unit = ("", "{count}");

/// A number and its labels.
struct Point {
    labels: Vec<(&'static str, String)>,
    value: f64,
}

/// The points of a gauge. A number that was not measured has none.
enum Points {
    OfStages(fn(&Stage) -> Option<f64>),
    OfRun(fn(&Analysis) -> Option<f64>),
    Labelled(fn(&Analysis) -> Vec<Point>),
}

/// A gauge: the words of its name, its unit, a sentence for people, and its points.
type Gauge = (&'static str, Unit, &'static str, Points);

const GAUGES: &[Gauge] = &[
    (
        "stage.time",
        SECONDS,
        "Time of a stage, all instances together.",
        OfStages(|stage| Some(seconds(stage.elapsed_ns()))),
    ),
    (
        "stage.instances",
        COUNT,
        "Number of instances of a stage.",
        OfStages(|stage| Some(stage.instances as f64)),
    ),
    (
        "stage.gpu.busy",
        SECONDS,
        "Time with at least one GPU operation of a stage, summed over devices.",
        OfStages(|stage| stage.busy_ns.map(seconds)),
    ),
    ("stage.kernel", SECONDS, "Kernel time of a stage.", OfStages(|stage| stage.kernel_ns.map(seconds))),
    (
        "stage.gpu.idle",
        SECONDS,
        "Time between the first and the last GPU operation of a stage in which the GPU ran nothing, by cause.",
        Labelled(idle),
    ),
    (
        "stage.launches",
        COUNT,
        "Number of calls that launched GPU work.",
        OfStages(|stage| stage.busy_ns.map(|_| stage.launch_count as f64)),
    ),
    (
        "stage.step",
        SECONDS,
        "Mean time of a step.",
        OfStages(|stage| Some(seconds(stage.steps.as_ref()?.mean_ns))),
    ),
    (
        "stage.token",
        SECONDS,
        "Time per token, all sequences together.",
        OfStages(|stage| stage.token_ns.map(seconds)),
    ),
    (
        "stage.tokens",
        TOKENS_PER_SECOND,
        "Tokens per second, all sequences together.",
        OfStages(|stage| stage.tokens_per_s),
    ),
    (
        "stage.mfu",
        RATIO,
        "Model FLOPs utilisation over wall time.",
        OfStages(|stage| Some(stage.mfu.as_ref()?.by_wall_pct / 100.0)),
    ),
    (
        "stage.mbu",
        RATIO,
        "Memory bandwidth utilisation over wall time.",
        OfStages(|stage| Some(stage.mbu.as_ref()?.by_wall_pct / 100.0)),
    ),
    (
        "stage.power",
        WATTS,
        "Mean power of the GPUs of a stage.",
        OfStages(|stage| Some(stage.vitals.as_ref()?.energy.as_ref()?.watts)),
    ),
    (
        "stage.token.energy",
        JOULES,
        "Energy of the GPUs for a token of a stage.",
        OfStages(|stage| stage.vitals.as_ref()?.energy.as_ref()?.token_j),
    ),
    (
        "stage.clock",
        HERTZ,
        "Median clock of the multiprocessors while a stage ran.",
        OfStages(|stage| Some(stage.vitals.as_ref()?.sm_mhz? * 1e6)),
    ),
    (
        "kernel",
        SECONDS,
        "Kernel time of the whole trace.",
        OfRun(|run| (run.totals.kernel_count > 0).then(|| seconds(run.totals.kernel_ns))),
    ),
    (
        "kernels",
        COUNT,
        "Number of kernels in the whole trace.",
        OfRun(|run| Some(run.totals.kernel_count as f64).filter(|count| *count > 0.0)),
    ),
    (
        "time.to.first.token",
        SECONDS,
        "Prefill and the first step of decode, mean over runs.",
        OfRun(|run| run.per_run.as_ref()?.ttft_ns.map(seconds)),
    ),
    (
        "profiler.overhead",
        RATIO,
        "Time under a profiler divided by the time without it.",
        Labelled(|analysis| {
            let overhead = analysis.overhead.iter().map(|overhead| Point {
                labels: vec![("stage", overhead.stage.clone()), ("tool", overhead.tool.to_string())],
                value: overhead.ratio,
            });
            overhead.collect()
        }),
    ),
    (
        "finding.saving",
        SECONDS,
        "Upper bound on what fixing a finding saves; bounds overlap.",
        Labelled(savings),
    ),
];

impl Points {
    fn of(&self, analysis: &Analysis) -> Vec<Point> {
        let of_run = |value: f64| Point { labels: Vec::new(), value };
        match self {
            OfStages(value) => {
                let point = |stage| Some(Point { labels: vec![stage_label(stage)], value: value(stage)? });
                analysis.stages.iter().filter_map(point).collect()
            }
            OfRun(value) => value(analysis).into_iter().map(of_run).collect(),
            Labelled(points) => points(analysis),
        }
    }
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

fn stage_label(stage: &Stage) -> (&'static str, String) {
    ("stage", stage.name.clone())
}

fn idle(analysis: &Analysis) -> Vec<Point> {
    let idle = analysis.stages.iter().filter_map(|stage| Some((stage, stage.causes()?)));
    let points = idle.flat_map(|(stage, idle)| {
        let causes = [
            ("launch", idle.launch_ns),
            ("sync", idle.sync_ns),
            ("copy", idle.copy_ns),
            ("other", idle.other_ns),
        ];
        causes.map(|(cause, ns)| Point {
            labels: vec![stage_label(stage), ("cause", cause.to_owned())],
            value: seconds(ns),
        })
    });
    points.collect()
}

/// Lists the savings of findings. A series has one value: of points with the same labels, the largest.
fn savings(analysis: &Analysis) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::new();
    for finding in &analysis.findings {
        let stage = finding.stage.clone().unwrap_or_default();
        let labels = vec![("finding", finding.id.clone()), ("stage", stage)];
        let value = seconds(finding.bound_ns);
        match kept.iter_mut().find(|known| known.labels == labels) {
            Some(known) => known.value = known.value.max(value),
            None => kept.push(Point { labels, value }),
        }
    }
    kept
}

/// Renders the gauges of a run for the textfile collector of Prometheus' node exporter, or for a push gateway.
pub fn prometheus(bundle: Bundle<'_>) -> String {
    let run = bundle.context.title.as_str();
    let mut out = String::new();
    for (words, (unit, _), help, points) in GAUGES {
        let points = points.of(bundle.analysis);
        if points.is_empty() {
            continue;
        }
        let name = format!("roofgap_{}{unit}", words.replace('.', "_"));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for point in &points {
            let own = point.labels.iter().map(|(key, value)| (*key, value.as_str()));
            let labels = std::iter::once(("run", run)).chain(own);
            let labels: Vec<String> =
                labels.map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
            let _ = writeln!(out, "{name}{{{}}} {}", labels.join(","), point.value);
        }
    }
    out
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Renders the gauges of a run, measured at a time, as a collector of OpenTelemetry takes them at `/v1/metrics`.
pub fn otlp(bundle: Bundle<'_>, at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = since.as_nanos().to_string();
    let metrics: Vec<Value> = GAUGES.iter().filter_map(|gauge| metric(gauge, bundle.analysis, &at)).collect();
    document(bundle, "Metrics", "metrics", metrics)
}

/// Renders what a collector of OpenTelemetry takes.
fn document(bundle: Bundle<'_>, kind: &str, list: &str, entries: Vec<Value>) -> String {
    let device = bundle.analysis.devices.iter().find_map(|device| device.name.as_deref());
    let model = bundle.analysis.workload.as_ref().and_then(|workload| workload.model.as_deref());
    let resource: Vec<Value> = [
        ("service.name", Some("roofgap")),
        ("roofgap.run", Some(bundle.context.title.as_str())),
        ("roofgap.device", device),
        ("roofgap.model", model),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some(attribute(key, value?)))
    .collect();
    let document = json!({
        format!("resource{kind}"): [{
            "resource": { "attributes": resource },
            format!("scope{kind}"): [{
                "scope": { "name": "roofgap", "version": env!("CARGO_PKG_VERSION") },
                list: entries,
            }],
        }],
    });
    format!("{document}\n")
}

/// Renders the requests of an engine as spans, as a collector of OpenTelemetry takes them at `/v1/traces`; `None` where the recording does
/// not tell its requests, or has no wall clock.
///
/// A request whose id has the `traceparent` of its caller is below the caller's span.
pub fn spans(bundle: Bundle<'_>) -> Option<String> {
    let receipts = bundle.analysis.serving.as_ref()?.receipts.as_ref()?;
    let begin = receipts.begin_unix_ns?;
    let mut spans = Vec::new();
    for receipt in &receipts.each {
        let unique = |name: &str| sha256(format!("{} {name}", receipt.id).as_bytes());
        let trace_of_id = unique("trace");
        let caller = receipt.caller();
        let trace = caller.map_or(&trace_of_id[..32], |(trace, _)| trace);
        let span = |name: &str, id: &str, parent: Option<&str>, from: i64, to: i64, facts: Vec<Value>| {
            json!({
                "traceId": trace,
                "spanId": id,
                "parentSpanId": parent.unwrap_or_default(),
                "name": name,
                "kind": 1,
                "startTimeUnixNano": from.to_string(),
                "endTimeUnixNano": to.to_string(),
                "attributes": facts,
            })
        };
        let own = |name: &str| unique(name)[..16].to_owned();
        let (start, end) = (begin + receipt.start_ns, begin + receipt.end_ns);
        let parent = caller.map(|(_, span)| span);
        if let (Some(id), Some(sent), Some(answered)) = (parent, receipt.sent_ns, receipt.answered_ns) {
            let sent = begin + sent;
            spans.push(span("request", id, None, sent, begin + answered, Vec::new()));
            spans.push(span("queued", &own("queued"), parent, sent, start.max(sent), Vec::new()));
        }
        let number =
            |key: &str, value: i64| json!({ "key": key, "value": { "intValue": value.to_string() } });
        let mut facts = vec![
            attribute("roofgap.request", &receipt.id),
            number("roofgap.tokens", i64::try_from(receipt.tokens).unwrap_or(i64::MAX)),
            number("roofgap.steps", i64::try_from(receipt.steps).unwrap_or(i64::MAX)),
            number("roofgap.behind.prompts.ns", receipt.behind_prompts_ns),
        ];
        if receipts.has_gpu_time() {
            facts.push(number("roofgap.gpu.busy.ns", receipt.busy_ns));
            facts.push(number("roofgap.gpu.idle.ns", receipt.idle_ns));
        }
        let joules = |joules: f64| json!({ "key": "roofgap.joules", "value": { "doubleValue": joules } });
        facts.extend(receipt.joules.map(joules));
        let engine = own("engine");
        spans.push(span("engine", &engine, parent, start, end, facts));
        if let Some(read) = receipt.prompt_end_ns.map(|read| begin + read) {
            spans.push(span("prefill", &own("prefill"), Some(&engine), start, read, Vec::new()));
            spans.push(span("decode", &own("decode"), Some(&engine), read, end, Vec::new()));
        }
    }
    Some(document(bundle, "Spans", "spans", spans))
}

fn metric((words, (_, unit), help, points): &Gauge, analysis: &Analysis, at: &str) -> Option<Value> {
    let data_point = |point: &Point| {
        let labels: Vec<Value> = point.labels.iter().map(|(key, value)| attribute(key, value)).collect();
        json!({ "timeUnixNano": at, "asDouble": point.value, "attributes": labels })
    };
    let points: Vec<Value> = points.of(analysis).iter().map(data_point).collect();
    (!points.is_empty()).then(|| {
        json!({
            "name": format!("roofgap.{words}"),
            "description": help,
            "unit": unit,
            "gauge": { "dataPoints": points },
        })
    })
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}
