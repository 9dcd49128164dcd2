//! Findings by saving, with their evidence and a link to the timeline.

use super::markup::absent;
use crate::bundle::Bundle;
use crate::view::findings::{evidence_name, evidence_value, none_found, saving};
use crate::view::table::cut;
use maud::{Markup, html};
use roofgap_analyze::Finding;
use serde_json::Value;

/// Number of findings that are open at first.
const OPEN: usize = 3;

/// Renders all findings.
pub(super) fn findings(bundle: Bundle<'_>) -> Markup {
    let analysis = bundle.analysis;
    if analysis.findings.is_empty() {
        return absent(&none_found(analysis));
    }
    html! {
        ol.findings {
            @for (i, finding) in analysis.findings.iter().enumerate() {
                @let width = format!("width:{:.1}%", finding.bound_pct.clamp(0.0, 100.0));
                li id={ "finding-" (finding.id) } { details open[i < OPEN] {
                    summary {
                        b { (finding.title) }
                        span.saving { span.gain { i style=(width) {} } (saving(finding)) }
                    }
                    p.action { (finding.action) }
                    dl.evidence {
                        @for (key, value) in &finding.evidence {
                            div { dt { (evidence_name(key)) } dd { (evidence(key, value)) } }
                        }
                    }
                    @if let Some(link) = link(bundle, finding) { (link) }
                } }
            }
        }
    }
}

fn evidence(key: &str, value: &Value) -> Markup {
    let shown = evidence_value(key, value);
    html! {
        @if value.is_string() { span title=(cut(&shown, 2000)) { (cut(&shown, 120)) } }
        @else { (cut(&shown, 200)) }
    }
}

/// Renders a button that shows the finding in the timeline; `None` if its stage is not there.
fn link(bundle: Bundle<'_>, finding: &Finding) -> Option<Markup> {
    let name = finding.stage.as_ref()?;
    let at = bundle.analysis.stages.iter().position(|s| s.name == *name)?;
    let spans = bundle.stages.spans(at);
    if bundle.trace.is_none() || spans.instances.is_empty() {
        return None;
    }
    let evidence = |key: &str| finding.evidence.get(key);
    let kernel = ["kernel", "largest"]
        .iter()
        .find_map(|key| evidence(key)?.as_str());
    let step = evidence("slowest_step").and_then(Value::as_u64);
    let step = step.filter(|s| kernel.is_none() && (1..=spans.steps.len() as u64).contains(s));
    let stage = cut(name, 60);
    let label = match (kernel, step) {
        (Some(_), _) => format!("Show this kernel in {stage}"),
        (None, Some(step)) => format!("Show step {step} of {stage}"),
        (None, None) => format!("Show {stage} in the timeline"),
    };
    Some(html! {
        button.jump type="button" data-stage=(at) data-kernel=[kernel] data-step=[step.map(|s| s - 1)] { (label) }
    })
}
