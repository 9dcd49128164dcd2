//! The text format of Prometheus, for the textfile collector of its node exporter or a push gateway.

use super::gauge::{Gauge, Unit, gauges};
use crate::bundle::Bundle;
use std::fmt::Write;

/// Renders the gauges of a run.
pub fn render(bundle: Bundle<'_>) -> String {
    let run = bundle.context.title.as_str();
    let mut out = String::new();
    for gauge in gauges(bundle.analysis) {
        let name = name(&gauge);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} gauge", gauge.help);
        for point in &gauge.points {
            let own = point.labels.iter().map(|(key, value)| (*key, value.as_str()));
            let labels: Vec<String> = [("run", run)]
                .into_iter()
                .chain(own)
                .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)))
                .collect();
            let _ = writeln!(out, "{name}{{{}}} {}", labels.join(","), point.value);
        }
    }
    out
}

/// Returns the name of a gauge with its unit, as in `roofgap_stage_time_seconds`.
fn name(gauge: &Gauge) -> String {
    let unit = match gauge.unit {
        Unit::Seconds => "_seconds",
        Unit::Ratio => "_ratio",
        Unit::TokensPerSecond => "_per_second",
        Unit::Count => "",
    };
    format!("roofgap_{}{unit}", gauge.name.join("_"))
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
