//! Metrics for Prometheus and OpenTelemetry.

use crate::fixtures::{PLAIN, fixture, fixture_with_model, made};
use roofgap_analyze::{Receipt, Receipts, Serving, StageEnergy, StageVitals, Totals};
use roofgap_report::telemetry::{otlp, prometheus, spans};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

#[test]
fn prometheus_has_the_numbers_of_the_analysis() {
    let case = fixture_with_model(&["h200/dsocr2.sqlite.gz"], "deepseek_ocr2", (512, 8));
    insta::assert_snapshot!(prometheus(case.bundle()));
}

/// Each series has one value, and each line is a name, labels and a number.
#[test]
fn series_are_distinct_and_values_are_numbers() {
    for name in ["h200/llama4.sqlite.gz", "vllm/vllm_dense_graph.kineto.json.gz", "native/stand-in.rgcap"] {
        let case = fixture(&[name]);
        let text = prometheus(case.bundle());
        let mut series = BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (labels, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
            assert!(labels.ends_with('}') && series.insert(labels.to_owned()), "{line}");
        }
        assert!(!series.is_empty(), "{name}");
    }
}

/// A stage without GPU work has no launches to count, and a run without a recording no kernels.
#[test]
fn counts_that_were_not_measured_have_no_points() {
    let mut case = made(PLAIN);
    let text = prometheus(case.bundle());
    assert!(text.contains("stage_launches") && text.contains("roofgap_kernels"), "{text}");
    case.analysis.totals = Totals::default();
    for stage in &mut case.analysis.stages {
        (stage.busy_ns, stage.launch_count) = (None, 0);
    }
    let text = prometheus(case.bundle());
    assert!(!text.contains("stage_launches") && !text.contains("roofgap_kernel"), "{text}");
    assert!(text.contains("roofgap_stage_time"), "{text}");
}

#[test]
fn labels_are_escaped() {
    let mut case = fixture(&["native/stand-in.rgcap"]);
    case.context.title = "a\"b\\c\nd".into();
    let text = prometheus(case.bundle());
    assert!(text.contains(r#"run="a\"b\\c\nd""#), "{text}");
}

#[test]
fn opentelemetry_has_the_same_series() {
    let case = fixture(&["h200/llama4.sqlite.gz"]);
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
    let document: Value = serde_json::from_str(&otlp(case.bundle(), at)).unwrap();
    let resource = &document["resourceMetrics"][0];
    let metrics = resource["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let points: Vec<&Value> =
        metrics.iter().flat_map(|metric| metric["gauge"]["dataPoints"].as_array().unwrap()).collect();
    let text = prometheus(case.bundle());
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(points.len(), series);
    assert!(points.iter().all(|point| point["timeUnixNano"] == "7000000000"));
    let decode = metrics.iter().find(|metric| metric["name"] == "roofgap.stage.time").unwrap();
    assert_eq!(decode["unit"], "s");
    let stages: Vec<&str> = decode["gauge"]["dataPoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point["attributes"][0]["value"]["stringValue"].as_str().unwrap())
        .collect();
    assert_eq!(stages, ["prefill", "decode"]);
}

#[test]
fn requests_are_spans_below_their_callers() {
    let mut case = made(PLAIN);
    assert_eq!(spans(case.bundle()), None);
    let of_load = "cmpl-00-00000000000000aa0000000000000007-0000000000000007-01-0";
    let receipt = |id: &str| Receipt {
        id: id.into(),
        start_ns: 20,
        prompt_end_ns: Some(50),
        end_ns: 90,
        busy_ns: 40,
        ..Receipt::default()
    };
    let sent = Receipt { sent_ns: Some(5), answered_ns: Some(95), ..receipt(of_load) };
    let each = vec![sent, receipt("a-00-zz"), Receipt { prompt_end_ns: None, ..receipt("b") }];
    let receipts = Receipts { begin_unix_ns: Some(1_000), busy_ns: 120, each, ..Receipts::default() };
    case.analysis.serving = Some(Serving { receipts: Some(receipts), ..Serving::default() });
    let document: Value = serde_json::from_str(&spans(case.bundle()).unwrap()).unwrap();
    let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let text = |span: &Value, key: &str| span[key].as_str().unwrap().to_owned();
    let times = |span: &Value| {
        [text(span, "name"), text(span, "startTimeUnixNano"), text(span, "endTimeUnixNano")].join(" ")
    };
    let all: Vec<String> = spans.iter().map(times).collect();
    let own = ["engine 1020 1090", "prefill 1020 1050", "decode 1050 1090"];
    let expected = ["request 1005 1095", "queued 1005 1020"].iter().chain(&own).chain(&own).chain(&own[..1]);
    assert_eq!(all, expected.copied().collect::<Vec<_>>());
    let parents: Vec<String> = spans.iter().map(|span| text(span, "parentSpanId")).collect();
    let engine = text(&spans[2], "spanId");
    assert_eq!(parents[..5], ["", "0000000000000007", "0000000000000007", &engine, &engine]);
    assert_eq!(text(&spans[0], "spanId"), "0000000000000007");
    assert!(spans[..5].iter().all(|span| span["traceId"] == "00000000000000aa0000000000000007"));
    assert_eq!((parents[5].as_str(), text(&spans[5], "traceId").len()), ("", 32));
    let mut ids: Vec<String> = spans.iter().map(|span| text(span, "spanId")).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), spans.len());
    let busy =
        spans[2]["attributes"].as_array().unwrap().iter().find(|own| own["key"] == "roofgap.gpu.busy.ns");
    assert_eq!(busy.unwrap()["value"]["intValue"], "40");
}

#[test]
fn power_and_clock_are_gauges() {
    let mut case = made(PLAIN);
    let energy = StageEnergy { watts: 650.0, token_j: Some(0.5), ..StageEnergy::default() };
    case.analysis.stages[0].vitals =
        Some(StageVitals { sm_mhz: Some(1980.0), energy: Some(energy), ..StageVitals::default() });
    let text = prometheus(case.bundle());
    for (name, value) in
        [("power_watts", "650"), ("token_energy_joules", "0.5"), ("clock_hertz", "1980000000")]
    {
        let mut lines = text.lines().filter(|line| line.starts_with(&format!("roofgap_stage_{name}{{")));
        assert!(lines.next().is_some_and(|line| line.ends_with(&format!(" {value}"))), "{name} {text}");
    }
}
