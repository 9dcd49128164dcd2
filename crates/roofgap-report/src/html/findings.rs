//! Findings by saving, with their evidence drawn, an action to copy and a link to the timeline.

use super::cut::cut as timeline_cut;
use super::markup::absent;
use super::stages::shares;
use crate::bundle::Bundle;
use crate::view::findings::{SAVINGS_OVERLAP, evidence_name, evidence_value, none_found, saving, trial};
use crate::view::numbers::time;
use crate::view::savings::per_token;
use crate::view::table::cut;
use maud::{Markup, html};
use roofgap_analyze::{Finding, IdlePart};
use serde_json::Value;

/// Number of findings that are open at first.
const OPEN: usize = 3;

/// Renders all findings. The first of each stage has a piece of its timeline.
pub fn findings(bundle: Bundle<'_>, idle: &[IdlePart]) -> Markup {
    let analysis = bundle.analysis;
    let list = &analysis.findings;
    if list.is_empty() {
        return absent(&none_found(analysis));
    }
    let first = |i: usize, finding: &Finding| !list[..i].iter().any(|before| before.stage == finding.stage);
    html! {
        @if list.len() > 1 { p.hint { (SAVINGS_OVERLAP) } }
        ol.findings {
            @for (i, finding) in list.iter().enumerate() {
                li id={ "finding-" (finding.id) } { details open[i < OPEN] {
                    summary {
                        b { (finding.title) }
                        span.saving {
                            (saving(analysis, finding))
                            @if let Some(token) = per_token(analysis, finding) { ", " (token) }
                            " " code { (finding.id) }
                        }
                    }
                    p.action { b { "Do: " } span { (finding.action) } " " button.copy type="button" hidden { "Copy" } }
                    @if let Some((command, changes)) = trial(finding, &bundle.context.title) {
                        p.action { b { "Try: " } span { (command) } " " button.copy type="button" hidden { "Copy" } " (" (changes) ")" }
                    }
                    (proof(bundle, finding))
                    @if let Some(at) = place(bundle, finding).filter(|_| first(i, finding)) {
                        @if let Some(drawing) = timeline_cut(bundle, at, idle) { (drawing) }
                    }
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

/// Draws the time of the stage, and below it the part that the finding is about.
fn proof(bundle: Bundle<'_>, finding: &Finding) -> Markup {
    let bound = finding.bound_pct.clamp(0.0, 100.0);
    let stage = bundle.analysis.stages.iter().find(|s| Some(s.name.as_str()) == finding.stage.as_deref());
    let parts = stage.map(shares).unwrap_or_default();
    let whole = stage.map_or_else(|| "the measured launches".to_owned(), |s| cut(s.spoken(), 60));
    let label = format!("{bound:.1} % of {whole} at most would go");
    html! {
        div.proof role="img" aria-label=(label) {
            @if !parts.is_empty() {
                div.bar.thin { @for (part, ns, share) in &parts {
                    span class=(part.class) style=(format!("flex:{share:.4}")) title=(format!("{}: {}, {share:.1} %", part.name, time(*ns))) {}
                } }
            }
            div.gain { i style=(format!("width:{bound:.1}%")) {} }
            small { (label) }
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

/// Returns the position of the stage of a finding, if the timeline has it.
fn place(bundle: Bundle<'_>, finding: &Finding) -> Option<usize> {
    let name = finding.stage.as_ref()?;
    let at = bundle.analysis.stages.iter().position(|s| s.name == *name)?;
    let found = bundle.trace.is_some() && !bundle.stages.spans(at).instances.is_empty();
    found.then_some(at)
}

/// Renders a button that shows the finding in the timeline; `None` if its stage is not there.
fn link(bundle: Bundle<'_>, finding: &Finding) -> Option<Markup> {
    let at = place(bundle, finding)?;
    let spans = bundle.stages.spans(at);
    let evidence = |key: &str| finding.evidence.get(key);
    let kernel = ["kernel", "largest"].iter().find_map(|key| evidence(key)?.as_str());
    let step = evidence("slowest_step").and_then(Value::as_u64);
    let step = step.filter(|s| kernel.is_none() && (1..=spans.steps.len() as u64).contains(s));
    let stage = cut(finding.stage.as_deref().unwrap_or_default(), 60);
    let label = match (kernel, step) {
        (Some(_), _) => format!("Show this kernel in {stage}"),
        (None, Some(step)) => format!("Show step {step} of {stage}"),
        (None, None) => format!("Show {stage} in the timeline"),
    };
    Some(html! {
        button.jump type="button" data-stage=(at) data-kernel=[kernel] data-step=[step.map(|s| s - 1)] { (label) }
    })
}
