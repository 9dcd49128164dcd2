//! Inputs, environment, phases, profiler overhead, losses and missing values.

use super::markup::absent;
use crate::bundle::Bundle;
use crate::view::provenance as view;
use crate::view::table::Table;
use maud::{Markup, html};
use roofgap_analyze::About;

/// Renders the section.
pub fn provenance(bundle: Bundle<'_>) -> Markup {
    let (analysis, context) = (bundle.analysis, bundle.context);
    let mut environment = Table::new(&["name", "value"]);
    for (name, value) in &context.environment {
        environment.row([name.clone(), value.clone()]);
    }
    let no_overhead = view::missing(analysis, &About::Overhead);
    let tables = [
        ("Inputs", view::sources(analysis), "None: the numbers were reported by the program."),
        ("Environment", environment, "Not recorded: the capture was made elsewhere."),
        ("Phases", view::phases(bundle), "None: the capture was made elsewhere."),
        ("Profiler overhead", view::overhead(analysis), no_overhead.as_str()),
        ("Losses", view::losses(analysis), view::NO_LOSSES),
        ("Missing or estimated values", view::reasons(analysis), "None."),
    ];
    html! {
        @for (title, table, empty) in tables {
            h3 { (title) }
            @if table.is_empty() { (absent(empty)) } @else { (table.html_with(cell)) }
        }
        @for sentence in view::high_overhead(analysis) { p.hint { (sentence) } }
        @if let Some(command) = &context.repeat { h3 { "Reproduce" } pre { (command) } }
    }
}

/// Marks the status of a phase.
fn cell(column: &str, cell: &str) -> Markup {
    html! {
        @if column == "status" { span class={ "status " (cell) } { (cell) } } @else { (cell) }
    }
}
