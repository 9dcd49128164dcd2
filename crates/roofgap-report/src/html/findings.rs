//! What to do, most to gain first, with its evidence and a way to the place in the timeline.

use super::markup::{cut, escape, escape_cut};
use crate::bundle::Bundle;
use crate::number::{quantity, time, words};
use roofgap_analyze::Finding;
use serde_json::Value;
use std::fmt::Write;

/// How many findings stand open.
const OPEN: usize = 3;

/// All findings.
pub(super) fn findings(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    if analysis.findings.is_empty() {
        return super::absence("No findings", "nothing in the data supports one");
    }
    let mut out = String::from("<ol class=\"findings\">");
    for (i, finding) in analysis.findings.iter().enumerate() {
        one(bundle, finding, i < OPEN, &mut out);
    }
    out.push_str("</ol>");
    out
}

fn one(bundle: Bundle<'_>, finding: &Finding, open: bool, out: &mut String) {
    let width = finding.bound_pct.clamp(0.0, 100.0);
    let stage = finding
        .stage
        .as_deref()
        .map(|s| format!(" of {}", escape_cut(s, 60)))
        .unwrap_or_default();
    let _ = write!(
        out,
        "<li id=\"finding-{}\"><details{}><summary><b>{}</b><span class=\"saving\"><span class=\"gain\"><i style=\"width:{width:.1}%\"></i></span>saves at most {} ({:.1} %{stage})</span></summary><p class=\"action\">{}</p><dl class=\"evidence\">",
        escape(&finding.id),
        if open { " open" } else { "" },
        escape(&finding.title),
        time(finding.bound_ns),
        finding.bound_pct,
        escape(&finding.action)
    );
    for (key, value) in &finding.evidence {
        let _ = write!(
            out,
            "<div><dt>{}</dt><dd>{}</dd></div>",
            escape(&words(key)),
            shown(key, value)
        );
    }
    out.push_str("</dl>");
    link(bundle, finding, out);
    out.push_str("</details></li>");
}

/// A button that shows where in the timeline the finding lies.
fn link(bundle: Bundle<'_>, finding: &Finding, out: &mut String) {
    let Some(at) = bundle
        .analysis
        .stages
        .iter()
        .position(|s| Some(&s.name) == finding.stage.as_ref())
    else {
        return;
    };
    let spans = bundle.stages.spans(at);
    if bundle.trace.is_none() || spans.instances.is_empty() {
        return;
    }
    let text = |key: &str| finding.evidence.get(key).and_then(Value::as_str);
    let kernel = ["kernel", "largest"].iter().find_map(|key| text(key));
    let step = finding
        .evidence
        .get("slowest_step")
        .and_then(Value::as_u64)
        .filter(|s| (1..=spans.steps.len() as u64).contains(s));
    let stage = escape_cut(&finding.stage.clone().unwrap_or_default(), 60);
    let (data, label) = match (kernel, step) {
        (Some(kernel), _) => (
            format!(" data-kernel=\"{}\"", escape(kernel)),
            format!("Show this kernel in {stage}"),
        ),
        (None, Some(step)) => (
            format!(" data-step=\"{}\"", step - 1),
            format!("Show step {step} of {stage}"),
        ),
        (None, None) => (String::new(), format!("Show {stage} in the timeline")),
    };
    let _ = write!(
        out,
        "<button type=\"button\" class=\"jump\" data-stage=\"{at}\"{data}>{label}</button>"
    );
}

/// A value of evidence in the unit its key names.
fn shown(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) => format!(
            "<span title=\"{}\">{}</span>",
            escape(&cut(text, 2000)),
            escape_cut(text, 120)
        ),
        Value::Number(number) => quantity(key, number),
        Value::Null => crate::number::NONE.into(),
        other => escape_cut(&other.to_string(), 200),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn evidence_reads_in_its_unit() {
        assert_eq!(words("gap_per_launch_ns"), "gap per launch");
        assert_eq!(shown("gap_per_launch_ns", &json!(1500.4)), "1.5 µs");
        assert_eq!(shown("busy_pct", &json!(8.25)), "8.2 %");
        assert_eq!(shown("bytes", &json!(2_000_000)), "2.00 MB");
        assert_eq!(shown("launches", &json!(12345)), "12,345");
        assert_eq!(
            shown("kernel", &json!("<b>")),
            "<span title=\"&lt;b&gt;\">&lt;b&gt;</span>"
        );
        assert_eq!(shown("x", &json!(null)), "–");
    }
}
