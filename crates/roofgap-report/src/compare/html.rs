//! A comparison as one HTML page that needs no network.

use super::view;
use crate::document::findings::saving;
use crate::document::{Block, Item, Section};
use crate::render::html::{self as render, STYLE, Shell, shell};
use maud::{Markup, html};
use roofgap_analyze::compare::Comparison;
use roofgap_analyze::{Analysis, Finding};
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
    let mut sections = vec![
        findings("Findings that are gone", base.analysis, head.analysis),
        findings("New findings", head.analysis, base.analysis),
    ];
    sections.retain(|section| !section.blocks.is_empty());
    sections.extend(view::sections(comparison, 200));
    let body = html! {
        main {
            p.kicker { "roofgap compare" }
            h1 { (view::headline(comparison)) }
            p { "base " (linked(titles[0], base)) ", head " (linked(titles[1], head)) }
            ul { @for fact in view::facts(comparison) { li { (fact) } } }
            (render::sections(&sections, |_| None))
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
fn findings(title: &str, one: &Analysis, other: &Analysis) -> Section {
    let is_alone = |own: &&Finding| {
        other.findings.iter().all(|known| (&known.id, &known.stage) != (&own.id, &own.stage))
    };
    let alone = one.findings.iter().filter(is_alone);
    let items: Vec<Item> = alone
        .map(|own| Item {
            name: own.title.clone(),
            text: format!(" {}", saving(one, own)),
            ..Item::default()
        })
        .collect();
    Section::new("", title).with((!items.is_empty()).then_some(Block::List(items)))
}
