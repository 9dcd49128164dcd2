//! A comparison as one HTML page that needs no network.

use super::view::{self, Form, signed_ms};
use crate::document::findings::saving;
use crate::render::html::{self as render, STYLE, Shell, shell};
use maud::{Markup, html};
use roofgap_analyze::Analysis;
use roofgap_analyze::compare::Comparison;
use std::path::Path;

/// Styles of this page, after those of the report.
const OWN_STYLE: &str = include_str!("style.css");
const SCRIPT: &str = concat!(
    "(() => {\n\"use strict\";\n",
    include_str!("../page/tables.js"),
    include_str!("sort.js"),
    "})();\n"
);

/// What the page shows of one side beside the comparison.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// Analysis.
    pub analysis: &'a Analysis,
    /// Page of this side.
    pub page: Option<&'a Path>,
}

/// Renders a comparison as HTML, with what is known of base and head.
pub fn html(comparison: &Comparison, [base, head]: [Shown<'_>; 2]) -> String {
    let titles = [&comparison.base.title, &comparison.head.title];
    let form = Form { parts: 24, kernels: 200, is_page: true };
    let parts = comparison.stages.iter().map(|stage| view::parts(stage, form.parts));
    let mut drawings = parts.filter(|parts| !parts.is_empty()).map(|parts| deltas(&parts));
    let body = html! {
        main {
            p.kicker { "roofgap compare" }
            @if let Some(alarm) = view::alarm(comparison) { p.alarm role="alert" { (alarm) } }
            h1 { (view::conclusion(comparison)) }
            p { "base " (linked(titles[0], base)) ", head " (linked(titles[1], head)) }
            ul { @for fact in view::facts(comparison) { li { (fact) } } }
            (findings("Findings that are gone", base.analysis, head.analysis))
            (findings("New findings", head.analysis, base.analysis))
            (render::sections(&view::sections(comparison, form), |_| drawings.next()))
        }
    };
    shell(&Shell {
        title: &format!("{} against {}", titles[1], titles[0]),
        styles: &[STYLE, OWN_STYLE],
        body,
        script: Some(SCRIPT),
        ..Shell::default()
    })
}

/// Names a side, with a link to its page.
fn linked(title: &str, side: Shown<'_>) -> Markup {
    html! { b { @match side.page { Some(page) => a href=(page.display()) { (title) }, None => (title) } } }
}

/// Lists the findings of one side that the other does not have.
fn findings(title: &str, one: &Analysis, other: &Analysis) -> Markup {
    let mut alone = one.findings.iter().collect::<Vec<_>>();
    alone.retain(|own| other.findings.iter().all(|known| (&known.id, &known.stage) != (&own.id, &own.stage)));
    html! {
        @if !alone.is_empty() {
            h2 { (title) }
            ul { @for finding in alone { li { (finding.title) " " small { (saving(one, finding)) } } } }
        }
    }
}

/// Renders the parts of a change as bars to the left (less) and to the right (more) of a middle line; the last one is their sum.
fn deltas(parts: &[(String, i64, &str)]) -> Markup {
    let (sum, parts) = parts.split_last().map_or((None, parts), |(sum, parts)| (Some(sum), parts));
    let widest = parts.iter().map(|part| part.1.unsigned_abs()).max().unwrap_or(1).max(1);
    let bar = |delta: i64| {
        let width = 50.0 * delta.unsigned_abs() as f64 / widest as f64;
        let left = if delta < 0 { 50.0 - width } else { 50.0 };
        format!("left:{left:.2}%;width:{width:.2}%")
    };
    html! {
        div.scroll { table.delta-table { tbody {
            @for (name, delta, _) in parts {
                tr {
                    th scope="row" { (name) }
                    td.n { (signed_ms(*delta)) " ms" }
                    td { span.delta { i class=(if *delta < 0 { "less" } else { "more" }) style=(bar(*delta)) {} } }
                }
            }
            @if let Some((name, delta, _)) = sum {
                tr.sum { th scope="row" { (name) } td.n { (signed_ms(*delta)) " ms" } td {} }
            }
        } } }
    }
}
