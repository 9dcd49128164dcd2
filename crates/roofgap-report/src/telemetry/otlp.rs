//! The JSON format of OpenTelemetry (OTLP), as a collector takes it at `/v1/metrics`.

use super::gauge::{Gauge, Point, Unit, gauges};
use crate::bundle::Bundle;
use serde_json::{Value, json};
use std::time::SystemTime;

/// Renders the gauges of a run, measured at a time.
pub fn render(bundle: Bundle<'_>, at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = since.as_nanos().to_string();
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
    let metrics: Vec<Value> = gauges(bundle.analysis).iter().map(|gauge| metric(gauge, &at)).collect();
    let document = json!({
        "resourceMetrics": [{
            "resource": { "attributes": resource },
            "scopeMetrics": [{
                "scope": { "name": "roofgap", "version": env!("CARGO_PKG_VERSION") },
                "metrics": metrics,
            }],
        }],
    });
    format!("{document}\n")
}

fn metric(gauge: &Gauge, at: &str) -> Value {
    // UCUM, as OpenTelemetry asks for.
    let unit = match gauge.unit {
        Unit::Seconds => "s",
        Unit::Ratio => "1",
        Unit::TokensPerSecond => "{token}/s",
        Unit::Count => "{count}",
    };
    let points: Vec<Value> = gauge.points.iter().map(|point| data_point(point, at)).collect();
    json!({
        "name": format!("roofgap.{}", gauge.name.join(".")),
        "description": gauge.help,
        "unit": unit,
        "gauge": { "dataPoints": points },
    })
}

fn data_point(point: &Point, at: &str) -> Value {
    let labels: Vec<Value> = point.labels.iter().map(|(key, value)| attribute(key, value)).collect();
    json!({ "timeUnixNano": at, "asDouble": point.value, "attributes": labels })
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}
