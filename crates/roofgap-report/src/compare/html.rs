//! A comparison as one HTML page that needs no network.

use super::view::{SUM, Size, StageView, View, signed_ms};
use crate::html::markup::visible_text;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use roofgap_analyze::compare::Comparison;

const STYLE: &str = include_str!("style.css");

/// Renders a comparison as HTML.
pub fn html(comparison: &Comparison) -> String {
    let size = Size {
        parts: 24,
        kernels: 200,
    };
    let view = View::of(comparison, size);
    let (base, head) = (&comparison.base.title, &comparison.head.title);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "roofgap: " (head) " against " (base) }
                style { (PreEscaped(STYLE)) }
            }
            body { main {
                h1 { (view.headline) }
                p { "base " b { (base) } ", head " b { (head) } }
                @if let Some(alarm) = &view.alarm { p.alarm { (alarm) } }
                (list(&view.differences))
                (list(&view.one_sided))
                @if !view.gates.is_empty() { h2 { "Gates" } (view.gates.html()) }
                @for view in &view.stages { (stage(view)) }
                @if !view.kernels.is_empty() { h2 { "Kernels of the whole trace that changed" } (view.kernels.html()) }
                (list(&view.renamed))
            } }
        }
        "\n"
    };
    visible_text(&page.into_string())
}

fn stage(stage: &StageView) -> Markup {
    html! {
        h2 { (stage.name) }
        p { (stage.sentence) }
        (stage.numbers.html())
        p.small { (stage.noise) }
        @if let Some(why) = &stage.why_no_parts { p { "No breakdown of the change: " (why) } }
        @if !stage.bars.is_empty() { h3 { "Breakdown of the change of wall time" } (bars(&stage.bars)) }
        @if !stage.kernels.is_empty() { h3 { "Kernels that changed" } (stage.kernels.html()) }
        (list(&stage.renamed))
    }
}

/// Renders bars to the left (less) and to the right (more) of a middle line.
fn bars(parts: &[(String, i64)]) -> Markup {
    let widest = parts
        .iter()
        .map(|part| part.1.unsigned_abs())
        .max()
        .unwrap_or(1)
        .max(1);
    let bar = |delta: i64| {
        let width = 50.0 * delta.unsigned_abs() as f64 / widest as f64;
        let left = if delta < 0 { 50.0 - width } else { 50.0 };
        format!("left:{left:.2}%;width:{width:.2}%")
    };
    html! {
        table.bars { tbody {
            @for (name, delta) in parts {
                tr {
                    td { (name) }
                    td.n { (signed_ms(*delta)) " ms" }
                    td.bar { i class=(if *delta < 0 { "less" } else { "more" }) style=(bar(*delta)) {} }
                }
            }
            tr.sum { td { (SUM) } td.n { (signed_ms(parts.iter().map(|part| part.1).sum())) " ms" } td {} }
        } }
    }
}

fn list(lines: &[String]) -> Markup {
    html! { @if !lines.is_empty() { ul { @for line in lines { li { (line) } } } } }
}
